//! A harness in small: starts readers through the library and then waits to be killed.
//!
//! Arguments: the program with the subcommand `watchdog`, the broken adapter, a folder, and the adapter's mode for each reader.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use brokerfall::history::recorder::Recorder;
use brokerfall::process::Spawner;
use brokerfall::reader::host::ReaderProcess;
use brokerfall_tests::launch;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [watchdog, adapter, folder, modes @ ..] = arguments.as_slice() else {
        return ExitCode::from(2);
    };
    match start(watchdog, adapter, folder, modes).await {
        Ok(readers) => {
            let _ = writeln!(std::io::stdout(), "ready");
            std::future::pending::<()>().await;
            drop(readers);
            ExitCode::SUCCESS
        }
        Err(cause) => {
            let _ = writeln!(std::io::stderr(), "{cause}");
            ExitCode::FAILURE
        }
    }
}

async fn start(
    watchdog: &Path,
    adapter: &Path,
    folder: &Path,
    modes: &[PathBuf],
) -> Result<Vec<ReaderProcess>, brokerfall::reader::host::HostError> {
    let spawner = Spawner::shared_with(watchdog).map_err(|source| brokerfall::reader::host::HostError::Spawn {
        member: String::new(),
        source,
    })?;
    spawner.guard_folder(folder);
    let recorder = Recorder::new(None).map_err(|source| brokerfall::reader::host::HostError::Io {
        what: "the recorder cannot be made".to_owned(),
        source,
    })?;
    let mut readers = Vec::new();
    for mode in modes.iter().filter_map(|mode| mode.to_str()) {
        let reader = ReaderProcess::spawn(&launch(adapter, mode), mode, &folder.join(mode), recorder.clone()).await?;
        reader.hello(Duration::from_secs(10)).await?;
        readers.push(reader);
    }
    Ok(readers)
}
