//! The parent's hold on the child that is the mock cluster: commands, answers, complaints, death.

use std::collections::HashMap;
use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{oneshot, watch};

use super::pipe::{Ask, Command as Order, Tell};
use crate::cluster::ClusterError;
use crate::lock;
use crate::process::Spawner;

/// How the cluster is named in errors.
pub(super) const MOCK: &str = "mock";

/// Longest wait for the child's first line; 55 ms was the slowest first start of a quiet machine.
const READY_WITHIN: Duration = Duration::from_secs(20);

/// Longest wait for an answer: commands take microseconds, a starved machine takes seconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// After this the child is killed instead of waited for.
const END_WITHIN: Duration = Duration::from_secs(2);

/// How much of its stderr counts as last words.
const LAST_WORDS: u64 = 2_000;

/// The child process.
pub(super) struct Control {
    pid: u32,
    stdin: tokio::sync::Mutex<Option<ChildStdin>>,
    next: AtomicU64,
    shared: Arc<Shared>,
    kill: Mutex<Option<oneshot::Sender<()>>>,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<HashMap<u64, oneshot::Sender<Option<String>>>>,
    complaints: Mutex<Vec<String>>,
    /// Last words, once the child has ended.
    ended: watch::Sender<Option<String>>,
    asked_to_end: AtomicBool,
}

/// What the child said first.
pub(super) struct Ready {
    pub(super) brokers: Vec<SocketAddr>,
    pub(super) librdkafka: String,
}

impl Control {
    /// Starts the child and waits until the cluster serves. Its stderr goes to `stderr_log`.
    pub(super) async fn start(brokers: u32, program: &Path, stderr_log: &Path) -> Result<(Self, Ready), ClusterError> {
        let io = |what: String| move |source| ClusterError::Io { what, source };
        let creating = || format!("creating {}", stderr_log.display());
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true);
        let stderr = options.open(stderr_log).map_err(io(creating()))?;
        // Read through the file itself: a spare's log moves into the folder of the run that takes it.
        let said = stderr.try_clone().map_err(io(creating()))?;
        let mut child =
            spawn(brokers, program, stderr).map_err(io(format!("starting `{} mock-cluster`", program.display())))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both are piped by `spawn`");
        };
        let pid = child.id().unwrap_or_default();
        // The end of its stdin ends it, unless it is stopped or stuck.
        let spawner = Spawner::shared_with(program)?;
        spawner.track(pid);
        let shared = Arc::new(Shared::default());
        let (kill, killed) = oneshot::channel();
        let (ready, told) = oneshot::channel();
        tokio::spawn(listen(stdout, Arc::clone(&shared), ready));
        tokio::spawn(attend(child, killed, said, Arc::clone(&shared), spawner));
        let control = Self {
            pid,
            stdin: tokio::sync::Mutex::new(Some(stdin)),
            next: AtomicU64::new(1),
            shared,
            kill: Mutex::new(Some(kill)),
        };
        match tokio::time::timeout(READY_WITHIN, told).await {
            Ok(Ok(Ok(ready))) => Ok((control, ready)),
            Ok(Ok(Err(reason))) => Err(ClusterError::Refused {
                cluster: MOCK,
                command: format!("mock-cluster {brokers}"),
                answer: reason,
            }),
            // The child's stdout ended before its first line.
            Ok(Err(_)) => Err(ClusterError::Died {
                cluster: MOCK,
                last_words: control.died().await,
            }),
            Err(_) => Err(ClusterError::TimedOut {
                what: "the mock cluster being ready".to_owned(),
                within: READY_WITHIN,
                last_seen: "no line from its process".to_owned(),
            }),
        }
    }

    /// Whether it has not ended.
    pub(super) fn lives(&self) -> bool {
        self.shared.ended.borrow().is_none()
    }

    /// Process id.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Has a command carried out.
    pub(super) async fn order(&self, command: Order) -> Result<(), ClusterError> {
        let text = format!("{command:?}");
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        lock(&self.shared.waiting).insert(id, answer);
        let mut line = serde_json::to_vec(&Ask { id, command }).unwrap_or_default();
        line.push(b'\n');
        let mut stdin = self.stdin.lock().await;
        let written = match stdin.as_mut() {
            Some(stdin) => stdin.write_all(&line).await,
            None => Err(std::io::ErrorKind::BrokenPipe.into()),
        };
        drop(stdin);
        let answer = match written {
            Ok(()) => tokio::time::timeout(ANSWER_WITHIN, answered).await,
            // A child that does not read has ended or is ending.
            Err(_) => return Err(self.dead(text).await),
        };
        match answer {
            Ok(Ok(None)) => Ok(()),
            Ok(Ok(Some(answer))) => Err(ClusterError::Refused {
                cluster: MOCK,
                command: text,
                answer,
            }),
            Ok(Err(_)) => Err(self.dead(text).await),
            Err(_) => {
                lock(&self.shared.waiting).remove(&id);
                Err(ClusterError::TimedOut {
                    what: format!("an answer to `{text}`"),
                    within: ANSWER_WITHIN,
                    last_seen: "nothing".to_owned(),
                })
            }
        }
    }

    async fn dead(&self, command: String) -> ClusterError {
        if self.shared.asked_to_end.load(Ordering::Relaxed) {
            return ClusterError::Refused {
                cluster: MOCK,
                command,
                answer: "it was shut down".to_owned(),
            };
        }
        ClusterError::Died {
            cluster: MOCK,
            last_words: self.died().await,
        }
    }

    /// Adds a complaint of the parent's own, such as an election that failed. After the end there is nothing to complain of.
    pub(super) fn complain(&self, text: String) {
        if !self.shared.asked_to_end.load(Ordering::Relaxed) {
            lock(&self.shared.complaints).push(text);
        }
    }

    /// Takes the complaints so far.
    pub(super) fn complaints(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.shared.complaints))
    }

    /// Resolves when the child ends unasked; never when it was asked to.
    pub(super) async fn died(&self) -> String {
        let mut ended = self.shared.ended.subscribe();
        let last_words = ended
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|ended| ended.clone());
        match last_words {
            Some(last_words) if !self.shared.asked_to_end.load(Ordering::Relaxed) => last_words,
            _ => std::future::pending().await,
        }
    }

    /// Ends the child: closes its stdin, and kills it when that does not help. Idempotent.
    pub(super) async fn end(&self) {
        self.shared.asked_to_end.store(true, Ordering::Relaxed);
        drop(self.stdin.lock().await.take());
        let mut ended = self.shared.ended.subscribe();
        if tokio::time::timeout(END_WITHIN, ended.wait_for(Option::is_some))
            .await
            .is_err()
        {
            if let Some(kill) = lock(&self.kill).take() {
                let _ = kill.send(());
            }
            let _ = ended.wait_for(Option::is_some).await;
        }
    }
}

