//! Which signal would have told: seconds from the first fault to the first telling, or never.

use std::collections::BTreeMap;

use super::SignalReport;
use super::columns::{exit, seconds};
use super::lag::Lag;
use crate::exception::{Exception, Origin};
use crate::history::{Event, GroupChange, Phase};
use crate::protocol::{Claims, ReaderEvent};

/// A lag that stands still this long is what an alert would fire on; shorter ones are ordinary reading.
const STANDING_US: u64 = 1_000_000;
/// The same for a reader that has not moved yet: starting takes some of it.
const STARTING_US: u64 = 5_000_000;
/// What a heartbeat tells may be this old: the pause between two, and a little for its way.
const HEARTBEAT_US: u64 = 300_000;

/// The signals of a run, in the order of the report.
#[derive(Debug, Default)]
pub(super) struct Signals {
    fault_us: Option<u64>,
    /// The reader had caught up before the first fault, by the plan.
    live: bool,
    /// Changes of the status tell something: the reader was well before, or has said that it is not.
    settled: bool,
    /// A change of the status while it came up, which tells something only if it turns out to be unwell.
    coming_up: Option<Told>,
    /// When it was well for the first time.
    well_us: Option<u64>,
    state: Option<String>,
    claims: Option<Claims>,
    makes_claims: bool,
    exit: Option<Told>,
    liveness: Option<Told>,
    error: Option<Told>,
    status: Option<Told>,
    claim: Option<Told>,
    /// Claims of the user's own by name: whether the last answer was healthy, and when one first was not.
    answers: BTreeMap<String, (bool, Option<Told>)>,
    log: Option<Told>,
    group: Option<Told>,
    lag: Option<Told>,
}

#[derive(Debug)]
struct Told {
    at_us: u64,
    text: String,
}

fn tell(slot: &mut Option<Told>, at_us: u64, text: impl FnOnce() -> String) {
    if slot.is_none() {
        *slot = Some(Told { at_us, text: text() });
    }
}

impl Signals {
    pub(super) fn fault_begins(&mut self, at_us: u64) {
        self.fault_us = Some(at_us);
        self.settled |= self.live;
    }

    /// Takes in one event of the time that is judged; `lag` has taken it in already.
    pub(super) fn observe(&mut self, at_us: u64, event: &Event, lag: &Lag) {
        match event {
            Event::Opened(opened) => self.live = !matches!(opened.phase, Phase::Start | Phase::CatchUp),
            Event::Spawned { .. } => {
                (self.state, self.claims, self.coming_up, self.well_us) = (None, None, None, None);
                self.settled = false;
            }
            Event::Reader { event, .. } => self.reader_said(at_us, event),
            Event::Claim {
                name, healthy, text, ..
            } => self.answered(at_us, name, *healthy, text),
            _ => {}
        }
        let Some(fault_us) = self.fault_us else { return };
        match event {
            Event::Exited {
                code,
                signal,
                asked: false,
                ..
            } => tell(&mut self.exit, at_us, || exit(*code, *signal)),
            Event::ReaderBlocked { since_us, .. } => {
                tell(&mut self.liveness, (*since_us).max(fault_us), || {
                    "no sign of life".to_owned()
                });
            }
            Event::WireGroup {
                change: GroupChange::Gone { how },
                client,
                ..
            } => tell(&mut self.group, at_us, || format!("{client} left ({how})")),
            _ => {}
        }
        self.look_at_lag(at_us, fault_us, lag);
    }

    /// The time that is judged is over: a lag may have been standing since the last event.
    pub(super) fn judging_ends(&mut self, at_us: u64, lag: &Lag) {
        if let Some(fault_us) = self.fault_us {
            self.look_at_lag(at_us, fault_us, lag);
        }
    }

    fn look_at_lag(&mut self, at_us: u64, fault_us: u64, lag: &Lag) {
        let alert_after = if lag.has_moved() { STANDING_US } else { STARTING_US };
        let standing = lag
            .standing_since_us()
            .map(|since| since.max(fault_us).saturating_add(alert_after));
        if let Some(alert_us) = standing.filter(|alert_us| *alert_us <= at_us) {
            let behind = lag.behind().unwrap_or(0);
            tell(&mut self.lag, alert_us, || format!("standing still, {behind} behind"));
        }
    }

    fn reader_said(&mut self, at_us: u64, event: &ReaderEvent) {
        let after_fault = self.fault_us.is_some();
        match event {
            ReaderEvent::Heartbeat(heartbeat) => {
                self.state_now(at_us, &heartbeat.state, self.may_be_old(at_us));
                self.claims_now(at_us, &heartbeat.claims);
            }
            ReaderEvent::Status { state, .. } => self.state_now(at_us, state, false),
            ReaderEvent::CaughtUp => self.is_well(at_us),
            ReaderEvent::Error { origin, exception, .. } if after_fault => match origin {
                Origin::Log => tell(&mut self.log, at_us, || exception.chain()),
                Origin::Reader | Origin::Poll | Origin::Background => self.api_error(at_us, exception),
                // What the user's own callback raised tells the user nothing new of the reader.
                Origin::Callback => {}
            },
            ReaderEvent::Returned { error: Some(error), .. } if after_fault => self.api_error(at_us, error),
            ReaderEvent::Stopped {
                exception: Some(exception),
                ..
            } if after_fault => self.api_error(at_us, exception),
            ReaderEvent::Done(done) if after_fault => {
                if let Some(error) = &done.error {
                    self.api_error(at_us, error);
                }
            }
            _ => {}
        }
    }

