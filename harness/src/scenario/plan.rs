//! The plan: one scenario with every axis of its matrix fixed. The run loop carries it out as it stands.

use std::collections::BTreeMap;
use std::time::Duration;

use brokerfall_report::history::{ExpectedEnd, Generator, Grade, Phase};
use brokerfall_report::protocol::{Isolation, Kind, Reset};
use serde::{Deserialize, Serialize};

use crate::cluster::{Cleanup, NodeId};
use crate::fault::FaultSpec;
pub use crate::fault::kill_reader::State;

/// A scenario with every axis fixed.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// `folder/name`, with `[axis=value,…]` where the scenario has a matrix.
    pub id: String,
    /// One line.
    pub title: String,
    /// The comment that opens the file.
    pub story: String,
    /// `quick`, `full`, or a user's own.
    pub tags: Vec<String>,
    /// The phase that the first fault must hit.
    pub phase: Phase,
    /// Cluster.
    pub cluster: ClusterPlan,
    /// Reader.
    pub reader: ReaderPlan,
    /// Topics, at least one.
    pub topics: Vec<TopicPlan>,
    /// What the oracle writes meanwhile.
    pub load: Option<LoadPlan>,
    /// Steps in order.
    pub steps: Vec<Step>,
    /// What is asked.
    pub expect: ExpectPlan,
    /// The longest that a run of it may last, by the clock on the wall; then it is ended and void.
    pub wall: Duration,
}

/// What the cluster must be.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterPlan {
    /// 1 to 3.
    pub brokers: u32,
    /// How long after a kill leaders and coordinators move, on clusters that must be told to.
    pub election: Duration,
    /// How long nothing may go either way on a connection before the link closes it, as a broker with
    /// `connections.max.idle.ms` does; absent means for ever.
    pub idle: Option<Duration>,
    /// The node that coordinates the reader's group at the start; absent leaves it to the cluster.
    pub offsets_on: Option<NodeId>,
}

/// What the reader must be.
#[derive(Debug, Clone, PartialEq)]
pub struct ReaderPlan {
    /// Only readers of this kind; absent means every kind (narrowed by what the steps need).
    pub kind: Option<Kind>,
    /// Members at the start, at least 1; more than one needs kind group.
    pub members: u32,
    /// `auto.offset.reset`.
    pub reset: Reset,
    /// `isolation.level`.
    pub isolation: Isolation,
    /// Group session timeout.
    pub session: Option<Duration>,
    /// Interval of its heartbeats to the group's coordinator.
    pub heartbeat: Option<Duration>,
    /// How long it may take between two polls before it counts as dead.
    pub max_poll: Option<Duration>,
    /// Its members are static ones of their group (KIP-345).
    pub is_static: bool,
    /// Options passed on to the adapter.
    pub options: BTreeMap<String, serde_json::Value>,
}

/// A topic of the plan.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicPlan {
    /// Name.
    pub name: String,
    /// At least 1.
    pub partitions: u32,
    /// Replicas; absent means the number of brokers.
    pub replicas: Option<u32>,
    /// Nodes that hold its replicas; empty leaves it to the cluster.
    pub brokers: Vec<NodeId>,
    /// `segment.bytes`.
    pub segment_bytes: Option<u64>,
    /// When its oldest records are deleted; absent means never.
    pub retention: Option<Retention>,
    /// `cleanup.policy`.
    pub cleanup: Cleanup,
    /// `input` or `changelog`.
    pub role: Option<String>,
    /// Records per partition that stand in the log before the reader starts.
    pub preload: u64,
    /// How old the first of them is; the last is written now, and those between are as old as their turn. Absent means now.
    pub age: Option<Duration>,
    /// How keys and values follow from ids.
    pub generator: Generator,
}

/// When the oldest records of a topic are deleted. One of the two at least.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retention {
    /// `retention.bytes`, a partition.
    pub bytes: Option<u64>,
    /// `retention.ms`, milliseconds.
    pub ms: Option<u64>,
}

/// What the oracle writes while steps run.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadPlan {
    /// Records a second, over all partitions of all topics.
    pub per_second: f64,
    /// The step that ends it once it is done; absent means that it goes on until the end.
    pub until: Option<String>,
}

