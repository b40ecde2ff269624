//! `cache`: what provisioning and clusters keep between runs, and how to be rid of it.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use brokerfall_report::verdict::ExitCode;

use super::args::{CacheArgs, CacheCommand};
use super::error::SuiteError;
use super::say;
use crate::reader::provision::{self, ProvisionOptions};

/// Something that is cached.
struct Kept {
    path: PathBuf,
    /// As it is shown: `envs/ktables-1.1.2-0123456789abcdef`.
    name: String,
    bytes: u64,
    age: Duration,
}

/// Lists or prunes.
///
/// # Errors
/// [`SuiteError::Provision`] without a cache folder, [`SuiteError::Io`] where it cannot be read or emptied.
pub(crate) fn cache(args: &CacheArgs) -> Result<ExitCode, SuiteError> {
    let root = ProvisionOptions::default().cache_dir().map_err(SuiteError::Provision)?;
    let kept = kept(&root)?;
    match &args.command {
        None => list(&root, &kept),
        Some(CacheCommand::Prune { all, older_than }) => {
            let older = Duration::from_secs(30 * 24 * 3600);
            let older = older_than.as_ref().map_or(older, |age| **age);
            let mut freed = 0;
            for one in kept.iter().filter(|one| *all || one.age > older) {
                if let Some(pid) = user_of(&one.path) {
                    say::note(&format!("{} is in use by process {pid} and stays", one.name));
                    continue;
                }
                match provision::remove(&one.path) {
                    Ok(true) => {
                        freed += one.bytes;
                        say::out_tame(&format!("removed {} ({})", one.name, size(one.bytes)));
                    }
                    Ok(false) => say::note(&format!("{} is being built by another process and stays", one.name)),
                    Err(source) => {
                        return Err(SuiteError::Io {
                            what: "remove from the cache",
                            source,
                        });
                    }
                }
            }
            say::out_tame(&format!("{} freed in {}", size(freed), root.display()));
        }
    }
    Ok(ExitCode::AsExpected)
}

fn list(root: &Path, kept: &[Kept]) {
    let width = kept.iter().map(|one| one.name.chars().count()).max().unwrap_or(0);
    for one in kept {
        let age = format!("built {} ago", age(one.age));
        say::out_tame(&format!("{:width$}  {:>9}  {age}", one.name, size(one.bytes)));
    }
    let sum = kept.iter().map(|one| one.bytes).sum();
    say::out_tame(&format!("{} things, {} in {}", kept.len(), size(sum), root.display()));
}

fn kept(root: &Path) -> Result<Vec<Kept>, SuiteError> {
    let io = |source| SuiteError::Io {
        what: "read the cache",
        source,
    };
    let mut found = Vec::new();
    for folder in ["adapters", crate::cluster::process::CACHED, "envs", crate::link::CACHED] {
        let listing = match std::fs::read_dir(root.join(folder)) {
            Ok(listing) => listing,
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => continue,
            Err(source) => return Err(io(source)),
        };
        for entry in listing {
            let entry = entry.map_err(io)?;
            // Locks of environments are files; they are empty, and removing one would let two builders in.
            if entry.file_type().map_err(io)?.is_dir() {
                let path = entry.path();
                found.push(Kept {
                    name: format!("{folder}/{}", entry.file_name().to_string_lossy()),
                    bytes: bytes(&path),
                    age: since_built(&path),
                    path,
                });
            }
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the age of a folder is told by the wall clock, as the file system does"
)]
fn since_built(path: &Path) -> Duration {
    let modified = std::fs::metadata(path).and_then(|found| found.modified());
    modified
        .ok()
        .and_then(|built| SystemTime::now().duration_since(built).ok())
        .unwrap_or_default()
}

/// What the files below a folder hold. Links are not followed: they lead out of the cache.
fn bytes(path: &Path) -> u64 {
    let Ok(listing) = std::fs::read_dir(path) else { return 0 };
    let entries = listing
        .flatten()
        .filter_map(|entry| Some((entry.path(), entry.metadata().ok()?)));
    entries
        .map(|(path, found)| if found.is_dir() { bytes(&path) } else { found.len() })
        .sum()
}

/// A process whose command line names the folder.
fn user_of(path: &Path) -> Option<u32> {
    let needle = path.to_string_lossy().into_owned();
    let listing = std::fs::read_dir("/proc").ok()?;
    listing
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .find(|pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            *pid != std::process::id() && String::from_utf8_lossy(&line).contains(&needle)
        })
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

/// An age in its largest unit.
fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_ages_have_their_unit() {
        assert_eq!(
            [size(12), size(2048), size(5 * 1_048_576)],
            ["12 B", "2.0 KiB", "5.0 MiB"]
        );
        let ages = [5, 120, 7200, 3 * 86_400].map(|s| age(Duration::from_secs(s)));
        assert_eq!(ages, ["5 s", "2 min", "2 h", "3 d"]);
    }
}
