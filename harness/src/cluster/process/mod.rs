//! Apache Kafka as JVM processes, in KRaft mode: 1 to 3 nodes, each broker and controller.
//!
//! ```text
//! readers --> link (127.0.0.N:p, advertised) --READER--> broker (a JVM in its own process group, under the watchdog)
//! harness, oracle, other brokers ----------------ORACLE----^   (with a login: what readers may not do, these may)
//! ```
//!
//! `kit` finds Java and Kafka and prepares the start; `node` is one JVM; `settings` is what it is told, `topics` what topics
//! are told; `admin` and `acls` are what brokers are asked, and `serve` what they do for the trait. The ports of all
//! listeners are held for the cluster's life, the link's too, so that a cluster serves one run after another.
//! Deliberately not here: faults, and when a cluster is used again (`cluster/clusters.rs`).

mod acls;
mod admin;
mod error;
mod jars;
mod java;
mod kit;
mod node;
mod serve;
mod settings;
mod topics;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::try_join_all;
use kafka_protocol::messages::MetadataResponse;
use nix::sys::signal::Signal;
use tokio::sync::watch;

use self::admin::code;
pub use self::error::KitError;
pub use self::kit::{Kit, KitOptions};
use self::node::Node;
use self::settings::{Addresses, READERS};
use super::direct::{self, Asker};
use super::{Cluster, ClusterError, NodeId, Resource};
use crate::ports::Port;
use crate::process::Spawner;
use crate::reader::provision::Fnv;

/// The version of Apache Kafka where none is named.
pub const KAFKA: &str = "4.1.0";

/// How the cluster is named in errors.
const PROCESS: &str = "process";

/// `client.id` of this module's own requests.
const CLIENT: &str = "brokerfall-cluster";

/// This module, at direct listeners.
const ASKER: Asker = Asker::new(CLIENT, Some(settings::LOGIN));

/// Folder of the cache.
pub(crate) const CACHED: &str = "clusters";

/// Written and read to show that every broker serves, then deleted.
const READY: &str = "brokerfall-ready";

/// Longest wait until brokers serve, or a change has reached them all. The slowest start of a loaded machine took 9 s.
const SERVES_WITHIN: Duration = Duration::from_secs(60);

/// Between two looks at a broker. Shorter, and a tight connect loop fills the backlog of one that is going down.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Starts that may fail because somebody else has taken a port. Ports are held, so this takes a program that shares ports.
const TRIES: u32 = 3;

/// Apache Kafka as JVM processes.
///
/// ```no_run
/// # use brokerfall::cluster::{Cluster, ClusterError, process::{Kit, KitOptions, ProcessCluster}};
/// # async fn example(brokerfall: &std::path::Path, cache: &std::path::Path) -> Result<(), ClusterError> {
/// let options = KitOptions { kafka: None, cache, may_download: true, progress: &|line| println!("{line}") };
/// let kit = Kit::find(&options, brokerfall)?;
/// kit.prepare(options.progress).await?;
/// let cluster = ProcessCluster::start(&kit, 1).await?;
/// println!("direct listeners: {}", cluster.direct_bootstrap());
/// cluster.shutdown().await;
/// # Ok(())
/// # }
/// ```
pub struct ProcessCluster {
    kit: Kit,
    nodes: Vec<Node>,
    /// The link's ports, which the brokers tell readers.
    advertised: Vec<Arc<Port>>,
    /// Held so that nobody takes the port of a broker that is down.
    _held: Vec<Port>,
    /// Settings and data of every broker.
    folder: tempfile::TempDir,
    begun: tokio::time::Instant,
    /// When the last of its brokers had first acknowledged a record.
    first_produce: OnceLock<Duration>,
    died: watch::Sender<Option<String>>,
}

