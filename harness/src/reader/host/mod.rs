//! The adapter host: runs a reader's process and reads its lines with distrust.
//!
//! ```text
//! ask --Request--> stdin task --> adapter --stdout--> lines -> validator -> clock -> history (Reader, ProtocolBroken)
//!                                    |  \--stderr--> stderr.log (head and tail)   \-> whoever waits for a `done`
//!                                    +--exit--> reap task -> history (Exited)
//!                 pulse task: silence in a running process -> history (ReaderBlocked)
//! ```
//!
//! The adapter is always drained: whatever it writes, it never blocks on us, and we never hold more than one line of it.
//! Deliberately not here: what an answer means (that is `invariant`) and the link's side of a reader's end.

mod clock;
mod lines;
mod pulse;
mod shared;
mod stderr;
mod tasks;

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use brokerfall_report::history::Event;
use brokerfall_report::protocol::{Command, Done, Hello};
use nix::sys::signal::Signal;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

use super::Launch;
use super::validate::name_of;
use crate::before_the_next_look;
use crate::history::recorder::Recorder;
use crate::process::{Group, SpawnError, Spawner, Spec};
use shared::Shared;

/// Longest wait for the kernel to carry out a signal. SIGKILL and SIGSTOP take about a millisecond; a process in an
/// uninterruptible disk wait takes as long as the disk.
const SIGNAL_WITHIN: Duration = Duration::from_secs(5);
/// How often `/proc` is looked at meanwhile.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// What `stop` may take above the library's own grace.
const STOP_MARGIN: Duration = Duration::from_secs(1);
/// Between SIGTERM and SIGKILL.
const TERM_MARGIN: Duration = Duration::from_secs(1);
/// Helpers that end with their parent's pipe get this long before they count as left over.
const SETTLE: Duration = Duration::from_millis(500);

/// A reader's process, running or ended. Dropping it kills what is left of it.
///
/// ```no_run
/// # use std::time::Duration;
/// # use brokerfall::history::recorder::Recorder;
/// # use brokerfall::reader::{Launch, host::{HostError, ReaderProcess}};
/// # async fn example(launch: &Launch, recorder: Recorder) -> Result<(), HostError> {
/// let reader = ReaderProcess::spawn(launch, "r1", "run/r1".as_ref(), recorder).await?;
/// let hello = reader.hello(Duration::from_secs(60)).await?;
/// println!("{} speaks", hello.library);
/// reader.shut_down(Duration::from_secs(10)).await;
/// # Ok(())
/// # }
/// ```
pub struct ReaderProcess {
    shared: Arc<Shared>,
    spawner: Spawner,
}

/// How a reader's process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// Exit status, unless a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// True when the harness asked for it.
    pub asked: bool,
    /// When it was reaped, microseconds since the run was opened.
    pub at_us: u64,
    /// The last lines of its stderr.
    pub stderr_tail: String,
}

impl Exit {
    /// `exited with status 3` or `was ended by SIGKILL`.
    pub fn text(&self) -> String {
        match (self.code, self.signal) {
            (Some(code), _) => format!("exited with status {code}"),
            (None, Some(signal)) => match Signal::try_from(signal) {
                Ok(name) => format!("was ended by {name}"),
                Err(_) => format!("was ended by signal {signal}"),
            },
            (None, None) => "ended, nobody knows how".to_owned(),
        }
    }
}

/// How a reader's process left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopped {
    /// From the stop command to the end of the process, milliseconds; absent when it had to be signalled, 0 when it had
    /// ended before it was asked.
    pub stopped_ms: Option<u64>,
    /// True when it had ended before it was asked.
    pub ended_before: bool,
    /// What was still there after it: `PID COMMAND LINE`, its group and whatever left the group. All killed by now.
    pub leftover: Vec<String>,
}

/// The answer to a command in hand.
pub struct Answer {
    shared: Arc<Shared>,
    what: &'static str,
    receiver: Option<oneshot::Receiver<Done>>,
    within: Duration,
    deadline: Instant,
}

