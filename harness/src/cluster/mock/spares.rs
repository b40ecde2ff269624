//! Mock clusters started ahead, so that a run does not wait for the start of a process.
//!
//! ```text
//! run n: take(1) -> its cluster, refill(1) -> spare starts while the reader does
//! run n+1: take(1) -> the spare; end() -> what nobody took is ended
//! ```
//!
//! A spare is as fresh as a cluster started for the run: nobody has spoken to it, and no two runs share one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::task::JoinHandle;

use super::{LOG, MockCluster};
use crate::cluster::ClusterError;
use crate::lock;

/// At most one spare for each number of brokers.
pub struct Spares {
    program: PathBuf,
    folder: PathBuf,
    started: AtomicU64,
    ahead: Mutex<BTreeMap<u32, Spare>>,
}

struct Spare {
    log: PathBuf,
    cluster: JoinHandle<Result<MockCluster, ClusterError>>,
}

impl Spares {
    /// Of this binary (`std::env::current_exe`). Until they are taken, the logs of the spares stand in `folder`, which must
    /// be on the file system of the folders that [`Spares::take`] is given.
    pub fn new(program: PathBuf, folder: PathBuf) -> Self {
        Self {
            program,
            folder,
            started: AtomicU64::new(0),
            ahead: Mutex::default(),
        }
    }

    /// This binary.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// A fresh cluster: the spare where there is one that lives, else one started now. Its stderr is kept as
    /// `cluster.stderr` in `folder`.
    ///
    /// # Errors
    /// Those of [`MockCluster::start`].
    pub async fn take(&self, brokers: u32, folder: &Path) -> Result<MockCluster, ClusterError> {
        let spare = lock(&self.ahead).remove(&brokers);
        if let Some(Spare { log, cluster }) = spare {
            match cluster.await {
                Ok(Ok(cluster)) if cluster.lives() && std::fs::rename(&log, folder.join(LOG)).is_ok() => {
                    return Ok(cluster);
                }
                // Whatever ails it, a start of the run's own meets it too and names it.
                Ok(Ok(cluster)) => cluster.shared.control.end().await,
                Ok(Err(_)) | Err(_) => {}
            }
            forget(&log);
        }
        MockCluster::start(brokers, &self.program, folder).await
    }

    /// Starts a spare, unless there is one.
    pub fn refill(&self, brokers: u32) {
        lock(&self.ahead).entry(brokers).or_insert_with(|| {
            let number = self.started.fetch_add(1, Ordering::Relaxed);
            let log = self.folder.join(format!("spare-{number}.stderr"));
            let (program, to) = (self.program.clone(), log.clone());
            Spare {
                log,
                cluster: tokio::spawn(async move { MockCluster::start_logging(brokers, &program, to).await }),
            }
        });
    }

    /// Ends what nobody took.
    pub async fn end(&self) {
        let left = std::mem::take(&mut *lock(&self.ahead));
        for Spare { log, cluster } in left.into_values() {
            if let Ok(Ok(cluster)) = cluster.await {
                cluster.shared.control.end().await;
            }
            forget(&log);
        }
    }
}

/// Removes the log of a spare that no run has used.
fn forget(log: &Path) {
    // OK to ignore: it may never have been made, and says nothing of any run.
    let _ = std::fs::remove_file(log);
}
