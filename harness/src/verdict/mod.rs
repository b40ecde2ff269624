//! From outcomes to a verdict.
//!
//! Merge, worst first: `error` (ours or the environment's), `void` by environment or evidence, `failed`, `void` because
//! what had to be decided was not, `passed`. Safety violations that need no fault to be wrong are `failed` in spite of any
//! void, never in spite of an error. Of a `skipped` run nothing is judged. `known-failing` is the suite's word and never
//! set here.
//!
//! ```text
//! entries -> Facts -> ALL invariants -> findings --+
//!                  -> voids ----------------------+--> merge -> Judgement
//! ```

mod stored;
#[cfg(test)]
mod tests;
mod voids;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use brokerfall_report::history::{Entry, FailureOf};
use brokerfall_report::report::{ReportFold, RunReport};
use brokerfall_report::verdict::{
    Behind, FailureKind, Finding, Judgement, Outcome, SeenException, Verdict, VoidReason, VoidWhose,
};

use crate::history::facts::{Facts, HowEnded};
use crate::invariant::{ALL, Invariant, catches_up, status_honest};
pub use stored::{JudgeError, each, history_of, read_facts};

/// The order in which violations name the cause: what happened before what it led to.
const CAUSES: [&str; 7] = [
    "callback_isolated",
    "catches_up",
    "no_silent_death",
    "recovers",
    "converges",
    "no_lost_record",
    "status_honest",
];

/// The order in which violations say what kind of failure it is.
const KINDS: [&str; 4] = ["recovers", "no_silent_death", "catches_up", "callback_isolated"];

/// Judges a history. Pure: the same entries give the same judgement.
///
/// ```
/// use brokerfall_report::verdict::Verdict;
/// let nothing = brokerfall::verdict::judge(&[]);
/// assert_eq!(nothing.verdict, Verdict::Error, "a history without its plan cannot be judged");
/// ```
pub fn judge<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Judgement {
    let mut facts = Facts::default();
    for entry in entries {
        facts.observe(entry);
    }
    judge_facts(&facts)
}

/// Judges the facts of a history. One that is not closed is partial, and so void.
pub fn judge_facts(facts: &Facts) -> Judgement {
    judge_with(facts, &ALL)
}

/// Judges a stored history.
///
/// # Errors
/// As [`read_facts`].
pub fn judge_file(path: &Path) -> Result<Judgement, JudgeError> {
    read_facts(path).map(|facts| judge_facts(&facts))
}

/// Judges and reports a stored history, reading it once.
///
/// # Errors
/// As [`read_facts`].
pub fn report_file(path: &Path) -> Result<RunReport, JudgeError> {
    let (mut facts, mut report) = (Facts::default(), ReportFold::default());
    each(path, |entry| {
        facts.observe(entry);
        report.observe(entry);
    })?;
    Ok(report.finish(&judge_facts(&facts)))
}

/// Reports a stored history that was judged already.
///
/// # Errors
/// As [`read_facts`].
pub fn report_judged(path: &Path, judgement: &Judgement) -> Result<RunReport, JudgeError> {
    let mut report = ReportFold::default();
    each(path, |entry| report.observe(entry))?;
    Ok(report.finish(judgement))
}

/// Judges with these invariants; those of [`ALL`] in production.
fn judge_with(facts: &Facts, invariants: &[Invariant]) -> Judgement {
    let mut voids = Vec::new();
    let skipped = facts.troubles().skipped.is_some();
    let findings = if skipped {
        Vec::new()
    } else {
        findings(facts, invariants, &mut voids)
    };
    if !skipped {
        voids.extend(voids::environment(facts));
    }
    let violations = |safety_only: bool| -> Vec<&Finding> {
        findings
            .iter()
            .filter(|finding| matches!(finding.outcome, Outcome::Violated { .. }))
            .filter(|finding| !safety_only || is_safety(facts, invariants, &finding.invariant))
            .collect()
    };
    let undecided = if skipped {
        Vec::new()
    } else {
        voids::undecided(facts, invariants, &findings)
    };
    let verdict = merge(&Inputs {
        error: facts.opened().is_none() || !facts.troubles().failures.is_empty(),
        void: !voids.is_empty(),
        violated: !violations(false).is_empty(),
        safety_violated: !violations(true).is_empty(),
        undecided: !undecided.is_empty(),
        skipped,
    });
    let attributed = if verdict == Verdict::Failed {
        violations(!voids.is_empty())
    } else {
        Vec::new()
    };
    let (failure_kind, behind) = kind_and_behind(&attributed);
    if verdict == Verdict::Void {
        voids.extend(undecided);
    }
    Judgement {
        verdict,
        cause: cause(facts, verdict, &attributed, &voids, &findings),
        error_of: (verdict == Verdict::Error).then(|| error_of(facts)),
        failure_kind,
        behind,
        voids,
        exceptions: exceptions(facts),
        remarks: remarks(facts),
        findings,
    }
}

/// What the merge looks at.
#[derive(Debug, Clone, Copy)]
struct Inputs {
    error: bool,
    void: bool,
    violated: bool,
    safety_violated: bool,
    undecided: bool,
    skipped: bool,
}

/// The exact merge, worst first. A skipped run was not judged at all.
fn merge(inputs: &Inputs) -> Verdict {
    if inputs.error {
        Verdict::Error
    } else if inputs.skipped {
        Verdict::Skipped
    } else if inputs.safety_violated {
        Verdict::Failed
    } else if inputs.void {
        Verdict::Void
    } else if inputs.violated {
        Verdict::Failed
    } else if inputs.undecided {
        Verdict::Void
    } else {
        Verdict::Passed
    }
}

