//! How far behind the log end a reader is, from what the oracle wrote and what the reader delivered.
//!
//! This is what a lag monitor would show, not what is owed: the invariants judge that, with compaction, retention and
//! resets taken into account.

use crate::history::{Event, ProduceOutcome};
use crate::protocol::{Delivered, ReaderEvent, Reset};
use crate::runs::Runs;

type Partition = (String, u32);

/// Log ends and positions, followed event by event.
#[derive(Debug, Default)]
pub(super) struct Lag {
    from_start: bool,
    /// Few, so that looking through them is quick.
    logs: Vec<(Partition, Log)>,
    standing_since_us: Option<u64>,
    has_moved: bool,
}

#[derive(Debug, Default)]
struct Log {
    start: u64,
    end: u64,
    /// Next offset to read; absent until the reader shows one.
    next: Option<u64>,
    /// `(first id, first offset, length)`, rising: for readers that are told ids but no offsets.
    ids: Vec<(u64, u64, u64)>,
}

impl Lag {
    pub(super) fn starts_at(&mut self, reset: Reset) {
        self.from_start = reset == Reset::Earliest;
    }

    /// Takes in one event.
    pub(super) fn observe(&mut self, at_us: u64, event: &Event) {
        let moved = match event {
            Event::Produced {
                topic,
                partition,
                ids,
                offsets,
                outcome: ProduceOutcome::Acked,
            } => {
                let log = self.log(topic, *partition);
                log.end = log.end.max(offsets.last().map_or(0, |last| last.saturating_add(1)));
                for (id, offset, length) in in_step(ids, offsets) {
                    match log.ids.last_mut() {
                        Some((first, at, known))
                            if first.checked_add(*known) == Some(id) && at.checked_add(*known) == Some(offset) =>
                        {
                            *known = known.saturating_add(length);
                        }
                        _ => log.ids.push((id, offset, length)),
                    }
                }
                false
            }
            Event::Watermarks {
                topic,
                partition,
                log_start,
                log_end,
            } => {
                let log = self.log(topic, *partition);
                (log.start, log.end) = (*log_start, *log_end);
                false
            }
            Event::Reader { event, .. } => self.reader_said(event),
            _ => return,
        };
        self.has_moved |= moved;
        if moved || self.behind() == Some(0) {
            self.standing_since_us = None;
        }
        if self.behind().is_some_and(|behind| behind > 0) {
            self.standing_since_us.get_or_insert(at_us);
        }
    }

    fn reader_said(&mut self, event: &ReaderEvent) -> bool {
        match event {
            ReaderEvent::Records { partitions } => {
                let moves = partitions.iter().map(|delivered| self.delivered(delivered));
                moves.fold(false, |any, moved| any | moved)
            }
            ReaderEvent::Heartbeat(heartbeat) => {
                let positions = heartbeat.positions.iter().flatten();
                let moves = positions.map(|p| self.advance(&p.topic, p.partition, p.offset));
                moves.fold(false, |any, moved| any | moved)
            }
            _ => false,
        }
    }

    fn delivered(&mut self, delivered: &Delivered) -> bool {
        let next = match (&delivered.offsets, &delivered.ids) {
            (Some(offsets), _) => offsets.last().map(|last| last.saturating_add(1)),
            (None, Some(ids)) => {
                let log = self.log(&delivered.topic, delivered.partition);
                ids.last()
                    .and_then(|id| log.offset_of(id))
                    .map(|offset| offset.saturating_add(1))
            }
            (None, None) => None,
        };
        next.is_some_and(|next| self.advance(&delivered.topic, delivered.partition, next))
    }

    fn advance(&mut self, topic: &str, partition: u32, next: u64) -> bool {
        let log = self.log(topic, partition);
        let moved = log.next.is_none_or(|known| next > known);
        if moved {
            log.next = Some(next);
        }
        moved
    }

    fn log(&mut self, topic: &str, partition: u32) -> &mut Log {
        let known = |((name, number), _): &(Partition, Log)| *number == partition && name == topic;
        let place = self.logs.iter().position(known).unwrap_or_else(|| {
            self.logs.push(((topic.to_owned(), partition), Log::default()));
            self.logs.len() - 1
        });
        &mut self.logs[place].1
    }

