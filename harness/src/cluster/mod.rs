//! Clusters: what a reader reads from, and what broker faults strike.
//!
//! One trait; [`mock`] is the embedded default, [`kafka`] is Apache Kafka itself, run by [`process`] or by [`container`],
//! [`clusters`] brings any of them up for a run and takes it back; [`direct`] is how harness and oracle speak to a broker's
//! direct listener. What a plan needs and a cluster lacks is asked before anything starts (`scenario/needs.rs`). Deliberately
//! not here: anything between reader and broker (that is `link`), and anything that reads the log (that is `oracle`).

pub mod clusters;
pub mod container;
pub mod direct;
pub mod kafka;
pub mod mock;
pub mod process;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use brokerfall_report::history::ClusterInfo;

use crate::ports::Port;

/// A broker's node id, from 1.
pub type NodeId = i32;

/// The clusters that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClusterKind {
    /// librdkafka's mock cluster.
    Mock,
    /// Apache Kafka as JVM processes.
    Process,
    /// Apache Kafka in containers.
    Container,
}

impl ClusterKind {
    /// As `--cluster`, manifests and reports name it.
    pub fn name(self) -> &'static str {
        match self {
            ClusterKind::Mock => "mock",
            ClusterKind::Process => "process",
            ClusterKind::Container => "container",
        }
    }
}

/// What only some clusters can do. Where one cannot, a fault imitates it, and says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ability {
    /// Stop one broker in its tracks and let it go on.
    PauseBroker,
    /// Take one broker off the network that it shares with readers and other brokers.
    IsolateBroker,
    /// Delete the oldest records of a log without writing to it.
    DeleteRecords,
    /// Delete the oldest records of a log by itself, as a topic's settings have it.
    Retention,
    /// Delete a topic.
    DeleteTopic,
    /// Take a reader's right to read away, and give it back.
    DenyRead,
    /// Stop a broker in an orderly way (SIGTERM).
    StopBroker,
    /// Elect a leader that lacks records (an unclean election).
    UncleanElection,
    /// Say which brokers hold a partition.
    Reassign,
}

/// What readers may be kept from reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resource {
    /// A topic.
    Topic(String),
    /// A consumer group: its members may not join, stay or commit.
    Group(String),
}

impl Resource {
    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Resource::Topic(name) | Resource::Group(name) => name,
        }
    }
}

impl std::fmt::Display for Resource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Resource::Topic(name) => write!(f, "topic {name}"),
            Resource::Group(name) => write!(f, "group {name}"),
        }
    }
}

/// A running cluster.
#[async_trait]
pub trait Cluster: Send + Sync {
    /// How reports name it.
    fn info(&self) -> ClusterInfo;

    /// Node ids and direct addresses, in order of node id. Stable for the cluster's life.
    fn brokers(&self) -> Vec<(NodeId, SocketAddr)>;

    /// `host:port,…` of the direct listeners: for the oracle only.
    fn direct_bootstrap(&self) -> String {
        self.brokers()
            .iter()
            .map(|(_, address)| address.to_string())
            .collect::<Vec<_>>()
            .join(",")
    }

    /// What its direct listeners want to be told before they answer; `None` where they ask nobody.
    fn login(&self) -> Option<direct::Login> {
        None
    }

    /// What the link stands in front of, in order of node id: the listeners for readers.
    fn upstreams(&self) -> Vec<(NodeId, SocketAddr)> {
        self.brokers()
    }

    /// The ports that the brokers tell readers, one for each of the [`Cluster::upstreams`]: there the link listens. Empty
    /// where brokers tell their direct addresses; then the link chooses ports, and writes them into the answers.
    fn advertised(&self) -> Vec<Arc<Port>> {
        Vec::new()
    }

    /// True when it is librdkafka's mock, whose answers the link cures.
    fn emulated(&self) -> bool {
        false
    }

    /// Whether it can do this.
    fn can(&self, _ability: Ability) -> bool {
        false
    }

    /// From now on what its brokers log goes to a folder, where it is kept at all.
    fn log_to(&self, _folder: &Path) {}

    /// Creates a topic and returns when every partition has a leader.
    ///
    /// # Errors
    /// [`ClusterError::Refused`] when the cluster says no, [`ClusterError::TimedOut`] when a partition gets no leader;
    /// [`ClusterError::Died`] as everywhere below.
    async fn create_topic(&self, topic: &TopicSpec) -> Result<(), ClusterError>;

