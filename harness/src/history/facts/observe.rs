//! The fold: what each event adds to the facts.

use brokerfall_report::history::{Entry, Event, Grade, StepState};
use brokerfall_report::protocol::Kind;

use super::{Added, Asked, Cure, Excuse, Exit, Facts, Fault, Left, Life, Moment, Sentinel, Snapshot, Usage};

impl Facts {
    /// Takes in one entry.
    pub fn observe(&mut self, entry: &Entry) {
        let at = Moment {
            n: entry.n,
            us: entry.at_us,
        };
        self.now = Moment {
            n: entry.n,
            us: self.now.us.max(entry.at_us),
        };
        self.calm.observe(self.now, stirs(&entry.event));
        self.thin();
        match &entry.event {
            Event::Opened(opened) => self.opened = Some(opened.clone()),
            Event::Stage(stage) => self.stages.push((at, *stage)),
            Event::Step {
                index,
                text,
                state,
                detail,
            } => {
                if *state == StepState::Unmet {
                    self.troubles.unmet.push((at.n, *index, text.clone(), detail.clone()));
                }
            }
            Event::Injecting { .. }
            | Event::Injected { .. }
            | Event::Delivered { .. }
            | Event::Felt { .. }
            | Event::Healing { .. }
            | Event::Healed { .. }
            | Event::NotProven { .. }
            | Event::Path { .. } => self.observe_fault(at, &entry.event),
            Event::Produced { .. }
            | Event::Watermarks { .. }
            | Event::Scanned { .. }
            | Event::Targets { .. }
            | Event::PartitionsAdded { .. }
            | Event::TopicDeleted { .. }
            | Event::Transaction { .. }
            | Event::LogTruncated { .. }
            | Event::Sentinel { .. } => self.observe_oracle(at, &entry.event),
            Event::Quiet => self.quiet = self.quiet.or(Some(at)),
            Event::Wire { .. }
            | Event::WireError { .. }
            | Event::WireConnection { .. }
            | Event::WireGroup { .. }
            | Event::WireCommit { .. }
            | Event::WireTold { .. } => self.observe_wire(at, &entry.event),
            Event::GroupDescribed { .. } | Event::CommitsTold { .. } => self.observe_coordinator(at, &entry.event),
            Event::Reader {
                member,
                inc,
                reader_us,
                event,
            } => {
                if self.neutrals.contains(member) {
                    self.observe_neutral(at, event);
                    return;
                }
                // A reader's clock can only be behind the receipt; ahead would be the clock estimate's error.
                let us = (*reader_us).min(at.us);
                let life = self.life_of(member, *inc, Moment { n: at.n, us });
                if let Some(member) = self.members.get_mut(member) {
                    member.spoke = true;
                }
                self.observe_reader(Moment { n: at.n, us }, member, life, event);
            }
            Event::Deviation { text } => self.troubles.deviations.push((at.n, text.clone())),
            Event::Cure { renewed, worked, text } => self.cures.push(Cure {
                at,
                renewed: *renewed,
                worked: *worked,
                text: text.clone(),
            }),
            Event::Failure { of, text } => self.troubles.failures.push((at.n, *of, text.clone())),
            Event::Contended { span_us, waited_us } => self.contended.push((at, *span_us, *waited_us)),
            Event::Starved { gap_ms } => self.troubles.starved.push((at, *gap_ms)),
            Event::Skipped { reason, enable } => {
                self.troubles.skipped = Some((at.n, reason.clone(), enable.clone()));
            }
            Event::Interrupted { signal } => self.troubles.interrupted = Some((at.n, signal.clone())),
            Event::Closed => self.closed = Some(at),
            Event::StateWiped { member, .. } => {
                let next = self.lives.len();
                self.members.entry(member.clone()).or_default().wiped = next;
            }
            Event::Spawned { .. }
            | Event::Asked { .. }
            | Event::ProtocolBroken { .. }
            | Event::ReaderBlocked { .. }
            | Event::ReaderUnblocked { .. }
            | Event::Exited { .. }
            | Event::Sample { .. }
            | Event::Claim { .. }
            | Event::Left { .. } => self.observe_process(at, &entry.event),
        }
    }

