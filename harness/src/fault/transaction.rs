//! transaction: records are written in one transaction, which is committed, aborted, or left open until the heal.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{Fault, FaultError, Feel, Heal, Injected, Look, place};
use crate::oracle::Transaction as Begun;
use crate::run::rig::Rig;

/// `transaction = { records = 5, end = "abort" }`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Transaction {
    /// Which topic; default the first.
    #[serde(default)]
    pub topic: Option<String>,
    /// Which partition; default all.
    #[serde(default)]
    pub partition: Option<u32>,
    /// How many records are written to each of them, at least 1.
    pub records: u64,
    /// How it ends.
    pub end: End,
    /// How the heal ends one that was left open; default it commits.
    #[serde(default)]
    pub heals: Heals,
}

/// How a transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// It is committed: a marker stands behind its records.
    Commit,
    /// It is aborted: a marker stands behind them, and who reads committed records only is not given them.
    Abort,
    /// It is left open, and the heal ends it.
    Open,
}

/// How the heal ends a transaction that was left open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Heals {
    /// It commits.
    #[default]
    Commit,
    /// It aborts.
    Abort,
}

#[async_trait]
impl Fault for Transaction {
    fn kind(&self) -> &'static str {
        "transaction"
    }

    fn text(&self) -> String {
        let place = place(self.topic.as_deref(), self.partition).unwrap_or_else(|| "the first topic".to_owned());
        let records = match self.records {
            1 => "1 record".to_owned(),
            records => format!("{records} records"),
        };
        let end = match (self.end, self.heals) {
            (End::Commit, _) => "commit it",
            (End::Abort, _) => "abort it",
            (End::Open, Heals::Commit) => "leave it open (the heal commits it)",
            (End::Open, Heals::Abort) => "leave it open (the heal aborts it)",
        };
        format!("write {records} to each partition of {place} in a transaction and {end}")
    }

    fn closes_path(&self) -> bool {
        false
    }

    async fn inject(&self, rig: &Rig, name: &str) -> Result<Injected, FaultError> {
        let (topic, partitions) = rig.chosen(self.topic.as_deref(), self.partition);
        let begun = rig.oracle.begin(name, &topic, &partitions, self.records).await?;
        let (proof, heal): (String, Box<dyn Heal>) = match self.end {
            End::Open => {
                let mut held = Vec::new();
                for part in &begun.parts {
                    let (place, first) = (format!("{topic}-{}", part.partition), part.first);
                    let (_, end) = rig.oracle.watermarks(&topic, part.partition).await?;
                    let stable = rig.oracle.stable_end(&topic, part.partition).await?;
                    if stable > first || end <= first {
                        return Err(FaultError::NotProven {
                            what: format!("that an open transaction holds readers of {place} back at offset {first}"),
                            seen: format!("its last stable offset is {stable}, its end {end}"),
                        });
                    }
                    held.push(format!(
                        "the last stable offset of {place} is {stable}, where the transaction began, and its end {end}"
                    ));
                }
                let commits = self.heals == Heals::Commit;
                (
                    held.join("; "),
                    Box::new(LeftOpen {
                        begun: begun.clone(),
                        commits,
                    }),
                )
            }
            End::Commit | End::Abort => (end(rig, &begun, self.end == End::Commit).await?, Box::new(Ended {})),
        };
        Ok(Injected {
            proof,
            delivered: fetched(rig.mark(), &begun),
            felt: past(begun),
            strikes_later: false,
            heal,
        })
    }
}

/// Ends a transaction; says what markers were found where.
async fn end(rig: &Rig, begun: &Begun, commit: bool) -> Result<String, FaultError> {
    let markers = rig.oracle.end(begun, commit).await?;
    let word = |commits: bool| if commits { "a commit" } else { "an abort" };
    let mut texts = Vec::new();
    for (part, marker) in begun.parts.iter().zip(markers) {
        let place = format!("{}-{}", part.topic, part.partition);
        if marker.commits != commit {
            return Err(FaultError::NotProven {
                what: format!("that the transaction ended with {} marker in {place}", word(commit)),
                seen: format!("{} marker stands at offset {}", word(marker.commits), marker.offset),
            });
        }
        texts.push(format!(
            "{} marker stands at offset {} of {place}, behind records at {} to {}",
            word(commit),
            marker.offset,
            part.first,
            part.last
        ));
    }
    Ok(texts.join("; "))
}

/// The reader asked for records of a log that holds the transaction, from its beginning on or on the way there.
fn fetched(mark: u64, begun: &Begun) -> Look {
    let parts = begun.parts.clone();
    Box::new(move |facts| {
        let fetches = facts.wire_requests_since(mark, Some("Fetch"));
        let part = parts.first()?;
        (fetches > 0).then(|| {
            format!(
                "{fetches} Fetch request(s) since the transaction stands in {} at offset {}",
                part.topic, part.first
            )
        })
    })
}

/// The reader was given a record of the transaction, or one behind it: it has read the transaction, one way or the other.
fn past(begun: Begun) -> Feel {
    Box::new(move |facts, _| {
        begun.parts.iter().find_map(|part| {
            let position = facts.position(&part.topic, part.partition)?;
            (position > part.first).then(|| {
                format!(
                    "its position in {}-{} is {position}, past the beginning of the transaction at {}",
                    part.topic, part.partition, part.first
                )
            })
        })
    })
}

/// A transaction that has ended stays in the log.
struct Ended {}

#[async_trait]
impl Heal for Ended {
    fn waits_for_delivery(&self) -> bool {
        false
    }

    async fn heal(self: Box<Self>, _rig: &Rig) -> Result<String, FaultError> {
        Ok("nothing stays in force: the transaction has ended".into())
    }
}

/// A transaction that was left open.
struct LeftOpen {
    begun: Begun,
    commits: bool,
}

#[async_trait]
impl Heal for LeftOpen {
    async fn heal(self: Box<Self>, rig: &Rig) -> Result<String, FaultError> {
        end(rig, &self.begun, self.commits).await
    }
}
