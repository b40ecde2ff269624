//! What the run loop and the invariants ask of the facts.

use std::collections::BTreeMap;

use brokerfall_report::history::{ConnectionChange, Generator, LogEnd, Opened, Stage};
use brokerfall_report::protocol::{CallbackCall, Hello, Kind, RECORDS_IDS, RECORDS_OFFSETS, Reset};

use super::{
    Asked, Commit, Cure, Ended, Excuse, Facts, Faults, Left, Life, Log, Member, Moment, Partition, Seen, Sentinel,
    Snapshot, Troubles, Wire, not_tombstone,
};

/// Recovery window where no plan says another: healthy libraries took up to 39 s.
const WITHIN_US: u64 = 60_000_000;

impl Facts {
    // The run.

    /// The plan, once the run is opened.
    pub fn opened(&self) -> Option<&Opened> {
        self.opened.as_deref()
    }

    /// The stage that the run is in.
    pub fn stage(&self) -> Option<Stage> {
        self.stages.last().map(|(_, stage)| *stage)
    }

    /// The last entry.
    pub fn now(&self) -> Moment {
        self.now
    }

    /// When the history was closed; absent while it is open or where it was cut off.
    pub fn closed(&self) -> Option<Moment> {
        self.closed
    }

    /// When the log became quiet for good.
    pub fn quiet(&self) -> Option<Moment> {
        self.quiet
    }

    /// When the patient's verdict was fixed: diagnosis, stopping or closing began.
    pub fn fixed(&self) -> Option<Moment> {
        self.stages
            .iter()
            .find(|(_, stage)| *stage >= Stage::Diagnosing)
            .map(|(at, _)| *at)
    }

    /// Whether cures are being tried, or were.
    pub fn diagnosing(&self) -> bool {
        self.stages.iter().any(|(_, stage)| *stage == Stage::Diagnosing)
    }

    /// The end of what judges the patient: [`Facts::fixed`], or the last entry.
    pub fn end(&self) -> Moment {
        self.fixed().unwrap_or(Moment {
            n: self.now.n.saturating_add(1),
            us: self.now.us,
        })
    }

    /// The recovery window, microseconds.
    pub fn within_us(&self) -> u64 {
        self.opened().map_or(WITHIN_US, |opened| {
            (opened.limits.within_ms.value.max(0.0) * 1000.0) as u64
        })
    }

    /// The kind of reader; assign until the run is opened.
    pub fn kind(&self) -> Kind {
        self.opened().map_or(Kind::Assign, |opened| opened.reader.kind)
    }

    /// The topic that a table shows: the changelog where there is one, else the first.
    pub fn table_topic(&self) -> Option<&str> {
        let topics = &self.opened()?.topics;
        topics
            .iter()
            .find(|topic| topic.role.as_deref() == Some("changelog"))
            .or(topics.first())
            .map(|topic| topic.name.as_str())
    }

    /// How keys and values of a topic follow from ids.
    pub fn generator(&self, topic: &str) -> Option<&Generator> {
        self.opened()?
            .topics
            .iter()
            .find(|info| info.name == topic)
            .map(|info| &info.generator)
    }

    /// What went wrong with the run itself.
    pub fn troubles(&self) -> &Troubles {
        &self.troubles
    }

    /// Faults and the path.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// What the link saw.
    pub fn wire(&self) -> &Wire {
        &self.wire
    }

    /// Cures that were tried.
    pub fn cures(&self) -> &[Cure] {
        &self.cures
    }

    /// How processes left.
    pub fn left(&self) -> &[Left] {
        &self.left
    }

    /// Exceptions, equal ones together, by fingerprint.
    pub fn seen(&self) -> &BTreeMap<String, Seen> {
        &self.seen
    }

    // Partitions.

    pub(super) fn partition_mut(&mut self, topic: &str, partition: u32) -> &mut Partition {
        if !self.topics.contains_key(topic) {
            self.topics.insert(topic.to_owned(), BTreeMap::new());
        }
        // OK because the line above put it there.
        let topic = self.topics.get_mut(topic).expect("the topic is known");
        topic.entry(partition).or_default()
    }

    /// One partition, once anything is known of it.
    pub fn partition(&self, topic: &str, partition: u32) -> Option<&Partition> {
        self.topics.get(topic)?.get(&partition)
    }

    /// Every partition of which anything is known.
    pub fn partitions(&self) -> impl Iterator<Item = (&str, u32, &Partition)> {
        self.topics
            .iter()
            .flat_map(|(topic, partitions)| partitions.iter().map(move |(p, facts)| (topic.as_str(), *p, facts)))
    }

