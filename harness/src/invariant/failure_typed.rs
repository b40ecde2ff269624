//! `failure_typed`: every death carries an exact exception that reached the caller.
//!
//! Standing still is not a death here; `no_silent_death` judges it.

use brokerfall_report::verdict::{FailureKind, Outcome};

use super::{held, of_kind, undecided, violated};
use crate::history::facts::Facts;

pub(super) fn judge(facts: &Facts) -> Outcome {
    if facts.lives().is_empty() {
        return undecided("no reader was started");
    }
    let end = facts.end();
    let (mut events, mut untyped, mut typed) = (Vec::new(), Vec::new(), Vec::new());
    for index in (0..facts.lives().len()).filter(|&life| !facts.is_cure(life)) {
        let Some(ended) = facts.life_ended(index, end.us).filter(|ended| ended.event < end.n) else {
            continue;
        };
        match ended.exception {
            Some(exception) => typed.push(format!("{} ended with {}", ended.member, exception.label())),
            None => {
                events.push(ended.event);
                untyped.push(format!("{} {}", ended.member, ended.text));
            }
        }
    }
    if !untyped.is_empty() {
        return of_kind(violated(events, untyped.join("; ")), FailureKind::Silent, None);
    }
    if typed.is_empty() {
        return held("nothing died");
    }
    held(typed.join("; "))
}
