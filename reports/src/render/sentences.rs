//! The sentences that more than one renderer says. Nothing here is escaped: each renderer does that for its output.

use std::collections::BTreeMap;

use crate::history::Grade;
use crate::report::{ColumnLine, CureReport, Evidence, LimitReport, Report, RunReport, SignalReport, Violation};
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

/// A step that is no fault, such as a member that joins, has nothing to prove but how it was undone.
fn is_fault(evidence: &Evidence) -> bool {
    !evidence.kind.is_empty()
}

/// What is proven of one fault; `brief` leaves the proof of the heal to the files.
pub(super) fn evidence(evidence: &Evidence, brief: bool) -> String {
    let emulated = if evidence.emulated { " (emulated)" } else { "" };
    let name = if evidence.fault.starts_with(&evidence.kind) || evidence.kind.is_empty() {
        evidence.fault.clone()
    } else {
        format!("{} {}", evidence.kind, evidence.fault)
    };
    let is_fault = is_fault(evidence);
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
        None if !is_fault => {}
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
        parts.push(match (is_fault, brief) {
            (false, _) => heal.clone(),
            (true, true) => format!("healed{after}"),
            (true, false) => format!("healed{after} ({heal})"),
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

/// The passed run that came nearest to a limit.
pub(super) struct Narrowest<'a> {
    pub(super) limit: &'a LimitReport,
    /// What was left, in the limit's unit.
    pub(super) margin: f64,
    pub(super) run: &'a RunReport,
}

impl Narrowest<'_> {
    fn share(&self) -> f64 {
        self.margin / self.limit.value
    }

    /// `cpu 0.04 of 0.1 cores left (manifest)`.
    pub(super) fn text(&self) -> String {
        let LimitReport {
            name,
            value,
            unit,
            origin,
            ..
        } = self.limit;
        let (left, value) = (two_decimals(self.margin), two_decimals(*value));
        let unit = if unit.starts_with('/') {
            unit.clone()
        } else {
            format!(" {unit}")
        };
        format!("{name} {left} of {value}{unit} left ({origin})")
    }
}

/// For each limit that passed runs were measured by, the run that had the least of it left; the narrowest first.
pub(super) fn narrowest(report: &Report) -> Vec<Narrowest<'_>> {
    let mut all: Vec<Narrowest<'_>> = Vec::new();
    for run in report.runs.iter().filter(|run| run.verdict == Verdict::Passed) {
        for limit in run.limits.iter().filter(|limit| limit.value > 0.0) {
            let Some(margin) = limit.margin else { continue };
            let new = Narrowest { limit, margin, run };
            match all.iter_mut().find(|known| known.limit.name == limit.name) {
                Some(known) if new.share() < known.share() => *known = new,
                Some(_) => {}
                None => all.push(new),
            }
        }
    }
    all.sort_by(|a, b| a.share().total_cmp(&b.share()));
    all
}

fn two_decimals(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
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

/// The last line: what was judged, skipped and void, the void ones by whose doing it was.
pub(super) fn count(report: &Report) -> String {
    let summary = &report.summary;
    let of = |name: &str| summary.verdicts.get(name).copied().unwrap_or(0);
    let judged: Vec<_> = [Verdict::Passed, Verdict::Failed, Verdict::KnownFailing]
        .into_iter()
        .filter(|verdict| of(verdict.name()) > 0)
        .map(|verdict| format!("{} {}", of(verdict.name()), verdict.name()))
        .collect();
    let in_brackets = |parts: Vec<String>| match parts.as_slice() {
        [] => String::new(),
        parts => format!(" ({})", parts.join(", ")),
    };
    let mut by: BTreeMap<&str, u64> = BTreeMap::new();
    for run in report.runs.iter().filter(|run| run.verdict == Verdict::Void) {
        if let Some(whose) = void_by(run) {
            *by.entry(whose).or_default() += 1;
        }
    }
    let by = by.into_iter().map(|(whose, n)| format!("{n} by the {whose}")).collect();
    let errors = match of("error") {
        0 => String::new(),
        n => format!(", error {n}"),
    };
    format!(
        "judged {}{}, skipped {}, void {}{}{errors}",
        summary.judged,
        in_brackets(judged),
        summary.skipped,
        summary.void,
        in_brackets(by)
    )
}

/// Whose doing it was that a run is void: of the first reason.
pub(super) fn void_by(run: &RunReport) -> Option<&'static str> {
    run.voids.first().map(|void| void.by.name())
}

