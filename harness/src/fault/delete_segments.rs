//! delete-segments: retention deletes the oldest part of a log.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{Fault, FaultError, Heal, Injected, place};
use crate::cluster::Ability;
use crate::run::rig::Rig;

/// `delete-segments = { topic = "orders" }`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct DeleteSegments {
    /// Which topic; default the first.
    #[serde(default)]
    pub topic: Option<String>,
    /// Which partition; default all.
    #[serde(default)]
    pub partition: Option<u32>,
    /// Delete until the log start is at least this many records past the highest offset that the reader fetched;
    /// default 1.
    #[serde(default = "one")]
    pub past_reader_by: u64,
}

fn one() -> u64 {
    1
}

#[async_trait]
impl Fault for DeleteSegments {
    fn kind(&self) -> &'static str {
        "delete-segments"
    }

    fn text(&self) -> String {
        let place = place(self.topic.as_deref(), self.partition).unwrap_or_else(|| "the first topic".to_owned());
        let (records, are) = if self.past_reader_by == 1 {
            ("record", "is")
        } else {
            ("records", "are")
        };
        format!(
            "delete the start of {place} until {} {records} past what the reader fetched {are} gone",
            self.past_reader_by
        )
    }

    fn closes_path(&self) -> bool {
        false
    }

    async fn inject(&self, rig: &Rig, _name: &str) -> Result<Injected, FaultError> {
        let (topic, partitions) = rig.chosen(self.topic.as_deref(), self.partition);
        let mark = rig.mark();
        let mut proofs = Vec::new();
        for &partition in &partitions {
            let before = rig.oracle.watermarks(&topic, partition).await?;
            // What the reader asked for last, or where it stands: a fetch in flight may be ahead of what was delivered.
            let reader = rig.recorder.with(|facts| {
                facts
                    .max_fetch_offset(&topic, partition)
                    .max(facts.position(&topic, partition))
                    .unwrap_or(before.0)
            });
            let wanted = reader + self.past_reader_by;
            if rig.cluster.can(Ability::DeleteRecords) {
                delete(rig, &topic, partition, wanted).await?;
            } else {
                rig.oracle
                    .fill_past(&topic, partition, wanted.saturating_sub(1))
                    .await?;
            }
            let after = rig.oracle.watermarks(&topic, partition).await?;
            if after.0 < wanted {
                return Err(FaultError::NotProven {
                    what: format!("that the log start of {topic}-{partition} passed {wanted}"),
                    seen: format!("it moved from {} to {}", before.0, after.0),
                });
            }
            proofs.push(format!(
                "log start of {topic}-{partition} moved from {} to {}, past the reader at {reader}",
                before.0, after.0
            ));
        }
        let (watched, struck) = (topic.clone(), partitions.clone());
        Ok(Injected {
            proof: proofs.join("; "),
            delivered: Box::new(move |facts| {
                let told = struck
                    .iter()
                    .map(|&partition| {
                        facts.broker_errors_since(mark, "Fetch", "OFFSET_OUT_OF_RANGE", &watched, partition)
                    })
                    .sum::<u64>();
                (told > 0).then(|| format!("{told} Fetch response(s) of {watched}: OFFSET_OUT_OF_RANGE"))
            }),
            felt: Box::new(move |facts, since| {
                let resets = facts.resets_since(since.n);
                (resets > 0).then(|| format!("the reader reported {resets} reset(s)"))
            }),
            strikes_later: true,
            heal: Box::new(Deleted {}),
        })
    }
}

/// Deletes what stands below an offset. Where the log ends before it, as that of a reader that has read everything, records
/// are written first: a broker deletes none that are not there.
async fn delete(rig: &Rig, topic: &str, partition: u32, below: u64) -> Result<(), FaultError> {
    let (_, end) = rig.oracle.watermarks(topic, partition).await?;
    if end < below && !rig.plan.quiet() {
        rig.oracle.produce(topic, partition, below - end).await?;
    }
    // What the oracle has not read before it is gone, nobody could tell of afterwards.
    rig.oracle.scan(topic, partition).await?;
    rig.cluster.delete_records(topic, partition, below).await?;
    Ok(())
}

/// What is deleted stays deleted: there is nothing to take back, and nothing that stays in force.
struct Deleted {}

#[async_trait]
impl Heal for Deleted {
    fn waits_for_delivery(&self) -> bool {
        false
    }

    async fn heal(self: Box<Self>, _rig: &Rig) -> Result<String, FaultError> {
        Ok("nothing stays in force: the log goes on from its new start".into())
    }
}
