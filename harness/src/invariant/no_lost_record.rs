//! `no_lost_record`: every acknowledged record that an oracle scan made after the reader passed it still found is
//! delivered to some instance (of a table or a reader of assigned partitions: to the patient, which started anew).
//!
//! Compacted, expired and truncated records are not owed, nor those of a topic that was deleted before it was created anew. A reader that starts at the log end owes nothing older; a
//! later jump to the end owes all that was there, unless its manifest declares `skips = "reset"`. Records above the
//! position are lag, not loss.

use brokerfall_report::verdict::{FailureKind, Outcome};

use super::{held, not_applicable, of_kind, owed, runs_text, undecided, violated};
use crate::history::facts::Facts;

pub(super) fn judge(facts: &Facts) -> Outcome {
    if facts.delivered_total() == 0 {
        return undecided("no record was delivered");
    }
    if !owed::tells_records(facts) {
        return not_applicable("records.ids or records.offsets");
    }
    let (mut events, mut texts, mut lost) = (Vec::new(), Vec::new(), 0u64);
    let (mut unread, mut unscanned) = (0u64, Vec::new());
    for scope in owed::scopes(facts) {
        for (topic, partition, of) in facts.incarnations() {
            let given = owed::Given::new(facts, &scope, topic, partition, of);
            let missing = given.missing(&given.ids(|_| true));
            unread = unread.saturating_add(missing.unread);
            // A log that is gone could not be read any more; what was read of it until then decides.
            if missing.undecided && of.until.is_none() {
                unscanned.push(format!("{topic}-{partition}"));
            }
            let Some(first) = missing.ids.first() else { continue };
            lost = lost.saturating_add(missing.ids.count());
            let ids: Vec<_> = missing.ids.runs().collect();
            let offsets: Vec<_> = ids
                .iter()
                .filter_map(|&(a, b)| of.log.offset_of(a).zip(of.log.offset_of(b)))
                .collect();
            let mut text = format!(
                "partition {topic}-{partition} ids {} (offsets {}) were never delivered",
                runs_text(&ids),
                runs_text(&offsets)
            );
            if let Some((last, at)) = given.last_before(first) {
                text.push_str(&format!("; before them came id {last}, event #{}", at.n));
                events.push(at.n);
            }
            events.extend(
                of.log
                    .acked()
                    .iter()
                    .find(|piece| piece.last_id() >= first)
                    .map(|p| p.at.n),
            );
            events.extend(missing.scan.map(|at| at.n));
            texts.push(text);
        }
    }
    if !texts.is_empty() {
        let text = format!("{}: {lost} in all", texts.join("; "));
        return of_kind(violated(events, text), FailureKind::Silent, None);
    }
    if !unscanned.is_empty() {
        return undecided(format!(
            "the oracle did not scan {} after the reader's last step",
            unscanned.join(", ")
        ));
    }
    if unread > 0 {
        return held(format!(
            "{unread} records were passed unread after they had left the log"
        ));
    }
    held("")
}
