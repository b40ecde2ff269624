//! Rules: responses answered with an error code.
//!
//! A rule changes a decoded response into what a broker sends with that code. It strikes the next matching response, so
//! up to the client's longest wait (`fetch.max.wait.ms`) after it was armed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use bytes::Bytes;
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::{BrokerId, ResponseKind};

use super::exchange::TopicIds;
use super::request::api;
use super::tap::Trouble;
use crate::link::{AnswerRule, RuleCounts, RuleId, codes};

/// Codes of a fetch session, which stand for the whole response where the version has sessions.
const FETCH_SESSION_CODES: [&str; 3] = [
    "FETCH_SESSION_ID_NOT_FOUND",
    "INVALID_FETCH_SESSION_EPOCH",
    "FETCH_SESSION_TOPIC_ID_ERROR",
];
/// Codes of OffsetFetch that stand for the whole group.
const GROUP_CODES: [&str; 10] = [
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "INVALID_GROUP_ID",
    "GROUP_AUTHORIZATION_FAILED",
    "UNKNOWN_MEMBER_ID",
    "ILLEGAL_GENERATION",
    "GROUP_ID_NOT_FOUND",
    "STALE_MEMBER_EPOCH",
    "UNKNOWN_SERVER_ERROR",
];
/// Codes that LeaveGroup has for a member and not for the whole.
const MEMBER_CODES: [&str; 2] = ["UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID"];
/// Codes with which a broker names no topic id.
const NO_ID_CODES: [&str; 3] = [
    "UNKNOWN_TOPIC_OR_PARTITION",
    "TOPIC_AUTHORIZATION_FAILED",
    "INVALID_TOPIC_EXCEPTION",
];

/// An error code that a rule put into a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Injected {
    pub(super) fault: String,
    pub(super) trouble: Trouble,
}

/// The rules that are armed.
#[derive(Default)]
pub(super) struct Rules {
    /// Bit per api key: whether any rule is armed for it. Keys above 63 share the last bit.
    armed: AtomicU64,
    list: Mutex<Vec<Armed>>,
    next: AtomicU64,
}

struct Armed {
    id: RuleId,
    api: i16,
    rule: AnswerRule,
    counts: RuleCounts,
}

impl Rules {
    pub(super) fn arm(&self, rule: AnswerRule) -> RuleId {
        let id = RuleId(self.next.fetch_add(1, Ordering::Relaxed));
        let mut list = self.lock();
        list.push(Armed {
            id,
            // A name that no api has matches nothing, and the counts say so.
            api: codes::api_key(&rule.api).unwrap_or(i16::MIN),
            rule,
            counts: RuleCounts::default(),
        });
        self.index(&list);
        id
    }

    pub(super) fn disarm(&self, id: RuleId) -> RuleCounts {
        let mut list = self.lock();
        let counts = counts(&list, id);
        list.retain(|armed| armed.id != id);
        self.index(&list);
        counts
    }

    #[cfg(test)]
    pub(super) fn counts(&self, id: RuleId) -> RuleCounts {
        counts(&self.lock(), id)
    }

    /// Whether any rule is armed for an api. Cheap.
    pub(super) fn is_armed(&self, api: i16) -> bool {
        self.armed.load(Ordering::Relaxed) & bit(api) != 0
    }

    /// Applies every rule of this api to a response and says what was put into it.
    pub(super) fn apply(
        &self,
        client: &str,
        (api, version): (i16, i16),
        response: &mut ResponseKind,
        ids: &TopicIds,
    ) -> Vec<Injected> {
        let mut injected = Vec::new();
        if !self.is_armed(api) {
            return injected;
        }
        for armed in self.lock().iter_mut().filter(|armed| armed.hears(client, api)) {
            let due = armed.rule.times.is_none_or(|times| armed.counts.triggered < times);
            let rule = &armed.rule;
            let aim = Aim {
                code: rule.code,
                topics: rule.topic.is_some(),
                partitions: rule.partition.is_some(),
                wants: &|topic, partition| {
                    (rule.topic.is_none() || rule.topic.as_deref() == topic)
                        && (rule.partition.is_none() || rule.partition == partition)
                },
            };
            let troubles = strike(&aim, version, response, ids, due);
            if troubles.is_empty() {
                continue;
            }
            armed.counts.matched += 1;
            if due {
                armed.counts.triggered += 1;
                injected.extend(troubles.into_iter().map(|trouble| Injected {
                    fault: armed.rule.fault.clone(),
                    trouble,
                }));
            }
        }
        injected
    }

    /// Counts a response that could not be decoded for the rules that might have matched it.
    pub(super) fn undecodable(&self, client: &str, api: i16) {
        if self.is_armed(api) {
            for armed in self.lock().iter_mut().filter(|armed| armed.hears(client, api)) {
                armed.counts.undecodable += 1;
            }
        }
    }

