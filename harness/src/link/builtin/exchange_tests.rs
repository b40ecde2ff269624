//! Requests and responses encoded as clients and brokers do, taken through an [`Exchange`].

use brokerfall_report::history::{Entry, GroupChange};
use brokerfall_report::protocol::TopicPartition;
use kafka_protocol::messages as km;
use kafka_protocol::messages::{BrokerId, GroupId, RequestHeader as Header, RequestKind, TopicName};
use kafka_protocol::protocol::StrBytes;

use super::super::broker::Broker;
use super::super::{LinkOptions, ports};
use super::*;
use crate::history::recorder::Recorder;
use crate::link::AnswerRule;

struct Lab {
    folder: tempfile::TempDir,
    shared: Arc<Shared>,
    exchange: Exchange,
    correlation: i32,
}

/// The topic id of `orders`. The type is kafka-protocol's own affair; it is had by parsing.
const ORDERS_ID: &str = "07070707-0707-0707-0707-070707070707";

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn topic(name: &str) -> TopicName {
    TopicName(text(name))
}

impl Lab {
    fn new(emulated: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let recorder = Recorder::new(Some(&folder.path().join("history.jsonl"))).unwrap();
        let upstream = "127.0.0.1:1".parse().unwrap();
        let brokers = ports::reserve(2).unwrap().into_iter().zip(1..);
        let brokers = brokers.map(|(port, node)| Arc::new(Broker::new(node, upstream, port).unwrap()));
        let shared = Arc::new(Shared::new(brokers.collect(), recorder, LinkOptions { emulated }));
        Lab {
            folder,
            exchange: Exchange::new(Arc::clone(&shared)),
            shared,
            correlation: 0,
        }
    }

    fn host_and_port(&self, node: i32) -> (String, i32) {
        let address = self.shared.brokers[usize::try_from(node - 1).unwrap()].address;
        (address.ip().to_string(), address.port().into())
    }

    fn ask(&mut self, version: i16, request: &RequestKind) -> (ApiKey, Mark) {
        self.correlation += 1;
        let key = api_of(request);
        let header = Header::default()
            .with_request_api_key(key as i16)
            .with_request_api_version(version)
            .with_correlation_id(self.correlation)
            .with_client_id(Some(text("r1")));
        let mut out = BytesMut::new();
        out.put_i32(0);
        header.encode(&mut out, key.request_header_version(version)).unwrap();
        request.encode(&mut out, version).unwrap();
        let len = i32::try_from(out.len() - 4).unwrap();
        out[..4].copy_from_slice(&len.to_be_bytes());
        (key, self.exchange.request(&out.freeze()))
    }

    fn answer(&mut self, key: ApiKey, version: i16, response: &ResponseKind) -> Bytes {
        let header = ResponseHeader::default().with_correlation_id(self.correlation);
        encode(key, version, &header, response).unwrap()
    }

    /// What the client gets when it sends `request` and the broker answers `response`.
    fn through(&mut self, version: i16, request: &RequestKind, response: &ResponseKind) -> ResponseKind {
        let (key, _) = self.ask(version, request);
        let bytes = self.answer(key, version, response);
        let passed = self.exchange.response(bytes);
        decode(key as i16, version, &passed).unwrap().2
    }

    fn arm(&self, api: &str, code: &str, change: impl FnOnce(&mut AnswerRule)) -> crate::link::RuleId {
        let mut rule = AnswerRule {
            fault: "answer-error-1".to_owned(),
            api: api.to_owned(),
            code: crate::link::codes::code(code).unwrap(),
            topic: None,
            partition: None,
            client: None,
            times: None,
        };
        change(&mut rule);
        self.shared.rules.arm(rule)
    }

    fn events(&self) -> Vec<Event> {
        self.shared.taps.flush();
        self.shared.taps.recorder().flush().unwrap();
        let lines = std::fs::read_to_string(self.folder.path().join("history.jsonl")).unwrap();
        lines
            .lines()
            .map(|line| serde_json::from_str::<Entry>(line).unwrap().event)
            .collect()
    }

    /// Error events as `(api, code, topic, partition, injected by, count)`.
    #[expect(clippy::type_complexity, reason = "a literal to compare with")]
    fn errors(&self) -> Vec<(String, i64, Option<String>, Option<u32>, Option<String>, u64)> {
        let errors = self.events().into_iter().filter_map(|event| match event {
            Event::WireError {
                api,
                code,
                topic,
                partition,
                injected_by,
                count,
                ..
            } => Some((api, code.value, topic, partition, injected_by, count)),
            _ => None,
        });
        errors.collect()
    }
}

