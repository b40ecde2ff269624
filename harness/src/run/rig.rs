//! The rig: everything that one run has set up. Faults act through it, and only through it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use brokerfall_report::history::{Event, FailureOf, Grade, Limits};
use brokerfall_report::protocol::{Command, Done, Kind, Start, TopicRef};
use tokio::task::JoinHandle;

use super::millis;
use super::order::Order;
use crate::cluster::clusters::Lease;
use crate::cluster::{Cluster, NodeId, direct};
use crate::fault::{FaultError, Heal, PROOF};
use crate::history::recorder::Recorder;
use crate::link::builtin::name_of;
use crate::link::{Link, PROBE};
use crate::lock;
use crate::oracle::{GroupWatch, Load, Oracle, OracleError};
use crate::process::Hosts;
use crate::reader::claims;
use crate::reader::claims::poll::{Asked, Polling};
use crate::reader::host::{HostError, ReaderProcess};
use crate::reader::provision::Fnv;
use crate::reader::sampler::Sampler;
use crate::reader::{Launch, SEED_VARIABLE};
use crate::scenario::plan::Plan;

/// Probes for a refused or accepting port wait this long between tries. Shorter, and a tight connect loop fills the
/// backlog of a dying broker, whose next SYN is then dropped and retried a whole second later.
const PROBE_EVERY: Duration = Duration::from_millis(2);

/// How long a reader's process may take to say hello: an interpreter that compiles its packages for the first time on a
/// loaded machine took over 10 s.
pub(crate) const HELLO: Duration = Duration::from_secs(60);

/// Longest wait for an answer of Metadata through the link.
const ASK: Duration = Duration::from_secs(5);

/// Everything that one run has set up.
pub struct Rig {
    /// The plan that is carried out.
    pub plan: Plan,
    /// What starts a reader process.
    pub launch: Launch,
    /// What starts a neutral member of the reader's group.
    neutral: Launch,
    /// Cluster.
    pub cluster: Arc<dyn Cluster>,
    /// The run's hold on it.
    pub(super) lease: Lease,
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
    /// What the names of brokers stand for, where readers are told names.
    hosts: Mutex<Option<Hosts>>,
    /// Session timeout of the group, milliseconds.
    pub session_ms: Option<u64>,
    /// Limits of the run.
    pub limits: Limits,
    seed: u64,
    sampler: Sampler,
    claims: Polling,
    processes: AtomicU32,
    members: Mutex<Vec<Arc<ReaderProcess>>>,
    neutrals: Mutex<Vec<Arc<ReaderProcess>>>,
    in_force: Mutex<Vec<InForce>>,
    load: Mutex<Option<Load>>,
    group_watch: Mutex<Option<GroupWatch>>,
    watchers: Mutex<Vec<JoinHandle<()>>>,
    leaving: Mutex<BTreeMap<String, Option<JoinHandle<()>>>>,
}

/// A fault that has been injected and not healed.
pub(super) struct InForce {
    /// Its name in this run.
    pub(super) name: String,
    /// The grade of evidence that the scenario asks for.
    pub(super) grade: Grade,
    /// True while it keeps the reader from its brokers.
    pub(super) closes_path: bool,
    /// Nothing undoes it.
    pub(super) for_good: bool,
    /// The only way to undo it.
    pub(super) heal: Box<dyn Heal>,
}

/// Which faults are to be healed.
#[derive(Clone, Copy)]
pub(super) enum Released<'a> {
    /// Those of these names.
    Named(&'a [String]),
    /// All but those that nothing undoes.
    All,
    /// All: the steps are over.
    Everything,
}

