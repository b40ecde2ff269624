//! The three columns: wire, raised, claimed.

use std::collections::{BTreeMap, BTreeSet};

use super::{ColumnLine, Columns};
use crate::exception::{Exception, Origin};
use crate::history::{ConnectionChange, Event, GroupChange};
use crate::mask::mask;
use crate::protocol::{Claims, ReaderEvent};
use crate::words;

/// Silence on the wire for longer than this is named: it is how a reader that gave up differs from one that still tries.
const SILENCE_US: u64 = 2_000_000;

/// Collects the columns while a history goes by. It is told when the first fault begins and when judging ends.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    fault_us: Option<u64>,
    wire: Tally,
    harmed: Tally,
    traffic: Tally,
    requests_sum: Option<ColumnLine>,
    requests: BTreeMap<String, u64>,
    requests_since_us: Option<u64>,
    last_request_us: Option<u64>,
    raised: Vec<Raised>,
    returned: Tally,
    commands: BTreeMap<(String, u64), String>,
    claimed: Tally,
    claims: BTreeMap<String, Claim>,
    /// The last answer for each claim of the user's own, by member and name.
    answers: BTreeMap<(String, String), Answer>,
    /// Members that tell a change of their status as it happens.
    tell_status: BTreeSet<String>,
    /// Numbers of the events in which a barrier was answered with `reached`.
    pub(super) barriers: BTreeSet<u64>,
}

/// An exception with every way in which it surfaced.
#[derive(Debug)]
struct Raised {
    chain: String,
    masked: String,
    text: String,
    routes: Vec<(String, u64)>,
    rank: Rank,
    first_s: Option<f64>,
}

/// How near an exception came to the caller.
#[derive(Debug, Clone, Copy)]
struct Rank {
    fatal: bool,
    reached_caller: bool,
}

impl Rank {
    const ANSWER: Rank = Rank {
        fatal: false,
        reached_caller: true,
    };
    const LAST_WORD: Rank = Rank {
        fatal: true,
        reached_caller: true,
    };
}

/// What a member claimed last.
#[derive(Debug)]
struct Claim {
    state: String,
    claims: Claims,
    at_us: u64,
    ended: Option<String>,
}

/// What was answered for a claim of the user's own.
#[derive(Debug)]
struct Answer {
    healthy: bool,
    text: String,
}

/// Lines in the order of their first time, with counts.
#[derive(Debug, Default)]
struct Tally {
    lines: Vec<ColumnLine>,
}

impl Tally {
    fn add(&mut self, text: String, count: u64, first_s: Option<f64>) {
        match self.lines.iter_mut().find(|line| line.text == text) {
            Some(line) => line.count = line.count.saturating_add(count),
            None => self.lines.push(ColumnLine { text, count, first_s }),
        }
    }
}

/// Seconds with milliseconds.
pub(super) fn seconds(us: u64) -> f64 {
    (us as f64 / 1000.0).round() / 1000.0
}

impl Gathering {
    fn since_fault(&self, at_us: u64) -> Option<f64> {
        self.fault_us.map(|fault| seconds(at_us.saturating_sub(fault)))
    }

    /// The first fault begins: what stood before it is the reader's healthy face.
    pub(super) fn fault_begins(&mut self, at_us: u64) {
        let told = self.claims.iter().map(|(member, claim)| (member, claim.text(false)));
        let answered = self
            .answers
            .iter()
            .map(|((member, name), answer)| (member, answer.words(name)));
        let before: Vec<_> = told
            .chain(answered)
            .map(|(member, text)| format!("{}before the fault {text}", self.prefix(member)))
            .collect();
        for text in before {
            self.claimed.add(text, 1, None);
        }
        self.fault_us = Some(at_us);
    }

