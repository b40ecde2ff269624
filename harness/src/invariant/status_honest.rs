//! `status_honest`: what the reader says of itself is true.
//!
//! - A barrier that was reached: every record acknowledged before it was asked for is applied, without slack.
//! - `caught_up` (a latch, unless the reader declares it current): only once the initial end is reached.
//! - Healthy, live or ready: not for longer than the recovery window while blocked, ended, or standing still with records
//!   waiting, the path open. A reader that is cut off from its broker may keep its last claim; an idle one stays green.
//!   What an endpoint or program of the user's own says (`[[claim]]`) is judged the same way, beside the adapter's word.
//! - A claimed lag is not below the true one by more than 1,000 records beyond 5 s of load.
//!
//! Half a second is given to the flush of records, which adapters send in lines of their own.

use brokerfall_report::history::Generator;
use brokerfall_report::protocol::{Kind, RECORDS_IDS, RECORDS_OFFSETS};
use brokerfall_report::verdict::{FailureKind, Outcome};

use super::progress::{behind, standstills};
use super::{held, not_applicable, of_kind, owed, runs_text, seconds, undecided, violated};
use crate::history::facts::{Asked, Claimed, Facts, Life, Moment, RunSet};

const FLUSH_US: u64 = 500_000;
/// Retention is seen by a watcher that asks a few times a second.
const WATCHER_US: u64 = 2_000_000;
/// A claim stands until the next heartbeat could have taken it back: two intervals.
const STANDS_US: u64 = 500_000;
const LAG_RECORDS: u64 = 1000;
const LAG_LOAD_US: u64 = 5_000_000;

pub(super) fn judge(facts: &Facts) -> Outcome {
    let mut wrong: Vec<(Vec<u64>, String)> = Vec::new();
    let mut claimed = false;
    claimed |= barriers(facts).next().is_some();
    wrong.extend(false_barrier(facts));
    for (index, life) in facts
        .lives()
        .iter()
        .enumerate()
        .filter(|(index, _)| !facts.is_cure(*index))
    {
        if let Some(at) = first_caught_up(facts, life) {
            claimed = true;
            wrong.extend(early_caught_up(facts, life, at));
        }
        claimed |= life
            .claims
            .iter()
            .any(|c| c.claims.healthy.is_some() || c.claims.lag.is_some());
        claimed |= life.answered.values().any(|answers| answers.iter().any(says_healthy));
        wrong.extend(healthy_while_not(facts, index, life));
        wrong.extend(small_lag(facts, life));
    }
    if wrong.is_empty() {
        return match never_healthy(facts) {
            Some(name) => undecided(format!(
                "the claim `{name}` never said that the reader is healthy, not even before a fault (is it asked at the right \
                 place?)"
            )),
            None if claimed => held(""),
            None => not_applicable("claims or barrier"),
        };
    }
    let events = wrong.iter().flat_map(|(events, _)| events.iter().copied()).collect();
    let texts: Vec<String> = wrong.into_iter().map(|(_, text)| text).collect();
    of_kind(
        violated(events, texts.join("; ")),
        FailureKind::Silent,
        Some(behind(facts)),
    )
}

/// Barriers that the reader says were reached.
fn barriers(facts: &Facts) -> impl Iterator<Item = (&Asked, Moment)> {
    let end = facts.end();
    facts
        .asked()
        .iter()
        .filter(|asked| asked.command == "barrier")
        .filter_map(|asked| {
            let (at, done) = asked.answer.as_ref()?;
            (done.ok && done.reached == Some(true)).then_some((asked, *at))
        })
        .filter(move |(asked, at)| at.n < end.n && asked.life.is_some_and(|life| !facts.is_cure(life)))
}

