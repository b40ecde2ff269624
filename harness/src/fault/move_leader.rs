//! move-leader: another broker leads a partition; the heal moves it back.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{Fault, FaultError, Injected, place};
use crate::cluster::NodeId;
use crate::run::rig::Rig;

/// `move-leader = { partition = 0, to = 2 }`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct MoveLeader {
    /// Which topic; default the first.
    #[serde(default)]
    pub topic: Option<String>,
    /// Which partition; default all.
    #[serde(default)]
    pub partition: Option<u32>,
    /// The broker that leads it then; default the next one that lives.
    #[serde(default)]
    pub to: Option<NodeId>,
}

#[async_trait]
impl Fault for MoveLeader {
    fn kind(&self) -> &'static str {
        "move-leader"
    }

    fn text(&self) -> String {
        let place = place(self.topic.as_deref(), self.partition).unwrap_or_else(|| "the first topic".to_owned());
        match self.to {
            Some(node) => format!("move the leader of {place} to broker {node}"),
            None => format!("move the leader of {place} to the next broker"),
        }
    }

    fn closes_path(&self) -> bool {
        false
    }

    async fn inject(&self, _rig: &Rig, _name: &str) -> Result<Injected, FaultError> {
        Err(FaultError::NotProven {
            what: "that the leader moved".into(),
            seen: "not built yet".into(),
        })
    }
}
