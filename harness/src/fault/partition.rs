//! partition: the network between the reader and some brokers fails.

use async_trait::async_trait;
use brokerfall_report::history::ConnectionChange;
use serde::{Deserialize, Serialize};

use super::{BrokerChoice, Fault, FaultError, Heal, Injected, Look, list, reaction};
use crate::cluster::NodeId;
use crate::link::{Cut, CutHeal, CutId, CutMode, Direction};
use crate::run::rig::Rig;

/// `partition = { brokers = ["leader"], mode = "hold" }`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Partition {
    /// Which brokers; default all.
    #[serde(default = "all")]
    pub brokers: Vec<BrokerChoice>,
    /// `hold`, `reset`, `refuse` or `throttle`.
    pub mode: Mode,
    /// Which way a hold or throttle works; default both.
    #[serde(default)]
    pub direction: Way,
    /// What becomes of held connections at the heal; default keep.
    #[serde(default)]
    pub heals: Heals,
    /// For `throttle`: bytes a second and direction, at least 1.
    #[serde(default)]
    pub bytes_per_s: Option<u64>,
}

fn all() -> Vec<BrokerChoice> {
    vec![BrokerChoice::All]
}

/// What the network does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Half-open: nothing gets through, nothing is lost, nobody is told.
    Hold,
    /// Connections are reset, new ones too.
    Reset,
    /// Connections are reset, new ones refused.
    Refuse,
    /// Slow.
    Throttle,
}

/// Direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Both ways.
    #[default]
    Both,
    /// Only what the reader sends.
    ToBroker,
    /// Only what the broker answers.
    ToReader,
}

/// What becomes of held connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Heals {
    /// Bytes flow on.
    #[default]
    Keep,
    /// They are reset.
    Reset,
}

impl Partition {
    fn cut(&self, nodes: Vec<NodeId>) -> Cut {
        Cut {
            nodes,
            mode: match self.mode {
                Mode::Hold => CutMode::Hold,
                Mode::Reset => CutMode::Reset,
                Mode::Refuse => CutMode::Refuse,
                // OK because a plan with a throttle and no rate is refused when it is checked.
                Mode::Throttle => CutMode::Throttle {
                    bytes_per_s: self.bytes_per_s.unwrap_or(1).max(1),
                },
            },
            direction: match self.direction {
                Way::Both => Direction::Both,
                Way::ToBroker => Direction::ToBroker,
                Way::ToReader => Direction::ToReader,
            },
            heals: match self.heals {
                Heals::Keep => CutHeal::Keep,
                Heals::Reset => CutHeal::Reset,
            },
        }
    }
}

#[async_trait]
impl Fault for Partition {
    fn kind(&self) -> &'static str {
        "partition"
    }

    fn text(&self) -> String {
        let brokers = self
            .brokers
            .iter()
            .map(BrokerChoice::text)
            .collect::<Vec<_>>()
            .join(" and ");
        let way = match self.direction {
            Way::Both => "",
            Way::ToBroker => ", towards the broker only",
            Way::ToReader => ", towards the reader only",
        };
        match self.mode {
            Mode::Hold => {
                let heals = match self.heals {
                    Heals::Keep => "",
                    Heals::Reset => ", connections reset at the heal",
                };
                format!("hold all traffic with {brokers}{way}{heals}")
            }
            Mode::Reset => format!("reset connections to {brokers}"),
            Mode::Refuse => format!("refuse connections to {brokers}"),
            Mode::Throttle => {
                let bytes = self.bytes_per_s.unwrap_or_default();
                format!("throttle traffic with {brokers} to {bytes} bytes/s{way}")
            }
        }
    }

    fn closes_path(&self) -> bool {
        self.mode != Mode::Throttle
    }

    async fn inject(&self, rig: &Rig, _name: &str) -> Result<Injected, FaultError> {
        let mut nodes = Vec::new();
        for choice in &self.brokers {
            nodes.extend(choice.nodes(rig).await?);
        }
        nodes.sort_unstable();
        nodes.dedup();
        Cutting::start(rig, self.cut(nodes)).await
    }
}

/// A cut in force on the link; pause-broker uses it too where a broker cannot be stopped.
pub(super) struct Cutting {
    id: CutId,
    cut: Cut,
}

impl Cutting {
    pub(super) async fn start(rig: &Rig, cut: Cut) -> Result<Injected, FaultError> {
        let mark = rig.recorder.mark();
        let id = rig.link.cut(cut.clone()).await?;
        let proof = match cut.mode {
            CutMode::Refuse => {
                for &node in &cut.nodes {
                    rig.prove_refused(node).await?;
                }
                format!("the reader's port of broker {} refuses connections", list(&cut.nodes))
            }
            CutMode::Hold => format!("the link forwards nothing to or from broker {}", list(&cut.nodes)),
            CutMode::Reset => format!("the link resets every connection to broker {}", list(&cut.nodes)),
            CutMode::Throttle { bytes_per_s } => {
                format!(
                    "the link passes {bytes_per_s} bytes a second to and from broker {}",
                    list(&cut.nodes)
                )
            }
            CutMode::Delay { by } => format!("the link delays broker {} by {by:?}", list(&cut.nodes)),
        };
        Ok(Injected {
            proof,
            delivered: delivered(&cut, mark),
            felt: reaction(),
            strikes_later: false,
            heal: Box::new(Self { id, cut }),
        })
    }
}

/// A hold hits the reader when traffic waits, a reset or refusal when a connection is closed, a throttle or delay when
/// bytes have passed through it.
fn delivered(cut: &Cut, mark: u64) -> Look {
    let nodes = cut.nodes.clone();
    let mode = cut.mode;
    Box::new(move |facts| {
        let count = |change| {
            nodes
                .iter()
                .map(|&node| facts.connections_since(mark, Some(node), change))
                .sum::<u64>()
        };
        match mode {
            CutMode::Hold => {
                let held = count(ConnectionChange::Held);
                (held > 0).then(|| format!("traffic of the reader waits on {held} connection(s)"))
            }
            CutMode::Reset | CutMode::Refuse => {
                let reset = count(ConnectionChange::ResetByLink) + count(ConnectionChange::TurnedAway);
                (reset > 0).then(|| format!("{reset} connection(s) of the reader were reset or turned away"))
            }
            CutMode::Throttle { .. } | CutMode::Delay { .. } => {
                let slowed = count(ConnectionChange::Slowed);
                (slowed > 0).then(|| format!("bytes of the reader waited on {slowed} connection(s)"))
            }
        }
    })
}

#[async_trait]
impl Heal for Cutting {
    async fn heal(self: Box<Self>, rig: &Rig) -> Result<String, FaultError> {
        rig.link.heal(self.id).await?;
        for &node in &self.cut.nodes {
            rig.prove_accepts(node).await?;
        }
        Ok(format!(
            "the link forwards to and from broker {} again, and its port accepts",
            list(&self.cut.nodes)
        ))
    }
}
