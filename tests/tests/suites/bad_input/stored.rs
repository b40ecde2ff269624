//! `judge`: files that are no history are named, cut ones are judged as far as they go, whole ones give the same verdict.

use brokerfall_report::report::RunReport;

use super::bench::{Bench, MUTANT};

/// A failed run whose history is kept.
fn failed(bench: &Bench) -> (RunReport, String) {
    bench.reader("invents", "assign", &[MUTANT, "invents-a-record"]);
    let mut arguments = Bench::arguments("control/idle", "invents");
    arguments.extend(["--keep", "all"]);
    bench.run(arguments);
    let run = bench.report().runs.remove(0);
    let history = std::fs::read_to_string(&bench.histories()[0]).unwrap();
    (run, history)
}

#[test]
fn stored_history_gives_the_verdict_of_its_run() {
    let bench = Bench::new();
    let mut arguments = Bench::arguments("broker-kill/live", "reference-assign");
    bench.reader("dies", "assign", &[MUTANT, "dies-healthy"]);
    arguments.extend(["--reader", "dies", "--keep", "all"]);
    bench.run(arguments).assert_code(10);
    let report = bench.report();
    assert_eq!(report.runs.len(), 2);
    for run in report.runs {
        let folder = bench.invocation().join(run.artifacts.as_ref().unwrap());
        let history = folder.join("history.jsonl").to_string_lossy().into_owned();
        let ended = bench.run(["judge", "--json", &history]);
        let code = if run.reader.name == "dies" { 10 } else { 0 };
        ended.assert_code(code);
        // To the byte; only where the history lies is known to the suite alone.
        let elsewhere = RunReport { artifacts: None, ..run };
        assert_eq!(
            ended.stdout.trim_end(),
            serde_json::to_string_pretty(&elsewhere).unwrap()
        );
    }
}

#[test]
fn files_that_are_no_history_are_named() {
    let bench = Bench::new();
    let (_, history) = failed(&bench);
    let newer = history.replacen("\"format\":1", "\"format\":9", 1);
    let lines: Vec<&str> = history.lines().collect();
    let gap = [&lines[..3], &lines[4..]].concat().join("\n");
    bench.write("whole", &history);
    for (content, words) in [
        (b"".as_slice(), "is empty (give the history.jsonl of a run)"),
        (b"\n", "bad:1: the line is no entry"),
        (b"\x00\xff\xfe garbage \x1b[31m", "bad:1: the line is no entry"),
        (b"{}\n", "bad:1: the line is no entry"),
        (
            b"{\"n\":0,\"at_us\":0,\"event\":\"closed\"}\n",
            "does not open with the plan",
        ),
        (newer.as_bytes(), "record format 9 is newer than 1"),
        (gap.as_bytes(), "bad:4: the line holds event #4, #3 was expected"),
        (vec![b'['; 1 << 20].as_slice(), "bad:1: the line is no entry"),
    ] {
        bench.write("bad", content);
        bench
            .run(["judge", "bad"])
            .assert_code(2)
            .assert_calm()
            .assert_complains(words);
    }
    bench
        .run(["judge", "."])
        .assert_code(2)
        .assert_complains("./history.jsonl: No such file");
    bench.run(["judge", "whole"]).assert_calm();
}

#[test]
fn history_cut_anywhere_is_judged_as_partial() {
    let bench = Bench::new();
    let (run, history) = failed(&bench);
    assert!(!run.violations.is_empty(), "{}", run.cause);
    let first = history.find('\n').unwrap() + 1;
    for part in 1..8 {
        // Within a line more often than not.
        let cut = first + (history.len() - first) * part / 8;
        bench.write("cut", &history.as_bytes()[..cut]);
        let ended = bench.run(["judge", "cut"]);
        ended.assert_calm().assert_says("partial");
        assert!(matches!(ended.code(), Some(10 | 11)), "{ended}");
    }
    bench.write("cut", &history.as_bytes()[..first]);
    bench.run(["judge", "cut"]).assert_code(11).assert_says("partial");
}
