//! Requests and responses of one connection: what is tapped, changed and passed on.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use brokerfall_report::history::{Event, FailureOf};
use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, MetadataRequest, RequestHeader as Header, ResponseHeader, ResponseKind};
use kafka_protocol::protocol::{Decodable, Encodable};

use super::cure::{self, LeaderSync, SyncGate};
use super::frame::{self, RequestHeader};
use super::request::{self, Body, PartitionOffset, TopicRef, api};
use super::tap::{Trouble, api_name};
use super::{Shared, group, trouble};

/// Names of topic ids, learnt from Metadata on the way.
#[derive(Default)]
pub(super) struct TopicIds(RwLock<HashMap<[u8; 16], String>>);

impl TopicIds {
    /// The name of an id, where it is known.
    pub(super) fn name(&self, id: &[u8; 16]) -> Option<String> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    /// The name of a topic that a response names or gives an id for.
    pub(super) fn resolve(&self, name: &str, id: &[u8; 16]) -> Option<String> {
        if name.is_empty() {
            self.name(id)
        } else {
            Some(name.to_owned())
        }
    }

    pub(super) fn learn(&self, id: &[u8; 16], name: &str) {
        if *id != [0; 16] && self.name(id).as_deref() != Some(name) {
            self.0
                .write()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(*id, name.to_owned());
        }
    }
}

/// What sending a request means for the order of SyncGroups.
#[derive(Debug, Clone, Default)]
pub(super) enum Mark {
    #[default]
    None,
    /// It has to wait for its followers.
    Leader(LeaderSync),
    /// Once it went up, its leader may go.
    Follower {
        group: String,
        generation: i32,
        member: String,
    },
}

/// The state of one connection's protocol.
pub(super) struct Exchange {
    shared: Arc<Shared>,
    /// `client.id` of the first request; absent before.
    client: Option<String>,
    /// Requests that wait for their answer. A map, since a Produce with acks=0 has none.
    pending: HashMap<i32, Pending>,
    /// What comes may be words of a login that have no header, and are nobody's to read.
    bare_login: bool,
}

struct Pending {
    api: i16,
    version: i16,
    body: Body,
}

