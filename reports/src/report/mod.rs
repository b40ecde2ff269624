//! The report of a suite: what `report.json` holds and every renderer reads.
//!
//! A [`RunReport`] is folded from one history and its judgement ([`RunReport::from_history`], in `fold`), so that a stored
//! run can be reported again without being run again. Strings stand here whole and as they came; renderers escape and
//! shorten them.

mod columns;
mod exit;
mod fold;
mod lag;
mod signals;
mod timing;
mod usage;

pub use fold::ReportFold;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::exception::{Code, Exception, Origin};
use crate::history::{ClusterInfo, FailureOf, Grade, Phase, Proof, ReaderInfo, Renewed, Stage};
use crate::protocol::Kind;
use crate::verdict::{Behind, FailureKind, Finding, SeenException, Verdict, VoidReason};

/// Version of the report format. It rises when a field is removed or changes its meaning; added fields have defaults.
pub const REPORT_SCHEMA: u32 = 1;

/// Everything that one invocation found.
///
/// ```
/// use brokerfall_report::history::{Phase, ReaderInfo};
/// use brokerfall_report::protocol::Kind;
/// use brokerfall_report::report::{Report, RunReport, SkipReport};
/// use brokerfall_report::verdict::ExitCode;
///
/// let reader = ReaderInfo {
///     name: "reference-table".into(),
///     version: "0.1.0".into(),
///     source: "bundled".into(),
///     kind: Kind::Table,
///     lock: None,
///     declares: Default::default(),
/// };
/// let skip = SkipReport { reason: "no ACLs".into(), enable: "run with --cluster process".into() };
/// let run = RunReport::skipped("acl/denied", "READ is denied", Phase::Live, &reader, skip);
/// let report = Report::new("0.1.0", "2026-11-30T00:58:40Z", "brokerfall run", vec![run], Vec::new());
/// assert_eq!(report.exit_code(), ExitCode::NothingJudged);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`REPORT_SCHEMA`].
    pub schema: u32,
    /// Version of the harness.
    pub harness: String,
    /// Wall clock at the start, RFC 3339, UTC.
    pub started_at: String,
    /// The command line of the invocation.
    pub command: String,
    /// Runs, in the order of the plan.
    pub runs: Vec<RunReport>,
    /// The count of it all.
    pub summary: Summary,
    /// Known-failing entries that name a scenario which exists nowhere.
    #[serde(default)]
    pub stale_known_failing: Vec<StaleEntry>,
}

/// A known-failing entry that nothing can meet any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaleEntry {
    /// Where it stands: file and scenario pattern.
    pub entry: String,
    /// Why it is stale.
    pub text: String,
}

/// The count of a suite.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Runs that say something of a reader: passed, failed and known-failing.
    pub judged: u64,
    /// Runs that could not take place here.
    pub skipped: u64,
    /// Runs that prove nothing.
    pub void: u64,
    /// Runs by verdict name; every verdict is present.
    pub verdicts: BTreeMap<String, u64>,
    /// Exit code of the suite.
    pub exit_code: i32,
}

