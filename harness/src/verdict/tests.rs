use brokerfall_report::exception::Origin;
use brokerfall_report::history::{Entry, Event, ExpectedEnd, FailureOf, Opened, Phase, Proof, Stage, StepState};
use brokerfall_report::protocol::Kind;
use brokerfall_report::verdict::{FailureKind, Outcome, Verdict, VoidWhose};

use super::{Inputs, JudgeError, judge, judge_file, judge_with, merge, read_facts};
use crate::history::facts::Facts;
use crate::invariant::support::*;
use crate::invariant::{ALL, Invariant};

/// A run of one fault that the reader comes back from.
fn good(plan: Opened) -> Vec<Entry> {
    history! { plan;
        0 => stage(Stage::Preparing), 1 => produced(1, 10), 2 => targets(10), 3 => spawned("r1"), 20 => delivered(1, 10),
        100 => injecting("kill-broker"), 110 => injected(), 120 => fault_delivered(), 900 => healing(), 1000 => healed(),
        1100 => produced(11, 11), 1101 => sentinel(11), 1200 => delivered(11, 11), 1300 => Event::Quiet,
        1400 => stage(Stage::Stopping), 1401 => asked(9, "stop"), 1450 => exited_by("r1", Some(0), None, true), 1460 => left(Some(49), 0),
        1470 => stage(Stage::Closing), 1480 => scanned(1, 11), 1500 => Event::Closed,
    }
}

/// The same with one more event before the end, numbered anew.
fn with(mut entries: Vec<Entry>, event: Event) -> Vec<Entry> {
    let closed = entries.pop().unwrap();
    entries.push(entry(entries.len() as u64, 1490, event));
    entries.push(entry(entries.len() as u64, 1500, closed.event));
    entries
}

/// The same without the events that `drop` names.
fn without(entries: Vec<Entry>, drop: impl Fn(&Event) -> bool) -> Vec<Entry> {
    let kept = entries.into_iter().filter(|entry| !drop(&entry.event));
    kept.enumerate()
        .map(|(n, entry)| Entry { n: n as u64, ..entry })
        .collect()
}

fn plain() -> Vec<Entry> {
    good(with_fault(Kind::Group, "kill-broker"))
}

#[track_caller]
fn assert_void(whose: VoidWhose, words: &str, entries: &[Entry]) {
    let judgement = judge(entries);
    assert_eq!(judgement.verdict, Verdict::Void, "{judgement:#?}");
    let found = judgement
        .voids
        .iter()
        .any(|void| void.whose == whose && void.text.contains(words));
    assert!(found, "{:#?}", judgement.voids);
}

#[test]
fn reader_that_comes_back_passes() {
    let judgement = judge(&plain());
    assert_eq!(judgement.verdict, Verdict::Passed, "{judgement:#?}");
    assert_eq!(judgement.cause, "recovers: the sentinel arrived after 0.1 s of 5.0 s");
    assert!(judgement.voids.is_empty() && judgement.failure_kind.is_none());
    assert_eq!(judgement.findings.len(), ALL.len());
}

#[test]
fn merge_equals_the_list_worst_first() {
    for bits in 0..64u32 {
        let bit = |n: u32| bits & (1 << n) != 0;
        let inputs = Inputs {
            error: bit(0),
            void: bit(1),
            violated: bit(2),
            safety_violated: bit(3),
            undecided: bit(4),
            skipped: bit(5),
        };
        // The design's list, each with its condition, the first that applies; nothing of a skipped run is judged.
        let judged = !inputs.skipped;
        let list = [
            (inputs.error, Verdict::Error),
            (judged && inputs.safety_violated, Verdict::Failed),
            (judged && inputs.void, Verdict::Void),
            (judged && inputs.violated, Verdict::Failed),
            (judged && inputs.undecided, Verdict::Void),
            (inputs.skipped, Verdict::Skipped),
            (true, Verdict::Passed),
        ];
        let worst = list.iter().find(|(applies, _)| *applies).map(|(_, verdict)| *verdict);
        assert_eq!(Some(merge(&inputs)), worst, "{inputs:?}");
    }
}

