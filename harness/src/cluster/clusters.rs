//! Clusters for runs: brought up when one begins, taken back when it ends, and used again where that can be proven harmless.
//!
//! ```text
//! run --up--> Lease (its cluster) --end--> idle, if every broker still runs --up, proven anew--> next run
//!                                   '----> shut down
//! ```
//!
//! A mock cluster is up in milliseconds, started ahead, and never used twice; a cluster of JVMs takes seconds. Deliberately not here:
//! what proves a cluster as good as new ([`KafkaCluster::renew`]).

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::container::Engine;
use super::kafka::KafkaCluster;
use super::mock::Spares;
use super::process::Kit;
use super::{Cluster, ClusterError, ClusterKind};
use crate::lock;

/// Brings clusters up and takes them back. Clones share what is idle.
#[derive(Clone)]
pub struct Clusters {
    shared: Arc<Shared>,
}

struct Shared {
    spares: Spares,
    starters: Starters,
    /// Clusters that nobody uses; never more than runs went on at a time.
    idle: Mutex<Vec<Arc<KafkaCluster>>>,
}

/// What starts Kafka's brokers, as far as runs want them.
#[derive(Debug, Clone, Default)]
pub struct Starters {
    /// As processes.
    pub kit: Option<Kit>,
    /// In containers.
    pub engine: Option<Engine>,
}

/// What a run wants.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Which cluster.
    pub kind: ClusterKind,
    /// 1 to 3.
    pub brokers: u32,
    /// The group that readers will use; nothing of it may be left from another run.
    pub group: &'a str,
    /// Folder of the run's artifacts; brokers log there.
    pub folder: &'a Path,
}

/// A cluster in the hands of one run.
pub struct Lease {
    /// The cluster.
    pub cluster: Arc<dyn Cluster>,
    /// The same, where it can be used again.
    reusable: Option<(Arc<KafkaCluster>, Clusters)>,
}

impl Clusters {
    /// Of this binary (`std::env::current_exe`), and of what starts brokers of Kafka where runs want them. Mock clusters
    /// that are started ahead log to `folder`, which must be on the file system of the runs' folders.
    pub fn new(program: PathBuf, folder: PathBuf, starters: Starters) -> Self {
        Self {
            shared: Arc::new(Shared {
                spares: Spares::new(program, folder),
                starters,
                idle: Mutex::default(),
            }),
        }
    }

    /// This binary.
    pub fn program(&self) -> &Path {
        self.shared.spares.program()
    }

    /// Starts the next run's cluster while this one waits for its reader, where a start is cheap.
    pub fn start_ahead(&self, kind: ClusterKind, brokers: u32) {
        if kind == ClusterKind::Mock {
            self.shared.spares.refill(brokers);
        }
    }

    /// A cluster that is as good as new.
    ///
    /// # Errors
    /// Whatever keeps it from coming up; [`ClusterError::Refused`] for Kafka without what starts it.
    pub async fn up(&self, wanted: Wanted<'_>) -> Result<Lease, ClusterError> {
        if wanted.kind == ClusterKind::Mock {
            return Ok(Lease {
                cluster: Arc::new(self.shared.spares.take(wanted.brokers, wanted.folder).await?),
                reusable: None,
            });
        }
        let cluster = match self.renewed(wanted).await {
            Some(cluster) => cluster,
            None => self.fresh(wanted).await?,
        };
        cluster.log_to(wanted.folder);
        Ok(Lease {
            cluster: cluster.clone(),
            reusable: Some((cluster, self.clone())),
        })
    }

    /// An idle cluster of the wanted size that could be renewed.
    async fn renewed(&self, wanted: Wanted<'_>) -> Option<Arc<KafkaCluster>> {
        loop {
            let cluster = {
                let mut idle = lock(&self.shared.idle);
                let fits = |cluster: &Arc<KafkaCluster>| {
                    cluster.kind() == wanted.kind && cluster.info().brokers == wanted.brokers
                };
                let at = idle.iter().position(fits)?;
                idle.remove(at)
            };
            // What could not be renewed is worth no more words: a fresh one takes its place.
            match cluster.renew(wanted.group).await {
                Ok(()) => return Some(cluster),
                Err(_) => cluster.shutdown().await,
            }
        }
    }

    async fn fresh(&self, wanted: Wanted<'_>) -> Result<Arc<KafkaCluster>, ClusterError> {
        // One of another size gives way, so that there are never more than runs at a time: idle brokers take memory and beat.
        let other = lock(&self.shared.idle).pop();
        if let Some(other) = other {
            other.shutdown().await;
        }
        let Starters { kit, engine } = &self.shared.starters;
        let nobody_looked = || ClusterError::Refused {
            cluster: wanted.kind.name(),
            command: "start".to_owned(),
            answer: "nobody has looked for what starts its brokers".to_owned(),
        };
        let cluster = match wanted.kind {
            ClusterKind::Container => engine.as_ref().ok_or_else(nobody_looked)?.start(wanted.brokers).await?,
            _ => kit.as_ref().ok_or_else(nobody_looked)?.start(wanted.brokers).await?,
        };
        Ok(Arc::new(cluster))
    }

    /// Ends what is idle or was started ahead.
    pub async fn shutdown(&self) {
        self.shared.spares.end().await;
        let idle = std::mem::take(&mut *lock(&self.shared.idle));
        futures::future::join_all(idle.iter().map(|cluster| cluster.shutdown())).await;
        if let Some(engine) = &self.shared.starters.engine {
            // OK to leave to the next start's sweep, as where the engine is gone.
            let _ = engine.clear().await;
        }
    }
}

impl Lease {
    /// Takes the cluster back: it waits for the next run where every broker runs, and is ended otherwise.
    pub async fn end(&self) {
        match &self.reusable {
            Some((cluster, clusters)) if cluster.answers() => lock(&clusters.shared.idle).push(cluster.clone()),
            _ => self.cluster.shutdown().await,
        }
    }
}