impl Exchange {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Exchange {
            shared,
            client: None,
            pending: HashMap::new(),
            bare_login: false,
        }
    }

    /// `client.id`, once the client has told one.
    pub(super) fn client(&self) -> Option<&str> {
        self.client.as_deref()
    }

    /// Whether a request waits for its answer.
    pub(super) fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether the mock would not notice that this connection is closed with FIN. While a JoinGroup or SyncGroup waits it
    /// does not look at the connection, and when the member comes back on another it aborts over the answer that it still
    /// owes (librdkafka 2.12, rdkafka_mock_cgrp.c, `!member->resp`). RST it does notice. With other requests in the
    /// connection FIN stays FIN: the mock reads them later, a LeaveGroup among them.
    pub(super) fn is_closed_unnoticed(&self) -> bool {
        let joins = |pending: &Pending| matches!(pending.body, Body::Join { .. } | Body::Sync { .. });
        self.shared.options.emulated && self.is_waiting() && self.pending.values().all(joins)
    }

    /// Takes in a request on its way up and returns what to send instead.
    pub(super) fn request(&mut self, bytes: Bytes) -> (Bytes, Mark) {
        let header = RequestHeader::parse(&bytes);
        if self.bare_login {
            // Words of a login end where the next request says whose it is.
            let is_request = |header: &RequestHeader<'_>| Some(header.client) == self.client() && header.is_known();
            if !header.as_ref().is_some_and(is_request) {
                return (bytes, Mark::None);
            }
            self.bare_login = false;
        }
        let Some(header) = header else {
            self.shared.count_undecodable();
            return (bytes, Mark::None);
        };
        let client = self.client.get_or_insert_with(|| header.client.to_owned()).as_str();
        self.shared.taps.request(client, header.api);
        let mut body = request::body(&header).unwrap_or_else(|| {
            self.shared.count_undecodable();
            Body::Other
        });
        let mut mark = Mark::None;
        let (api, version, correlation) = (header.api, header.version, header.correlation);
        let mut instead = None;
        match &mut body {
            Body::ProduceUnanswered => return (bytes, mark),
            Body::BareLogin => self.bare_login = true,
            Body::Metadata(asked) if version >= 1 && self.shared.views.hide_in(api) => {
                asked.withheld = self.shared.views.withheld(&asked.names);
                if !asked.withheld.is_empty() {
                    instead = without_topics(version, &bytes, &asked.withheld);
                    if instead.is_none() {
                        self.shared.count_undecodable();
                        asked.withheld.clear();
                    }
                }
            }
            Body::Fetch(offsets) => self.shared.tap_fetch(client, offsets),
            Body::Sync {
                group,
                generation,
                member,
                assignments,
            } if self.shared.options.emulated => {
                mark = if *assignments > 0 {
                    Mark::Leader(SyncGate::leader(group, *generation, *assignments))
                } else {
                    Mark::Follower {
                        group: group.clone(),
                        generation: *generation,
                        member: member.clone(),
                    }
                };
            }
            _ => {}
        }
        let body = if matches!(body, Body::Fetch(_)) {
            Body::Other
        } else {
            body
        };
        self.pending.insert(correlation, Pending { api, version, body });
        (instead.unwrap_or(bytes), mark)
    }

    /// The api that a response answers.
    pub(super) fn api_of(&self, response: &[u8]) -> Option<i16> {
        let pending = self.pending.get(&frame::correlation(response)?)?;
        Some(pending.api)
    }

    /// Takes in a response on its way down and returns what to send instead.
    pub(super) fn response(&mut self, mut bytes: Bytes) -> Bytes {
        let Some(pending) = frame::correlation(&bytes).and_then(|id| self.pending.remove(&id)) else {
            return bytes;
        };
        let client = self.client.as_deref().unwrap_or_default();
        let shared = &self.shared;
        let (api, version) = (pending.api, pending.version);
        if api == api::API_VERSIONS {
            bytes = shared.api_versions(client, version, bytes);
            // An error of the broker's own comes as version 0, whatever was asked, and stays what it is.
            if error_at_start(&bytes) != 0 {
                return bytes;
            }
        }
        if !(is_read(api, version) || shared.rules.is_armed(api) || shared.views.hide_in(api)) {
            return bytes;
        }
        let mut is_cured = shared.options.emulated && api == api::METADATA;
        let decoded = decode(api, version, &bytes).or_else(|| {
            let cured = shared.options.emulated.then(|| cure::nulls(api, version, &bytes))??;
            is_cured = true;
            Some((ApiKey::try_from(api).ok()?, header(&bytes)?, cured))
        });
        let Some((key, header, mut response)) = decoded else {
            shared.count_undecodable();
            shared.rules.undecodable(client, api);
            shared.views.undecodable(api);
            if names_addresses(api) {
                shared.fail(format!(
                    "a {} response of version {version} cannot be decoded, so the addresses in it are the brokers' own \
                     (the reader goes round the link)",
                    api_name(api)
                ));
            }
            return bytes;
        };
        if let ResponseKind::Metadata(answer) = &response {
            for topic in &answer.topics {
                if let Some(name) = &topic.name {
                    shared.topic_ids.learn(topic.topic_id.as_bytes(), name);
                }
            }
        }
        let rewritten = shared.addresses.rewrite(&mut response);
        for stranger in rewritten.strangers {
            shared.fail(format!(
                "a {} response names {stranger}, which the link does not stand in front of",
                api_name(api)
            ));
        }
        // A commit that a rule answers with an error has happened all the same.
        if let ResponseKind::OffsetCommit(answer) = &response {
            shared.record_all(group::commits(client, &pending.body, answer, &shared.topic_ids));
        }
        let asked = match &pending.body {
            Body::Metadata(asked) => Some(asked),
            _ => None,
        };
        let ids = &shared.topic_ids;
        let shown = shared.views.apply(client, (api, version), asked, &mut response, ids);
        let mut injected = shown.injected;
        injected.extend(shared.rules.apply(client, (api, version), &mut response, ids));
        let changed = rewritten.changed || shown.changed || !injected.is_empty();
        for trouble in trouble::of(&response, &shared.topic_ids) {
            let by = injected.iter().find(|injected| injected.trouble == trouble);
            if by.is_none() {
                shared.watch_for_deviation(client, api, &trouble);
            }
            shared
                .taps
                .error(client, api, trouble, by.map(|injected| injected.fault.clone()));
        }
        shared.record_all(shared.told.news(client, &pending.body, &response, &shared.topic_ids));
        let now_us = shared.taps.recorder().now_us();
        let ids = &shared.topic_ids;
        shared.record_all(shared.groups.changes(client, now_us, &pending.body, &response, ids));
        // The mock ends Metadata with a surplus byte; encoding it anew drops it.
        if !changed && !is_cured {
            return bytes;
        }
        encode(key, version_of_error(version, &response), &header, &response).unwrap_or_else(|cause| {
            shared.fail(format!(
                "a {} response of version {version} cannot be encoded after it was changed: {cause}",
                api_name(api)
            ));
            bytes
        })
    }

    /// The client closed the connection. Some leave their group and do not wait for the answer.
    pub(super) fn closed_by_client(&mut self) {
        let client = self.client.as_deref().unwrap_or_default();
        for pending in self.pending.values() {
            self.shared.record_all(group::left_unanswered(client, &pending.body));
        }
        self.pending.clear();
    }
}