    /// Kills a broker: its direct port refuses connections when this returns. Leaders and coordinators move after
    /// `election` (never, on a cluster of one). The proof says what was seen.
    ///
    /// # Errors
    /// [`ClusterError::Refused`], or [`ClusterError::TimedOut`] when its port still accepts.
    async fn kill_broker(&self, node: NodeId, election: Duration) -> Result<String, ClusterError>;

    /// Tells a broker to stop (SIGTERM): it hands what it leads to the others and ends by itself. Its port refuses
    /// connections when this returns. The proof says with which status it ended, after how long, and when others led.
    ///
    /// # Errors
    /// [`ClusterError::Refused`] for a broker that is down or unknown or does not end by itself, or without
    /// [`Ability::StopBroker`]; [`ClusterError::TimedOut`] when it stays, or goes on leading.
    async fn stop_broker(&self, node: NodeId) -> Result<String, ClusterError> {
        Err(self.cannot(format!("stop broker {node}")))
    }

    /// Returns when every broker serves and names all others, and every partition of every topic has a leader and all of
    /// its replicas in sync, with what was seen.
    ///
    /// # Errors
    /// [`ClusterError::TimedOut`] when that does not come; [`ClusterError::Refused`] without [`Ability::StopBroker`].
    async fn until_in_sync(&self) -> Result<String, ClusterError> {
        Err(self.cannot("say which replicas are in sync".to_owned()))
    }

    /// Starts a killed broker again, on the same port and with its data. Returns when its direct port accepts and it
    /// answers Metadata.
    ///
    /// # Errors
    /// [`ClusterError::Refused`], or [`ClusterError::TimedOut`] when it does not serve in time.
    async fn start_broker(&self, node: NodeId) -> Result<String, ClusterError>;

    /// Stops a broker in its tracks (SIGSTOP): its connections stay open and nothing is answered. Returns when it stands
    /// still, with what shows that.
    ///
    /// # Errors
    /// [`ClusterError::Refused`] for a broker that is down or unknown, or without [`Ability::PauseBroker`];
    /// [`ClusterError::TimedOut`] when it goes on.
    async fn pause_broker(&self, node: NodeId) -> Result<String, ClusterError> {
        Err(self.cannot(format!("pause broker {node}")))
    }

    /// Lets a paused broker go on (SIGCONT). Returns when it answers Metadata.
    ///
    /// # Errors
    /// As for [`Cluster::pause_broker`].
    async fn resume_broker(&self, node: NodeId) -> Result<String, ClusterError> {
        Err(self.cannot(format!("resume broker {node}")))
    }

    /// Takes a broker off the network: it runs on, its direct port refuses, and no other broker reaches it.
    ///
    /// # Errors
    /// [`ClusterError::Refused`] for a broker that is down or unknown, or without [`Ability::IsolateBroker`];
    /// [`ClusterError::TimedOut`] when its port still accepts.
    async fn isolate_broker(&self, node: NodeId) -> Result<String, ClusterError> {
        Err(self.cannot(format!("isolate broker {node}")))
    }

    /// Takes [`Cluster::isolate_broker`] back. Returns when the broker and all others that answer name each other.
    ///
    /// # Errors
    /// As for [`Cluster::isolate_broker`].
    async fn rejoin_broker(&self, node: NodeId) -> Result<String, ClusterError> {
        Err(self.cannot(format!("rejoin broker {node}")))
    }

    /// Deletes the records of a partition below an offset, as retention does. Returns when the log starts there.
    ///
    /// # Errors
    /// [`ClusterError::Refused`] when the log ends before it, or without [`Ability::DeleteRecords`].
    async fn delete_records(&self, topic: &str, partition: u32, before: u64) -> Result<String, ClusterError> {
        Err(self.cannot(format!("delete {topic}-{partition} below {before}")))
    }

    /// Changes a setting of a topic that stands, both named as Kafka does; without a value it is as if it had never been set.
    /// Brokers hear of it within moments, and act when their timers fire.
    ///
    /// # Errors
    /// [`ClusterError::Refused`] without [`Ability::Retention`], or for a setting that the cluster does not take.
    async fn set_topic(&self, topic: &str, setting: &'static str, _value: Option<String>) -> Result<(), ClusterError> {
        Err(self.cannot(format!("set {setting} of {topic}")))
    }