/// One run: one scenario with one reader.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// Scenario id, `folder/name[axis=value]`.
    pub scenario: String,
    /// Its title.
    pub title: String,
    /// The phase that the first fault must hit.
    pub phase: Phase,
    /// Cluster, with the properties in which an emulated one differs from Apache Kafka.
    pub cluster: ClusterInfo,
    /// Link.
    pub link: String,
    /// Reader.
    pub reader: ReaderReport,
    /// Seed of everything random in the run.
    pub seed: u64,
    /// Wall clock at the start, RFC 3339, UTC; empty when the run never started.
    pub started_at: String,
    /// Verdict.
    pub verdict: Verdict,
    /// Its cause in one sentence.
    pub cause: String,
    /// For `error`: who failed.
    pub error_of: Option<FailureOf>,
    /// For `failed` and `known-failing`: which kind of failure.
    pub failure_kind: Option<FailureKind>,
    /// For `failed` and `known-failing`: how far behind.
    pub behind: Option<Behind>,
    /// Reason of the known-failing entry that applies to this run, whether or not it was met.
    pub known_failing: Option<String>,
    /// Violations that the reader is held to.
    pub violations: Vec<Violation>,
    /// Violations in a run that proves nothing: observed, not attributed.
    pub observed: Vec<Violation>,
    /// Every invariant that was asked, with its outcome.
    pub findings: Vec<Finding>,
    /// Exceptions, most important first.
    pub exceptions: Vec<ExceptionReport>,
    /// Evidence, fault by fault.
    pub evidence: Vec<Evidence>,
    /// What the wire said, what was raised, what was claimed.
    pub columns: Columns,
    /// Invariants that were not decided, and why.
    pub not_judged: Vec<NotJudged>,
    /// Limits with the margin left.
    pub limits: Vec<LimitReport>,
    /// Which signal told when.
    pub signals: Vec<SignalReport>,
    /// Cures that were tried after the verdict was fixed.
    pub cures: Vec<CureReport>,
    /// Where the time went.
    pub timings: Timings,
    /// Folder of the run's artifacts, relative to the report; absent when nothing was kept.
    pub artifacts: Option<String>,
    /// The command that reproduces the run.
    pub reproduce: String,
    /// Further remarks, such as `stuck until a new record arrived`.
    pub remarks: Vec<String>,
    /// Why the run is void.
    pub voids: Vec<VoidReason>,
    /// For `skipped`: why.
    pub skipped: Option<SkipReport>,
    /// True when the history has no end: the run was cut off.
    pub partial: bool,
}

/// The reader of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReaderReport {
    /// Name.
    pub name: String,
    /// Version asked for; empty where there is none.
    pub version: String,
    /// Where it came from.
    pub source: String,
    /// Kind built.
    pub kind: Kind,
    /// Library under test as its adapter names it; empty without a `hello`.
    pub library: String,
    /// Kafka client below it; empty without a `hello`.
    pub client: String,
    /// Language runtime; empty without a `hello`.
    pub runtime: String,
    /// Path of the resolved lock below the run's folder.
    pub lock: Option<String>,
}

/// An invariant that did not hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Violation {
    /// Invariant id.
    pub invariant: String,
    /// Numbers of the events that prove it.
    pub events: Vec<u64>,
    /// One sentence.
    pub text: String,
    /// What kind of failure it shows.
    pub kind: Option<FailureKind>,
}

/// An exception of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExceptionReport {
    /// The fully qualified type, verbatim.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Error code.
    pub code: Option<Code>,
    /// Scalar attributes of the exception object.
    pub attributes: BTreeMap<String, serde_json::Value>,
    /// Types and codes of the whole tree in preorder, as one line.
    pub chain: String,
    /// The message, verbatim.
    pub message: String,
    /// Where it surfaced.
    pub origin: Origin,
    /// The phase in which it first surfaced.
    pub phase: Phase,
    /// Whether the library said that it was the end.
    pub fatal: bool,
    /// How often.
    pub count: u64,
    /// Stable across runs.
    pub fingerprint: String,
    /// Number of the first event that shows it.
    pub first_event: u64,
    /// The exception with its tree and frames.
    pub exception: Exception,
}

/// What is known of one fault.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Name of the fault in the run.
    pub fault: String,
    /// Its kind.
    pub kind: String,
    /// What exactly, as a sentence; empty when it was never injected.
    pub text: String,
    /// True when the cluster imitates it.
    pub emulated: bool,
    /// Grade asked for.
    pub asked: Grade,
    /// Grade reached; absent when nothing was proven.
    pub reached: Option<Grade>,
    /// Proofs by grade, in the order in which they came.
    pub proofs: Vec<ProofReport>,
    /// What proves the heal; absent when it was not healed or the heal was not proven.
    pub heal: Option<String>,
    /// From injection to proven heal, seconds.
    pub in_force_s: Option<f64>,
    /// What could not be proven.
    pub not_proven: Vec<NotProvenReport>,
}

