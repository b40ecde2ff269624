//! isolate-broker: a broker is taken off the network. It runs on, and nobody reaches it: neither readers nor other brokers.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::kill_broker::{in_charge, told_of_another};
use super::{BrokerChoice, Fault, FaultError, Heal, Injected, PROOF, list, reaction};
use crate::cluster::NodeId;
use crate::run::rig::Rig;
use brokerfall_report::history::ConnectionChange;

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
            // The link first: found lazily, a reader's first connect would still be accepted.
            rig.link.broker_going(node).await?;
            isolated.nodes.push(node);
            let alone = match rig.cluster.isolate_broker(node).await {
                Ok(proof) => rig.prove_refused(node).await.map(|()| proof),
                Err(cause) => Err(cause.into()),
            };
            match alone {
                Ok(proof) => proofs.push(proof),
                Err(cause) => {
                    // Nobody else could bring them back.
                    isolated.rejoin(rig).await?;
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
                let closed: u64 = targets
                    .iter()
                    .map(|&node| {
                        facts.connections_since(mark, Some(node), ConnectionChange::ClosedByBroker)
                            + facts.connections_since(mark, Some(node), ConnectionChange::ResetByLink)
                    })
                    .sum();
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
