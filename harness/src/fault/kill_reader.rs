//! kill-reader: the reader's process is killed (SIGKILL); the heal starts a fresh process, which is then the patient.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{Fault, FaultError, Heal, Injected, pids};
use crate::run::rig::Rig;

/// `kill-reader = {}`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct KillReader {}

#[async_trait]
impl Fault for KillReader {
    fn kind(&self) -> &'static str {
        "kill-reader"
    }

    fn text(&self) -> String {
        "kill the reader's process".into()
    }

    fn closes_path(&self) -> bool {
        true
    }

    async fn inject(&self, rig: &Rig, _name: &str) -> Result<Injected, FaultError> {
        let readers = rig.readers();
        for reader in &readers {
            reader.kill().await?;
        }
        let proof = format!("process {} is gone and reaped", pids(&readers));
        Ok(Injected::in_process(proof, Killed {}))
    }
}

/// Members without a process.
struct Killed {}

#[async_trait]
impl Heal for Killed {
    async fn heal(self: Box<Self>, rig: &Rig) -> Result<String, FaultError> {
        let pids = rig.start_again().await?;
        let pids: Vec<String> = pids.iter().map(ToString::to_string).collect();
        Ok(format!("fresh process {} has started reading", pids.join(", ")))
    }
}
