//! Adapters that break what can be broken: each gets a clear verdict with a message that names the thing, and nothing of
//! it is left.

use brokerfall_report::verdict::{Verdict, VoidWhose};

use super::bench::{BINARY, BROKEN, Bench, MUTANT};

/// Mode of the broken adapter, and the words that its verdict must hold.
const BROKEN_RULES: [(&str, &str); 9] = [
    (
        "exits-before-hello",
        "exited with status 3 before `hello` (the last line of its stderr: line 30)",
    ),
    ("babbles", "a line that is not JSON"),
    ("gap", "seq is 3, wanted 2"),
    ("unknown-type", "unknown type \"gossip\""),
    ("answers-twice", "a second `done` for id 1"),
    ("prints-100-mb", "a line longer than 1048576 bytes"),
    ("huge-line", "a line longer than 1048576 bytes"),
    ("floods", "more than 5000 lines in one second"),
    ("closes-stdout", "closed its stdout but runs on"),
];

/// The same for adapters that keep the protocol and do not read.
const NEVER_READ: [(&str, &str); 7] = [
    ("late", "`start` was not answered"),
    ("never-answers", "`start` was not answered"),
    ("ignores-sigterm", "`start` was not answered"),
    ("hangs", "`start` was not answered"),
    ("stops-itself", "`start` was not answered"),
    ("leaves-grandchild", "did not catch up within 2s (lag 600)"),
    ("leaves-daemon", "did not catch up within 2s (lag 600)"),
];

fn run_all(modes: &[(&str, &str)], whose: VoidWhose) -> Bench {
    let bench = Bench::new();
    let mut arguments = vec![
        "run",
        "control/idle",
        "--readers-dir",
        "readers",
        "--out",
        "out",
        "--jobs",
        "8",
    ];
    for (mode, _) in modes {
        bench.reader(mode, "group", &[BROKEN, mode]);
        arguments.extend(["--reader", mode]);
    }
    let ended = bench.run(arguments);
    ended.assert_code(11).assert_calm();
    let report = bench.report();
    assert_eq!(report.runs.len(), modes.len());
    for (mode, words) in modes {
        let run = report.runs.iter().find(|run| run.reader.name == *mode).unwrap();
        assert_eq!(run.verdict, Verdict::Void, "{mode}: {}", run.cause);
        let told = run
            .voids
            .iter()
            .any(|void| void.whose == whose && void.text.contains(words));
        assert!(told, "{mode}: wanted {words:?} in {:#?}", run.voids);
    }
    bench.assert_clean();
    bench
}

#[test]
fn broken_protocol_voids_the_run_and_names_the_rule() {
    run_all(&BROKEN_RULES, VoidWhose::Adapter);
}

#[test]
fn reader_that_never_reads_voids_the_run_and_what_it_leaves_is_named_and_killed() {
    let bench = run_all(&NEVER_READ, VoidWhose::Reader);
    for run in bench.report().runs {
        if run.reader.name.starts_with("leaves-") {
            let named = |text: &str| text.contains("left 1 processes behind") && text.contains("broken-adapter");
            assert!(run.observed.iter().any(|seen| named(&seen.text)), "{:#?}", run.observed);
        }
    }
}

#[test]
fn protocol_broken_in_the_middle_of_a_long_wait_ends_the_wait() {
    // `closes-stdout` breaks the protocol 2 s after it was asked to start; without a manifest the wait is 60 s.
    let bench = Bench::new();
    let adapter = format!("{BROKEN} closes-stdout");
    let ended = bench.run_adapter(&adapter);
    ended.assert_code(11).assert_says("closed its stdout but runs on");
    assert!(bench.report().runs[0].timings.total_ms < 30_000.0);
    bench.assert_clean();
}

#[test]
fn program_that_is_not_there_is_an_error_of_the_environment() {
    let bench = Bench::new();
    let ended = bench.run([
        "run",
        "control/idle",
        "--adapter",
        "./no-such-adapter",
        "--kind",
        "group",
        "--out",
        "out",
    ]);
    ended
        .assert_code(3)
        .assert_says("`./no-such-adapter` cannot be started");
    bench.assert_clean();
}