impl Rig {
    /// A rig without readers.
    pub fn new(order: &Order, lease: Lease, link: Arc<dyn Link>, oracle: Arc<Oracle>, recorder: Recorder) -> Self {
        Self {
            plan: order.plan.clone(),
            launch: order.launch.clone(),
            neutral: Launch::neutral(order.clusters.program()),
            cluster: lease.cluster.clone(),
            lease,
            link,
            oracle,
            group: order.group(),
            election: order.plan.cluster.election,
            seed: order.seed,
            sampler: Sampler::start(recorder.clone()),
            claims: Polling::new(order.launch.manifest.claims.clone(), recorder.clone()),
            processes: AtomicU32::new(0),
            recorder,
            folder: order.folder.clone(),
            hosts: Mutex::new(None),
            session_ms: order.session_ms(),
            limits: order.limits(),
            members: Mutex::new(Vec::new()),
            neutrals: Mutex::new(Vec::new()),
            in_force: Mutex::new(Vec::new()),
            load: Mutex::new(None),
            group_watch: Mutex::new(None),
            watchers: Mutex::new(Vec::new()),
            leaving: Mutex::new(BTreeMap::new()),
        }
    }

    /// Name of the first topic. A plan has at least one.
    pub fn first_topic(&self) -> &str {
        self.plan.topics.first().map_or("", |topic| topic.name.as_str())
    }

    /// The topic that a fault names, else the first.
    pub fn topic_or_first(&self, named: Option<&str>) -> String {
        named.unwrap_or_else(|| self.first_topic()).to_owned()
    }

    /// The topic and partitions that a fault names: of what it leaves out, the first topic and every partition.
    pub fn chosen(&self, topic: Option<&str>, partition: Option<u32>) -> (String, Vec<u32>) {
        let topic = self.topic_or_first(topic);
        let partitions = match partition {
            Some(partition) => vec![partition],
            None => (0..self.partitions(&topic)).collect(),
        };
        (topic, partitions)
    }

    /// Number of partitions of a topic that readers can see now; 0 when the plan has no such topic.
    pub fn partitions(&self, topic: &str) -> u32 {
        self.oracle.partitions(topic)
    }

    /// Number of the next event, with everything that the link has counted so far recorded before it: what is counted from
    /// here on came later.
    pub fn mark(&self) -> u64 {
        self.link.flush();
        self.recorder.mark()
    }

    /// The processes of the reader under test, in order of their member names.
    pub fn readers(&self) -> Vec<Arc<ReaderProcess>> {
        self.members().clone()
    }

    /// Every process that the run has started and may have to end: the reader's, and neutral members.
    pub fn processes(&self) -> Vec<Arc<ReaderProcess>> {
        let mut all = self.readers();
        all.extend(lock(&self.neutrals).iter().cloned());
        all
    }

    /// Starts a member's process and waits for its `hello`.
    ///
    /// # Errors
    /// When the process cannot be started, ends first, or breaks the protocol.
    pub async fn spawn(&self, member: &str) -> Result<Arc<ReaderProcess>, HostError> {
        let mut launch = self.launch.clone();
        let port = self.claims.is_wanted().then(claims::free_port).flatten();
        launch
            .env
            .extend(port.map(|port| (claims::PORT_VARIABLE.to_owned(), port.to_string())));
        let reader = self.spawn_process(&launch, member).await?;
        lock(&self.leaving).remove(member);
        self.sampler.add(member, reader.group());
        if let Some(port) = port {
            let is_first = self.members().first().is_none_or(|first| first.member() == member);
            let member = member.to_owned();
            self.claims.watch(&Asked { member, port, is_first });
        }
        {
            let mut members = self.members();
            match members.iter_mut().find(|known| known.member() == member) {
                Some(known) => *known = reader.clone(),
                None => members.push(reader.clone()),
            }
        }
        self.greeted(&self.launch, reader).await
    }