#[test]
fn each_lack_of_proof_voids_with_its_owner() {
    let not_proven = |wanted, fault: &str| Event::NotProven {
        fault: fault.into(),
        wanted,
        text: "seen otherwise".into(),
    };
    let table = [
        (
            VoidWhose::Adapter,
            "the adapter of r1 broke the protocol: gap in seq",
            with(
                plain(),
                Event::ProtocolBroken {
                    member: "r1".into(),
                    text: "gap in seq".into(),
                    line: String::new(),
                },
            ),
        ),
        (
            VoidWhose::Reader,
            "not healthy before",
            with(plain(), not_proven(Proof::HealthyBefore, "")),
        ),
        (
            VoidWhose::Reader,
            "`f` missed the phase live",
            with(plain(), not_proven(Proof::Phase, "f")),
        ),
        (
            VoidWhose::Evidence,
            "the heal of `f` was not proven: seen otherwise",
            with(plain(), not_proven(Proof::Healed, "f")),
        ),
        (
            VoidWhose::Evidence,
            "the heal of `f` was not proven",
            without(plain(), |e| matches!(e, Event::Healed { .. })),
        ),
        (
            VoidWhose::Evidence,
            "`f` stayed below the grade asked: wanted delivered, proven injected",
            without(plain(), |e| matches!(e, Event::Delivered { .. })),
        ),
        (
            VoidWhose::Evidence,
            "`f` was never injected",
            without(plain(), |e| {
                matches!(
                    e,
                    Event::Injecting { .. }
                        | Event::Injected { .. }
                        | Event::Delivered { .. }
                        | Event::Healing { .. }
                        | Event::Healed { .. }
                )
            }),
        ),
        (
            VoidWhose::Evidence,
            "step 3 (`kill the leader`) was never triggered: delivered 4 of 200",
            with(
                plain(),
                Event::Step {
                    index: 2,
                    text: "kill the leader".into(),
                    state: StepState::Unmet,
                    detail: "delivered 4 of 200".into(),
                },
            ),
        ),
        (
            VoidWhose::Cluster,
            "42 in SyncGroup",
            with(
                plain(),
                Event::Deviation {
                    text: "42 in SyncGroup".into(),
                },
            ),
        ),
        (
            VoidWhose::Machine,
            "starved the harness for 1001 ms",
            with(plain(), Event::Starved { gap_ms: 1001 }),
        ),
        (
            VoidWhose::Machine,
            "SIGINT",
            with(
                plain(),
                Event::Interrupted {
                    signal: "SIGINT".into(),
                },
            ),
        ),
        (
            VoidWhose::Evidence,
            "partial",
            without(plain(), |e| matches!(e, Event::Closed)),
        ),
    ];
    for (whose, words, entries) in &table {
        assert_void(*whose, words, entries);
    }
    assert_eq!(
        judge(&with(plain(), Event::Starved { gap_ms: 1000 })).verdict,
        Verdict::Passed
    );
}

#[test]
fn adapter_that_ends_before_its_hello_voids() {
    let entries = history! { plan(Kind::Group); 0 => spawned("r1"), 10 => exited(1), 20 => stage(Stage::Stopping), 30 => Event::Closed };
    assert_void(VoidWhose::Adapter, "the adapter of r1 ended before its hello", &entries);
}

#[test]
fn starvation_voids_only_where_the_reader_was_judged() {
    let starved = |ms: u64, gap_ms: u64| {
        let mut entries = plain();
        // It starts at 3 ms, and its verdict is fixed at 1,400 ms.
        entries.push(entry(0, 3, asked(1, "start")));
        entries.push(entry(0, ms, Event::Starved { gap_ms }));
        entries.sort_by_key(|entry| entry.at_us);
        for (n, entry) in entries.iter_mut().enumerate() {
            entry.n = n as u64;
        }
        judge(&entries).verdict
    };
    assert_eq!(starved(2, 2000), Verdict::Passed);
    assert_eq!(starved(1300, 1100), Verdict::Void);
    assert_eq!(starved(1450, 1049), Verdict::Void);
    assert_eq!(starved(2600, 1200), Verdict::Passed);
}

