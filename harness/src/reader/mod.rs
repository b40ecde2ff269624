//! Readers under test: what runs them, what they report, and how they are found.

pub mod bundled;
pub mod catalogue;
pub mod claims;
pub mod host;
pub mod manifest;
#[cfg(test)]
mod protocol_fixtures;
pub mod provision;
pub mod sampler;
pub mod sdk;
pub mod validate;

use std::path::{Path, PathBuf};

use brokerfall_report::history::ReaderInfo;
use brokerfall_report::protocol::Kind;

use manifest::Manifest;

/// The variable that gives a reader's process a seed for what it draws at random: a number that follows from `--seed`, the
/// member and how many processes it had before, so that no two of a run draw the same.
pub const SEED_VARIABLE: &str = "BROKERFALL_SEED";

/// Everything needed to start a reader's process.
#[derive(Debug, Clone)]
pub struct Launch {
    /// How reports name it (`kind` is the kind to build).
    pub info: ReaderInfo,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Variables added to the allow-listed environment.
    pub env: Vec<(String, String)>,
    /// Working folder; absent means the run's own folder.
    pub folder: Option<PathBuf>,
    /// What describes it.
    pub manifest: Manifest,
    /// The resolved lock of a provisioned environment, to be copied into the run's folder under `info.lock`.
    pub lock: Option<PathBuf>,
    /// It is not the reader under test but reads along in its group, and is not judged.
    pub neutral: bool,
}

impl Launch {
    /// The bundled reference member, from this binary, as a neutral member of a group.
    pub(crate) fn neutral(program: &Path) -> Launch {
        const NAME: &str = "reference-group";
        let command = vec![
            program.to_string_lossy().into_owned(),
            "reader".to_owned(),
            NAME.to_owned(),
        ];
        let manifest = Manifest::bare(NAME, Kind::Group, command.clone());
        Launch {
            info: ReaderInfo {
                name: NAME.to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                source: "bundled".to_owned(),
                kind: Kind::Group,
                lock: None,
                declares: manifest.declared(),
            },
            command,
            env: Vec::new(),
            folder: None,
            manifest,
            lock: None,
            neutral: true,
        }
    }
}
