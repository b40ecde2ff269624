//! Which phase of its life a reader is in, as its wire and its deliveries show it: what a fault must hit.

use std::sync::Arc;

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

    /// Records delivered to the readers that members are now.
    fn delivered_in_this_life(&self) -> u64 {
        let lives = self.members.keys().filter_map(|member| self.life(member));
        lives.fold(0, |sum, life| sum.saturating_add(life.records))
    }

    /// Whether a member is asked to commit, or was seen to.
    fn is_committing(&self, now_us: u64) -> bool {
        let recent = |us: u64| now_us.saturating_sub(us) <= COMMITTING_US;
        let windows = self.wire.windows.iter().rev();
        self.is_in_flight("commit")
            || windows
                .take_while(|window| recent(window.at.us))
                .filter(|window| self.members.contains_key(window.client.as_ref()))
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
            .filter(|window| {
                window.client.as_ref() == client && window.at.us.saturating_sub(window.span_us) >= synced.at.us
            })
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

fn asks(requests: &[(Arc<str>, u64)], apis: &[&str]) -> bool {
    requests
        .iter()
        .any(|(api, count)| *count > 0 && apis.contains(&api.as_ref()))
}

#[cfg(test)]
mod tests {
    use brokerfall_report::history::{Entry, Event, GroupChange, Opened, Phase};
    use brokerfall_report::protocol::Kind;

    use crate::invariant::support::*;

    /// Why a strike at this millisecond misses the phase.
    fn missed(phase: Phase, ms: u64, entries: &[Entry]) -> Option<String> {
        facts(entries).missed(phase, ms * 1000)
    }

    fn requests(client: &str, api: &str, span_ms: u64) -> Event {
        Event::Wire {
            client: client.to_owned(),
            span_us: span_ms * 1000,
            requests: [(api.to_owned(), 1)].into(),
            connects: 0,
            fetch_offsets: Vec::new(),
        }
    }

    fn alive(client: &str, generation: i32) -> Event {
        group(client, GroupChange::Alive { generation })
    }

    fn joined(client: &str, generation: i32) -> Event {
        let member_id = client.to_owned();
        group(client, GroupChange::Joined { generation, member_id })
    }

    fn asked_of(member: &str, command: &str) -> Event {
        Event::Asked {
            member: member.to_owned(),
            id: 1,
            command: command.to_owned(),
            within_ms: 1_000,
        }
    }

    /// A group of one that owns its partition since 20 ms.
    fn stable(then: impl IntoIterator<Item = (u64, Event)>) -> Vec<Entry> {
        let mut entries = history! { plan(Kind::Group);
            5 => spawned("r1"), 6 => asked(1, "start"), 12 => requests("r1", "JoinGroup", 10),
            15 => joined("r1", 1), 20 => synced("r1"),
        };
        for (ms, event) in then {
            entries.push(entry(entries.len() as u64, ms, event));
        }
        entries
    }

    #[test]
    fn the_start_is_over_with_the_first_record() {
        let plan: Opened = plan(Kind::Table);
        let entries =
            history! { plan; 0 => produced(1, 10), 5 => spawned("r1"), 6 => asked(1, "start"), 7 => targets(10) };
        assert_eq!(missed(Phase::Start, 8, &entries), None);
        let mut read = entries.clone();
        read.push(entry(5, 9, delivered(1, 3)));
        assert_eq!(
            missed(Phase::Start, 10, &read).unwrap(),
            "the reader had delivered 3 record(s) already"
        );
        // A fresh process starts anew.
        read.push(entry(6, 11, exited_by("r1", None, Some(9), true)));
        read.push(entry(7, 12, spawned("r1")));
        assert_eq!(missed(Phase::Start, 13, &read), None);
    }

    #[test]
    fn the_catch_up_lasts_until_the_targets_are_reached_and_then_the_reader_is_live() {
        let reads = |to: u64| {
            history! { plan(Kind::Table); 0 => produced(1, 10), 5 => spawned("r1"), 7 => targets(10), 9 => delivered(1, to) }
        };
        assert_eq!(missed(Phase::CatchUp, 10, &reads(9)), None);
        assert_eq!(
            missed(Phase::Live, 10, &reads(9)).unwrap(),
            "the reader had not caught up (lag 1)"
        );
        assert_eq!(missed(Phase::CatchUp, 10, &reads(10)).unwrap(), "the catch-up was over");
        assert_eq!(missed(Phase::Live, 10, &reads(10)), None);
    }

    #[test]
    fn a_commit_is_going_on_for_a_second_after_its_request_or_answer_and_while_it_was_asked_for() {
        let none = "no OffsetCommit was seen in the second before";
        assert_eq!(missed(Phase::Commit, 100, &stable([])).unwrap(), none);
        let request = stable([(100, requests("r1", "OffsetCommit", 50))]);
        assert_eq!(missed(Phase::Commit, 1_100, &request), None);
        assert_eq!(missed(Phase::Commit, 1_101, &request).unwrap(), none);
        let answer = stable([(100, wire_commit(3))]);
        assert_eq!(missed(Phase::Commit, 1_100, &answer), None);
        assert_eq!(missed(Phase::Commit, 1_101, &answer).unwrap(), none);
        let asks = stable([(100, asked(2, "commit"))]);
        assert_eq!(missed(Phase::Commit, 5_000, &asks), None);
        let answered = stable([(100, asked(2, "commit")), (110, done(2, None))]);
        assert_eq!(missed(Phase::Commit, 200, &answered).unwrap(), none);
        let other = stable([(100, requests("n1", "OffsetCommit", 50))]);
        assert_eq!(missed(Phase::Commit, 110, &other).unwrap(), none, "a neutral member's");
    }

    #[test]
    fn a_group_rebalances_until_every_member_has_its_partitions_in_one_generation() {
        let none = "every member had its partitions in the same generation";
        assert_eq!(missed(Phase::Rebalance, 100, &stable([])).unwrap(), none);
        assert_eq!(
            missed(Phase::Rebalance, 100, &stable([(90, alive("r1", 1))])).unwrap(),
            none
        );
        // Its own join of before stands in a window that began before its sync.
        let late = stable([(30, requests("r1", "SyncGroup", 18))]);
        assert_eq!(missed(Phase::Rebalance, 100, &late).unwrap(), none);
        let rebalances = [
            (90, requests("r1", "JoinGroup", 10)),
            (90, joined("r1", 2)),
            (90, gone("r1")),
            (90, wire_error(27, "REBALANCE_IN_PROGRESS")),
        ];
        for (ms, event) in rebalances {
            let entries = stable([(ms, event.clone())]);
            assert_eq!(missed(Phase::Rebalance, 100, &entries), None, "{event:?}");
        }
        let second = |then: Vec<(u64, Event)>| {
            let comes = vec![(50, spawned("r2")), (51, asked_of("r2", "start"))];
            stable(comes.into_iter().chain(then))
        };
        assert_eq!(missed(Phase::Rebalance, 100, &second(Vec::new())), None);
        assert_eq!(
            missed(
                Phase::Rebalance,
                100,
                &second(vec![(60, alive("r1", 1)), (61, synced("r2"))])
            )
            .unwrap(),
            none
        );
        let generations = second(vec![(60, synced("r2")), (61, alive("r2", 2))]);
        assert_eq!(missed(Phase::Rebalance, 100, &generations), None);
        // A member that was told to leave is waited for by nobody.
        let leaves = second(vec![(60, asked_of("r2", "stop"))]);
        assert_eq!(missed(Phase::Rebalance, 100, &leaves).unwrap(), none);
        let table = history! { plan(Kind::Table); 5 => spawned("r1"), 6 => asked(1, "start") };
        assert_eq!(missed(Phase::Rebalance, 100, &table).unwrap(), none);
    }

    #[test]
    fn a_reader_closes_from_the_stop_to_the_end_of_its_process() {
        let none = "no `stop` was in flight";
        assert_eq!(missed(Phase::Close, 100, &stable([])).unwrap(), none);
        let stops = stable([(90, asked(2, "stop"))]);
        assert_eq!(missed(Phase::Close, 100, &stops), None);
        let ended = stable([(90, asked(2, "stop")), (95, exited_by("r1", Some(0), None, true))]);
        assert_eq!(missed(Phase::Close, 100, &ended).unwrap(), none);
    }

    #[test]
    fn a_stop_under_a_fault_is_one_between_injection_and_heal() {
        let order = |ms: [u64; 3]| {
            let mut events = [
                (ms[0], injecting("kill-broker")),
                (ms[1], asked(2, "stop")),
                (ms[2], healing()),
            ];
            events.sort_by_key(|(ms, _)| *ms);
            facts(&stable(events)).closed_under_a_fault()
        };
        assert!(order([50, 60, 70]));
        assert!(!order([60, 50, 70]), "asked before");
        assert!(!order([50, 70, 60]), "asked after the heal");
    }

    #[test]
    fn everyone_leaves_once_every_member_was_told_to() {
        assert!(!facts(&stable([])).everyone_leaves());
        assert!(facts(&stable([(90, asked(2, "stop"))])).everyone_leaves());
        assert!(!facts(&stable([(50, spawned("r2")), (90, asked(2, "stop"))])).everyone_leaves());
    }
}
