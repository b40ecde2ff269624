//! The plan: one scenario with every axis of its matrix fixed. The run loop carries it out as it stands.

use std::collections::BTreeMap;
use std::time::Duration;

use brokerfall_report::history::{ExpectedEnd, Generator, Grade, Phase};
use brokerfall_report::protocol::{Isolation, Kind, Reset};

use crate::fault::FaultSpec;

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
}

/// What the cluster must be.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterPlan {
    /// 1 to 3.
    pub brokers: u32,
    /// How long after a kill leaders and coordinators move, on clusters that must be told to.
    pub election: Duration,
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
    /// `cleanup.policy` holds `compact`.
    pub compacted: bool,
    /// `input` or `changelog`.
    pub role: Option<String>,
    /// Records per partition that stand in the log before the reader starts.
    pub preload: u64,
    /// How keys and values follow from ids.
    pub generator: Generator,
}

/// What the oracle writes while steps run.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadPlan {
    /// Records a second, over all partitions of all topics.
    pub per_second: f64,
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
    /// Write this many records per partition of every topic.
    Produce(u64),
    /// Take a snapshot of a table.
    Snapshot,
    /// Ask the reader for a barrier.
    Barrier,
    /// Ask the reader to commit.
    Commit,
    /// Close and rebuild the reader object.
    Restart,
    /// Start a second member of the same reader; healed by its leaving.
    Join,
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
