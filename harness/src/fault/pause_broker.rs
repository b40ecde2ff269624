//! pause-broker: a broker stops in its tracks (SIGSTOP); connections stay open and nothing is answered.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::partition::Cutting;
use super::{BrokerChoice, Fault, FaultError, Injected};
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

    fn emulated(&self, _rig: &Rig) -> bool {
        // The mock cluster's brokers are threads of one process: none can be stopped by itself. For the reader a stopped
        // broker is silence on connections that stay open, and that the link can do.
        true
    }

    fn closes_path(&self) -> bool {
        true
    }

    async fn inject(&self, rig: &Rig, _name: &str) -> Result<Injected, FaultError> {
        let nodes = self.broker.nodes(rig).await?;
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
}
