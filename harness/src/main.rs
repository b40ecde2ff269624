//! The one binary: everything is in the library's `cli` module.

fn main() -> std::process::ExitCode {
    // The lead's dispatch of hidden subcommands takes this over.
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some((first, rest)) = args.split_first()
        && first == "mock-cluster"
    {
        return brokerfall::cluster::mock::child::main(rest);
    }
    brokerfall::cli::main()
}
