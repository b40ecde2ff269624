//! An invocation that is cut goes on where it was: with all runs in one report, none of them twice.

use std::path::PathBuf;

use brokerfall_report::verdict::Verdict;
use nix::sys::signal::Signal;

use super::bench::{Bench, read_report, wait_for};

const SCENARIO: &str = "# Nothing happens.\nformat = 1\ntitle = \"idle\"\nphase = \"live\"\n[[topic]]\nname = \"t\"\npreload = { records = 5 }\n";

fn arguments<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec![
        "run",
        "mine.toml",
        "--reader",
        "reference-assign",
        "--repeat",
        "5",
        "--jobs",
        "1",
        "--out",
        "out",
    ];
    arguments.extend(more);
    arguments
}

/// Lines of the journal below the header: finished runs.
fn finished(bench: &Bench) -> Option<(PathBuf, usize)> {
    let journal = bench.invocations().pop()?.join("runs.jsonl");
    let lines = std::fs::read_to_string(&journal).ok()?.lines().count();
    Some((journal, lines.saturating_sub(1)))
}

/// Begins five runs and cuts them after the second.
fn cut(signal: Signal) -> (Bench, usize) {
    let bench = Bench::new();
    bench.write("mine.toml", SCENARIO);
    let running = bench.start(arguments(&[]));
    wait_for("two finished runs", || {
        finished(&bench).filter(|(_, runs)| *runs >= 2).map(drop)
    });
    running.signal(signal);
    running.end();
    let (_, runs) = finished(&bench).unwrap();
    assert!(runs < 5, "all were over before the signal came");
    (bench, runs)
}

fn goes_on_after(signal: Signal) {
    let (bench, before) = cut(signal);
    let ended = bench.run(arguments(&["--resume"]));
    ended
        .assert_code(0)
        .assert_complains(&format!("is taken up: {before} of 5 runs are done"))
        .assert_says(&format!("after {before} in earlier sittings"));
    assert_eq!(finished(&bench).unwrap().1, 5, "none is carried out twice");
    let report = read_report(&bench.invocation());
    assert!(report.runs.iter().all(|run| run.verdict == Verdict::Passed));
    let seeds: Vec<u64> = report.runs.iter().map(|run| run.seed).collect();
    assert_eq!(seeds, [0, 1, 2, 3, 4]);
    // There is nothing left to go on with.
    bench
        .run(arguments(&["--resume"]))
        .assert_code(0)
        .assert_complains("begins anew");
    assert_eq!(bench.invocations().len(), 2);
    bench.assert_clean();
}

#[test]
fn killed_invocation_goes_on() {
    goes_on_after(Signal::SIGKILL);
}

#[test]
fn interrupted_invocation_goes_on() {
    goes_on_after(Signal::SIGINT);
}

#[test]
fn changed_scenario_and_other_arguments_are_refused() {
    let (bench, _) = cut(Signal::SIGKILL);
    let folder = bench.invocation().to_string_lossy().into_owned();
    bench
        .run(arguments(&["--seed", "7", "--resume", &folder]))
        .assert_code(2)
        .assert_complains("was begun with other arguments, `mine.toml --reader reference-assign --repeat 5`")
        .assert_calm();
    bench.write("mine.toml", SCENARIO.replace("records = 5", "records = 6"));
    bench
        .run(arguments(&["--resume"]))
        .assert_code(2)
        .assert_complains("cannot be taken up: the scenario, the reader's lock or what is expected of")
        .assert_calm();
    bench
        .run(arguments(&["--resume", "nowhere"]))
        .assert_code(2)
        .assert_complains("holds no runs.jsonl");
    bench.assert_clean();
}

#[test]
fn run_that_measures_cpu_is_carried_out_alone_and_says_so() {
    let bench = Bench::new();
    let measured = "# A broker is away, and the reader must not spin.\nformat = 1\ntitle = \"cpu\"\n[[topic]]\nname = \"t\"\n[[step]]\nwhen = { caught-up = true }\ndo = { kill-broker = { broker = \"all\" } }\n[[step]]\nafter = \"5s\"\nheal = \"all\"\n[expect]\nbounded_cpu = {}\n";
    bench.write("cpu.toml", measured);
    bench.write("mine.toml", SCENARIO);
    let words = "run cpu.toml mine.toml --reader reference-assign --jobs 2 --keep all --out out";
    bench.run(words.split(' '));
    let mut alone = 0;
    for history in bench.histories() {
        let text = std::fs::read_to_string(&history).unwrap();
        let opened = text.lines().next().unwrap();
        let exclusive = opened.contains("\"exclusive\":true");
        assert_eq!(exclusive, opened.contains("\"scenario\":\"cpu.toml\""), "{opened}");
        alone += u32::from(exclusive);
    }
    assert_eq!((alone, bench.histories().len()), (1, 2));
    bench.assert_clean();
}
