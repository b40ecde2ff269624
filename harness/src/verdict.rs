//! From outcomes to a verdict.
//!
//! Merge, worst first: `error` (ours or the environment's), `void` by environment or evidence, `failed`, `void` because
//! what had to be decided was not, `skipped`, `passed`. Safety violations that need no fault to be wrong are `failed` in
//! spite of any void, never in spite of an error. `known-failing` is the suite's word and never set here.
//!
//! ```text
//! entries -> Facts -> ALL invariants -> findings --+
//!                  -> voids ----------------------+--> merge -> Judgement
//! ```

use std::io::BufRead;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use brokerfall_report::history::{Entry, Event, FailureOf, Grade, HISTORY_FORMAT, Proof};
use brokerfall_report::verdict::{Finding, Judgement, Outcome, SeenException, Verdict, VoidReason, VoidWhose};

use crate::history::facts::{Facts, HowEnded};
use crate::invariant::{ALL, Invariant, catches_up, patients_ended, status_honest};

/// A gap of the sampler above this starved the harness, milliseconds.
const STARVED_MS: u64 = 1000;

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
pub fn judge<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Judgement {
    let mut facts = Facts::default();
    for entry in entries {
        facts.observe(entry);
    }
    judge_facts(&facts)
}

/// Judges the facts of a history.
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

/// Reads a stored history. A file that was cut off within a line is taken as far as it goes ([`Facts::closed`] is absent
/// then, and the judgement says that it is partial).
///
/// # Errors
/// [`JudgeError::Io`] when the file cannot be read; [`JudgeError::NotAHistory`] when a line that is not the last is no
/// entry, an event number is out of turn, or the first event is no plan; [`JudgeError::Format`] when it was written by a
/// newer version.
pub fn read_facts(path: &Path) -> Result<Facts, JudgeError> {
    let mut facts = Facts::default();
    read_each(path, |entry| facts.observe(&entry))?;
    Ok(facts)
}

/// Reads the entries of a stored history.
///
/// # Errors
/// As [`read_facts`].
pub fn read(path: &Path) -> Result<Vec<Entry>, JudgeError> {
    let mut entries = Vec::new();
    read_each(path, |entry| entries.push(entry))?;
    Ok(entries)
}

fn read_each(path: &Path, mut take: impl FnMut(Entry)) -> Result<(), JudgeError> {
    let io = |source| JudgeError::Io {
        path: path.to_owned(),
        source,
    };
    let mut file = std::io::BufReader::with_capacity(1 << 18, std::fs::File::open(path).map_err(io)?);
    let mut line = Vec::new();
    let mut number = 0u64;
    loop {
        line.clear();
        if file.read_until(b'\n', &mut line).map_err(io)? == 0 {
            break;
        }
        let whole = line.ends_with(b"\n");
        let entry: Entry = match serde_json::from_slice(&line) {
            Ok(entry) => entry,
            // The last line of a run that was killed while it wrote.
            Err(_) if !whole && number > 0 => break,
            Err(source) => {
                return Err(JudgeError::NotAHistory {
                    path: path.to_owned(),
                    line: number + 1,
                    text: "is no entry".to_owned(),
                    source: Some(source),
                });
            }
        };
        let out_of_turn = |text: String| JudgeError::NotAHistory {
            path: path.to_owned(),
            line: number + 1,
            text,
            source: None,
        };
        if entry.n != number {
            return Err(out_of_turn(format!("holds event #{}, #{number} was expected", entry.n)));
        }
        if number == 0 {
            match &entry.event {
                Event::Opened(opened) if opened.format > HISTORY_FORMAT => {
                    return Err(JudgeError::Format {
                        path: path.to_owned(),
                        found: opened.format,
                    });
                }
                Event::Opened(_) => {}
                _ => return Err(out_of_turn("does not open with the plan".to_owned())),
            }
        }
        take(entry);
        number += 1;
    }
    if number == 0 {
        return Err(JudgeError::NotAHistory {
            path: path.to_owned(),
            line: 1,
            text: "is missing: the file is empty".to_owned(),
            source: None,
        });
    }
    Ok(())
}