    /// Starts a neutral member (`n1`, `n2`, …): the bundled reference reader, in the group of the reader under test. It
    /// reads along and is not judged. It takes the assignor that the group was last seen to use on the link, because
    /// members of one group must agree on it. With an `instance` it is a static member of that name.
    ///
    /// # Errors
    /// [`FaultError::NotProven`] when the plan's reader is in no group, or the neutral member cannot join one of that
    /// assignor; [`FaultError::Host`] when its process does not start.
    pub async fn join_neutral(&self, instance: Option<&str>) -> Result<Arc<ReaderProcess>, FaultError> {
        let not_proven = |seen: String| FaultError::NotProven {
            what: "that a neutral member joined".to_owned(),
            seen,
        };
        let group = self.group.as_ref();
        let group = group.ok_or_else(|| not_proven("the reader is in no group".to_owned()))?;
        let member = format!("n{}", lock(&self.neutrals).len() + 1);
        let reader = self.spawn_process(&self.neutral, &member).await?;
        lock(&self.neutrals).push(reader.clone());
        let reader = self.greeted(&self.neutral, reader).await?;
        let assignor = self.link.assignor(group);
        let option = |assignor: &String| ("partition.assignment.strategy".to_owned(), assignor.as_str().into());
        let options = assignor.iter().map(option).collect();
        let instance = instance.map(str::to_owned);
        let done = reader
            .ask(self.start_command(&member, Kind::Group, instance, options), PROOF)
            .await?;
        if done.ok {
            return Ok(reader);
        }
        let error = done.error.map_or_else(String::new, |error| error.label());
        let assignor = assignor.unwrap_or_else(|| "none seen".to_owned());
        Err(not_proven(format!(
            "its start call failed with {error} (assignor of the group: {assignor})"
        )))
    }

    /// Gives readers that will be started names of brokers to resolve, where the plan wants that; why that cannot be had on
    /// this machine, where it cannot.
    ///
    /// # Errors
    /// [`HostError::Io`] when the file cannot be written.
    pub(super) async fn name_brokers(&self) -> Result<Option<String>, HostError> {
        if !self.plan.names_brokers() {
            return Ok(None);
        }
        let nodes = self.cluster.brokers().into_iter().map(|(node, _)| node);
        let names = nodes.filter_map(|node| Some((name_of(node), self.link.address(node)?.ip())));
        let file = self.folder.join("hosts");
        let hosts = Hosts::write(&file, names.collect()).map_err(|source| HostError::Io {
            what: format!("the hosts file {} cannot be written", file.display()),
            source,
        })?;
        let asked = hosts.clone();
        let lacking = tokio::task::spawn_blocking(move || asked.lacking()).await;
        *lock(&self.hosts) = Some(hosts);
        // A look that panicked has shown nothing.
        Ok(lacking.unwrap_or_else(|cause| Some(cause.to_string())))
    }

    /// Has the name of a broker stand for another address.
    ///
    /// # Errors
    /// [`FaultError::NotProven`] when readers know no names, or the file cannot be written.
    pub fn point_name(&self, node: NodeId, to: SocketAddr) -> Result<(), FaultError> {
        let not_proven = |seen: String| FaultError::NotProven {
            what: format!("that {} stands for {}", name_of(node), to.ip()),
            seen,
        };
        let mut hosts = lock(&self.hosts);
        let hosts = hosts
            .as_mut()
            .ok_or_else(|| not_proven("readers were told no names".to_owned()))?;
        hosts
            .point(&name_of(node), to.ip())
            .map_err(|cause| not_proven(cause.to_string()))
    }

    /// `host:port` of a broker as a reader is told it, asked through the link.
    ///
    /// # Errors
    /// [`FaultError::NotProven`] when no broker answers, or none names it.
    pub async fn told_address(&self, node: NodeId) -> Result<String, FaultError> {
        let mut seen = "the link has no broker".to_owned();
        for asked in self.cluster.live() {
            let Some(address) = self.link.address(asked) else {
                continue;
            };
            match direct::metadata(address, PROBE, &[], ASK).await {
                Ok(metadata) => {
                    let mut brokers = metadata.brokers.iter();
                    match brokers.find(|broker| broker.node_id.0 == node) {
                        Some(broker) => return Ok(format!("{}:{}", broker.host.as_str(), broker.port)),
                        None => seen = format!("broker {asked} does not name it"),
                    }
                }
                Err(cause) => seen = crate::chain(&cause),
            }
        }
        Err(FaultError::NotProven {
            what: format!("where readers are told that broker {node} is"),
            seen,
        })
    }

