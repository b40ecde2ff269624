//! Transactions: what a reader of committed records only is owed, and that the log's end may be no record.

use super::*;
use brokerfall_report::history::{Event, Opened, TransactionState};
use brokerfall_report::protocol::{Claims, Isolation};

fn committed(kind: Kind) -> Opened {
    Opened {
        isolation: Isolation::ReadCommitted,
        ..plan(kind)
    }
}

fn transaction(first: u64, last: u64, state: TransactionState) -> Event {
    Event::Transaction {
        topic: TOPIC.into(),
        partition: 0,
        ids: Runs::one(first, last),
        state,
    }
}

/// A scan that finds all of these and then a marker.
fn scanned_to_marker(first: u64, last: u64) -> Event {
    let mut event = scanned(first, last);
    if let Event::Scanned { to, .. } = &mut event {
        *to += 1;
    }
    event
}

use TransactionState::{Aborted, Begun, Committed, Committing};

#[test]
fn what_was_aborted_is_owed_to_nobody_who_reads_committed_records_and_a_phantom_to_him() {
    let of = |plan: Opened, given: &[(u64, u64)]| {
        history! { plan;
            0 => spawned("r1"), 1 => produced(1, 10), 2 => targets(10), 3 => transaction(11, 15, Begun), 4 => produced(11, 15),
            5 => transaction(11, 15, Aborted), 6 => scanned_to_marker(1, 15), 20 => says(records(given)), 9000 => FIXED,
            9010 => scanned_to_marker(1, 15), 9020 => Event::Closed,
        }
    };
    let without = of(committed(Kind::Group), &[(1, 10)]);
    assert_held("no_phantom_record", &without);
    assert_held("no_lost_record", &without);
    assert_held("no_silent_death", &without);
    assert_eq!(
        facts(&without).lag(),
        0,
        "neither the aborted nor their marker are waited for"
    );
    let with = of(committed(Kind::Group), &[(1, 15)]);
    assert_violated(
        "no_phantom_record",
        "id 11 was delivered although its transaction",
        &with,
    );
    // To a reader of everything they are records.
    assert_eq!(facts(&of(plan(Kind::Group), &[(1, 10)])).lag(), 5);
    assert_held("no_phantom_record", &of(plan(Kind::Group), &[(1, 15)]));
}

#[test]
fn what_was_aborted_and_passed_is_lost_to_a_reader_of_everything_only() {
    let of = |plan: Opened| {
        history! { plan;
            0 => spawned("r1"), 1 => produced(1, 10), 2 => targets(10), 3 => transaction(11, 15, Begun), 4 => produced(11, 15),
            5 => transaction(11, 15, Aborted), 6 => produced(16, 20), 20 => says(records(&[(1, 10), (16, 20)])), 9000 => FIXED,
            9010 => scanned(1, 20), 9020 => Event::Closed,
        }
    };
    assert_held("no_lost_record", &of(committed(Kind::Group)));
    assert_violated("no_lost_record", "ids 11..=15", &of(plan(Kind::Group)));
}

#[test]
fn an_open_transaction_holds_back_what_stands_behind_it_and_nobody_is_late_meanwhile() {
    let of = |plan: Opened, given: u64| {
        history! { plan;
            0 => spawned("r1"), 1 => produced(1, 10), 2 => targets(10), 20 => delivered(1, 10), 30 => transaction(11, 12, Begun),
            31 => produced(11, 12), 40 => produced(13, 20), 9_000 => transaction(11, 12, Committing),
            9_010 => transaction(11, 12, Committed), given => delivered(11, 20), 10_000 => FIXED, 10_010 => scanned(1, 20),
            10_020 => Event::Closed,
        }
    };
    let waits = of(committed(Kind::Group), 9_100);
    for id in ["no_silent_death", "no_phantom_record", "no_lost_record"] {
        assert_held(id, &waits);
    }
    assert_violated("no_silent_death", "orders-0", &of(plan(Kind::Group), 9_100));
    let until_then = facts(&waits[..8]);
    assert_eq!((until_then.lag(), until_then.log_end(TOPIC, 0)), (0, Some(20)));
}

#[test]
fn reader_of_committed_records_has_caught_up_where_an_open_transaction_begins() {
    let of = |plan: Opened| {
        history! { plan;
            0 => produced(1, 10), 1 => transaction(11, 15, Begun), 2 => produced(11, 15), 3 => targets(15), 4 => spawned("r1"),
            20 => delivered(1, 10), 30 => says(ReaderEvent::CaughtUp), 2_000 => transaction(11, 15, Committing),
            2_010 => transaction(11, 15, Committed), 2_020 => delivered(11, 15), 3_000 => FIXED,
        }
    };
    assert_held("status_honest", &of(committed(Kind::Table)));
    assert_violated(
        "status_honest",
        "before it had on orders-0 (5 records)",
        &of(plan(Kind::Table)),
    );
}

#[test]
fn a_record_that_is_given_before_its_transaction_is_committed_is_a_phantom() {
    let entries = history! { committed(Kind::Group);
        0 => spawned("r1"), 1 => transaction(1, 5, Begun), 2 => produced(1, 5), 10 => delivered(1, 5),
        20 => transaction(1, 5, Committing), 30 => transaction(1, 5, Committed), 100 => FIXED, 110 => scanned(1, 5), 120 => Event::Closed,
    };
    assert_violated(
        "no_phantom_record",
        "id 1 was delivered although its transaction",
        &entries,
    );
}

#[test]
fn table_does_not_show_what_was_aborted() {
    let of = |shown: u64| {
        history! { committed(Kind::Table);
            0 => spawned("r1"), 1 => produced(1, 10), 2 => transaction(11, 11, Begun), 3 => produced(11, 11),
            4 => transaction(11, 11, Aborted), 10 => delivered(1, 10), 20 => QUIET, 30 => asked(3, "snapshot"),
            40 => snapshot_part(3, &[("p0-k1", Some(shown))]), 50 => done(3, None), 60 => FIXED, 70 => scanned_to_marker(1, 11),
        }
    };
    let stale = outcome_of("converges", &of(1));
    let Outcome::Violated { text, .. } = stale else {
        panic!("{stale:?}")
    };
    assert!(text.contains("9 keys missing") && !text.contains("p0-k1"), "{text}");
    assert_violated("converges", "1 keys phantom (such as p0-k1: id 11)", &of(11));
}

#[test]
fn reader_that_was_given_all_and_never_says_that_it_caught_up_hangs_at_the_marker() {
    let quiet = || Opened {
        quiet: true,
        ..plan(Kind::Table)
    };
    let on_its_way = || Claims {
        caught_up: Some(false),
        ..Claims::default()
    };
    let of = |later: Event| {
        history! { quiet();
            0 => produced(1, 10), 1 => scanned_to_marker(1, 10), 2 => targets(11), 3 => spawned("r1"), 20 => delivered(1, 10),
            1_000 => heartbeat("catching_up", on_its_way()), 2_000 => later, 6_000 => produced(12, 12), 6_000 => sentinel(12),
            6_100 => delivered(12, 12), 6_200 => says(ReaderEvent::CaughtUp), 6_300 => FIXED,
        }
    };
    let hangs = of(heartbeat("catching_up", on_its_way()));
    assert_violated("catches_up", "had not come to say that it had caught up", &hangs);
    assert_eq!(kind_of("catches_up", &hangs), Some(FailureKind::Stuck));
    assert_held("catches_up", &of(says(ReaderEvent::CaughtUp)));
    assert_held("catches_up", &of(heartbeat("caught_up", claims_caught_up())));
}
