//! kill-reader: the reader's process is killed (SIGKILL); the heal starts a fresh process, which is then the patient.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{Fault, FaultError, Heal, Injected, pids};
use crate::run::rig::Rig;

/// `kill-reader = {}`, or with its state folder emptied: `kill-reader = { state = "wipe" }`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct KillReader {
    /// What the fresh process finds of the old one's state folder; default `keep`.
    #[serde(default)]
    pub state: State,
}

/// What becomes of a reader's state folder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It stays as the reader left it.
    #[default]
    Keep,
    /// It is emptied, as on a machine that comes back with a fresh disk.
    Wipe,
}

#[async_trait]
impl Fault for KillReader {
    fn kind(&self) -> &'static str {
        "kill-reader"
    }

    fn text(&self) -> String {
        match self.state {
            State::Keep => "kill the reader's process".into(),
            State::Wipe => "kill the reader's process and empty its state folder".into(),
        }
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
        Ok(Injected::in_process(proof, Killed { state: self.state }))
    }
}

/// Members without a process.
struct Killed {
    state: State,
}

#[async_trait]
impl Heal for Killed {
    async fn heal(self: Box<Self>, rig: &Rig) -> Result<String, FaultError> {
        let mut wiped = String::new();
        if self.state == State::Wipe {
            for reader in rig.readers() {
                wiped.push_str(&rig.wipe_state(reader.member())?);
                wiped.push_str("; ");
            }
        }
        let pids = rig.start_again().await?;
        let pids: Vec<String> = pids.iter().map(ToString::to_string).collect();
        Ok(format!("{wiped}fresh process {} has started reading", pids.join(", ")))
    }
}
