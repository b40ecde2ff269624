//! What the tasks of one reader's process share.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use brokerfall_report::history::Event;
use brokerfall_report::protocol::{Command, Done, Hello, Line, ReaderEvent, Request};
use tokio::sync::{mpsc, oneshot, watch};

use super::clock::Clock;
use super::pulse::{Change, Pulse};
use super::stderr::Capped;
use super::{Exit, HostError};
use crate::history::recorder::Recorder;
use crate::process::Group;
use crate::reader::validate::{Broken, Validator, name_of};

/// How much of an offending line an error shows.
const SHOWN_CHARS: usize = 80;

/// One reader's process, as its tasks see it.
pub(super) struct Shared {
    pub(super) member: String,
    /// The command line, for errors.
    pub(super) command: String,
    pub(super) folder: PathBuf,
    pub(super) recorder: Recorder,
    pub(super) group: Group,
    pub(super) stdin: mpsc::UnboundedSender<Vec<u8>>,
    pub(super) life: watch::Sender<Life>,
    pub(super) stderr: Mutex<Capped>,
    pub(super) state: Mutex<State>,
}

/// What others wait for.
#[derive(Debug, Clone, Default)]
pub(super) struct Life {
    pub(super) hello: Option<Hello>,
    pub(super) broken: Option<String>,
    pub(super) exit: Option<Exit>,
}

/// What changes with every line.
pub(super) struct State {
    pub(super) validator: Validator,
    pub(super) clock: Clock,
    pub(super) pulse: Pulse,
    pub(super) last_id: u64,
    pub(super) waiting: BTreeMap<u64, oneshot::Sender<Done>>,
    /// Stopped by us.
    pub(super) paused: bool,
    /// Asked to end, by command or signal.
    pub(super) told_to_end: bool,
    /// It is reaped, and no process of it was left at the last look: none can come any more.
    pub(super) nothing_left: bool,
    /// It has said `stopped`, and not `started` since.
    pub(super) said_stopped: bool,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        crate::lock(&self.state)
    }

    /// Sends a command. Without a receiver it was not sent: the adapter is gone or broken.
    pub(super) fn send(&self, command: Command, within: Duration) -> (u64, Option<oneshot::Receiver<Done>>) {
        let mut state = self.lock();
        let life = self.life.borrow().clone();
        let is_stop = matches!(command, Command::Stop { .. });
        // `stop` goes out even to an adapter that is not believed any more: it may still close its reader in order.
        if life.exit.is_some() || (life.broken.is_some() && !is_stop) {
            return (state.last_id, None);
        }
        state.last_id += 1;
        let id = state.last_id;
        state.validator.asked(id, &command);
        self.recorder.record(Event::Asked {
            member: self.member.clone(),
            id,
            command: name_of(&command).to_owned(),
            within_ms: u64::try_from(within.as_millis()).unwrap_or(u64::MAX),
        });
        let (sender, receiver) = oneshot::channel();
        state.waiting.insert(id, sender);
        // OK because a command is plain data with string keys, which JSON can always hold.
        let mut line = serde_json::to_vec(&Request { id, command }).expect("a command is JSON");
        line.push(b'\n');
        // An error means that the adapter closed its stdin; then the answer will be missed, which says so.
        let _ = self.stdin.send(line);
        (id, Some(receiver))
    }

    /// Takes one line from the adapter. False when nothing is to be believed from here on.
    pub(super) fn take(&self, bytes: &[u8]) -> bool {
        let received_us = self.recorder.now_us();
        let mut state = self.lock();
        let line = match state.validator.line(bytes, received_us) {
            Ok(line) => line,
            Err(broken) => {
                drop(state);
                self.break_protocol(broken);
                return false;
            }
        };
        let Line {
            inc, mono_ms, event, ..
        } = line;
        let reader_us = state.clock.map(inc, mono_ms, received_us);
        let mut change = None;
        let mut hello = None;
        let mut done = None;
        match &event {
            ReaderEvent::Hello(said) => {
                state.pulse.hello(received_us);
                hello = Some(said.clone());
            }
            ReaderEvent::Started => {
                state.said_stopped = false;
                state.pulse.reading(true);
            }
            ReaderEvent::Stopped { .. } => {
                state.said_stopped = true;
                state.pulse.reading(false);
            }
            ReaderEvent::Heartbeat(beat) => change = state.pulse.beat(received_us, beat.loop_age_ms),
            ReaderEvent::Done(said) => {
                done = state.waiting.remove(&said.id).map(|sender| (sender, said.clone()));
            }
            _ => {}
        }
        self.recorder.record(Event::Reader {
            member: self.member.clone(),
            inc,
            reader_us,
            event,
        });
        if let Some(change) = change {
            self.record_change(change);
        }
        drop(state);
        // After the record, so that whoever waits finds it in the history.
        if let Some(hello) = hello {
            self.life.send_modify(|life| life.hello = Some(hello));
        }
        if let Some((sender, done)) = done {
            // An error means that nobody waits any more: the answer is late, and in the history.
            let _ = sender.send(done);
        }
        true
    }

    pub(super) fn record_change(&self, change: Change) {
        let member = self.member.clone();
        self.recorder.record(match change {
            Change::Blocked(since_us) => Event::ReaderBlocked { member, since_us },
            Change::Unblocked => Event::ReaderUnblocked { member },
        });
    }

    /// Records the first broken rule; what comes later is a consequence.
    pub(super) fn break_protocol(&self, broken: Broken) {
        let Broken { text, line } = broken;
        let first = self.life.borrow().broken.is_none() && self.life.borrow().exit.is_none();
        if first {
            // Escaped and short: it is somebody else's text and ends up on a terminal.
            let shown: String = line.chars().take(SHOWN_CHARS).collect();
            let told = if shown.is_empty() {
                text.clone()
            } else {
                format!("{text}: {shown:?}")
            };
            self.recorder.record(Event::ProtocolBroken {
                member: self.member.clone(),
                text,
                line,
            });
            self.life.send_modify(|life| life.broken = Some(told));
        }
    }

    /// The error for a process that is broken or ended.
    pub(super) fn gone(&self, life: &Life, when: &str) -> HostError {
        match &life.broken {
            Some(text) => HostError::Broken {
                member: self.member.clone(),
                text: text.clone(),
            },
            None => self.exited_error(life, when),
        }
    }

    pub(super) fn exited_error(&self, life: &Life, when: &str) -> HostError {
        let (how, tail) = match &life.exit {
            Some(exit) => (exit.text(), exit.stderr_tail.as_str()),
            None => ("runs".to_owned(), ""),
        };
        let mut text = format!("`{}` {how}", self.command);
        if !when.is_empty() {
            text.push(' ');
            text.push_str(when);
        }
        if tail.is_empty() {
            text.push_str(" (it wrote nothing on stderr)");
        } else {
            text.push_str(" (the last lines of its stderr follow)\n");
            text.push_str(tail);
        }
        HostError::Exited {
            member: self.member.clone(),
            text,
        }
    }

    pub(super) fn timed_out(&self, what: &str, within: Duration) -> HostError {
        HostError::TimedOut {
            member: self.member.clone(),
            what: what.to_owned(),
            within,
        }
    }
}
