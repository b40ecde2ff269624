//! The Rust side of adapter protocol v1: what a Rust adapter needs to speak it.
//!
//! ```text
//! stdin  -> one thread, ends the process at EOF -> command loop -> Reader (yours)
//! stdout <- one lock: seq, clock, batching <------ Sdk (clones) <- Reader's threads, heartbeat thread
//! stderr <- the client's log from INFO up, rate limited
//! ```
//!
//! An adapter implements [`Reader`] and gives [`run`] a function that builds one. It reports through its [`Sdk`] and
//! asserts nothing. Standard output is re-pointed to standard error before the library is touched, so that a library which
//! prints cannot break the protocol. Deliberately not here: any limit on [`Reader::stop`], because a library whose close
//! hangs must be seen to hang.

pub mod callbacks;
pub mod exceptions;
mod output;

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, mpsc};
use std::time::{Duration, Instant};

use brokerfall_report::exception::{Exception, Origin};
use brokerfall_report::protocol::{Command, Done, Heartbeat, Hello, ReaderEvent, Request, Start};
use rdkafka::config::RDKafkaLogLevel;

use callbacks::Callbacks;
use output::Output;

/// How often signs of life are sent.
const HEARTBEAT_EVERY: Duration = Duration::from_millis(250);
/// How often pending records and owed error counts are looked at.
const TICK: Duration = Duration::from_millis(50);
/// Most entries of a `snapshot_part`.
const SNAPSHOT_PART: usize = 1_000;
/// Client log lines written to stderr each second; the rest is counted.
const LOG_LINES_PER_S: u32 = 200;
/// How long `restart` waits for the old object to close before it builds the new one all the same.
const RESTART_GRACE: Duration = Duration::from_secs(3);

/// What the process does when a line cannot be written: the harness is gone, so nobody is left to read for.
const HARNESS_GONE: i32 = 0;

/// A reader object as the SDK drives it. Every method but `heartbeat` may block; none is called before it is built.
///
/// ```no_run
/// use std::{process::ExitCode, sync::Arc, time::Duration};
/// use brokerfall::reader::sdk::{Reader, Sdk, run};
/// use brokerfall_report::protocol::{Heartbeat, Hello, Kind, PROTOCOL};
///
/// struct Mine(Sdk); // and the library's own object, whose callback calls `Sdk::record`
///
/// impl Reader for Mine {
///     fn heartbeat(&self) -> Heartbeat {
///         Heartbeat { state: "running".into(), loop_age_ms: self.0.loop_age_ms(), ..Heartbeat::default() }
///     }
///     fn stop(&self, _grace: Duration) {
///         self.0.stopped("closed", None);
///     }
/// }
///
/// fn main() -> ExitCode {
///     let hello = Hello {
///         protocol: PROTOCOL,
///         library: "mine 1.0".into(),
///         client: "rdkafka 0.39".into(),
///         runtime: "rust 1.88".into(),
///         kinds: vec![Kind::Group],
///         capabilities: vec!["records.offsets".into(), "records.ids".into()],
///     };
///     run(hello, |_start, sdk| Ok(Arc::new(Mine(sdk))))
/// }
/// ```
pub trait Reader: Send + Sync {
    /// Signs of life. Must return at once, whatever the reading loop is stuck in.
    fn heartbeat(&self) -> Heartbeat;

    /// The whole table; `None` for readers without one.
    fn snapshot(&self) -> Option<Vec<(String, Option<u64>)>> {
        None
    }

    /// Whether everything written so far was applied within the time given; `None` for readers without a barrier.
    fn barrier(&self, _within: Duration) -> Option<bool> {
        None
    }

    /// Whether the initial end was reached within the time given; `None` for readers that do not say.
    fn wait_caught_up(&self, _within: Duration) -> Option<bool> {
        None
    }

    /// Commits the current position now; `None` for readers without a group.
    ///
    /// # Errors
    /// What the library raised, inside the `Some`.
    fn commit(&self) -> Option<Result<(), Box<Exception>>> {
        None
    }

