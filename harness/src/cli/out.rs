//! The output folder: one folder per invocation below `--out`, the last twenty kept, ignored by git.

use std::io::Write;
use std::path::{Path, PathBuf};

/// Invocations kept below an output folder.
const KEPT: usize = 20;

/// The folder of this invocation.
#[derive(Debug)]
pub(crate) struct Out {
    /// `--out`.
    root: PathBuf,
    /// This invocation's own.
    pub(crate) folder: PathBuf,
}

/// The output folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the output folder {} cannot be written (choose another with --out)", folder.display())]
pub(crate) struct OutError {
    folder: PathBuf,
    #[source]
    source: std::io::Error,
}

impl Out {
    /// Makes the folder of an invocation. `stamp` sorts by time: the oldest go when there are more than [`KEPT`].
    pub(crate) fn create(root: &Path, stamp: &str) -> Result<Self, OutError> {
        let failed = |source| OutError {
            folder: root.to_owned(),
            source,
        };
        std::fs::create_dir_all(root).map_err(failed)?;
        let root = std::fs::canonicalize(root).map_err(failed)?;
        std::fs::write(root.join(".gitignore"), "*\n").map_err(failed)?;
        let folder = root.join(format!("{stamp}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let out = Self { root, folder };
        out.prune().map_err(failed)?;
        Ok(out)
    }

    /// The folder of an invocation that is taken up.
    pub(crate) fn reopen(folder: &Path) -> Result<Self, OutError> {
        let failed = |source| OutError {
            folder: folder.to_owned(),
            source,
        };
        let folder = std::fs::canonicalize(folder).map_err(failed)?;
        let root = folder.parent().unwrap_or(&folder).to_owned();
        Ok(Self { root, folder })
    }

    /// Writes a file at the top of the invocation's folder.
    pub(crate) fn write(&self, name: &str, content: &str) -> Result<PathBuf, OutError> {
        let path = self.folder.join(name);
        let failed = |source| OutError {
            folder: self.folder.clone(),
            source,
        };
        let mut file = std::fs::File::create(&path).map_err(failed)?;
        file.write_all(content.as_bytes()).map_err(failed)?;
        Ok(path)
    }

    /// The report that was written last below an output folder, by its own time: names are no finer than a second.
    pub(crate) fn last_report(root: &Path) -> Option<PathBuf> {
        let written = |path: &PathBuf| std::fs::metadata(path).and_then(|found| found.modified()).ok();
        Self::invocations(root)
            .ok()?
            .into_iter()
            .map(|folder| folder.join("report.json"))
            .filter(|report| report.is_file())
            .max_by_key(written)
    }

    /// The folders of all invocations, oldest first.
    pub(crate) fn invocations(root: &Path) -> std::io::Result<Vec<PathBuf>> {
        let mut folders = Vec::new();
        for entry in std::fs::read_dir(root)? {
            let path = entry?.path();
            let ours = path.file_name().and_then(|name| name.to_str()).is_some_and(is_stamp);
            if ours && path.is_dir() {
                folders.push(path);
            }
        }
        folders.sort();
        Ok(folders)
    }

    fn prune(&self) -> std::io::Result<()> {
        let folders = Self::invocations(&self.root)?;
        let surplus = folders.len().saturating_sub(KEPT);
        for folder in folders.iter().take(surplus).filter(|folder| !is_running(folder)) {
            match std::fs::remove_dir_all(folder) {
                // Another invocation has dropped it at the same time.
                Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => {}
                removed => removed?,
            }
        }
        Ok(())
    }
}

/// Whether the invocation that made the folder may still write to it.
fn is_running(folder: &Path) -> bool {
    let pid = folder
        .file_name()
        .and_then(|name| name.to_str()?.split_once('-')?.1.parse().ok());
    // One that was taken up runs in another process than the one that named it.
    pid.is_some_and(|pid| crate::process::proc::stat(pid).is_some()) || super::journal::is_locked(folder)
}

/// Only folders that an invocation named are ever removed: `20261130T005812Z-4711`.
fn is_stamp(name: &str) -> bool {
    let Some((time, pid)) = name.split_once('-') else {
        return false;
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    time.len() == 16
        && time.ends_with('Z')
        && time.as_bytes()[8] == b'T'
        && digits(&time[..8])
        && digits(&time[9..15])
        && digits(pid)
}

/// A run's folder name: the scenario and reader with every character that a shell or file system might mind replaced.
pub(crate) fn run_folder(index: usize, scenario: &str, reader: &str) -> String {
    let safe = |text: &str| -> String {
        text.chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() || c == '.' || c == '-' {
                    c
                } else {
                    '_'
                }
            })
            .collect()
    };
    let mut name = format!("{index:04}-{}-{}", safe(scenario), safe(reader));
    name.truncate(120);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_told_from_other_folders() {
        assert!(is_stamp("20261130T005812Z-4711"));
        for other in [
            "notes",
            "20261130T005812Z",
            "20261130-4711",
            "20261130T00581xZ-1",
            "20261130T005812Z-",
        ] {
            assert!(!is_stamp(other), "{other}");
        }
    }

    #[test]
    fn a_twenty_first_invocation_drops_the_oldest_and_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("mine")).unwrap();
        // No process has this number: it is above the most that Linux gives out.
        for second in 0..24 {
            std::fs::create_dir(root.path().join(format!("20261130T0058{second:02}Z-4999999"))).unwrap();
        }
        Out::create(root.path(), "20261130T005824Z").unwrap();
        let mut names: Vec<String> = std::fs::read_dir(root.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(
            names.len(),
            KEPT + 2,
            "twenty invocations, .gitignore and mine: {names:?}"
        );
        assert!(names.contains(&"mine".to_owned()) && !names.iter().any(|name| name.starts_with("20261130T005804Z")));
    }

    #[test]
    fn an_invocation_that_still_runs_keeps_its_folder() {
        let root = tempfile::tempdir().unwrap();
        for second in 0..25 {
            Out::create(root.path(), &format!("20261130T0058{second:02}Z")).unwrap();
        }
        let kept = Out::invocations(root.path()).unwrap();
        assert_eq!(kept.len(), 25, "all are of this very process");
    }

    #[test]
    fn run_folders_hold_no_separator() {
        assert_eq!(
            run_folder(3, "a/b[x=1]", "ktables@1.1.1"),
            "0003-a_b_x_1_-ktables_1.1.1"
        );
    }
}
