//! Toxiproxy's server program: found on PATH, or built once by Go into the cache.
//!
//! One version alone is used, whatever stands on PATH: what a toxic does to a connection differs between releases, and
//! `toxics` and `sockets` are written for this one.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::link::CACHED;
use crate::process;
use crate::reader::catalogue::ReaderError;
use crate::reader::provision;

/// The version that is used.
pub const VERSION: &str = "2.12.0";
/// The program's name, on PATH and in the cache.
const NAME: &str = "toxiproxy-server";
/// Where Go finds it.
const MODULE: &str = "github.com/Shopify/toxiproxy/v2";
/// Part of the folder's name; raised when it is built otherwise.
const RECIPE: &str = "1";
/// Lines of a failed build that are shown.
const TAIL_LINES: usize = 12;

/// A server program of version [`VERSION`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    path: PathBuf,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// It would have to be built, and nobody has asked for that.
    #[error(
        "Toxiproxy {VERSION} is neither on PATH{passed_over} nor in the cache (`--link toxiproxy` builds it with Go)"
    )]
    NotBuilt {
        /// What stands on PATH instead, in brackets; empty for nothing.
        passed_over: String,
    },
    /// No Go.
    #[error(
        "Toxiproxy {VERSION} is neither on PATH{passed_over} nor in the cache, and no go on PATH could build it (install Go, \
         or put {NAME} {VERSION} on PATH)"
    )]
    NoGo {
        /// What stands on PATH instead, in brackets; empty for nothing.
        passed_over: String,
    },
    /// Go failed.
    #[error(
        "go could not build Toxiproxy {VERSION} (the first time needs a network; what is in the cache does not); it says:\n{tail}"
    )]
    Build {
        /// Its last lines.
        tail: String,
    },
    /// What was built, or is kept, is not what it should be.
    #[error("{} says that it is {found} (wanted {NAME} {VERSION}; remove its folder to have it built anew)", path.display())]
    Other {
        /// The program.
        path: PathBuf,
        /// What it says.
        found: String,
    },
    /// The cache cannot be used.
    #[error("the cache cannot be used")]
    Cache(#[from] ReaderError),
    /// The operating system refused.
    #[error("{what} failed")]
    Io {
        /// What was being done.
        what: String,
        /// Its answer.
        #[source]
        source: std::io::Error,
    },
}

impl ProgramError {
    /// True for what a machine may rightly lack.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, ProgramError::NotBuilt { .. } | ProgramError::NoGo { .. })
    }

    fn io(what: String) -> impl FnOnce(std::io::Error) -> Self {
        move |source| ProgramError::Io { what, source }
    }
}

impl Program {
    /// Finds the program: on PATH, else in the cache, else (with `may_build`) built there by `go install`, which needs a
    /// network the first time. Another version on PATH is passed over. Blocks while Go builds.
    ///
    /// # Errors
    /// [`ProgramError`].
    pub fn find(cache: &Path, may_build: bool, progress: &dyn Fn(&str)) -> Result<Program, ProgramError> {
        let on_path = crate::which(NAME);
        let told = on_path.as_deref().map(version);
        let passed_over = match (on_path, told) {
            (Some(path), Some(Ok(told))) if told == VERSION => return Ok(Program { path }),
            (Some(path), Some(told)) => {
                format!(
                    " ({} is {})",
                    path.display(),
                    told.unwrap_or_else(|cause| cause.to_string())
                )
            }
            _ => String::new(),
        };
        let label = format!("toxiproxy-{VERSION}-{RECIPE}");
        let links = cache.join(CACHED);
        let place = links.join(&label);
        if !place.is_dir() {
            if !may_build {
                return Err(ProgramError::NotBuilt { passed_over });
            }
            let go = crate::which("go").ok_or(ProgramError::NoGo { passed_over })?;
            std::fs::create_dir_all(&links).map_err(ProgramError::io(format!("making {}", links.display())))?;
            let _lock = provision::lock_file(&links.join(format!(".{label}.lock")), progress)?;
            // Whoever held the lock may have built the same.
            if !place.is_dir() {
                build(&go, &links, &label, &place, progress)?;
            }
        }
        let program = Program { path: place.join(NAME) };
        let found = version(&program.path);
        match found.map_err(ProgramError::io(format!(
            "asking {} for its version",
            program.path.display()
        )))? {
            found if found == VERSION => Ok(program),
            found => Err(ProgramError::Other {
                path: program.path,
                found,
            }),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn build(go: &Path, links: &Path, label: &str, place: &Path, progress: &dyn Fn(&str)) -> Result<(), ProgramError> {
    let building = provision::building(links, label)?;
    progress(&format!("building Toxiproxy {VERSION} with {} (once)", go.display()));
    // A plain `go install` leaves the version `git` in the program.
    let version = format!("-s -w -X {MODULE}.Version={VERSION}");
    let output = process::output(
        Command::new(go)
            .args(["install", "-trimpath", "-ldflags", &version])
            .arg(format!("{MODULE}/cmd/server@v{VERSION}"))
            .env("GOBIN", building.path())
            .env("CGO_ENABLED", "0"),
    )
    .map_err(ProgramError::io(format!("running {}", go.display())))?;
    if !output.status.success() {
        return Err(ProgramError::Build {
            tail: tail(&output.stderr),
        });
    }
    let (from, to) = (building.path().join("server"), building.path().join(NAME));
    std::fs::rename(&from, &to).map_err(ProgramError::io(format!("naming {}", from.display())))?;
    provision::move_into_place(building, place)?;
    Ok(())
}

/// What a program says that it is: `toxiproxy-server version 2.12.0`, of which the version.
fn version(program: &Path) -> std::io::Result<String> {
    let output = process::output(Command::new(program).arg("-version"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let said = said.trim();
    let version = said.strip_prefix(NAME).and_then(|rest| rest.strip_prefix(" version "));
    Ok(version.unwrap_or("no Toxiproxy that tells its version").to_owned())
}

fn tail(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}
