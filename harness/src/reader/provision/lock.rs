//! `--lock FILE`: exactly these packages, as the lock of a run names them.
//!
//! ```text
//! # ktables@1.1.2 from pypi, Python 3.11.7, installed with venv and pip
//! aiokafka==0.14.0
//! ktables==1.1.2 --hash=sha256:0123…
//! ```
//!
//! The file is what the harness keeps of every run of a provisioned reader, or any requirements file of exact pins, such as
//! one that a lock tool wrote for production. Anything else in it (ranges, addresses, options, other files) is refused: it
//! would not say which packages are meant. Deliberately not here: installing.

use std::path::{Path, PathBuf};

use super::super::catalogue::ReaderError;
use super::python::package_of;

/// The packages that an environment is to hold, and no others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    path: PathBuf,
    pins: Vec<Pin>,
    /// The Python version that the harness noted in it.
    python: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Pin {
    /// In its normal form.
    package: String,
    version: String,
    /// The whole requirement, in one line.
    text: String,
}

impl Lock {
    /// Reads a lock.
    ///
    /// # Errors
    /// `Lock` for a file that cannot be read, or that holds something else than exact pins.
    pub fn read(path: &Path) -> Result<Lock, ReaderError> {
        let text = std::fs::read_to_string(path).map_err(|source| ReaderError::Lock {
            place: path.display().to_string(),
            text: "cannot be read".to_owned(),
            source: Some(source),
        })?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Lock, ReaderError> {
        let mut pins: Vec<Pin> = Vec::new();
        for (line, requirement) in requirements(text) {
            let refused = |text: String| ReaderError::Lock {
                place: format!("{}:{line}", path.display()),
                text,
                source: None,
            };
            let pin = pin(&requirement).ok_or_else(|| {
                refused(format!(
                    "`{requirement}` is no exact pin (wanted NAME==VERSION, with --hash=sha256:… where it has them)"
                ))
            })?;
            if let Some(other) = pins.iter().find(|other| other.package == pin.package) {
                return Err(refused(format!(
                    "`{}` stands here twice ({} and {})",
                    pin.package, other.version, pin.version
                )));
            }
            pins.push(pin);
        }
        if pins.is_empty() {
            return Err(ReaderError::Lock {
                place: path.display().to_string(),
                text: "pins no package (wanted lines of NAME==VERSION, such as the lock.txt of a run)".to_owned(),
                source: None,
            });
        }
        let noted = text.lines().next().and_then(|line| line.split_once(", Python "));
        let python = noted.and_then(|(_, rest)| rest.split(',').next()).map(str::to_owned);
        Ok(Lock {
            path: path.to_owned(),
            pins,
            python,
        })
    }

    /// The version of the library that a reader is built for; `wanted` is what `--reader NAME@VERSION` asks for.
    pub(in super::super) fn version(&self, package: &str, wanted: Option<&str>) -> Result<String, ReaderError> {
        let refused = |text: String| ReaderError::Lock {
            place: self.path.display().to_string(),
            text,
            source: None,
        };
        let Some(pin) = self.pins.iter().find(|pin| pin.package == package_of(package)) else {
            let known: Vec<&str> = self.pins.iter().map(|pin| pin.package.as_str()).collect();
            return Err(refused(format!(
                "does not pin `{package}`, the reader's library (it pins {})",
                known.join(", ")
            )));
        };
        match wanted {
            Some(wanted) if wanted != pin.version => Err(refused(format!(
                "pins {package} {}, but version {wanted} was asked for (leave out `@{wanted}`, or name the lock of such a run)",
                pin.version
            ))),
            _ => Ok(pin.version.clone()),
        }
    }

    /// The requirements, without that of a library that comes from elsewhere.
    pub(super) fn without(&self, library: Option<&str>) -> Vec<String> {
        let library = library.map(package_of);
        let wanted = self.pins.iter().filter(|pin| Some(&pin.package) != library.as_ref());
        wanted.map(|pin| pin.text.clone()).collect()
    }

    /// Whether it names a package, given in its normal form.
    pub(super) fn names(&self, package: &str) -> bool {
        self.pins.iter().any(|pin| pin.package == package)
    }

    /// The Python version that it was made on, where it says so.
    pub(super) fn python(&self) -> Option<&str> {
        self.python.as_deref()
    }
}

/// The requirements with the lines that they begin on: comments left out, continued lines joined.
fn requirements(text: &str) -> Vec<(usize, String)> {
    let mut all: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (index, line) in text.lines().enumerate() {
        // As pip reads them: a comment begins a line or follows a blank.
        let line = match line.trim_start().starts_with('#') {
            true => "",
            false => line.find(" #").map_or(line, |at| &line[..at]),
        };
        let (words, continued) = match line.trim_end().strip_suffix('\\') {
            Some(words) => (words.trim(), true),
            None => (line.trim(), false),
        };
        match all.last_mut().filter(|_| goes_on) {
            Some((_, requirement)) => {
                requirement.push(' ');
                requirement.push_str(words);
            }
            None => all.push((index + 1, words.to_owned())),
        }
        goes_on = continued;
    }
    let words = |(line, text): (usize, String)| (line, text.split_whitespace().collect::<Vec<_>>().join(" "));
    all.into_iter()
        .map(words)
        .filter(|(_, requirement)| !requirement.is_empty())
        .collect()
}

/// `NAME[EXTRA,…]==VERSION [; MARKER] [--hash=ALGORITHM:DIGEST …]`.
fn pin(requirement: &str) -> Option<Pin> {
    let (spec, hashes) = match requirement.find(" --") {
        Some(at) => requirement.split_at(at),
        None => (requirement, ""),
    };
    if !hashes.split_whitespace().all(|word| word.starts_with("--hash=")) {
        return None;
    }
    let (name, version) = spec.split(';').next()?.split_once("==")?;
    let (name, extras) = name.trim().split_once('[').unwrap_or((name.trim(), "]"));
    let version = version.trim();
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_version = |c: char| is_name(c) || matches!(c, '+' | '!');
    let exact = name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(is_name)
        && extras.ends_with(']')
        && version.starts_with(|c: char| c.is_ascii_alphanumeric())
        && version.chars().all(is_version);
    exact.then(|| Pin {
        package: package_of(name),
        version: version.to_owned(),
        text: requirement.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: &str = "# lib@1.0 from pypi, Python 3.11.7, installed with venv and pip\nLib_Core==1.0\nother[fast]==2.0+local \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb  # a comment\nthird==3 ; python_version < \"3.12\"\n";

    fn parse(text: &str) -> Result<Lock, String> {
        Lock::parse(Path::new("lock.txt"), text).map_err(|cause| cause.to_string())
    }

    #[test]
    fn pins_are_read_with_hashes_markers_and_continued_lines() {
        let lock = parse(KEPT).unwrap();
        assert_eq!(lock.python(), Some("3.11.7"));
        assert_eq!(lock.version("lib-core", None).unwrap(), "1.0");
        assert_eq!(lock.version("other", Some("2.0+local")).unwrap(), "2.0+local");
        assert!(lock.names("third") && !lock.names("lib"));
        assert_eq!(
            lock.without(Some("lib.core")),
            [
                "other[fast]==2.0+local --hash=sha256:aa --hash=sha256:bb",
                "third==3 ; python_version < \"3.12\""
            ]
        );
    }

    #[test]
    fn anything_but_an_exact_pin_is_refused_with_its_line() {
        for line in [
            "lib",
            "lib>=1.0",
            "lib==1.*",
            "lib==1.0,<2",
            "lib===1.0",
            "lib @ file:///lib",
            "-e .",
            "-r other.txt",
            "--index-url=x",
            "lib==1.0 --config-settings=x",
        ] {
            let refused = parse(&format!("a==1\n{line}\n")).unwrap_err();
            assert!(
                refused.starts_with("lock lock.txt:2: `") && refused.contains("is no exact pin"),
                "{refused}"
            );
        }
        assert!(parse("# nothing\n").unwrap_err().contains("pins no package"));
        assert_eq!(
            parse("a.b==1\nA-b==2\n").unwrap_err(),
            "lock lock.txt:2: `a-b` stands here twice (1 and 2)"
        );
    }

    #[test]
    fn library_that_is_missing_or_of_another_version_is_named() {
        let lock = parse("a==1\nb==2\n").unwrap();
        assert_eq!(
            lock.version("lib", None).unwrap_err().to_string(),
            "lock lock.txt: does not pin `lib`, the reader's library (it pins a, b)"
        );
        let other = lock.version("a", Some("2")).unwrap_err().to_string();
        assert!(other.contains("pins a 1, but version 2 was asked for"), "{other}");
    }
}
