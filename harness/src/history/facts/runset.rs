//! A set of numbers as disjoint inclusive runs.

use std::collections::BTreeMap;

/// A set of `u64` that costs memory per run, not per number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunSet {
    /// First number of a run to its last; runs neither overlap nor touch.
    runs: BTreeMap<u64, u64>,
}

impl RunSet {
    /// Adds `first..=last`; an empty run (`last < first`) adds nothing.
    pub fn insert(&mut self, first: u64, last: u64) {
        if last < first {
            return;
        }
        // Most numbers come in order.
        if let Some(mut highest) = self.runs.last_entry()
            && highest.get().checked_add(1) == Some(first)
        {
            *highest.get_mut() = last;
            return;
        }
        let (mut first, mut last) = (first, last);
        // Runs that overlap or touch are swallowed, from the right end back.
        while let Some((&a, &b)) = self.runs.range(..=last.saturating_add(1)).next_back() {
            if b.saturating_add(1) < first {
                break;
            }
            first = first.min(a);
            last = last.max(b);
            self.runs.remove(&a);
        }
        self.runs.insert(first, last);
    }

    /// Whether `n` is in the set.
    pub fn contains(&self, n: u64) -> bool {
        self.runs.range(..=n).next_back().is_some_and(|(_, &b)| n <= b)
    }

    /// Whether any of `first..=last` is in the set.
    pub fn touches(&self, first: u64, last: u64) -> bool {
        first <= last && self.runs.range(..=last).next_back().is_some_and(|(_, &b)| b >= first)
    }

    /// The runs, rising.
    pub fn runs(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> + '_ {
        self.runs.iter().map(|(&a, &b)| (a, b))
    }

    /// The parts of `first..=last` that are not in the set, rising.
    pub fn gaps(&self, first: u64, last: u64) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        if last < first {
            return gaps;
        }
        let mut next = first;
        let before = self.runs.range(..first).next_back();
        for (&a, &b) in before.into_iter().chain(self.runs.range(first..=last)) {
            if b < next {
                continue;
            }
            if a > next {
                gaps.push((next, a - 1));
            }
            match b.checked_add(1) {
                Some(after) => next = after,
                None => return gaps,
            }
            if next > last {
                return gaps;
            }
        }
        gaps.push((next, last));
        gaps
    }

    /// The parts of `first..=last` that are in the set, rising.
    pub fn within(&self, first: u64, last: u64) -> Vec<(u64, u64)> {
        if last < first {
            return Vec::new();
        }
        let before = self.runs.range(..first).next_back();
        before
            .into_iter()
            .chain(self.runs.range(first..=last))
            .map(|(&a, &b)| (a.max(first), b.min(last)))
            .filter(|(a, b)| a <= b)
            .collect()
    }

    /// How many numbers are in the set.
    pub fn count(&self) -> u64 {
        self.runs
            .iter()
            .fold(0, |sum: u64, (a, b)| sum.saturating_add((b - a).saturating_add(1)))
    }

    /// The largest number.
    pub fn last(&self) -> Option<u64> {
        self.runs.values().next_back().copied()
    }

    /// The smallest number.
    pub fn first(&self) -> Option<u64> {
        self.runs.keys().next().copied()
    }

    /// True when nothing is in the set.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::RunSet;

    proptest! {
        #[test]
        fn runs_added_in_any_order_equal_a_plain_set(
            runs in proptest::collection::vec((0u64..60, 0u64..8), 0..30),
            ask in (0u64..70, 0u64..20),
        ) {
            let mut set = RunSet::default();
            let mut plain = BTreeSet::new();
            for (first, len) in runs {
                set.insert(first, first + len);
                plain.extend(first..=first + len);
            }
            let (first, last) = (ask.0, ask.0 + ask.1);
            let missing: Vec<u64> = set.gaps(first, last).into_iter().flat_map(|(a, b)| a..=b).collect();
            prop_assert_eq!(missing, (first..=last).filter(|n| !plain.contains(n)).collect::<Vec<_>>());
            let present: Vec<u64> = set.within(first, last).into_iter().flat_map(|(a, b)| a..=b).collect();
            prop_assert_eq!(present, plain.range(first..=last).copied().collect::<Vec<_>>());
            prop_assert_eq!(set.count(), plain.len() as u64);
            prop_assert_eq!(set.touches(first, last), plain.range(first..=last).next().is_some());
            for n in 0..90 {
                prop_assert_eq!(set.contains(n), plain.contains(&n));
            }
            for pair in set.runs().collect::<Vec<_>>().windows(2) {
                prop_assert!(pair[0].1 + 1 < pair[1].0);
            }
        }
    }

    #[test]
    fn the_largest_number_neither_overflows_nor_is_lost() {
        let mut set = RunSet::default();
        set.insert(u64::MAX, u64::MAX);
        set.insert(0, u64::MAX - 1);
        assert_eq!(set.runs().collect::<Vec<_>>(), [(0, u64::MAX)]);
        assert!(set.gaps(5, u64::MAX).is_empty());
    }
}
