//! What a reader owes: records that were there when it passed them.

use std::collections::BTreeMap;

use brokerfall_report::protocol::Kind;
use brokerfall_report::protocol::Reset;

use crate::history::facts::{Facts, Log, Moment, NEUTRAL, Partition, RunSet, Segment, not_tombstone, partition_of};

/// Lives that answer for the same records: all of a group's; of any other kind each patient for itself, because it
/// starts anew.
pub(super) fn scopes(facts: &Facts) -> Vec<Vec<usize>> {
    if facts.kind() == Kind::Group {
        let mut lives: Vec<usize> = (0..facts.lives().len()).filter(|&life| !facts.is_cure(life)).collect();
        if lives.is_empty() {
            return Vec::new();
        }
        // What a neutral member took was taken by the group.
        lives.push(NEUTRAL);
        vec![lives]
    } else {
        facts.patients().into_iter().map(|life| kept(facts, life)).collect()
    }
}

/// A life and those before it on whose state it goes on.
pub(super) fn kept(facts: &Facts, patient: usize) -> Vec<usize> {
    let Some(life) = facts.lives().get(patient) else {
        return Vec::new();
    };
    let lives = facts
        .members()
        .get(&life.member)
        .map_or(&[][..], |member| &member.lives);
    let mut scope = vec![patient];
    let mut latest = patient;
    for &earlier in lives.iter().rev().filter(|&&earlier| earlier < patient) {
        if !facts.goes_on(&life.member, latest) {
            break;
        }
        scope.push(earlier);
        latest = earlier;
    }
    scope
}

/// Whether deliveries can be told apart record by record.
pub(super) fn tells_records(facts: &Facts) -> bool {
    facts.lives().iter().any(|life| life.tells_ids || life.tells_offsets)
}

/// What one scope was given of one partition.
pub(super) struct Given<'a> {
    facts: &'a Facts,
    topic: &'a str,
    partition: u32,
    log: &'a Log,
    segments: Vec<Segment>,
    /// Of a log that lost its end: the event that gave a record of a log that followed, and where its end was lost. Whoever is
    /// that far has passed all that still stands below.
    followed: Option<(u64, u64)>,
    /// Ids that are not there for the reader, so that nobody owes them.
    hidden: RunSet,
}

impl<'a> Given<'a> {
    /// What `scope` was given before the verdict was fixed.
    pub(super) fn new(facts: &'a Facts, scope: &[usize], topic: &'a str, partition: u32, of: &'a Partition) -> Self {
        let end = facts.end();
        let segments = of
            .reads
            .segments
            .iter()
            .filter(|segment| segment.at.n < end.n && scope.contains(&segment.life))
            .copied()
            .collect();
        // Without ids nobody can tell of which log a record is.
        let later = facts
            .incarnations()
            .filter(|(t, p, later)| {
                (*t, *p) == (topic, partition)
                    && of
                        .until
                        .is_some_and(|until| later.since.is_some_and(|since| since.n >= until.n))
            })
            .flat_map(|(.., later)| &later.reads.segments)
            .filter(|segment| segment.id.is_some() && scope.contains(&segment.life));
        let followed = later.map(|segment| segment.at.n).min().zip(of.kept);
        Self {
            facts,
            topic,
            partition,
            log: &of.log,
            segments,
            followed,
            hidden: facts.hidden(&of.log),
        }
    }

    /// Runs of ids that a segment holds.
    fn ids_of(&self, segment: &Segment) -> Vec<(u64, u64)> {
        match (
            segment.id.zip(segment.last_id()),
            segment.offset.zip(segment.last_offset()),
        ) {
            (Some(run), _) => vec![run],
            (None, Some((first, last))) => self.log.ids_between(first, last),
            (None, None) => Vec::new(),
        }
    }

    /// One above the highest offset that a segment passes.
    fn passes(&self, segment: &Segment) -> u64 {
        segment
            .last_offset()
            .map(|offset| offset.saturating_add(1))
            .or_else(|| segment.last_id().and_then(|id| self.log.passed_by_id(id)))
            .unwrap_or(0)
    }

    /// Ids given in segments that `counts`, and those that nobody could be given.
    pub(super) fn ids(&self, counts: impl Fn(&Segment) -> bool) -> RunSet {
        let mut ids = self.hidden.clone();
        for segment in self.segments.iter().filter(|segment| counts(segment)) {
            for (a, b) in self.ids_of(segment) {
                ids.insert(a, b);
            }
        }
        ids
    }

