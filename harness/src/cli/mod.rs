//! The command line.

use std::process::ExitCode;

/// Runs the command line and returns its exit code.
pub fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["reader", name] => crate::reader::bundled::main(name),
        _ => ExitCode::SUCCESS,
    }
}
