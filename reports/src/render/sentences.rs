//! The sentences that more than one renderer says. Nothing here is escaped: each renderer does that for its output.

use crate::history::Grade;
use crate::report::{
    ColumnLine, CureReport, Evidence, LimitReport, Report, RunReport, SignalReport, Summary, Violation,
};
use crate::verdict::{Outcome, Verdict};
use crate::words;

/// A length of time as people say it; round ones, such as limits, without decimals.
pub(super) fn secs(seconds: f64) -> String {
    if seconds != 0.0 && seconds.fract() == 0.0 {
        format!("{seconds:.0} s")
    } else if seconds.abs() < 0.9995 {
        format!("{:.0} ms", seconds * 1000.0)
    } else if seconds.abs() < 9.95 {
        format!("{seconds:.1} s")
    } else {
        format!("{seconds:.0} s")
    }
}

/// `name version`.
pub(super) fn reader(run: &RunReport) -> String {
    let version = if run.reader.version.is_empty() {
        String::new()
    } else {
        format!(" {}", run.reader.version)
    };
    format!("{}{version}", run.reader.name)
}

/// Kind, client, runtime and cluster: under which circumstances.
pub(super) fn circumstances(run: &RunReport) -> String {
    [
        run.reader.kind.name(),
        &run.reader.client,
        &run.reader.runtime,
        &run.cluster.kafka,
    ]
    .into_iter()
    .filter(|part| !part.is_empty())
    .collect::<Vec<_>>()
    .join(", ")
}

/// The verdict with the kind of failure.
pub(super) fn verdict(run: &RunReport) -> String {
    match run.failure_kind {
        Some(kind) if matches!(run.verdict, Verdict::Failed) => format!("failed ({})", kind.name()),
        _ => run.verdict.name().to_owned(),
    }
}

/// How far behind, where it was.
pub(super) fn behind(run: &RunReport) -> Option<String> {
    run.behind.filter(|behind| behind.records > 0).map(|behind| {
        let records = plural(behind.records, "record");
        format!("{records} and {} behind", secs(behind.seconds))
    })
}

/// `1 record`, `2 records`.
pub(super) fn plural(n: u64, noun: &str) -> String {
    if n == 1 {
        format!("1 {noun}")
    } else {
        format!("{n} {noun}s")
    }
}

/// The cause, with the invariant that it is about.
pub(super) fn cause(run: &RunReport) -> String {
    if run
        .violations
        .iter()
        .any(|violation| run.cause.contains(&violation.invariant))
    {
        return run.cause.clone();
    }
    match run
        .violations
        .iter()
        .find(|violation| run.cause.contains(&violation.text))
    {
        Some(about) => format!("{}: {}", about.invariant, run.cause),
        None => run.cause.clone(),
    }
}

/// Violations that the cause does not speak of.
pub(super) fn other_violations(run: &RunReport) -> impl Iterator<Item = String> {
    let said = |violation: &&Violation| run.cause.contains(&violation.text) || run.cause.contains(&violation.invariant);
    run.violations
        .iter()
        .filter(move |violation| !said(violation))
        .map(|v| format!("{}: {}", v.invariant, v.text))
}

/// The kind of failure and how far behind.
pub(super) fn failure(run: &RunReport) -> String {
    let kind = run.failure_kind.map(|kind| kind.name().to_owned());
    kind.into_iter().chain(behind(run)).collect::<Vec<_>>().join(", ")
}

/// How long a passed run took to recover, and what was left of the window; or how it ended, where it may.
pub(super) fn recovery(run: &RunReport) -> Option<String> {
    let Some(took_ms) = run.timings.recovery_ms else {
        return end_allowed(run);
    };
    let took = secs(took_ms / 1000.0);
    let within = run.limits.iter().find(|limit| limit.name == "within");
    let left = within
        .and_then(|limit| limit.margin)
        .map_or(String::new(), |left| format!(", {} left", secs(left)));
    Some(format!("recovered in {took}{left}"))
}

/// How a reader ended that was allowed to.
fn end_allowed(run: &RunReport) -> Option<String> {
    let recovers = run.findings.iter().find(|finding| finding.invariant == "recovers")?;
    match &recovers.outcome {
        Outcome::Held { text } if !text.is_empty() => Some(text.clone()),
        _ => None,
    }
}

/// What is proven of one fault; `brief` leaves the proof of the heal to the files.
pub(super) fn evidence(evidence: &Evidence, brief: bool) -> String {
    let emulated = if evidence.emulated { " (emulated)" } else { "" };
    let name = if evidence.fault.starts_with(&evidence.kind) || evidence.kind.is_empty() {
        evidence.fault.clone()
    } else {
        format!("{} {}", evidence.kind, evidence.fault)
    };
    let mut parts = Vec::new();
    match evidence.reached {
        Some(reached) => {
            // What hit the reader and what it showed of it: two facts, and the first is the harder.
            let shown = |grade: Grade| {
                let proof = evidence.proofs.iter().rev().find(|proof| proof.grade == grade);
                proof.map_or(String::new(), |proof| format!(" ({})", proof.text))
            };
            if reached == Grade::Felt {
                parts.push(format!("{}{}", words::grade(Grade::Delivered), shown(Grade::Delivered)));
            }
            let proof = shown(reached);
            let asked = if reached < evidence.asked {
                format!(", asked for {}", words::grade(evidence.asked))
            } else {
                String::new()
            };
            parts.push(format!("{}{proof}{asked}", words::grade(reached)));
        }
        None if evidence.text.is_empty() => parts.push("never injected".to_owned()),
        None => parts.push("nothing proven".to_owned()),
    }
    for gap in &evidence.not_proven {
        parts.push(format!("not proven: {} ({})", words::proof(gap.wanted), gap.text));
    }
    if let Some(heal) = &evidence.heal {
        let after = evidence
            .in_force_s
            .map_or(String::new(), |s| format!(" after {}", secs(s)));
        parts.push(if brief {
            format!("healed{after}")
        } else {
            format!("healed{after} ({heal})")
        });
    }
    format!("{name}{emulated}: {}", parts.join(", "))
}

