//! What parent and child say to each other: one JSON document a line.

use serde::{Deserialize, Serialize};

/// A line of the child's stdin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ask {
    /// Echoed by the answer.
    pub(super) id: u64,
    /// What to do.
    pub(super) command: Command,
}

/// What the child can do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Command {
    /// Create a topic.
    CreateTopic {
        /// Name.
        name: String,
        /// Partitions.
        partitions: i32,
        /// Replicas.
        replicas: i32,
    },
    /// Make a node the leader of a partition.
    Lead {
        /// Topic.
        topic: String,
        /// Partition.
        partition: i32,
        /// Node.
        node: i32,
    },
    /// Make a node the coordinator of a group.
    Coordinate {
        /// Group.
        group: String,
        /// Node.
        node: i32,
    },
    /// Close a broker's connections and listener.
    Down {
        /// Node.
        node: i32,
    },
    /// Listen again, on the same port.
    Up {
        /// Node.
        node: i32,
    },
}

/// A line of the child's stdout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Tell {
    /// First line: the cluster serves.
    Ready {
        /// `host:port` in order of node id, from 1.
        brokers: Vec<String>,
        /// Version of librdkafka.
        librdkafka: String,
    },
    /// The cluster could not be made; the child ends.
    Unable {
        /// Why.
        reason: String,
    },
    /// Answer to a command.
    Answer {
        /// Its id.
        id: u64,
        /// Absent when it was carried out.
        error: Option<String>,
    },
    /// Something that the mock cluster logged as an error, such as a request that it does not support.
    Complaint {
        /// The line.
        text: String,
    },
}
