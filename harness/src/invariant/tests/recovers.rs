//! `recovers`: the sentinel, the window, honest and silent ends.

use super::*;

#[test]
fn sentinel_within_the_window_of_the_heal_holds() {
    assert_held(
        "recovers",
        &history! { with_fault(Kind::Group, "kill-broker");
            0 => spawned("r1"), 10 => produced(1, 10), 20 => delivered(1, 10),
            100 => injecting("kill-broker"), 110 => injected(), 5000 => healed(),
            5100 => produced(11, 11), 5101 => sentinel(11), 9900 => delivered(11, 11), 9950 => FIXED,
        },
    );
}

#[test]
fn sentinel_after_the_window_is_slow() {
    let entries = history! { plan(Kind::Group);
        0 => spawned("r1"), 10 => produced(1, 1), 10 => sentinel(1), 5100 => delivered(1, 1), 5200 => FIXED,
    };
    assert_violated("recovers", "too late on orders-0 after 5.1 s", &entries);
    assert_eq!(kind_of("recovers", &entries), Some(FailureKind::Slow));
}

#[test]
fn sentinel_that_never_came_is_stuck_and_only_a_cure_got_it() {
    let entries = history! { plan(Kind::Group);
        0 => spawned("r1"), 10 => produced(1, 1), 10 => sentinel(1), 5100 => stage(Stage::Diagnosing),
        5200 => spawned("r1"), 5300 => delivered(1, 1),
    };
    assert_violated(
        "recovers",
        "never arrived on orders-0 (id 1, offset 0) within 5.0 s",
        &entries,
    );
    assert_eq!(kind_of("recovers", &entries), Some(FailureKind::Stuck));
}

#[test]
fn a_run_that_ended_before_the_limit_decides_nothing() {
    assert_undecided(
        "recovers",
        &history! { plan(Kind::Group);
            0 => spawned("r1"), 10 => produced(1, 1), 10 => sentinel(1), 4000 => FIXED,
        },
    );
}

#[test]
fn honest_end_violates_unless_it_may_end() {
    let of = |outcome| {
        history! { expecting(plan(Kind::Group), outcome);
            0 => spawned("r1"), 10 => delivered(1, 1), 20 => stopped(Some("a.TopicAuthorizationFailedError")), 30 => FIXED,
        }
    };
    let recovers = of(ExpectedEnd::Recovers);
    assert_violated(
        "recovers",
        "stopped (`ended`) with a.TopicAuthorizationFailedError",
        &recovers,
    );
    assert_eq!(kind_of("recovers", &recovers), Some(FailureKind::Terminal));
    assert_held("recovers", &of(ExpectedEnd::RecoversOrEnds));
    assert_held("recovers", &of(ExpectedEnd::Ends));
}

#[test]
fn silent_end_violates_even_where_it_may_end() {
    let entries = history! { expecting(plan(Kind::Group), ExpectedEnd::RecoversOrEnds);
        0 => spawned("r1"), 10 => delivered(1, 1), 20 => exited(0), 30 => FIXED,
    };
    assert_violated("recovers", "exited with status 0 without an exception", &entries);
    assert_eq!(kind_of("recovers", &entries), Some(FailureKind::Silent));
}

#[test]
fn reader_that_was_to_end_and_went_on_violates() {
    assert_violated(
        "recovers",
        "was to end",
        &history! { expecting(plan(Kind::Group), ExpectedEnd::Ends);
            0 => spawned("r1"), 10 => produced(1, 1), 10 => sentinel(1), 20 => delivered(1, 1), 30 => FIXED,
        },
    );
}

#[test]
fn process_started_by_the_heal_of_kill_reader_is_the_patient() {
    assert_held(
        "recovers",
        &history! { with_fault(Kind::Table, "kill-reader");
            0 => spawned("r1"), 10 => produced(1, 10), 20 => delivered(1, 10),
            100 => injecting("kill-reader"), 101 => exited_by("r1", None, Some(9), true), 102 => injected(),
            200 => spawned("r1"), 210 => healed(), 300 => produced(11, 11), 300 => sentinel(11),
            310 => delivered(1, 11), 400 => FIXED,
        },
    );
}

#[test]
fn sentinel_shown_by_a_snapshot_counts_for_a_table_that_tells_no_records() {
    assert_held(
        "recovers",
        &history! { plan(Kind::Table);
            0 => spawned("r1"), 10 => produced(1, 1), 10 => sentinel(1), 20 => asked(7, "snapshot"),
            30 => snapshot_part(7, &[("p0-k1", Some(1))]), 31 => done(7, None), 40 => FIXED,
        },
    );
}
