//! Readers of partitions assigned by hand: the table, and the plain reader without a group.
//!
//! Both find their positions themselves (the client's own reset is `error`), so that a jump is never made behind their
//! backs: the table clears the partition and rebuilds it from the log start, the plain reader goes where `reset` says, and
//! both say that they did. A stored table begins with what an object before it left on disk, unless the log has moved past
//! that meanwhile.

use std::sync::Arc;
use std::time::Duration;

use brokerfall_report::exception::{Exception, Origin};
use brokerfall_report::protocol::{Callback, Heartbeat, Kind, ReaderEvent, Reset, ResetCause, Start};
use rdkafka::consumer::Consumer;
use rdkafka::error::KafkaError;

use super::client::{self, ASSIGNS_APART_MS, Backoff, Client, Remedy};
use super::core::{Core, End, Place, Status};
use super::hooks::{Hooks, Record, Turn};
use super::policy::{Keeps, OutOfRange, Policy};
use super::store::{Store, Stored, StoredPartition};
use super::table::View;
use crate::reader::sdk::{Reader, Sdk, exceptions};

/// How often a stored table is written: as often as a group commits.
const STORE_EVERY_MS: f64 = 500.0;

/// A table or a plain reader.
pub(super) struct ByHand {
    core: Core,
    table: bool,
    /// Where a stored table is kept.
    store: Option<Store>,
}

/// By-hand readers are never rebalanced and never commit.
struct NoEvents;

impl client::Events for NoEvents {}

/// Why positions could not be found yet.
enum NotLocated {
    /// A broker did not answer, or answered with an error.
    Asked(KafkaError),
    /// `reset = none` forbids to find one.
    Forbidden(Box<Exception>),
}

impl ByHand {
    /// Builds the reader and lets it read.
    ///
    /// # Errors
    /// What the client raised, or that a stored table was given no folder.
    pub(super) fn start(
        start: &Start,
        policy: Policy,
        hooks: Arc<dyn Hooks>,
        sdk: Sdk,
    ) -> Result<Arc<Self>, Box<Exception>> {
        let table = start.kind == Kind::Table;
        let store = match policy.keeps {
            Keeps::InMemory => None,
            Keeps::OnDisk => Some(Store::new(start)?),
        };
        let first = connect(start, policy, &sdk)?;
        let view = table.then(View::default);
        let reader = Arc::new(Self {
            core: Core::new(start, policy, hooks, sdk, view),
            table,
            store,
        });
        let places: Vec<_> = reader.core.places().map(|place| (place, Default::default())).collect();
        reader.core.state().partitions.extend(places);
        reader.restore();
        let task = reader.clone();
        std::thread::spawn(move || {
            let again = || connect(&task.core.start, task.core.policy, &task.core.sdk);
            task.core.supervise(first, again, |client| task.session(client));
        });
        Ok(reader)
    }

    fn session(&self, client: &Arc<Client>) -> End {
        let end = self.read(client);
        self.save();
        end
    }