#[test]
fn evidence_proven_in_spite_of_an_earlier_doubt_counts() {
    // The first look did not show it, a later one did.
    let entries = with(
        plain(),
        Event::NotProven {
            fault: "f".into(),
            wanted: Proof::Delivered,
            text: String::new(),
        },
    );
    assert_eq!(judge(&entries).verdict, Verdict::Passed);
}

#[test]
fn violation_in_a_void_run_is_observed_and_not_attributed() {
    let stuck = without(plain(), |e| {
        matches!(
            e,
            Event::Reader {
                event: brokerfall_report::protocol::ReaderEvent::Records { .. },
                ..
            }
        )
    });
    let mut plan = with_fault(Kind::Group, "kill-broker");
    plan.limits.within_ms.value = 100.0;
    let mut stuck = with(stuck, Event::Deviation { text: "x".into() });
    stuck[0].event = Event::Opened(Box::new(plan));
    let judgement = judge(&stuck);
    assert_eq!(judgement.verdict, Verdict::Void);
    assert!(
        judgement
            .findings
            .iter()
            .any(|f| f.invariant == "recovers" && matches!(f.outcome, Outcome::Violated { .. }))
    );
    assert_eq!(
        (judgement.failure_kind, judgement.cause.as_str()),
        (None, "the cluster did what Apache Kafka would not: x")
    );
}

#[test]
fn safety_violation_fails_in_spite_of_void_and_never_in_spite_of_error() {
    let mut lost = plain();
    lost[5] = entry(5, 20, says(records(&[(1, 4), (6, 10)])));
    let lost = with(lost, Event::Deviation { text: "x".into() });
    let judgement = judge(&lost);
    assert_eq!(judgement.verdict, Verdict::Failed);
    assert!(
        judgement
            .cause
            .starts_with("no_lost_record violated: partition orders-0 ids 5"),
        "{}",
        judgement.cause
    );
    assert_eq!(judgement.voids.len(), 1);

    let failed = with(
        lost,
        Event::Failure {
            of: FailureOf::Environment,
            text: "no space left".into(),
        },
    );
    let judgement = judge(&failed);
    assert_eq!(
        (judgement.verdict, judgement.error_of, judgement.cause.as_str()),
        (Verdict::Error, Some(FailureOf::Environment), "no space left")
    );
}

#[test]
fn false_barrier_fails_in_spite_of_void() {
    let mut plan = plan(Kind::Table);
    plan.limits.within_ms.value = 100.0;
    let entries = history! { plan;
        0 => produced(1, 10), 1 => targets(10), 2 => spawned("r1"), 10 => delivered(1, 9), 20 => asked(1, "barrier"), 30 => done(1, Some(true)),
        40 => Event::Deviation { text: "x".into() }, 3000 => stage(Stage::Stopping), 3001 => Event::Closed,
    };
    let judgement = judge(&entries);
    assert_eq!(judgement.verdict, Verdict::Failed, "{judgement:#?}");
    assert!(
        judgement
            .cause
            .contains("status_honest violated: the barrier was said to be reached"),
        "{}",
        judgement.cause
    );
}

#[test]
fn harness_bug_wins_over_a_failing_environment() {
    let failure = |of| Event::Failure {
        of,
        text: format!("{of:?}"),
    };
    let entries = with(
        with(plain(), failure(FailureOf::Environment)),
        failure(FailureOf::Harness),
    );
    let judgement = judge(&entries);
    assert_eq!(
        (judgement.error_of, judgement.cause.as_str()),
        (Some(FailureOf::Harness), "Harness")
    );
    assert_eq!(judge(&[]).verdict, Verdict::Error);
}

