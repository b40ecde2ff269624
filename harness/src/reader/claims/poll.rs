//! Asks for claims: one task for each claim of each reader process.
//!
//! An answer is a fact for the history ([`Event::Claim`]), whatever it is; nothing of it is kept but whether it says that
//! the reader is healthy, and in a few words why. What answers is bounded: of an HTTP answer the head is read, up to
//! 16 KiB; what a program prints is read and dropped, and a program that does not end in time is killed with all that it
//! started.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use brokerfall_report::history::Event;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::{Ask, Claim, PORT, PORT_VARIABLE, Url};
use crate::history::recorder::Recorder;
use crate::lock;
use crate::process::{Child, Spawner, Spec};

/// A longer head of an HTTP answer is none.
const HEAD: usize = 16 * 1024;

/// What is asked in one run. Dropping it ends all of it.
pub struct Polling {
    claims: Vec<Claim>,
    recorder: Recorder,
    tasks: Mutex<BTreeMap<String, JoinSet<()>>>,
}

/// The process that is asked about.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Member.
    pub member: String,
    /// Its port.
    pub port: u16,
    /// It is the first member of the run: a place that all would share is its own.
    pub is_first: bool,
}

impl Polling {
    /// Asks nobody yet.
    pub fn new(claims: Vec<Claim>, recorder: Recorder) -> Self {
        Self {
            claims,
            recorder,
            tasks: Mutex::default(),
        }
    }

    /// Whether there is anything to ask for.
    pub fn is_wanted(&self) -> bool {
        !self.claims.is_empty()
    }

    /// Asks about this process from now on, instead of an earlier one of the same member. Must be called inside a tokio
    /// runtime.
    pub fn watch(&self, process: &Asked) {
        let mut tasks = JoinSet::new();
        for claim in &self.claims {
            if process.is_first || !claim.is_shared() {
                tasks.spawn(poll(claim.clone(), process.clone(), self.recorder.clone()));
            }
        }
        // Those of the process before end here: a set that is dropped ends its tasks.
        lock(&self.tasks).insert(process.member.clone(), tasks);
    }

    /// Asks nobody any more, and returns when nothing is under way.
    pub async fn stop(&self) {
        let all = std::mem::take(&mut *lock(&self.tasks));
        for mut tasks in all.into_values() {
            tasks.shutdown().await;
        }
    }
}

async fn poll(claim: Claim, process: Asked, recorder: Recorder) {
    let mut turns = interval(claim.every);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        turns.tick().await;
        let answer = match &claim.ask {
            Ask::Http(url) => http(url, process.port, claim.timeout).await,
            Ask::Exec(words) => exec(words, &process, claim.timeout).await,
        };
        let (healthy, text) = match answer {
            Ok((healthy, text)) => (healthy, text),
            Err(text) => (false, text),
        };
        recorder.record(Event::Claim {
            member: process.member.clone(),
            name: claim.name.clone(),
            healthy,
            text,
        });
    }
}

/// Whether an endpoint answers with a status of 200 to 299.
async fn http(url: &Url, own: u16, within: Duration) -> Result<(bool, String), String> {
    let asking = async {
        let mut stream = TcpStream::connect(url.address(own)).await?;
        let (path, address) = (&url.path, url.address(own));
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        status(&mut stream).await
    };
    match timeout(within, asking).await {
        Ok(Ok(Some(status))) => Ok(((200..300).contains(&status), format!("status {status}"))),
        Ok(Ok(None)) => Err("an answer that is not HTTP".to_owned()),
        Ok(Err(cause)) if cause.kind() == std::io::ErrorKind::ConnectionRefused => Err("connection refused".to_owned()),
        Ok(Err(cause)) => Err(cause.to_string()),
        Err(_) => Err(format!("no answer within {within:?}")),
    }
}

/// The status of an HTTP answer, whose head alone is read; `None` for what is no such answer.
async fn status(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Option<u16>> {
    let mut head = Vec::new();
    let mut limited = stream.take(HEAD as u64);
    loop {
        let read = limited.read_buf(&mut head).await?;
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut answer = httparse::Response::new(&mut headers);
        match answer.parse(&head) {
            // An interim answer (1xx) is followed by another.
            Ok(httparse::Status::Complete(length)) if answer.code.is_some_and(|code| code < 200) => {
                head.drain(..length);
            }
            Ok(httparse::Status::Complete(_)) => return Ok(answer.code),
            Ok(httparse::Status::Partial) if read > 0 => {}
            Ok(httparse::Status::Partial) | Err(_) => return Ok(None),
        }
    }
}

/// Whether a program ends with status 0.
async fn exec(words: &[String], process: &Asked, within: Duration) -> Result<(bool, String), String> {
    let cannot = |cause: &dyn std::error::Error| format!("cannot be started: {}", crate::chain(cause));
    let spawner = Spawner::shared().map_err(|cause| cannot(&cause))?;
    let port = process.port.to_string();
    let child = spawner.spawn(Spec {
        command: words.iter().map(|word| word.replace(PORT, &port)).collect(),
        env: vec![
            (PORT_VARIABLE.to_owned(), port.clone()),
            ("BROKERFALL_MEMBER".to_owned(), process.member.clone()),
        ],
        folder: None,
    });
    let mut program = Program {
        child: child.await.map_err(|cause| cannot(&cause))?,
        spawner,
    };
    let child = &mut program.child;
    drop(child.stdin.take());
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    // Nobody reads what it prints, and it must not block on that. What it started may hold its streams for longer.
    let drained = async {
        tokio::join!(drain(stdout), drain(stderr));
        std::future::pending().await
    };
    let ending = async {
        tokio::select! {
            status = child.wait() => status,
            status = drained => status,
        }
    };
    match timeout(within, ending).await {
        Ok(Ok(status)) => Ok((status.success(), status.to_string())),
        Ok(Err(cause)) => Err(cause.to_string()),
        Err(_) => Err(format!("no end within {within:?}")),
    }
}

async fn drain(stream: Option<impl AsyncRead + Unpin>) {
    if let Some(mut stream) = stream {
        // OK to ignore: a stream that breaks has nothing more to read.
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    }
}

/// A program that is asked. Dropping it kills what is left of it.
struct Program {
    child: Child,
    spawner: Spawner,
}

impl Drop for Program {
    fn drop(&mut self) {
        self.child.group.kill_all();
        self.spawner.forget(&self.child.group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn answered(answer: &str) -> Option<u16> {
        status(&mut answer.as_bytes()).await.unwrap()
    }

    #[tokio::test]
    async fn status_is_that_of_the_final_answer_and_nothing_else_is_one() {
        assert_eq!(answered("HTTP/1.1 204 No Content\r\n\r\n").await, Some(204));
        assert_eq!(answered("HTTP/1.0 503 \r\nA: b\r\n\r\nbody").await, Some(503));
        let interim = "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\n";
        assert_eq!(answered(interim).await, Some(200));
        for wrong in ["", "HTTP/1.1 200 OK\r\n", "SSH-2.0-x\r\n", "GET / HTTP/1.1\r\n\r\n"] {
            assert_eq!(answered(wrong).await, None, "{wrong:?}");
        }
        let endless = format!("HTTP/1.1 200 OK\r\nA: {}", "x".repeat(2 * HEAD));
        assert_eq!(answered(&endless).await, None);
    }
}
