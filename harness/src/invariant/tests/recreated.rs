//! A topic that is deleted and created anew: records are told apart by id, nothing of the first log is owed any more, and
//! all of the second is.

use super::*;
use brokerfall_report::history::{Entry, Event};

/// The first log holds ids 1 to 10 at offsets 0 to 9; the second goes on with id 11 at offset 0.
const BEFORE: u64 = 10;

const DELETED: fn() -> Event = || Event::TopicDeleted { topic: TOPIC.into() };

fn lower(runs: &Runs) -> Runs {
    let mut lower = Runs::default();
    for [first, last] in runs.as_slice() {
        lower.push_run(first - BEFORE, last - BEFORE);
    }
    lower
}

/// The same of the second log: ids are as they stand there, offsets begin again.
fn anew(mut event: Event) -> Event {
    match &mut event {
        Event::Produced { offsets, .. } => *offsets = lower(offsets),
        Event::Scanned { from, to, offsets, .. } => {
            (*from, *to) = (*from - BEFORE, *to - BEFORE);
            *offsets = lower(offsets);
        }
        Event::Reader {
            event: ReaderEvent::Records { partitions },
            ..
        } => {
            for delivered in partitions {
                delivered.offsets = delivered.offsets.as_ref().map(lower);
            }
        }
        other => panic!("{other:?} has no offsets"),
    }
    event
}

/// A reader that has read the first log, then does these things; the second log ends with id 30.
fn after(kind: Kind, rest: impl IntoIterator<Item = (u64, Event)>) -> Vec<Entry> {
    let mut entries = history! { plan(kind);
        0 => spawned("r1"), 5 => produced(1, 10), 6 => targets(10), 10 => delivered(1, 10), 20 => scanned(1, 10),
        100 => DELETED(), 110 => anew(produced(11, 30)),
    };
    for (ms, event) in rest {
        entries.push(entry(entries.len() as u64, ms, event));
    }
    entries
}

#[test]
fn log_that_is_read_anew_from_its_start_is_whole() {
    let entries = after(
        Kind::Group,
        [
            (200, anew(delivered(11, 30))),
            (9_000, FIXED),
            (9_010, anew(scanned(11, 30))),
        ],
    );
    for id in [
        "no_lost_record",
        "no_phantom_record",
        "in_order",
        "no_rewind",
        "catches_up",
    ] {
        assert_held(id, &entries);
    }
    assert!(facts(&entries).reached_targets());
    assert_eq!(facts(&entries).lag(), 0);
}

#[test]
fn reader_that_goes_on_at_its_old_offset_has_lost_what_stands_below_it() {
    // It was at offset 10; ids 11 to 20 stand at offsets 0 to 9 now.
    let entries = after(
        Kind::Assign,
        [
            (200, anew(delivered(21, 30))),
            (9_000, FIXED),
            (9_010, anew(scanned(11, 30))),
        ],
    );
    assert_violated(
        "no_lost_record",
        "ids 11..=20 (offsets 0..=9) were never delivered",
        &entries,
    );
}

#[test]
fn nothing_of_the_log_that_is_gone_is_owed() {
    // Ids 4 to 10 were never read, and are gone with their topic.
    let entries = history! { plan(Kind::Assign);
        0 => spawned("r1"), 5 => produced(1, 10), 6 => targets(10), 10 => delivered(1, 3), 20 => scanned(1, 10),
        100 => DELETED(), 110 => anew(produced(11, 12)), 200 => anew(delivered(11, 12)), 9_000 => FIXED,
        9_010 => anew(scanned(11, 12)),
    };
    assert_held("no_lost_record", &entries);
    assert_held("catches_up", &entries);
    assert_eq!(facts(&entries).lag(), 0);
}

#[test]
fn what_was_skipped_while_the_first_log_stood_is_lost_all_the_same() {
    let entries = history! { plan(Kind::Assign);
        0 => spawned("r1"), 5 => produced(1, 10), 10 => delivered(1, 3), 15 => delivered(6, 10), 20 => scanned(1, 10),
        100 => DELETED(), 110 => anew(produced(11, 12)), 200 => anew(delivered(11, 12)), 9_000 => FIXED,
        9_010 => anew(scanned(11, 12)),
    };
    assert_violated("no_lost_record", "ids 4..=5", &entries);
}

