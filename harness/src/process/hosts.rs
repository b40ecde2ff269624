//! Names that one process alone resolves: a hosts file of its own, mounted over the machine's in a mount namespace that
//! nobody else sees. Only where the machine lets us make one (root: it takes CAP_SYS_ADMIN); nothing of the machine is changed.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use super::output;

/// The machine's own.
const SYSTEM: &str = "/etc/hosts";

/// Mounts the file that is its first argument over the machine's and becomes the program that follows, so that process id
/// and group stay what they are.
const MOUNT: &str = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";

/// A hosts file and the names in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosts {
    file: PathBuf,
    names: Vec<(String, IpAddr)>,
}

impl Hosts {
    /// Writes the file: what the machine's own says, and these names.
    ///
    /// # Errors
    /// The operating system's.
    pub fn write(file: &Path, names: Vec<(String, IpAddr)>) -> std::io::Result<Hosts> {
        let hosts = Hosts {
            file: file.to_owned(),
            names,
        };
        hosts.save()?;
        Ok(hosts)
    }

    /// Has a name stand for another address. Processes that run see it at the next look into the file.
    ///
    /// # Errors
    /// The operating system's.
    pub fn point(&mut self, name: &str, to: IpAddr) -> std::io::Result<()> {
        for (known, address) in &mut self.names {
            if known == name {
                *address = to;
            }
        }
        self.save()
    }

    /// The command that runs another one with this file in place of the machine's.
    pub fn wrap(&self, command: &[String]) -> Vec<String> {
        let before = ["unshare", "--mount", "sh", "-c", MOUNT].map(str::to_owned);
        let file = std::iter::once(self.file.to_string_lossy().into_owned());
        before.into_iter().chain(file).chain(command.iter().cloned()).collect()
    }

    /// Why a process cannot be given the file here; `None` when it can. Looks by doing it, and blocks meanwhile.
    pub fn lacking(&self) -> Option<String> {
        let command = self.wrap(&["grep", "-q", "-F", self.last(), SYSTEM].map(str::to_owned));
        let (program, arguments) = command.split_first()?;
        match output(std::process::Command::new(program).args(arguments)) {
            Ok(done) if done.status.success() => None,
            Ok(done) => {
                let told = String::from_utf8_lossy(&done.stderr).trim().to_owned();
                Some(format!(
                    "`unshare --mount` and `mount --bind` ended with {} ({told})",
                    done.status
                ))
            }
            Err(cause) => Some(format!("`{program}` cannot be started: {cause}")),
        }
    }

    fn last(&self) -> &str {
        self.names.last().map_or("", |(name, _)| name)
    }

    /// In place: a mount holds the file and not its name.
    fn save(&self) -> std::io::Result<()> {
        let own: String = self
            .names
            .iter()
            .map(|(name, address)| format!("{address} {name}\n"))
            .collect();
        // OK without: a machine may have none.
        let system = std::fs::read_to_string(SYSTEM).unwrap_or_default();
        std::fs::write(&self.file, format!("{own}{system}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_pointed_elsewhere_in_the_same_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("hosts");
        let at = |last: u8| IpAddr::from([127, 0, 0, last]);
        let names = vec![("one.test".to_owned(), at(2)), ("two.test".to_owned(), at(3))];
        let mut hosts = Hosts::write(&file, names).unwrap();
        let opened = std::fs::File::open(&file).unwrap();
        hosts.point("two.test", at(4)).unwrap();
        let text = std::io::read_to_string(opened).unwrap();
        assert!(text.starts_with("127.0.0.2 one.test\n127.0.0.4 two.test\n"), "{text}");
    }

    #[test]
    fn command_is_what_runs_in_the_end() {
        let hosts = Hosts {
            file: "/run/hosts".into(),
            names: Vec::new(),
        };
        let wrapped = hosts.wrap(&["reader".to_owned(), "a b".to_owned()]);
        assert_eq!(wrapped[5..], ["/run/hosts", "reader", "a b"]);
    }
}
