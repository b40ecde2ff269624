//! The kit: everything that starts a broker on this machine, made once and kept in the cache.
//!
//! ```text
//! $CACHE/clusters/
//!   kafka-VERSION-HASH/              the jars
//!   start-VERSION-java-JAVA-HASH/    for this build of Java and these jars:
//!     template/                      a formatted data folder, copied for each broker (a format is a JVM of its own: 1.4 s)
//!     kafka.jsa                      an archive of classes, which halves the start of a broker
//! ```

use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;

use super::jars::{self, Jars};
use super::java::{self, Java};
use super::{CACHED, KitError};
use crate::cluster::kafka::settings::{self, Listener, Listeners};
use crate::cluster::{Cluster, NodeId, kafka};
use crate::process;
use crate::reader::provision::{self, Fnv};

/// Part of the name of what is made here; raised when it is made otherwise.
const RECIPE: &str = "2";

/// The archive in the folder of a start.
const ARCHIVE: &str = "kafka.jsa";

/// The formatted data folder in the folder of a start.
const TEMPLATE: &str = "template";

/// Names the storage of one node; every node has another.
const META: &str = "meta.properties";

/// What is wanted of a kit.
pub struct KitOptions<'a> {
    /// Kafka's version; absent means the default, or what KAFKA_HOME holds.
    pub kafka: Option<&'a str>,
    /// The cache folder.
    pub cache: &'a Path,
    /// Whether jars may be downloaded.
    pub may_download: bool,
    /// Is told every step that takes long.
    pub progress: &'a (dyn Fn(&str) + Sync),
}

/// What starts brokers.
#[derive(Debug, Clone)]
pub struct Kit {
    java: Java,
    jars: Jars,
    /// Folder of template and archive.
    start: PathBuf,
    /// The harness's own binary, for its watchdog.
    program: PathBuf,
    /// Switches of the JVM beside the usual ones.
    switches: Vec<String>,
}

impl Kit {
    /// Finds Java and Kafka. Blocks while Maven resolves.
    ///
    /// # Errors
    /// [`KitError`]: all that can be missing or wrong.
    pub fn find(options: &KitOptions<'_>, program: &Path) -> Result<Kit, KitError> {
        let java = java::find()?;
        let jars = jars::find(options.kafka, options.cache, options.may_download, options.progress)?;
        let mut hash = Fnv::default();
        for part in [RECIPE, &java.build, &jars.class_path] {
            hash.part(part.as_bytes());
        }
        let label = format!("start-{}-java-{}-{}", jars.version, java.version, hash.hex());
        Ok(Kit {
            start: options.cache.join(CACHED).join(label),
            program: program.to_owned(),
            switches: Vec::new(),
            java,
            jars,
        })
    }

    /// Makes template and archive where they are missing, with one start of a broker.
    ///
    /// # Errors
    /// [`KitError::Format`], [`KitError::FirstStart`], [`KitError::Cache`], [`KitError::Io`].
    pub async fn prepare(&self, progress: &(dyn Fn(&str) + Sync)) -> Result<(), KitError> {
        if self.start.is_dir() {
            return Ok(());
        }
        let (Some(clusters), Some(label)) = (
            self.start.parent(),
            self.start.file_name().and_then(|name| name.to_str()),
        ) else {
            unreachable!("`find` has put both together");
        };
        std::fs::create_dir_all(clusters).map_err(KitError::io(format!("making {}", clusters.display())))?;
        let _lock = provision::lock_file(&clusters.join(format!(".{label}.lock")), progress)?;
        if self.start.is_dir() {
            return Ok(());
        }
        let building = provision::building(clusters, label)?;
        progress(&format!(
            "preparing the start of Apache Kafka {} on Java {} (once)",
            self.jars.version, self.java.version
        ));
        self.format(&building.path().join(TEMPLATE))?;
        // The first start is made with what is being built.
        let archive = building.path().join(ARCHIVE);
        let first = Kit {
            start: building.path().to_owned(),
            switches: vec![
                format!("-XX:ArchiveClassesAtExit={}", archive.display()),
                "-Xlog:cds=off".to_owned(),
            ],
            ..self.clone()
        };
        let cluster = first.start(1).await.map_err(first_start)?;
        let ended = cluster.end_by(Signal::SIGTERM).await;
        cluster.shutdown().await;
        ended.map_err(first_start)?;
        if !archive.is_file() {
            progress("this Java makes no archive of classes: brokers start in twice the time");
        }
        provision::move_into_place(building, &self.start)?;
        Ok(())
    }

    /// Kafka's version.
    pub fn kafka(&self) -> &str {
        &self.jars.version
    }

    /// Java's version.
    pub fn java(&self) -> &str {
        &self.java.version
    }

