//! kill-broker: a broker dies without a word and is started again on the same port with its data.

use async_trait::async_trait;
use brokerfall_report::history::ConnectionChange;
use serde::{Deserialize, Serialize};

use super::{BrokerChoice, Fault, FaultError, Heal, Injected, PROOF, list, reaction};
use crate::cluster::NodeId;
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
}

#[async_trait]
impl Fault for KillBroker {
    fn kind(&self) -> &'static str {
        "kill-broker"
    }

    fn text(&self) -> String {
        let for_good = if self.for_good { " for good" } else { "" };
        format!("kill {}{for_good}", self.broker.text())
    }

    fn for_good(&self) -> bool {
        self.for_good
    }

    fn closes_path(&self) -> bool {
        true
    }

    async fn inject(&self, rig: &Rig, _name: &str) -> Result<Injected, FaultError> {
        if self.for_good {
            return Err(FaultError::NotProven {
                what: "that the broker is gone for good".into(),
                seen: "not built yet".into(),
            });
        }
        let nodes = self.broker.nodes(rig).await?;
        let mark = rig.recorder.mark();
        let mut proofs = Vec::new();
        for &node in &nodes {
            // The link first: found lazily, a reader's first connect would still be accepted.
            rig.link.broker_going(node).await?;
            proofs.push(rig.cluster.kill_broker(node, rig.election).await?);
            rig.prove_refused(node).await?;
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
                (closed > 0).then(|| {
                    format!(
                        "{closed} connection(s) of the reader to broker {} closed",
                        list(&targets)
                    )
                })
            }),
            felt: reaction(),
            strikes_later: false,
            heal: Box::new(Dead { nodes }),
        })
    }
}

/// Brokers that are down.
struct Dead {
    nodes: Vec<NodeId>,
}

#[async_trait]
impl Heal for Dead {
    async fn heal(self: Box<Self>, rig: &Rig) -> Result<String, FaultError> {
        let mut proofs = Vec::new();
        for &node in &self.nodes {
            proofs.push(rig.cluster.start_broker(node).await?);
        }
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
