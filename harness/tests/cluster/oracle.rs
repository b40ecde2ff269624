//! The oracle on the mock cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use brokerfall::cluster::Cluster;
use brokerfall::cluster::direct::{DirectConnection, topic_name};
use brokerfall::history::recorder::Recorder;
use brokerfall::oracle::{Oracle, OracleError};
use brokerfall_report::history::{Event, ProduceOutcome};
use brokerfall_report::runs::Runs;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::{BrokerId, GroupId, MetadataResponse, OffsetCommitRequest};
use kafka_protocol::protocol::{Encodable, StrBytes};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers, Message};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::{Lab, SOON, Truth, eventually, orders};

/// Ids of `orders` by what became of them, per partition.
fn produced(truth: &Truth, wanted: ProduceOutcome) -> BTreeMap<u32, Runs> {
    let mut found: BTreeMap<u32, Runs> = BTreeMap::new();
    for event in truth.events() {
        if let Event::Produced {
            partition,
            ids,
            outcome,
            ..
        } = event
            && outcome == wanted
        {
            let runs = found.entry(partition).or_default();
            for [first, last] in ids.as_slice() {
                runs.push_run(*first, *last);
            }
        }
    }
    found
}

#[tokio::test]
async fn produced_records_have_rising_ids_and_the_offsets_that_the_log_has() {
    let (lab, truth) = Lab::with_orders(1, 2).await;
    let first = truth.oracle.produce("orders", 1, 1200).await.unwrap();
    let second = truth.oracle.produce("orders", 1, 3).await.unwrap();
    assert_eq!(first.ids, Runs::one(1, 1200));
    assert_eq!(first.offsets, Runs::one(0, 1199));
    assert_eq!(
        (second.ids, second.offsets),
        (Runs::one(1201, 1203), Runs::one(1200, 1202))
    );

    let scan = truth.oracle.scan("orders", 1).await.unwrap();
    assert_eq!((scan.from, scan.to), (0, 1203));
    assert_eq!((scan.ids, scan.offsets), (Runs::one(1, 1203), Runs::one(0, 1202)));
    assert_eq!(truth.oracle.scan("orders", 0).await.unwrap().ids, Runs::default());
    assert_eq!(
        produced(&truth, ProduceOutcome::Acked),
        BTreeMap::from([(1, Runs::one(1, 1203))])
    );
    lab.cluster.shutdown().await;
}

#[tokio::test]
async fn preload_fills_every_partition_fast() {
    let (lab, truth) = Lab::with_orders(3, 3).await;
    let before = tokio::time::Instant::now();
    truth.oracle.preload("orders", 5_000).await.unwrap();
    let took = before.elapsed();
    println!("preload of 3 x 5,000 records: {took:?}");
    for partition in 0..3 {
        assert_eq!(truth.oracle.watermarks("orders", partition).await.unwrap(), (0, 5_000));
    }
    let before = tokio::time::Instant::now();
    truth.oracle.scan_all().await.unwrap();
    println!("scan of 3 x 5,000 records: {:?}", before.elapsed());
    let scans = truth
        .events()
        .into_iter()
        .filter(|event| matches!(event, Event::Scanned { ids, .. } if *ids == Runs::one(1, 5_000)));
    assert_eq!(scans.count(), 3);
    lab.cluster.shutdown().await;
}

#[tokio::test]
async fn watermarks_are_recorded_when_they_move_only() {
    let (lab, truth) = Lab::with_orders(1, 1).await;
    for _ in 0..3 {
        assert_eq!(truth.oracle.watermarks("orders", 0).await.unwrap(), (0, 0));
    }
    truth.oracle.produce("orders", 0, 4).await.unwrap();
    for _ in 0..3 {
        assert_eq!(truth.oracle.watermarks("orders", 0).await.unwrap(), (0, 4));
    }
    let recorded: Vec<(u64, u64)> = truth
        .events()
        .into_iter()
        .filter_map(|event| match event {
            Event::Watermarks { log_start, log_end, .. } => Some((log_start, log_end)),
            _ => None,
        })
        .collect();
    assert_eq!(recorded, [(0, 0), (0, 4)]);
    lab.cluster.shutdown().await;
}

