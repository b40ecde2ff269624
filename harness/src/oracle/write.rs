//! Writing: ids are given out, and every one of them ends as acked, failed or maybe in the history.

use std::sync::Arc;
use std::time::Duration;

use brokerfall_report::history::{Event, ProduceOutcome, TransactionState};
use brokerfall_report::runs::Runs;
use bytes::Bytes;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{ProduceRequest, TransactionalId};
use kafka_protocol::protocol::StrBytes;

use super::nodes::Lane;
use super::records::{self, Make};
use super::{OracleError, PartitionKey, Shared};
use crate::cluster::direct;

/// Last version that is not flexible and that Kafka 4 still answers.
const PRODUCE_VERSION: i16 = 7;

/// Every in-sync replica.
const ACKS_ALL: i16 = -1;

/// Records per batch. The mock cluster deletes whole batches, so small ones keep its log start fine-grained.
const BATCH_RECORDS: u64 = 500;

/// Bytes of values per batch: a broker takes 1 MiB by default.
const BATCH_BYTES: u64 = 900_000;

/// Longest wait for an answer. It is longer than any pause of a broker that a scenario asks for: giving up earlier would
/// let the stopped broker append these records after later ones.
const ANSWER_WITHIN: Duration = Duration::from_secs(120);

/// Between two attempts at the same records.
const RETRY_EVERY: Duration = Duration::from_millis(5);

/// What became of records that were to be written to one partition.
#[derive(Debug, Default)]
pub struct Written {
    /// Ids acknowledged, rising.
    pub ids: Runs,
    /// Their offsets, in step.
    pub offsets: Runs,
    /// Ids that are certainly not in the log.
    pub failed: Runs,
    /// Ids that may be in the log.
    pub maybe: Runs,
    /// What ended the attempt early, where something did.
    pub cause: Option<OracleError>,
}

impl Shared {
    /// Writes `count` records. What certainly failed is tried again until `patience` has passed; writing ends at the first
    /// batch that is not acknowledged.
    ///
    /// Runs as a task of its own: a caller that goes away must not leave records in the log that the history does not
    /// know.
    pub(super) async fn write(
        self: &Arc<Self>,
        key: PartitionKey,
        count: u64,
        make: Make,
        patience: Duration,
    ) -> Result<Written, OracleError> {
        let shared = Arc::clone(self);
        let task = tokio::spawn(async move { shared.write_in_order(&key, count, &make, patience).await });
        task.await.map_err(|source| OracleError::Task { source })?
    }

    async fn write_in_order(
        &self,
        key: &PartitionKey,
        count: u64,
        make: &Make,
        patience: Duration,
    ) -> Result<Written, OracleError> {
        let (topic, next_id) = self.partition(key)?;
        let deadline = tokio::time::Instant::now() + patience;
        let value = make.value_bytes.unwrap_or(topic.generator.value_bytes).max(1);
        let per_batch = (BATCH_BYTES / value).clamp(1, BATCH_RECORDS);
        // Held until the answer is there: ids rise in the order of the log.
        let mut next_id = next_id.lock().await;
        let mut written = Written::default();
        let mut left = count;
        if make.of.is_some() {
            // Told before the first of them can be read.
            self.transaction(key, Runs::one(*next_id, *next_id + count - 1), TransactionState::Begun);
        }
        while left > 0 && written.cause.is_none() {
            let batch = left.min(per_batch);
            let first = *next_id;
            let last = first + batch - 1;
            *next_id = last + 1;
            let before = count - left;
            left -= batch;
            let encoded = records::batch(&topic, key.1, first, batch, before, make);
            let (outcome, offsets) = match self.append(key, encoded, make, deadline).await {
                Ok(base) => {
                    written.ids.push_run(first, last);
                    written.offsets.push_run(base, base + batch - 1);
                    (ProduceOutcome::Acked, Runs::one(base, base + batch - 1))
                }
                Err(cause) => {
                    let (outcome, runs) = if cause.nothing_written() {
                        (ProduceOutcome::Failed, &mut written.failed)
                    } else {
                        (ProduceOutcome::Maybe, &mut written.maybe)
                    };
                    runs.push_run(first, last);
                    written.cause = Some(cause);
                    (outcome, Runs::default())
                }
            };
            self.recorder.record(Event::Produced {
                topic: key.0.clone(),
                partition: key.1,
                ids: Runs::one(first, last),
                offsets,
                outcome,
            });
        }
        Ok(written)
    }

    /// Appends one batch and returns its first offset.
    async fn append(
        &self,
        key: &PartitionKey,
        encoded: Result<Bytes, String>,
        make: &Make,
        deadline: tokio::time::Instant,
    ) -> Result<u64, OracleError> {
        let batch = encoded.map_err(|reason| OracleError::Batch {
            topic: key.0.clone(),
            partition: key.1,
            reason,
        })?;
        let partition = PartitionProduceData::default()
            .with_index(i32::try_from(key.1).unwrap_or(-1))
            .with_records(Some(batch));
        let transaction = make
            .of
            .as_ref()
            .map(|of| TransactionalId(StrBytes::from_string(of.id.clone())));
        let request = ProduceRequest::default()
            .with_transactional_id(transaction)
            .with_acks(ACKS_ALL)
            .with_timeout_ms(i32::try_from(ANSWER_WITHIN.as_millis()).unwrap_or(i32::MAX))
            .with_topic_data(vec![
                TopicProduceData::default()
                    .with_name(direct::topic_name(&key.0))
                    .with_partition_data(vec![partition]),
            ]);
        loop {
            match self.append_once(key, &request).await {
                // The very same records again: a refusal has left nothing of them in the log.
                Err(cause) if cause.nothing_written() && tokio::time::Instant::now() < deadline => {
                    crate::before_the_next_look(RETRY_EVERY).await;
                }
                outcome => return outcome,
            }
        }
    }

    async fn append_once(&self, key: &PartitionKey, request: &ProduceRequest) -> Result<u64, OracleError> {
        let subject = || format!("{}-{}", key.0, key.1);
        let answer = self
            .nodes
            .ask_leader(key, Lane::Write, PRODUCE_VERSION, request, ANSWER_WITHIN)
            .await?;
        let partitions = answer.responses.first().map(|topic| &topic.partition_responses);
        let Some(partition) = partitions.and_then(|partitions| partitions.first()) else {
            return Err(OracleError::Missing {
                api: "Produce",
                subject: subject(),
                missing: "the partition",
            });
        };
        if partition.error_code != 0 {
            self.nodes.forget_leader(key);
            return Err(OracleError::Refused {
                api: "Produce",
                subject: subject(),
                code: partition.error_code,
            });
        }
        u64::try_from(partition.base_offset).map_err(|_| OracleError::Missing {
            api: "Produce",
            subject: subject(),
            missing: "an offset",
        })
    }
}
