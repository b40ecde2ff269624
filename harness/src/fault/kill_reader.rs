//! kill-reader: the reader's process is killed (SIGKILL); the heal starts a fresh process, which is then the patient.

use serde::{Deserialize, Serialize};

/// `kill-reader = {}`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct KillReader {}
