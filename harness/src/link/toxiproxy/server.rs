//! A Toxiproxy server as a child process: one for each run, on loopback, known to the watchdog.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::ToxiproxyError;
use super::api::Api;
use super::program::{Program, VERSION};
use crate::ports::{self, Port};
use crate::process::{Child, Group, Spawner, Spec};

/// Longest wait for the API; a start took 20 ms on a quiet machine.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// Between two tries to reach it.
const TRY_AGAIN: Duration = Duration::from_millis(2);
/// Longest wait for its end after SIGKILL.
const END_WITHIN: Duration = Duration::from_secs(5);
/// How long its log and its end may be apart.
const LAST_WORDS: Duration = Duration::from_millis(300);
/// Lines of its log that are kept for errors.
const LINES: usize = 8;
/// Longest part of a line that is kept, characters.
const LINE: usize = 400;

/// A server that runs. Dropping it kills it.
pub(super) struct Server {
    group: Group,
    spawner: Spawner,
    /// How it ended, once it has.
    ended: watch::Receiver<Option<String>>,
    said: Said,
    /// Held so that nobody else takes the API's port.
    _port: Port,
}

/// The last lines of its log.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<VecDeque<String>>>);

impl Server {
    /// Starts a server and its client. Returns when the API answers with the right version. `own` is the harness's binary,
    /// for its watchdog.
    pub(super) async fn start(program: &Program, own: &Path) -> Result<(Self, Api), ToxiproxyError> {
        let port = ports::reserve(1)?.remove(0);
        let control = port.address();
        let spawner = Spawner::shared_with(own)?;
        let child = spawner
            .spawn(Spec {
                command: vec![
                    program.path().to_string_lossy().into_owned(),
                    format!("-host={}", control.ip()),
                    format!("-port={}", control.port()),
                ],
                // Every connection is a line otherwise.
                env: vec![("LOG_LEVEL".to_owned(), "warn".to_owned())],
                folder: None,
            })
            .await?;
        let (end, ended) = watch::channel(None);
        let said = Said::default();
        let server = Server {
            group: child.group.clone(),
            spawner,
            ended,
            said: said.clone(),
            _port: port,
        };
        tokio::spawn(attend(child, said, end));
        server.reached(control).await?;
        let api = Api::new(control)?;
        let found = api.version().await?;
        if found != VERSION {
            return Err(ToxiproxyError::Version { control, found });
        }
        Ok((server, api))
    }

    /// Waits until the API accepts; whoever accepts is this server, whose port nobody else can have.
    async fn reached(&self, control: SocketAddr) -> Result<(), ToxiproxyError> {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            let mut text = self.ended.borrow().clone();
            if text.is_none()
                && let Some(complaint) = self.said.last()
            {
                // It goes on running where it cannot listen; what it says while it ends is told with how it ended.
                text = Some(timeout(LAST_WORDS, self.ended()).await.unwrap_or(complaint));
            }
            if let Some(text) = text {
                return Err(ToxiproxyError::NotStarted { control, text });
            }
            if TcpStream::connect(control).await.is_ok() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let text = format!("no answer within {READY_WITHIN:?}");
                return Err(ToxiproxyError::NotStarted { control, text });
            }
            crate::before_the_next_look(TRY_AGAIN).await;
        }
    }

    /// Process id.
    pub(super) fn pid(&self) -> u32 {
        self.group.pid()
    }

    /// The last line of its log, for errors.
    pub(super) fn complaint(&self) -> Option<String> {
        self.said.last()
    }

    /// Returns when it has ended, and says how.
    pub(super) async fn ended(&self) -> String {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(text) => text.clone().unwrap_or_default(),
            // Its task has ended with the runtime.
            Err(_) => "nobody waits for it any more".to_owned(),
        }
    }

    /// Kills it and returns when it is reaped. Idempotent.
    pub(super) async fn end(&self) {
        self.group.kill_all();
        // OK to go on: a process that outlives SIGKILL hangs in the kernel, and the watchdog still knows it.
        if timeout(END_WITHIN, self.ended()).await.is_ok() {
            self.spawner.forget(&self.group);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.group.kill_all();
    }
}

impl Said {
    fn add(&self, line: &str) {
        let mut lines = crate::lock(&self.0);
        if lines.len() == LINES {
            lines.pop_front();
        }
        lines.push_back(line.chars().take(LINE).collect());
    }

    fn last(&self) -> Option<String> {
        crate::lock(&self.0).back().cloned()
    }

    fn all(&self) -> String {
        let lines = crate::lock(&self.0);
        lines.iter().map(String::as_str).collect::<Vec<_>>().join(" | ")
    }
}

/// Reads the log and reaps the process.
async fn attend(mut child: Child, said: Said, end: watch::Sender<Option<String>>) {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let reading = async {
        tokio::join!(keep(stdout, &said), keep(stderr, &said));
    };
    tokio::pin!(reading);
    let mut is_read = false;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status,
            () = &mut reading, if !is_read => is_read = true,
        }
    };
    if !is_read {
        // OK to give up: somebody else may hold its streams.
        let _ = timeout(LAST_WORDS, reading).await;
    }
    let status = status.map_or_else(|cause| cause.to_string(), |status| status.to_string());
    let text = match said.all() {
        lines if lines.is_empty() => status,
        lines => format!("{status}; its last words: {lines}"),
    };
    end.send_replace(Some(text));
}

async fn keep(stream: Option<impl AsyncRead + Unpin>, said: &Said) {
    let Some(stream) = stream else { return };
    let mut lines = BufReader::new(stream).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if !is_noise(&line) {
            said.add(&line);
        }
    }
}

/// Connections that end are warnings of Toxiproxy's, and its own crate client's way to change a proxy is one.
fn is_noise(line: &str) -> bool {
    [
        "Source terminated",
        "Could not write to destination",
        "is depercated",
        "closed proxy",
    ]
    .iter()
    .any(|noise| line.contains(noise))
}
