//! `no_phantom_record`: nothing is delivered that was never acknowledged and never in doubt, nor at an offset where it
//! does not stand; nor, to a reader of committed records only, of a transaction that was not committed.

use brokerfall_report::verdict::{FailureKind, Outcome};

use super::{held, not_applicable, of_kind, runs_text, undecided, violated};
use crate::history::facts::{Facts, Log, RunSet, Segment};

pub(super) fn judge(facts: &Facts) -> Outcome {
    if facts.delivered_total() == 0 {
        return undecided("no record was delivered");
    }
    if !facts.lives().iter().any(|life| life.tells_ids) {
        return not_applicable("records.ids");
    }
    let end = facts.end();
    let (mut events, mut texts) = (Vec::new(), Vec::new());
    for (topic, partition, of) in facts.incarnations() {
        let written = written(&of.log);
        // A history that was cut off may lack the acknowledgement of its last records.
        let judged_to = if facts.closed().is_some() {
            u64::MAX
        } else {
            of.log.tried.last().unwrap_or(0)
        };
        let mut phantoms = RunSet::default();
        for segment in of.reads.segments.iter().filter(|segment| segment.at.n < end.n) {
            let (Some(first), Some(last)) = (segment.id, segment.last_id()) else {
                continue;
            };
            for (a, b) in written.gaps(first, last.min(judged_to)) {
                phantoms.insert(a, b);
                events.push(segment.at.n);
            }
            if let Some(id) = facts.given_uncommitted(&of.log, first, last, segment.at.n) {
                events.push(segment.at.n);
                texts.push(format!(
                    "partition {topic}-{partition} id {id} was delivered although its transaction had not been committed"
                ));
            }
            if let Some((id, offset)) = misplaced(&of.log, segment) {
                events.push(segment.at.n);
                let stands = of.log.offset_of(id).map_or("nowhere".to_owned(), |o| o.to_string());
                texts.push(format!(
                    "partition {topic}-{partition} id {id} was delivered at offset {offset}, it stands at {stands}"
                ));
            }
        }
        if !phantoms.is_empty() {
            let runs: Vec<_> = phantoms.runs().collect();
            texts.push(format!(
                "partition {topic}-{partition} ids {} were delivered and never written",
                runs_text(&runs)
            ));
        }
    }
    if texts.is_empty() {
        return held("");
    }
    events.truncate(8);
    texts.truncate(4);
    of_kind(violated(events, texts.join("; ")), FailureKind::Silent, None)
}

fn written(log: &Log) -> RunSet {
    let mut written = log.maybe.clone();
    for piece in log.acked().iter().chain(log.found()) {
        written.insert(piece.id, piece.last_id());
    }
    written
}

/// The first record of a segment that is known to stand elsewhere.
fn misplaced(log: &Log, segment: &Segment) -> Option<(u64, u64)> {
    let (first, offset) = segment.id.zip(segment.offset)?;
    let last = segment.last_id()?;
    let mut id = first;
    loop {
        let here = offset.saturating_add(id - first);
        if log.offset_of(id).is_some() && !log.stands_at(id, here) {
            return Some((id, here));
        }
        let next = log.next_edge(id)?;
        if next > last {
            return None;
        }
        id = next;
    }
}