    fn read(&self, client: &Arc<Client>) -> End {
        let core = &self.core;
        let mut backoff = Backoff::new();
        let mut ask_at_ms = 0.0;
        let mut save_at_ms = 0.0;
        let mut located = false;
        let mut out_of_range = None;
        loop {
            core.sdk.turned();
            if core.state().stopping {
                return End::Asked;
            }
            match core.hooks.turn() {
                Turn::Poll | Turn::LeaveGroup => {}
                Turn::Vanish => return End::Silent,
                Turn::EndUntyped => return core.end_untyped(),
                Turn::EndTyped => {
                    let last = core.state().last_error.clone();
                    return core.fail(Origin::Poll, last.unwrap_or_else(|| exceptions::plain("None", "")));
                }
                Turn::SeekBack(records) => {
                    for progress in core.state().partitions.values_mut() {
                        progress.next = progress.next.map(|next| next.saturating_sub(records));
                    }
                    located = false;
                    ask_at_ms = 0.0;
                }
            }
            if !located && core.sdk.now_ms() >= ask_at_ms {
                match self.locate(client, out_of_range.as_deref()) {
                    Ok(()) => {
                        located = true;
                        out_of_range = None;
                        backoff.reset();
                        ask_at_ms = core.sdk.now_ms() + ASSIGNS_APART_MS;
                    }
                    Err(NotLocated::Forbidden(exception)) => return core.fail(Origin::Poll, exception),
                    Err(NotLocated::Asked(error)) => {
                        let exception = exceptions::kafka(&error, None);
                        if client::remedy(&error) == Remedy::End {
                            return core.fail(Origin::Reader, exception);
                        }
                        core.met(Origin::Reader, exception);
                        ask_at_ms = core.sdk.now_ms() + backoff.next().as_secs_f64() * 1_000.0;
                    }
                }
            }
            if core.sdk.now_ms() >= save_at_ms && self.save() {
                save_at_ms = core.sdk.now_ms() + STORE_EVERY_MS;
            }
            match core.poll(client, |record| self.pass(record), |_| {}) {
                Ok(None) if located => self.settle_status(),
                Ok(None) => {}
                Ok(Some(cause)) => {
                    core.met(Origin::Poll, cause.clone());
                    out_of_range = Some(cause);
                    located = false;
                }
                Err(end) => return end,
            }
        }
    }

    /// Finds a position for every partition that has none, or whose position the broker said is out of range, and assigns
    /// all of them.
    fn locate(&self, client: &Client, out_of_range: Option<&Exception>) -> Result<(), NotLocated> {
        let core = &self.core;
        let known: Vec<_> = {
            let state = core.state();
            let all = state.partitions.iter();
            all.map(|(place, progress)| (place.clone(), progress.next, progress.stored))
                .collect()
        };
        let mut asked = Vec::new();
        for (place, next, stored) in known {
            if next.is_none() || out_of_range.is_some() {
                let (low, high) = client::watermarks(client, &place.0, place.1).map_err(NotLocated::Asked)?;
                match stored {
                    Some(stored) => self.go_on(&place, stored, low, high)?,
                    None => asked.push((place, next, low, high)),
                }
            }
        }
        let outside = |next: Option<u64>, low, high| next.is_some_and(|next| next < low || next > high);
        // The binding does not say which partition an error belongs to. Where every position lies inside the log (the
        // log may have been recreated), a table believes the broker and rebuilds all; a plain reader asks again.
        let none_outside = !asked.iter().any(|(_, next, low, high)| outside(*next, *low, *high));
        for (place, next, low, high) in asked {
            let to = match (next, out_of_range) {
                (None, _) if self.table => low,
                (None, _) => match core.start.reset {
                    Reset::Latest => high,
                    Reset::Earliest | Reset::None => low,
                },
                (Some(next), Some(cause)) => {
                    if !(outside(Some(next), low, high) || self.table && none_outside) {
                        continue;
                    }
                    let to = match core.start.reset {
                        Reset::None => return Err(NotLocated::Forbidden(Box::new(cause.clone()))),
                        Reset::Latest if !self.table => high,
                        Reset::Earliest | Reset::Latest => low,
                    };
                    self.say_reset(&place, next, to);
                    to
                }
                (Some(_), None) => continue,
            };
            let mut state = core.state();
            if let Some(view) = state.view.as_mut() {
                view.clear(&place);
            }
            if let Some(progress) = state.partitions.get_mut(&place) {
                progress.next = Some(to);
                progress.target = high;
                // A partition that was never read holds nothing to be stored.
                progress.dirty = next.is_some();
            }
        }
        client
            .assign(&Core::list(core.positions()))
            .map_err(NotLocated::Asked)?;
        self.settle_status();
        Ok(())
    }

