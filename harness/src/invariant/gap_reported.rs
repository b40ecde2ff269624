//! `gap_reported`: where records left the log before the reader could read them, its caller was told: a `reset` event, or
//! an exception that reached the caller (a call, a callback, a channel), from when the log start passed the reader until
//! 5 s after it had read on.
//!
//! Optional: many libraries jump without a word by design, so only a scenario that names it in `[expect]` asks.

use brokerfall_report::exception::Origin;
use brokerfall_report::protocol::ResetCause;
use brokerfall_report::verdict::{FailureKind, Outcome};

use super::{held, not_applicable, of_kind, owed, runs_text, undecided, violated};
use crate::history::facts::{Facts, Moment, RunSet};

/// Readers tell what they met within the pause between two reports of theirs, and flush records before it.
const AFTERWARDS_US: u64 = 5_000_000;

pub(super) fn judge(facts: &Facts) -> Outcome {
    let asked = facts.opened().is_some_and(|opened| {
        let mut named = opened.expect.named.iter();
        named.any(|id| id == "gap_reported")
    });
    if !asked {
        return not_applicable("a scenario that names it in [expect]");
    }
    if !facts
        .members()
        .keys()
        .any(|member| facts.has_capability(member, "reset"))
    {
        return not_applicable("the capability reset");
    }
    if facts.delivered_total() == 0 {
        return undecided("no record was delivered");
    }
    let (mut lost, mut untold, mut events) = (0u64, Vec::new(), Vec::new());
    for (topic, partition, of) in facts.incarnations() {
        let mut hidden = RunSet::default();
        for gap in owed::gaps(facts, topic, partition, of) {
            lost = lost.saturating_add(gap.last - gap.first + 1);
            if !told(facts, (topic, partition), gap.from, gap.until) {
                events.extend([gap.from.n, gap.until.n]);
                hidden.insert(gap.first, gap.last);
            }
        }
        if !hidden.is_empty() {
            let runs: Vec<_> = hidden.runs().collect();
            untold.push(format!("offsets {} of {topic}-{partition}", runs_text(&runs)));
        }
    }
    if lost == 0 {
        return undecided("no record left the log before the reader came to it");
    }
    if untold.is_empty() {
        return held(format!("{lost} records had left the log, and the caller was told"));
    }
    let text = format!(
        "{} had left the log when the reader came to them, and nobody was told",
        untold.join(", ")
    );
    of_kind(violated(events, text), FailureKind::Silent, None)
}

/// Whether anything reached the caller between the loss and a little after it was passed.
fn told(facts: &Facts, (topic, partition): (&str, u32), from: Moment, until: Moment) -> bool {
    let in_time = |at: Moment| at.us >= from.us && at.us <= until.us.saturating_add(AFTERWARDS_US);
    let reset = facts.resets().iter().any(|reset| {
        let moved = !matches!(reset.cause, ResetCause::Seek | ResetCause::Retry);
        moved && reset.topic == topic && reset.partition == partition && in_time(reset.at)
    });
    let raised = facts
        .errors()
        .iter()
        .any(|(at, _, origin, _)| *origin != Origin::Log && in_time(*at));
    let returned = facts
        .lives()
        .iter()
        .flat_map(|life| &life.returned)
        .any(|(at, _, error)| *error && in_time(*at));
    reset || raised || returned
}