/// Why a stored history could not be judged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JudgeError {
    /// The operating system refused.
    #[error("read {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Its answer.
        #[source]
        source: std::io::Error,
    },
    /// The file is no history.
    #[error("{}:{line}: the line {text} (give the history.jsonl of a run)", path.display())]
    NotAHistory {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: u64,
        /// What is wrong with it.
        text: String,
        /// The parser's answer.
        #[source]
        source: Option<serde_json::Error>,
    },
    /// A newer version wrote it.
    #[error("{}: record format {found} is newer than {HISTORY_FORMAT}, which this version reads (use a newer brokerfall)", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
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
        voids.extend(environment_voids(facts));
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
        undecided_voids(facts, invariants, &findings)
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
                    voids.push(VoidReason {
                        whose: VoidWhose::Judge,
                        text: format!("{}: {why}", invariant.id),
                        events: Vec::new(),
                    });
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

/// Why the run proves nothing, whatever the invariants say.
fn environment_voids(facts: &Facts) -> Vec<VoidReason> {
    let Some(opened) = facts.opened() else {
        return Vec::new();
    };
    let troubles = facts.troubles();
    let mut voids = Vec::new();
    let mut add = |whose, text: String, events: Vec<u64>| voids.push(VoidReason { whose, text, events });

    for (n, member, text) in &troubles.protocol {
        add(
            VoidWhose::Adapter,
            format!("the adapter of {member} broke the protocol: {text}"),
            vec![*n],
        );
    }
    // A reader that is certainly dead cannot feel what comes later: that is its failure, not a lack of evidence.
    let died = died(facts);
    let after_death = |n: u64| died.is_some_and(|died| n > died);
    let first_fault = facts.faults().all.first().map(|fault| fault.injecting.n);
    if let Some(died) = died
        && !opened.faults.is_empty() && first_fault.is_none_or(|first| died < first) {
            add(
                VoidWhose::Reader,
                "the reader ended before the first fault: it was not healthy before".to_owned(),
                vec![died],
            );
        }
    for (n, fault, wanted, text) in &troubles.not_proven {
        let injecting = facts.faults().named(fault).map(|fault| fault.injecting.n);
        match wanted {
            Proof::HealthyBefore => {
                add(
                    VoidWhose::Reader,
                    format!("the reader was not healthy before the first fault: {text}"),
                    vec![*n],
                );
            }
            Proof::Phase => {
                add(
                    VoidWhose::Reader,
                    format!("`{fault}` missed the phase {}: {text}", opened.phase.name()),
                    vec![*n],
                );
            }
            Proof::Healed => {
                add(
                    VoidWhose::Evidence,
                    format!("the heal of `{fault}` was not proven: {text}"),
                    vec![*n],
                );
            }
            Proof::Injected | Proof::Delivered | Proof::Felt => {
                let asked = opened
                    .faults
                    .iter()
                    .find(|info| info.name == *fault)
                    .map(|info| info.grade);
                let reached = facts.faults().named(fault).and_then(|fault| fault.grade());
                if !injecting.is_some_and(after_death) && (asked.is_none() || reached < asked) {
                    add(
                        VoidWhose::Evidence,
                        format!("`{fault}` was not proven: {text}"),
                        vec![*n],
                    );
                }
            }
        }
    }
    for (n, index, text, detail) in troubles.unmet.iter().filter(|(n, ..)| !after_death(*n)) {
        add(
            VoidWhose::Evidence,
            format!("step {} (`{text}`) was never triggered: {detail}", index + 1),
            vec![*n],
        );
    }
    let told = |name: &str, heal: bool| {
        let about = |wanted: &Proof| {
            (*wanted == Proof::Healed) == heal && !matches!(wanted, Proof::HealthyBefore | Proof::Phase)
        };
        troubles
            .not_proven
            .iter()
            .any(|(_, fault, wanted, _)| fault == name && about(wanted))
    };
    for info in &opened.faults {
        match facts.faults().named(&info.name) {
            None if died.is_some() || facts.closed().is_none() || !troubles.unmet.is_empty() => {}
            None => add(
                VoidWhose::Evidence,
                format!("`{}` was never injected", info.name),
                Vec::new(),
            ),
            Some(fault) if after_death(fault.injecting.n) => {}
            Some(fault) if fault.grade() < Some(info.grade) && !told(&info.name, false) => add(
                VoidWhose::Evidence,
                format!(
                    "`{}` stayed below the grade asked: wanted {}, proven {}",
                    info.name,
                    grade_name(info.grade),
                    fault.grade().map_or("nothing", grade_name)
                ),
                vec![fault.injecting.n],
            ),
            Some(_) => {}
        }
    }
    for fault in facts.faults().all.iter().filter(|fault| fault.healed.is_none()) {
        if facts.closed().is_some() && !told(&fault.name, true) {
            add(
                VoidWhose::Evidence,
                format!("the heal of `{}` was not proven", fault.name),
                vec![fault.injecting.n],
            );
        }
    }
    for (n, text) in &troubles.deviations {
        add(
            VoidWhose::Cluster,
            format!("the cluster did what Apache Kafka would not: {text}"),
            vec![*n],
        );
    }
    if let Some((n, gap_ms)) = troubles
        .starved
        .iter()
        .filter(|(_, gap)| *gap > STARVED_MS)
        .max_by_key(|(_, gap)| *gap)
    {
        add(
            VoidWhose::Machine,
            format!("the machine starved the harness for {gap_ms} ms (lower --jobs)"),
            vec![*n],
        );
    }
    if let Some((n, signal)) = &troubles.interrupted {
        add(VoidWhose::Machine, format!("{signal} ended the run early"), vec![*n]);
    } else if facts.closed().is_none() {
        add(
            VoidWhose::Evidence,
            format!("the history is partial: it was cut off after event #{}", facts.now().n),
            vec![facts.now().n],
        );
    }
    voids
}

