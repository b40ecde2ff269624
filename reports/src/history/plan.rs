//! The plan inside a history: what `opened` carries, so that judging needs nothing else.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::exception::Origin;
use crate::protocol::{Isolation, Kind, Reset};

/// The plan, as far as judging and reporting need it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Opened {
    /// [`HISTORY_FORMAT`](super::HISTORY_FORMAT).
    pub format: u32,
    /// Version of the harness.
    pub harness: String,
    /// Scenario id, `folder/name[axis=value]`.
    pub scenario: String,
    /// One line.
    pub title: String,
    /// The phase that the first fault must hit.
    pub phase: Phase,
    /// True while nothing may be produced before `catches_up` is decided.
    pub quiet: bool,
    /// Cluster.
    pub cluster: ClusterInfo,
    /// Link.
    pub link: String,
    /// Reader.
    pub reader: ReaderInfo,
    /// How many members it starts with.
    pub members: u32,
    /// Consumer group; absent for kinds without one.
    pub group: Option<String>,
    /// Where the reader starts when it has no position.
    pub reset: Reset,
    /// Isolation level.
    pub isolation: Isolation,
    /// Group session timeout, milliseconds, where the plan sets one.
    pub session_ms: Option<u64>,
    /// Topics.
    pub topics: Vec<TopicInfo>,
    /// Faults by the name they have in this run.
    pub faults: Vec<FaultInfo>,
    /// Steps as sentences.
    pub steps: Vec<String>,
    /// What is asked.
    pub expect: Expect,
    /// Exceptions that were accepted for this reader in this scenario, so that `exception_expected` needs nothing else;
    /// absent where nobody has accepted any yet. An empty list says that none is expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<Vec<ExpectedException>>,
    /// Limits with their origin.
    pub limits: Limits,
    /// Seed of the run (`--seed`, one higher with each repeat). Nothing is drawn from it so far.
    pub seed: u64,
    /// Wall clock at the start, RFC 3339, UTC.
    pub started_at: String,
    /// The command that reproduces this run.
    pub reproduce: String,
}

/// A cluster as reports name it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterInfo {
    /// `mock`, `process` or `container`.
    pub kind: String,
    /// What serves: `librdkafka 2.12.1 mock`, `Apache Kafka 4.1.0`.
    pub kafka: String,
    /// Number of brokers.
    pub brokers: u32,
    /// How it differs from Apache Kafka; empty for the real thing.
    pub properties: Vec<String>,
}

/// A reader as reports name it. `client` and `runtime` come with its `hello`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReaderInfo {
    /// Name, such as `ktables`.
    pub name: String,
    /// Version asked for; empty where there is none.
    pub version: String,
    /// Where it came from: `bundled`, a registry, `path:DIR`, `git:REF`, `adapter`.
    pub source: String,
    /// Kind built.
    pub kind: Kind,
    /// Path of the resolved lock below the run's folder, where there is one.
    pub lock: Option<String>,
    /// What it declares of itself in its manifest.
    #[serde(default)]
    pub declares: Declares,
}

/// What a reader's manifest declares that judging must know.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declares {
    /// `caught_up` is current, not a latch: it must be true again only at the end.
    #[serde(default)]
    pub caught_up_is_current: bool,
    /// `skips = "reset"`: a jump to the end after an out-of-range answer is the documented behaviour.
    #[serde(default)]
    pub skips_on_reset: bool,
    /// `expired = "cleared"`: keys whose every record was deleted must be gone from the table.
    #[serde(default)]
    pub clears_expired: bool,
    /// How long the library's own close may take, milliseconds.
    #[serde(default)]
    pub stop_grace_ms: Option<u64>,
}

/// A topic as judging needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicInfo {
    /// Topic name.
    pub name: String,
    /// Number of partitions.
    pub partitions: u32,
    /// `input` or `changelog`.
    pub role: Option<String>,
    /// True for `cleanup.policy=compact` (or `compact,delete`).
    pub compacted: bool,
    /// How key and value of a record follow from its id.
    pub generator: Generator,
}

/// Key and value of record `n` of partition `p` follow from its id alone.
///
/// ```
/// use brokerfall_report::history::Generator;
/// let generator = Generator { keys: 10, value_bytes: 40, tombstone_every: Some(7) };
/// assert_eq!(generator.key(2, 13), "p2-k3");
/// assert!(generator.is_tombstone(14) && !generator.is_tombstone(13));
/// assert!(generator.value(13).is_some_and(|value| value.starts_with("13|") && value.len() == 40));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Generator {
    /// Number of distinct keys per partition, at least 1.
    pub keys: u64,
    /// Length of a value, bytes; shorter than `<id>|` has no effect.
    pub value_bytes: u64,
    /// Every n-th id is a tombstone; absent means none is.
    pub tombstone_every: Option<u64>,
}

