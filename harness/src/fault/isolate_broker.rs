//! isolate-broker: a broker is taken off the network. It runs on, and nobody reaches it: neither readers nor other brokers.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::kill_broker::{in_charge, told_of_another};
use super::{BrokerChoice, Fault, FaultError, Heal, Injected, PROOF, list, reaction};
use crate::cluster::NodeId;
use crate::run::rig::Rig;

/// `isolate-broker = { broker = "leader" }`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct IsolateBroker {
    /// Which broker.
    pub broker: BrokerChoice,
}

#[async_trait]
impl Fault for IsolateBroker {
    fn kind(&self) -> &'static str {
        "isolate-broker"
    }

    fn text(&self) -> String {
        format!("take {} off the network", self.broker.text())
    }

    fn closes_path(&self) -> bool {
        true
    }

    async fn inject(&self, rig: &Rig, _name: &str) -> Result<Injected, FaultError> {
        let nodes = self.broker.nodes(rig).await?;
        let charge = in_charge(rig, &nodes).await?;
        let mark = rig.mark();
        let mut isolated = Isolated { nodes: Vec::new() };
        let mut proofs = Vec::new();
        for &node in &nodes {
            isolated.nodes.push(node);
            match alone(rig, node).await {
                Ok(proof) => proofs.push(proof),
                Err(cause) => {
                    // Nobody else could bring them back. OK to fail: what failed first says more.
                    let _ = isolated.rejoin(rig).await;
                    return Err(cause);
                }
            }
        }
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
                    let who = list(&targets);
                    return Some(format!("{closed} connection(s) of the reader to broker {who} closed"));
                }
                told_of_another(facts, mark, &charge)
            }),
            felt: reaction(),
            strikes_later: false,
            heal: Box::new(isolated),
        })
    }
}

/// Takes one broker off the network, and says what shows it.
async fn alone(rig: &Rig, node: NodeId) -> Result<String, FaultError> {
    // The link first: found lazily, a reader's first connect would still be accepted.
    rig.link.broker_going(node).await?;
    let proof = rig.cluster.isolate_broker(node).await?;
    rig.prove_refused(node).await?;
    Ok(proof)
}

/// Brokers that nobody reaches.
struct Isolated {
    nodes: Vec<NodeId>,
}

impl Isolated {
    async fn rejoin(&self, rig: &Rig) -> Result<Vec<String>, FaultError> {
        // All at once: those of a quorum serve only when most of them are back.
        let back = self.nodes.iter().map(|node| rig.cluster.rejoin_broker(*node));
        let proofs = futures::future::try_join_all(back).await?;
        for &node in &self.nodes {
            rig.link.broker_back(node, PROOF).await?;
        }
        Ok(proofs)
    }
}

#[async_trait]
impl Heal for Isolated {
    async fn heal(self: Box<Self>, rig: &Rig) -> Result<String, FaultError> {
        Ok(format!(
            "{}; the reader's port of broker {} accepts again",
            self.rejoin(rig).await?.join("; "),
            list(&self.nodes)
        ))
    }
}