    /// Closes the reader. Must return within `grace`.
    fn stop(&self, grace: Duration);
}

/// What an adapter reports through. Clones share one output; a handle whose reader was replaced is mute.
#[derive(Clone)]
pub struct Sdk {
    shared: Arc<Shared>,
    inc: u32,
}

struct Shared {
    origin: Instant,
    output: Mutex<Output>,
    /// When the reading loop last turned, microseconds from the origin; 0 when it never did.
    turned_us: AtomicU64,
    callbacks: Callbacks,
    /// Commands whose answer is still being waited for, and what `stop` answers in their place.
    outstanding: Mutex<BTreeMap<u64, Done>>,
    log: Mutex<LogBudget>,
}

#[derive(Default)]
struct LogBudget {
    second: u64,
    lines: u32,
    dropped: u64,
}

impl Shared {
    #[expect(
        clippy::disallowed_methods,
        reason = "an adapter stamps its own monotonic clock; the harness maps it"
    )]
    fn new(sink: Box<dyn Write + Send>) -> Arc<Self> {
        Arc::new(Self {
            origin: Instant::now(),
            output: Mutex::new(Output::new(sink)),
            turned_us: AtomicU64::new(0),
            callbacks: Callbacks::default(),
            outstanding: Mutex::default(),
            log: Mutex::new(LogBudget::default()),
        })
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Stamps and writes under one lock, so that `seq` and `mono_ms` rise together.
    fn write<T>(&self, write: impl FnOnce(&mut Output, f64) -> std::io::Result<T>) -> T {
        let mut output = self.output();
        let now_ms = ms(self.now_us());
        match write(&mut output, now_ms) {
            Ok(value) => value,
            Err(_) => std::process::exit(HARNESS_GONE),
        }
    }

    fn output(&self) -> MutexGuard<'_, Output> {
        // A panic while a line was being built leaves whole lines behind: it is written in one call.
        crate::lock(&self.output)
    }
}

fn ms(us: u64) -> f64 {
    us as f64 / 1_000.0
}

impl Sdk {
    /// Reports one record that was handed to the user; `id` is the harness's record id where the record holds one.
    pub fn record(&self, topic: &Arc<str>, partition: u32, offset: u64, id: Option<u64>) {
        self.when_current(|output, now_ms| output.record(now_ms, topic, partition, offset, id));
    }

    /// Sends the records that wait: to be called before each commit.
    pub fn flush(&self) {
        self.when_current(|output, now_ms| output.flush(now_ms));
    }

    /// Reports an event; the records read before it go first.
    pub fn event(&self, event: ReaderEvent) {
        self.when_current(|output, now_ms| output.event(now_ms, event));
    }

    /// Reports an error; equal ones are sent once and then counted.
    pub fn error(&self, origin: Origin, fatal: bool, exception: Box<Exception>) {
        self.when_current(|output, now_ms| output.error(now_ms, origin, fatal, exception));
    }

    /// Reports a change of the reader's public status.
    pub fn status(&self, state: &str, detail: &str) {
        self.event(ReaderEvent::Status {
            state: state.to_owned(),
            detail: detail.to_owned(),
        });
    }

    /// Reports that the reader has ended. Only the first call of an incarnation is sent.
    pub fn stopped(&self, reason: &str, exception: Option<Box<Exception>>) {
        self.when_current(|output, now_ms| output.stopped(now_ms, reason, exception));
    }

    /// Stamps that the reading loop turned.
    pub fn turned(&self) {
        self.shared
            .turned_us
            .store(self.shared.now_us().max(1), Ordering::Relaxed);
    }

    /// Milliseconds since the reading loop last turned; `None` before its first turn.
    pub fn loop_age_ms(&self) -> Option<f64> {
        match self.shared.turned_us.load(Ordering::Relaxed) {
            0 => None,
            turned => Some(ms(self.shared.now_us().saturating_sub(turned))),
        }
    }