#[tokio::test]
async fn filling_moves_the_log_start_and_scans_tell_before_and_after() {
    let (lab, truth) = Lab::with_orders(1, 1).await;
    truth.oracle.preload("orders", 2_000).await.unwrap();
    let (log_start, log_end) = truth.oracle.fill_past("orders", 0, 1_700).await.unwrap();
    assert!(log_start > 1_700 && log_end > 2_000, "{log_start}..{log_end}");
    let after = truth.oracle.scan("orders", 0).await.unwrap();
    assert_eq!((after.from, after.to), (log_start, log_end));
    // Ids and offsets run side by side from (1, 0), so what is left is known exactly.
    assert_eq!(after.offsets, Runs::one(log_start, log_end - 1));
    assert_eq!(after.ids, Runs::one(log_start + 1, log_end));

    let scans: Vec<(u64, u64, u64)> = truth
        .events()
        .into_iter()
        .filter_map(|event| match event {
            Event::Scanned { from, to, ids, .. } => Some((from, to, ids.count())),
            _ => None,
        })
        .collect();
    assert_eq!(scans, [(0, 2_000, 2_000), (log_start, log_end, log_end - log_start)]);
    lab.cluster.shutdown().await;
}

#[tokio::test]
async fn sentinels_are_acknowledged_and_never_tombstones() {
    let lab = Lab::start(1).await;
    lab.create("orders", 2, 1).await;
    let mut topic = orders(2);
    topic.generator.tombstone_every = Some(3);
    let truth = lab.oracle(&[topic.clone()]).await;
    truth.oracle.preload("orders", 2).await.unwrap();
    // Id 3 is a tombstone, so 4 is the sentinel.
    let sentinels = truth.oracle.sentinel(1).await.unwrap();
    let found: Vec<(u32, u64, u64)> = sentinels
        .iter()
        .map(|sentinel| (sentinel.partition, sentinel.id, sentinel.offset))
        .collect();
    assert_eq!(found, [(0, 4, 3), (1, 4, 3)]);
    assert!(truth.events().contains(&Event::Sentinel {
        round: 1,
        records: sentinels
    }));

    topic.generator.tombstone_every = Some(1);
    let nothing_but = lab.oracle(&[topic]).await;
    let refusal = nothing_but.oracle.sentinel(1).await.unwrap_err();
    assert!(matches!(refusal, OracleError::OnlyTombstones { .. }), "{refusal:?}");
    lab.cluster.shutdown().await;
}

#[tokio::test]
async fn targets_are_the_log_ends() {
    let (lab, truth) = Lab::with_orders(1, 2).await;
    truth.oracle.produce("orders", 1, 7).await.unwrap();
    let ends = truth.oracle.targets("r1").await.unwrap();
    let found: Vec<(u32, u64)> = ends.iter().map(|end| (end.partition, end.offset)).collect();
    assert_eq!(found, [(0, 0), (1, 7)]);
    assert!(truth.events().contains(&Event::Targets {
        member: "r1".to_owned(),
        ends
    }));
    lab.cluster.shutdown().await;
}

#[tokio::test]
async fn load_on_a_broker_that_dies_records_failures_and_goes_on_afterwards() {
    let (lab, truth) = Lab::with_orders(1, 2).await;
    let acked = |truth: &Truth| {
        produced(truth, ProduceOutcome::Acked)
            .values()
            .map(Runs::count)
            .sum::<u64>()
    };
    let load = truth.oracle.load(400.0);
    eventually("load", async || (acked(&truth) >= 20).then_some(())).await;
    lab.cluster.kill_broker(1, Duration::ZERO).await.unwrap();
    eventually("failures", async || {
        (produced(&truth, ProduceOutcome::Failed).len() == 2).then_some(())
    })
    .await;
    lab.cluster.start_broker(1).await.unwrap();
    let before = acked(&truth);
    eventually("load after the start", async || {
        (acked(&truth) >= before + 20).then_some(())
    })
    .await;
    let totals = load.stop().await.unwrap();

    truth.oracle.scan_all().await.unwrap();
    let (acked, failed, maybe) = (
        produced(&truth, ProduceOutcome::Acked),
        produced(&truth, ProduceOutcome::Failed),
        produced(&truth, ProduceOutcome::Maybe),
    );
    let count = |runs: &BTreeMap<u32, Runs>| runs.values().map(Runs::count).sum::<u64>();
    assert_eq!(
        (totals.acked, totals.failed, totals.maybe),
        (count(&acked), count(&failed), count(&maybe))
    );
    assert!(totals.failed > 0);
    for event in truth.events() {
        if let Event::Scanned { partition, ids, .. } = event {
            let maybe: Vec<u64> = maybe
                .get(&partition)
                .map(|runs| runs.iter().collect())
                .unwrap_or_default();
            let certain: Vec<u64> = ids.iter().filter(|id| !maybe.contains(id)).collect();
            assert_eq!(
                certain,
                acked[&partition].iter().collect::<Vec<_>>(),
                "partition {partition}"
            );
            assert!(certain.is_sorted());
        }
    }
    lab.cluster.shutdown().await;
}

