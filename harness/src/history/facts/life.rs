//! One life of a reader: one reader object in one process, from its start to its end.

use std::collections::BTreeMap;

use brokerfall_report::exception::{Exception, Origin};
use brokerfall_report::protocol::Claims;

use super::Moment;

/// How long the parts of an honest end may lie apart: the end and the exception that it is told with, in either order.
/// Claims made later than this after an end are claims of a dead reader.
const TOGETHER_US: u64 = 5_000_000;

/// Records that a reader still flushes this long after it said that it ended were handed over before.
const FLUSH_US: u64 = 500_000;

/// A state that heartbeats tell may be this old: their pause, and a little for their way.
const HEARTBEAT_US: u64 = 300_000;

/// Words for a status that a reader does not come back from by itself. Statuses are verbatim, so this list is of
/// spellings, compared without case; a reader that leaves such a status again was not at its end.
const TERMINAL: [&str; 8] = [
    "failed",
    "dead",
    "fatal",
    "crashed",
    "error",
    "terminated",
    "errored",
    "broken",
];

/// One reader object of one process.
#[derive(Debug, Clone, PartialEq)]
pub struct Life {
    /// Member, also the `client.id`.
    pub member: String,
    /// Which process of the run, from 0.
    pub process: usize,
    /// Incarnation within the process; 0 until it says otherwise.
    pub inc: u32,
    /// When it began.
    pub born: Moment,
    /// When the next life of the member began.
    pub over: Option<Moment>,
    /// When the library's own start call returned.
    pub started: Option<Moment>,
    /// When the harness asked it to stop.
    pub asked_to_stop: Option<Moment>,
    /// When the harness asked for a fresh object in its place; absent again once a restart that kept the incarnation is
    /// answered. A life that is never replaced is still the patient.
    pub asked_to_restart: Option<Moment>,
    /// How its process ended.
    pub exit: Option<Exit>,
    /// It was seen to tell offsets of records.
    pub tells_offsets: bool,
    /// It was seen to tell ids of records.
    pub tells_ids: bool,
    /// It sends `status` events; the state in its heartbeats is then only an echo or the adapter's own word.
    pub tells_status: bool,
    /// Records that it told, duplicates included.
    pub records: u64,
    /// Keys dropped that it told without a record.
    pub keys_deleted: u64,
    /// Changes of the status, verbatim, from `status` events and heartbeats.
    pub status: Vec<(Moment, String)>,
    /// Claims, one entry per change, with the last time each was repeated.
    pub claims: Vec<Claimed>,
    /// What was answered for each claim of the user's own, by name, in the same form.
    pub answered: BTreeMap<String, Vec<Claimed>>,
    /// `caught_up` events.
    pub caught_up: Vec<Moment>,
    /// The last heartbeat.
    pub last_heartbeat: Option<Moment>,
    /// Changes of the library's own count of callback errors.
    pub callback_errors: Vec<(Moment, f64)>,
    /// What its process group used, as sampled.
    pub usage: Vec<Usage>,
    /// When it was blocked: since, and until (absent while it is).
    pub blocked: Vec<(u64, Option<u64>)>,
    /// Blocking calls that came back: when, which, and whether with an error.
    pub returned: Vec<(Moment, String, bool)>,
    /// The signs of its end.
    pub(super) signs: Signs,
}

/// What a process group used at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// When.
    pub at: Moment,
    /// CPU time so far, milliseconds.
    pub cpu_ms: u64,
    /// Resident memory, KiB.
    pub rss_kib: u64,
    /// Open file descriptors.
    pub descriptors: u64,
    /// For how long its threads, added up, were ready to run and had no core so far, milliseconds.
    pub waited_ms: Option<u64>,
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// When.
    pub at: Moment,
    /// Exit status.
    pub code: Option<i32>,
    /// Signal.
    pub signal: Option<i32>,
    /// The harness asked for it.
    pub asked: bool,
}

/// A claim and how long it was repeated.
#[derive(Debug, Clone, PartialEq)]
pub struct Claimed {
    /// First time.
    pub from: Moment,
    /// Last time.
    pub until: Moment,
    /// What.
    pub claims: Claims,
}

