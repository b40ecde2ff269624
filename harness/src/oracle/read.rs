//! Reading: watermarks, scans, committed offsets.

use std::time::Duration;

use brokerfall_report::history::{Event, LogEnd};
use brokerfall_report::runs::Runs;
use bytes::Bytes;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use kafka_protocol::messages::{BrokerId, FetchRequest, GroupId, ListOffsetsRequest, OffsetFetchRequest};
use kafka_protocol::protocol::StrBytes;

use super::group::committed;
use super::nodes::Lane;
use super::{Marker, OracleError, PartitionKey, Shared, records};
use crate::cluster::direct::{self, Coordinated};

/// Last version that names topics and is not flexible.
const FETCH_VERSION: i16 = 11;

/// First version with an isolation level.
const LIST_OFFSETS_VERSION: i16 = 2;

/// Last version that is not flexible.
const OFFSET_FETCH_VERSION: i16 = 5;

/// `ListOffsets` timestamps that stand for the log start and the log end.
const EARLIEST: i64 = -2;
const LATEST: i64 = -1;

/// Isolation levels, as brokers are told.
const READ_UNCOMMITTED: i8 = 0;
const READ_COMMITTED: i8 = 1;

/// Longest wait for an answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// How long a broker may wait for records that must be there.
const FETCH_WAIT_MS: i32 = 100;

/// Bytes asked for at once.
const FETCH_BYTES: i32 = 8 << 20;

/// What a scan found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scan {
    /// Log start when the scan began.
    pub from: u64,
    /// Log end when the scan began; the scan read everything before it.
    pub to: u64,
    /// Record ids; [`records::FOREIGN`] for records that the oracle did not write.
    pub ids: Runs,
    /// Their offsets, in step.
    pub offsets: Runs,
    /// Ends of transactions between them.
    pub markers: Vec<Marker>,
}

impl Shared {
    /// Log start and log end; recorded when they differ from what was recorded last.
    pub(super) async fn watermarks_once(&self, key: &PartitionKey) -> Result<(u64, u64), OracleError> {
        let found = (
            self.list_offset(key, EARLIEST, READ_UNCOMMITTED).await?,
            self.list_offset(key, LATEST, READ_UNCOMMITTED).await?,
        );
        let mut seen = self.watermarks.lock().await;
        if seen.insert(key.clone(), found) != Some(found) {
            self.recorder.record(Event::Watermarks {
                topic: key.0.clone(),
                partition: key.1,
                log_start: found.0,
                log_end: found.1,
            });
        }
        Ok(found)
    }

    /// Where the log ends for a reader of committed records only.
    pub(super) async fn stable_end_once(&self, key: &PartitionKey) -> Result<u64, OracleError> {
        self.list_offset(key, LATEST, READ_COMMITTED).await
    }

    async fn list_offset(&self, key: &PartitionKey, timestamp: i64, isolation: i8) -> Result<u64, OracleError> {
        let partition = ListOffsetsPartition::default()
            .with_partition_index(i32::try_from(key.1).unwrap_or(-1))
            .with_timestamp(timestamp);
        let request = ListOffsetsRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_isolation_level(isolation)
            .with_topics(vec![
                ListOffsetsTopic::default()
                    .with_name(direct::topic_name(&key.0))
                    .with_partitions(vec![partition]),
            ]);
        let answer = self
            .nodes
            .ask_leader(key, Lane::Read, LIST_OFFSETS_VERSION, &request, ANSWER_WITHIN)
            .await?;
        let partitions = answer.topics.first().map(|topic| &topic.partitions);
        let found = partitions.and_then(|partitions| partitions.first());
        let found = found.ok_or_else(|| missing("ListOffsets", key, "the partition"))?;
        self.check("ListOffsets", key, found.error_code)?;
        u64::try_from(found.offset).map_err(|_| missing("ListOffsets", key, "an offset"))
    }