impl ReaderProcess {
    /// Starts the process and returns at once; `hello` is awaited with [`ReaderProcess::hello`]. `folder`, which no other
    /// process of the run uses, takes its stderr (`stderr.log`) and whatever it writes after it broke the protocol
    /// (`stdout-broken.log`); it is also the working folder where the launch names none. Everything it reports goes
    /// into the history.
    ///
    /// # Errors
    /// [`HostError::Spawn`] when the program cannot be started, [`HostError::Io`] when the folder cannot be written.
    pub async fn spawn(
        launch: &Launch,
        member: &str,
        folder: &Path,
        recorder: Recorder,
    ) -> Result<ReaderProcess, HostError> {
        let refused = |source| HostError::Spawn {
            member: member.to_owned(),
            source,
        };
        let stderr = std::fs::create_dir_all(folder)
            .and_then(|()| stderr::Capped::create(&folder.join("stderr.log")))
            .map_err(|source| HostError::Io {
                what: format!("the folder {} of reader {member} cannot be written", folder.display()),
                source,
            })?;
        let spawner = Spawner::shared().map_err(refused)?;
        let spec = Spec {
            command: launch.command.clone(),
            env: launch.env.clone(),
            folder: Some(launch.folder.clone().unwrap_or_else(|| folder.to_owned())),
        };
        let child = spawner.spawn(spec).await.map_err(refused)?;
        recorder.record(Event::Spawned {
            member: member.to_owned(),
            pid: Some(child.group.pid()),
            command: launch.command.clone(),
            neutral: launch.neutral,
        });
        let shared = tasks::start(child, launch, member, folder, recorder, stderr);
        Ok(Self { shared, spawner })
    }

    /// The member's name.
    pub fn member(&self) -> &str {
        &self.shared.member
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.shared.group.pid()
    }

    /// Its process group, for the sampler.
    pub fn group(&self) -> Group {
        self.shared.group.clone()
    }

    /// Waits for the adapter to say who it is. Once said, it is answered at once.
    ///
    /// # Errors
    /// [`HostError::Exited`], [`HostError::Broken`] or [`HostError::TimedOut`], whatever comes first.
    pub async fn hello(&self, within: Duration) -> Result<Hello, HostError> {
        let mut life = self.shared.life.subscribe();
        let ready = life.wait_for(|life| life.hello.is_some() || life.broken.is_some() || life.exit.is_some());
        match timeout(within, ready).await {
            Ok(Ok(life)) => match &life.hello {
                Some(hello) => Ok(hello.clone()),
                None => Err(self.shared.gone(&life, "before `hello`")),
            },
            _ => Err(self.shared.timed_out("`hello`", within)),
        }
    }

    /// Sends a command and waits for its `done`. A `done` that says `ok: false` is an answer, not an error.
    ///
    /// # Errors
    /// [`HostError::Exited`], [`HostError::Broken`] or [`HostError::TimedOut`], whatever comes first. After a time-out
    /// the command stays in hand: a late `done` goes into the history.
    pub async fn ask(&self, command: Command, within: Duration) -> Result<Done, HostError> {
        self.ask_in_background(command, within).wait().await
    }

    /// Sends a command now; the answer is awaited when it suits, or never.
    pub fn ask_in_background(&self, command: Command, within: Duration) -> Answer {
        let what = name_of(&command);
        let (_, receiver) = self.shared.send(command, within);
        Answer {
            shared: self.shared.clone(),
            what,
            receiver,
            within,
            deadline: Instant::now() + within,
        }
    }

    /// Says that a topic has more partitions now: records of them are no broken rule from here on.
    pub fn partitions_added(&self, topic: &str, to: u32) {
        self.shared.lock().validator.partitions_added(topic, to);
    }

    /// Stops every process of the group in its tracks (SIGSTOP). Returns the proof: all are in state T.
    ///
    /// # Errors
    /// [`HostError::Exited`] when it ends first, [`HostError::NotProven`] when the kernel does not show it in time.
    pub async fn pause(&self) -> Result<String, HostError> {
        self.shared.lock().paused = true;
        let proven = self
            .prove("every process of its group in state T", || {
                self.shared.group.signal(Signal::SIGSTOP);
                let states = self.states();
                let stopped = !states.is_empty() && states.iter().all(|(_, state)| matches!(state, 'T' | 't'));
                (stopped, states)
            })
            .await;
        if proven.is_err() {
            self.shared.lock().paused = false;
        }
        proven
    }

