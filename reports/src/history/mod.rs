//! The history record: everything that happened in a run, in the order in which the harness learned of it.
//!
//! `history.jsonl` holds one [`Entry`] a line. The first is always [`Event::Opened`], which carries all of the plan that
//! judging needs, so that a stored history can be judged again with nothing but itself. The last is [`Event::Closed`];
//! a history without it was cut off and is partial.
//!
//! Events are externally tagged (`{"n":7,"at_us":1200,"event":{"injected":{…}}}`), because serde buffers internally
//! tagged and flattened values, and reading the history is what judging spends its time on.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

mod plan;
mod read;

use crate::exception::Code;
use crate::protocol::{ReaderEvent, TopicPartition};
use crate::runs::Runs;

pub use plan::{
    ClusterInfo, Declares, Expect, ExpectedEnd, ExpectedException, FaultInfo, Generator, Grade, Limit, Limits, Opened,
    Phase, ReaderInfo, TopicInfo,
};
pub use read::EntryReader;

/// Version of the record format. It rises when a required field is added or a meaning changes.
pub const HISTORY_FORMAT: u32 = 1;

/// One line of a history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Number of the event, from 0, without gaps.
    pub n: u64,
    /// When the harness recorded it: microseconds since the run was opened, on a monotonic clock.
    pub at_us: u64,
    /// What happened.
    pub event: Event,
}

