//! The aiokafka adapter. Expectations are what the library's documentation says: docs/consumer.rst, docs/api.rst and the
//! docstrings of `AIOKafkaConsumer` and `ConsumerRebalanceListener`.

use brokerfall::reader::Launch;
use brokerfall_report::exception::{Exception, Origin, Relation};
use brokerfall_report::protocol::{Command as Ask, Kind, ReaderEvent, Reset, TopicPartition};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

use super::driver::{Adapter, Log, TOPIC, cache, error_of, plain};

const VERSIONS: [&str; 3] = ["0.12.0", "0.13.0", "0.14.0"];
const VERSION: &str = "0.13.0";

/// A reader to start, or `None` (said aloud) where its environment cannot be had on this machine.
fn aiokafka(version: &str) -> Option<Launch> {
    brokerfall_tests::provisioned(&format!("aiokafka@{version}"), &[], &[], None, &cache())
        .map(|mut launches| launches.remove(0))
}

/// The moves that the listener was told of.
fn rebalanced(event: &ReaderEvent) -> Option<(Vec<TopicPartition>, Vec<TopicPartition>)> {
    match event {
        ReaderEvent::Rebalanced { assigned, revoked, .. } => Some((assigned.clone(), revoked.clone())),
        _ => None,
    }
}

/// Waits for the end of the reading loop: the fatal error, and the same exception in `stopped`.
fn ended(adapter: &Adapter) -> Exception {
    let (fatal, exception) = adapter.wait("an error of the loop", |all| {
        all.iter().find_map(|line| error_of(Origin::Poll)(&line.event))
    });
    assert!(fatal);
    let stopped = adapter.wait("the end of the reader", |all| {
        all.iter().find_map(|line| match &line.event {
            ReaderEvent::Stopped { exception, .. } => exception.clone(),
            _ => None,
        })
    });
    assert_eq!(stopped.type_name, exception.type_name);
    exception
}

#[test]
fn both_kinds_deliver_every_record_with_offset_and_id() {
    for version in VERSIONS {
        let Some(launch) = aiokafka(version) else { return };
        for kind in [Kind::Group, Kind::Assign] {
            let mut log = Log::new(2, plain());
            log.write(20);
            let mut adapter = Adapter::spawn(&launch);
            let hello = adapter.wait("hello", |all| match &all.first()?.event {
                ReaderEvent::Hello(hello) => Some(hello.clone()),
                other => panic!("the first line is {other:?}"),
            });
            assert_eq!(hello.library, format!("aiokafka {version}"));
            let mut declared = launch.manifest.capabilities.clone().unwrap();
            declared.sort();
            assert_eq!(
                hello.capabilities, declared,
                "the manifest declares what the adapter has"
            );
            assert!(adapter.start(&log, kind, |_| {}).ok);
            adapter.delivered(1, 40);
            log.write(5);
            adapter.delivered(1, 50);
            let mut read = adapter.ids(1);
            read.sort_unstable();
            let wanted: Vec<_> = (0..2)
                .flat_map(|partition| (1..=25).map(move |id| (partition, id)))
                .collect();
            assert_eq!(read, wanted);
            for one in adapter.events(|event| match event {
                ReaderEvent::Records { partitions } => Some(partitions.clone()),
                _ => None,
            }) {
                for partition in one {
                    let offsets: Vec<_> = partition.offsets.unwrap().iter().map(|offset| offset + 1).collect();
                    assert_eq!(offsets, partition.ids.unwrap().iter().collect::<Vec<_>>());
                }
            }
            let named = |partition| TopicPartition {
                topic: TOPIC.to_owned(),
                partition,
            };
            let moves = adapter.events(rebalanced);
            match kind {
                Kind::Group => assert_eq!(moves, [(vec![named(0), named(1)], vec![])]),
                _ => assert_eq!(moves, []),
            }
            adapter.stop();
        }
    }
}

#[test]
fn assigned_partitions_are_read_from_where_reset_says() {
    let Some(launch) = aiokafka(VERSION) else { return };
    let mut log = Log::new(1, plain());
    log.write(20);
    let mut adapter = Adapter::spawn(&launch);
    assert!(
        adapter
            .start(&log, Kind::Assign, |start| start.reset = Reset::Latest)
            .ok
    );
    log.write(3);
    adapter.delivered(1, 3);
    assert_eq!(adapter.ids(1), [(0, 21), (0, 22), (0, 23)]);
    adapter.stop();
}

