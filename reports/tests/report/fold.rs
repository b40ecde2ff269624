//! What the fold of a history puts where.

use brokerfall_report::exception::Origin;
use brokerfall_report::history::{Entry, Event, FailureOf, Phase, Renewed, Stage};
use brokerfall_report::protocol::{Done, Kind, ReaderEvent};
use brokerfall_report::report::{RunReport, SignalReport};
use brokerfall_report::verdict::{Finding, Judgement, Outcome, Verdict, VoidReason, VoidWhose};

use crate::{history, stories};

fn report((entries, judgement): (Vec<Entry>, Judgement)) -> RunReport {
    RunReport::from_history(entries, &judgement)
}

fn signal<'a>(run: &'a RunReport, name: &str) -> &'a SignalReport {
    run.signals.iter().find(|signal| signal.signal == name).unwrap()
}

fn violated(invariant: &str, events: &[u64]) -> Finding {
    let outcome = Outcome::Violated {
        events: events.to_vec(),
        text: "text".into(),
        kind: None,
        behind: None,
    };
    Finding {
        invariant: invariant.into(),
        outcome,
    }
}

fn void(whose: VoidWhose) -> VoidReason {
    VoidReason::new(whose, "why".into(), Vec::new())
}

/// Names of attributed and of merely observed violations.
fn split(verdict: Verdict, voids: &[VoidWhose], findings: Vec<Finding>) -> (Vec<String>, Vec<String>) {
    let (entries, mut judgement) = stories::callback_killed_reader();
    judgement.verdict = verdict;
    judgement.voids = voids.iter().map(|whose| void(*whose)).collect();
    judgement.findings = findings;
    let run = RunReport::from_history(entries, &judgement);
    let names = |list: &[brokerfall_report::report::Violation]| list.iter().map(|v| v.invariant.clone()).collect();
    (names(&run.violations), names(&run.observed))
}

#[test]
fn violations_of_a_failed_run_are_attributed() {
    let (attributed, observed) = split(Verdict::Failed, &[], vec![violated("recovers", &[1])]);
    assert_eq!((attributed.len(), observed.len()), (1, 0));
}

#[test]
fn violations_of_void_and_error_runs_are_only_observed() {
    for verdict in [Verdict::Void, Verdict::Error] {
        let findings = vec![violated("recovers", &[1]), violated("no_lost_record", &[1])];
        let (attributed, observed) = split(verdict, &[VoidWhose::Evidence], findings);
        assert_eq!((attributed.len(), observed.len()), (0, 2), "{verdict:?}");
    }
}

#[test]
fn a_run_failed_in_spite_of_missing_evidence_is_held_only_to_what_needs_no_fault() {
    let all = [
        "recovers",
        "no_lost_record",
        "no_phantom_record",
        "in_order",
        "commit_not_ahead",
        "status_honest",
    ];
    let findings = all.iter().map(|name| violated(name, &[1])).collect();
    let (attributed, observed) = split(Verdict::Failed, &[VoidWhose::Evidence], findings);
    assert_eq!(
        attributed,
        ["no_lost_record", "no_phantom_record", "in_order", "commit_not_ahead"]
    );
    assert_eq!(observed, ["recovers", "status_honest"]);
}

#[test]
fn a_false_barrier_stands_in_spite_of_missing_evidence_and_another_false_status_does_not() {
    let (mut entries, mut judgement) = stories::callback_killed_reader();
    let answer = entries.iter_mut().find_map(|entry| match &mut entry.event {
        Event::Reader {
            event: ReaderEvent::Done(Done { reached, .. }),
            ..
        } => Some((entry.n, reached)),
        _ => None,
    });
    let (n, reached) = answer.unwrap();
    *reached = Some(true);
    judgement.voids = vec![void(VoidWhose::Evidence)];
    judgement.findings = vec![violated("status_honest", &[n])];
    assert_eq!(RunReport::from_history(entries.clone(), &judgement).violations.len(), 1);
    judgement.findings = vec![violated("status_honest", &[n - 1])];
    assert_eq!(RunReport::from_history(entries, &judgement).observed.len(), 1);
}

#[test]
fn an_undecided_invariant_does_not_weaken_what_was_decided() {
    let (attributed, observed) = split(
        Verdict::Failed,
        &[VoidWhose::Undecided],
        vec![violated("recovers", &[1])],
    );
    assert_eq!((attributed.len(), observed.len()), (1, 0));
}

#[test]
fn a_silent_death_names_the_absence_of_an_exception_and_the_one_signal_that_told() {
    let run = report(stories::silent_consume_once());
    let raised: Vec<_> = run
        .columns
        .raised
        .iter()
        .map(|line| (line.text.as_str(), line.count))
        .collect();
    assert_eq!(raised, [("none raised", 0), ("consume returned without an error", 1)]);
    for silent in ["process exit", "API error", "status", "claims", "log"] {
        assert_eq!(signal(&run, silent).told_s, None, "{silent}");
    }
    assert_eq!(signal(&run, "group members").told_s, Some(0.23));
    // The lag begins with the records written at 4.02 s, 3.02 s after the fault, and must stand for a second.
    assert_eq!(signal(&run, "lag").told_s, Some(4.02));
    assert!(
        run.columns
            .wire
            .iter()
            .any(|line| line.text.ends_with("none in the last 7.8 s")),
        "{:?}",
        run.columns.wire
    );
    assert_eq!(
        run.columns.claimed.last().unwrap().text,
        "at the end \"consuming\", claims caught up, healthy, lag 0 (truth: 30 records behind)"
    );
}