#[test]
fn records_of_the_first_log_that_come_late_are_neither_phantoms_nor_progress() {
    let entries = history! { plan(Kind::Assign);
        0 => spawned("r1"), 5 => produced(1, 10), 10 => delivered(1, 3), 20 => scanned(1, 10),
        100 => DELETED(), 110 => anew(produced(11, 20)),
        // One line that holds the end of the first log and the start of the second.
        200 => says(records_as(Some([4, 5, 6, 7, 8, 9, 10, 11, 12].into_iter().collect()), None)), 9_000 => FIXED,
        9_010 => anew(scanned(11, 20)),
    };
    for id in ["no_phantom_record", "no_lost_record", "in_order"] {
        assert_held(id, &entries);
    }
    assert_eq!(facts(&entries).position(TOPIC, 0), Some(2));
    assert_eq!(facts(&entries).lag(), 8);
    assert_eq!(facts(&entries).delivered_total(), 12);
}

#[test]
fn id_that_stands_in_neither_log_is_a_phantom() {
    let entries = after(
        Kind::Assign,
        [(200, anew(delivered(31, 31))), (9_000, FIXED), (9_010, Event::Closed)],
    );
    assert_violated("no_phantom_record", "ids 31 were delivered and never written", &entries);
}

#[test]
fn old_offset_committed_over_the_new_log_is_ahead_and_one_committed_before_is_not() {
    let of = |committed_at: u64| {
        let mut entries = history! { plan(Kind::Group);
            0 => spawned("r1"), 5 => produced(1, 10), 10 => delivered(1, 10), 20 => scanned(1, 10),
        };
        let rest = [
            (committed_at, wire_commit(10)),
            (100, DELETED()),
            (110, anew(produced(11, 30))),
            (4_000, anew(delivered(21, 30))),
            (9_000, FIXED),
            (9_010, anew(scanned(11, 30))),
        ];
        let mut rest: Vec<_> = rest.into_iter().collect();
        rest.sort_by_key(|(ms, _)| *ms);
        for (ms, event) in rest {
            entries.push(entry(entries.len() as u64, ms, event));
        }
        entries
    };
    assert_held("commit_not_ahead", &of(50));
    assert_violated("commit_not_ahead", "committed offset 10 of orders-0", &of(150));
}

#[test]
fn claim_to_have_caught_up_is_held_to_the_log_that_stood_then() {
    let of = |at: u64, read: u64| {
        let mut entries = history! { plan(Kind::Assign);
            0 => spawned("r1"), 5 => produced(1, 10), 6 => targets(10), 10 => delivered(1, read),
        };
        let caught_up = || says(ReaderEvent::CaughtUp);
        let mut rest = vec![
            (at, caught_up()),
            (100, DELETED()),
            (110, anew(produced(11, 12))),
            (9_000, FIXED),
        ];
        rest.sort_by_key(|(ms, _)| *ms);
        for (ms, event) in rest {
            entries.push(entry(entries.len() as u64, ms, event));
        }
        entries
    };
    let early = "said that it had caught up before it had";
    // Right before the deletion, and long after it, when nothing of what it was to reach is left.
    for entries in [of(99, 10), of(200, 10)] {
        if let Outcome::Violated { text, .. } = outcome_of("status_honest", &entries) {
            assert!(!text.contains(early), "{text}");
        }
    }
    assert_violated("status_honest", early, &of(50, 3));
}

#[test]
fn table_may_show_what_is_gone_and_must_show_what_is_new() {
    let of = |shown: &[(&str, Option<u64>)]| {
        history! { plan(Kind::Table);
            0 => spawned("r1"), 5 => produced(1, 10), 10 => delivered(1, 10), 20 => scanned(1, 10),
            100 => DELETED(), 110 => anew(produced(11, 12)), 200 => anew(delivered(11, 12)), 300 => QUIET,
            310 => asked(7, "snapshot"), 320 => says(snapshot_event(7, shown)), 330 => done(7, None), 9_000 => FIXED,
            9_010 => anew(scanned(11, 12)),
        }
    };
    let new = [("p0-k1", Some(11)), ("p0-k2", Some(12))];
    assert_held("converges", &of(&new));
    assert_held("converges", &of(&[new[0], new[1], ("p0-k3", Some(3))]));
    assert_violated("converges", "1 keys stale", &of(&[("p0-k1", Some(1)), new[1]]));
    assert_violated(
        "converges",
        "1 keys phantom",
        &of(&[new[0], new[1], ("p0-k3", Some(13))]),
    );
}

fn snapshot_event(id: u64, entries: &[(&str, Option<u64>)]) -> ReaderEvent {
    match snapshot_part(id, entries) {
        Event::Reader { event, .. } => event,
        other => panic!("{other:?}"),
    }
}
