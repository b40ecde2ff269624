//! delete-segments: retention deletes the oldest part of a log.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{Fault, FaultError, Heal, Injected, PROOF, place};
use crate::cluster::Ability;
use crate::run::rig::Rig;

/// How often the log start is looked at while retention is awaited: brokers look every 500 ms.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// `delete-segments = { topic = "orders", by = "retention-ms" }`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct DeleteSegments {
    /// Which topic; default the first.
    #[serde(default)]
    pub topic: Option<String>,
    /// Which partition; default all.
    #[serde(default)]
    pub partition: Option<u32>,
    /// Past what; default the reader.
    #[serde(default)]
    pub past: Past,
    /// Delete until the log start is at least this many records past it; default 1.
    #[serde(default = "one")]
    pub past_reader_by: u64,
    /// What makes the broker delete; default a request.
    #[serde(default)]
    pub by: By,
    /// How old a record must be to go, where age decides; default a millisecond: all of them go.
    #[serde(default, with = "crate::scenario::duration::option")]
    pub older_than: Option<Duration>,
}

/// Past what the log start is to come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Past {
    /// The highest offset that the reader fetched.
    #[default]
    Reader,
    /// What its group has committed: where a reader that was stopped begins again.
    Committed,
}

/// What makes a broker delete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// It is asked to (DeleteRecords).
    #[default]
    Request,
    /// The topic may be no larger than a byte (`retention.bytes`): every segment but the active one goes.
    RetentionBytes,
    /// Records may be no older than `older-than` (`retention.ms`).
    RetentionMs,
}

impl By {
    /// The topic's setting, as Kafka names it, that has it so; `None` for a request.
    fn setting(self) -> Option<&'static str> {
        match self {
            By::Request => None,
            By::RetentionBytes => Some("retention.bytes"),
            By::RetentionMs => Some("retention.ms"),
        }
    }
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
        let by = match (self.by.setting(), self.older_than) {
            (None, _) => String::new(),
            (Some(setting), None) => format!("by {setting}, "),
            (Some(setting), Some(age)) => format!("by {setting} of {age:?}, "),
        };
        let past = match self.past {
            Past::Reader => "the reader fetched",
            Past::Committed => "the group committed",
        };
        format!(
            "{by}delete the start of {place} until {} {records} past what {past} {are} gone",
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
        let mut awaited = Vec::new();
        for &partition in &partitions {
            let before = rig.oracle.watermarks(&topic, partition).await?;
            let reader = self.standing(rig, &topic, partition).await?.unwrap_or(before.0);
            let wanted = reader + self.past_reader_by;
            if self.by.setting().is_some() {
                // What the oracle has not read before it is gone, nobody could tell of afterwards.
                rig.oracle.scan(&topic, partition).await?;
                awaited.push((partition, before.0, reader, wanted));
                continue;
            }
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
                "log start of {topic}-{partition} moved from {} to {}, past {} at {reader}",
                before.0,
                after.0,
                self.who()
            ));
        }
        if let Some(setting) = self.by.setting() {
            proofs.extend(self.expire(rig, &topic, setting, &awaited).await?);
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

impl DeleteSegments {
    /// Who stands where the log start is to pass.
    fn who(&self) -> &'static str {
        match self.past {
            Past::Reader => "the reader",
            Past::Committed => "the group's commit",
        }
    }

    /// What the reader asked for last, or where it stands (a fetch in flight may be ahead of what was delivered); or what its
    /// group has committed.
    async fn standing(&self, rig: &Rig, topic: &str, partition: u32) -> Result<Option<u64>, FaultError> {
        if self.past == Past::Reader {
            return Ok(rig.recorder.with(|facts| {
                let fetched = facts.max_fetch_offset(topic, partition);
                fetched.max(facts.position(topic, partition))
            }));
        }
        let none = || FaultError::NotProven {
            what: format!("that what the group committed of {topic}-{partition} was deleted"),
            seen: "it has committed nothing".to_owned(),
        };
        let group = rig.group.as_ref().ok_or_else(none)?;
        let committed = rig.oracle.committed(group).await?;
        let here = committed
            .iter()
            .find(|one| one.topic == topic && one.partition == partition);
        here.map(|one| Some(one.offset)).ok_or_else(none)
    }

    /// Has retention delete by itself: the topic's setting is changed, and changed back once every log start has moved as far
    /// as is wanted. Each of `awaited` is a partition, its log start, where the reader stands, and what the log start must
    /// reach.
    async fn expire(
        &self,
        rig: &Rig,
        topic: &str,
        setting: &'static str,
        awaited: &[(u32, u64, u64, u64)],
    ) -> Result<Vec<String>, FaultError> {
        let value = self.older_than.map_or(1, crate::run::millis);
        rig.cluster.set_topic(topic, setting, Some(value.to_string())).await?;
        let moved = self
            .until_moved(rig, topic, &format!("{setting} = {value}"), awaited)
            .await;
        // Whatever came of it: what is written from here on is to stay.
        let planned = rig.plan.topics.iter().find(|planned| planned.name == topic);
        let retention = planned.and_then(|planned| planned.retention);
        let before = retention.and_then(|retention| match setting {
            "retention.bytes" => retention.bytes,
            _ => retention.ms,
        });
        let before = before.map(|before| before.to_string());
        rig.cluster.set_topic(topic, setting, before).await?;
        moved
    }

    async fn until_moved(
        &self,
        rig: &Rig,
        topic: &str,
        setting: &str,
        awaited: &[(u32, u64, u64, u64)],
    ) -> Result<Vec<String>, FaultError> {
        let deadline = tokio::time::Instant::now() + PROOF;
        let who = self.who();
        let mut proofs = Vec::new();
        for &(partition, before, reader, wanted) in awaited {
            loop {
                let (start, end) = rig.oracle.watermarks(topic, partition).await?;
                if start >= wanted {
                    // Retention takes its time, and a reader that reads on may have come past all that it took.
                    rig.link.flush();
                    let reader = self.standing(rig, topic, partition).await?.unwrap_or(reader);
                    if reader >= start {
                        return Err(FaultError::NotProven {
                            what: format!("that {setting} moved the log start of {topic}-{partition} past {who}"),
                            seen: format!("the log starts at {start}, and {who} had come to {reader} meanwhile"),
                        });
                    }
                    proofs.push(format!(
                        "{setting}, and no request, moved the log start of {topic}-{partition} from {before} to {start} of \
                         {end}, past {who} at {reader}"
                    ));
                    break;
                }
                if tokio::time::Instant::now() >= deadline {
                    return Err(FaultError::NotProven {
                        what: format!("that {setting} moved the log start of {topic}-{partition} past {wanted}"),
                        seen: format!(
                            "it moved from {before} to {start} of {end} within {PROOF:?} (only whole segments go: set \
                             `segment-bytes`, or write more)"
                        ),
                    });
                }
                crate::before_the_next_look(LOOK_EVERY).await;
            }
        }
        Ok(proofs)
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
