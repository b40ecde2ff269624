//! A child's process group, named so that a recycled pid is never mistaken for it.

use std::collections::HashSet;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::MARK;
use super::proc::{self, Process, Stat, Usage};

/// A process group that the harness started. It stays valid after its leader was reaped: the kernel gives the number to
/// nobody else while the group has members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    pub(super) pid: u32,
    /// Start time of the leader, clock ticks since boot; 0 where there is no `/proc`.
    pub(super) started: u64,
    /// Value of [`MARK`] in its environment.
    pub(super) mark: String,
}

impl Group {
    /// Process id of its leader, which is also the group's number.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// State letter of the leader; `None` once it is reaped.
    pub fn state(&self) -> Option<char> {
        self.leader().map(|stat| stat.state)
    }

    /// Sends a signal to the whole group. False when there is nobody left to take it.
    pub fn signal(&self, signal: Signal) -> bool {
        if self.started != 0 && self.leader().is_none() && self.members().is_empty() {
            return false;
        }
        i32::try_from(self.pid).is_ok_and(|pid| killpg(Pid::from_raw(pid), signal).is_ok())
    }

    /// Everybody in the group that is not a zombie.
    pub fn members(&self) -> Vec<Stat> {
        self.members_of(&proc::all())
    }

    /// The same, out of processes listed before: one listing serves many groups.
    pub fn members_of(&self, all: &[Stat]) -> Vec<Stat> {
        let in_group = || all.iter().filter(|stat| stat.group == self.pid && stat.is_alive());
        match all.iter().find(|stat| stat.pid == self.pid) {
            Some(leader) if leader.started == self.started => in_group().cloned().collect(),
            // Somebody else's by now.
            Some(_) => Vec::new(),
            // Without its leader, the number may have been given to a second group that lost its leader too; only the
            // mark tells them apart.
            None => in_group().filter(|stat| self.is_marked(stat)).cloned().collect(),
        }
    }

    /// Everybody that descends from this child but left its group (`setsid`), found by the mark.
    pub fn strays(&self) -> Vec<Stat> {
        self.strays_of(&proc::all())
    }

    fn strays_of(&self, all: &[Stat]) -> Vec<Stat> {
        let strays = all.iter().filter(|stat| {
            stat.group != self.pid && stat.is_alive() && stat.started >= self.started && self.is_marked(stat)
        });
        strays.cloned().collect()
    }

    /// Processes that have nothing to do with this child now, by pid. None of them can come to: what descends from the child
    /// is another process.
    pub fn others(&self) -> HashSet<u32> {
        let all = proc::all();
        let ours: HashSet<u32> = self.ours(&all).map(|stat| stat.pid).collect();
        let pids = all.iter().map(|stat| stat.pid);
        pids.filter(|pid| !ours.contains(pid)).collect()
    }

    /// Members and strays, named.
    pub fn left(&self) -> Vec<Process> {
        self.left_beside(&HashSet::new())
    }

    /// The same, without a look at those in `others`, which were listed not long before: pids are given in turn, so that
    /// the number of one that has ended since is not back so soon.
    pub fn left_beside(&self, others: &HashSet<u32>) -> Vec<Process> {
        let all = proc::all_but(others);
        self.ours(&all).map(proc::describe).collect()
    }

    /// Members and strays.
    fn ours(&self, all: &[Stat]) -> impl Iterator<Item = Stat> + use<> {
        self.members_of(all).into_iter().chain(self.strays_of(all))
    }

    /// Sends SIGKILL to the group and to every stray.
    pub fn kill_all(&self) {
        self.signal(Signal::SIGKILL);
        for stray in self.strays() {
            kill(&stray);
        }
    }

    /// What the group uses now.
    pub fn usage(&self) -> Usage {
        let pids: Vec<u32> = self.members().iter().map(|stat| stat.pid).collect();
        proc::usage(&pids)
    }

    fn leader(&self) -> Option<Stat> {
        proc::stat(self.pid).filter(|stat| stat.started == self.started)
    }

    fn is_marked(&self, stat: &Stat) -> bool {
        proc::variable(stat.pid, MARK).as_deref() == Some(&self.mark)
    }
}

/// SIGKILL of one process, unless its pid has been given to another since it was listed.
pub(super) fn kill(process: &Stat) {
    let same = proc::stat(process.pid).is_some_and(|now| now.started == process.started);
    if let (true, Ok(pid)) = (same, i32::try_from(process.pid)) {
        // OK to ignore the answer: the only one possible here is that it has just gone.
        let _ = nix::sys::signal::kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn group_whose_leader_started_at_another_time_is_not_ours() {
        // Our own test process exists, so only the start time can tell that it is another one.
        let stat = proc::stat(std::process::id()).unwrap();
        let recycled = Group {
            pid: stat.pid,
            started: stat.started + 1,
            mark: "none".to_owned(),
        };
        assert_eq!(recycled.state(), None);
        assert!(recycled.members().is_empty());
        // Signal 0 would be harmless, but there must be nobody to send it to. SIGCONT is harmless too, should this fail.
        assert!(!recycled.signal(Signal::SIGCONT));
    }

    #[test]
    fn stray_of_another_mark_is_not_ours() {
        let own = proc::stat(std::process::id()).unwrap();
        let group = Group {
            pid: own.group,
            started: own.started,
            mark: "none".to_owned(),
        };
        assert!(group.strays().is_empty());
    }
}