    /// Deletes a topic with all that stands in it. Returns when no broker knows it any more.
    ///
    /// # Errors
    /// [`ClusterError::Refused`] without [`Ability::DeleteTopic`]; [`ClusterError::TimedOut`] when a broker goes on naming it.
    async fn delete_topic(&self, topic: &str) -> Result<String, ClusterError> {
        Err(self.cannot(format!("delete topic {topic}")))
    }

    /// Denies readers READ on something; whatever else they may do stays as it was. The oracle is not touched. Returns when
    /// every broker refuses a reader, with what it was told.
    ///
    /// # Errors
    /// [`ClusterError::Refused`] without [`Ability::DenyRead`]; [`ClusterError::TimedOut`] when a broker goes on serving.
    async fn deny_read(&self, resource: &Resource) -> Result<String, ClusterError> {
        Err(self.cannot(format!("deny READ on {resource}")))
    }

    /// Takes [`Cluster::deny_read`] back. Returns when no broker refuses a reader.
    ///
    /// # Errors
    /// As for [`Cluster::deny_read`].
    async fn allow_read(&self, resource: &Resource) -> Result<String, ClusterError> {
        Err(self.cannot(format!("allow READ on {resource}")))
    }

    /// The answer to what it cannot do.
    fn cannot(&self, command: String) -> ClusterError {
        ClusterError::Refused {
            cluster: if self.emulated() { "mock" } else { "Kafka" },
            command,
            answer: "it cannot".to_owned(),
        }
    }

    /// The brokers that are up, in order of node id. A paused broker is up.
    fn live(&self) -> Vec<NodeId>;

    /// Makes a broker that is up the leader of a partition. Returns when Metadata on a direct listener names it, with what
    /// Metadata says. It leads until it is moved again or dies.
    ///
    /// # Errors
    /// [`ClusterError::Refused`] for a broker that is down or unknown, [`ClusterError::TimedOut`] when Metadata goes on
    /// naming another.
    async fn move_leader(&self, topic: &str, partition: u32, to: NodeId) -> Result<String, ClusterError>;

    /// Gives a partition these brokers and no others, the first of which is to lead. Returns when they are in sync, Metadata
    /// names no other, and every broker names the first as the leader.
    ///
    /// # Errors
    /// As for [`Cluster::move_leader`]; [`ClusterError::Refused`] without [`Ability::Reassign`].
    async fn reassign(&self, topic: &str, partition: u32, replicas: &[NodeId]) -> Result<String, ClusterError> {
        Err(self.cannot(format!("give {topic}-{partition} the replicas {replicas:?}")))
    }

    /// Makes a broker that is up the coordinator of a group. Returns when FindCoordinator on a direct listener names it.
    ///
    /// # Errors
    /// As for [`Cluster::move_leader`].
    async fn move_coordinator(&self, group: &str, to: NodeId) -> Result<String, ClusterError>;

    /// Takes a static member that is gone out of its group, so that its partitions need not wait for the end of its session.
    /// A member that is no more the one of that id stays, and is as good as gone.
    ///
    /// # Errors
    /// [`ClusterError::Refused`] where the cluster knows no static members, or refuses it.
    async fn expel(&self, group: &str, instance: &str, _member_id: &str) -> Result<String, ClusterError> {
        Err(self.cannot(format!("take {instance} out of group {group}")))
    }

    /// Node ids that Metadata on a direct listener names, in order: those of brokers that are up.
    ///
    /// # Errors
    /// [`ClusterError::Direct`] when no broker tells it.
    async fn members(&self) -> Result<Vec<NodeId>, ClusterError>;

    /// The node that leads a partition now.
    ///
    /// # Errors
    /// [`ClusterError::Direct`] when no broker tells it.
    async fn leader(&self, topic: &str, partition: u32) -> Result<NodeId, ClusterError>;

    /// The brokers that hold a partition, and those of them that are in sync with its leader.
    ///
    /// # Errors
    /// [`ClusterError::Direct`] when no broker tells it; [`ClusterError::Refused`] without [`Ability::UncleanElection`], or
    /// for a partition that there is not.
    async fn replicas(&self, topic: &str, partition: u32) -> Result<Replicas, ClusterError> {
        Err(self.cannot(format!("tell the replicas of {topic}-{partition}")))
    }

    /// The node that coordinates a group now.
    ///
    /// # Errors
    /// [`ClusterError::Direct`] when no broker tells it.
    async fn coordinator(&self, group: &str) -> Result<NodeId, ClusterError>;

