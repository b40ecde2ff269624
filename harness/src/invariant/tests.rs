//! For each invariant histories that hold and histories that violate.

use brokerfall_report::exception::Origin;
use brokerfall_report::history::{ExpectedEnd, GroupChange, ProduceOutcome, Renewed, Stage};
use brokerfall_report::protocol::{Claims, Kind, ReaderEvent, Reset};
use brokerfall_report::runs::Runs;
use brokerfall_report::verdict::{FailureKind, Outcome};

use super::support::*;

const FIXED: brokerfall_report::history::Event = brokerfall_report::history::Event::Stage(Stage::Stopping);
const QUIET: brokerfall_report::history::Event = brokerfall_report::history::Event::Quiet;

fn kind_of(id: &str, entries: &[brokerfall_report::history::Entry]) -> Option<FailureKind> {
    match outcome_of(id, entries) {
        Outcome::Violated { kind, .. } => kind,
        other => panic!("{id}: {other:?}"),
    }
}

mod recovers {
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
}

mod ends {
    use super::*;

    fn how(entries: &[brokerfall_report::history::Entry]) -> Option<crate::history::facts::HowEnded> {
        facts(entries).ended("r1").map(|ended| ended.how)
    }

    #[test]
    fn status_failed_and_its_fatal_exception_make_an_honest_end_in_either_order() {
        use crate::history::facts::HowEnded::{Honest, Silent};
        let after = history! { plan(Kind::Table);
            0 => spawned("r1"), 10 => status("failed"), 900 => error(Origin::Background, true, "builtins.ValueError"),
        };
        let before = history! { plan(Kind::Table);
            0 => spawned("r1"), 10 => error(Origin::Callback, true, "builtins.ValueError"), 900 => status("failed"),
        };
        let never = history! { plan(Kind::Table); 0 => spawned("r1"), 10 => status("failed") };
        let waited_out = history! { plan(Kind::Table);
            0 => spawned("r1"), 10 => error(Origin::Poll, false, "a.B"), 20 => status("failed"), 30 => stopped(None),
        };
        let too_late = history! { plan(Kind::Table);
            0 => spawned("r1"), 10 => status("failed"), 5100 => error(Origin::Reader, true, "a.B"),
        };
        assert_eq!([how(&after), how(&before)], [Some(Honest); 2]);
        assert_eq!([how(&never), how(&waited_out), how(&too_late)], [Some(Silent); 3]);
    }

    #[test]
    fn start_that_raised_is_an_honest_end() {
        let entries = history! { plan(Kind::Table);
            0 => spawned("r1"), 1 => asked(1, "start"), 10 => start_raised(1, "builtins.RuntimeError"),
        };
        let facts = facts(&entries);
        let ended = facts.ended("r1").unwrap();
        assert_eq!(ended.how, crate::history::facts::HowEnded::Honest);
        assert!(ended.fatal && ended.exception.is_some_and(|e| e.type_name == "builtins.RuntimeError"));
    }

    #[test]
    fn error_that_stands_in_a_log_alone_is_silent() {
        let entries = history! { plan(Kind::Group);
            0 => spawned("r1"), 10 => error(Origin::Log, true, "a.B"), 20 => stopped(None),
        };
        assert_eq!(how(&entries), Some(crate::history::facts::HowEnded::Silent));
        assert!(facts(&entries).ended("r1").unwrap().text.contains("in the log alone"));
    }

    #[test]
    fn crash_is_neither_silent_nor_honest() {
        let entries = history! { plan(Kind::Group);
            0 => spawned("r1"), 10 => exited_by("r1", None, Some(6), false),
        };
        assert_eq!(how(&entries), Some(crate::history::facts::HowEnded::Process));
    }

    #[test]
    fn reader_that_was_asked_to_stop_has_not_ended() {
        assert_eq!(
            how(&history! { plan(Kind::Group);
                0 => spawned("r1"), 10 => asked(1, "stop"), 20 => stopped(None), 30 => exited_by("r1", Some(0), None, true),
            }),
            None
        );
    }

    #[test]
    fn fatal_error_of_a_reader_that_reads_on_was_no_end() {
        assert_eq!(
            how(&history! { plan(Kind::Group);
                0 => spawned("r1"), 10 => error(Origin::Background, true, "KafkaJSNonRetriableError"), 700 => delivered(1, 3),
            }),
            None
        );
    }