    fn api_error(&mut self, at_us: u64, exception: &Exception) {
        tell(&mut self.error, at_us, || exception.chain());
        self.is_unwell();
    }

    fn is_well(&mut self, at_us: u64) {
        self.settled = true;
        if self.well_us.is_none() {
            self.well_us = Some(at_us);
            // The status that goes with being well for the first time tells of no trouble.
            let with_it = |told: &mut Told| at_us.saturating_sub(told.at_us) < HEARTBEAT_US;
            self.status.take_if(with_it);
        }
        self.coming_up = None;
    }

    fn is_unwell(&mut self) {
        self.settled = true;
        if let Some(told) = self.coming_up.take() {
            self.status.get_or_insert(told);
        }
    }

    /// Whether what a heartbeat tells now may have been so before the fault.
    fn may_be_old(&self, at_us: u64) -> bool {
        self.fault_us
            .is_some_and(|fault| at_us < fault.saturating_add(HEARTBEAT_US))
    }

    fn state_now(&mut self, at_us: u64, state: &str, may_be_old: bool) {
        if self.state.as_deref() == Some(state) {
            return;
        }
        let before = self.state.replace(state.to_owned());
        if let (Some(before), true) = (before, self.fault_us.is_some()) {
            let goes_with_it = self
                .well_us
                .is_some_and(|well| at_us < well.saturating_add(HEARTBEAT_US));
            let slot = if self.settled && !may_be_old && !goes_with_it {
                &mut self.status
            } else {
                self.coming_up = None;
                &mut self.coming_up
            };
            tell(slot, at_us, || format!("\"{before}\" became \"{state}\""));
        }
    }

    fn answered(&mut self, at_us: u64, name: &str, healthy: bool, text: &str) {
        let after_fault = self.fault_us.is_some();
        let (was_healthy, told) = self.answers.entry(name.to_owned()).or_default();
        if std::mem::replace(was_healthy, healthy) && !healthy && after_fault {
            tell(told, at_us, || format!("not healthy ({text})"));
        }
    }

    fn claims_now(&mut self, at_us: u64, claims: &Claims) {
        self.makes_claims |= claims.caught_up.is_some() || claims.healthy.is_some() || claims.lag.is_some();
        let before = self.claims.replace(claims.clone()).unwrap_or_default();
        if claims.healthy == Some(false) {
            self.is_unwell();
        } else if claims.caught_up.unwrap_or(claims.healthy == Some(true)) {
            // A reader that says when it has caught up is on its way until then, however healthy it calls itself.
            self.is_well(at_us);
        }
        // A lag of before the fault may be as old; the next heartbeat tells whether it stays.
        let old = self.may_be_old(at_us);
        if let Some(now) = self.claims.as_mut().filter(|_| old) {
            now.lag = before.lag;
        }
        if self.fault_us.is_none() {
            return;
        }
        let lag = claims.lag.filter(|_| !old).unwrap_or(0);
        if before.healthy != Some(false) && claims.healthy == Some(false) {
            tell(&mut self.claim, at_us, || "not healthy".to_owned());
        } else if before.caught_up == Some(true) && claims.caught_up != Some(true) {
            tell(&mut self.claim, at_us, || "no longer caught up".to_owned());
        } else if before.lag.unwrap_or(0) == 0 && lag > 0 {
            tell(&mut self.claim, at_us, || format!("lag {lag}"));
        }
    }

    /// The table; empty when there was no fault.
    pub(super) fn finish(self, in_group: bool) -> Vec<SignalReport> {
        let Some(fault_us) = self.fault_us else {
            return Vec::new();
        };
        let no_claims = if self.makes_claims { "" } else { "it makes no claims" };
        let own = |name: &str| name.to_owned();
        let mut rows = vec![
            (own("process exit"), self.exit, ""),
            (own("liveness"), self.liveness, ""),
            (own("API error"), self.error, ""),
            (own("status"), self.status, ""),
            (own("claims"), self.claim, no_claims),
        ];
        let answers = self.answers.into_iter();
        rows.extend(answers.map(|(name, (_, told))| (format!("claim {name}"), told, "")));
        rows.extend([
            (own("log"), self.log, ""),
            (own("group members"), self.group, ""),
            (own("lag"), self.lag, ""),
        ]);
        rows.into_iter()
            .filter(|(name, told, _)| in_group || told.is_some() || name != "group members")
            .map(|(name, told, otherwise)| SignalReport {
                signal: name,
                told_s: told.as_ref().map(|told| seconds(told.at_us.saturating_sub(fault_us))),
                text: told.map_or_else(|| otherwise.to_owned(), |told| told.text),
            })
            .collect()
    }
}
