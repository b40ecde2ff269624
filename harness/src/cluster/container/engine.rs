//! The engine: found, asked for its image, and told to run a cluster.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use testcontainers::bollard;
use testcontainers::bollard::models::NetworkCreateRequest;
use testcontainers::core::client::docker_client_instance;
use testcontainers::core::error::ClientError;
use tokio::sync::watch;

use super::node::{Container, Image, Recipe};
use super::{EngineError, IMAGE_VARIABLE, Swept, owner};
use crate::cluster::kafka::settings::{self, Listener, Listeners};
use crate::cluster::kafka::{self, Addresses, Ground, KafkaCluster, Layout, Node};
use crate::cluster::process::KAFKA;
use crate::cluster::{ClusterError, ClusterKind, NodeId};
use crate::ports::{self, Port};
use crate::reader::provision::Fnv;

/// Longest wait for an engine that is there to say what it is.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// Inside a container every broker listens on the same ports: each has a network of its own.
mod port {
    pub(super) const READER: u16 = 9092;
    pub(super) const ORACLE: u16 = 9093;
    pub(super) const PEERS: u16 = 9094;
    pub(super) const CONTROLLER: u16 = 9095;
}

/// Where the image has its data, owned by the user that it runs as.
const DATA: &str = "/var/lib/kafka/data";

/// Clusters that this process has laid out; part of their names.
static LAID_OUT: AtomicU32 = AtomicU32::new(0);

/// An engine that runs containers, and the image that it runs.
#[derive(Debug, Clone)]
pub struct Engine {
    docker: bollard::Docker,
    /// `Docker 20.10.24 at unix:///var/run/docker.sock`.
    engine: String,
    image: Image,
    /// Names what is started through this value and its clones.
    run: String,
}

impl Engine {
    /// Finds the engine that DOCKER_HOST or the usual socket names, and this image on it; where none is given that of
    /// KAFKA_IMAGE, else `apache/kafka` of the default version. Starts and removes nothing.
    ///
    /// # Errors
    /// [`EngineError::NoEngine`], [`EngineError::Denied`], [`EngineError::NoImage`], [`EngineError::Address`],
    /// [`EngineError::Refused`].
    pub async fn find(image: Option<&str>) -> Result<Engine, EngineError> {
        let host = host();
        let docker = docker_client_instance().await.map_err(|cause| match cause {
            ClientError::Init(source @ bollard::errors::Error::SocketNotFoundError(_)) => EngineError::NoEngine {
                host: host.clone(),
                source,
            },
            source => EngineError::Address {
                host: host.clone(),
                source: Box::new(source),
            },
        })?;
        let version = tokio::time::timeout(ANSWERS_WITHIN, docker.version())
            .await
            .unwrap_or(Err(bollard::errors::Error::RequestTimeoutError))
            .map_err(|source| {
                let host = host.clone();
                if is_denied(&source) {
                    EngineError::Denied { host, source }
                } else {
                    EngineError::NoEngine { host, source }
                }
            })?;
        let named = std::env::var(IMAGE_VARIABLE).ok().filter(|named| !named.is_empty());
        let image = Image::parse(image.or(named.as_deref()).unwrap_or(&format!("apache/kafka:{KAFKA}")));
        match docker.inspect_image(&image.to_string()).await {
            Ok(_) => {}
            Err(bollard::errors::Error::DockerResponseServerError { status_code: 404, .. }) => {
                return Err(EngineError::NoImage {
                    image: image.to_string(),
                });
            }
            Err(source) => {
                return Err(EngineError::Refused {
                    what: format!("show the image {image}"),
                    source,
                });
            }
        }
        Ok(Engine {
            engine: format!("Docker {} at {host}", version.version.unwrap_or_default()),
            docker,
            image,
            run: owner::run(),
        })
    }

    /// What it is and where: `Docker 20.10.24 at unix:///var/run/docker.sock`.
    pub fn engine(&self) -> &str {
        &self.engine
    }