/// What a reader showed of its end so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Signs {
    start_failed: Option<(Moment, Option<Exception>)>,
    fatal: Option<(Moment, Exception)>,
    fatal_in_log: Option<Moment>,
    stopped: Option<(Moment, String, Option<Exception>)>,
    returned: Option<(Moment, String, Option<Exception>)>,
    status: Option<(Moment, String)>,
    claimed_after: Option<Moment>,
}

/// How a reader ended by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HowEnded {
    /// It handed the caller a typed exception.
    Honest,
    /// Without a word, or with a word that only a log holds.
    Silent,
    /// Its process ended with an error status or a signal, and no typed exception reached the caller.
    Process,
}

/// The end of a reader that nobody asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended<'a> {
    /// Member.
    pub member: &'a str,
    /// When, on the run's clock.
    pub at_us: u64,
    /// The event that shows it.
    pub event: u64,
    /// How.
    pub how: HowEnded,
    /// What it handed the caller.
    pub exception: Option<&'a Exception>,
    /// The library said that it was the end (a fatal error, an exception with `stopped`, a raising start call).
    pub fatal: bool,
    /// What was seen, as the end of a sentence that begins with the reader's name.
    pub text: String,
    /// The event of a claim to be healthy that it made after its end.
    pub claimed_after: Option<u64>,
}

impl Life {
    pub(super) fn new(member: &str, process: usize, inc: u32, born: Moment) -> Self {
        Self {
            member: member.to_owned(),
            process,
            inc,
            born,
            over: None,
            started: None,
            asked_to_stop: None,
            asked_to_restart: None,
            exit: None,
            tells_offsets: false,
            tells_ids: false,
            tells_status: false,
            records: 0,
            keys_deleted: 0,
            status: Vec::new(),
            claims: Vec::new(),
            answered: BTreeMap::new(),
            caught_up: Vec::new(),
            last_heartbeat: None,
            callback_errors: Vec::new(),
            usage: Vec::new(),
            blocked: Vec::new(),
            returned: Vec::new(),
            signs: Signs::default(),
        }
    }

    /// The last status shown.
    pub fn status_now(&self) -> Option<&str> {
        self.status.last().map(|(_, state)| state.as_str())
    }

    /// Whether it says that it has not caught up, and never said before a moment that it had.
    pub(crate) fn hangs_at_the_end(&self, until: Moment) -> bool {
        let claims = self.claims.iter().filter(|claimed| claimed.from.n < until.n);
        let told: Vec<bool> = claims.filter_map(|claimed| claimed.claims.caught_up).collect();
        let said = told.contains(&true) || self.caught_up.iter().any(|at| at.n < until.n);
        !told.is_empty() && !said
    }

    /// What it first showed since `mark` that no reader shows that comes up or goes on: a status that is terminal, follows
    /// better days, or comes with the claim not to be healthy; or such a claim; or being blocked.
    pub(super) fn upset_since(&self, mark: Moment) -> Option<(Moment, String)> {
        // A reader that says when it has caught up is on its way until then, however healthy it calls itself.
        let tells_end =
            !self.caught_up.is_empty() || self.claims.iter().any(|claimed| claimed.claims.caught_up.is_some());
        let well = |claims: &Claims| match tells_end {
            true => claims.caught_up == Some(true),
            false => claims.healthy == Some(true),
        };
        let was_well = |at: Moment| {
            // The status that goes with being well comes at the same time.
            let before = |seen: Moment| seen.n < at.n && seen.us.saturating_add(HEARTBEAT_US) < at.us;
            self.caught_up.iter().any(|seen| before(*seen))
                || self
                    .claims
                    .iter()
                    .any(|claimed| before(claimed.from) && well(&claimed.claims))
        };
        let unwell = |claimed: &&Claimed| claimed.from.n >= mark.n && claimed.claims.healthy == Some(false);
        let unwell_from = self.claims.iter().find(unwell).map(|claimed| claimed.from);
        let last_before = |at: Moment| self.status.iter().rfind(|(status, _)| status.n <= at.n);
        let unwell_status = unwell_from.and_then(last_before).map(|(at, _)| *at);
        // What only heartbeats tell may have been so before: they come every 250 ms.
        let is_old = |at: Moment| !self.tells_status && at.us < mark.us.saturating_add(HEARTBEAT_US);
        let status = self.status.iter().enumerate().find(|(i, (at, state))| {
            let left_better = was_well(*at) && !is_old(*at);
            at.n >= mark.n && (is_terminal(state) || (*i > 0 && (left_better || unwell_status == Some(*at))))
        });
        let status = status.map(|(_, (at, state))| (*at, format!("showed the status `{}`", shown(state))));
        let claim = unwell_from.map(|at| (at, "claimed not to be healthy any more".to_owned()));
        let blocked = self.blocked.iter().find(|(since, _)| *since >= mark.us);
        let blocked = blocked.map(|&(us, _)| (Moment { n: mark.n, us }, "gave no sign of life".to_owned()));
        [status, claim, blocked]
            .into_iter()
            .flatten()
            .min_by_key(|(at, _)| at.us)
    }