    /// Goes on where the stored content ends, or, where the log begins above that by now or ends below it, clears the
    /// partition and reads it anew: deletions that the log no longer holds would never be seen. A topic that was recreated
    /// and has grown past the offset is not told from the old one: rdkafka gives no topic ids.
    fn go_on(&self, place: &Place, stored: u64, low: u64, high: u64) -> Result<(), NotLocated> {
        let core = &self.core;
        let gone = !(low..=high).contains(&stored);
        if gone {
            let (topic, partition) = place;
            let text =
                format!("{topic}-{partition}: the stored offset {stored} is outside of the log, {low} to {high}");
            let cause = exceptions::plain("brokerfall::reader::bundled::StoredOffsetGone", &text);
            if core.start.reset == Reset::None {
                return Err(NotLocated::Forbidden(cause));
            }
            core.met(Origin::Reader, cause);
            self.say_reset(place, stored, low);
        }
        let mut state = core.state();
        if let Some(view) = state.view.as_mut().filter(|_| gone) {
            view.clear(place);
        }
        if let Some(progress) = state.partitions.get_mut(place) {
            progress.next = Some(if gone { low } else { stored });
            progress.target = high;
            progress.dirty = gone;
            progress.stored = None;
        }
        Ok(())
    }

    /// Takes over what an object before this one has stored of the partitions that are read.
    fn restore(&self) {
        let Some(store) = &self.store else { return };
        let stored = match store.load() {
            Ok(stored) => stored.unwrap_or_default(),
            Err(exception) => {
                self.core.met(Origin::Reader, exception);
                return;
            }
        };
        let mut state = self.core.state();
        let state = &mut *state;
        for StoredPartition {
            topic,
            partition,
            next,
            entries,
        } in stored.partitions
        {
            let place = self.core.place(&topic, i32::try_from(partition).unwrap_or(i32::MAX));
            if let (Some(progress), Some(view)) = (state.partitions.get_mut(&place), state.view.as_mut()) {
                progress.stored = Some(next);
                let kept = entries.into_iter().filter(|(key, _)| self.core.hooks.restores(key));
                view.restore(place, kept);
            }
        }
    }

    /// Stores the table where anything has changed since it was last stored; true when it was written, or could not be.
    fn save(&self) -> bool {
        let Some(store) = &self.store else { return false };
        let stored = {
            let mut state = self.core.state();
            let state = &mut *state;
            let mut dirty = false;
            let mut partitions = Vec::new();
            for (place, progress) in &mut state.partitions {
                dirty |= std::mem::take(&mut progress.dirty);
                let content = state.view.as_ref().map(|view| view.partition(place));
                if let (Some(next), Some(content)) = (progress.next.or(progress.stored), content) {
                    partitions.push(StoredPartition {
                        topic: place.0.to_string(),
                        partition: place.1,
                        next,
                        entries: content.map(|(key, id)| (key.clone(), *id)).collect(),
                    });
                }
            }
            if !dirty {
                return false;
            }
            Stored::new(partitions)
        };
        // What is stored is never read again: whoever reads along must have been told of it first.
        self.core.sdk.flush();
        if let Err(exception) = store.save(&stored) {
            if let Some(progress) = self.core.state().partitions.values_mut().next() {
                progress.dirty = true;
            }
            self.core.met(Origin::Background, exception);
        }
        true
    }

    fn say_reset(&self, place: &Place, from: u64, to: u64) {
        if !self.core.hooks.tells_caller() {
            return;
        }
        self.core.sdk.event(ReaderEvent::Reset {
            topic: place.0.to_string(),
            partition: place.1,
            from: Some(from),
            to: Some(to),
            cause: ResetCause::OutOfRange,
        });
    }

    /// Delivers one record: into the view, to the harness, to the user's callback.
    fn pass(&self, record: &Record) -> Result<(), Box<Exception>> {
        let core = &self.core;
        let reached = {
            let mut state = core.state();
            let applies_tombstone = !record.tombstone || core.hooks.applies_tombstone();
            if let Some(view) = state.view.as_mut() {
                view.apply(record, applies_tombstone);
            }
            let catching_up = state.status == Status::CatchingUp;
            match state.partitions.get_mut(&(record.topic.clone(), record.partition)) {
                Some(progress) => {
                    progress.next = progress.next.max(Some(record.offset + 1));
                    progress.dirty = true;
                    catching_up && record.offset + 1 >= progress.target
                }
                None => false,
            }
        };
        core.notify();
        core.sdk
            .record(&record.topic, record.partition, record.offset, record.id);
        if reached {
            self.settle_status();
        }
        let callback = match (self.table, record.tombstone) {
            (true, false) => Callback::OnSet,
            (true, true) => Callback::OnDelete,
            (false, _) => Callback::OnRecord,
        };
        core.call(callback, record)
    }

