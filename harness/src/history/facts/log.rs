//! What the oracle knows of one partition's log.

use brokerfall_report::history::{Generator, ProduceOutcome};
use brokerfall_report::runs::Runs;

use super::Moment;
use super::runset::RunSet;
use super::thin::Together;
use super::transactions::Transaction;

/// Records with rising ids at rising offsets, both without gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// First record id.
    pub id: u64,
    /// Its offset.
    pub offset: u64,
    /// How many records, at least 1.
    pub len: u64,
    /// The event that told.
    pub at: Moment,
}

impl Piece {
    /// The last record id.
    pub fn last_id(&self) -> u64 {
        self.id.saturating_add(self.len - 1)
    }

    /// The last offset.
    pub fn last_offset(&self) -> u64 {
        self.offset.saturating_add(self.len - 1)
    }

    /// The offset of a record id inside the piece.
    pub fn offset_of(&self, id: u64) -> Option<u64> {
        (self.id..=self.last_id())
            .contains(&id)
            .then(|| self.offset.saturating_add(id - self.id))
    }

    /// The record id at an offset inside the piece.
    pub fn id_at(&self, offset: u64) -> Option<u64> {
        (self.offset..=self.last_offset())
            .contains(&offset)
            .then(|| self.id.saturating_add(offset - self.offset))
    }
}

/// One reading of a log by the oracle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scan {
    /// When it was done.
    pub at: Moment,
    /// First offset asked for.
    pub from: u64,
    /// End, exclusive.
    pub to: u64,
    /// Record ids found.
    pub ids: RunSet,
}

/// Log start and log end as the oracle learned of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// When.
    pub at: Moment,
    /// First offset that can be read.
    pub start: u64,
    /// Next offset to be written.
    pub end: u64,
}

/// The log of one partition, from all that the oracle wrote, watched and read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Log {
    /// Acknowledged records, by id.
    pub(super) acked: Vec<Piece>,
    /// Records that a scan found, by id; those acknowledged are here too once a scan found them.
    found: Vec<Piece>,
    /// Ids whose outcome is unknown.
    pub maybe: RunSet,
    /// Ids that the broker refused.
    pub failed: RunSet,
    /// Every id that the oracle tried to write, whatever came of it.
    pub tried: RunSet,
    /// Scans, in order.
    pub scans: Vec<Scan>,
    /// Changes of log start and log end, in order. The end is the highest known at that time.
    pub bounds: Vec<Bounds>,
    /// When the log end was seen to go back (a recreated or truncated log).
    pub truncated: Vec<Moment>,
    /// Transactions, in the order in which they began.
    pub(super) transactions: Vec<Transaction>,
}

/// Pairs of runs, in step, cut into pieces where both follow on. Untrusted runs are cut short, never multiplied out.
pub(super) fn in_step<'a>(ids: &'a Runs, offsets: &'a Runs) -> impl Iterator<Item = (u64, u64, u64)> + 'a {
    let mut ids = ids.as_slice().iter().copied().filter(|[a, b]| a <= b);
    let mut offsets = offsets.as_slice().iter().copied().filter(|[c, d]| c <= d);
    let (mut id, mut offset) = (ids.next(), offsets.next());
    std::iter::from_fn(move || {
        let ([a, b], [c, d]) = (id?, offset?);
        let shorter = (b - a).min(d - c);
        id = match a.checked_add(shorter).and_then(|n| n.checked_add(1)) {
            Some(n) if n <= b => Some([n, b]),
            _ => ids.next(),
        };
        offset = match c.checked_add(shorter).and_then(|n| n.checked_add(1)) {
            Some(n) if n <= d => Some([n, d]),
            _ => offsets.next(),
        };
        Some((a, c, shorter.saturating_add(1)))
    })
}

impl Log {
    /// The log of a topic that was created anew: nothing stands in it, and its ends begin at 0. When they were elsewhere
    /// is still known.
    pub(super) fn anew(gone: &Log, at: Moment) -> Log {
        let mut log = Log {
            bounds: gone.bounds.clone(),
            truncated: gone.truncated.clone(),
            ..Log::default()
        };
        log.bounds.push(Bounds { at, start: 0, end: 0 });
        log.truncated.push(at);
        log
    }