    /// Takes in one event of the time that is judged.
    pub(super) fn observe(&mut self, n: u64, at_us: u64, event: &Event) {
        let first_s = self.since_fault(at_us);
        match event {
            Event::Wire {
                span_us,
                requests,
                connects,
                ..
            } => {
                if *connects > 0 || requests.values().any(|n| *n > 0) {
                    self.last_request_us = Some(at_us);
                }
                self.requests_since_us.get_or_insert(at_us.saturating_sub(*span_us));
                for (api, count) in requests {
                    let sum = self.requests.entry(api.clone()).or_default();
                    *sum = sum.saturating_add(*count);
                }
            }
            Event::WireError {
                api,
                code,
                injected_by,
                count,
                ..
            } => {
                let by = injected_by
                    .as_ref()
                    .map_or(String::new(), |fault| format!(", put there by {fault}"));
                self.wire.add(
                    format!("{api} answered {} ({}{by})", code.name, code.value),
                    *count,
                    first_s,
                );
            }
            // Connections that a healthy reader opens say nothing; those since the fault do.
            // One that never said whose it is may be the harness's own probe of a port.
            Event::WireConnection {
                client, change, count, ..
            } => {
                let text = words::connection(*change).to_owned();
                match change {
                    ConnectionChange::Opened | ConnectionChange::ClosedByClient => {
                        if self.fault_us.is_some() && !client.is_empty() {
                            self.traffic.add(text, *count, first_s);
                        }
                    }
                    _ => self.harmed.add(text, *count, first_s),
                }
            }
            Event::WireGroup {
                change: GroupChange::Gone { how },
                client,
                ..
            } => self.wire.add(format!("{client} left the group ({how})"), 1, first_s),
            Event::WireGroup {
                change: GroupChange::Joined { .. },
                client,
                ..
            } if self.fault_us.is_some() => self.wire.add(format!("{client} joined the group"), 1, first_s),
            Event::WireCommit { code, .. } if *code != 0 => {
                self.wire.add(format!("OffsetCommit answered error {code}"), 1, first_s);
            }
            Event::Asked {
                member, id, command, ..
            } => {
                self.commands.insert((member.clone(), *id), command.clone());
            }
            Event::Reader { member, event, .. } => {
                self.raised(at_us, member, event);
                self.claimed(n, at_us, member, event);
            }
            Event::Exited {
                member,
                code,
                signal,
                asked,
                ..
            } => {
                let how = exit(*code, *signal);
                let by = if *asked { " (asked to)" } else { "" };
                let text = format!("{}process ended with {how}{by}", self.prefix(member));
                self.claimed.add(text, 1, first_s);
                if let Some(claim) = self.claims.get_mut(member) {
                    claim.ended = Some(format!("process ended with {how}{by}"));
                }
            }
            Event::ReaderBlocked { member, since_us } => {
                let text = format!("{}no sign of life", self.prefix(member));
                self.claimed.add(text, 1, self.since_fault(*since_us));
            }
            Event::Spawned { member, .. } => {
                self.claims.remove(member);
                self.answers.retain(|(of, _), _| of != member);
            }
            Event::Claim {
                member,
                name,
                healthy,
                text,
            } => self.answered(at_us, member, name, *healthy, text),
            _ => {}
        }
    }

    /// Exceptions of any time at which the patient lived, closing included.
    pub(super) fn raised(&mut self, at_us: u64, member: &str, event: &ReaderEvent) {
        let (exception, route, of, count) = match event {
            ReaderEvent::Error {
                origin,
                fatal,
                exception,
                count,
            } => {
                let word = if *fatal { ", fatal" } else { "" };
                let of = Rank {
                    fatal: *fatal,
                    reached_caller: *origin != Origin::Log,
                };
                (exception, format!("{}{word}", words::origin(*origin)), of, *count)
            }
            ReaderEvent::Stopped {
                exception: Some(exception),
                ..
            } => (
                exception,
                "given as the reason of its end".to_owned(),
                Rank::LAST_WORD,
                1,
            ),
            ReaderEvent::Returned {
                call,
                error: Some(exception),
                ..
            } => (exception, format!("returned by {call}"), Rank::ANSWER, 1),
            ReaderEvent::Returned { call, error: None, .. } => {
                let text = format!("{call} returned without an error");
                self.returned.add(text, 1, self.since_fault(at_us));
                return;
            }
            ReaderEvent::Done(done) => {
                let Some(exception) = &done.error else { return };
                let command = self.commands.get(&(member.to_owned(), done.id));
                let command = command.map_or("a command", String::as_str);
                (exception, format!("answer to {command}"), Rank::ANSWER, 1)
            }
            _ => return,
        };
        self.add_raised(at_us, exception, route, of, count);
    }

    fn add_raised(&mut self, at_us: u64, exception: &Exception, route: String, of: Rank, count: u64) {
        // Codes are part of the chain and told apart; only messages are masked.
        let (chain, text) = (exception.chain(), with_messages(exception));
        let first_s = self.since_fault(at_us);
        // Masking takes its time, and most are the same to the letter.
        let mut known = self
            .raised
            .iter()
            .position(|known| known.chain == chain && known.text == text);
        let mut masked = String::new();
        if known.is_none() {
            masked = mask(&text);
            let same = |known: &Raised| known.chain == chain && known.masked == masked;
            known = self.raised.iter().position(same);
        }
        match known.and_then(|known| self.raised.get_mut(known)) {
            Some(known) => {
                known.rank.fatal |= of.fatal;
                known.rank.reached_caller |= of.reached_caller;
                match known.routes.iter_mut().find(|(name, _)| *name == route) {
                    Some((_, times)) => *times = times.saturating_add(count),
                    None => known.routes.push((route, count)),
                }
            }
            None => self.raised.push(Raised {
                chain,
                masked,
                text,
                routes: vec![(route, count)],
                rank: of,
                first_s,
            }),
        }
    }