    /// Says `caught_up` when every partition has reached the log end that it wanted to reach, `catching_up` when one has
    /// not.
    fn settle_status(&self) {
        let mut state = self.core.state();
        let mut all = state.partitions.values();
        let status = match all.all(|progress| progress.next.is_some_and(|next| next >= progress.target)) {
            true => Status::CaughtUp,
            false => Status::CatchingUp,
        };
        if matches!(state.status, Status::Failed | Status::Stopped) || state.status == status {
            return;
        }
        state.status = status;
        drop(state);
        self.core.notify();
        if status == Status::CaughtUp {
            self.core.sdk.event(ReaderEvent::CaughtUp);
        }
        self.core.sdk.status(self.core.word(), "");
    }

    /// Waits until every partition is applied up to the ends given, or the reader ends.
    fn applied(&self, ends: &[(Place, u64)], within: Duration) -> bool {
        let reached = self.core.wait(within, |state| {
            if state.stopping || matches!(state.status, Status::Failed | Status::Stopped) {
                return Some(false);
            }
            let at = |place: &Place| state.partitions.get(place).and_then(|progress| progress.next);
            let all = ends
                .iter()
                .all(|(place, end)| at(place).is_some_and(|next| next >= *end));
            all.then_some(true)
        });
        reached.unwrap_or(false)
    }
}

impl Reader for ByHand {
    fn heartbeat(&self) -> Heartbeat {
        self.core.heartbeat()
    }

    fn snapshot(&self) -> Option<Vec<(String, Option<u64>)>> {
        self.core.state().view.as_ref().map(View::entries)
    }

    fn barrier(&self, within: Duration) -> Option<bool> {
        if !self.table {
            return None;
        }
        if let Some(answer) = self.core.hooks.barrier() {
            return Some(answer);
        }
        let deadline_ms = self.core.sdk.now_ms() + within.as_secs_f64() * 1_000.0;
        let left = || Duration::from_secs_f64(((deadline_ms - self.core.sdk.now_ms()) / 1_000.0).max(0.0));
        let mut backoff = Backoff::new();
        let mut ends = Vec::new();
        for place in self.core.places() {
            loop {
                if left().is_zero() {
                    return Some(false);
                }
                let client = self.core.state().client.clone();
                let asked = client.map(|client| client::watermarks(&client, &place.0, place.1));
                if let Some(Ok((_, high))) = asked {
                    ends.push((place, high));
                    break;
                }
                // Between clients or cut off: the question is put again until the time has passed or the reader ends.
                let over =
                    |state: &mut super::core::State| (state.stopping || state.status == Status::Failed).then_some(());
                if self.core.wait(backoff.next().min(left()), over).is_some() {
                    return Some(false);
                }
            }
        }
        Some(self.applied(&ends, left()))
    }

    fn wait_caught_up(&self, within: Duration) -> Option<bool> {
        let reached = self.core.wait(within, |state| match state.status {
            Status::CaughtUp => Some(true),
            Status::Failed | Status::Stopped => Some(false),
            _ if state.stopping => Some(false),
            _ => None,
        });
        Some(reached.unwrap_or(false))
    }

    fn stop(&self, grace: Duration) {
        self.core.stop(grace);
        if let Some(store) = &self.store {
            store.close();
        }
    }
}

fn connect(start: &Start, policy: Policy, sdk: &Sdk) -> Result<Client, Box<Exception>> {
    let reset = match policy.out_of_range {
        OutOfRange::Rebuild => "error",
        // Incident 2 (faust): the client may jump to the log end at any time, also while the table catches up. It then
        // waits at the end of a quiet log for offsets that it will never be given, and nobody is told.
        OutOfRange::JumpToEnd => "latest",
    };
    client::connect(start, reset, sdk, Arc::new(NoEvents))
}
