//! Error codes in responses.

use kafka_protocol::messages::{ResponseKind, TopicName};

use super::exchange::TopicIds;
use super::tap::Trouble;

/// Every error code in a response; codes of 0 are none.
pub(super) fn of(response: &ResponseKind, ids: &TopicIds) -> Vec<Trouble> {
    let mut found = Found(Vec::new());
    match response {
        ResponseKind::Metadata(answer) => {
            found.add(answer.error_code, None, None);
            for topic in &answer.topics {
                let name = || {
                    topic
                        .name
                        .as_ref()
                        .map(|name| name.to_string())
                        .or_else(|| ids.name(topic.topic_id.as_bytes()))
                };
                found.add_with(topic.error_code, name, None);
                for partition in &topic.partitions {
                    found.add_with(partition.error_code, name, Some(partition.partition_index));
                }
            }
        }
        ResponseKind::Fetch(answer) => {
            found.add(answer.error_code, None, None);
            for topic in &answer.responses {
                let name = || ids.resolve(&topic.topic, topic.topic_id.as_bytes());
                for partition in &topic.partitions {
                    found.add_with(partition.error_code, name, Some(partition.partition_index));
                }
            }
        }
        ResponseKind::ListOffsets(answer) => {
            for topic in &answer.topics {
                let codes = topic.partitions.iter().map(|at| (at.error_code, at.partition_index));
                found.partitions(&topic.name, codes);
            }
        }
        ResponseKind::OffsetForLeaderEpoch(answer) => {
            for topic in &answer.topics {
                let codes = topic.partitions.iter().map(|at| (at.error_code, at.partition));
                found.partitions(&topic.topic, codes);
            }
        }
        ResponseKind::FindCoordinator(answer) => {
            found.add(answer.error_code, None, None);
            for coordinator in &answer.coordinators {
                found.add(coordinator.error_code, None, None);
            }
        }
        ResponseKind::JoinGroup(answer) => found.add(answer.error_code, None, None),
        ResponseKind::SyncGroup(answer) => found.add(answer.error_code, None, None),
        ResponseKind::Heartbeat(answer) => found.add(answer.error_code, None, None),
        ResponseKind::ConsumerGroupHeartbeat(answer) => found.add(answer.error_code, None, None),
        ResponseKind::ApiVersions(answer) => found.add(answer.error_code, None, None),
        ResponseKind::SaslHandshake(answer) => found.add(answer.error_code, None, None),
        // Beside the code stand words of the login and a sentence of the broker's, which are not told.
        ResponseKind::SaslAuthenticate(answer) => found.add(answer.error_code, None, None),
        ResponseKind::LeaveGroup(answer) => {
            found.add(answer.error_code, None, None);
            for member in &answer.members {
                found.add(member.error_code, None, None);
            }
        }
        ResponseKind::OffsetCommit(answer) => {
            for topic in &answer.topics {
                let name = || ids.resolve(&topic.name, topic.topic_id.as_bytes());
                for partition in &topic.partitions {
                    found.add_with(partition.error_code, name, Some(partition.partition_index));
                }
            }
        }
        ResponseKind::OffsetFetch(answer) => {
            found.add(answer.error_code, None, None);
            for topic in &answer.topics {
                let codes = topic.partitions.iter().map(|at| (at.error_code, at.partition_index));
                found.partitions(&topic.name, codes);
            }
            for group in &answer.groups {
                found.add(group.error_code, None, None);
                for topic in &group.topics {
                    let name = || ids.resolve(&topic.name, topic.topic_id.as_bytes());
                    for partition in &topic.partitions {
                        found.add_with(partition.error_code, name, Some(partition.partition_index));
                    }
                }
            }
        }
        _ => {}
    }
    found.0
}

struct Found(Vec<Trouble>);

impl Found {
    fn add(&mut self, code: i16, topic: Option<String>, partition: Option<i32>) {
        self.add_with(code, || topic, partition);
    }

    /// The codes at the partitions of a topic that is named.
    fn partitions(&mut self, topic: &TopicName, codes: impl Iterator<Item = (i16, i32)>) {
        for (code, partition) in codes {
            self.add_with(code, || Some(topic.to_string()), Some(partition));
        }
    }

    fn add_with(&mut self, code: i16, topic: impl FnOnce() -> Option<String>, partition: Option<i32>) {
        if code != 0 {
            self.0.push(Trouble {
                code,
                topic: topic(),
                partition: partition.and_then(|partition| u32::try_from(partition).ok()),
            });
        }
    }
}