    /// Reads everything between log start and log end as they are at the beginning.
    pub(super) async fn scan_once(&self, key: &PartitionKey) -> Result<Scan, OracleError> {
        let (from, to) = self.watermarks_once(key).await?;
        let mut scan = Scan {
            from,
            to,
            ids: Runs::default(),
            offsets: Runs::default(),
            markers: Vec::new(),
        };
        let mut next = from;
        while next < to {
            let fetched = self.fetch(key, next).await?;
            let read = records::read(fetched).map_err(|reason| OracleError::Batch {
                topic: key.0.clone(),
                partition: key.1,
                reason,
            })?;
            // A batch is answered whole, also when only its end was asked for.
            for (id, offset) in read.records {
                if (next..to).contains(&offset) {
                    scan.ids.push(id);
                    scan.offsets.push(offset);
                }
            }
            let inside = |marker: &Marker| (next..to).contains(&marker.offset);
            scan.markers.extend(read.markers.into_iter().filter(inside));
            match read.next {
                Some(after) if after > next => next = after,
                _ => return Err(missing("Fetch", key, "the records below the log end")),
            }
        }
        self.recorder.record(Event::Scanned {
            topic: key.0.clone(),
            partition: key.1,
            from,
            to,
            ids: scan.ids.clone(),
            offsets: scan.offsets.clone(),
        });
        Ok(scan)
    }

    /// Reads the last record of a partition where there is one; returns the log end.
    pub(super) async fn touch(&self, key: &PartitionKey) -> Result<u64, OracleError> {
        let (start, end) = self.watermarks_once(key).await?;
        if end > start && self.fetch(key, end - 1).await?.is_empty() {
            return Err(missing("Fetch", key, "the last record"));
        }
        Ok(end)
    }

    async fn fetch(&self, key: &PartitionKey, offset: u64) -> Result<Bytes, OracleError> {
        let partition = FetchPartition::default()
            .with_partition(i32::try_from(key.1).unwrap_or(-1))
            .with_fetch_offset(i64::try_from(offset).unwrap_or(i64::MAX))
            .with_partition_max_bytes(FETCH_BYTES);
        let request = FetchRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_max_wait_ms(FETCH_WAIT_MS)
            .with_min_bytes(1)
            .with_max_bytes(FETCH_BYTES)
            .with_session_epoch(-1)
            .with_topics(vec![
                FetchTopic::default()
                    .with_topic(direct::topic_name(&key.0))
                    .with_partitions(vec![partition]),
            ]);
        let answer = self
            .nodes
            .ask_leader(key, Lane::Read, FETCH_VERSION, &request, ANSWER_WITHIN)
            .await?;
        self.check("Fetch", key, answer.error_code)?;
        let partitions = answer.responses.into_iter().next().map(|topic| topic.partitions);
        let found = partitions.and_then(|partitions| partitions.into_iter().next());
        let found = found.ok_or_else(|| missing("Fetch", key, "the partition"))?;
        self.check("Fetch", key, found.error_code)?;
        Ok(found.records.unwrap_or_default())
    }

    /// Offsets that a group has committed, without joining it.
    pub(super) async fn committed_once(&self, group: &str) -> Result<Vec<LogEnd>, OracleError> {
        let subject = || format!("group {group}");
        let node = self.nodes.coordinator(Coordinated::Group(group)).await?;
        let topics = self
            .topics()
            .values()
            .map(|topic| {
                OffsetFetchRequestTopic::default()
                    .with_name(direct::topic_name(&topic.name))
                    .with_partition_indexes((0..i32::try_from(topic.partitions).unwrap_or(0)).collect())
            })
            .collect();
        let request = OffsetFetchRequest::default()
            .with_group_id(GroupId(StrBytes::from_string(group.to_owned())))
            .with_topics(Some(topics));
        let answer = self
            .nodes
            .ask(node, Lane::Read, OFFSET_FETCH_VERSION, &request, ANSWER_WITHIN)
            .await?;
        let partitions = answer.topics.iter().flat_map(|topic| &topic.partitions);
        let codes = partitions.map(|partition| partition.error_code);
        if let Some(code) = std::iter::once(answer.error_code).chain(codes).find(|code| *code != 0) {
            return Err(OracleError::Refused {
                api: "OffsetFetch",
                subject: subject(),
                code,
            });
        }
        Ok(committed(&answer))
    }

    fn check(&self, api: &'static str, key: &PartitionKey, code: i16) -> Result<(), OracleError> {
        if code == 0 {
            return Ok(());
        }
        self.nodes.forget_leader(key);
        Err(OracleError::Refused {
            api,
            subject: format!("{}-{}", key.0, key.1),
            code,
        })
    }
}

fn missing(api: &'static str, key: &PartitionKey, missing: &'static str) -> OracleError {
    OracleError::Missing {
        api,
        subject: format!("{}-{}", key.0, key.1),
        missing,
    }
}