    /// What is left of a log that lost its end: nothing is written to it yet, and it goes on at `end`.
    pub(super) fn cut(gone: &Log, at: Moment, end: u64) -> Log {
        let mut log = Log::anew(gone, at);
        let start = gone.now().map_or(0, |bounds| bounds.start);
        log.bounds.pop();
        log.bounds.push(Bounds { at, start, end });
        log
    }

    pub(super) fn thin(&mut self, together: &Together<'_>) {
        together.neighbours(
            &mut self.acked,
            |one| one.at,
            |earlier, later| {
                let joins = earlier.last_id().checked_add(1) == Some(later.id)
                    && earlier.last_offset().checked_add(1) == Some(later.offset)
                    && together.may_soon(earlier.at, later.at);
                if joins {
                    earlier.len = earlier.len.saturating_add(later.len);
                }
                joins
            },
        );
        // The later end stands for the earlier: what waited is never told before it waited.
        together.by_key(
            &mut self.bounds,
            |one| one.at,
            |_| (),
            |later, earlier| later.start == earlier.start && together.may_soon(earlier.at, later.at),
        );
    }

    pub(super) fn produced(&mut self, at: Moment, ids: &Runs, offsets: &Runs, outcome: ProduceOutcome) {
        for &[a, b] in ids.as_slice() {
            self.tried.insert(a, b);
            match outcome {
                ProduceOutcome::Maybe => self.maybe.insert(a, b),
                ProduceOutcome::Failed => self.failed.insert(a, b),
                ProduceOutcome::Acked => {}
            }
        }
        if outcome == ProduceOutcome::Acked {
            for (id, offset, len) in in_step(ids, offsets) {
                let piece = Piece { id, offset, len, at };
                insert(&mut self.acked, piece);
                self.bound(at, None, Some(piece.last_offset().saturating_add(1)));
            }
        }
    }

    pub(super) fn watermarks(&mut self, at: Moment, start: u64, end: u64) {
        // A watermark that is one behind an acknowledgement was only asked for before it. A log that lost its start
        // is another log.
        if self.bounds.last().is_some_and(|b| end < b.start) {
            self.truncated.push(at);
            self.bounds.push(Bounds { at, start, end });
            return;
        }
        self.bound(at, Some(start), Some(end));
    }

    pub(super) fn scanned(&mut self, at: Moment, from: u64, to: u64, ids: &Runs, offsets: &Runs) {
        let mut scan = Scan {
            at,
            from,
            to,
            ids: RunSet::default(),
        };
        for (id, offset, len) in in_step(ids, offsets) {
            // Ids start at 1; 0 stands for a record that the oracle did not write.
            let foreign = u64::from(id == 0);
            if foreign == len {
                continue;
            }
            let piece = Piece {
                id: id + foreign,
                offset: offset.saturating_add(foreign),
                len: len - foreign,
                at,
            };
            let id = piece.id;
            scan.ids.insert(piece.id, piece.last_id());
            let mut next = id;
            while next <= piece.last_id() {
                match self.found_around(next) {
                    Some(known) => next = known.last_id().saturating_add(1),
                    None => {
                        let above = self.found.partition_point(|p| p.id <= next);
                        let until = self
                            .found
                            .get(above)
                            .map(|p| p.id)
                            .map_or(piece.last_id(), |start| (start - 1).min(piece.last_id()));
                        let part = Piece {
                            id: next,
                            offset: piece.offset.saturating_add(next - piece.id),
                            len: until - next + 1,
                            at,
                        };
                        insert(&mut self.found, part);
                        next = until.saturating_add(1);
                    }
                }
                if next == u64::MAX {
                    break;
                }
            }
        }
        self.scans.push(scan);
        self.bound(at, Some(from), Some(to));
    }

    fn found_around(&self, id: u64) -> Option<&Piece> {
        around(&self.found, id)
    }

    fn bound(&mut self, at: Moment, start: Option<u64>, end: Option<u64>) {
        let last = self.bounds.last().copied();
        let known_start = last.map_or(0, |b| b.start);
        let known_end = last.map_or(0, |b| b.end);
        let start = start.unwrap_or(known_start).max(known_start);
        let end = end.unwrap_or(known_end).max(known_end);
        if last.is_none() || start != known_start || end != known_end {
            self.bounds.push(Bounds { at, start, end });
        }
    }

