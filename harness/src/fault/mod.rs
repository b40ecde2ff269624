//! Faults: each one file with its spec, docs, needs, evidence and heal.
//!
//! Adding a fault is one file here and one variant of [`FaultSpec`]. A fault acts only through the `Cluster`, `Link` and
//! `Reader` that it is given, and tells nothing but the history.

use serde::{Deserialize, Serialize};

pub mod answer_error;
pub mod delete_segments;
pub mod kill_broker;
pub mod kill_reader;
pub mod panic_callback;
pub mod partition;
pub mod pause_broker;
pub mod pause_reader;

/// A fault as a scenario names it: `do = { kill-broker = { broker = "leader" } }`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum FaultSpec {
    /// SIGKILL of a broker.
    KillBroker(kill_broker::KillBroker),
    /// SIGSTOP of a broker.
    PauseBroker(pause_broker::PauseBroker),
    /// The network between reader and brokers.
    Partition(partition::Partition),
    /// Retention deletes log segments.
    DeleteSegments(delete_segments::DeleteSegments),
    /// A user callback misbehaves.
    PanicCallback(panic_callback::PanicCallback),
    /// SIGSTOP of the reader.
    PauseReader(pause_reader::PauseReader),
    /// SIGKILL of the reader.
    KillReader(kill_reader::KillReader),
    /// An error code answered on the wire.
    AnswerError(answer_error::AnswerError),
}

/// Which brokers a fault strikes, chosen at the moment of injection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BrokerChoice {
    /// The leader of partition 0 of the first topic.
    Leader,
    /// The coordinator of the reader's group (of any kind without a group: the leader).
    Coordinator,
    /// Every broker.
    All,
    /// This node id, from 1.
    #[serde(untagged)]
    Node(i32),
}
