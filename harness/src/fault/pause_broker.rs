//! pause-broker: a broker stops in its tracks (SIGSTOP); connections stay open and nothing is answered.

use serde::{Deserialize, Serialize};

use super::BrokerChoice;

/// `pause-broker = { broker = "all" }`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PauseBroker {
    /// Which broker.
    pub broker: BrokerChoice,
}