    /// Name and tag of the image that it runs.
    pub fn image(&self) -> String {
        self.image.to_string()
    }

    /// Removes containers and networks that harnesses on this machine have left which are no more.
    ///
    /// # Errors
    /// [`EngineError::Refused`].
    pub async fn sweep(&self) -> Result<Swept, EngineError> {
        owner::sweep(&self.docker).await
    }

    /// Removes what was started through this value or its clones and is left, such as what was being started when a run was
    /// cancelled.
    ///
    /// # Errors
    /// [`EngineError::Refused`].
    pub async fn clear(&self) -> Result<Swept, EngineError> {
        owner::clear_run(&self.docker, &self.run).await
    }

    /// Starts a cluster of 1 to 3 brokers and returns when every one of them takes and gives records.
    ///
    /// # Errors
    /// [`ClusterError::Died`] with the last lines of its log when a broker ends, [`ClusterError::TimedOut`] when one does
    /// not serve, [`ClusterError::Ports`], [`ClusterError::Engine`].
    pub async fn start(&self, brokers: u32) -> Result<KafkaCluster, ClusterError> {
        KafkaCluster::bring_up(|| Box::pin(self.lay_out(brokers as usize))).await
    }

    /// Network, ports and settings of a cluster that has never run.
    async fn lay_out(&self, brokers: usize) -> Result<Layout, ClusterError> {
        let mut id = Fnv::default();
        id.part(self.run.as_bytes());
        id.part(&LAID_OUT.fetch_add(1, Ordering::Relaxed).to_le_bytes());
        let (cluster, cluster_id) = (format!("brokerfall-{}", id.hex()), kafka::id(&id));
        let (advertised, published) = (ports::reserve(brokers)?, ports::reserve(2 * brokers)?);
        let labels = owner::labels(&self.run, &cluster);
        let network = NetworkCreateRequest {
            name: cluster.clone(),
            labels: Some(labels.clone()),
            ..NetworkCreateRequest::default()
        };
        let created = self.docker.create_network(network).await;
        created.map_err(|source| EngineError::Refused {
            what: format!("make the network {cluster}"),
            source,
        })?;
        let name = |node: NodeId| format!("{cluster}-{node}");
        let nodes: Vec<(NodeId, Listeners)> = (1..)
            .zip(advertised.iter().zip(published.chunks(2)))
            .map(|(node, (link, own))| {
                let listener = |port: u16, told: String| Listener {
                    bound: format!("0.0.0.0:{port}"),
                    told,
                };
                let inside = |port: u16| listener(port, format!("{}:{port}", name(node)));
                let listeners = Listeners {
                    reader: listener(port::READER, link.address().to_string()),
                    oracle: listener(port::ORACLE, own[1].address().to_string()),
                    peers: Some(inside(port::PEERS)),
                    controller: inside(port::CONTROLLER),
                };
                (node, listeners)
            })
            .collect();
        let (died, _) = watch::channel(None);
        let mut laid_out: Vec<Box<dyn Node>> = Vec::new();
        for ((node, _), (link, own)) in nodes.iter().zip(advertised.iter().zip(published.chunks(2))) {
            let recipe = Recipe {
                name: name(*node),
                image: self.image.clone(),
                network: cluster.clone(),
                labels: labels.clone(),
                variables: variables(&settings::properties(*node, &nodes, DATA), &cluster_id),
                published: vec![(own[0].address(), port::READER), (own[1].address(), port::ORACLE)],
            };
            let addresses = Addresses {
                reader: own[0].address(),
                advertised: link.address(),
                oracle: own[1].address(),
            };
            laid_out.push(Box::new(Container::new(
                *node,
                addresses,
                self.docker.clone(),
                recipe,
                died.clone(),
            )));
        }
        Ok(Layout {
            kind: ClusterKind::Container,
            // Until its brokers tell.
            kafka: self.image.to_string(),
            nodes: laid_out,
            advertised,
            ground: Box::new(Network {
                docker: self.docker.clone(),
                cluster,
                _held: published,
            }),
            died,
        })
    }
}

