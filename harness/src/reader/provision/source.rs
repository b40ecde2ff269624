//! Where a library comes from: an index, a folder, or a ref of a local clone.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::catalogue::ReaderError;
use super::Fnv;

/// Folders that hold caches or builds, never a library's source.
const NOT_SOURCE: [&str; 8] = [
    "__pycache__",
    ".venv",
    "venv",
    ".tox",
    ".nox",
    "node_modules",
    "target",
    ".mypy_cache",
];

/// Where a library comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A version from an index.
    Index {
        /// Version.
        version: String,
        /// Exact requirements, the library's own first.
        pins: Vec<String>,
    },
    /// A folder of the machine.
    Path {
        /// The folder.
        dir: PathBuf,
        /// Hash of its content.
        content: String,
        /// Requirements beside it.
        packages: Vec<String>,
    },
    /// A commit of a local clone.
    Git {
        /// The clone.
        clone: PathBuf,
        /// The ref asked for.
        reference: String,
        /// The commit that it meant.
        commit: String,
        /// Requirements beside it.
        packages: Vec<String>,
    },
}

impl Source {
    /// A version from an index.
    pub fn index(version: &str, pins: Vec<String>) -> Source {
        Source::Index {
            version: version.to_owned(),
            pins,
        }
    }

    /// A folder, with the content that it has now.
    ///
    /// # Errors
    /// `Io` when it cannot be read.
    pub fn path(dir: &Path, packages: Vec<String>) -> Result<Source, ReaderError> {
        let mut hash = Fnv::default();
        walk(dir, &mut |file| {
            if !file.starts_with(dir.join(".git")) {
                let relative = file.strip_prefix(dir).unwrap_or(file);
                hash.part(relative.as_os_str().as_encoded_bytes());
                hash.part(&std::fs::read(file)?);
            }
            Ok(())
        })
        .map_err(ReaderError::io(format!("reading {}", dir.display())))?;
        Ok(Source::Path {
            dir: dir.to_owned(),
            content: hash.hex(),
            packages,
        })
    }

    /// The commit that a ref of a local clone means now.
    ///
    /// # Errors
    /// `Provision` with git's own words when there is no such clone or ref; `Io` when git cannot be run.
    pub fn git(reader: &str, clone: &Path, reference: &str, packages: Vec<String>) -> Result<Source, ReaderError> {
        let commit = git(
            reader,
            clone,
            &[
                "rev-parse",
                "--verify",
                "--end-of-options",
                &format!("{reference}^{{commit}}"),
            ],
        )?;
        Ok(Source::Git {
            clone: clone.to_owned(),
            reference: reference.to_owned(),
            commit: commit.trim().to_owned(),
            packages,
        })
    }

    /// The version for reports; a commit or a content hash, cut to 12 digits, where there is none.
    pub fn version(&self) -> String {
        match self {
            Source::Index { version, .. } => version.clone(),
            Source::Path { content, .. } => content.chars().take(12).collect(),
            Source::Git { commit, .. } => commit.chars().take(12).collect(),
        }
    }

    /// How reports name it.
    pub fn name(&self) -> String {
        match self {
            Source::Index { .. } => "pypi".to_owned(),
            Source::Path { dir, .. } => format!("path:{}", dir.display()),
            Source::Git { clone, reference, .. } => format!("git:{}#{reference}", clone.display()),
        }
    }

    /// Whether the library comes from this machine, so that no requirement names it.
    pub(super) fn is_local(&self) -> bool {
        !matches!(self, Source::Index { .. })
    }

    /// What distinguishes it in the cache.
    pub(super) fn identity(&self) -> String {
        match self {
            Source::Index { version, .. } => format!("version {version}"),
            Source::Path { content, .. } => format!("content {content}"),
            Source::Git { commit, .. } => format!("commit {commit}"),
        }
    }

    /// Requirements from an index.
    pub(super) fn requirements(&self) -> &[String] {
        match self {
            Source::Index { pins, .. } => pins,
            Source::Path { packages, .. } | Source::Git { packages, .. } => packages,
        }
    }