#[tokio::test]
async fn load_keeps_its_rate_and_spreads_it() {
    let (lab, truth) = Lab::with_orders(1, 3).await;
    let before = tokio::time::Instant::now();
    let load = truth.oracle.load(300.0);
    let total = |truth: &Truth| {
        produced(truth, ProduceOutcome::Acked)
            .values()
            .map(Runs::count)
            .sum::<u64>()
    };
    eventually("150 records", async || (total(&truth) >= 150).then_some(())).await;
    let totals = load.stop().await.unwrap();
    let seconds = before.elapsed().as_secs_f64();
    // Never faster than asked; a busy machine may make it slower.
    assert!(
        totals.acked as f64 <= 300.0 * seconds + 6.0,
        "{} in {seconds} s",
        totals.acked
    );
    assert_eq!((totals.failed, totals.maybe), (0, 0));
    let counts: Vec<u64> = produced(&truth, ProduceOutcome::Acked)
        .values()
        .map(Runs::count)
        .collect();
    assert_eq!(counts.len(), 3);
    assert!(
        counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 10,
        "{counts:?}"
    );
    lab.cluster.shutdown().await;
}

#[tokio::test]
async fn path_is_not_proven_while_a_broker_is_down_and_soon_after_it_is_back() {
    let (lab, truth) = Lab::with_orders(1, 1).await;
    truth.oracle.produce("orders", 0, 3).await.unwrap();
    lab.cluster.kill_broker(1, Duration::ZERO).await.unwrap();
    let closed = truth.oracle.prove_path(Duration::from_millis(50)).await.unwrap_err();
    assert!(matches!(closed, OracleError::TimedOut { .. }), "{closed:?}");

    lab.cluster.start_broker(1).await.unwrap();
    let before = tokio::time::Instant::now();
    let proof = truth.oracle.prove_path(SOON).await.unwrap();
    let took = before.elapsed();
    println!("path proven after {took:?}: {proof}");
    assert!(proof.contains("orders-0 up to offset 3 on broker 1"), "{proof}");
    assert!(took < Duration::from_millis(300), "{took:?}");
    let written = truth.oracle.produce("orders", 0, 1).await.unwrap();
    assert_eq!(written.ids, Runs::one(4, 4));
    lab.cluster.shutdown().await;
}

#[tokio::test]
async fn writes_follow_the_leader() {
    let (lab, truth) = Lab::with_orders(3, 3).await;
    truth.oracle.preload("orders", 10).await.unwrap();
    lab.cluster.kill_broker(2, Duration::from_millis(50)).await.unwrap();
    // Partition 1 was broker 2's: its records are tried again until the election has come.
    truth.oracle.preload("orders", 10).await.unwrap();
    assert_ne!(lab.cluster.leader("orders", 1).await.unwrap(), 2);
    truth.oracle.scan_all().await.unwrap();
    let scans = truth
        .events()
        .into_iter()
        .filter(|event| matches!(event, Event::Scanned { ids, .. } if *ids == Runs::one(1, 20)));
    assert_eq!(scans.count(), 3);
    lab.cluster.shutdown().await;
}

