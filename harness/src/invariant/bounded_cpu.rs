//! `bounded_cpu`: over an outage, its first second left out, the reader's process group uses no more CPU than its limit.
//!
//! An outage is a broker or network fault in force. What is left must be 3 s at least, or start-up noise of the samples
//! would decide. An outage in which reading went on at speed says nothing: that work is the reader's to do.
//!
//! On a machine that has more to do than cores, CPU time says less. Crowded caches and shared cores make work dearer, by
//! no more than `DEARER`; and who has to wait uses less than it would alone. Such a window decides only what holds all
//! the same.

use brokerfall_report::verdict::{FailureKind, Outcome};

use super::progress::{cores, cores_wanted};
use super::{held, not_applicable, of_kind, undecided, violated};
use crate::history::facts::Facts;
use crate::history::limits::CPU_CORES;

/// The first second of an outage is left out: clients log, close and reconnect.
const LEFT_OUT_US: u64 = 1_000_000;
/// The least that must be left, microseconds.
const LEAST_US: u64 = 3_000_000;
/// Above this many records a second, reading itself takes the CPU and the requests.
const READING_PER_S: f64 = 1000.0;

/// A window is contended when something waited for a core for more than this share of it.
const CONTENDED: f64 = 0.25;
/// By how much contention can make the same work dearer: two threads that share a core get half of it each.
const DEARER: f64 = 2.0;

/// An outage without its first second.
pub(super) struct Outage<'a> {
    /// Name of the fault.
    pub(super) fault: &'a str,
    /// Event of its proof.
    pub(super) event: u64,
    /// From, microseconds.
    pub(super) from_us: u64,
    /// To, microseconds.
    pub(super) to_us: u64,
}

/// Outages that can be judged, or why there is none.
pub(super) fn outages(facts: &Facts) -> Result<Vec<Outage<'_>>, Outcome> {
    let end = facts.end();
    let mut any = false;
    let mut read_on = false;
    let mut outages = Vec::new();
    for fault in facts.faults().all.iter().filter(|fault| fault.is_outage()) {
        let Some(proven) = fault.proven.values().min().filter(|at| at.n < end.n) else {
            continue;
        };
        any = true;
        let until = fault.healing.or(fault.healed).map_or(end.us, |at| at.us.min(end.us));
        let from_us = proven.us.saturating_add(LEFT_OUT_US);
        if until < from_us.saturating_add(LEAST_US) {
            continue;
        }
        let records = facts
            .partitions()
            .flat_map(|(_, _, of)| &of.reads.segments)
            .filter(|segment| segment.at.us > from_us && segment.at.us <= until)
            .fold(0u64, |sum, segment| sum.saturating_add(segment.len));
        if records as f64 / ((until - from_us) as f64 / 1e6) > READING_PER_S {
            read_on = true;
            continue;
        }
        outages.push(Outage {
            fault: &fault.name,
            event: proven.n,
            from_us,
            to_us: until,
        });
    }
    if !outages.is_empty() {
        Ok(outages)
    } else if read_on {
        Err(undecided("the reader went on reading at speed during the outage"))
    } else if any {
        Err(undecided("outage shorter than 4 s"))
    } else {
        Err(not_applicable("an outage"))
    }
}

pub(super) fn judge(facts: &Facts) -> Outcome {
    let outages = match outages(facts) {
        Ok(outages) => outages,
        Err(outcome) => return outcome,
    };
    let limit = facts.opened().map_or(CPU_CORES, |opened| opened.limits.cpu_cores.value);
    let (mut events, mut texts, mut highest, mut doubt) = (Vec::new(), Vec::new(), None::<f64>, None);
    for outage in &outages {
        for life in facts.lives() {
            // Samples come a few times a second, so that a little less than the whole is covered.
            let Some((used, span_s)) = cores(&life.usage, outage.from_us, outage.to_us).filter(|(_, s)| *s >= 2.0)
            else {
                continue;
            };
            highest = Some(highest.map_or(used, |highest| highest.max(used)));
            let contention = facts.contention(outage.from_us, outage.to_us);
            // What it waited for it might have used. Where that is not counted, it may have been the reader that waited
            // whenever something did.
            let alone = match cores_wanted(&life.usage, outage.from_us, outage.to_us) {
                Some(wanted) => wanted,
                None if contention < 1.0 => used / (1.0 - contention),
                None => f64::INFINITY,
            };
            if contention > CONTENDED && alone > limit && used <= limit * DEARER {
                doubt = Some(format!(
                    "{} used {used:.2} cores over `{}` and may have wanted {alone:.2}: for {:.0} % of that time something had \
                     to wait for a core (limit {limit:.2}; run it alone with --jobs 1)",
                    life.member,
                    outage.fault,
                    contention * 100.0
                ));
            } else if used > limit {
                events.push(outage.event);
                texts.push(format!(
                    "{} used {used:.2} cores over {span_s:.1} s of `{}` (limit {limit:.2})",
                    life.member, outage.fault
                ));
            }
        }
    }
    match highest {
        _ if !texts.is_empty() => of_kind(violated(events, texts.join("; ")), FailureKind::Hot, None),
        _ if doubt.is_some() => undecided(doubt.unwrap_or_default()),
        Some(highest) => held(format!("{highest:.3} of {limit:.2} cores")),
        None => not_applicable("samples of the reader's process"),
    }
}
