//! Inclusive runs of integers in delivery order: the compact form of offsets and record ids.

use serde::{Deserialize, Serialize};

/// Inclusive runs `[[first, last], …]` in the order in which the numbers came.
///
/// A run ends at every gap or step back, so skips, duplicates and reordering stay visible however many records there are.
///
/// ```
/// use brokerfall_report::runs::Runs;
/// let mut runs = Runs::default();
/// for n in [1, 2, 3, 7, 8, 2] {
///     runs.push(n);
/// }
/// assert_eq!(runs.as_slice(), [[1, 3], [7, 8], [2, 2]]);
/// assert_eq!(runs.count(), 6);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Runs(Vec<[u64; 2]>);

impl Runs {
    /// The single run `first..=last`.
    pub fn one(first: u64, last: u64) -> Self {
        Self(vec![[first, last]])
    }

    /// Appends one number, lengthening the last run where it follows on.
    pub fn push(&mut self, n: u64) {
        match self.0.last_mut() {
            Some(run) if n.checked_sub(1) == Some(run[1]) => run[1] = n,
            _ => self.0.push([n, n]),
        }
    }

    /// Appends the run `first..=last`, lengthening the last run where it follows on.
    pub fn push_run(&mut self, first: u64, last: u64) {
        match self.0.last_mut() {
            Some(run) if first.checked_sub(1) == Some(run[1]) => run[1] = last,
            _ => self.0.push([first, last]),
        }
    }

    /// The runs themselves, for reading lines into them.
    pub(crate) fn raw(&mut self) -> &mut Vec<[u64; 2]> {
        &mut self.0
    }

    /// The runs as they are.
    pub fn as_slice(&self) -> &[[u64; 2]] {
        &self.0
    }

    /// How many numbers the runs hold, duplicates included. Runs that end before they start count as empty.
    pub fn count(&self) -> u64 {
        // Runs come from adapters too: absurd ones must not overflow.
        self.0.iter().fold(0, |sum: u64, [a, b]| match b.checked_sub(*a) {
            Some(more) => sum.saturating_add(more).saturating_add(1),
            None => sum,
        })
    }

    /// True when there is no run.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The last number of the last run.
    pub fn last(&self) -> Option<u64> {
        self.0.last().map(|run| run[1])
    }

    /// The first number of the first run.
    pub fn first(&self) -> Option<u64> {
        self.0.first().map(|run| run[0])
    }

    /// Every number, in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().flat_map(|[a, b]| *a..=*b)
    }
}

impl FromIterator<u64> for Runs {
    fn from_iter<I: IntoIterator<Item = u64>>(numbers: I) -> Self {
        let mut runs = Self::default();
        for n in numbers {
            runs.push(n);
        }
        runs
    }
}