#[tokio::test]
async fn write_whose_caller_went_away_is_in_the_history_all_the_same() {
    let (lab, truth) = Lab::with_orders(1, 1).await;
    let oracle = truth.oracle.clone();
    let caller = tokio::spawn(async move { oracle.produce("orders", 0, 20_000).await });
    eventually("the first batch", async || (!truth.events().is_empty()).then_some(())).await;
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    // The next write waits for the one that goes on.
    let next = truth.oracle.produce("orders", 0, 1).await.unwrap();
    assert_eq!(next.ids, Runs::one(20_001, 20_001));
    let scan = truth.oracle.scan("orders", 0).await.unwrap();
    let acked = produced(&truth, ProduceOutcome::Acked);
    assert_eq!(acked[&0].last(), scan.ids.last());
    assert_eq!(acked[&0], Runs::one(1, 20_001));
    lab.cluster.shutdown().await;
}

#[tokio::test]
async fn committed_offsets_are_read_without_joining() {
    let (lab, truth) = Lab::with_orders(3, 2).await;
    truth.oracle.preload("orders", 5).await.unwrap();
    assert_eq!(truth.oracle.committed("readers").await.unwrap(), []);
    let coordinator = lab.cluster.coordinator("readers").await.unwrap();
    let mut connection = DirectConnection::open(lab.address(coordinator), "committer", SOON)
        .await
        .unwrap();
    let partition = OffsetCommitRequestPartition::default()
        .with_partition_index(1)
        .with_committed_offset(4);
    let request = OffsetCommitRequest::default()
        .with_group_id(GroupId(StrBytes::from_static_str("readers")))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![
            OffsetCommitRequestTopic::default()
                .with_name(topic_name("orders"))
                .with_partitions(vec![partition]),
        ]);
    let answer = connection.ask(2, &request, SOON).await.unwrap();
    assert_eq!(answer.topics[0].partitions[0].error_code, 0);
    let committed = truth.oracle.committed("readers").await.unwrap();
    let found: Vec<(u32, u64)> = committed.iter().map(|end| (end.partition, end.offset)).collect();
    assert_eq!(found, [(1, 4)]);
    lab.cluster.shutdown().await;
}

#[tokio::test]
async fn partition_that_was_not_named_is_an_error() {
    let (lab, truth) = Lab::with_orders(1, 1).await;
    let refusal = truth.oracle.produce("orders", 9, 1).await.unwrap_err();
    assert!(
        matches!(refusal, OracleError::UnknownPartition { partition: 9, .. }),
        "{refusal:?}"
    );
    let refusal = truth.oracle.scan("absent", 0).await.unwrap_err();
    assert!(matches!(refusal, OracleError::UnknownPartition { .. }), "{refusal:?}");
    lab.cluster.shutdown().await;
}

/// A broker that leads `orders` and closes the connection of whoever writes, after it has read the request.
async fn broker_that_swallows_writes() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = vec![0; stream.read_u32().await.unwrap() as usize];
            stream.read_exact(&mut request).await.unwrap();
            if request[1] != 3 {
                continue;
            }
            let broker = MetadataResponseBroker::default()
                .with_node_id(BrokerId(1))
                .with_host(StrBytes::from_static_str("127.0.0.1"))
                .with_port(i32::from(address.port()));
            let partition = MetadataResponsePartition::default().with_leader_id(BrokerId(1));
            let topic = MetadataResponseTopic::default()
                .with_name(Some(topic_name("orders")))
                .with_partitions(vec![partition]);
            let metadata = MetadataResponse::default()
                .with_brokers(vec![broker])
                .with_topics(vec![topic]);
            let mut answer = bytes::BytesMut::new();
            metadata.encode(&mut answer, 8).unwrap();
            stream
                .write_u32(u32::try_from(answer.len() + 4).unwrap())
                .await
                .unwrap();
            stream.write_all(&request[4..8]).await.unwrap();
            stream.write_all(&answer).await.unwrap();
        }
    });
    address
}

