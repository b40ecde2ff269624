//! The invariants of single records: `no_lost_record`, `no_phantom_record`, `in_order`, `no_rewind`, `commit_not_ahead`.

use super::*;

#[test]
fn gap_left_by_retention_is_not_owed() {
    let entries = history! { plan(Kind::Group);
        0 => spawned("r1"), 10 => produced(1, 10), 20 => delivered(1, 3), 30 => watermarks(5, 10),
        40 => delivered(6, 10), 50 => FIXED, 60 => scanned(6, 10),
    };
    assert_held("no_lost_record", &entries);
    let Outcome::Held { text } = outcome_of("no_lost_record", &entries) else {
        panic!()
    };
    assert!(text.starts_with("2 records were passed unread"), "{text}");
}

#[test]
fn gap_that_a_later_scan_still_finds_is_lost() {
    assert_violated(
        "no_lost_record",
        "partition orders-0 ids 4..=5 (offsets 3..=4) were never delivered; before them came id 3, event #3",
        &history! { plan(Kind::Group);
            0 => spawned("r1"), 10 => produced(1, 10), 20 => delivered(1, 3), 40 => delivered(6, 10), 50 => FIXED, 60 => scanned(1, 10),
        },
    );
}

#[test]
fn jump_to_the_end_owes_all_that_was_there_unless_declared() {
    let of = |declared: bool| {
        let mut plan = plan(Kind::Group);
        plan.reader.declares.skips_on_reset = declared;
        history! { plan;
            0 => spawned("r1"), 10 => produced(1, 10), 20 => delivered(1, 3), 30 => wire_error(1, "OFFSET_OUT_OF_RANGE"),
            40 => produced(11, 11), 50 => delivered(11, 11), 60 => FIXED, 70 => scanned(1, 11),
        }
    };
    assert_violated("no_lost_record", "ids 4..=10", &of(false));
    assert_held("no_lost_record", &of(true));
}

#[test]
fn records_above_the_position_are_lag_and_not_loss() {
    assert_held(
        "no_lost_record",
        &history! { plan(Kind::Group);
            0 => spawned("r1"), 10 => produced(1, 10), 20 => delivered(1, 3), 50 => FIXED, 60 => scanned(1, 10),
        },
    );
}

#[test]
fn earlier_incarnations_count_for_a_group_and_not_for_a_table() {
    let of = |kind| {
        history! { plan(kind);
            0 => spawned("r1"), 10 => produced(1, 10), 20 => delivered(1, 5), 30 => exited_by("r1", None, Some(9), true),
            40 => spawned("r1"), 50 => delivered(6, 10), 60 => FIXED, 70 => scanned(1, 10),
        }
    };
    assert_held("no_lost_record", &of(Kind::Group));
    assert_violated("no_lost_record", "ids 1..=5", &of(Kind::Table));
}

#[test]
fn record_that_was_handed_to_a_failing_callback_is_not_lost() {
    assert_held(
        "no_lost_record",
        &history! { plan(Kind::Group);
            0 => spawned("r1"), 10 => produced(1, 10), 20 => delivered(1, 4), 30 => callback(false, 4),
            40 => delivered(6, 10), 50 => FIXED, 60 => scanned(1, 10),
        },
    );
}

#[test]
fn offsets_without_ids_are_enough_for_loss_and_not_for_phantoms() {
    let entries = history! { plan(Kind::Group);
        0 => spawned("r1"), 10 => produced(1, 10), 20 => says(records_as(None, Some(Runs::one(0, 4)))),
        40 => says(records_as(None, Some(Runs::one(6, 9)))), 50 => FIXED, 60 => scanned(1, 10),
    };
    assert_violated("no_lost_record", "ids 6 (offsets 5)", &entries);
    assert!(matches!(
        outcome_of("no_phantom_record", &entries),
        Outcome::NotApplicable { .. }
    ));
}

