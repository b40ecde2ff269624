//! Judges against a naive model: random logs, deletions and deliveries, and an O(n²) judge that must agree.

use std::collections::{BTreeMap, BTreeSet};

use brokerfall_report::history::{Entry, Event, ProduceOutcome};
use brokerfall_report::protocol::Kind;
use brokerfall_report::runs::Runs;
use brokerfall_report::verdict::Outcome;
use proptest::prelude::*;

use super::support::*;
use crate::history::facts::Facts;
use crate::verdict::judge;

/// Events lie further apart than any slack, so that only their order counts.
const STEP_MS: u64 = 10_000;

#[derive(Debug, Clone)]
enum Op {
    /// Write this many records; the offsets leave a gap before them; what the broker said, and whether it is in the log.
    Produce {
        len: u64,
        gap: u64,
        outcome: u8,
        kept: bool,
    },
    /// Delete records below this share of the log.
    Delete {
        percent: u64,
    },
    Scan,
    /// Deliver these runs (start as a share of the log, length), a little past the end at times.
    Deliver {
        runs: Vec<(u64, u64)>,
        phantom: bool,
    },
    /// Deliver what follows on the last delivery.
    Continue {
        len: u64,
    },
    /// A new process takes the reader's place.
    Respawn,
    Reset,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (1u64..6, 0u64..3, 0u8..6, any::<bool>()).prop_map(|(len, gap, outcome, kept)| Op::Produce { len, gap, outcome, kept }),
        1 => (0u64..100).prop_map(|percent| Op::Delete { percent }),
        2 => Just(Op::Scan),
        5 => (proptest::collection::vec((0u64..100, 1u64..6), 1..3), proptest::bool::weighted(0.05))
            .prop_map(|(runs, phantom)| Op::Deliver { runs, phantom }),
        5 => (1u64..4).prop_map(|len| Op::Continue { len }),
        1 => Just(Op::Respawn),
        1 => Just(Op::Reset),
    ]
}

/// Event number, life, and `(id, offset)` in the order told.
type Told = (u64, usize, Vec<(u64, u64)>);

/// What happened, record by record.
#[derive(Debug, Default)]
struct Model {
    /// Id to offset of everything that is or was in the log.
    placed: BTreeMap<u64, u64>,
    acked: BTreeSet<u64>,
    maybe: BTreeSet<u64>,
    log_start: u64,
    log_end: u64,
    next_id: u64,
    /// Event, life, then ids in order, with offsets.
    deliveries: Vec<Told>,
    scans: Vec<(u64, BTreeSet<u64>)>,
    resets: Vec<u64>,
    life: usize,
}

fn play(kind: Kind, ops: &[Op]) -> (Vec<Entry>, Model) {
    let mut model = Model {
        next_id: 1,
        ..Model::default()
    };
    let mut entries = history! { plan(kind); 0 => spawned("r1") };
    let mut add = |event: Event| {
        let n = entries.len() as u64;
        entries.push(entry(n, n * STEP_MS, event));
        n
    };
    for op in ops {
        match op {
            Op::Produce {
                len,
                gap,
                outcome,
                kept,
            } => {
                let (first, last) = (model.next_id, model.next_id + len - 1);
                model.next_id += len;
                let outcome = match outcome {
                    0 => ProduceOutcome::Maybe,
                    1 => ProduceOutcome::Failed,
                    _ => ProduceOutcome::Acked,
                };
                let in_log = outcome == ProduceOutcome::Acked || (outcome == ProduceOutcome::Maybe && *kept);
                let mut offsets = Runs::default();
                if in_log {
                    model.log_end += gap;
                    for id in first..=last {
                        model.placed.insert(id, model.log_end);
                        offsets.push(model.log_end);
                        model.log_end += 1;
                    }
                }
                match outcome {
                    ProduceOutcome::Acked => model.acked.extend(first..=last),
                    ProduceOutcome::Maybe => model.maybe.extend(first..=last),
                    ProduceOutcome::Failed => {}
                }
                add(Event::Produced {
                    topic: TOPIC.into(),
                    partition: 0,
                    ids: Runs::one(first, last),
                    offsets: if outcome == ProduceOutcome::Acked {
                        offsets
                    } else {
                        Runs::default()
                    },
                    outcome,
                });
            }
            Op::Delete { percent } => {
                model.log_start = model.log_start.max(model.log_end * percent / 100);
                add(watermarks(model.log_start, model.log_end));
            }
            Op::Scan => scan(&mut model, &mut add),
            Op::Deliver { runs, phantom } => {
                let all: Vec<(u64, u64)> = model.placed.iter().map(|(id, offset)| (*id, *offset)).collect();
                let mut given = Vec::new();
                for (start, len) in runs {
                    let start = (all.len() as u64 * start / 100) as usize;
                    given.extend(all.iter().skip(start).take(*len as usize).copied());
                }
                if *phantom {
                    given.push((model.next_id + 50, model.log_end + 50));
                }
                deliver(&mut model, &mut add, given);
            }
            Op::Continue { len } => {
                let last = model
                    .deliveries
                    .last()
                    .and_then(|(_, _, given)| given.last())
                    .map_or(0, |(id, _)| *id);
                let next = model.placed.range(last + 1..).take(*len as usize);
                let given = next.map(|(id, offset)| (*id, *offset)).collect();
                deliver(&mut model, &mut add, given);
            }
            Op::Respawn => {
                add(exited_by("r1", None, Some(9), true));
                add(spawned("r1"));
                model.life += 1;
            }
            Op::Reset => {
                let n = add(reset());
                model.resets.push(n);
            }
        }
    }
    scan(&mut model, &mut add);
    add(Event::Closed);
    (entries, model)
}

