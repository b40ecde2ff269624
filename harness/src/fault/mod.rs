//! Faults: each one file with its spec, docs, needs, evidence and heal.
//!
//! Adding a fault is one file here and one variant of [`FaultSpec`]; the compiler then asks for its checks and needs in
//! `scenario`. A fault acts only through the [`Rig`] that it is given (cluster, link, oracle, readers) and records nothing:
//! it returns what proves it and what heals it, and the run loop writes the history.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::cluster::{ClusterError, NodeId};
use crate::history::facts::{Facts, Moment};
use crate::link::LinkError;
use crate::oracle::OracleError;
use crate::reader::host::{HostError, ReaderProcess};
use crate::run::rig::Rig;

pub mod absent_topic;
pub mod add_partitions;
pub mod answer_error;
pub mod compact_log;
pub mod delete_segments;
pub mod deny_acl;
pub mod fence_member;
pub mod isolate_broker;
pub mod kill_broker;
pub mod kill_reader;
pub mod move_address;
pub mod move_coordinator;
pub mod move_leader;
pub mod panic_callback;
pub mod partition;
pub mod pause_broker;
pub mod pause_reader;
pub mod recreate_topic;
pub mod roll_brokers;
pub mod transaction;
pub mod unclean_election;

/// A fault as a scenario names it: `do = { kill-broker = { broker = "leader" } }`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum FaultSpec {
    /// SIGKILL of a broker.
    KillBroker(kill_broker::KillBroker),
    /// SIGSTOP of a broker.
    PauseBroker(pause_broker::PauseBroker),
    /// The network between reader and brokers.
    Partition(partition::Partition),
    /// Retention deletes log segments.
    DeleteSegments(delete_segments::DeleteSegments),
    /// A user callback misbehaves.
    PanicCallback(panic_callback::PanicCallback),
    /// SIGSTOP of the reader.
    PauseReader(pause_reader::PauseReader),
    /// SIGKILL of the reader.
    KillReader(kill_reader::KillReader),
    /// An error code answered on the wire.
    AnswerError(answer_error::AnswerError),
    /// A topic that is not there yet, or not any more.
    AbsentTopic(absent_topic::AbsentTopic),
    /// A topic that grows.
    AddPartitions(add_partitions::AddPartitions),
    /// Another broker leads a partition.
    MoveLeader(move_leader::MoveLeader),
    /// Another broker coordinates the group.
    MoveCoordinator(move_coordinator::MoveCoordinator),
    /// An ACL denies the reader READ.
    DenyAcl(deny_acl::DenyAcl),
    /// A broker is off the network.
    IsolateBroker(isolate_broker::IsolateBroker),
    /// A topic is deleted and created anew.
    RecreateTopic(recreate_topic::RecreateTopic),
    /// Records of a transaction, and its end.
    Transaction(transaction::Transaction),
    /// The cleaner takes replaced records and tombstones away.
    CompactLog(compact_log::CompactLog),
    /// Every broker in turn stops and comes back.
    RollBrokers(roll_brokers::RollBrokers),
    /// A replica that lacks records leads.
    UncleanElection(unclean_election::UncleanElection),
    /// A broker is reached at another address.
    MoveAddress(move_address::MoveAddress),
    /// Another member takes a static member's name.
    FenceMember(fence_member::FenceMember),
}

/// Which brokers a fault strikes, chosen at the moment of injection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BrokerChoice {
    /// The leader of partition 0 of the first topic.
    Leader,
    /// The coordinator of the reader's group (of any kind without a group: the leader).
    Coordinator,
    /// Every broker.
    All,
    /// This node id, from 1.
    #[serde(untagged)]
    Node(i32),
}

/// A fault that can be injected.
#[async_trait]
pub trait Fault: Send + Sync {
    /// Its name in scenarios, such as `kill-broker`.
    fn kind(&self) -> &'static str;

    /// What it does, as a sentence: `kill the leader of partition 0`.
    fn text(&self) -> String;

    /// True when the rig's cluster imitates the fault and cannot really do it.
    fn emulated(&self, _rig: &Rig) -> bool {
        false
    }

    /// True while the fault keeps the reader from its brokers, so that no progress is owed.
    fn closes_path(&self) -> bool;

    /// True when nothing undoes it: no step can heal it, and what heals everything leaves it. Its [`Heal`] comes at the
    /// end of the steps and proves that the rest serves without it.
    fn for_good(&self) -> bool {
        false
    }

