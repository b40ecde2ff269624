//! `exception_expected`: every exception that the reader showed before its verdict was fixed is one of those that were
//! accepted for it in this scenario, by phase, origin, type and code (`expected/<reader>.toml`; the plan in the history
//! holds what applies).
//!
//! Types and codes are those of the exception itself, not of what it was raised from. That an accepted exception did not
//! come again is no violation: whether a client logs it hangs on timing. Where nothing was accepted yet, all is new.

use brokerfall_report::history::ExpectedException;
use brokerfall_report::verdict::{FailureKind, Outcome};

use super::{held, not_applicable, of_kind, undecided, violated};
use crate::history::facts::{Facts, Seen, shown};

/// How many are named in a sentence.
const NAMED: usize = 3;

pub(super) fn judge(facts: &Facts) -> Outcome {
    let Some(opened) = facts.opened() else {
        return undecided("the run was never opened");
    };
    if facts.lives().is_empty() {
        return undecided("no reader was started");
    }
    let end = facts.end();
    let mut seen: Vec<&Seen> = facts.seen().values().filter(|seen| seen.first.n < end.n).collect();
    seen.sort_by_key(|seen| seen.first.n);
    let Some(expected) = &opened.expected else {
        let new = if seen.is_empty() {
            "none was raised".to_owned()
        } else {
            format!("new: {}", named(&seen))
        };
        return not_applicable(format!(
            "accepted exceptions of {} in this scenario ({new}; `brokerfall accept RUN` accepts a run's)",
            opened.reader.name
        ));
    };
    let unexpected: Vec<&Seen> = seen
        .iter()
        .copied()
        .filter(|seen| !expected.contains(&as_expected(seen)))
        .collect();
    if !unexpected.is_empty() {
        let events = unexpected.iter().map(|seen| seen.first.n).collect();
        let text = format!("not among the {} accepted: {}", expected.len(), named(&unexpected));
        let kind = if unexpected.iter().any(|seen| seen.fatal) {
            FailureKind::Terminal
        } else {
            FailureKind::Silent
        };
        return of_kind(violated(events, text), kind, None);
    }
    let came = expected
        .iter()
        .filter(|one| seen.iter().any(|seen| as_expected(seen) == **one));
    held(format!(
        "{} of {} accepted exceptions came",
        came.count(),
        expected.len()
    ))
}

/// An exception as files name it.
pub(crate) fn as_expected(seen: &Seen) -> ExpectedException {
    ExpectedException {
        phase: seen.phase,
        origin: seen.origin,
        type_name: seen.exception.type_name.clone(),
        code: seen.exception.code.as_ref().map(|code| code.value),
    }
}

fn named(seen: &[&Seen]) -> String {
    let mut names: Vec<String> = seen
        .iter()
        .take(NAMED)
        .map(|seen| {
            let (label, origin) = (shown(&seen.exception.label()), seen.origin.name());
            format!("{label} ({origin}, {})", seen.phase.name())
        })
        .collect();
    if seen.len() > NAMED {
        names.push(format!("{} more", seen.len() - NAMED));
    }
    names.join(", ")
}
