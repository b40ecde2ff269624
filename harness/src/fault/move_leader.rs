//! move-leader: a partition gets another leader, as by an election or a reassignment; no broker dies.

use async_trait::async_trait;
use brokerfall_report::history::Place;
use serde::{Deserialize, Serialize};

use super::{Fault, FaultError, Heal, Injected, another, reaction};
use crate::cluster::NodeId;
use crate::run::rig::Rig;

/// `move-leader = { topic = "orders", partition = 0, to = 2 }`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct MoveLeader {
    /// Which topic; default the first.
    #[serde(default)]
    pub topic: Option<String>,
    /// Which partition; default 0.
    #[serde(default)]
    pub partition: Option<u32>,
    /// To which broker; default the next one that is up.
    #[serde(default)]
    pub to: Option<NodeId>,
}

#[async_trait]
impl Fault for MoveLeader {
    fn kind(&self) -> &'static str {
        "move-leader"
    }

    fn text(&self) -> String {
        let topic = self
            .topic
            .as_ref()
            .map_or_else(String::new, |topic| format!(" of {topic}"));
        let to = self
            .to
            .map_or_else(|| "the next broker".to_owned(), |to| format!("broker {to}"));
        format!(
            "move the leader of partition {}{topic} to {to}",
            self.partition.unwrap_or(0)
        )
    }

    fn closes_path(&self) -> bool {
        false
    }

    async fn inject(&self, rig: &Rig, _name: &str) -> Result<Injected, FaultError> {
        let topic = self.topic.clone().unwrap_or_else(|| rig.first_topic().to_owned());
        let partition = self.partition.unwrap_or(0);
        let what = format!("the leader of {topic}-{partition}");
        let from = rig.cluster.leader(&topic, partition).await?;
        let to = another(rig, &what, from, self.to)?;
        let mark = rig.mark();
        let proof = rig.cluster.move_leader(&topic, partition, to).await?;
        let place = Place::Partition {
            topic: topic.clone(),
            partition,
        };
        let moved = Moved {
            topic: topic.clone(),
            partition,
            from,
        };
        let (struck, looked) = (topic.clone(), topic);
        Ok(Injected {
            proof: format!("{proof}, which was broker {from}"),
            delivered: Box::new(move |facts| {
                let away = facts.turned_away_since(mark, "NOT_LEADER_OR_FOLLOWER", Some((&struck, partition)));
                if away > 0 {
                    return Some(format!(
                        "{away} answer(s) about {struck}-{partition}: NOT_LEADER_OR_FOLLOWER"
                    ));
                }
                let told = facts.told_since(mark, &place, from)?;
                Some(format!(
                    "Metadata told {} that broker {} leads {struck}-{partition}",
                    told.client, told.node
                ))
            }),
            // What was written after the reader had learned of the move can only come from the new leader.
            felt: Box::new(move |facts, since| {
                let written = facts
                    .log(&looked, partition)
                    .and_then(|log| log.at_us(since.us))
                    .map_or(0, |log| log.end);
                match facts.position(&looked, partition) {
                    Some(position) if position > written => Some(format!(
                        "it read {looked}-{partition} on from the new leader, up to offset {position}"
                    )),
                    _ => reaction()(facts, since),
                }
            }),
            strikes_later: true,
            heal: Box::new(moved),
        })
    }
}

/// A partition whose leader was moved.
struct Moved {
    topic: String,
    partition: u32,
    from: NodeId,
}

#[async_trait]
impl Heal for Moved {
    async fn heal(self: Box<Self>, rig: &Rig) -> Result<String, FaultError> {
        let Moved { topic, partition, from } = *self;
        if rig.cluster.live().contains(&from) {
            return Ok(rig.cluster.move_leader(&topic, partition, from).await?);
        }
        let leader = rig.cluster.leader(&topic, partition).await?;
        Ok(format!(
            "broker {from} is down, so broker {leader} goes on leading {topic}-{partition}"
        ))
    }
}
