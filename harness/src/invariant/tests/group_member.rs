//! `group_member`: who owns a partition.

use super::*;

#[test]
fn partition_without_a_member_for_longer_than_the_session_violates() {
    // Session 6 s, window 5 s: the limit is 6 s.
    let of = |back_ms| {
        history! { plan(Kind::Group);
            0 => spawned("r1"), 10 => synced("r1"), 20 => produced(1, 10), 30 => delivered(1, 5), 100 => gone("r1"),
            back_ms => synced("r1"), back_ms => delivered(6, 10), 9000 => FIXED,
        }
    };
    assert_held("group_member", &of(5000));
    assert_violated(
        "group_member",
        "partition orders-0 had no member for 7.9 s with 5 records to read",
        &of(8000),
    );
}

#[test]
fn reader_that_left_its_group_and_reads_by_hand_violates_and_an_idle_one_does_not() {
    let of = |produce: bool| {
        let mut entries = history! { plan(Kind::Group);
            0 => spawned("r1"), 10 => synced("r1"), 20 => produced(1, 10), 30 => delivered(1, 10), 100 => gone("r1"),
        };
        if produce {
            entries.push(entry(entries.len() as u64, 200, produced(11, 11)));
            entries.push(entry(entries.len() as u64, 210, delivered(11, 11)));
        }
        entries.push(entry(entries.len() as u64, 6100, FIXED));
        entries
    };
    assert_violated(
        "group_member",
        "had no member for 6.0 s with 1 records to read",
        &of(true),
    );
    assert_held("group_member", &of(false));
    assert_eq!(facts(&of(false)).unowned(), [(TOPIC.to_owned(), 0)]);
}

#[test]
fn member_that_is_not_heard_of_for_a_session_owns_nothing() {
    let of = |alive: bool| {
        let mut entries = history! { plan(Kind::Group);
            0 => spawned("r1"), 10 => synced("r1"), 20 => produced(1, 10), 30 => delivered(1, 5),
        };
        for ms in (1..20).filter(|_| alive) {
            let event = group("r1", GroupChange::Alive { generation: 1 });
            entries.push(entry(entries.len() as u64, ms * 1000, event));
        }
        entries.push(entry(entries.len() as u64, 20_000, FIXED));
        entries
    };
    assert_violated("group_member", "had no member for 14.0 s", &of(false));
    assert_held("group_member", &of(true));
    assert!(facts(&of(true)).unowned().is_empty());
}

#[test]
fn two_owners_at_once_violate() {
    let alive = |client| group(client, GroupChange::Alive { generation: 1 });
    assert_violated(
        "group_member",
        "owned by r1 and r2 at once for 7.0 s",
        &history! { plan(Kind::Group);
            0 => spawned("r1"), 0 => spawned("r2"), 10 => synced("r1"), 20 => synced("r2"),
            4000 => alive("r1"), 4000 => alive("r2"), 7020 => gone("r1"), 7050 => FIXED,
        },
    );
}

/// Where the coordinator was asked, its word counts and not what the wire showed.
#[test]
fn group_that_its_coordinator_tells_empty_violates_whatever_the_wire_showed() {
    let of = |told: brokerfall_report::history::Event| {
        history! { plan(Kind::Group);
            0 => spawned("r1"), 5 => described("Empty", &[]), 10 => synced("r1"), 20 => produced(1, 10),
            25 => described("Stable", &[("r1", true)]), 30 => delivered(1, 5), 500 => told,
            4000 => group("r1", GroupChange::Alive { generation: 1 }), 7000 => FIXED,
        }
    };
    assert_violated(
        "group_member",
        "had no member for 6.5 s with 5 records to read (limit 6.0 s); at last broker 1 told 0 members (Empty)",
        &of(described("Empty", &[])),
    );
    // A member is there, and while the group rebalances for good it owns nothing.
    assert_violated(
        "group_member",
        "at last broker 1 told 1 member (PreparingRebalance)",
        &of(described("PreparingRebalance", &[("r1", false)])),
    );
    assert_held("group_member", &of(described("Stable", &[("r1", true)])));
}

