//! add-partitions: a topic grows while it is read.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{Fault, FaultError, Injected};
use crate::run::rig::Rig;

/// `add-partitions = { topic = "orders", to = 4 }`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct AddPartitions {
    /// Which topic; default the first.
    #[serde(default)]
    pub topic: Option<String>,
    /// How many partitions it has then: more than before.
    pub to: u32,
}

#[async_trait]
impl Fault for AddPartitions {
    fn kind(&self) -> &'static str {
        "add-partitions"
    }

    fn text(&self) -> String {
        let topic = self.topic.as_deref().unwrap_or("the first topic");
        format!("{topic} grows to {} partitions", self.to)
    }

    fn emulated(&self, _rig: &Rig) -> bool {
        // The mock cluster cannot add partitions: it has them from the start, and the link hides them until the step.
        true
    }

    fn for_good(&self) -> bool {
        true
    }

    fn closes_path(&self) -> bool {
        false
    }

    async fn inject(&self, _rig: &Rig, _name: &str) -> Result<Injected, FaultError> {
        Err(FaultError::NotProven {
            what: "that the topic has grown".into(),
            seen: "not built yet".into(),
        })
    }
}
