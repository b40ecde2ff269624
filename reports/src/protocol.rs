//! The lines of adapter protocol v1: what a reader's adapter is told on stdin and what it reports on stdout.
//!
//! `harness/adapters/PROTOCOL.md` is the implementer's page; these types are its Rust form. The adapter asserts nothing;
//! it reports. The harness's distrustful reading of the lines (gaps in `seq`, floods, unknown types) is in the crate
//! `brokerfall`, not here.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::exception::{Exception, Origin};
use crate::runs::Runs;

/// The protocol version that this crate speaks.
pub const PROTOCOL: u32 = 1;

/// One line from an adapter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Protocol version, [`PROTOCOL`].
    pub v: u32,
    /// Rises by one with every line of this process, from 1.
    pub seq: u64,
    /// Incarnation: rises with each reader object that this process builds, from 1; 0 before the first `start`.
    pub inc: u32,
    /// The adapter's monotonic clock, milliseconds from any origin.
    pub mono_ms: f64,
    /// What is reported; on the wire its `type` and fields stand beside the four above.
    #[serde(flatten)]
    pub event: ReaderEvent,
}

/// What a reader kind is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A materialised view of a topic: the last value of each key.
    Table,
    /// A consumer-group member.
    Group,
    /// A reader of partitions assigned by hand, without a group.
    Assign,
}

impl Kind {
    /// The name used in files and reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Table => "table",
            Kind::Group => "group",
            Kind::Assign => "assign",
        }
    }
}

/// Where a reader starts when it has no position (`auto.offset.reset`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reset {
    /// At the log start.
    Earliest,
    /// At the log end.
    Latest,
    /// Nowhere: it fails.
    None,
}

/// `isolation.level`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// Reads everything up to the high watermark.
    ReadUncommitted,
    /// Reads only committed transactions.
    ReadCommitted,
}

/// A command with the id that its `done` echoes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Echoed by the `done` that answers.
    pub id: u64,
    /// What to do; on the wire its `command` and fields stand beside `id`.
    #[serde(flatten)]
    pub command: Command,
}

/// What the harness tells an adapter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// Build the reader and let it read. Answered once the library's own start call has returned or raised.
    Start(Start),
    /// Report the whole table in `snapshot_part` lines, then `done`.
    Snapshot,
    /// Ask the library whether everything written so far is applied; answered with `reached`.
    Barrier {
        /// How long the library may take, milliseconds.
        timeout_ms: u64,
    },
    /// Wait for the library's own "caught up"; answered with `reached`.
    WaitCaughtUp {
        /// How long the library may take, milliseconds.
        timeout_ms: u64,
    },
    /// Make a user callback misbehave.
    ArmCallback(ArmCallback),
    /// Commit the current position now.
    Commit,
    /// Close and rebuild the reader object in this process.
    Restart,
    /// Close the reader and exit.
    Stop {
        /// How long the library's own close may take, milliseconds.
        grace_ms: u64,
    },
}

/// Everything a reader needs to start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// `host:port,…` of the link.
    pub bootstrap: String,
    /// Topics to read, in the plan's order.
    pub topics: Vec<TopicRef>,
    /// What kind of reader to build.
    pub kind: Kind,
    /// Consumer group, for kinds that have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// `client.id`; the link tells members apart by it.
    pub client_id: String,
    /// `auto.offset.reset`.
    pub reset: Reset,
    /// `isolation.level`.
    pub isolation: Isolation,
    /// Group session timeout, milliseconds; absent means the library's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_ms: Option<u64>,
    /// Interval of group heartbeats, milliseconds; absent means the library's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_ms: Option<u64>,
    /// Longest time between two polls of a group member, milliseconds; absent means the library's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_poll_ms: Option<u64>,
    /// `group.instance.id` of a static member (KIP-345); absent of a dynamic one. Only for adapters that have
    /// [`STATIC_MEMBER`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_instance_id: Option<String>,
    /// A private folder for local state that outlives a restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_dir: Option<String>,
    /// Library options from the scenario, passed on as they are.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, serde_json::Value>,
}