    /// True when template and archive are there.
    pub fn is_prepared(&self) -> bool {
        self.start.is_dir()
    }

    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// The command line of a broker.
    pub(super) fn command(&self, properties: &Path) -> Vec<String> {
        let archive = self.start.join(ARCHIVE);
        let mut command = self.jvm();
        if archive.is_file() {
            command.push(format!("-XX:SharedArchiveFile={}", archive.display()));
        }
        command.extend(self.switches.iter().cloned());
        command.extend([
            "-cp".to_owned(),
            self.jars.class_path.clone(),
            "kafka.Kafka".to_owned(),
            properties.to_string_lossy().into_owned(),
        ]);
        command
    }

    fn jvm(&self) -> Vec<String> {
        let mut command = vec![self.java.program.to_string_lossy().into_owned()];
        command.extend(settings::JVM.map(str::to_owned));
        command
    }

    /// Fills the data folder of a node that has never run.
    pub(super) fn fill(&self, data: &Path, node: NodeId, cluster_id: &str) -> std::io::Result<()> {
        std::fs::create_dir_all(data)?;
        for entry in std::fs::read_dir(self.start.join(TEMPLATE))? {
            let entry = entry?;
            if entry.file_name() != META {
                std::fs::copy(entry.path(), data.join(entry.file_name()))?;
            }
        }
        let mut directory = Fnv::default();
        directory.part(cluster_id.as_bytes());
        directory.part(&node.to_le_bytes());
        let meta = format!(
            "version=1\ncluster.id={cluster_id}\nnode.id={node}\ndirectory.id={}\n",
            kafka::id(&directory)
        );
        std::fs::write(data.join(META), meta)
    }

    /// Formats a data folder with Kafka's own tool.
    fn format(&self, template: &Path) -> Result<(), KitError> {
        let folder = tempfile::tempdir().map_err(KitError::io("making a folder to format in"))?;
        let properties = folder.path().join("server.properties");
        let at = |port: u16| Listener::at(([127, 0, 0, 1], port).into());
        let listeners = Listeners {
            reader: at(1),
            oracle: at(2),
            peers: None,
            controller: at(3),
        };
        let told = settings::properties(1, &[(1, listeners)], &template.to_string_lossy());
        std::fs::write(&properties, settings::file(&told))
            .map_err(KitError::io("writing the settings to format with"))?;
        let mut command = self.jvm();
        command.extend(["-cp".to_owned(), self.jars.class_path.clone()]);
        let (program, arguments) = command.split_at(1);
        let output = process::output(
            std::process::Command::new(&program[0])
                .args(arguments)
                .args(["kafka.tools.StorageTool", "format", "-t"])
                .arg(kafka::id(&Fnv::default()))
                .arg("-c")
                .arg(&properties),
        )
        .map_err(KitError::io("running Kafka's StorageTool"))?;
        if output.status.success() && template.join(META).is_file() {
            return Ok(());
        }
        Err(KitError::Format {
            version: self.jars.version.clone(),
            tail: jars::tail(&output.stdout, &output.stderr),
        })
    }
}

fn first_start(cause: crate::cluster::ClusterError) -> KitError {
    KitError::FirstStart(Box::new(cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_as_long_as_kafkas_and_differ() {
        let mut one = Fnv::default();
        one.part(b"one");
        let (nobody, one) = (kafka::id(&Fnv::default()), kafka::id(&one));
        assert_eq!((nobody.len(), one.len()), (22, 22));
        assert_ne!(nobody, one);
    }

    #[test]
    fn each_node_gets_the_template_and_a_storage_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let template = folder.path().join(TEMPLATE);
        std::fs::create_dir(&template).unwrap();
        std::fs::write(template.join(META), "node.id=1\n").unwrap();
        std::fs::write(template.join("bootstrap.checkpoint"), "features").unwrap();
        let kit = Kit {
            java: Java {
                program: "java".into(),
                version: "17".to_owned(),
                build: "17".to_owned(),
            },
            jars: Jars {
                version: "4.1.0".to_owned(),
                class_path: "a.jar:b.jar".to_owned(),
            },
            start: folder.path().to_owned(),
            program: "brokerfall".into(),
            switches: Vec::new(),
        };
        let metas = [1, 2].map(|node| {
            let data = folder.path().join(node.to_string());
            kit.fill(&data, node, "cluster").unwrap();
            assert_eq!(
                std::fs::read_to_string(data.join("bootstrap.checkpoint")).unwrap(),
                "features"
            );
            std::fs::read_to_string(data.join(META)).unwrap()
        });
        assert!(
            metas[0].contains("node.id=1\n") && metas[1].contains("node.id=2\n"),
            "{metas:?}"
        );
        let directory = |meta: &str| {
            meta.lines()
                .find(|line| line.starts_with("directory.id="))
                .map(str::to_owned)
        };
        assert_ne!(directory(&metas[0]), directory(&metas[1]));
        // Without an archive none is named.
        let command = kit.command(Path::new("x.properties"));
        assert!(!command.iter().any(|word| word.contains(ARCHIVE)), "{command:?}");
        assert_eq!(command.last().unwrap(), "x.properties");
    }
}