#[test]
fn skipped_run_is_skipped_and_nothing_of_it_is_judged() {
    let entries = history! { with_fault(Kind::Group, "kill-broker");
        0 => Event::Skipped { reason: "the mock has no ACLs".into(), enable: "--cluster process".into() }, 1 => Event::Closed,
    };
    let judgement = judge(&entries);
    assert_eq!(
        (judgement.verdict, judgement.cause.as_str()),
        (Verdict::Skipped, "the mock has no ACLs")
    );
    assert!(judgement.findings.is_empty() && judgement.voids.is_empty());
}

#[test]
fn named_invariant_that_is_not_decided_voids_and_a_violated_one_does_not() {
    let mut plan = with_fault(Kind::Group, "kill-broker");
    plan.expect.named = vec!["converges".into()];
    assert_void(
        VoidWhose::Undecided,
        "`converges` is named in [expect] and was not decided: not applicable without a table",
        &good(plan.clone()),
    );
    plan.expect.named = vec!["recovers".into()];
    assert_eq!(judge(&good(plan)).verdict, Verdict::Passed);
}

#[test]
fn run_without_a_decided_progress_invariant_is_void_unless_the_scenario_asks_none() {
    let mut plan = plan(Kind::Group);
    let of = |plan: Opened| history! { plan; 0 => stage(Stage::Preparing), 1 => Event::Closed };
    assert_void(
        VoidWhose::Undecided,
        "no progress invariant was decided (recovers:",
        &of(plan.clone()),
    );
    for id in ["recovers", "catches_up", "no_silent_death"] {
        plan.expect.not_judged.insert(id.into(), "the callback hangs".into());
    }
    assert_eq!(judge(&of(plan)).verdict, Verdict::Passed);
}

#[test]
fn crashed_judge_voids_and_never_passes() {
    let crashes = Invariant {
        id: "recovers",
        judge: |_| panic!("index out of bounds"),
        ..ALL[0]
    };
    let mut facts = Facts::default();
    plain().iter().for_each(|entry| facts.observe(entry));
    let judgement = judge_with(&facts, &[crashes, ALL[1]]);
    assert_eq!(judgement.verdict, Verdict::Void);
    assert_eq!(judgement.voids[0].whose, VoidWhose::Judge);
    assert_eq!(judgement.cause, "recovers: the judge crashed: index out of bounds");
}

#[test]
fn death_by_the_first_fault_is_not_hidden_by_a_second_that_could_not_be_proven() {
    let mut plan = with_fault(Kind::Table, "panic-callback");
    let mut second = plan.faults[0].clone();
    second.name = "g".into();
    plan.faults.push(second);
    let entries = history! { plan;
        1 => produced(1, 10), 2 => targets(10), 3 => spawned("r1"), 20 => delivered(1, 10),
        100 => injecting("panic-callback"), 110 => injected(), 115 => callback(false, 10), 116 => callback(true, 10), 117 => fault_delivered(),
        120 => status("failed"), 121 => error(Origin::Callback, true, "builtins.ValueError"),
        200 => Event::Step { index: 1, text: "cut".into(), state: StepState::Unmet, detail: String::new() },
        300 => healed(), 400 => stage(Stage::Stopping), 500 => Event::Closed,
    };
    let judgement = judge(&entries);
    assert_eq!(
        (judgement.verdict, judgement.failure_kind),
        (Verdict::Failed, Some(FailureKind::Terminal)),
        "{judgement:#?}"
    );
    assert_eq!(
        judgement.cause,
        "callback_isolated violated: after the callback failed at offset 10, r1 shows the status `failed` with builtins.ValueError"
    );
    let seen = &judgement.exceptions[0];
    assert_eq!(
        (seen.exception.type_name.as_str(), seen.phase, seen.fatal),
        ("builtins.ValueError", Phase::Live, true)
    );
}

#[test]
fn reader_that_was_dead_before_the_first_fault_voids() {
    let entries = history! { with_fault(Kind::Group, "kill-broker");
        1 => produced(1, 10), 2 => targets(10), 3 => spawned("r1"), 20 => delivered(1, 10), 50 => stopped(Some("a.B")),
        100 => injecting("kill-broker"), 110 => injected(), 1000 => healed(), 1400 => stage(Stage::Stopping), 1500 => Event::Closed,
    };
    assert_void(VoidWhose::Reader, "the reader ended before the first fault", &entries);
}