/// A topic and the role it plays for the reader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicRef {
    /// Topic name.
    pub name: String,
    /// Number of partitions.
    pub partitions: u32,
    /// `input` or `changelog` where a reader needs several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
}

/// A callback fault as the adapter carries it out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArmCallback {
    /// Which user callback.
    pub callback: Callback,
    /// Which call of it.
    pub on: On,
    /// What it does then.
    pub raise: Raise,
    /// How often.
    pub times: Times,
}

/// A user callback of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Callback {
    /// A table applied a value.
    OnSet,
    /// A table applied a deletion.
    OnDelete,
    /// A record was handed to the user.
    OnRecord,
}

/// Which call of a callback a fault strikes. Exactly one is set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum On {
    /// The first call with this key from now on.
    Key(String),
    /// The first call with this record offset, on any partition.
    Offset(u64),
    /// The nth call from now on, from 1.
    Nth(u64),
}

/// What a struck callback does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Raise {
    /// The way of failing.
    pub how: How,
    /// Type to raise, in the adapter's language; absent means its plain error type (`ValueError`, `errors.New`, `Error`).
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub type_name: Option<String>,
    /// Length of a delay, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ms: Option<u64>,
}

/// Ways in which a callback fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// An ordinary exception, returned error or panic.
    Exception,
    /// One that ordinary handlers do not catch (`BaseException`, `java.lang.Error`, a panic in Go).
    BaseException,
    /// It never returns.
    Hang,
    /// It returns late.
    Delay,
}

/// How often a callback fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Times {
    /// On every matching call.
    Always,
    /// This often, then never again.
    #[serde(untagged)]
    Count(u64),
}

/// What an adapter reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ReaderEvent {
    /// First line: who speaks.
    Hello(Hello),
    /// The library's own start call returned; the reader reads.
    Started,
    /// Records were handed to the user.
    Records {
        /// One entry per partition that delivered something.
        partitions: Vec<Delivered>,
    },
    /// The table dropped these keys; for readers that are told only the key of a tombstone.
    Deleted {
        /// Keys.
        keys: Vec<String>,
    },
    /// Signs of life, every 250 ms.
    Heartbeat(Heartbeat),
    /// The reader has ended.
    Stopped {
        /// Why, in the adapter's words.
        reason: String,
        /// What ended it, where it says so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exception: Option<Exception>,
    },
    /// The answer to a command.
    Done(Done),
    /// The group moved partitions.
    Rebalanced {
        /// Partitions gained.
        #[serde(default)]
        assigned: Vec<TopicPartition>,
        /// Partitions given back.
        #[serde(default)]
        revoked: Vec<TopicPartition>,
        /// Partitions taken away.
        #[serde(default)]
        lost: Vec<TopicPartition>,
    },
    /// The position was moved by the library, not by reading.
    Reset {
        /// Topic.
        topic: String,
        /// Partition.
        partition: u32,
        /// Old position, where known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<u64>,
        /// New position, where known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<u64>,
        /// Why.
        cause: ResetCause,
    },
    /// Offsets were committed.
    Committed {
        /// Next offset per partition.
        offsets: Vec<Position>,
    },
    /// The library says that the initial end is reached.
    CaughtUp,
    /// The library's public status changed.
    Status {
        /// The library's word for it, verbatim.
        state: String,
        /// More, where it says more.
        #[serde(default)]
        detail: String,
    },
    /// A part of a table's content.
    SnapshotPart {
        /// The `snapshot` command that it answers.
        id: u64,
        /// `[key, record id]`; null for an entry whose value holds no id.
        entries: Vec<(String, Option<u64>)>,
    },
    /// An armed callback is about to misbehave.
    CallbackEntered(CallbackCall),
    /// An armed callback raised.
    CallbackRaised(CallbackCall),
    /// A blocking call of the library came back while the process lives; a null error means that no reason was given.
    Returned {
        /// The call, in the library's words.
        call: String,
        /// What it returned.
        #[serde(default)]
        value: serde_json::Value,
        /// The error it returned or raised.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<Exception>,
    },
    /// Something went wrong in or under the reader.
    Error {
        /// Where it surfaced.
        origin: Origin,
        /// True when the library says that it is the end.
        fatal: bool,
        /// What it was.
        exception: Exception,
        /// How many equal ones (type, masked message, origin) this line stands for.
        #[serde(default = "one")]
        count: u64,
    },
}

