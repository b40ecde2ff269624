//! What the tests of Brokerfall are made of: broken adapters and mutant readers here, suites under `tests/`.

pub mod mutants;

use std::path::Path;

use brokerfall::reader::Launch;
use brokerfall::reader::manifest::Manifest;
use brokerfall_report::history::{Declares, ReaderInfo};
use brokerfall_report::protocol::Kind;

/// How to start an adapter with one argument, as a reader of kind group.
pub fn launch(adapter: &Path, mode: &str) -> Launch {
    let command = vec![adapter.to_string_lossy().into_owned(), mode.to_owned()];
    Launch {
        info: ReaderInfo {
            name: "broken".to_owned(),
            version: String::new(),
            source: "adapter".to_owned(),
            kind: Kind::Group,
            lock: None,
            declares: Declares::default(),
        },
        env: Vec::new(),
        folder: None,
        manifest: Manifest::bare("broken", Kind::Group, command.clone()),
        command,
        lock: None,
    }
}