impl Generator {
    /// The key of record `id` of `partition`. Keys of different partitions never meet.
    pub fn key(&self, partition: u32, id: u64) -> String {
        format!("p{partition}-k{}", id % self.keys.max(1))
    }

    /// Whether record `id` is a tombstone.
    pub fn is_tombstone(&self, id: u64) -> bool {
        self.tombstone_every
            .is_some_and(|every| every > 0 && id.is_multiple_of(every))
    }

    /// The value of record `id` in codec `text`: `<id>|` and padding; none for a tombstone.
    pub fn value(&self, id: u64) -> Option<String> {
        if self.is_tombstone(id) {
            return None;
        }
        let mut value = format!("{id}|");
        let padding = usize::try_from(self.value_bytes)
            .unwrap_or(usize::MAX)
            .saturating_sub(value.len());
        value.extend(std::iter::repeat_n('x', padding));
        Some(value)
    }
}

/// A fault of the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultInfo {
    /// Name in this run, unique (`kill-broker-1`, or the step's name).
    pub name: String,
    /// Kind, such as `kill-broker`.
    pub kind: String,
    /// Lowest grade of evidence that the run asks for.
    pub grade: Grade,
}

/// Grades of evidence of a fault, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// The backend proves that the fault was in force.
    Injected,
    /// It hit this reader.
    Delivered,
    /// The reader's events or progress changed.
    Felt,
}

impl Grade {
    /// Every grade, weakest first.
    pub const ALL: [Grade; 3] = [Grade::Injected, Grade::Delivered, Grade::Felt];
}

/// What a scenario asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Expect {
    /// How it may end.
    pub outcome: ExpectedEnd,
    /// Invariants named in `[expect]`: each must be decided.
    pub named: Vec<String>,
    /// `duplicates = N`: more delivered duplicates than this are a violation; absent means they are only counted.
    #[serde(default)]
    pub duplicates: Option<u64>,
    /// Invariants that the scenario's nature takes out of judging, with the reason.
    #[serde(default)]
    pub not_judged: BTreeMap<String, String>,
}

/// An exception that a reader is known to show.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ExpectedException {
    /// The phase in which it first surfaces.
    pub phase: Phase,
    /// Where it surfaces.
    pub origin: Origin,
    /// The fully qualified type, verbatim.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Its error code, where the class alone says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i64>,
}

/// How a run may end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExpectedEnd {
    /// The same instance must come back.
    Recovers,
    /// It must end, honestly.
    Ends,
    /// Either; an honest end holds `recovers`.
    RecoversOrEnds,
}

/// Limits of a run, each with its origin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Recovery window, milliseconds.
    pub within_ms: Limit,
    /// Grace of the reader's own close, milliseconds.
    pub stop_grace_ms: Limit,
    /// CPU of the reader's process group over an outage, in cores.
    pub cpu_cores: Limit,
    /// Requests and connects over an outage, per second.
    pub requests_per_s: Limit,
    /// Error events over an outage, per second.
    pub errors_per_s: Limit,
    /// Rise of the resident memory of the reader's process group over an outage, MiB.
    #[serde(default = "memory_mib")]
    pub memory_mib: Limit,
    /// Rise of its open descriptors over an outage.
    #[serde(default = "descriptors")]
    pub descriptors: Limit,
}

/// Known-good readers (librdkafka, aiokafka) rose by at most 0.15 MiB over outages of 20 s.
fn memory_mib() -> Limit {
    Limit::default_of(16.0)
}

/// The same readers rose by at most two for each broker.
fn descriptors() -> Limit {
    Limit::default_of(16.0)
}

/// A limit and where it comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// The limit, in the unit of its name.
    pub value: f64,
    /// `scenario`, `manifest` or `default`.
    pub origin: String,
}

impl Limit {
    /// A limit that neither scenario nor manifest sets.
    pub fn default_of(value: f64) -> Self {
        Self {
            value,
            origin: "default".to_owned(),
        }
    }
}

/// Phases of a reader's life that a fault can hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Before and while the reader starts.
    Start,
    /// It reads towards the log end that was there when it started.
    CatchUp,
    /// It has caught up.
    Live,
    /// While it commits.
    Commit,
    /// While its group rebalances.
    Rebalance,
    /// While it closes.
    Close,
}

impl Phase {
    /// The name used in files and reports.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Start => "start",
            Phase::CatchUp => "catch-up",
            Phase::Live => "live",
            Phase::Commit => "commit",
            Phase::Rebalance => "rebalance",
            Phase::Close => "close",
        }
    }
}
