//! pause-reader: the reader's process stops in its tracks (SIGSTOP) and goes on later (SIGCONT).

use serde::{Deserialize, Serialize};

/// `pause-reader = {}`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PauseReader {}
