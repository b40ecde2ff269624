//! A partition whose topic was deleted and created anew: its log begins again at offset 0, and record ids go on.
//!
//! ```text
//! Partition { log, reads, earlier: [Partition, …] }     one for each incarnation, the current one outermost
//! ```
//!
//! What was known of the log that is gone is kept apart, so that no offset of one incarnation is taken for one of another,
//! and nothing of it is owed any more. Which incarnation a delivered record belongs to is told by its id, since readers may
//! hand out what they had fetched before; only a reader that tells no ids is believed to read the current one. The
//! position over time, and the log's ends over time, go on: they are asked for by time.

use brokerfall_report::protocol::Delivered;
use brokerfall_report::runs::Runs;

use super::log::in_step;
use super::reads::Took;
use super::{Facts, Log, Moment, Partition, Reads};

impl Partition {
    /// The topic was deleted: what comes from here on is of another log.
    pub(super) fn deleted(&mut self, at: Moment) {
        let earlier = std::mem::take(&mut self.earlier);
        let (log, reads) = (Log::anew(&self.log, at), Reads::anew(&self.reads, at));
        let mut gone = std::mem::replace(
            self,
            Partition {
                log,
                reads,
                earlier,
                since: Some(at),
                until: None,
            },
        );
        gone.until = Some(at);
        self.earlier.push(gone);
    }

    /// Whether it is this incarnation that stood at a moment.
    pub(crate) fn stood(&self, at: Moment) -> bool {
        self.since.is_none_or(|since| since.n <= at.n) && self.until.is_none_or(|until| at.n < until.n)
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
            let (of_gone, later) = split(&rest, last);
            took.add(gone.reads.delivered(at, life, &of_gone));
            rest = later;
        }
        took.add(self.reads.delivered(at, life, &rest));
        took
    }
}

/// A delivery cut in two: records up to this id, and those above it.
fn split(delivered: &Delivered, last: u64) -> (Delivered, Delivered) {
    let empty = |runs: &Option<Runs>| runs.as_ref().map(|_| Runs::default());
    let part = || Delivered {
        ids: empty(&delivered.ids),
        offsets: empty(&delivered.offsets),
        ..delivered.clone()
    };
    let (mut below, mut above) = (part(), part());
    let push = |to: &mut Option<Runs>, first: u64, len: u64| {
        if let (Some(runs), true) = (to, len > 0) {
            runs.push_run(first, first.saturating_add(len - 1));
        }
    };
    let low_of = |id: u64, len: u64| if id > last { 0 } else { len.min(last - id + 1) };
    match (&delivered.ids, &delivered.offsets) {
        (Some(ids), Some(offsets)) if ids.count() == offsets.count() => {
            for (id, offset, len) in in_step(ids, offsets) {
                let low = low_of(id, len);
                push(&mut below.ids, id, low);
                push(&mut below.offsets, offset, low);
                push(&mut above.ids, id.saturating_add(low), len - low);
                push(&mut above.offsets, offset.saturating_add(low), len - low);
            }
        }
        // Which offset is of which id cannot be told.
        (Some(ids), _) => {
            for &[first, end] in ids.as_slice().iter().filter(|[first, end]| first <= end) {
                let len = (end - first).saturating_add(1);
                let low = low_of(first, len);
                push(&mut below.ids, first, low);
                push(&mut above.ids, first.saturating_add(low), len - low);
            }
        }
        (None, _) => above = delivered.clone(),
    }
    (below, above)
}

impl Facts {
    /// Every partition of which anything is known, and before each those that it was until its topic was deleted.
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

    /// The topic was deleted.
    pub(super) fn topic_deleted(&mut self, topic: &str, at: Moment) {
        for partition in self.topics.get_mut(topic).into_iter().flat_map(|of| of.values_mut()) {
            partition.deleted(at);
        }
        self.wire.fetched.remove(topic);
    }
}