/// A proof of a fault.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProofReport {
    /// Grade.
    pub grade: Grade,
    /// What proves it.
    pub text: String,
    /// From the beginning of the injection to this proof, milliseconds; absent in older reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_ms: Option<f64>,
}

/// Something that could not be proven.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NotProvenReport {
    /// What was to be proven.
    pub wanted: Proof,
    /// What was seen instead.
    pub text: String,
}

/// The three columns: what the wire said, what the library raised, what the reader claimed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Columns {
    /// Error codes, connections, requests and group standing, as the link saw them.
    pub wire: Vec<ColumnLine>,
    /// Exceptions with their origin; the line `none raised` when none reached the caller.
    pub raised: Vec<ColumnLine>,
    /// State and claims before the fault, at every change, and at the end.
    pub claimed: Vec<ColumnLine>,
}

/// A sentence of a column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ColumnLine {
    /// The sentence.
    pub text: String,
    /// How often; 0 for a named absence.
    pub count: u64,
    /// Seconds from the first fault to the first time; absent before the fault and for what stood at the end.
    pub first_s: Option<f64>,
}

/// An invariant that was not decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotJudged {
    /// Invariant id.
    pub invariant: String,
    /// Why not.
    pub why: String,
}

/// A limit of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LimitReport {
    /// `within`, `stop-grace`, `cpu`, `requests`, `errors`, `memory` or `descriptors`.
    pub name: String,
    /// The limit, in `unit`.
    pub value: f64,
    /// `s`, `cores`, `/s`, `MiB` or `open`.
    pub unit: String,
    /// `scenario`, `brokerfall.toml`, `manifest` or `default`.
    pub origin: String,
    /// What was left of it, in `unit`, negative when it was passed; absent when it was not measured.
    pub margin: Option<f64>,
}

/// A signal that an operator could have watched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SignalReport {
    /// Its name, such as `process exit`.
    pub signal: String,
    /// Seconds from the first fault to the first telling; absent when it never told.
    pub told_s: Option<f64>,
    /// What it told.
    pub text: String,
}

/// A cure that was tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CureReport {
    /// What was renewed.
    pub renewed: Renewed,
    /// Whether the backlog drained.
    pub worked: bool,
    /// What was seen.
    pub text: String,
}

/// Why a run could not take place here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkipReport {
    /// Why.
    pub reason: String,
    /// What would enable it.
    pub enable: String,
}

/// Where the time of a run went, milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Timings {
    /// From before the cluster is started to the last event.
    pub total_ms: f64,
    /// Link, topics and preload; part of the overhead, as is the start of the cluster before them.
    pub prepare_ms: f64,
    /// From the start of the process to the end of the library's own start call.
    pub reader_start_ms: Option<f64>,
    /// Waiting for the triggers of steps.
    pub waits_ms: f64,
    /// Waiting for the reader: its start, its answers, a fault to reach it, catch-up, recovery, its next heartbeat once all
    /// is quiet (readers send one every 250 ms), cures, its stop.
    pub reader_ms: f64,
    /// Everything else: the harness's own doing.
    pub overhead_ms: f64,
    /// From the later of last heal and sentinel to the sentinel's delivery on every partition.
    pub recovery_ms: Option<f64>,
    /// The reader's own close.
    pub stop_ms: Option<f64>,
    /// By stage, in order.
    pub stages: Vec<StageTiming>,
}

/// Time in one stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StageTiming {
    /// Stage.
    pub stage: Stage,
    /// Milliseconds.
    pub ms: f64,
}