#[test]
fn honest_end_passes_where_it_is_expected() {
    let entries = history! { expecting(with_fault(Kind::Table, "answer-error"), ExpectedEnd::RecoversOrEnds);
        1 => produced(1, 10), 2 => targets(10), 3 => spawned("r1"), 20 => delivered(1, 10), 100 => injecting("answer-error"), 110 => injected(),
        115 => fault_delivered(), 120 => error(Origin::Poll, true, "aiokafka.errors.TopicAuthorizationFailedError"), 121 => status("failed"),
        300 => healed(), 400 => stage(Stage::Stopping), 450 => scanned(1, 10), 500 => Event::Closed,
    };
    let judgement = judge(&entries);
    assert_eq!(judgement.verdict, Verdict::Passed, "{judgement:#?}");
    assert!(
        judgement.cause.contains("TopicAuthorizationFailedError"),
        "{}",
        judgement.cause
    );
}

#[test]
fn equal_exceptions_are_counted_together_fatal_ones_first_logged_ones_last() {
    let entries = history! { plan(Kind::Group);
        0 => spawned("r1"), 1 => targets(0), 2 => error(Origin::Log, false, "a.Log"), 3 => error(Origin::Poll, false, "a.B"),
        4 => error(Origin::Poll, false, "a.B"), 5 => error(Origin::Poll, true, "a.Fatal"), 6 => Event::Closed,
    };
    let seen = judge(&entries).exceptions;
    let shape: Vec<_> = seen
        .iter()
        .map(|e| (e.exception.type_name.as_str(), e.count, e.first_event))
        .collect();
    assert_eq!(shape, [("a.Fatal", 1, 6), ("a.B", 2, 4), ("a.Log", 1, 3)]);
}

#[test]
fn stored_history_judges_as_the_live_one_and_a_cut_one_is_partial() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.jsonl");
    let entries = plain();
    let mut text = String::new();
    for entry in &entries {
        text.push_str(&serde_json::to_string(entry).unwrap());
        text.push('\n');
    }
    std::fs::write(&path, &text).unwrap();
    assert_eq!(judge_file(&path).unwrap(), judge(&entries));

    std::fs::write(&path, &text[..text.len() - 30]).unwrap();
    let judgement = judge_file(&path).unwrap();
    assert_eq!(judgement.verdict, Verdict::Void);
    assert!(judgement.remarks.contains(&"the history is partial".to_owned()));
}

#[test]
fn files_that_are_no_history_are_named_with_their_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.jsonl");
    let read = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let error = read_facts(&path).unwrap_err();
        error.to_string().replace(&path.display().to_string(), "F")
    };
    let first = serde_json::to_string(&plain()[0]).unwrap();
    let third = serde_json::to_string(&plain()[2]).unwrap();
    assert_eq!(read(""), "F is empty (give the history.jsonl of a run)");
    assert_eq!(
        read("{}"),
        "F:1: the line is no entry (give the history.jsonl of a run)"
    );
    assert_eq!(
        read(&format!("{first}\nx\n")),
        "F:2: the line is no entry (give the history.jsonl of a run)"
    );
    assert_eq!(
        read(&format!("{first}\n{third}\n")),
        "F:2: the line holds event #2, #1 was expected (give the history.jsonl of a run)"
    );
    assert_eq!(
        read("{\"n\":0,\"at_us\":0,\"event\":\"quiet\"}\n"),
        "F:1: the line does not open with the plan (give the history.jsonl of a run)"
    );
    assert!(
        read(&format!("{}\n", first.replace("\"format\":1", "\"format\":99")))
            .contains("record format 99 is newer than 1")
    );
    assert!(matches!(
        read_facts(&dir.path().join("none")).unwrap_err(),
        JudgeError::Io { .. }
    ));
}