/// `broker-kill/live[brokers=3]` -> `broker-kill`, `live[brokers=3]`.
pub(super) fn folder_and_name(scenario: &str) -> (&str, &str) {
    let base = scenario.find('[').unwrap_or(scenario.len());
    match scenario[..base].rfind('/') {
        Some(at) => (&scenario[..at], &scenario[at + 1..]),
        None => ("", scenario),
    }
}

/// What is proven of passed runs of one scenario with one reader, in one line: the weakest evidence of each fault, the
/// longest recovery and the least that was left of its window.
pub(super) fn passed_in_short(runs: &[&RunReport]) -> String {
    let Some(first) = runs.first() else {
        return String::new();
    };
    let mut parts = Vec::new();
    if runs.len() > 1 {
        parts.push(format!("x{}", runs.len()));
    }
    let weakest = |fault: Option<&str>| {
        let evidence = runs.iter().flat_map(|run| &run.evidence).filter(|one| is_fault(one));
        let of = evidence.filter(|evidence| fault.is_none_or(|name| evidence.fault == name));
        of.map(|evidence| evidence.reached)
            .min()
            .flatten()
            .map_or("nothing proven", words::grade)
    };
    let (faults, undone): (Vec<&Evidence>, Vec<&Evidence>) = first.evidence.iter().partition(|one| is_fault(one));
    match faults.as_slice() {
        [] => parts.push("no fault".to_owned()),
        few if few.len() <= 2 => parts.extend(few.iter().map(|evidence| {
            let healed = match evidence.in_force_s.filter(|_| evidence.heal.is_some()) {
                Some(s) => format!(", healed after {}", secs(s)),
                None => String::new(),
            };
            let emulated = if evidence.emulated { " (emulated)" } else { "" };
            format!(
                "{}{emulated} {}{healed}",
                evidence.fault,
                weakest(Some(&evidence.fault))
            )
        })),
        many => {
            let healed = many.iter().filter(|evidence| evidence.heal.is_some()).count();
            parts.push(format!(
                "{} faults, each at least {}, {healed} healed",
                many.len(),
                weakest(None)
            ));
        }
    }
    parts.extend(undone.into_iter().take(2).filter_map(|step| step.heal.clone()));
    let slowest = runs.iter().filter(|run| run.timings.recovery_ms.is_some());
    let slowest = slowest.max_by(|a, b| {
        let took = |run: &RunReport| run.timings.recovery_ms.unwrap_or(0.0);
        took(a).total_cmp(&took(b))
    });
    parts.extend(recovery(slowest.unwrap_or(first)));
    parts.join("; ")
}

/// Readers of which over half of the runs were skipped: a green suite of them says little.
pub(super) fn mostly_skipped(report: &Report) -> Vec<String> {
    let mut readers: Vec<(String, u64, Vec<&RunReport>)> = Vec::new();
    for run in &report.runs {
        let name = reader(run);
        let at = readers
            .iter()
            .position(|(known, _, _)| *known == name)
            .unwrap_or_else(|| {
                readers.push((name, 0, Vec::new()));
                readers.len() - 1
            });
        readers[at].1 += 1;
        if run.verdict == Verdict::Skipped {
            readers[at].2.push(run);
        }
    }
    readers
        .into_iter()
        .filter(|(_, runs, skipped)| 2 * skipped.len() as u64 > *runs)
        .filter_map(|(name, runs, skipped)| {
            let enable = |run: &RunReport| run.skipped.as_ref().map(|skip| skip.enable.clone()).unwrap_or_default();
            let same = |run: &&&RunReport| skipped.iter().filter(|other| enable(other) == enable(run)).count();
            let usual = skipped.iter().max_by_key(same)?;
            let n = skipped.iter().filter(|other| enable(other) == enable(usual)).count();
            Some(format!(
                "{} of {} of {name} were skipped; what would have {n} of them judged: {}; then: {}",
                skipped.len(),
                plural(runs, "run"),
                enable(usual),
                command_that_judges(report, usual, &enable(usual)),
            ))
        })
        .collect()
}

/// The command of a skipped run, with the option that its remedy names.
fn command_that_judges(report: &Report, run: &RunReport, enable: &str) -> String {
    let command = if run.reproduce.is_empty() {
        report.command.clone()
    } else {
        run.reproduce.clone()
    };
    let words: Vec<&str> = enable.split_whitespace().collect();
    let option = words.windows(2).find(|pair| pair[0].starts_with("--"));
    match option {
        Some([option, value]) if !command.contains(option) && !value.starts_with("with") => {
            format!("{command} {option} {}", value.trim_end_matches([',', ')', ';']))
        }
        _ => command,
    }
}