    /// Puts the source into `into`, so that building it leaves nothing in the user's folder; `None` for an index.
    pub(super) fn check_out(&self, reader: &str, into: &Path) -> Result<Option<PathBuf>, ReaderError> {
        match self {
            Source::Index { .. } => Ok(None),
            Source::Path { dir, .. } => {
                let copied = walk(dir, &mut |file| {
                    let target = into.join(file.strip_prefix(dir).unwrap_or(file));
                    if let Some(folder) = target.parent() {
                        std::fs::create_dir_all(folder)?;
                    }
                    std::fs::copy(file, target).map(|_| ())
                });
                copied.map_err(ReaderError::io(format!("copying {}", dir.display())))?;
                Ok(Some(into.to_owned()))
            }
            Source::Git { clone, commit, .. } => {
                // With its history, for build backends that read the version from tags.
                let from = clone.display().to_string();
                let to = into.display().to_string();
                git(reader, clone, &["clone", "--quiet", "--no-checkout", "--", &from, &to])?;
                git(reader, into, &["checkout", "--quiet", "--detach", commit])?;
                Ok(Some(into.to_owned()))
            }
        }
    }
}

/// Calls `each` for every file below `dir`, in order of name; links are read through for files, not followed for folders.
fn walk(dir: &Path, each: &mut dyn FnMut(&Path) -> std::io::Result<()>) -> std::io::Result<()> {
    let mut entries = std::fs::read_dir(dir)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            if !NOT_SOURCE.iter().any(|name| path.ends_with(name)) {
                walk(&path, each)?;
            }
        } else if path.is_file() {
            each(&path)?;
        }
    }
    Ok(())
}

/// Runs git in a folder and returns what it prints.
fn git(reader: &str, dir: &Path, arguments: &[&str]) -> Result<String, ReaderError> {
    let mut command = Command::new("git");
    command.arg("-C").arg(dir).args(arguments);
    let output = crate::process::output(&mut command).map_err(ReaderError::io("running git"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(ReaderError::Provision {
            reader: reader.to_owned(),
            what: format!("git {} in {}", arguments.first().unwrap_or(&""), dir.display()),
            tail: super::python::tail(&String::from_utf8_lossy(&output.stderr)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_source_changes_with_its_content_and_not_with_its_caches() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.py"), "1").unwrap();
        let first = Source::path(dir.path(), Vec::new()).unwrap();
        std::fs::create_dir(dir.path().join("__pycache__")).unwrap();
        std::fs::write(dir.path().join("__pycache__/a.pyc"), "x").unwrap();
        assert_eq!(Source::path(dir.path(), Vec::new()).unwrap(), first);
        std::fs::write(dir.path().join("a.py"), "2").unwrap();
        assert_ne!(Source::path(dir.path(), Vec::new()).unwrap(), first);
    }

    #[test]
    fn unknown_ref_is_an_error_in_the_words_of_git() {
        let dir = tempfile::tempdir().unwrap();
        git("lib", dir.path(), &["init", "--quiet"]).unwrap();
        let error = Source::git("lib", dir.path(), "no-such-ref", Vec::new())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("git rev-parse") && error.contains("Needed a single revision"),
            "{error}"
        );
    }

    #[test]
    fn git_source_is_the_commit_and_checks_it_out_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        git("lib", dir.path(), &["init", "--quiet"]).unwrap();
        std::fs::write(dir.path().join("a.py"), "1").unwrap();
        git("lib", dir.path(), &["add", "a.py"]).unwrap();
        let identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"];
        git(
            "lib",
            dir.path(),
            &[&identity[..], &["commit", "--quiet", "-m", "one"]].concat(),
        )
        .unwrap();
        std::fs::write(dir.path().join("a.py"), "2").unwrap();
        let source = Source::git("lib", dir.path(), "HEAD", Vec::new()).unwrap();
        assert_eq!(source.version().len(), 12);
        let into = tempfile::tempdir().unwrap();
        let checked_out = source.check_out("lib", &into.path().join("src")).unwrap().unwrap();
        assert_eq!(std::fs::read_to_string(checked_out.join("a.py")).unwrap(), "1");
    }
}
