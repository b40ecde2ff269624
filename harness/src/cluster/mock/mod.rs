//! The embedded cluster: librdkafka's mock cluster in a child process.
//!
//! ```text
//! MockCluster --commands (stdin)--> child: rdkafka client that hosts the mock brokers
//!      ^------- answers, complaints (stdout), last words (stderr log) -----'
//! ```
//!
//! The mock elects nobody: after a kill this module moves leaders and coordinators, and after a start it gives what is
//! still led by the dead to the living. Deliberately not here: cures of what the mock says on the wire (the link has
//! them, so that this cluster's direct listeners stay what librdkafka made them), and faults.

pub mod child;
mod control;
mod ffi;
mod pipe;
mod spares;
mod wake;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use brokerfall_report::history::ClusterInfo;
use kafka_protocol::messages::MetadataResponse;

use self::control::{Control, MOCK};
use self::pipe::Command;
pub use self::spares::Spares;
use super::direct::{self, DirectError};
use super::{Cluster, ClusterError, NodeId, TopicSpec};

/// `client.id` of this module's own requests.
const CLIENT: &str = "brokerfall-cluster";

/// File name of the child's stderr.
const LOG: &str = "cluster.stderr";

/// Longest wait for one direct request: they take 100 µs, a starved machine takes seconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Longest wait until a port serves again, or a broker is in charge.
const PORT_WITHIN: Duration = Duration::from_secs(5);

/// Between two probes of a port. A tighter loop fills the backlog of a broker that is going down; the next SYN is then
/// dropped, and retried a second later.
const PROBE_EVERY: Duration = Duration::from_millis(2);

/// How this cluster differs from Apache Kafka.
const PROPERTIES: [&str; 11] = [
    "emulated: librdkafka's mock brokers share one process and one log per partition",
    "api versions end at JoinGroup 5, SyncGroup 3, LeaveGroup 2, Heartbeat 4, ApiVersions 2",
    "ConsumerGroupHeartbeat, GetTelemetrySubscriptions and PushTelemetry are not offered",
    "ApiVersions above 2 and Metadata above 8 are malformed on direct ports; the link cures both",
    "errors of FindCoordinator, JoinGroup and SyncGroup hold nulls that no client can read; the link sends them empty",
    "initial rebalance delay 0; a later join waits the whole session timeout less 1 s",
    "INVALID_REQUEST (42) in SyncGroup or Heartbeat is the mock's own deviation and voids the run",
    "leaders and coordinators move when the harness says so; nothing is re-replicated",
    "a partition keeps at most 5 MiB and 100,000 batches; beyond that the oldest batches are deleted and log start moves",
    "retention by time, compaction, transactions, ACLs, DeleteRecords and CreateTopics do not exist",
    "a killed broker closes connections and port; its process and memory live on",
];

/// librdkafka's mock cluster in a child process.
///
/// ```no_run
/// # use brokerfall::cluster::{Cluster, ClusterError, mock::MockCluster};
/// # async fn example(brokerfall: &std::path::Path, folder: &std::path::Path) -> Result<(), ClusterError> {
/// let cluster = MockCluster::start(3, brokerfall, folder).await?;
/// println!("direct listeners: {}", cluster.direct_bootstrap());
/// cluster.shutdown().await;
/// # Ok(())
/// # }
/// ```
pub struct MockCluster {
    shared: Arc<Shared>,
    librdkafka: String,
}

struct Shared {
    control: Control,
    brokers: Vec<(NodeId, SocketAddr)>,
    state: Mutex<State>,
    /// One election at a time: each looks at all leaders and moves them one by one.
    electing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    down: BTreeSet<NodeId>,
    /// Topics, and the brokers that may lead their partitions; none named means every replica.
    topics: BTreeMap<String, Vec<NodeId>>,
    groups: BTreeSet<String>,
}

impl MockCluster {
    /// Starts a cluster of 1 to 3 brokers. `program` is this binary (`std::env::current_exe`); the child's stderr is kept
    /// as `cluster.stderr` in `folder`.
    ///
    /// # Errors
    /// [`ClusterError::Io`] when the child cannot be started or its log not created, [`ClusterError::Died`],
    /// [`ClusterError::Refused`] and [`ClusterError::TimedOut`] when it does not come up.
    pub async fn start(brokers: u32, program: &Path, folder: &Path) -> Result<Self, ClusterError> {
        Self::start_logging(brokers, program, folder.join(LOG)).await
    }

