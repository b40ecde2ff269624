//! A group as its coordinator tells it: who is a member, what each owns, and what is committed.
//!
//! ```text
//! GroupWatch --DescribeGroups, ConsumerGroupDescribe, OffsetFetch--> coordinator (direct)
//!      what differs from before --> history
//! ```
//!
//! It only asks: it joins no group and commits nothing, so that no rebalance and no session is its doing. Deliberately not
//! here: what a group should look like (`invariant`).

use std::collections::BTreeMap;
use std::time::Duration;

use brokerfall_report::history::{Event, GroupMember, LogEnd};
use brokerfall_report::protocol::TopicPartition;
use kafka_protocol::messages::{
    ConsumerGroupDescribeRequest, DescribeGroupsRequest, GroupId, OffsetFetchRequest, OffsetFetchResponse,
};
use kafka_protocol::protocol::StrBytes;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use super::nodes::Lane;
use super::{Oracle, OracleError, Shared};
use crate::cluster::NodeId;
use crate::cluster::direct::Coordinated;
use crate::link::builtin;

/// How often a coordinator is asked. A rebalance takes longer, and a JVM answers in a millisecond.
const ASK_EVERY: Duration = Duration::from_millis(250);

/// Longest wait for one answer: a coordinator that is stopped must not keep the watch from seeing its successor.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// Versions that Kafka 3.9 and 4 both answer.
mod version {
    pub(super) const DESCRIBE_GROUPS: i16 = 5;
    pub(super) const CONSUMER_GROUP_DESCRIBE: i16 = 0;
    pub(super) const OFFSET_FETCH: i16 = 5;
}

/// The state of a group that its coordinator does not have, or not as one of the old protocol.
const DEAD: &str = "Dead";

/// GROUP_ID_NOT_FOUND: there is no such group of the new protocol either.
const GROUP_ID_NOT_FOUND: i16 = 69;

/// UNSUPPORTED_VERSION: the broker does not speak the new protocol.
const UNSUPPORTED_VERSION: i16 = 35;

/// What a coordinator says of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Described {
    coordinator: NodeId,
    state: String,
    members: Vec<GroupMember>,
}

/// Asks a group's coordinator over and over. Dropping it stops it too, without waiting.
#[derive(Debug)]
#[must_use = "a watch that is dropped stops"]
pub struct GroupWatch {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl GroupWatch {
    /// Stops asking; nothing is recorded after this returns.
    ///
    /// # Errors
    /// [`OracleError::Task`] when it panicked.
    pub async fn stop(self) -> Result<(), OracleError> {
        self.stop.send_replace(true);
        self.task.await.map_err(|source| OracleError::Task { source })
    }
}

impl Oracle {
    /// Starts telling the history of a group, as its coordinator sees it, until the watch is stopped. While no coordinator
    /// answers, what was told last stands.
    pub fn watch_group(&self, group: &str) -> GroupWatch {
        let (stop, mut stopped) = watch::channel(false);
        let mut told = Told::new(group);
        let shared = self.shared.clone();
        let task = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(ASK_EVERY);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    _ = stopped.wait_for(|stop| *stop) => return,
                    _ = ticks.tick() => {}
                }
                tokio::select! {
                    _ = stopped.wait_for(|stop| *stop) => return,
                    looked = told.look(&shared) => {
                        if looked.is_err() {
                            // It moved, or is away: who coordinates now is asked at the next look.
                            told.coordinator = None;
                        }
                    }
                }
            }
        });
        GroupWatch { stop, task }
    }
}

/// What was told last.
struct Told {
    group: String,
    coordinator: Option<NodeId>,
    described: Option<Described>,
    committed: BTreeMap<(String, u32), u64>,
}

impl Told {
    fn new(group: &str) -> Self {
        Told {
            group: group.to_owned(),
            coordinator: None,
            described: None,
            committed: BTreeMap::new(),
        }
    }

    async fn look(&mut self, shared: &Shared) -> Result<(), OracleError> {
        let node = match self.coordinator {
            Some(node) => node,
            None => *self
                .coordinator
                .insert(shared.nodes.coordinator(Coordinated::Group(&self.group)).await?),
        };
        let described = shared.described_by(node, &self.group).await?;
        if self.described.as_ref() != Some(&described) {
            let Described {
                coordinator,
                state,
                members,
            } = described.clone();
            shared.recorder.record(Event::GroupDescribed {
                group: self.group.clone(),
                coordinator,
                state,
                members,
            });
            self.described = Some(described);
        }
        let committed = shared.committed_at(node, &self.group).await?;
        let is_news = |end: &&LogEnd| self.committed.get(&(end.topic.clone(), end.partition)) != Some(&end.offset);
        let offsets: Vec<LogEnd> = committed.iter().filter(is_news).cloned().collect();
        let all = committed.into_iter();
        self.committed = all.map(|end| ((end.topic, end.partition), end.offset)).collect();
        if !offsets.is_empty() {
            let group = self.group.clone();
            shared.recorder.record(Event::CommitsTold { group, offsets });
        }
        Ok(())
    }
}

