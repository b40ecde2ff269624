//! What the programs and tests of this crate share.

use std::path::Path;

use brokerfall::reader::Launch;
use brokerfall::reader::manifest::Manifest;
use brokerfall_report::history::{Declares, ReaderInfo};
use brokerfall_report::protocol::Kind;

/// How to start an adapter with one argument, as a reader of kind group.
pub fn launch(adapter: &Path, mode: &str) -> Launch {
    Launch {
        info: ReaderInfo {
            name: "broken".to_owned(),
            version: String::new(),
            source: "adapter".to_owned(),
            kind: Kind::Group,
            lock: None,
            declares: Declares::default(),
        },
        command: vec![adapter.to_string_lossy().into_owned(), mode.to_owned()],
        env: Vec::new(),
        folder: None,
        manifest: Manifest {
            name: "broken".to_owned(),
        },
    }
}