    async fn spawn_process(&self, launch: &Launch, member: &str) -> Result<Arc<ReaderProcess>, HostError> {
        // There before the first start, and kept for the processes that follow.
        let state = self.state_folder(member);
        std::fs::create_dir_all(&state).map_err(|source| HostError::Io {
            what: format!(
                "the folder {} for the state of {member} cannot be made",
                state.display()
            ),
            source,
        })?;
        // A folder for each process, so that a fresh one does not overwrite what the patient left behind.
        let process = self.processes.fetch_add(1, Ordering::Relaxed) + 1;
        let folder = self.folder.join(format!("{member}-process{process}"));
        let mut launch = launch.clone();
        let seed = seed_of(self.seed, member, process);
        launch.env.push((SEED_VARIABLE.to_owned(), seed.to_string()));
        if let Some(hosts) = lock(&self.hosts).as_ref() {
            launch.command = hosts.wrap(&launch.command);
        }
        let reader = ReaderProcess::spawn(&launch, member, &folder, self.recorder.clone()).await?;
        Ok(Arc::new(reader))
    }

    /// Waits for a fresh process to say `hello`.
    async fn greeted(&self, launch: &Launch, reader: Arc<ReaderProcess>) -> Result<Arc<ReaderProcess>, HostError> {
        if let Err(cause) = reader.hello(HELLO).await {
            let command = launch.command.join(" ");
            // Nothing was asked of it yet, so this is the adapter's doing and says nothing of its reader.
            let text = match (&cause, reader.exited()) {
                (HostError::Exited { .. }, Some(exit)) => {
                    let last = exit.stderr_tail.lines().rfind(|line| !line.trim().is_empty());
                    format!(
                        "`{command}` {} before `hello` ({})",
                        exit.text(),
                        last.map_or_else(
                            || "it wrote nothing on stderr".to_owned(),
                            |line| format!("the last line of its stderr: {line}")
                        )
                    )
                }
                (HostError::TimedOut { .. }, _) => format!("`{command}` did not say `hello` within {HELLO:?}"),
                // A broken rule stands in the history already.
                _ => return Err(cause),
            };
            self.recorder.record(Event::ProtocolBroken {
                member: reader.member().to_owned(),
                text,
                line: String::new(),
            });
            return Err(cause);
        }
        Ok(reader)
    }

    /// What a member is told to start. Partitions are those that it can see now.
    fn start_command(
        &self,
        member: &str,
        kind: Kind,
        instance: Option<String>,
        options: BTreeMap<String, serde_json::Value>,
    ) -> Command {
        let reader = &self.plan.reader;
        Command::Start(Start {
            bootstrap: self.link.bootstrap(),
            topics: self
                .plan
                .topics
                .iter()
                .map(|topic| TopicRef {
                    name: topic.name.clone(),
                    partitions: self.partitions(&topic.name),
                    role: topic.role.clone(),
                })
                .collect(),
            kind,
            group: self.group.clone(),
            client_id: member.to_owned(),
            reset: reader.reset,
            isolation: reader.isolation,
            session_ms: self.session_ms,
            heartbeat_ms: reader.heartbeat.map(millis),
            max_poll_ms: reader.max_poll.map(millis),
            group_instance_id: instance,
            state_dir: Some(self.state_folder(member).to_string_lossy().into_owned()),
            options,
        })
    }

    /// The name that a member of the reader keeps over its lives, where the plan wants static members.
    pub fn instance_of(&self, member: &str) -> Option<String> {
        (self.plan.is_static() && self.group.is_some()).then(|| format!("static-{member}"))
    }

    fn state_folder(&self, member: &str) -> PathBuf {
        self.folder.join(format!("state-{member}"))
    }