/// Everything that can happen in a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// First event: the plan, as far as judging needs it.
    Opened(Box<Opened>),
    /// The run entered a stage of its own life.
    Stage(Stage),
    /// A step of the scenario moved on.
    Step {
        /// Position in the plan, from 0.
        index: u32,
        /// The step as a sentence.
        text: String,
        /// Where it stands.
        state: StepState,
        /// More: for `unmet`, the trigger's last value seen.
        #[serde(default)]
        detail: String,
    },

    // Faults.
    /// A fault is about to be injected. From here to `injected`, effects may already show.
    Injecting {
        /// Name of the fault in this run, unique.
        fault: String,
        /// Its kind, such as `kill-broker`.
        kind: String,
        /// What exactly, as a sentence.
        text: String,
        /// True when the cluster imitates the fault and cannot really do it.
        emulated: bool,
    },
    /// Evidence of grade `injected`: the backend proves that the fault is in force.
    Injected {
        /// Name of the fault.
        fault: String,
        /// What proves it.
        proof: String,
    },
    /// Evidence of grade `delivered`: the fault hit this reader.
    Delivered {
        /// Name of the fault.
        fault: String,
        /// What proves it.
        proof: String,
    },
    /// Evidence of grade `felt`: the reader's events or progress changed.
    Felt {
        /// Name of the fault.
        fault: String,
        /// What proves it.
        proof: String,
    },
    /// A fault is about to be healed.
    Healing {
        /// Name of the fault.
        fault: String,
    },
    /// The heal is proven.
    Healed {
        /// Name of the fault.
        fault: String,
        /// What proves it.
        proof: String,
    },
    /// A fault or heal could not be proven; the run is void.
    NotProven {
        /// Name of the fault.
        fault: String,
        /// What was to be proven.
        wanted: Proof,
        /// What was seen instead.
        text: String,
    },

    // The oracle: the truth, learned on a direct listener.
    /// Records were written by the oracle.
    Produced {
        /// Topic.
        topic: String,
        /// Partition.
        partition: u32,
        /// Record ids, rising.
        ids: Runs,
        /// Their offsets, in step with `ids`; empty unless acknowledged.
        offsets: Runs,
        /// What the broker said.
        outcome: ProduceOutcome,
    },
    /// Log start or log end moved.
    Watermarks {
        /// Topic.
        topic: String,
        /// Partition.
        partition: u32,
        /// First offset that can be read.
        log_start: u64,
        /// Next offset to be written (high watermark).
        log_end: u64,
    },
    /// The oracle read the log of one partition from `from` to before `to`: these ids stand at these offsets, nothing else.
    Scanned {
        /// Topic.
        topic: String,
        /// Partition.
        partition: u32,
        /// First offset asked for (the log start).
        from: u64,
        /// End of the scan, exclusive (the log end).
        to: u64,
        /// Record ids found.
        ids: Runs,
        /// Their offsets, in step with `ids`.
        offsets: Runs,
    },
    /// A topic has more partitions than before, and readers can see them.
    PartitionsAdded {
        /// Topic.
        topic: String,
        /// How many there were.
        from: u32,
        /// How many there are.
        to: u32,
    },
    /// A topic was deleted, to be created anew: no record that was written before stands in it any more, and its offsets
    /// begin again. Nothing is written from before its deletion until this event.
    TopicDeleted {
        /// Topic.
        topic: String,
    },
    /// Records of one partition belong to a transaction, which begins or ends. They are [`Event::Produced`] like any other.
    Transaction {
        /// Topic.
        topic: String,
        /// Partition.
        partition: u32,
        /// Record ids, rising.
        ids: Runs,
        /// What becomes of it.
        state: TransactionState,
    },
    /// The end of a partition's log went back: what stood at this offset and above it is lost, acknowledged or not, and
    /// other records take those offsets. Nothing is written from before the loss until this event.
    LogTruncated {
        /// Topic.
        topic: String,
        /// Partition.
        partition: u32,
        /// Where the log ends now, exclusive.
        log_end: u64,
    },
    /// The log end of every partition when a reader (or one of its members) was started: what `catches_up` asks for.
    Targets {
        /// Which member.
        member: String,
        /// Log end per partition.
        ends: Vec<LogEnd>,
    },
    /// One sentinel record per partition is acknowledged; `recovers` asks for these.
    Sentinel {
        /// Which round, from 1: the first judges the patient, later ones serve diagnosis.
        round: u32,
        /// Id and offset per partition.
        records: Vec<SentinelRecord>,
    },
    /// All heals are proven and the oracle read through the broker (true), or a fault closes the path (false).
    Path {
        /// Whether the path is open.
        open: bool,
        /// What proves it.
        proof: String,
    },
    /// Writers have stopped and the log is quiet; what the reader shows from here on is final.
    Quiet,

    // The reader.
    /// A reader process was started.
    Spawned {
        /// Member name (`r1`, `r2`, …), also its `client.id`.
        member: String,
        /// Process id; absent for an in-process reader.
        pid: Option<u32>,
        /// The command line.
        command: Vec<String>,
        /// True for a member that is not the reader under test: it reads along in the group and is not judged.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        neutral: bool,
    },
    /// A command was sent.
    Asked {
        /// Member.
        member: String,
        /// Id that its `done` echoes.
        id: u64,
        /// The command's name.
        command: String,
        /// How long an answer may take, milliseconds.
        within_ms: u64,
    },
    /// A line from a reader's adapter.
    Reader {
        /// Member.
        member: String,
        /// Incarnation.
        inc: u32,
        /// When it happened: `mono_ms` of the line on the run's clock, microseconds.
        reader_us: u64,
        /// What it said.
        event: ReaderEvent,
    },
    /// The adapter broke the protocol; the run is void.
    ProtocolBroken {
        /// Member.
        member: String,
        /// Which rule was broken, and how.
        text: String,
        /// The start of the offending line, where there is one.
        #[serde(default)]
        line: String,
    },
    /// No heartbeat, or a loop age above the limit, in a process that runs.
    ReaderBlocked {
        /// Member.
        member: String,
        /// Since when, microseconds since the run was opened.
        since_us: u64,
    },
    /// A blocked reader shows signs of life again.
    ReaderUnblocked {
        /// Member.
        member: String,
    },
    /// An endpoint or program of the user's own was asked how the reader is (`[[claim]]`).
    Claim {
        /// Member.
        member: String,
        /// Name of the claim.
        name: String,
        /// Whether it says that the reader is healthy; no answer in time says that it is not.
        healthy: bool,
        /// The answer in a few words, such as `status 200`.
        text: String,
    },
    /// A member's state folder was emptied, between two of its lives.
    StateWiped {
        /// Member.
        member: String,
        /// Files and folders that stood in it.
        entries: u64,
    },
    /// A reader process ended.
    Exited {
        /// Member.
        member: String,
        /// Exit status.
        code: Option<i32>,
        /// Signal that ended it.
        signal: Option<i32>,
        /// True when the harness asked for it (stop, kill-reader, clean-up).
        asked: bool,
        /// The last lines of its stderr.
        #[serde(default)]
        stderr_tail: String,
    },
    /// Resources of a reader's process group.
    Sample {
        /// Member.
        member: String,
        /// User and system time so far, milliseconds.
        cpu_ms: u64,
        /// Resident memory, KiB.
        rss_kib: u64,
        /// Open file descriptors.
        descriptors: u64,
        /// Processes in the group.
        processes: u32,
        /// For how long its threads, added up, were ready to run and had no core so far, milliseconds; absent where the
        /// kernel does not count it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        waited_ms: Option<u64>,
    },
    /// How a reader left: what `stops_cleanly` judges.
    Left {
        /// Member.
        member: String,
        /// From the stop command to the end of the process, milliseconds; absent when it had to be killed.
        stopped_ms: Option<u64>,
        /// Processes of its group that were still there.
        processes: Vec<String>,
        /// Connections that it still had on the link.
        connections: u32,
    },

    // The wire, as the link saw it.
    /// Traffic of one client in one window.
    Wire {
        /// `client.id`; empty where the client has not told one yet.
        client: String,
        /// Length of the window, microseconds.
        span_us: u64,
        /// Requests by api name.
        requests: BTreeMap<String, u64>,
        /// Connections opened.
        connects: u64,
        /// Highest fetch offset asked for per partition.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        fetch_offsets: Vec<LogEnd>,
    },
    /// A response carried an error code.
    WireError {
        /// `client.id`.
        client: String,
        /// Api name, such as `Fetch`.
        api: String,
        /// The code, named as Kafka's protocol names it.
        code: Code,
        /// Topic, where the error is one topic's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        topic: Option<String>,
        /// Partition, where the error is one partition's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        partition: Option<u32>,
        /// The fault whose rule put it there; absent when the broker said it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        injected_by: Option<String>,
        /// How many equal ones this event stands for.
        count: u64,
    },
    /// A connection on the link changed.
    WireConnection {
        /// `client.id`, where known.
        client: String,
        /// Broker.
        node: i32,
        /// What happened.
        change: ConnectionChange,
        /// How many equal ones this event stands for.
        count: u64,
    },
    /// A group member's standing, read from the wire.
    WireGroup {
        /// `client.id` of the member.
        client: String,
        /// Group.
        group: String,
        /// What happened.
        change: GroupChange,
    },
    /// An OffsetCommit response.
    WireCommit {
        /// `client.id` of the member.
        client: String,
        /// Group.
        group: String,
        /// Topic.
        topic: String,
        /// Partition.
        partition: u32,
        /// Committed offset: the next one to read.
        offset: u64,
        /// Error code; 0 means committed.
        code: i16,
    },
    /// A client was told where to go: a Metadata or FindCoordinator answer named another broker than the client was told
    /// last, or told it for the first time.
    WireTold {
        /// `client.id`.
        client: String,
        /// For what.
        place: Place,
        /// The broker; -1 for none.
        node: i32,
    },
    /// A group as its coordinator describes it to the oracle; told anew when that changes.
    GroupDescribed {
        /// Group.
        group: String,
        /// The broker that told it.
        coordinator: i32,
        /// Its word for the group's state, such as `Stable` or `Empty`.
        state: String,
        /// Those that it holds for members.
        members: Vec<GroupMember>,
    },
    /// Where a group's commits stand, as its coordinator tells the oracle; only of partitions where that changed.
    CommitsTold {
        /// Group.
        group: String,
        /// Committed offset per partition: the next one to read.
        offsets: Vec<LogEnd>,
    },
    /// The emulated cluster did what a real one would not; the run is void.
    Deviation {
        /// What it did.
        text: String,
    },

    // Diagnosis after the patient's verdict is fixed.
    /// A cure was tried: a fresh object in the same process, then a fresh process.
    Cure {
        /// What was renewed.
        renewed: Renewed,
        /// Whether the backlog drained and the next sentinel arrived.
        worked: bool,
        /// What was seen.
        text: String,
    },

    // The end.
    /// The harness or its environment failed; never the reader's doing.
    Failure {
        /// Who failed.
        of: FailureOf,
        /// What, what was wanted, and the next step.
        text: String,
    },
    /// The machine had more to do than cores to do it with: what is used of the CPU says less than it would alone. Told
    /// once a second while it is so.
    Contended {
        /// Length of the time that is told of, which ends here, microseconds.
        span_us: u64,
        /// For how much of it something had to wait for a core, microseconds.
        waited_us: u64,
    },
    /// The sampler missed its turn by more than a second: the machine starved the harness.
    Starved {
        /// The gap, milliseconds.
        gap_ms: u64,
    },
    /// The run cannot take place here.
    Skipped {
        /// Why.
        reason: String,
        /// What would enable it.
        enable: String,
    },
    /// A signal ended the run early; everything was healed.
    Interrupted {
        /// Signal name.
        signal: String,
    },
    /// Last event.
    Closed,
}

