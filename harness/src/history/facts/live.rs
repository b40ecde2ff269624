//! What the run loop asks while the run goes on, beside what the invariants ask too.

use std::collections::BTreeSet;

use brokerfall_report::exception::{Exception, Origin};
use brokerfall_report::history::{ConnectionChange, Grade};

use super::life::{HowEnded, shown};
use super::{Facts, Moment};

/// Standing still for this long with records waiting is felt; healthy readers of a quick link deliver within 0.3 s.
const STANDING_US: u64 = 1_000_000;

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

    /// Whether some member that lives says that it has not caught up, and never said that it had.
    pub fn hangs_at_the_end(&self) -> bool {
        let mut lives = self.members().keys().filter(|member| self.is_alive(member));
        let later = Moment {
            n: u64::MAX,
            us: u64::MAX,
        };
        lives.any(|member| self.life(member).is_some_and(|life| life.hangs_at_the_end(later)))
    }

    /// Whether some member was told to start and has not answered.
    pub fn start_is_unanswered(&self) -> bool {
        let mut asked = self.asked().iter();
        asked.any(|asked| asked.command == "start" && asked.answer.is_none())
    }

    /// Whether a command of this name was asked of some member that lives, and is not answered.
    pub fn is_in_flight(&self, command: &str) -> bool {
        let of_this_life = |member: &str, n: u64| self.life(member).is_some_and(|life| life.born.n <= n);
        self.asked().iter().any(|asked| {
            asked.command == command
                && asked.answer.is_none()
                && self.is_alive(&asked.member)
                && of_this_life(&asked.member, asked.at.n)
        })
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

    /// How the reader itself showed since `mark` that something was wrong: what came first. Starting up is no such sign,
    /// nor is anything that the harness asked for.
    pub fn reaction_since(&self, mark: Moment) -> Option<String> {
        let mut signs: Vec<(Moment, String)> = Vec::new();
        let first_error = self.errors().iter().find(|(at, ..)| at.n >= mark.n);
        signs.extend(first_error.map(|(at, life, origin, _)| {
            let member = self
                .lives()
                .get(*life)
                .map_or("the reader", |life| life.member.as_str());
            let seen = self.seen().values().find(|seen| seen.first == *at);
            let what = seen.map_or_else(|| "an error again".to_owned(), |seen| described(&seen.exception));
            let how = if *origin == Origin::Log { "logged" } else { "reported" };
            (*at, format!("{member} {how} {what}"))
        }));
        for life in self.lives() {
            let member = &life.member;
            signs.extend(
                life.upset_since(mark)
                    .map(|(at, what)| (at, format!("{member} {what}"))),
            );
            let returned = life.returned.iter().find(|(at, ..)| at.n >= mark.n);
            signs.extend(returned.map(|(at, call, _)| (*at, format!("{} of {member} came back", shown(call)))));
            let exit = life.exit.as_ref().filter(|exit| exit.at.n >= mark.n && !exit.asked);
            signs.extend(exit.map(|exit| (exit.at, format!("the process of {member} ended"))));
        }
        signs.extend(self.connected_anew(mark));
        let end = self.end();
        signs.retain(|(at, _)| at.n < end.n);
        let first = signs.into_iter().min_by_key(|(at, _)| *at).map(|(_, text)| text);
        first.or_else(|| self.standing_since(mark))
    }

    /// The first connection of a client of which one was cut off before; the first ones of a reader that starts are no
    /// sign of anything.
    fn connected_anew(&self, mark: Moment) -> Option<(Moment, String)> {
        let mut cut_off = BTreeSet::new();
        for connection in self.wire().connections.iter().filter(|one| one.at.n >= mark.n) {
            let client = connection.client.as_str();
            match connection.change {
                ConnectionChange::ClosedByBroker
                | ConnectionChange::ResetByLink
                | ConnectionChange::CutInResponse
                | ConnectionChange::ClosedIdle => {
                    cut_off.insert(client);
                }
                // One that never said whose it is may be the harness's own probe of a port.
                ConnectionChange::Opened if !client.is_empty() && cut_off.contains(client) => {
                    return Some((connection.at, format!("{} connected anew", shown(client))));
                }
                _ => {}
            }
        }
        None
    }

    /// Whether the reader has made no progress for a while, with records waiting.
    fn standing_since(&self, mark: Moment) -> Option<String> {
        let born = self.lives().iter().map(|life| life.born.us).max()?;
        let since = mark.us.max(born).max(self.last_progress_us().unwrap_or(0));
        let stood = self.now().us.saturating_sub(since);
        if stood < STANDING_US || self.fixed().is_some() {
            return None;
        }
        let lag = self.lag();
        (lag > 0).then(|| format!("no record arrived for {:.1} s while {lag} waited", stood as f64 / 1e6))
    }
}

/// An exception by its type; a plain line of a log by what it says.
fn described(exception: &Exception) -> String {
    if exception.type_name.starts_with("log:") {
        return format!("`{}`", shown(&exception.message));
    }
    shown(&exception.label())
}

#[cfg(test)]
mod tests {
    use brokerfall_report::exception::Origin;
    use brokerfall_report::history::{ConnectionChange, Entry, Event};
    use brokerfall_report::protocol::{Claims, Kind, ReaderEvent};

    use crate::history::facts::Moment;
    use crate::invariant::support::*;

    fn connection(client: &str, change: ConnectionChange) -> Event {
        Event::WireConnection {
            client: client.to_owned(),
            node: 1,
            change,
            count: 1,
        }
    }

