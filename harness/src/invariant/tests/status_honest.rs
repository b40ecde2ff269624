//! `status_honest`: barrier, caught up, healthy, lag.

use super::*;

#[test]
fn barrier_reached_before_all_was_applied_violates() {
    let of = |id| {
        history! { plan(Kind::Table);
            0 => spawned("r1"), 10 => produced(1, 10), 20 => delivered(1, id), 30 => asked(3, "barrier"), 40 => done(3, Some(true)),
            2000 => delivered(10, 10), 3000 => FIXED, 3100 => scanned(1, 10),
        }
    };
    assert_held("status_honest", &of(10));
    assert_violated(
        "status_honest",
        "ids 10 of orders-0, acknowledged before it, were not applied",
        &of(9),
    );
}

#[test]
fn barrier_of_a_table_that_tells_no_records_is_judged_by_the_next_snapshot() {
    let of = |id| {
        history! { plan(Kind::Table);
            0 => spawned("r1"), 10 => produced(1, 11), 30 => asked(3, "barrier"), 40 => done(3, Some(true)),
            50 => asked(4, "snapshot"),
            60 => snapshot_part(4, &[("p0-k0", Some(10)), ("p0-k1", Some(id)), ("p0-k2", Some(2)), ("p0-k3", Some(3)), ("p0-k4", Some(4)),
                ("p0-k5", Some(5)), ("p0-k6", Some(6)), ("p0-k7", Some(7)), ("p0-k8", Some(8)), ("p0-k9", Some(9))]),
            61 => done(4, None), 3000 => FIXED,
        }
    };
    assert_held("status_honest", &of(11));
    assert_violated("status_honest", "key p0-k1 does not show id 11", &of(1));
}

#[test]
fn caught_up_claimed_before_the_initial_end_violates_and_a_latch_under_load_does_not() {
    let of = |id| {
        history! { plan(Kind::Table);
            0 => produced(1, 10), 1 => targets(10), 2 => spawned("r1"), 20 => delivered(1, id), 30 => heartbeat("x", claims_caught_up()),
            2000 => delivered(id + 1, 10), 2010 => produced(11, 20), 2020 => heartbeat("x", claims_caught_up()), 2100 => delivered(11, 20), 3000 => FIXED,
        }
    };
    assert_held("status_honest", &of(10));
    assert_violated(
        "status_honest",
        "said that it had caught up before it had on orders-0 (1 records)",
        &of(9),
    );
}

#[test]
fn healthy_while_standing_still_for_longer_than_the_window_violates() {
    let of = |id| {
        history! { plan(Kind::Group);
            0 => spawned("r1"), 10 => produced(1, 10), 20 => delivered(1, id), 30 => heartbeat("x", healthy()), 6000 => heartbeat("x", healthy()), 6100 => FIXED,
        }
    };
    assert_held("status_honest", &of(10));
    assert_violated(
        "status_honest",
        "r1 claimed to be healthy for 6.1 s while orders-0 stood still with 5 records waiting",
        &of(5),
    );
}

#[test]
fn endpoint_that_stays_green_while_the_reader_stands_still_violates_whatever_the_reader_says() {
    let unwell = Claims {
        healthy: Some(false),
        ..Claims::default()
    };
    let of = |id, at_the_end| {
        history! { plan(Kind::Group);
            0 => spawned("r1"), 10 => produced(1, 10), 20 => delivered(1, id), 30 => heartbeat("x", unwell.clone()),
            40 => answered(true), 3000 => answered(at_the_end), 6000 => answered(at_the_end), 6050 => heartbeat("x", unwell.clone()), 6100 => FIXED,
        }
    };
    assert_held("status_honest", &of(10, true));
    assert_held("status_honest", &of(5, false));
    assert_violated(
        "status_honest",
        "r1 claimed to be healthy by the claim `readiness` for 6.1 s while orders-0 stood still with 5 records waiting",
        &of(5, true),
    );
}

#[test]
fn endpoint_that_was_never_green_decides_nothing() {
    let of = |first| {
        history! { plan(Kind::Group);
            0 => spawned("r1"), 10 => produced(1, 10), 20 => delivered(1, 10), 40 => answered(first), 3000 => answered(false), 6100 => FIXED,
        }
    };
    assert_held("status_honest", &of(true));
    assert_undecided("status_honest", &of(false));
}

#[test]
fn cut_off_from_its_broker_a_reader_may_keep_its_last_claim() {
    assert_held(
        "status_honest",
        &history! { with_fault(Kind::Group, "kill-broker");
            0 => spawned("r1"), 10 => produced(1, 10), 15 => delivered(1, 9), 20 => injecting("kill-broker"), 30 => heartbeat("x", healthy()),
            20_000 => heartbeat("x", healthy()), 20_001 => healed(), 20_010 => delivered(10, 10), 20_100 => FIXED,
        },
    );
}

#[test]
fn claimed_lag_far_below_the_true_one_violates() {
    let of = |lag| {
        history! { plan(Kind::Group);
            0 => spawned("r1"), 10 => produced(1, 2000), 20 => delivered(1, 10),
            6000 => heartbeat("x", Claims { lag: Some(lag), ..Claims::default() }), 6100 => heartbeat("x", Claims::default()), 6200 => FIXED,
        }
    };
    assert_held("status_honest", &of(1000));
    assert_violated("status_honest", "claimed a lag of 3 records when it was 1990", &of(3));
}

#[test]
fn barrier_of_a_reader_that_keeps_state_counts_what_its_earlier_lives_applied() {
    let hello = |capabilities: &[&str]| {
        says(ReaderEvent::Hello(Hello {
            protocol: 1,
            library: "l 1".into(),
            client: "c 1".into(),
            runtime: "r 1".into(),
            kinds: vec![Kind::Table],
            capabilities: capabilities.iter().map(|&it| it.to_owned()).collect(),
        }))
    };
    let of = |capabilities: &[&str], id| {
        history! { plan(Kind::Table);
            0 => spawned("r1"), 1 => hello(capabilities), 10 => produced(1, 10), 20 => delivered(1, id),
            30 => exited_by("r1", None, Some(9), true), 40 => spawned("r1"), 41 => hello(capabilities), 50 => produced(11, 11),
            60 => delivered(11, 11), 70 => asked(3, "barrier"), 80 => done(3, Some(true)), 3000 => FIXED, 3100 => scanned(1, 11),
        }
    };
    assert_held("status_honest", &of(&[STATE], 10));
    assert_violated("status_honest", "ids 10 of orders-0", &of(&[STATE], 9));
    assert_violated("status_honest", "ids 1..=10 of orders-0", &of(&[], 10));
}
