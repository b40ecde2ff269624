//! The consumer-group reader: at least once, commits after processing, and calls consume again whatever it returned.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use brokerfall_report::exception::{Exception, Origin};
use brokerfall_report::protocol::{
    Callback, Heartbeat, Position, ReaderEvent, Reset, ResetCause, Start, TopicPartition,
};
use rdkafka::consumer::{CommitMode, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::client::{self, ASK, ASSIGNS_APART_MS, Backoff, Client, Remedy};
use super::core::{Core, End, Place, Progress, Status};
use super::hooks::{Hooks, Record, Turn};
use super::policy::{Consume, Policy};
use crate::reader::sdk::{Reader, Sdk, exceptions};

/// How often processed offsets are committed.
const COMMIT_EVERY_MS: f64 = 500.0;
/// A commit whose answer never came is given up, so that later ones are not held back, milliseconds.
const COMMIT_LOST_MS: f64 = 10_000.0;
/// How long `close` and a revocation wait for the answer to the last commit. Longer gains nothing: what is not committed
/// is read again.
const LAST_COMMIT: Duration = Duration::from_millis(500);
/// How long the `commit` command waits.
const COMMIT_COMMAND: Duration = Duration::from_secs(10);

/// A member of a consumer group.
pub(super) struct Group {
    core: Core,
    commits: Mutex<Commits>,
    /// Set when the one consume call of `Consume::Once` must come back.
    interrupted: AtomicBool,
}

#[derive(Default)]
struct Commits {
    /// When the commit that is on its way was sent.
    sent_ms: Option<f64>,
    due_ms: f64,
    /// The `commit` command asked for one; it is sent even when nothing is new.
    asked: bool,
    answered: u64,
    last: Option<Box<Exception>>,
    /// A mutant has left its group: nothing is committed any more.
    given_up: bool,
}

/// Hands the client's callbacks to the member.
struct Events(Arc<Group>);

impl Group {
    /// Builds the member and lets it read.
    ///
    /// # Errors
    /// What the client raised, or that no group was named.
    pub(super) fn start(
        start: &Start,
        policy: Policy,
        hooks: Arc<dyn Hooks>,
        sdk: Sdk,
    ) -> Result<Arc<Self>, Box<Exception>> {
        if start.group.is_none() {
            let text = "a group reader needs `group` in `start`";
            return Err(exceptions::plain("brokerfall::reader::bundled::NoGroup", text));
        }
        let reader = Arc::new(Self {
            core: Core::new(start, policy, hooks, sdk, None),
            commits: Mutex::default(),
            interrupted: AtomicBool::new(false),
        });
        let first = reader.connect()?;
        let task = reader.clone();
        std::thread::spawn(move || {
            task.core
                .supervise(first, || task.connect(), |client| task.consume(client));
        });
        Ok(reader)
    }

    fn connect(self: &Arc<Self>) -> Result<Client, Box<Exception>> {
        // The member finds a position itself where the log has none for it, so that it can say so.
        let events = Arc::new(Events(self.clone()));
        let client = client::connect(&self.core.start, "error", &self.core.sdk, events)?;
        let topics: Vec<&str> = self.core.start.topics.iter().map(|topic| topic.name.as_str()).collect();
        client
            .subscribe(&topics)
            .map_err(|error| exceptions::kafka(&error, None))?;
        Ok(client)
    }

    /// One membership, from joining to leaving.
    fn consume(self: &Arc<Self>, client: &Arc<Client>) -> End {
        let end = self.read(client);
        if matches!(end, End::Asked | End::Said) {
            self.last_commit(client);
        }
        end
    }

    fn read(self: &Arc<Self>, client: &Arc<Client>) -> End {
        let core = &self.core;
        let mut backoff = Backoff::new();
        let mut ask_at_ms = 0.0;
        let mut out_of_range: Option<Box<Exception>> = None;
        let mut stale = 0;
        loop {
            core.sdk.turned();
            if core.state().stopping {
                return End::Asked;
            }
            match core.hooks.turn() {
                Turn::LeaveGroup => self.leave(client),
                Turn::Vanish => return End::Silent,
                Turn::EndUntyped => return core.end_untyped(),
                _ => {}
            }
            if core.policy.consume == Consume::Once && self.interrupted.load(Ordering::Relaxed) {
                // Incident 3 (sarama): when a broker goes away or the group rebalances, the one call of consume returns
                // nil. Nobody calls it again: the member has left, the process lives, and its health stays green.
                core.sdk.event(ReaderEvent::Returned {
                    call: "consume".to_owned(),
                    value: serde_json::Value::Null,
                    error: None,
                });
                return End::Silent;
            }
            if let Some(cause) = out_of_range.as_deref().filter(|_| core.sdk.now_ms() >= ask_at_ms) {
                match self.relocate(client, cause, &mut stale) {
                    Ok(None) => {
                        out_of_range = None;
                        backoff.reset();
                        ask_at_ms = core.sdk.now_ms() + ASSIGNS_APART_MS;
                    }
                    Ok(Some(end)) => return end,
                    Err(error) => {
                        let exception = exceptions::kafka(&error, None);
                        if client::remedy(&error) == Remedy::End {
                            return core.fail(Origin::Reader, exception);
                        }
                        core.met(Origin::Reader, exception);
                        ask_at_ms = core.sdk.now_ms() + backoff.next().as_secs_f64() * 1_000.0;
                    }
                }
            }
            self.commit_when_due(client);
            let waits = |error: &KafkaError| {
                let gone = matches!(
                    error.rdkafka_error_code(),
                    Some(RDKafkaErrorCode::AllBrokersDown | RDKafkaErrorCode::BrokerTransportFailure)
                );
                self.interrupted.fetch_or(gone, Ordering::Relaxed);
            };
            match core.poll(client, |record| self.pass(record), waits) {
                Ok(None) => {}
                Ok(cause) => out_of_range = cause,
                Err(end) => return end,
            }
        }
    }

    /// Puts every assigned partition where it belongs: the client found one of them (the binding does not say which) to
    /// have no offset, or one outside the log.
    fn relocate(&self, client: &Client, cause: &Exception, stale: &mut usize) -> KafkaResult<Option<End>> {
        let core = &self.core;
        let assigned: Vec<(Place, Option<u64>)> = {
            let state = core.state();
            let all = state.partitions.iter();
            all.map(|(place, progress)| (place.clone(), progress.next)).collect()
        };
        let unknown = assigned.iter().filter(|(_, next)| next.is_none());
        let mut asked = TopicPartitionList::new();
        for (place, _) in unknown {
            asked.add_partition(&place.0, i32::try_from(place.1).unwrap_or(i32::MAX));
        }
        let committed = match asked.count() {
            0 => asked,
            _ => client.committed_offsets(asked, ASK)?,
        };
        let mut found = Vec::new();
        for (place, next) in assigned {
            let (low, high) = client::watermarks(client, &place.0, place.1)?;
            let partition = i32::try_from(place.1).unwrap_or(i32::MAX);
            let kept = committed
                .find_partition(&place.0, partition)
                .and_then(|element| match element.offset() {
                    Offset::Offset(offset) => u64::try_from(offset).ok(),
                    _ => None,
                });
            let at = next.or(kept);
            let to = match (at, core.start.reset) {
                (Some(at), _) if (low..=high).contains(&at) => at,
                (_, Reset::Earliest) => low,
                (_, Reset::Latest) => high,
                (_, Reset::None) => return Ok(Some(core.fail(Origin::Poll, Box::new(cause.clone())))),
            };
            found.push((place, at, to));
        }
        let list = Core::list(found.iter().map(|(place, _, to)| (place.clone(), *to)));
        // Not `seek`: in librdkafka 2.12 a partition that was given up with AUTO_OFFSET_RESET does not fetch again after it.
        client.assign(&list)?;
        // A first start is no error. Each partition without an offset tells of it once, and the first of them had all
        // placed: the others are stale.
        let moved = found.iter().any(|(_, at, to)| at.is_some_and(|at| at != *to));
        match found.iter().filter(|(_, at, _)| at.is_none()).count() {
            0 if *stale > 0 && !moved => *stale -= 1,
            0 => core.met(Origin::Poll, Box::new(cause.clone())),
            first_starts => *stale += first_starts - 1,
        }
        for (place, at, to) in found {
            if at.is_some_and(|at| at != to) {
                core.sdk.event(ReaderEvent::Reset {
                    topic: place.0.to_string(),
                    partition: place.1,
                    from: at,
                    to: Some(to),
                    cause: ResetCause::OutOfRange,
                });
            }
            if let Some(progress) = core.state().partitions.get_mut(&place) {
                progress.next = Some(to);
            }
        }
        Ok(None)
    }

    /// Hands one record to the user, and only then counts it as processed.
    fn pass(&self, record: &Record) -> Result<(), Box<Exception>> {
        self.core
            .sdk
            .record(&record.topic, record.partition, record.offset, record.id);
        self.core.call(Callback::OnRecord, record)?;
        let mut state = self.core.state();
        if let Some(progress) = state.partitions.get_mut(&(record.topic.clone(), record.partition)) {
            progress.next = Some(record.offset + 1);
            progress.dirty = true;
        }
        Ok(())
    }

    fn commit_when_due(self: &Arc<Self>, client: &Arc<Client>) {
        let now_ms = self.core.sdk.now_ms();
        {
            let commits = self.commits();
            if commits.sent_ms.is_some_and(|at| now_ms - at < COMMIT_LOST_MS) || commits.given_up {
                return;
            }
            if now_ms < commits.due_ms && !commits.asked {
                return;
            }
        }
        self.commit_now(client);
    }

    /// Sends what was processed and not yet committed; after the `commit` command everything known.
    ///
    /// The answer is awaited on a thread of its own: an asynchronous commit of rdkafka 0.39 never calls back (librdkafka
    /// consults a callback that the event interface leaves unset), and a synchronous one blocks for as long as the
    /// coordinator is away.
    fn commit_now(self: &Arc<Self>, client: &Arc<Client>) {
        let asked = std::mem::take(&mut self.commits().asked);
        let mut positions = Vec::new();
        for (place, progress) in &mut self.core.state().partitions {
            if let Some(next) = progress.next.filter(|_| progress.dirty || asked) {
                progress.dirty = false;
                positions.push((place.clone(), self.core.hooks.commit(next)));
            }
        }
        if positions.is_empty() {
            if asked {
                self.answered(None);
            }
            return;
        }
        self.core.sdk.flush();
        let now_ms = self.core.sdk.now_ms();
        {
            let mut commits = self.commits();
            commits.sent_ms = Some(now_ms);
            commits.due_ms = now_ms + COMMIT_EVERY_MS;
        }
        let (group, client) = (self.clone(), client.clone());
        std::thread::spawn(move || {
            let result = client.commit(&Core::list(positions.iter().cloned()), CommitMode::Sync);
            // Dropped first: when the session has ended meanwhile this is the last owner, and closes it.
            drop(client);
            group.committed(result, positions);
        });
    }

    fn committed(&self, result: KafkaResult<()>, positions: Vec<(Place, u64)>) {
        match result {
            Ok(()) => {
                let offsets = positions.into_iter().map(|((topic, partition), offset)| Position {
                    topic: topic.to_string(),
                    partition,
                    offset,
                });
                self.core.state().last_commit_ms = Some(self.core.sdk.now_ms());
                self.core.sdk.event(ReaderEvent::Committed {
                    offsets: offsets.collect(),
                });
                self.answered(None);
            }
            Err(error) => {
                for (place, _) in positions {
                    if let Some(progress) = self.core.state().partitions.get_mut(&place) {
                        progress.dirty = true;
                    }
                }
                let exception = exceptions::kafka(&error, None);
                self.core.met(Origin::Background, exception.clone());
                self.answered(Some(exception));
            }
        }
    }

    /// Commits and waits for the answer, but never for long: this stands between the reader and its exit.
    fn last_commit(self: &Arc<Self>, client: &Arc<Client>) {
        if self.commits().given_up {
            return;
        }
        if self.commits().sent_ms.is_none() {
            self.commit_now(client);
        }
        self.core
            .wait(LAST_COMMIT, |_| self.commits().sent_ms.is_none().then_some(()));
    }

    fn answered(&self, failure: Option<Box<Exception>>) {
        let mut commits = self.commits();
        commits.sent_ms = None;
        commits.answered += 1;
        commits.last = failure;
        drop(commits);
        self.core.notify();
    }

    fn commits(&self) -> std::sync::MutexGuard<'_, Commits> {
        // Nothing that can panic runs under the lock.
        self.commits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a mutant does: leaves without a word and goes on by hand.
    fn leave(&self, client: &Client) {
        let positions = self.core.positions();
        self.commits().given_up = true;
        client.unsubscribe();
        while !self.core.state().partitions.is_empty() && !self.core.state().stopping {
            let _ = client.poll(Duration::from_millis(10));
        }
        // OK to drop the result: this is what the mutant does, not what a reader should.
        let _ = client.assign(&Core::list(positions.iter().cloned()));
        for (place, next) in positions {
            let progress = Progress {
                next: Some(next),
                ..Progress::default()
            };
            self.core.state().partitions.insert(place, progress);
        }
    }

    fn named(&self, partitions: &TopicPartitionList) -> Vec<TopicPartition> {
        let all = partitions.elements();
        all.iter()
            .map(|element| TopicPartition {
                topic: element.topic().to_owned(),
                partition: element.partition().unsigned_abs(),
            })
            .collect()
    }

    fn say_rebalanced(&self, assigned: Vec<TopicPartition>, revoked: Vec<TopicPartition>, lost: Vec<TopicPartition>) {
        self.core.sdk.event(ReaderEvent::Rebalanced {
            assigned,
            revoked,
            lost,
        });
    }
}

impl client::Events for Events {
    fn revoking(&self, client: &Client, partitions: &TopicPartitionList) {
        let group = &self.0;
        let lost = client.assignment_lost();
        let shared = group.core.state().client.clone();
        if let Some(client) = shared.filter(|_| !lost && !group.commits().given_up) {
            group.commit_now(&client);
            // A coordinator that revokes is there to answer; without an answer the records are read again, no more.
            group
                .core
                .wait(LAST_COMMIT, |_| group.commits().sent_ms.is_none().then_some(()));
        }
        let gone: BTreeSet<Place> = partitions
            .elements()
            .iter()
            .map(|element| group.core.place(element.topic(), element.partition()))
            .collect();
        group.core.state().partitions.retain(|place, _| !gone.contains(place));
        let named = group.named(partitions);
        match lost {
            true => group.say_rebalanced(Vec::new(), Vec::new(), named),
            false => group.say_rebalanced(Vec::new(), named, Vec::new()),
        }
        group.interrupted.store(true, Ordering::Relaxed);
    }

    fn assigned(&self, partitions: &TopicPartitionList) {
        let group = &self.0;
        for element in partitions.elements() {
            let place = group.core.place(element.topic(), element.partition());
            group.core.state().partitions.entry(place).or_default();
        }
        let running = {
            let mut state = group.core.state();
            let running = state.status == Status::Starting;
            if running {
                state.status = Status::Running;
            }
            running
        };
        group.say_rebalanced(group.named(partitions), Vec::new(), Vec::new());
        if running {
            group.core.sdk.status(group.core.word(), "");
        }
    }
}

impl Reader for Group {
    fn heartbeat(&self) -> Heartbeat {
        let mut heartbeat = self.core.heartbeat();
        if self.core.policy.consume == Consume::Once && self.core.state().status == Status::Running {
            // Where the library owns the loop nobody outside sees it turn, and a health check that asks whether the
            // process lives is always green.
            heartbeat.loop_age_ms = None;
            heartbeat.last_poll_age_ms = None;
            heartbeat.claims.healthy = Some(true);
        }
        heartbeat
    }

    fn commit(&self) -> Option<Result<(), Box<Exception>>> {
        let before = {
            let mut commits = self.commits();
            commits.asked = true;
            // The answer to one that is on its way is not the answer to this one.
            commits.answered + u64::from(commits.sent_ms.is_some())
        };
        let answer = self.core.wait(COMMIT_COMMAND, |state| {
            let commits = self.commits();
            match commits.answered > before {
                true => Some(commits.last.clone()),
                false if state.stopping || state.status == Status::Failed => Some(Some(exceptions::plain(
                    "brokerfall::reader::bundled::Ended",
                    "the reader has ended",
                ))),
                false => None,
            }
        });
        Some(match answer {
            Some(None) => Ok(()),
            Some(Some(exception)) => Err(exception),
            None => Err(exceptions::plain(
                "brokerfall::reader::bundled::CommitTimedOut",
                &format!("no answer within {COMMIT_COMMAND:?}"),
            )),
        })
    }

    fn stop(&self, grace: Duration) {
        self.core.stop(grace);
    }
}
