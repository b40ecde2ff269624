//! `group_member`: with the path open and records to read, a partition is never as long as the larger of session timeout
//! and recovery window without a stable member that owns it, nor with two. On Kafka that is what the group's coordinator
//! told the oracle, elsewhere what the wire showed.
//!
//! Records count as waiting when the log went on past where the reader stood at the beginning of that time: a reader
//! that has left its group and reads by hand gets them, and the group does not know.

use brokerfall_report::protocol::Kind;
use brokerfall_report::verdict::{FailureKind, Outcome};

use super::progress::{alive, behind, spans};
use super::{held, not_applicable, of_kind, seconds, undecided, violated};
use crate::history::facts::{Facts, HowEnded, Life, Owned};

pub(super) fn judge(facts: &Facts) -> Outcome {
    if facts.kind() != Kind::Group {
        return not_applicable("a consumer group");
    }
    let end = facts.end();
    let told = facts.described().iter().rfind(|told| told.at.n < end.n);
    if told.is_none() && !facts.wire().standings.iter().any(|standing| standing.at.n < end.n) {
        return undecided("no group traffic was seen on the link");
    }
    // What the coordinator told last, for a sentence.
    let at_last = told.map_or_else(String::new, |told| format!("; at last {}", told.text()));
    let limit_us = facts.session_us().max(facts.within_us());
    let limit = seconds(limit_us);
    let owners = facts.owners(end);
    let calm = facts.faults().calm(end.us);
    let reading = reading(facts);
    let (mut texts, mut events, mut longest_us) = (Vec::new(), Vec::new(), 0);
    for (topic, partition) in facts.planned_partitions() {
        let owned = owners.get(&(topic, partition)).map_or(&[][..], Vec::as_slice);
        for (from, to) in spans(&calm, &reading)
            .into_iter()
            .flat_map(|(a, b)| unowned(owned, a, b))
        {
            let came = came(facts, topic, partition, from, to);
            if came > 0 {
                longest_us = longest_us.max(to - from);
                if to - from >= limit_us {
                    texts.push(format!(
                        "partition {topic}-{partition} had no member for {} with {came} records to read (limit {limit})",
                        seconds(to - from)
                    ));
                }
            }
        }
        for (i, one) in owned.iter().enumerate() {
            for other in owned.iter().skip(i + 1).filter(|other| other.client != one.client) {
                let both = [(one.from_us.max(other.from_us), one.to_us.min(other.to_us))];
                let both_us = spans(&calm, &both).into_iter().map(|(a, b)| b - a).max().unwrap_or(0);
                if both_us >= limit_us {
                    events.extend([one.event, other.event]);
                    texts.push(format!(
                        "partition {topic}-{partition} was owned by {} and {} at once for {} (limit {limit})",
                        one.client,
                        other.client,
                        seconds(both_us)
                    ));
                }
            }
        }
    }
    if !texts.is_empty() {
        let last = facts.wire().standings.iter().rfind(|standing| standing.at.n < end.n);
        events.extend(told.map(|told| told.at.n).or(last.map(|standing| standing.at.n)));
        return of_kind(
            violated(events, texts.join("; ") + &at_last),
            FailureKind::Silent,
            Some(behind(facts)),
        );
    }
    let longest = match longest_us {
        0 => String::new(),
        longest_us => format!("longest without a member: {} (limit {limit})", seconds(longest_us)),
    };
    held((longest + &at_last).trim_start_matches("; "))
}

/// When at least one reader was there that had started or shown itself to the group, and had not ended: of one that has
/// there is no member to miss, and how it ended is what `no_silent_death` judges. Where the coordinator was asked, only an
/// honest end or that of the process counts: a group that is empty while its reader calls itself well is what `group_member`
/// is for.
fn reading(facts: &Facts) -> Vec<(u64, u64)> {
    let from = |life: &Life| {
        let shown = facts
            .wire()
            .standings
            .iter()
            .find(|standing| standing.client == life.member && standing.at >= life.born)
            .map(|standing| standing.at.us);
        [life.started.map(|at| at.us), shown].into_iter().flatten().min()
    };
    let was_asked = !facts.described().is_empty();
    alive(facts, from, |ended| !was_asked || ended.how != HowEnded::Silent)
}

/// Records that waited at some time between `from` and `to`.
fn came(facts: &Facts, topic: &str, partition: u32, from: u64, to: u64) -> u64 {
    let Some(of) = facts.partition(topic, partition) else {
        return 0;
    };
    let position = of.reads.position_at(from, u64::MAX);
    let log_end = facts.visible_at(&of.log, to);
    facts.lag_at(topic, partition, position, log_end)
}

/// The parts of a time in which nobody owned the partition.
fn unowned(owned: &[Owned], from_us: u64, to_us: u64) -> Vec<(u64, u64)> {
    let mut owned: Vec<(u64, u64)> = owned.iter().map(|owned| (owned.from_us, owned.to_us)).collect();
    owned.sort_unstable();
    let mut gaps = Vec::new();
    let mut next = from_us;
    for (from, to) in owned {
        if from > next {
            gaps.push((next, from.min(to_us)));
        }
        next = next.max(to);
    }
    gaps.push((next, to_us));
    gaps.retain(|(from, to)| from < to);
    gaps
}