/// Responses that are always read. The others pass as they are unless a rule is armed for them.
fn is_read(api: i16, version: i16) -> bool {
    match api {
        // Addresses of brokers stand in Produce from version 10 on.
        api::PRODUCE => version >= 10,
        // No copy is made of record batches. Versions before 4 cannot be decoded.
        api::FETCH => version >= 4,
        api::LIST_OFFSETS => version >= 1,
        api::METADATA
        | api::FIND_COORDINATOR
        | api::DESCRIBE_CLUSTER
        | api::JOIN_GROUP
        | api::SYNC_GROUP
        | api::HEARTBEAT
        | api::LEAVE_GROUP
        | api::SASL_HANDSHAKE
        | api::SASL_AUTHENTICATE
        | api::CONSUMER_GROUP_HEARTBEAT => true,
        api::OFFSET_COMMIT | api::OFFSET_FOR_LEADER_EPOCH => version >= 2,
        api::OFFSET_FETCH => version >= 1,
        _ => false,
    }
}

fn names_addresses(api: i16) -> bool {
    matches!(api, api::METADATA | api::FIND_COORDINATOR | api::DESCRIBE_CLUSTER)
}

/// UNSUPPORTED_VERSION is told in the one version that every client reads.
fn version_of_error(version: i16, response: &ResponseKind) -> i16 {
    match response {
        ResponseKind::ApiVersions(answer) if answer.error_code == cure::UNSUPPORTED_VERSION => 0,
        _ => version,
    }
}

/// The error code of an ApiVersions response, with which its body begins in every version.
fn error_at_start(frame: &[u8]) -> i16 {
    let code = frame.get(8..10).and_then(|code| code.try_into().ok());
    code.map_or(0, i16::from_be_bytes)
}

/// The header of a response whose body cannot be decoded.
fn header(frame: &[u8]) -> Option<ResponseHeader> {
    frame::correlation(frame).map(|id| ResponseHeader::default().with_correlation_id(id))
}

