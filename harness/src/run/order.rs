//! An order: one plan, one reader, and where the run's artifacts go.

use std::path::PathBuf;

use brokerfall_report::history::{Expect, ExpectedException, HISTORY_FORMAT, Limit, Limits, Opened};
use brokerfall_report::protocol::Kind;

use crate::cluster::ClusterKind;
use crate::cluster::clusters::Clusters;
use crate::history::limits::{CPU_CORES, ERRORS_PER_S, REQUESTS_PER_S, STOP_GRACE_MS, WITHIN_MS};
use crate::link::LinkSource;
use crate::reader::Launch;
use crate::reader::manifest::ManifestLimits;
use crate::scenario::plan::Plan;
use crate::scenario::project;

/// One run to be carried out.
#[derive(Clone)]
pub struct Order {
    /// What to do.
    pub plan: Plan,
    /// To whom.
    pub launch: Launch,
    /// On what.
    pub cluster: ClusterKind,
    /// What brings the cluster up.
    pub clusters: Clusters,
    /// What the link is started from.
    pub link: LinkSource,
    /// Folder of the run's artifacts; made when it is missing.
    pub folder: PathBuf,
    /// Exceptions that were accepted for this reader in this scenario; absent where nobody has accepted any yet.
    pub expected: Option<Vec<ExpectedException>>,
    /// Limits that the user's brokerfall.toml sets.
    pub limits: ManifestLimits,
    /// True where no other run of the suite goes on meanwhile: what the reader uses is then its own.
    pub exclusive: bool,
    /// What is drawn at random in the run follows from it: the jitter of delays, and what reader processes draw from
    /// [`SEED_VARIABLE`](crate::reader::SEED_VARIABLE).
    pub seed: u64,
    /// The command that reproduces the run.
    pub reproduce: String,
    /// Leave cluster and link up after a failure.
    pub keep_up: bool,
}

/// The consumer group of every run. One name serves all: each run has a cluster that is as good as new, so that none
/// inherits another's commits.
pub(crate) const GROUP: &str = "brokerfall";
/// Session timeout where the scenario sets none, milliseconds.
const SESSION_MS: u64 = 6_000;
/// Rise of memory over an outage, MiB: known-good readers (librdkafka, aiokafka under ktables) rose by at most 0.15 over
/// outages of 20 s; a collector of garbage may let more pass before it runs.
const MEMORY_MIB: f64 = 16.0;
/// Rise of descriptors over an outage: the same readers rose by at most 2 for each broker.
const DESCRIPTORS: f64 = 16.0;

impl Order {
    /// Path of the run's history.
    pub fn history(&self) -> PathBuf {
        self.folder.join("history.jsonl")
    }

    /// The consumer group of the run, for readers of a kind that has one.
    pub fn group(&self) -> Option<String> {
        (self.launch.info.kind == Kind::Group).then(|| GROUP.to_owned())
    }

    /// The first event of the history.
    pub fn opened(&self, cluster: brokerfall_report::history::ClusterInfo, link: &str) -> Opened {
        let plan = &self.plan;
        Opened {
            format: HISTORY_FORMAT,
            harness: env!("CARGO_PKG_VERSION").to_owned(),
            scenario: plan.id.clone(),
            title: plan.title.clone(),
            phase: plan.phase,
            quiet: plan.quiet(),
            cluster,
            link: link.to_owned(),
            reader: self.launch.info.clone(),
            members: plan.reader.members,
            group: self.group(),
            reset: plan.reader.reset,
            isolation: plan.reader.isolation,
            session_ms: self.session_ms(),
            topics: plan.topic_infos(),
            faults: plan.fault_infos(),
            steps: plan.sentences(),
            expect: self.expect(),
            expected: self.expected.clone(),
            limits: self.limits(),
            exclusive: self.exclusive,
            seed: self.seed,
            started_at: now_rfc3339(),
            reproduce: self.reproduce.clone(),
        }
    }

    /// What the plan asks of this reader. Where user callbacks run on the event loop, one that never returns blocks `close`
    /// too, whatever the library does: only the process can be ended.
    fn expect(&self) -> Expect {
        let mut expect = self.plan.expect();
        if self.plan.hangs() && self.launch.manifest.declares.callbacks.is_some() {
            let close = "stops_cleanly";
            expect.named.retain(|named| named != close);
            let reason = "the callback hangs on the event loop that close needs (declared by the manifest)";
            expect.not_judged.insert(close.to_owned(), reason.to_owned());
        }
        expect
    }

    /// Session timeout of the group, milliseconds; absent for kinds without one. The mock cluster makes every join but
    /// the first wait the whole session timeout, so that its default is short: 6 s is the least that a real
    /// broker allows (`group.min.session.timeout.ms`).
    pub fn session_ms(&self) -> Option<u64> {
        let asked = self
            .plan
            .reader
            .session
            .map(|session| u64::try_from(session.as_millis()).unwrap_or(u64::MAX));
        asked.or_else(|| self.group().map(|_| SESSION_MS))
    }

    /// Scenario before brokerfall.toml before manifest before default.
    pub fn limits(&self) -> Limits {
        let declared = &self.launch.manifest.limits;
        let limit = |scenario: Option<f64>, file: Option<f64>, manifest: Option<f64>, default: f64| {
            let (value, origin) = match (scenario, file, manifest) {
                (Some(value), _, _) => (value, "scenario"),
                (None, Some(value), _) => (value, project::FILE),
                (None, None, Some(value)) => (value, "manifest"),
                (None, None, None) => (default, "default"),
            };
            Limit {
                value,
                origin: origin.into(),
            }
        };
        let ms = |duration: std::time::Duration| duration.as_secs_f64() * 1000.0;
        let file = &self.limits;
        Limits {
            within_ms: limit(
                self.plan.expect.within.map(ms),
                file.within.map(ms),
                declared.within.map(ms),
                WITHIN_MS,
            ),
            stop_grace_ms: limit(
                None,
                file.stop_grace.map(ms),
                declared.stop_grace.map(ms),
                STOP_GRACE_MS,
            ),
            cpu_cores: limit(None, file.cpu, declared.cpu, CPU_CORES),
            requests_per_s: limit(None, file.requests, declared.requests, REQUESTS_PER_S),
            errors_per_s: limit(None, file.errors, declared.errors, ERRORS_PER_S),
            memory_mib: limit(None, file.memory_mib, declared.memory_mib, MEMORY_MIB),
            descriptors: limit(None, file.descriptors, declared.descriptors, DESCRIPTORS),
        }
    }
}

/// The wall clock, RFC 3339, UTC, whole seconds.
#[expect(
    clippy::disallowed_methods,
    reason = "the wall clock of a run's start is for people; nothing is judged by it"
)]
pub fn now_rfc3339() -> String {
    humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string()
}
