//! What stands for the engine in a build without it, so that nobody else needs to know how it was built.

use super::{EngineError, Swept};
use crate::cluster::ClusterError;
use crate::cluster::kafka::KafkaCluster;

/// An engine that runs containers: in this build there is none.
#[derive(Debug, Clone)]
pub enum Engine {}

impl Engine {
    /// Finds none.
    ///
    /// # Errors
    /// [`EngineError::NotBuilt`], always.
    pub async fn find(_image: Option<&str>) -> Result<Engine, EngineError> {
        Err(EngineError::NotBuilt)
    }

    /// What it is.
    pub fn engine(&self) -> &str {
        match *self {}
    }

    /// Name and tag of the image that it runs.
    pub fn image(&self) -> &str {
        match *self {}
    }

    /// Removes what killed harnesses left.
    ///
    /// # Errors
    /// None: there is no such value.
    pub async fn sweep(&self) -> Result<Swept, EngineError> {
        match *self {}
    }

    /// Removes what it has started.
    ///
    /// # Errors
    /// None: there is no such value.
    pub async fn clear(&self) -> Result<Swept, EngineError> {
        match *self {}
    }

    /// Starts a cluster.
    ///
    /// # Errors
    /// None: there is no such value.
    pub async fn start(&self, _brokers: u32) -> Result<KafkaCluster, ClusterError> {
        match *self {}
    }
}
