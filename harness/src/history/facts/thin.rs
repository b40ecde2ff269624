//! What keeps the facts of a long history small: where nothing happens that a judge could ask about, what was told event
//! by event is put together.
//!
//! Ordinary runs are kept whole. In a longer one, events of one list are put together only within a calm stretch: a run of
//! events in which no fault was in force or lately healed, and none of which begins, ends, asks, answers or excuses
//! anything, so that no judge can ask for a moment between them. What is put together errs on the side of the reader,
//! and by [`APART_US`] at most.

use std::collections::BTreeMap;

use super::{Facts, Moment};

/// Lists up to this length are kept as they are: runs of a few minutes are judged event by event.
const KEPT: usize = 4_096;
/// How often the lists are looked at, events.
const EVERY: u64 = 16_384;
/// The last events are kept as they are: the clocks of readers and harness differ.
const LAST_US: u64 = 10_000_000;
/// After the last heal a reader is watched closely for this long.
const WATCHED_US: u64 = 60_000_000;
/// What lies further apart is not put together.
pub(super) const APART_US: u64 = 2_000_000;
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
        later.us.saturating_sub(earlier.us) <= APART_US && self.may(earlier, later)
    }

    /// Puts neighbours of a long list together: `join` takes the second into the first where it can.
    pub(super) fn neighbours<T>(&self, list: &mut Vec<T>, join: impl Fn(&mut T, &T) -> bool) {
        if list.len() > KEPT {
            list.dedup_by(|later, earlier| join(earlier, later));
        }
    }

    /// Leaves entries of a long list out that a later one of the same key stands for: `absorb` takes the earlier one into
    /// the later where it can.
    pub(super) fn by_key<T, K: Ord>(
        &self,
        list: &mut Vec<T>,
        key: impl Fn(&T) -> K,
        absorb: impl Fn(&mut T, &T) -> bool,
    ) {
        if list.len() <= KEPT {
            return;
        }
        let mut next: BTreeMap<K, usize> = BTreeMap::new();
        let mut stays = vec![true; list.len()];
        for i in (0..list.len()).rev() {
            let key = list.get(i).map(&key);
            let later = key.as_ref().and_then(|key| next.get(key)).copied();
            if let Some(later) = later
                && let Some((head, tail)) = list.split_at_mut_checked(later)
                && let (Some(earlier), Some(later)) = (head.get(i), tail.first_mut())
                && absorb(later, earlier)
            {
                stays[i] = false;
            } else if let Some(key) = key {
                next.insert(key, i);
            }
        }
        let mut stays = stays.into_iter();
        list.retain(|_| stays.next().unwrap_or(true));
    }
}

impl Facts {
    /// Puts together what may be, every so often.
    pub(super) fn thin(&mut self) {
        if !self.now.n.is_multiple_of(EVERY) {
            return;
        }
        let together = Together {
            calm: &self.calm,
            now: self.now,
        };
        for partition in self.topics.values_mut().flat_map(BTreeMap::values_mut) {
            partition.log.thin(&together);
            partition.reads.thin(&together);
        }
        self.wire.thin(&together);
        for life in &mut self.lives {
            // Both count up: what lies between the first and the last says little.
            together.by_key(
                &mut life.usage,
                |_| (),
                |later, earlier| together.may_soon(earlier.at, later.at),
            );
        }
        together.neighbours(&mut self.contended, |earlier, later| {
            let joins = together.may_soon(earlier.0, later.0);
            if joins {
                *earlier = (
                    later.0,
                    earlier.1.saturating_add(later.1),
                    earlier.2.saturating_add(later.2),
                );
            }
            joins
        });
        together.neighbours(&mut self.errors, |earlier, later| {
            let same = (earlier.1, earlier.2) == (later.1, later.2) && together.may_soon(earlier.0, later.0);
            if same {
                earlier.3 = earlier.3.saturating_add(later.3);
            }
            same
        });
    }
}