/// A step.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Its name; a fault's name in the run. Unique; given or made (`kill-broker-1`).
    pub name: String,
    /// What must hold before it is carried out; everything must.
    pub when: When,
    /// Then this much later.
    pub after: Option<Duration>,
    /// Longest wait for `when`, default 60 s.
    pub wait: Duration,
    /// What to do.
    pub action: Action,
}

/// A trigger. The default is met at once: as soon as the step before is proven.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct When {
    /// Before the reader is started.
    pub before_start: bool,
    /// The reader has caught up, by its position.
    pub caught_up: Option<bool>,
    /// At least this many records were delivered in all.
    pub delivered: Option<u64>,
    /// The link saw this many requests of an api since the step before was done.
    pub wire: Option<WireTrigger>,
    /// A command of this name was asked and is not answered.
    pub in_flight: Option<InFlight>,
}

/// A command to the reader that may be asked and not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InFlight {
    /// The library's own start call.
    Start,
    /// A snapshot.
    Snapshot,
    /// A barrier.
    Barrier,
    /// A commit.
    Commit,
    /// The library's own close.
    Stop,
}

/// A trigger on requests that the link sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireTrigger {
    /// Api name, such as `Heartbeat`.
    pub api: String,
    /// How many, from 1.
    pub count: u64,
}

/// What a step does.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Inject a fault.
    Do {
        /// Which.
        fault: FaultSpec,
        /// Lowest grade of evidence that makes it count.
        grade: Grade,
    },
    /// Heal the faults of these steps.
    Heal(Vec<String>),
    /// Heal whatever is in force.
    HealAll,
    /// Write records to each partition of every topic.
    Produce(Produce),
    /// Ask the reader for something.
    Ask {
        /// What.
        what: Ask,
        /// Whether the step lasts until it is answered; else it is done as soon as it was asked.
        wait: bool,
    },
    /// Close and rebuild the reader object.
    Restart(State),
    /// Start another member; healed by its leaving.
    Join(Joiner),
}

/// Longest value that a step writes, bytes: what the oracle asks a broker for at once.
pub const MOST_VALUE_BYTES: u64 = 8_000_000;

/// A topic takes records up to this long unless it is told otherwise, bytes: a little below Kafka's `max.message.bytes`.
pub const USUAL_VALUE_BYTES: u64 = 900_000;

/// Records that a step writes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Produce {
    /// How many to each partition.
    pub records: u64,
    /// Bytes of a value; absent means as the topic has it.
    pub value_bytes: Option<u64>,
    /// Their values are null, whatever the topic has.
    pub null_values: bool,
}

/// What a reader is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// The whole of a table.
    Snapshot,
    /// That everything written so far is applied.
    Barrier,
    /// To commit its position.
    Commit,
    /// To close and end. It does not come back, and owes nothing from then on.
    Stop,
}

/// Who joins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Joiner {
    /// Another member of the reader under test.
    #[default]
    Same,
    /// The bundled `reference-group`, of which it is known that it is a good neighbour.
    Neutral,
}

impl Ask {
    /// Its name in scenarios.
    pub fn name(self) -> &'static str {
        self.in_flight().name()
    }

    /// As a trigger names it.
    pub fn in_flight(self) -> InFlight {
        match self {
            Ask::Snapshot => InFlight::Snapshot,
            Ask::Barrier => InFlight::Barrier,
            Ask::Commit => InFlight::Commit,
            Ask::Stop => InFlight::Stop,
        }
    }
}

impl InFlight {
    /// Its name in scenarios, which is the command's in the adapter protocol too.
    pub fn name(self) -> &'static str {
        match self {
            InFlight::Start => "start",
            InFlight::Snapshot => "snapshot",
            InFlight::Barrier => "barrier",
            InFlight::Commit => "commit",
            InFlight::Stop => "stop",
        }
    }
}

/// What a scenario asks.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpectPlan {
    /// How it may end; absent means that the faults decide (`recovers`, or `recovers-or-ends` for terminal ones).
    pub outcome: Option<ExpectedEnd>,
    /// Invariants that must be decided.
    pub named: Vec<String>,
    /// Most duplicates allowed; absent means any number.
    pub duplicates: Option<u64>,
    /// Recovery window; absent leaves it to the reader's manifest, then to the default of 60 s.
    pub within: Option<Duration>,
}
