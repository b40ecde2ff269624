//! `in_order`: within one assignment ids rise (offsets, where no ids are told), except after a reported rebalance,
//! reset, retry or restart.
//!
//! A record that comes for the first time after a later one is out of order. One that comes again is a duplicate:
//! counted, and a violation only above `duplicates = N`; whether the position may go back is `no_rewind`'s question.

use std::collections::BTreeMap;

use brokerfall_report::verdict::{FailureKind, Outcome};

use super::{held, not_applicable, of_kind, owed, undecided, violated};
use crate::history::facts::{Facts, Moment, NEUTRAL, Partition, RunSet, Segment};

/// What the link or the oracle saw is stamped by another clock than what the reader says. The reader's own reports need
/// no slack: adapters flush records before every other event, so that their order is exact.
const WIRE_SLACK_US: u64 = 1_500_000;

pub(super) fn judge(facts: &Facts) -> Outcome {
    if facts.delivered_total() == 0 {
        return undecided("no record was delivered");
    }
    if !owed::tells_records(facts) {
        return not_applicable("records.ids or records.offsets");
    }
    let (mut events, mut texts, mut duplicates) = (Vec::new(), Vec::new(), 0u64);
    for (topic, partition, of) in facts.incarnations() {
        let steps = steps(facts, topic, partition, of);
        duplicates = duplicates.saturating_add(steps.duplicates);
        if let Some(step) = steps.back.iter().find(|step| step.fresh.is_some()) {
            events.extend([step.before.n, step.at.n]);
            texts.push(format!(
                "partition {topic}-{partition} {} {} came after {} and no reset or rebalance was reported",
                if step.by_id { "id" } else { "offset" },
                step.fresh.unwrap_or_default(),
                step.highest
            ));
        }
    }
    if !texts.is_empty() {
        return of_kind(violated(events, texts.join("; ")), FailureKind::Silent, None);
    }
    let allowed = facts.opened().and_then(|opened| opened.expect.duplicates);
    match allowed {
        Some(allowed) if duplicates > allowed => of_kind(
            violated(
                Vec::new(),
                format!("{duplicates} records were delivered more than once; {allowed} are allowed"),
            ),
            FailureKind::Silent,
            None,
        ),
        _ if duplicates > 0 => held(format!("{duplicates} duplicates")),
        _ => held(""),
    }
}

/// A step back that nothing excuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StepBack {
    /// The delivery before.
    pub(super) before: Moment,
    /// The delivery that steps back.
    pub(super) at: Moment,
    /// The highest number before it.
    pub(super) highest: u64,
    /// Its first number.
    pub(super) first: u64,
    /// The first number of it that lies below the highest and came for the first time.
    pub(super) fresh: Option<u64>,
    /// The first number of it that lies below the highest and had come before.
    pub(super) again: Option<u64>,
    /// Numbers are ids; else offsets.
    pub(super) by_id: bool,
}

/// How one partition was delivered.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Steps {
    /// Steps back that nothing excuses, in order.
    pub(super) back: Vec<StepBack>,
    /// Records delivered again to the same life, or to another one of its group.
    pub(super) duplicates: u64,
}

/// Follows each life through one partition.
pub(super) fn steps(facts: &Facts, topic: &str, partition: u32, of: &Partition) -> Steps {
    let mut steps = Steps::default();
    let end = facts.end();
    let mut lives: BTreeMap<usize, (RunSet, Option<(u64, Moment)>)> = BTreeMap::new();
    let mut group = RunSet::default();
    let is_group = facts.kind() == brokerfall_report::protocol::Kind::Group;
    for segment in &of.reads.segments {
        if segment.at.n >= end.n || facts.is_cure(segment.life) {
            continue;
        }
        // A neutral member tells both, and is followed on the scale of the reader under test.
        let by_id = match facts.lives().get(segment.life) {
            Some(life) => life.tells_ids,
            None => facts.lives().iter().any(|life| life.tells_ids),
        };
        let Some((first, last)) = numbers(segment, by_id) else {
            continue;
        };
        // It is not judged; what it took counts as read.
        if segment.life == NEUTRAL {
            group.insert(first, last);
            continue;
        }
        let (had, highest) = lives.entry(segment.life).or_default();
        let scope = if is_group { &group } else { &*had };
        let fresh = scope
            .gaps(first, last)
            .iter()
            .fold(0u64, |sum, (a, b)| sum.saturating_add(b - a + 1));
        steps.duplicates = steps.duplicates.saturating_add(segment.len.saturating_sub(fresh));
        match *highest {
            Some((top, before)) if first <= top => {
                if excused(facts, segment.life, topic, partition, before, segment.at) {
                    *highest = Some((last, segment.at));
                } else {
                    let below = last.min(top);
                    steps.back.push(StepBack {
                        before,
                        at: segment.at,
                        highest: top,
                        first,
                        fresh: had.gaps(first, below).first().map(|(a, _)| *a),
                        again: had.within(first, below).first().map(|(a, _)| *a),
                        by_id,
                    });
                    *highest = Some((top.max(last), segment.at));
                }
            }
            _ => *highest = Some((last, segment.at)),
        }
        had.insert(first, last);
        group.insert(first, last);
    }
    steps
}

/// Ids and offsets are two scales: a life is followed on one of them.
fn numbers(segment: &Segment, by_id: bool) -> Option<(u64, u64)> {
    if by_id {
        segment.id.zip(segment.last_id())
    } else {
        segment.offset.zip(segment.last_offset())
    }
}

/// Whether something lets the position go back between two deliveries of a life.
pub(super) fn excused(facts: &Facts, life: usize, topic: &str, partition: u32, before: Moment, at: Moment) -> bool {
    let member = facts.lives().get(life).map_or("", |life| life.member.as_str());
    facts.excuses().iter().any(|excuse| {
        let here = excuse
            .partition
            .as_ref()
            .is_none_or(|(t, p)| t == topic && *p == partition);
        let between = before.n < excuse.at.n && excuse.at.n < at.n;
        let about = excuse.at.us >= before.us.saturating_sub(WIRE_SLACK_US)
            && excuse.at.us <= at.us.saturating_add(WIRE_SLACK_US);
        here && match (excuse.life, &excuse.client) {
            (Some(of), _) => of == life && between,
            (None, Some(client)) => (client == member || client.is_empty()) && (between || about),
            (None, None) => between || about,
        }
    })
}
