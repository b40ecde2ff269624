//! Transactions: records that are written together and then committed or aborted, by a transactional producer of our own.
//!
//! A transaction takes three steps at its coordinator (a producer id, the partitions, the end), and the records go to the
//! partitions' leaders as ever. The coordinator answers to the end before its markers stand in the log, so that the log itself
//! is looked at for them.

use std::time::Duration;

use brokerfall_report::history::{Event, TransactionState};
use brokerfall_report::runs::Runs;
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest, ProducerId, TransactionalId,
};
use kafka_protocol::protocol::{Request, StrBytes};

use super::nodes::Lane;
use super::records::{Make, Marker, OfTransaction};
use super::{Oracle, OracleError, PATIENCE, PartitionKey, Shared, until};
use crate::cluster::direct::{self, Coordinated};

/// Last versions that are not flexible.
mod version {
    pub(super) const INIT_PRODUCER_ID: i16 = 1;
    pub(super) const ADD_PARTITIONS: i16 = 1;
    pub(super) const END: i16 = 1;
}

/// The first transaction of a cluster makes the topic of their states, which takes longer than [`PATIENCE`] on a loaded machine.
const BEGINS_WITHIN: Duration = Duration::from_secs(30);

/// Longest wait for an answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// After this the broker aborts a transaction by itself: longer than any run, and as long as brokers allow.
const OPEN_AT_MOST_MS: i32 = 900_000;

/// A transaction that has begun, with what was written in it.
#[derive(Debug, Clone)]
pub struct Transaction {
    of: OfTransaction,
    /// What was written in it.
    pub parts: Vec<Part>,
}

/// What a transaction wrote to one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Topic.
    pub topic: String,
    /// Partition.
    pub partition: u32,
    /// Ids, rising.
    pub ids: Runs,
    /// Offset of the first.
    pub first: u64,
    /// Offset of the last.
    pub last: u64,
}

impl Oracle {
    /// Begins a transaction and writes `count` records to each of some partitions of a topic in it; all must be acknowledged.
    /// They stand in the log then, and a reader of committed records only is held back below the first of them.
    ///
    /// # Errors
    /// [`OracleError::TimedOut`] when no broker coordinates it within 30 s, [`OracleError::NotAcked`],
    /// [`OracleError::UnknownPartition`].
    pub async fn begin(
        &self,
        name: &str,
        topic: &str,
        partitions: &[u32],
        count: u64,
    ) -> Result<Transaction, OracleError> {
        let shared = &self.shared;
        let id = format!("brokerfall-{name}");
        let of = until("getting a producer id", BEGINS_WITHIN, || shared.producer(&id)).await?;
        until("adding partitions to the transaction", PATIENCE, || {
            shared.add_partitions_to(&of, topic, partitions)
        })
        .await?;
        let mut parts = Vec::new();
        for &partition in partitions {
            let key: PartitionKey = (topic.to_owned(), partition);
            let make = Make {
                of: Some(of.clone()),
                ..Make::default()
            };
            let written = shared.write(key, count, make, PATIENCE).await?;
            let (first, last, acked) = (written.offsets.first(), written.offsets.last(), written.ids.count());
            let (Some(first), Some(last), true) = (first, last, acked == count) else {
                return Err(OracleError::NotAcked {
                    topic: topic.to_owned(),
                    partition,
                    wanted: count,
                    acked,
                    source: written.cause.map(Box::new),
                });
            };
            parts.push(Part {
                topic: topic.to_owned(),
                partition,
                ids: written.ids,
                first,
                last,
            });
        }
        Ok(Transaction { of, parts })
    }

    /// Ends a transaction and returns its markers, in the order of its parts, once they stand in the log and hold no reader
    /// back any more.
    ///
    /// # Errors
    /// [`OracleError::TimedOut`] when the coordinator does not end it, or a marker is not there, within 10 s.
    pub async fn end(&self, transaction: &Transaction, commit: bool) -> Result<Vec<Marker>, OracleError> {
        let shared = &self.shared;
        if commit {
            for part in &transaction.parts {
                shared.tell(part, TransactionState::Committing);
            }
        }
        until("ending the transaction", PATIENCE, || {
            shared.end_of(&transaction.of, commit)
        })
        .await?;
        let mut markers = Vec::new();
        for part in &transaction.parts {
            let of = &transaction.of;
            let marker = until("finding the marker in the log", PATIENCE, || shared.marker(of, part)).await?;
            shared.tell(
                part,
                match marker.commits {
                    true => TransactionState::Committed,
                    false => TransactionState::Aborted,
                },
            );
            markers.push(marker);
        }
        Ok(markers)
    }