    /// Acknowledged records, by id.
    pub fn acked(&self) -> &[Piece] {
        &self.acked
    }

    /// Records that a scan found, by id.
    pub fn found(&self) -> &[Piece] {
        &self.found
    }

    /// The log start and end as last known.
    pub fn now(&self) -> Option<Bounds> {
        self.bounds.last().copied()
    }

    /// The log start and end as known at a time.
    pub fn at_us(&self, us: u64) -> Option<Bounds> {
        let after = self.bounds.partition_point(|b| b.at.us <= us);
        after.checked_sub(1).and_then(|i| self.bounds.get(i)).copied()
    }

    /// The offset of a record, where known.
    pub fn offset_of(&self, id: u64) -> Option<u64> {
        around(&self.acked, id)
            .or_else(|| around(&self.found, id))
            .and_then(|piece| piece.offset_of(id))
    }

    /// Runs of record ids known to stand at `first..=last`.
    pub fn ids_between(&self, first: u64, last: u64) -> Vec<(u64, u64)> {
        let mut runs = Vec::new();
        for pieces in [&self.acked, &self.found] {
            let start = pieces.partition_point(|piece| piece.last_offset() < first);
            for piece in pieces.iter().skip(start).take_while(|piece| piece.offset <= last) {
                let (from, to) = (piece.offset.max(first), piece.last_offset().min(last));
                runs.extend(piece.id_at(from).zip(piece.id_at(to)));
            }
        }
        runs
    }

    /// Runs of acknowledged record ids at `first..=last`.
    pub fn acked_between(&self, first: u64, last: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let start = self.acked.partition_point(|piece| piece.last_offset() < first);
        self.acked
            .iter()
            .skip(start)
            .take_while(move |piece| piece.offset <= last)
            .filter_map(move |piece| {
                let (from, to) = (piece.offset.max(first), piece.last_offset().min(last));
                piece.id_at(from).zip(piece.id_at(to))
            })
    }

    /// The next id above `id` at which a piece begins or ends: up to there, id and offset keep their distance.
    pub(crate) fn next_edge(&self, id: u64) -> Option<u64> {
        let edge = |pieces: &[Piece]| {
            let after = pieces.partition_point(|piece| piece.id <= id);
            let ends = after
                .checked_sub(1)
                .and_then(|i| pieces.get(i))
                .map(|piece| piece.last_id().saturating_add(1));
            let begins = pieces.get(after).map(|piece| piece.id);
            [ends, begins].into_iter().flatten().filter(|&edge| edge > id).min()
        };
        [edge(&self.acked), edge(&self.found)].into_iter().flatten().min()
    }

    /// Whether some record with this id is known to stand at this offset.
    pub fn stands_at(&self, id: u64, offset: u64) -> bool {
        [&self.acked, &self.found]
            .iter()
            .any(|pieces| around(pieces, id).and_then(|piece| piece.offset_of(id)) == Some(offset))
    }

    /// The offset that a reader has passed when `id` is the highest that it was given: one above the record, or above
    /// the last known record below it while its own acknowledgement is not in yet.
    pub fn passed_by_id(&self, id: u64) -> Option<u64> {
        let below = |pieces: &[Piece]| {
            let after = pieces.partition_point(|piece| piece.id <= id);
            after
                .checked_sub(1)
                .and_then(|i| pieces.get(i))
                .map(|piece| piece.offset_of(id).unwrap_or(piece.last_offset()).saturating_add(1))
        };
        below(&self.acked).max(below(&self.found))
    }

