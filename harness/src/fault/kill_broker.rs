//! kill-broker: a broker dies without a word and is started again on the same port with its data.

use serde::{Deserialize, Serialize};

use super::BrokerChoice;

/// `kill-broker = { broker = "leader" }`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct KillBroker {
    /// Which broker.
    pub broker: BrokerChoice,
}
