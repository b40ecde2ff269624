//! What the link saw, over time.

use std::collections::BTreeMap;

use brokerfall_report::exception::Code;
use brokerfall_report::history::{ConnectionChange, GroupChange};

use super::Moment;

/// Traffic of one client in one window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// The end of the window.
    pub at: Moment,
    /// `client.id`.
    pub client: String,
    /// Its length, microseconds.
    pub span_us: u64,
    /// Requests by api.
    pub requests: Vec<(String, u64)>,
    /// Connections opened.
    pub connects: u64,
}

impl Window {
    /// All requests.
    pub fn total(&self) -> u64 {
        self.requests.iter().fold(0, |sum, (_, n)| sum.saturating_add(*n))
    }
}

/// An error code on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// When.
    pub at: Moment,
    /// `client.id`.
    pub client: String,
    /// Api.
    pub api: String,
    /// Code.
    pub code: Code,
    /// Topic, where it is one topic's.
    pub topic: Option<String>,
    /// Partition, where it is one partition's.
    pub partition: Option<u32>,
    /// The fault that put it there.
    pub injected_by: Option<String>,
    /// How many.
    pub count: u64,
}

/// A group member's standing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// When.
    pub at: Moment,
    /// `client.id`.
    pub client: String,
    /// What happened.
    pub change: GroupChange,
}

/// A commit: acknowledged on the wire, or reported by the reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// When.
    pub at: Moment,
    /// Member.
    pub member: String,
    /// Topic.
    pub topic: String,
    /// Partition.
    pub partition: u32,
    /// Next offset to read.
    pub offset: u64,
    /// The link saw it; else the reader said so.
    pub on_wire: bool,
}

/// Changes of connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// When.
    pub at: Moment,
    /// `client.id`; empty until a request told it.
    pub client: String,
    /// Broker.
    pub node: i32,
    /// What.
    pub change: ConnectionChange,
    /// How many.
    pub count: u64,
}

/// Everything that the link saw.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wire {
    /// Traffic windows in order.
    pub windows: Vec<Window>,
    /// Error codes in order.
    pub answers: Vec<Answer>,
    /// Connections in order.
    pub connections: Vec<Connection>,
    /// Group standings in order.
    pub standings: Vec<Standing>,
    /// Commits in order.
    pub commits: Vec<Commit>,
    /// Highest fetch offset per topic and partition.
    pub fetched: BTreeMap<String, BTreeMap<u32, u64>>,
}
