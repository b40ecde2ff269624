//! The command line.

mod args;
mod out;
pub(crate) mod say;
mod signals;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

/// Runs the command line and returns its exit code.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.command {
        Command::Reader { name } => crate::reader::bundled::main(&name),
        Command::MockCluster { args } => crate::cluster::mock::child::main(&args),
        Command::Watchdog => crate::process::watchdog::main(),
        _ => ExitCode::SUCCESS,
    }
}
