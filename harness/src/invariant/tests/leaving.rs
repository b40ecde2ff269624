//! `stops_cleanly` and `restart_cures`: how readers leave.

use super::*;

#[test]
fn stop_within_its_grace_that_leaves_nothing_holds() {
    let of = |ms, connections| {
        history! { plan(Kind::Group);
            0 => spawned("r1"), 10 => stage(Stage::Stopping), 11 => asked(1, "stop"), 500 => exited_by("r1", Some(0), None, true),
            510 => left(ms, connections),
        }
    };
    assert_held("stops_cleanly", &of(Some(400), 0));
    assert_violated(
        "stops_cleanly",
        "r1 took 1500 ms to stop (grace 1000 ms)",
        &of(Some(1500), 0),
    );
    assert_violated("stops_cleanly", "r1 had to be killed", &of(None, 0));
    assert_violated("stops_cleanly", "left 2 connections open", &of(Some(400), 2));
}

#[test]
fn process_that_was_already_gone_decides_nothing() {
    assert_undecided(
        "stops_cleanly",
        &history! { plan(Kind::Group);
            0 => spawned("r1"), 10 => exited(0), 20 => FIXED, 30 => left(None, 0),
        },
    );
}

#[test]
fn first_cure_that_works_names_the_fault() {
    let of = |object, process| {
        history! { plan(Kind::Group);
            0 => spawned("r1"), 10 => stage(Stage::Diagnosing), 20 => cure(Renewed::Object, object), 30 => cure(Renewed::Process, process),
        }
    };
    let text = |entries: &[brokerfall_report::history::Entry]| match outcome_of("restart_cures", entries) {
        Outcome::Held { text } => text,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        [text(&of(true, true)), text(&of(false, true)), text(&of(false, false))],
        ["object", "process", "cluster"]
    );
}

#[test]
fn backlog_of_a_group_is_drained_once_its_coordinator_tells_the_sentinel_committed() {
    let of = |told: &[brokerfall_report::history::Event]| {
        let mut entries = history! { plan(Kind::Group); 0 => spawned("r1"), 10 => produced(1, 10), 20 => sentinel(11) };
        for event in told {
            let n = entries.len() as u64;
            entries.push(entry(n, 20 + n, event.clone()));
        }
        facts(&entries).has_committed_sentinel(1)
    };
    assert_eq!(of(&[]), None, "it commits nowhere that a coordinator tells of");
    assert_eq!(of(&[commit_told(10)]), Some(false));
    assert_eq!(of(&[commit_told(11)]), Some(true));
}
