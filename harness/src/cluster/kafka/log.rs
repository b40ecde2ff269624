//! What brokers write: kept in a file while a run wants it, and the last lines for when one dies.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, OnceLock};

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use crate::cluster::NodeId;
use crate::lock;

/// What every broker says of itself when it starts, up to its version.
const VERSION: &str = "Kafka version: ";

/// Lines of its log that are shown when it dies.
const LAST_LINES: usize = 15;

/// What one broker wrote.
#[derive(Default)]
pub(in crate::cluster) struct Log {
    tail: Mutex<VecDeque<String>>,
    file: Mutex<Option<File>>,
    kafka: OnceLock<String>,
}

impl Log {
    /// From now on it goes to `broker-ID.log` in a folder as well.
    pub(in crate::cluster) fn to_file(&self, folder: &Path, id: NodeId) {
        // OK without: its last lines are kept in any case.
        *lock(&self.file) = File::create(folder.join(format!("broker-{id}.log"))).ok();
    }

    /// Forgets the lines of an earlier life.
    pub(in crate::cluster) fn forget(&self) {
        lock(&self.tail).clear();
    }

    /// Takes a line.
    pub(in crate::cluster) fn take(&self, line: &str) {
        if let Some(file) = lock(&self.file).as_mut() {
            // OK to lose: a full disk is told where it matters.
            let _ = writeln!(file, "{line}");
        }
        if let Some((_, version)) = line.split_once(VERSION) {
            let version = version.split_whitespace().next().unwrap_or_default();
            self.kafka.get_or_init(|| version.to_owned());
        }
        let mut tail = lock(&self.tail);
        if tail.len() == LAST_LINES {
            tail.pop_front();
        }
        tail.push_back(line.to_owned());
    }

    /// The version of Kafka that it says it is, once it has.
    #[cfg_attr(
        not(feature = "container"),
        expect(dead_code, reason = "only an image does not say it before")
    )]
    pub(in crate::cluster) fn kafka(&self) -> Option<String> {
        self.kafka.get().cloned()
    }

    /// The last lines that it wrote, of this life.
    pub(in crate::cluster) fn last_lines(&self) -> String {
        let tail = lock(&self.tail);
        let lines: Vec<&str> = tail.iter().map(String::as_str).collect();
        lines.join("\n")
    }

    /// Takes every line of a stream, until it ends.
    pub(in crate::cluster) async fn drain(&self, stream: Option<impl AsyncRead + Unpin>) {
        let Some(stream) = stream else { return };
        let mut lines = BufReader::new(stream).split(b'\n');
        while let Ok(Some(line)) = lines.next_segment().await {
            self.take(String::from_utf8_lossy(&line).trim_end());
        }
    }
}
