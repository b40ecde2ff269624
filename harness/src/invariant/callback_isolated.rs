//! `callback_isolated`: a user callback raised once, and the reader lives, every other record is delivered, the failure
//! reached a log, a handler or the status, and the library's own count of callback errors (if it has one) rose by exactly
//! the number raised.
//!
//! Where the scenario lets the reader end (a base exception, one that is always raised), an honest end is none of this
//! invariant's business.

use brokerfall_report::history::ExpectedEnd;
use brokerfall_report::verdict::{FailureKind, Outcome};

use super::progress::{behind, ends_kind, standstills};
use super::{held, not_applicable, of_kind, owed, runs_text, seconds, undecided, violated};
use crate::history::facts::{Facts, HowEnded, Moment};

/// A library counts a moment after the callback raised. Twice the pause between two heartbeats, and below the second for
/// which scenarios keep the fault: the count of the last heartbeat is always judged.
const COUNTED_US: u64 = 500_000;

pub(super) fn judge(facts: &Facts) -> Outcome {
    let end = facts.end();
    if !facts.faults().all.iter().any(|fault| fault.kind == "panic-callback") {
        let planned = facts
            .opened()
            .is_some_and(|o| o.faults.iter().any(|fault| fault.kind == "panic-callback"));
        return if planned {
            undecided("the callback was never armed")
        } else {
            not_applicable("a callback fault")
        };
    }
    let struck: Vec<_> = facts.struck().iter().filter(|(at, ..)| at.n < end.n).collect();
    let Some((first, index, call, _)) = struck.first().copied() else {
        return undecided("the armed callback was never called");
    };
    let raised: Vec<Moment> = struck
        .iter()
        .filter(|(.., raised)| *raised)
        .map(|(at, ..)| *at)
        .collect();
    let whose = match (&call.key, call.offset) {
        (_, Some(offset)) => format!("after the callback failed at offset {offset}"),
        (Some(key), None) => format!("after the callback failed on key {}", crate::history::facts::shown(key)),
        (None, None) => "after the callback failed".to_owned(),
    };
    let events = |more: u64| vec![first.n, more];

    if let Some(ended) = facts
        .life_ended(*index, end.us)
        .filter(|ended| ended.event < end.n && ended.at_us >= first.us)
    {
        let may_end = facts
            .opened()
            .is_some_and(|opened| opened.expect.outcome != ExpectedEnd::Recovers);
        if may_end && ended.how == HowEnded::Honest {
            return not_applicable("a reader that goes on: it ended honestly, which this callback fault allows");
        }
        let kind = ends_kind(std::slice::from_ref(&ended));
        let text = format!("{whose}, {} {}", ended.member, ended.text);
        return of_kind(violated(events(ended.event), text), kind, Some(behind(facts)));
    }
    let still = standstills(facts)
        .into_iter()
        .filter(|still| still.to_us > first.us)
        .max_by_key(|still| still.len_us());
    if let Some(still) = still.filter(|still| still.len_us() >= facts.within_us()) {
        let text = format!(
            "{whose}, partition {} stood still for {} with {} records waiting",
            still.partition,
            seconds(still.len_us()),
            still.lag
        );
        return of_kind(violated(events(first.n), text), FailureKind::Stuck, Some(behind(facts)));
    }
    if owed::tells_records(facts) {
        for scope in owed::scopes(facts) {
            for (topic, partition, of) in facts.incarnations() {
                let given = owed::Given::new(facts, &scope, topic, partition, of);
                let missing = given.missing(&given.ids(|_| true));
                if !missing.ids.is_empty() {
                    let runs: Vec<_> = missing.ids.runs().collect();
                    let text = format!(
                        "{whose}, ids {} of {topic}-{partition} were not delivered either",
                        runs_text(&runs)
                    );
                    return of_kind(
                        violated(events(first.n), text),
                        FailureKind::Silent,
                        Some(behind(facts)),
                    );
                }
            }
        }
    }
    if raised.is_empty() {
        return held("the callback was entered and did not raise");
    }
    let life = facts.lives().get(*index);
    let heard = facts.errors().iter().any(|(at, ..)| *at >= *first && at.n < end.n)
        || life.is_some_and(|life| {
            life.status.iter().any(|(at, _)| *at >= *first)
                || life.returned.iter().any(|(at, _, error)| *error && *at >= *first)
                || life.callback_errors.iter().any(|(at, _)| *at >= *first)
        });
    if !heard {
        let text = format!("{whose}, nothing of it reached a log, a handler or the status");
        return of_kind(violated(events(first.n), text), FailureKind::Silent, None);
    }
    if let Some((counted, at)) = counted(facts, *index, *first, &raised)
        && counted != raised.len() as f64
    {
        let text = format!(
            "the callback raised {} times and the reader counts {counted} callback errors",
            raised.len()
        );
        return of_kind(violated(events(at), text), FailureKind::Silent, None);
    }
    held(format!("raised {} times", raised.len()))
}

/// By how much the library's own count rose, once it had the time to, and the event that told.
fn counted(facts: &Facts, life: usize, first: Moment, raised: &[Moment]) -> Option<(f64, u64)> {
    let end = facts.end();
    let life = facts.lives().get(life)?;
    let last = raised.last()?;
    let before = life
        .callback_errors
        .iter()
        .rfind(|(at, _)| *at < first)
        .map_or(0.0, |(_, n)| *n);
    let (at, after) = life.callback_errors.iter().rfind(|(at, _)| at.n < end.n)?;
    // Too many are too many at once; too few may only be late.
    let settled = life.last_heartbeat?.us >= last.us.saturating_add(COUNTED_US);
    let rose = after - before;
    (settled || rose > raised.len() as f64).then_some((rose, at.n))
}