    /// Names a group that readers will use, so that its coordinator can be moved when it dies. Only clusters that must be
    /// told to elect need it; calling it again is harmless.
    fn note_group(&self, _group: &str) {}

    /// Log lines or deviations that the cluster has reported since the last call (`unsupported XRequest`, …).
    fn complaints(&self) -> Vec<String>;

    /// Resolves when the cluster dies by itself, with its last words (the assert's text for the mock).
    async fn died(&self) -> String;

    /// Stops everything. Idempotent.
    async fn shutdown(&self);
}

/// What becomes of old records of a topic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Cleanup {
    /// Retention deletes them.
    #[default]
    Delete,
    /// They go once a newer record has the same key, and never else: no request deletes them.
    Compact,
    /// Both.
    CompactDelete,
}

impl Cleanup {
    /// All of them.
    pub const ALL: [Cleanup; 3] = [Cleanup::Delete, Cleanup::Compact, Cleanup::CompactDelete];

    /// As Kafka and scenarios name it.
    pub fn name(self) -> &'static str {
        match self {
            Cleanup::Delete => "delete",
            Cleanup::Compact => "compact",
            Cleanup::CompactDelete => "compact,delete",
        }
    }

    /// Whether the cleaner compacts it.
    pub fn compacts(self) -> bool {
        self != Cleanup::Delete
    }

    /// Whether retention, or a request, deletes from it.
    pub fn deletes(self) -> bool {
        self != Cleanup::Compact
    }
}

/// Who holds a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replicas {
    /// Every broker that is to hold it.
    pub all: Vec<NodeId>,
    /// Those that have all of it.
    pub in_sync: Vec<NodeId>,
}

/// A topic to create.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopicSpec {
    /// Topic name.
    pub name: String,
    /// Number of partitions, at least 1.
    pub partitions: u32,
    /// Replicas, 1 to the number of brokers.
    pub replicas: u32,
    /// Brokers that hold its replicas, and of which its partitions' leaders are taken in turn; empty leaves it to the
    /// cluster.
    pub brokers: Vec<NodeId>,
    /// `cleanup.policy`.
    pub cleanup: Cleanup,
    /// `retention.ms`; absent means for ever.
    pub retention_ms: Option<u64>,
    /// `retention.bytes` of a partition; absent means no limit.
    pub retention_bytes: Option<u64>,
    /// `segment.bytes`; absent leaves it to the cluster.
    pub segment_bytes: Option<u64>,
    /// `max.message.bytes`; absent leaves it to the cluster.
    pub max_message_bytes: Option<u64>,
}

/// Why a cluster could not do something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The cluster's process ended.
    #[error("the {cluster} cluster ended by itself: {last_words}")]
    Died {
        /// Kind of cluster.
        cluster: &'static str,
        /// The last lines that it wrote.
        last_words: String,
    },
    /// It answered with an error.
    #[error("the {cluster} cluster refused `{command}`: {answer}")]
    Refused {
        /// Kind of cluster.
        cluster: &'static str,
        /// What was asked.
        command: String,
        /// What it said.
        answer: String,
    },
    /// A request to a direct listener failed.
    #[error("the {cluster} cluster gave no usable answer to {command}")]
    Direct {
        /// Kind of cluster.
        cluster: &'static str,
        /// Api asked.
        command: &'static str,
        /// What happened.
        #[source]
        source: direct::DirectError,
    },
    /// Something did not become true in time.
    #[error("{what} did not become true within {within:?} (last seen: {last_seen})")]
    TimedOut {
        /// What was awaited.
        what: String,
        /// How long.
        within: Duration,
        /// The last value seen.
        last_seen: String,
    },
    /// No ports for its brokers.
    #[error("no ports for the cluster's brokers")]
    Ports(#[from] crate::ports::PortError),
    /// What starts its brokers is missing.
    #[error("the cluster's brokers cannot be started here")]
    Kit(#[from] process::KitError),
    /// The engine that runs its brokers failed.
    #[error("the container engine failed")]
    Engine(#[from] container::EngineError),
    /// Its process could not be put under watch.
    #[error("failed to watch over the cluster's process")]
    Watch(#[from] crate::process::SpawnError),
    /// The operating system refused.
    #[error("{what}")]
    Io {
        /// What was being done.
        what: String,
        /// Its answer.
        #[source]
        source: std::io::Error,
    },
}
