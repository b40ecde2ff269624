//! Faults in force and the path between reader and brokers, over time.

use std::collections::BTreeMap;

use brokerfall_report::history::Grade;

use super::Moment;

/// One fault, from its injection to its heal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Name in this run.
    pub name: String,
    /// Kind.
    pub kind: String,
    /// What exactly.
    pub text: String,
    /// When injecting began.
    pub injecting: Moment,
    /// When it was proven, by grade.
    pub proven: BTreeMap<Grade, Moment>,
    /// When healing began.
    pub healing: Option<Moment>,
    /// When the heal was proven.
    pub healed: Option<Moment>,
}

impl Fault {
    /// Highest grade of evidence reached. Each rests on the one below: a reader that reacts to something else while a
    /// fault is armed has not been hit by it.
    pub fn grade(&self) -> Option<Grade> {
        Grade::ALL
            .into_iter()
            .take_while(|grade| self.proven.contains_key(grade))
            .last()
    }

    /// Whether it strikes brokers or the network, so that the reader is cut off.
    pub fn is_outage(&self) -> bool {
        matches!(
            self.kind.as_str(),
            "kill-broker" | "isolate-broker" | "roll-brokers" | "unclean-election" | "pause-broker" | "partition"
        )
    }
}

/// All faults of a run and the state of the path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Faults {
    /// In the order of their injection.
    pub all: Vec<Fault>,
    /// Changes of the path, as recorded.
    pub path: Vec<(Moment, bool)>,
}

impl Faults {
    /// The last fault of this name.
    pub fn named(&self, name: &str) -> Option<&Fault> {
        self.all.iter().rev().find(|fault| fault.name == name)
    }

    pub(super) fn named_mut(&mut self, name: &str) -> Option<&mut Fault> {
        self.all.iter_mut().rev().find(|fault| fault.name == name)
    }

    /// When the last heal was proven.
    pub fn last_heal(&self) -> Option<Moment> {
        self.all.iter().filter_map(|fault| fault.healed).max()
    }

    /// Intervals up to `until_us` in which the path is open: no fault in force, no word that it is closed.
    pub fn calm(&self, until_us: u64) -> Vec<(u64, u64)> {
        let mut changes: Vec<(u64, i64)> = Vec::new();
        for fault in &self.all {
            changes.push((fault.injecting.us, 1));
            if let Some(healed) = fault.healed {
                changes.push((healed.us, -1));
            }
        }
        let mut open = true;
        for &(at, now_open) in &self.path {
            if now_open != open {
                changes.push((at.us, if now_open { -1 } else { 1 }));
                open = now_open;
            }
        }
        // At one instant what closes counts before what opens, so that no empty interval is born.
        changes.sort_by_key(|&(us, step)| (us, -step));
        let mut calm = Vec::new();
        let (mut depth, mut since) = (0i64, 0u64);
        for (us, step) in changes {
            if depth == 0 && step > 0 && us > since {
                calm.push((since, us.min(until_us)));
            }
            depth += step;
            if depth == 0 {
                since = us;
            }
        }
        if depth == 0 {
            calm.push((since, until_us));
        }
        calm.retain(|&(from, to)| from < to);
        calm
    }

    /// Since when the path is open without a break; `None` while it is closed.
    pub fn calm_since(&self, now_us: u64) -> Option<u64> {
        self.calm(now_us.saturating_add(1))
            .last()
            .filter(|&&(_, to)| to > now_us)
            .map(|&(from, _)| from)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Fault, Faults};
    use crate::history::facts::Moment;

    fn fault(from: u64, to: Option<u64>) -> Fault {
        Fault {
            name: String::new(),
            kind: "partition".into(),
            text: String::new(),
            injecting: Moment { n: 0, us: from },
            proven: BTreeMap::new(),
            healing: None,
            healed: to.map(|us| Moment { n: 0, us }),
        }
    }

    #[test]
    fn overlapping_faults_close_the_path_until_the_last_is_healed() {
        let faults = Faults {
            all: vec![fault(10, Some(30)), fault(20, Some(50))],
            path: vec![(Moment { n: 0, us: 11 }, false), (Moment { n: 1, us: 60 }, true)],
        };
        assert_eq!(faults.calm(100), [(0, 10), (60, 100)]);
        assert_eq!(faults.calm_since(100), Some(60));
    }

    #[test]
    fn a_fault_never_healed_leaves_the_path_closed() {
        let faults = Faults {
            all: vec![fault(10, None)],
            path: Vec::new(),
        };
        assert_eq!(faults.calm(100), [(0, 10)]);
        assert_eq!(faults.calm_since(100), None);
    }
}