    fn index(&self, list: &[Armed]) {
        let bits = list.iter().fold(0, |bits, armed| bits | bit(armed.api));
        self.armed.store(bits, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Armed>> {
        crate::lock(&self.list)
    }
}

impl Armed {
    fn hears(&self, client: &str, api: i16) -> bool {
        self.api == api && self.rule.client.as_deref().is_none_or(|wanted| wanted == client)
    }
}

fn counts(list: &[Armed], id: RuleId) -> RuleCounts {
    list.iter()
        .find(|armed| armed.id == id)
        .map(|armed| armed.counts)
        .unwrap_or_default()
}

fn bit(api: i16) -> u64 {
    match u32::try_from(api) {
        Ok(key) => 1 << key.min(63),
        Err(_) => 0,
    }
}

/// What a code is put into, and where.
pub(super) struct Aim<'a> {
    pub(super) code: i16,
    /// It names a topic, so that codes of a whole response do not stand for it.
    pub(super) topics: bool,
    /// It names partitions.
    pub(super) partitions: bool,
    /// Whether it means this topic and, where one is given, this partition.
    pub(super) wants: &'a dyn Fn(Option<&str>, Option<u32>) -> bool,
}

/// Finds where a response is meant and, where `change`, puts the code there as a broker does.
pub(super) fn strike(
    aim: &Aim<'_>,
    version: i16,
    response: &mut ResponseKind,
    ids: &TopicIds,
    change: bool,
) -> Vec<Trouble> {
    let code = aim.code;
    let name = codes::name(code);
    let mut hits = Hits { aim, found: Vec::new() };
    match response {
        ResponseKind::Metadata(answer) => {
            for topic in &mut answer.topics {
                let text = topic.name.as_ref().map(|name| name.to_string());
                let text = text.or_else(|| ids.name(topic.topic_id.as_bytes()));
                if !aim.partitions {
                    if hits.topic(text) && change {
                        topic.error_code = code;
                        topic.partitions.clear();
                        if NO_ID_CODES.contains(&name) {
                            topic.topic_id = Default::default();
                        }
                    }
                    continue;
                }
                for partition in &mut topic.partitions {
                    if hits.partition(&text, partition.partition_index) && change {
                        partition.error_code = code;
                        // A broker names the leader with this code alone.
                        if name != "REPLICA_NOT_AVAILABLE" {
                            partition.leader_id = BrokerId(-1);
                        }
                    }
                }
            }
        }
        ResponseKind::Fetch(answer) if version >= 7 && !aim.topics && FETCH_SESSION_CODES.contains(&name) => {
            hits.whole();
            if change {
                answer.error_code = code;
                answer.session_id = 0;
                answer.responses.clear();
            }
        }
        ResponseKind::Fetch(answer) => {
            for topic in &mut answer.responses {
                let text = ids.resolve(&topic.topic, topic.topic_id.as_bytes());
                for partition in &mut topic.partitions {
                    if hits.partition(&text, partition.partition_index) && change {
                        partition.error_code = code;
                        partition.high_watermark = -1;
                        partition.last_stable_offset = -1;
                        partition.log_start_offset = -1;
                        partition.aborted_transactions = None;
                        partition.records = Some(Bytes::new());
                    }
                }
            }
        }
        ResponseKind::ListOffsets(answer) => {
            for topic in &mut answer.topics {
                let text = Some(topic.name.to_string());
                for partition in &mut topic.partitions {
                    if hits.partition(&text, partition.partition_index) && change {
                        partition.error_code = code;
                        partition.timestamp = -1;
                        partition.offset = -1;
                        partition.leader_epoch = -1;
                    }
                }
            }
        }
        ResponseKind::OffsetForLeaderEpoch(answer) => {
            for topic in &mut answer.topics {
                let text = Some(topic.topic.to_string());
                for partition in &mut topic.partitions {
                    if hits.partition(&text, partition.partition) && change {
                        partition.error_code = code;
                        partition.leader_epoch = -1;
                        partition.end_offset = -1;
                    }
                }
            }
        }
        ResponseKind::FindCoordinator(answer) => {
            hits.whole();
            if change && answer.coordinators.is_empty() {
                answer.error_code = code;
                answer.node_id = BrokerId(-1);
                answer.host = Default::default();
                answer.port = -1;
            }
            if change {
                for coordinator in &mut answer.coordinators {
                    coordinator.error_code = code;
                    coordinator.node_id = BrokerId(-1);
                    coordinator.host = Default::default();
                    coordinator.port = -1;
                }
            }
        }
        ResponseKind::JoinGroup(answer) => {
            hits.whole();
            if change {
                answer.error_code = code;
                answer.generation_id = -1;
                // No protocol is chosen; before version 7 that has no null.
                answer.protocol_type = None;
                answer.protocol_name = (version < 7).then(Default::default);
                answer.leader = Default::default();
                answer.members.clear();
            }
        }
        ResponseKind::SyncGroup(answer) => {
            hits.whole();
            if change {
                answer.error_code = code;
                answer.assignment = Bytes::new();
                answer.protocol_type = None;
                answer.protocol_name = None;
            }
        }
        ResponseKind::Heartbeat(answer) => {
            hits.whole();
            if change {
                answer.error_code = code;
            }
        }
        ResponseKind::ConsumerGroupHeartbeat(answer) => {
            hits.whole();
            if change {
                answer.error_code = code;
                answer.member_id = None;
                answer.member_epoch = 0;
                answer.heartbeat_interval_ms = 0;
                answer.assignment = None;
            }
        }
        ResponseKind::ApiVersions(answer) => {
            hits.whole();
            if change {
                answer.error_code = code;
                // With UNSUPPORTED_VERSION a broker names the versions of this one api, with others none.
                let is_named = |api: &ApiVersion| name == "UNSUPPORTED_VERSION" && api.api_key == api::API_VERSIONS;
                answer.api_keys.retain(is_named);
                answer.supported_features.clear();
                answer.finalized_features.clear();
                answer.finalized_features_epoch = -1;
                answer.zk_migration_ready = false;
            }
        }
        ResponseKind::SaslHandshake(answer) => {
            hits.whole();
            if change {
                answer.error_code = code;
                // The one that was asked for is not among those that a broker which refuses it names.
                answer.mechanisms.clear();
            }
        }
        ResponseKind::SaslAuthenticate(answer) => {
            hits.whole();
            if change {
                answer.error_code = code;
                answer.error_message = None;
                answer.auth_bytes = Bytes::new();
                answer.session_lifetime_ms = 0;
            }
        }
        ResponseKind::LeaveGroup(answer) => {
            hits.whole();
            // What is wrong with one member stands beside it, where the answer names members.
            if change && version >= 3 && MEMBER_CODES.contains(&name) {
                for member in &mut answer.members {
                    member.error_code = code;
                }
            } else if change {
                answer.error_code = code;
                answer.members.clear();
            }
        }
        ResponseKind::OffsetCommit(answer) => {
            for topic in &mut answer.topics {
                let text = ids.resolve(&topic.name, topic.topic_id.as_bytes());
                for partition in &mut topic.partitions {
                    if hits.partition(&text, partition.partition_index) && change {
                        partition.error_code = code;
                    }
                }
            }
        }
        // Before version 2 there is no code for the whole group; it then stands at every partition.
        ResponseKind::OffsetFetch(answer) if version >= 2 && !aim.topics && GROUP_CODES.contains(&name) => {
            hits.whole();
            if change && version < 8 {
                answer.error_code = code;
                answer.topics.clear();
            }
            if change {
                for group in &mut answer.groups {
                    group.error_code = code;
                    group.topics.clear();
                }
            }
        }
        ResponseKind::OffsetFetch(answer) => {
            for topic in &mut answer.topics {
                let text = Some(topic.name.to_string());
                for partition in &mut topic.partitions {
                    if hits.partition(&text, partition.partition_index) && change {
                        partition.error_code = code;
                        partition.committed_offset = -1;
                    }
                }
            }
            for topic in answer.groups.iter_mut().flat_map(|group| &mut group.topics) {
                let text = ids.resolve(&topic.name, topic.topic_id.as_bytes());
                for partition in &mut topic.partitions {
                    if hits.partition(&text, partition.partition_index) && change {
                        partition.error_code = code;
                        partition.committed_offset = -1;
                    }
                }
            }
        }
        _ => {}
    }
    hits.found
}

/// Where an aim matches.
struct Hits<'a> {
    aim: &'a Aim<'a>,
    found: Vec<Trouble>,
}

impl Hits<'_> {
    fn whole(&mut self) {
        self.add(None, None);
    }

    fn topic(&mut self, topic: Option<String>) -> bool {
        let hit = (self.aim.wants)(topic.as_deref(), None);
        if hit {
            self.add(topic, None);
        }
        hit
    }

    fn partition(&mut self, topic: &Option<String>, partition: i32) -> bool {
        let partition = u32::try_from(partition).ok();
        let hit = (self.aim.wants)(topic.as_deref(), partition);
        if hit {
            self.add(topic.clone(), partition);
        }
        hit
    }

    fn add(&mut self, topic: Option<String>, partition: Option<u32>) {
        self.found.push(Trouble {
            code: self.aim.code,
            topic,
            partition,
        });
    }
}