#[test]
fn two_owners_by_the_coordinators_word_violate() {
    assert_violated(
        "group_member",
        "owned by r1 and r2 at once for 7.0 s",
        &history! { plan(Kind::Group);
            0 => spawned("r1"), 0 => spawned("r2"), 10 => described("Stable", &[("r1", true)]),
            20 => described("Stable", &[("r1", true), ("r2", true)]), 7020 => described("Stable", &[("r2", true)]),
            7050 => FIXED,
        },
    );
}

#[test]
fn partition_that_goes_from_one_member_to_another_has_one_owner_at_a_time() {
    let entries = history! { plan(Kind::Group);
        0 => spawned("r1"), 0 => spawned("r2"), 10 => described("Stable", &[("r1", true)]),
        100 => described("PreparingRebalance", &[("r1", false), ("r2", false)]),
        200 => described("Stable", &[("r1", false), ("r2", true)]), 300 => described("Stable", &[("r2", true)]),
        400 => FIXED,
    };
    let facts = facts(&entries);
    let owners = facts.owners(facts.end());
    let owned: Vec<_> = owners[&(TOPIC, 0)]
        .iter()
        .map(|one| (one.client.as_str(), one.from_us / 1000, one.to_us / 1000))
        .collect();
    assert_eq!(owned, [("r1", 10, 100), ("r2", 200, 400)]);
    assert!(facts.unowned().is_empty());
}

/// Incident 3: consume came back, the process lives, the group is empty and nothing is told.
#[test]
fn silent_end_leaves_a_member_to_miss_by_the_coordinators_word_and_an_honest_one_does_not() {
    let of = |end: brokerfall_report::history::Event, fatal: brokerfall_report::history::Event| {
        history! { plan(Kind::Group);
            0 => spawned("r1"), 5 => described("Stable", &[("r1", true)]), 10 => synced("r1"), 20 => produced(1, 10),
            30 => delivered(1, 5), 40 => fatal, 50 => end, 500 => described("Empty", &[]), 20_000 => FIXED,
        }
    };
    let silent = of(returned(None), heartbeat("running", Claims::default()));
    assert_violated(
        "group_member",
        "with 5 records to read (limit 6.0 s); at last broker 1 told 0 members",
        &silent,
    );
    assert_held(
        "group_member",
        &of(status("failed"), error(Origin::Reader, true, "a.B")),
    );
}

/// After a coordinator's restart a member that is gone counts as one for a session more.
#[test]
fn member_that_is_silent_while_records_wait_may_expire() {
    let of = |alive_ms, read_to| {
        let entries = history! { plan(Kind::Group);
            0 => spawned("r1"), 10 => synced("r1"), 15 => described("Stable", &[("r1", true)]), 20 => produced(1, 10),
            30 => delivered(1, read_to), alive_ms => group("r1", GroupChange::Alive { generation: 1 }), 9000 => QUIET,
        };
        facts(&entries).may_expire()
    };
    assert!(of(1000, 5));
    assert!(!of(4000, 5), "it was heard of within the session of 6 s");
    assert!(!of(1000, 10), "nothing waits");
}

/// Kafka keeps the client id of a static member whose name another one took; the link saw who joined by the new id.
#[test]
fn static_member_is_who_joined_by_its_id() {
    let joined = || {
        group(
            "n1",
            GroupChange::Joined {
                generation: 1,
                member_id: "r1-id".into(),
            },
        )
    };
    let told = || described("Stable", &[("r1", true)]);
    // Either may come first: the coordinator knows it before its answer reaches the link.
    for (first, second) in [(joined(), told()), (told(), joined())] {
        let entries = history! { plan(Kind::Group);
            0 => spawned("r1"), 5 => synced("r1"), 10 => first, 20 => second, 30 => FIXED,
        };
        let facts = facts(&entries);
        assert_eq!(facts.owners(facts.end())[&(TOPIC, 0)][0].client, "n1");
    }
}

#[test]
fn other_kinds_have_no_group() {
    assert!(matches!(
        outcome_of("group_member", &history! { plan(Kind::Table); 0 => FIXED }),
        Outcome::NotApplicable { .. }
    ));
}