    async fn start_logging(brokers: u32, program: &Path, log: PathBuf) -> Result<Self, ClusterError> {
        let (control, ready) = Control::start(brokers, program, &log).await?;
        Ok(Self {
            shared: Arc::new(Shared {
                control,
                brokers: (1..).zip(ready.brokers).collect(),
                state: Mutex::default(),
                electing: tokio::sync::Mutex::default(),
            }),
            librdkafka: ready.librdkafka,
        })
    }

    /// Whether the child has not ended.
    fn lives(&self) -> bool {
        self.shared.control.lives()
    }

    /// Process id of the child.
    pub fn pid(&self) -> u32 {
        self.shared.control.pid()
    }
}

#[async_trait]
impl Cluster for MockCluster {
    fn info(&self) -> ClusterInfo {
        ClusterInfo {
            kind: MOCK.to_owned(),
            kafka: format!("librdkafka {} mock", self.librdkafka),
            brokers: u32::try_from(self.shared.brokers.len()).unwrap_or(u32::MAX),
            properties: PROPERTIES.map(str::to_owned).to_vec(),
        }
    }

    fn brokers(&self) -> Vec<(NodeId, SocketAddr)> {
        self.shared.brokers.clone()
    }

    fn emulated(&self) -> bool {
        true
    }

    async fn create_topic(&self, topic: &TopicSpec) -> Result<(), ClusterError> {
        let number = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
        let shared = &self.shared;
        shared
            .control
            .order(Command::CreateTopic {
                name: topic.name.clone(),
                partitions: number(topic.partitions),
                replicas: number(topic.replicas),
            })
            .await?;
        let mut leaders = topic.brokers.clone();
        // With a replica on every broker the mock lets broker 1 lead every partition; a real cluster spreads leaders.
        if leaders.is_empty() && topic.replicas > 1 && topic.replicas as usize == shared.brokers.len() {
            leaders = shared.brokers.iter().map(|(node, _)| *node).collect();
        }
        for (partition, &node) in (0..number(topic.partitions)).zip(leaders.iter().cycle()) {
            shared.lead(&topic.name, partition, node).await?;
        }
        shared.state().topics.insert(topic.name.clone(), topic.brokers.clone());
        Ok(())
    }

    async fn kill_broker(&self, node: NodeId, election: Duration) -> Result<String, ClusterError> {
        let address = self.shared.address(node)?;
        self.shared.state().down.insert(node);
        self.shared.control.order(Command::Down { node }).await?;
        let probes = direct::refuses(address, PROBE_EVERY).await?;
        if self.shared.brokers.len() > 1 {
            let shared = Arc::clone(&self.shared);
            tokio::spawn(async move { shared.elect_after(election).await });
        }
        Ok(format!(
            "broker {node}: {address} refuses connections (probe {probes}), its connections are closed"
        ))
    }

    async fn start_broker(&self, node: NodeId) -> Result<String, ClusterError> {
        let address = self.shared.address(node)?;
        self.shared.control.order(Command::Up { node }).await?;
        let nodes = serves(address).await?;
        self.shared.state().down.remove(&node);
        // With every replica dead nobody could be elected; the first one back is.
        self.shared.elect().await;
        Ok(format!(
            "broker {node}: {address} accepts and answers Metadata with brokers {nodes:?}"
        ))
    }

    fn live(&self) -> Vec<NodeId> {
        self.shared.live().into_iter().map(|(node, _)| node).collect()
    }

    async fn move_leader(&self, topic: &str, partition: u32, to: NodeId) -> Result<String, ClusterError> {
        self.shared.check_up(to)?;
        {
            let _no_election = self.shared.electing.lock().await;
            self.shared
                .lead(topic, i32::try_from(partition).unwrap_or(i32::MAX), to)
                .await?;
        }
        let what = format!("that broker {to} leads {topic}-{partition}");
        names(&what, to, || self.leader(topic, partition)).await?;
        Ok(format!("Metadata names broker {to} the leader of {topic}-{partition}"))
    }

