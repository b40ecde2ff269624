//! From a history and its judgement to the report of a run: one pass, no clock, no I/O.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use super::columns::{Gathering, seconds};
use super::lag::Lag;
use super::signals::Signals;
use super::timing::{Clock, ms};
use super::usage::{Usage, Used};
use super::{
    CureReport, Evidence, ExceptionReport, LimitReport, NotJudged, NotProvenReport, ProofReport, RunReport, SkipReport,
    Violation,
};
use crate::history::{Entry, Event, Grade, Limit, Opened, ReaderInfo, Stage};
use crate::protocol::{Hello, Kind, ReaderEvent};
use crate::verdict::{Judgement, Outcome, Verdict, VoidWhose};

/// Violations that need no fault to be true: they stand in spite of a void run. A false barrier is the fifth; it is
/// told from other violations of `status_honest` by the answer among its events.
const NEEDS_NO_FAULT: [&str; 4] = ["no_lost_record", "no_phantom_record", "in_order", "commit_not_ahead"];

/// A report that is folded from a history entry by entry, so that the history need not be in memory.
///
/// ```
/// # use brokerfall_report::report::ReportFold;
/// # use brokerfall_report::history::{Entry, Event};
/// # fn judgement() -> brokerfall_report::verdict::Judgement { serde_json::from_str(r#"{"verdict":"error","cause":"","findings":[]}"#).unwrap() }
/// let mut fold = ReportFold::default();
/// fold.observe(&Entry { n: 0, at_us: 10, event: Event::Closed });
/// assert!(!fold.finish(&judgement()).partial);
/// ```
#[derive(Default)]
pub struct ReportFold {
    opened: Option<Box<Opened>>,
    hello: Option<Hello>,
    clock: Clock,
    lag: Lag,
    columns: Gathering,
    signals: Signals,
    recovery: Recovery,
    usage: Usage,
    used: Used,
    evidence: Vec<Evidence>,
    began: BTreeMap<String, u64>,
    fault_seen: bool,
    cures: Vec<CureReport>,
    skipped: Option<SkipReport>,
    judged: bool,
    diagnosed: bool,
    closed: bool,
    last_us: u64,
}

/// How long the sentinel took to arrive everywhere.
#[derive(Default)]
struct Recovery {
    healed_us: u64,
    from_us: u64,
    awaited: BTreeMap<(String, u32), (u64, u64)>,
    took_us: Option<u64>,
    stop_ms: Option<u64>,
}

impl RunReport {
    /// Folds a history and its judgement into a report. Cut-off histories give a report marked partial; one without a
    /// plan gives a report that names no scenario.
    pub fn from_history(entries: impl IntoIterator<Item = impl Borrow<Entry>>, judgement: &Judgement) -> RunReport {
        let mut fold = ReportFold::default();
        for entry in entries {
            fold.observe(entry.borrow());
        }
        fold.finish(judgement)
    }
}

impl ReportFold {
    /// Takes in one entry.
    pub fn observe(&mut self, entry: &Entry) {
        let (n, at_us) = (entry.n, entry.at_us);
        self.last_us = at_us;
        self.clock.observe(at_us, &entry.event);
        if matches!(entry.event, Event::Injecting { .. }) && !self.fault_seen {
            self.fault_seen = true;
            self.columns.fault_begins(at_us);
            self.signals.fault_begins(at_us);
        }
        if let Event::Stage(Stage::Diagnosing | Stage::Stopping | Stage::Closing) = entry.event {
            self.end_judging(at_us);
            self.diagnosed |= entry.event == Event::Stage(Stage::Diagnosing);
        }
        if !self.judged {
            self.lag.observe(at_us, &entry.event);
            self.recovery.observe(at_us, &entry.event);
            self.usage.observe(at_us, &entry.event);
            self.signals.observe(at_us, &entry.event, &self.lag);
            self.columns.observe(n, at_us, &entry.event);
        } else if let (Event::Reader { member, event, .. }, false) = (&entry.event, self.diagnosed) {
            // The patient's own close may still raise; after a cure it would be another reader's exception.
            self.columns.raised(at_us, member, event);
        }
        self.note(at_us, &entry.event);
    }

    fn end_judging(&mut self, at_us: u64) {
        if !self.judged {
            self.judged = true;
            self.columns.judging_ends(at_us, self.lag.behind());
            self.signals.judging_ends(at_us, &self.lag);
            self.used = self.usage.finish(at_us);
        }
    }

