//! A partition whose topic was deleted and created anew, so that its log begins again at offset 0, or whose log lost its end
//! to an unclean election, so that other records take offsets that were taken before. Record ids go on.
//!
//! ```text
//! Partition { log, reads, earlier: [Partition, …] }     one for each incarnation, the current one outermost
//! ```
//!
//! What was known of the log that is gone is kept apart, so that no offset of one incarnation is taken for one of another,
//! and nothing of it is owed any more, but what a later scan still finds of a log that lost its end alone. Which incarnation a
//! delivered record belongs to is told by its id, since readers may hand out what they had fetched before; only a reader that
//! tells no ids is believed to read the current one. The position over time, and the log's ends over time, go on: they are
//! asked for by time.

use brokerfall_report::protocol::Delivered;
use brokerfall_report::runs::Runs;

use super::log::in_step;
use super::reads::Took;
use super::{Excuse, Facts, Log, Moment, Partition, Reads};

impl Partition {
    /// The topic was deleted: what comes from here on is of another log.
    pub(super) fn deleted(&mut self, at: Moment) {
        let (log, reads) = (Log::anew(&self.log, at), Reads::anew(&self.reads, at));
        self.followed_by(log, reads, at, None);
    }

    /// What stood at `end` and above it is lost: what comes from here on is of another log, which holds the rest of this one.
    pub(super) fn cut(&mut self, at: Moment, end: u64) {
        let log = Log::cut(&self.log, at, end);
        let reads = Reads::cut(&self.reads, &self.log, at, end);
        for gone in &mut self.earlier {
            gone.kept = gone.kept.map(|kept| kept.min(end));
        }
        self.followed_by(log, reads, at, Some(end));
    }

    fn followed_by(&mut self, log: Log, reads: Reads, at: Moment, kept: Option<u64>) {
        let mut earlier = std::mem::take(&mut self.earlier);
        if kept.is_none() {
            for gone in &mut earlier {
                gone.kept = None;
            }
        }
        let mut gone = std::mem::replace(
            self,
            Partition {
                log,
                reads,
                earlier,
                since: Some(at),
                until: None,
                kept: None,
            },
        );
        (gone.until, gone.kept) = (Some(at), kept);
        self.earlier.push(gone);
    }

    /// Whether it is this incarnation that stood at a moment.
    pub(crate) fn stood(&self, at: Moment) -> bool {
        self.since.is_none_or(|since| since.n <= at.n) && self.until.is_none_or(|until| at.n < until.n)
    }

    /// Takes in a scan: records of a log that lost its end alone are what is left of it.
    pub(super) fn scanned(&mut self, at: Moment, (from, to): (u64, u64), ids: &Runs, offsets: &Runs) {
        let mut rest = (Some(ids.clone()), Some(offsets.clone()));
        for gone in &mut self.earlier {
            let (Some(kept), Some(last)) = (gone.kept, gone.log.tried.last()) else {
                continue;
            };
            let (left, later) = split(&rest, last);
            if let (Some(ids), Some(offsets)) = left {
                gone.log.scanned(at, from, to.min(kept), &ids, &offsets);
            }
            rest = later;
        }
        if let (Some(ids), Some(offsets)) = rest {
            self.log.scanned(at, from, to, &ids, &offsets);
        }
    }

    /// Takes in a delivery: each record goes to the incarnation that its id is of.
    pub(super) fn delivered(&mut self, at: Moment, life: usize, delivered: &Delivered) -> Took {
        let Some(last) = self.earlier.iter().rev().find_map(|gone| gone.log.tried.last()) else {
            return self.reads.delivered(at, life, delivered);
        };
        let ids = delivered.ids.as_ref().map_or(&[][..], Runs::as_slice);
        if ids.iter().all(|[first, _]| *first > last) {
            return self.reads.delivered(at, life, delivered);
        }
        let mut rest = delivered.clone();
        let mut took = Took::default();
        for gone in &mut self.earlier {
            let Some(last) = gone.log.tried.last() else { continue };
            let (below, above) = split(&(rest.ids, rest.offsets), last);
            let part = |(ids, offsets)| Delivered {
                ids,
                offsets,
                ..delivered.clone()
            };
            took.add(gone.reads.delivered(at, life, &part(below)));
            rest = part(above);
        }
        took.add(self.reads.delivered(at, life, &rest));
        took
    }
}