    /// Milliseconds on the adapter's clock.
    pub fn now_ms(&self) -> f64 {
        ms(self.shared.now_us())
    }

    /// A line of the client's log. From INFO up it goes to stderr, rate limited; from WARNING up it is also reported, as
    /// an error of type `log:librdkafka`, which is all the type that a log line has.
    pub fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        if (level as i32) > (RDKafkaLogLevel::Info as i32) {
            return;
        }
        self.log_to_stderr(&format!("{level:?} {facility} {message}"));
        if (level as i32) <= (RDKafkaLogLevel::Warning as i32) {
            let mut exception = exceptions::plain("log:librdkafka", message);
            exception
                .attributes
                .insert("level".to_owned(), format!("{level:?}").into());
            exception.attributes.insert("facility".to_owned(), facility.into());
            self.error(Origin::Log, false, exception);
        }
    }

    fn log_to_stderr(&self, line: &str) {
        let now_us = self.shared.now_us();
        let mut budget = crate::lock(&self.shared.log);
        let mut dropped = 0;
        if budget.second != now_us / 1_000_000 {
            dropped = budget.dropped;
            *budget = LogBudget {
                second: now_us / 1_000_000,
                ..LogBudget::default()
            };
        }
        budget.lines += 1;
        if budget.lines > LOG_LINES_PER_S {
            budget.dropped += 1;
            return;
        }
        let mut stderr = std::io::stderr().lock();
        // OK to drop the results: a log that nobody takes must not end the reader.
        if dropped > 0 {
            let _ = writeln!(stderr, "({dropped} more lines of the client's log left out)");
        }
        let _ = writeln!(stderr, "{:.3} {line}", ms(now_us) / 1_000.0);
    }

    fn when_current(&self, write: impl FnOnce(&mut Output, f64) -> std::io::Result<()>) {
        self.shared.write(|output, now_ms| match output.inc() == self.inc {
            true => write(output, now_ms),
            false => Ok(()),
        });
    }
}

type Current = Arc<Mutex<Option<Arc<dyn Reader>>>>;

/// Speaks the protocol on stdin and stdout until `stop` or the end of stdin. `build` makes a reader object and lets it
/// read; it is called for `start` and for `restart`.
///
/// The process ends with status 0 when stdin ends, whatever the reader is doing, and with status 2 at a command that
/// cannot be understood.
pub fn run(hello: Hello, build: impl Fn(&Start, Sdk) -> Result<Arc<dyn Reader>, Box<Exception>>) -> ExitCode {
    let Ok(sink) = take_stdout() else {
        return ExitCode::FAILURE;
    };
    let shared = Shared::new(sink);
    shared.write(|output, now_ms| output.event(now_ms, ReaderEvent::Hello(hello)));
    let current: Current = Arc::default();
    spawn_heartbeat(shared.clone(), current.clone());
    let requests = spawn_stdin();
    let mut session = Session {
        shared,
        current,
        build,
        start: None,
    };
    while let Ok(request) = requests.recv() {
        if session.carry_out(request).is_break() {
            break;
        }
    }
    ExitCode::SUCCESS
}

/// Keeps the original stdout for events and points the name `stdout` at stderr.
fn take_stdout() -> nix::Result<Box<dyn Write + Send>> {
    let events = nix::unistd::dup(std::io::stdout())?;
    nix::unistd::dup2_stdout(std::io::stderr())?;
    Ok(Box::new(std::fs::File::from(events)))
}

fn spawn_stdin() -> mpsc::Receiver<Request> {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            match serde_json::from_str(&line) {
                Ok(request) => {
                    if send.send(request).is_err() {
                        return;
                    }
                }
                Err(cause) => {
                    let _ = writeln!(std::io::stderr(), "the harness sent a command that is none: {cause}");
                    std::process::exit(2);
                }
            }
        }
        // The harness has gone, or wants this process gone. Nothing may hold it up: not a close that hangs, not a lock.
        std::process::exit(HARNESS_GONE);
    });
    receive
}

