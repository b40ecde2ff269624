//! The mock cluster and the oracle, through their public interfaces and the real binary.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests panic as tests do, and durations are shown with --nocapture"
)]

mod mock;
mod oracle;
mod quirks;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use brokerfall::cluster::mock::MockCluster;
use brokerfall::cluster::{Cluster, TopicSpec};
use brokerfall::history::recorder::Recorder;
use brokerfall::oracle::Oracle;
use brokerfall_report::history::{Entry, Event, Generator, TopicInfo};
use tempfile::TempDir;
use tokio::net::TcpStream;

/// Long enough for a starved machine, short enough for a person.
const SOON: Duration = Duration::from_secs(20);

/// A cluster with its folder.
struct Lab {
    cluster: MockCluster,
    folder: TempDir,
}

impl Lab {
    async fn start(brokers: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let cluster = MockCluster::start(brokers, program(), folder.path()).await.unwrap();
        Self { cluster, folder }
    }

    /// A cluster with the topic `orders`, and an oracle on it.
    async fn with_orders(brokers: u32, partitions: u32) -> (Self, Truth) {
        let lab = Self::start(brokers).await;
        lab.create("orders", partitions, brokers).await;
        let truth = lab.oracle(&[orders(partitions)]).await;
        (lab, truth)
    }

    async fn create(&self, name: &str, partitions: u32, replicas: u32) {
        let topic = TopicSpec {
            name: name.to_owned(),
            partitions,
            replicas,
            brokers: Vec::new(),
            ..TopicSpec::default()
        };
        self.cluster.create_topic(&topic).await.unwrap();
    }

    async fn oracle(&self, topics: &[TopicInfo]) -> Truth {
        let history = self.folder.path().join("history.jsonl");
        let recorder = Recorder::new(Some(&history)).unwrap();
        let oracle = Oracle::connect(&self.cluster.direct_bootstrap(), None, recorder.clone(), topics)
            .await
            .unwrap();
        Truth {
            oracle,
            recorder,
            history,
        }
    }

    fn address(&self, node: i32) -> SocketAddr {
        let brokers = self.cluster.brokers();
        brokers.iter().find(|(known, _)| *known == node).unwrap().1
    }
}

/// An oracle and what it told the history.
struct Truth {
    oracle: Oracle,
    recorder: Recorder,
    history: std::path::PathBuf,
}

impl Truth {
    fn events(&self) -> Vec<Event> {
        self.recorder.flush().unwrap();
        let history = std::fs::read_to_string(&self.history).unwrap();
        let entries = history.lines().map(|line| serde_json::from_str::<Entry>(line).unwrap());
        entries.map(|entry| entry.event).collect()
    }
}

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_brokerfall"))
}

fn orders(partitions: u32) -> TopicInfo {
    TopicInfo {
        name: "orders".to_owned(),
        partitions,
        role: None,
        compacted: false,
        generator: Generator {
            keys: 10,
            value_bytes: 100,
            tombstone_every: None,
        },
    }
}

async fn is_refused(address: SocketAddr) -> bool {
    matches!(TcpStream::connect(address).await, Err(cause) if cause.kind() == std::io::ErrorKind::ConnectionRefused)
}

/// Waits until `look` finds something.
async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let looking = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(5));
        loop {
            ticks.tick().await;
            if let Some(found) = look().await {
                return found;
            }
        }
    };
    match tokio::time::timeout(SOON, looking).await {
        Ok(found) => found,
        Err(_) => panic!("{what} did not come true within {SOON:?}"),
    }
}
