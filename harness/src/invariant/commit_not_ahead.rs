//! `commit_not_ahead`: no owed record below a committed offset is undelivered.
//!
//! Records are flushed before each commit, so that what the link saw committed must have been reported by then; one
//! second is given to the two clocks and pipes.

use brokerfall_report::protocol::Kind;
use brokerfall_report::verdict::{FailureKind, Outcome};

use super::{held, not_applicable, of_kind, owed, runs_text, undecided, violated};
use crate::history::facts::{Facts, RunSet};

const SLACK_US: u64 = 1_000_000;

pub(super) fn judge(facts: &Facts) -> Outcome {
    if facts.kind() != Kind::Group {
        return not_applicable("a consumer group");
    }
    let end = facts.end();
    let commits: Vec<_> = facts.commits().iter().filter(|commit| commit.at.n < end.n).collect();
    if commits.is_empty() {
        return undecided("no commit was seen");
    }
    if facts.delivered_total() > 0 && !owed::tells_records(facts) {
        return not_applicable("records.ids or records.offsets");
    }
    let scopes = owed::scopes(facts);
    let Some(scope) = scopes.first() else {
        return undecided("no reader was started");
    };
    for (topic, partition, of) in facts.partitions() {
        let given = owed::Given::new(facts, scope, topic, partition, of);
        let from = given.owed_from();
        let mut checked = 0;
        for commit in commits.iter().filter(|c| c.topic == topic && c.partition == partition) {
            if commit.offset <= checked {
                continue;
            }
            checked = commit.offset;
            let by_then = given.ids(|segment| segment.at.us <= commit.at.us.saturating_add(SLACK_US));
            let mut missing = RunSet::default();
            let mut struck_keys = given.struck_keys();
            for piece in of.log.acked() {
                let (a, b) = (piece.offset.max(from), piece.last_offset().min(commit.offset - 1));
                let (Some(a), Some(b), true) = (piece.id_at(a), piece.id_at(b), a <= b) else {
                    continue;
                };
                // Still in the log afterwards: committing over what retention took is no fault.
                for scan in of.log.scans.iter().filter(|scan| scan.at.n > commit.at.n) {
                    for (a, b) in scan.ids.within(a, b) {
                        for (a, b) in by_then.gaps(a, b) {
                            missing.insert(a, b);
                        }
                    }
                }
            }
            let ahead: Vec<(u64, u64)> = missing
                .runs()
                .flat_map(|(a, b)| a..=b)
                .filter(|&id| !given.exempt(id, of.log.offset_of(id).unwrap_or(u64::MAX), &mut struck_keys))
                .fold(Vec::new(), |mut runs: Vec<(u64, u64)>, id| {
                    match runs.last_mut() {
                        Some(run) if run.1 + 1 == id => run.1 = id,
                        _ => runs.push((id, id)),
                    }
                    runs
                });
            if !ahead.is_empty() {
                let text = format!(
                    "{} committed offset {} of {topic}-{partition} ({}) while ids {} were not delivered",
                    commit.member,
                    commit.offset,
                    if commit.on_wire {
                        "on the wire"
                    } else {
                        "by its own word"
                    },
                    runs_text(&ahead)
                );
                return of_kind(violated(vec![commit.at.n], text), FailureKind::Silent, None);
            }
        }
    }
    held(format!("{} commits", commits.len()))
}