fn grade_name(grade: Grade) -> &'static str {
    match grade {
        Grade::Injected => "injected",
        Grade::Delivered => "delivered",
        Grade::Felt => "felt",
    }
}

/// The event of the patient's certain end, once all of it has ended by itself.
fn died(facts: &Facts) -> Option<u64> {
    patients_ended(facts)?.iter().map(|ended| ended.event).max()
}

/// What had to be decided and was not.
fn undecided_voids(facts: &Facts, invariants: &[Invariant], findings: &[Finding]) -> Vec<VoidReason> {
    let Some(opened) = facts.opened() else {
        return Vec::new();
    };
    let why = |outcome: &Outcome| match outcome {
        Outcome::Undecided { why } => Some(why.clone()),
        Outcome::NotApplicable { missing } => Some(format!("not applicable: {missing}")),
        Outcome::Held { .. } | Outcome::Violated { .. } => None,
    };
    let mut texts = Vec::new();
    for name in &opened.expect.named {
        let finding = findings.iter().find(|finding| finding.invariant == *name);
        match finding {
            Some(finding) => {
                texts.extend(
                    why(&finding.outcome)
                        .map(|why| format!("`{name}` is named in [expect] and was not decided: {why}")),
                );
            }
            None => texts.push(format!("`{name}` is named in [expect] and is no invariant")),
        }
    }
    // Where the scenario takes all of them out of judging (a callback that hangs), none is missed.
    let progress: Vec<&Finding> = findings
        .iter()
        .filter(|finding| invariants.iter().any(|i| i.is_progress && i.id == finding.invariant))
        .filter(|finding| !opened.expect.not_judged.contains_key(&finding.invariant))
        .collect();
    if !progress.is_empty() && progress.iter().all(|finding| why(&finding.outcome).is_some()) {
        let reasons: Vec<String> = progress
            .iter()
            .filter_map(|finding| Some(format!("{}: {}", finding.invariant, why(&finding.outcome)?)))
            .collect();
        texts.push(format!("no progress invariant was decided ({})", reasons.join("; ")));
    }
    texts
        .into_iter()
        .map(|text| VoidReason {
            whose: VoidWhose::Undecided,
            text,
            events: Vec::new(),
        })
        .collect()
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

type KindAndBehind = (
    Option<brokerfall_report::verdict::FailureKind>,
    Option<brokerfall_report::verdict::Behind>,
);

fn kind_and_behind(attributed: &[&Finding]) -> KindAndBehind {
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
