//! roll-brokers: every broker in turn is told to stop and started again, as an operator rolls out a new version.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::kill_broker::{in_charge, told_of_another};
use super::{Fault, FaultError, Heal, Injected, PROOF, reaction};
use crate::cluster::NodeId;
use crate::run::rig::Rig;

/// `roll-brokers = { gate = "in-sync" }`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RollBrokers {
    /// What is waited for before the next broker is stopped; default that all replicas are in sync again.
    #[serde(default)]
    pub gate: Gate,
}

/// What is waited for between two brokers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gate {
    /// Every broker names all others, and every partition has all of its replicas in sync.
    #[default]
    InSync,
    /// Nothing but that the broker is back and answers.
    None,
}

#[async_trait]
impl Fault for RollBrokers {
    fn kind(&self) -> &'static str {
        "roll-brokers"
    }

    fn text(&self) -> String {
        let gate = match self.gate {
            Gate::InSync => "when all replicas are in sync again",
            Gate::None => "as soon as it answers",
        };
        format!("stop (SIGTERM) and start one broker after the other, the next one {gate}")
    }

    fn closes_path(&self) -> bool {
        true
    }

    async fn inject(&self, rig: &Rig, _name: &str) -> Result<Injected, FaultError> {
        let nodes: Vec<NodeId> = rig.cluster.brokers().into_iter().map(|(node, _)| node).collect();
        let charge = in_charge(rig, &nodes).await?;
        let mark = rig.mark();
        let mut proofs = Vec::new();
        for node in nodes {
            rig.link.broker_going(node).await?;
            proofs.push(rig.cluster.stop_broker(node).await?);
            proofs.push(rig.cluster.start_broker(node).await?);
            rig.link.broker_back(node, PROOF).await?;
            if self.gate == Gate::InSync {
                proofs.push(rig.cluster.until_in_sync().await?);
            }
        }
        Ok(Injected {
            proof: proofs.join("; "),
            delivered: Box::new(move |facts| {
                let closed = facts.closed_since(mark, None);
                if closed > 0 {
                    return Some(format!(
                        "{closed} connection(s) of the reader to brokers that stopped closed"
                    ));
                }
                told_of_another(facts, mark, &charge)
            }),
            felt: reaction(),
            strikes_later: false,
            heal: Box::new(Rolled {}),
        })
    }
}

/// Every broker is back.
struct Rolled {}

#[async_trait]
impl Heal for Rolled {
    async fn heal(self: Box<Self>, rig: &Rig) -> Result<String, FaultError> {
        Ok(rig.cluster.until_in_sync().await?)
    }
}
