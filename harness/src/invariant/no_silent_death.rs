//! `no_silent_death`: with the path open and records waiting, a reader whose position does not move for the recovery
//! window has ended honestly.
//!
//! An honest end hands the caller a typed exception, or shows a terminal status with one within 5 s, and claims nothing
//! afterwards. Returning without an exception, exiting unasked, or an error that stands in a log alone is a silent end.

use brokerfall_report::verdict::{FailureKind, Outcome};

use super::progress::{all_honest, behind, ends, ends_kind, ends_text, is_hot, lag_of, standstills};
use super::{held, of_kind, seconds, undecided, violated};
use crate::history::facts::Facts;

pub(super) fn judge(facts: &Facts) -> Outcome {
    if facts.lives().is_empty() {
        return undecided("no reader was started");
    }
    let ends = ends(facts);
    if let Some(ends) = ends.as_deref().filter(|ends| !all_honest(ends)) {
        let events = ends
            .iter()
            .flat_map(|ended| std::iter::once(ended.event).chain(ended.claimed_after))
            .collect();
        return of_kind(violated(events, ends_text(ends)), ends_kind(ends), Some(behind(facts)));
    }
    let standstills = standstills(facts);
    let longest = standstills.iter().max_by_key(|still| still.len_us());
    let within_us = facts.within_us();
    if let Some(still) = longest.filter(|still| still.len_us() >= within_us) {
        let hot = is_hot(facts, still.from_us, still.to_us);
        let text = format!(
            "partition {} stood still for {} with {} records waiting and the path open, and the reader did not end \
             (limit {}){}",
            still.partition,
            seconds(still.len_us()),
            still.lag,
            seconds(within_us),
            if hot { "; it was busy all the while" } else { "" }
        );
        let kind = if hot { FailureKind::Hot } else { FailureKind::Stuck };
        return of_kind(violated(proof(facts, still.from_us), text), kind, Some(behind(facts)));
    }
    if let Some(ends) = &ends {
        return held(format!("ended honestly: {}", ends_text(ends)));
    }
    let end = facts.end();
    let waiting: u64 = facts
        .planned_partitions()
        .iter()
        .map(|(topic, p)| lag_of(facts, topic, *p))
        .sum();
    let calm_us = facts
        .faults()
        .calm_since(end.us)
        .map_or(0, |since| end.us.saturating_sub(since));
    if waiting > 0 && calm_us < within_us {
        return undecided(format!(
            "{waiting} records waited at the end and the path was watched open for {} of {} only",
            seconds(calm_us),
            seconds(within_us)
        ));
    }
    if facts.delivered_total() == 0 && facts.lives().iter().all(|life| life.started.is_none()) {
        return undecided("the reader never read");
    }
    held(longest.map_or(String::new(), |still| {
        format!(
            "the longest standstill was {} (limit {})",
            seconds(still.len_us()),
            seconds(within_us)
        )
    }))
}

/// The last delivery before a time.
fn proof(facts: &Facts, us: u64) -> Vec<u64> {
    facts
        .partitions()
        .flat_map(|(_, _, of)| of.reads.segments.iter().rev().find(|segment| segment.at.us <= us))
        .map(|segment| segment.at.n)
        .max()
        .into_iter()
        .collect()
}