fn spawn_heartbeat(shared: Arc<Shared>, current: Current) {
    std::thread::spawn(move || {
        let never = (Mutex::new(()), Condvar::new());
        let mut next_us = 0;
        loop {
            let now_us = shared.now_us();
            if now_us >= next_us {
                next_us = now_us + HEARTBEAT_EVERY.as_micros() as u64;
                let reader = crate::lock(&current).clone();
                let heartbeat = match reader {
                    Some(reader) => reader.heartbeat(),
                    None => Heartbeat {
                        state: "new".to_owned(),
                        ..Heartbeat::default()
                    },
                };
                shared.write(|output, now_ms| output.event(now_ms, ReaderEvent::Heartbeat(heartbeat)));
            }
            shared.write(Output::tick);
            let guard = crate::lock(&never.0);
            // OK to drop the result: nobody notifies; this is the pace of the heartbeat.
            let _ = never.1.wait_timeout_while(guard, TICK, |()| true);
        }
    });
}

struct Session<B> {
    shared: Arc<Shared>,
    current: Current,
    build: B,
    start: Option<Start>,
}

impl<B: Fn(&Start, Sdk) -> Result<Arc<dyn Reader>, Box<Exception>>> Session<B> {
    fn carry_out(&mut self, request: Request) -> std::ops::ControlFlow<()> {
        let id = request.id;
        let reader = self.reader();
        match (request.command, reader) {
            (Command::Start(start), None) => {
                let built = self.build(start);
                self.done(id, built);
            }
            (Command::Start(_), Some(_)) => self.done(id, Err(refused("start", "a reader was built already"))),
            (Command::ArmCallback(fault), _) => self.done(id, self.shared.callbacks.arm(fault)),
            (Command::Stop { grace_ms }, reader) => {
                if let Some(reader) = reader {
                    reader.stop(Duration::from_millis(grace_ms));
                }
                self.answer_outstanding();
                self.done(id, Ok(()));
                self.shared
                    .write(|output, now_ms| output.stopped(now_ms, "asked", None));
                return std::ops::ControlFlow::Break(());
            }
            (Command::Restart, Some(reader)) => {
                reader.stop(RESTART_GRACE);
                let built = match self.start.clone() {
                    Some(start) => self.build(start),
                    None => Err(refused("restart", "no reader was built")),
                };
                self.done(id, built);
            }
            (Command::Snapshot, Some(reader)) => {
                let entries = reader.snapshot();
                let answer = match entries {
                    Some(entries) => {
                        self.snapshot_parts(id, entries);
                        Ok(())
                    }
                    None => Err(refused("snapshot", "this kind of reader has no table")),
                };
                self.done(id, answer);
            }
            // These may block, and `stop` must be heard meanwhile.
            (Command::Barrier { timeout_ms }, Some(reader)) => {
                let within = Duration::from_millis(timeout_ms);
                self.answer_later(reached(id, "barrier", Some(false), 0.0), move |elapsed_ms| {
                    let answer = reader.barrier(within);
                    reached(id, "barrier", answer, elapsed_ms())
                });
            }
            (Command::WaitCaughtUp { timeout_ms }, Some(reader)) => {
                let within = Duration::from_millis(timeout_ms);
                self.answer_later(reached(id, "wait_caught_up", Some(false), 0.0), move |elapsed_ms| {
                    let answer = reader.wait_caught_up(within);
                    reached(id, "wait_caught_up", answer, elapsed_ms())
                });
            }
            (Command::Commit, Some(reader)) => {
                let ended = answer(id, Err(refused("commit", "the reader was stopped")));
                self.answer_later(ended, move |_| {
                    let no_group = || Err(refused("commit", "this kind of reader has no group"));
                    answer(id, reader.commit().unwrap_or_else(no_group))
                });
            }
            (command, None) => self.done(id, Err(refused(name(&command), "no reader was built"))),
        }
        std::ops::ControlFlow::Continue(())
    }