/// The first barrier that was said to be reached and was not. It needs no fault to be wrong.
pub(crate) fn false_barrier(facts: &Facts) -> Option<(Vec<u64>, String)> {
    barriers(facts).find_map(|(asked, at)| {
        let life = asked.life?;
        let tells = facts
            .lives()
            .get(life)
            .is_some_and(|life| life.tells_ids || life.tells_offsets);
        if tells {
            not_applied(facts, asked, at, life)
        } else {
            not_shown(facts, asked, at, life)
        }
    })
}

fn not_applied(facts: &Facts, asked: &Asked, at: Moment, life: usize) -> Option<(Vec<u64>, String)> {
    let scope: Vec<usize> = if facts.kind() == Kind::Group {
        owed::scopes(facts).concat()
    } else {
        owed::kept(facts, life)
    };
    let asked_of = facts.incarnations().filter(|(_, _, of)| of.stood(asked.at));
    asked_of.into_iter().find_map(|(topic, partition, of)| {
        let given = owed::Given::new(facts, &scope, topic, partition, of);
        let by_then = given.ids(|segment| segment.at.us <= at.us.saturating_add(FLUSH_US));
        let bounds = of.log.at_us(at.us.saturating_add(WATCHER_US));
        let from = given.owed_from().max(bounds.map_or(0, |bounds| bounds.start));
        let until = facts.visible(&of.log, u64::MAX, asked.at.us);
        let mut struck_keys = given.struck_keys();
        let mut missing = RunSet::default();
        for piece in of.log.acked().iter().filter(|piece| piece.at.n < asked.at.n) {
            let (a, b) = (piece.offset.max(from), piece.last_offset().min(until.saturating_sub(1)));
            let (Some(a), Some(b), true) = (piece.id_at(a), piece.id_at(b), a <= b) else { continue };
            for id in by_then.gaps(a, b).into_iter().flat_map(|(a, b)| a..=b) {
                // Compacted records are not there to be applied.
                let gone = of.log.scans.iter().any(|scan| scan.at.n > piece.at.n && scan.at.us <= at.us && !scan.ids.contains(id));
                if !gone && !given.exempt(id, of.log.offset_of(id).unwrap_or(u64::MAX), &mut struck_keys) {
                    missing.insert(id, id);
                }
            }
        }
        let runs: Vec<_> = missing.runs().collect();
        (!runs.is_empty()).then(|| {
            let text = format!(
                "the barrier was said to be reached, but ids {} of {topic}-{partition}, acknowledged before it, were not \
                 applied",
                runs_text(&runs)
            );
            (vec![asked.at.n, at.n], text)
        })
    })
}

/// For tables that tell no records: the next snapshot must hold what was acknowledged before the barrier.
fn not_shown(facts: &Facts, asked: &Asked, at: Moment, life: usize) -> Option<(Vec<u64>, String)> {
    let snapshot = facts
        .snapshots()
        .iter()
        .find(|snapshot| snapshot.life == life && snapshot.asked.n > at.n && snapshot.done.is_some())?;
    let topic = facts.table_topic()?;
    let generator: &Generator = facts.generator(topic)?;
    let mut expected = std::collections::BTreeMap::new();
    for (_, partition, of) in facts.partitions().filter(|(t, ..)| *t == topic) {
        super::converges::fold(
            facts,
            &of.log,
            generator,
            partition,
            (asked.at, u64::MAX),
            &mut expected,
        );
    }
    let (key, last) = expected.iter().find(|(key, last)| {
        let shown = snapshot.entries.get(*key);
        let older = match shown {
            Some(Some(id)) => *id < last.id,
            Some(None) => false,
            None => true,
        };
        last.live && !last.tombstone && !last.doubtful && older
    })?;
    // A later deletion takes the key away again, which is no sign of a false barrier.
    let later: RunSet = facts
        .log(topic, crate::history::facts::partition_of(key)?)?
        .acked()
        .iter()
        .filter(|piece| piece.at.n >= asked.at.n)
        .fold(RunSet::default(), |mut set, piece| {
            set.insert(piece.id, piece.last_id());
            set
        });
    if !later.is_empty() && !snapshot.entries.contains_key(key) {
        return None;
    }
    let text = format!(
        "the barrier was said to be reached, but key {key} does not show id {}, acknowledged before it",
        last.id
    );
    Some((vec![asked.at.n, at.n, snapshot.asked.n], text))
}