    /// Whether the harness asked it to close, so that closing is no sign of anything.
    fn is_closing(&self) -> bool {
        self.asked_to_stop.is_some() || self.asked_to_restart.is_some()
    }

    pub(super) fn saw_status(&mut self, at: Moment, state: &str) {
        if self.status_now() == Some(state) {
            return;
        }
        self.status.push((at, state.to_owned()));
        if !is_terminal(state) {
            self.signs.status = None;
            return;
        }
        self.signs.status = Some((at, state.to_owned()));
    }

    /// What was answered for one of the user's own claims.
    pub(super) fn saw_answer(&mut self, at: Moment, name: &str, healthy: bool) {
        let claims = Claims {
            healthy: Some(healthy),
            ..Claims::default()
        };
        match self.answered.get_mut(name) {
            Some(answers) => said(answers, at, &claims),
            None => said(self.answered.entry(name.to_owned()).or_default(), at, &claims),
        }
    }

    pub(super) fn saw_claims(&mut self, at: Moment, claims: &Claims) {
        said(&mut self.claims, at, claims);
        if claims.healthy == Some(true)
            && self.signs.claimed_after.is_none()
            && self
                .signs
                .earliest()
                .is_some_and(|end| at.us > end.us.saturating_add(TOGETHER_US))
        {
            self.signs.claimed_after = Some(at);
        }
    }

    pub(super) fn saw_error(&mut self, at: Moment, origin: Origin, fatal: bool, exception: &Exception) {
        if origin == Origin::Log {
            if fatal {
                self.signs.fatal_in_log.get_or_insert(at);
            }
            return;
        }
        // What is not fatal was waited out, and says nothing of an end that comes later.
        if fatal && self.signs.fatal.is_none() {
            self.signs.fatal = Some((at, exception.clone()));
        }
    }

    pub(super) fn saw_start_fail(&mut self, at: Moment, exception: Option<&Exception>) {
        self.signs.start_failed = Some((at, exception.cloned()));
    }

    pub(super) fn saw_stopped(&mut self, at: Moment, reason: &str, exception: Option<&Exception>) {
        if !self.is_closing() {
            self.signs.stopped = Some((at, reason.to_owned(), exception.cloned()));
        }
    }

    pub(super) fn saw_returned(&mut self, at: Moment, call: &str, exception: Option<&Exception>) {
        self.returned.push((at, call.to_owned(), exception.is_some()));
        if !self.is_closing() {
            self.signs.returned = Some((at, call.to_owned(), exception.cloned()));
        }
    }

    /// The reader reads (again): what looked like its end was none.
    pub(super) fn saw_reading(&mut self, at: Moment) {
        let over = |sign: Moment| at.us > sign.us.saturating_add(FLUSH_US);
        let signs = &mut self.signs;
        signs.start_failed.take_if(|(sign, _)| over(*sign));
        signs.fatal.take_if(|(sign, _)| over(*sign));
        signs.stopped.take_if(|(sign, _, _)| over(*sign));
        signs.returned.take_if(|(sign, _, _)| over(*sign));
        signs.status.take_if(|(sign, _)| over(*sign));
    }

    /// The reading loop turned at this time: a call that came back before was called again.
    pub(super) fn saw_loop_turn(&mut self, turned_us: u64) {
        self.signs
            .returned
            .take_if(|(sign, _, _)| turned_us > sign.us.saturating_add(FLUSH_US));
    }

