//! `group_member`: with the path open and records to read, a partition is never longer than the larger of session timeout
//! and recovery window without a stable member that owns it, nor with two. Read from the wire.
//!
//! Records to read are records that wait, and records that are read all the same: who goes on by hand after it has left
//! its group commits nothing, and the next member reads everything again.

use std::collections::BTreeMap;

use brokerfall_report::history::GroupChange;
use brokerfall_report::protocol::{Kind, TopicPartition};
use brokerfall_report::verdict::{FailureKind, Outcome};

use super::progress::{behind, standstills};
use super::{held, not_applicable, of_kind, seconds, undecided, violated};
use crate::history::facts::Facts;

/// Session timeout of libraries that are given none.
const SESSION_US: u64 = 45_000_000;

pub(super) fn judge(facts: &Facts) -> Outcome {
    if facts.kind() != Kind::Group {
        return not_applicable("a consumer group");
    }
    let end = facts.end();
    let session_us = facts
        .opened()
        .and_then(|opened| opened.session_ms)
        .map_or(SESSION_US, |ms| ms.saturating_mul(1000));
    let limit_us = session_us.max(facts.within_us());
    let owners = owners(facts, session_us);
    let (mut texts, mut events) = (Vec::new(), Vec::new());

    // Records wait and nobody moves: a standstill is where a missing owner shows.
    let mut longest_us = 0;
    for still in standstills(facts) {
        let owned = owners.get(&still.partition).map_or(&[][..], Vec::as_slice);
        for (from, to) in unowned(owned, still.from_us, still.to_us) {
            longest_us = longest_us.max(to - from);
            if to - from > limit_us {
                texts.push(format!(
                    "partition {} had no member for {} with {} records waiting (limit {})",
                    still.partition,
                    seconds(to - from),
                    still.lag,
                    seconds(limit_us)
                ));
            }
        }
    }
    for (topic, partition) in facts.planned_partitions() {
        let name = format!("{topic}-{partition}");
        let owned = owners.get(&name).map_or(&[][..], Vec::as_slice);
        // Of a partition that no SyncGroup was seen to give away, the wire does not tell who owns it.
        if owned.is_empty() {
            continue;
        }
        let reads = facts.partition(topic, partition).map(|of| &of.reads);
        for (calm_from, calm_to) in facts.faults().calm(end.us) {
            for (from, to) in unowned(owned, calm_from, calm_to) {
                let mut read = reads.iter().flat_map(|reads| &reads.segments).filter(|segment| {
                    (from..=to).contains(&segment.at.us) && segment.at.n < end.n && !facts.is_cure(segment.life)
                });
                let Some(first) = read.next() else { continue };
                let last = read.last().unwrap_or(first);
                let alone_us = last.at.us - first.at.us;
                if alone_us > limit_us {
                    events.extend([first.at.n, last.at.n]);
                    texts.push(format!(
                        "partition {name} was read for {} by a reader that was no member of its group (limit {})",
                        seconds(alone_us),
                        seconds(limit_us)
                    ));
                }
            }
        }
    }
    for (partition, owned) in &owners {
        for (i, one) in owned.iter().enumerate() {
            for other in owned.iter().skip(i + 1).filter(|other| other.client != one.client) {
                let (from, to) = (one.from_us.max(other.from_us), one.to_us.min(other.to_us));
                let both_us = facts
                    .faults()
                    .calm(end.us)
                    .iter()
                    .map(|(a, b)| to.min(*b).saturating_sub(from.max(*a)))
                    .max()
                    .unwrap_or(0);
                if both_us > limit_us {
                    events.extend([one.event, other.event]);
                    texts.push(format!(
                        "partition {partition} was owned by {} and {} at once for {} (limit {})",
                        one.client,
                        other.client,
                        seconds(both_us),
                        seconds(limit_us)
                    ));
                }
            }
        }
    }
    if !texts.is_empty() {
        events.extend(
            facts
                .wire()
                .standings
                .iter()
                .rev()
                .find(|s| s.at.n < end.n)
                .map(|s| s.at.n),
        );
        return of_kind(
            violated(events, texts.join("; ")),
            FailureKind::Silent,
            Some(behind(facts)),
        );
    }
    if owners.is_empty() {
        return undecided("no group traffic was seen on the link");
    }
    held(if longest_us > 0 {
        format!(
            "longest without a member: {} (limit {})",
            seconds(longest_us),
            seconds(limit_us)
        )
    } else {
        String::new()
    })
}

/// A time in which one client owned a partition.
#[derive(Debug, Clone)]
struct Owned {
    client: String,
    event: u64,
    from_us: u64,
    to_us: u64,
}

/// Who owned each partition when: from SyncGroup until it leaves, joins anew or is not heard of for a session.
fn owners(facts: &Facts, session_us: u64) -> BTreeMap<String, Vec<Owned>> {
    struct Now<'a> {
        owns: &'a [TopicPartition],
        event: u64,
        from_us: u64,
        heard_us: u64,
    }
    let end = facts.end();
    let mut now: BTreeMap<&str, Now<'_>> = BTreeMap::new();
    let mut owners: BTreeMap<String, Vec<Owned>> = BTreeMap::new();
    let mut close = |client: &str, owned: Now<'_>, us: u64| {
        let to_us = us.min(owned.heard_us.saturating_add(session_us));
        for partition in owned.owns {
            let name = format!("{}-{}", partition.topic, partition.partition);
            owners.entry(name).or_default().push(Owned {
                client: client.to_owned(),
                event: owned.event,
                from_us: owned.from_us,
                to_us,
            });
        }
    };
    for standing in facts.wire().standings.iter().filter(|standing| standing.at.n < end.n) {
        let client = standing.client.as_str();
        match &standing.change {
            GroupChange::Alive { .. } => {
                if let Some(owned) = now.get_mut(client) {
                    owned.heard_us = standing.at.us;
                }
            }
            GroupChange::Joined { .. } | GroupChange::Gone { .. } => {
                if let Some(owned) = now.remove(client) {
                    close(client, owned, standing.at.us);
                }
            }
            GroupChange::Synced { owns, .. } => {
                let next = Now {
                    owns,
                    event: standing.at.n,
                    from_us: standing.at.us,
                    heard_us: standing.at.us,
                };
                if let Some(owned) = now.insert(client, next) {
                    close(client, owned, standing.at.us);
                }
            }
        }
    }
    for (client, owned) in now {
        close(client, owned, end.us);
    }
    owners
}

/// The parts of a time in which nobody owned the partition.
fn unowned(owned: &[Owned], from_us: u64, to_us: u64) -> Vec<(u64, u64)> {
    let mut owned: Vec<(u64, u64)> = owned.iter().map(|owned| (owned.from_us, owned.to_us)).collect();
    owned.sort_unstable();
    let mut gaps = Vec::new();
    let mut next = from_us;
    for (from, to) in owned {
        if from > next {
            gaps.push((next, from.min(to_us)));
        }
        next = next.max(to);
    }
    gaps.push((next, to_us));
    gaps.retain(|(from, to)| from < to);
    gaps
}