    /// Records behind over all partitions; absent while no position is known.
    pub(super) fn behind(&self) -> Option<u64> {
        self.logs
            .iter()
            .filter_map(|(_, log)| {
                let next = log.next.or(self.from_start.then_some(log.start))?;
                Some(log.end.saturating_sub(next.max(log.start)))
            })
            .reduce(u64::saturating_add)
    }

    /// Whether the reader has moved at all.
    pub(super) fn has_moved(&self) -> bool {
        self.has_moved
    }

    /// Since when the reader has been behind without moving, microseconds.
    pub(super) fn standing_since_us(&self) -> Option<u64> {
        self.standing_since_us
    }
}

impl Log {
    fn offset_of(&self, id: u64) -> Option<u64> {
        let after = self.ids.partition_point(|(first, _, _)| *first <= id);
        let (first, offset, length) = self.ids.get(after.checked_sub(1)?)?;
        (id - first < *length).then(|| offset.saturating_add(id - first))
    }
}

/// Ids and offsets in step, cut wherever either has a gap. Runs that end before they start are skipped.
fn in_step(ids: &Runs, offsets: &Runs) -> Vec<(u64, u64, u64)> {
    let lengths = |runs: &Runs| -> Vec<(u64, u64)> {
        let runs = runs.as_slice().iter();
        runs.filter_map(|[a, b]| Some((*a, b.checked_sub(*a)?.saturating_add(1))))
            .collect()
    };
    let (mut ids, mut offsets) = (lengths(ids).into_iter(), lengths(offsets).into_iter());
    let (mut id, mut offset) = (ids.next(), offsets.next());
    let mut pieces = Vec::new();
    while let (Some((first_id, ids_left)), Some((first_offset, offsets_left))) = (id, offset) {
        let length = ids_left.min(offsets_left);
        pieces.push((first_id, first_offset, length));
        let rest = |first: u64, left: u64| (left > length).then(|| (first + length, left - length));
        id = rest(first_id, ids_left).or_else(|| ids.next());
        offset = rest(first_offset, offsets_left).or_else(|| offsets.next());
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn produced(ids: Runs, offsets: Runs) -> Event {
        Event::Produced {
            topic: "t".into(),
            partition: 0,
            ids,
            offsets,
            outcome: ProduceOutcome::Acked,
        }
    }

    fn records(offsets: Option<Runs>, ids: Option<Runs>) -> Event {
        let delivered = Delivered {
            topic: "t".into(),
            partition: 0,
            offsets,
            ids,
            t: (0.0, 0.0),
        };
        Event::Reader {
            member: "r1".into(),
            inc: 1,
            reader_us: 0,
            event: ReaderEvent::Records {
                partitions: vec![delivered],
            },
        }
    }

    #[test]
    fn a_reader_that_is_told_only_ids_is_measured_by_the_offsets_of_those_ids() {
        let mut lag = Lag::default();
        lag.starts_at(Reset::Earliest);
        let offsets: Runs = [0, 1, 2, 5, 6, 7].into_iter().collect();
        lag.observe(0, &produced([11, 12, 13, 14, 20, 21].into_iter().collect(), offsets));
        assert_eq!(lag.behind(), Some(8));
        lag.observe(1, &records(None, Some(Runs::one(11, 14))));
        assert_eq!(lag.behind(), Some(2));
        lag.observe(2, &records(None, Some(Runs::one(20, 21))));
        assert_eq!((lag.behind(), lag.standing_since_us()), (Some(0), None));
    }

    #[test]
    fn standing_lag_counts_from_the_last_move() {
        let mut lag = Lag::default();
        lag.starts_at(Reset::Earliest);
        lag.observe(10, &produced(Runs::one(1, 10), Runs::one(0, 9)));
        lag.observe(20, &records(Some(Runs::one(0, 4)), None));
        lag.observe(30, &produced(Runs::one(11, 12), Runs::one(10, 11)));
        assert_eq!((lag.behind(), lag.standing_since_us()), (Some(7), Some(20)));
    }

    #[test]
    fn a_reader_that_starts_at_the_end_and_shows_no_position_has_no_lag() {
        let mut lag = Lag::default();
        lag.starts_at(Reset::Latest);
        lag.observe(10, &produced(Runs::one(1, 10), Runs::one(0, 9)));
        assert_eq!(lag.behind(), None);
    }
}