    /// One above the offset of the last record below `end` that `counts`; 0 when there is none. Offsets above all that
    /// is known count as records: they are records whose acknowledgement is on its way.
    pub fn end_of_records(&self, end: u64, counts: impl Fn(u64) -> bool) -> u64 {
        let known = [self.acked.last(), self.found.last()]
            .into_iter()
            .flatten()
            .map(|piece| piece.last_offset().saturating_add(1))
            .max()
            .unwrap_or(0)
            .max(self.scans.iter().map(|scan| scan.to).max().unwrap_or(0));
        if end > known {
            return end;
        }
        let mut best = 0;
        for pieces in [&self.acked, &self.found] {
            // Ids and offsets rise together, so that pieces are in order of both.
            let below = pieces.partition_point(|piece| piece.offset < end);
            for piece in pieces.iter().take(below).rev() {
                if piece.last_offset() < best {
                    break;
                }
                let mut offset = piece.last_offset().min(end - 1);
                loop {
                    if piece.id_at(offset).is_some_and(&counts) {
                        best = best.max(offset.saturating_add(1));
                        break;
                    }
                    if offset == piece.offset {
                        break;
                    }
                    offset -= 1;
                }
                if best > piece.offset {
                    break;
                }
            }
        }
        best
    }
}

/// Records that a table without offsets can report as records: everything but tombstones.
pub(crate) fn not_tombstone(generator: Option<&Generator>) -> impl Fn(u64) -> bool + '_ {
    move |id| generator.is_none_or(|generator| !generator.is_tombstone(id))
}

fn insert(pieces: &mut Vec<Piece>, piece: Piece) {
    let place = pieces.partition_point(|known| known.id <= piece.id);
    pieces.insert(place, piece);
}

fn around(pieces: &[Piece], id: u64) -> Option<&Piece> {
    let after = pieces.partition_point(|piece| piece.id <= id);
    after
        .checked_sub(1)
        .and_then(|i| pieces.get(i))
        .filter(|piece| id <= piece.last_id())
}

#[cfg(test)]
mod tests {
    use brokerfall_report::history::ProduceOutcome;
    use brokerfall_report::runs::Runs;

    use super::{Log, in_step};
    use crate::history::facts::Moment;

    fn at(n: u64) -> Moment {
        Moment { n, us: n * 1000 }
    }

    #[test]
    fn runs_of_different_shape_are_cut_where_both_follow_on() {
        let ids: Runs = [1, 2, 3, 7, 8].into_iter().collect();
        let offsets: Runs = [10, 11, 12, 13, 20].into_iter().collect();
        assert_eq!(
            in_step(&ids, &offsets).collect::<Vec<_>>(),
            [(1, 10, 3), (7, 13, 1), (8, 20, 1)]
        );
    }

    #[test]
    fn a_scan_adds_only_records_that_no_earlier_scan_found() {
        let mut log = Log::default();
        log.scanned(at(1), 0, 6, &Runs::one(4, 6), &Runs::one(3, 5));
        log.scanned(at(2), 0, 10, &Runs::one(1, 10), &Runs::one(0, 9));
        let pieces: Vec<_> = log.found().iter().map(|p| (p.id, p.offset, p.len)).collect();
        assert_eq!(pieces, [(1, 0, 3), (4, 3, 3), (7, 6, 4)]);
    }

    #[test]
    fn a_record_that_the_oracle_did_not_write_has_no_id() {
        let mut log = Log::default();
        let ids: Runs = [0, 1, 2, 0].into_iter().collect();
        log.scanned(at(1), 0, 4, &ids, &Runs::one(0, 3));
        let pieces: Vec<_> = log.found().iter().map(|p| (p.id, p.offset, p.len)).collect();
        assert_eq!(pieces, [(1, 1, 2)]);
        assert_eq!(log.scans[0].ids.runs().collect::<Vec<_>>(), [(1, 2)]);
    }

    #[test]
    fn a_late_watermark_does_not_take_the_end_back() {
        let mut log = Log::default();
        log.produced(at(1), &Runs::one(1, 10), &Runs::one(0, 9), ProduceOutcome::Acked);
        log.watermarks(at(2), 0, 9);
        assert_eq!(log.now().map(|b| (b.start, b.end)), Some((0, 10)));
    }

    #[test]
    fn trailing_records_that_do_not_count_are_left_out_of_the_end() {
        let mut log = Log::default();
        log.produced(at(1), &Runs::one(1, 10), &Runs::one(0, 9), ProduceOutcome::Acked);
        assert_eq!(log.end_of_records(10, |id| id < 9), 8);
        assert_eq!(log.end_of_records(10, |_| true), 10);
        assert_eq!(log.end_of_records(10, |_| false), 0);
        assert_eq!(
            log.end_of_records(12, |_| true),
            12,
            "an acknowledgement may be on its way"
        );
    }
}
