//! The oracle: an independent client on the direct listeners that knows the truth.
//!
//! ```text
//! run loop --produce, preload, load, sentinel--> write --Produce----------> brokers (direct)
//!          --scan, watermarks, prove_path------> read  --ListOffsets, Fetch--^
//!                 every fact about ids, offsets and watermarks --> history
//! ```
//!
//! It never goes through the link, and it shares no client library with any reader: it speaks Kafka's protocol itself
//! (`cluster::direct`), so that it knows of every record whether it was never sent, refused or maybe written, and so
//! that it is back with the first request after a broker is. Ids rise from 1 per partition and are never used twice, not
//! even for a topic created anew, because the counter lives here.
//!
//! Deliberately not here: when to write (the quiet rule is the run loop's), and what any of it means (`invariant`).

mod error;
mod group;
mod load;
mod nodes;
mod read;
mod records;
mod transaction;
mod write;

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use brokerfall_report::history::{Event, LogEnd, SentinelRecord, TopicInfo};

pub use self::error::OracleError;
pub use self::group::GroupWatch;
pub use self::load::{Load, LoadTotals};
use self::nodes::Nodes;
pub use self::read::Scan;
use self::records::Aged;
pub(crate) use self::records::Make;
pub use self::records::{FOREIGN, ID_HEADER, Marker};
pub use self::transaction::Transaction;
pub use self::write::Written;
use crate::cluster::direct::Login;
use crate::history::recorder::Recorder;

/// Topic and partition.
type PartitionKey = (String, u32);

/// The next id of a partition, locked over a write so that ids rise in the order of the log.
type NextId = Arc<tokio::sync::Mutex<u64>>;

/// How long the oracle tries again where the caller does not say.
const PATIENCE: Duration = Duration::from_secs(10);

/// A broker that is stopped takes a question and never answers; one that runs answers in a millisecond.
const STANDS_STILL_AFTER: Duration = Duration::from_millis(500);

/// Between two attempts at reading.
const RETRY_EVERY: Duration = Duration::from_millis(5);

/// Length of a filler's value: six of them fill a partition of the mock cluster, and each fits a broker's 1 MiB.
const FILLER_BYTES: u64 = 900_000;

/// More fillers than this delete nothing either.
const MOST_FILLERS: u64 = 64;

/// An independent client that knows the truth. Clones share ids and connections.
///
/// ```no_run
/// # use brokerfall::history::recorder::Recorder;
/// # use brokerfall::oracle::{Oracle, OracleError};
/// # use brokerfall_report::history::TopicInfo;
/// # async fn example(topics: Vec<TopicInfo>, recorder: Recorder) -> Result<(), OracleError> {
/// let oracle = Oracle::connect("127.0.0.1:9092", None, recorder, &topics).await?;
/// let written = oracle.produce("orders", 0, 100).await?;
/// assert_eq!(written.ids.count(), 100, "acknowledged; whatever was not stands in the history");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Oracle {
    shared: Arc<Shared>,
}

struct Shared {
    recorder: Recorder,
    nodes: Nodes,
    /// What readers can see of each topic: partitions that are added later come in with [`Oracle::add_partitions`].
    topics: Mutex<BTreeMap<String, Arc<TopicInfo>>>,
    /// The next id of each partition.
    next_ids: Mutex<HashMap<PartitionKey, NextId>>,
    /// Log start and end as last recorded.
    watermarks: tokio::sync::Mutex<HashMap<PartitionKey, (u64, u64)>>,
}

impl Shared {
    fn partition(&self, key: &PartitionKey) -> Result<(Arc<TopicInfo>, NextId), OracleError> {
        let topic = self
            .topics()
            .get(&key.0)
            .filter(|topic| key.1 < topic.partitions)
            .cloned();
        let topic = topic.ok_or_else(|| OracleError::UnknownPartition {
            topic: key.0.clone(),
            partition: key.1,
        })?;
        let first = || Arc::new(tokio::sync::Mutex::new(1));
        let next_id = crate::lock(&self.next_ids)
            .entry(key.clone())
            .or_insert_with(first)
            .clone();
        Ok((topic, next_id))
    }

    fn topics(&self) -> MutexGuard<'_, BTreeMap<String, Arc<TopicInfo>>> {
        crate::lock(&self.topics)
    }
}

impl std::fmt::Debug for Oracle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Oracle")
            .field("topics", &*self.shared.topics())
            .finish_non_exhaustive()
    }
}

