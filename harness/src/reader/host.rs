//! The adapter host: runs a reader's process and reads its lines with distrust.

use std::path::Path;
use std::time::Duration;

use brokerfall_report::protocol::{Command, Done};

use super::Launch;
use crate::history::recorder::Recorder;

/// A reader's process, running or ended.
pub struct ReaderProcess {}

impl ReaderProcess {
    /// Starts the process and returns at once; `hello` is awaited with [`ReaderProcess::hello`]. `folder` takes its
    /// stderr and client log. Everything it reports goes into the history.
    pub async fn spawn(
        _launch: &Launch,
        _member: &str,
        _folder: &Path,
        _recorder: Recorder,
    ) -> Result<ReaderProcess, HostError> {
        Err(HostError::Exited {
            member: String::new(),
            text: String::new(),
        })
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        0
    }

    /// Sends a command and waits for its `done`.
    pub async fn ask(&self, _command: Command, _within: Duration) -> Result<Done, HostError> {
        Err(HostError::Exited {
            member: String::new(),
            text: String::new(),
        })
    }
}

/// Why a reader's process did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// It ended first.
    #[error("reader {member} ended: {text}")]
    Exited {
        /// Member.
        member: String,
        /// Exit status and the last lines of its stderr.
        text: String,
    },
}
