//! SIGINT and SIGTERM: the first ends every run in good order, the second ends the process at once.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::run::Cancel;

/// Starts to listen. The watchdog takes care of child processes when the second signal ends this one.
pub(crate) fn listen() -> std::io::Result<Cancel> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let (tell, told) = watch::channel(None);
    tokio::spawn(async move {
        let mut number = 0;
        loop {
            let (name, code) = tokio::select! {
                _ = interrupt.recv() => ("SIGINT", 130),
                _ = terminate.recv() => ("SIGTERM", 143),
            };
            number += 1;
            if number > 1 {
                std::process::exit(code);
            }
            tell.send_replace(Some(name));
        }
    });
    Ok(told)
}
