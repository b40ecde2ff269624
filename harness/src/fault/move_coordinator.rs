//! move-coordinator: another broker coordinates the reader's group; the heal moves it back.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{Fault, FaultError, Injected};
use crate::cluster::NodeId;
use crate::run::rig::Rig;

/// `move-coordinator = { to = 2 }`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct MoveCoordinator {
    /// The broker that coordinates then; default the next one that lives.
    #[serde(default)]
    pub to: Option<NodeId>,
}

#[async_trait]
impl Fault for MoveCoordinator {
    fn kind(&self) -> &'static str {
        "move-coordinator"
    }

    fn text(&self) -> String {
        match self.to {
            Some(node) => format!("move the group's coordinator to broker {node}"),
            None => "move the group's coordinator to the next broker".to_owned(),
        }
    }

    fn closes_path(&self) -> bool {
        false
    }

    async fn inject(&self, _rig: &Rig, _name: &str) -> Result<Injected, FaultError> {
        Err(FaultError::NotProven {
            what: "that the coordinator moved".into(),
            seen: "not built yet".into(),
        })
    }
}
