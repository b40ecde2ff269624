//! The rig: everything that one run has set up. Faults act through it, and only through it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use brokerfall_report::history::{Event, FailureOf, Grade, Limits};
use brokerfall_report::protocol::{Command, Done, Start, TopicRef};
use tokio::task::JoinHandle;

use crate::cluster::{Cluster, NodeId};
use crate::fault::{FaultError, Heal, PROOF};
use crate::history::recorder::Recorder;
use crate::link::Link;
use crate::lock;
use crate::oracle::{Load, Oracle, OracleError};
use crate::reader::Launch;
use crate::reader::host::{HostError, ReaderProcess};
use crate::reader::sampler::Sampler;
use crate::scenario::plan::Plan;

/// Probes for a refused or accepting port wait this long between tries. Shorter, and a tight connect loop fills the
/// backlog of a dying broker, whose next SYN is then dropped and retried a whole second later.
const PROBE_EVERY: Duration = Duration::from_millis(2);

/// How long a reader's process may take to say hello: an interpreter that compiles its packages for the first time on a
/// loaded machine took over 10 s.
pub(crate) const HELLO: Duration = Duration::from_secs(60);

/// Everything that one run has set up.
pub struct Rig {
    /// The plan that is carried out.
    pub plan: Plan,
    /// What starts a reader process.
    pub launch: Launch,
    /// Cluster.
    pub cluster: Arc<dyn Cluster>,
    /// Link.
    pub link: Arc<dyn Link>,
    /// Oracle.
    pub oracle: Arc<Oracle>,
    /// Recorder.
    pub recorder: Recorder,
    /// Consumer group, for kinds that have one.
    pub group: Option<String>,
    /// How long after a kill leaders and coordinators move.
    pub election: Duration,
    /// Folder of the run's artifacts.
    pub folder: PathBuf,
    /// Session timeout of the group, milliseconds.
    pub session_ms: Option<u64>,
    /// Limits of the run.
    pub limits: Limits,
    sampler: Sampler,
    processes: AtomicU32,
    members: Mutex<Vec<Arc<ReaderProcess>>>,
    in_force: Mutex<Vec<InForce>>,
    load: Mutex<Option<Load>>,
    watchers: Mutex<Vec<JoinHandle<()>>>,
}

/// A fault that has been injected and not healed.
pub(super) struct InForce {
    /// Its name in this run.
    pub(super) name: String,
    /// The grade of evidence that the scenario asks for.
    pub(super) grade: Grade,
    /// True while it keeps the reader from its brokers.
    pub(super) closes_path: bool,
    /// The only way to undo it.
    pub(super) heal: Box<dyn Heal>,
}

