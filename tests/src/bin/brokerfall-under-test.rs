//! The program as users run it, where the tests of this crate can find it.

fn main() -> std::process::ExitCode {
    brokerfall::cli::main()
}
