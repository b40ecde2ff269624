//! What keeps the facts of a long history small: where nothing happens that a judge could ask about, what was told event
//! by event is put together.
//!
//! Ordinary runs are kept whole. In a longer one, events of one list are put together only within a calm stretch: a run of
//! events in which no fault was in force or lately healed, and none of which begins, ends, asks, answers or excuses
//! anything, so that no judge can ask for a moment between them. What is put together errs on the side of the reader: by
//! [`APART_US`], and in the longest of lists by [`LONGEST`] times that.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::iter::once;

use super::{Facts, Moment};

/// Lists up to this length are kept as they are: runs of a few minutes are judged event by event.
const KEPT: usize = 4_096;
/// How often the lists are looked at, events.
const EVERY: u64 = 16_384;
/// The last events are kept as they are: the clocks of readers and harness differ.
const LAST_US: u64 = 10_000_000;
/// After the last heal a reader is watched closely for this long.
const WATCHED_US: u64 = 10_000_000;
/// What lies further apart is not put together, in a list that has just become long.
pub(super) const APART_US: u64 = 2_000_000;
/// Nor what lies further apart than this many times as much, in the longest.
const LONGEST: u64 = 8;
/// Shorter stretches are not worth remembering.
const STRETCH: u64 = 64;

/// Stretches of events in which nothing happens that a judge could ask about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Calm {
    /// First and last event number, rising.
    stretches: Vec<(u64, u64)>,
    /// The first event of the stretch that goes on.
    since: u64,
    /// Until when the reader is watched closely.
    watched_until_us: u64,
}

impl Calm {
    /// Takes in one event; `stirs` when a judge may ask about this moment.
    #[inline]
    pub(super) fn observe(&mut self, at: Moment, stirs: bool) {
        if stirs || at.us < self.watched_until_us {
            if at.n.saturating_sub(self.since) >= STRETCH {
                self.stretches.push((self.since, at.n - 1));
            }
            self.since = at.n.saturating_add(1);
        }
    }

    /// A fault was injected or healed; `in_force` while any is.
    pub(super) fn fault(&mut self, at: Moment, in_force: bool) {
        self.watched_until_us = if in_force {
            u64::MAX
        } else {
            at.us.saturating_add(WATCHED_US)
        };
    }
}

/// Where events may be put together.
pub(super) struct Together<'a> {
    calm: &'a Calm,
    now: Moment,
    /// What happened before was looked at already.
    since_us: u64,
    /// What lies further apart stays apart: the longer the list, the further.
    apart_us: Cell<u64>,
}

impl Together<'_> {
    /// Whether two moments of one list may become one: nothing lies between them that a judge could ask about.
    pub(super) fn may(&self, earlier: Moment, later: Moment) -> bool {
        if later.us.saturating_add(LAST_US) > self.now.us || later.n < earlier.n {
            return false;
        }
        let after = self.calm.stretches.partition_point(|(first, _)| *first <= earlier.n);
        let closed = after.checked_sub(1).and_then(|i| self.calm.stretches.get(i));
        closed.is_some_and(|(_, last)| later.n <= *last) || self.calm.since <= earlier.n
    }

    /// The same, and they lie close together.
    pub(super) fn may_soon(&self, earlier: Moment, later: Moment) -> bool {
        later.us.saturating_sub(earlier.us) <= self.apart_us.get() && self.may(earlier, later)
    }

    /// Takes the part off a long list that was not looked at yet.
    fn tail<T>(&self, list: &mut Vec<T>, at: impl Fn(&T) -> Moment) -> Option<Vec<T>> {
        if list.len() <= KEPT {
            return None;
        }
        let longer = (list.len() / KEPT) as u64;
        self.apart_us.set(APART_US * longer.min(LONGEST));
        let new = list.iter().rev().take_while(|one| at(one).us >= self.since_us).count();
        Some(list.split_off(list.len() - new))
    }

    /// Puts neighbours of a long list together: `join` takes the second into the first where it can.
    pub(super) fn neighbours<T>(
        &self,
        list: &mut Vec<T>,
        at: impl Fn(&T) -> Moment,
        join: impl Fn(&mut T, &T) -> bool,
    ) {
        let Some(tail) = self.tail(list, at) else { return };
        for one in tail {
            let joined = list.last_mut().is_some_and(|last| join(last, &one));
            if !joined {
                list.push(one);
            }
        }
    }

    /// Leaves entries of a long list out that a later one of the same key stands for: `absorb` takes the earlier one into
    /// the later where it can.
    pub(super) fn by_key<T, K: Ord>(
        &self,
        list: &mut Vec<T>,
        at: impl Fn(&T) -> Moment,
        key: impl Fn(&T) -> K,
        absorb: impl Fn(&mut T, &T) -> bool,
    ) {
        let Some(tail) = self.tail(list, at) else { return };
        // From the end, because what comes later stays.
        let mut kept: Vec<T> = Vec::with_capacity(tail.len() / 2);
        let mut next: BTreeMap<K, usize> = BTreeMap::new();
        for earlier in tail.into_iter().rev() {
            let key = key(&earlier);
            let later = next.get(&key).and_then(|&i| kept.get_mut(i));
            if later.is_some_and(|later| absorb(later, &earlier)) {
                continue;
            }
            next.insert(key, kept.len());
            kept.push(earlier);
        }
        list.extend(kept.into_iter().rev());
    }
}

