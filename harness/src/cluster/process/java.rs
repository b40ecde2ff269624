//! The Java of this machine: found by JAVA_HOME, else on PATH, and new enough.

use std::path::{Path, PathBuf};

use super::KitError;
use crate::process;

/// Kafka 4 runs on this and later ones; 3.9 does too.
const OLDEST: u32 = 17;

/// A Java that runs brokers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Java {
    pub(super) program: PathBuf,
    /// `17.0.15`.
    pub(super) version: String,
    /// All that it says of itself: an archive of classes serves one build only.
    pub(super) build: String,
}

/// Finds it.
///
/// # Errors
/// [`KitError::NoJava`], [`KitError::OldJava`], [`KitError::BrokenJava`].
pub(super) fn find() -> Result<Java, KitError> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let home = set("JAVA_HOME").map(PathBuf::from);
    find_in(home.as_deref(), std::env::var_os("PATH").as_deref())
}

fn find_in(home: Option<&Path>, path: Option<&std::ffi::OsStr>) -> Result<Java, KitError> {
    // A JAVA_HOME that is set and holds none is a mistake to be told of, not a reason to take another Java.
    let (candidates, looked) = match home {
        Some(home) => (vec![home.join("bin/java")], format!("JAVA_HOME={}", home.display())),
        None => (
            path.map(|path| std::env::split_paths(path).map(|folder| folder.join("java")).collect())
                .unwrap_or_default(),
            "PATH; JAVA_HOME is not set".to_owned(),
        ),
    };
    let Some(program) = candidates.into_iter().find(|candidate| candidate.is_file()) else {
        return Err(KitError::NoJava { looked });
    };
    let output = process::output(std::process::Command::new(&program).arg("-version"))
        .map_err(KitError::io(format!("running {}", program.display())))?;
    // `-version` answers on stderr, whatever the maker.
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let version = version_in(&said);
    match version {
        Some((major, version)) if major >= OLDEST => Ok(Java {
            program,
            version,
            build: said,
        }),
        Some((_, version)) => Err(KitError::OldJava { program, version }),
        None => Err(KitError::BrokenJava { program, said }),
    }
}

/// The version in `openjdk version "17.0.15" 2025-04-15`, and its first number; of `1.8.0_402` that is 8.
fn version_in(said: &str) -> Option<(u32, String)> {
    let version = said.lines().find_map(|line| {
        let (_, rest) = line.split_once("version \"")?;
        Some(rest.split_once('"')?.0)
    })?;
    let feature = version.strip_prefix("1.").unwrap_or(version);
    let digits: String = feature.chars().take_while(char::is_ascii_digit).collect();
    Some((digits.parse().ok()?, version.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `java` that says this.
    fn java(said: &str) -> tempfile::TempDir {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().unwrap();
        let bin = home.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        let program = bin.join("java");
        std::fs::write(&program, format!("#!/bin/sh\ncat >&2 <<'END'\n{said}\nEND\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        home
    }

    #[test]
    fn version_is_what_stands_in_quotes() {
        let of = version_in;
        assert_eq!(
            of("openjdk version \"17.0.15\" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6)"),
            Some((17, "17.0.15".to_owned()))
        );
        assert_eq!(
            of("Picked up JAVA_TOOL_OPTIONS: -Xmx1g\njava version \"1.8.0_402\""),
            Some((8, "1.8.0_402".to_owned()))
        );
        assert_eq!(of("openjdk version \"25\" 2025-09-16"), Some((25, "25".to_owned())));
        assert_eq!(of("no such thing"), None);
    }

    #[test]
    fn java_that_is_too_old_is_named_with_what_is_wanted() {
        let home = java("java version \"1.8.0_402\"");
        let error = find_in(Some(home.path()), None).unwrap_err();
        assert!(matches!(error, KitError::OldJava { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("1.8.0_402") && text.contains("17"), "{text}");
    }

    #[test]
    fn java_that_does_not_say_its_version_is_shown() {
        let home = java("Error: could not find libjava.so");
        let error = find_in(Some(home.path()), None).unwrap_err();
        assert!(error.to_string().contains("could not find libjava.so"), "{error}");
    }

    #[test]
    fn java_home_without_java_is_a_mistake_that_path_does_not_hide() {
        let (home, good) = (tempfile::tempdir().unwrap(), java("openjdk version \"21\""));
        let path = good.path().join("bin").into_os_string();
        let error = find_in(Some(home.path()), Some(&path)).unwrap_err();
        assert!(matches!(error, KitError::NoJava { .. }), "{error}");
        assert!(error.to_string().contains("JAVA_HOME="), "{error}");
        assert_eq!(find_in(None, Some(&path)).unwrap().version, "21");
    }
}
