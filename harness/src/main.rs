//! The one binary: everything is in the library's `cli` module.

fn main() -> std::process::ExitCode {
    brokerfall::cli::main()
}
