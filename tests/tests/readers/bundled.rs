//! The bundled readers as child processes, driven through the adapter protocol on a mock cluster.

use std::time::Duration;

use brokerfall_report::exception::Origin;
use brokerfall_report::protocol::{
    ArmCallback, Callback, Command, How, Kind, On, Raise, ReaderEvent, Reset, ResetCause, Start, Times,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

use crate::driver::{Cluster, LONG, Reader, TOPIC, beats, delivered, is_status, offsets, raising, start};

const KINDS: [(&str, Kind); 4] = [
    ("reference-table", Kind::Table),
    ("reference-table-stored", Kind::Table),
    ("reference-assign", Kind::Assign),
    ("reference-group", Kind::Group),
];

fn caught_up(event: &ReaderEvent) -> Option<()> {
    matches!(event, ReaderEvent::CaughtUp).then_some(())
}

fn barrier(reader: &mut Reader) -> bool {
    let done = reader.ask(Command::Barrier { timeout_ms: 20_000 });
    assert!(done.ok);
    done.reached.expect("a barrier says whether it was reached")
}

#[test]
fn table_of_two_partitions_shows_the_last_value_of_each_key() {
    let mut cluster = Cluster::new(1, 2);
    cluster.write(0, &[("a", true), ("b", true), ("a", true), ("b", false)]);
    cluster.write(1, &[("c", true)]);
    let mut table = Reader::started("reference-table", Kind::Table, &cluster);
    let done = table.ask(Command::WaitCaughtUp { timeout_ms: 20_000 });
    assert_eq!(done.reached, Some(true));
    table.wait("caught_up", caught_up);
    assert_eq!(table.snapshot(), [("a".to_owned(), Some(3)), ("c".to_owned(), Some(5))]);
    let mut seen = delivered(&table.lines());
    seen.sort_unstable();
    assert_eq!(seen, [(0, 0, 1), (0, 1, 2), (0, 2, 3), (0, 3, 4), (1, 0, 5)]);
    assert!(table.ask(Command::Stop { grace_ms: 3_000 }).ok);
    assert!(table.exit().success());
}

#[test]
fn barrier_is_reached_only_with_everything_written_before_it_applied() {
    let mut cluster = Cluster::new(1, 1);
    let mut table = Reader::started("reference-table", Kind::Table, &cluster);
    for round in 1..=5 {
        cluster.fill(0, 1_000);
        assert!(barrier(&mut table));
        let newest = table.snapshot().iter().filter_map(|(_, id)| *id).max();
        assert_eq!(newest, Some(round * 1_000));
    }
}

#[test]
fn barrier_without_a_broker_is_not_reached_and_does_not_hold_up_stop() {
    let cluster = Cluster::new(1, 1);
    let mut table = Reader::started("reference-table", Kind::Table, &cluster);
    table.wait("caught_up", caught_up);
    cluster.broker_down(1);
    let held = table.send(Command::Barrier { timeout_ms: 60_000 });
    assert!(table.ask(Command::Stop { grace_ms: 3_000 }).ok);
    assert_eq!(table.done(held).reached, Some(false));
    assert!(table.exit().success());
}

#[test]
fn failing_callback_is_counted_and_costs_no_record() {
    for how in [How::Exception, How::BaseException] {
        let mut cluster = Cluster::new(1, 1);
        let mut table = Reader::spawn("reference-table");
        assert!(table.ask(raising(Callback::OnSet, On::Nth(3), how)).ok);
        cluster.fill(0, 20);
        assert!(table.ask(Command::Start(start(Kind::Table, &cluster))).ok);
        let exception = table.wait("an error of the callback", |event| match event {
            ReaderEvent::Error {
                origin: Origin::Callback,
                fatal: false,
                exception,
                ..
            } => Some(exception.type_name.clone()),
            _ => None,
        });
        let wanted = match how {
            How::Exception => brokerfall::reader::sdk::callbacks::CALLBACK_ERROR,
            _ => "panic",
        };
        assert_eq!(exception, wanted);
        assert!(barrier(&mut table));
        assert_eq!(offsets(&table.lines(), 0), (0..20).collect::<Vec<_>>());
        table.wait("the count", |event| match event {
            ReaderEvent::Heartbeat(beat) if beat.counters.get("callback_errors") == Some(&1.0) => Some(()),
            _ => None,
        });
    }
}

#[test]
fn callback_that_hangs_turns_health_off_and_does_not_hold_up_stop() {
    let mut cluster = Cluster::new(1, 1);
    let mut table = Reader::spawn("reference-table");
    assert!(table.ask(raising(Callback::OnSet, On::Nth(1), How::Hang)).ok);
    cluster.fill(0, 1);
    assert!(table.ask(Command::Start(start(Kind::Table, &cluster))).ok);
    table.wait("callback_entered", |event| {
        matches!(event, ReaderEvent::CallbackEntered(_)).then_some(())
    });
    table.wait_all("an old loop that is not called healthy", |lines| {
        lines.iter().find_map(|line| match &line.event {
            ReaderEvent::Heartbeat(beat) if beat.loop_age_ms? > 5_000.0 => {
                (beat.claims.healthy == Some(false)).then_some(())
            }
            _ => None,
        })
    });
    assert!(table.ask(Command::Stop { grace_ms: 1_000 }).ok);
    assert!(table.exit().success());
}

#[test]
fn tombstone_calls_on_delete() {
    let mut cluster = Cluster::new(1, 1);
    let mut table = Reader::spawn("reference-table");
    assert!(
        table
            .ask(raising(Callback::OnDelete, On::Key("a".into()), How::Exception))
            .ok
    );
    cluster.write(0, &[("a", true), ("a", false), ("b", true)]);
    assert!(table.ask(Command::Start(start(Kind::Table, &cluster))).ok);
    let call = table.wait("callback_raised", |event| match event {
        ReaderEvent::CallbackRaised(call) => Some(call.clone()),
        _ => None,
    });
    assert_eq!((call.callback, call.offset), (Callback::OnDelete, Some(1)));
}

#[test]
fn readers_survive_the_death_of_the_only_broker() {
    for (name, kind) in KINDS {
        let mut cluster = Cluster::new(1, 1);
        cluster.fill(0, 50);
        let reader = Reader::started(name, kind, &cluster);
        reader.wait_delivered(50);
        cluster.broker_down(1);
        reader.wait("an error that says so", |event| {
            matches!(event, ReaderEvent::Error { fatal: false, .. }).then_some(())
        });
        cluster.broker_up(1);
        cluster.fill(0, 50);
        reader.wait_delivered(100);
        assert_eq!(offsets(&reader.lines(), 0), (0..100).collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn readers_survive_a_broker_that_says_nothing_for_longer_than_their_socket_timeout() {
    // Not the group: a member that gives a connection up while its JoinGroup or SyncGroup waits, and asks again, makes the
    // mock abort (`!member->resp`, rdkafka_mock_cgrp.c) and this process with it. The link cures that, and the scenarios
    // `broker-pause/live` and `partition/hold-live` judge the group behind it.
    for (name, kind) in KINDS.into_iter().filter(|(_, kind)| *kind != Kind::Group) {
        let mut cluster = Cluster::new(1, 1);
        cluster.fill(0, 50);
        let reader = Reader::started(name, kind, &cluster);
        reader.wait_delivered(50);
        cluster.mock.broker_round_trip_time(1, LONG).unwrap();
        reader.wait("an error of silence", |event| match event {
            ReaderEvent::Error { exception, .. } => exception.message.contains("Timed out").then_some(()),
            _ => None,
        });
        cluster.mock.broker_round_trip_time(1, Duration::ZERO).unwrap();
        cluster.fill(0, 50);
        reader.wait_delivered(100);
        let lines = reader.lines();
        // A member whose session ran out meanwhile starts at its last commit again.
        let mut read = offsets(&lines, 0);
        read.sort_unstable();
        read.dedup();
        assert_eq!(read, (0..100).collect::<Vec<_>>(), "{name}");
        let slowest = beats(&lines).filter_map(|beat| beat.loop_age_ms).fold(0.0, f64::max);
        assert!(
            slowest < 2_000.0,
            "{name}: the reading loop stood still for {slowest} ms"
        );
    }
}

#[test]
fn readers_survive_a_topic_that_metadata_denies_for_a_while() {
    let denied = RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
    for (name, kind) in KINDS {
        let mut cluster = Cluster::new(1, 1);
        cluster.fill(0, 50);
        let reader = Reader::started(name, kind, &cluster);
        reader.wait_delivered(50);
        cluster.mock.topic_error(TOPIC, denied).unwrap();
        cluster.mock.request_errors(RDKafkaApiKey::Fetch, &[denied]);
        reader.wait("an error that names the topic's absence", |event| match event {
            ReaderEvent::Error { exception, .. } => {
                let name = exception.code.as_ref().map(|code| code.name.as_str());
                matches!(
                    name,
                    Some("UnknownTopicOrPartition" | "UnknownTopic" | "UnknownPartition")
                )
                .then_some(())
            }
            _ => None,
        });
        cluster
            .mock
            .topic_error(TOPIC, RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR)
            .unwrap();
        cluster.fill(0, 50);
        reader.wait_delivered(100);
        assert_eq!(offsets(&reader.lines(), 0), (0..100).collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn readers_follow_a_leader_that_moved_because_its_broker_died() {
    for (name, kind) in KINDS {
        let mut cluster = Cluster::new(3, 1);
        cluster.mock.partition_leader(TOPIC, 0, Some(2)).unwrap();
        cluster.fill(0, 50);
        let reader = Reader::started(name, kind, &cluster);
        reader.wait_delivered(50);
        cluster.broker_down(2);
        cluster.mock.partition_leader(TOPIC, 0, Some(3)).unwrap();
        cluster.fill(0, 50);
        reader.wait_delivered(100);
        assert_eq!(offsets(&reader.lines(), 0), (0..100).collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn second_member_takes_a_partition_over_and_nothing_is_lost() {
    let mut cluster = Cluster::new(1, 2);
    cluster.fill(0, 20);
    cluster.fill(1, 20);
    let mut first = Reader::started("reference-group", Kind::Group, &cluster);
    first.wait_delivered(40);
    assert!(first.ask(Command::Commit).ok);
    let second = Reader::started("reference-group", Kind::Group, &cluster);
    let gained = second.wait("an assignment", |event| match event {
        ReaderEvent::Rebalanced { assigned, .. } => (assigned.len() == 1).then(|| assigned[0].partition),
        _ => None,
    });
    first.wait("a revocation", |event| match event {
        ReaderEvent::Rebalanced { revoked, .. } => (revoked.len() == 2).then_some(()),
        _ => None,
    });
    cluster.fill(0, 20);
    cluster.fill(1, 20);
    second.wait_delivered(20);
    first.wait_delivered(60);
    assert_eq!(offsets(&second.lines(), gained), (20..40).collect::<Vec<_>>());
    assert_eq!(offsets(&first.lines(), 1 - gained), (0..40).collect::<Vec<_>>());
    let errors = |reader: &Reader| {
        reader
            .lines()
            .iter()
            .any(|line| matches!(line.event, ReaderEvent::Error { .. }))
    };
    assert!(!errors(&first) && !errors(&second));
}

#[test]
fn authorization_failure_ends_a_reader_with_its_exception() {
    let mut cluster = Cluster::new(1, 1);
    cluster.fill(0, 5);
    let mut table = Reader::started("reference-table", Kind::Table, &cluster);
    table.wait_delivered(5);
    answer_fetch(
        &cluster,
        &table,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
    );
    let ended = table.wait("stopped", |event| match event {
        ReaderEvent::Stopped { reason, exception } => Some((reason.clone(), exception.clone())),
        _ => None,
    });
    let exception = ended.1.expect("it says why");
    assert_eq!(
        exception.label(),
        "rdkafka::error::KafkaError::MessageConsumption(29 TopicAuthorizationFailed)"
    );
    table.wait("status failed", |event| is_status(event, "failed"));
    assert!(!barrier(&mut table));
    let last = table.wait_all("a heartbeat after the end", |lines| match &lines.last()?.event {
        ReaderEvent::Heartbeat(beat) => Some(beat.clone()),
        _ => None,
    });
    assert_eq!(
        (last.state.as_str(), last.claims.healthy, last.claims.caught_up),
        ("failed", Some(false), Some(false))
    );
    assert!(table.ask(Command::Stop { grace_ms: 3_000 }).ok);
    assert!(table.exit().success());
}

fn reset(reader: &Reader) -> (Option<u64>, Option<u64>, ResetCause) {
    reader.wait("reset", |event| match event {
        ReaderEvent::Reset { from, to, cause, .. } => Some((*from, *to, *cause)),
        _ => None,
    })
}

#[test]
fn position_that_retention_deleted_is_left_for_the_log_start_and_told() {
    for (name, kind) in [KINDS[0], KINDS[1], KINDS[2]] {
        let mut cluster = Cluster::new(1, 1);
        cluster.fill(0, 20);
        let mut reader = Reader::started(name, kind, &cluster);
        reader.wait_delivered(20);
        let process = Pid::from_raw(reader.pid() as i32);
        kill(process, Signal::SIGSTOP).unwrap();
        // The fetch in flight takes the first of them, so the position is one that is deleted by the end.
        cluster.write_until_deleted(0);
        cluster.write_until_deleted(0);
        kill(process, Signal::SIGCONT).unwrap();
        let low = cluster.watermarks(0).0 as u64;
        let (from, to, cause) = reset(&reader);
        assert!(from < Some(low), "{name}: {from:?} was still in the log");
        assert_eq!((to, cause), (Some(low), ResetCause::OutOfRange), "{name}");
        if kind == Kind::Table {
            assert!(barrier(&mut reader));
            assert_eq!(reader.snapshot(), [], "what was deleted is gone from the table");
        }
    }
}

#[test]
fn member_whose_commit_was_deleted_starts_at_the_log_start_and_tells() {
    let mut cluster = Cluster::new(1, 1);
    cluster.fill(0, 20);
    let mut first = Reader::started("reference-group", Kind::Group, &cluster);
    first.wait_delivered(20);
    assert!(first.ask(Command::Commit).ok);
    assert!(first.ask(Command::Stop { grace_ms: 5_000 }).ok);
    cluster.write_until_deleted(0);
    let (low, high) = cluster.watermarks(0);
    assert!(low > 20);
    let second = Reader::started("reference-group", Kind::Group, &cluster);
    assert_eq!(reset(&second), (Some(20), Some(low as u64), ResetCause::OutOfRange));
    second.wait_delivered((high - low) as u64);
}

#[test]
fn member_without_an_offset_and_without_a_reset_ends_and_says_why() {
    let mut cluster = Cluster::new(1, 1);
    cluster.fill(0, 5);
    let mut reader = Reader::spawn("reference-group");
    let mut start = start(Kind::Group, &cluster);
    start.reset = Reset::None;
    assert!(reader.ask(Command::Start(start)).ok);
    let code = reader.wait("stopped", |event| match event {
        ReaderEvent::Stopped { exception, .. } => exception.as_ref()?.code.clone(),
        _ => None,
    });
    assert_eq!(code.name, "AutoOffsetReset");
}

/// librdkafka refuses what lies outside of its ranges, and names the property.
#[test]
fn group_timeouts_reach_the_client_by_its_own_names() {
    type Edit = fn(&mut Start);
    let edits: [(&str, Edit); 3] = [
        ("session.timeout.ms", |start| start.session_ms = Some(3_600_001)),
        ("heartbeat.interval.ms", |start| start.heartbeat_ms = Some(3_600_001)),
        ("max.poll.interval.ms", |start| start.max_poll_ms = Some(86_400_001)),
    ];
    let cluster = Cluster::new(1, 1);
    for (property, edit) in edits {
        let mut reader = Reader::spawn("reference-group");
        let mut told = start(Kind::Group, &cluster);
        edit(&mut told);
        let done = reader.ask(Command::Start(told));
        let error = done.error.unwrap();
        assert!(error.message.contains(property), "{}", error.message);
    }
}

#[test]
fn member_whose_callback_outlasts_max_poll_loses_its_partition_takes_it_back_and_reads_all() {
    let mut cluster = Cluster::new(1, 1);
    let mut reader = Reader::spawn("reference-group");
    let mut told = start(Kind::Group, &cluster);
    // The client wants it at least as long as the session.
    told.max_poll_ms = told.session_ms;
    assert!(reader.ask(Command::Start(told)).ok);
    let late = ArmCallback {
        callback: Callback::OnRecord,
        on: On::Nth(1),
        raise: Raise {
            how: How::Delay,
            type_name: None,
            ms: Some(9_000),
        },
        times: Times::Count(1),
    };
    assert!(reader.ask(Command::ArmCallback(late)).ok);
    cluster.write(0, &[("a", true), ("b", true), ("c", true)]);
    reader.wait("the loss", |event| match event {
        ReaderEvent::Rebalanced { lost, .. } if !lost.is_empty() => Some(()),
        _ => None,
    });
    cluster.write(0, &[("d", true)]);
    reader.wait_all("every record", |lines| {
        let read = offsets(lines, 0);
        (0..4).all(|offset| read.contains(&offset)).then_some(())
    });
}

#[test]
fn option_that_the_client_does_not_know_fails_start_with_its_exception() {
    let cluster = Cluster::new(1, 1);
    let mut reader = Reader::spawn("reference-table");
    let mut start = start(Kind::Table, &cluster);
    start.options.insert("no.such.option".to_owned(), true.into());
    let done = reader.ask(Command::Start(start));
    let exception = done.error.expect("start raises");
    assert!(!done.ok);
    assert_eq!(exception.type_name, "rdkafka::error::KafkaError::ClientConfig");
}

#[test]
fn table_out_of_range_is_cleared_and_rebuilt_from_the_log_start() {
    let mut cluster = Cluster::new(1, 1);
    cluster.fill(0, 20);
    let mut table = Reader::started("reference-table", Kind::Table, &cluster);
    table.wait_delivered(20);
    answer_fetch(&cluster, &table, OUT_OF_RANGE);
    assert_eq!(reset(&table), (Some(20), Some(0), ResetCause::OutOfRange));
    table.wait_delivered(40);
    assert!(barrier(&mut table));
    assert_eq!(table.snapshot().len(), 10);
}

#[test]
fn plain_readers_out_of_range_inside_the_log_go_on_where_they_were() {
    for (name, kind) in [("reference-assign", Kind::Assign), ("reference-group", Kind::Group)] {
        let mut cluster = Cluster::new(1, 1);
        cluster.fill(0, 20);
        let reader = Reader::started(name, kind, &cluster);
        reader.wait_delivered(20);
        answer_fetch(&cluster, &reader, OUT_OF_RANGE);
        reader.wait("the broker's answer", |event| match event {
            ReaderEvent::Error { exception, .. } => exception
                .code
                .as_ref()
                .is_some_and(|code| code.name == "AutoOffsetReset")
                .then_some(()),
            _ => None,
        });
        cluster.fill(0, 20);
        reader.wait_delivered(40);
        assert_eq!(offsets(&reader.lines(), 0), (0..40).collect::<Vec<_>>(), "{name}");
    }
}

/// Answers the next Fetch with an error. Two heartbeats later than the last record: struck between two batches, the error
/// now and then never reaches the reader (4 of 30 tries).
fn answer_fetch(cluster: &Cluster, reader: &Reader, code: RDKafkaRespErr) {
    let mark = reader.lines().len();
    reader.wait_all("two more heartbeats", |lines| {
        (beats(&lines[mark..]).count() >= 2).then_some(())
    });
    cluster.mock.request_errors(RDKafkaApiKey::Fetch, &[code]);
}

const OUT_OF_RANGE: RDKafkaRespErr = RDKafkaRespErr::RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE;

#[test]
fn group_commits_what_it_delivered_and_a_second_member_starts_there() {
    let mut cluster = Cluster::new(1, 1);
    cluster.fill(0, 30);
    let mut first = Reader::started("reference-group", Kind::Group, &cluster);
    first.wait_delivered(30);
    let done = first.ask(Command::Commit);
    assert!(done.ok, "{done:?}");
    first.wait("committed", |event| match event {
        ReaderEvent::Committed { offsets } => offsets.iter().any(|at| at.offset == 30).then_some(()),
        _ => None,
    });
    assert!(first.ask(Command::Stop { grace_ms: 5_000 }).ok);
    assert!(first.exit().success());
    cluster.fill(0, 10);
    let second = Reader::started("reference-group", Kind::Group, &cluster);
    second.wait_delivered(10);
    assert_eq!(offsets(&second.lines(), 0), (30..40).collect::<Vec<_>>());
}

#[test]
fn restart_builds_a_new_object_in_the_same_process() {
    let mut cluster = Cluster::new(1, 1);
    cluster.fill(0, 5);
    let mut table = Reader::started("reference-table", Kind::Table, &cluster);
    table.wait_delivered(5);
    assert!(table.ask(Command::Restart).ok);
    table.wait_delivered(10);
    let lines = table.lines();
    let incs: Vec<u32> = lines
        .iter()
        .filter(|line| matches!(line.event, ReaderEvent::Started))
        .map(|line| line.inc)
        .collect();
    assert_eq!(incs, [1, 2]);
}

#[test]
fn stop_while_the_broker_is_down_returns_within_its_grace() {
    for (name, kind) in [("reference-table", Kind::Table), ("reference-group", Kind::Group)] {
        let mut cluster = Cluster::new(1, 1);
        cluster.fill(0, 5);
        let mut reader = Reader::started(name, kind, &cluster);
        reader.wait_delivered(5);
        cluster.broker_down(1);
        let id = reader.send(Command::Stop { grace_ms: 3_000 });
        assert!(reader.done(id).ok);
        let status = reader.wait_exit(Duration::from_secs(3));
        assert!(status.is_some_and(|status| status.success()), "{name}");
    }
}

#[test]
fn end_of_stdin_ends_every_reader_with_status_0() {
    let cluster = Cluster::new(1, 1);
    for bundled in brokerfall::reader::bundled::BUNDLED {
        let mut reader = Reader::started(bundled.name, bundled.kind, &cluster);
        reader.close_stdin();
        assert!(
            reader.wait_exit(LONG).is_some_and(|status| status.success()),
            "{}",
            bundled.name
        );
    }
}

#[test]
fn fatal_callback_freezes_the_table_and_says_so() {
    let mut cluster = Cluster::new(1, 1);
    cluster.fill(0, 5);
    let mut table = Reader::started("teaching-callback-fatal", Kind::Table, &cluster);
    // A record is delivered before its callback is called: none of the first five may meet the armed one.
    assert!(barrier(&mut table));
    assert!(table.ask(raising(Callback::OnSet, On::Nth(1), How::Exception)).ok);
    cluster.fill(0, 5);
    let exception = table.wait("a fatal error of the callback", |event| match event {
        ReaderEvent::Error {
            origin: Origin::Callback,
            fatal: true,
            exception,
            ..
        } => Some(exception.type_name.clone()),
        _ => None,
    });
    assert_eq!(exception, brokerfall::reader::sdk::callbacks::CALLBACK_ERROR);
    table.wait("status failed", |event| is_status(event, "failed"));
    assert!(!barrier(&mut table));
    assert_eq!(offsets(&table.lines(), 0), (0..6).collect::<Vec<_>>());
    assert!(table.ask(Command::Stop { grace_ms: 3_000 }).ok);
    assert!(table.exit().success());
}

#[test]
fn reset_latest_during_catch_up_waits_for_ever_without_an_exception() {
    let mut cluster = Cluster::new(1, 1);
    cluster.fill(0, 20_000);
    let code = RDKafkaRespErr::RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE;
    cluster.mock.request_errors(RDKafkaApiKey::Fetch, &[code]);
    let mut table = Reader::started("teaching-reset-latest", Kind::Table, &cluster);
    table.wait("the client's log of its jump", |event| match event {
        ReaderEvent::Error {
            origin: Origin::Log,
            exception,
            ..
        } => exception.message.contains("offset reset").then_some(()),
        _ => None,
    });
    assert_eq!(
        table.ask(Command::WaitCaughtUp { timeout_ms: 2_000 }).reached,
        Some(false)
    );
    let lines = table.lines();
    assert!(
        lines
            .iter()
            .all(|line| !matches!(&line.event, ReaderEvent::Stopped { .. } | ReaderEvent::CaughtUp))
    );
    let last = lines.iter().rev().find_map(|line| match &line.event {
        ReaderEvent::Heartbeat(beat) => Some(beat.clone()),
        _ => None,
    });
    let last = last.expect("heartbeats go on");
    assert_eq!(
        (last.state.as_str(), last.claims.caught_up),
        ("recovering", Some(false))
    );
}

#[test]
fn consume_called_once_returns_nil_and_stays_green() {
    let mut cluster = Cluster::new(1, 1);
    cluster.fill(0, 5);
    let mut reader = Reader::started("teaching-consume-once", Kind::Group, &cluster);
    reader.wait_delivered(5);
    cluster.broker_down(1);
    let returned = reader.wait("returned", |event| match event {
        ReaderEvent::Returned { call, value, error } => Some((call.clone(), value.clone(), error.clone())),
        _ => None,
    });
    assert_eq!(returned, ("consume".to_owned(), serde_json::Value::Null, None));
    cluster.broker_up(1);
    cluster.fill(0, 5);
    let mark = reader.lines().len();
    let beat = reader.wait_all("heartbeats long after", |lines| {
        let beats = lines[mark..].iter().filter_map(|line| match &line.event {
            ReaderEvent::Heartbeat(beat) => Some(beat.clone()),
            _ => None,
        });
        beats.skip(8).last()
    });
    assert_eq!((beat.state.as_str(), beat.claims.healthy), ("running", Some(true)));
    assert_eq!(delivered(&reader.lines()).len(), 5);
    assert!(reader.ask(Command::Stop { grace_ms: 3_000 }).ok);
    assert!(reader.exit().success());
}