    fn claimed(&mut self, n: u64, at_us: u64, member: &str, event: &ReaderEvent) {
        let first_s = self.since_fault(at_us);
        match event {
            ReaderEvent::Heartbeat(heartbeat) => self.claims_now(member, &heartbeat.state, &heartbeat.claims, at_us),
            ReaderEvent::Status { state, detail } => {
                if !self.tell_status.contains(member) {
                    self.tell_status.insert(member.to_owned());
                }
                let known = self.claims.get_mut(member);
                let changed = known.as_ref().is_none_or(|claim| claim.state != *state);
                if let Some(claim) = known {
                    claim.state.clone_from(state);
                }
                if (changed && self.fault_us.is_some()) || !detail.is_empty() {
                    let detail = if detail.is_empty() {
                        String::new()
                    } else {
                        format!(": {detail}")
                    };
                    self.claimed
                        .add(format!("{}status \"{state}\"{detail}", self.prefix(member)), 1, first_s);
                }
            }
            ReaderEvent::Stopped { reason, .. } => {
                self.claimed.add(
                    format!("{}stopped, saying \"{reason}\"", self.prefix(member)),
                    1,
                    first_s,
                );
            }
            ReaderEvent::Done(done) => {
                let command = self
                    .commands
                    .get(&(member.to_owned(), done.id))
                    .map_or("", String::as_str);
                let Some(reached) = done.reached else { return };
                if reached && command == "barrier" {
                    self.barriers.insert(n);
                }
                let reached = if reached { "reached" } else { "not reached" };
                self.claimed
                    .add(format!("{}{command} {reached}", self.prefix(member)), 1, first_s);
            }
            _ => {}
        }
    }

    fn claims_now(&mut self, member: &str, state: &str, claims: &Claims, at_us: u64) {
        // Until it says otherwise, a reader is taken not to have caught up.
        let caught_up = |claims: &Claims| claims.caught_up.unwrap_or(false);
        let changed = match self.claims.get(member) {
            None => caught_up(claims) || claims.healthy.is_some(),
            Some(known) => {
                let told = self.tell_status.contains(member);
                caught_up(&known.claims) != caught_up(claims)
                    || known.claims.healthy != claims.healthy
                    || (known.state != state && !told)
            }
        };
        let claim = Claim {
            state: state.to_owned(),
            claims: claims.clone(),
            at_us,
            ended: None,
        };
        if changed && self.fault_us.is_some() {
            let text = format!("{}{}", self.prefix(member), claim.text(false));
            self.claimed.add(text, 1, self.since_fault(at_us));
        }
        self.claims.insert(member.to_owned(), claim);
    }

    fn answered(&mut self, at_us: u64, member: &str, name: &str, healthy: bool, text: &str) {
        let key = (member.to_owned(), name.to_owned());
        let before = self.answers.get(&key).map(|answer| answer.healthy);
        let answer = Answer {
            healthy,
            text: text.to_owned(),
        };
        if before != Some(healthy) && self.fault_us.is_some() {
            let line = format!("{}{}", self.prefix(member), answer.words(name));
            self.claimed.add(line, 1, self.since_fault(at_us));
        }
        self.answers.insert(key, answer);
    }

    /// Members are named only where there are several.
    fn prefix(&self, member: &str) -> String {
        let others = self.claims.keys().any(|known| known != member);
        if others { format!("{member}: ") } else { String::new() }
    }

    /// The time that is judged is over: what the reader claims now stands beside the truth.
    pub(super) fn judging_ends(&mut self, at_us: u64, behind: Option<u64>) {
        let truth = match behind {
            Some(0) => " (truth: not behind)".to_owned(),
            Some(1) => " (truth: 1 record behind)".to_owned(),
            Some(n) => format!(" (truth: {n} records behind)"),
            None => String::new(),
        };
        let last: Vec<_> = self
            .claims
            .iter()
            .map(|(member, claim)| {
                let prefix = self.prefix(member);
                if let Some(how) = &claim.ended {
                    return format!("{prefix}at the end nothing, {how}{truth}");
                }
                let old = at_us.saturating_sub(claim.at_us);
                let old = if old > SILENCE_US {
                    format!(", said {:.1} s before", seconds(old))
                } else {
                    String::new()
                };
                format!("{prefix}at the end {}{old}{truth}", claim.text(true))
            })
            .collect();
        let answered = self.answers.iter().map(|((member, name), answer)| {
            let (prefix, words) = (self.prefix(member), answer.words(name));
            format!("{prefix}at the end {words}{truth}")
        });
        let last: Vec<_> = last.into_iter().chain(answered).collect();
        for text in last {
            self.claimed.add(text, 1, None);
        }
        self.requests_line(at_us);
    }

