//! `no_silent_death`: standing still while there is something to read.

use super::*;

#[test]
fn reader_that_moves_holds() {
    assert_held(
        "no_silent_death",
        &history! { plan(Kind::Group);
            0 => spawned("r1"), 10 => produced(1, 10), 20 => delivered(1, 10), 9000 => FIXED,
        },
    );
}

#[test]
fn standstill_with_lag_and_open_path_for_the_window_violates() {
    let entries = history! { plan(Kind::Group);
        0 => spawned("r1"), 10 => produced(1, 10), 20 => delivered(1, 5), 5100 => FIXED,
    };
    assert_violated(
        "no_silent_death",
        "partition orders-0 stood still for 5.1 s with 5 records waiting",
        &entries,
    );
    assert_eq!(kind_of("no_silent_death", &entries), Some(FailureKind::Stuck));
}

#[test]
fn standstill_that_is_busy_on_the_wire_is_hot() {
    let entries = history! { plan(Kind::Group);
        0 => spawned("r1"), 10 => produced(1, 10), 20 => delivered(1, 5), 3000 => wire(3000, 1000), 5100 => FIXED,
    };
    assert_eq!(kind_of("no_silent_death", &entries), Some(FailureKind::Hot));
}

#[test]
fn standstill_while_the_path_is_closed_does_not_count() {
    assert_undecided(
        "no_silent_death",
        &history! { with_fault(Kind::Group, "partition");
            0 => spawned("r1"), 10 => produced(1, 10), 20 => delivered(1, 5), 30 => injecting("partition"),
            9000 => healed(), 12000 => FIXED,
        },
    );
}

#[test]
fn idle_reader_does_not_count() {
    assert_held(
        "no_silent_death",
        &history! { plan(Kind::Group);
            0 => spawned("r1"), 10 => produced(1, 5), 20 => delivered(1, 5), 60_000 => FIXED,
        },
    );
}

#[test]
fn call_that_came_back_without_an_error_is_a_silent_death() {
    let entries = history! { plan(Kind::Group);
        0 => spawned("r1"), 10 => delivered(1, 5), 20 => error(Origin::Background, false, "*net.OpError"),
        30 => returned(None), 40 => produced(1, 10), 5200 => FIXED,
    };
    assert_violated(
        "no_silent_death",
        "came back from `Consume` and read no more without an exception",
        &entries,
    );
    assert_eq!(kind_of("no_silent_death", &entries), Some(FailureKind::Silent));
    assert_violated("failure_typed", "came back from `Consume`", &entries);
}

#[test]
fn partition_that_stands_while_another_moves_violates() {
    let mut plan = plan(Kind::Group);
    plan.topics[0].partitions = 2;
    let mut entries = history! { plan;
        0 => spawned("r1"), 10 => produced(1, 10), 10 => on_partition(1, produced(1, 10)), 20 => delivered(1, 5),
    };
    for id in 1..=10 {
        entries.push(entry(
            entries.len() as u64,
            id * 600,
            on_partition(1, delivered(id, id)),
        ));
    }
    entries.push(entry(entries.len() as u64, 6001, FIXED));
    assert_violated("no_silent_death", "partition orders-0", &entries);
}