/// Ids and offsets, as far as they are told.
type Told = (Option<Runs>, Option<Runs>);

/// Records cut in two: those up to this id, and those above it.
fn split(told: &Told, last: u64) -> (Told, Told) {
    let empty = |runs: &Option<Runs>| runs.as_ref().map(|_| Runs::default());
    let part = || (empty(&told.0), empty(&told.1));
    let (mut below, mut above) = (part(), part());
    let push = |to: &mut Option<Runs>, first: u64, len: u64| {
        if let (Some(runs), true) = (to, len > 0) {
            runs.push_run(first, first.saturating_add(len - 1));
        }
    };
    let low_of = |id: u64, len: u64| if id > last { 0 } else { len.min(last - id + 1) };
    match told {
        (Some(ids), Some(offsets)) if ids.count() == offsets.count() => {
            for (id, offset, len) in in_step(ids, offsets) {
                let low = low_of(id, len);
                push(&mut below.0, id, low);
                push(&mut below.1, offset, low);
                push(&mut above.0, id.saturating_add(low), len - low);
                push(&mut above.1, offset.saturating_add(low), len - low);
            }
        }
        // Which offset is of which id cannot be told.
        (Some(ids), _) => {
            for &[first, end] in ids.as_slice().iter().filter(|[first, end]| first <= end) {
                let len = (end - first).saturating_add(1);
                let low = low_of(first, len);
                push(&mut below.0, first, low);
                push(&mut above.0, first.saturating_add(low), len - low);
            }
        }
        (None, _) => above = told.clone(),
    }
    (below, above)
}

impl Facts {
    /// Every partition of which anything is known, and before each those that it was until its topic was deleted or its log
    /// lost its end.
    pub fn incarnations(&self) -> impl Iterator<Item = (&str, u32, &Partition)> {
        self.partitions().flat_map(|(topic, partition, of)| {
            let all = of.earlier.iter().chain(std::iter::once(of));
            all.map(move |of| (topic, partition, of))
        })
    }

    /// When what was to be reached of a topic, as it was told at a moment, went with the topic; absent while it did not.
    pub(crate) fn gone_at(&self, topic: &str, partition: u32, told: Moment) -> Option<Moment> {
        let of = self.partition(topic, partition)?;
        let deletions = of.earlier.iter().filter_map(|gone| gone.until);
        deletions.into_iter().find(|deleted| deleted.n > told.n)
    }

    /// Whether a log is what was left of another one that lost its end.
    pub(crate) fn was_cut(&self, topic: &str, partition: u32, of: &Partition) -> bool {
        let now = self.partition(topic, partition);
        let mut gone = now.into_iter().flat_map(|now| &now.earlier);
        gone.any(|gone| gone.kept.is_some() && gone.until == of.since)
    }

    /// The first record of a topic since it was created anew that a reader was given.
    pub fn delivered_anew(&self, topic: &str) -> Option<String> {
        self.partitions()
            .filter(|(name, _, of)| *name == topic && of.since.is_some())
            .find_map(|(_, partition, of)| {
                let first = of.reads.ids.first().or(of.reads.offsets.first())?;
                let (what, number) = match of.reads.ids.first() {
                    Some(id) => ("id", id),
                    None => ("offset", first),
                };
                Some(format!(
                    "it was given {what} {number} of {topic}-{partition}, which was written anew"
                ))
            })
    }

    /// The log of a partition lost its end.
    pub(super) fn log_truncated(&mut self, topic: &str, partition: u32, end: u64, at: Moment) {
        self.partition_mut(topic, partition).cut(at, end);
        if let Some(fetched) = self.wire.fetched.get_mut(topic) {
            fetched.remove(&partition);
        }
        self.excuses.push(Excuse {
            at,
            life: None,
            client: None,
            partition: Some((topic.to_owned(), partition)),
            what: "the log lost its end",
        });
    }

    /// The topic was deleted.
    pub(super) fn topic_deleted(&mut self, topic: &str, at: Moment) {
        for partition in self.topics.get_mut(topic).into_iter().flat_map(|of| of.values_mut()) {
            partition.deleted(at);
        }
        self.wire.fetched.remove(topic);
    }
}
