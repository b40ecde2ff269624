//! Output that cannot be written is an error of the environment, with a message that names the place.

use std::process::Command;

use super::bench::{BINARY, Bench, start};

#[test]
fn output_folder_that_cannot_be_made_is_named_before_anything_starts() {
    let bench = Bench::new();
    bench.write("file", "");
    for out in ["file/out", "/proc/out", "file"] {
        let ended = bench.run(["run", "control/idle", "--reader", "reference-assign", "--out", out]);
        ended.assert_code(3).assert_calm();
        ended.assert_complains(&format!(
            "the output folder {out} cannot be written (choose another with --out)"
        ));
        let checked = bench.run([
            "adapter",
            "check",
            "--kind",
            "assign",
            "--out",
            out,
            "--",
            BINARY,
            "reader",
            "reference-assign",
        ]);
        checked
            .assert_code(3)
            .assert_calm()
            .assert_complains(&format!("the output folder {out}"));
    }
    bench.assert_clean();
}

/// A limit on the size of files stands in for a full disk: it needs no rights, and a write fails in the same way.
fn with_files_up_to(bench: &Bench, blocks: u32, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command
        .args([
            "-c",
            "trap '' XFSZ; ulimit -f \"$1\"; shift; exec \"$@\"",
            "sh",
            &blocks.to_string(),
            BINARY,
        ])
        .args(arguments);
    bench.prepare(&mut command);
    command
}

#[test]
fn disk_that_fills_up_in_mid_run_is_an_error_and_ends_the_run() {
    let bench = Bench::new();
    // Nothing ends this run soon but the disk: the reader never comes back from stop, and has 60 s for it.
    let manifest = format!(
        "name = \"slow\"\nkinds = [\"assign\"]\ncommand = [{MUTANT:?}, \"hangs-in-stop\"]\n[limits]\nstop-grace = \"60s\"\n",
        MUTANT = super::bench::MUTANT
    );
    bench.write("readers/slow.toml", manifest);
    let running = start(with_files_up_to(&bench, 8, &Bench::arguments("control/idle", "slow")));
    let ended = running.end();
    ended
        .assert_code(3)
        .assert_calm()
        .assert_says("cannot be written or read: File too large");
    ended.assert_says("make room, or choose another folder with --out");
    bench.assert_clean();
}

#[test]
fn reports_that_cannot_be_written_do_not_take_the_result_with_them() {
    let bench = Bench::new();
    bench.reader("short", "group", &["false"]);
    // The history of so short a run is small enough, its report is not.
    let ended = start(with_files_up_to(&bench, 8, &Bench::arguments("control/idle", "short"))).end();
    ended
        .assert_code(3)
        .assert_calm()
        .assert_says("`false` exited with status 1 before `hello`");
    ended
        .assert_complains("cannot be written")
        .assert_complains("File too large");
    bench.assert_clean();
}
