//! What every bundled reader has: a state that is honest, a supervised reading thread, callbacks kept apart from it.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brokerfall_report::exception::{Exception, Origin};
use brokerfall_report::protocol::{Callback, Claims, Heartbeat, Position, Start};
use rdkafka::consumer::Consumer;
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers, Message};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::client::{self, Backoff, Client, POLL, Remedy};
use super::hooks::{Hooks, Record};
use super::policy::{CallbackFailure, OutOfRange, Policy};
use super::table::View;
use crate::reader::sdk::{Sdk, exceptions};

/// A reading loop that has not turned for this long is not healthy, milliseconds.
const HEALTHY_LOOP_MS: f64 = 5_000.0;

/// The header that holds a record's id, tombstones included.
const ID_HEADER: &str = "bf-id";

/// Where a reader stands; the words are its public status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Starting,
    CatchingUp,
    CaughtUp,
    Running,
    Failed,
    Stopped,
}

/// A topic and partition as the readers key it.
pub(super) type Place = (Arc<str>, u32);

/// What a reader knows of one of its partitions.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress {
    /// Next offset to read; absent until it is found.
    pub(super) next: Option<u64>,
    /// By-hand readers: the log end that they want to reach.
    pub(super) target: u64,
    /// `next` moved since the last commit was sent, or since the table was last stored.
    pub(super) dirty: bool,
    /// Stored tables: where the content that was restored goes on, until it was compared with the log.
    pub(super) stored: Option<u64>,
}

/// Everything that the reading thread and the others share. Its lock is never held while a callback or the client runs.
pub(super) struct State {
    pub(super) status: Status,
    pub(super) partitions: BTreeMap<Place, Progress>,
    pub(super) view: Option<View>,
    pub(super) callback_errors: u64,
    pub(super) stopping: bool,
    pub(super) closed: bool,
    pub(super) last_error: Option<Box<Exception>>,
    pub(super) last_commit_ms: Option<f64>,
    pub(super) client: Option<Arc<Client>>,
}

/// The part that all kinds share.
pub(super) struct Core {
    pub(super) sdk: Sdk,
    pub(super) start: Start,
    pub(super) policy: Policy,
    pub(super) hooks: Arc<dyn Hooks>,
    topics: Vec<Arc<str>>,
    state: Mutex<State>,
    changed: Condvar,
}

/// How a session with one client ended.
pub(super) enum End {
    /// `stop` asked for it.
    Asked,
    /// The reader has ended and has said so.
    Said,
    /// It ended without a word. Only mutants and teaching readers do.
    Silent,
    /// The client is beyond use; a new one takes over at the same positions.
    Rebuild(Box<Exception>),
}

