//! Where the time of a run went: spans that belong to somebody else, and what is left for the harness.

use std::collections::{BTreeMap, BTreeSet};

use super::{StageTiming, Timings};
use crate::history::{Event, Stage, StepState};
use crate::protocol::ReaderEvent;

/// Collects spans while a history goes by.
#[derive(Debug, Default)]
pub(super) struct Clock {
    last_us: u64,
    stage: Option<(Stage, u64)>,
    stages: Vec<(Stage, u64)>,
    preparing_us: u64,
    waiting: BTreeMap<u32, u64>,
    waits: Vec<(u64, u64)>,
    spawned: BTreeMap<String, u64>,
    asked: BTreeMap<(String, u64), u64>,
    striking: BTreeMap<String, u64>,
    reader: Vec<(u64, u64)>,
    /// The first step waits for the reader since then.
    healthy_before: Option<u64>,
    sentinel_us: Option<u64>,
    quiet_us: Option<u64>,
    /// Members that were asked to stop.
    stopping: BTreeMap<String, u64>,
    /// Members that have sent a heartbeat since then.
    claimed: BTreeSet<String>,
    reader_start_us: Option<u64>,
}

impl Clock {
    /// Takes in one event.
    pub(super) fn observe(&mut self, at_us: u64, event: &Event) {
        self.last_us = self.last_us.max(at_us);
        match event {
            Event::Stage(stage) => {
                self.leave_stage(at_us);
                self.stage = Some((*stage, at_us));
                self.healthy_before = (*stage == Stage::Steps).then_some(at_us);
            }
            // Every member is to say once more what it claims: readers do so in a rhythm of their own.
            Event::Quiet => {
                self.quiet_us = Some(at_us);
                self.claimed.clear();
            }
            Event::Step { index, state, .. } => match state {
                StepState::Waiting => {
                    self.waiting.insert(*index, at_us);
                    // Before the first step the reader has to have caught up.
                    if let Some(since) = self.healthy_before.take() {
                        self.reader.push((since, at_us));
                    }
                }
                StepState::Triggered | StepState::Unmet | StepState::Done => {
                    if let Some(since) = self.waiting.remove(index) {
                        self.waits.push((since, at_us));
                    }
                }
            },
            Event::Spawned { member, .. } => {
                // Making its process is the first part of the reader's start.
                if let Some((Stage::Starting, since)) = self.stage {
                    self.reader.push((since, at_us));
                }
                self.spawned.insert(member.clone(), at_us);
            }
            Event::Asked {
                member, id, command, ..
            } => {
                self.asked.insert((member.clone(), *id), at_us);
                if command == "stop" {
                    self.stopping.insert(member.clone(), at_us);
                }
            }
            Event::Sentinel { .. } => self.sentinel_us = Some(at_us),
            Event::Injected { fault, .. } => {
                self.striking.insert(fault.clone(), at_us);
            }
            // From the fault's being in force to its reaching the reader, the harness waits for the reader.
            Event::Delivered { fault, .. } | Event::Felt { fault, .. } => {
                if let Some(since) = self.striking.get(fault) {
                    self.reader.push((*since, at_us));
                }
            }
            Event::Reader { member, event, .. } => self.reader_said(at_us, member, event),
            Event::Exited { member, .. } => {
                self.spawned.remove(member);
                // Its answer to `stop` is not yet its end.
                self.reader
                    .extend(self.stopping.remove(member).map(|since| (since, at_us)));
                let ended: Vec<_> = self.asked.keys().filter(|(m, _)| m == member).cloned().collect();
                for key in ended {
                    if let Some(since) = self.asked.remove(&key) {
                        self.reader.push((since, at_us));
                    }
                }
            }
            _ => {}
        }
    }

    fn reader_said(&mut self, at_us: u64, member: &str, event: &ReaderEvent) {
        match event {
            ReaderEvent::Started => {
                if let Some(since) = self.spawned.remove(member) {
                    self.reader_start_us.get_or_insert(at_us.saturating_sub(since));
                    self.reader.push((since, at_us));
                }
            }
            ReaderEvent::Heartbeat(_) => {
                let settling = matches!(self.stage, Some((Stage::Settling, _)));
                if let (true, Some(since)) = (settling && self.claimed.insert(member.to_owned()), self.quiet_us) {
                    self.reader.push((since, at_us));
                }
            }
            ReaderEvent::Done(done) => {
                if let Some(since) = self.asked.remove(&(member.to_owned(), done.id)) {
                    self.reader.push((since, at_us));
                }
            }
            _ => {}
        }
    }

