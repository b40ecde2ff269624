//! One broker: a JVM that may end and be started again, with its ports, its data and its log.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use nix::sys::signal::Signal;
use tokio::sync::watch;

use super::kit::Kit;
use crate::cluster::kafka::log::Log;
use crate::cluster::kafka::{self, Addresses, Ended, Node};
use crate::cluster::{ClusterError, NodeId};
use crate::lock;
use crate::process::{Child, Group, Spawner, Spec};

/// A JVM is reaped about 20 ms after SIGKILL; its archive is written for seconds after SIGTERM.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// A signal takes effect at once; the state is looked at this often.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Longest wait for a signal to take effect.
const SIGNAL_WITHIN: Duration = Duration::from_secs(5);

/// A broker of the cluster.
pub(super) struct Process {
    id: NodeId,
    addresses: Addresses,
    kit: Kit,
    properties: PathBuf,
    folder: PathBuf,
    log: Arc<Log>,
    life: Mutex<Option<Life>>,
    /// Is told last words when it ends unasked.
    died: watch::Sender<Option<String>>,
}

/// One process of a broker, from start to end.
struct Life {
    group: Group,
    /// How it ended, once it has.
    ended: watch::Receiver<Option<Ended>>,
    /// It was told to end.
    asked: Arc<AtomicBool>,
    paused: bool,
}

impl Process {
    /// A broker that has never run.
    pub(super) fn new(
        id: NodeId,
        addresses: Addresses,
        kit: &Kit,
        properties: PathBuf,
        folder: PathBuf,
        died: watch::Sender<Option<String>>,
    ) -> Process {
        Process {
            id,
            addresses,
            kit: kit.clone(),
            properties,
            folder,
            log: Arc::default(),
            life: Mutex::new(None),
            died,
        }
    }

    /// Kills it without waiting.
    fn kill(&self) {
        if let Some(life) = lock(&self.life).as_ref() {
            life.asked.store(true, Ordering::Relaxed);
            life.group.signal(Signal::SIGKILL);
        }
    }

    fn down(&self) -> ClusterError {
        kafka::refused(format!("broker {}", self.id), "it is down")
    }
}

#[async_trait]
impl Node for Process {
    fn id(&self) -> NodeId {
        self.id
    }

    fn addresses(&self) -> Addresses {
        self.addresses
    }

    fn name(&self) -> String {
        self.pid()
            .map_or_else(|| "no process".to_owned(), |pid| format!("process {pid}"))
    }

    fn log_to(&self, folder: &Path) {
        self.log.to_file(folder, self.id);
    }

    async fn start(&self) -> Result<(), ClusterError> {
        let spawner = Spawner::shared_with(self.kit.program())?;
        let spec = Spec {
            command: self.kit.command(&self.properties),
            folder: Some(self.folder.clone()),
            ..Spec::default()
        };
        self.log.forget();
        let child = spawner.spawn(spec).await?;
        let (group, asked) = (child.group.clone(), Arc::<AtomicBool>::default());
        let (end, ended) = watch::channel(None);
        let attended = Attended {
            id: self.id,
            log: Arc::clone(&self.log),
            asked: Arc::clone(&asked),
            died: self.died.clone(),
            spawner,
        };
        tokio::spawn(attended.attend(child, end));
        *lock(&self.life) = Some(Life {
            group,
            ended,
            asked,
            paused: false,
        });
        Ok(())
    }

    fn is_running(&self) -> bool {
        lock(&self.life)
            .as_ref()
            .is_some_and(|life| life.ended.borrow().is_none())
    }

    fn answers(&self) -> bool {
        self.is_running() && !lock(&self.life).as_ref().is_some_and(|life| life.paused)
    }

    fn last_words(&self) -> Option<String> {
        lock(&self.life)
            .as_ref()?
            .ended
            .borrow()
            .as_ref()
            .map(|ended| ended.last_words.clone())
    }

    /// Returns when it is reaped.
    async fn end(&self, signal: Signal) -> Result<Ended, ClusterError> {
        let (group, mut ended) = {
            let life = lock(&self.life);
            let life = life.as_ref().ok_or_else(|| self.down())?;
            life.asked.store(true, Ordering::Relaxed);
            (life.group.clone(), life.ended.clone())
        };
        group.signal(signal);
        if signal != Signal::SIGKILL {
            // A stopped process takes nothing else.
            group.signal(Signal::SIGCONT);
        }
        let waited = tokio::time::timeout(ENDS_WITHIN, ended.wait_for(Option::is_some)).await;
        let ended = waited.ok().and_then(Result::ok).and_then(|ended| ended.clone());
        ended.ok_or_else(|| ClusterError::TimedOut {
            what: format!("the end of broker {} (process {})", self.id, group.pid()),
            within: ENDS_WITHIN,
            last_seen: format!("state {:?} after {signal}", group.state()),
        })
    }

    fn pid(&self) -> Option<u32> {
        lock(&self.life)
            .as_ref()
            .filter(|life| life.ended.borrow().is_none())
            .map(|life| life.group.pid())
    }

    /// Returns when the kernel says so.
    async fn set_paused(&self, paused: bool) -> Result<String, ClusterError> {
        if !self.is_running() {
            return Err(self.down());
        }
        let group = {
            let mut life = lock(&self.life);
            let life = life.as_mut().ok_or_else(|| self.down())?;
            life.paused = paused;
            life.group.clone()
        };
        let signal = if paused { Signal::SIGSTOP } else { Signal::SIGCONT };
        group.signal(signal);
        let deadline = tokio::time::Instant::now() + SIGNAL_WITHIN;
        while (group.state() == Some('T')) != paused {
            if tokio::time::Instant::now() >= deadline {
                return Err(ClusterError::TimedOut {
                    what: format!("{signal} at broker {} (process {})", self.id, group.pid()),
                    within: SIGNAL_WITHIN,
                    last_seen: format!("state {:?}", group.state()),
                });
            }
            crate::before_the_next_look(LOOK_EVERY).await;
        }
        Ok(if paused {
            "is stopped (state T)".to_owned()
        } else {
            "runs on".to_owned()
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What watches over one process of a broker.
struct Attended {
    id: NodeId,
    log: Arc<Log>,
    asked: Arc<AtomicBool>,
    died: watch::Sender<Option<String>>,
    spawner: Spawner,
}

impl Attended {
    async fn attend(self, mut child: Child, end: watch::Sender<Option<Ended>>) {
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (_, _, status) = tokio::join!(self.log.drain(stdout), self.log.drain(stderr), child.wait());
        self.spawner.forget(&child.group);
        let (how, status) = match status {
            Ok(status) => (status.to_string(), status.code()),
            Err(cause) => (cause.to_string(), None),
        };
        let last_words = format!(
            "broker {}: {how}; the last lines of its log:\n{}",
            self.id,
            self.log.last_lines()
        );
        if !self.asked.load(Ordering::Relaxed) {
            self.died.send_replace(Some(last_words.clone()));
        }
        end.send_replace(Some(Ended { status, last_words }));
    }
}
