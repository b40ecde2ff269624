//! partition: the network between the reader and some brokers fails.

use std::time::Duration;

use async_trait::async_trait;
use brokerfall_report::history::ConnectionChange;
use brokerfall_report::protocol::Times;
use serde::{Deserialize, Serialize};

use super::{BrokerChoice, Fault, FaultError, Heal, Injected, Look, list, reaction};
use crate::cluster::NodeId;
use crate::link::{Cut, CutHeal, CutId, CutMode, Direction};
use crate::run::rig::Rig;
use crate::scenario::duration;

/// `partition = { brokers = ["leader"], mode = "hold" }`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Partition {
    /// Which brokers; default all.
    #[serde(default = "all")]
    pub brokers: Vec<BrokerChoice>,
    /// `hold`, `reset`, `refuse`, `throttle`, `delay` or `cut`.
    pub mode: Mode,
    /// Which way a hold, throttle or delay works; default both.
    #[serde(default)]
    pub direction: Way,
    /// What becomes of held connections at the heal; default keep.
    #[serde(default)]
    pub heals: Heals,
    /// For `throttle`: bytes a second and direction, at least 1.
    #[serde(default)]
    pub bytes_per_s: Option<u64>,
    /// For `hold`: what becomes of a new connection; default accepted.
    #[serde(default)]
    pub connects: Connects,
    /// For `delay`: how much later everything arrives.
    #[serde(default, with = "crate::scenario::duration::option")]
    pub by: Option<Duration>,
    /// For `delay`: each chunk is late by `by` and up to this much less or more; default nothing.
    #[serde(default, with = "crate::scenario::duration::option")]
    pub jitter: Option<Duration>,
    /// For `cut`: how many bytes of the response's body arrive before the connection is reset; default 10.
    #[serde(default)]
    pub after_bytes: Option<u64>,
    /// For `cut`: only responses of this api; default any.
    #[serde(default)]
    pub api: Option<String>,
    /// For `cut`: how many responses, or `"always"` (until healed); default 1.
    #[serde(default)]
    pub times: Option<Times>,
}

/// How much of a response arrives that is cut off, bytes of its body: past its correlation id, within its first field.
const AFTER_BYTES: u64 = 10;

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
    /// Late.
    Delay,
    /// Connections are reset in the middle of a response.
    Cut,
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

/// What becomes of a connection that the reader opens while everything is held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Connects {
    /// It opens, and then nothing is answered on it.
    #[default]
    Accepted,
    /// It is not answered at all, as by a host that is gone.
    Unanswered,
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
                Mode::Delay | Mode::Cut => CutMode::Delay {
                    by: self.by.unwrap_or_default(),
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
                let connects = match self.connects {
                    Connects::Accepted => "",
                    Connects::Unanswered => ", new connections unanswered",
                };
                format!("hold all traffic with {brokers}{way}{connects}{heals}")
            }
            Mode::Reset => format!("reset connections to {brokers}"),
            Mode::Refuse => format!("refuse connections to {brokers}"),
            Mode::Throttle => {
                let bytes = self.bytes_per_s.unwrap_or_default();
                format!("throttle traffic with {brokers} to {bytes} bytes/s{way}")
            }
            Mode::Delay => {
                let by = duration::format(self.by.unwrap_or_default());
                let jitter = match self.jitter {
                    Some(jitter) => format!(", {} less or more", duration::format(jitter)),
                    None => String::new(),
                };
                format!("delay traffic with {brokers} by {by}{jitter}{way}")
            }
            Mode::Cut => {
                let what = match self.times {
                    Some(Times::Always) => "every response".to_owned(),
                    None | Some(Times::Count(1)) => "the next response".to_owned(),
                    Some(Times::Count(n)) => format!("the next {n} responses"),
                };
                let api = self.api.as_deref().map_or_else(String::new, |api| format!(" to {api}"));
                let bytes = self.after_bytes.unwrap_or(AFTER_BYTES);
                format!("reset connections to {brokers} {bytes} bytes into {what}{api}")
            }
        }
    }

    fn closes_path(&self) -> bool {
        match self.mode {
            Mode::Hold | Mode::Reset | Mode::Refuse => true,
            Mode::Throttle | Mode::Delay => false,
            Mode::Cut => self.times == Some(Times::Always),
        }
    }

    async fn inject(&self, rig: &Rig, _name: &str) -> Result<Injected, FaultError> {
        if matches!(self.mode, Mode::Delay | Mode::Cut) || self.connects == Connects::Unanswered {
            return Err(FaultError::NotProven {
                what: "that the network does it".into(),
                seen: "not built yet".into(),
            });
        }
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
