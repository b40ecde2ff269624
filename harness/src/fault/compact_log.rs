//! compact-log: the cleaner takes what newer records of the same key have replaced, and tombstones, out of a log.

use std::time::Duration;

use async_trait::async_trait;
use brokerfall_report::history::Generator;
use serde::{Deserialize, Serialize};

use super::{Fault, FaultError, Heal, Injected, PROOF, place};
use crate::oracle::Scan;
use crate::run::rig::Rig;

/// How often the log is read while the cleaner is awaited: it looks every 500 ms.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Looks between two records that are written so that the active segment, which is never cleaned, is closed anew.
const LOOKS_PER_RECORD: u32 = 4;

/// What makes a cleaner clean at once, as Kafka names it: a segment is closed as soon as another record comes, and however
/// little of the log is dirty, it is cleaned.
const AT_ONCE: [(&str, u64); 2] = [("segment.ms", 1), ("min.cleanable.dirty.ratio", 0)];

/// How long tombstones outlive their cleaning, milliseconds; Kafka keeps them for a day.
const TOMBSTONES_GO: (&str, u64) = ("delete.retention.ms", 0);

/// `compact-log = { topic = "orders", tombstones = true }`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct CompactLog {
    /// Which topic, whose `cleanup` holds `compact`; default the first.
    #[serde(default)]
    pub topic: Option<String>,
    /// Which partition; default all.
    #[serde(default)]
    pub partition: Option<u32>,
    /// Whether tombstones go, too, as after `delete.retention.ms`; default they do.
    #[serde(default = "yes")]
    pub tombstones: bool,
}

fn yes() -> bool {
    true
}

#[async_trait]
impl Fault for CompactLog {
    fn kind(&self) -> &'static str {
        "compact-log"
    }

    fn text(&self) -> String {
        let place = place(self.topic.as_deref(), self.partition).unwrap_or_else(|| "the first topic".to_owned());
        let gone = match self.tombstones {
            true => "replaced records and tombstones",
            false => "replaced records",
        };
        format!("compact {place} until its {gone} are gone")
    }

    fn closes_path(&self) -> bool {
        false
    }

    async fn inject(&self, rig: &Rig, _name: &str) -> Result<Injected, FaultError> {
        let (topic, partitions) = rig.chosen(self.topic.as_deref(), self.partition);
        let mut settings = AT_ONCE.to_vec();
        settings.extend(self.tombstones.then_some(TOMBSTONES_GO));
        // What the oracle has not read before it is gone, nobody could tell of afterwards.
        let mut before = Vec::new();
        for &partition in &partitions {
            before.push(rig.oracle.scan(&topic, partition).await?);
        }
        let mut set = Ok(());
        for (setting, value) in &settings {
            if set.is_ok() {
                set = rig.cluster.set_topic(&topic, setting, Some(value.to_string())).await;
            }
        }
        let cleaned = match set {
            Ok(()) => self.until_cleaned(rig, &topic, &partitions, &before).await,
            Err(cause) => Err(cause.into()),
        };
        // Whatever came of it: what is written from here on is to stay.
        for (setting, _) in &settings {
            rig.cluster.set_topic(&topic, setting, None).await?;
        }
        let proofs = cleaned?;
        let mark = rig.mark();
        let ends: Vec<(u32, u64)> = partitions
            .iter()
            .copied()
            .zip(before.iter().map(|scan| scan.to))
            .collect();
        Ok(Injected {
            proof: proofs.join("; "),
            delivered: Box::new(move |facts| {
                let fetches = facts.wire_requests_since(mark, Some("Fetch"));
                (fetches > 0).then(|| format!("{fetches} Fetch request(s) since the log was compacted"))
            }),
            felt: Box::new(move |facts, _| {
                ends.iter().find_map(|&(partition, end)| {
                    let position = facts.position(&topic, partition)?;
                    (position > end)
                        .then(|| format!("its position in {topic}-{partition} is {position}, past the compacted part, which ends at {end}"))
                })
            }),
            strikes_later: true,
            heal: Box::new(Compacted {}),
        })
    }
}

