//! `no_rewind`: the position goes back only after a rebalance, reset, retry or restart, an out-of-range or truncation
//! answer on the wire, or a recreated or truncated log.
//!
//! Positions are those of the records delivered and those that heartbeats tell, because a reader can read again and hide
//! it. The same record twice in a row does not move the position back; it is a duplicate, which `in_order` counts.

use brokerfall_report::verdict::{FailureKind, Outcome};

use super::in_order::{excused, steps};
use super::{held, not_applicable, of_kind, owed, undecided, violated};
use crate::history::facts::{Facts, Partition};

pub(super) fn judge(facts: &Facts) -> Outcome {
    let by_records = owed::tells_records(facts);
    let by_word = facts
        .incarnations()
        .any(|(_, _, of)| of.reads.reach.values().any(|reach| !reach.told.is_empty()));
    if !by_records && !by_word {
        return if facts.delivered_total() == 0 {
            undecided("no record was delivered")
        } else {
            not_applicable("records.offsets, records.ids or positions in heartbeats")
        };
    }
    let (mut events, mut texts) = (Vec::new(), Vec::new());
    for (topic, partition, of) in facts.incarnations() {
        let steps = if by_records {
            steps(facts, topic, partition, of).back
        } else {
            Vec::new()
        };
        let rewind = steps
            .iter()
            .find(|step| step.again.is_some_and(|again| again < step.highest));
        if let Some(step) = rewind {
            events.extend([step.before.n, step.at.n]);
            texts.push(format!(
                "partition {topic}-{partition} went back from {what} {} to {what} {} with nothing that lets it",
                step.highest,
                step.first,
                what = if step.by_id { "id" } else { "offset" }
            ));
        } else if let Some((from, to, at)) = told_back(facts, topic, partition, of) {
            events.push(at);
            texts.push(format!(
                "partition {topic}-{partition} went back from offset {from} to {to} with nothing that lets it"
            ));
        }
    }
    if texts.is_empty() {
        return held("");
    }
    of_kind(violated(events, texts.join("; ")), FailureKind::Hot, None)
}

/// The first unexcused step back of a position that heartbeats told.
fn told_back(facts: &Facts, topic: &str, partition: u32, of: &Partition) -> Option<(u64, u64, u64)> {
    let end = facts.end();
    let reach = &of.reads.reach;
    reach.iter().find_map(|(&life, reach)| {
        reach.told.windows(2).find_map(|pair| {
            let [(before, from), (at, to)] = pair else { return None };
            let back = to < from && at.n < end.n && !excused(facts, life, topic, partition, *before, *at);
            back.then_some((*from, *to, at.n))
        })
    })
}