#[test]
fn record_in_doubt_is_no_phantom_and_a_refused_one_is() {
    let of = |result| {
        history! { plan(Kind::Group);
            0 => spawned("r1"), 10 => produced(1, 3), 20 => outcome(4, 4, result), 30 => delivered(1, 4), 40 => FIXED,
            50 => brokerfall_report::history::Event::Closed,
        }
    };
    assert_held("no_phantom_record", &of(ProduceOutcome::Maybe));
    assert_violated(
        "no_phantom_record",
        "ids 4 were delivered and never written",
        &of(ProduceOutcome::Failed),
    );
}

#[test]
fn record_at_an_offset_where_it_does_not_stand_is_a_phantom() {
    assert_violated(
        "no_phantom_record",
        "id 2 was delivered at offset 7, it stands at 1",
        &history! { plan(Kind::Group);
            0 => spawned("r1"), 10 => produced(1, 3), 30 => says(records_as(Some(Runs::one(2, 2)), Some(Runs::one(7, 7)))), 40 => FIXED,
        },
    );
}

#[test]
fn last_records_of_a_cut_off_history_are_no_phantoms() {
    assert_held(
        "no_phantom_record",
        &history! { plan(Kind::Group);
            0 => spawned("r1"), 10 => produced(1, 3), 30 => delivered(1, 5),
        },
    );
}

#[test]
fn first_time_records_out_of_order_violate_unless_something_lets_them() {
    let of = |between: brokerfall_report::history::Event| {
        history! { plan(Kind::Group);
            0 => spawned("r1"), 10 => produced(1, 10), 2000 => says(records(&[(1, 5), (7, 7)])), 4000 => between,
            6000 => delivered(6, 6), 7000 => FIXED,
        }
    };
    assert_violated("in_order", "id 6 came after 7", &of(stage(Stage::Steps)));
    assert_held("in_order", &of(reset()));
    assert_held("in_order", &of(wire_error(1, "OFFSET_OUT_OF_RANGE")));
    assert_held("in_order", &of(synced("r1")));
    assert_violated("in_order", "id 6 came after 7", &of(synced("r2")));
    assert_held("no_rewind", &of(stage(Stage::Steps)));
}

#[test]
fn records_swapped_right_after_the_start_are_not_excused_by_it() {
    let entries = history! { plan(Kind::Assign);
        0 => spawned("r1"), 10 => produced(1, 20), 15 => says(ReaderEvent::Started),
        20 => says(records(&[(1, 9), (11, 11), (10, 10), (12, 20)])), 1000 => FIXED,
    };
    assert_violated("in_order", "id 10 came after 11", &entries);
    assert_held("no_rewind", &entries);
}

#[test]
fn duplicates_are_counted_and_violate_only_above_the_number_asked() {
    let of = |allowed| {
        let mut plan = plan(Kind::Group);
        plan.expect.duplicates = allowed;
        history! { plan; 0 => spawned("r1"), 10 => produced(1, 10), 20 => says(records(&[(1, 5), (5, 5), (6, 10)])), 30 => FIXED }
    };
    assert_eq!(outcome_of("in_order", &of(None)), super::super::held("1 duplicates"));
    assert_held("in_order", &of(Some(1)));
    assert_violated(
        "in_order",
        "1 records were delivered more than once; 0 are allowed",
        &of(Some(0)),
    );
    assert_held("no_rewind", &of(None));
}

#[test]
fn records_read_again_violate_no_rewind_alone_unless_something_lets_them() {
    let of = |between: brokerfall_report::history::Event| {
        history! { plan(Kind::Assign);
            0 => spawned("r1"), 10 => produced(1, 10), 2000 => delivered(1, 10), 4000 => between, 6000 => delivered(3, 10), 7000 => FIXED,
        }
    };
    assert_violated(
        "no_rewind",
        "partition orders-0 went back from id 10 to id 3",
        &of(stage(Stage::Steps)),
    );
    assert_held("in_order", &of(stage(Stage::Steps)));
    assert_held("no_rewind", &of(reset()));
    assert_held("no_rewind", &of(returned(None)));
}

