//! pause-broker: a broker stops in its tracks (SIGSTOP); connections stay open and nothing is answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::partition::Cutting;
use super::{BrokerChoice, Fault, FaultError, Heal, Injected, list, reaction};
use crate::cluster::{Ability, NodeId};
use crate::link::{Connects, Cut, CutHeal, CutMode, Direction};
use crate::run::rig::Rig;

/// `pause-broker = { broker = "all" }`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PauseBroker {
    /// Which broker.
    pub broker: BrokerChoice,
}

#[async_trait]
impl Fault for PauseBroker {
    fn kind(&self) -> &'static str {
        "pause-broker"
    }

    fn text(&self) -> String {
        format!("pause {}", self.broker.text())
    }

    fn emulated(&self, rig: &Rig) -> bool {
        // The mock cluster's brokers are threads of one process: none can be stopped by itself. For the reader a stopped
        // broker is silence on connections that stay open, and that the link can do.
        !rig.cluster.can(Ability::PauseBroker)
    }

    fn closes_path(&self) -> bool {
        true
    }

    async fn inject(&self, rig: &Rig, _name: &str) -> Result<Injected, FaultError> {
        let nodes = self.broker.nodes(rig).await?;
        if self.emulated(rig) {
            return hold(rig, nodes).await;
        }
        let mut paused = Paused {
            nodes: Vec::new(),
            in_force: Arc::new(AtomicBool::new(true)),
        };
        let mut proofs = Vec::new();
        for &node in &nodes {
            match rig.cluster.pause_broker(node).await {
                Ok(proof) => proofs.push(proof),
                Err(cause) => {
                    // Nobody else could let the others go on.
                    paused.resume(rig).await?;
                    return Err(cause.into());
                }
            }
            paused.nodes.push(node);
        }
        let (link, in_force) = (Arc::clone(&rig.link), Arc::clone(&paused.in_force));
        Ok(Injected {
            proof: proofs.join("; "),
            delivered: Box::new(move |_| {
                // A running broker lets a Fetch wait for records, too.
                if !in_force.load(Ordering::Relaxed) {
                    return None;
                }
                let waiting: u32 = nodes.iter().map(|node| link.unanswered(*node)).sum();
                (waiting > 0).then(|| {
                    format!(
                        "a request of the reader to broker {} waits for an answer on {waiting} connection(s)",
                        list(&nodes)
                    )
                })
            }),
            felt: reaction(),
            strikes_later: false,
            heal: Box::new(paused),
        })
    }
}

/// The link forwards nothing to or from these brokers.
async fn hold(rig: &Rig, nodes: Vec<NodeId>) -> Result<Injected, FaultError> {
    let cut = Cut {
        nodes,
        mode: CutMode::Hold,
        direction: Direction::Both,
        heals: CutHeal::Keep,
        // The kernel of a stopped process goes on accepting.
        connects: Connects::Accepted,
    };
    Cutting::start(rig, cut).await
}

/// Brokers that stand still.
struct Paused {
    nodes: Vec<NodeId>,
    /// False from the moment at which they may go on.
    in_force: Arc<AtomicBool>,
}

impl Paused {
    /// All at once: those of a quorum answer only when most of them go on.
    async fn resume(&self, rig: &Rig) -> Result<Vec<String>, FaultError> {
        self.in_force.store(false, Ordering::Relaxed);
        let resumed = self.nodes.iter().map(|node| rig.cluster.resume_broker(*node));
        Ok(futures::future::try_join_all(resumed).await?)
    }
}

#[async_trait]
impl Heal for Paused {
    async fn heal(self: Box<Self>, rig: &Rig) -> Result<String, FaultError> {
        Ok(self.resume(rig).await?.join("; "))
    }
}