    /// Records the log ends that a member starts with and tells it to start.
    ///
    /// # Errors
    /// When the oracle or the process fails. A start call that the library refuses is no error here: it is in the answer.
    pub async fn start(&self, reader: &ReaderProcess, within: Duration) -> Result<Done, FaultError> {
        self.oracle.targets(reader.member()).await?;
        let (member, kind) = (reader.member(), self.launch.info.kind);
        let command = self.start_command(member, kind, self.instance_of(member), self.plan.reader.options.clone());
        Ok(reader.ask(command, within).await?)
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

    /// Empties a member's state folder; its process must have let go of it. Returns the proof.
    ///
    /// # Errors
    /// [`FaultError::NotProven`] when an adapter that keeps state has kept none, or the folder cannot be emptied.
    pub fn wipe_state(&self, member: &str) -> Result<String, FaultError> {
        let folder = self.state_folder(member);
        let not_proven = |seen: String| FaultError::NotProven {
            what: format!("that the state of {member} was wiped"),
            seen,
        };
        let refused = |cause: std::io::Error| not_proven(format!("{}: {cause}", folder.display()));
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries.count() as u64,
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => 0,
            Err(cause) => return Err(refused(cause)),
        };
        if entries == 0 {
            return Err(not_proven("its folder holds nothing".to_owned()));
        }
        std::fs::remove_dir_all(&folder)
            .and_then(|()| std::fs::create_dir(&folder))
            .map_err(refused)?;
        self.recorder.record(Event::StateWiped {
            member: member.to_owned(),
            entries,
        });
        Ok(format!("the state folder of {member} was emptied ({entries} entries)"))
    }

    /// Waits until the cluster serves without some brokers: Metadata does not name them, and others lead every partition
    /// and coordinate the group. Returns those others.
    ///
    /// # Errors
    /// [`FaultError::NotProven`] when that is not so within 30 s; the cluster's, when nobody answers.
    pub async fn prove_served_without(&self, gone: &[NodeId]) -> Result<Vec<NodeId>, FaultError> {
        let deadline = tokio::time::Instant::now() + PROOF;
        loop {
            let named = self.cluster.members().await?;
            let mut lacking = Vec::new();
            lacking.extend(
                named
                    .iter()
                    .filter(|node| gone.contains(node))
                    .map(|node| format!("Metadata names broker {node}")),
            );
            for topic in &self.plan.topics {
                for partition in 0..self.partitions(&topic.name) {
                    let leader = self.cluster.leader(&topic.name, partition).await?;
                    if !named.contains(&leader) {
                        lacking.push(format!("broker {leader} leads {}-{partition}", topic.name));
                    }
                }
            }
            if let Some(group) = &self.group {
                let coordinator = self.cluster.coordinator(group).await?;
                if !named.contains(&coordinator) {
                    lacking.push(format!("broker {coordinator} coordinates group {group}"));
                }
            }
            if lacking.is_empty() {
                return Ok(named);
            }
            if tokio::time::Instant::now() >= deadline {
                return Err(FaultError::NotProven {
                    what: "that the rest of the cluster serves".to_owned(),
                    seen: lacking.join(", "),
                });
            }
            crate::before_the_next_look(PROBE_EVERY).await;
        }
    }

    /// Lets readers tell of partitions that they are about to see.
    pub fn expect_partitions(&self, topic: &str, to: u32) {
        for reader in self.processes() {
            reader.partitions_added(topic, to);
        }
    }

    /// Takes note of partitions that readers can see from now on: the oracle writes and watches them, and what is owed
    /// grows with them. A load that runs is spread over all of them anew.
    ///
    /// # Errors
    /// The oracle's, when one of them has no leader.
    pub async fn partitions_added(&self, topic: &str, from: u32, to: u32) -> Result<(), FaultError> {
        self.oracle.add_partitions(topic, to).await?;
        self.recorder.record(Event::PartitionsAdded {
            topic: topic.to_owned(),
            from,
            to,
        });
        let load = lock(&self.load).take();
        if let Some(load) = load {
            load.stop().await?;
            self.start_load();
        }
        Ok(())
    }

    /// Stops the load for a while and waits for what is in flight; false where none runs.
    ///
    /// # Errors
    /// The oracle's.
    pub async fn suspend_load(&self) -> Result<bool, FaultError> {
        let load = lock(&self.load).take();
        let was_loaded = load.is_some();
        if let Some(load) = load {
            load.stop().await?;
        }
        Ok(was_loaded)
    }