/// A plain child of tokio's: it is no reader, so neither the environment nor the mark of `process` is needed, and the end
/// of its stdin ends it.
fn spawn(brokers: u32, program: &Path, stderr: File) -> std::io::Result<Child> {
    Command::new(program)
        .arg("mock-cluster")
        .arg(brokers.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

/// Reads the child's stdout to its end.
async fn listen(stdout: ChildStdout, shared: Arc<Shared>, ready: oneshot::Sender<Result<Ready, String>>) {
    let mut ready = Some(ready);
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let first = match serde_json::from_str(&line) {
            Ok(Tell::Answer { id, error }) => {
                if let Some(waiting) = lock(&shared.waiting).remove(&id) {
                    let _ = waiting.send(error);
                }
                continue;
            }
            Ok(Tell::Complaint { text }) => {
                lock(&shared.complaints).push(text);
                continue;
            }
            Ok(Tell::Unable { reason }) => Err(reason),
            Ok(Tell::Ready { brokers, librdkafka }) => addresses(&brokers).map(|brokers| Ready { brokers, librdkafka }),
            Err(cause) => Err(format!(
                "a line that is none of its own ({cause}): {}",
                line.escape_debug()
            )),
        };
        if let Some(ready) = ready.take() {
            let _ = ready.send(first);
        }
    }
    // Whoever still waits learns that no answer will come.
    lock(&shared.waiting).clear();
}

fn addresses(brokers: &[String]) -> Result<Vec<SocketAddr>, String> {
    brokers
        .iter()
        .map(|broker| {
            broker
                .parse()
                .map_err(|_| format!("`{}` is no address of a broker", broker.escape_debug()))
        })
        .collect()
}

/// Waits for the child's end, and kills it when told to.
async fn attend(mut child: Child, killed: oneshot::Receiver<()>, stderr: File, shared: Arc<Shared>, spawner: Spawner) {
    let pid = child.id();
    let status = tokio::select! {
        status = child.wait() => status,
        Ok(()) = killed => {
            let _ = child.start_kill();
            child.wait().await
        }
    };
    if let Some(pid) = pid {
        spawner.untrack(pid);
    }
    let last_words = last_words(status.ok(), &stderr);
    lock(&shared.waiting).clear();
    shared.ended.send_replace(Some(last_words));
}

/// How the child ended, and the assert's text where there is one.
fn last_words(status: Option<ExitStatus>, stderr: &File) -> String {
    let how = status.map_or_else(|| "end unknown".to_owned(), |status| status.to_string());
    let length = stderr.metadata().map_or(0, |metadata| metadata.len());
    let mut tail = vec![0; usize::try_from(length.min(LAST_WORDS)).unwrap_or_default()];
    if stderr
        .read_exact_at(&mut tail, length.saturating_sub(LAST_WORDS))
        .is_err()
    {
        tail.clear();
    }
    let stderr = String::from_utf8_lossy(&tail);
    let said = stderr
        .lines()
        .rfind(|line| line.contains("Assertion"))
        .unwrap_or_else(|| stderr.trim());
    if said.is_empty() { how } else { format!("{how}: {said}") }
}