    #[test]
    fn call_that_came_back_is_an_end_only_when_nothing_follows_for_the_window() {
        let early =
            history! { plan(Kind::Group); 0 => spawned("r1"), 10 => returned(None), 4000 => stage(Stage::Recovering) };
        let late =
            history! { plan(Kind::Group); 0 => spawned("r1"), 10 => returned(None), 5010 => stage(Stage::Recovering) };
        let looped = history! { plan(Kind::Group);
            0 => spawned("r1"), 10 => returned(None), 900 => says(ReaderEvent::Started), 5100 => stage(Stage::Recovering),
        };
        assert_eq!(
            [how(&early), how(&late), how(&looped)],
            [None, Some(crate::history::facts::HowEnded::Silent), None]
        );
    }

    #[test]
    fn health_claimed_after_the_end_makes_it_dishonest() {
        assert_eq!(
            how(&history! { plan(Kind::Group);
                0 => spawned("r1"), 10 => error(Origin::Reader, true, "a.B"), 5100 => heartbeat("running", healthy()),
            }),
            Some(crate::history::facts::HowEnded::Silent)
        );
    }
}

mod catches_up {
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
}

mod no_silent_death {
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
}

mod records {
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
}

mod converges {
    use super::*;

    fn table(entries: &[(&str, Option<u64>)]) -> Vec<brokerfall_report::history::Entry> {
        let mut plan = plan(Kind::Table);
        plan.topics[0].generator.keys = 3;
        plan.topics[0].generator.tombstone_every = Some(5);
        history! { plan;
            // Keys: 1, 4, 7 -> k1 (7 last); 2, 5, 8 -> k2 (8 last, 5 a tombstone); 3, 6 -> k0 (6 last).
            0 => spawned("r1"), 10 => produced(1, 8), 20 => delivered(1, 8), 30 => QUIET, 40 => asked(9, "snapshot"),
            50 => snapshot_part(9, entries), 51 => done(9, None), 60 => stage(Stage::Diagnosing),
            // A sentinel of the diagnosis comes after the snapshot and is not asked of it.
            70 => produced(9, 10), 90 => scanned(1, 10),
        }
    }

    #[test]
    fn snapshot_equal_to_the_fold_holds() {
        assert_held(
            "converges",
            &table(&[("p0-k0", Some(6)), ("p0-k1", Some(7)), ("p0-k2", Some(8))]),
        );
    }

    #[test]
    fn missing_stale_and_phantom_are_told_apart() {
        assert_violated(
            "converges",
            "1 keys missing (such as p0-k1: id 7)",
            &table(&[("p0-k0", Some(6)), ("p0-k2", Some(8))]),
        );
        assert_violated(
            "converges",
            "1 keys stale (such as p0-k1 shows id 4 instead of 7)",
            &table(&[("p0-k0", Some(6)), ("p0-k1", Some(4)), ("p0-k2", Some(8))]),
        );
        assert_violated(
            "converges",
            "1 keys phantom (such as x: id 1)",
            &table(&[
                ("p0-k0", Some(6)),
                ("p0-k1", Some(7)),
                ("p0-k2", Some(8)),
                ("x", Some(1)),
            ]),
        );
        assert_violated(
            "converges",
            "1 keys phantom",
            &table(&[("p0-k0", Some(6)), ("p0-k1", Some(7)), ("p0-k2", Some(7))]),
        );
    }

    #[test]
    fn deleted_key_that_is_still_shown_is_stale() {
        let mut plan = plan(Kind::Table);
        plan.topics[0].generator.tombstone_every = Some(11);
        assert_violated(
            "converges",
            "p0-k1 shows id 1 in spite of its tombstone 11",
            &history! { plan;
                0 => spawned("r1"), 10 => produced(1, 1), 10 => produced(11, 11), 20 => delivered(1, 1), 30 => QUIET, 40 => asked(9, "snapshot"),
                50 => snapshot_part(9, &[("p0-k1", Some(1))]), 51 => done(9, None), 60 => FIXED,
            },
        );
    }

