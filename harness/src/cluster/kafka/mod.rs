//! Apache Kafka in KRaft mode, 1 to 3 nodes, each broker and controller: all that holds however its brokers are run.
//!
//! ```text
//! readers --> link (127.0.0.N:p, advertised) --READER--> broker (a Node: of `process`, or of `container`)
//! harness, oracle ------------------------------ORACLE------^   (with a login: what readers may not do, these may)
//! ```
//!
//! `settings` is what brokers are told, `topics` what topics are told, `log` what brokers write; `admin` and `acls` are what
//! they are asked, and `serve` what they do for the trait. Deliberately not here: how a broker is started, killed and paused
//! (`process`, `container`), faults, and when a cluster is used again (`cluster/clusters.rs`).

mod acls;
mod admin;
pub(super) mod log;
mod serve;
pub(super) mod settings;
mod topics;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::{BoxFuture, try_join_all};
use kafka_protocol::messages::MetadataResponse;
use nix::sys::signal::Signal;
use tokio::sync::watch;

use self::admin::code;
use self::settings::READERS;
use super::direct::{self, Asker};
use super::{Cluster, ClusterError, ClusterKind, NodeId, Resource};
use crate::ports::Port;
use crate::reader::provision::Fnv;

/// How a cluster of Kafka is named in errors.
const NAME: &str = "Kafka";

/// `client.id` of this module's own requests.
const CLIENT: &str = "brokerfall-cluster";

/// This module, at direct listeners.
const ASKER: Asker = Asker::new(CLIENT, Some(settings::LOGIN));

/// Written and read to show that every broker serves, then deleted.
const READY: &str = "brokerfall-ready";

/// Longest wait until brokers serve, or a change has reached them all. The slowest start of a loaded machine took 9 s.
const SERVES_WITHIN: Duration = Duration::from_secs(60);

/// Between two looks at a broker. Shorter, and a tight connect loop fills the backlog of one that is going down.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Starts that may fail because somebody else has taken a port. Ports are held, so this takes a program that shares ports.
const TRIES: u32 = 3;

/// One broker, however it is run: it may end and be started again, with its ports, its data and its log.
#[async_trait]
pub(super) trait Node: Send + Sync {
    /// Node id, from 1.
    fn id(&self) -> NodeId;

    /// Where it is reached, and what it tells readers.
    fn addresses(&self) -> Addresses;

    /// What it runs as, for proofs: `process 4711`.
    fn name(&self) -> String;

    /// Its process id on the machine that runs it, while it runs.
    fn pid(&self) -> Option<u32>;

    /// The version of Kafka that it says it is, where only it knows.
    fn kafka(&self) -> Option<String> {
        None
    }

    /// True while it is there, paused or not.
    fn is_running(&self) -> bool;

    /// True while it can answer.
    fn answers(&self) -> bool;

    /// Last words, once it has ended.
    fn last_words(&self) -> Option<String>;

    /// From now on its log goes to `broker-ID.log` in a folder.
    fn log_to(&self, folder: &Path);

    /// Starts it, for the first time or again; it serves later.
    async fn start(&self) -> Result<(), ClusterError>;

    /// Sends a signal that ends it and returns when it is gone, with how it ended.
    async fn end(&self, signal: Signal) -> Result<Ended, ClusterError>;

    /// Stops it in its tracks or lets it go on, and returns what shows that it does.
    async fn set_paused(&self, paused: bool) -> Result<String, ClusterError>;

    /// Takes away what is left of it when it has ended. Idempotent.
    async fn clear(&self) {}
}

/// How a broker ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ended {
    /// The status that it left; `None` where a signal ended it before it could leave one.
    pub(super) status: Option<i32>,
    /// How, and the last lines of its log.
    pub(super) last_words: String,
}

/// Where one broker is reached, and what it tells readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Addresses {
    /// For readers, behind the link.
    pub(super) reader: SocketAddr,
    /// What it tells readers: the link's address for it.
    pub(super) advertised: SocketAddr,
    /// For harness and oracle.
    pub(super) oracle: SocketAddr,
}

/// What a cluster stands on beside its brokers, for as long as it lives.
#[async_trait]
pub(super) trait Ground: Send + Sync {
    /// Takes away what is left when every broker has ended. Idempotent.
    async fn clear(&self);
}

