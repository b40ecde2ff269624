//! `catches_up`: positions, never claims.

use super::*;

fn quiet() -> brokerfall_report::history::Opened {
    let mut plan = plan(Kind::Table);
    plan.quiet = true;
    plan
}

#[test]
fn position_at_the_end_before_the_sentinel_holds() {
    assert_held(
        "catches_up",
        &history! { quiet();
            0 => produced(1, 10), 1 => targets(10), 2 => spawned("r1"), 20 => delivered(1, 10),
            30 => produced(11, 11), 30 => sentinel(11), 40 => delivered(11, 11), 50 => FIXED,
        },
    );
}

#[test]
fn reader_that_wakes_only_because_of_the_sentinel_stays_stuck() {
    let entries = history! { quiet();
        0 => produced(1, 10), 1 => targets(10), 2 => spawned("r1"), 20 => delivered(1, 5),
        5100 => produced(11, 11), 5100 => sentinel(11), 5200 => delivered(6, 11), 5300 => FIXED,
    };
    assert_violated("catches_up", "orders-0 (position 5, end 10)", &entries);
    assert_eq!(kind_of("catches_up", &entries), Some(FailureKind::Stuck));
    assert!(super::super::catches_up::woken_by_sentinel(&facts(&entries)));
    assert_held("recovers", &entries);
}

#[test]
fn claim_without_position_does_not_count() {
    assert_violated(
        "catches_up",
        "not reached",
        &history! { quiet();
            0 => produced(1, 10), 1 => targets(10), 2 => spawned("r1"), 20 => delivered(1, 5),
            30 => heartbeat("caught_up", claims_caught_up()), 5100 => produced(11, 11), 5100 => sentinel(11), 5200 => FIXED,
        },
    );
}

#[test]
fn reader_that_ends_honestly_holds_and_silently_does_not() {
    let of = |exception| {
        history! { quiet();
            0 => produced(1, 10), 1 => targets(10), 2 => spawned("r1"), 20 => delivered(1, 5), 30 => stopped(exception), 40 => FIXED,
        }
    };
    assert_held("catches_up", &of(Some("a.B")));
    assert_violated(
        "catches_up",
        "without an exception, before the end was reached",
        &of(None),
    );
}

#[test]
fn trailing_tombstones_that_a_table_knows_by_key_only_are_no_lag() {
    let mut plan = quiet();
    plan.topics[0].generator.tombstone_every = Some(10);
    let entries = history! { plan;
        0 => produced(1, 10), 1 => targets(10), 2 => spawned("r1"),
        20 => says(records_as(Some(Runs::one(1, 9)), None)), 50 => FIXED,
    };
    assert_held("catches_up", &entries);
    assert!(facts(&entries).reached_targets());
}

#[test]
fn acknowledgement_recorded_after_the_delivery_is_no_lag() {
    let facts = facts(&history! { plan(Kind::Table);
        0 => spawned("r1"), 1 => targets(0), 2 => says(records_as(Some(Runs::one(1, 3)), None)), 3 => produced(1, 3),
    });
    assert_eq!((facts.position(TOPIC, 0), facts.lag()), (Some(3), 0));
}

#[test]
fn reset_latest_owes_nothing_older_than_its_first_start() {
    let mut plan = plan(Kind::Assign);
    plan.reset = Reset::Latest;
    let entries = history! { plan; 0 => produced(1, 10), 1 => targets(10), 2 => spawned("r1"), 9000 => FIXED };
    assert_held("catches_up", &entries);
    assert_eq!(facts(&entries).lag(), 0);
}
