//! recreate-topic: a topic is deleted and created anew under the same name.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{Fault, FaultError, Heal, Injected, reaction};
use crate::run::rig::Rig;

/// `recreate-topic = { topic = "orders", records = 100, gap = "2s" }`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RecreateTopic {
    /// Which topic; default the first.
    #[serde(default)]
    pub topic: Option<String>,
    /// How many records are written to each of its partitions as soon as it is there again.
    pub records: u64,
    /// How long there is no such topic, beside what deleting and creating take; default not longer.
    #[serde(default, with = "crate::scenario::duration::option")]
    pub gap: Option<Duration>,
}

/// What brokers answer, of any api, to a reader that asks for the topic that was: of no topic, of another one, of a log that
/// ends earlier or is led in another epoch.
const TOLD: [&str; 7] = [
    "UNKNOWN_TOPIC_OR_PARTITION",
    "UNKNOWN_TOPIC_ID",
    "INCONSISTENT_TOPIC_ID",
    "OFFSET_OUT_OF_RANGE",
    "NOT_LEADER_OR_FOLLOWER",
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
];

#[async_trait]
impl Fault for RecreateTopic {
    fn kind(&self) -> &'static str {
        "recreate-topic"
    }

    fn text(&self) -> String {
        let topic = self.topic.as_deref().unwrap_or("the first topic");
        let gap = self.gap.map_or_else(String::new, |gap| format!(", {gap:?} apart"));
        format!(
            "{topic} is deleted and created anew{gap}, with {} records in each partition",
            self.records
        )
    }

    fn closes_path(&self) -> bool {
        true
    }

    async fn inject(&self, rig: &Rig, _name: &str) -> Result<Injected, FaultError> {
        let (topic, partitions) = rig.chosen(self.topic.as_deref(), None);
        let mut before = Vec::new();
        for &partition in &partitions {
            before.push(rig.oracle.watermarks(&topic, partition).await?);
        }
        let mark = rig.mark();
        let gone = rig.recreate_topic(&topic, self.gap.unwrap_or_default()).await?;
        rig.oracle.preload(&topic, self.records).await?;
        let anew = rig.mark();
        let mut logs = Vec::new();
        for (partition, before) in partitions.into_iter().zip(before) {
            let after = rig.oracle.watermarks(&topic, partition).await?;
            logs.push(format!(
                "{topic}-{partition} goes from {} to {}, {} to {} before",
                after.0, after.1, before.0, before.1
            ));
        }
        let watched = topic.clone();
        Ok(Injected {
            proof: format!("{gone}; created anew, {}", logs.join(", ")),
            delivered: Box::new(move |facts| {
                let told = TOLD.iter().find_map(|code| {
                    let answers = facts.refused_since(mark, code, Some(&watched));
                    (answers > 0).then(|| format!("{answers} answer(s) of brokers about {watched}: {code}"))
                });
                // A reader that asks for an offset that the new log has, too, is told nothing.
                told.or_else(|| {
                    let fetches = facts.wire_requests_since(anew, Some("Fetch"));
                    (fetches > 0).then(|| format!("{fetches} Fetch request(s) since {watched} was created anew"))
                })
            }),
            felt: Box::new(move |facts, since| {
                let resets = facts.resets_since(since.n);
                if resets > 0 {
                    return Some(format!("the reader reported {resets} reset(s)"));
                }
                reaction()(facts, since).or_else(|| facts.delivered_anew(&topic))
            }),
            strikes_later: false,
            heal: Box::new(Anew {}),
        })
    }
}

/// What was deleted stays deleted: there is nothing to take back, and nothing that stays in force.
struct Anew {}

#[async_trait]
impl Heal for Anew {
    async fn heal(self: Box<Self>, _rig: &Rig) -> Result<String, FaultError> {
        Ok("nothing stays in force: the topic is there again, and its log goes on from 0".into())
    }
}