    fn note(&mut self, at_us: u64, event: &Event) {
        match event {
            Event::Opened(opened) => {
                self.lag.starts_at(opened.reset);
                self.evidence = opened.faults.iter().map(|f| blank(&f.name, &f.kind, f.grade)).collect();
                self.opened = Some(opened.clone());
            }
            Event::Injecting {
                fault,
                kind,
                text,
                emulated,
            } => {
                let evidence = self.evidence_of(fault);
                evidence.kind.clone_from(kind);
                evidence.text.clone_from(text);
                evidence.emulated = *emulated;
                self.began.insert(fault.clone(), at_us);
            }
            Event::Injected { fault, proof } => self.proven(at_us, fault, Grade::Injected, proof),
            Event::Delivered { fault, proof } => self.proven(at_us, fault, Grade::Delivered, proof),
            Event::Felt { fault, proof } => self.proven(at_us, fault, Grade::Felt, proof),
            Event::Healed { fault, proof } => {
                let in_force = self.began.get(fault).map(|began| seconds(at_us.saturating_sub(*began)));
                let evidence = self.evidence_of(fault);
                evidence.heal = Some(proof.clone());
                evidence.in_force_s = in_force;
            }
            // That the reader was not healthy before is about no fault; the reasons of the void run say it.
            Event::NotProven { fault, .. } if fault.is_empty() => {}
            Event::NotProven { fault, wanted, text } => {
                self.evidence_of(fault).not_proven.push(NotProvenReport {
                    wanted: *wanted,
                    text: text.clone(),
                });
            }
            Event::Reader {
                event: ReaderEvent::Hello(hello),
                ..
            } => {
                self.hello.get_or_insert_with(|| hello.clone());
            }
            Event::Left { stopped_ms, .. } if !self.diagnosed => {
                self.recovery.stop_ms = self.recovery.stop_ms.max(*stopped_ms);
            }
            Event::Cure { renewed, worked, text } => self.cures.push(CureReport {
                renewed: *renewed,
                worked: *worked,
                text: text.clone(),
            }),
            Event::Skipped { reason, enable } => {
                self.skipped = Some(SkipReport {
                    reason: reason.clone(),
                    enable: enable.clone(),
                });
            }
            Event::Closed => self.closed = true,
            _ => {}
        }
    }

    fn evidence_of(&mut self, fault: &str) -> &mut Evidence {
        let at = match self.evidence.iter().position(|known| known.fault == fault) {
            Some(at) => at,
            None => {
                self.evidence.push(blank(fault, "", Grade::Injected));
                self.evidence.len() - 1
            }
        };
        &mut self.evidence[at]
    }

    fn proven(&mut self, at_us: u64, fault: &str, grade: Grade, text: &str) {
        let began = self.began.get(fault).copied();
        let evidence = self.evidence_of(fault);
        evidence.proofs.push(ProofReport {
            grade,
            text: text.to_owned(),
            after_ms: began.map(|began| at_us.saturating_sub(began) as f64 / 1000.0),
        });
        // Each grade rests on the one below.
        let shown = |grade: &Grade| evidence.proofs.iter().any(|proof| proof.grade == *grade);
        evidence.reached = Grade::ALL.into_iter().take_while(shown).last();
    }

    /// The report, once every entry was taken in.
    pub fn finish(mut self, judgement: &Judgement) -> RunReport {
        // A run that was cut off never reached the end of its judging.
        self.end_judging(self.last_us);
        let mut run = RunReport::blank(
            &self
                .opened
                .as_ref()
                .map_or_else(unknown_reader, |opened| opened.reader.clone()),
        );
        run.timings = self.clock.finish();
        run.timings.recovery_ms = self.recovery.took_us.map(ms);
        run.timings.stop_ms = self.recovery.stop_ms.map(|ms| ms as f64);
        let in_group = self.opened.as_ref().is_some_and(|opened| opened.group.is_some());
        if let Some(opened) = self.opened {
            run.limits = limits(&opened, &self.recovery, &self.used);
            run.scenario = opened.scenario;
            run.title = opened.title;
            run.phase = opened.phase;
            run.cluster = opened.cluster;
            run.link = opened.link;
            run.seed = opened.seed;
            run.started_at = opened.started_at;
            run.reproduce = opened.reproduce;
        }
        if let Some(hello) = self.hello {
            run.reader.library = hello.library;
            run.reader.client = hello.client;
            run.reader.runtime = hello.runtime;
        }
        run.partial = !self.closed;
        run.evidence = self.evidence;
        run.cures = self.cures;
        run.skipped = self.skipped;
        run.signals = self.signals.finish(in_group);
        judged(&mut run, judgement, &self.columns);
        run.columns = self.columns.finish();
        run
    }
}