    /// Takes note that the log of a partition lost its end and goes on at `log_end`.
    pub fn log_truncated(&self, topic: &str, partition: u32, log_end: u64) {
        self.recorder.record(Event::LogTruncated {
            topic: topic.to_owned(),
            partition,
            log_end,
        });
    }

    /// Deletes a topic and creates it anew, as the plan has it and with as many partitions, `gap` later; returns what shows
    /// that it was gone. A load that runs stands still meanwhile, so that every record is of one log or the other.
    ///
    /// # Errors
    /// The oracle's and the cluster's.
    pub async fn recreate_topic(&self, name: &str, gap: Duration) -> Result<String, FaultError> {
        let topic = self.plan.topics.iter().find(|topic| topic.name == name);
        let topic = topic.ok_or_else(|| FaultError::NotProven {
            what: format!("that {name} was created anew"),
            seen: "the plan has no such topic".to_owned(),
        })?;
        let was_loaded = self.suspend_load().await?;
        let partitions = self.partitions(name);
        // What the oracle has not read before it is gone, nobody could tell of afterwards.
        for partition in 0..partitions {
            self.oracle.scan(name, partition).await?;
        }
        let gone = self.cluster.delete_topic(name).await?;
        self.oracle.forget_log(name).await;
        self.recorder.record(Event::TopicDeleted { topic: name.to_owned() });
        absent_for(gap).await;
        let spec = super::setup::topic_spec(&self.plan, topic, partitions);
        self.cluster.create_topic(&spec).await?;
        if was_loaded {
            self.start_load();
        }
        Ok(gone)
    }

    /// Asks a broker through the link which partitions of a topic it has; what the reader would be answered.
    ///
    /// # Errors
    /// [`FaultError::NotProven`] when no broker answers.
    pub async fn visible_partitions(&self, topic: &str) -> Result<Vec<u32>, FaultError> {
        let mut seen = "the link has no broker".to_owned();
        for node in self.cluster.live() {
            let Some(address) = self.link.address(node) else {
                continue;
            };
            match direct::metadata(address, PROBE, &[topic.to_owned()], ASK).await {
                Ok(metadata) => {
                    let partitions = metadata.topics.iter().flat_map(|topic| &topic.partitions);
                    let mut visible: Vec<u32> = partitions
                        .filter_map(|partition| u32::try_from(partition.partition_index).ok())
                        .collect();
                    visible.sort_unstable();
                    return Ok(visible);
                }
                Err(cause) => seen = crate::chain(&cause),
            }
        }
        Err(FaultError::NotProven {
            what: format!("which partitions of {topic} the reader can see"),
            seen,
        })
    }

    /// Waits until the reader's port of a broker refuses connections.
    ///
    /// # Errors
    /// When it still accepts after 30 s.
    pub async fn prove_refused(&self, node: NodeId) -> Result<(), FaultError> {
        self.prove_port(node, "refuses", is_refused).await
    }

    /// Waits until an address that was a broker's for readers refuses connections.
    ///
    /// # Errors
    /// When it still accepts after 30 s.
    pub async fn prove_refused_at(&self, address: SocketAddr) -> Result<(), FaultError> {
        prove_at(address, &format!("that {address} refuses"), is_refused).await
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
        prove_at(
            address,
            &format!("that the reader's port of broker {node} {wanted}"),
            holds,
        )
        .await
    }

    /// The recovery window.
    pub fn within(&self) -> Duration {
        Duration::from_secs_f64(self.limits.within_ms.value / 1000.0)
    }

    /// Keeps a fault for its heal.
    pub(super) fn hold(&self, fault: InForce) {
        lock(&self.in_force).push(fault);
    }

    /// Takes out faults that are to be healed, in the order in which they were injected.
    pub(super) fn release(&self, which: Released<'_>) -> Vec<InForce> {
        let mut held = lock(&self.in_force);
        let all = std::mem::take(&mut *held);
        let (released, kept) = all.into_iter().partition(|fault| match which {
            Released::Named(names) => names.contains(&fault.name),
            Released::All => !fault.for_good,
            Released::Everything => true,
        });
        *held = kept;
        released
    }