impl Core {
    pub(super) fn new(start: &Start, policy: Policy, hooks: Arc<dyn Hooks>, sdk: Sdk, view: Option<View>) -> Self {
        Self {
            sdk,
            policy,
            hooks,
            topics: start.topics.iter().map(|topic| topic.name.as_str().into()).collect(),
            start: start.clone(),
            state: Mutex::new(State {
                status: Status::Starting,
                partitions: BTreeMap::new(),
                view,
                callback_errors: 0,
                stopping: false,
                closed: false,
                last_error: None,
                last_commit_ms: None,
                client: None,
            }),
            changed: Condvar::new(),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes whoever waits for the state to change.
    pub(super) fn notify(&self) {
        self.changed.notify_all();
    }

    /// Waits until `look` finds what it looks for, at most `within`.
    pub(super) fn wait<T>(&self, within: Duration, mut look: impl FnMut(&mut State) -> Option<T>) -> Option<T> {
        let mut found = None;
        let guard = self.state();
        // OK to drop the result: whether it was found says all.
        let _ = self.changed.wait_timeout_while(guard, within, |state| {
            found = look(state);
            found.is_none()
        });
        found
    }

    /// Runs sessions until one ends for good: backoff with jitter between them, panics of our own included.
    pub(super) fn supervise(
        &self,
        first: Client,
        connect: impl Fn() -> Result<Client, Box<Exception>>,
        session: impl Fn(&Arc<Client>) -> End,
    ) {
        let mut backoff = Backoff::new();
        let mut client = Some(Arc::new(first));
        loop {
            let end = match client.take() {
                Some(client) => {
                    self.state().client = Some(client.clone());
                    let began_ms = self.sdk.now_ms();
                    let end = catch_unwind(AssertUnwindSafe(|| session(&client)))
                        .unwrap_or_else(|payload| End::Rebuild(exceptions::panic(payload.as_ref())));
                    self.state().client = None;
                    if self.sdk.now_ms() - began_ms > 10_000.0 {
                        backoff.reset();
                    }
                    end
                    // The client is closed here, before a new one is made: a group member must leave first.
                }
                None => match connect() {
                    Ok(made) => {
                        client = Some(Arc::new(made));
                        continue;
                    }
                    Err(exception) => End::Rebuild(exception),
                },
            };
            match end {
                End::Asked | End::Said | End::Silent => break,
                End::Rebuild(exception) => {
                    self.sdk.error(Origin::Background, false, exception);
                    self.sdk.turned();
                    if self
                        .wait(backoff.next(), |state| state.stopping.then_some(()))
                        .is_some()
                    {
                        break;
                    }
                    self.sdk.turned();
                }
            }
        }
        self.state().closed = true;
        self.notify();
    }

    /// Asks the reading thread to close, and waits for it at most 80 % of the grace: closing a client whose broker is
    /// half open can take as long as its socket timeout, and the process ends the connections anyway.
    pub(super) fn stop(&self, grace: Duration) {
        self.hooks.stopping();
        self.state().stopping = true;
        self.notify();
        let within = grace.mul_f64(0.8).min(Duration::from_secs(3));
        let closed = self.wait(within, |state| state.closed.then_some(())).is_some();
        {
            let mut state = self.state();
            if state.status == Status::Failed {
                return;
            }
            state.status = Status::Stopped;
        }
        let detail = if closed {
            ""
        } else {
            "the client's own close still runs"
        };
        self.sdk.status(self.word(), detail);
    }

    /// Ends the reader honestly: status, the exception, and nothing claimed afterwards.
    pub(super) fn fail(&self, origin: Origin, exception: Box<Exception>) -> End {
        self.state().status = Status::Failed;
        self.notify();
        self.sdk.status("failed", &exception.label());
        self.sdk.error(origin, true, exception.clone());
        self.sdk.stopped("failed", Some(exception));
        End::Said
    }

    /// What a mutant does: says that it has ended, and not why.
    pub(super) fn end_untyped(&self) -> End {
        self.state().status = Status::Failed;
        self.notify();
        self.sdk.status("failed", "");
        self.sdk.stopped("failed", None);
        End::Said
    }

    /// Reports an error that does not end the reader.
    pub(super) fn met(&self, origin: Origin, exception: Box<Exception>) {
        self.state().last_error = Some(exception.clone());
        if self.hooks.tells_caller() {
            self.sdk.error(origin, false, exception);
        }
        self.hooks.met_error();
    }

    /// Polls once and delivers what came. The exception of an `Ok` says that a position must be found anew; `waits` is
    /// told of an error that the client recovers from by itself.
    ///
    /// # Errors
    /// The end of the session.
    pub(super) fn poll(
        &self,
        client: &Client,
        mut pass: impl FnMut(&Record) -> Result<(), Box<Exception>>,
        waits: impl FnOnce(&KafkaError),
    ) -> Result<Option<Box<Exception>>, End> {
        let error = match client.poll(POLL) {
            None => {
                self.pass_markers(client);
                return Ok(None);
            }
            Some(Ok(message)) => {
                let mut failure = None;
                let mut pass = |record| {
                    if failure.is_none() {
                        failure = pass(&record).err();
                    }
                };
                self.hooks.deliver(self.record(&message), &mut pass);
                return match failure {
                    None => Ok(None),
                    Some(exception) => Err(self.fail(Origin::Callback, exception)),
                };
            }
            Some(Err(error)) => error,
        };
        let exception = client.context().exception(&error);
        match client::remedy(&error) {
            Remedy::Wait => {
                waits(&error);
                self.met(Origin::Poll, exception);
                Ok(None)
            }
            Remedy::Relocate => Ok(Some(exception)),
            Remedy::Rebuild => Err(End::Rebuild(exception)),
            Remedy::End => Err(self.fail(Origin::Poll, exception)),
        }
    }

    /// Moves positions past what stands in the log and is no record for this reader: markers of transactions, and records of
    /// one that was aborted. The client passes them without a word, and a log that ends in one would never be read to its end.
    fn pass_markers(&self, client: &Client) {
        // OK without: it is asked again when the next poll brings nothing.
        let Ok(passed) = client.position() else { return };
        let mut moved = false;
        {
            let mut state = self.state();
            for element in passed.elements() {
                let Offset::Offset(offset) = element.offset() else {
                    continue;
                };
                let place = self.place(element.topic(), element.partition());
                let Some(progress) = state.partitions.get_mut(&place) else {
                    continue;
                };
                let passed = offset.max(0).unsigned_abs();
                if progress.next.is_some_and(|next| next < passed) {
                    progress.next = Some(passed);
                    progress.dirty = true;
                    moved = true;
                }
            }
        }
        if moved {
            self.notify();
        }
    }

    /// The status as a word.
    pub(super) fn word(&self) -> &'static str {
        let recovering = self.policy.out_of_range == OutOfRange::JumpToEnd;
        match self.state().status {
            Status::Starting => "starting",
            Status::CatchingUp if recovering => "recovering",
            Status::CatchingUp => "catching_up",
            Status::CaughtUp => "caught_up",
            Status::Running => "running",
            Status::Failed => "failed",
            Status::Stopped => "stopped",
        }
    }

    /// Signs of life that are true of every kind.
    pub(super) fn heartbeat(&self) -> Heartbeat {
        let word = self.word();
        let loop_age_ms = self.sdk.loop_age_ms();
        let now_ms = self.sdk.now_ms();
        let state = self.state();
        let turning = loop_age_ms.is_some_and(|age| age < HEALTHY_LOOP_MS);
        let reading = matches!(state.status, Status::CatchingUp | Status::CaughtUp | Status::Running);
        let positions = state
            .partitions
            .iter()
            .filter_map(|((topic, partition), progress)| {
                Some(Position {
                    topic: topic.to_string(),
                    partition: *partition,
                    offset: progress.next?,
                })
            })
            .collect();
        let mut heartbeat = Heartbeat {
            state: word.to_owned(),
            positions: Some(positions),
            loop_age_ms,
            last_poll_age_ms: loop_age_ms,
            last_commit_age_ms: state.last_commit_ms.map(|at| now_ms - at),
            claims: Claims {
                caught_up: None,
                healthy: Some(turning && reading),
                lag: None,
            },
            counters: BTreeMap::from([("callback_errors".to_owned(), state.callback_errors as f64)]),
        };
        if state.partitions.values().any(|progress| progress.target > 0) || state.view.is_some() {
            heartbeat.claims.caught_up = Some(state.status == Status::CaughtUp);
        }
        if self.policy.out_of_range == OutOfRange::JumpToEnd {
            // Incident 2 had no health check to ask: all that it said was that it recovers.
            heartbeat.claims.healthy = None;
        }
        drop(state);
        self.hooks.heartbeat(&mut heartbeat);
        heartbeat
    }

    /// Calls the user's callback. When it fails: isolated, it is counted and reported, and reading goes on.
    ///
    /// # Errors
    /// The failure, where the policy lets it through.
    pub(super) fn call(&self, callback: Callback, record: &Record) -> Result<(), Box<Exception>> {
        let Err(exception) = self.sdk.call(callback, record.key.as_deref(), record.offset) else {
            return Ok(());
        };
        match self.policy.callback_failure {
            CallbackFailure::Isolated => {
                self.state().callback_errors += self.hooks.callback_errors_per_failure();
                self.sdk.error(Origin::Callback, false, exception);
                Ok(())
            }
            // Incident 1 (ktables 1.1.1): the observer runs on the reading task, so its exception is the end of the task.
            CallbackFailure::Fatal => Err(exception),
        }
    }

    /// A message as a record.
    pub(super) fn record(&self, message: &BorrowedMessage<'_>) -> Record {
        let topic = match self.topics.iter().find(|topic| ***topic == *message.topic()) {
            Some(topic) => topic.clone(),
            None => message.topic().into(),
        };
        Record {
            topic,
            partition: message.partition().unsigned_abs(),
            offset: message.offset().unsigned_abs(),
            key: message
                .key()
                .and_then(|key| std::str::from_utf8(key).ok())
                .map(str::to_owned),
            id: id(message),
            tombstone: message.payload().is_none(),
        }
    }

    /// Every partition of every topic that the reader was told to read.
    pub(super) fn places(&self) -> impl Iterator<Item = Place> + '_ {
        let counts = self.start.topics.iter().map(|topic| topic.partitions);
        let each = self.topics.iter().zip(counts);
        each.flat_map(|(topic, count)| (0..count).map(move |partition| (topic.clone(), partition)))
    }

