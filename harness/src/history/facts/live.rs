//! What the run loop asks while the run goes on, beside what the invariants ask too.

use brokerfall_report::history::{ConnectionChange, Grade};

use super::Facts;
use super::life::HowEnded;

impl Facts {
    /// Highest grade of evidence that a fault has reached.
    pub fn grade_reached(&self, fault: &str) -> Option<Grade> {
        self.faults().named(fault)?.grade()
    }

    /// Names of the faults that are in force, for progress.
    pub fn faults_in_force(&self) -> Vec<String> {
        self.faults()
            .all
            .iter()
            .filter(|fault| fault.healed.is_none())
            .map(|fault| fault.name.clone())
            .collect()
    }

    /// Whether a member's process runs.
    pub fn is_alive(&self, member: &str) -> bool {
        self.life(member)
            .is_some_and(|life| life.exit.is_none() && life.over.is_none())
    }

    /// Whether an adapter broke the protocol: nothing that it says is believed, so that nothing of it can be waited for.
    pub fn protocol_is_broken(&self) -> bool {
        !self.troubles().protocol.is_empty()
    }

    /// Whether a reader can no longer do anything that is waited for: its processes are gone, or nothing that its adapter
    /// says is believed.
    pub fn nothing_can_come(&self) -> bool {
        self.protocol_is_broken() || self.all_ended().is_some_and(|ended| !self.is_alive(ended.member))
    }

    /// Whether every member that ended has told why, or has a process that can tell nothing more.
    pub fn end_is_explained(&self) -> bool {
        self.all_ended()
            .is_some_and(|ended| ended.how == HowEnded::Honest || !self.is_alive(ended.member))
    }

    /// Whether every member whose process runs has sent a heartbeat since event `mark`.
    pub fn all_alive_beat_since(&self, mark: u64) -> bool {
        self.members()
            .keys()
            .filter(|member| self.is_alive(member))
            .filter_map(|member| self.life(member))
            .all(|life| life.last_heartbeat.is_some_and(|at| at.n >= mark))
    }

    /// How the reader itself showed since event `mark` that something was wrong; the first sign found.
    pub fn reaction_since(&self, mark: u64) -> Option<String> {
        let errors = self.errors_since(mark);
        if errors > 0 {
            return Some(format!("the reader reported {errors} error(s)"));
        }
        for life in self.lives() {
            if let Some((_, state)) = life.status.iter().find(|(at, _)| at.n >= mark) {
                return Some(format!(
                    "the status of {} became {}",
                    life.member,
                    super::life::shown(state)
                ));
            }
            if life.returned.iter().any(|(at, ..)| at.n >= mark) {
                return Some(format!("a call of {} came back", life.member));
            }
            if life.exit.as_ref().is_some_and(|exit| exit.at.n >= mark) {
                return Some(format!("the process of {} ended", life.member));
            }
        }
        let connects = self.connections_since(mark, None, ConnectionChange::Opened);
        if connects > 0 {
            return Some(format!("the reader connected anew {connects} time(s)"));
        }
        None
    }
}