    fn leave_stage(&mut self, at_us: u64) {
        let Some((stage, since)) = self.stage.take() else {
            return;
        };
        let took = at_us.saturating_sub(since);
        self.stages.push((stage, took));
        match stage {
            Stage::Preparing => self.preparing_us += took,
            Stage::CatchingUp | Stage::Diagnosing => self.reader.push((since, at_us)),
            // The load is stopped and the sentinel written first; then the reader is waited for.
            Stage::Recovering => self
                .reader
                .extend(self.sentinel_us.take().map(|written| (written, at_us))),
            Stage::Starting | Stage::Steps | Stage::Healing | Stage::Settling | Stage::Stopping | Stage::Closing => {}
        }
    }

    /// The sums, once the history is over.
    pub(super) fn finish(mut self) -> Timings {
        self.leave_stage(self.last_us);
        // The clock runs from before the cluster was started; the first event is written when it is up.
        let total = self.last_us;
        let others = covered(self.waits.iter().chain(&self.reader).copied().collect());
        Timings {
            total_ms: ms(total),
            prepare_ms: ms(self.preparing_us),
            reader_start_ms: self.reader_start_us.map(ms),
            waits_ms: ms(covered(self.waits)),
            reader_ms: ms(covered(self.reader)),
            overhead_ms: ms(total.saturating_sub(others)),
            recovery_ms: None,
            stop_ms: None,
            stages: self
                .stages
                .into_iter()
                .map(|(stage, us)| StageTiming { stage, ms: ms(us) })
                .collect(),
        }
    }
}

/// Milliseconds with one decimal: more would only be noise in a report.
pub(super) fn ms(us: u64) -> f64 {
    (us as f64 / 100.0).round() / 10.0
}

/// How much time the spans cover together, overlaps counted once.
fn covered(mut spans: Vec<(u64, u64)>) -> u64 {
    spans.sort_unstable();
    let mut sum = 0;
    let mut end = 0;
    for (from, to) in spans {
        sum += to.saturating_sub(from.max(end));
        end = end.max(to);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Claims, Heartbeat};

    #[test]
    fn overlapping_spans_are_counted_once() {
        assert_eq!(
            covered(vec![(10, 20), (0, 5), (15, 30), (16, 18), (40, 41)]),
            5 + 20 + 1
        );
        assert_eq!(covered(Vec::new()), 0);
    }

    #[test]
    fn what_nobody_else_took_is_overhead() {
        let mut clock = Clock::default();
        let step = |state| Event::Step {
            index: 0,
            text: String::new(),
            state,
            detail: String::new(),
        };
        let beat = || Event::Reader {
            member: "r1".to_owned(),
            inc: 1,
            reader_us: 0,
            event: ReaderEvent::Heartbeat(Heartbeat {
                state: String::new(),
                positions: None,
                loop_age_ms: None,
                last_poll_age_ms: None,
                last_commit_age_ms: None,
                claims: Claims::default(),
                counters: BTreeMap::new(),
            }),
        };
        let asked_to_stop = || Event::Asked {
            member: "r1".to_owned(),
            id: 7,
            command: "stop".to_owned(),
            within_ms: 1_000,
        };
        let exited = || Event::Exited {
            member: "r1".to_owned(),
            code: Some(0),
            signal: None,
            asked: true,
            stderr_tail: String::new(),
        };
        clock.observe(1_000, &Event::Stage(Stage::Preparing));
        clock.observe(2_000, &Event::Stage(Stage::Starting));
        clock.observe(2_500, &Event::Stage(Stage::Steps));
        clock.observe(2_600, &beat());
        clock.observe(3_000, &step(StepState::Waiting));
        clock.observe(7_000, &step(StepState::Triggered));
        clock.observe(7_900, &Event::Stage(Stage::Recovering));
        clock.observe(
            8_000,
            &Event::Sentinel {
                round: 1,
                records: Vec::new(),
            },
        );
        clock.observe(18_000, &Event::Stage(Stage::Settling));
        clock.observe(18_100, &Event::Quiet);
        clock.observe(18_300, &beat());
        clock.observe(18_600, &beat());
        clock.observe(18_900, &Event::Stage(Stage::Stopping));
        clock.observe(18_950, &asked_to_stop());
        clock.observe(19_450, &exited());
        clock.observe(19_500, &Event::Stage(Stage::Closing));
        clock.observe(20_000, &Event::Closed);
        let timings = clock.finish();
        assert_eq!((timings.total_ms, timings.prepare_ms), (20.0, 1.0));
        // The reader's: before the first step, from sentinel to recovery, its first heartbeat in the quiet, its stop.
        assert_eq!(timings.waits_ms, 4.0);
        assert_eq!(timings.reader_ms, 11.2);
        assert_eq!(timings.overhead_ms, 4.8);
    }
}