    #[test]
    fn expired_keys_are_allowed_unless_the_reader_clears_them() {
        let of = |clears| {
            let mut plan = plan(Kind::Table);
            plan.reader.declares.clears_expired = clears;
            history! { plan;
                0 => spawned("r1"), 10 => produced(1, 10), 20 => delivered(1, 10), 25 => watermarks(9, 10), 30 => QUIET,
                40 => asked(9, "snapshot"), 50 => snapshot_part(9, &[("p0-k0", Some(10)), ("p0-k1", Some(1))]), 51 => done(9, None),
                60 => FIXED, 70 => scanned(10, 10),
            }
        };
        assert_held("converges", &of(false));
        assert_violated(
            "converges",
            "1 keys expired and still shown (such as p0-k1: id 1)",
            &of(true),
        );
    }
}

mod status_honest {
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
}

mod callbacks {
    use super::*;

    fn run(after: Vec<(u64, brokerfall_report::history::Event)>) -> Vec<brokerfall_report::history::Entry> {
        let mut entries = history! { with_fault(Kind::Table, "panic-callback");
            0 => spawned("r1"), 5 => produced(1, 10), 10 => delivered(1, 4), 15 => injecting("panic-callback"), 16 => injected(),
            20 => callback(false, 4), 21 => callback(true, 4), 22 => fault_delivered(),
        };
        for (ms, event) in after {
            entries.push(entry(entries.len() as u64, ms, event));
        }
        entries
    }

    #[test]
    fn reader_that_goes_on_and_tells_holds() {
        assert_held(
            "callback_isolated",
            &run(vec![
                (25, error(Origin::Log, false, "builtins.ValueError")),
                (30, delivered(6, 10)),
                (40, healed()),
                (9000, FIXED),
                (9001, scanned(1, 10)),
            ]),
        );
    }

    #[test]
    fn reader_that_dies_of_the_callback_violates_with_its_exception() {
        assert_violated(
            "callback_isolated",
            "after the callback failed at offset 4, r1 shows the status `failed` with builtins.ValueError",
            &run(vec![
                (25, status("failed")),
                (26, error(Origin::Callback, true, "builtins.ValueError")),
                (9000, FIXED),
            ]),
        );
    }

    #[test]
    fn honest_end_that_the_scenario_allows_is_not_judged_here() {
        let died = run(vec![
            (25, status("failed")),
            (26, error(Origin::Reader, true, "builtins.KeyboardInterrupt")),
            (9000, FIXED),
        ]);
        let mut allowed = died.clone();
        allowed[0].event = brokerfall_report::history::Event::Opened(Box::new(expecting(
            with_fault(Kind::Table, "panic-callback"),
            ExpectedEnd::RecoversOrEnds,
        )));
        assert!(matches!(
            outcome_of("callback_isolated", &allowed),
            Outcome::NotApplicable { .. }
        ));
        assert_held("recovers", &allowed);
        assert_violated("callback_isolated", "shows the status `failed`", &died);
    }

    #[test]
    fn failure_that_nobody_hears_of_violates() {
        assert_violated(
            "callback_isolated",
            "nothing of it reached a log",
            &run(vec![
                (30, delivered(6, 10)),
                (40, healed()),
                (9000, FIXED),
                (9001, scanned(1, 10)),
            ]),
        );
    }

    #[test]
    fn further_records_dropped_with_the_struck_one_violate() {
        assert_violated(
            "callback_isolated",
            "ids 6 of orders-0 were not delivered either",
            &run(vec![
                (25, error(Origin::Log, false, "builtins.ValueError")),
                (30, delivered(7, 10)),
                (40, healed()),
                (9000, FIXED),
                (9001, scanned(1, 10)),
            ]),
        );
    }

    #[test]
    fn count_of_callback_errors_must_rise_by_the_number_raised() {
        let counted = |n: f64| {
            says(ReaderEvent::Heartbeat(brokerfall_report::protocol::Heartbeat {
                counters: [("callback_errors".to_owned(), n)].into(),
                ..Default::default()
            }))
        };
        let of = |ms, n| {
            run(vec![
                (30, delivered(6, 10)),
                (40, healed()),
                (ms, counted(n)),
                (9000, FIXED),
                (9001, scanned(1, 10)),
            ])
        };
        assert_held("callback_isolated", &of(2000, 1.0));
        assert_violated(
            "callback_isolated",
            "raised 1 times and the reader counts 0",
            &of(2000, 0.0),
        );
        assert_violated(
            "callback_isolated",
            "raised 1 times and the reader counts 2",
            &of(100, 2.0),
        );
    }

    #[test]
    fn callback_that_was_never_called_decides_nothing() {
        assert_undecided(
            "callback_isolated",
            &history! { with_fault(Kind::Table, "panic-callback");
                0 => spawned("r1"), 15 => injecting("panic-callback"), 16 => injected(), 40 => FIXED,
            },
        );
    }
}

