//! What a reader used over the outage: the measures that stand beside the limits.
//!
//! The outage runs from the first fault's being in force to the last proven heal, its first second left out: a burst of
//! reconnects right after a fault is ordinary. Below three seconds nothing is measured, because one burst would be all.

use std::collections::BTreeMap;

use crate::history::Event;
use crate::protocol::ReaderEvent;

const LEFT_OUT_US: u64 = 1_000_000;
const SHORTEST_US: u64 = 3_000_000;
const LEAST_SAMPLES: usize = 6;

/// Collects measures while a history goes by.
#[derive(Debug, Default)]
pub(super) struct Usage {
    from_us: Option<u64>,
    healed_us: Option<u64>,
    in_force: u32,
    /// Per member: time, and what it used.
    samples: BTreeMap<String, Vec<Sampled>>,
    /// Time of a window's end, its length, requests and connects.
    requests: Vec<(u64, u64, u64)>,
    errors: Vec<(u64, u64)>,
}

#[derive(Debug, Clone, Copy)]
struct Sampled {
    at_us: u64,
    /// CPU so far.
    cpu_ms: u64,
    rss_kib: u64,
    descriptors: u64,
}

/// Measures over the outage.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(super) struct Used {
    /// Cores, of the busiest member.
    pub(super) cpu_cores: Option<f64>,
    /// Requests and connects a second.
    pub(super) requests_per_s: Option<f64>,
    /// Error events a second.
    pub(super) errors_per_s: Option<f64>,
    /// Rise of memory from the first third to the last, MiB.
    pub(super) memory_mib: Option<f64>,
    /// Rise of descriptors, likewise.
    pub(super) descriptors: Option<f64>,
}

impl Usage {
    /// Takes in one event of the time that is judged.
    pub(super) fn observe(&mut self, at_us: u64, event: &Event) {
        match event {
            Event::Injected { .. } => {
                self.from_us.get_or_insert(at_us.saturating_add(LEFT_OUT_US));
                self.in_force += 1;
            }
            Event::Healed { .. } => {
                self.in_force = self.in_force.saturating_sub(1);
                self.healed_us = Some(at_us);
            }
            // Nothing is measured before the first fault.
            _ if self.from_us.is_none() => {}
            Event::Sample {
                member,
                cpu_ms,
                rss_kib,
                descriptors,
                ..
            } => {
                let sampled = Sampled {
                    at_us,
                    cpu_ms: *cpu_ms,
                    rss_kib: *rss_kib,
                    descriptors: *descriptors,
                };
                match self.samples.get_mut(member) {
                    Some(samples) => samples.push(sampled),
                    None => _ = self.samples.insert(member.clone(), vec![sampled]),
                }
            }
            // A fresh process counts from zero.
            Event::Spawned { member, .. } => {
                self.samples.remove(member);
            }
            Event::Wire {
                span_us,
                requests,
                connects,
                ..
            } => {
                let sum = requests.values().fold(*connects, |sum, n| sum.saturating_add(*n));
                self.requests.push((at_us, *span_us, sum));
            }
            Event::Reader {
                event: ReaderEvent::Error { count, .. },
                ..
            } => self.errors.push((at_us, *count)),
            _ => {}
        }
    }

    /// The measures; `end_us` is where judging ended, for outages that were not healed.
    pub(super) fn finish(&self, end_us: u64) -> Used {
        let Some(from) = self.from_us else {
            return Used::default();
        };
        let to = self.healed_us.filter(|_| self.in_force == 0).unwrap_or(end_us);
        let length = to.saturating_sub(from);
        if length < SHORTEST_US {
            return Used::default();
        }
        let per_s = |n: u64| n as f64 / (length as f64 / 1e6);
        let within = |at_us: u64| (from..=to).contains(&at_us);
        let whole = self
            .requests
            .iter()
            .filter(|(at, span, _)| within(*at) && at.saturating_sub(*span) >= from);
        let requests = whole.fold(0_u64, |sum, (_, _, n)| sum.saturating_add(*n));
        let errors = self.errors.iter().filter(|(at, _)| within(*at));
        let errors = errors.fold(0_u64, |sum, (_, n)| sum.saturating_add(*n));
        let inside: Vec<Vec<Sampled>> = self
            .samples
            .values()
            .map(|samples| samples.iter().copied().filter(|sample| within(sample.at_us)).collect())
            .collect();
        let cores = inside.iter().filter_map(|samples| {
            let (first, last) = (samples.first()?, samples.last()?);
            let ms = last.cpu_ms.saturating_sub(first.cpu_ms);
            let us = last.at_us.saturating_sub(first.at_us);
            (us > 0).then(|| ms as f64 * 1000.0 / us as f64)
        });
        let highest = |of: fn(&Sampled) -> f64| inside.iter().filter_map(|samples| rise(samples, of)).reduce(f64::max);
        Used {
            cpu_cores: cores.reduce(f64::max),
            requests_per_s: (!self.requests.is_empty()).then(|| per_s(requests)),
            errors_per_s: Some(per_s(errors)),
            memory_mib: highest(|sample| sample.rss_kib as f64 / 1024.0),
            descriptors: highest(|sample| sample.descriptors as f64),
        }
    }
}

/// By how much the least of the last third lies above the most of the first third, as `bounded_memory` measures it.
fn rise(samples: &[Sampled], of: fn(&Sampled) -> f64) -> Option<f64> {
    if samples.len() < LEAST_SAMPLES {
        return None;
    }
    let third = samples.len() / 3;
    let first = samples.iter().take(third).map(of).reduce(f64::max)?;
    let last = samples.iter().rev().take(third).map(of).reduce(f64::min)?;
    Some((last - first).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outage(healed_us: u64) -> Usage {
        let mut usage = Usage::default();
        usage.observe(
            0,
            &Event::Injected {
                fault: "f".into(),
                proof: String::new(),
            },
        );
        for second in 0..=10_u64 {
            let (at_us, member) = (second * 1_000_000, "r1".to_owned());
            let cpu_ms = second * 500;
            usage.observe(
                at_us,
                &Event::Sample {
                    member,
                    cpu_ms,
                    rss_kib: 0,
                    descriptors: 0,
                    processes: 1,
                    waited_ms: None,
                },
            );
            let requests = BTreeMap::from([("Fetch".to_owned(), 20)]);
            let client = "r1".to_owned();
            let wire = Event::Wire {
                client,
                span_us: 1_000_000,
                requests,
                connects: 4,
                fetch_offsets: Vec::new(),
            };
            usage.observe(at_us, &wire);
        }
        usage.observe(
            healed_us,
            &Event::Healed {
                fault: "f".into(),
                proof: String::new(),
            },
        );
        usage
    }

    #[test]
    fn an_outage_is_measured_without_its_first_second() {
        let used = outage(6_000_000).finish(20_000_000);
        // Five seconds from 1 s to 6 s, in which five whole windows of 24 requests and connects end.
        assert_eq!(used.cpu_cores, Some(0.5));
        assert_eq!((used.requests_per_s, used.errors_per_s), (Some(24.0), Some(0.0)));
    }

    #[test]
    fn a_short_outage_is_not_measured() {
        assert_eq!(outage(3_900_000).finish(20_000_000), Used::default());
    }

    #[test]
    fn without_a_fault_nothing_is_measured() {
        assert_eq!(Usage::default().finish(20_000_000), Used::default());
    }
}
