//! partition: the network between the reader and some brokers fails.

use serde::{Deserialize, Serialize};

use super::BrokerChoice;

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