mod group_member {
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
}

mod bounds {
    use super::*;

    fn outage(
        events: Vec<(u64, brokerfall_report::history::Event)>,
        to_ms: u64,
    ) -> Vec<brokerfall_report::history::Entry> {
        let mut entries = history! { with_fault(Kind::Group, "kill-broker");
            0 => spawned("r1"), 100 => injecting("kill-broker"), 100 => injected(),
        };
        for (ms, event) in events {
            entries.push(entry(entries.len() as u64, ms, event));
        }
        for (ms, event) in [(to_ms, healing()), (to_ms, healed()), (to_ms + 1, FIXED)] {
            entries.push(entry(entries.len() as u64, ms, event));
        }
        entries
    }

    #[test]
    fn cpu_over_the_outage_is_judged_without_its_first_second() {
        // 0.5 s of CPU in the first second, then almost none.
        let calm = outage(
            vec![
                (150, sample(0)),
                (1000, sample(500)),
                (1200, sample(510)),
                (9000, sample(600)),
            ],
            10_000,
        );
        let spins = outage(
            vec![(150, sample(0)), (1200, sample(500)), (9200, sample(8500))],
            10_000,
        );
        assert_held("bounded_cpu", &calm);
        assert_violated(
            "bounded_cpu",
            "r1 used 1.00 cores over 8.0 s of `f` (limit 0.10)",
            &spins,
        );
    }

    #[test]
    fn short_outage_decides_nothing() {
        let entries = outage(vec![(1200, sample(0)), (3000, sample(1800))], 4000);
        assert_eq!(
            outcome_of("bounded_cpu", &entries),
            super::super::undecided("outage shorter than 4 s")
        );
        assert_undecided("bounded_requests", &entries);
    }

    #[test]
    fn requests_over_the_outage_are_counted() {
        let of = |requests| {
            outage(
                (0..8).map(|i| (2500 + i * 1000, wire(requests, 1000))).collect(),
                10_100,
            )
        };
        assert_held("bounded_requests", &of(10));
        assert_violated(
            "bounded_requests",
            "requests and connects a second over 9.0 s of `f` (limit 200)",
            &of(300),
        );
    }

    #[test]
    fn error_events_over_the_outage_are_counted() {
        let many = says(ReaderEvent::Error {
            origin: Origin::Log,
            fatal: false,
            exception: exception("a.Rebootstrapping"),
            count: 2000,
        });
        assert_violated(
            "bounded_requests",
            "222 error events a second",
            &outage(vec![(5000, many)], 10_100),
        );
    }
}

mod leaving {
    use super::*;

    #[test]
    fn stop_within_its_grace_that_leaves_nothing_holds() {
        let of = |ms, connections| {
            history! { plan(Kind::Group);
                0 => spawned("r1"), 10 => stage(Stage::Stopping), 11 => asked(1, "stop"), 500 => exited_by("r1", Some(0), None, true),
                510 => left(ms, connections),
            }
        };
        assert_held("stops_cleanly", &of(Some(400), 0));
        assert_violated(
            "stops_cleanly",
            "r1 took 1500 ms to stop (grace 1000 ms)",
            &of(Some(1500), 0),
        );
        assert_violated("stops_cleanly", "r1 had to be killed", &of(None, 0));
        assert_violated("stops_cleanly", "left 2 connections open", &of(Some(400), 2));
    }

    #[test]
    fn process_that_was_already_gone_decides_nothing() {
        assert_undecided(
            "stops_cleanly",
            &history! { plan(Kind::Group);
                0 => spawned("r1"), 10 => exited(0), 20 => FIXED, 30 => left(None, 0),
            },
        );
    }

    #[test]
    fn first_cure_that_works_names_the_fault() {
        let of = |object, process| {
            history! { plan(Kind::Group);
                0 => spawned("r1"), 10 => stage(Stage::Diagnosing), 20 => cure(Renewed::Object, object), 30 => cure(Renewed::Process, process),
            }
        };
        let text = |entries: &[brokerfall_report::history::Entry]| match outcome_of("restart_cures", entries) {
            Outcome::Held { text } => text,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            [text(&of(true, true)), text(&of(false, true)), text(&of(false, false))],
            ["object", "process", "cluster"]
        );
    }
}
