//! The tasks of one reader's process: stdin, stdout, stderr, its end, its pulse.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use brokerfall_report::history::Event;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::Exit;
use super::clock::Clock;
use super::lines::{Lines, Piece};
use super::pulse::Pulse;
use super::shared::{Life, Shared, State};
use super::stderr::Capped;
use crate::history::recorder::Recorder;
use crate::lock;
use crate::process::Child;
use crate::reader::Launch;
use crate::reader::validate::{Broken, Validator, too_long};

/// A pipe holds 64 KiB.
const CHUNK: usize = 64 * 1024;
/// How long the pipes of a process that has ended may still be open: a grandchild can hold them for ever.
const DRAIN: Duration = Duration::from_millis(500);
/// How long a process may run on after it closed its stdout. Interpreters close it before their last clean-up.
const SILENT_END: Duration = Duration::from_secs(2);
/// How often the pulse is looked at.
const LOOK: Duration = Duration::from_millis(250);
/// A look that comes later than this says nothing: heartbeats may be waiting in the pipe, unread.
const LATE_LOOK_US: u64 = 500_000;
/// How much is kept of what an adapter writes after it broke the protocol.
const KEPT_BROKEN: usize = 1 << 20;

/// Starts the tasks of a child and returns what they share.
pub(super) fn start(
    mut child: Child,
    launch: &Launch,
    member: &str,
    folder: &Path,
    recorder: Recorder,
    stderr: Capped,
) -> Arc<Shared> {
    let (stdin, outbox) = mpsc::unbounded_channel();
    let shared = Arc::new(Shared {
        member: member.to_owned(),
        command: launch.command.join(" "),
        folder: folder.to_owned(),
        recorder,
        group: child.group.clone(),
        stdin,
        life: watch::Sender::new(Life::default()),
        stderr: Mutex::new(stderr),
        state: Mutex::new(State {
            validator: Validator::new(launch.info.kind),
            clock: Clock::default(),
            pulse: Pulse::default(),
            last_id: 0,
            waiting: BTreeMap::new(),
            paused: false,
            told_to_end: false,
            nothing_left: false,
            said_stopped: false,
        }),
    });
    if let Some(pipe) = child.stdin.take() {
        tokio::spawn(write_stdin(pipe, outbox));
    }
    let stdout = child
        .stdout
        .take()
        .map(|pipe| tokio::spawn(read_stdout(pipe, shared.clone())));
    let stderr = child
        .stderr
        .take()
        .map(|pipe| tokio::spawn(read_stderr(pipe, shared.clone())));
    tokio::spawn(reap(child, shared.clone(), stdout, stderr));
    tokio::spawn(watch_pulse(shared.clone()));
    shared
}

async fn write_stdin(mut pipe: ChildStdin, mut outbox: mpsc::UnboundedReceiver<Vec<u8>>) {
    while let Some(line) = outbox.recv().await {
        // An error means that the adapter closed its stdin; answers that fail to come say so.
        if pipe.write_all(&line).await.is_err() {
            return;
        }
    }
}

async fn read_stdout(mut pipe: ChildStdout, shared: Arc<Shared>) {
    let mut lines = Lines::default();
    let mut kept: Option<Kept> = None;
    let mut chunk = vec![0; CHUNK];
    // An error reads like an end: the pipe is gone.
    while let Ok(length @ 1..) = pipe.read(&mut chunk).await {
        if let Some(kept) = kept.as_mut() {
            kept.push(&chunk[..length]);
            continue;
        }
        // Once `Exited` stands in the history, only a grandchild can still be writing.
        if shared.life.borrow().exit.is_some() {
            continue;
        }
        lines.feed(&chunk[..length], |piece| {
            let bytes = match piece {
                Piece::Line(bytes) | Piece::TooLong(bytes) => bytes,
            };
            if let Some(kept) = kept.as_mut() {
                kept.push(bytes);
                kept.push(b"\n");
                return;
            }
            let good = match piece {
                Piece::Line(bytes) => shared.take(bytes),
                Piece::TooLong(bytes) => {
                    shared.break_protocol(Broken::new(too_long(), bytes));
                    false
                }
            };
            if !good {
                let mut rest = Kept::create(&shared.folder.join("stdout-broken.log"));
                rest.push(bytes);
                rest.push(b"\n");
                kept = Some(rest);
            }
        });
    }
    tokio::spawn(expect_end(shared));
}