fn group_id(group: &str) -> GroupId {
    GroupId(StrBytes::from_string(group.to_owned()))
}

impl Shared {
    async fn described_by(&self, node: NodeId, group: &str) -> Result<Described, OracleError> {
        let request = DescribeGroupsRequest::default().with_groups(vec![group_id(group)]);
        let version = version::DESCRIBE_GROUPS;
        let answer = self
            .nodes
            .ask(node, Lane::Read, version, &request, ANSWER_WITHIN)
            .await?;
        let missing = |api| OracleError::Missing {
            api,
            subject: format!("group {group}"),
            missing: "the group",
        };
        let found = answer.groups.first().ok_or_else(|| missing("DescribeGroups"))?;
        refused("DescribeGroups", group, found.error_code)?;
        if found.group_state.as_str() == DEAD
            && let Some(described) = self.described_anew(node, group).await?
        {
            return Ok(described);
        }
        let members = found.members.iter().map(|member| GroupMember {
            member_id: member.member_id.to_string(),
            client: member.client_id.to_string(),
            instance: member.group_instance_id.as_ref().map(ToString::to_string),
            owns: builtin::assignment(&member.member_assignment).unwrap_or_default(),
        });
        Ok(Described {
            coordinator: node,
            state: found.group_state.to_string(),
            members: in_order(members.collect()),
        })
    }

    /// The same of a group of the new protocol (KIP-848); `None` where there is no such group.
    async fn described_anew(&self, node: NodeId, group: &str) -> Result<Option<Described>, OracleError> {
        let request = ConsumerGroupDescribeRequest::default().with_group_ids(vec![group_id(group)]);
        let version = version::CONSUMER_GROUP_DESCRIBE;
        let answer = self
            .nodes
            .ask(node, Lane::Read, version, &request, ANSWER_WITHIN)
            .await?;
        let Some(found) = answer.groups.first() else {
            return Ok(None);
        };
        if matches!(found.error_code, GROUP_ID_NOT_FOUND | UNSUPPORTED_VERSION) {
            return Ok(None);
        }
        refused("ConsumerGroupDescribe", group, found.error_code)?;
        let members = found.members.iter().map(|member| {
            let assigned = member.assignment.topic_partitions.iter();
            let owns = assigned.flat_map(|topic| {
                let partitions = topic.partitions.iter().filter_map(|index| u32::try_from(*index).ok());
                partitions.map(|partition| TopicPartition {
                    topic: topic.topic_name.to_string(),
                    partition,
                })
            });
            let mut owns: Vec<TopicPartition> = owns.collect();
            owns.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
            GroupMember {
                member_id: member.member_id.to_string(),
                client: member.client_id.to_string(),
                instance: member.instance_id.as_ref().map(ToString::to_string),
                owns,
            }
        });
        Ok(Some(Described {
            coordinator: node,
            state: found.group_state.to_string(),
            members: in_order(members.collect()),
        }))
    }

    /// Offsets that stand committed with a coordinator, of every partition that has one.
    async fn committed_at(&self, node: NodeId, group: &str) -> Result<Vec<LogEnd>, OracleError> {
        let request = OffsetFetchRequest::default()
            .with_group_id(group_id(group))
            .with_topics(None);
        let version = version::OFFSET_FETCH;
        let answer = self
            .nodes
            .ask(node, Lane::Read, version, &request, ANSWER_WITHIN)
            .await?;
        refused("OffsetFetch", group, answer.error_code)?;
        Ok(committed(&answer))
    }
}

/// The offsets in an answer, of partitions that have one.
pub(super) fn committed(answer: &OffsetFetchResponse) -> Vec<LogEnd> {
    let mut committed = Vec::new();
    for topic in &answer.topics {
        for partition in topic.partitions.iter().filter(|partition| partition.error_code == 0) {
            // -1 stands for "none".
            if let (Ok(offset), Ok(index)) = (
                u64::try_from(partition.committed_offset),
                u32::try_from(partition.partition_index),
            ) {
                committed.push(LogEnd {
                    topic: topic.name.0.as_str().to_owned(),
                    partition: index,
                    offset,
                });
            }
        }
    }
    committed.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
    committed
}

/// Coordinators list members in no order of their own.
fn in_order(mut members: Vec<GroupMember>) -> Vec<GroupMember> {
    members.sort_by(|a, b| (&a.client, &a.member_id).cmp(&(&b.client, &b.member_id)));
    members
}

fn refused(api: &'static str, group: &str, code: i16) -> Result<(), OracleError> {
    match code {
        0 => Ok(()),
        code => Err(OracleError::Refused {
            api,
            subject: format!("group {group}"),
            code,
        }),
    }
}