    fn observe_fault(&mut self, at: Moment, event: &Event) {
        let mut prove = |name: &str, grade: Grade| {
            if let Some(fault) = self.faults.named_mut(name) {
                fault.proven.entry(grade).or_insert(at);
            }
        };
        match event {
            Event::Injected { fault, .. } => prove(fault, Grade::Injected),
            Event::Delivered { fault, .. } => prove(fault, Grade::Delivered),
            Event::Felt { fault, .. } => prove(fault, Grade::Felt),
            Event::Injecting { fault, kind, text, .. } => self.faults.all.push(Fault {
                name: fault.clone(),
                kind: kind.clone(),
                text: text.clone(),
                injecting: at,
                proven: std::collections::BTreeMap::new(),
                healing: None,
                healed: None,
            }),
            Event::Healing { fault } => {
                if let Some(fault) = self.faults.named_mut(fault) {
                    fault.healing.get_or_insert(at);
                }
            }
            Event::Healed { fault, .. } => {
                if let Some(fault) = self.faults.named_mut(fault) {
                    fault.healed.get_or_insert(at);
                }
            }
            Event::NotProven { fault, wanted, text } => {
                self.troubles
                    .not_proven
                    .push((at.n, fault.clone(), *wanted, text.clone()));
            }
            Event::Path { open, .. } => self.faults.path.push((at, *open)),
            _ => {}
        }
        let in_force = self.faults.all.iter().any(|fault| fault.healed.is_none());
        self.calm.fault(at, in_force);
    }

    fn observe_oracle(&mut self, at: Moment, event: &Event) {
        match event {
            Event::Produced {
                topic,
                partition,
                ids,
                offsets,
                outcome,
            } => {
                let of = self.partition_mut(topic, *partition);
                of.log.produced(at, ids, offsets, *outcome);
                // What lies above all that any reader was given moves no position.
                let given = of.reads.reach.values().filter_map(|reach| reach.last_id).max();
                let lowest = ids.as_slice().iter().map(|[first, _]| *first).min();
                if lowest <= given {
                    self.refresh(topic, *partition, at);
                }
            }
            Event::Watermarks {
                topic,
                partition,
                log_start,
                log_end,
            } => {
                let log = &mut self.partition_mut(topic, *partition).log;
                let before = log.truncated.len();
                log.watermarks(at, *log_start, *log_end);
                if log.truncated.len() > before {
                    self.excuses.push(Excuse {
                        at,
                        life: None,
                        client: None,
                        partition: Some((topic.clone(), *partition)),
                        what: "the log was recreated or truncated",
                    });
                }
            }
            Event::Scanned {
                topic,
                partition,
                from,
                to,
                ids,
                offsets,
            } => {
                self.partition_mut(topic, *partition)
                    .scanned(at, (*from, *to), ids, offsets);
                self.refresh(topic, *partition, at);
            }
            Event::Targets { member, ends } => {
                self.members
                    .entry(member.clone())
                    .or_default()
                    .targets
                    .push((at, ends.clone()));
            }
            Event::PartitionsAdded { topic, to, .. } => self.added.push(Added {
                at,
                topic: topic.clone(),
                to: *to,
            }),
            Event::TopicDeleted { topic } => self.topic_deleted(topic, at),
            Event::Transaction {
                topic,
                partition,
                ids,
                state,
            } => self.partition_mut(topic, *partition).log.transaction(at, ids, *state),
            Event::LogTruncated {
                topic,
                partition,
                log_end,
            } => self.log_truncated(topic, *partition, *log_end, at),
            Event::Sentinel { round, records } => {
                let records = records
                    .iter()
                    .filter(|record| self.is_planned(&record.topic, record.partition))
                    .map(|record| {
                        let reads = self.partition(&record.topic, record.partition).map(|p| &p.reads);
                        // A fast reader can have it before the acknowledgement is recorded.
                        let there = reads.is_some_and(|reads| reads.has(record.id, Some(record.offset)));
                        (record.clone(), there.then_some(at))
                    })
                    .collect();
                self.sentinels.push(Sentinel {
                    round: *round,
                    at,
                    records,
                });
            }
            _ => {}
        }
    }