    fn reader(&self) -> Option<Arc<dyn Reader>> {
        crate::lock(&self.current).clone()
    }

    fn replace(&self, reader: Option<Arc<dyn Reader>>) -> Option<Arc<dyn Reader>> {
        let mut current = crate::lock(&self.current);
        std::mem::replace(&mut current, reader)
    }

    fn build(&mut self, start: Start) -> Result<(), Box<Exception>> {
        let inc = self.shared.write(Output::next_inc);
        self.shared.turned_us.store(0, Ordering::Relaxed);
        let sdk = Sdk {
            shared: self.shared.clone(),
            inc,
        };
        // Dropped outside the lock: the heartbeat must not wait for an old object that takes long to go.
        drop(self.replace(None));
        let reader = (self.build)(&start, sdk.clone())?;
        drop(self.replace(Some(reader)));
        self.start = Some(start);
        sdk.event(ReaderEvent::Started);
        Ok(())
    }

    fn snapshot_parts(&self, id: u64, entries: Vec<(String, Option<u64>)>) {
        let mut entries = entries.into_iter().peekable();
        loop {
            let part: Vec<_> = entries.by_ref().take(SNAPSHOT_PART).collect();
            let event = ReaderEvent::SnapshotPart { id, entries: part };
            self.shared.write(|output, now_ms| output.event(now_ms, event));
            if entries.peek().is_none() {
                return;
            }
        }
    }

    /// Answers from a thread of its own; a `stop` that comes first answers `ended` instead.
    fn answer_later(&self, ended: Done, ask: impl FnOnce(&dyn Fn() -> f64) -> Done + Send + 'static) {
        let id = ended.id;
        outstanding(&self.shared).insert(id, ended);
        let shared = self.shared.clone();
        std::thread::spawn(move || {
            let began_us = shared.now_us();
            let done = ask(&|| ms(shared.now_us() - began_us));
            // Written under the lock: `stop` must not end the process between the two.
            let mut outstanding = outstanding(&shared);
            if outstanding.remove(&id).is_some() {
                shared.write(|output, now_ms| output.event(now_ms, ReaderEvent::Done(done)));
            }
        });
    }

    fn answer_outstanding(&self) {
        let mut ended = outstanding(&self.shared);
        for done in std::mem::take(&mut *ended).into_values() {
            self.shared
                .write(|output, now_ms| output.event(now_ms, ReaderEvent::Done(done)));
        }
    }

    fn done(&self, id: u64, result: Result<(), Box<Exception>>) {
        let done = answer(id, result);
        self.shared
            .write(|output, now_ms| output.event(now_ms, ReaderEvent::Done(done)));
    }
}

fn outstanding(shared: &Shared) -> MutexGuard<'_, BTreeMap<u64, Done>> {
    // Nothing that can panic runs under the lock.
    crate::lock(&shared.outstanding)
}

fn answer(id: u64, result: Result<(), Box<Exception>>) -> Done {
    Done {
        id,
        ok: result.is_ok(),
        error: result.err().map(|exception| *exception),
        reached: None,
        elapsed_ms: None,
    }
}

fn reached(id: u64, command: &str, reached: Option<bool>, elapsed_ms: f64) -> Done {
    Done {
        id,
        ok: reached.is_some(),
        error: reached
            .is_none()
            .then(|| *refused(command, "this kind of reader has none")),
        reached,
        elapsed_ms: Some(elapsed_ms),
    }
}

fn refused(command: &str, why: &str) -> Box<Exception> {
    exceptions::plain("brokerfall::reader::sdk::Refused", &format!("cannot {command}: {why}"))
}

fn name(command: &Command) -> &'static str {
    match command {
        Command::Start(_) => "start",
        Command::Snapshot => "snapshot",
        Command::Barrier { .. } => "barrier",
        Command::WaitCaughtUp { .. } => "wait_caught_up",
        Command::ArmCallback(_) => "arm_callback",
        Command::Commit => "commit",
        Command::Restart => "restart",
        Command::Stop { .. } => "stop",
    }
}