/// When a life first said that it had caught up.
fn first_caught_up(facts: &Facts, life: &Life) -> Option<Moment> {
    let end = facts.end();
    let event = life.caught_up.first().copied();
    let claim = life
        .claims
        .iter()
        .find(|claimed| claimed.claims.caught_up == Some(true))
        .map(|claimed| claimed.from);
    let waited = facts.asked().iter().find_map(|asked| {
        let (at, done) = asked.answer.as_ref()?;
        let reached = asked.command == "wait_caught_up" && done.ok && done.reached == Some(true);
        (reached && asked.member == life.member && *at >= life.born && life.over.is_none_or(|over| *at < over))
            .then_some(*at)
    });
    [event, claim, waited]
        .into_iter()
        .flatten()
        .filter(|at| at.n < end.n)
        .min_by_key(|at| at.us)
}

fn early_caught_up(facts: &Facts, life: &Life, at: Moment) -> Option<(Vec<u64>, String)> {
    let targets = &facts.members().get(&life.member)?.targets;
    let (told, ends) = targets.iter().rev().find(|(told, _)| told.n < at.n)?;
    let over = life.over.map_or(u64::MAX, |over| over.n);
    let tells = life.tells_ids
        || life.tells_offsets
        || facts.has_capability(&life.member, RECORDS_IDS)
        || facts.has_capability(&life.member, RECORDS_OFFSETS);
    let open: Vec<String> = ends
        .iter()
        .filter_map(|target| {
            let of = facts.partition(&target.topic, target.partition)?;
            let reads = &of.reads;
            // What an open transaction held back was not there for it.
            let end = facts.visible(&of.log, target.offset, at.us);
            // Who tells nothing of its records cannot be held to them.
            if reads.marks.is_empty() && !tells {
                return None;
            }
            let by = at.us.saturating_add(FLUSH_US);
            let by = match facts.gone_at(&target.topic, target.partition, *told) {
                // What it was to reach could not be reached any more.
                Some(gone) if gone.us <= at.us => return None,
                // From then on it stands nowhere.
                Some(gone) => by.min(gone.us.saturating_sub(1)),
                None => by,
            };
            let position = reads.position_at(by, over);
            let lag = facts.lag_at(&target.topic, target.partition, position, end);
            // A record whose callback misbehaved was handed over, though it was never reported.
            let struck = facts.struck().iter().filter(|(_, _, _, raised)| !raised).count() as u64;
            (lag > struck).then(|| format!("{}-{} ({lag} records)", target.topic, target.partition))
        })
        .collect();
    (!open.is_empty()).then(|| {
        let text = format!(
            "{} said that it had caught up before it had on {}",
            life.member,
            open.join(", ")
        );
        (vec![at.n], text)
    })
}

fn says_healthy(claimed: &Claimed) -> bool {
    claimed.claims.healthy == Some(true)
}

/// A claim of the user's own that was asked for and answered, and that was never green: nothing is known of it.
fn never_healthy(facts: &Facts) -> Option<&str> {
    let patients = || {
        let lives = facts.lives().iter().enumerate();
        lives.filter(|(index, _)| !facts.is_cure(*index)).map(|(_, life)| life)
    };
    let ever = |name: &String| {
        let mut answers = patients().filter_map(|life| life.answered.get(name)).flatten();
        answers.any(says_healthy)
    };
    let mut names = patients().flat_map(|life| life.answered.keys());
    names.find(|name| !ever(name)).map(String::as_str)
}

