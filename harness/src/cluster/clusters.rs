//! Clusters for runs: brought up when one begins, taken back when it ends, and used again where that can be proven harmless.
//!
//! ```text
//! run --up--> Lease (its cluster) --end--> idle, if every broker still runs --up, proven anew--> next run
//!                                   '----> shut down
//! ```
//!
//! A mock cluster is up in milliseconds, started ahead, and never used twice; a cluster of JVMs takes seconds. Deliberately not here:
//! what proves a cluster as good as new ([`ProcessCluster::renew`]).

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::mock::Spares;
use super::process::{Kit, ProcessCluster};
use super::{Cluster, ClusterError, ClusterKind};
use crate::lock;

/// Brings clusters up and takes them back. Clones share what is idle.
#[derive(Clone)]
pub struct Clusters {
    shared: Arc<Shared>,
}

struct Shared {
    spares: Spares,
    kit: Option<Kit>,
    /// Clusters that nobody uses; never more than runs went on at a time.
    idle: Mutex<Vec<Arc<ProcessCluster>>>,
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
    reusable: Option<(Arc<ProcessCluster>, Clusters)>,
}

impl Clusters {
    /// Of this binary (`std::env::current_exe`), and of what starts brokers of Kafka where runs want them. Mock clusters
    /// that are started ahead log to `folder`, which must be on the file system of the runs' folders.
    pub fn new(program: PathBuf, folder: PathBuf, kit: Option<Kit>) -> Self {
        Self {
            shared: Arc::new(Shared {
                spares: Spares::new(program, folder),
                kit,
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
    async fn renewed(&self, wanted: Wanted<'_>) -> Option<Arc<ProcessCluster>> {
        loop {
            let cluster = {
                let mut idle = lock(&self.shared.idle);
                let fits = |cluster: &Arc<ProcessCluster>| cluster.info().brokers == wanted.brokers;
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

    async fn fresh(&self, wanted: Wanted<'_>) -> Result<Arc<ProcessCluster>, ClusterError> {
        let kit = self.shared.kit.as_ref().ok_or_else(|| ClusterError::Refused {
            cluster: ClusterKind::Process.name(),
            command: "start".to_owned(),
            answer: "nobody has looked for Java and Kafka".to_owned(),
        })?;
        // One of another size gives way, so that there are never more than runs at a time: idle brokers take memory and beat.
        let other = lock(&self.shared.idle).pop();
        if let Some(other) = other {
            other.shutdown().await;
        }
        Ok(Arc::new(ProcessCluster::start(kit, wanted.brokers).await?))
    }

    /// Ends what is idle or was started ahead.
    pub async fn shutdown(&self) {
        self.shared.spares.end().await;
        let idle = std::mem::take(&mut *lock(&self.shared.idle));
        futures::future::join_all(idle.iter().map(|cluster| cluster.shutdown())).await;
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