fn findings(facts: &Facts, invariants: &[Invariant], voids: &mut Vec<VoidReason>) -> Vec<Finding> {
    let not_judged = facts.opened().map(|opened| &opened.expect.not_judged);
    invariants
        .iter()
        .map(|invariant| {
            let taken_out = not_judged.and_then(|not_judged| not_judged.get(invariant.id));
            let outcome = match taken_out {
                Some(reason) => Outcome::NotApplicable {
                    missing: reason.clone(),
                },
                // A judge only reads, so nothing is left half changed when it panics.
                None => catch_unwind(AssertUnwindSafe(|| (invariant.judge)(facts))).unwrap_or_else(|panic| {
                    let why = format!("the judge crashed: {}", panic_text(panic.as_ref()));
                    let text = format!("{}: {why}", invariant.id);
                    voids.push(VoidReason::new(VoidWhose::Judge, text, Vec::new()));
                    Outcome::Undecided { why }
                }),
            };
            Finding {
                invariant: invariant.id.to_owned(),
                outcome,
            }
        })
        .collect()
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a word".to_owned())
}

fn is_safety(facts: &Facts, invariants: &[Invariant], id: &str) -> bool {
    let declared = invariants
        .iter()
        .any(|invariant| invariant.id == id && invariant.is_safety);
    // A false barrier is the one part of status_honest that needs no fault.
    declared || (id == "status_honest" && status_honest::false_barrier(facts).is_some())
}

fn error_of(facts: &Facts) -> FailureOf {
    let failures = &facts.troubles().failures;
    if facts.opened().is_none() && failures.is_empty() {
        return FailureOf::Harness;
    }
    failures
        .iter()
        .map(|(_, of, _)| *of)
        .min()
        .unwrap_or(FailureOf::Harness)
}

fn kind_and_behind(attributed: &[&Finding]) -> (Option<FailureKind>, Option<Behind>) {
    let mut ordered: Vec<&&Finding> = attributed.iter().collect();
    ordered.sort_by_key(|finding| {
        KINDS
            .iter()
            .position(|id| *id == finding.invariant)
            .unwrap_or(KINDS.len())
    });
    let mut result = (None, None);
    for finding in ordered {
        if let Outcome::Violated { kind, behind, .. } = &finding.outcome {
            result = (result.0.or(*kind), result.1.or(*behind));
        }
    }
    result
}

fn cause(
    facts: &Facts,
    verdict: Verdict,
    attributed: &[&Finding],
    voids: &[VoidReason],
    findings: &[Finding],
) -> String {
    match verdict {
        Verdict::Error => facts
            .troubles()
            .failures
            .iter()
            .min_by_key(|(_, of, _)| *of)
            .map_or("the history holds no plan".to_owned(), |(_, _, text)| text.clone()),
        Verdict::Skipped => facts
            .troubles()
            .skipped
            .as_ref()
            .map_or_else(String::new, |(_, reason, _)| reason.clone()),
        Verdict::Void => voids.first().map_or_else(String::new, |void| void.text.clone()),
        Verdict::Failed | Verdict::KnownFailing => {
            let first = attributed.iter().min_by_key(|finding| {
                CAUSES
                    .iter()
                    .position(|id| *id == finding.invariant)
                    .unwrap_or(CAUSES.len())
            });
            first.map_or_else(String::new, |finding| match &finding.outcome {
                Outcome::Violated { text, .. } => format!("{} violated: {text}", finding.invariant),
                _ => String::new(),
            })
        }
        Verdict::Passed => findings
            .iter()
            .find_map(|finding| match &finding.outcome {
                Outcome::Held { text } if !text.is_empty() => Some(format!("{}: {text}", finding.invariant)),
                _ => None,
            })
            .unwrap_or_default(),
    }
}

/// Exceptions seen of the patient: fatal ones first, what only a log holds last, then in the order of their coming.
fn exceptions(facts: &Facts) -> Vec<SeenException> {
    let mut exceptions: Vec<SeenException> = facts
        .seen()
        .iter()
        .map(|(fingerprint, seen)| SeenException {
            exception: seen.exception.clone(),
            origin: seen.origin,
            phase: seen.phase,
            fatal: seen.fatal,
            count: seen.count,
            first_event: seen.first.n,
            fingerprint: fingerprint.clone(),
        })
        .collect();
    let in_log = |seen: &SeenException| seen.origin == brokerfall_report::exception::Origin::Log;
    exceptions.sort_by_key(|seen| (!seen.fatal, in_log(seen), seen.first_event));
    exceptions
}

fn remarks(facts: &Facts) -> Vec<String> {
    let mut remarks = Vec::new();
    if catches_up::woken_by_sentinel(facts) {
        remarks.push("stuck until a new record arrived".to_owned());
    }
    let end = facts.end();
    for (index, life) in facts
        .lives()
        .iter()
        .enumerate()
        .filter(|(index, _)| !facts.is_cure(*index))
    {
        let Some(ended) = facts.life_ended(index, end.us) else {
            continue;
        };
        if ended.how == HowEnded::Process {
            remarks.push(format!("{} {}", life.member, ended.text));
        }
    }
    if facts.troubles().interrupted.is_none() && facts.closed().is_none() {
        remarks.push("the history is partial".to_owned());
    }
    remarks
}