    async fn move_coordinator(&self, group: &str, to: NodeId) -> Result<String, ClusterError> {
        self.shared.check_up(to)?;
        self.note_group(group);
        {
            let _no_election = self.shared.electing.lock().await;
            let group = group.to_owned();
            self.shared
                .control
                .order(Command::Coordinate { group, node: to })
                .await?;
        }
        let what = format!("that broker {to} coordinates group {group}");
        names(&what, to, || self.coordinator(group)).await?;
        Ok(format!(
            "FindCoordinator names broker {to} the coordinator of group {group}"
        ))
    }

    async fn members(&self) -> Result<Vec<NodeId>, ClusterError> {
        let metadata = self.shared.metadata(&[]).await?;
        let mut nodes: Vec<NodeId> = metadata.brokers.iter().map(|broker| broker.node_id.0).collect();
        nodes.sort_unstable();
        Ok(nodes)
    }

    async fn leader(&self, topic: &str, partition: u32) -> Result<NodeId, ClusterError> {
        let metadata = self.shared.metadata(&[topic.to_owned()]).await?;
        let wanted = i32::try_from(partition).unwrap_or(-1);
        metadata
            .topics
            .iter()
            .flat_map(|topic| &topic.partitions)
            .find(|found| found.partition_index == wanted && found.leader_id.0 > 0)
            .map(|found| found.leader_id.0)
            .ok_or_else(|| ClusterError::Refused {
                cluster: MOCK,
                command: format!("leader of {topic}-{partition}"),
                answer: "no such partition, or it has no leader".to_owned(),
            })
    }

    async fn coordinator(&self, group: &str) -> Result<NodeId, ClusterError> {
        self.note_group(group);
        self.shared
            .coordinator(group)
            .await?
            .ok_or_else(|| ClusterError::Refused {
                cluster: MOCK,
                command: format!("coordinator of group {group}"),
                answer: "it has none".to_owned(),
            })
    }

    fn note_group(&self, group: &str) {
        self.shared.state().groups.insert(group.to_owned());
    }

    fn complaints(&self) -> Vec<String> {
        self.shared.control.complaints()
    }

    async fn died(&self) -> String {
        self.shared.control.died().await
    }

    async fn shutdown(&self) {
        self.shared.control.end().await;
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        crate::lock(&self.state)
    }

    fn address(&self, node: NodeId) -> Result<SocketAddr, ClusterError> {
        self.brokers
            .iter()
            .find(|(known, _)| *known == node)
            .map(|(_, address)| *address)
            .ok_or_else(|| ClusterError::Refused {
                cluster: MOCK,
                command: format!("broker {node}"),
                answer: format!("it has brokers 1 to {}", self.brokers.len()),
            })
    }

    fn live(&self) -> Vec<(NodeId, SocketAddr)> {
        let down = self.state().down.clone();
        self.brokers
            .iter()
            .filter(|(node, _)| !down.contains(node))
            .copied()
            .collect()
    }

    /// Refuses a broker that is unknown or down.
    fn check_up(&self, node: NodeId) -> Result<(), ClusterError> {
        self.address(node)?;
        if self.state().down.contains(&node) {
            return Err(ClusterError::Refused {
                cluster: MOCK,
                command: format!("broker {node} in charge"),
                answer: "it is down".to_owned(),
            });
        }
        Ok(())
    }

    async fn lead(&self, topic: &str, partition: i32, node: NodeId) -> Result<(), ClusterError> {
        let topic = topic.to_owned();
        self.control.order(Command::Lead { topic, partition, node }).await
    }

    fn any_live(&self) -> Result<SocketAddr, ClusterError> {
        self.live()
            .first()
            .map(|(_, address)| *address)
            .ok_or_else(|| ClusterError::Refused {
                cluster: MOCK,
                command: "a broker to ask".to_owned(),
                answer: "every broker is down".to_owned(),
            })
    }

    async fn metadata(&self, topics: &[String]) -> Result<MetadataResponse, ClusterError> {
        direct::metadata(self.any_live()?, CLIENT, topics, ANSWER_WITHIN)
            .await
            .map_err(refused("Metadata"))
    }