    /// Puts the fault in force and proves it. `name` is the fault's name in this run.
    ///
    /// # Errors
    /// [`FaultError::NotProven`] when the proof does not come; the others name the part that failed.
    async fn inject(&self, rig: &Rig, name: &str) -> Result<Injected, FaultError>;
}

/// A fault in force: what proves it, how to see that it was delivered, and the only way to heal it.
#[must_use = "a fault in force must be healed"]
pub struct Injected {
    /// Evidence of grade `injected`.
    pub proof: String,
    /// Looks for evidence of grade `delivered`.
    pub delivered: Look,
    /// Looks for evidence of grade `felt`, from an event on.
    pub felt: Feel,
    /// True when it lies in wait and strikes later: what the reader did before it struck was no reaction to it.
    pub strikes_later: bool,
    /// Takes the fault back.
    pub heal: Box<dyn Heal>,
}

impl Injected {
    /// A fault of the reader's own process: what proves it hit this reader, too.
    fn in_process(proof: String, heal: impl Heal + 'static) -> Self {
        let delivered = proof.clone();
        Self {
            proof,
            delivered: Box::new(move |_| Some(delivered.clone())),
            felt: reaction(),
            strikes_later: false,
            heal: Box::new(heal),
        }
    }
}

/// Looks for evidence in the facts; says what it found.
pub type Look = Box<dyn Fn(&Facts) -> Option<String> + Send + Sync>;

/// Looks for a reaction of the reader since this moment; says what it found.
pub type Feel = Box<dyn Fn(&Facts, Moment) -> Option<String> + Send + Sync>;

/// The undoing of one fault.
#[async_trait]
pub trait Heal: Send + Sync {
    /// False when the fault can be delivered only after its heal, so that the heal must not wait for that.
    fn waits_for_delivery(&self) -> bool {
        true
    }

    /// Takes the fault back and proves that it is gone.
    ///
    /// # Errors
    /// As [`Fault::inject`].
    async fn heal(self: Box<Self>, rig: &Rig) -> Result<String, FaultError>;
}