fn deliver(model: &mut Model, add: &mut impl FnMut(Event) -> u64, given: Vec<(u64, u64)>) {
    if given.is_empty() {
        return;
    }
    let ids = given.iter().map(|(id, _)| *id).collect();
    let offsets = given.iter().map(|(_, offset)| *offset).collect();
    let n = add(says(records_as(Some(ids), Some(offsets))));
    model.deliveries.push((n, model.life, given));
}

fn scan(model: &mut Model, add: &mut impl FnMut(Event) -> u64) {
    let found: Vec<(u64, u64)> = model
        .placed
        .iter()
        .filter(|(_, offset)| **offset >= model.log_start)
        .map(|(id, offset)| (*id, *offset))
        .collect();
    let n = add(Event::Scanned {
        topic: TOPIC.into(),
        partition: 0,
        from: model.log_start,
        to: model.log_end,
        ids: found.iter().map(|(id, _)| *id).collect(),
        offsets: found.iter().map(|(_, offset)| *offset).collect(),
    });
    model.scans.push((n, found.into_iter().map(|(id, _)| id).collect()));
}

impl Model {
    /// Ids lost, by asking of every record whether a scan after the reader passed it found it.
    fn lost(&self, kind: Kind) -> BTreeSet<u64> {
        let counts = |life: usize| kind == Kind::Group || life == self.life;
        let given: BTreeSet<u64> = self
            .deliveries
            .iter()
            .filter(|(_, life, _)| counts(*life))
            .flat_map(|(_, _, given)| given.iter().map(|(id, _)| *id))
            .collect();
        let mut lost = BTreeSet::new();
        for id in &self.acked {
            let offset = self.placed[id];
            for (scan, found) in &self.scans {
                let passed = self
                    .deliveries
                    .iter()
                    .any(|(n, life, given)| counts(*life) && n < scan && given.iter().any(|(_, at)| *at >= offset));
                if passed && found.contains(id) && !given.contains(id) {
                    lost.insert(*id);
                }
            }
        }
        lost
    }

    fn phantoms(&self) -> BTreeSet<u64> {
        let written = |id: &u64| self.acked.contains(id) || self.maybe.contains(id);
        let given = self
            .deliveries
            .iter()
            .flat_map(|(_, _, given)| given.iter().map(|(id, _)| *id));
        given.filter(|id| !written(id)).collect()
    }

    /// Whether a record came out of order, and whether one was read again, record by record.
    fn disorder_and_rewind(&self) -> (bool, bool) {
        let (mut disorder, mut rewind) = (false, false);
        for life in 0..=self.life {
            let mut had: Vec<u64> = Vec::new();
            let mut highest: Option<(u64, u64)> = None;
            for (n, _, given) in self.deliveries.iter().filter(|(_, of, _)| *of == life) {
                // Rising stretches, as an adapter reports them.
                for run in given.chunk_by(|a, b| b.0 == a.0 + 1 && b.1 == a.1 + 1) {
                    let (first, last) = (run[0].0, run[run.len() - 1].0);
                    let excused = |before: u64| self.resets.iter().any(|reset| before < *reset && reset < n);
                    match highest {
                        Some((top, before)) if first <= top && excused(before) => highest = Some((last, *n)),
                        Some((top, _)) => {
                            for id in run.iter().map(|(id, _)| *id).filter(|id| *id <= top) {
                                disorder |= !had.contains(&id);
                                rewind |= had.contains(&id) && id < top;
                            }
                            highest = Some((top.max(last), *n));
                        }
                        None => highest = Some((last, *n)),
                    }
                    had.extend(run.iter().map(|(id, _)| *id));
                }
            }
        }
        (disorder, rewind)
    }
}

