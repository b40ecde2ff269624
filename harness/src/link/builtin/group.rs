//! Group membership and commits, read from the wire.

use std::collections::HashMap;
use std::sync::Mutex;

use brokerfall_report::history::{Event, GroupChange};
use brokerfall_report::protocol::TopicPartition;
use kafka_protocol::messages::consumer_group_heartbeat_response::Assignment;
use kafka_protocol::messages::{ConsumerGroupHeartbeatResponse, OffsetCommitResponse, ResponseKind};

use super::exchange::TopicIds;
use super::frame::Cursor;
use super::request::{Body, PartitionOffset, TopicRef};
use crate::link::codes;

/// Error codes that tell a member that it is none any more.
const GONE: [&str; 4] = [
    "ILLEGAL_GENERATION",
    "UNKNOWN_MEMBER_ID",
    "FENCED_INSTANCE_ID",
    "FENCED_MEMBER_EPOCH",
];
/// Heartbeats of a member that are recorded: one in this time, microseconds.
const ALIVE_EVERY_US: u64 = 1_000_000;

/// Client and group.
type Member = (String, String);

/// A topic's id and partitions of it.
type Given = ([u8; 16], Vec<i32>);

/// What is remembered between responses.
#[derive(Default)]
pub(super) struct Groups {
    alive: Mutex<HashMap<Member, Alive>>,
    /// Partitions that were assigned by topic ids of which Metadata has not told the names yet.
    unnamed: Mutex<HashMap<Member, Vec<Given>>>,
    /// The assignor that a member of each group offered first.
    assignors: Mutex<HashMap<String, String>>,
}

struct Alive {
    generation: i32,
    at_us: u64,
}

impl Groups {
    /// What a response says of its client's membership.
    pub(super) fn changes(
        &self,
        client: &str,
        now_us: u64,
        body: &Body,
        response: &ResponseKind,
        ids: &TopicIds,
    ) -> Vec<Event> {
        if let (Body::Member { group, epoch }, ResponseKind::ConsumerGroupHeartbeat(answer)) = (body, response) {
            let changes = self.heartbeat((client, group), *epoch, now_us, answer, ids);
            return changes.into_iter().map(|change| event(client, group, change)).collect();
        }
        self.change(client, now_us, body, response).into_iter().collect()
    }

    /// What an answer to a heartbeat of KIP-848 says. A member owns what it was assigned last.
    fn heartbeat(
        &self,
        (client, group): (&str, &str),
        asked: i32,
        now_us: u64,
        answer: &ConsumerGroupHeartbeatResponse,
        ids: &TopicIds,
    ) -> Vec<GroupChange> {
        let member = (client.to_owned(), group.to_owned());
        if answer.error_code != 0 {
            return standing(answer.error_code, || None).into_iter().collect();
        }
        if asked < 0 {
            crate::lock(&self.unnamed).remove(&member);
            return vec![left("ConsumerGroupHeartbeat")];
        }
        let mut changes = Vec::new();
        let generation = answer.member_epoch;
        if asked == 0 {
            changes.push(GroupChange::Joined {
                generation,
                member_id: answer.member_id.as_deref().unwrap_or_default().to_owned(),
            });
        }
        let mut unnamed = crate::lock(&self.unnamed);
        let given = answer.assignment.as_ref().map(given);
        if let Some(given) = given.or_else(|| unnamed.remove(&member)) {
            match named(&given, ids) {
                Some(owns) => {
                    unnamed.remove(&member);
                    changes.push(GroupChange::Synced { generation, owns });
                }
                None => drop(unnamed.insert(member, given)),
            }
        } else if self.is_due(client, group, generation, now_us) {
            changes.push(GroupChange::Alive { generation });
        }
        changes
    }

    /// The same of the protocol before it, each of whose requests is about one thing.
    fn change(&self, client: &str, now_us: u64, body: &Body, response: &ResponseKind) -> Option<Event> {
        let (group, change) = match (body, response) {
            (Body::Join { group, assignor }, ResponseKind::JoinGroup(answer)) => {
                if let Some(assignor) = assignor {
                    crate::lock(&self.assignors).insert(group.clone(), assignor.clone());
                }
                let joined = || {
                    Some(GroupChange::Joined {
                        generation: answer.generation_id,
                        member_id: answer.member_id.to_string(),
                    })
                };
                (group, standing(answer.error_code, joined)?)
            }
            (Body::Sync { group, generation, .. }, ResponseKind::SyncGroup(answer)) => {
                let synced = || {
                    Some(GroupChange::Synced {
                        generation: *generation,
                        owns: assignment(&answer.assignment).unwrap_or_default(),
                    })
                };
                (group, standing(answer.error_code, synced)?)
            }
            (Body::Heartbeat { group, generation }, ResponseKind::Heartbeat(answer)) => {
                let alive = || {
                    self.is_due(client, group, *generation, now_us)
                        .then_some(GroupChange::Alive {
                            generation: *generation,
                        })
                };
                (group, standing(answer.error_code, alive)?)
            }
            (Body::Leave { group }, ResponseKind::LeaveGroup(answer)) => {
                (group, standing(answer.error_code, || Some(left("LeaveGroup")))?)
            }
            (Body::Commit { group, .. }, ResponseKind::OffsetCommit(answer)) => {
                let codes = answer.topics.iter().flat_map(|topic| &topic.partitions);
                let gone = codes
                    .filter_map(|partition| standing(partition.error_code, || None))
                    .next()?;
                (group, gone)
            }
            _ => return None,
        };
        Some(event(client, group, change))
    }

