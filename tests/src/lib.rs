//! What the tests of Brokerfall are made of: broken adapters and mutant readers here, suites under `tests/`.

pub mod machine;
pub mod mutants;
pub mod parity;

use std::path::{Path, PathBuf};
use std::time::Duration;

use brokerfall::process::Spawner;
use brokerfall::reader::Launch;
use brokerfall::reader::catalogue::{ReaderError, Readers};
use brokerfall::reader::manifest::Manifest;
use brokerfall::reader::provision::ProvisionOptions;
use brokerfall_report::history::{Declares, ReaderInfo};
use brokerfall_report::protocol::Kind;
use brokerfall_report::render::json;
use brokerfall_report::report::Report;

/// Starts the watchdog of this test process, whose own binary has none: before anything here runs an installer or a reader.
///
/// # Panics
/// When it cannot be started.
pub fn watched() {
    let own = std::env::current_exe().expect("this process has a binary");
    // `target/debug/deps/suites-…`, beside whose folder Cargo puts the package's programs.
    let programs = own
        .ancestors()
        .nth(2)
        .expect("it stands in a folder of the target folder");
    Spawner::shared_with(&programs.join("brokerfall-under-test")).expect("the watchdog starts");
}

/// Long enough for a starved machine, short enough for a person.
pub const SOON: Duration = Duration::from_secs(60);

/// Waits until `look` finds something.
///
/// # Panics
/// When it does not within [`SOON`].
pub async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let looking = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(5));
        loop {
            ticks.tick().await;
            if let Some(found) = look().await {
                return found;
            }
        }
    };
    match tokio::time::timeout(SOON, looking).await {
        Ok(found) => found,
        Err(_) => panic!("{what} did not come true within {SOON:?}"),
    }
}

/// The report of the only invocation below an output folder; `None` where there is none that can be read.
pub fn only_report(out: &Path) -> Option<Report> {
    let folders = std::fs::read_dir(out).ok()?;
    let report = folders
        .filter_map(|folder| Some(folder.ok()?.path().join("report.json")))
        .find(|path| path.is_file())?;
    json::parse(&std::fs::read_to_string(report).ok()?).ok()
}

/// How to start an adapter with one argument, as a reader of kind group.
pub fn launch(adapter: &Path, mode: &str) -> Launch {
    let command = vec![adapter.to_string_lossy().into_owned(), mode.to_owned()];
    Launch {
        info: ReaderInfo {
            name: "broken".to_owned(),
            version: String::new(),
            source: "adapter".to_owned(),
            kind: Kind::Group,
            lock: None,
            declares: Declares::default(),
        },
        env: Vec::new(),
        folder: None,
        manifest: Manifest::bare("broken", Kind::Group, command.clone()),
        command,
        lock: None,
        neutral: false,
    }
}

/// A version of ktables to start, with `--with` and `--runtime`; see [`provisioned`].
pub fn ktables(version: &str, with: &[&str], runtime: Option<&str>, cache: &Path) -> Option<Launch> {
    provisioned(&format!("ktables@{version}"), &[], with, runtime, cache).map(|mut launches| launches.remove(0))
}

/// A reader to start as each of its kinds, or `None` (said aloud) where its environment cannot be had on this machine.
/// `dirs` hold manifests beside the bundled ones.
///
/// # Panics
/// When it cannot be had for any other reason; on CI, where the index is in reach, for every reason.
#[expect(clippy::print_stdout, reason = "tests show what is installed and what is skipped")]
pub fn provisioned(
    spec: &str,
    dirs: &[PathBuf],
    with: &[&str],
    runtime: Option<&str>,
    cache: &Path,
) -> Option<Vec<Launch>> {
    watched();
    let options = ProvisionOptions {
        with: with.iter().map(|&one| one.to_owned()).collect(),
        runtime: runtime.map(str::to_owned),
        cache: Some(cache.to_owned()),
        progress: &|step| println!("{step}"),
        ..ProvisionOptions::default()
    };
    match Readers::load(dirs)
        .expect("the manifests are sound")
        .resolve(spec, &options)
    {
        Ok(launches) => Some(launches),
        Err(error @ (ReaderError::NoRuntime { .. } | ReaderError::Provision { .. }))
            if std::env::var_os("CI").is_none() =>
        {
            println!("skipped: {spec} cannot be installed here: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}