    fn observe_process(&mut self, at: Moment, event: &Event) {
        if self.observe_neutral_process(at, event) {
            return;
        }
        match event {
            Event::Spawned { member, .. } => {
                let process = self.processes;
                self.processes += 1;
                self.begin(member, process, 0, at);
            }
            Event::Asked {
                member, id, command, ..
            } => {
                let life = self.last_life(member);
                if let Some(life) = life.and_then(|life| self.lives.get_mut(life)) {
                    match command.as_str() {
                        "stop" => _ = life.asked_to_stop.get_or_insert(at),
                        "restart" => _ = life.asked_to_restart.get_or_insert(at),
                        _ => {}
                    }
                }
                if let (Some(life), "snapshot") = (life, command.as_str()) {
                    self.snapshots.push(Snapshot {
                        asked: at,
                        life,
                        done: None,
                        entries: std::collections::BTreeMap::new(),
                    });
                }
                self.asked.push(Asked {
                    member: member.clone(),
                    id: *id,
                    command: command.clone(),
                    at,
                    life,
                    answer: None,
                });
            }
            // A process that was started as a cure cannot take back what was found of the patient.
            Event::ProtocolBroken { .. } if self.diagnosing() => {}
            Event::ProtocolBroken { member, text, .. } => {
                self.troubles.protocol.push((at.n, member.clone(), text.clone()));
            }
            Event::ReaderBlocked { member, since_us } => {
                if let Some(life) = self.last_life_mut(member) {
                    life.blocked.push((*since_us, None));
                }
            }
            Event::ReaderUnblocked { member } => {
                if let Some((_, until)) = self.last_life_mut(member).and_then(|life| life.blocked.last_mut()) {
                    until.get_or_insert(at.us);
                }
            }
            Event::Exited {
                member,
                code,
                signal,
                asked,
                ..
            } => {
                let fixed = self.fixed();
                // A process is reaped by a task of its own, which can be later than the start of its successor.
                let lives = self.members.get(member).map_or(&[][..], |member| &member.lives);
                let process = lives
                    .iter()
                    .filter_map(|&life| self.lives.get(life))
                    .find(|life| {
                        let same = |other: &&Life| other.process == life.process && other.member == life.member;
                        self.lives.iter().filter(same).all(|other| other.exit.is_none())
                    })
                    .map(|life| life.process);
                let life = self.lives.iter_mut().rfind(|life| Some(life.process) == process);
                if let Some(life) = life {
                    let after = fixed.is_some_and(|fixed| life.born < fixed);
                    life.exit = Some(Exit {
                        at,
                        code: *code,
                        signal: *signal,
                        asked: *asked || after,
                    });
                }
            }
            Event::Sample {
                member,
                cpu_ms,
                rss_kib,
                descriptors,
                waited_ms,
                ..
            } => {
                if let Some(life) = self.last_life_mut(member) {
                    life.usage.push(Usage {
                        at,
                        cpu_ms: *cpu_ms,
                        rss_kib: *rss_kib,
                        descriptors: *descriptors,
                        waited_ms: *waited_ms,
                    });
                }
            }
            Event::Claim {
                member, name, healthy, ..
            } => {
                if let Some(life) = self.last_life_mut(member) {
                    life.saw_answer(at, name, *healthy);
                }
            }
            Event::Left {
                member,
                stopped_ms,
                processes,
                connections,
            } => {
                let life = self.last_life(member);
                self.left.push(Left {
                    at,
                    member: member.clone(),
                    life,
                    stopped_ms: *stopped_ms,
                    processes: processes.clone(),
                    connections: *connections,
                });
            }
            _ => {}
        }
    }

    /// The life that an event of this incarnation belongs to; a higher incarnation begins a new one.
    fn life_of(&mut self, member: &str, inc: u32, at: Moment) -> usize {
        let Some(last) = self.last_life(member) else {
            let process = self.processes;
            self.processes += 1;
            return self.begin(member, process, inc, at);
        };
        let Some(life) = self.lives.get_mut(last) else {
            return last;
        };
        if inc <= life.inc {
            let process = life.process;
            let earlier = self.members.get(member).and_then(|m| {
                m.lives
                    .iter()
                    .rev()
                    .find(|&&i| self.lives.get(i).is_some_and(|l| l.process == process && l.inc == inc))
            });
            return earlier.copied().unwrap_or(last);
        }
        if life.inc == 0 {
            life.inc = inc;
            return last;
        }
        let process = life.process;
        self.begin(member, process, inc, at)
    }