    /// The assignor that a member of a group offered first.
    pub(super) fn assignor(&self, group: &str) -> Option<String> {
        crate::lock(&self.assignors).get(group).cloned()
    }

    fn is_due(&self, client: &str, group: &str, generation: i32, now_us: u64) -> bool {
        let mut alive = crate::lock(&self.alive);
        let now = Alive {
            generation,
            at_us: now_us,
        };
        let key = (client.to_owned(), group.to_owned());
        match alive.get(&key) {
            Some(last) if last.generation == generation && now_us < last.at_us + ALIVE_EVERY_US => false,
            _ => {
                alive.insert(key, now);
                true
            }
        }
    }
}

/// A member that left and closed its connection before the answer came.
pub(super) fn left_unanswered(client: &str, body: &Body) -> Option<Event> {
    match body {
        Body::Leave { group } => Some(event(client, group, left("LeaveGroup"))),
        Body::Member { group, epoch } if *epoch < 0 => Some(event(client, group, left("ConsumerGroupHeartbeat"))),
        _ => None,
    }
}

fn given(assignment: &Assignment) -> Vec<Given> {
    let topics = assignment.topic_partitions.iter();
    topics
        .map(|topic| (*topic.topic_id.as_bytes(), topic.partitions.clone()))
        .collect()
}

/// The partitions by name; `None` while the name of a topic is not known.
fn named(given: &[Given], ids: &TopicIds) -> Option<Vec<TopicPartition>> {
    let mut owns = Vec::new();
    for (id, partitions) in given {
        let topic = ids.name(id)?;
        let partitions = partitions.iter().filter_map(|index| u32::try_from(*index).ok());
        owns.extend(partitions.map(|partition| TopicPartition {
            topic: topic.clone(),
            partition,
        }));
    }
    owns.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
    Some(owns)
}

/// The commits that a response answers, with the broker's codes.
pub(super) fn commits(client: &str, body: &Body, answer: &OffsetCommitResponse, ids: &TopicIds) -> Vec<Event> {
    let Body::Commit { group, offsets } = body else {
        return Vec::new();
    };
    let mut events = Vec::new();
    for topic in &answer.topics {
        let Some(name) = ids.resolve(&topic.name, topic.topic_id.as_bytes()) else {
            continue;
        };
        for answered in &topic.partitions {
            let asked = |asked: &&PartitionOffset| {
                asked.partition == answered.partition_index
                    && match &asked.topic {
                        TopicRef::Name(asked) => *asked == name,
                        TopicRef::Id(id) => id == topic.topic_id.as_bytes(),
                    }
            };
            // Negative offsets mean "none" and commit nothing that could be ahead.
            let offset = offsets.iter().find(asked).map(|found| u64::try_from(found.offset));
            if let (Some(Ok(offset)), Ok(partition)) = (offset, u32::try_from(answered.partition_index)) {
                events.push(Event::WireCommit {
                    client: client.to_owned(),
                    group: group.clone(),
                    topic: name.clone(),
                    partition,
                    offset,
                    code: answered.error_code,
                });
            }
        }
    }
    events
}

fn event(client: &str, group: &str, change: GroupChange) -> Event {
    Event::WireGroup {
        client: client.to_owned(),
        group: group.to_owned(),
        change,
    }
}

fn left(how: &str) -> GroupChange {
    GroupChange::Gone { how: how.to_owned() }
}

/// The standing that an error code gives: `well` for none, gone for those that say so, unchanged for others.
fn standing(code: i16, well: impl FnOnce() -> Option<GroupChange>) -> Option<GroupChange> {
    if code == 0 {
        return well();
    }
    let name = codes::name(code);
    GONE.contains(&name).then(|| GroupChange::Gone { how: name.to_owned() })
}

/// The partitions of an assignment of the consumer protocol; `None` when the bytes are something else. All versions
/// start alike: version, topics with partitions, user data. No bytes mean no partitions.
pub(crate) fn assignment(bytes: &[u8]) -> Option<Vec<TopicPartition>> {
    let mut cursor = Cursor::new(bytes);
    let mut owns = Vec::new();
    if bytes.is_empty() {
        return Some(owns);
    }
    cursor.i16()?;
    for _ in 0..cursor.array()? {
        let topic = cursor.string()??.to_owned();
        for _ in 0..cursor.array()? {
            owns.push(TopicPartition {
                topic: topic.clone(),
                partition: u32::try_from(cursor.i32()?).ok()?,
            });
        }
    }
    owns.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
    Some(owns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignment_of_the_consumer_protocol_is_read_and_garbage_is_none() {
        let mut bytes = vec![0, 1, 0, 0, 0, 1, 0, 2, b't', b'1', 0, 0, 0, 2];
        bytes.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 0, 255, 255, 255, 255]);
        let owned = |partition| TopicPartition {
            topic: "t1".to_owned(),
            partition,
        };
        assert_eq!(assignment(&bytes), Some(vec![owned(0), owned(1)]));
        assert_eq!(assignment(&[]), Some(vec![]));
        assert_eq!(assignment(&bytes[..16]), None);
        assert_eq!(assignment(&[0, 1, 127, 255, 255, 255]), None);
    }
}