/// What could not be proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// That the fault was in force.
    Injected,
    /// That it hit this reader.
    Delivered,
    /// That the reader felt it.
    Felt,
    /// That it is gone.
    Healed,
    /// That the scenario's phase was on when it was injected.
    Phase,
    /// That the reader was healthy before the first fault.
    HealthyBefore,
}

/// Stages of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Cluster, link, topics and preload.
    Preparing,
    /// The reader starts.
    Starting,
    /// Steps run.
    Steps,
    /// All heals are asked for and being proven.
    Healing,
    /// Waiting for `catches_up` in a quiet scenario.
    CatchingUp,
    /// Waiting for the sentinel.
    Recovering,
    /// Writers stopped; snapshot and barrier.
    Settling,
    /// The patient's verdict is fixed; cures are tried.
    Diagnosing,
    /// The reader is stopped.
    Stopping,
    /// Last scans and clean-up.
    Closing,
}

/// Where a step stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepState {
    /// Its trigger is awaited.
    Waiting,
    /// Its trigger was met.
    Triggered,
    /// It is carried out and proven.
    Done,
    /// Its trigger was not met in time; the run is void.
    Unmet,
}

/// What the broker said of records that the oracle wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProduceOutcome {
    /// Acknowledged.
    Acked,
    /// Refused; they are not in the log.
    Failed,
    /// Unknown.
    Maybe,
}

