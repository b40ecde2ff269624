//! absent-topic: brokers answer that a topic does not exist, until it does.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{Fault, FaultError, Injected};
use crate::run::rig::Rig;

/// `absent-topic = { topic = "orders" }`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct AbsentTopic {
    /// Which topic; default the first.
    #[serde(default)]
    pub topic: Option<String>,
}

#[async_trait]
impl Fault for AbsentTopic {
    fn kind(&self) -> &'static str {
        "absent-topic"
    }

    fn text(&self) -> String {
        let topic = self.topic.as_deref().unwrap_or("the first topic");
        format!("brokers answer that {topic} does not exist")
    }

    fn emulated(&self, _rig: &Rig) -> bool {
        // The mock cluster makes a topic as soon as a client asks for it, so the link answers in its place.
        true
    }

    fn closes_path(&self) -> bool {
        true
    }

    async fn inject(&self, _rig: &Rig, _name: &str) -> Result<Injected, FaultError> {
        Err(FaultError::NotProven {
            what: "that the topic is absent".into(),
            seen: "not built yet".into(),
        })
    }
}