/// What one kind of list keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// What stands in it.
    pub what: &'static str,
    /// Entries, over all partitions and lives.
    pub entries: usize,
    /// Bytes of the lists themselves, room for more included; texts that entries point to are not counted.
    pub bytes: usize,
}

impl Facts {
    /// What is kept of the history that grows with its length, the most first: what judging a long one takes memory for.
    pub fn kept(&self) -> Vec<Kept> {
        fn add<'a, T: 'a>(what: &'static str, lists: impl Iterator<Item = &'a Vec<T>>) -> Kept {
            let (entries, room) = lists.fold((0, 0), |(n, room), list| (n + list.len(), room + list.capacity()));
            Kept {
                what,
                entries,
                bytes: room * size_of::<T>(),
            }
        }
        let partitions = || self.topics.values().flat_map(BTreeMap::values);
        let mut all = vec![
            add("records acknowledged", partitions().map(|of| &of.log.acked)),
            add("changes of the log's ends", partitions().map(|of| &of.log.bounds)),
            add("deliveries", partitions().map(|of| &of.reads.segments)),
            add("positions", partitions().map(|of| &of.reads.marks)),
            add(
                "positions told",
                partitions().flat_map(|of| of.reads.reach.values().map(|reach| &reach.told)),
            ),
            add("keys dropped", partitions().map(|of| &of.reads.touched)),
            add("windows of traffic", once(&self.wire.windows)),
            add(
                "requests in them",
                self.wire.windows.iter().map(|window| &window.requests),
            ),
            add("connections", once(&self.wire.connections)),
            add("commits", once(&self.wire.commits)),
            add("commits told", once(&self.coordinated.commits)),
            add("standings", once(&self.wire.standings)),
            add("error codes", once(&self.wire.answers)),
            add("claims", self.lives.iter().map(|life| &life.claims)),
            add("resources", self.lives.iter().map(|life| &life.usage)),
            add("errors told", once(&self.errors)),
            add("times without a free core", once(&self.contended)),
            add("stretches of calm", once(&self.calm.stretches)),
        ];
        all.sort_by_key(|kept| std::cmp::Reverse(kept.bytes));
        all
    }