fn api_of(request: &RequestKind) -> ApiKey {
    match request {
        RequestKind::Produce(_) => ApiKey::Produce,
        RequestKind::Fetch(_) => ApiKey::Fetch,
        RequestKind::ListOffsets(_) => ApiKey::ListOffsets,
        RequestKind::Metadata(_) => ApiKey::Metadata,
        RequestKind::OffsetCommit(_) => ApiKey::OffsetCommit,
        RequestKind::OffsetFetch(_) => ApiKey::OffsetFetch,
        RequestKind::FindCoordinator(_) => ApiKey::FindCoordinator,
        RequestKind::JoinGroup(_) => ApiKey::JoinGroup,
        RequestKind::Heartbeat(_) => ApiKey::Heartbeat,
        RequestKind::LeaveGroup(_) => ApiKey::LeaveGroup,
        RequestKind::SyncGroup(_) => ApiKey::SyncGroup,
        RequestKind::ApiVersions(_) => ApiKey::ApiVersions,
        RequestKind::DescribeCluster(_) => ApiKey::DescribeCluster,
        other => panic!("no key for {other:?}"),
    }
}

fn metadata(version: i16, nodes: &[i32]) -> ResponseKind {
    let brokers = nodes.iter().map(|node| {
        km::metadata_response::MetadataResponseBroker::default()
            .with_node_id(BrokerId(*node))
            .with_host(text("localhost"))
            .with_port(9092)
    });
    let partitions = [0, 1].map(|partition| {
        km::metadata_response::MetadataResponsePartition::default()
            .with_partition_index(partition)
            .with_leader_id(BrokerId(1))
    });
    let mut orders = km::metadata_response::MetadataResponseTopic::default()
        .with_name(Some(topic("orders")))
        .with_partitions(partitions.to_vec());
    if version >= 10 {
        orders.topic_id = ORDERS_ID.parse().unwrap();
    }
    let other = orders
        .clone()
        .with_name(Some(topic("other")))
        .with_topic_id(Default::default());
    ResponseKind::Metadata(
        km::MetadataResponse::default()
            .with_brokers(brokers.collect())
            .with_topics(vec![orders, other]),
    )
}

fn fetch_request() -> RequestKind {
    let partition = |partition: i32, offset| {
        km::fetch_request::FetchPartition::default()
            .with_partition(partition)
            .with_fetch_offset(offset)
            .with_partition_max_bytes(1 << 20)
    };
    let orders = km::fetch_request::FetchTopic::default()
        .with_topic(topic("orders"))
        .with_partitions(vec![partition(0, 17), partition(1, 40)]);
    RequestKind::Fetch(km::FetchRequest::default().with_topics(vec![orders]))
}

/// Two partitions of `orders` with records, named by id from version 13 on.
fn fetch_response(version: i16) -> ResponseKind {
    let partition = |partition| {
        km::fetch_response::PartitionData::default()
            .with_partition_index(partition)
            .with_high_watermark(50)
            .with_last_stable_offset(50)
            .with_log_start_offset(3)
            .with_aborted_transactions(Some(vec![Default::default()]))
            .with_records(Some(Bytes::from_static(b"records")))
    };
    let mut orders =
        km::fetch_response::FetchableTopicResponse::default().with_partitions(vec![partition(0), partition(1)]);
    if version >= 13 {
        orders.topic_id = ORDERS_ID.parse().unwrap();
    } else {
        orders.topic = topic("orders");
    }
    ResponseKind::Fetch(km::FetchResponse::default().with_responses(vec![orders]))
}