/// How far a transaction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransactionState {
    /// Its records are about to be written.
    Begun,
    /// It is about to be committed: from here on a reader that reads committed records only may be given them.
    Committing,
    /// Its commit marker stands in the log, and nothing is held back by it.
    Committed,
    /// Its abort marker stands in the log: such a reader is never given its records.
    Aborted,
}

/// An offset in a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEnd {
    /// Topic.
    pub topic: String,
    /// Partition.
    pub partition: u32,
    /// Offset.
    pub offset: u64,
}

/// A sentinel record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentinelRecord {
    /// Topic.
    pub topic: String,
    /// Partition.
    pub partition: u32,
    /// Record id.
    pub id: u64,
    /// Its offset.
    pub offset: u64,
}

/// What happened to a connection on the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionChange {
    /// The client connected and the link reached the broker.
    Opened,
    /// The client closed it.
    ClosedByClient,
    /// The broker closed it.
    ClosedByBroker,
    /// The link reset it (RST to both ends).
    ResetByLink,
    /// The client connected while the broker was away and was turned away after accept.
    TurnedAway,
    /// It was held while traffic waited.
    Held,
    /// Bytes on it waited for a throttle or delay.
    Slowed,
    /// The link reset it in the middle of a response.
    CutInResponse,
    /// The link closed it, as a broker does where nothing went either way for the time that `cluster.idle` gives.
    ClosedIdle,
    /// A connect got no answer: neither accepted nor refused.
    Unanswered,
}

/// A group member's standing, read from the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupChange {
    /// JoinGroup answered without error.
    Joined {
        /// Generation.
        generation: i32,
        /// Member id that the broker gave.
        member_id: String,
    },
    /// SyncGroup answered without error: it owns these partitions.
    Synced {
        /// Generation.
        generation: i32,
        /// Partitions owned.
        owns: Vec<TopicPartition>,
    },
    /// A heartbeat was answered without error (at most one event a second).
    Alive {
        /// Generation.
        generation: i32,
    },
    /// It left, or the coordinator no longer knows it.
    Gone {
        /// `LeaveGroup`, or the error code's name.
        how: String,
    },
}

/// A member of a group, as its coordinator describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupMember {
    /// Member id that the coordinator gave.
    pub member_id: String,
    /// `client.id`.
    pub client: String,
    /// `group.instance.id` of a static member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Partitions that it owns; none while the group rebalances.
    pub owns: Vec<TopicPartition>,
}

/// What a broker is in charge of.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// A partition, which it leads.
    Partition {
        /// Topic.
        topic: String,
        /// Partition.
        partition: u32,
    },
    /// A group, which it coordinates.
    Group(String),
}

/// What a cure renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Renewed {
    /// A fresh reader object in the same process.
    Object,
    /// A fresh process.
    Process,
}

/// Who failed, when it was not the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureOf {
    /// A bug of ours.
    Harness,
    /// The machine, a service, provisioning.
    Environment,
}