impl Report {
    /// Puts runs together and counts them.
    pub fn new(
        harness: impl Into<String>,
        started_at: impl Into<String>,
        command: impl Into<String>,
        runs: Vec<RunReport>,
        stale_known_failing: Vec<StaleEntry>,
    ) -> Self {
        let mut report = Self {
            schema: REPORT_SCHEMA,
            harness: harness.into(),
            started_at: started_at.into(),
            command: command.into(),
            runs,
            summary: Summary::default(),
            stale_known_failing,
        };
        report.count();
        report
    }

    /// Counts again, after runs were changed.
    pub fn count(&mut self) {
        self.summary = exit::summary(self);
    }
}

impl RunReport {
    /// A run that could not take place here and has no history.
    pub fn skipped(
        scenario: impl Into<String>,
        title: impl Into<String>,
        phase: Phase,
        reader: &ReaderInfo,
        skip: SkipReport,
    ) -> Self {
        let mut run = Self::blank(reader);
        run.scenario = scenario.into();
        run.title = title.into();
        run.phase = phase;
        run.verdict = Verdict::Skipped;
        run.cause.clone_from(&skip.reason);
        run.skipped = Some(skip);
        run.partial = false;
        run
    }

    /// A run that failed before it had a history: provisioning, an output folder that cannot be written.
    pub fn error(
        scenario: impl Into<String>,
        title: impl Into<String>,
        phase: Phase,
        reader: &ReaderInfo,
        of: FailureOf,
        cause: impl Into<String>,
    ) -> Self {
        let mut run = Self::blank(reader);
        run.scenario = scenario.into();
        run.title = title.into();
        run.phase = phase;
        run.verdict = Verdict::Error;
        run.error_of = Some(of);
        run.cause = cause.into();
        run.partial = false;
        run
    }

    /// Turns a failed run into a known failure, or notes on another one that an entry applies to it.
    pub fn apply_known_failing(&mut self, reason: impl Into<String>, met: bool) {
        if met && self.verdict == Verdict::Failed {
            self.verdict = Verdict::KnownFailing;
        }
        self.known_failing = Some(reason.into());
    }

    fn blank(reader: &ReaderInfo) -> Self {
        Self {
            scenario: String::new(),
            title: String::new(),
            phase: Phase::Start,
            cluster: ClusterInfo {
                kind: String::new(),
                kafka: String::new(),
                brokers: 0,
                properties: Vec::new(),
            },
            link: String::new(),
            reader: ReaderReport::from(reader),
            seed: 0,
            started_at: String::new(),
            verdict: Verdict::Error,
            cause: String::new(),
            error_of: None,
            failure_kind: None,
            behind: None,
            known_failing: None,
            violations: Vec::new(),
            observed: Vec::new(),
            findings: Vec::new(),
            exceptions: Vec::new(),
            evidence: Vec::new(),
            columns: Columns::default(),
            not_judged: Vec::new(),
            limits: Vec::new(),
            signals: Vec::new(),
            cures: Vec::new(),
            timings: Timings::default(),
            artifacts: None,
            reproduce: String::new(),
            remarks: Vec::new(),
            voids: Vec::new(),
            skipped: None,
            partial: true,
        }
    }
}

impl From<&ReaderInfo> for ReaderReport {
    fn from(info: &ReaderInfo) -> Self {
        Self {
            name: info.name.clone(),
            version: info.version.clone(),
            source: info.source.clone(),
            kind: info.kind,
            library: String::new(),
            client: String::new(),
            runtime: String::new(),
            lock: info.lock.clone(),
        }
    }
}

impl From<&SeenException> for ExceptionReport {
    fn from(seen: &SeenException) -> Self {
        Self {
            type_name: seen.exception.type_name.clone(),
            code: seen.exception.code.clone(),
            attributes: seen.exception.attributes.clone(),
            chain: seen.exception.chain(),
            message: seen.exception.message.clone(),
            origin: seen.origin,
            phase: seen.phase,
            fatal: seen.fatal,
            count: seen.count,
            fingerprint: seen.fingerprint.clone(),
            first_event: seen.first_event,
            exception: seen.exception.clone(),
        }
    }
}