/// What the judgement says, with each violation put where it belongs.
fn judged(run: &mut RunReport, judgement: &Judgement, columns: &Gathering) {
    run.verdict = judgement.verdict;
    run.cause.clone_from(&judgement.cause);
    run.error_of = judgement.error_of;
    run.failure_kind = judgement.failure_kind;
    run.behind = judgement.behind;
    run.voids.clone_from(&judgement.voids);
    run.remarks.clone_from(&judgement.remarks);
    run.findings.clone_from(&judgement.findings);
    run.exceptions = judgement.exceptions.iter().map(ExceptionReport::from).collect();
    // Void for want of a decision does not weaken what was decided; void by environment or evidence does.
    let unfounded = judgement.voids.iter().any(|void| void.whose != VoidWhose::Undecided);
    for finding in &judgement.findings {
        let invariant = finding.invariant.clone();
        match &finding.outcome {
            Outcome::Violated { events, text, kind, .. } => {
                let false_barrier = invariant == "status_honest" && events.iter().any(|n| columns.barriers.contains(n));
                let stands = NEEDS_NO_FAULT.contains(&invariant.as_str()) || false_barrier;
                let attributed = judgement.verdict == Verdict::Failed && (stands || !unfounded);
                let list = if attributed {
                    &mut run.violations
                } else {
                    &mut run.observed
                };
                list.push(Violation {
                    invariant,
                    events: events.clone(),
                    text: text.clone(),
                    kind: *kind,
                });
            }
            Outcome::Undecided { why } => run.not_judged.push(NotJudged {
                invariant,
                why: why.clone(),
            }),
            Outcome::NotApplicable { missing } => run.not_judged.push(NotJudged {
                invariant,
                why: format!("not applicable without {missing}"),
            }),
            Outcome::Held { .. } => {}
        }
    }
}

impl Recovery {
    fn observe(&mut self, at_us: u64, event: &Event) {
        match event {
            Event::Healed { .. } => self.healed_us = at_us,
            Event::Sentinel { round: 1, records } => {
                self.from_us = at_us.max(self.healed_us);
                let awaited = records
                    .iter()
                    .map(|r| ((r.topic.clone(), r.partition), (r.id, r.offset)));
                self.awaited = awaited.collect();
            }
            Event::Reader {
                event: ReaderEvent::Records { partitions },
                ..
            } if !self.awaited.is_empty() => {
                for delivered in partitions {
                    let place = (delivered.topic.clone(), delivered.partition);
                    let Some((id, offset)) = self.awaited.get(&place) else {
                        continue;
                    };
                    let holds = |runs: &Option<crate::runs::Runs>, n: u64| {
                        runs.iter()
                            .flat_map(|runs| runs.as_slice())
                            .any(|[a, b]| (*a..=*b).contains(&n))
                    };
                    if holds(&delivered.ids, *id) || holds(&delivered.offsets, *offset) {
                        self.awaited.remove(&place);
                    }
                }
                if self.awaited.is_empty() {
                    self.took_us = Some(at_us.saturating_sub(self.from_us));
                }
            }
            _ => {}
        }
    }
}

fn limits(opened: &Opened, recovery: &Recovery, used: &Used) -> Vec<LimitReport> {
    let row = |name: &str, limit: &Limit, divide: f64, unit: &str, used: Option<f64>| LimitReport {
        name: name.to_owned(),
        value: limit.value / divide,
        unit: unit.to_owned(),
        origin: limit.origin.clone(),
        margin: used.map(|used| ((limit.value / divide - used) * 1000.0).round() / 1000.0),
    };
    let limits = &opened.limits;
    vec![
        row("within", &limits.within_ms, 1000.0, "s", recovery.took_us.map(seconds)),
        row(
            "stop-grace",
            &limits.stop_grace_ms,
            1000.0,
            "s",
            recovery.stop_ms.map(|ms| ms as f64 / 1000.0),
        ),
        row("cpu", &limits.cpu_cores, 1.0, "cores", used.cpu_cores),
        row("requests", &limits.requests_per_s, 1.0, "/s", used.requests_per_s),
        row("errors", &limits.errors_per_s, 1.0, "/s", used.errors_per_s),
        row("memory", &limits.memory_mib, 1.0, "MiB", used.memory_mib),
        row("descriptors", &limits.descriptors, 1.0, "open", used.descriptors),
    ]
}

fn blank(fault: &str, kind: &str, asked: Grade) -> Evidence {
    Evidence {
        fault: fault.to_owned(),
        kind: kind.to_owned(),
        text: String::new(),
        emulated: false,
        asked,
        reached: None,
        proofs: Vec::new(),
        heal: None,
        in_force_s: None,
        not_proven: Vec::new(),
    }
}

fn unknown_reader() -> ReaderInfo {
    ReaderInfo {
        name: "unknown".to_owned(),
        version: String::new(),
        source: String::new(),
        kind: Kind::Assign,
        lock: None,
        declares: Default::default(),
    }
}
