//! What an invocation leaves behind on purpose, and what several do to each other.

use std::process::{Command, Stdio};

use brokerfall_report::verdict::Verdict;

use super::bench::{BINARY, BROKEN, Bench, read_report, start};

#[test]
fn last_failed_runs_what_did_not_end_as_expected_and_nothing_else() {
    let bench = Bench::new();
    bench.reader("broken", "group", &[BROKEN, "exits-before-hello"]);
    let mut arguments = Bench::arguments("control/idle", "broken");
    arguments.extend(["--reader", "reference-assign"]);
    bench.run(arguments.clone()).assert_code(11);
    let first = bench.report();
    let verdicts: Vec<_> = first.runs.iter().map(|run| run.verdict).collect();
    assert_eq!(verdicts, [Verdict::Void, Verdict::Passed]);
    arguments.push("--last-failed");
    bench.run(arguments.clone()).assert_code(11);
    let second = bench
        .invocations()
        .into_iter()
        .map(|folder| read_report(&folder))
        .find(|report| report.runs.len() == 1);
    assert_eq!(second.unwrap().runs[0].reader.name, "broken");
    // Cured, it has nothing left to run.
    bench
        .run(Bench::arguments("control/idle", "reference-assign"))
        .assert_code(0);
    bench
        .run(arguments)
        .assert_code(2)
        .assert_complains("ended as expected");
    bench.assert_clean();
}

#[test]
fn repeats_have_seeds_of_their_own_and_kept_runs_have_their_histories() {
    let bench = Bench::new();
    let mut arguments = Bench::arguments("control/idle", "reference-assign");
    arguments.extend(["--repeat", "2", "--seed", "7", "--keep", "all", "--jobs", "2"]);
    let ended = bench.run(arguments);
    ended.assert_code(0);
    assert!(!ended.stdout.contains('\u{1b}') && !ended.stderr.contains('\u{1b}'));
    let report = bench.report();
    let seeds: Vec<u64> = report.runs.iter().map(|run| run.seed).collect();
    assert_eq!(seeds, [7, 8]);
    assert_eq!(bench.histories().len(), 2);
    for run in &report.runs {
        assert!(
            run.reproduce.contains(&format!("--seed {}", run.seed)),
            "{:?}",
            run.reproduce
        );
    }
    bench.assert_clean();
}

#[test]
fn histories_of_passed_runs_are_dropped_unless_kept() {
    let bench = Bench::new();
    bench
        .run(Bench::arguments("control/idle", "reference-assign"))
        .assert_code(0);
    assert!(bench.histories().is_empty());
    assert_eq!(bench.report().runs[0].artifacts, None);
}

#[test]
fn twenty_invocations_are_kept_and_nothing_else_is_touched() {
    let bench = Bench::new();
    let out = bench.path("out");
    // No process has this number, so that none of these invocations still runs.
    for day in 1..=25 {
        std::fs::create_dir_all(out.join(format!("202001{day:02}T000000Z-4999999"))).unwrap();
    }
    std::fs::create_dir(out.join("mine")).unwrap();
    bench.reader("broken", "group", &[BROKEN, "exits-before-hello"]);
    bench.run(Bench::arguments("control/idle", "broken")).assert_code(11);
    let names: Vec<String> = bench
        .invocations()
        .iter()
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    assert_eq!(names.len(), 21, "{names:?}");
    assert_eq!(names[0], "20200107T000000Z-4999999");
    assert_eq!(names[20], "mine");
    assert_eq!(std::fs::read_to_string(out.join(".gitignore")).unwrap(), "*\n");
}

#[test]
fn two_invocations_at_once_do_not_disturb_each_other() {
    let bench = Bench::new();
    let arguments = [
        "run",
        "control/idle",
        "--reader",
        "reference-assign",
        "--reader",
        "reference-table",
        "--repeat",
        "4",
        "--jobs",
        "8",
        "--out",
        "out",
    ];
    let both = [bench.start(arguments), bench.start(arguments)];
    for running in both {
        let ended = running.end();
        // On a machine that has no time for sixteen readers the runs may be void, and say why.
        if ended.code() != Some(0) {
            ended.assert_code(11).assert_says("starved");
        }
    }
    let folders = bench.invocations();
    assert_eq!(folders.len(), 2);
    for folder in folders {
        let runs = read_report(&folder).runs;
        assert_eq!(runs.len(), 8);
        assert!(
            runs.iter()
                .all(|run| matches!(run.verdict, Verdict::Passed | Verdict::Void))
        );
    }
    bench.assert_clean();
}

#[test]
fn reader_of_the_output_that_leaves_early_changes_nothing() {
    let bench = Bench::new();
    let script = "\"$0\" run control/idle --reader reference-assign --out out | head -1";
    let mut piped = Command::new("sh");
    piped.args(["-c", script, BINARY]);
    bench.prepare(&mut piped);
    start(piped).end().assert_code(0).assert_calm();
    assert_eq!(bench.report().runs[0].verdict, Verdict::Passed);
    let mut closed = Command::new("sh");
    closed.args([
        "-c",
        "exec \"$0\" run control/idle --reader reference-assign --out closed >&- 2>&-",
        BINARY,
    ]);
    bench.prepare(&mut closed);
    closed.stderr(Stdio::piped());
    start(closed).end().assert_code(0);
    bench.assert_clean();
}