/// A process that closes its stdout and lives can never report again.
async fn expect_end(shared: Arc<Shared>) {
    let mut life = shared.life.subscribe();
    if timeout(SILENT_END, life.wait_for(|life| life.exit.is_some()))
        .await
        .is_ok()
    {
        return;
    }
    let state = shared.lock();
    let excused = state.told_to_end || state.said_stopped || state.paused;
    drop(state);
    if !excused {
        shared.break_protocol(Broken::new("the adapter closed its stdout but runs on", b""));
    }
}

async fn read_stderr(mut pipe: ChildStderr, shared: Arc<Shared>) {
    let mut chunk = vec![0; CHUNK];
    while let Ok(length @ 1..) = pipe.read(&mut chunk).await {
        lock(&shared.stderr).push(&chunk[..length]);
    }
}

async fn reap(mut child: Child, shared: Arc<Shared>, stdout: Option<JoinHandle<()>>, stderr: Option<JoinHandle<()>>) {
    let status = child.wait().await;
    let at_us = shared.recorder.now_us();
    // Before the pipes are drained: what is asked of a process that has ended no longer ends it.
    let asked = shared.lock().told_to_end;
    let drained = async {
        for pipe in [stdout, stderr].into_iter().flatten() {
            // An error is a panic of the task, which the runtime has already reported.
            let _ = pipe.await;
        }
    };
    // After a time-out the tasks go on draining whoever holds the pipes.
    let _ = timeout(DRAIN, drained).await;
    let stderr_tail = {
        let mut stderr = lock(&shared.stderr);
        stderr.finish();
        stderr.tail_lines()
    };
    let exit = Exit {
        code: status.as_ref().ok().and_then(std::process::ExitStatus::code),
        signal: status.as_ref().ok().and_then(ExitStatusExt::signal),
        asked,
        at_us,
        stderr_tail,
    };
    shared.recorder.record(Event::Exited {
        member: shared.member.clone(),
        code: exit.code,
        signal: exit.signal,
        asked: exit.asked,
        stderr_tail: exit.stderr_tail.clone(),
    });
    shared.life.send_modify(|life| life.exit = Some(exit));
}

async fn watch_pulse(shared: Arc<Shared>) {
    let mut life = shared.life.subscribe();
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last_us = shared.recorder.now_us();
    loop {
        tokio::select! {
            _ = looks.tick() => {}
            _ = life.wait_for(|life| life.exit.is_some() || life.broken.is_some()) => return,
        }
        let now_us = shared.recorder.now_us();
        let late = now_us.saturating_sub(last_us) > LATE_LOOK_US;
        last_us = now_us;
        let mut state = shared.lock();
        if late || state.paused || state.told_to_end || state.said_stopped {
            continue;
        }
        let runs = || !shared.group.members().iter().any(|stat| stat.is_stopped());
        if let Some(change) = state.pulse.look(now_us, runs) {
            shared.record_change(change);
        }
    }
}

/// What an adapter writes after it broke the protocol, as far as it is kept.
struct Kept {
    file: Option<std::fs::File>,
    left: usize,
}

impl Kept {
    fn create(path: &Path) -> Self {
        Self {
            // Without the file the broken rule and the start of its line still stand in the history.
            file: std::fs::File::create(path).ok(),
            left: KEPT_BROKEN,
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(self.left)];
        self.left -= bytes.len();
        if let Some(file) = self.file.as_mut()
            && file.write_all(bytes).is_err()
        {
            self.file = None;
        }
        if self.left == 0 {
            self.file = None;
        }
    }
}