    /// Where a partition ends for a reader of committed records only (its last stable offset).
    ///
    /// # Errors
    /// As for [`Oracle::watermarks`].
    pub async fn stable_end(&self, topic: &str, partition: u32) -> Result<u64, OracleError> {
        let key = (topic.to_owned(), partition);
        self.shared.partition(&key)?;
        until("reading the last stable offset", PATIENCE, || {
            self.shared.stable_end_once(&key)
        })
        .await
    }
}

impl Shared {
    fn tell(&self, part: &Part, state: TransactionState) {
        self.transaction(&(part.topic.clone(), part.partition), part.ids.clone(), state);
    }

    /// Records how far the transaction of some records is.
    pub(super) fn transaction(&self, key: &PartitionKey, ids: Runs, state: TransactionState) {
        self.recorder.record(Event::Transaction {
            topic: key.0.clone(),
            partition: key.1,
            ids,
            state,
        });
    }

    /// Asks the coordinator of a transactional id.
    async fn ask_coordinator<R: Request + Sync>(
        &self,
        id: &str,
        version: i16,
        request: &R,
    ) -> Result<R::Response, OracleError> {
        let node = self.nodes.coordinator(Coordinated::Transaction(id)).await?;
        self.nodes.ask(node, Lane::Write, version, request, ANSWER_WITHIN).await
    }

    async fn producer(&self, id: &str) -> Result<OfTransaction, OracleError> {
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(transactional(id)))
            .with_transaction_timeout_ms(OPEN_AT_MOST_MS);
        let answer = self.ask_coordinator(id, version::INIT_PRODUCER_ID, &request).await?;
        accepted("InitProducerId", id, answer.error_code)?;
        Ok(OfTransaction {
            id: id.to_owned(),
            producer: answer.producer_id.0,
            epoch: answer.producer_epoch,
        })
    }

    async fn add_partitions_to(&self, of: &OfTransaction, topic: &str, partitions: &[u32]) -> Result<(), OracleError> {
        let partitions = partitions.iter().map(|&index| i32::try_from(index).unwrap_or(-1));
        let topics = AddPartitionsToTxnTopic::default()
            .with_name(direct::topic_name(topic))
            .with_partitions(partitions.collect());
        let request = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(transactional(&of.id))
            .with_v3_and_below_producer_id(ProducerId(of.producer))
            .with_v3_and_below_producer_epoch(of.epoch)
            .with_v3_and_below_topics(vec![topics]);
        let answer = self.ask_coordinator(&of.id, version::ADD_PARTITIONS, &request).await?;
        let results = answer.results_by_topic_v3_and_below.iter();
        let mut codes = results.flat_map(|topic| &topic.results_by_partition);
        codes.try_for_each(|one| accepted("AddPartitionsToTxn", &of.id, one.partition_error_code))
    }

    async fn end_of(&self, of: &OfTransaction, commit: bool) -> Result<(), OracleError> {
        let request = EndTxnRequest::default()
            .with_transactional_id(transactional(&of.id))
            .with_producer_id(ProducerId(of.producer))
            .with_producer_epoch(of.epoch)
            .with_committed(commit);
        let answer = self.ask_coordinator(&of.id, version::END, &request).await?;
        accepted("EndTxn", &of.id, answer.error_code)
    }

    /// The marker behind what a transaction wrote to a partition, once it holds no reader back.
    async fn marker(&self, of: &OfTransaction, part: &Part) -> Result<Marker, OracleError> {
        let key = (part.topic.clone(), part.partition);
        let missing = |missing| OracleError::Missing {
            api: "Fetch",
            subject: format!("{}-{}", part.topic, part.partition),
            missing,
        };
        if self.stable_end_once(&key).await? <= part.first {
            return Err(missing("an end for readers of committed records above the transaction"));
        }
        // Scanned to its end: the history must know that no record stands where the marker does.
        let scan = self.scan_once(&key).await?;
        let ends = |marker: &&Marker| marker.producer == of.producer && marker.offset > part.last;
        let marker = scan.markers.iter().find(ends).copied();
        marker.ok_or_else(|| missing("the marker of the transaction"))
    }
}

fn transactional(id: &str) -> TransactionalId {
    TransactionalId(StrBytes::from_string(id.to_owned()))
}

fn accepted(api: &'static str, id: &str, code: i16) -> Result<(), OracleError> {
    match code {
        0 => Ok(()),
        code => Err(OracleError::Refused {
            api,
            subject: format!("transactional id {id}"),
            code,
        }),
    }
}
