//! `catches_up`: the position reaches the log end that the oracle saw when the reader was started, or the reader ends
//! honestly. Judged by position or snapshot, never by claim.
//!
//! A reader that says whether it has caught up must come to say so: one that waits at the end for an offset that no record
//! has, because a transaction's marker stands there, has read all and hangs.
//!
//! In a quiet scenario it must get there before the sentinel is written: a reader that wakes only because of a new
//! record stays failed, with the finding `stuck until a new record arrived`.

use brokerfall_report::history::LogEnd;
use brokerfall_report::protocol::Kind;
use brokerfall_report::verdict::{FailureKind, Outcome};

use super::progress::{alive_kind, all_honest, behind, ends, ends_kind, ends_text, fault_in_force};
use super::{held, not_applicable, of_kind, seconds, undecided, violated};
use crate::history::facts::{Facts, Moment};

pub(super) fn judge(facts: &Facts) -> Outcome {
    let end = facts.end();
    let Some((since, targets)) = targets(facts) else {
        return undecided("no reader was started");
    };
    let heal = facts.faults().last_heal().filter(|heal| heal.n < end.n);
    let from_us = since.us.max(heal.map_or(0, |heal| heal.us));
    let within_us = facts.within_us();
    let within = seconds(within_us);
    // Whatever comes after the sentinel may be its doing.
    let sentinel = facts.sentinel(1).map(|sentinel| sentinel.at).filter(|at| at.n < end.n);
    let quiet = facts.opened().is_some_and(|opened| opened.quiet);
    let until = if quiet { sentinel.unwrap_or(end).min(end) } else { end };

    let (mut open, mut last_us, mut events) = (Vec::new(), since.us, vec![since.n]);
    let mut waiting = Vec::new();
    events.extend(heal.map(|heal| heal.n));
    for target in &targets {
        match reached_at(facts, target, since, until) {
            Some(us) => last_us = last_us.max(us),
            // What stood there then cannot be reached any more.
            None if facts.gone_at(&target.topic, target.partition, since).is_some() => {}
            None => {
                waiting.push((target.topic.as_str(), target.partition));
                open.push(format!(
                    "{}-{} (position {}, end {})",
                    target.topic,
                    target.partition,
                    position_text(facts, target, until),
                    target.offset
                ));
            }
        }
    }
    if open.is_empty()
        && let Some((from_us, member)) = unsaid(facts, last_us.max(from_us), until)
    {
        let text = format!(
            "{member} was given every record, and {} later it had not come to say that it had caught up",
            seconds(until.us.saturating_sub(from_us))
        );
        return of_kind(violated(events, text), FailureKind::Stuck, Some(behind(facts)));
    }
    if open.is_empty() {
        return held(format!("reached after {}", seconds(last_us.saturating_sub(since.us))));
    }
    if let Some(ends) = ends(facts) {
        let text = ends_text(&ends);
        if all_honest(&ends) {
            return held(format!("ended honestly: {text}"));
        }
        events.extend(ends.iter().map(|ended| ended.event));
        let text = format!("{text}, before the end was reached on {}", open.join(", "));
        return of_kind(violated(events, text), ends_kind(&ends), Some(behind(facts)));
    }
    if facts.patients().is_empty() {
        return undecided("no reader was there to be judged");
    }
    if !tells_position(facts) {
        return not_applicable("records, positions or snapshots");
    }
    if fault_in_force(facts) {
        return undecided("a fault was still in force when the verdict was fixed");
    }
    let watched_us = until.us.saturating_sub(from_us);
    if watched_us < within_us {
        return undecided(format!(
            "the end was not reached on {}, but was awaited for {} of {within} only",
            open.join(", "),
            seconds(watched_us)
        ));
    }
    events.extend(sentinel.filter(|_| quiet).map(|at| at.n));
    let text = format!(
        "the end was not reached on {} within {within} of the start or last heal",
        open.join(", ")
    );
    let mut kind = alive_kind(facts, &waiting, from_us);
    if kind == FailureKind::Slow && woken_by_sentinel(facts) {
        kind = FailureKind::Stuck;
    }
    of_kind(violated(events, text), kind, Some(behind(facts)))
}

