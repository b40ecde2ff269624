//! `recovers`: within the recovery window of the later of last heal proven and sentinel acknowledged, the same instance
//! delivers or applies the sentinel on every partition it must read (a group: the union of its members), and lives on.
//!
//! Under `outcome = "recovers-or-ends"` an honest end holds as well, and under `"ends"` it alone does; both are judged at
//! once. The window default is 60 s, because healthy libraries took up to 39 s.

use brokerfall_report::history::ExpectedEnd;
use brokerfall_report::verdict::{FailureKind, Outcome};

use super::progress::{alive_kind, all_honest, behind, ends, ends_kind, ends_text, fault_in_force};
use super::{held, of_kind, seconds, undecided, violated};
use crate::history::facts::Facts;

/// The round that judges the patient; later ones serve diagnosis.
const ROUND: u32 = 1;

pub(super) fn judge(facts: &Facts) -> Outcome {
    let expected = facts
        .opened()
        .map_or(ExpectedEnd::Recovers, |opened| opened.expect.outcome);
    if let Some(ends) = ends(facts) {
        let text = ends_text(&ends);
        let events = ends.iter().map(|ended| ended.event).collect();
        if expected != ExpectedEnd::Recovers && all_honest(&ends) {
            return held(format!("ended honestly: {text}"));
        }
        return of_kind(violated(events, text), ends_kind(&ends), Some(behind(facts)));
    }
    let end = facts.end();
    if facts.patients().is_empty() {
        return undecided("no reader was there to be judged");
    }
    if fault_in_force(facts) {
        return undecided("a fault was still in force when the verdict was fixed");
    }
    let Some(sentinel) = facts.sentinel(ROUND).filter(|sentinel| sentinel.at.n < end.n) else {
        return undecided("no sentinel was written");
    };
    let heal = facts.faults().last_heal().filter(|heal| heal.n < end.n);
    let from_us = sentinel.at.us.max(heal.map_or(0, |heal| heal.us));
    let deadline_us = from_us.saturating_add(facts.within_us());
    let within = seconds(facts.within_us());

    let (mut missing, mut late, mut last_us, mut events) = (Vec::new(), Vec::new(), 0, vec![sentinel.at.n]);
    let mut waiting = Vec::new();
    events.extend(heal.map(|heal| heal.n));
    for (record, arrived) in &sentinel.records {
        let name = format!("{}-{}", record.topic, record.partition);
        match arrived.filter(|arrived| arrived.n < end.n) {
            None => {
                waiting.push((record.topic.as_str(), record.partition));
                missing.push(format!("{name} (id {}, offset {})", record.id, record.offset));
            }
            Some(arrived) => {
                last_us = last_us.max(arrived.us);
                if arrived.us > deadline_us {
                    events.push(arrived.n);
                    late.push(format!("{name} after {}", seconds(arrived.us - from_us)));
                }
            }
        }
    }
    if missing.is_empty() && late.is_empty() {
        if expected == ExpectedEnd::Ends {
            let text = "the reader was to end and went on reading";
            return of_kind(violated(events, text), FailureKind::Silent, None);
        }
        return held(format!(
            "the sentinel arrived after {} of {within}",
            seconds(last_us.saturating_sub(from_us))
        ));
    }
    if !missing.is_empty() && end.us < deadline_us {
        return undecided(format!(
            "the sentinel has not arrived on {}, but was awaited for {} of {within} only",
            missing.join(", "),
            seconds(end.us.saturating_sub(from_us))
        ));
    }
    if missing.is_empty() {
        let text = format!("the sentinel arrived too late on {} (limit {within})", late.join(", "));
        return of_kind(violated(events, text), FailureKind::Slow, Some(behind(facts)));
    }
    let text = format!("the sentinel never arrived on {} within {within}", missing.join(", "));
    of_kind(
        violated(events, text),
        alive_kind(facts, &waiting, from_us),
        Some(behind(facts)),
    )
}
