//! The fold of what readers say.

use brokerfall_report::exception::{Exception, Origin};
use brokerfall_report::history::{Phase, Stage};
use brokerfall_report::protocol::{CallbackCall, Done, ReaderEvent};

use super::{Commit, Excuse, Facts, Moment, ResetTold, Seen, partition_of};

impl Facts {
    pub(super) fn observe_reader(&mut self, at: Moment, member: &str, index: usize, event: &ReaderEvent) {
        let open = !self.is_fixed_for(index);
        match event {
            ReaderEvent::Hello(hello) => {
                self.members.entry(member.to_owned()).or_default().hello = Some(hello.clone());
            }
            ReaderEvent::Records { partitions } => {
                let mut count = 0u64;
                for delivered in partitions {
                    let partition = self.partition_mut(&delivered.topic, delivered.partition);
                    let took = partition.delivered(at, index, delivered);
                    count = count.saturating_add(took.records);
                    if let Some(life) = self.lives.get_mut(index) {
                        life.records = life.records.saturating_add(took.records);
                        life.tells_offsets |= took.offsets;
                        life.tells_ids |= took.ids;
                    }
                    self.refresh(&delivered.topic, delivered.partition, at);
                    self.look_for_sentinels(&delivered.topic, delivered.partition, at);
                }
                if count > 0 {
                    self.delivered = self.delivered.saturating_add(count);
                    if let (true, Some(life)) = (open, self.lives.get_mut(index)) {
                        life.saw_reading(at);
                    }
                }
            }
            ReaderEvent::Deleted { keys } => self.observe_deleted(at, index, keys),
            ReaderEvent::Heartbeat(heartbeat) => {
                for told in heartbeat.positions.as_deref().unwrap_or_default() {
                    let reach = self
                        .partition_mut(&told.topic, told.partition)
                        .reads
                        .reach
                        .entry(index)
                        .or_default();
                    if reach.told.last().map(|(_, p)| *p) != Some(told.offset) {
                        reach.told.push((at, told.offset));
                        self.refresh(&told.topic, told.partition, at);
                        self.look_for_sentinels(&told.topic, told.partition, at);
                    }
                }
                let Some(life) = self.lives.get_mut(index) else { return };
                life.last_heartbeat = Some(at);
                life.saw_claims(at, &heartbeat.claims);
                if let Some(&errors) = heartbeat.counters.get("callback_errors")
                    && life.callback_errors.last().map(|(_, n)| *n) != Some(errors)
                {
                    life.callback_errors.push((at, errors));
                }
                if open {
                    if !life.tells_status {
                        life.saw_status(at, &heartbeat.state);
                    }
                    if let Some(age_ms) = heartbeat.loop_age_ms.filter(|age| age.is_finite() && *age >= 0.0) {
                        life.saw_loop_turn(at.us.saturating_sub((age_ms * 1000.0) as u64));
                    }
                }
            }
            ReaderEvent::Started => {
                let mut again = false;
                if let Some(life) = self.lives.get_mut(index) {
                    again = life.started.is_some();
                    life.started.get_or_insert(at);
                    if open {
                        life.saw_reading(at);
                    }
                }
                // A first start has nothing to go back from, and would excuse the whole of a quick catch-up.
                if again {
                    self.excuse(at, index, "the reader started again");
                }
            }
            ReaderEvent::Stopped { reason, exception } => {
                if let Some(exception) = exception {
                    self.saw(at, index, Origin::Reader, true, 1, exception);
                }
                if let (true, Some(life)) = (open, self.lives.get_mut(index)) {
                    life.saw_stopped(at, reason, exception.as_ref());
                }
            }
            ReaderEvent::Done(done) => self.observe_done(at, member, index, done),
            ReaderEvent::Rebalanced { .. } => self.excuse(at, index, "a rebalance"),
            ReaderEvent::Reset {
                topic,
                partition,
                cause,
                ..
            } => {
                self.resets.push(ResetTold {
                    at,
                    topic: topic.clone(),
                    partition: *partition,
                    cause: *cause,
                });
                self.excuse(at, index, "a reset");
            }
            ReaderEvent::Committed { offsets } => {
                for position in offsets {
                    self.wire.commit(Commit {
                        at,
                        member: member.to_owned(),
                        topic: position.topic.clone(),
                        partition: position.partition,
                        offset: position.offset,
                        on_wire: false,
                    });
                }
            }
            ReaderEvent::CaughtUp => {
                if let Some(life) = self.lives.get_mut(index) {
                    life.caught_up.push(at);
                }
            }
            ReaderEvent::Status { state, .. } => {
                if let (true, Some(life)) = (open, self.lives.get_mut(index)) {
                    life.tells_status = true;
                    life.saw_status(at, state);
                }
            }
            ReaderEvent::SnapshotPart { id, entries } => {
                let asked = self
                    .asked
                    .iter()
                    .rev()
                    .find(|asked| asked.member == member && asked.id == *id);
                let Some(asked_at) = asked.map(|asked| asked.at) else {
                    return;
                };
                if let Some(snapshot) = self.snapshots.iter_mut().rev().find(|s| s.asked == asked_at) {
                    snapshot.entries.extend(entries.iter().cloned());
                }
            }
            ReaderEvent::CallbackEntered(call) => self.observe_struck(at, index, call, false),
            ReaderEvent::CallbackRaised(call) => self.observe_struck(at, index, call, true),
            ReaderEvent::Returned { call, error, .. } => {
                if let Some(exception) = error {
                    self.saw(at, index, Origin::Reader, false, 1, exception);
                }
                if let (true, Some(life)) = (open, self.lives.get_mut(index)) {
                    life.saw_returned(at, call, error.as_ref());
                }
                // The caller may call again, which begins a session of its own.
                self.excuse(at, index, "a call that came back");
            }
            ReaderEvent::Error {
                origin,
                fatal,
                exception,
                count,
            } => {
                self.errors.push((at, index, *origin, *count));
                self.saw(at, index, *origin, *fatal, *count, exception);
                if let (true, Some(life)) = (open, self.lives.get_mut(index)) {
                    life.saw_error(at, *origin, *fatal, exception);
                }
            }
        }
    }