fn one() -> u64 {
    1
}

/// Who an adapter is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Protocol version it speaks.
    pub protocol: u32,
    /// Library under test, `name version`.
    pub library: String,
    /// Kafka client below it, `name version`.
    pub client: String,
    /// Language runtime, `name version`.
    pub runtime: String,
    /// Kinds it can build.
    pub kinds: Vec<Kind>,
    /// Optional events and commands it has; `PROTOCOL.md` lists the names.
    pub capabilities: Vec<String>,
}

/// A run of records from one partition, in delivery order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Delivered {
    /// Topic.
    pub topic: String,
    /// Partition.
    pub partition: u32,
    /// Offsets, where the reader is told them (`records.offsets`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offsets: Option<Runs>,
    /// Record ids, where the reader is told them (`records.ids`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<Runs>,
    /// Adapter clock of the first and last record, milliseconds.
    pub t: (f64, f64),
}

/// Signs of life.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The library's state, verbatim, or the adapter's word where it has none.
    pub state: String,
    /// Next offset to read per partition, where the library says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub positions: Option<Vec<Position>>,
    /// Milliseconds since the reading loop last turned; null where the library owns the loop.
    #[serde(default)]
    pub loop_age_ms: Option<f64>,
    /// Milliseconds since the last poll.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_poll_age_ms: Option<f64>,
    /// Milliseconds since the last successful commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_commit_age_ms: Option<f64>,
    /// What the library claims about itself.
    #[serde(default)]
    pub claims: Claims,
    /// The library's own counters, such as `callback_errors`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, f64>,
}

/// What a library claims about itself; each is compared with the truth.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Claims {
    /// It says that it has caught up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caught_up: Option<bool>,
    /// It says that it is healthy, live or ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy: Option<bool>,
    /// It says that it is this many records behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<u64>,
}

/// A topic and partition.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TopicPartition {
    /// Topic.
    pub topic: String,
    /// Partition.
    pub partition: u32,
}

/// A next offset in a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Topic.
    pub topic: String,
    /// Partition.
    pub partition: u32,
    /// Next offset.
    pub offset: u64,
}

/// Why a position moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResetCause {
    /// The broker said OFFSET_OUT_OF_RANGE.
    OutOfRange,
    /// The log was truncated.
    Truncated,
    /// The user or adapter asked for it.
    Seek,
    /// A failed record is read again.
    Retry,
    /// The library does not say.
    Unknown,
}

/// A call of an armed callback.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallbackCall {
    /// Which callback.
    pub callback: Callback,
    /// Key of the record, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Offset of the record, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
}

/// The answer to a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// Id of the command.
    pub id: u64,
    /// False when the command could not be carried out.
    pub ok: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Exception>,
    /// `barrier` and `wait_caught_up`: whether it was reached in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<bool>,
    /// `barrier` and `wait_caught_up`: how long the library took, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elapsed_ms: Option<f64>,
}

/// The capability of an adapter whose reader can be a static member of its group.
pub const STATIC_MEMBER: &str = "static-member";

/// Capability: records carry offsets.
pub const RECORDS_OFFSETS: &str = "records.offsets";
/// Capability: the reader keeps something in `state_dir` with which a later process goes on where this one was.
pub const STATE: &str = "state";
/// Capability: records carry record ids.
pub const RECORDS_IDS: &str = "records.ids";