    /// Puts together what may be, every so often.
    pub(super) fn thin(&mut self) {
        if !self.now.n.is_multiple_of(EVERY) {
            return;
        }
        let together = Together {
            calm: &self.calm,
            now: self.now,
            // What was too new then; a little more, because readers have a clock of their own.
            since_us: self.thinned_us.saturating_sub(2 * LAST_US),
            apart_us: Cell::new(APART_US),
        };
        self.thinned_us = self.now.us;
        for partition in self.topics.values_mut().flat_map(BTreeMap::values_mut) {
            partition.log.thin(&together);
            partition.reads.thin(&together);
        }
        self.wire.thin(&together);
        self.coordinated.thin(&together);
        for life in &mut self.lives {
            together.neighbours(
                &mut life.claims,
                |one| one.from,
                |earlier, later| {
                    let (one, other) = (&earlier.claims, &later.claims);
                    let same = (one.healthy, one.caught_up) == (other.healthy, other.caught_up);
                    let lags = one.lag.zip(other.lag);
                    let joins = same && lags.is_some() && together.may_soon(earlier.from, later.until);
                    if joins {
                        earlier.until = later.until;
                        earlier.claims.lag = lags.map(|(one, other)| one.max(other));
                    }
                    joins
                },
            );
            // Both count up: what lies between the first and the last says little.
            together.by_key(
                &mut life.usage,
                |one| one.at,
                |_| (),
                |later, earlier| together.may_soon(earlier.at, later.at),
            );
        }
        together.neighbours(
            &mut self.contended,
            |one| one.0,
            |earlier, later| {
                let joins = together.may_soon(earlier.0, later.0);
                if joins {
                    *earlier = (
                        later.0,
                        earlier.1.saturating_add(later.1),
                        earlier.2.saturating_add(later.2),
                    );
                }
                joins
            },
        );
        together.neighbours(
            &mut self.errors,
            |one| one.0,
            |earlier, later| {
                let same = (earlier.1, earlier.2) == (later.1, later.2) && together.may_soon(earlier.0, later.0);
                if same {
                    earlier.3 = earlier.3.saturating_add(later.3);
                }
                same
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use brokerfall_report::history::{Entry, Event, Stage};
    use brokerfall_report::protocol::{Claims, Kind};

    use super::*;
    use crate::invariant::support::*;

    /// Records of the whole run; one every 40 ms.
    const RECORDS: u64 = 60_000;
    const PACE_MS: u64 = 40;

    /// A long run without a fault: every record is written and delivered by itself, but those that `drops`; at a record
    /// that `rests` nothing is delivered for 9 s, and then all that waited.
    fn long(drops: impl Fn(u64) -> bool, rests: impl Fn(u64) -> bool) -> Vec<Entry> {
        let mut entries = history! { plan(Kind::Group); 0 => targets(0), 0 => spawned("r1") };
        let mut add = |ms: u64, event: Event| entries.push(entry(entries.len() as u64, ms, event));
        let (mut next, mut rested) = (1, 0);
        for id in 1..=RECORDS {
            let ms = id * PACE_MS;
            add(ms, produced(id, id));
            if rests(id) {
                rested = ms + 9_000;
            }
            if ms >= rested {
                while next <= id {
                    if !drops(next) {
                        add(ms + 1, delivered(next, next));
                    }
                    next += 1;
                }
            }
            if id % 6 == 0 {
                let claims = Claims {
                    healthy: Some(ms >= rested),
                    lag: Some(id % 7),
                    ..Claims::default()
                };
                add(ms + 2, heartbeat("running", claims));
                add(ms + 2, sample(ms / 100));
                add(ms + 3, wire(6, 240));
            }
        }
        add(RECORDS * PACE_MS + 10, stage(Stage::Stopping));
        add(RECORDS * PACE_MS + 20, scanned(1, RECORDS));
        add(RECORDS * PACE_MS + 30, Event::Closed);
        entries
    }

    #[test]
    fn what_a_long_calm_run_tells_is_put_together() {
        let entries = long(|_| false, |_| false);
        let facts = facts(&entries);
        let of = facts.partition(TOPIC, 0).unwrap();
        let life = &facts.lives()[0];
        let lists = [
            ("acked", of.log.acked().len()),
            ("bounds", of.log.bounds.len()),
            ("segments", of.reads.segments.len()),
            ("marks", of.reads.marks.len()),
            ("windows", facts.wire().windows.len()),
            ("usage", life.usage.len()),
            ("claims", life.claims.len()),
        ];
        // What is kept whole, what came since the lists were last looked at, and what the rest comes to.
        let most = KEPT + EVERY as usize / 2 + 2_000;
        assert!(lists.iter().all(|(_, length)| *length < most), "{lists:?}");
        let kept = facts.kept();
        assert!(kept.iter().all(|kept| kept.entries < most), "{kept:?}");
        // Nothing is gone, and what is told in sums is whole.
        assert_eq!(of.reads.ids.runs().collect::<Vec<_>>(), [(1, RECORDS)]);
        assert_eq!(of.log.acked().iter().map(|piece| piece.len).sum::<u64>(), RECORDS);
        assert_eq!(
            of.reads.segments.iter().map(|segment| segment.len).sum::<u64>(),
            RECORDS
        );
        assert_eq!(facts.wire_requests_since(0, None), RECORDS / 6 * 6);
        for id in [
            "no_lost_record",
            "in_order",
            "no_silent_death",
            "status_honest",
            "no_rewind",
        ] {
            let outcome = (crate::invariant::by_id(id).unwrap().judge)(&facts);
            let held = matches!(outcome, brokerfall_report::verdict::Outcome::Held { .. });
            assert!(held, "{id}: {outcome:?}");
        }
    }

    #[test]
    fn one_record_lost_early_in_a_long_run_is_still_found() {
        let entries = long(|id| id == 1_234, |_| false);
        assert_violated(
            "no_lost_record",
            "ids 1234 (offsets 1233) were never delivered",
            &entries,
        );
    }

    #[test]
    fn standstill_early_in_a_long_run_is_still_found_and_told_too_short_by_little() {
        let entries = long(|_| false, |id| id == 2_000);
        let outcome = outcome_of("no_silent_death", &entries);
        let brokerfall_report::verdict::Outcome::Violated { text, .. } = &outcome else {
            panic!("{outcome:?}");
        };
        // It lasts 9 s, of which putting together may take [`APART_US`] away and can add nothing.
        let told = text
            .split("stood still for ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        let seconds: f64 = told.unwrap().parse().unwrap();
        assert!((7.0..=9.0).contains(&seconds), "{text}");
    }

    #[test]
    fn nothing_is_put_together_across_an_event_that_stirs_or_while_a_fault_is_watched() {
        let mut calm = Calm::default();
        let at = |n: u64| Moment { n, us: n * 1_000 };
        let together = |calm: &Calm, a: u64, b: u64| {
            let together = Together {
                calm,
                now: Moment {
                    n: 100_000,
                    us: u64::MAX,
                },
                since_us: 0,
                apart_us: Cell::new(APART_US),
            };
            together.may_soon(at(a), at(b))
        };
        for n in 0..1_000 {
            calm.observe(at(n), n == 500);
        }
        assert!(together(&calm, 0, 499) && together(&calm, 501, 999));
        assert!(!together(&calm, 499, 501) && !together(&calm, 500, 501));
        calm.fault(at(1_000), true);
        for n in 1_000..2_000 {
            calm.observe(at(n), false);
        }
        assert!(!together(&calm, 1_200, 1_201));
        calm.fault(at(2_000), false);
        for n in 2_000..20_000 {
            calm.observe(at(n), false);
        }
        assert!(!together(&calm, 11_000, 11_001) && together(&calm, 12_100, 12_101));
    }
}
