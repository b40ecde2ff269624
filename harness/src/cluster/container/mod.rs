//! Apache Kafka in containers: through the crate testcontainers, on whatever engine DOCKER_HOST or the usual socket names.
//!
//! ```text
//! readers --> link (127.0.0.N:p, advertised) --127.0.0.N:q, published--> READER of a broker
//! harness, oracle ------------------------------127.0.0.N:r, published--> ORACLE of a broker --PEERS, own network--> brokers
//! ```
//!
//! `engine` finds engine and image and lays a cluster out; `node` is one container; `owner` is what everything started
//! carries, so that the next start sweeps away what a killed harness has left: no watchdog could, since containers are
//! nobody's children. Built with the feature `container` only; without it `absent` says so. Deliberately not here: pulling
//! images, and what a cluster of Kafka does (`kafka`).

#[cfg(not(feature = "container"))]
mod absent;
#[cfg(feature = "container")]
mod engine;
#[cfg(feature = "container")]
mod node;
#[cfg(feature = "container")]
mod owner;

#[cfg(not(feature = "container"))]
pub use self::absent::Engine;
#[cfg(feature = "container")]
pub use self::engine::Engine;
#[cfg(feature = "container")]
use testcontainers::bollard;

/// The variable that names an image where `--image` does not.
pub const IMAGE_VARIABLE: &str = "KAFKA_IMAGE";

/// What a killed harness had left, and the sweep has removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Containers, with their volumes.
    pub containers: usize,
    /// Networks.
    pub networks: usize,
}

/// Why no broker can be run in a container here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// Built without it.
    #[error("this brokerfall was built without the container cluster (build it with --features container)")]
    NotBuilt,
    /// Nothing answers.
    #[cfg(feature = "container")]
    #[error("no container engine answers at {host} (start Docker, or set DOCKER_HOST to where one listens)")]
    NoEngine {
        /// Where it was looked for.
        host: String,
        /// What happened instead.
        #[source]
        source: bollard::errors::Error,
    },
    /// It is there, and not for this user.
    #[cfg(feature = "container")]
    #[error(
        "{host} is not open to this user (join its group, `docker` as a rule, or set DOCKER_HOST to a rootless engine)"
    )]
    Denied {
        /// Its address.
        host: String,
        /// The operating system's answer.
        #[source]
        source: bollard::errors::Error,
    },
    /// An address that cannot be used.
    #[cfg(feature = "container")]
    #[error("the container engine's address {host} cannot be used (wanted one such as unix:///var/run/docker.sock)")]
    Address {
        /// As DOCKER_HOST has it.
        host: String,
        /// Why.
        #[source]
        source: Box<testcontainers::core::error::ClientError>,
    },
    /// The image is not there. None is pulled unasked.
    #[error(
        "the engine has no image {image} (`docker pull {image}`, or build one with `just image` and name it with --image)"
    )]
    NoImage {
        /// Name and tag.
        image: String,
    },
    /// The engine refused.
    #[cfg(feature = "container")]
    #[error("the container engine would not {what}")]
    Refused {
        /// What was asked.
        what: String,
        /// Its answer.
        #[source]
        source: bollard::errors::Error,
    },
    /// A container could not be run.
    #[cfg(feature = "container")]
    #[error("the container engine would not {what}")]
    Run {
        /// What was asked.
        what: String,
        /// Its answer.
        #[source]
        source: Box<testcontainers::TestcontainersError>,
    },
}

impl EngineError {
    /// True where the machine or this build lacks something, and nothing has failed: a named skip.
    pub fn is_missing(&self) -> bool {
        match self {
            EngineError::NotBuilt | EngineError::NoImage { .. } => true,
            #[cfg(feature = "container")]
            EngineError::NoEngine { .. } | EngineError::Denied { .. } => true,
            #[cfg(feature = "container")]
            EngineError::Address { .. } | EngineError::Refused { .. } | EngineError::Run { .. } => false,
        }
    }
}