    /// True while a fault in force keeps the reader from its brokers.
    pub(super) fn path_is_cut(&self) -> bool {
        lock(&self.in_force).iter().any(|fault| fault.closes_path)
    }

    /// Starts the plan's load, where it has one.
    pub(crate) fn start_load(&self) {
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

    /// Has the oracle ask the group's coordinator from now on, where there is a group. The mock cluster does not describe
    /// groups.
    pub(super) fn watch_group(&self) {
        if let Some(group) = self.group.as_ref().filter(|_| !self.cluster.emulated()) {
            *lock(&self.group_watch) = Some(self.oracle.watch_group(group));
        }
    }

    /// Asks the group's coordinator no more, and returns when nothing more of it is recorded.
    pub(super) async fn stop_watching_group(&self) {
        let watch = lock(&self.group_watch).take();
        if let Some(watch) = watch
            && let Err(cause) = watch.stop().await
        {
            self.fail(FailureOf::Harness, crate::chain(&cause));
        }
    }

    /// Keeps a task that watches for evidence; it ends with the run.
    pub(super) fn watch(&self, task: JoinHandle<()>) {
        lock(&self.watchers).push(task);
    }

    /// Asks for no more claims, and returns when no question is under way.
    pub(super) async fn stop_asking(&self) {
        self.claims.stop().await;
    }

    /// Ends the tasks that watch for evidence, or for members to leave.
    pub(super) fn stop_watching(&self) {
        for task in std::mem::take(&mut *lock(&self.leaving)).into_values().flatten() {
            task.abort();
        }
        for task in lock(&self.watchers).drain(..) {
            task.abort();
        }
    }

    /// Keeps a member that was told to leave in a step.
    pub(super) fn leaves(&self, member: String, leave: JoinHandle<()>) {
        lock(&self.leaving).insert(member, Some(leave));
    }

    /// Waits for the members that were told to leave in a step, and returns the names of all that have left so and were not
    /// started again.
    pub(super) async fn all_have_left(&self) -> Vec<String> {
        let leaving: Vec<_> = lock(&self.leaving).values_mut().filter_map(Option::take).collect();
        for leave in leaving {
            if let Err(panicked) = leave.await {
                self.fail(
                    FailureOf::Harness,
                    format!("letting a member leave panicked: {panicked}"),
                );
            }
        }
        lock(&self.leaving).keys().cloned().collect()
    }

    /// Takes a member that has left out of those that there are.
    pub(super) fn forget(&self, member: &str) {
        self.members().retain(|known| known.member() != member);
    }

    /// Records a failure that is not the reader's.
    pub fn fail(&self, of: FailureOf, text: String) {
        self.recorder.record(Event::Failure { of, text });
    }

    fn members(&self) -> MutexGuard<'_, Vec<Arc<ReaderProcess>>> {
        lock(&self.members)
    }
}

fn is_refused(connected: std::io::Result<tokio::net::TcpStream>) -> bool {
    connected.is_err_and(|cause| cause.kind() == std::io::ErrorKind::ConnectionRefused)
}

/// Connects over and over until what comes of it is what is wanted.
async fn prove_at(
    address: SocketAddr,
    what: &str,
    holds: impl Fn(std::io::Result<tokio::net::TcpStream>) -> bool,
) -> Result<(), FaultError> {
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
    Err(FaultError::NotProven {
        what: what.to_owned(),
        seen: "it did not within the limit".to_owned(),
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long a topic is away is the scenario's own length of a fault: time is the condition"
)]
async fn absent_for(gap: Duration) {
    tokio::time::sleep(gap).await;
}

/// The seed of a process: what follows from that of the run, without being the same for any two.
fn seed_of(run: u64, member: &str, process: u32) -> u64 {
    let mut hash = Fnv::default();
    hash.part(&run.to_le_bytes());
    hash.part(member.as_bytes());
    hash.part(&process.to_le_bytes());
    hash.value()
}
