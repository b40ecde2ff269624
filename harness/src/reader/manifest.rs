//! Manifests: what describes a reader, bundled or not. Nothing about a library is compiled into the harness.

use serde::{Deserialize, Serialize};

/// A reader's manifest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Manifest {
    /// Name.
    pub name: String,
}
