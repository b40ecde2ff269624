//! Apache Kafka in containers: the cluster through its public interface, and the program on it. Needs a Docker engine and the
//! image on it (`just image` builds one, KAFKA_IMAGE names it); where either is missing the tests skip and say so, but not
//! on CI. Run with `cargo test --features chaos --test container`.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests panic as tests do, and what is skipped is shown"
)]

#[path = "../process/cluster.rs"]
mod cluster;
mod machine;
mod verdicts;

use std::path::Path;

use brokerfall::cluster::ClusterKind;
use brokerfall::cluster::clusters::Starters;
use brokerfall::cluster::container::Engine;
use brokerfall::cluster::kafka::KafkaCluster;

/// What the tests of `cluster.rs` run on here.
const KIND: ClusterKind = ClusterKind::Container;

/// Last words of a broker that was killed from outside.
const KILLED: &str = "ended with exit code 137";

/// The program as users run it.
fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_brokerfall-under-test"))
}

/// The engine, with the image on it; `None` (said aloud) where this machine has none.
async fn engine() -> Option<Engine> {
    match Engine::find(None).await {
        Ok(engine) => Some(engine),
        Err(cause) if cause.is_missing() && std::env::var_os("CI").is_none() => {
            println!("skipped: {cause}");
            None
        }
        Err(cause) => panic!("{cause}"),
    }
}

/// A cluster, where there is an engine.
async fn start(brokers: u32) -> Option<KafkaCluster> {
    Some(engine().await?.start(brokers).await.unwrap())
}

/// What starts it for runs.
async fn starters() -> Option<Starters> {
    Some(Starters {
        kit: None,
        engine: Some(engine().await?),
    })
}
