//! delete-segments: retention deletes the oldest part of a log.

use serde::{Deserialize, Serialize};

/// `delete-segments = { topic = "orders" }`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct DeleteSegments {
    /// Which topic; default the first.
    #[serde(default)]
    pub topic: Option<String>,
    /// Which partition; default all.
    #[serde(default)]
    pub partition: Option<u32>,
    /// Delete until the log start is at least this many records past the highest offset that the reader fetched;
    /// default 1.
    #[serde(default = "one")]
    pub past_reader_by: u64,
}

fn one() -> u64 {
    1
}