#[test]
fn reader_whose_process_ends_by_itself_failed() {
    let bench = Bench::new();
    bench.reader("quits", "assign", &[MUTANT, "exits-with-zero"]);
    let ended = bench.run(Bench::arguments("broker-kill/live", "quits"));
    ended
        .assert_code(10)
        .assert_says("no_silent_death violated: r1 exited with status 0 without an exception");
    bench.assert_clean();
}

#[test]
fn grandchild_of_a_correct_reader_fails_stops_cleanly_and_is_killed_even_in_a_session_of_its_own() {
    let bench = Bench::new();
    let reader = format!("sleep 300 & setsid sleep 301 & exec {BINARY} reader reference-assign");
    bench.reader("with-daemon", "assign", &["sh", "-c", &reader]);
    let ended = bench.run(Bench::arguments("control/idle", "with-daemon"));
    ended
        .assert_code(10)
        .assert_says("stops_cleanly violated: r1 left 2 processes behind");
    bench.assert_clean();
}

#[test]
fn adapter_check_names_the_broken_rule() {
    let bench = Bench::new();
    let check = |mode: &str| {
        let out = format!("out-{mode}");
        bench.start(["adapter", "check", "--kind", "group", "--out", &out, "--", BROKEN, mode])
    };
    let checks: Vec<_> = BROKEN_RULES
        .iter()
        .map(|(mode, words)| (mode, words, check(mode)))
        .collect();
    for (mode, words, running) in checks {
        let ended = running.end();
        ended.assert_code(10).assert_calm();
        // The check quotes the whole tail of stderr, not its last line.
        let words = words.split(" (").next().unwrap();
        let said = ended
            .stdout
            .lines()
            .any(|line| line.starts_with("BAD") && line.contains(words));
        assert!(said, "{mode}: wanted {words:?} in {ended}");
    }
    bench.assert_clean();
}

#[test]
fn adapter_check_of_a_program_that_is_not_there_is_an_error_of_the_environment() {
    let bench = Bench::new();
    let ended = bench.run([
        "adapter",
        "check",
        "--kind",
        "group",
        "--out",
        "out",
        "--",
        "./no-such-adapter",
    ]);
    ended
        .assert_code(3)
        .assert_complains("`./no-such-adapter` cannot be started");
    bench.assert_clean();
}

#[test]
fn adapter_check_of_a_correct_adapter_finds_nothing() {
    let bench = Bench::new();
    let check = |kind: &str| {
        let (out, reader) = (format!("out-{kind}"), format!("reference-{kind}"));
        bench.start([
            "adapter", "check", "--kind", kind, "--out", &out, "--", BINARY, "reader", &reader,
        ])
    };
    for running in ["table", "group", "assign"].map(check) {
        let ended = running.end();
        ended.assert_code(0).assert_says(" 0 bad");
        assert!(!ended.stdout.contains("BAD"), "{ended}");
    }
    bench.assert_clean();
}

#[test]
fn adapter_without_what_the_scenario_needs_is_a_named_skip_and_nothing_was_judged() {
    let bench = Bench::new();
    bench.reader("plain", "group", &[BROKEN, "good"]);
    let scenario = "callback-panic/on-record-live";
    let ended = bench.run([
        "run",
        scenario,
        "--readers-dir",
        "readers",
        "--out",
        "out",
        "--reader",
        "plain",
    ]);
    ended.assert_code(13).assert_calm();
    let report = bench.report();
    let run = report.runs.first().unwrap();
    assert_eq!(run.verdict, Verdict::Skipped, "{}", run.cause);
    let skip = run.skipped.as_ref().unwrap();
    assert!(skip.reason.contains("needs `arm_callback`"), "{}", skip.reason);
    assert!(skip.enable.contains("`arm_callback` in its hello"), "{}", skip.enable);
}
