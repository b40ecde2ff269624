//! Why a command could not start or finish.

use brokerfall_report::verdict::ExitCode;

use super::out::OutError;
use crate::process::SpawnError;

/// Why a suite could not start or finish.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SuiteError {
    /// Arguments, scenarios or readers are wrong; nothing was started.
    #[error("{0}")]
    Usage(String),
    /// Something that the suite needs of the machine is not there.
    #[error("{0}")]
    Environment(String),
    /// The output folder cannot be used.
    #[error("failed to prepare the output")]
    Out(#[from] OutError),
    /// Child processes cannot be started.
    #[error("failed to prepare for child processes")]
    Spawn(#[from] SpawnError),
    /// The operating system refused.
    #[error("failed to {what}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// Its answer.
        #[source]
        source: std::io::Error,
    },
}

impl SuiteError {
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            SuiteError::Usage(_) => ExitCode::Usage,
            _ => ExitCode::Environment,
        }
    }
}
