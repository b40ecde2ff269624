//! kill-broker: a broker dies without a word, or is told to stop and hands over what it leads. It is started again on the
//! same port with its data, unless it is gone for good.

use async_trait::async_trait;
use brokerfall_report::history::Place;
use serde::{Deserialize, Serialize};

use super::{BrokerChoice, Fault, FaultError, Heal, Injected, PROOF, list, reaction};
use crate::cluster::{ClusterError, NodeId};
use crate::history::facts::Facts;
use crate::run::rig::Rig;

/// `kill-broker = { broker = "leader" }`, or for good: `kill-broker = { broker = 3, for-good = true }`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct KillBroker {
    /// Which broker.
    pub broker: BrokerChoice,
    /// It never comes back, so that nothing heals it; default false. Needs more than one broker.
    #[serde(default)]
    pub for_good: bool,
    /// What ends it; default SIGKILL.
    #[serde(default)]
    pub by: By,
}

/// What ends a broker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// It dies on the spot.
    #[default]
    Sigkill,
    /// It is told to stop: it hands what it leads to the others first, then ends by itself.
    Sigterm,
}

#[async_trait]
impl Fault for KillBroker {
    fn kind(&self) -> &'static str {
        "kill-broker"
    }

    fn text(&self) -> String {
        let for_good = if self.for_good { " for good" } else { "" };
        let what = match self.by {
            By::Sigkill => "kill",
            By::Sigterm => "stop (SIGTERM)",
        };
        format!("{what} {}{for_good}", self.broker.text())
    }

    fn for_good(&self) -> bool {
        self.for_good
    }

    fn closes_path(&self) -> bool {
        true
    }

    async fn inject(&self, rig: &Rig, _name: &str) -> Result<Injected, FaultError> {
        let chosen = self.broker.nodes(rig).await?;
        let live = rig.cluster.live();
        let nodes: Vec<NodeId> = chosen.iter().copied().filter(|node| live.contains(node)).collect();
        if nodes.is_empty() {
            return Err(FaultError::NotProven {
                what: format!("that broker {} died", list(&chosen)),
                seen: "it was down before".to_owned(),
            });
        }
        let charge = in_charge(rig, &nodes).await?;
        let mark = rig.mark();
        let mut proofs = Vec::new();
        for &node in &nodes {
            // The link first: found lazily, a reader's first connect would still be accepted.
            rig.link.broker_going(node).await?;
            proofs.push(match self.by {
                By::Sigkill => rig.cluster.kill_broker(node, rig.election).await?,
                By::Sigterm => rig.cluster.stop_broker(node).await?,
            });
            rig.prove_refused(node).await?;
        }
        let ended_us = rig.recorder.with(|facts| facts.now().us);
        // Alone, a broker that is back is the same one.
        let led = if rig.plan.cluster.brokers > 1 {
            charge.clone()
        } else {
            Vec::new()
        };
        let nobody_left = rig.cluster.live().is_empty();
        let targets = nodes.clone();
        Ok(Injected {
            proof: format!(
                "{}; the reader's port of broker {} refuses connections",
                proofs.join("; "),
                list(&nodes)
            ),
            delivered: Box::new(move |facts| {
                let closed: u64 = targets.iter().map(|&node| facts.closed_since(mark, Some(node))).sum();
                if closed > 0 {
                    return Some(format!(
                        "{closed} connection(s) of the reader to broker {} closed",
                        list(&targets)
                    ));
                }
                if nobody_left {
                    super::refused_at_start(facts, mark)
                } else {
                    told_of_another(facts, mark, &charge)
                }
            }),
            felt: match self.by {
                By::Sigkill => reaction(),
                By::Sigterm => {
                    Box::new(move |facts, since| reaction()(facts, since).or_else(|| read_on(facts, ended_us, &led)))
                }
            },
            strikes_later: false,
            heal: if self.for_good {
                Box::new(Gone { nodes })
            } else {
                Box::new(Dead { nodes })
            },
        })
    }
}

/// What these brokers lead and coordinate.
pub(super) async fn in_charge(rig: &Rig, nodes: &[NodeId]) -> Result<Vec<(Place, NodeId)>, ClusterError> {
    let mut charge = Vec::new();
    for topic in &rig.plan.topics {
        for partition in 0..rig.partitions(&topic.name) {
            let place = Place::Partition {
                topic: topic.name.clone(),
                partition,
            };
            charge.push((place, rig.cluster.leader(&topic.name, partition).await?));
        }
    }
    if let Some(group) = &rig.group {
        charge.push((Place::Group(group.clone()), rig.cluster.coordinator(group).await?));
    }
    charge.retain(|(_, node)| nodes.contains(node));
    Ok(charge)
}

/// A reader without a connection to the dead broker: it was sent elsewhere for what that broker led or coordinated.
pub(super) fn told_of_another(facts: &Facts, mark: u64, charge: &[(Place, NodeId)]) -> Option<String> {
    charge.iter().find_map(|(place, from)| {
        let told = facts.told_since(mark, place, *from)?;
        Some(format!(
            "{} was told of broker {} instead of broker {from}",
            told.client, told.node
        ))
    })
}

/// A reader that follows in good order says nothing: what was written when the broker had ended can only come from another.
fn read_on(facts: &Facts, ended_us: u64, led: &[(Place, NodeId)]) -> Option<String> {
    led.iter().find_map(|(place, from)| {
        let Place::Partition { topic, partition } = place else {
            return None;
        };
        let written = facts.log(topic, *partition)?.at_us(ended_us)?.end;
        let position = facts
            .position(topic, *partition)
            .filter(|position| *position > written)?;
        Some(format!(
            "it read {topic}-{partition} on from another broker than {from}, up to offset {position}"
        ))
    })
}

/// Brokers that never come back.
struct Gone {
    nodes: Vec<NodeId>,
}

#[async_trait]
impl Heal for Gone {
    async fn heal(self: Box<Self>, rig: &Rig) -> Result<String, FaultError> {
        let rest = rig.prove_served_without(&self.nodes).await?;
        for &node in &self.nodes {
            rig.prove_refused(node).await?;
        }
        Ok(format!(
            "broker {} stays away: Metadata names broker {} alone, which leads every partition, and the ports of the \
             others refuse",
            list(&self.nodes),
            list(&rest)
        ))
    }
}

/// Brokers that are down.
struct Dead {
    nodes: Vec<NodeId>,
}

#[async_trait]
impl Heal for Dead {
    async fn heal(self: Box<Self>, rig: &Rig) -> Result<String, FaultError> {
        // All at once: those of a quorum serve only when most of them are back.
        let started = self.nodes.iter().map(|node| rig.cluster.start_broker(*node));
        let proofs = futures::future::try_join_all(started).await?;
        for &node in &self.nodes {
            rig.link.broker_back(node, PROOF).await?;
        }
        Ok(format!(
            "{}; the reader's port of broker {} accepts again",
            proofs.join("; "),
            list(&self.nodes)
        ))
    }
}