impl Oracle {
    /// Connects to the direct listeners of a cluster on which `topics` exist, with the login that they want.
    ///
    /// # Errors
    /// [`OracleError::NoAddress`] for a bootstrap list that is none, [`OracleError::TimedOut`] when no broker answers or a
    /// partition has no leader.
    pub async fn connect(
        bootstrap: &str,
        login: Option<Login>,
        recorder: Recorder,
        topics: &[TopicInfo],
    ) -> Result<Self, OracleError> {
        let names = topics.iter().map(|topic| topic.name.clone()).collect();
        let topics = topics.iter().map(|topic| (topic.name.clone(), Arc::new(topic.clone())));
        let oracle = Self {
            shared: Arc::new(Shared {
                recorder,
                nodes: Nodes::new(bootstrap, login, names).await?,
                topics: Mutex::new(topics.collect()),
                next_ids: Mutex::default(),
                watermarks: tokio::sync::Mutex::default(),
            }),
        };
        for key in oracle.keys() {
            until("finding the leaders", PATIENCE, || oracle.shared.nodes.leader(&key)).await?;
        }
        Ok(oracle)
    }

    /// Topics and partitions, in order.
    fn keys(&self) -> Vec<PartitionKey> {
        let topics = self.shared.topics();
        topics
            .values()
            .flat_map(|topic| (0..topic.partitions).map(|partition| (topic.name.clone(), partition)))
            .collect()
    }

    /// Takes the partitions of a topic up to `to` in: from now on they are written, watched and scanned like the others.
    /// A load that runs goes on without them, and is to be started anew.
    ///
    /// # Errors
    /// [`OracleError::UnknownPartition`] for a topic that the oracle was not told of, [`OracleError::TimedOut`] when one
    /// of them has no leader.
    pub async fn add_partitions(&self, topic: &str, to: u32) -> Result<(), OracleError> {
        let unknown = || OracleError::UnknownPartition {
            topic: topic.to_owned(),
            partition: to.saturating_sub(1),
        };
        {
            let mut topics = self.shared.topics();
            let known = topics.get_mut(topic).ok_or_else(unknown)?;
            let partitions = known.partitions.max(to);
            Arc::make_mut(known).partitions = partitions;
        }
        for key in self.keys().into_iter().filter(|key| key.0 == topic) {
            until("finding the leaders", PATIENCE, || self.shared.nodes.leader(&key)).await?;
        }
        Ok(())
    }

    /// Forgets where the log of a topic began and ended and who leads it: the topic was deleted, and is created anew.
    ///
    /// Ids go on, so that no record of the new log can be taken for one of the old.
    pub async fn forget_log(&self, topic: &str) {
        for key in self.keys().into_iter().filter(|key| key.0 == topic) {
            self.shared.watermarks.lock().await.remove(&key);
            self.shared.nodes.forget_leader(&key);
        }
    }

    /// Number of partitions of a topic that readers can see; 0 for a topic that the oracle was not told of.
    pub fn partitions(&self, topic: &str) -> u32 {
        self.shared.topics().get(topic).map_or(0, |topic| topic.partitions)
    }

    /// Writes `count` records to a partition and records what became of each. What certainly failed (a broker that is
    /// down, an election) is tried again for 10 s.
    ///
    /// # Errors
    /// [`OracleError::UnknownPartition`]; whatever the brokers do stands in [`Written`].
    pub async fn produce(&self, topic: &str, partition: u32, count: u64) -> Result<Written, OracleError> {
        self.shared
            .write((topic.to_owned(), partition), count, Make::default(), PATIENCE)
            .await
    }

    /// Like [`Oracle::produce`], made otherwise than the topic's generator says.
    ///
    /// # Errors
    /// As for [`Oracle::produce`].
    pub(crate) async fn produce_with(
        &self,
        topic: &str,
        partition: u32,
        count: u64,
        make: Make,
    ) -> Result<Written, OracleError> {
        self.shared
            .write((topic.to_owned(), partition), count, make, PATIENCE)
            .await
    }

    /// Writes `per_partition` records to every partition of a topic; all must be acknowledged.
    ///
    /// # Errors
    /// [`OracleError::NotAcked`], [`OracleError::UnknownPartition`].
    pub async fn preload(&self, topic: &str, per_partition: u64) -> Result<(), OracleError> {
        self.preload_made(topic, per_partition, &Make::default()).await
    }

    /// Like [`Oracle::preload`], with timestamps of the past: the first record of a partition is so old, the last is new, and
    /// those between are as old as their turn.
    ///
    /// # Errors
    /// As for [`Oracle::preload`].
    pub async fn preload_aged(&self, topic: &str, per_partition: u64, first: Duration) -> Result<(), OracleError> {
        let aged = Aged {
            records: per_partition,
            first,
        };
        let make = Make {
            aged: Some(aged),
            ..Make::default()
        };
        self.preload_made(topic, per_partition, &make).await
    }

