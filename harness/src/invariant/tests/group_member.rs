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

#[test]
fn other_kinds_have_no_group() {
    assert!(matches!(
        outcome_of("group_member", &history! { plan(Kind::Table); 0 => FIXED }),
        Outcome::NotApplicable { .. }
    ));
}