    fn observe_deleted(&mut self, at: Moment, index: usize, keys: &[String]) {
        if let Some(life) = self.lives.get_mut(index) {
            life.keys_deleted = life.keys_deleted.saturating_add(keys.len() as u64);
        }
        let Some(topic) = self.table_topic().map(str::to_owned) else {
            return;
        };
        let generator = self.generator(&topic);
        let shown: Vec<(usize, u32)> = self
            .pending_sentinels()
            .filter(|(_, record)| record.topic == topic)
            .filter(|(_, record)| {
                generator.is_some_and(|generator| {
                    generator.is_tombstone(record.id) && keys.contains(&generator.key(record.partition, record.id))
                })
            })
            .map(|(sentinel, record)| (sentinel, record.partition))
            .collect();
        for (sentinel, partition) in shown {
            self.sentinel_seen(sentinel, &topic, partition, at);
        }
        let mut partitions: Vec<u32> = keys.iter().filter_map(|key| partition_of(key)).collect();
        partitions.sort_unstable();
        partitions.dedup();
        for partition in partitions {
            self.partition_mut(&topic, partition).reads.touched.push(at);
            self.last_progress = self.last_progress.max(Some(at.us));
        }
    }

    fn observe_done(&mut self, at: Moment, member: &str, index: usize, done: &Done) {
        if let Some(exception) = &done.error {
            self.saw(at, index, Origin::Reader, false, 1, exception);
        }
        let open = !self.is_fixed_for(index);
        let Some(asked) = self
            .asked
            .iter_mut()
            .rev()
            .find(|asked| asked.member == member && asked.id == done.id)
        else {
            return;
        };
        asked.answer = Some((at, done.clone()));
        let (command, asked_at) = (asked.command.clone(), asked.at);
        match command.as_str() {
            "start" | "restart" => {
                if let Some(life) = self.lives.get_mut(index) {
                    if done.ok {
                        life.asked_to_restart = None;
                        life.started.get_or_insert(at);
                    } else if open {
                        life.saw_start_fail(at, done.error.as_ref());
                    }
                }
            }
            "snapshot" if done.ok => self.snapshot_complete(at, index, asked_at),
            _ => {}
        }
    }