impl Rig {
    /// A rig without readers.
    #[expect(
        clippy::too_many_arguments,
        reason = "every part of a run, each of its own type; a builder would only rename them"
    )]
    pub fn new(
        plan: Plan,
        launch: Launch,
        cluster: Arc<dyn Cluster>,
        link: Arc<dyn Link>,
        oracle: Arc<Oracle>,
        recorder: Recorder,
        group: Option<String>,
        folder: PathBuf,
        session_ms: Option<u64>,
        limits: Limits,
    ) -> Self {
        let election = plan.cluster.election;
        Self {
            plan,
            launch,
            cluster,
            link,
            oracle,
            group,
            election,
            sampler: Sampler::start(recorder.clone()),
            processes: AtomicU32::new(0),
            recorder,
            folder,
            session_ms,
            limits,
            members: Mutex::new(Vec::new()),
            in_force: Mutex::new(Vec::new()),
            load: Mutex::new(None),
            watchers: Mutex::new(Vec::new()),
        }
    }

    /// Name of the first topic. A plan has at least one.
    pub fn first_topic(&self) -> &str {
        self.plan.topics.first().map_or("", |topic| topic.name.as_str())
    }

    /// Number of partitions of a topic; 0 when the plan has no such topic.
    pub fn partitions(&self, topic: &str) -> u32 {
        self.plan
            .topics
            .iter()
            .find(|known| known.name == topic)
            .map_or(0, |known| known.partitions)
    }

    /// The reader processes, in order of their member names.
    pub fn readers(&self) -> Vec<Arc<ReaderProcess>> {
        self.members().clone()
    }

    /// Starts a member's process and waits for its `hello`.
    ///
    /// # Errors
    /// When the process cannot be started, ends first, or breaks the protocol.
    pub async fn spawn(&self, member: &str) -> Result<Arc<ReaderProcess>, HostError> {
        // A folder for each process, so that a fresh one does not overwrite what the patient left behind.
        let process = self.processes.fetch_add(1, Ordering::Relaxed) + 1;
        let folder = self.folder.join(format!("{member}-process{process}"));
        let reader = ReaderProcess::spawn(&self.launch, member, &folder, self.recorder.clone()).await?;
        let reader = Arc::new(reader);
        self.sampler.add(member, reader.group());
        {
            let mut members = self.members();
            match members.iter_mut().find(|known| known.member() == member) {
                Some(known) => *known = reader.clone(),
                None => members.push(reader.clone()),
            }
        }
        if let Err(cause) = reader.hello(HELLO).await {
            // Nothing was asked of it yet, so this is the adapter's doing and says nothing of its reader.
            let text = match (&cause, reader.exited()) {
                (HostError::Exited { .. }, Some(exit)) => {
                    let last = exit.stderr_tail.lines().rfind(|line| !line.trim().is_empty());
                    format!(
                        "`{}` {} before `hello` ({})",
                        self.launch.command.join(" "),
                        exit.text(),
                        last.map_or_else(
                            || "it wrote nothing on stderr".to_owned(),
                            |line| format!("the last line of its stderr: {line}")
                        )
                    )
                }
                (HostError::TimedOut { .. }, _) => format!(
                    "`{}` did not say `hello` within {HELLO:?}",
                    self.launch.command.join(" ")
                ),
                // A broken rule stands in the history already.
                _ => return Err(cause),
            };
            self.recorder.record(Event::ProtocolBroken {
                member: member.to_owned(),
                text,
                line: String::new(),
            });
            return Err(cause);
        }
        Ok(reader)
    }

    /// What a member is told to start.
    fn start_command(&self, member: &str) -> Command {
        let reader = &self.plan.reader;
        let state = self.folder.join(format!("state-{member}"));
        Command::Start(Start {
            bootstrap: self.link.bootstrap(),
            topics: self
                .plan
                .topics
                .iter()
                .map(|topic| TopicRef {
                    name: topic.name.clone(),
                    partitions: topic.partitions,
                    role: topic.role.clone(),
                })
                .collect(),
            kind: self.launch.info.kind,
            group: self.group.clone(),
            client_id: member.to_owned(),
            reset: reader.reset,
            isolation: reader.isolation,
            session_ms: self.session_ms,
            heartbeat_ms: None,
            max_poll_ms: None,
            state_dir: Some(state.to_string_lossy().into_owned()),
            options: reader.options.clone(),
        })
    }

    /// Records the log ends that a member starts with and tells it to start.
    ///
    /// # Errors
    /// When the oracle or the process fails. A start call that the library refuses is no error here: it is in the answer.
    pub async fn start(&self, reader: &ReaderProcess, within: Duration) -> Result<Done, FaultError> {
        self.oracle.targets(reader.member()).await?;
        Ok(reader.ask(self.start_command(reader.member()), within).await?)
    }

    /// Starts fresh processes for the members that there are.
    ///
    /// # Errors
    /// When one of them does not start reading.
    pub async fn start_again(&self) -> Result<Vec<u32>, FaultError> {
        let mut pids = Vec::new();
        for member in self.readers() {
            let reader = self.spawn(member.member()).await?;
            self.start(&reader, PROOF).await?;
            pids.push(reader.pid());
        }
        Ok(pids)
    }

    /// Waits until the reader's port of a broker refuses connections.
    ///
    /// # Errors
    /// When it still accepts after 30 s.
    pub async fn prove_refused(&self, node: NodeId) -> Result<(), FaultError> {
        self.prove_port(node, "refuses", |connected| {
            connected.is_err_and(|cause| cause.kind() == std::io::ErrorKind::ConnectionRefused)
        })
        .await
    }

    /// Waits until the reader's port of a broker accepts connections.
    ///
    /// # Errors
    /// When it still refuses after 30 s.
    pub async fn prove_accepts(&self, node: NodeId) -> Result<(), FaultError> {
        self.prove_port(node, "accepts", |connected| connected.is_ok()).await
    }

    async fn prove_port(
        &self,
        node: NodeId,
        wanted: &str,
        holds: impl Fn(std::io::Result<tokio::net::TcpStream>) -> bool,
    ) -> Result<(), FaultError> {
        let not_proven = |seen: &str| FaultError::NotProven {
            what: format!("that the reader's port of broker {node} {wanted}"),
            seen: seen.to_owned(),
        };
        let address = self
            .link
            .address(node)
            .ok_or_else(|| not_proven("the link has no such broker"))?;
        let mut probe = tokio::time::interval(PROBE_EVERY);
        let deadline = tokio::time::Instant::now() + PROOF;
        while tokio::time::Instant::now() < deadline {
            probe.tick().await;
            let connected = tokio::time::timeout(Duration::from_millis(500), tokio::net::TcpStream::connect(address));
            if let Ok(connected) = connected.await
                && holds(connected)
            {
                return Ok(());
            }
        }
        Err(not_proven("it did not within the limit"))
    }

    /// The recovery window.
    pub fn within(&self) -> Duration {
        Duration::from_secs_f64(self.limits.within_ms.value / 1000.0)
    }

    /// Keeps a fault for its heal.
    pub(super) fn hold(&self, fault: InForce) {
        lock(&self.in_force).push(fault);
    }

    /// Takes out the faults of these names, in the order in which they were injected; all of them for `None`.
    pub(super) fn release(&self, names: Option<&[String]>) -> Vec<InForce> {
        let mut held = lock(&self.in_force);
        let all = std::mem::take(&mut *held);
        let (released, kept) = all
            .into_iter()
            .partition(|fault| names.is_none_or(|names| names.contains(&fault.name)));
        *held = kept;
        released
    }

    /// True while a fault in force keeps the reader from its brokers.
    pub(super) fn path_is_cut(&self) -> bool {
        lock(&self.in_force).iter().any(|fault| fault.closes_path)
    }

    /// Starts the plan's load, where it has one.
    pub(super) fn start_load(&self) {
        if let Some(load) = &self.plan.load {
            *lock(&self.load) = Some(self.oracle.load(load.per_second));
        }
    }

    /// Stops the load and waits for what is in flight.
    pub(super) async fn stop_load(&self) -> Result<(), OracleError> {
        let load = lock(&self.load).take();
        match load {
            Some(load) => load.stop().await.map(drop),
            None => Ok(()),
        }
    }

    /// Keeps a task that watches for evidence; it ends with the run.
    pub(super) fn watch(&self, task: JoinHandle<()>) {
        lock(&self.watchers).push(task);
    }

    /// Ends the tasks that watch for evidence.
    pub(super) fn stop_watching(&self) {
        for task in lock(&self.watchers).drain(..) {
            task.abort();
        }
    }

    /// Records a failure that is not the reader's.
    pub fn fail(&self, of: FailureOf, text: String) {
        self.recorder.record(Event::Failure { of, text });
    }

    fn members(&self) -> MutexGuard<'_, Vec<Arc<ReaderProcess>>> {
        lock(&self.members)
    }
}