    /// Lets a paused reader go on (SIGCONT). Returns the proof: none is in state T.
    ///
    /// # Errors
    /// [`HostError::Exited`] when it has ended, [`HostError::NotProven`] when the kernel does not show it in time.
    pub async fn resume(&self) -> Result<String, HostError> {
        // Before the signal: the first heartbeat afterwards still tells a loop age that spans the pause.
        let now_us = self.shared.recorder.now_us();
        self.shared.lock().pulse.resumed(now_us);
        let proven = self
            .prove("no process of its group in state T", || {
                self.shared.group.signal(Signal::SIGCONT);
                let states = self.states();
                let runs = !states.is_empty() && states.iter().all(|(_, state)| !matches!(state, 'T' | 't'));
                (runs, states)
            })
            .await;
        let mut state = self.shared.lock();
        state.paused = false;
        state.pulse.resumed(self.shared.recorder.now_us());
        drop(state);
        proven
    }

    /// Kills the whole group (SIGKILL) and whatever left it. Returns the proof: the process is reaped, nothing is left.
    ///
    /// # Errors
    /// [`HostError::NotProven`] when the kernel does not show it in time.
    pub async fn kill(&self) -> Result<String, HostError> {
        let before = self.exited();
        if let (Some(exit), true) = (&before, self.shared.lock().nothing_left) {
            return Ok(self.reaped(exit));
        }
        self.shared.lock().told_to_end = true;
        self.shared.group.kill_all();
        let exit = match before {
            Some(exit) => exit,
            None => self
                .exit_within(SIGNAL_WITHIN)
                .await
                .ok_or_else(|| self.not_proven("its exit", "it runs"))?,
        };
        let left = self.wait_until_alone(SIGNAL_WITHIN, true, &HashSet::new()).await;
        if let Some(first) = left.first() {
            return Err(self.not_proven("an empty process group", first));
        }
        self.spawner.forget(&self.shared.group);
        Ok(self.reaped(&exit))
    }

    fn reaped(&self, exit: &Exit) -> String {
        format!("process {} {} and is reaped", self.pid(), exit.text())
    }

    /// How it ended; `None` while it runs.
    pub fn exited(&self) -> Option<Exit> {
        self.shared.life.borrow().exit.clone()
    }

    /// Waits until it ends, however long that takes.
    pub async fn wait_exit(&self) -> Exit {
        let mut life = self.shared.life.subscribe();
        // The sender lives in `self`, so that waiting ends only with an exit.
        loop {
            if let Some(exit) = life.borrow_and_update().exit.clone() {
                return exit;
            }
            let _ = life.changed().await;
        }
    }

    /// Which rule of the protocol the adapter broke, if any.
    pub fn broken(&self) -> Option<String> {
        self.shared.life.borrow().broken.clone()
    }

    /// Ends the reader: `stop` with this grace, a second on top, SIGTERM, another second, SIGKILL. A paused reader is
    /// resumed first. Returns how it went; nothing of it is left then.
    pub async fn shut_down(&self, grace: Duration) -> Stopped {
        let ended_before = self.exited().is_some();
        let mut stopped_ms = ended_before.then_some(0);
        // Most of what the last look has to read is told apart here, while the reader stops.
        let mut others = HashSet::new();
        if !ended_before {
            self.shared.lock().told_to_end = true;
            if self.shared.lock().paused {
                // Should the proof fail, SIGKILL below ends a stopped process too.
                let _ = self.resume().await;
            }
            let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
            let asked_us = self.shared.recorder.now_us();
            self.shared.send(Command::Stop { grace_ms }, grace + STOP_MARGIN);
            others = self.shared.group.others();
            if let Some(exit) = self.exit_within(grace + STOP_MARGIN).await {
                stopped_ms = Some(exit.at_us.saturating_sub(asked_us) / 1_000);
            } else {
                self.shared.group.signal(Signal::SIGTERM);
                if self.exit_within(TERM_MARGIN).await.is_none() {
                    self.shared.group.signal(Signal::SIGKILL);
                    // Should even that not show, the group is named as left over.
                    let _ = self.exit_within(SIGNAL_WITHIN).await;
                }
            }
        }
        let leftover = self.wait_until_alone(SETTLE, false, &others).await;
        if !leftover.is_empty() {
            self.shared.group.kill_all();
            self.wait_until_alone(SIGNAL_WITHIN, true, &others).await;
        }
        self.spawner.forget(&self.shared.group);
        Stopped {
            stopped_ms,
            ended_before,
            leftover,
        }
    }

    async fn exit_within(&self, within: Duration) -> Option<Exit> {
        timeout(within, self.wait_exit()).await.ok()
    }

