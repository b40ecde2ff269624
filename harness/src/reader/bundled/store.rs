//! What a stored table keeps on disk: its content and where it goes on, in one file of the state folder.
//!
//! ```text
//! table.json.new --fsync--> rename to table.json --fsync of the folder-->
//! ```
//!
//! The file is written whole and put in place by a rename, so that a process that is killed at any moment leaves the old
//! content or the new one, each with its own offsets. Whole, because tables here are small; a library with gigabytes of
//! state would log its changes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::PathBuf;
use std::sync::Mutex;

use brokerfall_report::exception::Exception;
use brokerfall_report::protocol::Start;
use serde::{Deserialize, Serialize};

use crate::reader::sdk::exceptions;

/// The form of the file.
const FORMAT: u32 = 1;

/// A table as it stands in the file.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stored {
    format: u32,
    pub(super) partitions: Vec<StoredPartition>,
}

/// One partition's content, and the offset that it goes on at: the two are never apart.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredPartition {
    pub(super) topic: String,
    pub(super) partition: u32,
    pub(super) next: u64,
    pub(super) entries: BTreeMap<String, Option<u64>>,
}

impl Stored {
    pub(super) fn new(partitions: Vec<StoredPartition>) -> Self {
        Self {
            format: FORMAT,
            partitions,
        }
    }
}

/// The file of one reader object.
pub(super) struct Store {
    folder: PathBuf,
    /// False once the object was told to stop and its successor may have the file. Held while the file is written.
    open: Mutex<bool>,
}

impl Store {
    /// # Errors
    /// When the harness named no folder.
    pub(super) fn new(start: &Start) -> Result<Self, Box<Exception>> {
        let Some(folder) = &start.state_dir else {
            let text = "a stored table needs `state_dir` in `start`";
            return Err(exceptions::plain("brokerfall::reader::bundled::NoStateFolder", text));
        };
        Ok(Self {
            folder: folder.into(),
            open: Mutex::new(true),
        })
    }

    /// What an object before this one has left; `None` where there was none.
    ///
    /// # Errors
    /// When the file cannot be read or is none of ours: the table has to be read anew.
    pub(super) fn load(&self) -> Result<Option<Stored>, Box<Exception>> {
        let path = self.folder.join("table.json");
        let unreadable = |why: &dyn std::fmt::Display| {
            let text = format!("{}: {why} (the table is read anew from the log start)", path.display());
            exceptions::plain("brokerfall::reader::bundled::StateUnreadable", &text)
        };
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(cause) => return Err(unreadable(&cause)),
        };
        let stored: Stored = serde_json::from_reader(BufReader::new(file)).map_err(|cause| unreadable(&cause))?;
        match stored.format {
            FORMAT => Ok(Some(stored)),
            other => Err(unreadable(&format!("format {other}, wanted {FORMAT}"))),
        }
    }

    /// Puts the content in place of what was there; does nothing once the store is closed.
    ///
    /// # Errors
    /// When the disk refuses: what was there before stands still.
    pub(super) fn save(&self, stored: &Stored) -> Result<(), Box<Exception>> {
        let open = crate::lock(&self.open);
        if !*open {
            return Ok(());
        }
        self.write(stored).map_err(|cause| {
            let text = format!("{}: {cause} (what was stored before stands)", self.folder.display());
            exceptions::plain("brokerfall::reader::bundled::StateNotStored", &text)
        })
    }

    fn write(&self, stored: &Stored) -> std::io::Result<()> {
        let (new, path) = (self.folder.join("table.json.new"), self.folder.join("table.json"));
        let mut file = BufWriter::new(File::create(&new)?);
        serde_json::to_writer(&mut file, stored)?;
        file.flush()?;
        file.get_ref().sync_all()?;
        std::fs::rename(&new, &path)?;
        // The rename itself is on disk only when the folder is.
        File::open(&self.folder)?.sync_all()
    }

    /// Ends writing, also that of a thread which hangs in a callback and comes back later: the file belongs to the next
    /// object from now on.
    pub(super) fn close(&self) {
        *crate::lock(&self.open) = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(folder: &std::path::Path) -> Store {
        Store {
            folder: folder.to_owned(),
            open: Mutex::new(true),
        }
    }

    fn table(next: u64) -> Stored {
        Stored::new(vec![StoredPartition {
            topic: "orders".into(),
            partition: 0,
            next,
            entries: BTreeMap::from([("a".to_owned(), Some(next)), ("b".to_owned(), None)]),
        }])
    }

    #[test]
    fn what_was_saved_is_loaded_and_a_half_written_file_beside_it_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        assert_eq!(store.load().unwrap(), None);
        store.save(&table(7)).unwrap();
        // What a process leaves that is killed while it writes.
        std::fs::write(folder.path().join("table.json.new"), r#"{"format":1,"parti"#).unwrap();
        assert_eq!(store.load().unwrap(), Some(table(7)));
        store.save(&table(9)).unwrap();
        assert_eq!(store.load().unwrap(), Some(table(9)));
    }

    #[test]
    fn closed_store_writes_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        store.save(&table(7)).unwrap();
        store.close();
        store.save(&table(9)).unwrap();
        assert_eq!(store.load().unwrap(), Some(table(7)));
    }

    #[test]
    fn file_that_is_none_of_ours_is_told_and_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        for text in ["", "{\"format\":1", "{\"format\":2,\"partitions\":[]}"] {
            std::fs::write(folder.path().join("table.json"), text).unwrap();
            let refused = store.load().unwrap_err();
            assert_eq!(refused.type_name, "brokerfall::reader::bundled::StateUnreadable");
            assert!(refused.message.contains("table.json"), "{}", refused.message);
        }
    }

    #[test]
    fn disk_that_refuses_is_told_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let refused = store(&folder.path().join("gone")).save(&table(7)).unwrap_err();
        assert_eq!(refused.type_name, "brokerfall::reader::bundled::StateNotStored");
    }
}