fn violated(id: &str, entries: &[Entry]) -> bool {
    matches!(outcome_of(id, entries), Outcome::Violated { .. })
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::Group), Just(Kind::Assign)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn loss_phantoms_order_and_rewinds_equal_the_naive_judge(kind in kind(), ops in proptest::collection::vec(op(), 0..24)) {
        let (entries, model) = play(kind, &ops);
        let (disorder, rewind) = model.disorder_and_rewind();
        prop_assert_eq!(violated("no_lost_record", &entries), !model.lost(kind).is_empty(), "lost {:?}", model.lost(kind));
        prop_assert_eq!(violated("no_phantom_record", &entries), !model.phantoms().is_empty(), "phantoms {:?}", model.phantoms());
        prop_assert_eq!(violated("in_order", &entries), disorder);
        prop_assert_eq!(violated("no_rewind", &entries), rewind);
    }

    #[test]
    fn judging_twice_is_the_same_and_a_stored_history_has_the_same_facts(kind in kind(), ops in proptest::collection::vec(op(), 0..24)) {
        let (entries, _) = play(kind, &ops);
        prop_assert_eq!(judge(&entries), judge(&entries));
        let mut live = Facts::default();
        let mut stored = Facts::default();
        for entry in &entries {
            live.observe(entry);
            let line = serde_json::to_string(entry).unwrap();
            stored.observe(&serde_json::from_str(&line).unwrap());
        }
        prop_assert_eq!(live, stored);
    }

    #[test]
    fn snapshot_differences_equal_the_naive_fold(
        keys in 1u64..5,
        tombstone_every in proptest::option::of(2u64..6),
        total in 0u64..24,
        deleted in 0u64..24,
        changes in proptest::collection::vec((0u64..6, 0u8..3, 1u64..30), 0..3),
        clears in any::<bool>(),
    ) {
        let mut plan = plan(Kind::Table);
        plan.topics[0].generator.keys = keys;
        plan.topics[0].generator.tombstone_every = tombstone_every;
        plan.reader.declares.clears_expired = clears;
        let generator = plan.topics[0].generator.clone();
        let deleted = deleted.min(total);

        // The table that a correct reader shows, who read all before the deletion; then some changes.
        let mut shown: BTreeMap<String, Option<u64>> = BTreeMap::new();
        for id in 1..=total {
            if generator.is_tombstone(id) {
                shown.remove(&generator.key(0, id));
            } else {
                shown.insert(generator.key(0, id), Some(id));
            }
        }
        for (key, how, id) in changes {
            let key = format!("p0-k{key}");
            match how {
                0 => { shown.remove(&key); }
                1 => { shown.insert(key, Some(id)); }
                _ => { shown.insert(key, None); }
            }
        }

        let mut wrong = false;
        let mut all_keys: BTreeSet<String> = shown.keys().cloned().collect();
        all_keys.extend((1..=total).map(|id| generator.key(0, id)));
        for key in &all_keys {
            let with_key: Vec<u64> = (1..=total).filter(|id| generator.key(0, *id) == *key).collect();
            let last = with_key.last().copied();
            let expired = last.is_some_and(|id| id <= deleted);
            let expected = last.filter(|id| !generator.is_tombstone(*id));
            wrong |= match shown.get(key) {
                None => !expired && expected.is_some(),
                Some(None) => true,
                Some(Some(id)) if !with_key.contains(id) => true,
                Some(Some(_)) if expired => clears,
                Some(Some(id)) => expected != Some(*id),
            };
        }
        // A table whose every value lacks an id cannot be compared at all.
        prop_assume!(shown.is_empty() || shown.values().any(Option::is_some));

        let parts: Vec<(&str, Option<u64>)> = shown.iter().map(|(key, id)| (key.as_str(), *id)).collect();
        let mut entries = history! { plan; 0 => spawned("r1") };
        let mut add = |event| entries.push(entry(entries.len() as u64, entries.len() as u64, event));
        if total > 0 {
            add(produced(1, total));
            add(watermarks(deleted, total));
        }
        add(Event::Quiet);
        add(asked(1, "snapshot"));
        add(snapshot_part(1, &parts));
        add(done(1, None));
        add(stage(brokerfall_report::history::Stage::Stopping));
        if deleted < total {
            add(scanned(deleted + 1, total));
        } else if total > 0 {
            add(Event::Scanned {
                topic: TOPIC.into(),
                partition: 0,
                from: total,
                to: total,
                ids: Runs::default(),
                offsets: Runs::default(),
            });
        }
        prop_assert_eq!(violated("converges", &entries), wrong, "{:?}", outcome_of("converges", &entries));
    }
}