    /// What was felt since the fault, which the histories here inject at 15 ms.
    fn felt(entries: &[Entry]) -> Option<String> {
        let injecting = entries
            .iter()
            .find(|entry| matches!(entry.event, Event::Injecting { .. }))
            .unwrap();
        facts(entries).reaction_since(Moment {
            n: injecting.n + 1,
            us: injecting.at_us,
        })
    }

    #[test]
    fn reader_that_comes_up_under_a_fault_reacts_to_nothing() {
        let entries = history! { with_fault(Kind::Table, "partition");
            0 => produced(1, 10), 5 => spawned("r1"), 15 => injecting("partition"),
            20 => connection("r1", ConnectionChange::Opened), 21 => status("unstarted"), 25 => status("loading"),
            26 => heartbeat("loading", Claims::default()), 30 => connection("r1", ConnectionChange::Opened),
            40 => delivered(1, 10), 45 => status("caught_up"), 50 => heartbeat("caught_up", healthy()),
        };
        assert_eq!(felt(&entries), None);
    }

    #[test]
    fn status_on_the_way_to_the_end_is_no_reaction_however_healthy_the_reader_calls_itself() {
        let loading = Claims {
            healthy: Some(true),
            caught_up: Some(false),
            ..Claims::default()
        };
        let done = Claims {
            caught_up: Some(true),
            ..loading.clone()
        };
        let entries = history! { with_fault(Kind::Table, "partition");
            0 => produced(1, 10), 5 => spawned("r1"), 8 => heartbeat("loading", loading), 15 => injecting("partition"),
            600 => delivered(1, 10), 700 => heartbeat("caught_up", done),
        };
        assert_eq!(felt(&entries), None);
    }

    #[test]
    fn status_that_goes_with_catching_up_is_no_reaction() {
        // The position had caught up when the fault was injected; the reader says so a moment later.
        let entries = history! { with_fault(Kind::Assign, "pause-reader");
            0 => produced(1, 10), 5 => spawned("r1"), 8 => status("catching_up"), 10 => delivered(1, 10),
            15 => injecting("pause-reader"), 16 => says(ReaderEvent::CaughtUp), 16 => status("caught_up"),
        };
        assert_eq!(felt(&entries), None);
    }

    #[test]
    fn state_that_the_first_heartbeat_after_the_fault_tells_may_be_older_than_the_fault() {
        let until = |ms: u64| {
            history! { with_fault(Kind::Table, "partition");
                0 => produced(1, 10), 5 => spawned("r1"), 10 => delivered(1, 10), 12 => heartbeat("caught_up", healthy()),
                15 => injecting("partition"), ms => heartbeat("idle", healthy()),
            }
        };
        assert_eq!(felt(&until(200)), None);
        assert_eq!(felt(&until(400)).unwrap(), "r1 showed the status `idle`");
    }

    #[test]
    fn what_the_harness_does_itself_is_no_reaction() {
        let entries = history! { with_fault(Kind::Table, "pause-broker");
            0 => produced(1, 10), 5 => spawned("r1"), 10 => delivered(1, 10), 15 => injecting("pause-broker"),
            20 => connection("", ConnectionChange::ClosedByBroker), 30 => connection("", ConnectionChange::Opened),
            40 => exited_by("r1", Some(0), None, true),
        };
        assert_eq!(felt(&entries), None);
    }

    #[test]
    fn status_that_comes_with_the_claim_not_to_be_healthy_is_felt() {
        let unwell = Claims {
            healthy: Some(false),
            ..Claims::default()
        };
        let entries = history! { with_fault(Kind::Table, "answer-error");
            0 => produced(1, 10), 5 => spawned("r1"), 15 => injecting("answer-error"), 21 => status("loading"),
            50 => status("degraded"), 60 => heartbeat("degraded", unwell),
        };
        assert_eq!(felt(&entries).unwrap(), "r1 showed the status `degraded`");
    }

    #[test]
    fn sign_that_came_first_is_the_one_that_is_told() {
        let entries = history! { with_fault(Kind::Table, "panic-callback");
            0 => produced(1, 10), 5 => spawned("r1"), 10 => delivered(1, 10), 12 => heartbeat("caught_up", healthy()),
            15 => injecting("panic-callback"), 20 => error(Origin::Log, false, "builtins.ValueError"), 21 => status("failed"),
        };
        assert_eq!(felt(&entries).unwrap(), "r1 logged builtins.ValueError");
    }

    #[test]
    fn connection_after_one_that_was_cut_off_is_felt() {
        let entries = history! { with_fault(Kind::Table, "kill-broker");
            0 => produced(1, 10), 5 => spawned("r1"), 10 => delivered(1, 10), 15 => injecting("kill-broker"),
            16 => connection("r1", ConnectionChange::ClosedByBroker), 900 => connection("r1", ConnectionChange::Opened),
        };
        assert_eq!(felt(&entries).unwrap(), "r1 connected anew");
    }

    #[test]
    fn standing_still_with_records_waiting_is_felt_after_a_second() {
        let until = |ms: u64| {
            history! { with_fault(Kind::Table, "pause-broker");
                0 => produced(1, 10), 5 => spawned("r1"), 10 => delivered(1, 10), 15 => injecting("pause-broker"),
                20 => produced(11, 14), ms => heartbeat("caught_up", healthy()),
            }
        };
        assert_eq!(felt(&until(1014)), None);
        assert_eq!(
            felt(&until(1015)).unwrap(),
            "no record arrived for 1.0 s while 4 waited"
        );
    }
}
