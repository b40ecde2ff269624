//! Which phase of its life a reader is in, as its wire and its deliveries show it: what a fault must hit.

use brokerfall_report::history::{GroupChange, Phase};
use brokerfall_report::protocol::Kind;

use super::Facts;

/// A commit or its request counts as going on for this long, microseconds: the link tells of requests every 250 ms, and a
/// reader that commits once a second is committing all the time.
const COMMITTING_US: u64 = 1_000_000;

/// The error with which a coordinator sends members to join anew.
const REBALANCES: &str = "REBALANCE_IN_PROGRESS";

impl Facts {
    /// Why what strikes at `now_us` does not hit a phase, as the end of a sentence; `None` when it hits it.
    pub fn missed(&self, phase: Phase, now_us: u64) -> Option<String> {
        match phase {
            Phase::Start => {
                let delivered = self.delivered_in_this_life();
                (delivered > 0).then(|| format!("the reader had delivered {delivered} record(s) already"))
            }
            Phase::CatchUp => self.reached_targets().then(|| "the catch-up was over".to_owned()),
            Phase::Live => {
                (!self.reached_targets()).then(|| format!("the reader had not caught up (lag {})", self.lag()))
            }
            Phase::Commit => {
                (!self.is_committing(now_us)).then(|| "no OffsetCommit was seen in the second before".to_owned())
            }
            Phase::Rebalance => {
                let stable = || "every member had its partitions in the same generation".to_owned();
                (!self.is_rebalancing()).then(stable)
            }
            Phase::Close => (!self.is_closing()).then(|| "no `stop` was in flight".to_owned()),
        }
    }

    /// Records delivered since the youngest reader was born that runs.
    fn delivered_in_this_life(&self) -> u64 {
        let born = self.lives().iter().map(|life| life.born.n).max().unwrap_or(0);
        let before = self.delivered.iter().rev().find(|(at, _)| at.n < born);
        self.delivered_total()
            .saturating_sub(before.map_or(0, |(_, total)| *total))
    }

    /// Whether a member is asked to commit, or was seen to.
    fn is_committing(&self, now_us: u64) -> bool {
        let recent = |us: u64| now_us.saturating_sub(us) <= COMMITTING_US;
        let windows = self.wire.windows.iter().rev();
        self.is_in_flight("commit")
            || windows
                .take_while(|window| recent(window.at.us))
                .filter(|window| self.members.contains_key(&window.client))
                .any(|window| asks(&window.requests, &["OffsetCommit"]))
            || self
                .wire
                .commits
                .iter()
                .rev()
                .any(|commit| commit.on_wire && recent(commit.at.us))
    }

    /// Whether some member of the group that lives and was told to start has not its partitions, in the generation that the
    /// youngest of them is in, or is on its way to another.
    fn is_rebalancing(&self) -> bool {
        if self.kind() != Kind::Group {
            return false;
        }
        let started = |member: &str| {
            let mut asked = self.asked().iter();
            asked.any(|asked| asked.command == "start" && asked.member == member)
        };
        let leaving = |member: &str| self.life(member).is_some_and(|life| life.asked_to_stop.is_some());
        let members = self.members.keys().map(String::as_str);
        let generations: Vec<Option<i32>> = members
            .filter(|member| self.is_alive(member) && started(member) && !leaving(member))
            .map(|member| self.stable_in(member))
            .collect();
        generations.windows(2).any(|two| two[0] != two[1]) || generations.contains(&None)
    }

    /// The generation in which a member has its partitions; `None` while it has none or is on its way to others.
    fn stable_in(&self, client: &str) -> Option<i32> {
        let mut standings = self.wire.standings.iter().rev().filter(|one| one.client == client);
        let last = standings.next()?;
        let (GroupChange::Alive { generation } | GroupChange::Synced { generation, .. }) = last.change else {
            return None;
        };
        let synced = std::iter::once(last)
            .chain(standings)
            .find(|one| matches!(one.change, GroupChange::Synced { .. }))?;
        // A window tells of its requests when it ends: only one that began after the last sync can hold a later join.
        let joins = self
            .wire
            .windows
            .iter()
            .rev()
            .take_while(|window| window.at.n > synced.at.n)
            .filter(|window| window.client == client && window.at.us.saturating_sub(window.span_us) >= synced.at.us)
            .any(|window| asks(&window.requests, &["JoinGroup", "SyncGroup"]));
        let told = self
            .wire
            .answers
            .iter()
            .rev()
            .take_while(|answer| answer.at.n > synced.at.n)
            .any(|answer| answer.client == client && answer.code.name == REBALANCES);
        (!joins && !told).then_some(generation)
    }

    /// Whether a member was asked to close and its process still runs.
    fn is_closing(&self) -> bool {
        self.members.keys().any(|member| {
            let stopping = self.life(member).is_some_and(|life| life.asked_to_stop.is_some());
            stopping && self.is_alive(member)
        })
    }

    /// Whether a member was asked to close while a fault was in force.
    pub fn closed_under_a_fault(&self) -> bool {
        let asked = self.lives().iter().filter_map(|life| life.asked_to_stop);
        let faults = &self.faults().all;
        asked.into_iter().any(|at| {
            faults
                .iter()
                .any(|fault| fault.injecting.n < at.n && fault.healing.is_none_or(|healing| healing.n > at.n))
        })
    }

    /// Whether every member was asked to leave, so that nothing more is to be waited for.
    pub fn everyone_leaves(&self) -> bool {
        let mut members = self.members.keys();
        !self.members.is_empty()
            && members.all(|member| self.life(member).is_some_and(|life| life.asked_to_stop.is_some()))
    }
}

fn asks(requests: &[(String, u64)], apis: &[&str]) -> bool {
    requests
        .iter()
        .any(|(api, count)| *count > 0 && apis.contains(&api.as_str()))
}