    /// The log of one partition.
    pub fn log(&self, topic: &str, partition: u32) -> Option<&Log> {
        self.partition(topic, partition).map(|p| &p.log)
    }

    /// Next offset to be written, as the oracle knows it.
    pub fn log_end(&self, topic: &str, partition: u32) -> Option<u64> {
        self.log(topic, partition)?.now().map(|bounds| bounds.end)
    }

    /// First offset that can be read, as the oracle knows it.
    pub fn log_start(&self, topic: &str, partition: u32) -> Option<u64> {
        self.log(topic, partition)?.now().map(|bounds| bounds.start)
    }

    /// Highest fetch offset that the link saw.
    pub fn max_fetch_offset(&self, topic: &str, partition: u32) -> Option<u64> {
        self.wire.fetched.get(topic)?.get(&partition).copied()
    }

    /// The patient's next offset: by records delivered, or by what its heartbeats say where it is told neither offsets
    /// nor ids. A group's is the highest of its members.
    pub fn position(&self, topic: &str, partition: u32) -> Option<u64> {
        self.partition(topic, partition)?.reads.position()
    }

    /// Where a reader without a position stands: the log start, or under reset `latest` the log end at its start (for a
    /// group: at its first start, because a position is kept for it from then on).
    pub fn start_position(&self, topic: &str, partition: u32) -> u64 {
        let log_start = self.log_start(topic, partition).unwrap_or(0);
        match self.opened().map(|opened| opened.reset) {
            Some(Reset::Latest) if self.kind() == Kind::Group => {
                self.first_target(topic, partition).unwrap_or(0).max(log_start)
            }
            Some(Reset::Latest) => self.last_target(topic, partition).unwrap_or(0).max(log_start),
            _ => log_start,
        }
    }

    /// Where the patient stands for counting lag.
    fn standing_at(&self, topic: &str, partition: u32, position: Option<u64>) -> u64 {
        let start = self.start_position(topic, partition);
        position.map_or(start, |p| p.max(self.log_start(topic, partition).unwrap_or(0)))
    }

    /// One above the last record below `end` that this reader can report.
    pub fn end_of_records(&self, topic: &str, partition: u32, end: u64) -> u64 {
        let Some(log) = self.log(topic, partition) else {
            return end;
        };
        if self.tells_tombstones() {
            log.end_of_records(end, |_| true)
        } else {
            log.end_of_records(end, not_tombstone(self.generator(topic)))
        }
    }

    /// True lag of one partition in records, for a position in a log that ends at `end`.
    pub fn lag_at(&self, topic: &str, partition: u32, position: Option<u64>, end: u64) -> u64 {
        self.end_of_records(topic, partition, end)
            .saturating_sub(self.standing_at(topic, partition, position))
    }

    /// True lag of one partition in records.
    pub fn lag_of(&self, topic: &str, partition: u32) -> u64 {
        let end = self.log_end(topic, partition).unwrap_or(0);
        self.lag_at(topic, partition, self.position(topic, partition), end)
    }

    /// True lag in records over all partitions of the plan's topics.
    pub fn lag(&self) -> u64 {
        self.planned_partitions()
            .iter()
            .fold(0, |sum, (topic, p)| sum.saturating_add(self.lag_of(topic, *p)))
    }

    /// Every partition of the plan that the reader reads.
    pub fn planned_partitions(&self) -> Vec<(&str, u32)> {
        self.opened().map_or_else(Vec::new, |opened| {
            opened
                .topics
                .iter()
                .flat_map(|topic| (0..topic.partitions).map(|p| (topic.name.as_str(), p)))
                .collect()
        })
    }

    // Progress.

    /// Records delivered in all, duplicates included.
    pub fn delivered_total(&self) -> u64 {
        self.delivered.last().map_or(0, |(_, total)| *total)
    }

    /// When the patient last made progress: a position rose, a table dropped a key.
    pub fn last_progress_us(&self) -> Option<u64> {
        self.last_progress
    }

    /// The log ends that the members now running were to reach; the highest where several were told.
    pub fn targets(&self) -> Vec<LogEnd> {
        let mut ends: BTreeMap<(&str, u32), u64> = BTreeMap::new();
        for (_, targets) in self.members.values().filter_map(|member| member.targets.last()) {
            for target in targets {
                let end = ends.entry((&target.topic, target.partition)).or_default();
                *end = (*end).max(target.offset);
            }
        }
        ends.into_iter()
            .map(|((topic, partition), offset)| LogEnd {
                topic: topic.to_owned(),
                partition,
                offset,
            })
            .collect()
    }

