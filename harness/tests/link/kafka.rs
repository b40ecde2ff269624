//! The builtin link in front of librdkafka's mock cluster: real clients, and one test per bug of the mock that the link
//! cures. Those also ask the mock itself, so that an upgrade of librdkafka that mends a bug is noticed.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use brokerfall::history::recorder::Recorder;
use brokerfall::link::builtin::{BuiltinLink, LinkOptions};
use brokerfall::link::{AnswerRule, Connects, Cut, CutHeal, CutMode, Direction, Link};
use brokerfall_report::history::{ConnectionChange, Event, GroupChange};
use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsRequest, ApiVersionsResponse, FindCoordinatorRequest, GroupId, HeartbeatRequest,
    JoinGroupRequest, JoinGroupResponse, MetadataRequest, MetadataResponse, RequestHeader, RequestKind, ResponseKind,
    SyncGroupRequest, SyncGroupResponse, TopicName, join_group_request::JoinGroupRequestProtocol,
    metadata_request::MetadataRequestTopic, sync_group_request::SyncGroupRequestAssignment,
};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{CommitMode, Consumer, ConsumerContext, StreamConsumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::mocking::{MockCluster, MockCoordinator};
use rdkafka::producer::{DefaultProducerContext, FutureProducer, FutureRecord};
use rdkafka::{ClientConfig, ClientContext};
use rdkafka::{Message, Offset, TopicPartitionList};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::lab;

const SOON: Duration = Duration::from_secs(30);
const TOPIC: &str = "orders";
const PARTITIONS: i32 = 3;

struct Lab {
    link: BuiltinLink,
    mock: MockCluster<'static, DefaultProducerContext>,
    producer: FutureProducer,
    upstreams: Vec<(i32, SocketAddr)>,
    recorder: Recorder,
    folder: tempfile::TempDir,
    written: i64,
}

impl Lab {
    fn new(brokers: i32) -> Self {
        let mock = MockCluster::new(brokers).unwrap();
        mock.create_topic(TOPIC, PARTITIONS, 1).unwrap();
        let servers = mock.bootstrap_servers();
        let upstreams: Vec<_> = (1..)
            .zip(servers.split(',').map(|server| server.parse().unwrap()))
            .collect();
        let folder = tempfile::tempdir().unwrap();
        let recorder = Recorder::new(Some(&folder.path().join("history.jsonl"))).unwrap();
        let options = LinkOptions {
            emulated: true,
            ..LinkOptions::default()
        };
        let link = BuiltinLink::start(upstreams.clone(), recorder.clone(), options).unwrap();
        let producer = ClientConfig::new().set("bootstrap.servers", &servers).create().unwrap();
        Lab {
            link,
            mock,
            producer,
            upstreams,
            recorder,
            folder,
            written: 0,
        }
    }

    /// Writes records to every partition, past the link.
    async fn write(&mut self, per_partition: i64) {
        for partition in 0..PARTITIONS {
            for _ in 0..per_partition {
                let record = FutureRecord::to(TOPIC)
                    .partition(partition)
                    .key("k")
                    .payload("0123456789");
                self.producer.send(record, SOON).await.unwrap();
            }
        }
        self.written += per_partition;
    }

    fn consumer(&self, more: &[(&str, &str)]) -> StreamConsumer {
        self.config(more).create().unwrap()
    }

    fn config(&self, more: &[(&str, &str)]) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", self.link.bootstrap())
            .set("client.id", "r1")
            .set("group.id", "g")
            .set("auto.offset.reset", "earliest")
            .set("session.timeout.ms", "6000")
            .set("heartbeat.interval.ms", "200")
            .set("reconnect.backoff.max.ms", "200")
            .set("enable.auto.commit", "false");
        for (key, value) in more {
            config.set(*key, *value);
        }
        config
    }

    fn assigned(&self) -> StreamConsumer {
        let consumer = self.consumer(&[]);
        let mut partitions = TopicPartitionList::new();
        for partition in 0..PARTITIONS {
            partitions
                .add_partition_offset(TOPIC, partition, Offset::Beginning)
                .unwrap();
        }
        consumer.assign(&partitions).unwrap();
        consumer
    }

    /// Reads until every partition was read to its end; returns how many records came.
    async fn read_all<C: ConsumerContext + 'static>(&self, consumer: &StreamConsumer<C>) -> i64 {
        let mut next = BTreeMap::new();
        let mut count = 0;
        let reading = async {
            while next.len() < 3 || next.values().any(|offset| *offset < self.written) {
                // Errors are the client's word on a broken connection; it goes on by itself.
                if let Ok(record) = consumer.recv().await {
                    next.insert(record.partition(), record.offset() + 1);
                    count += 1;
                }
            }
        };
        timeout(SOON, reading).await.expect("everything is read in time");
        count
    }

    fn events(&self) -> Vec<Event> {
        lab::events(&self.link, &self.recorder, &self.folder)
    }

    fn connections(&self, wanted: ConnectionChange) -> u64 {
        lab::count(&self.events(), wanted)
    }

    fn assert_no_failure(&self) {
        for event in self.events() {
            assert!(
                !matches!(event, Event::Failure { .. } | Event::Deviation { .. }),
                "{event:?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumer_reads_everything_and_knows_only_the_links_addresses() {
    let mut lab = Lab::new(3);
    lab.write(100).await;
    let consumer = lab.assigned();
    assert_eq!(lab.read_all(&consumer).await, 300);

    let metadata = consumer.fetch_metadata(None, SOON).unwrap();
    let mut told: Vec<_> = metadata
        .brokers()
        .iter()
        .map(|b| format!("{}:{}", b.host(), b.port()))
        .collect();
    let mut own: Vec<_> = lab.link.bootstrap().split(',').map(str::to_owned).collect();
    told.sort();
    own.sort();
    assert_eq!(told, own);

    let mut highest = BTreeMap::new();
    for event in lab.events() {
        if let Event::Wire {
            client, fetch_offsets, ..
        } = event
        {
            assert_eq!(client, "r1");
            highest.extend(fetch_offsets.into_iter().map(|end| (end.partition, end.offset)));
        }
    }
    assert_eq!(highest.into_keys().collect::<Vec<_>>(), [0, 1, 2]);
    assert!(
        lab.link
            .last_request_age_ms("r1", "Fetch")
            .is_some_and(|age| age < 5_000)
    );
    assert!(lab.link.open_connections("r1") >= 3);
    lab.assert_no_failure();
    drop(consumer);
    lab.link.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fetch_answered_out_of_range_makes_a_consumer_read_again() {
    let mut lab = Lab::new(1);
    lab.write(50).await;
    let rule = lab.link.arm(AnswerRule {
        fault: "answer-error-1".to_owned(),
        api: "Fetch".to_owned(),
        code: 1,
        topic: Some(TOPIC.to_owned()),
        partition: Some(0),
        client: Some("r1".to_owned()),
        times: Some(1),
    });
    let consumer = lab.assigned();
    lab.read_all(&consumer).await;
    let counts = lab.link.disarm(rule);
    assert_eq!((counts.triggered, counts.undecodable), (1, 0));
    let injected = lab.events().into_iter().any(|event| {
        matches!(event, Event::WireError { api, code, injected_by: Some(by), partition: Some(0), count: 1, .. }
            if api == "Fetch" && code.name == "OFFSET_OUT_OF_RANGE" && by == "answer-error-1")
    });
    assert!(injected);
    lab.assert_no_failure();
    drop(consumer);
    lab.link.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumer_comes_back_after_the_broker_was_killed_and_after_a_hold() {
    let mut lab = Lab::new(1);
    lab.write(20).await;
    let consumer = lab.assigned();
    lab.read_all(&consumer).await;

    lab.link.broker_going(1).await.unwrap();
    {
        let _nobody_starts = crate::STARTING.write().unwrap();
        lab.mock.broker_down(1).unwrap();
    }
    lab.mock.broker_up(1).unwrap();
    lab.link.broker_back(1, SOON).await.unwrap();
    lab.write(20).await;
    lab.read_all(&consumer).await;
    assert!(lab.connections(ConnectionChange::ClosedByBroker) > 0);

    let cut = Cut {
        nodes: vec![1],
        mode: CutMode::Hold,
        direction: Direction::Both,
        heals: CutHeal::Keep,
        connects: Connects::Accepted,
    };
    let cut = lab.link.cut(cut).await.unwrap();
    lab.write(20).await;
    assert!(
        timeout(Duration::from_millis(700), consumer.recv()).await.is_err(),
        "a record came through the hold"
    );
    assert!(lab.connections(ConnectionChange::Held) > 0);
    lab.link.heal(cut).await.unwrap();
    lab.read_all(&consumer).await;
    lab.assert_no_failure();
    drop(consumer);
    lab.link.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn life_of_a_group_member_is_read_from_the_wire() {
    let mut lab = Lab::new(1);
    lab.write(10).await;
    let consumer = lab.consumer(&[]);
    consumer.subscribe(&[TOPIC]).unwrap();
    lab.read_all(&consumer).await;
    consumer.commit_consumer_state(CommitMode::Sync).unwrap();
    consumer.unsubscribe();
    drop(consumer);

    let mut told = Vec::new();
    let mut commits = Vec::new();
    for event in lab.events() {
        match event {
            Event::WireGroup { client, group, change } => {
                assert_eq!((client.as_str(), group.as_str()), ("r1", "g"));
                told.push(match change {
                    GroupChange::Joined { .. } => "joined".to_owned(),
                    GroupChange::Synced { owns, .. } => format!("owns {}", owns.len()),
                    GroupChange::Alive { .. } => continue,
                    GroupChange::Gone { how } => how,
                });
            }
            Event::WireCommit {
                partition,
                offset,
                code,
                ..
            } => commits.push((partition, offset, code)),
            _ => {}
        }
    }
    assert_eq!(told, ["joined", "owns 3", "LeaveGroup"]);
    commits.sort_unstable();
    assert_eq!(commits, [(0, 10, 0), (1, 10, 0), (2, 10, 0)]);
    lab.assert_no_failure();
    lab.link.shutdown().await;
}

/// A client that speaks the protocol by hand.
struct Raw(TcpStream);

impl Raw {
    async fn connect(address: SocketAddr) -> Self {
        Raw(TcpStream::connect(address).await.unwrap())
    }

    async fn send(&mut self, key: ApiKey, version: i16, request: &RequestKind) {
        let header = RequestHeader::default()
            .with_request_api_key(key as i16)
            .with_request_api_version(version)
            .with_correlation_id(7)
            .with_client_id(Some(StrBytes::from_static_str("raw")));
        let mut out = BytesMut::new();
        out.put_i32(0);
        header.encode(&mut out, key.request_header_version(version)).unwrap();
        request.encode(&mut out, version).unwrap();
        let len = i32::try_from(out.len() - 4).unwrap();
        out[..4].copy_from_slice(&len.to_be_bytes());
        self.0.write_all(&out).await.unwrap();
    }

    /// The next response after its correlation id.
    async fn receive(&mut self) -> Bytes {
        let len = timeout(SOON, self.0.read_i32()).await.unwrap().unwrap();
        let mut body = vec![0; usize::try_from(len).unwrap()];
        timeout(SOON, self.0.read_exact(&mut body)).await.unwrap().unwrap();
        Bytes::from(body).slice(4..)
    }
}

#[tokio::test]
async fn mock_answers_new_api_versions_with_no_format_at_all_and_the_link_as_a_broker() {
    let lab = Lab::new(1);
    let request = RequestKind::ApiVersions(ApiVersionsRequest::default());
    let mut direct = Raw::connect(lab.upstreams[0].1).await;
    direct.send(ApiKey::ApiVersions, 3, &request).await;
    let mut bytes = direct.receive().await;
    let as_version_0 = ApiVersionsResponse::decode(&mut bytes, 0);
    assert!(
        as_version_0.is_err(),
        "the mock is mended: {as_version_0:?} (drop the cure)"
    );

    let mut linked = Raw::connect(lab.link.address(1).unwrap()).await;
    for version in [3, 4] {
        linked.send(ApiKey::ApiVersions, version, &request).await;
        let answer = ApiVersionsResponse::decode(&mut linked.receive().await, 0).unwrap();
        assert_eq!((answer.error_code, answer.api_keys.len()), (35, 1));
        let own = &answer.api_keys[0];
        assert_eq!((own.api_key, own.min_version, own.max_version), (18, 0, 2));
    }
    linked.send(ApiKey::ApiVersions, 2, &request).await;
    let answer = ApiVersionsResponse::decode(&mut linked.receive().await, 2).unwrap();
    assert!(answer.error_code == 0 && answer.api_keys.len() > 10);
    lab.link.shutdown().await;
}

#[tokio::test]
async fn mock_ends_flexible_metadata_with_a_surplus_byte_and_the_link_does_not() {
    let lab = Lab::new(1);
    let request = RequestKind::Metadata(MetadataRequest::default().with_topics(None));
    let mut left = Vec::new();
    for address in [lab.upstreams[0].1, lab.link.address(1).unwrap()] {
        let mut client = Raw::connect(address).await;
        client.send(ApiKey::Metadata, 9, &request).await;
        // The response header of a flexible version ends with a byte of tags.
        let mut bytes = client.receive().await.slice(1..);
        let answer = MetadataResponse::decode(&mut bytes, 9).unwrap();
        assert_eq!(answer.topics.len(), 1);
        left.push(bytes.len());
    }
    assert_eq!(left, [1, 0], "bytes left over at the mock and at the link");
    lab.link.shutdown().await;
}

/// Two members join, and the leader syncs before its follower. Returns what the follower is answered.
async fn sync_leader_first(address: SocketAddr, group: &str) -> SyncGroupResponse {
    let group = GroupId(StrBytes::from_string(group.to_owned()));
    let protocol = JoinGroupRequestProtocol::default().with_name(StrBytes::from_static_str("range"));
    let join = JoinGroupRequest::default()
        .with_group_id(group.clone())
        .with_session_timeout_ms(6_000)
        .with_rebalance_timeout_ms(6_000)
        .with_protocol_type(StrBytes::from_static_str("consumer"))
        .with_protocols(vec![protocol]);
    let mut members = Vec::new();
    for _ in 0..2 {
        let mut member = Raw::connect(address).await;
        member
            .send(ApiKey::JoinGroup, 1, &RequestKind::JoinGroup(join.clone()))
            .await;
        members.push(member);
    }
    let mut joined = Vec::new();
    for mut member in members {
        let answer = JoinGroupResponse::decode(&mut member.receive().await, 1).unwrap();
        assert_eq!(answer.error_code, 0);
        joined.push((member, answer));
    }
    let leads = usize::from(joined[0].1.members.is_empty());
    let (mut leader, answer) = joined.remove(leads);
    let (mut follower, follower_answer) = joined.remove(0);
    assert_eq!(answer.members.len(), 2);
    let sync = SyncGroupRequest::default()
        .with_group_id(group.clone())
        .with_generation_id(answer.generation_id);
    let assignments = answer.members.iter().map(|member| {
        SyncGroupRequestAssignment::default()
            .with_member_id(member.member_id.clone())
            .with_assignment(Bytes::from_static(b"yours"))
    });
    let by_leader = sync
        .clone()
        .with_member_id(answer.member_id.clone())
        .with_assignments(assignments.collect());
    leader
        .send(ApiKey::SyncGroup, 0, &RequestKind::SyncGroup(by_leader))
        .await;
    // The leader's request has been handled, or is being held, once another connection was answered after it.
    let beat = HeartbeatRequest::default()
        .with_group_id(group)
        .with_generation_id(answer.generation_id);
    let beat = RequestKind::Heartbeat(beat.with_member_id(follower_answer.member_id.clone()));
    for _ in 0..20 {
        follower.send(ApiKey::Heartbeat, 0, &beat).await;
        follower.receive().await;
    }
    let by_follower = sync.with_member_id(follower_answer.member_id);
    follower
        .send(ApiKey::SyncGroup, 0, &RequestKind::SyncGroup(by_follower))
        .await;
    let refused = SyncGroupResponse::default();
    let mut bytes = follower.receive().await;
    // The mock's refusal has null where it cannot be.
    let code = i16::from_be_bytes(bytes[..2].try_into().unwrap());
    let answer = SyncGroupResponse::decode(&mut bytes, 0).unwrap_or(refused.with_error_code(code));
    let led = SyncGroupResponse::decode(&mut leader.receive().await, 0).unwrap();
    assert_eq!(led.error_code, 0);
    answer
}

#[tokio::test]
async fn mock_writes_null_into_errors_where_it_must_not_and_the_link_an_empty_text() {
    let lab = Lab::new(2);
    lab.mock.coordinator(MockCoordinator::Group("g".to_owned()), 2).unwrap();
    let group = || GroupId(StrBytes::from_static_str("g"));
    let protocol = JoinGroupRequestProtocol::default().with_name(StrBytes::from_static_str("range"));
    let join = JoinGroupRequest::default()
        .with_group_id(group())
        .with_session_timeout_ms(6_000)
        .with_protocol_type(StrBytes::from_static_str("consumer"))
        .with_protocols(vec![protocol]);
    let sync = SyncGroupRequest::default().with_group_id(group());
    let requests = [
        (
            ApiKey::FindCoordinator,
            0,
            15,
            RequestKind::FindCoordinator(FindCoordinatorRequest::default()),
        ),
        (
            ApiKey::FindCoordinator,
            2,
            15,
            RequestKind::FindCoordinator(FindCoordinatorRequest::default()),
        ),
        (
            ApiKey::FindCoordinator,
            3,
            15,
            RequestKind::FindCoordinator(FindCoordinatorRequest::default()),
        ),
        (ApiKey::JoinGroup, 1, 16, RequestKind::JoinGroup(join.clone())),
        (ApiKey::JoinGroup, 5, 16, RequestKind::JoinGroup(join)),
        (ApiKey::SyncGroup, 0, 16, RequestKind::SyncGroup(sync.clone())),
        (ApiKey::SyncGroup, 3, 16, RequestKind::SyncGroup(sync)),
    ];
    for (key, version, code, request) in requests {
        let mut answers = Vec::new();
        for address in [lab.upstreams[0].1, lab.link.address(1).unwrap()] {
            let mut client = Raw::connect(address).await;
            client.send(key, version, &request).await;
            let mut bytes = client.receive().await;
            if key.response_header_version(version) > 0 {
                bytes = bytes.slice(1..);
            }
            answers.push(ResponseKind::decode(key, &mut bytes, version).map_err(|cause| cause.to_string()));
        }
        assert!(
            answers[0].is_err(),
            "the mock is mended: {:?} (drop the cure)",
            answers[0]
        );
        let told = match answers.remove(1) {
            Ok(ResponseKind::FindCoordinator(answer)) => (answer.error_code, answer.host.to_string()),
            Ok(ResponseKind::JoinGroup(answer)) => (answer.error_code, answer.leader.to_string()),
            Ok(ResponseKind::SyncGroup(answer)) => (
                answer.error_code,
                String::from_utf8(answer.assignment.to_vec()).unwrap(),
            ),
            other => panic!("{key:?} {version}: {other:?}"),
        };
        assert_eq!(told, (code, String::new()), "{key:?} {version}");
    }
    let told = lab.events().into_iter().map(|event| match event {
        Event::WireError { count, .. } => count,
        _ => 0,
    });
    assert_eq!(told.sum::<u64>(), 7);
    lab.assert_no_failure();
    lab.link.shutdown().await;
}

#[tokio::test]
async fn mock_refuses_a_follower_that_syncs_after_its_leader_and_the_link_orders_them() {
    let lab = Lab::new(1);
    let direct = sync_leader_first(lab.upstreams[0].1, "direct");
    let linked = sync_leader_first(lab.link.address(1).unwrap(), "linked");
    let (direct, linked) = tokio::join!(direct, linked);
    assert_eq!(direct.error_code, 42, "the mock is mended (drop the cure)");
    assert_eq!((linked.error_code, &linked.assignment[..]), (0, &b"yours"[..]));
    lab.assert_no_failure();
    lab.link.shutdown().await;
}

#[tokio::test]
async fn member_whose_connection_closed_while_its_join_waited_may_join_again() {
    // Without the cure the mock aborts, and this test with it: it does not notice a FIN while an answer is owed.
    let lab = Lab::new(1);
    let protocol = JoinGroupRequestProtocol::default().with_name(StrBytes::from_static_str("range"));
    let request = RequestKind::JoinGroup(
        JoinGroupRequest::default()
            .with_group_id(GroupId(StrBytes::from_static_str("g")))
            .with_member_id(StrBytes::from_static_str("m1"))
            .with_protocol_type(StrBytes::from_static_str("consumer"))
            .with_session_timeout_ms(6_000)
            .with_rebalance_timeout_ms(6_000)
            .with_protocols(vec![protocol]),
    );
    let address = lab.link.address(1).unwrap();
    for closed in 1..=2 {
        let mut first = Raw::connect(address).await;
        first.send(ApiKey::JoinGroup, 5, &request).await;
        lab::until(|| lab.link.last_request_age_ms("raw", "JoinGroup").is_some()).await;
        if closed == 2 {
            first.0.set_zero_linger().unwrap();
        }
        drop(first);
        lab::until(|| lab.connections(ConnectionChange::ClosedByClient) == closed).await;
    }
    let mut again = Raw::connect(address).await;
    again.send(ApiKey::JoinGroup, 5, &request).await;
    let joined = JoinGroupResponse::decode(&mut again.receive().await, 5).unwrap();
    assert_eq!((joined.error_code, joined.member_id.as_str()), (0, "m1"));
    lab.assert_no_failure();
    lab.link.shutdown().await;
}

/// The code that a topic gets in an answer to Metadata that lets the cluster make it, or not.
async fn metadata_code(address: SocketAddr, topic: &str, may_make: bool) -> i16 {
    let asked = MetadataRequestTopic::default().with_name(Some(TopicName(StrBytes::from_string(topic.to_owned()))));
    let request = MetadataRequest::default()
        .with_topics(Some(vec![asked]))
        .with_allow_auto_topic_creation(may_make);
    let mut client = Raw::connect(address).await;
    client.send(ApiKey::Metadata, 5, &RequestKind::Metadata(request)).await;
    let mut bytes = client.receive().await;
    MetadataResponse::decode(&mut bytes, 5).unwrap().topics[0].error_code
}

#[tokio::test]
async fn mock_makes_a_topic_that_is_asked_for_and_is_not_asked_for_one_that_is_hidden() {
    const UNKNOWN: i16 = 3;
    let lab = Lab::new(1);
    let (direct, linked) = (lab.upstreams[0].1, lab.link.address(1).unwrap());
    assert_eq!(
        metadata_code(linked, "made", true).await,
        0,
        "the mock makes no topics any more"
    );
    lab.link.hide_topic("hidden", "absent-topic-1");
    assert_eq!(metadata_code(linked, "hidden", true).await, UNKNOWN);
    assert_eq!(lab.link.metadata_answers("hidden"), 1);
    assert_eq!(metadata_code(direct, "hidden", false).await, UNKNOWN);
    assert_eq!(lab.link.show_topic("hidden", "absent-topic-1").triggered, 1);
    assert_eq!(metadata_code(linked, "hidden", true).await, 0);
    lab.assert_no_failure();
    lab.link.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumer_is_told_that_a_hidden_topic_is_unknown_and_reads_it_once_it_is_shown() {
    let mut lab = Lab::new(1);
    lab.write(20).await;
    lab.link.hide_topic(TOPIC, "absent-topic-1");
    let consumer = lab.consumer(&[("topic.metadata.refresh.interval.ms", "200")]);
    consumer.subscribe(&[TOPIC]).unwrap();
    let told = async {
        loop {
            if let Err(KafkaError::MessageConsumption(code)) = consumer.recv().await {
                return code;
            }
        }
    };
    assert_eq!(
        timeout(SOON, told).await.unwrap(),
        RDKafkaErrorCode::UnknownTopicOrPartition
    );
    assert!(lab.link.metadata_answers(TOPIC) > 0);
    let counts = lab.link.show_topic(TOPIC, "absent-topic-1");
    assert!(counts.triggered > 0 && counts.undecodable == 0, "{counts:?}");
    lab.read_all(&consumer).await;
    lab.assert_no_failure();
    drop(consumer);
    lab.link.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumer_sees_partitions_that_are_added_later() {
    let mut lab = Lab::new(1);
    lab.write(20).await;
    lab.link.limit_partitions(TOPIC, Some(1));
    let consumer = lab.consumer(&[("topic.metadata.refresh.interval.ms", "200")]);
    consumer.subscribe(&[TOPIC]).unwrap();
    let mut next = BTreeMap::new();
    read_to(&consumer, &mut next, &[(0, 20)]).await;
    assert_eq!(consumer.assignment().unwrap().count(), 1);
    lab.link.limit_partitions(TOPIC, None);
    read_to(&consumer, &mut next, &[(0, 20), (1, 20), (2, 20)]).await;
    assert_eq!(consumer.assignment().unwrap().count(), 3);
    assert!(lab.link.metadata_answers(TOPIC) > 0);
    lab.assert_no_failure();
    drop(consumer);
    lab.link.shutdown().await;
}

/// Reads until these are the partitions read and the offsets read next. A rebalance makes a consumer read again.
async fn read_to<C: ConsumerContext + 'static>(
    consumer: &StreamConsumer<C>,
    next: &mut BTreeMap<i32, i64>,
    wanted: &[(i32, i64)],
) {
    let wanted = BTreeMap::from_iter(wanted.iter().copied());
    let reading = async {
        while *next != wanted {
            if let Ok(record) = consumer.recv().await {
                next.insert(record.partition(), record.offset() + 1);
            }
        }
    };
    timeout(SOON, reading).await.expect("everything that is shown is read");
}

/// Keeps what the client logs.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<String>>>);

impl ClientContext for Logged {
    fn log(&self, _level: RDKafkaLogLevel, facility: &str, text: &str) {
        self.0.lock().unwrap().push(format!("{facility}: {text}"));
    }
}

impl ConsumerContext for Logged {}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_with_a_code_are_read_by_librdkafka_for_every_api_and_place_of_the_code() {
    let places = [
        ("Fetch", "KAFKA_STORAGE_ERROR", None),
        ("Fetch", "FETCH_SESSION_ID_NOT_FOUND", None),
        ("ListOffsets", "LEADER_NOT_AVAILABLE", None),
        ("Metadata", "LEADER_NOT_AVAILABLE", None),
        ("Metadata", "LEADER_NOT_AVAILABLE", Some(1)),
        ("OffsetCommit", "REBALANCE_IN_PROGRESS", None),
        ("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS", None),
        ("OffsetFetch", "UNSTABLE_OFFSET_COMMIT", None),
        ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", None),
        ("JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS", None),
        ("SyncGroup", "REBALANCE_IN_PROGRESS", None),
        ("Heartbeat", "UNKNOWN_MEMBER_ID", None),
    ];
    // At once, since the mock makes every join but the first wait for seconds.
    let answered = places.map(|(api, code, partition)| answered_with(api, code, partition));
    futures::future::join_all(answered).await;
}

async fn answered_with(api: &str, code: &str, partition: Option<u32>) {
    const FAULT: &str = "answer-error-1";
    let mut lab = Lab::new(1);
    lab.write(20).await;
    let rule = lab.link.arm(AnswerRule {
        fault: FAULT.to_owned(),
        api: api.to_owned(),
        code: brokerfall::link::codes::code(code).unwrap(),
        topic: None,
        partition,
        client: None,
        times: Some(1),
    });
    let logged = Logged::default();
    let more = [("enable.auto.commit", "true"), ("auto.commit.interval.ms", "50")];
    let consumer: StreamConsumer<Logged> = lab.config(&more).create_with_context(logged.clone()).unwrap();
    consumer.subscribe(&[TOPIC]).unwrap();
    let is_told = || {
        lab.events().into_iter().any(|event| {
            matches!(event, Event::WireError { api: told, code: at, injected_by: Some(by), .. }
                if told == api && at.name == code && by == FAULT)
        })
    };
    let meeting = async {
        while !is_told() {
            // Errors are the client's word on the code; whether it goes on is no matter here.
            drop(timeout(Duration::from_millis(50), consumer.recv()).await);
        }
    };
    let met = timeout(SOON, meeting).await;
    assert!(met.is_ok(), "no client was answered {code} in {api}");
    // It goes on, so it has read the answer.
    lab.write(1).await;
    lab.read_all(&consumer).await;
    let counts = lab.link.disarm(rule);
    assert_eq!((counts.triggered, counts.undecodable), (1, 0), "{code} in {api}");
    let lines = logged.0.lock().unwrap().clone();
    let malformed = |line: &&String| line.contains("PROTO") || line.contains("Bad message");
    assert_eq!(lines.iter().find(malformed), None, "{code} in {api}");
    lab.assert_no_failure();
    drop(consumer);
    lab.link.shutdown().await;
}
