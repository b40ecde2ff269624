//! Why brokers cannot be started on this machine.

use std::path::PathBuf;

use super::KAFKA;
use crate::cluster::ClusterError;
use crate::reader::catalogue::ReaderError;

/// Why no broker can be started here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KitError {
    /// No Java.
    #[error(
        "no Java is here (looked in {looked}); install one of version 17 or later, such as openjdk-17-jre-headless, or set JAVA_HOME"
    )]
    NoJava {
        /// Where it was looked for.
        looked: String,
    },
    /// A Java that cannot run Kafka.
    #[error("{} is Java {version}, and Kafka needs 17 or later (install one and set JAVA_HOME)", program.display())]
    OldJava {
        /// Its program.
        program: PathBuf,
        /// Its version.
        version: String,
    },
    /// A Java that does not say what it is.
    #[error("{} does not say its version; it says: {said}", program.display())]
    BrokenJava {
        /// Its program.
        program: PathBuf,
        /// What it said instead.
        said: String,
    },
    /// No version of Kafka.
    #[error("`{found}` is no version of Apache Kafka (wanted one such as {KAFKA})")]
    Version {
        /// What was asked for.
        found: String,
    },
    /// KAFKA_HOME is of no use.
    #[error("KAFKA_HOME={} cannot be used: {reason}", home.display())]
    Home {
        /// Its folder.
        home: PathBuf,
        /// Why.
        reason: String,
    },
    /// Jars would have to be downloaded, and nobody has asked for that.
    #[error("Apache Kafka {version} is not in the cache (`--cluster process` resolves it with Maven)")]
    NotCached {
        /// Kafka's version.
        version: String,
    },
    /// No Maven, and nothing in the cache.
    #[error(
        "Apache Kafka {version} is not in the cache, and no mvn on PATH could resolve it (install maven, or set KAFKA_HOME to an \
         unpacked Kafka)"
    )]
    NoMaven {
        /// Kafka's version.
        version: String,
    },
    /// Maven failed.
    #[error(
        "mvn could not resolve Apache Kafka {version} (the first time needs a network; what is in the cache does not); it says:\n{tail}"
    )]
    Maven {
        /// Kafka's version.
        version: String,
        /// Its last lines.
        tail: String,
    },
    /// A data folder could not be formatted.
    #[error("the StorageTool of Apache Kafka {version} made no data folder; it says:\n{tail}")]
    Format {
        /// Kafka's version.
        version: String,
        /// Its last lines.
        tail: String,
    },
    /// The start that makes the archive failed.
    #[error("the first start of a broker failed")]
    FirstStart(#[source] Box<ClusterError>),
    /// The cache cannot be used.
    #[error("the cache cannot be used")]
    Cache(#[from] ReaderError),
    /// The operating system refused.
    #[error("{what}")]
    Io {
        /// What was being done.
        what: String,
        /// Its answer.
        #[source]
        source: std::io::Error,
    },
}

impl KitError {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> KitError {
        let what = what.into();
        move |source| KitError::Io { what, source }
    }

    /// True where the machine lacks something, and nothing has failed: a named skip.
    pub fn is_missing(&self) -> bool {
        matches!(
            self,
            KitError::NoJava { .. } | KitError::OldJava { .. } | KitError::NotCached { .. } | KitError::NoMaven { .. }
        )
    }
}