    /// The topic's shared name.
    pub(super) fn place(&self, topic: &str, partition: i32) -> Place {
        let known = self.topics.iter().find(|known| ***known == *topic).cloned();
        (known.unwrap_or_else(|| topic.into()), partition.unsigned_abs())
    }

    /// Positions as the client wants them.
    pub(super) fn list(positions: impl IntoIterator<Item = (Place, u64)>) -> TopicPartitionList {
        let mut list = TopicPartitionList::new();
        for ((topic, partition), next) in positions {
            let partition = i32::try_from(partition).unwrap_or(i32::MAX);
            let offset = Offset::Offset(i64::try_from(next).unwrap_or(i64::MAX));
            // OK to drop the result: it fails only for offsets that librdkafka cannot express, and this one is plain.
            let _ = list.add_partition_offset(&topic, partition, offset);
        }
        list
    }

    /// Positions that are known.
    pub(super) fn positions(&self) -> Vec<(Place, u64)> {
        let state = self.state();
        let known = state.partitions.iter();
        known
            .filter_map(|(place, progress)| Some((place.clone(), progress.next?)))
            .collect()
    }
}

/// The id of a record: from the header, else from the value (`<id>|<padding>`).
fn id(message: &BorrowedMessage<'_>) -> Option<u64> {
    let header = message.headers().and_then(|headers| {
        let found = headers.iter().find(|header| header.key == ID_HEADER)?;
        number(found.value?)
    });
    header.or_else(|| number(message.payload()?.split(|byte| *byte == b'|').next()?))
}

fn number(bytes: &[u8]) -> Option<u64> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}