    fn last_target(&self, topic: &str, partition: u32) -> Option<u64> {
        self.members
            .values()
            .filter_map(|member| member.targets.last())
            .flat_map(|(_, ends)| ends)
            .filter(|end| end.topic == topic && end.partition == partition)
            .map(|end| end.offset)
            .max()
    }

    /// The log end of a partition when the first reader was started.
    pub fn first_target(&self, topic: &str, partition: u32) -> Option<u64> {
        self.members
            .values()
            .filter_map(|member| member.targets.first())
            .min_by_key(|(at, _)| *at)?
            .1
            .iter()
            .find(|end| end.topic == topic && end.partition == partition)
            .map(|end| end.offset)
    }

    /// Whether the patient's position reached the log end that the oracle saw at its start, on every partition. False
    /// before any target is known; claims do not count.
    pub fn reached_targets(&self) -> bool {
        let targets = self.targets();
        !targets.is_empty()
            && targets
                .iter()
                .all(|target| self.reached(&target.topic, target.partition, target.offset))
    }

    /// Whether the patient's position is at `end` or past the last record below it.
    pub fn reached(&self, topic: &str, partition: u32, end: u64) -> bool {
        self.lag_at(topic, partition, self.position(topic, partition), end) == 0
    }

    /// Whether the sentinel of this round was delivered or shown on every partition.
    pub fn sentinel_arrived(&self, round: u32) -> bool {
        self.sentinel(round)
            .is_some_and(|sentinel| sentinel.records.iter().all(|(_, arrived)| arrived.is_some()))
    }

    /// Partitions on which the sentinel of this round has not arrived; empty before there is one.
    pub fn sentinel_missing(&self, round: u32) -> Vec<(String, u32)> {
        self.sentinel(round).map_or_else(Vec::new, |sentinel| {
            sentinel
                .records
                .iter()
                .filter(|(_, arrived)| arrived.is_none())
                .map(|(record, _)| (record.topic.clone(), record.partition))
                .collect()
        })
    }

    /// The sentinel of a round.
    pub fn sentinel(&self, round: u32) -> Option<&Sentinel> {
        self.sentinels.iter().find(|sentinel| sentinel.round == round)
    }

    // Readers.

    /// Members by name.
    pub fn members(&self) -> &BTreeMap<String, Member> {
        &self.members
    }

    /// Every life of every member, in the order of their beginning.
    pub fn lives(&self) -> &[Life] {
        &self.lives
    }

    pub(super) fn last_life(&self, member: &str) -> Option<usize> {
        self.members.get(member)?.lives.last().copied()
    }

    pub(super) fn last_life_mut(&mut self, member: &str) -> Option<&mut Life> {
        let index = self.last_life(member)?;
        self.lives.get_mut(index)
    }

    /// The life that a member leads now.
    pub fn life(&self, member: &str) -> Option<&Life> {
        self.lives.get(self.last_life(member)?)
    }

    /// The lives that are judged: of each member the one that runs when the log becomes quiet (or when the verdict is
    /// fixed), without those that were asked to leave before.
    pub fn patients(&self) -> Vec<usize> {
        let end = self.quiet.map_or(self.end(), |quiet| quiet.min(self.end()));
        self.members
            .values()
            .filter_map(|member| {
                let life = member
                    .lives
                    .iter()
                    .rev()
                    .copied()
                    .find(|&life| self.lives.get(life).is_some_and(|life| life.born.n < end.n))?;
                let facts = self.lives.get(life)?;
                let left = facts.asked_to_stop.is_some_and(|at| at.n < end.n)
                    || facts.exit.as_ref().is_some_and(|exit| exit.asked && exit.at.n < end.n);
                (!left).then_some(life)
            })
            .collect()
    }

    /// What a member's adapter said of itself.
    pub fn hello(&self, member: &str) -> Option<&Hello> {
        self.members.get(member)?.hello.as_ref()
    }

    /// Whether a member's adapter has an optional event or command.
    pub fn has_capability(&self, member: &str, name: &str) -> bool {
        self.hello(member)
            .is_some_and(|hello| hello.capabilities.iter().any(|capability| capability == name))
    }

    /// Whether the reader tells tombstones as records: a table without offsets knows only their keys.
    pub fn tells_tombstones(&self) -> bool {
        self.kind() != Kind::Table
            || self.lives.iter().any(|life| life.tells_offsets)
            || self
                .members
                .keys()
                .any(|member| self.has_capability(member, RECORDS_OFFSETS))
    }

