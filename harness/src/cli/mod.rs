//! The command line.

/// Runs the command line and returns its exit code.
pub fn main() -> std::process::ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("watchdog") => crate::process::watchdog::main(),
        _ => std::process::ExitCode::SUCCESS,
    }
}