impl ProcessCluster {
    /// Starts a cluster of 1 to 3 brokers and returns when every one of them takes and gives records.
    ///
    /// # Errors
    /// [`ClusterError::Died`] with the last lines of its log when a broker ends, [`ClusterError::TimedOut`] when one does
    /// not serve, [`ClusterError::Ports`], [`ClusterError::Io`].
    pub async fn start(kit: &Kit, brokers: u32) -> Result<Self, ClusterError> {
        let mut tries = 1;
        loop {
            let cluster = Self::lay_out(kit, brokers as usize)?;
            let up = async {
                try_join_all(cluster.nodes.iter().map(|node| node.start(kit))).await?;
                cluster.until_all_serve().await
            };
            let up = tokio::select! {
                up = up => up,
                last_words = cluster.died() => Err(ClusterError::Died { cluster: PROCESS, last_words }),
            };
            match up {
                Ok(()) => return Ok(cluster),
                Err(ClusterError::Died { last_words, .. })
                    if tries < TRIES && last_words.contains("Address already in use") =>
                {
                    cluster.shutdown().await;
                    tries += 1;
                }
                Err(cause) => {
                    cluster.shutdown().await;
                    return Err(cause);
                }
            }
        }
    }

    /// Ports, settings and data folders of a cluster that has never run.
    fn lay_out(kit: &Kit, brokers: usize) -> Result<Self, ClusterError> {
        let io = |what: &'static str| {
            move |source| ClusterError::Io {
                what: what.to_owned(),
                source,
            }
        };
        let folder = tempfile::Builder::new()
            .prefix("brokerfall-kafka-")
            .tempdir()
            .map_err(io("making a folder for the brokers' data"))?;
        Spawner::shared_with(kit.program())?.guard_folder(folder.path());
        let (advertised, held) = kit::reserve(brokers)?;
        let nodes: Vec<(NodeId, Addresses)> = (1..)
            .zip(advertised.iter().zip(held.chunks(3)))
            .map(|(node, (link, own))| {
                let addresses = Addresses {
                    reader: own[0].address(),
                    advertised: link.address(),
                    oracle: own[1].address(),
                    controller: own[2].address(),
                };
                (node, addresses)
            })
            .collect();
        let mut id = Fnv::default();
        id.part(&std::process::id().to_le_bytes());
        id.part(folder.path().as_os_str().as_encoded_bytes());
        let cluster_id = kit::kafka_id(&id);
        let (died, _) = watch::channel(None);
        let mut laid_out = Vec::new();
        for (node, addresses) in &nodes {
            let own = folder.path().join(format!("broker-{node}"));
            let data = own.join("data");
            kit.fill(&data, *node, &cluster_id)
                .map_err(io("filling a broker's data folder"))?;
            let properties = own.join("server.properties");
            std::fs::write(&properties, settings::properties(*node, &nodes, &data))
                .map_err(io("writing a broker's settings"))?;
            laid_out.push(Node::new(*node, *addresses, properties, own, died.clone()));
        }
        Ok(Self {
            kit: kit.clone(),
            nodes: laid_out,
            advertised: advertised.into_iter().map(Arc::new).collect(),
            _held: held,
            folder,
            begun: tokio::time::Instant::now(),
            first_produce: OnceLock::new(),
            died,
        })
    }

    /// Process ids of the brokers that run.
    pub fn pids(&self) -> Vec<u32> {
        self.nodes.iter().filter_map(Node::pid).collect()
    }

    /// Folder of the brokers' settings and data.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// How long it took from the start of the first process until every broker had acknowledged a record.
    pub fn first_produce_after(&self) -> Duration {
        self.first_produce.get().copied().unwrap_or_default()
    }

    /// Returns when the leader of a partition has acknowledged a record, which is the caller's to account for.
    ///
    /// # Errors
    /// [`ClusterError::TimedOut`] when it does not.
    pub async fn until_takes(&self, topic: &str, partition: u32) -> Result<(), ClusterError> {
        let index = i32::try_from(partition).unwrap_or(i32::MAX);
        until(&format!("{topic}-{partition} taking a record"), || async {
            let leader = self.leader(topic, partition).await?;
            admin::produce(self.node(leader)?.oracle(), topic, index)
                .await
                .map(drop)
        })
        .await
    }

    /// True while every broker runs and none is paused.
    pub fn answers(&self) -> bool {
        self.nodes.iter().all(Node::answers)
    }

    /// Makes it as good as new for the next run, and proves that it serves: every broker runs, no topic and no group is left,
    /// and each broker takes and gives a record.
    ///
    /// # Errors
    /// Any: then it is to be shut down and another started.
    pub async fn renew(&self, group: &str) -> Result<(), ClusterError> {
        if !self.answers() {
            return Err(refused("serve another run".to_owned(), "a broker is down or paused"));
        }
        acls::delete_all(self.any()?).await?;
        let metadata = self.metadata(&[]).await?;
        let topics: Vec<String> = metadata
            .topics
            .iter()
            .filter_map(|topic| topic.name.as_ref())
            .map(|name| name.as_str().to_owned())
            .filter(|name| !name.starts_with("__"))
            .collect();
        if !topics.is_empty() {
            admin::delete_topics(self.any()?, &topics).await?;
        }
        let coordinator = self.node(self.coordinator(group).await?)?.oracle();
        admin::end_group(coordinator, group).await?;
        self.until_all_serve().await
    }

    /// Ends every process with this signal and waits for it.
    ///
    /// # Errors
    /// [`ClusterError::TimedOut`] when one stays.
    pub(super) async fn end_by(&self, signal: Signal) -> Result<(), ClusterError> {
        let running = self.nodes.iter().filter(|node| node.is_running());
        try_join_all(running.map(|node| node.end(signal))).await.map(drop)
    }

    fn node(&self, node: NodeId) -> Result<&Node, ClusterError> {
        self.nodes.iter().find(|known| known.id == node).ok_or_else(|| {
            refused(
                format!("broker {node}"),
                &format!("it has brokers 1 to {}", self.nodes.len()),
            )
        })
    }

    /// A broker to ask.
    fn any(&self) -> Result<SocketAddr, ClusterError> {
        self.nodes
            .iter()
            .find(|node| node.answers())
            .map(Node::oracle)
            .ok_or_else(|| refused("a broker to ask".to_owned(), "every broker is down or paused"))
    }

    async fn metadata(&self, topics: &[String]) -> Result<MetadataResponse, ClusterError> {
        metadata_of(self.any()?, topics).await
    }

    /// Returns when every broker knows all others, and each has taken a record and given it back.
    async fn until_all_serve(&self) -> Result<(), ClusterError> {
        let nodes: Vec<NodeId> = self.nodes.iter().map(|node| node.id).collect();
        try_join_all(self.nodes.iter().map(|node| self.until_named(node, &nodes))).await?;
        // One partition on each broker.
        let replicas: Vec<Vec<NodeId>> = nodes.iter().map(|node| vec![*node]).collect();
        self.create(READY, &replicas, &[]).await?;
        let numbered = || self.nodes.iter().zip(0..);
        let taken = numbered().map(|(node, partition)| {
            until("a broker taking a record", move || async move {
                admin::produce(node.oracle(), READY, partition).await
            })
        });
        let offsets = try_join_all(taken).await?;
        // Only the first time: a cluster that is used again has been up before.
        self.first_produce.get_or_init(|| self.begun.elapsed());
        let given = numbered().zip(offsets).map(|((node, partition), offset)| {
            until("a broker giving a record", move || async move {
                match admin::fetch(node.oracle(), READY, partition, offset).await? {
                    0 => Err(refused(format!("read what broker {} took", node.id), "nothing")),
                    _ => Ok(()),
                }
            })
        });
        try_join_all(given).await?;
        // The first group makes the topic of commits, which takes a moment; no reader is to wait for it.
        until("a group's coordinator", || self.coordinator(READY)).await?;
        admin::delete_topics(self.any()?, &[READY.to_owned()]).await
    }

    /// Creates a topic. Asked again while no answer comes, and while a broker that is to hold it is fenced, as on a machine
    /// that has starved it for longer than its session; what is refused otherwise stays refused.
    async fn create(
        &self,
        topic: &str,
        replicas: &[Vec<NodeId>],
        configs: &[(&str, String)],
    ) -> Result<(), ClusterError> {
        let unanswered = AtomicBool::new(false);
        let command = || format!("create topic {topic}");
        until(&command(), || async {
            match admin::create_topic(self.any()?, topic, replicas, configs).await {
                Ok(code @ code::INVALID_REPLICA_ASSIGNMENT) => admin::check(command, code, &[]).map(Ok),
                // Created by a request whose answer was lost.
                Ok(code::TOPIC_ALREADY_EXISTS) if unanswered.load(Ordering::Relaxed) => Ok(Ok(())),
                Ok(code) => Ok(admin::check(command, code, &[])),
                Err(cause) => {
                    unanswered.store(true, Ordering::Relaxed);
                    Err(cause)
                }
            }
        })
        .await?
    }

    /// Returns when a broker names all these nodes in its Metadata. It listens only once the controller lets it serve.
    async fn until_named(&self, node: &Node, nodes: &[NodeId]) -> Result<(), ClusterError> {
        let what = format!("that broker {} names the brokers {nodes:?}", node.id);
        until(&what, || async {
            if let Some(last_words) = node.last_words() {
                return Err(ClusterError::Died {
                    cluster: PROCESS,
                    last_words,
                });
            }
            let named = brokers_of(&metadata_of(node.oracle(), &[]).await?);
            if nodes.iter().all(|node| named.contains(node)) {
                Ok(())
            } else {
                Err(refused(what.clone(), &format!("it names {named:?}")))
            }
        })
        .await
    }

    /// Waits until every broker that answers refuses a reader, or none does.
    async fn until_readers(&self, resource: &Resource, refused: bool) -> Result<String, ClusterError> {
        let (does, code) = match (refused, resource) {
            (false, _) => ("serves", "without an authorization error"),
            (true, Resource::Topic(_)) => ("refuses", "with TOPIC_AUTHORIZATION_FAILED"),
            (true, Resource::Group(_)) => ("refuses", "with GROUP_AUTHORIZATION_FAILED"),
        };
        let what = format!("that every broker {does} readers of {resource}");
        let asked = until(&what, || async {
            let mut asked = Vec::new();
            for node in self.nodes.iter().filter(|node| node.answers()) {
                if acls::refuses_reader(node.addresses.reader, resource).await? != refused {
                    let answer = format!("broker {} does not yet", node.id);
                    return Err(self::refused(what.clone(), &answer));
                }
                asked.push(node.id);
            }
            Ok(asked)
        })
        .await?;
        let api = match resource {
            Resource::Topic(_) => "a Fetch",
            Resource::Group(_) => "a Heartbeat",
        };
        Ok(format!(
            "broker {} answered {api} of {READERS} {code} ({resource})",
            crate::fault::list(&asked)
        ))
    }

    /// Waits until every broker that answers says that `to` leads a partition.
    async fn until_led(&self, topic: &str, partition: i32, to: NodeId) -> Result<(), ClusterError> {
        let what = format!("that broker {to} leads {topic}-{partition}");
        until(&what, || async {
            for node in self.nodes.iter().filter(|node| node.answers()) {
                let led = leader_in(&metadata_of(node.oracle(), &[topic.to_owned()]).await?, partition);
                if led != Some(to) {
                    return Err(refused(what.clone(), &format!("broker {} names {led:?}", node.id)));
                }
            }
            Ok(())
        })
        .await
    }
}

