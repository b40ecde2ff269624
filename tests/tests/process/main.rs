//! Apache Kafka as JVM processes: the cluster through its public interface, and the program on it. Needs Java and, the first
//! time, Maven; where they are missing the tests skip and say so, but not on CI. Run with
//! `cargo test --features chaos --test process`.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests panic as tests do, and what is prepared is shown"
)]

mod cluster;
mod faults;
mod groups;
mod machine;
#[path = "../truth/mod.rs"]
mod truth;
mod verdicts;

use std::path::{Path, PathBuf};

use brokerfall::cluster::ClusterKind;
use brokerfall::cluster::clusters::Starters;
use brokerfall::cluster::kafka::KafkaCluster;
use brokerfall::cluster::process::{Kit, KitOptions};
use brokerfall::reader::provision::ProvisionOptions;
use tokio::sync::OnceCell;

/// What the tests of `cluster.rs` run on here.
const KIND: ClusterKind = ClusterKind::Process;

/// Last words of a broker that was killed from outside.
const KILLED: &str = "broker 1: signal: 9";

/// The program as users run it.
fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_brokerfall-under-test"))
}

/// The user's own cache: jars are resolved once for all.
fn cache() -> PathBuf {
    ProvisionOptions::default().cache_dir().unwrap()
}

/// What starts brokers, prepared once; `None` (said aloud) where this machine lacks Java or Kafka, but not on CI.
async fn kit() -> Option<&'static Kit> {
    static KIT: OnceCell<Option<Kit>> = OnceCell::const_new();
    let kit = KIT.get_or_init(|| async {
        let cache = cache();
        let kit = tokio::task::spawn_blocking(move || {
            let options = KitOptions {
                kafka: None,
                cache: &cache,
                may_download: true,
                progress: &|line| println!("{line}"),
            };
            match Kit::find(&options, program()) {
                Ok(kit) => Some(kit),
                Err(cause) if cause.is_missing() && std::env::var_os("CI").is_none() => {
                    println!("skipped: {cause}");
                    None
                }
                Err(cause) => panic!("{cause}"),
            }
        });
        let kit = kit.await.unwrap()?;
        kit.prepare(&|line| println!("{line}")).await.unwrap();
        Some(kit)
    });
    kit.await.as_ref()
}

/// A cluster, where there is what starts it.
async fn start(brokers: u32) -> Option<KafkaCluster> {
    Some(kit().await?.start(brokers).await.unwrap())
}

/// What starts it for runs.
async fn starters() -> Option<Starters> {
    Some(Starters {
        kit: Some(kit().await?.clone()),
        engine: None,
    })
}