    /// Whether positions in heartbeats count: only where nothing better is told, or where the reader may skip.
    pub(super) fn trusts_told(&self, life: usize) -> bool {
        let Some(life) = self.lives.get(life) else { return false };
        let better = life.tells_offsets
            || life.tells_ids
            || self.has_capability(&life.member, RECORDS_OFFSETS)
            || self.has_capability(&life.member, RECORDS_IDS);
        !better
            || self
                .opened()
                .is_some_and(|opened| opened.reader.declares.skips_on_reset)
    }

    /// How the life that a member leads ended by itself; `None` while it goes on or when it was asked to end.
    pub fn ended(&self, member: &str) -> Option<Ended<'_>> {
        self.life_ended(self.last_life(member)?, self.now.us)
    }

    /// How a life ended by itself, as known at a time.
    pub fn life_ended(&self, life: usize, now_us: u64) -> Option<Ended<'_>> {
        let calm_us = self
            .faults
            .calm_since(now_us)
            .map_or(0, |since| now_us.saturating_sub(since));
        self.lives.get(life)?.ended(calm_us, now_us, self.within_us())
    }

    /// The last end, once every member that was not asked to leave has ended by itself.
    pub fn all_ended(&self) -> Option<Ended<'_>> {
        let mut last: Option<Ended<'_>> = None;
        for index in self.members.values().filter_map(|member| member.lives.last().copied()) {
            let Some(life) = self.lives.get(index) else { continue };
            if life.asked_to_stop.is_some() || life.exit.as_ref().is_some_and(|exit| exit.asked) {
                continue;
            }
            let ended = self.life_ended(index, self.now.us)?;
            if last.as_ref().is_none_or(|last| last.at_us <= ended.at_us) {
                last = Some(ended);
            }
        }
        last
    }

    /// Commands sent, with their answers.
    pub fn asked(&self) -> &[Asked] {
        &self.asked
    }

    /// Snapshots: the newest complete one and what came after it.
    pub fn snapshots(&self) -> &[Snapshot] {
        &self.snapshots
    }

    /// What lets positions go back.
    pub fn excuses(&self) -> &[Excuse] {
        &self.excuses
    }

    /// Calls of armed callbacks: when, which life, which call, and whether it raised (else: was entered).
    pub fn struck(&self) -> &[(Moment, usize, CallbackCall, bool)] {
        &self.struck
    }

    /// Armed callbacks entered from event `mark` on.
    pub fn callbacks_entered_since(&self, mark: u64) -> u64 {
        let entered = self.struck.iter().filter(|(at, _, _, raised)| at.n >= mark && !raised);
        entered.count() as u64
    }

    /// Error events: when, which life, where they surfaced, how many.
    pub fn errors(&self) -> &[(Moment, usize, brokerfall_report::exception::Origin, u64)] {
        &self.errors
    }

    /// Resets reported from event `mark` on.
    pub fn resets_since(&self, mark: u64) -> u64 {
        self.resets.iter().filter(|at| at.n >= mark).count() as u64
    }

    // The wire.

    /// Requests that the link saw from event `mark` on: of one api, or of all.
    pub fn wire_requests_since(&self, mark: u64, api: Option<&str>) -> u64 {
        let from = self.wire.windows.partition_point(|window| window.at.n < mark);
        self.wire
            .windows
            .iter()
            .skip(from)
            .flat_map(|window| &window.requests)
            .filter(|(name, _)| api.is_none_or(|api| api == name))
            .fold(0, |sum, (_, n)| sum.saturating_add(*n))
    }

    /// Error codes that the link saw from event `mark` on: of one api or all, of one code (its name) or all.
    pub fn wire_errors_since(&self, mark: u64, api: Option<&str>, code: Option<&str>) -> u64 {
        self.wire
            .answers
            .iter()
            .filter(|answer| answer.at.n >= mark)
            .filter(|answer| {
                api.is_none_or(|api| api == answer.api) && code.is_none_or(|code| code == answer.code.name)
            })
            .fold(0, |sum, answer| sum.saturating_add(answer.count))
    }

    /// Answers that a fault's rule put on the wire.
    pub fn injected_answers(&self, fault: &str) -> u64 {
        self.wire
            .answers
            .iter()
            .filter(|answer| answer.injected_by.as_deref() == Some(fault))
            .fold(0, |sum, answer| sum.saturating_add(answer.count))
    }

    /// Changes of connections from event `mark` on: of one broker, or of all.
    pub fn connections_since(&self, mark: u64, node: Option<i32>, change: ConnectionChange) -> u64 {
        self.wire
            .connections
            .iter()
            .filter(|c| c.at.n >= mark && c.change == change && node.is_none_or(|node| node == c.node))
            .fold(0, |sum, c| sum.saturating_add(c.count))
    }

    /// Commits, in order.
    pub fn commits(&self) -> &[Commit] {
        &self.wire.commits
    }
}
