//! move-leader: other brokers lead partitions, as after an election or a reassignment, and none dies; the heal moves them
//! back.

use async_trait::async_trait;
use brokerfall_report::history::Place;
use serde::{Deserialize, Serialize};

use super::{Fault, FaultError, Heal, Injected, another, place, reaction};
use crate::cluster::NodeId;
use crate::run::rig::Rig;

/// `move-leader = { partition = 0, to = 2 }`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct MoveLeader {
    /// Which topic; default the first.
    #[serde(default)]
    pub topic: Option<String>,
    /// Which partition; default all.
    #[serde(default)]
    pub partition: Option<u32>,
    /// The broker that leads it then; default the next one that lives.
    #[serde(default)]
    pub to: Option<NodeId>,
    /// How it comes to lead; default an election.
    #[serde(default)]
    pub by: By,
}

/// How another broker comes to lead.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// It is made the preferred replica and elected; the old leader goes on holding the partition, and follows.
    #[default]
    Election,
    /// The partition is given to other brokers: the old leader holds nothing of it any more.
    Reassignment,
}

#[async_trait]
impl Fault for MoveLeader {
    fn kind(&self) -> &'static str {
        "move-leader"
    }

    fn text(&self) -> String {
        let place = place(self.topic.as_deref(), self.partition).unwrap_or_else(|| "the first topic".to_owned());
        let to = self
            .to
            .map_or_else(|| "the next broker".to_owned(), |node| format!("broker {node}"));
        match self.by {
            By::Election => format!("move the leader of {place} to {to}"),
            By::Reassignment => format!("take {place} from its leader and give it to {to}"),
        }
    }

    fn closes_path(&self) -> bool {
        false
    }

    async fn inject(&self, rig: &Rig, _name: &str) -> Result<Injected, FaultError> {
        let (topic, partitions) = rig.chosen(self.topic.as_deref(), self.partition);
        let mark = rig.mark();
        let mut moved = Vec::new();
        let mut proofs = Vec::new();
        let mut last = None;
        for partition in partitions {
            let from = rig.cluster.leader(&topic, partition).await?;
            match another(rig, &format!("the leader of {topic}-{partition}"), from, self.to) {
                Ok(to) => {
                    let (proof, held) = match self.by {
                        By::Election => (rig.cluster.move_leader(&topic, partition, to).await?, Vec::new()),
                        By::Reassignment => {
                            let held = rig.cluster.replicas(&topic, partition).await?.all;
                            let after = without(&held, from, to, &rig.cluster.live());
                            (rig.cluster.reassign(&topic, partition, &after).await?, held)
                        }
                    };
                    proofs.push(format!("{proof}, before it was broker {from}"));
                    moved.push(Moved {
                        topic: topic.clone(),
                        partition,
                        from,
                        held,
                        at: tokio::time::Instant::now(),
                    });
                }
                // Of several partitions some may be led by the broker that is named.
                Err(cause) => last = Some(cause),
            }
        }
        if let (true, Some(cause)) = (moved.is_empty(), last) {
            return Err(cause);
        }
        let (struck, read) = (moved.clone(), moved.clone());
        Ok(Injected {
            proof: proofs.join("; "),
            delivered: Box::new(move |facts| {
                struck.iter().find_map(
                    |Moved {
                         topic, partition, from, ..
                     }| {
                        let away = facts.turned_away_since(mark, "NOT_LEADER_OR_FOLLOWER", Some((topic, *partition)));
                        if away > 0 {
                            return Some(format!(
                                "{away} answer(s) about {topic}-{partition}: NOT_LEADER_OR_FOLLOWER"
                            ));
                        }
                        let place = Place::Partition {
                            topic: topic.clone(),
                            partition: *partition,
                        };
                        let told = facts.told_since(mark, &place, *from)?;
                        let (client, node) = (&told.client, told.node);
                        Some(format!(
                            "Metadata told {client} that broker {node} leads {topic}-{partition}"
                        ))
                    },
                )
            }),
            // What was written after the reader had learned of the move can only come from the new leader.
            felt: Box::new(move |facts, since| {
                let read_on = read.iter().find_map(|Moved { topic, partition, .. }| {
                    let written = facts.log(topic, *partition)?.at_us(since.us)?.end;
                    let position = facts
                        .position(topic, *partition)
                        .filter(|position| *position > written)?;
                    Some(format!(
                        "it read {topic}-{partition} on from the new leader, up to offset {position}"
                    ))
                });
                read_on
                    .filter(|_| facts.fixed().is_none())
                    .or_else(|| reaction()(facts, since))
            }),
            strikes_later: true,
            heal: Box::new(Away { moved }),
        })
    }
}

/// A partition whose leader was moved.
#[derive(Clone)]
struct Moved {
    topic: String,
    partition: u32,
    from: NodeId,
    /// The brokers that held it, where they were changed.
    held: Vec<NodeId>,
    at: tokio::time::Instant,
}

/// The brokers that hold a partition once it is taken from its leader: as many as before, where so many are up.
fn without(held: &[NodeId], from: NodeId, to: NodeId, live: &[NodeId]) -> Vec<NodeId> {
    let mut after = vec![to];
    for &node in held.iter().chain(live) {
        if after.len() < held.len() && node != from && !after.contains(&node) {
            after.push(node);
        }
    }
    after
}

/// Leaders that are not where they were.
struct Away {
    moved: Vec<Moved>,
}

#[async_trait]
impl Heal for Away {
    async fn heal(self: Box<Self>, rig: &Rig) -> Result<String, FaultError> {
        let mut proofs = Vec::new();
        for moved in self.moved {
            let Moved {
                topic,
                partition,
                from,
                held,
                at,
            } = moved;
            if rig.cluster.live().contains(&from) {
                let back = if held.is_empty() {
                    rig.cluster.move_leader(&topic, partition, from).await?
                } else {
                    let first = std::iter::once(from);
                    let before: Vec<NodeId> = first.chain(held.into_iter().filter(|node| *node != from)).collect();
                    rig.cluster.reassign(&topic, partition, &before).await?
                };
                proofs.push(format!("{back}, {:.1?} after it had moved away", at.elapsed()));
            } else {
                let leader = rig.cluster.leader(&topic, partition).await?;
                proofs.push(format!(
                    "broker {from} is down, so broker {leader} goes on leading {topic}-{partition}"
                ));
            }
        }
        Ok(proofs.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::without;

    #[test]
    fn partition_taken_from_its_leader_keeps_its_number_of_replicas_where_it_can() {
        assert_eq!(without(&[1, 2], 1, 2, &[1, 2, 3]), [2, 3]);
        assert_eq!(without(&[1, 2], 1, 3, &[1, 2, 3]), [3, 2]);
        assert_eq!(without(&[1, 2, 3], 1, 2, &[1, 2, 3]), [2, 3]);
        assert_eq!(without(&[1], 1, 2, &[1, 2]), [2]);
    }
}
