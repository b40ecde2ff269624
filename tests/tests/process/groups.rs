//! Groups as their coordinator tells them: readers that are wrong about their group are caught by its own word, and the
//! correct one is not.

use std::process::Command;

use brokerfall_report::report::{Report, RunReport};
use brokerfall_report::verdict::{Outcome, Verdict};
use brokerfall_tests::machine::Turn;

use super::faults::{assert_felt, fatal, runs, told};
use super::{kit, program};

const CONSUME_ONCE: &str = "incidents/sarama-consume-once";
const LEAVES: &str = "answer-error/fetch-not-leader-live";
const COMMITS_AHEAD: &str = "partition/hold-live";

/// Readers of this test's own, with short windows: name, command, scenarios.
const READERS: [(&str, &str, &[&str]); 3] = [
    (
        "consumes-once",
        r#"["{program}", "reader", "teaching-consume-once"]"#,
        &[CONSUME_ONCE],
    ),
    (
        "leaves-its-group",
        concat!("[\"", env!("CARGO_BIN_EXE_mutant"), "\", \"leaves-its-group\"]"),
        &[LEAVES],
    ),
    (
        "commits-ahead",
        concat!("[\"", env!("CARGO_BIN_EXE_mutant"), "\", \"commits-ahead\"]"),
        &[COMMITS_AHEAD],
    ),
];

fn report(readers: &[(&str, &str, &[&str])], within: &str) -> Report {
    let place = tempfile::tempdir().unwrap();
    let (manifests, out) = (place.path().join("readers"), place.path().join("out"));
    std::fs::create_dir(&manifests).unwrap();
    let _turn = Turn::all();
    let mut command = Command::new(program());
    command.args(["run", CONSUME_ONCE, LEAVES, COMMITS_AHEAD]);
    for (name, line, scenarios) in readers {
        let manifest = format!(
            "name = {name:?}\nkinds = [\"group\"]\ncommand = {line}\nscenarios = {scenarios:?}\n\n[limits]\nwithin = {within:?}\n"
        );
        std::fs::write(manifests.join(format!("{name}.toml")), manifest).unwrap();
        command.args(["--reader", name]);
    }
    command.arg("--readers-dir").arg(&manifests).arg("--out").arg(&out);
    let output = command.args(["--cluster", "process", "--jobs", "2"]).output().unwrap();
    brokerfall_tests::only_report(&out)
        .unwrap_or_else(|| panic!("no report\n{}", String::from_utf8_lossy(&output.stderr)))
}

fn run<'a>(report: &'a Report, reader: &str) -> &'a RunReport {
    let found = report.runs.iter().find(|run| run.reader.name == reader);
    found.unwrap_or_else(|| panic!("no run of {reader}"))
}

fn violation<'a>(run: &'a RunReport, invariant: &str) -> &'a str {
    let found = run.violations.iter().find(|one| one.invariant == invariant);
    found
        .unwrap_or_else(|| panic!("{invariant} was not violated: {}", told(run)))
        .text
        .as_str()
}

/// What an invariant that held says.
fn held(run: &RunReport, invariant: &str) -> String {
    let found = run.findings.iter().find(|finding| finding.invariant == invariant);
    match found.map(|finding| &finding.outcome) {
        Some(Outcome::Held { text }) => text.clone(),
        other => panic!("{invariant}: {other:?}: {}", told(run)),
    }
}

#[tokio::test]
async fn readers_that_are_wrong_about_their_group_are_caught_by_its_coordinators_word() {
    if kit().await.is_none() {
        return;
    }
    let report = report(&READERS, "8s");
    assert_eq!(report.runs.len(), READERS.len());
    for run in &report.runs {
        assert_eq!(run.verdict, Verdict::Failed, "{}", told(run));
    }
    // Incident 3: nobody is in the group, what waits grows, and no error is told.
    let once = run(&report, "consumes-once");
    let text = violation(once, "group_member");
    assert!(text.contains("told 0 members (Empty)"), "{text}");
    assert!(once.exceptions.iter().all(|seen| !seen.fatal), "{}", told(once));
    // A fresh object calls consume once more, and that is enough until the next broker dies.
    assert_eq!(held(once, "restart_cures"), "object");
    let text = violation(run(&report, "leaves-its-group"), "group_member");
    assert!(text.contains("told 0 members (Empty)"), "{text}");
    let text = violation(run(&report, "commits-ahead"), "commit_not_ahead");
    assert!(text.contains("whose log ends at"), "{text}");
}

#[tokio::test]
async fn member_that_is_correct_holds_what_its_coordinator_tells() {
    if kit().await.is_none() {
        return;
    }
    let correct = [(
        "correct",
        r#"["{program}", "reader", "reference-group"]"#,
        &[CONSUME_ONCE, LEAVES, COMMITS_AHEAD][..],
    )];
    let report = report(&correct, "20s");
    assert_eq!(report.runs.len(), 3);
    for run in &report.runs {
        assert_eq!(run.verdict, Verdict::Passed, "{}", told(run));
        let text = held(run, "group_member");
        assert!(text.contains("told 1 member (Stable)"), "{text}");
    }
}

/// Kafka's clients document FENCED_INSTANCE_ID as the end of a member (FencedInstanceIdException).
#[tokio::test]
async fn static_member_whose_name_another_takes_ends_with_that_error() {
    if kit().await.is_none() {
        return;
    }
    let runs = runs(&["group/fenced-live"], &["reference-group"]);
    assert_eq!(runs.len(), 1);
    assert_felt(&runs, |_| Verdict::Passed);
    let fatal = fatal(&runs[0]);
    assert!(
        !fatal.is_empty() && fatal.iter().all(|what| what.ends_with("FencedInstanceId")),
        "{}: {fatal:?}",
        told(&runs[0])
    );
}

/// The old coordinator turns the member away; nobody dies.
#[tokio::test]
async fn member_whose_coordinator_moves_is_turned_away_and_finds_the_new_one() {
    if kit().await.is_none() {
        return;
    }
    let moved = ["leadership/coordinator-moves", "leadership/coordinator-moves-commit"];
    let runs = runs(&moved, &["reference-group"]);
    assert_eq!(runs.len(), 2);
    assert_felt(&runs, |_| Verdict::Passed);
    for run in &runs {
        let proofs = run.evidence.iter().flat_map(|one| &one.proofs);
        let turned_away = proofs.filter(|proof| proof.text.contains("NOT_COORDINATOR")).count();
        assert!(turned_away > 0, "{}", told(run));
    }
}

/// A neighbour that comes and goes, and a callback that outlasts `max.poll.interval.ms`: each time the group is shared out
/// anew, and at last its one member is there.
#[tokio::test]
async fn member_comes_through_churn_and_through_being_put_out() {
    if kit().await.is_none() {
        return;
    }
    let runs = runs(
        &["reader/churn", "callback-upset/slow-past-max-poll"],
        &["reference-group"],
    );
    assert_eq!(runs.len(), 2);
    for run in &runs {
        assert_eq!(run.verdict, Verdict::Passed, "{}", told(run));
        let member = held(run, "group_member");
        assert!(member.contains("told 1 member (Stable)"), "{member}");
    }
    let slow = runs
        .iter()
        .find(|run| run.scenario == "callback-upset/slow-past-max-poll")
        .unwrap();
    let raised = slow.exceptions.iter().any(|seen| {
        let code = seen.exception.code.as_ref();
        code.is_some_and(|code| code.name == "PollExceeded")
    });
    assert!(raised, "{}", told(slow));
}
