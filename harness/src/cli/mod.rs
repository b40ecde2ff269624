//! The command line.

mod accept;
mod args;
mod brokers;
mod cache;
mod config;
mod error;
mod init;
mod inspect;
mod journal;
mod out;
mod pairing;
mod progress;
pub(crate) mod say;
mod signals;
mod suite;

use std::io::IsTerminal;
use std::process::ExitCode;

use brokerfall_report::render::Palette;
use brokerfall_report::render::text::TextOptions;
use brokerfall_report::verdict;
use clap::Parser;

use args::{AdapterCommand, Cli, Command};
use error::SuiteError;

/// Runs the command line and returns its exit code.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.command {
        // The hidden ones first: they are whole programs of their own.
        Command::Reader { name } => crate::reader::bundled::main(&name),
        Command::MockCluster { args } => crate::cluster::mock::child::main(&args),
        Command::Watchdog => crate::process::watchdog::main(),
        Command::Run(args) => on_runtime(async move { told(suite::run(*args).await) }),
        Command::List(args) => finish(told(inspect::list(&args))),
        Command::Check(args) => finish(told(inspect::check(&args))),
        Command::Readers(args) => finish(told(inspect::readers(&args))),
        Command::Judge(args) => finish(inspect::judge(&args)),
        Command::Accept(args) => finish(told(accept::accept(&args))),
        Command::Init(command) => finish(told(init::init(&command))),
        Command::Cache(args) => finish(told(cache::cache(&args))),
        Command::Explain(args) => finish(inspect::explain(&args)),
        Command::Doctor(args) => on_runtime(async move { inspect::doctor(&args).await }),
        Command::Adapter(AdapterCommand::Check(args)) => {
            on_runtime(async move { told(inspect::adapter_check(args).await) })
        }
    }
}

/// The exit code of a command; what kept it from its work is said.
fn told(result: Result<verdict::ExitCode, SuiteError>) -> verdict::ExitCode {
    result.unwrap_or_else(|cause| {
        say::error(&cause);
        cause.exit_code()
    })
}

fn finish(code: verdict::ExitCode) -> ExitCode {
    // OK because every exit code is between 0 and 13.
    ExitCode::from(u8::try_from(code.code()).unwrap_or(1))
}

fn on_runtime(work: impl Future<Output = verdict::ExitCode>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(cause) => {
            say::note(&format!("error: cannot start the runtime: {cause}"));
            return finish(verdict::ExitCode::Environment);
        }
    };
    let code = runtime.block_on(work);
    // Not dropped: that would wait for a provisioning that a signal has ended.
    runtime.shutdown_background();
    finish(code)
}

/// The command line as it was typed, as far as it is text.
fn command_line() -> String {
    let words: Vec<String> = std::env::args_os()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    words.join(" ")
}

/// Colours where stdout is a terminal that is not a CI's and `NO_COLOR` is not set.
fn text_options(verbose: bool) -> TextOptions {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let colours = std::io::stdout().is_terminal() && !set("NO_COLOR") && !set("CI");
    let palette = if colours { Palette::ansi() } else { Palette::plain() };
    TextOptions {
        palette,
        verbose,
        ..TextOptions::default()
    }
}
