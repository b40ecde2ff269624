//! `mutant NAME`: a mutant reader, or a bundled one by its name, as an adapter on stdin and stdout.

use std::process::ExitCode;

fn main() -> ExitCode {
    close_inherited();
    brokerfall_tests::mutants::main(&std::env::args().nth(1).unwrap_or_default())
}

/// Closes what the test's process left open in this one. librdkafka's mock cluster accepts connections without
/// close-on-exec, so a reader spawned beside it would keep them open after the mock's broker has died.
fn close_inherited() {
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else {
        return;
    };
    let inherited: Vec<i32> = open
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|fd| *fd > 2)
        .collect();
    for fd in inherited {
        // OK to drop the result: the descriptor of the listing itself is closed by now.
        let _ = nix::unistd::close(fd);
    }
}