#[tokio::test]
async fn record_whose_answer_was_lost_is_maybe_written_and_its_id_is_not_used_again() {
    let address = broker_that_swallows_writes().await;
    let folder = tempfile::tempdir().unwrap();
    let history = folder.path().join("history.jsonl");
    let recorder = Recorder::new(Some(&history)).unwrap();
    let oracle = Oracle::connect(&address.to_string(), None, recorder.clone(), &[orders(1)])
        .await
        .unwrap();
    let truth = Truth {
        oracle,
        recorder,
        history,
    };
    let written = truth.oracle.produce("orders", 0, 2).await.unwrap();
    assert_eq!(written.maybe, Runs::one(1, 2));
    assert!(written.ids.is_empty() && written.failed.is_empty());
    let again = truth.oracle.produce("orders", 0, 1).await.unwrap();
    assert_eq!(again.maybe, Runs::one(3, 3));
    assert_eq!(
        produced(&truth, ProduceOutcome::Maybe),
        BTreeMap::from([(0, Runs::one(1, 3))])
    );
    assert_eq!(produced(&truth, ProduceOutcome::Failed), BTreeMap::new());
}

/// The oracle's batches are encoded and decoded by one crate; librdkafka is the second opinion.
#[tokio::test]
async fn records_reach_another_library_with_key_value_header_and_tombstones() {
    let lab = Lab::start(1).await;
    lab.create("orders", 1, 1).await;
    let mut topic = orders(1);
    topic.generator.tombstone_every = Some(4);
    let truth = lab.oracle(std::slice::from_ref(&topic)).await;
    truth.oracle.preload("orders", 1_203).await.unwrap();
    let bootstrap = lab.cluster.direct_bootstrap();
    let generator = topic.generator.clone();
    let reading = tokio::task::spawn_blocking(move || {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", bootstrap)
            .set("group.id", "second-opinion")
            .set("check.crcs", "true")
            .create()
            .unwrap();
        let mut from_the_start = TopicPartitionList::new();
        from_the_start
            .add_partition_offset("orders", 0, Offset::Beginning)
            .unwrap();
        consumer.assign(&from_the_start).unwrap();
        for id in 1..=1_203u64 {
            let message = consumer.poll(SOON).expect("a record in time").unwrap();
            assert_eq!(message.offset(), i64::try_from(id - 1).unwrap());
            assert_eq!(message.key(), Some(generator.key(0, id).as_bytes()));
            assert_eq!(message.payload(), generator.value(id).as_ref().map(String::as_bytes));
            let header = message.headers().unwrap().get(0);
            assert_eq!((header.key, header.value), ("bf-id", Some(id.to_string().as_bytes())));
            assert!(message.timestamp().to_millis().is_some_and(|ms| ms > 1_600_000_000_000));
        }
    });
    reading.await.unwrap();
    lab.cluster.shutdown().await;
}

#[tokio::test]
async fn partitions_that_are_added_are_written_watched_and_given_a_sentinel() {
    let lab = Lab::start(1).await;
    lab.create("orders", 3, 1).await;
    let truth = lab.oracle(&[orders(2)]).await;
    truth.oracle.preload("orders", 5).await.unwrap();
    let early = truth.oracle.produce("orders", 2, 1).await.unwrap_err();
    assert!(
        matches!(early, OracleError::UnknownPartition { partition: 2, .. }),
        "{early:?}"
    );
    assert_eq!(truth.oracle.sentinel(1).await.unwrap().len(), 2);

    truth.oracle.add_partitions("orders", 3).await.unwrap();
    assert_eq!(truth.oracle.partitions("orders"), 3);
    let wrote = truth.oracle.produce("orders", 2, 4).await.unwrap();
    assert_eq!(
        (wrote.ids.first(), wrote.offsets.first()),
        (Some(1), Some(0)),
        "nothing stood there before"
    );
    assert_eq!(truth.oracle.sentinel(2).await.unwrap().len(), 3);
    assert_eq!(truth.oracle.targets("r1").await.unwrap().len(), 3);
    let unknown = truth.oracle.add_partitions("bills", 3).await.unwrap_err();
    assert!(matches!(unknown, OracleError::UnknownPartition { .. }), "{unknown:?}");
    lab.cluster.shutdown().await;
}

#[tokio::test]
async fn targets_are_known_while_no_broker_is_up() {
    let (lab, truth) = Lab::with_orders(1, 1).await;
    truth.oracle.preload("orders", 7).await.unwrap();
    lab.cluster.kill_broker(1, Duration::ZERO).await.unwrap();
    let targets = truth.oracle.targets("r1").await.unwrap();
    assert_eq!(targets.iter().map(|end| end.offset).collect::<Vec<_>>(), [7]);
    lab.cluster.shutdown().await;
}
