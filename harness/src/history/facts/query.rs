//! What the run loop and the invariants ask of the facts.

use std::collections::BTreeMap;

use brokerfall_report::history::{Generator, LogEnd, Opened, Stage, TopicInfo};
use brokerfall_report::protocol::{Kind, Reset};

use crate::history::limits::WITHIN_MS;

use super::{Cure, Facts, Faults, Left, Log, Moment, Partition, Seen, Sentinel, Troubles, Wire, not_tombstone};

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
        let within_ms = self.opened().map_or(WITHIN_MS, |opened| opened.limits.within_ms.value);
        (within_ms.max(0.0) * 1000.0) as u64
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

    /// The share of a time in which something on the machine had to wait for a core, from 0 to 1.
    pub fn contention(&self, from_us: u64, to_us: u64) -> f64 {
        let waited = self.contended.iter().fold(0.0, |sum, &(at, span_us, waited_us)| {
            let inside = at
                .us
                .min(to_us)
                .saturating_sub(at.us.saturating_sub(span_us).max(from_us));
            sum + inside as f64 * (waited_us as f64 / span_us.max(1) as f64).min(1.0)
        });
        let length = to_us.saturating_sub(from_us);
        if length == 0 {
            0.0
        } else {
            (waited / length as f64).min(1.0)
        }
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
    fn start_position(&self, topic: &str, partition: u32) -> u64 {
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
        let end = self.visible(log, end, self.now().us);
        let hidden = self.hidden(log);
        if self.tells_tombstones() {
            log.end_of_records(end, |id| !hidden.contains(id))
        } else {
            let tells = not_tombstone(self.generator(topic));
            log.end_of_records(end, |id| !hidden.contains(id) && tells(id))
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
    /// Partitions that a topic got in the run are read by tables and groups, which read a topic; a reader of kind assign
    /// reads what it was told, and learns of them when it is started again.
    pub fn planned_partitions(&self) -> Vec<(&str, u32)> {
        self.opened().map_or_else(Vec::new, |opened| {
            opened
                .topics
                .iter()
                .flat_map(|topic| (0..self.partitions_of(topic)).map(|p| (topic.name.as_str(), p)))
                .collect()
        })
    }

    /// Whether the reader reads this partition; before the plan is known, every one.
    pub fn is_planned(&self, topic: &str, partition: u32) -> bool {
        self.opened().is_none_or(|opened| {
            let known = opened.topics.iter().find(|known| known.name == topic);
            known.is_some_and(|known| partition < self.partitions_of(known))
        })
    }

    /// How many partitions of a topic the reader reads.
    fn partitions_of(&self, topic: &TopicInfo) -> u32 {
        let added = self.added.iter().filter(|added| added.topic == topic.name);
        added
            .filter(|added| self.kind() != Kind::Assign || self.was_started_since(added.at))
            .map(|added| added.to)
            .fold(topic.partitions, u32::max)
    }

    /// Whether the patient was told to start after a moment.
    fn was_started_since(&self, moment: Moment) -> bool {
        let end = self.end();
        self.asked
            .iter()
            .any(|asked| asked.command == "start" && asked.at.n > moment.n && asked.at.n < end.n)
    }

    // Progress.

    /// Records delivered in all, duplicates included.
    pub fn delivered_total(&self) -> u64 {
        self.delivered
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
    fn first_target(&self, topic: &str, partition: u32) -> Option<u64> {
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
        let told = self.members.values().filter_map(|member| member.targets.last());
        let ends: Vec<(Moment, &LogEnd)> = told.flat_map(|(at, ends)| ends.iter().map(|end| (*at, end))).collect();
        !ends.is_empty()
            && ends.iter().all(|(at, end)| {
                // What stood there then cannot be reached any more.
                self.gone_at(&end.topic, end.partition, *at).is_some()
                    || self.reached(&end.topic, end.partition, end.offset)
            })
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
}
