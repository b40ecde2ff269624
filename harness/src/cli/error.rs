//! Why a command could not start or finish.

use brokerfall_report::verdict::ExitCode;

use tokio::task::JoinError;

use super::journal::JournalError;
use super::out::OutError;
use crate::cluster::container::EngineError;
use crate::cluster::process::KitError;
use crate::process::SpawnError;
use crate::reader::catalogue::ReaderError;
use crate::run::RunError;
use crate::scenario::Diagnostics;
use crate::scenario::catalogue::SelectError;

/// Why a suite could not start or finish.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SuiteError {
    /// Arguments contradict each other or name nothing; nothing was started.
    #[error("{0}")]
    Usage(String),
    /// The command line of an adapter cannot be written down.
    #[error("the adapter's command cannot be quoted")]
    Quote(#[source] shlex::QuoteError),
    /// No scenario can be selected.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// A scenario or a file of known failures is wrong.
    #[error(transparent)]
    Wrong(#[from] Diagnostics),
    /// What was asked for is no reader.
    #[error(transparent)]
    Reader(ReaderError),
    /// The reader is known and cannot be had here.
    #[error(transparent)]
    Provision(ReaderError),
    /// Brokers cannot be started here, and something has failed.
    #[error(transparent)]
    Kit(KitError),
    /// Toxiproxy cannot be had here, and something has failed.
    #[cfg(feature = "toxiproxy")]
    #[error(transparent)]
    Toxiproxy(crate::link::toxiproxy::ProgramError),
    /// The container engine is there, and something has failed.
    #[error(transparent)]
    Engine(EngineError),
    /// Provisioning stopped in the middle.
    #[error("provisioning panicked")]
    Provisioning(#[source] JoinError),
    /// The adapter could not be put through its paces, which is not its doing.
    #[error(transparent)]
    Paces(#[from] RunError),
    /// The output folder cannot be used.
    #[error("failed to prepare the output")]
    Out(#[from] OutError),
    /// An earlier invocation cannot be taken up.
    #[error("--resume")]
    Resume(#[source] JournalError),
    /// What was done cannot be remembered.
    #[error("failed to prepare the output")]
    Journal(#[source] JournalError),
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
            SuiteError::Usage(_)
            | SuiteError::Quote(_)
            | SuiteError::Select(_)
            | SuiteError::Resume(_)
            | SuiteError::Wrong(_)
            | SuiteError::Kit(KitError::Version { .. })
            | SuiteError::Reader(_) => ExitCode::Usage,
            SuiteError::Provision(_)
            | SuiteError::Kit(_)
            | SuiteError::Engine(_)
            | SuiteError::Provisioning(_)
            | SuiteError::Paces(_)
            | SuiteError::Out(_)
            | SuiteError::Journal(_)
            | SuiteError::Spawn(_)
            | SuiteError::Io { .. } => ExitCode::Environment,
            #[cfg(feature = "toxiproxy")]
            SuiteError::Toxiproxy(_) => ExitCode::Environment,
        }
    }
}