    /// Waits until nothing of it is left; returns what is after `within`.
    async fn wait_until_alone(&self, within: Duration, kill: bool, others: &HashSet<u32>) -> Vec<String> {
        let deadline = Instant::now() + within;
        loop {
            let left = self.shared.group.left_beside(others);
            if left.is_empty() && self.exited().is_some() {
                self.shared.lock().nothing_left = true;
            }
            if left.is_empty() || Instant::now() >= deadline {
                return left.iter().map(ToString::to_string).collect();
            }
            if kill {
                self.shared.group.kill_all();
            }
            before_the_next_look(LOOK_AGAIN).await;
        }
    }

    fn states(&self) -> Vec<(u32, char)> {
        let members = self.shared.group.members();
        members.into_iter().map(|stat| (stat.pid, stat.state)).collect()
    }

    async fn prove(&self, what: &str, mut look: impl FnMut() -> (bool, Vec<(u32, char)>)) -> Result<String, HostError> {
        let deadline = Instant::now() + SIGNAL_WITHIN;
        let mut looks = tokio::time::interval(LOOK_AGAIN);
        loop {
            looks.tick().await;
            let life = self.shared.life.borrow().clone();
            if life.exit.is_some() {
                return Err(self.shared.exited_error(&life, ""));
            }
            let (proven, states) = look();
            let shown: Vec<_> = states.iter().map(|(pid, state)| format!("{pid} {state}")).collect();
            if proven {
                return Ok(format!("{what}: {}", shown.join(", ")));
            }
            if Instant::now() >= deadline {
                return Err(self.not_proven(what, &shown.join(", ")));
            }
        }
    }

    fn not_proven(&self, wanted: &str, last_seen: &str) -> HostError {
        HostError::NotProven {
            member: self.shared.member.clone(),
            wanted: wanted.to_owned(),
            last_seen: last_seen.to_owned(),
        }
    }
}

impl Drop for ReaderProcess {
    fn drop(&mut self) {
        if self.shared.life.borrow().exit.is_none() {
            self.shared.lock().told_to_end = true;
            self.shared.group.kill_all();
        }
    }
}

impl Answer {
    /// Waits for the `done`.
    ///
    /// # Errors
    /// As [`ReaderProcess::ask`].
    pub async fn wait(self) -> Result<Done, HostError> {
        let mut life = self.shared.life.subscribe();
        let Some(receiver) = self.receiver else {
            return Err(self.shared.gone(&life.borrow(), "before it was asked"));
        };
        let answered = async {
            tokio::select! {
                // An answer that came before the end counts.
                biased;
                Ok(done) = receiver => Ok(done),
                Ok(life) = life.wait_for(|life| life.broken.is_some() || life.exit.is_some()) => {
                    Err(self.shared.gone(&life, &format!("before it answered `{}`", self.what)))
                }
                else => Err(self.shared.timed_out(&format!("the answer to `{}`", self.what), self.within)),
            }
        };
        match timeout_at(self.deadline, answered).await {
            Ok(answer) => answer,
            Err(_) => Err(self
                .shared
                .timed_out(&format!("the answer to `{}`", self.what), self.within)),
        }
    }
}

/// Why a reader's process did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// It ended first.
    #[error("reader {member} ended: {text}")]
    Exited {
        /// Member.
        member: String,
        /// Exit status and the last lines of its stderr.
        text: String,
    },
    /// It did not answer in time.
    #[error("reader {member} did not send {what} within {within:?} (its stderr is in the run's folder)")]
    TimedOut {
        /// Member.
        member: String,
        /// What was awaited.
        what: String,
        /// How long.
        within: Duration,
    },
    /// Its adapter broke the protocol, now or before: nothing that it says is believed any more.
    #[error("the adapter of reader {member} broke the protocol: {text}")]
    Broken {
        /// Member.
        member: String,
        /// Which rule, and how.
        text: String,
    },
    /// It could not be started.
    #[error("reader {member} cannot be started")]
    Spawn {
        /// Member.
        member: String,
        /// Why.
        #[source]
        source: SpawnError,
    },
    /// A signal was sent, but what it does was not seen.
    #[error("reader {member}: {wanted} was not seen within 5s (last seen: {last_seen})")]
    NotProven {
        /// Member.
        member: String,
        /// What was to be seen.
        wanted: String,
        /// What was seen last.
        last_seen: String,
    },
    /// The operating system refused.
    #[error("{what}")]
    Io {
        /// What was being done.
        what: String,
        /// Its answer.
        #[source]
        source: std::io::Error,
    },
}