fn refused(command: String, answer: &str) -> ClusterError {
    ClusterError::Refused {
        cluster: PROCESS,
        command,
        answer: answer.to_owned(),
    }
}

async fn metadata_of(address: SocketAddr, topics: &[String]) -> Result<MetadataResponse, ClusterError> {
    direct::metadata(address, ASKER, topics, admin::ANSWER_WITHIN)
        .await
        .map_err(admin::direct_error("Metadata"))
}

fn brokers_of(metadata: &MetadataResponse) -> Vec<NodeId> {
    let mut nodes: Vec<NodeId> = metadata.brokers.iter().map(|broker| broker.node_id.0).collect();
    nodes.sort_unstable();
    nodes
}

fn leader_in(metadata: &MetadataResponse, partition: i32) -> Option<NodeId> {
    metadata
        .topics
        .iter()
        .flat_map(|topic| &topic.partitions)
        .find(|found| found.partition_index == partition && found.leader_id.0 > 0)
        .map(|found| found.leader_id.0)
}

/// Asks again until it works, or a broker has died.
async fn until<T, F>(what: &str, mut attempt: impl FnMut() -> F) -> Result<T, ClusterError>
where
    F: Future<Output = Result<T, ClusterError>> + Send,
{
    let deadline = tokio::time::Instant::now() + SERVES_WITHIN;
    loop {
        let cause = match attempt().await {
            Ok(done) => return Ok(done),
            Err(cause @ ClusterError::Died { .. }) => return Err(cause),
            Err(cause) => cause,
        };
        if tokio::time::Instant::now() >= deadline {
            return Err(ClusterError::TimedOut {
                what: what.to_owned(),
                within: SERVES_WITHIN,
                last_seen: crate::chain(&cause),
            });
        }
        crate::before_the_next_look(LOOK_EVERY).await;
    }
}