    fn begin(&mut self, member: &str, process: usize, inc: u32, at: Moment) -> usize {
        if let Some(life) = self.last_life_mut(member) {
            life.over = Some(at);
        }
        let index = self.lives.len();
        let goes_on = self.goes_on(member, index);
        self.lives.push(Life::new(member, process, inc, at));
        self.members.entry(member.to_owned()).or_default().lives.push(index);
        if self.kind() != Kind::Group && !goes_on {
            for partition in self.topics.values_mut().flat_map(|topic| topic.values_mut()) {
                partition.reads.mark(at, None);
            }
        }
        index
    }

    /// Brings the patient's position in a partition up to date.
    pub(super) fn refresh(&mut self, topic: &str, partition: u32, at: Moment) {
        let group = self.kind() == Kind::Group;
        let mut position = None;
        if let Some(facts) = self.partition(topic, partition) {
            for &index in facts.reads.reach.keys() {
                let counts = group
                    || self
                        .lives
                        .get(index)
                        .is_some_and(|life| life.over.is_none() || self.goes_on(&life.member, index + 1));
                if counts {
                    position = position.max(facts.reads.position_of(index, &facts.log, self.trusts_told(index)));
                }
            }
        }
        if self.partition_mut(topic, partition).reads.mark(at, position) {
            self.last_progress = self.last_progress.max(Some(at.us));
        }
    }

    pub(super) fn look_for_sentinels(&mut self, topic: &str, partition: u32, at: Moment) {
        let mut arrived = Vec::new();
        for (sentinel, record) in self.pending_sentinels() {
            if record.topic == topic && record.partition == partition {
                let Some(facts) = self.partition(topic, partition) else {
                    continue;
                };
                let told = facts.reads.ids.is_empty()
                    && facts.reads.offsets.is_empty()
                    && facts.reads.position().is_some_and(|position| position > record.offset);
                if told || facts.reads.has(record.id, Some(record.offset)) {
                    arrived.push(sentinel);
                }
            }
        }
        for sentinel in arrived {
            self.sentinel_seen(sentinel, topic, partition, at);
        }
    }

    pub(super) fn pending_sentinels(
        &self,
    ) -> impl Iterator<Item = (usize, &brokerfall_report::history::SentinelRecord)> {
        self.sentinels.iter().enumerate().flat_map(|(i, sentinel)| {
            sentinel
                .records
                .iter()
                .filter(|(_, arrived)| arrived.is_none())
                .map(move |(record, _)| (i, record))
        })
    }

    pub(super) fn sentinel_seen(&mut self, sentinel: usize, topic: &str, partition: u32, at: Moment) {
        if let Some(sentinel) = self.sentinels.get_mut(sentinel) {
            for (record, arrived) in &mut sentinel.records {
                if record.topic == topic && record.partition == partition {
                    arrived.get_or_insert(at);
                }
            }
        }
    }

    /// The life's verdict is fixed: what it does from here on is not judged.
    pub(super) fn is_fixed_for(&self, index: usize) -> bool {
        match (self.fixed(), self.lives.get(index)) {
            (Some(fixed), Some(life)) => life.born < fixed,
            _ => false,
        }
    }

    /// The life began after the patient's verdict was fixed.
    pub(crate) fn is_cure(&self, index: usize) -> bool {
        match (self.fixed(), self.lives.get(index)) {
            (Some(fixed), Some(life)) => life.born >= fixed,
            _ => false,
        }
    }
}

/// Whether a judge may ask about the moment of this event: all but the stream of what is told over and over.
fn stirs(event: &Event) -> bool {
    use brokerfall_report::history::GroupChange;
    use brokerfall_report::protocol::ReaderEvent;
    match event {
        Event::Produced { .. }
        | Event::Watermarks { .. }
        | Event::Sample { .. }
        | Event::Claim { .. }
        | Event::Contended { .. }
        | Event::Wire { .. }
        | Event::WireConnection { .. }
        | Event::WireCommit { .. }
        | Event::CommitsTold { .. }
        | Event::WireGroup {
            change: GroupChange::Alive { .. },
            ..
        } => false,
        Event::Reader { event, .. } => !matches!(
            event,
            ReaderEvent::Records { .. }
                | ReaderEvent::Deleted { .. }
                | ReaderEvent::Heartbeat(_)
                | ReaderEvent::Committed { .. }
                | ReaderEvent::Error { fatal: false, .. }
        ),
        _ => true,
    }
}