/// Times in which a claim was made without a break.
fn spans(claims: &[Claimed], says: impl Fn(&Claimed) -> bool) -> Vec<(Moment, u64)> {
    let mut spans: Vec<(Moment, u64)> = Vec::new();
    let mut going = false;
    for claimed in claims {
        if !says(claimed) {
            going = false;
            continue;
        }
        match spans.last_mut().filter(|_| going) {
            Some(last) => last.1 = claimed.until.us,
            None => spans.push((claimed.from, claimed.until.us)),
        }
        going = true;
    }
    spans
}

fn healthy_while_not(facts: &Facts, index: usize, life: &Life) -> Option<(Vec<u64>, String)> {
    let end = facts.end();
    let within_us = facts.within_us();
    let calm = facts.faults().calm(end.us);
    let mut bad: Vec<(u64, u64, String)> = standstills(facts)
        .into_iter()
        .map(|still| {
            let text = format!("{} stood still with {} records waiting", still.partition, still.lag);
            (still.from_us, still.to_us, text)
        })
        .collect();
    bad.extend(
        life.blocked
            .iter()
            .map(|(since, until)| (*since, until.unwrap_or(end.us), "it was blocked".to_owned())),
    );
    if let Some(ended) = facts.life_ended(index, end.us) {
        bad.push((ended.at_us, end.us, format!("it {}", ended.text)));
    }
    let current = facts.opened().is_some_and(|o| o.reader.declares.caught_up_is_current);
    let mut claims = vec![("healthy".to_owned(), spans(&life.claims, says_healthy))];
    if current {
        let caught_up = spans(&life.claims, |c| c.claims.caught_up == Some(true));
        claims.push(("caught up".to_owned(), caught_up));
    }
    for (name, answers) in &life.answered {
        claims.push((format!("healthy by the claim `{name}`"), spans(answers, says_healthy)));
    }
    for (word, spans) in claims {
        for (from, until) in spans {
            for (bad_from, bad_to, what) in &bad {
                let longest = calm
                    .iter()
                    .map(|(a, b)| {
                        let to = until.saturating_add(STANDS_US).min(*bad_to).min(*b).min(end.us);
                        to.saturating_sub(from.us.max(*bad_from).max(*a))
                    })
                    .max()
                    .unwrap_or(0);
                if longest >= within_us {
                    let text = format!(
                        "{} claimed to be {word} for {} while {what} (limit {})",
                        life.member,
                        seconds(longest),
                        seconds(within_us)
                    );
                    return Some((vec![from.n], text));
                }
            }
        }
    }
    None
}

fn small_lag(facts: &Facts, life: &Life) -> Option<(Vec<u64>, String)> {
    let end = facts.end();
    let calm = facts.faults().calm(end.us);
    let is_calm = |us: u64| calm.iter().any(|(a, b)| (*a..=*b).contains(&us));
    // Before the first record a library may not know its lag and say 0.
    let first = facts
        .partitions()
        .flat_map(|(_, _, of)| of.reads.segments.iter().find(|segment| segment.at > life.born))
        .map(|segment| segment.at)
        .min();
    let known = |claimed: &&Claimed| claimed.from.n < end.n && first.is_some_and(|at| claimed.from > at);
    for claimed in life.claims.iter().filter(known) {
        let Some(lag) = claimed.claims.lag else { continue };
        for at in [claimed.from, claimed.until] {
            if at.n >= end.n || !is_calm(at.us) {
                continue;
            }
            let mut truth = 0u64;
            for (topic, partition) in facts.planned_partitions() {
                let Some(of) = facts.partition(topic, partition) else {
                    continue;
                };
                let log_end = facts.visible_at(&of.log, at.us.saturating_sub(LAG_LOAD_US));
                let position = of.reads.position_at(at.us.saturating_add(FLUSH_US), end.n);
                truth = truth.saturating_add(facts.lag_at(topic, partition, position, log_end));
            }
            if truth > lag.saturating_add(LAG_RECORDS) {
                let text = format!(
                    "{} claimed a lag of {lag} records when it was {truth} at least",
                    life.member
                );
                return Some((vec![at.n], text));
            }
        }
    }
    None
}