#[test]
fn position_told_to_go_back_violates_though_the_records_read_again_are_hidden() {
    let at = |offset| {
        says(ReaderEvent::Heartbeat(brokerfall_report::protocol::Heartbeat {
            positions: Some(vec![brokerfall_report::protocol::Position {
                topic: TOPIC.into(),
                partition: 0,
                offset,
            }]),
            ..Default::default()
        }))
    };
    let of = |between: brokerfall_report::history::Event| {
        history! { plan(Kind::Assign);
            0 => spawned("r1"), 10 => produced(1, 10), 2000 => delivered(1, 10), 2100 => at(10), 4000 => between,
            6000 => at(4), 7000 => FIXED,
        }
    };
    let silent = of(stage(Stage::Steps));
    assert_violated("no_rewind", "partition orders-0 went back from offset 10 to 4", &silent);
    assert_held("no_rewind", &of(reset()));
    assert_eq!(
        facts(&silent).position(TOPIC, 0),
        Some(10),
        "positions of records count where they are told"
    );
}

#[test]
fn reading_on_after_a_reset_is_no_second_step_back() {
    let entries = history! { plan(Kind::Assign);
        0 => spawned("r1"), 10 => produced(1, 10), 2000 => delivered(1, 10), 4000 => reset(), 6000 => delivered(3, 5),
        9000 => delivered(6, 8), 12_000 => delivered(9, 10), 13_000 => FIXED,
    };
    assert_held("no_rewind", &entries);
    assert_held("in_order", &entries);
}

#[test]
fn commit_above_what_was_delivered_violates_while_the_record_is_there() {
    let of = |commit| {
        history! { plan(Kind::Group);
            0 => spawned("r1"), 10 => produced(1, 10), 20 => delivered(1, 5), 30 => wire_commit(commit),
            2000 => delivered(6, 10), 3000 => FIXED, 3100 => scanned(1, 10),
        }
    };
    assert_held("commit_not_ahead", &of(5));
    assert_violated(
        "commit_not_ahead",
        "r1 committed offset 8 of orders-0 (on the wire) while ids 6..=8 were not delivered",
        &of(8),
    );
}

#[test]
fn commit_over_records_that_retention_took_holds() {
    assert_held(
        "commit_not_ahead",
        &history! { plan(Kind::Group);
            0 => spawned("r1"), 10 => produced(1, 10), 20 => delivered(1, 5), 25 => watermarks(7, 10), 30 => wire_commit(7),
            2000 => delivered(8, 10), 3000 => FIXED, 3100 => scanned(8, 10),
        },
    );
}

/// A commit that the link did not see, since its answer was cut off or another connection made it.
#[test]
fn commit_that_only_the_coordinator_tells_is_judged_like_any_other() {
    let of = |offset| {
        history! { plan(Kind::Group);
            0 => spawned("r1"), 10 => produced(1, 10), 20 => delivered(1, 5), 30 => wire_commit(3), 40 => commit_told(offset),
            2000 => delivered(6, 10), 3000 => FIXED, 3100 => scanned(1, 10),
        }
    };
    assert_held("commit_not_ahead", &of(5));
    assert_violated(
        "commit_not_ahead",
        "group g committed offset 8 of orders-0 (by its coordinator's word) while ids 6..=8 were not delivered",
        &of(8),
    );
}

#[test]
fn commit_beyond_the_end_of_the_log_violates_and_one_at_the_end_does_not() {
    let of = |offset| {
        history! { plan(Kind::Group);
            0 => spawned("r1"), 10 => produced(1, 10), 20 => delivered(1, 10), 30 => commit_told(offset), 3000 => FIXED,
            3100 => scanned(1, 10),
        }
    };
    assert_held("commit_not_ahead", &of(10));
    assert_violated(
        "commit_not_ahead",
        "group g committed offset 11 of orders-0 (by its coordinator's word), whose log ends at 10",
        &of(11),
    );
}