/// A column's sentence with its count and first time.
pub(super) fn column(line: &ColumnLine) -> String {
    // A count that the sentence itself begins with is not said twice.
    let times = match line.count {
        0 | 1 => String::new(),
        n if line.text.starts_with(&format!("{n} ")) => String::new(),
        n => format!(" x{n}"),
    };
    let first = line.first_s.map_or(String::new(), |s| format!(" at {}", secs(s)));
    format!("{}{times}{first}", line.text)
}

/// Signals that told, soonest first, then those that never did.
pub(super) fn signals(signals: &[SignalReport]) -> Option<String> {
    if signals.is_empty() {
        return None;
    }
    let mut told: Vec<_> = signals.iter().filter_map(|s| s.told_s.map(|at| (at, s))).collect();
    told.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut parts: Vec<_> = told
        .iter()
        .map(|(at, s)| format!("{} {}", s.signal, secs(*at)))
        .collect();
    let never: Vec<_> = signals
        .iter()
        .filter(|s| s.told_s.is_none())
        .map(|s| s.signal.as_str())
        .collect();
    if parts.is_empty() {
        parts.push("none told".to_owned());
    } else if !never.is_empty() {
        parts.push(format!("never: {}", never.join(", ")));
    }
    Some(parts.join("; "))
}

/// Which cure worked.
pub(super) fn cures(cures: &[CureReport]) -> Option<String> {
    let last = cures.last()?;
    let renewed = words::renewed(last.renewed);
    let text = if last.text.is_empty() {
        String::new()
    } else {
        format!(" ({})", last.text)
    };
    Some(if last.worked {
        format!("{renewed}{text}")
    } else {
        format!("nothing tried, not even {renewed}{text}")
    })
}

/// A limit with its origin and what was left of it.
pub(super) fn limit(limit: &LimitReport) -> String {
    let amount = |value: f64| match limit.unit.as_str() {
        "s" => secs(value),
        "/s" => format!("{}/s", two_decimals(value)),
        unit => format!("{} {unit}", two_decimals(value)),
    };
    let left = match limit.margin {
        Some(margin) if margin < 0.0 => format!(", passed by {}", amount(-margin)),
        Some(margin) => format!(", {} left", amount(margin)),
        None => String::new(),
    };
    format!("{} {} ({}{left})", limit.name, amount(limit.value), limit.origin)
}

fn two_decimals(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// Limits that decided something: the recovery window, and any other that was passed or whose invariant was violated.
pub(super) fn decisive_limits(run: &RunReport) -> Vec<String> {
    let violated = |invariant: &str| run.violations.iter().any(|violation| violation.invariant == invariant);
    let decisive = |limit: &&LimitReport| {
        let passed = limit.margin.is_some_and(|margin| margin < 0.0);
        passed
            || match limit.name.as_str() {
                "within" => true,
                "stop-grace" => violated("stops_cleanly"),
                "cpu" => violated("bounded_cpu"),
                "memory" | "descriptors" => violated("bounded_memory"),
                _ => violated("bounded_requests"),
            }
    };
    run.limits.iter().filter(decisive).map(limit).collect()
}

/// What the harness itself cost: the largest share of a judged run, and the median.
pub(super) fn overhead(report: &Report) -> Option<String> {
    let judged = report
        .runs
        .iter()
        .filter(|run| run.verdict.is_judged() && run.timings.total_ms > 0.0);
    let mut runs: Vec<_> = judged.map(|run| (run.timings.overhead_ms, run)).collect();
    runs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (most, run) = runs.last()?;
    let (median, _) = runs.get(runs.len() / 2)?;
    let share = 100.0 * most / run.timings.total_ms;
    Some(format!(
        "{median:.1} ms in the median run, at most {most:.1} ms ({share:.0} % of {})",
        run.scenario
    ))
}

/// The last line: what was judged, skipped and void.
pub(super) fn count(summary: &Summary) -> String {
    let of = |name: &str| summary.verdicts.get(name).copied().unwrap_or(0);
    let judged: Vec<_> = [Verdict::Passed, Verdict::Failed, Verdict::KnownFailing]
        .into_iter()
        .filter(|verdict| of(verdict.name()) > 0)
        .map(|verdict| format!("{} {}", of(verdict.name()), verdict.name()))
        .collect();
    let judged = if judged.is_empty() {
        String::new()
    } else {
        format!(" ({})", judged.join(", "))
    };
    let errors = match of("error") {
        0 => String::new(),
        n => format!(", error {n}"),
    };
    format!(
        "judged {}{judged}, skipped {}, void {}{errors}",
        summary.judged, summary.skipped, summary.void
    )
}
