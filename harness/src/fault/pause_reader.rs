//! pause-reader: the reader's process stops in its tracks (SIGSTOP) and goes on later (SIGCONT).

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{Fault, FaultError, Heal, Injected, pids};
use crate::reader::host::ReaderProcess;
use crate::run::rig::Rig;

/// `pause-reader = {}`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PauseReader {}

#[async_trait]
impl Fault for PauseReader {
    fn kind(&self) -> &'static str {
        "pause-reader"
    }

    fn text(&self) -> String {
        "pause the reader's process".into()
    }

    fn closes_path(&self) -> bool {
        true
    }

    async fn inject(&self, rig: &Rig, _name: &str) -> Result<Injected, FaultError> {
        let readers = rig.readers();
        for reader in &readers {
            reader.pause().await?;
        }
        let proof = format!("process {} is in state T", pids(&readers));
        Ok(Injected::in_process(proof, Paused { readers }))
    }
}

/// Processes in state T.
struct Paused {
    readers: Vec<Arc<ReaderProcess>>,
}

#[async_trait]
impl Heal for Paused {
    async fn heal(self: Box<Self>, _rig: &Rig) -> Result<String, FaultError> {
        for reader in &self.readers {
            reader.resume().await?;
        }
        Ok(format!("process {} runs again", pids(&self.readers)))
    }
}
