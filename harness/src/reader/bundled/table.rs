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