    fn requests_line(&mut self, at_us: u64) {
        let Some(since) = self.requests_since_us else { return };
        let sum = self.requests.values().copied().fold(0, u64::saturating_add);
        let mut by_api: Vec<_> = self.requests.iter().collect();
        by_api.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        let most: Vec<_> = by_api.iter().take(3).map(|(api, n)| format!("{api} {n}")).collect();
        let silence = at_us.saturating_sub(self.last_request_us.unwrap_or(since));
        let end = if silence > SILENCE_US {
            format!("none in the last {:.1} s", seconds(silence))
        } else {
            "still asking at the end".to_owned()
        };
        let per_s = sum as f64 / seconds(at_us.saturating_sub(since)).max(0.001);
        let text = format!("{sum} requests ({}), {per_s:.1}/s, {end}", most.join(", "));
        self.requests_sum = Some(ColumnLine {
            text,
            count: sum,
            first_s: None,
        });
    }

    /// The columns.
    pub(super) fn finish(mut self) -> Columns {
        let mut raised = Vec::new();
        if !self.raised.iter().any(|line| line.rank.reached_caller) {
            raised.push(ColumnLine {
                text: "none raised".to_owned(),
                count: 0,
                first_s: None,
            });
        }
        raised.extend(self.returned.lines);
        // What ended the reader first, what only its log holds last.
        self.raised
            .sort_by_key(|raised| (!raised.rank.fatal, !raised.rank.reached_caller));
        raised.extend(self.raised.into_iter().map(Raised::line));
        // What a broker said explains more than what became of connections, and harm more than coming and going.
        let mut wire = self.wire.lines;
        wire.extend(self.harmed.lines);
        wire.extend(self.traffic.lines);
        wire.extend(self.requests_sum);
        Columns {
            wire,
            raised,
            claimed: self.claimed.lines,
        }
    }
}

impl Raised {
    fn line(mut self) -> ColumnLine {
        let in_log = words::origin(Origin::Log);
        let several = self.routes.len() > 1;
        // Where the caller met it comes first.
        self.routes.sort_by_key(|(name, _)| name == in_log);
        let routes = self.routes.iter().map(|(name, _)| match name.as_str() {
            name if name == in_log && several => "log",
            name => name,
        });
        let routes: Vec<_> = routes.collect();
        ColumnLine {
            text: format!("{} ({})", self.text, routes.join("; ")),
            // One exception often surfaces by several ways; adding them up would count it twice.
            count: self.routes.iter().map(|(_, count)| *count).max().unwrap_or(0),
            first_s: self.first_s,
        }
    }
}

impl Claim {
    fn text(&self, with_lag: bool) -> String {
        let mut claims = Vec::new();
        claims.extend(
            self.claims
                .caught_up
                .map(|yes| if yes { "caught up" } else { "not caught up" }.to_owned()),
        );
        claims.extend(
            self.claims
                .healthy
                .map(|yes| if yes { "healthy" } else { "not healthy" }.to_owned()),
        );
        claims.extend(self.claims.lag.filter(|_| with_lag).map(|lag| format!("lag {lag}")));
        let claims = if claims.is_empty() {
            String::new()
        } else {
            format!(", claims {}", claims.join(", "))
        };
        format!("\"{}\"{claims}", self.state)
    }
}

impl Answer {
    fn words(&self, name: &str) -> String {
        let says = if self.healthy { "healthy" } else { "not healthy" };
        format!("{name} {says} ({})", self.text)
    }
}

/// The chain with the message of every exception in it.
fn with_messages(exception: &Exception) -> String {
    let parts = exception
        .preorder()
        .into_iter()
        .map(|part| match part.message.as_str() {
            "" => part.label(),
            message => format!("{}: {message}", part.label()),
        });
    parts.collect::<Vec<_>>().join(" <- ")
}

/// How a process ended, as words.
pub(super) fn exit(code: Option<i32>, signal: Option<i32>) -> String {
    match (code, signal) {
        (_, Some(signal)) => format!("signal {signal}"),
        (Some(code), None) => format!("status {code}"),
        (None, None) => "an unknown status".to_owned(),
    }
}
