//! Outcomes of invariants, the verdict of a run, and the exit codes of a suite.

use serde::{Deserialize, Serialize};

use crate::exception::{Exception, Origin};
use crate::history::{FailureOf, Phase};

/// What one invariant says of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Outcome {
    /// It held.
    Held {
        /// What it was judged on, in one sentence; may be empty.
        #[serde(default)]
        text: String,
    },
    /// It did not hold.
    Violated {
        /// Numbers of the events that prove it.
        events: Vec<u64>,
        /// One sentence.
        text: String,
        /// What kind of failure it shows, where it shows one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kind: Option<FailureKind>,
        /// How far behind the reader was, where it was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        behind: Option<Behind>,
    },
    /// The run does not show it.
    Undecided {
        /// Why.
        why: String,
    },
    /// Reader, kind or cluster lack what it needs.
    NotApplicable {
        /// What is missing.
        missing: String,
    },
}

/// An invariant and its outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Invariant id, such as `recovers`.
    pub invariant: String,
    /// Its outcome.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// The ways in which a reader fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// It ended and said so.
    Terminal,
    /// It says nothing, or lies.
    Silent,
    /// Its position stands still.
    Stuck,
    /// It moves, but the limit has passed.
    Slow,
    /// It loops.
    Hot,
}

impl FailureKind {
    /// The name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            FailureKind::Terminal => "terminal",
            FailureKind::Silent => "silent",
            FailureKind::Stuck => "stuck",
            FailureKind::Slow => "slow",
            FailureKind::Hot => "hot",
        }
    }
}

/// How far behind the log end a reader was.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Behind {
    /// Records not delivered.
    pub records: u64,
    /// Seconds since it last made progress.
    pub seconds: f64,
}

/// The verdict of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The harness or its environment failed; nothing is said of the reader.
    Error,
    /// The run proves nothing; the reason says whose doing it was.
    Void,
    /// An invariant was violated.
    Failed,
    /// It cannot take place here.
    Skipped,
    /// It failed exactly as a known-failing entry says.
    KnownFailing,
    /// Everything decided held, and progress was decided.
    Passed,
}

impl Verdict {
    /// The name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Error => "error",
            Verdict::Void => "void",
            Verdict::Failed => "failed",
            Verdict::Skipped => "skipped",
            Verdict::KnownFailing => "known-failing",
            Verdict::Passed => "passed",
        }
    }
}

/// Why a run proves nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredVoidReason")]
pub struct VoidReason {
    /// Where it lies.
    pub whose: VoidWhose,
    /// Who can mend it.
    pub by: VoidBy,
    /// One sentence.
    pub text: String,
    /// Events that show it.
    pub events: Vec<u64>,
}

impl VoidReason {
    /// A reason that is mended by whom it mostly is.
    pub fn new(whose: VoidWhose, text: String, events: Vec<u64>) -> Self {
        Self {
            whose,
            by: whose.by(),
            text,
            events,
        }
    }

    /// The same, mended by somebody else.
    #[must_use]
    pub fn by(self, by: VoidBy) -> Self {
        Self { by, ..self }
    }
}

/// A reason as earlier versions wrote it: without `by`.
#[derive(Deserialize)]
struct StoredVoidReason {
    whose: VoidWhose,
    #[serde(default)]
    by: Option<VoidBy>,
    text: String,
    events: Vec<u64>,
}

impl From<StoredVoidReason> for VoidReason {
    fn from(stored: StoredVoidReason) -> Self {
        let by = stored.by.unwrap_or(stored.whose.by());
        Self::new(stored.whose, stored.text, stored.events).by(by)
    }
}

/// Who can mend what makes a run void.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VoidBy {
    /// Whoever wrote the reader's adapter.
    Adapter,
    /// Whoever set the reader up: it did not come up or catch up before the first fault.
    Reader,
    /// Whoever wrote the scenario: a fault missed its moment, a trigger was never met, what it names cannot be decided.
    Scenario,
    /// The machine, the cluster, or whoever ended the run.
    Environment,
    /// The harness: it could not prove what it did, or a judge crashed.
    Harness,
}

impl VoidBy {
    /// The name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            VoidBy::Adapter => "adapter",
            VoidBy::Reader => "reader",
            VoidBy::Scenario => "scenario",
            VoidBy::Environment => "environment",
            VoidBy::Harness => "harness",
        }
    }
}

impl VoidWhose {
    /// Who mostly can mend it.
    fn by(self) -> VoidBy {
        match self {
            VoidWhose::Adapter => VoidBy::Adapter,
            VoidWhose::Reader => VoidBy::Reader,
            VoidWhose::Evidence | VoidWhose::Undecided => VoidBy::Scenario,
            VoidWhose::Cluster | VoidWhose::Machine => VoidBy::Environment,
            VoidWhose::Judge => VoidBy::Harness,
        }
    }
}

/// Whose doing a void run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VoidWhose {
    /// The adapter broke the protocol.
    Adapter,
    /// The reader was not healthy before the first fault, or the phase was missed.
    Reader,
    /// A fault or heal was not proven at the grade asked.
    Evidence,
    /// The emulated cluster deviated from Apache Kafka.
    Cluster,
    /// The machine starved the harness.
    Machine,
    /// A judge crashed.
    Judge,
    /// An invariant that had to be decided is not, or no progress invariant was decided.
    Undecided,
}

/// Everything that judging a history gives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// The verdict. [`Verdict::KnownFailing`] is never set here: that is the suite's doing.
    pub verdict: Verdict,
    /// The cause in one sentence.
    pub cause: String,
    /// For `error`: who failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_of: Option<FailureOf>,
    /// For `failed`: which kind of failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_kind: Option<FailureKind>,
    /// For `failed`: how far behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<Behind>,
    /// Every invariant that was asked, in a fixed order.
    pub findings: Vec<Finding>,
    /// Why the run is void; also kept when a safety violation makes it `failed` in spite of it.
    #[serde(default)]
    pub voids: Vec<VoidReason>,
    /// Exceptions seen, most important first.
    #[serde(default)]
    pub exceptions: Vec<SeenException>,
    /// Further remarks, such as `stuck until a new record arrived`.
    #[serde(default)]
    pub remarks: Vec<String>,
}

/// An exception as a run saw it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SeenException {
    /// The exception with its tree and frames.
    pub exception: Exception,
    /// Where it surfaced.
    pub origin: Origin,
    /// The phase in which it first surfaced.
    pub phase: Phase,
    /// Whether the library said that it was the end.
    pub fatal: bool,
    /// How often.
    pub count: u64,
    /// First event that shows it.
    pub first_event: u64,
    /// Stable across runs: type and code in preorder, innermost library frame, phase, origin.
    pub fingerprint: String,
}

/// Exit codes of a suite and of every command that judges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExitCode {
    /// All as expected.
    AsExpected = 0,
    /// A bug in the harness.
    HarnessBug = 1,
    /// Bad arguments or a bad scenario, before anything started.
    Usage = 2,
    /// The environment failed, provisioning included.
    Environment = 3,
    /// A violation.
    Violation = 10,
    /// A void run.
    Void = 11,
    /// A known failure passed, or an entry is stale.
    KnownFailurePassed = 12,
    /// Nothing was judged.
    NothingJudged = 13,
}

impl ExitCode {
    /// The number given to the operating system.
    pub fn code(self) -> i32 {
        self as i32
    }
}