impl CompactLog {
    /// Waits until nothing replaced stands below what was there before, and says what was taken.
    async fn until_cleaned(
        &self,
        rig: &Rig,
        topic: &str,
        partitions: &[u32],
        before: &[Scan],
    ) -> Result<Vec<String>, FaultError> {
        let planned = rig.plan.topics.iter().find(|planned| planned.name == topic);
        let generator = planned
            .map(|planned| &planned.generator)
            .ok_or_else(|| FaultError::NotProven {
                what: format!("that {topic} was compacted"),
                seen: "the plan has no such topic".to_owned(),
            })?;
        let deadline = tokio::time::Instant::now() + PROOF;
        let mut proofs = Vec::new();
        for (&partition, before) in partitions.iter().zip(before) {
            let mut looks = 0;
            let after = loop {
                if looks % LOOKS_PER_RECORD == 0 {
                    rig.oracle.produce(topic, partition, 1).await?;
                }
                looks += 1;
                crate::before_the_next_look(LOOK_EVERY).await;
                let after = rig.oracle.scan(topic, partition).await?;
                let left = left(generator, before, &after, self.tombstones);
                if left == 0 {
                    break after;
                }
                if tokio::time::Instant::now() >= deadline {
                    return Err(FaultError::NotProven {
                        what: format!("that {topic}-{partition} was compacted"),
                        seen: format!(
                            "{left} of its records were still there after {PROOF:?} that a cleaner takes away"
                        ),
                    });
                }
            };
            let stayed = below(&after, before.to);
            let gone = before.ids.count().saturating_sub(stayed.len() as u64);
            if gone == 0 {
                return Err(FaultError::NotProven {
                    what: format!("that {topic}-{partition} was compacted"),
                    seen: "no record of it was replaced by a newer one (write more records, or set fewer `keys`)"
                        .to_owned(),
                });
            }
            proofs.push(format!(
                "the cleaner, and no request, took {gone} of {} records below offset {} of {topic}-{partition} away: what \
                 newer records of the same key had replaced{}",
                before.ids.count(),
                before.to,
                if self.tombstones { ", and tombstones" } else { "" }
            ));
        }
        Ok(proofs)
    }
}

/// Ids that a scan found below an offset.
fn below(scan: &Scan, end: u64) -> Vec<u64> {
    let ids = scan.ids.as_slice().iter().flat_map(|[first, last]| *first..=*last);
    let offsets = scan.offsets.as_slice().iter().flat_map(|[first, last]| *first..=*last);
    ids.zip(offsets)
        .filter(|(_, offset)| *offset < end)
        .map(|(id, _)| id)
        .collect()
}

/// How many of the records that stood there before are still there, although a newer one of them has the same key or, where
/// tombstones go, they are one.
fn left(generator: &Generator, before: &Scan, after: &Scan, tombstones: bool) -> usize {
    let keys = generator.keys.max(1);
    let newest = before.ids.last().unwrap_or_default();
    below(after, before.to)
        .into_iter()
        .filter(|id| id.saturating_add(keys) <= newest || (tombstones && generator.is_tombstone(*id)))
        .count()
}

/// What was taken away stays away.
struct Compacted {}

#[async_trait]
impl Heal for Compacted {
    fn waits_for_delivery(&self) -> bool {
        false
    }

    async fn heal(self: Box<Self>, _rig: &Rig) -> Result<String, FaultError> {
        Ok("nothing stays in force: the topic has its settings back, and what was taken away stays away".into())
    }
}

#[cfg(test)]
mod tests {
    use brokerfall_report::runs::Runs;

    use super::*;

    fn scan(ids: &[(u64, u64)]) -> Scan {
        let (mut all, mut offsets) = (Runs::default(), Runs::default());
        for &(first, last) in ids {
            all.push_run(first, last);
            offsets.push_run(first - 1, last - 1);
        }
        let to = all.last().unwrap_or_default();
        Scan {
            from: 0,
            to,
            ids: all,
            offsets,
            markers: Vec::new(),
        }
    }

    #[test]
    fn what_a_newer_record_of_the_same_key_replaced_and_tombstones_are_left_to_be_cleaned() {
        let generator = Generator {
            keys: 10,
            value_bytes: 10,
            tombstone_every: Some(7),
        };
        let before = scan(&[(1, 30)]);
        assert_eq!(left(&generator, &before, &before, false), 20);
        // 21 and 28 are tombstones, and the newest of their keys.
        assert_eq!(left(&generator, &before, &before, true), 22);
        let after = scan(&[(22, 27), (29, 40)]);
        assert_eq!(
            left(&generator, &before, &after, true),
            0,
            "what was written since does not count"
        );
    }
}