    /// The end of this life, if it ended by itself. `calm_us` is how long the path has been open without a fault, and
    /// `within_us` the recovery window: a call that came back is an end only when nothing follows it for that long,
    /// because a reader that loops around the call waits between two calls.
    pub(super) fn ended(&self, calm_us: u64, now_us: u64, within_us: u64) -> Option<Ended<'_>> {
        let signs = &self.signs;
        let unasked_exit = self
            .exit
            .as_ref()
            .filter(|exit| !exit.asked && self.asked_to_stop.is_none());
        let exit_at = unasked_exit.map(|exit| exit.at);
        let certain = [signs.earliest(), exit_at].into_iter().flatten().min();
        let returned = signs.returned.as_ref();
        let at = match (certain, returned) {
            (Some(at), _) => at,
            (None, Some((at, _, _))) if calm_us.min(now_us.saturating_sub(at.us)) >= within_us => *at,
            _ => return None,
        };
        // An exception that comes long after the reader was seen to have ended is no answer to why.
        let in_time = |told: Moment| told.us <= at.us.saturating_add(TOGETHER_US);
        let exception = (signs.stopped.as_ref().filter(|(told, ..)| in_time(*told)))
            .and_then(|(_, _, e)| e.as_ref())
            .or(signs.fatal.as_ref().filter(|(told, _)| in_time(*told)).map(|(_, e)| e))
            .or(signs
                .start_failed
                .as_ref()
                .filter(|(told, _)| in_time(*told))
                .and_then(|(_, e)| e.as_ref()))
            .or(returned
                .filter(|(told, ..)| in_time(*told))
                .and_then(|(_, _, e)| e.as_ref()));
        let crashed = unasked_exit.is_some_and(|exit| exit.code != Some(0));
        let how = match exception {
            Some(_) if signs.claimed_after.is_none() => HowEnded::Honest,
            None if crashed => HowEnded::Process,
            _ => HowEnded::Silent,
        };
        Some(Ended {
            member: &self.member,
            at_us: at.us,
            event: at.n,
            how,
            exception,
            fatal: signs.fatal.is_some()
                || signs.start_failed.is_some()
                || signs.stopped.as_ref().is_some_and(|(_, _, e)| e.is_some()),
            text: self.end_text(unasked_exit, exception),
            claimed_after: signs.claimed_after.map(|at| at.n),
        })
    }

    fn end_text(&self, exit: Option<&Exit>, exception: Option<&Exception>) -> String {
        let signs = &self.signs;
        let what = if let Some((_, state)) = &signs.status {
            format!("shows the status `{}`", shown(state))
        } else if signs.start_failed.is_some() {
            "did not start: its start call failed".to_owned()
        } else if let Some((_, reason, _)) = &signs.stopped {
            format!("stopped (`{}`)", shown(reason))
        } else if signs.fatal.is_some() {
            "reported a fatal error".to_owned()
        } else if let Some(exit) = exit {
            match (exit.code, exit.signal) {
                (_, Some(signal)) => format!("was ended by signal {signal}"),
                (Some(code), None) => format!("exited with status {code}"),
                (None, None) => "exited".to_owned(),
            }
        } else if let Some((_, call, _)) = &signs.returned {
            format!("came back from `{}` and read no more", shown(call))
        } else {
            "ended".to_owned()
        };
        match (exception, signs.fatal_in_log) {
            (Some(exception), _) => format!("{what} with {}", exception.label()),
            (None, Some(_)) => format!("{what}; its error stood in the log alone"),
            (None, None) => format!("{what} without an exception"),
        }
    }
}

impl Signs {
    /// When the first certain sign of an end was seen.
    fn earliest(&self) -> Option<Moment> {
        [
            self.start_failed.as_ref().map(|(at, _)| *at),
            self.fatal.as_ref().map(|(at, _)| *at),
            self.stopped.as_ref().map(|(at, _, _)| *at),
            self.status.as_ref().map(|(at, _)| *at),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

/// A claim that is repeated goes on; any other begins.
fn said(list: &mut Vec<Claimed>, at: Moment, claims: &Claims) {
    match list.last_mut() {
        Some(last) if last.claims == *claims => last.until = at,
        _ => list.push(Claimed {
            from: at,
            until: at,
            claims: claims.clone(),
        }),
    }
}

/// Whether a status word says that the reader does not come back by itself.
fn is_terminal(state: &str) -> bool {
    TERMINAL.iter().any(|word| state.eq_ignore_ascii_case(word))
}

/// Untrusted text as a sentence can hold it: control characters out, 80 characters at most.
pub fn shown(text: &str) -> String {
    let mut clean: String = text
        .chars()
        .take(80)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if text.chars().nth(80).is_some() {
        clean.push('…');
    }
    clean
}