    async fn preload_made(&self, topic: &str, per_partition: u64, make: &Make) -> Result<(), OracleError> {
        let keys = self.keys().into_iter().filter(|key| key.0 == topic);
        let writes = keys.map(|key| async move {
            let written = self
                .shared
                .write(key.clone(), per_partition, make.clone(), PATIENCE)
                .await?;
            let acked = written.ids.count();
            if acked == per_partition {
                return Ok(());
            }
            Err(OracleError::NotAcked {
                topic: key.0,
                partition: key.1,
                wanted: per_partition,
                acked,
                source: written.cause.map(Box::new),
            })
        });
        futures::future::try_join_all(writes).await.map(drop)
    }

    /// Writes one record to every partition, and more where an id stands for a tombstone (a table does not show those), and
    /// records the round once all are acknowledged.
    ///
    /// # Errors
    /// [`OracleError::NotAcked`] when a partition does not take it within 10 s, [`OracleError::OnlyTombstones`].
    pub async fn sentinel(&self, round: u32) -> Result<Vec<SentinelRecord>, OracleError> {
        let writes = self.keys().into_iter().map(|key| self.sentinel_of(key));
        let records = futures::future::try_join_all(writes).await?;
        self.shared.recorder.record(Event::Sentinel {
            round,
            records: records.clone(),
        });
        Ok(records)
    }

