//! `commit_not_ahead`: no owed record below a committed offset is undelivered.
//!
//! Records are flushed before each commit, so that what the link saw committed must have been reported by then; one
//! second is given to the two clocks and pipes. On Kafka the group's coordinator is asked, too, so that a commit counts that
//! the link could not see; and no commit may lie beyond the end of the log.

use brokerfall_report::protocol::Kind;
use brokerfall_report::verdict::{FailureKind, Outcome};

use super::{held, not_applicable, of_kind, owed, runs_text, undecided, violated};
use crate::history::facts::Facts;

const SLACK_US: u64 = 1_000_000;

// Who told of a commit.
const ON_WIRE: &str = "on the wire";
const OWN_WORD: &str = "by its own word";
const COORDINATORS: &str = "by its coordinator's word";

pub(super) fn judge(facts: &Facts) -> Outcome {
    if facts.kind() != Kind::Group {
        return not_applicable("a consumer group");
    }
    let end = facts.end();
    let commits = facts
        .commits()
        .iter()
        .map(|commit| (commit, if commit.on_wire { ON_WIRE } else { OWN_WORD }));
    let told = facts.told_commits().iter().map(|commit| (commit, COORDINATORS));
    let commits: Vec<_> = commits.chain(told).filter(|(commit, _)| commit.at.n < end.n).collect();
    if commits.is_empty() {
        return undecided("no commit was seen before the reader was told to stop");
    }
    if facts.delivered_total() > 0 && !owed::tells_records(facts) {
        return not_applicable("records.ids or records.offsets");
    }
    let scopes = owed::scopes(facts);
    let Some(scope) = scopes.first() else {
        return undecided("no reader was started");
    };
    for (topic, partition, of) in facts.incarnations() {
        let given = owed::Given::new(facts, scope, topic, partition, of);
        let from = given.owed_from();
        let mut commits: Vec<_> = commits
            .iter()
            .filter(|(c, _)| c.topic == topic && c.partition == partition && of.stood(c.at))
            .collect();
        commits.sort_by_key(|(commit, _)| commit.at.us);
        let mut given_by_then = given.by_time();
        let mut struck_keys = given.struck_keys();
        // What lies below an earlier commit was checked with it, when less had been delivered.
        let mut checked = from;
        let was_cut = facts.was_cut(topic, partition, of);
        for (commit, by) in commits {
            if commit.offset <= checked {
                continue;
            }
            let then = commit.at.us.saturating_add(SLACK_US);
            let by_then = given_by_then.until(then);
            // Whoever has been given nothing of it cannot know yet that the log lost its end: it commits what it had read.
            if was_cut && !given.has_any_by(then) {
                continue;
            }
            // Whoever starts from there finds nothing at that offset, and is put somewhere else. The end may be told late.
            let log_end = of.log.now().map_or(u64::MAX, |bounds| bounds.end);
            if commit.offset > log_end {
                let text = format!(
                    "{} committed offset {} of {topic}-{partition} ({by}), whose log ends at {log_end}",
                    commit.member, commit.offset
                );
                return of_kind(violated(vec![commit.at.n], text), FailureKind::Silent, None);
            }
            let mut ahead: Vec<(u64, u64)> = Vec::new();
            for (a, b) in of.log.acked_between(checked, commit.offset - 1) {
                for id in by_then.gaps(a, b).into_iter().flat_map(|(a, b)| a..=b) {
                    // Still in the log afterwards: committing over what retention took is no fault.
                    let owed = of
                        .log
                        .scans
                        .iter()
                        .any(|scan| scan.at.n > commit.at.n && scan.ids.contains(id));
                    if !owed || given.exempt(id, of.log.offset_of(id).unwrap_or(u64::MAX), &mut struck_keys) {
                        continue;
                    }
                    match ahead.last_mut() {
                        Some(run) if run.1 + 1 == id => run.1 = id,
                        _ => ahead.push((id, id)),
                    }
                }
            }
            checked = commit.offset;
            if !ahead.is_empty() {
                let text = format!(
                    "{} committed offset {} of {topic}-{partition} ({by}) while ids {} were not delivered",
                    commit.member,
                    commit.offset,
                    runs_text(&ahead)
                );
                return of_kind(violated(vec![commit.at.n], text), FailureKind::Silent, None);
            }
        }
    }
    let left_out = facts.wire().committed - facts.commits().len() as u64;
    let seen = commits.iter().filter(|(_, by)| *by != COORDINATORS).count() as u64;
    held(format!("{} commits", seen + left_out))
}
