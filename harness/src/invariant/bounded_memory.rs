//! `bounded_memory`: over an outage, its first second left out, resident memory and open descriptors of the reader's
//! process group stay flat.
//!
//! Both go up and down by themselves: a collector of garbage runs late, a client holds two sockets while it changes from
//! one to the other. So the lowest value of the last third is held against the highest of the first: what lies above the
//! limit then has risen and stayed. An outage in which reading went on at speed says nothing, as for `bounded_cpu`.

use brokerfall_report::verdict::{FailureKind, Outcome};

use super::bounded_cpu::outages;
use super::{held, not_applicable, of_kind, violated};
use crate::history::facts::{Facts, Usage};

/// A third of fewer samples than this would be one sample.
const LEAST_SAMPLES: usize = 6;
const KIB_PER_MIB: f64 = 1024.0;

pub(super) fn judge(facts: &Facts) -> Outcome {
    let outages = match outages(facts) {
        Ok(outages) => outages,
        Err(outcome) => return outcome,
    };
    let limits = facts.opened().map(|opened| &opened.limits);
    let most_mib = limits.map_or(16.0, |limits| limits.memory_mib.value);
    let most_descriptors = limits.map_or(16.0, |limits| limits.descriptors.value);
    let (mut events, mut texts, mut highest) = (Vec::new(), Vec::new(), None::<(f64, f64)>);
    for outage in &outages {
        for life in facts.lives() {
            let inside = |usage: &&Usage| (outage.from_us..=outage.to_us).contains(&usage.at.us);
            let samples: Vec<&Usage> = life.usage.iter().filter(inside).collect();
            let Some(mib) = rise(&samples, |usage| usage.rss_kib as f64 / KIB_PER_MIB) else {
                continue;
            };
            let descriptors = rise(&samples, |usage| usage.descriptors as f64).unwrap_or(0.0);
            highest = Some(highest.map_or((mib, descriptors), |(a, b)| (a.max(mib), b.max(descriptors))));
            let span_s = (outage.to_us - outage.from_us) as f64 / 1e6;
            let mut over = |what: String| {
                events.push(outage.event);
                texts.push(format!(
                    "{} {what} over {span_s:.1} s of `{}`",
                    life.member, outage.fault
                ));
            };
            if mib > most_mib {
                over(format!("rose by {mib:.1} MiB of memory (limit {most_mib:.1})"));
            }
            if descriptors > most_descriptors {
                over(format!(
                    "rose by {descriptors:.0} open descriptors (limit {most_descriptors:.0})"
                ));
            }
        }
    }
    match highest {
        _ if !texts.is_empty() => of_kind(violated(events, texts.join("; ")), FailureKind::Hot, None),
        Some((mib, descriptors)) => held(format!(
            "rose by {mib:.1} of {most_mib:.1} MiB and {descriptors:.0} of {most_descriptors:.0} descriptors"
        )),
        None => not_applicable("samples of the reader's process"),
    }
}

/// By how much the least of the last third lies above the most of the first third; 0 where it does not.
fn rise(samples: &[&Usage], of: impl Fn(&Usage) -> f64) -> Option<f64> {
    if samples.len() < LEAST_SAMPLES {
        return None;
    }
    let third = samples.len() / 3;
    let first = samples.iter().take(third).map(|usage| of(usage)).reduce(f64::max)?;
    let last = samples
        .iter()
        .rev()
        .take(third)
        .map(|usage| of(usage))
        .reduce(f64::min)?;
    Some((last - first).max(0.0))
}
