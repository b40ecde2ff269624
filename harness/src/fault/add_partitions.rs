//! add-partitions: a topic gets more partitions while readers read it.

use async_trait::async_trait;
use brokerfall_report::history::Place;
use serde::{Deserialize, Serialize};

use super::{Fault, FaultError, Heal, Injected};
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
        // The mock cluster cannot add partitions: they were there all the time, and the link kept them from readers.
        true
    }

    fn for_good(&self) -> bool {
        true
    }

    fn closes_path(&self) -> bool {
        false
    }

    async fn inject(&self, rig: &Rig, _name: &str) -> Result<Injected, FaultError> {
        let topic = rig.topic_or_first(self.topic.as_deref());
        let (from, to) = (rig.partitions(&topic), self.to);
        let not_proven = |seen: String| FaultError::NotProven {
            what: format!("that {topic} grew to {to} partitions"),
            seen,
        };
        let before = rig.visible_partitions(&topic).await?;
        if to <= from || before != (0..from).collect::<Vec<_>>() {
            return Err(not_proven(format!("it had {} before", before.len())));
        }
        let mark = rig.mark();
        rig.expect_partitions(&topic, to);
        rig.link.limit_partitions(&topic, Some(to));
        let visible = rig.visible_partitions(&topic).await?;
        if visible != (0..to).collect::<Vec<_>>() {
            return Err(not_proven(format!("Metadata lists partitions {visible:?}")));
        }
        rig.partitions_added(&topic, from, to).await?;
        let places: Vec<Place> = (from..to)
            .map(|partition| Place::Partition {
                topic: topic.clone(),
                partition,
            })
            .collect();
        let fetched = topic.clone();
        Ok(Injected {
            proof: format!("Metadata lists {to} partitions of {topic}, {from} before"),
            delivered: Box::new(move |facts| {
                let told = places.iter().find_map(|place| facts.told_since(mark, place, 0))?;
                Some(format!(
                    "Metadata told {} of partitions that {topic} did not have before",
                    told.client
                ))
            }),
            felt: Box::new(move |facts, _| {
                if facts.fixed().is_some() {
                    return None;
                }
                let new = (from..to).find(|&new| facts.max_fetch_offset(&fetched, new).is_some())?;
                Some(format!("it fetched {fetched}-{new}"))
            }),
            strikes_later: true,
            heal: Box::new(Added {}),
        })
    }
}

/// Partitions that were added stay: there is nothing to take back, and nothing that stays in force.
struct Added {}

#[async_trait]
impl Heal for Added {
    async fn heal(self: Box<Self>, _rig: &Rig) -> Result<String, FaultError> {
        Ok("nothing stays in force: the topic keeps its partitions".into())
    }
}
