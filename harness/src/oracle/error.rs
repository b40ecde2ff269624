//! Why the oracle could not do something.

use std::time::Duration;

use kafka_protocol::ResponseError;

use crate::cluster::NodeId;
use crate::cluster::direct::DirectError;

/// Error codes after which a record may nevertheless be in the log: REQUEST_TIMED_OUT and
/// NOT_ENOUGH_REPLICAS_AFTER_APPEND. Every other code means that nothing was appended.
const MAYBE_APPENDED: [i16; 2] = [7, 20];

/// OFFSET_OUT_OF_RANGE.
const OUT_OF_RANGE: i16 = 1;

/// Why the oracle could not do something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OracleError {
    /// The bootstrap list names no address.
    #[error("`{bootstrap}` is no list of host:port (the oracle needs a cluster's direct bootstrap)")]
    NoAddress {
        /// What was given.
        bootstrap: String,
    },
    /// No broker answered Metadata; the last one's error is the source.
    #[error("none of {brokers} brokers answered Metadata")]
    NoBroker {
        /// Brokers asked.
        brokers: usize,
        /// What the last one did.
        #[source]
        source: DirectError,
    },
    /// The cluster names no leader for a partition.
    #[error("partition {topic}-{partition} has no leader, or does not exist")]
    NoLeader {
        /// Topic.
        topic: String,
        /// Partition.
        partition: u32,
    },
    /// The oracle was not told of this topic or partition.
    #[error("the oracle writes and reads no partition {topic}-{partition} (name it to `Oracle::connect`)")]
    UnknownPartition {
        /// Topic.
        topic: String,
        /// Partition.
        partition: u32,
    },
    /// A broker is not in the cluster's metadata, which is how one looks that is down.
    #[error("broker {node} is not in the cluster's metadata")]
    Away {
        /// Broker.
        node: NodeId,
    },
    /// A request failed on its way.
    #[error("the oracle's request to broker {node} failed")]
    Request {
        /// Broker.
        node: NodeId,
        /// What happened.
        #[source]
        source: DirectError,
    },
    /// A broker answered with an error code.
    #[error("{api} of {subject} was answered {} ({code})", name(*code))]
    Refused {
        /// Api name.
        api: &'static str,
        /// Partition or group.
        subject: String,
        /// Error code.
        code: i16,
    },
    /// An answer did not say what was asked.
    #[error("{api} of {subject} was answered without {missing}")]
    Missing {
        /// Api name.
        api: &'static str,
        /// Partition or group.
        subject: String,
        /// What it lacked.
        missing: &'static str,
    },
    /// A record batch could not be decoded or encoded.
    #[error("a record batch of {topic}-{partition} could not be coded: {reason}")]
    Batch {
        /// Topic.
        topic: String,
        /// Partition.
        partition: u32,
        /// What the codec said.
        reason: String,
    },
    /// Records that had to be in the log are not.
    #[error("{acked} of {wanted} records for {topic}-{partition} were acknowledged")]
    NotAcked {
        /// Topic.
        topic: String,
        /// Partition.
        partition: u32,
        /// Wanted.
        wanted: u64,
        /// Acknowledged.
        acked: u64,
        /// The error that ended the attempt.
        #[source]
        source: Option<Box<OracleError>>,
    },
    /// A sentinel must not be a tombstone, and the generator makes nothing else.
    #[error("every record of {topic} is a tombstone, so none can be a sentinel (raise tombstone-every above 1)")]
    OnlyTombstones {
        /// Topic.
        topic: String,
    },
    /// Writing did not make the cluster delete.
    #[error(
        "{records} filler records did not move the log start of {topic}-{partition} past {offset} (it is {log_start})"
    )]
    NotDeleted {
        /// Topic.
        topic: String,
        /// Partition.
        partition: u32,
        /// Offset that the log start had to pass.
        offset: u64,
        /// Log start at the end.
        log_start: u64,
        /// Records written.
        records: u64,
    },
    /// Something kept failing until its time was up; the last failure is the source.
    #[error("{what} did not succeed within {within:?}")]
    TimedOut {
        /// What was tried.
        what: String,
        /// How long.
        within: Duration,
        /// The last failure.
        #[source]
        source: Box<OracleError>,
    },
    /// A task of ours ended early. A bug of ours.
    #[error("a task of the oracle did not end by itself")]
    Task {
        /// How it ended.
        #[source]
        source: tokio::task::JoinError,
    },
}

impl OracleError {
    /// True when a write that failed like this has certainly left nothing in the log.
    pub(super) fn nothing_written(&self) -> bool {
        match self {
            OracleError::Request { source, .. } => source.never_sent(),
            OracleError::Refused { code, .. } => !MAYBE_APPENDED.contains(code),
            OracleError::Missing { .. } | OracleError::Task { .. } => false,
            _ => true,
        }
    }

    /// True when only a bug of ours can have caused it.
    pub(crate) fn is_ours(&self) -> bool {
        match self {
            OracleError::UnknownPartition { .. } | OracleError::Batch { .. } | OracleError::Task { .. } => true,
            OracleError::Request { source, .. } | OracleError::NoBroker { source, .. } => source.is_ours(),
            OracleError::TimedOut { source, .. } => source.is_ours(),
            OracleError::NotAcked { source, .. } => source.as_deref().is_some_and(OracleError::is_ours),
            _ => false,
        }
    }

    /// True when the broker that was asked, or any, is not up.
    pub(super) fn nobody_there(&self) -> bool {
        match self {
            OracleError::Request { source, .. } => source.never_sent(),
            OracleError::NoBroker { .. } | OracleError::Away { .. } => true,
            _ => false,
        }
    }

    pub(super) fn is_out_of_range(&self) -> bool {
        matches!(self, OracleError::Refused { code: OUT_OF_RANGE, .. })
    }
}

/// The code's name in Kafka's protocol, such as `NOT_LEADER_OR_FOLLOWER`.
fn name(code: i16) -> String {
    ResponseError::try_from_code(code).map_or_else(|| "NONE".to_owned(), |known| known.to_string())
}