/// The network of a cluster, and the ports that its brokers are published on.
struct Network {
    docker: bollard::Docker,
    cluster: String,
    /// Held so that nobody takes the port of a broker that is down.
    _held: Vec<Port>,
}

#[async_trait]
impl Ground for Network {
    async fn clear(&self) {
        // OK to leave to the next start's sweep, as where the engine is gone.
        let _ = owner::clear(&self.docker, &self.cluster).await;
    }
}

/// Where the engine is looked for.
fn host() -> String {
    std::env::var("DOCKER_HOST")
        .ok()
        .filter(|host| !host.is_empty())
        .unwrap_or_else(|| "unix:///var/run/docker.sock".to_owned())
}

/// Whether the operating system let nobody in, somewhere down the causes.
fn is_denied(cause: &bollard::errors::Error) -> bool {
    // The operating system's own answer is shown as if it were the engine client's: it is not among the causes.
    if let bollard::errors::Error::IOError { err } = cause
        && err.kind() == std::io::ErrorKind::PermissionDenied
    {
        return true;
    }
    let mut next: Option<&dyn std::error::Error> = Some(cause);
    while let Some(cause) = next {
        let io = cause.downcast_ref::<std::io::Error>();
        if io.is_some_and(|io| io.kind() == std::io::ErrorKind::PermissionDenied) {
            return true;
        }
        next = cause.source();
    }
    false
}

/// What the image's entry makes a server.properties and a JVM of: each setting is a variable.
fn variables(properties: &[(&str, String)], cluster_id: &str) -> Vec<(String, String)> {
    let mut variables: Vec<(String, String)> = properties
        .iter()
        .map(|(key, value)| (variable(key), value.clone()))
        .collect();
    let (heap, switches): (Vec<&str>, Vec<&str>) = settings::JVM.iter().partition(|switch| switch.starts_with("-Xm"));
    // A broker that is started again may have another address on the network, and a JVM would remember the old one for
    // half a minute.
    let names = ["-Dsun.net.inetaddr.ttl=1", "-Dsun.net.inetaddr.negative.ttl=0"];
    let switches = [&switches[..], &names[..]].concat();
    variables.extend([
        ("CLUSTER_ID".to_owned(), cluster_id.to_owned()),
        ("KAFKA_HEAP_OPTS".to_owned(), heap.join(" ")),
        ("KAFKA_JVM_PERFORMANCE_OPTS".to_owned(), switches.join(" ")),
    ]);
    variables
}

/// The variable of a setting.
fn variable(key: &str) -> String {
    let mut name = "KAFKA_".to_owned();
    for letter in key.chars() {
        match letter {
            '.' => name.push('_'),
            '_' => name.push_str("__"),
            '-' => name.push_str("___"),
            letter => name.push(letter.to_ascii_uppercase()),
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_become_the_variables_that_the_entry_reads() {
        assert_eq!(variable("log.dirs"), "KAFKA_LOG_DIRS");
        assert_eq!(variable("a_b-c.d"), "KAFKA_A__B___C_D");
        let told = variables(&[("node.id", "2".to_owned())], "id");
        let value = |name: &str| {
            let found = told.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.as_str()).unwrap_or_default()
        };
        assert_eq!((value("KAFKA_NODE_ID"), value("CLUSTER_ID")), ("2", "id"));
        assert_eq!(value("KAFKA_HEAP_OPTS"), "-Xms64m -Xmx192m");
        assert!(value("KAFKA_JVM_PERFORMANCE_OPTS").contains("-XX:+UseSerialGC"));
        assert!(!value("KAFKA_JVM_PERFORMANCE_OPTS").contains("-Xmx"));
    }

    #[test]
    fn denial_is_found_among_the_causes() {
        let io = |kind: std::io::ErrorKind| bollard::errors::Error::IOError { err: kind.into() };
        assert!(is_denied(&io(std::io::ErrorKind::PermissionDenied)));
        assert!(!is_denied(&io(std::io::ErrorKind::ConnectionRefused)));
    }
}
