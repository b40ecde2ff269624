//! `converges`: a table at the end, writers stopped and the log quiet, shows the fold of the log: of every key the last
//! record that was not deleted.
//!
//! Differences are told apart: `missing` (the log has the key, the table does not), `stale` (the table shows an older
//! record, or one that a tombstone removed), `phantom` (the table shows what was never written), `expired` (every record
//! of the key has left the log: allowed, unless the reader declares `expired = "cleared"`). A table that ended honestly
//! claims nothing any more: of it only a phantom is held against it.

use std::collections::BTreeMap;

use brokerfall_report::history::Generator;
use brokerfall_report::protocol::Kind;
use brokerfall_report::verdict::{FailureKind, Outcome};

use super::{held, not_applicable, of_kind, patients_ended, undecided, violated};
use crate::history::facts::{Facts, HowEnded, Log, Moment, RunSet, Snapshot, partition_of, shown};

/// What the log says of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Last {
    /// The last record ever written with the key.
    pub(super) id: u64,
    /// It is a tombstone.
    pub(super) tombstone: bool,
    /// It still stands in the log.
    pub(super) live: bool,
    /// An unresolved write may have replaced it.
    pub(super) doubtful: bool,
}

pub(super) fn judge(facts: &Facts) -> Outcome {
    if facts.kind() != Kind::Table {
        return not_applicable("a table");
    }
    let Some(opened) = facts.opened() else {
        return undecided("the run was never opened");
    };
    let Some((topic, generator)) = facts.table_topic().and_then(|t| facts.generator(t).map(|g| (t, g))) else {
        return undecided("the plan has no topic");
    };
    let end = facts.end();
    let Some(quiet) = facts.quiet().filter(|quiet| quiet.n < end.n) else {
        return undecided("the log never became quiet");
    };
    let last = facts.snapshots().iter().rev().find(|snapshot| {
        snapshot.asked.n > quiet.n && snapshot.done.is_some_and(|done| done.n < end.n) && !facts.is_cure(snapshot.life)
    });
    let Some(snapshot) = last else {
        let answered = facts
            .asked()
            .iter()
            .any(|asked| asked.command == "snapshot" && asked.answer.as_ref().is_some_and(|(_, done)| done.ok));
        return if answered
            || facts
                .members()
                .keys()
                .any(|member| facts.has_capability(member, "snapshot"))
        {
            undecided("no snapshot was answered after the log became quiet")
        } else {
            not_applicable("snapshot")
        };
    };
    if !snapshot.entries.is_empty() && snapshot.entries.values().all(Option::is_none) {
        return not_applicable("record ids in snapshots");
    }
    let mut expected: BTreeMap<String, Last> = BTreeMap::new();
    let mut written = BTreeMap::new();
    for (_, partition, of) in facts.incarnations().filter(|(t, ..)| *t == topic) {
        let mut here = BTreeMap::new();
        // Of a log that lost its end what stood below is asked for; what was lost may be shown and need not be.
        let below = of.kept.filter(|_| of.until.is_some()).unwrap_or(u64::MAX);
        fold(facts, &of.log, generator, partition, (snapshot.asked, below), &mut here);
        if of.until.is_some() && of.kept.is_none() {
            // The topic was deleted, with all that stood in it.
            here.values_mut().for_each(|last| last.live = false);
        }
        expected.extend(here);
        let ids: &mut RunSet = written.entry(partition).or_default();
        let hidden = facts.hidden(&of.log);
        for (first, last) in ids_written(&of.log).runs() {
            for (first, last) in hidden.gaps(first, last) {
                ids.insert(first, last);
            }
        }
    }
    let differences = compare(
        &expected,
        snapshot,
        |key, id| {
            let partition = partition_of(key);
            partition.is_some_and(|p| generator.key(p, id) == key && written.get(&p).is_some_and(|w| w.contains(id)))
        },
        opened.reader.declares.clears_expired,
    );
    let mut texts = Vec::new();
    for (what, examples, count) in [
        ("missing", &differences.missing.1, differences.missing.0),
        ("stale", &differences.stale.1, differences.stale.0),
        ("phantom", &differences.phantom.1, differences.phantom.0),
        (
            "expired and still shown",
            &differences.expired.1,
            differences.not_cleared,
        ),
    ] {
        if count > 0 {
            texts.push(format!("{count} keys {what} (such as {})", examples.join(", ")));
        }
    }
    if texts.is_empty() {
        let mut text = format!("{} keys", snapshot.entries.len());
        if differences.expired.0 > 0 {
            text.push_str(&format!(", {} of them expired", differences.expired.0));
        }
        return held(text);
    }
    let ended_honestly = patients_ended(facts)
        .is_some_and(|ended| !ended.is_empty() && ended.iter().all(|ended| ended.how == HowEnded::Honest));
    if ended_honestly && differences.phantom.0 == 0 {
        return not_applicable("a table that goes on: it ended honestly and shows what it held then");
    }
    let events = vec![snapshot.asked.n, snapshot.done.map_or(snapshot.asked.n, |done| done.n)];
    of_kind(violated(events, texts.join("; ")), FailureKind::Silent, None)
}