/// What a cluster that has never run is made of.
pub(super) struct Layout {
    /// As `--cluster` names it.
    pub(super) kind: ClusterKind,
    /// Kafka's version.
    pub(super) kafka: String,
    /// In order of node id.
    pub(super) nodes: Vec<Box<dyn Node>>,
    /// The link's ports, which the brokers tell readers.
    pub(super) advertised: Vec<Port>,
    /// What they stand on.
    pub(super) ground: Box<dyn Ground>,
    /// Is told last words when a broker ends unasked.
    pub(super) died: watch::Sender<Option<String>>,
}

/// Apache Kafka, run by whatever started it: `Kit::start`, `Engine::start`.
pub struct KafkaCluster {
    kind: ClusterKind,
    kafka: String,
    nodes: Vec<Box<dyn Node>>,
    advertised: Vec<Arc<Port>>,
    ground: Box<dyn Ground>,
    begun: tokio::time::Instant,
    /// When the last of its brokers had first acknowledged a record.
    first_produce: OnceLock<Duration>,
    died: watch::Sender<Option<String>>,
}

impl KafkaCluster {
    /// Starts what was laid out and returns when every broker takes and gives records. Lays out anew where somebody else has
    /// taken a port meanwhile.
    ///
    /// # Errors
    /// [`ClusterError::Died`] with the last lines of its log when a broker ends, [`ClusterError::TimedOut`] when one does
    /// not serve; those of `lay_out` and of [`Node::start`].
    pub(super) async fn bring_up<'a>(
        lay_out: impl Fn() -> BoxFuture<'a, Result<Layout, ClusterError>>,
    ) -> Result<KafkaCluster, ClusterError> {
        let mut tries = 1;
        loop {
            let cluster = Self::of(lay_out().await?);
            let up = async {
                try_join_all(cluster.nodes.iter().map(|node| node.start())).await?;
                cluster.until_all_serve().await
            };
            let up = tokio::select! {
                up = up => up,
                last_words = cluster.died() => Err(ClusterError::Died { cluster: NAME, last_words }),
            };
            match up {
                Ok(()) => return Ok(cluster),
                Err(cause) if tries < TRIES && is_taken_port(&cause) => {
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

    fn of(layout: Layout) -> KafkaCluster {
        KafkaCluster {
            kind: layout.kind,
            kafka: layout.kafka,
            nodes: layout.nodes,
            advertised: layout.advertised.into_iter().map(Arc::new).collect(),
            ground: layout.ground,
            begun: tokio::time::Instant::now(),
            first_produce: OnceLock::new(),
            died: layout.died,
        }
    }

    /// Which kind of cluster it is.
    pub fn kind(&self) -> ClusterKind {
        self.kind
    }

    /// Process ids of the brokers that run.
    pub fn pids(&self) -> Vec<u32> {
        self.nodes.iter().filter_map(|node| node.pid()).collect()
    }

    /// How long it took from the start of the first broker until every one had acknowledged a record.
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
            admin::produce(self.node(leader)?.addresses().oracle, topic, index)
                .await
                .map(drop)
        })
        .await
    }

    /// True while every broker runs and none is paused.
    pub fn answers(&self) -> bool {
        self.nodes.iter().all(|node| node.answers())
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
        let coordinator = self.node(self.coordinator(group).await?)?.addresses().oracle;
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

    /// Kafka's version, as its brokers tell it or as it was known before.
    fn kafka(&self) -> String {
        let told = self.nodes.iter().find_map(|node| node.kafka());
        told.unwrap_or_else(|| self.kafka.clone())
    }

    fn node(&self, node: NodeId) -> Result<&dyn Node, ClusterError> {
        let found = self.nodes.iter().find(|known| known.id() == node);
        found.map(|node| &**node).ok_or_else(|| {
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
            .map(|node| node.addresses().oracle)
            .ok_or_else(|| refused("a broker to ask".to_owned(), "every broker is down or paused"))
    }

    async fn metadata(&self, topics: &[String]) -> Result<MetadataResponse, ClusterError> {
        metadata_of(self.any()?, topics).await
    }

    /// Returns when every broker knows all others, and each has taken a record and given it back.
    async fn until_all_serve(&self) -> Result<(), ClusterError> {
        let nodes: Vec<NodeId> = self.nodes.iter().map(|node| node.id()).collect();
        try_join_all(self.nodes.iter().map(|node| self.until_named(&**node, &nodes))).await?;
        // One partition on each broker.
        let replicas: Vec<Vec<NodeId>> = nodes.iter().map(|node| vec![*node]).collect();
        self.create(READY, &replicas, &[]).await?;
        let numbered = || self.nodes.iter().zip(0..);
        let taken = numbered().map(|(node, partition)| {
            until("a broker taking a record", move || async move {
                admin::produce(node.addresses().oracle, READY, partition).await
            })
        });
        let offsets = try_join_all(taken).await?;
        // Only the first time: a cluster that is used again has been up before.
        self.first_produce.get_or_init(|| self.begun.elapsed());
        let given = numbered().zip(offsets).map(|((node, partition), offset)| {
            until("a broker giving a record", move || async move {
                match admin::fetch(node.addresses().oracle, READY, partition, offset).await? {
                    0 => Err(refused(format!("read what broker {} took", node.id()), "nothing")),
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
    async fn until_named(&self, node: &dyn Node, nodes: &[NodeId]) -> Result<(), ClusterError> {
        let what = format!("that broker {} names the brokers {nodes:?}", node.id());
        until(&what, || async {
            if let Some(last_words) = node.last_words() {
                return Err(ClusterError::Died {
                    cluster: NAME,
                    last_words,
                });
            }
            let named = brokers_of(&metadata_of(node.addresses().oracle, &[]).await?);
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
                if acls::refuses_reader(node.addresses().reader, resource).await? != refused {
                    let answer = format!("broker {} does not yet", node.id());
                    return Err(self::refused(what.clone(), &answer));
                }
                asked.push(node.id());
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

    /// Returns when no other broker names this one as the leader of anything; those that were asked, none where it is alone.
    async fn until_leads_nothing(&self, node: &dyn Node) -> Result<Vec<NodeId>, ClusterError> {
        let what = format!("that broker {} leads nothing", node.id());
        until(&what, || async {
            let others = self
                .nodes
                .iter()
                .filter(|other| other.id() != node.id() && other.answers());
            let mut asked = Vec::new();
            for other in others {
                let metadata = metadata_of(other.addresses().oracle, &[]).await?;
                let mut partitions = metadata.topics.iter().flat_map(|topic| &topic.partitions);
                if partitions.any(|partition| partition.leader_id.0 == node.id()) {
                    return Err(refused(
                        what.clone(),
                        &format!("broker {} says that it does", other.id()),
                    ));
                }
                asked.push(other.id());
            }
            Ok(asked)
        })
        .await
    }

    /// Waits until the first of a partition's replicas leads it, and has it elected where another does: a broker that the
    /// machine starved was fenced meanwhile, and nothing else gives it the lead.
    async fn until_first_leads(&self, topic: &str, partition: i32, first: NodeId) -> Result<(), ClusterError> {
        let what = format!("that broker {first}, its first replica, leads {topic}-{partition}");
        until(&what, || async {
            let led = leader_in(&self.metadata(&[topic.to_owned()]).await?, partition);
            if led == Some(first) {
                return Ok(());
            }
            if led.is_some() {
                admin::elect_first(self.any()?, topic, partition).await?;
            }
            Err(refused(what.clone(), &format!("it is led by {led:?}")))
        })
        .await
    }

    /// Waits until every broker that answers says that `to` leads a partition.
    async fn until_led(&self, topic: &str, partition: i32, to: NodeId) -> Result<(), ClusterError> {
        let what = format!("that broker {to} leads {topic}-{partition}");
        until(&what, || async {
            for node in self.nodes.iter().filter(|node| node.answers()) {
                let led = leader_in(
                    &metadata_of(node.addresses().oracle, &[topic.to_owned()]).await?,
                    partition,
                );
                if led != Some(to) {
                    return Err(refused(what.clone(), &format!("broker {} names {led:?}", node.id())));
                }
            }
            Ok(())
        })
        .await
    }
}

/// True where a broker could not listen because its port is somebody else's. Only the words of whoever tried tell that: of a
/// JVM in its log, of an engine in its answer.
fn is_taken_port(cause: &ClusterError) -> bool {
    let told = crate::chain(cause).to_lowercase();
    told.contains("address already in use") || told.contains("port is already allocated")
}

/// An id as Kafka writes them: 16 bytes in 22 characters of base 64, of which hexadecimal digits are some.
pub(super) fn id(hash: &Fnv) -> String {
    format!("bfbf{}AA", hash.hex())
}

pub(super) fn refused(command: String, answer: &str) -> ClusterError {
    ClusterError::Refused {
        cluster: NAME,
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
