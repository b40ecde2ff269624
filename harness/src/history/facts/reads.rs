//! What readers were given of one partition.

use std::collections::BTreeMap;

use brokerfall_report::protocol::Delivered;
use brokerfall_report::runs::Runs;

use super::Moment;
use super::log::{Log, in_step};
use super::runset::RunSet;

/// Records with rising ids and offsets that one life was given in one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// The event; its time is the reader's own.
    pub at: Moment,
    /// Index of the life.
    pub life: usize,
    /// First offset, where told.
    pub offset: Option<u64>,
    /// First id, where told.
    pub id: Option<u64>,
    /// How many records, at least 1.
    pub len: u64,
}

impl Segment {
    /// The last id, where told.
    pub fn last_id(&self) -> Option<u64> {
        self.id.map(|id| id.saturating_add(self.len - 1))
    }

    /// The last offset, where told.
    pub fn last_offset(&self) -> Option<u64> {
        self.offset.map(|offset| offset.saturating_add(self.len - 1))
    }
}

/// How far one life came in the partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reach {
    /// One above the highest offset given.
    pub next_offset: Option<u64>,
    /// The highest id given or shown in a snapshot.
    pub last_id: Option<u64>,
    /// Positions that heartbeats told, one entry per change.
    pub told: Vec<(Moment, u64)>,
}

/// The patient's position at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// When.
    pub at: Moment,
    /// Next offset; absent at the start of a life that starts anew.
    pub position: Option<u64>,
}

/// What readers were given of one partition, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reads {
    /// Deliveries in the order of the history.
    pub segments: Vec<Segment>,
    /// Ids given to any life.
    pub ids: RunSet,
    /// Offsets given to any life.
    pub offsets: RunSet,
    /// How far each life came.
    pub reach: BTreeMap<usize, Reach>,
    /// The patient's position over time: a group's is the highest of all, any other kind's that of its last life.
    pub marks: Vec<Mark>,
    /// Signs of progress that leave the position where it is: keys dropped.
    pub touched: Vec<Moment>,
}

impl Reads {
    /// Takes in a delivery; returns how many records it held.
    pub(super) fn delivered(&mut self, at: Moment, life: usize, delivered: &Delivered) -> u64 {
        let none = Runs::default();
        let ids = delivered.ids.as_ref().unwrap_or(&none);
        let offsets = delivered.offsets.as_ref().unwrap_or(&none);
        let before = self.segments.len();
        let segment = |offset, id, len| Segment {
            at,
            life,
            offset,
            id,
            len,
        };
        if delivered.ids.is_some() && delivered.offsets.is_some() {
            for (id, offset, len) in in_step(ids, offsets) {
                self.segments.push(segment(Some(offset), Some(id), len));
            }
        } else {
            let (runs, is_id) = if delivered.ids.is_some() {
                (ids, true)
            } else {
                (offsets, false)
            };
            for &[a, b] in runs.as_slice() {
                if a <= b {
                    let len = (b - a).saturating_add(1);
                    self.segments.push(if is_id {
                        segment(None, Some(a), len)
                    } else {
                        segment(Some(a), None, len)
                    });
                }
            }
        }
        let reach = self.reach.entry(life).or_default();
        let mut count = 0u64;
        for segment in self.segments.get(before..).unwrap_or_default() {
            count = count.saturating_add(segment.len);
            if let (Some(first), Some(last)) = (segment.id, segment.last_id()) {
                self.ids.insert(first, last);
                reach.last_id = reach.last_id.max(Some(last));
            }
            if let (Some(first), Some(last)) = (segment.offset, segment.last_offset()) {
                self.offsets.insert(first, last);
                reach.next_offset = reach.next_offset.max(Some(last.saturating_add(1)));
            }
        }
        count
    }

    /// Whether a record was given to any life, by its id or, from readers that are told none, by its offset.
    pub fn has(&self, id: u64, offset: Option<u64>) -> bool {
        self.ids.contains(id) || (self.ids.is_empty() && offset.is_some_and(|offset| self.offsets.contains(offset)))
    }

    /// The position of one life: by what it was given, and only where it tells neither offsets nor ids (`trusts_told`)
    /// by what its heartbeats say.
    pub(super) fn position_of(&self, life: usize, log: &Log, trusts_told: bool) -> Option<u64> {
        let reach = self.reach.get(&life)?;
        let by_id = reach.last_id.and_then(|id| log.passed_by_id(id));
        let told = if trusts_told {
            reach.told.last().map(|(_, p)| *p)
        } else {
            None
        };
        reach.next_offset.max(by_id).max(told)
    }

    pub(super) fn mark(&mut self, at: Moment, position: Option<u64>) -> bool {
        let last = self.marks.last().map(|mark| mark.position);
        if last == Some(position) || (last.is_none() && position.is_none()) {
            return false;
        }
        self.marks.push(Mark { at, position });
        position > last.flatten()
    }

    /// The patient's position now.
    pub fn position(&self) -> Option<u64> {
        self.marks.last().and_then(|mark| mark.position)
    }

    /// The patient's position before event `n`.
    pub fn position_before(&self, n: u64) -> Option<u64> {
        let after = self.marks.partition_point(|mark| mark.at.n < n);
        after
            .checked_sub(1)
            .and_then(|i| self.marks.get(i))
            .and_then(|mark| mark.position)
    }
}
