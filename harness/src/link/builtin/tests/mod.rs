//! Requests and responses encoded as clients and brokers do, taken through an [`Exchange`].

mod answers;
mod codes;
mod rules;
mod taps;
mod views;

use std::sync::Arc;

use brokerfall_report::history::{Entry, Event};
use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages as km;
use kafka_protocol::messages::{
    ApiKey, BrokerId, GroupId, RequestHeader as Header, RequestKind, ResponseHeader, ResponseKind, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};

use super::broker::Broker;
use super::exchange::{Exchange, Mark, decode, encode};
use super::request::api;
use super::rewrite::Addresses;
use super::{LinkOptions, Shared, ports};
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
        let brokers = ports::reserve(2).unwrap().into_iter().map(Arc::new).zip(1..);
        let brokers: Vec<_> = brokers
            .map(|(port, node)| Arc::new(Broker::new(node, upstream, port).unwrap()))
            .collect();
        let told = brokers.iter().map(|broker| (broker.node, broker.address()));
        let shared = Arc::new(Shared::new(
            Addresses::new(told),
            brokers,
            recorder,
            LinkOptions {
                emulated,
                ..LinkOptions::default()
            },
        ));
        Lab {
            folder,
            exchange: Exchange::new(Arc::clone(&shared)),
            shared,
            correlation: 0,
        }
    }

    fn host_and_port(&self, node: i32) -> (String, i32) {
        let address = self.shared.brokers[usize::try_from(node - 1).unwrap()].address();
        (address.ip().to_string(), address.port().into())
    }

    fn ask(&mut self, version: i16, request: &RequestKind) -> (ApiKey, Mark) {
        let bytes = self.encoded(version, request);
        (api_of(request), self.exchange.request(bytes).1)
    }

    fn encoded(&mut self, version: i16, request: &RequestKind) -> Bytes {
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
        out.freeze()
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
        RequestKind::SaslHandshake(_) => ApiKey::SaslHandshake,
        RequestKind::SaslAuthenticate(_) => ApiKey::SaslAuthenticate,
        RequestKind::OffsetForLeaderEpoch(_) => ApiKey::OffsetForLeaderEpoch,
        RequestKind::ConsumerGroupHeartbeat(_) => ApiKey::ConsumerGroupHeartbeat,
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

/// A response after one way through the wire.
fn decoded(version: i16, key: ApiKey, response: &ResponseKind) -> ResponseKind {
    let bytes = encode(key, version, &ResponseHeader::default(), response).unwrap();
    decode(key as i16, version, &bytes).unwrap().2
}