fn metadata_request() -> RequestKind {
    RequestKind::Metadata(km::MetadataRequest::default())
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn addresses_in_every_version_of_metadata_are_the_links() {
    for version in 0..=13 {
        let mut lab = Lab::new(false);
        let passed = lab.through(version, &metadata_request(), &metadata(version, &[1, 2]));
        let ResponseKind::Metadata(passed) = passed else {
            panic!()
        };
        for broker in &passed.brokers {
            let got = (broker.host.to_string(), broker.port);
            assert_eq!(got, lab.host_and_port(broker.node_id.0), "version {version}");
        }
        assert_eq!(passed.brokers.len(), 2);
    }
}

#[test]
fn addresses_of_coordinators_and_of_moved_leaders_are_the_links() {
    let mut lab = Lab::new(false);
    let old = km::FindCoordinatorResponse::default()
        .with_node_id(BrokerId(2))
        .with_host(text("x"))
        .with_port(1);
    let request = RequestKind::FindCoordinator(km::FindCoordinatorRequest::default());
    let passed = lab.through(3, &request, &ResponseKind::FindCoordinator(old));
    let ResponseKind::FindCoordinator(passed) = passed else {
        panic!()
    };
    assert_eq!((passed.host.to_string(), passed.port), lab.host_and_port(2));

    let found = km::find_coordinator_response::Coordinator::default()
        .with_node_id(BrokerId(1))
        .with_host(text("x"))
        .with_port(1);
    let new = km::FindCoordinatorResponse::default().with_coordinators(vec![found]);
    let request = RequestKind::FindCoordinator(km::FindCoordinatorRequest::default());
    let passed = lab.through(4, &request, &ResponseKind::FindCoordinator(new));
    let ResponseKind::FindCoordinator(passed) = passed else {
        panic!()
    };
    assert_eq!(
        (passed.coordinators[0].host.to_string(), passed.coordinators[0].port),
        lab.host_and_port(1)
    );

    let endpoint = km::fetch_response::NodeEndpoint::default()
        .with_node_id(BrokerId(2))
        .with_host(text("x"));
    let ResponseKind::Fetch(moved) = fetch_response(16) else {
        panic!()
    };
    let moved = ResponseKind::Fetch(moved.with_node_endpoints(vec![endpoint]));
    let request = RequestKind::Fetch(km::FetchRequest::default());
    let ResponseKind::Fetch(passed) = lab.through(16, &request, &moved) else {
        panic!()
    };
    assert_eq!(
        (passed.node_endpoints[0].host.to_string(), passed.node_endpoints[0].port),
        lab.host_and_port(2)
    );

    let endpoint = km::produce_response::NodeEndpoint::default()
        .with_node_id(BrokerId(1))
        .with_host(text("x"));
    let moved = ResponseKind::Produce(km::ProduceResponse::default().with_node_endpoints(vec![endpoint]));
    let request = RequestKind::Produce(km::ProduceRequest::default().with_acks(-1));
    let ResponseKind::Produce(passed) = lab.through(10, &request, &moved) else {
        panic!()
    };
    assert_eq!(
        (passed.node_endpoints[0].host.to_string(), passed.node_endpoints[0].port),
        lab.host_and_port(1)
    );

    let broker = km::describe_cluster_response::DescribeClusterBroker::default().with_broker_id(BrokerId(2));
    let described = ResponseKind::DescribeCluster(km::DescribeClusterResponse::default().with_brokers(vec![broker]));
    let request = RequestKind::DescribeCluster(km::DescribeClusterRequest::default());
    let ResponseKind::DescribeCluster(passed) = lab.through(0, &request, &described) else {
        panic!()
    };
    assert_eq!(
        (passed.brokers[0].host.to_string(), passed.brokers[0].port),
        lab.host_and_port(2)
    );
}

#[test]
fn coordinator_error_without_address_passes_and_unknown_broker_is_a_failure_of_the_harness() {
    let mut lab = Lab::new(false);
    let none = km::FindCoordinatorResponse::default()
        .with_error_code(15)
        .with_node_id(BrokerId(-1))
        .with_port(-1);
    let request = RequestKind::FindCoordinator(km::FindCoordinatorRequest::default());
    lab.through(2, &request, &ResponseKind::FindCoordinator(none));
    assert!(!lab.events().iter().any(|event| matches!(event, Event::Failure { .. })));

    for _ in 0..2 {
        lab.through(9, &metadata_request(), &metadata(9, &[1, 9]));
    }
    let failures: Vec<_> = lab
        .events()
        .into_iter()
        .filter_map(|event| match event {
            Event::Failure { of, text } => Some((of, text)),
            _ => None,
        })
        .collect();
    assert_eq!(failures.len(), 1, "each once: {failures:?}");
    assert_eq!(failures[0].0, FailureOf::Harness);
    assert!(failures[0].1.contains("broker 9 at localhost:9092"), "{failures:?}");
}

#[test]
fn unchanged_responses_pass_as_the_same_bytes_with_trailing_ones() {
    let mut lab = Lab::new(false);
    let (key, _) = lab.ask(12, &fetch_request());
    let mut bytes = BytesMut::from(&lab.answer(key, 12, &fetch_response(12))[..]);
    bytes.extend_from_slice(b"\0\0\0");
    let bytes = bytes.freeze();
    assert_eq!(lab.exchange.response(bytes.clone()), bytes);
    assert_eq!(lab.shared.undecodable.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[test]
fn surplus_byte_of_the_mocks_metadata_is_dropped() {
    let mut lab = Lab::new(true);
    let (host, port) = lab.host_and_port(1);
    let ResponseKind::Metadata(mut answer) = metadata(9, &[1]) else {
        panic!()
    };
    answer.brokers[0].host = text(&host);
    answer.brokers[0].port = port;
    let (key, _) = lab.ask(9, &metadata_request());
    let proper = lab.answer(key, 9, &ResponseKind::Metadata(answer));
    let mut surplus = BytesMut::from(&proper[..]);
    surplus.put_u8(0);
    assert_eq!(lab.exchange.response(surplus.freeze()), proper);
}

#[test]
fn api_versions_of_the_mock_is_answered_as_a_broker_does() {
    let mut lab = Lab::new(true);
    let request = RequestKind::ApiVersions(km::ApiVersionsRequest::default().with_client_software_name(text("x")));
    lab.ask(4, &request);
    // Error 35, a count of one byte, (18, 0, 2), throttle time: no version of the response.
    let mut malformed = BytesMut::new();
    malformed.put_i32(4 + 2 + 1 + 6 + 4);
    malformed.put_i32(lab.correlation);
    malformed.put_slice(&[0, 35, 1, 0, 18, 0, 0, 0, 2, 0, 0, 0, 0]);
    let cured = lab.exchange.response(malformed.clone().freeze());
    let (header, body) = (&cured[..8], cured.slice(8..));
    assert_eq!(header[..4], 16i32.to_be_bytes());
    assert_eq!(frame::correlation(header), Some(lab.correlation));
    let answer = km::ApiVersionsResponse::decode(&mut body.clone(), 0).unwrap();
    let range = (
        answer.api_keys[0].api_key,
        answer.api_keys[0].min_version,
        answer.api_keys[0].max_version,
    );
    assert_eq!((answer.error_code, answer.api_keys.len(), range), (35, 1, (18, 0, 2)));
    assert_eq!(lab.errors(), vec![], "the cured answer is no trouble");

    let mut real = Lab::new(false);
    real.ask(4, &request);
    assert_eq!(real.exchange.response(malformed.clone().freeze()), malformed.freeze());
    assert_eq!(real.errors(), vec![("ApiVersions".to_owned(), 35, None, None, None, 1)]);
}

#[test]
fn fetch_rule_strikes_one_partition_as_a_broker_does_and_only_so_many_times() {
    for version in [4, 11, 12, 13, 17] {
        let mut lab = Lab::new(false);
        lab.through(12, &metadata_request(), &metadata(12, &[1]));
        let rule = lab.arm("Fetch", "OFFSET_OUT_OF_RANGE", |rule| {
            rule.topic = some("orders");
            rule.partition = Some(1);
            rule.times = Some(1);
        });
        let request = RequestKind::Fetch(km::FetchRequest::default());
        let ResponseKind::Fetch(struck) = lab.through(version, &request, &fetch_response(version)) else {
            panic!()
        };
        let [kept, struck] = &struck.responses[0].partitions[..] else {
            panic!()
        };
        assert_eq!(
            (kept.error_code, kept.records.as_deref()),
            (0, Some(&b"records"[..])),
            "version {version}"
        );
        assert_eq!(struck.error_code, 1);
        let offsets = (
            struck.high_watermark,
            struck.last_stable_offset,
            struck.log_start_offset,
        );
        assert_eq!(offsets, (-1, -1, -1));
        assert_eq!(struck.records.as_deref(), Some(&b""[..]));
        assert_eq!(struck.aborted_transactions.as_ref().map_or(0, Vec::len), 0);

        let again = lab.through(version, &request, &fetch_response(version));
        assert_eq!(
            again,
            decoded(version, ApiKey::Fetch, &fetch_response(version)),
            "exhausted"
        );
        let counts = lab.shared.rules.counts(rule);
        assert_eq!((counts.matched, counts.triggered, counts.undecodable), (2, 1, 0));
        let injected = (
            "Fetch".to_owned(),
            1,
            some("orders"),
            Some(1),
            some("answer-error-1"),
            1,
        );
        assert_eq!(lab.errors(), vec![injected], "version {version}");
    }
}

/// A response after one way through the wire.
fn decoded(version: i16, key: ApiKey, response: &ResponseKind) -> ResponseKind {
    let bytes = encode(key, version, &ResponseHeader::default(), response).unwrap();
    decode(key as i16, version, &bytes).unwrap().2
}

#[test]
fn rule_without_topic_strikes_every_partition_and_rule_for_another_client_none() {
    let mut lab = Lab::new(false);
    lab.arm("Fetch", "TOPIC_AUTHORIZATION_FAILED", |rule| rule.client = some("r1"));
    let other = lab.arm("Fetch", "NOT_LEADER_OR_FOLLOWER", |rule| rule.client = some("r2"));
    let ResponseKind::Fetch(struck) = lab.through(11, &fetch_request(), &fetch_response(11)) else {
        panic!()
    };
    let codes: Vec<i16> = struck.responses[0]
        .partitions
        .iter()
        .map(|partition| partition.error_code)
        .collect();
    assert_eq!(codes, [29, 29]);
    assert_eq!(lab.shared.rules.counts(other), crate::link::RuleCounts::default());
}

#[test]
fn metadata_rule_clears_the_topic_it_names_and_no_other() {
    let mut lab = Lab::new(false);
    lab.arm("Metadata", "UNKNOWN_TOPIC_OR_PARTITION", |rule| {
        rule.topic = some("orders")
    });
    let passed = lab.through(12, &metadata_request(), &metadata(12, &[1]));
    let ResponseKind::Metadata(passed) = passed else {
        panic!()
    };
    let topics: Vec<_> = passed
        .topics
        .iter()
        .map(|topic| (topic.error_code, topic.partitions.len()))
        .collect();
    assert_eq!(topics, [(3, 0), (0, 2)]);
    assert!(passed.topics[0].topic_id.is_nil());
    assert_eq!(
        lab.errors(),
        vec![(
            "Metadata".to_owned(),
            3,
            some("orders"),
            None,
            some("answer-error-1"),
            1
        )]
    );
}

#[test]
fn metadata_rule_for_a_partition_takes_its_leader_away() {
    let mut lab = Lab::new(false);
    lab.arm("Metadata", "LEADER_NOT_AVAILABLE", |rule| {
        rule.topic = some("orders");
        rule.partition = Some(1);
    });
    let ResponseKind::Metadata(passed) = lab.through(9, &metadata_request(), &metadata(9, &[1])) else {
        panic!()
    };
    let partitions = passed.topics[0]
        .partitions
        .iter()
        .map(|partition| (partition.error_code, partition.leader_id.0));
    assert_eq!(partitions.collect::<Vec<_>>(), [(0, 1), (5, -1)]);
}

#[test]
fn rules_for_offsets_strike_partitions() {
    let mut lab = Lab::new(false);
    let partition = km::list_offsets_response::ListOffsetsPartitionResponse::default()
        .with_offset(9)
        .with_timestamp(9);
    let orders = km::list_offsets_response::ListOffsetsTopicResponse::default()
        .with_name(topic("orders"))
        .with_partitions(vec![partition]);
    let listed = ResponseKind::ListOffsets(km::ListOffsetsResponse::default().with_topics(vec![orders]));
    lab.arm("ListOffsets", "NOT_LEADER_OR_FOLLOWER", |_| {});
    let request = RequestKind::ListOffsets(km::ListOffsetsRequest::default());
    let ResponseKind::ListOffsets(struck) = lab.through(5, &request, &listed) else {
        panic!()
    };
    let struck = &struck.topics[0].partitions[0];
    assert_eq!((struck.error_code, struck.offset, struck.timestamp), (6, -1, -1));

    let partition = km::offset_fetch_response::OffsetFetchResponsePartition::default().with_committed_offset(9);
    let orders = km::offset_fetch_response::OffsetFetchResponseTopic::default()
        .with_name(topic("orders"))
        .with_partitions(vec![partition]);
    let committed = ResponseKind::OffsetFetch(km::OffsetFetchResponse::default().with_topics(vec![orders]));
    let rule = lab.arm("OffsetFetch", "UNSTABLE_OFFSET_COMMIT", |_| {});
    let group = |name: &str| GroupId(text(name));
    let request = RequestKind::OffsetFetch(km::OffsetFetchRequest::default().with_group_id(group("g")));
    let ResponseKind::OffsetFetch(struck) = lab.through(7, &request, &committed) else {
        panic!()
    };
    let partition = &struck.topics[0].partitions[0];
    assert_eq!(
        (struck.error_code, partition.error_code, partition.committed_offset),
        (0, 88, -1)
    );

    // A code of the group stands for the whole response, where the version has a place for it.
    lab.shared.rules.disarm(rule);
    lab.arm("OffsetFetch", "NOT_COORDINATOR", |_| {});
    let ResponseKind::OffsetFetch(struck) = lab.through(7, &request, &committed) else {
        panic!()
    };
    assert_eq!((struck.error_code, struck.topics.len()), (16, 0));
    let ResponseKind::OffsetFetch(struck) = lab.through(1, &request, &committed) else {
        panic!()
    };
    assert_eq!((struck.error_code, struck.topics[0].partitions[0].error_code), (0, 16));

    let partition = km::offset_fetch_response::OffsetFetchResponsePartitions::default().with_committed_offset(9);
    let orders = km::offset_fetch_response::OffsetFetchResponseTopics::default()
        .with_name(topic("orders"))
        .with_partitions(vec![partition]);
    let groups = km::offset_fetch_response::OffsetFetchResponseGroup::default()
        .with_group_id(group("g"))
        .with_topics(vec![orders]);
    let committed = ResponseKind::OffsetFetch(km::OffsetFetchResponse::default().with_groups(vec![groups]));
    let request = RequestKind::OffsetFetch(km::OffsetFetchRequest::default());
    let ResponseKind::OffsetFetch(struck) = lab.through(8, &request, &committed) else {
        panic!()
    };
    assert_eq!((struck.groups[0].error_code, struck.groups[0].topics.len()), (16, 0));
}

#[test]
fn rules_for_group_apis_strike_the_whole_response() {
    let mut lab = Lab::new(false);
    for api in ["FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup"] {
        lab.arm(api, "NOT_COORDINATOR", |_| {});
    }
    let found = km::FindCoordinatorResponse::default()
        .with_node_id(BrokerId(1))
        .with_host(text("x"))
        .with_port(1);
    let request = RequestKind::FindCoordinator(km::FindCoordinatorRequest::default());
    let struck = lab.through(2, &request, &ResponseKind::FindCoordinator(found));
    let ResponseKind::FindCoordinator(struck) = struck else {
        panic!()
    };
    assert_eq!(
        (struck.error_code, struck.node_id.0, struck.host.as_str()),
        (16, -1, "")
    );

    let joined = km::JoinGroupResponse::default()
        .with_generation_id(4)
        .with_member_id(text("m"))
        .with_members(vec![km::join_group_response::JoinGroupResponseMember::default()]);
    let request = RequestKind::JoinGroup(km::JoinGroupRequest::default().with_group_id(GroupId(text("g"))));
    let ResponseKind::JoinGroup(struck) = lab.through(5, &request, &ResponseKind::JoinGroup(joined)) else {
        panic!()
    };
    assert_eq!(
        (struck.error_code, struck.generation_id, struck.members.len()),
        (16, -1, 0)
    );

    let synced = km::SyncGroupResponse::default().with_assignment(Bytes::from_static(b"owned"));
    let request = RequestKind::SyncGroup(km::SyncGroupRequest::default());
    let ResponseKind::SyncGroup(struck) = lab.through(3, &request, &ResponseKind::SyncGroup(synced)) else {
        panic!()
    };
    assert_eq!((struck.error_code, struck.assignment.len()), (16, 0));

    let request = RequestKind::Heartbeat(km::HeartbeatRequest::default());
    let alive = ResponseKind::Heartbeat(km::HeartbeatResponse::default());
    let ResponseKind::Heartbeat(struck) = lab.through(4, &request, &alive) else {
        panic!()
    };
    assert_eq!(struck.error_code, 16);

    let request = RequestKind::LeaveGroup(km::LeaveGroupRequest::default());
    let left = ResponseKind::LeaveGroup(km::LeaveGroupResponse::default());
    let ResponseKind::LeaveGroup(struck) = lab.through(2, &request, &left) else {
        panic!()
    };
    assert_eq!(struck.error_code, 16);
    assert!(lab.errors().iter().all(|error| error.4 == some("answer-error-1")));
}

#[test]
fn response_that_cannot_be_decoded_passes_and_counts_against_the_rule() {
    let mut lab = Lab::new(false);
    let rule = lab.arm("Fetch", "OFFSET_OUT_OF_RANGE", |_| {});
    let (key, _) = lab.ask(11, &fetch_request());
    let whole = lab.answer(key, 11, &fetch_response(11));
    let cut_short = whole.slice(..30);
    assert_eq!(lab.exchange.response(cut_short.clone()), cut_short);
    let counts = lab.shared.rules.counts(rule);
    assert_eq!((counts.matched, counts.triggered, counts.undecodable), (0, 0, 1));
}

#[test]
fn every_trigger_is_counted_in_the_history_and_first_ones_at_once() {
    let mut lab = Lab::new(false);
    lab.arm("Heartbeat", "REBALANCE_IN_PROGRESS", |rule| rule.times = Some(5));
    let request = RequestKind::Heartbeat(km::HeartbeatRequest::default());
    for _ in 0..8 {
        lab.through(4, &request, &ResponseKind::Heartbeat(km::HeartbeatResponse::default()));
    }
    let heartbeat = |count| ("Heartbeat".to_owned(), 27, None, None, some("answer-error-1"), count);
    assert_eq!(lab.errors(), vec![heartbeat(1), heartbeat(4)]);
}

#[test]
fn wire_window_has_requests_and_offsets_that_changed() {
    let mut lab = Lab::new(false);
    let empty = ResponseKind::Fetch(km::FetchResponse::default());
    for _ in 0..2 {
        lab.through(11, &fetch_request(), &empty);
    }
    let windows = |lab: &Lab| {
        let wires = lab.events().into_iter().filter_map(|event| match event {
            Event::Wire {
                client,
                requests,
                fetch_offsets,
                ..
            } => Some((client, requests.into_iter().collect::<Vec<_>>(), fetch_offsets.len())),
            _ => None,
        });
        wires.collect::<Vec<_>>()
    };
    let wire = |count, offsets| ("r1".to_owned(), vec![("Fetch".to_owned(), count)], offsets);
    assert_eq!(windows(&lab), [wire(2, 2)]);
    lab.through(11, &fetch_request(), &empty);
    assert_eq!(windows(&lab), [wire(2, 2), wire(1, 0)]);
    assert_eq!(windows(&lab).len(), 2, "a window without traffic is not recorded");
    assert!(lab.shared.taps.last_request_age_ms("r1", api::FETCH).is_some());
    assert!(lab.shared.taps.last_request_age_ms("", api::FETCH).is_some());
    assert_eq!(lab.shared.taps.last_request_age_ms("r2", api::FETCH), None);
    assert_eq!(lab.shared.taps.last_request_age_ms("r1", api::METADATA), None);
}

#[test]
fn fetch_offsets_by_topic_id_are_named_once_metadata_told_the_name() {
    let mut lab = Lab::new(false);
    let partition = km::fetch_request::FetchPartition::default()
        .with_partition(3)
        .with_fetch_offset(77);
    let orders = km::fetch_request::FetchTopic::default()
        .with_topic_id(ORDERS_ID.parse().unwrap())
        .with_partitions(vec![partition]);
    let request = RequestKind::Fetch(km::FetchRequest::default().with_topics(vec![orders]));
    lab.through(12, &metadata_request(), &metadata(12, &[1]));
    lab.through(15, &request, &ResponseKind::Fetch(km::FetchResponse::default()));
    let found = lab.events().into_iter().find_map(|event| match event {
        Event::Wire { fetch_offsets, .. } => Some(fetch_offsets),
        _ => None,
    });
    let found = found.unwrap();
    assert_eq!(
        (found[0].topic.as_str(), found[0].partition, found[0].offset),
        ("orders", 3, 77)
    );
}

#[test]
fn membership_and_commits_are_read_from_the_wire() {
    let mut lab = Lab::new(true);
    let g = || GroupId(text("g"));
    let join = RequestKind::JoinGroup(km::JoinGroupRequest::default().with_group_id(g()));
    let joined = km::JoinGroupResponse::default()
        .with_generation_id(4)
        .with_member_id(text("m1"));
    lab.through(5, &join, &ResponseKind::JoinGroup(joined));
    let sync = km::SyncGroupRequest::default()
        .with_group_id(g())
        .with_generation_id(4)
        .with_member_id(text("m1"));
    let owned = [
        0, 1, 0, 0, 0, 1, 0, 6, b'o', b'r', b'd', b'e', b'r', b's', 0, 0, 0, 1, 0, 0, 0, 1, 255, 255, 255, 255,
    ];
    let synced = km::SyncGroupResponse::default().with_assignment(Bytes::copy_from_slice(&owned));
    lab.through(3, &RequestKind::SyncGroup(sync), &ResponseKind::SyncGroup(synced));
    let beat = RequestKind::Heartbeat(km::HeartbeatRequest::default().with_group_id(g()).with_generation_id(4));
    for code in [0, 0, 27, 25] {
        let answer = km::HeartbeatResponse::default().with_error_code(code);
        lab.through(4, &beat, &ResponseKind::Heartbeat(answer));
    }
    let leave = RequestKind::LeaveGroup(km::LeaveGroupRequest::default().with_group_id(g()));
    lab.through(2, &leave, &ResponseKind::LeaveGroup(km::LeaveGroupResponse::default()));
    lab.ask(2, &leave);
    lab.exchange.closed_by_client();

    let changes: Vec<GroupChange> = lab
        .events()
        .into_iter()
        .filter_map(|event| match event {
            Event::WireGroup { client, group, change } => {
                assert_eq!((client.as_str(), group.as_str()), ("r1", "g"));
                Some(change)
            }
            _ => None,
        })
        .collect();
    let gone = |how: &str| GroupChange::Gone { how: how.to_owned() };
    let owns = vec![TopicPartition {
        topic: "orders".to_owned(),
        partition: 1,
    }];
    let expected = [
        GroupChange::Joined {
            generation: 4,
            member_id: "m1".to_owned(),
        },
        GroupChange::Synced { generation: 4, owns },
        GroupChange::Alive { generation: 4 },
        gone("UNKNOWN_MEMBER_ID"),
        gone("LeaveGroup"),
        gone("LeaveGroup"),
    ];
    assert_eq!(changes, expected);
}

#[test]
fn commit_answered_by_a_rule_is_recorded_as_the_broker_did_it() {
    let mut lab = Lab::new(false);
    let partition = |partition: i32, offset| {
        km::offset_commit_request::OffsetCommitRequestPartition::default()
            .with_partition_index(partition)
            .with_committed_offset(offset)
    };
    let orders = km::offset_commit_request::OffsetCommitRequestTopic::default()
        .with_name(topic("orders"))
        .with_partitions(vec![partition(0, 5), partition(1, 7)]);
    let request = km::OffsetCommitRequest::default()
        .with_group_id(GroupId(text("g")))
        .with_topics(vec![orders]);
    let answered = |partition: i32, code| {
        km::offset_commit_response::OffsetCommitResponsePartition::default()
            .with_partition_index(partition)
            .with_error_code(code)
    };
    let orders = km::offset_commit_response::OffsetCommitResponseTopic::default()
        .with_name(topic("orders"))
        .with_partitions(vec![answered(0, 0), answered(1, 22)]);
    let answer = km::OffsetCommitResponse::default().with_topics(vec![orders]);
    lab.arm("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", |rule| {
        rule.partition = Some(0)
    });
    let struck = lab.through(
        8,
        &RequestKind::OffsetCommit(request),
        &ResponseKind::OffsetCommit(answer),
    );
    let ResponseKind::OffsetCommit(struck) = struck else {
        panic!()
    };
    assert_eq!(struck.topics[0].partitions[0].error_code, 14);
    let commits: Vec<_> = lab
        .events()
        .into_iter()
        .filter_map(|event| match event {
            Event::WireCommit {
                partition,
                offset,
                code,
                ..
            } => Some((partition, offset, code)),
            _ => None,
        })
        .collect();
    assert_eq!(commits, [(0, 5, 0), (1, 7, 22)]);
    let errors: Vec<_> = lab
        .errors()
        .into_iter()
        .map(|error| (error.1, error.3, error.4))
        .collect();
    assert_eq!(errors, [(14, Some(0), some("answer-error-1")), (22, Some(1), None)]);
}

#[test]
fn invalid_request_in_a_group_is_a_deviation_of_the_mock_unless_a_rule_put_it_there() {
    let deviations = |lab: &Lab| {
        lab.events()
            .iter()
            .filter(|event| matches!(event, Event::Deviation { .. }))
            .count()
    };
    let sync = RequestKind::SyncGroup(km::SyncGroupRequest::default());
    let refused = ResponseKind::SyncGroup(km::SyncGroupResponse::default().with_error_code(42));

    let mut mock = Lab::new(true);
    mock.through(3, &sync, &refused);
    assert_eq!(deviations(&mock), 1);

    let mut real = Lab::new(false);
    real.through(3, &sync, &refused);
    assert_eq!(deviations(&real), 0);

    let mut injected = Lab::new(true);
    injected.arm("SyncGroup", "INVALID_REQUEST", |_| {});
    injected.through(3, &sync, &ResponseKind::SyncGroup(km::SyncGroupResponse::default()));
    assert_eq!(deviations(&injected), 0);
}

#[test]
fn only_the_leader_of_a_mock_group_waits_for_its_followers() {
    let assignment = km::sync_group_request::SyncGroupRequestAssignment::default();
    let leader = km::SyncGroupRequest::default()
        .with_group_id(GroupId(text("g")))
        .with_generation_id(2)
        .with_assignments(vec![assignment.clone(), assignment]);
    let follower = km::SyncGroupRequest::default()
        .with_group_id(GroupId(text("g")))
        .with_generation_id(2);
    for version in [0, 3, 4, 5] {
        let mut lab = Lab::new(true);
        let (_, mark) = lab.ask(version, &RequestKind::SyncGroup(leader.clone()));
        assert!(
            matches!(mark, Mark::Leader(leader) if leader.followers == 1),
            "version {version}"
        );
        let (_, mark) = lab.ask(version, &RequestKind::SyncGroup(follower.clone()));
        assert!(matches!(mark, Mark::Follower { .. }), "version {version}");
    }
    let mut real = Lab::new(false);
    assert!(matches!(real.ask(3, &RequestKind::SyncGroup(leader)).1, Mark::None));
}

#[test]
fn produce_without_answer_leaves_nothing_waiting() {
    let mut lab = Lab::new(false);
    for version in [3, 8, 9] {
        lab.ask(
            version,
            &RequestKind::Produce(km::ProduceRequest::default().with_acks(0)),
        );
        assert!(!lab.exchange.is_waiting(), "version {version}");
    }
    lab.ask(9, &RequestKind::Produce(km::ProduceRequest::default().with_acks(1)));
    assert!(lab.exchange.is_waiting());
}

#[test]
fn every_version_of_tapped_requests_is_read() {
    let partition = km::offset_commit_request::OffsetCommitRequestPartition::default()
        .with_partition_index(3)
        .with_committed_offset(77);
    let commit_topic = km::offset_commit_request::OffsetCommitRequestTopic::default().with_partitions(vec![partition]);
    let fetch_partition = km::fetch_request::FetchPartition::default()
        .with_partition(3)
        .with_fetch_offset(77);
    let fetch_topic = km::fetch_request::FetchTopic::default().with_partitions(vec![fetch_partition]);
    let read = |version, request: &RequestKind| {
        let key = api_of(request);
        let mut out = BytesMut::new();
        out.put_i32(0);
        let header = Header::default()
            .with_request_api_key(key as i16)
            .with_request_api_version(version);
        header
            .with_client_id(None)
            .encode(&mut out, key.request_header_version(version))
            .unwrap();
        request.encode(&mut out, version).unwrap();
        request::body(&RequestHeader::parse(&out).unwrap()).unwrap()
    };
    let one =
        |offsets: Vec<PartitionOffset>| offsets.len() == 1 && (offsets[0].partition, offsets[0].offset) == (3, 77);
    for version in 4..=18 {
        let mut topic_here = fetch_topic.clone();
        if version < 13 {
            topic_here.topic = topic("orders");
        }
        let request = RequestKind::Fetch(km::FetchRequest::default().with_topics(vec![topic_here]));
        let Body::Fetch(offsets) = read(version, &request) else {
            panic!()
        };
        assert!(one(offsets), "Fetch {version}");
    }
    for version in 2..=9 {
        let topic_here = commit_topic.clone().with_name(topic("orders"));
        let request = km::OffsetCommitRequest::default()
            .with_group_id(GroupId(text("g")))
            .with_topics(vec![topic_here]);
        let Body::Commit { group, offsets } = read(version, &RequestKind::OffsetCommit(request)) else {
            panic!()
        };
        assert!(group == "g" && one(offsets), "OffsetCommit {version}");
    }
}