/// A Metadata request without some topics; `None` when it cannot be encoded anew. It was read once, so the lengths of its
/// arrays are those of what is there.
fn without_topics(version: i16, frame: &Bytes, topics: &[Trouble]) -> Option<Bytes> {
    let key = ApiKey::Metadata;
    let header_version = key.request_header_version(version);
    let mut body = frame.slice(4..);
    let header = Header::decode(&mut body, header_version).ok()?;
    let mut request = MetadataRequest::decode(&mut body, version).ok()?;
    request.topics.as_mut()?.retain(|asked| {
        let name = asked.name.as_ref().map(|name| name.as_str());
        !topics.iter().any(|topic| topic.topic.as_deref() == name)
    });
    let mut out = BytesMut::with_capacity(frame.len());
    out.put_i32(0);
    header.encode(&mut out, header_version).ok()?;
    request.encode(&mut out, version).ok()?;
    prefixed(out).ok()
}

/// Bytes left over after the last field are tolerated: librdkafka and its mock both send some.
pub(super) fn decode(api: i16, version: i16, frame: &Bytes) -> Option<(ApiKey, ResponseHeader, ResponseKind)> {
    let key = ApiKey::try_from(api).ok()?;
    let versions = key.valid_versions();
    if !(versions.min..=versions.max).contains(&version) {
        return None;
    }
    let mut body = frame.slice(4..);
    let header = ResponseHeader::decode(&mut body, key.response_header_version(version)).ok()?;
    let response = ResponseKind::decode(key, &mut body, version).ok()?;
    Some((key, header, response))
}

pub(super) fn encode(
    key: ApiKey,
    version: i16,
    header: &ResponseHeader,
    response: &ResponseKind,
) -> Result<Bytes, String> {
    let mut out = BytesMut::with_capacity(1024);
    out.put_i32(0);
    header
        .encode(&mut out, key.response_header_version(version))
        .and_then(|()| response.encode(&mut out, version))
        .map_err(|cause| cause.to_string())?;
    prefixed(out)
}

/// Puts the length where four bytes were left for it.
fn prefixed(mut frame: BytesMut) -> Result<Bytes, String> {
    let len = i32::try_from(frame.len() - 4).map_err(|cause| cause.to_string())?;
    frame[..4].copy_from_slice(&len.to_be_bytes());
    Ok(frame.freeze())
}

impl Shared {
    fn api_versions(&self, client: &str, version: i16, bytes: Bytes) -> Bytes {
        if self.options.emulated
            && let Some(cured) = cure::api_versions(version, &bytes)
        {
            return cured;
        }
        let code = error_at_start(&bytes);
        if code != 0 {
            let trouble = Trouble {
                code,
                topic: None,
                partition: None,
            };
            self.taps.error(client, api::API_VERSIONS, trouble, None);
        }
        bytes
    }

    fn tap_fetch(&self, client: &str, offsets: &[PartitionOffset]) {
        for asked in offsets {
            let topic = match &asked.topic {
                TopicRef::Name(name) => Some(name.clone()),
                TopicRef::Id(id) => self.topic_ids.name(id),
            };
            // A negative offset asks for none.
            if let (Some(topic), Ok(partition), Ok(offset)) =
                (topic, u32::try_from(asked.partition), u64::try_from(asked.offset))
            {
                self.taps.fetch_offset(client, topic, partition, offset);
            }
        }
    }

    /// INVALID_REQUEST to a SyncGroup or Heartbeat is the mock's doing; aiokafka dies of it.
    fn watch_for_deviation(&self, client: &str, api: i16, trouble: &Trouble) {
        const INVALID_REQUEST: i16 = 42;
        if self.options.emulated && trouble.code == INVALID_REQUEST && matches!(api, api::SYNC_GROUP | api::HEARTBEAT) {
            let text = format!(
                "the mock cluster answered INVALID_REQUEST to a {} of {client:?}",
                api_name(api)
            );
            self.record_all([Event::Deviation { text }]);
        }
    }

    /// Records a failure of the harness, each once.
    pub(super) fn fail(&self, text: String) {
        let mut failures = crate::lock(&self.failures);
        if failures.insert(text.clone()) {
            drop(failures);
            let of = FailureOf::Harness;
            self.record_all([Event::Failure { of, text }]);
        }
    }
}
