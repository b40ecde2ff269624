//! Apache Kafka as JVM processes, each in a process group of its own, under the watchdog.
//!
//! `kit` finds Java and Kafka and prepares the start; `node` is one JVM. The ports of all listeners are held for the
//! cluster's life, the link's too, so that a cluster serves one run after another. Deliberately not here: what a cluster of
//! Kafka does (`kafka`).

mod error;
mod jars;
mod java;
mod kit;
mod node;

use async_trait::async_trait;
use tokio::sync::watch;

pub use self::error::KitError;
pub use self::kit::{Kit, KitOptions};
use self::node::Process;
use super::kafka::settings::{self, Listener, Listeners};
use super::kafka::{Addresses, Ground, KafkaCluster, Layout, Node};
use super::{ClusterError, ClusterKind, NodeId};
use crate::ports::{self, Port};
use crate::process::Spawner;
use crate::reader::provision::Fnv;

/// The version of Apache Kafka where none is named.
pub const KAFKA: &str = "4.1.0";

/// Folder of the cache.
pub(crate) const CACHED: &str = "clusters";

impl Kit {
    /// Starts a cluster of 1 to 3 brokers and returns when every one of them takes and gives records.
    ///
    /// ```no_run
    /// # use brokerfall::cluster::{Cluster, ClusterError, process::{Kit, KitOptions}};
    /// # async fn example(brokerfall: &std::path::Path, cache: &std::path::Path) -> Result<(), ClusterError> {
    /// let options = KitOptions { kafka: None, cache, may_download: true, progress: &|line| println!("{line}") };
    /// let kit = Kit::find(&options, brokerfall)?;
    /// kit.prepare(options.progress).await?;
    /// let cluster = kit.start(1).await?;
    /// println!("direct listeners: {}", cluster.direct_bootstrap());
    /// cluster.shutdown().await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ClusterError::Died`] with the last lines of its log when a broker ends, [`ClusterError::TimedOut`] when one does
    /// not serve, [`ClusterError::Ports`], [`ClusterError::Io`].
    pub async fn start(&self, brokers: u32) -> Result<KafkaCluster, ClusterError> {
        KafkaCluster::bring_up(|| Box::pin(async move { self.lay_out(brokers as usize) })).await
    }

    /// Ports, settings and data folders of a cluster that has never run.
    fn lay_out(&self, brokers: usize) -> Result<Layout, ClusterError> {
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
        Spawner::shared_with(self.program())?.guard_folder(folder.path());
        let (advertised, held) = (ports::reserve(brokers)?, ports::reserve(3 * brokers)?);
        let nodes: Vec<(NodeId, Listeners)> = (1..)
            .zip(advertised.iter().zip(held.chunks(3)))
            .map(|(node, (link, own))| {
                let listeners = Listeners {
                    reader: Listener {
                        told: link.address().to_string(),
                        ..Listener::at(own[0].address())
                    },
                    oracle: Listener::at(own[1].address()),
                    peers: None,
                    controller: Listener::at(own[2].address()),
                };
                (node, listeners)
            })
            .collect();
        let mut id = Fnv::default();
        id.part(&std::process::id().to_le_bytes());
        id.part(folder.path().as_os_str().as_encoded_bytes());
        let cluster_id = super::kafka::id(&id);
        let (died, _) = watch::channel(None);
        let mut laid_out: Vec<Box<dyn Node>> = Vec::new();
        for ((node, _), (link, own_ports)) in nodes.iter().zip(advertised.iter().zip(held.chunks(3))) {
            let own = folder.path().join(format!("broker-{node}"));
            let data = own.join("data");
            self.fill(&data, *node, &cluster_id)
                .map_err(io("filling a broker's data folder"))?;
            let properties = own.join("server.properties");
            let told = settings::properties(*node, &nodes, &data.to_string_lossy());
            std::fs::write(&properties, settings::file(&told)).map_err(io("writing a broker's settings"))?;
            let addresses = Addresses {
                reader: own_ports[0].address(),
                advertised: link.address(),
                oracle: own_ports[1].address(),
            };
            laid_out.push(Box::new(Process::new(
                *node,
                addresses,
                self,
                properties,
                own,
                died.clone(),
            )));
        }
        Ok(Layout {
            kind: ClusterKind::Process,
            kafka: self.kafka().to_owned(),
            nodes: laid_out,
            advertised,
            ground: Box::new(Folder { folder, _held: held }),
            died,
        })
    }
}

/// Settings and data of every broker, and their ports.
struct Folder {
    folder: tempfile::TempDir,
    /// Held so that nobody takes the port of a broker that is down.
    _held: Vec<Port>,
}

#[async_trait]
impl Ground for Folder {
    async fn clear(&self) {
        // OK to leave to the watchdog: it was told of the folder.
        let _ = tokio::fs::remove_dir_all(self.folder.path()).await;
    }
}