    async fn sentinel_of(&self, key: PartitionKey) -> Result<SentinelRecord, OracleError> {
        let (topic, _) = self.shared.partition(&key)?;
        if topic.generator.tombstone_every == Some(1) {
            return Err(OracleError::OnlyTombstones { topic: key.0 });
        }
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(tokio::time::Instant::now());
            let written = self.shared.write(key.clone(), 1, Make::default(), left).await?;
            match (written.ids.first(), written.offsets.first()) {
                (Some(id), Some(offset)) if !topic.generator.is_tombstone(id) => {
                    return Ok(SentinelRecord {
                        topic: key.0,
                        partition: key.1,
                        id,
                        offset,
                    });
                }
                (Some(_), _) => {}
                // Lost on the way; the next id is another attempt.
                (None, _) if tokio::time::Instant::now() < deadline => {}
                (None, _) => {
                    return Err(OracleError::NotAcked {
                        topic: key.0,
                        partition: key.1,
                        wanted: 1,
                        acked: 0,
                        source: written.cause.map(Box::new),
                    });
                }
            }
        }
    }

    /// Log start and log end of a partition; recorded when they moved.
    ///
    /// # Errors
    /// [`OracleError::TimedOut`] when the leader gives no answer for 10 s, [`OracleError::UnknownPartition`].
    pub async fn watermarks(&self, topic: &str, partition: u32) -> Result<(u64, u64), OracleError> {
        let key = (topic.to_owned(), partition);
        self.shared.partition(&key)?;
        until("reading the watermarks", PATIENCE, || self.shared.watermarks_once(&key)).await
    }

    /// Reads one partition from log start to log end and records what stands there, exactly. A log start that moves
    /// meanwhile makes it begin again.
    ///
    /// # Errors
    /// [`OracleError::TimedOut`] when it does not succeed within 10 s, [`OracleError::UnknownPartition`].
    pub async fn scan(&self, topic: &str, partition: u32) -> Result<Scan, OracleError> {
        let key = (topic.to_owned(), partition);
        self.shared.partition(&key)?;
        until("scanning the log", PATIENCE, || self.shared.scan_once(&key)).await
    }

    /// Scans every partition of every topic.
    ///
    /// # Errors
    /// As for [`Oracle::scan`].
    pub async fn scan_all(&self) -> Result<(), OracleError> {
        let keys = self.keys();
        let scans = keys.iter().map(|key| self.scan(&key.0, key.1));
        futures::future::try_join_all(scans).await.map(drop)
    }

    /// Records the log end of every partition as what `member`, which is about to start, must reach. Of a partition whose
    /// leader is down or stands still it is the end that is known from before: nobody can have written since.
    ///
    /// # Errors
    /// As for [`Oracle::watermarks`].
    pub async fn targets(&self, member: &str) -> Result<Vec<LogEnd>, OracleError> {
        // All at once: whoever stands still is waited for once.
        let ends = self.keys().into_iter().map(|key| self.target(key));
        let ends = futures::future::try_join_all(ends).await?;
        self.shared.recorder.record(Event::Targets {
            member: member.to_owned(),
            ends: ends.clone(),
        });
        Ok(ends)
    }

    async fn target(&self, (topic, partition): PartitionKey) -> Result<LogEnd, OracleError> {
        let known = self.shared.recorder.with(|facts| facts.log_end(&topic, partition));
        let key = (topic.clone(), partition);
        let asked = tokio::time::timeout(STANDS_STILL_AFTER, self.shared.watermarks_once(&key));
        let offset = match (asked.await, known) {
            (Ok(Ok((_, end))), _) => end,
            (Ok(Err(cause)), Some(end)) if cause.nobody_there() => end,
            (Err(_), Some(end)) => end,
            // Leaders move, and connections break: what can be asked again is.
            _ => self.watermarks(&topic, partition).await?.1,
        };
        Ok(LogEnd {
            topic,
            partition,
            offset,
        })
    }

    /// Proves that the brokers serve: asks who leads, then reads watermarks and the last record of every partition, over
    /// and over until it works. The caller records `Path`.
    ///
    /// # Errors
    /// [`OracleError::TimedOut`] when a partition cannot be read `within`.
    pub async fn prove_path(&self, within: Duration) -> Result<String, OracleError> {
        let deadline = tokio::time::Instant::now() + within;
        // What was true before a fault proves nothing.
        until("asking who leads", within, || self.shared.nodes.refresh()).await?;
        let touches = self.keys().into_iter().map(|key| async move {
            let left = deadline.saturating_duration_since(tokio::time::Instant::now());
            let end = until("reading through the brokers", left, || self.shared.touch(&key)).await?;
            let node = self.shared.nodes.leader(&key).await?;
            Ok::<_, OracleError>(format!("{}-{} up to offset {end} on broker {node}", key.0, key.1))
        });
        let proof = futures::future::try_join_all(touches).await?;
        Ok(format!("the oracle read {}", proof.join(", ")))
    }

    /// Starts writing `per_second` records a second, spread over all partitions, until the load is stopped.
    pub fn load(&self, per_second: f64) -> Load {
        Load::start(self, per_second)
    }

    /// Deletes by writing: scans what stands in the log, then writes filler records until its start has passed `offset`.
    /// Returns log start and log end. For clusters whose retention is by size and at once, as the mock's.
    ///
    /// # Errors
    /// [`OracleError::NotDeleted`] when the start does not pass it, [`OracleError::NotAcked`], those of [`Oracle::scan`].
    pub async fn fill_past(&self, topic: &str, partition: u32, offset: u64) -> Result<(u64, u64), OracleError> {
        self.scan(topic, partition).await?;
        for records in 0.. {
            let (log_start, log_end) = self.watermarks(topic, partition).await?;
            if log_start > offset {
                return Ok((log_start, log_end));
            }
            if records == MOST_FILLERS {
                return Err(OracleError::NotDeleted {
                    topic: topic.to_owned(),
                    partition,
                    offset,
                    log_start,
                    records,
                });
            }
            let written = self.produce_with(topic, partition, 1, filler()).await?;
            if written.ids.is_empty() {
                return Err(OracleError::NotAcked {
                    topic: topic.to_owned(),
                    partition,
                    wanted: 1,
                    acked: 0,
                    source: written.cause.map(Box::new),
                });
            }
        }
        unreachable!("the loop returns at {MOST_FILLERS} fillers")
    }

    /// Offsets that a group has committed, of partitions where it has; asked without joining the group.
    ///
    /// # Errors
    /// [`OracleError::TimedOut`] when its coordinator gives no answer for 10 s.
    pub async fn committed(&self, group: &str) -> Result<Vec<LogEnd>, OracleError> {
        until("reading committed offsets", PATIENCE, || {
            self.shared.committed_once(group)
        })
        .await
    }
}

/// How fillers are made.
fn filler() -> Make {
    Make {
        value_bytes: Some(FILLER_BYTES),
        ..Make::default()
    }
}

/// Tries until it succeeds or `within` has passed; at least once.
async fn until<T, F, Attempt>(what: &str, within: Duration, mut attempt: F) -> Result<T, OracleError>
where
    F: FnMut() -> Attempt,
    Attempt: Future<Output = Result<T, OracleError>>,
{
    let deadline = tokio::time::Instant::now() + within;
    loop {
        let cause = match attempt().await {
            Ok(found) => return Ok(found),
            Err(cause) => cause,
        };
        if tokio::time::Instant::now() >= deadline {
            return Err(OracleError::TimedOut {
                what: what.to_owned(),
                within,
                source: Box::new(cause),
            });
        }
        // A log start that moved under a scan is nothing to wait for.
        if !cause.is_out_of_range() {
            crate::before_the_next_look(RETRY_EVERY).await;
        }
    }
}