#[test]
fn an_exception_in_the_log_alone_is_not_one_that_was_raised() {
    let run = report(stories::stuck_after_out_of_range());
    assert_eq!(run.columns.raised[0].text, "none raised");
    assert_eq!(signal(&run, "log").told_s, Some(0.03));
    assert_eq!(signal(&run, "API error").told_s, None);
    assert_eq!(
        run.columns.wire[0].text,
        "Fetch answered OFFSET_OUT_OF_RANGE (1, put there by jump)"
    );
}

#[test]
fn one_exception_that_surfaces_by_two_ways_is_one_line() {
    let (mut entries, judgement) = stories::callback_killed_reader();
    let at = entries.iter().position(|entry| {
        matches!(
            &entry.event,
            Event::Reader {
                event: ReaderEvent::Error { .. },
                ..
            }
        )
    });
    let Event::Reader {
        event: ReaderEvent::Error { exception, .. },
        ..
    } = entries[at.unwrap()].event.clone()
    else {
        unreachable!()
    };
    let stopped = ReaderEvent::Stopped {
        reason: "failed".into(),
        exception: Some(exception),
    };
    let event = Event::Reader {
        member: "r1".into(),
        inc: 1,
        reader_us: 0,
        event: stopped,
    };
    entries.insert(
        at.unwrap() + 1,
        Entry {
            n: 0,
            at_us: 660_000,
            event,
        },
    );
    let run = RunReport::from_history(entries, &judgement);
    let wanted =
        "builtins.ValueError: brokerfall: raised on purpose (call or property, fatal; given as the reason of its end)";
    assert_eq!(run.columns.raised.len(), 1);
    assert_eq!(
        (run.columns.raised[0].text.as_str(), run.columns.raised[0].count),
        (wanted, 1)
    );
}

#[test]
fn what_a_fresh_reader_raises_during_diagnosis_is_not_the_patients() {
    let (mut entries, judgement) = stories::silent_consume_once();
    let at = entries
        .iter()
        .position(|entry| entry.event == Event::Stage(Stage::Diagnosing))
        .unwrap();
    let exception = history::exception("SomeError", "of the next instance");
    let error = ReaderEvent::Error {
        origin: Origin::Poll,
        fatal: true,
        exception,
        count: 1,
    };
    let event = Event::Reader {
        member: "r1".into(),
        inc: 2,
        reader_us: 0,
        event: error,
    };
    entries.insert(
        at + 1,
        Entry {
            n: 0,
            at_us: 9_100_000,
            event,
        },
    );
    let run = RunReport::from_history(entries, &judgement);
    assert_eq!(run.columns.raised[0].text, "none raised");
    assert_eq!(signal(&run, "API error").told_s, None);
    assert_eq!((run.cures[0].renewed, run.cures[0].worked), (Renewed::Object, true));
}

#[test]
fn a_recovered_run_says_how_long_it_took_and_what_was_left() {
    let run = report(stories::passed());
    assert_eq!(run.timings.recovery_ms, Some(357.9));
    let left: Vec<_> = run.limits.iter().map(|limit| limit.margin).collect();
    assert_eq!(left, [Some(4.642), Some(9.988), None, None, None]);
    assert_eq!(run.timings.reader_start_ms, Some(413.9));
    assert_eq!(run.evidence[0].in_force_s, Some(2.001));
}

#[test]
fn a_history_that_was_cut_off_is_marked_partial() {
    assert!(report(stories::environment_failed()).partial);
    assert!(!report(stories::passed()).partial);
    let nothing = RunReport::from_history(
        Vec::<brokerfall_report::history::Entry>::new(),
        &history::judgement(Verdict::Error, "no plan", Vec::new()),
    );
    assert!(nothing.partial && nothing.scenario.is_empty());
}

#[test]
fn a_run_without_a_fault_has_no_signals_and_says_what_was_claimed_at_the_end() {
    let reader = history::reader_info("reference-table", "0.1.0", Kind::Table);
    let opened = history::opened("control/idle", "Nothing happens", Phase::Live, reader, &[]);
    let mut history = history::History::new(opened);
    history.beat(10.0, "live", Some(true), None, None);
    history.at(500.0, Event::Stage(Stage::Stopping));
    let run = RunReport::from_history(history.entries, &history::judgement(Verdict::Passed, "", Vec::new()));
    assert!(run.signals.is_empty() && run.evidence.is_empty());
    let claimed: Vec<_> = run.columns.claimed.iter().map(|line| line.text.as_str()).collect();
    assert_eq!(claimed, ["at the end \"live\", claims caught up"]);
}

#[test]
fn an_error_names_who_failed() {
    assert_eq!(
        report(stories::environment_failed()).error_of,
        Some(FailureOf::Environment)
    );
}