/// A patient that goes on, says whether it has caught up, and did not say so for the whole window since it had; since when.
fn unsaid(facts: &Facts, since_us: u64, until: Moment) -> Option<(u64, &str)> {
    if ends(facts).is_some() || fault_in_force(facts) || until.us.saturating_sub(since_us) < facts.within_us() {
        return None;
    }
    let mut lives = facts.patients().into_iter().filter_map(|life| facts.lives().get(life));
    let hangs = lives.find(|life| life.hangs_at_the_end(until));
    hangs.map(|life| (since_us, life.member.as_str()))
}

/// Whether a quiet reader reached its targets only after the sentinel was written.
pub(crate) fn woken_by_sentinel(facts: &Facts) -> bool {
    let end = facts.end();
    let quiet = facts.opened().is_some_and(|opened| opened.quiet);
    let Some((since, targets)) = targets(facts) else {
        return false;
    };
    let Some(sentinel) = facts.sentinel(1).map(|s| s.at).filter(|at| quiet && at.n < end.n) else {
        return false;
    };
    let by = |until: Moment| {
        targets
            .iter()
            .all(|target| reached_at(facts, target, since, until).is_some())
    };
    !by(sentinel) && by(end)
}

/// The log ends that the patients were to reach, and since when.
fn targets(facts: &Facts) -> Option<(Moment, Vec<LogEnd>)> {
    let end = facts.end();
    let mut since: Option<Moment> = None;
    let mut ends: std::collections::BTreeMap<(String, u32), u64> = std::collections::BTreeMap::new();
    for member in facts.members().values() {
        let Some((at, targets)) = member.targets.iter().rev().find(|(at, _)| at.n < end.n) else {
            continue;
        };
        since = since.max(Some(*at));
        for target in targets {
            let highest = ends.entry((target.topic.clone(), target.partition)).or_default();
            *highest = (*highest).max(target.offset);
        }
    }
    let targets = ends.into_iter().map(|((topic, partition), offset)| LogEnd {
        topic,
        partition,
        offset,
    });
    Some((since?, targets.collect()))
}

/// When the patient's position was first at a target before event `until`. A group's position is kept for it by the
/// brokers; any other reader starts anew with its life.
fn reached_at(facts: &Facts, target: &LogEnd, since: Moment, until: Moment) -> Option<u64> {
    let lag = |position| facts.lag_at(&target.topic, target.partition, position, target.offset);
    if lag(None) == 0 {
        return Some(since.us);
    }
    let born = match facts.kind() {
        Kind::Group => None,
        _ => facts
            .patients()
            .first()
            .and_then(|&life| facts.lives().get(life))
            .map(|life| life.born.n),
    };
    let of = facts.partition(&target.topic, target.partition)?;
    of.reads
        .marks
        .iter()
        .find(|mark| born.is_none_or(|born| mark.at.n >= born) && mark.at.n < until.n && lag(mark.position) == 0)
        .map(|mark| mark.at.us.max(since.us))
}

fn position_text(facts: &Facts, target: &LogEnd, until: Moment) -> String {
    facts
        .partition(&target.topic, target.partition)
        .and_then(|of| of.reads.position_before(until.n))
        .map_or("none".to_owned(), |position| position.to_string())
}

fn tells_position(facts: &Facts) -> bool {
    use brokerfall_report::protocol::{RECORDS_IDS, RECORDS_OFFSETS};
    facts.lives().iter().any(|life| life.tells_ids || life.tells_offsets)
        || facts
            .members()
            .keys()
            .any(|member| facts.has_capability(member, RECORDS_IDS) || facts.has_capability(member, RECORDS_OFFSETS))
        || facts.partitions().any(|(_, _, of)| {
            of.reads
                .reach
                .values()
                .any(|reach| reach.last_id.is_some() || !reach.told.is_empty())
        })
}
