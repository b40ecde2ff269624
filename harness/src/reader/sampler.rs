//! The sampler: what the readers of a run use, and whether the machine leaves the harness its turn.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use brokerfall_report::history::Event;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use crate::history::recorder::Recorder;
use crate::lock;
use crate::process::{Group, proc};

/// Between samples.
const EVERY: Duration = Duration::from_millis(250);
/// Listing every process of a machine costs milliseconds, so new processes of a group are looked for only this often.
const LIST_EVERY: u32 = 4;
/// A longer gap between two samples means that the machine starved the harness.
const STARVED_US: u64 = 1_000_000;

/// Between two looks at how contended the machine is.
const TELL_EVERY_US: u64 = 1_000_000;
/// Below this share of waiting, nothing is told.
const WORTH_TELLING: f64 = 0.05;

/// One task per run that samples every reader's process group every 250 ms. Stops when dropped.
pub struct Sampler {
    groups: Arc<Mutex<Vec<Sampled>>>,
    task: JoinHandle<()>,
}

struct Sampled {
    member: String,
    group: Group,
    pids: Vec<u32>,
    /// CPU time that was seen once; that of an orphan is lost to `/proc` when it ends.
    cpu_ms: u64,
    /// By thread, for how long it had waited for a core when it was last seen: an ended one takes its count with it.
    waits_ns: HashMap<u32, u64>,
}

impl Sampler {
    /// Starts sampling into this history. Must be called inside a tokio runtime.
    pub fn start(recorder: Recorder) -> Self {
        let groups = Arc::new(Mutex::new(Vec::new()));
        let task = tokio::spawn(run(recorder, groups.clone()));
        Self { groups, task }
    }

    /// Samples this member's group from now on, instead of an earlier one of the same name.
    pub fn add(&self, member: &str, group: Group) {
        let pids = group.members().iter().map(|stat| stat.pid).collect();
        let mut groups = lock(&self.groups);
        groups.retain(|known| known.member != member);
        groups.push(Sampled {
            member: member.to_owned(),
            group,
            pids,
            cpu_ms: 0,
            waits_ns: HashMap::new(),
        });
    }

    /// Stops sampling this member.
    pub fn remove(&self, member: &str) {
        lock(&self.groups).retain(|known| known.member != member);
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(recorder: Recorder, groups: Arc<Mutex<Vec<Sampled>>>) {
    let mut turns = interval(EVERY);
    // A missed turn is a fact to record, not to make up for.
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut turn = 0u32;
    let mut last_us = recorder.now_us();
    let mut contention = Contention::new(last_us);
    loop {
        turns.tick().await;
        let now_us = recorder.now_us();
        let gap_us = now_us.saturating_sub(last_us);
        last_us = now_us;
        if gap_us > STARVED_US {
            recorder.record(Event::Starved { gap_ms: gap_us / 1_000 });
        }
        if let Some(contended) = contention.turn(now_us, gap_us) {
            recorder.record(contended);
        }
        let list = turn.is_multiple_of(LIST_EVERY);
        turn = turn.wrapping_add(1);
        for sample in sample(&mut lock(&groups), list) {
            recorder.record(sample);
        }
    }
}

/// How much the machine had to do, told once a second while that matters.
struct Contention {
    since_us: u64,
    /// What the kernel had counted then; absent where it does not count.
    waited_us: Option<u64>,
    /// By how much the sampler itself came late.
    late_us: u64,
}

impl Contention {
    fn new(now_us: u64) -> Self {
        Self {
            since_us: now_us,
            waited_us: proc::waited_for_cpu_us(),
            late_us: 0,
        }
    }

    /// A turn of the sampler, `gap_us` after the one before.
    fn turn(&mut self, now_us: u64, gap_us: u64) -> Option<Event> {
        self.late_us += gap_us.saturating_sub(EVERY.as_micros() as u64);
        let span_us = now_us.saturating_sub(self.since_us);
        if span_us < TELL_EVERY_US {
            return None;
        }
        let waited_us = proc::waited_for_cpu_us();
        let counted_us = waited_us
            .zip(self.waited_us)
            .map(|(now, then)| now.saturating_sub(then));
        let most_us = counted_us.unwrap_or(0).max(self.late_us).min(span_us);
        (self.since_us, self.waited_us, self.late_us) = (now_us, waited_us, 0);
        (most_us as f64 > span_us as f64 * WORTH_TELLING).then_some(Event::Contended {
            span_us,
            waited_us: most_us,
        })
    }
}

fn sample(groups: &mut [Sampled], list: bool) -> Vec<Event> {
    let all = if list && !groups.is_empty() {
        proc::all()
    } else {
        Vec::new()
    };
    let mut samples = Vec::new();
    for known in groups {
        if list {
            known.pids = known.group.members_of(&all).iter().map(|stat| stat.pid).collect();
        }
        let usage = proc::usage(&known.pids);
        if usage.processes == 0 {
            continue;
        }
        known.cpu_ms = known.cpu_ms.max(usage.cpu_ms);
        for pid in &known.pids {
            known.waits_ns.extend(proc::waits_ns(*pid));
        }
        let waited_ns: u64 = known.waits_ns.values().sum();
        samples.push(Event::Sample {
            member: known.member.clone(),
            cpu_ms: known.cpu_ms,
            rss_kib: usage.rss_kib,
            descriptors: usage.descriptors,
            processes: usage.processes,
            waited_ms: (!known.waits_ns.is_empty()).then_some(waited_ns / 1_000_000),
        });
    }
    samples
}
