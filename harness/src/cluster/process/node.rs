//! One broker: a JVM that may end and be started again, with its ports, its data and its log.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::sync::watch;

use super::kit::Kit;
use super::settings::Addresses;
use crate::cluster::{ClusterError, NodeId};
use crate::lock;
use crate::process::{Child, Group, Spawner, Spec};

/// Lines of its log that are shown when it dies.
const LAST_LINES: usize = 15;

/// A JVM is reaped about 20 ms after SIGKILL; its archive is written for seconds after SIGTERM.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// A signal takes effect at once; the state is looked at this often.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Longest wait for a signal to take effect.
const SIGNAL_WITHIN: Duration = Duration::from_secs(5);

/// A broker of the cluster.
pub(super) struct Node {
    pub(super) id: NodeId,
    pub(super) addresses: Addresses,
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
    ended: watch::Receiver<Option<String>>,
    /// It was told to end.
    asked: Arc<AtomicBool>,
    paused: bool,
}

impl Node {
    /// A broker that has never run.
    pub(super) fn new(
        id: NodeId,
        addresses: Addresses,
        properties: PathBuf,
        folder: PathBuf,
        died: watch::Sender<Option<String>>,
    ) -> Node {
        Node {
            id,
            addresses,
            properties,
            folder,
            log: Arc::default(),
            life: Mutex::new(None),
            died,
        }
    }

    /// Direct address.
    pub(super) fn oracle(&self) -> SocketAddr {
        self.addresses.oracle
    }

    /// From now on its log goes to `broker-ID.log` in a folder.
    pub(super) fn log_to(&self, folder: &Path) {
        // OK without: its last lines are kept in any case.
        *lock(&self.log.file) = File::create(folder.join(format!("broker-{}.log", self.id))).ok();
    }

    /// Starts its process; it serves later.
    pub(super) async fn start(&self, kit: &Kit) -> Result<(), ClusterError> {
        let spawner = Spawner::shared_with(kit.program())?;
        let spec = Spec {
            command: kit.command(&self.properties),
            folder: Some(self.folder.clone()),
            ..Spec::default()
        };
        lock(&self.log.tail).clear();
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

    /// True while its process is there, paused or not.
    pub(super) fn is_running(&self) -> bool {
        lock(&self.life)
            .as_ref()
            .is_some_and(|life| life.ended.borrow().is_none())
    }

    /// True while it can answer.
    pub(super) fn answers(&self) -> bool {
        self.is_running() && !lock(&self.life).as_ref().is_some_and(|life| life.paused)
    }

    /// Last words, once it has ended.
    pub(super) fn last_words(&self) -> Option<String> {
        lock(&self.life).as_ref()?.ended.borrow().clone()
    }

    /// Sends a signal that ends it and returns when it is reaped.
    pub(super) async fn end(&self, signal: Signal) -> Result<(), ClusterError> {
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
        if waited.is_err() {
            return Err(ClusterError::TimedOut {
                what: format!("the end of broker {} (process {})", self.id, group.pid()),
                within: ENDS_WITHIN,
                last_seen: format!("state {:?} after {signal}", group.state()),
            });
        }
        Ok(())
    }

    /// Kills it without waiting.
    pub(super) fn kill(&self) {
        if let Some(life) = lock(&self.life).as_ref() {
            life.asked.store(true, Ordering::Relaxed);
            life.group.signal(Signal::SIGKILL);
        }
    }

    /// Process id, while it runs.
    pub(super) fn pid(&self) -> Option<u32> {
        lock(&self.life)
            .as_ref()
            .filter(|life| life.ended.borrow().is_none())
            .map(|life| life.group.pid())
    }

    /// Stops it, or lets it go on; returns when the kernel says so.
    pub(super) async fn set_paused(&self, paused: bool) -> Result<(), ClusterError> {
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
        Ok(())
    }

    fn down(&self) -> ClusterError {
        super::refused(format!("broker {}", self.id), "it is down")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What a broker wrote.
#[derive(Default)]
struct Log {
    tail: Mutex<VecDeque<String>>,
    file: Mutex<Option<File>>,
}

impl Log {
    fn take(&self, line: &str) {
        if let Some(file) = lock(&self.file).as_mut() {
            // OK to lose: a full disk is told where it matters.
            let _ = writeln!(file, "{line}");
        }
        let mut tail = lock(&self.tail);
        if tail.len() == LAST_LINES {
            tail.pop_front();
        }
        tail.push_back(line.to_owned());
    }

    fn last_lines(&self) -> String {
        let tail = lock(&self.tail);
        let lines: Vec<&str> = tail.iter().map(String::as_str).collect();
        lines.join("\n")
    }

    async fn drain(&self, stream: Option<impl AsyncRead + Unpin>) {
        let Some(stream) = stream else { return };
        let mut lines = BufReader::new(stream).split(b'\n');
        while let Ok(Some(line)) = lines.next_segment().await {
            self.take(String::from_utf8_lossy(&line).trim_end());
        }
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
    async fn attend(self, mut child: Child, end: watch::Sender<Option<String>>) {
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (_, _, status) = tokio::join!(self.log.drain(stdout), self.log.drain(stderr), child.wait());
        self.spawner.forget(&child.group);
        let how = status.map_or_else(|cause| cause.to_string(), |status| status.to_string());
        let last_words = format!(
            "broker {}: {how}; the last lines of its log:\n{}",
            self.id,
            self.log.last_lines()
        );
        if !self.asked.load(Ordering::Relaxed) {
            self.died.send_replace(Some(last_words.clone()));
        }
        end.send_replace(Some(last_words));
    }
}
