//! What the run loop asks while the run goes on, beside what the invariants ask too.

use brokerfall_report::exception::Origin;
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
            let label = self.seen().values().find(|seen| seen.first == *at);
            let label = label.map_or_else(|| "an error again".to_owned(), |seen| shown(&seen.exception.label()));
            let how = if *origin == Origin::Log { "logged" } else { "reported" };
            (*at, format!("{member} {how} {label}"))
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
        // A connection that never said whose it is may be the harness's own probe of a port.
        let anew = self.wire().connections.iter().find(|connection| {
            connection.at.n >= mark.n && connection.change == ConnectionChange::Opened && !connection.client.is_empty()
        });
        signs.extend(anew.map(|connection| (connection.at, format!("{} connected anew", shown(&connection.client)))));
        let end = self.end();
        signs.retain(|(at, _)| at.n < end.n);
        let first = signs.into_iter().min_by_key(|(at, _)| *at).map(|(_, text)| text);
        first.or_else(|| self.standing_since(mark))
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