fn ids_written(log: &Log) -> RunSet {
    let mut written = log.maybe.clone();
    for piece in log.acked().iter().chain(log.found()) {
        written.insert(piece.id, piece.last_id());
    }
    written
}

/// Adds the last record of every key of one partition, of what was written before a moment, stands below an offset and could be
/// read then.
pub(super) fn fold(
    facts: &Facts,
    log: &Log,
    generator: &Generator,
    partition: u32,
    (asked, below): (Moment, u64),
    expected: &mut BTreeMap<String, Last>,
) {
    let before = asked.n;
    let hidden = facts.hidden(log);
    let visible = facts.visible(log, u64::MAX, asked.us).min(below);
    let is_there = |id: u64| {
        !hidden.contains(id) && (visible == u64::MAX || log.offset_of(id).is_none_or(|offset| offset < visible))
    };
    let mut in_log = RunSet::default();
    let mut highest = 0;
    for piece in log.acked().iter().filter(|piece| piece.at.n < before) {
        in_log.insert(piece.id, piece.last_id());
        highest = highest.max(piece.last_id());
    }
    // Unresolved writes that a scan found are in the log. Ids rise: what lies above the last acknowledged one was tried
    // before the snapshot only if it is not acknowledged later.
    let later = log
        .acked()
        .iter()
        .filter(|piece| piece.at.n >= before)
        .map(|piece| piece.id)
        .min();
    let limit = later.map_or(u64::MAX, |id| id.saturating_sub(1));
    for piece in log.found() {
        if piece.id <= limit {
            in_log.insert(piece.id, piece.last_id().min(limit));
        }
    }
    let last_scan = log.scans.last();
    let log_start = log.now().map_or(0, |bounds| bounds.start);
    let is_live = |id: u64| match last_scan {
        // What was written after it stands behind what it read.
        Some(scan) => scan.ids.contains(id) || log.offset_of(id).is_some_and(|offset| offset >= scan.to),
        None => log.offset_of(id).is_some_and(|offset| offset >= log_start),
    };
    // Per key only the highest id counts: walk down from the end, and stop once every key was met.
    let mut left = generator.keys.max(1);
    let mut met: std::collections::HashSet<u64> = std::collections::HashSet::new();
    'walk: for (a, b) in in_log.runs().rev() {
        for id in (a..=b).rev() {
            if is_there(id) && met.insert(id % generator.keys.max(1)) {
                expected.insert(
                    generator.key(partition, id),
                    Last {
                        id,
                        tombstone: generator.is_tombstone(id),
                        live: is_live(id),
                        doubtful: false,
                    },
                );
                left -= 1;
                if left == 0 {
                    break 'walk;
                }
            }
        }
    }
    // Without a scan that covers them, unresolved writes may or may not have replaced a value.
    for (a, b) in log.maybe.runs() {
        for id in a..=b.min(limit) {
            let decided = last_scan.is_some() || in_log.contains(id);
            if let (false, Some(last)) = (decided, expected.get_mut(&generator.key(partition, id))) {
                last.doubtful |= id > last.id;
            }
        }
    }
}

/// Differences between a snapshot and the log: how many of each sort, and the first three.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Differences {
    pub(super) missing: (u64, Vec<String>),
    pub(super) stale: (u64, Vec<String>),
    pub(super) phantom: (u64, Vec<String>),
    pub(super) expired: (u64, Vec<String>),
    /// Expired keys that a reader shows in spite of declaring that it clears them.
    pub(super) not_cleared: u64,
}

/// Compares a snapshot with the log; `wrote` tells whether the oracle wrote this record with this key.
pub(super) fn compare(
    expected: &BTreeMap<String, Last>,
    snapshot: &Snapshot,
    wrote: impl Fn(&str, u64) -> bool,
    clears_expired: bool,
) -> Differences {
    let mut differences = Differences::default();
    let add = |sort: &mut (u64, Vec<String>), text: String| {
        sort.0 += 1;
        if sort.1.len() < 3 {
            sort.1.push(text);
        }
    };
    for (key, last) in expected {
        if last.live && !last.tombstone && !last.doubtful && !snapshot.entries.contains_key(key) {
            add(&mut differences.missing, format!("{key}: id {}", last.id));
        }
    }
    for (key, shown_id) in &snapshot.entries {
        let Some(id) = *shown_id else {
            add(&mut differences.phantom, format!("{}: a value without id", shown(key)));
            continue;
        };
        if !wrote(key, id) {
            add(&mut differences.phantom, format!("{}: id {id}", shown(key)));
            continue;
        }
        let Some(last) = expected.get(key) else { continue };
        if last.doubtful || (last.live && !last.tombstone && id >= last.id) {
            continue;
        }
        if last.live {
            let wants = if last.tombstone {
                "in spite of its tombstone"
            } else {
                "instead of"
            };
            add(
                &mut differences.stale,
                format!("{key} shows id {id} {wants} {}", last.id),
            );
        } else {
            // Its last record has left the log; so have, by retention, all before it.
            add(&mut differences.expired, format!("{key}: id {id}"));
            differences.not_cleared += u64::from(clears_expired);
        }
    }
    differences
}
