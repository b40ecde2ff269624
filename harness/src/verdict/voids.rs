//! Why a run proves nothing.

use brokerfall_report::history::{Grade, Proof};
use brokerfall_report::verdict::{Finding, Outcome, VoidBy, VoidReason, VoidWhose};

use crate::history::facts::{Facts, Moment};
use crate::invariant::{Invariant, by_id, patients_ended};

/// A gap of the sampler above this starved the harness, milliseconds.
const STARVED_MS: u64 = 1000;

/// Where a reason lies, and who can mend it.
type Owner = (VoidWhose, VoidBy);
const ADAPTER: Owner = (VoidWhose::Adapter, VoidBy::Adapter);
const READER: Owner = (VoidWhose::Reader, VoidBy::Reader);
/// The fault came in another phase than the scenario says.
const MISSED: Owner = (VoidWhose::Reader, VoidBy::Scenario);
/// What the scenario waits for did not come, or did not reach the reader.
const UNMET: Owner = (VoidWhose::Evidence, VoidBy::Scenario);
/// The harness could not show that it did what it was to do.
const UNPROVEN: Owner = (VoidWhose::Evidence, VoidBy::Harness);
const CUT_OFF: Owner = (VoidWhose::Evidence, VoidBy::Environment);
const CLUSTER: Owner = (VoidWhose::Cluster, VoidBy::Environment);
const MACHINE: Owner = (VoidWhose::Machine, VoidBy::Environment);

/// Why the run proves nothing, whatever the invariants say.
pub(super) fn environment(facts: &Facts) -> Vec<VoidReason> {
    let Some(opened) = facts.opened() else {
        return Vec::new();
    };
    let troubles = facts.troubles();
    let mut voids = Vec::new();
    let mut add = |(whose, by), text: String, events: Vec<u64>| voids.push(VoidReason::new(whose, text, events).by(by));

    // First, because what else is missing is missing for that reason.
    if let Some((n, signal)) = &troubles.interrupted {
        add(MACHINE, format!("{signal} ended the run early"), vec![*n]);
    }
    for (n, member, text) in &troubles.protocol {
        add(
            ADAPTER,
            format!("the adapter of {member} broke the protocol: {text}"),
            vec![*n],
        );
    }
    for (name, member) in facts.members().iter().filter(|(_, member)| !member.spoke) {
        let gone = member
            .lives
            .iter()
            .filter_map(|&life| facts.lives().get(life)?.exit.as_ref());
        for exit in gone.filter(|exit| !exit.asked) {
            add(
                ADAPTER,
                format!("the adapter of {name} ended before its hello"),
                vec![exit.at.n],
            );
        }
    }
    // A reader that is certainly dead cannot feel what comes later: that is its failure, not a lack of evidence.
    let died = died(facts);
    let after_death = |n: u64| died.is_some_and(|died| n > died);
    let first_fault = facts.faults().all.first().map(|fault| fault.injecting.n);
    if let Some(died) = died
        && !opened.faults.is_empty()
        && first_fault.is_none_or(|first| died < first)
    {
        add(
            READER,
            "the reader ended before the first fault: it was not healthy before".to_owned(),
            vec![died],
        );
    }
    for (n, fault, wanted, text) in &troubles.not_proven {
        let injecting = facts.faults().named(fault).map(|fault| fault.injecting.n);
        match wanted {
            Proof::HealthyBefore => {
                add(
                    READER,
                    format!("the reader was not healthy before the first fault: {text}"),
                    vec![*n],
                );
            }
            Proof::Phase => {
                add(
                    MISSED,
                    format!("`{fault}` missed the phase {}: {text}", opened.phase.name()),
                    vec![*n],
                );
            }
            Proof::Healed => {
                add(
                    UNPROVEN,
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
                    // What was in force and did not reach the reader, or was not felt, came at the wrong moment.
                    let owner = if *wanted == Proof::Injected { UNPROVEN } else { UNMET };
                    add(owner, format!("`{fault}` was not proven: {text}"), vec![*n]);
                }
            }
        }
    }
    for (n, index, text, detail) in troubles.unmet.iter().filter(|(n, ..)| !after_death(*n)) {
        add(
            UNMET,
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
            None => add(UNMET, format!("`{}` was never injected", info.name), Vec::new()),
            Some(fault) if after_death(fault.injecting.n) => {}
            Some(fault) if fault.grade() < Some(info.grade) && !told(&info.name, false) => add(
                if fault.grade().is_none() { UNPROVEN } else { UNMET },
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
                UNPROVEN,
                format!("the heal of `{}` was not proven", fault.name),
                vec![fault.injecting.n],
            );
        }
    }
    for (n, text) in &troubles.deviations {
        add(
            CLUSTER,
            format!("the cluster did what Apache Kafka would not: {text}"),
            vec![*n],
        );
    }
    if let Some((at, gap_ms)) = starved(facts) {
        add(
            MACHINE,
            format!("the machine starved the harness for {gap_ms} ms (lower --jobs)"),
            vec![at.n],
        );
    }
    if troubles.interrupted.is_none() && facts.closed().is_none() {
        add(
            CUT_OFF,
            format!("the history is partial: it was cut off after event #{}", facts.now().n),
            vec![facts.now().n],
        );
    }
    voids
}

/// The longest time for which the machine left the harness no turn while the reader was judged. Before the reader was told
/// to start nothing is measured, and after its verdict was fixed only how it stopped.
fn starved(facts: &Facts) -> Option<(Moment, u64)> {
    let start = facts.asked().iter().find(|asked| asked.command == "start");
    let from_us = start.map_or(0, |asked| asked.at.us);
    let stop = by_id("stops_cleanly").map(|invariant| (invariant.judge)(facts));
    let until_us = match stop {
        Some(Outcome::Violated { .. }) => u64::MAX,
        _ => facts.end().us,
    };
    let within =
        |at: &Moment, gap_ms: u64| at.us > from_us && at.us.saturating_sub(gap_ms.saturating_mul(1000)) < until_us;
    let gaps = facts.troubles().starved.iter().copied();
    gaps.filter(|(at, gap_ms)| *gap_ms > STARVED_MS && within(at, *gap_ms))
        .max_by_key(|(_, gap_ms)| *gap_ms)
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
pub(super) fn undecided(facts: &Facts, invariants: &[Invariant], findings: &[Finding]) -> Vec<VoidReason> {
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
        .map(|text| VoidReason::new(VoidWhose::Undecided, text, Vec::new()))
        .collect()
}
