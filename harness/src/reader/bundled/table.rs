//! The materialised view: the last value of each key, per partition, so that one partition can be rebuilt alone.

use std::collections::{BTreeMap, HashMap};

use super::core::Place;
use super::hooks::Record;

/// A table's content.
#[derive(Debug, Default)]
pub(super) struct View {
    partitions: BTreeMap<Place, HashMap<String, Option<u64>>>,
}

impl View {
    /// Applies a record: a value sets its key, a tombstone deletes it. A record without a key has no place in a table.
    pub(super) fn apply(&mut self, record: &Record, applies_tombstone: bool) {
        let Some(key) = &record.key else { return };
        let place = (record.topic.clone(), record.partition);
        let entries = self.partitions.entry(place).or_default();
        if !record.tombstone {
            entries.insert(key.clone(), record.id);
        } else if applies_tombstone {
            entries.remove(key);
        }
    }

    /// What one partition holds.
    pub(super) fn partition(&self, place: &Place) -> impl Iterator<Item = (&String, &Option<u64>)> {
        self.partitions.get(place).into_iter().flatten()
    }

    /// Gives one partition the content that an object before this one had.
    pub(super) fn restore(&mut self, place: Place, entries: impl IntoIterator<Item = (String, Option<u64>)>) {
        self.partitions.insert(place, entries.into_iter().collect());
    }

    /// Empties one partition: what stood before a jump over deleted records may have been deleted with them.
    pub(super) fn clear(&mut self, place: &Place) {
        self.partitions.remove(place);
    }

    /// Everything, in no order.
    pub(super) fn entries(&self) -> Vec<(String, Option<u64>)> {
        let all = self.partitions.values().flatten();
        all.map(|(key, id)| (key.clone(), *id)).collect()
    }
}