/// `stop`: "Commit last consumed message if autocommit enabled". The manual loop commits each batch once it is processed.
#[test]
fn member_that_closed_goes_on_where_it_committed_with_either_way_to_commit() {
    let Some(launch) = aiokafka(VERSION) else { return };
    for auto in [true, false] {
        let mut log = Log::new(1, plain());
        log.write(20);
        let mut adapter = Adapter::spawn(&launch);
        let options = [("enable_auto_commit".to_owned(), auto.into())];
        let told = |start: &mut brokerfall_report::protocol::Start| start.options = options.into();
        assert!(adapter.start(&log, Kind::Group, told).ok);
        adapter.delivered(1, 20);
        assert!(adapter.ask(Ask::Commit).ok);
        assert!(adapter.ask(Ask::Restart).ok);
        log.write(5);
        adapter.delivered(2, 5);
        assert_eq!(
            adapter.ids(2),
            (21..=25).map(|id| (0, id)).collect::<Vec<_>>(),
            "auto: {auto}"
        );
        adapter.stop();
    }
}

/// docs/consumer.rst: "If your group will rebalance during processing commit will fail with CommitFailedError".
#[test]
fn manual_commit_that_a_rebalance_made_void_ends_the_loop_with_its_exception() {
    let Some(launch) = aiokafka(VERSION) else { return };
    let mut log = Log::new(1, plain());
    log.cluster.request_errors(
        RDKafkaApiKey::OffsetCommit,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION],
    );
    let mut adapter = Adapter::spawn(&launch);
    let manual = [("enable_auto_commit".to_owned(), false.into())];
    assert!(
        adapter
            .start(&log, Kind::Group, |start| start.options = manual.into())
            .ok
    );
    log.write(5);
    let exception = ended(&adapter);
    assert_eq!(exception.type_name, "aiokafka.errors.CommitFailedError");
    assert_eq!(exception.children[0].relation, Some(Relation::Cause));
    assert_eq!(
        exception.children[0].type_name,
        "aiokafka.errors.IllegalGenerationError"
    );
    adapter.stop();
}

/// docs/api.rst, "Consumer errors": both are always raised.
#[test]
fn errors_that_the_documentation_says_are_always_raised_end_the_loop() {
    let Some(launch) = aiokafka(VERSION) else { return };
    let raised = [
        (
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
            "aiokafka.errors.TopicAuthorizationFailedError",
        ),
        (
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE,
            "aiokafka.errors.OffsetOutOfRangeError",
        ),
    ];
    for (code, type_name) in raised {
        let mut log = Log::new(1, plain());
        log.write(5);
        let mut adapter = Adapter::spawn(&launch);
        // Without a reset policy the second one is not answered by a jump.
        assert!(adapter.start(&log, Kind::Assign, |start| start.reset = Reset::None).ok);
        adapter.delivered(1, 5);
        log.cluster.request_errors(RDKafkaApiKey::Fetch, &[code]);
        assert_eq!(ended(&adapter).type_name, type_name);
        adapter.stop();
    }
}

#[test]
fn start_without_a_broker_raises_and_the_process_lives() {
    let Some(launch) = aiokafka(VERSION) else { return };
    let log = Log::new(1, plain());
    let mut adapter = Adapter::spawn(&launch);
    // Nothing listens on port 9 (discard) of the loopback net's end.
    let done = adapter.start(&log, Kind::Group, |start| {
        start.bootstrap = "127.255.255.254:9".to_owned()
    });
    assert_eq!(done.error.unwrap().type_name, "aiokafka.errors.KafkaConnectionError");
    adapter.stop();
}

/// A session of 5 s ends between two heartbeats that are 9 s apart (the library's default of 10 s would not), and does not
/// with one each 500 ms.
#[test]
fn session_and_heartbeat_reach_the_library() {
    let Some(launch) = aiokafka(VERSION) else { return };
    let lost = |event: &ReaderEvent| rebalanced(event).filter(|(_, revoked)| !revoked.is_empty());
    let started = |heartbeat_ms| {
        let mut log = Log::new(1, plain());
        log.write(1);
        let mut adapter = Adapter::spawn(&launch);
        let done = adapter.start(&log, Kind::Group, |start| {
            start.session_ms = Some(5_000);
            start.heartbeat_ms = Some(heartbeat_ms);
            start.max_poll_ms = Some(10_000);
        });
        assert!(done.ok);
        adapter.delivered(1, 1);
        (log, adapter)
    };
    let (_log, adapter) = started(9_000);
    adapter.wait("the end of the session", |all| {
        all.iter().find_map(|line| lost(&line.event))
    });

    let (_log, adapter) = started(500);
    // 32 signs of life of the adapter are 8 s.
    adapter.wait("8 s of signs of life", |all| {
        let beats = all
            .iter()
            .filter(|line| matches!(line.event, ReaderEvent::Heartbeat(_)));
        (beats.count() >= 32).then_some(())
    });
    assert_eq!(adapter.events(lost), []);
    adapter.stop();
}