    /// Ids given, as time goes on.
    pub(super) fn by_time(&self) -> ByTime<'_, 'a> {
        let mut segments: Vec<&Segment> = self.segments.iter().collect();
        segments.sort_by_key(|segment| segment.at.us);
        ByTime {
            given: self,
            segments: segments.into_iter().peekable(),
            ids: self.hidden.clone(),
        }
    }

    /// The position before event `n`.
    fn position_before(&self, n: u64) -> u64 {
        self.segments
            .iter()
            .filter(|segment| segment.at.n < n)
            .map(|segment| self.passes(segment))
            .chain(self.followed.filter(|(at, _)| *at < n).map(|(_, kept)| kept))
            .max()
            .unwrap_or(0)
    }

    /// Whether anything of this log was given up to a time.
    pub(super) fn has_any_by(&self, us: u64) -> bool {
        self.segments.iter().any(|segment| segment.at.us <= us)
    }

    /// From which offset on records are owed: under reset `latest` from the first one delivered.
    pub(super) fn owed_from(&self) -> u64 {
        let latest = self.facts.opened().is_some_and(|opened| opened.reset == Reset::Latest);
        if !latest {
            return 0;
        }
        let first = self.segments.first().and_then(|segment| {
            segment
                .offset
                .or_else(|| segment.id.and_then(|id| self.log.offset_of(id)))
        });
        first.unwrap_or(u64::MAX)
    }

    /// Ids that are not owed whatever the log holds: handed to a callback that misbehaved, known by key only, or jumped
    /// over by a reader that declares so.
    pub(super) fn exempt(&self, id: u64, offset: u64, struck_keys: &mut BTreeMap<String, u64>) -> bool {
        let generator = self.facts.generator(self.topic);
        if !self.facts.tells_tombstones() && !not_tombstone(generator)(id) {
            return true;
        }
        for (_, _, call, _) in self.facts.struck() {
            let here = call
                .key
                .as_deref()
                .and_then(partition_of)
                .is_none_or(|p| p == self.partition);
            if here && call.offset == Some(offset) {
                return true;
            }
        }
        let key = generator.map(|generator| generator.key(self.partition, id));
        if let Some(left) = key.and_then(|key| struck_keys.get_mut(&key))
            && *left > 0
        {
            *left -= 1;
            return true;
        }
        self.jumped(offset)
    }

    /// Keys of records whose callback misbehaved and whose offset is not known, with how often.
    pub(super) fn struck_keys(&self) -> BTreeMap<String, u64> {
        let mut keys = BTreeMap::new();
        for (_, _, call, raised) in self.facts.struck() {
            if let (Some(key), None, false) = (&call.key, call.offset, *raised) {
                *keys.entry(key.clone()).or_default() += 1;
            }
        }
        keys
    }

    /// Whether an offset lies in a jump that followed an out-of-range answer, of a reader that declares such jumps.
    fn jumped(&self, offset: u64) -> bool {
        if !self
            .facts
            .opened()
            .is_some_and(|opened| opened.reader.declares.skips_on_reset)
        {
            return false;
        }
        self.facts.wire().answers.iter().any(|answer| {
            answer.code.name == "OFFSET_OUT_OF_RANGE"
                && answer.topic.as_deref().is_none_or(|topic| topic == self.topic)
                && answer.partition.is_none_or(|partition| partition == self.partition)
                && self.position_before(answer.at.n) <= offset
                && self
                    .segments
                    .iter()
                    .filter(|segment| segment.at.n > answer.at.n)
                    .map(|segment| self.passes(segment).saturating_sub(segment.len))
                    .next()
                    .is_some_and(|next| offset < next)
        })
    }

