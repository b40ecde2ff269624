//! The link `toxiproxy`: the program with a real Toxiproxy server. Needs the server on PATH, or Go the first time; a named
//! skip elsewhere. Run with `cargo test --features chaos --test toxiproxy`.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests panic as tests do, and what is built or skipped is shown"
)]

mod machine;
mod runs;

use std::path::Path;
use std::process::{Command, Output};
use std::sync::OnceLock;

use brokerfall::link::toxiproxy::{Program, ProgramError};
use brokerfall::reader::provision::ProvisionOptions;
use brokerfall_report::report::Report;

/// The program as users run it.
fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_brokerfall-under-test"))
}

/// Toxiproxy's server from the user's own cache, built once for all; `None` (said aloud) where it cannot be had.
fn toxiproxy() -> Option<&'static Program> {
    static FOUND: OnceLock<Option<Program>> = OnceLock::new();
    let find = || {
        let cache = ProvisionOptions::default().cache_dir().unwrap();
        match Program::find(&cache, true, &|line| println!("{line}")) {
            Ok(program) => Some(program),
            Err(cause @ ProgramError::NoGo { .. }) => {
                println!("skipped: {cause}");
                None
            }
            Err(cause) => panic!("{cause}"),
        }
    };
    FOUND.get_or_init(find).as_ref()
}

/// `run` with reports below a folder.
fn run(out: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.arg("run").args(words).arg("--out").arg(out).current_dir(out);
    command
}

/// Everything that it printed, on one line.
fn text(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The report of the only invocation below an output folder.
fn report(out: &Path, output: &Output) -> Report {
    brokerfall_tests::only_report(out).unwrap_or_else(|| panic!("no report: {}", text(output)))
}