    fn snapshot_complete(&mut self, at: Moment, index: usize, asked_at: Moment) {
        let Some(place) = self.snapshots.iter().rposition(|s| s.asked == asked_at) else {
            return;
        };
        let Some(topic) = self.table_topic().map(str::to_owned) else {
            return;
        };
        let Some(snapshot) = self.snapshots.get_mut(place) else {
            return;
        };
        snapshot.done = Some(at);
        let mut highest = std::collections::BTreeMap::new();
        for (key, id) in &snapshot.entries {
            if let (Some(partition), Some(id)) = (partition_of(key), id) {
                let last = highest.entry(partition).or_insert(*id);
                *last = (*id).max(*last);
            }
        }
        let mut shown = Vec::new();
        for (sentinel, record) in self.pending_sentinels() {
            if record.topic == topic {
                let generator = self.generator(&topic);
                let key = generator.map(|generator| generator.key(record.partition, record.id));
                let entries = self.snapshots.get(place).map(|s| &s.entries);
                if let (Some(key), Some(entries)) = (key, entries)
                    && entries.get(&key) == Some(&Some(record.id))
                {
                    shown.push((sentinel, record.partition));
                }
            }
        }
        for (sentinel, partition) in shown {
            self.sentinel_seen(sentinel, &topic, partition, at);
        }
        for (partition, last) in highest {
            let partition_facts = self.partition_mut(&topic, partition);
            // A snapshot cannot show what the oracle never wrote; that is for the invariants to say, not a position.
            if partition_facts.log.offset_of(last).is_some() {
                let reach = partition_facts.reads.reach.entry(index).or_default();
                reach.last_id = reach.last_id.max(Some(last));
            }
            self.refresh(&topic, partition, at);
        }
        // The patient's last one stays, whatever a cure shows afterwards.
        if self.fixed().is_none() {
            // Only the newest complete one is judged; a table of 500,000 keys is not worth keeping twice.
            self.snapshots.drain(..place);
        }
    }

    fn observe_struck(&mut self, at: Moment, index: usize, call: &CallbackCall, raised: bool) {
        self.struck.push((at, index, call.clone(), raised));
    }

    fn saw(&mut self, at: Moment, index: usize, origin: Origin, fatal: bool, count: u64, exception: &Exception) {
        // What a cure's fresh reader raises says nothing of the patient.
        if self.is_cure(index) {
            return;
        }
        let phase = self.phase_of(index);
        let key = exception.fingerprint(phase, origin);
        let seen = self.seen.entry(key).or_insert_with(|| Seen {
            exception: exception.clone(),
            origin,
            phase,
            fatal: false,
            count: 0,
            first: at,
            life: Some(index),
        });
        seen.fatal |= fatal;
        seen.count = seen.count.saturating_add(count);
    }

    fn excuse(&mut self, at: Moment, life: usize, what: &'static str) {
        self.excuses.push(Excuse {
            at,
            life: Some(life),
            client: None,
            partition: None,
            what,
        });
    }

    /// The phase that a life is in now.
    fn phase_of(&self, index: usize) -> Phase {
        let Some(life) = self.lives.get(index) else {
            return Phase::Start;
        };
        let stopping = matches!(self.stage(), Some(Stage::Stopping | Stage::Closing));
        if life.asked_to_stop.is_some() || stopping {
            Phase::Close
        } else if life.started.is_none() && self.delivered_total() == 0 {
            Phase::Start
        } else if self.reached_targets() {
            Phase::Live
        } else {
            Phase::CatchUp
        }
    }
}
