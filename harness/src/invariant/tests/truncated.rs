//! A log that loses its end to an unclean election: what is lost is owed to nobody and no phantom to whoever had it, what
//! stands below it and what takes its place is owed.

use super::*;
use brokerfall_report::history::{Entry, Event};

/// Ids 1 to 10 stand at offsets 0 to 9; then the log ends at offset 6, and id 11 takes it.
const END: u64 = 6;
const LOST: u64 = 4;

const CUT: fn() -> Event = || Event::LogTruncated {
    topic: TOPIC.into(),
    partition: 0,
    log_end: END,
};

fn lower(runs: &Runs) -> Runs {
    let mut lower = Runs::default();
    for [first, last] in runs.as_slice() {
        lower.push_run(first - LOST, last - LOST);
    }
    lower
}

/// The same of records that were written since: their offsets are lower by as many as are lost.
fn anew(mut event: Event) -> Event {
    match &mut event {
        Event::Produced { offsets, .. } => *offsets = lower(offsets),
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

/// A scan of all that stands there: ids 1 to 6, and 11 to `last`.
fn scanned_anew(last: u64) -> Event {
    let ids: Runs = (1..=END).chain(11..=last).collect();
    let end = last - LOST;
    Event::Scanned {
        topic: TOPIC.into(),
        partition: 0,
        from: 0,
        to: end,
        ids,
        offsets: (0..end).collect(),
    }
}

/// A reader that was given `read` first, then does these things; ids 11 to 20 are written since.
fn after(kind: Kind, read: u64, rest: impl IntoIterator<Item = (u64, Event)>) -> Vec<Entry> {
    let mut entries = history! { plan(kind);
        0 => spawned("r1"), 5 => produced(1, 10), 6 => targets(6), 10 => delivered(1, read), 20 => scanned(1, 10),
        100 => CUT(), 110 => anew(produced(11, 20)),
    };
    for (ms, event) in rest {
        entries.push(entry(entries.len() as u64, ms, event));
    }
    entries
}

fn ended(kind: Kind, read: u64, since: Event) -> Vec<Entry> {
    after(kind, read, [(200, since), (9_000, FIXED), (9_010, scanned_anew(20))])
}

#[test]
fn reader_that_goes_back_to_what_is_left_is_well() {
    for entries in [
        ended(Kind::Group, 10, anew(delivered(11, 20))),
        ended(Kind::Assign, 6, anew(delivered(11, 20))),
    ] {
        for id in [
            "no_lost_record",
            "no_phantom_record",
            "in_order",
            "no_rewind",
            "catches_up",
        ] {
            assert_held(id, &entries);
        }
        assert_eq!(facts(&entries).lag(), 0);
    }
}

#[test]
fn reader_that_goes_on_at_its_old_offset_has_lost_what_took_the_place_of_the_lost() {
    // It was at offset 10; ids 11 to 14 stand at offsets 6 to 9 now.
    let entries = ended(Kind::Group, 10, anew(delivered(15, 20)));
    assert_violated(
        "no_lost_record",
        "ids 11..=14 (offsets 6..=9) were never delivered",
        &entries,
    );
}

#[test]
fn what_still_stands_is_owed_and_what_is_lost_is_not() {
    // It was given ids 1 to 3 and then what was written since: 4 to 6 stand there still, 7 to 10 do not.
    let entries = ended(Kind::Assign, 3, anew(delivered(11, 20)));
    assert_violated("no_lost_record", "ids 4..=6 (offsets 3..=5)", &entries);
    let read_on = after(
        Kind::Assign,
        3,
        [
            (150, delivered(4, 6)),
            (200, anew(delivered(11, 20))),
            (9_000, FIXED),
            (9_010, scanned_anew(20)),
        ],
    );
    assert_held("no_lost_record", &read_on);
    let skipped = after(
        Kind::Assign,
        3,
        [
            (50, delivered(8, 10)),
            (200, anew(delivered(11, 20))),
            (9_000, FIXED),
            (9_010, scanned_anew(20)),
        ],
    );
    assert_violated("no_lost_record", "ids 4..=6 (offsets 3..=5)", &skipped);
}

#[test]
fn lag_counts_from_what_is_left() {
    let entries = after(Kind::Assign, 10, []);
    assert_eq!(facts(&entries).position(TOPIC, 0), Some(END));
    assert_eq!(facts(&entries).lag(), 10);
}

#[test]
fn reading_the_lost_once_more_is_no_phantom_and_an_unknown_id_is() {
    let late = after(
        Kind::Assign,
        6,
        [
            (150, delivered(7, 10)),
            (200, anew(delivered(11, 20))),
            (9_000, FIXED),
            (9_010, scanned_anew(20)),
        ],
    );
    for id in ["no_phantom_record", "in_order", "no_lost_record"] {
        assert_held(id, &late);
    }
    let unknown = after(
        Kind::Assign,
        10,
        [
            (200, anew(delivered(21, 21))),
            (9_000, FIXED),
            (9_010, scanned_anew(20)),
            (9_020, Event::Closed),
        ],
    );
    assert_violated("no_phantom_record", "ids 21 were delivered and never written", &unknown);
}

#[test]
fn whole_log_read_again_is_excused_by_its_loss() {
    let entries = after(
        Kind::Assign,
        10,
        [
            (200, delivered(1, 6)),
            (210, anew(delivered(11, 20))),
            (9_000, FIXED),
            (9_010, scanned_anew(20)),
        ],
    );
    for id in ["no_rewind", "in_order", "no_lost_record"] {
        assert_held(id, &entries);
    }
}

#[test]
fn old_position_may_be_committed_until_something_new_was_given_and_not_after() {
    let of = |committed_at: u64, first: u64| {
        let mut rest = vec![
            (committed_at, wire_commit(10)),
            (2_000, anew(delivered(first, 20))),
            (9_000, FIXED),
            (9_010, scanned_anew(20)),
        ];
        rest.sort_by_key(|(ms, _)| *ms);
        after(Kind::Group, 10, rest)
    };
    assert_held("commit_not_ahead", &of(150, 11));
    assert_violated("commit_not_ahead", "committed offset 10 of orders-0", &of(3_500, 15));
}

#[test]
fn table_may_show_what_is_lost_and_must_show_what_stands() {
    let of = |shown: &[(&str, Option<u64>)]| {
        history! { plan(Kind::Table);
            0 => spawned("r1"), 5 => produced(1, 10), 10 => delivered(1, 10), 20 => scanned(1, 10),
            100 => CUT(), 110 => anew(produced(11, 12)), 120 => scanned_anew(12), 200 => anew(delivered(11, 12)),
            300 => QUIET, 310 => asked(7, "snapshot"), 320 => snapshot_part(7, shown), 330 => done(7, None), 9_000 => FIXED,
        }
    };
    // Ids 3 to 6 stand there still, and 11 and 12 since; 7 to 10 are lost.
    let stands = [
        ("p0-k1", Some(11)),
        ("p0-k2", Some(12)),
        ("p0-k3", Some(3)),
        ("p0-k4", Some(4)),
        ("p0-k5", Some(5)),
        ("p0-k6", Some(6)),
    ];
    assert_held("converges", &of(&stands));
    let with_lost: Vec<_> = stands.iter().copied().chain([("p0-k7", Some(7))]).collect();
    assert_held("converges", &of(&with_lost));
    assert_violated("converges", "1 keys missing", &of(&stands[..5]));
    assert_violated(
        "converges",
        "1 keys stale",
        &of(&[&[("p0-k1", Some(1))], &stands[1..]].concat()),
    );
}
