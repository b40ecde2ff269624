//! absent-topic: brokers answer that a topic does not exist, until it does.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{Fault, FaultError, Heal, Injected, reaction};
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

    async fn inject(&self, rig: &Rig, name: &str) -> Result<Injected, FaultError> {
        let topic = rig.topic_or_first(self.topic.as_deref());
        rig.link.hide_topic(&topic, name);
        let hidden = Hidden {
            topic: topic.clone(),
            fault: name.to_owned(),
        };
        let proof = match rig.visible_partitions(&topic).await {
            Ok(visible) if visible.is_empty() => format!("Metadata through the link has no topic {topic}"),
            Ok(visible) => {
                rig.link.show_topic(&topic, name);
                return Err(FaultError::NotProven {
                    what: format!("that {topic} is absent"),
                    seen: format!("Metadata through the link has {} partition(s) of it", visible.len()),
                });
            }
            // A fault that closes the path is in force too.
            Err(_) => format!("the link hides {topic} (nobody can be asked through it now)"),
        };
        let link = Arc::clone(&rig.link);
        Ok(Injected {
            proof,
            delivered: Box::new(move |facts| {
                let metadata = link.metadata_answers(&hidden.topic);
                let others = facts.injected_answers(&hidden.fault);
                match (metadata, others) {
                    (0, 0) => None,
                    (0, _) => Some(format!("{others} response(s) to the reader: no topic {}", hidden.topic)),
                    _ => Some(format!(
                        "{metadata} Metadata response(s) to the reader without topic {}",
                        hidden.topic
                    )),
                }
            }),
            felt: reaction(),
            strikes_later: true,
            heal: Box::new(Hidden {
                topic,
                fault: name.to_owned(),
            }),
        })
    }
}

/// A topic that one fault hides.
struct Hidden {
    topic: String,
    fault: String,
}

#[async_trait]
impl Heal for Hidden {
    async fn heal(self: Box<Self>, rig: &Rig) -> Result<String, FaultError> {
        let topic = &self.topic;
        let counts = rig.link.show_topic(topic, &self.fault);
        let not_proven = |seen: String| FaultError::NotProven {
            what: format!("that {topic} was absent and is there again"),
            seen,
        };
        if counts.undecodable > 0 {
            let text = format!(
                "{} response(s) that may name it could not be decoded",
                counts.undecodable
            );
            return Err(not_proven(text));
        }
        let answered = format!("{} response(s) said that it was absent", counts.triggered);
        match rig.visible_partitions(topic).await {
            Ok(visible) if visible.is_empty() => {
                Err(not_proven("Metadata through the link has no partition of it".into()))
            }
            Ok(visible) => Ok(format!(
                "Metadata through the link has {} partition(s) of {topic} ({answered})",
                visible.len()
            )),
            // A fault that closes the path is in force still.
            Err(_) => Ok(format!("the link shows {topic} again ({answered})")),
        }
    }
}