    async fn coordinator(&self, group: &str) -> Result<Option<NodeId>, ClusterError> {
        direct::coordinator(
            self.any_live()?,
            CLIENT,
            direct::Coordinated::Group(group),
            ANSWER_WITHIN,
        )
        .await
        .map_err(refused("FindCoordinator"))
    }

    async fn elect_after(&self, election: Duration) {
        // The time that a real cluster takes to notice and elect is the fault's own, and the plan names it.
        crate::before_the_next_look(election).await;
        self.elect().await;
    }

    /// Gives whatever a dead broker leads or coordinates to a living one: the first living replica of a partition, the
    /// next living node for a group.
    async fn elect(&self) {
        let _one_at_a_time = self.electing.lock().await;
        let outcome = async {
            self.elect_leaders().await?;
            self.elect_coordinators().await
        };
        if let Err(cause) = outcome.await {
            // A cluster without a living broker elects nobody; that is no complaint.
            if !self.live().is_empty() {
                self.control.complain(format!("an election failed: {cause}"));
            }
        }
    }

    async fn elect_leaders(&self) -> Result<(), ClusterError> {
        let topics = self.state().topics.clone();
        if topics.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = topics.keys().cloned().collect();
        let metadata = self.metadata(&names).await?;
        let live: Vec<NodeId> = self.live().iter().map(|(node, _)| *node).collect();
        for topic in &metadata.topics {
            let name = topic.name.as_ref().map_or("", |name| name.0.as_str());
            for partition in &topic.partitions {
                if live.contains(&partition.leader_id.0) {
                    continue;
                }
                // The mock puts replicas where it likes; those that the plan names are what counts.
                let named = topics.get(name).filter(|brokers| !brokers.is_empty());
                let replicas = partition.replica_nodes.iter().map(|node| node.0).collect();
                let mut heirs = named.unwrap_or(&replicas).iter();
                if let Some(&node) = heirs.find(|node| live.contains(node)) {
                    self.lead(name, partition.partition_index, node).await?;
                }
            }
        }
        Ok(())
    }

    async fn elect_coordinators(&self) -> Result<(), ClusterError> {
        let groups: Vec<String> = self.state().groups.iter().cloned().collect();
        for group in groups {
            let live: Vec<NodeId> = self.live().iter().map(|(node, _)| *node).collect();
            let now = self.coordinator(&group).await?;
            if now.is_some_and(|node| live.contains(&node)) {
                continue;
            }
            let after = live.iter().find(|node| Some(**node) > now).or(live.first());
            if let Some(node) = after {
                self.control.order(Command::Coordinate { group, node: *node }).await?;
            }
        }
        Ok(())
    }
}

fn refused(command: &'static str) -> impl Fn(DirectError) -> ClusterError {
    move |source| ClusterError::Direct {
        cluster: MOCK,
        command,
        source,
    }
}

/// Waits until a broker says that `to` is in charge.
async fn names<F>(what: &str, to: NodeId, mut in_charge: impl FnMut() -> F) -> Result<(), ClusterError>
where
    F: Future<Output = Result<NodeId, ClusterError>> + Send,
{
    let deadline = tokio::time::Instant::now() + PORT_WITHIN;
    loop {
        let last_seen = match in_charge().await {
            Ok(node) if node == to => return Ok(()),
            Ok(node) => format!("it is broker {node}"),
            Err(cause) => crate::chain(&cause),
        };
        if tokio::time::Instant::now() >= deadline {
            return Err(ClusterError::TimedOut {
                what: what.to_owned(),
                within: PORT_WITHIN,
                last_seen,
            });
        }
        crate::before_the_next_look(PROBE_EVERY).await;
    }
}

/// Waits until a broker answers Metadata; returns the nodes that it names.
async fn serves(address: SocketAddr) -> Result<Vec<NodeId>, ClusterError> {
    let deadline = tokio::time::Instant::now() + PORT_WITHIN;
    loop {
        match direct::metadata(address, CLIENT, &[], ANSWER_WITHIN).await {
            Ok(metadata) => return Ok(metadata.brokers.iter().map(|broker| broker.node_id.0).collect()),
            Err(cause) if tokio::time::Instant::now() >= deadline => return Err(refused("Metadata")(cause)),
            Err(_) => crate::before_the_next_look(PROBE_EVERY).await,
        }
    }
}
