//! `bounded_requests`: over an outage, its first second left out, requests plus connects and error events stay below
//! their limits. A hot loop with one request in flight takes little CPU, which is why the wire is counted.

use brokerfall_report::verdict::{FailureKind, Outcome};

use super::bounded_cpu::outages;
use super::{held, of_kind, violated};
use crate::history::facts::Facts;
use crate::history::limits::{ERRORS_PER_S, REQUESTS_PER_S};

pub(super) fn judge(facts: &Facts) -> Outcome {
    let outages = match outages(facts) {
        Ok(outages) => outages,
        Err(outcome) => return outcome,
    };
    let limits = facts.opened().map(|opened| &opened.limits);
    let most_requests = limits.map_or(REQUESTS_PER_S, |limits| limits.requests_per_s.value);
    let most_errors = limits.map_or(ERRORS_PER_S, |limits| limits.errors_per_s.value);
    let (mut events, mut texts, mut highest) = (Vec::new(), Vec::new(), 0.0f64);
    for outage in &outages {
        let span_s = (outage.to_us - outage.from_us) as f64 / 1e6;
        let requests = facts
            .wire()
            .windows
            .iter()
            .filter(|w| w.at.us.saturating_sub(w.span_us) >= outage.from_us && w.at.us <= outage.to_us)
            .fold(0u64, |sum, w| sum.saturating_add(w.total()).saturating_add(w.connects))
            as f64
            / span_s;
        let errors = facts
            .errors()
            .iter()
            .filter(|(at, ..)| at.us >= outage.from_us && at.us <= outage.to_us)
            .fold(0u64, |sum, (.., count)| sum.saturating_add(*count)) as f64
            / span_s;
        highest = highest.max(requests);
        if requests > most_requests {
            events.push(outage.event);
            texts.push(format!(
                "{requests:.0} requests and connects a second over {span_s:.1} s of `{}` (limit {most_requests:.0})",
                outage.fault
            ));
        }
        if errors > most_errors {
            events.push(outage.event);
            texts.push(format!(
                "{errors:.0} error events a second over {span_s:.1} s of `{}` (limit {most_errors:.0})",
                outage.fault
            ));
        }
    }
    if texts.is_empty() {
        return held(format!("{highest:.1} of {most_requests:.0} requests a second"));
    }
    of_kind(violated(events, texts.join("; ")), FailureKind::Hot, None)
}