    /// Acknowledged records below the position that a later scan still found, and that are not in `given`.
    pub(super) fn missing(&self, given: &RunSet) -> Missing {
        let end = self.facts.end();
        let from = self.owed_from();
        let mut missing = Missing::default();
        let mut found = RunSet::default();
        let mut scanned = RunSet::default();
        for scan in &self.log.scans {
            let passed = self.position_before(scan.at.n.min(end.n));
            for piece in self.log.acked() {
                let (a, b) = (
                    piece.offset.max(from),
                    piece.last_offset().min(passed.saturating_sub(1)),
                );
                let (Some(a), Some(b), true) = (piece.id_at(a), piece.id_at(b), passed > 0 && a <= b) else {
                    continue;
                };
                for (a, b) in scan.ids.within(a, b) {
                    for (a, b) in given.gaps(a, b) {
                        if !found.touches(a, b) {
                            missing.scan.get_or_insert(scan.at);
                        }
                        found.insert(a, b);
                    }
                }
            }
            if passed > 0 {
                scanned.insert(0, passed - 1);
            }
        }
        let passed = self.position_before(end.n);
        missing.undecided = passed > 0 && !scanned.contains(passed - 1);
        let mut struck_keys = self.struck_keys();
        for (a, b) in found.runs() {
            for id in a..=b {
                let offset = self.log.offset_of(id).unwrap_or(u64::MAX);
                if !self.exempt(id, offset, &mut struck_keys) {
                    missing.ids.insert(id, id);
                }
            }
        }
        for piece in self.log.acked() {
            let (a, b) = (
                piece.offset.max(from),
                piece.last_offset().min(passed.saturating_sub(1)),
            );
            if let (Some(a), Some(b), true) = (piece.id_at(a), piece.id_at(b), passed > 0 && a <= b) {
                for (a, b) in given.gaps(a, b) {
                    missing.unread += (b - a + 1) - found.within(a, b).iter().map(|(a, b)| b - a + 1).sum::<u64>();
                }
            }
        }
        missing
    }

    /// The last delivery before an id, for the reader of a report.
    pub(super) fn last_before(&self, id: u64) -> Option<(u64, Moment)> {
        self.segments
            .iter()
            .rev()
            .filter_map(|segment| {
                let last = self
                    .ids_of(segment)
                    .into_iter()
                    .map(|(_, b)| b)
                    .filter(|b| *b < id)
                    .max()?;
                Some((last, segment.at))
            })
            .max_by_key(|(last, _)| *last)
    }
}

/// Records that left the log before the reader came to them: offsets, and between which moments it passed them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gap {
    /// First offset.
    pub(super) first: u64,
    /// Last offset.
    pub(super) last: u64,
    /// When the log start was first seen above the first of them.
    pub(super) from: Moment,
    /// The first delivery above them.
    pub(super) until: Moment,
}

/// What retention took from one partition before the patient had read it, and it passed.
pub(super) fn gaps(facts: &Facts, topic: &str, partition: u32, of: &Partition) -> Vec<Gap> {
    let mut gaps = Vec::new();
    for scope in scopes(facts) {
        let given = Given::new(facts, &scope, topic, partition, of);
        let by_then = given.ids(|_| true);
        let (from, passed) = (given.owed_from(), given.position_before(facts.end().n));
        for bounds in of.log.bounds.windows(2) {
            let [before, after] = bounds else { continue };
            let (first, end) = (before.start.max(from), after.start.min(passed));
            for (a, b) in of
                .log
                .acked_between(first, end.saturating_sub(1))
                .filter(|_| first < end)
            {
                for (a, b) in by_then.gaps(a, b) {
                    let (Some(first), Some(last)) = (of.log.offset_of(a), of.log.offset_of(b)) else {
                        continue;
                    };
                    let until = given.segments.iter().find(|segment| given.passes(segment) > last);
                    let until = until.map_or(after.at, |segment| segment.at);
                    gaps.push(Gap {
                        first,
                        last,
                        from: after.at,
                        until,
                    });
                }
            }
        }
    }
    gaps
}

/// Ids given up to a time that only moves on.
pub(super) struct ByTime<'g, 'a> {
    given: &'g Given<'a>,
    segments: std::iter::Peekable<std::vec::IntoIter<&'g Segment>>,
    ids: RunSet,
}

impl ByTime<'_, '_> {
    /// Ids given up to this time, not before the one asked last.
    pub(super) fn until(&mut self, us: u64) -> &RunSet {
        while let Some(segment) = self.segments.next_if(|segment| segment.at.us <= us) {
            for (a, b) in self.given.ids_of(segment) {
                self.ids.insert(a, b);
            }
        }
        &self.ids
    }
}

/// Records that were owed and not delivered.
#[derive(Debug, Default)]
pub(super) struct Missing {
    /// Their ids.
    pub(super) ids: RunSet,
    /// The first scan that found one of them.
    pub(super) scan: Option<Moment>,
    /// Records passed unread that no later scan found: compacted or expired, not owed.
    pub(super) unread: u64,
    /// No scan was made after the reader's last step.
    pub(super) undecided: bool,
}
