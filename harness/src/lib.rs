//! Brokerfall: a fault-injection chaos test harness for Kafka readers.
//!
//! The flow, in the order of the modules:
//!
//! ```text
//! scenario -> Plan -> run --inject/heal--> cluster (broker, log) | link (network) | reader (callback, process)
//!                      +--start/stop/commands--> reader (child process)  --events--+
//!                      +--oracle: own client on a direct listener, never through the link --+--> history
//! history -> facts -> invariants (pure) -> outcomes -> verdict -> reports
//! ```

pub mod cluster;
pub mod explain;
pub mod fault;
pub mod history;
pub mod invariant;
pub mod link;
pub mod oracle;
pub mod ports;
pub mod process;
pub mod reader;
pub mod run;
pub mod scenario;
pub mod verdict;

pub mod cli;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// An error and everything it was caused by, as one line: `failed to x: y: z`.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// Where a program is on PATH.
pub(crate) fn which(program: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
}

/// Lets `step` pass before the next look at something that tells nobody when it changes: a broker, `/proc`, a socket.
#[expect(
    clippy::disallowed_methods,
    reason = "time is the condition: there is nothing to be woken by"
)]
pub(crate) async fn before_the_next_look(step: std::time::Duration) {
    tokio::time::sleep(step).await;
}

/// Locks a mutex, whoever panicked while holding it: every change under the locks of this crate is complete in itself, so
/// that a panic elsewhere leaves nothing half done.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
