//! What readers were given of one partition.

use std::collections::BTreeMap;

use brokerfall_report::protocol::Delivered;
use brokerfall_report::runs::Runs;

use super::Moment;
use super::log::{Log, in_step};
use super::runset::RunSet;
use super::thin::Together;

/// Records with rising ids and offsets that one life was given in one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// The event; its time is the reader's own.
    pub at: Moment,
    /// The last event, where several were put together.
    pub until: Moment,
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

/// What a delivery held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Took {
    /// Records.
    pub(super) records: u64,
    /// It told ids.
    pub(super) ids: bool,
    /// It told offsets.
    pub(super) offsets: bool,
}

impl Took {
    pub(super) fn add(&mut self, more: Took) {
        self.records = self.records.saturating_add(more.records);
        self.ids |= more.ids;
        self.offsets |= more.offsets;
    }
}

/// First number and length of each run; runs that end before they start are left out.
fn runs(runs: &Runs) -> impl Iterator<Item = (u64, u64)> + '_ {
    runs.as_slice()
        .iter()
        .filter_map(|[a, b]| Some((*a, b.checked_sub(*a)?.saturating_add(1))))
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
    /// Later than that where the position rose steadily up to here: several marks that were put together.
    pub until: Moment,
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
    /// Of a topic that was created anew nobody has read anything. Where readers stood before is still known.
    pub(super) fn anew(gone: &Reads, at: Moment) -> Reads {
        let mut reads = Reads {
            marks: gone.marks.clone(),
            touched: gone.touched.clone(),
            ..Reads::default()
        };
        reads.mark(at, None);
        reads
    }

    /// Of a log that lost its end, a reader has read at most what is left.
    pub(super) fn cut(gone: &Reads, log: &Log, at: Moment, end: u64) -> Reads {
        let reach = gone.reach.keys().map(|&life| {
            let position = gone.position_of(life, log, true);
            let left = Reach {
                next_offset: position.map(|position| position.min(end)),
                ..Reach::default()
            };
            (life, left)
        });
        let mut reads = Reads {
            reach: reach.collect(),
            marks: gone.marks.clone(),
            touched: gone.touched.clone(),
            ..Reads::default()
        };
        reads.mark(at, gone.position().map(|position| position.min(end)));
        reads
    }

    /// Takes in a delivery. Ids and offsets that differ in number cannot be told which belongs to which; the offsets
    /// count then, because the log says which records stand there.
    pub(super) fn delivered(&mut self, at: Moment, life: usize, delivered: &Delivered) -> Took {
        let mut took = Took::default();
        self.reach.entry(life).or_default();
        match (&delivered.ids, &delivered.offsets) {
            (Some(ids), Some(offsets)) if ids.count() == offsets.count() => {
                for (id, offset, len) in in_step(ids, offsets) {
                    self.given(at, life, (Some(id), Some(offset), len), &mut took);
                }
            }
            (_, Some(offsets)) => {
                for (first, len) in runs(offsets) {
                    self.given(at, life, (None, Some(first), len), &mut took);
                }
            }
            (Some(ids), None) => {
                for (first, len) in runs(ids) {
                    self.given(at, life, (Some(first), None, len), &mut took);
                }
            }
            (None, None) => {}
        }
        took
    }

    fn given(&mut self, at: Moment, life: usize, (id, offset, len): (Option<u64>, Option<u64>, u64), took: &mut Took) {
        let segment = Segment {
            at,
            until: at,
            life,
            offset,
            id,
            len,
        };
        let reach = self.reach.entry(life).or_default();
        took.records = took.records.saturating_add(len);
        if let (Some(first), Some(last)) = (segment.id, segment.last_id()) {
            took.ids = true;
            self.ids.insert(first, last);
            reach.last_id = reach.last_id.max(Some(last));
        }
        if let (Some(first), Some(last)) = (segment.offset, segment.last_offset()) {
            took.offsets = true;
            self.offsets.insert(first, last);
            reach.next_offset = reach.next_offset.max(Some(last.saturating_add(1)));
        }
        self.segments.push(segment);
    }

    pub(super) fn thin(&mut self, together: &Together<'_>) {
        together.neighbours(
            &mut self.segments,
            |one| one.at,
            |earlier, later| {
                let follows = |last: Option<u64>, next: Option<u64>| match (last, next) {
                    (Some(last), Some(next)) => last.checked_add(1) == Some(next),
                    (None, None) => true,
                    _ => false,
                };
                let joins = earlier.life == later.life
                    && follows(earlier.last_id(), later.id)
                    && follows(earlier.last_offset(), later.offset)
                    && together.may_soon(earlier.at, later.until);
                if joins {
                    earlier.len = earlier.len.saturating_add(later.len);
                    earlier.until = later.until;
                }
                joins
            },
        );
        together.neighbours(
            &mut self.marks,
            |one| one.until,
            |earlier, later| {
                let rises = earlier.position.is_some() && later.position > earlier.position;
                let joins =
                    rises && together.may_soon(earlier.until, later.at) && together.may(earlier.at, later.until);
                if joins {
                    (earlier.until, earlier.position) = (later.until, later.position);
                }
                joins
            },
        );
        together.by_key(
            &mut self.touched,
            |one| *one,
            |_| (),
            |later, earlier| together.may_soon(*earlier, *later),
        );
        for reach in self.reach.values_mut() {
            together.by_key(
                &mut reach.told,
                |one| one.0,
                |_| (),
                |later, earlier| later.1 > earlier.1 && together.may_soon(earlier.0, later.0),
            );
        }
    }

    /// Whether a record was given to any life, by its id or by its offset.
    pub fn has(&self, id: u64, offset: Option<u64>) -> bool {
        self.ids.contains(id) || offset.is_some_and(|offset| self.offsets.contains(offset))
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
        // Readers and oracle have different clocks and pipes; marks are in order of both number and time.
        let us = self.marks.last().map_or(at.us, |mark| mark.at.us.max(at.us));
        let at = Moment { n: at.n, us };
        self.marks.push(Mark {
            at,
            until: at,
            position,
        });
        position > last.flatten()
    }

    /// The patient's position now.
    pub fn position(&self) -> Option<u64> {
        self.marks.last().and_then(|mark| mark.position)
    }

    /// The patient's position at a time, as far as it was known before event `n`.
    pub fn position_at(&self, us: u64, n: u64) -> Option<u64> {
        let after = self.marks.partition_point(|mark| mark.at.us <= us && mark.at.n < n);
        after
            .checked_sub(1)
            .and_then(|i| self.marks.get(i))
            .and_then(|mark| mark.position)
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