/// Why a fault could not be injected, proven or healed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FaultError {
    /// The cluster failed.
    #[error("the cluster could not do it")]
    Cluster(#[from] ClusterError),
    /// The link failed.
    #[error("the link could not do it")]
    Link(#[from] LinkError),
    /// The oracle failed.
    #[error("the oracle could not do it")]
    Oracle(#[from] OracleError),
    /// The reader's process failed; `reader` faults only.
    #[error("the reader's process could not be handled")]
    Host(#[from] HostError),
    /// It was tried, and the proof did not come.
    #[error("{what} was not proven: {seen}")]
    NotProven {
        /// What was to be proven.
        what: String,
        /// What was seen instead.
        seen: String,
    },
}

/// How long a backend may take to prove a fault or a heal. Generous: a loaded machine must not void runs; the slowest of
/// the measured proofs (a JVM broker's restart) took 3 s.
pub(crate) const PROOF: Duration = Duration::from_secs(30);

impl FaultSpec {
    /// The fault that the spec describes.
    pub fn fault(&self) -> &dyn Fault {
        match self {
            FaultSpec::KillBroker(fault) => fault,
            FaultSpec::PauseBroker(fault) => fault,
            FaultSpec::Partition(fault) => fault,
            FaultSpec::DeleteSegments(fault) => fault,
            FaultSpec::PanicCallback(fault) => fault,
            FaultSpec::PauseReader(fault) => fault,
            FaultSpec::KillReader(fault) => fault,
            FaultSpec::AnswerError(fault) => fault,
            FaultSpec::AbsentTopic(fault) => fault,
            FaultSpec::AddPartitions(fault) => fault,
            FaultSpec::MoveLeader(fault) => fault,
            FaultSpec::MoveCoordinator(fault) => fault,
            FaultSpec::DenyAcl(fault) => fault,
            FaultSpec::IsolateBroker(fault) => fault,
            FaultSpec::RecreateTopic(fault) => fault,
            FaultSpec::Transaction(fault) => fault,
            FaultSpec::CompactLog(fault) => fault,
            FaultSpec::RollBrokers(fault) => fault,
            FaultSpec::UncleanElection(fault) => fault,
            FaultSpec::MoveAddress(fault) => fault,
            FaultSpec::FenceMember(fault) => fault,
        }
    }
}

impl BrokerChoice {
    /// The nodes that the choice means now.
    ///
    /// # Errors
    /// The cluster's, when it does not tell who leads or coordinates.
    pub async fn nodes(&self, rig: &Rig) -> Result<Vec<NodeId>, ClusterError> {
        match self {
            BrokerChoice::All => Ok(rig.cluster.brokers().into_iter().map(|(node, _)| node).collect()),
            BrokerChoice::Node(node) => Ok(vec![*node]),
            BrokerChoice::Leader => Ok(vec![rig.cluster.leader(rig.first_topic(), 0).await?]),
            BrokerChoice::Coordinator => match &rig.group {
                Some(group) => Ok(vec![rig.cluster.coordinator(group).await?]),
                None => Ok(vec![rig.cluster.leader(rig.first_topic(), 0).await?]),
            },
        }
    }

    /// As a sentence has it: `the leader of partition 0`.
    pub fn text(&self) -> String {
        match self {
            BrokerChoice::All => "every broker".into(),
            BrokerChoice::Node(node) => format!("broker {node}"),
            BrokerChoice::Leader => "the leader of partition 0".into(),
            BrokerChoice::Coordinator => "the group's coordinator".into(),
        }
    }
}

/// The broker that something in a broker's charge is to move to: the one that is named, or the next one that is up.
///
/// # Errors
/// [`FaultError::NotProven`] where that is no move.
fn another(rig: &Rig, what: &str, from: NodeId, named: Option<NodeId>) -> Result<NodeId, FaultError> {
    let not_proven = |seen: String| FaultError::NotProven {
        what: format!("that {what} moved"),
        seen,
    };
    let live = rig.cluster.live();
    match named {
        Some(to) if to == from => Err(not_proven(format!("it is broker {to} already"))),
        Some(to) if !live.contains(&to) => Err(not_proven(format!("broker {to} is down"))),
        Some(to) => Ok(to),
        None => live
            .iter()
            .find(|node| **node > from)
            .or_else(|| live.iter().find(|node| **node != from))
            .copied()
            .ok_or_else(|| not_proven(format!("no broker but {from} is up"))),
    }
}

/// `orders-0`, `orders` or `partition 0`, as far as a fault names a place.
fn place(topic: Option<&str>, partition: Option<u32>) -> Option<String> {
    match (topic, partition) {
        (Some(topic), Some(partition)) => Some(format!("{topic}-{partition}")),
        (Some(topic), None) => Some(topic.to_owned()),
        (None, Some(partition)) => Some(format!("partition {partition}")),
        (None, None) => None,
    }
}

/// `1`, `1 and 2`, `1, 2 and 3`.
pub(crate) fn list(nodes: &[NodeId]) -> String {
    let names: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    match names.split_last() {
        None => "none".into(),
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

/// The process ids of readers, for proofs: `4711, 4712`.
fn pids(readers: &[Arc<ReaderProcess>]) -> String {
    readers
        .iter()
        .map(|reader| reader.pid().to_string())
        .collect::<Vec<_>>()
        .join(", ")
}

/// A reader that was told to start has tried every broker that it was given within this time: connects that are refused
/// take no time, and the slowest client waits 1 s before it tries again.
const TRIED_US: u64 = 1_000_000;

/// A reader that starts while no broker lets it in: a port that refuses shows nobody who knocks, so it is shown by what the
/// reader says, or by no connection of it coming although it has been told to start.
fn refused_at_start(facts: &Facts, mark: u64) -> Option<String> {
    let asked = facts
        .asked()
        .iter()
        .find(|asked| asked.command == "start" && asked.at.n >= mark)?;
    let member = &asked.member;
    let connections = facts.wire().connections.iter();
    if connections
        .filter(|one| one.at.n >= mark)
        .any(|one| one.client == *member)
    {
        return None;
    }
    if facts.errors().iter().any(|(at, ..)| at.n > asked.at.n) {
        return Some(format!(
            "{member} was told to start, reached no broker and reported an error"
        ));
    }
    (facts.now().us >= asked.at.us.saturating_add(TRIED_US)).then(|| {
        format!("{member} was told to start, and no connection of it came while every port that it was given refused")
    })
}

/// Evidence of grade `felt` that serves every fault: the reader itself showed that something was wrong.
pub(crate) fn reaction() -> Feel {
    Box::new(Facts::reaction_since)
}
