//! What `doctor` says of the process cluster: whether this machine has what starts Kafka's brokers, and how fast they are.

use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::process::{Kit, KitOptions, ProcessCluster};
use crate::cluster::{Cluster, ClusterError, TopicSpec};
use crate::reader::provision::ProvisionOptions;

use super::say;

/// Starts and restarts that are measured.
const ROUNDS: usize = 5;

/// Topic that is written to while brokers are measured.
const TOPIC: &str = "doctor";

/// Looks for Java and Kafka without downloading anything; with `timing` it starts brokers. Lacking them is no fault: the mock
/// cluster needs neither.
pub(super) async fn doctor(timing: bool) {
    let found = ProvisionOptions::default()
        .cache_dir()
        .map_err(|cause| crate::chain(&cause));
    let kit = found.and_then(|cache| {
        let options = KitOptions {
            kafka: None,
            cache: &cache,
            may_download: false,
            progress: &|_| {},
        };
        let program = std::env::current_exe().map_err(|cause| cause.to_string())?;
        Kit::find(&options, &program).map_err(|cause| crate::chain(&cause))
    });
    let kit = match kit {
        Ok(kit) => kit,
        Err(text) => {
            say::out_tame(&format!("absent  {:18} {text}", "process cluster"));
            return;
        }
    };
    say::out_tame(&format!(
        "ok      {:18} Apache Kafka {} on Java {}{}",
        "process cluster",
        kit.kafka(),
        kit.java(),
        if kit.is_prepared() {
            ""
        } else {
            "; its start is prepared at first use"
        }
    ));
    if !timing {
        return;
    }
    match measure(&kit).await {
        Ok(lines) => lines.iter().for_each(|line| say::out(line)),
        Err(cause) => say::out_tame(&format!("wrong   {:18} {}", "process cluster", crate::chain(&cause))),
    }
}

/// From exec to the first acknowledged produce, and from SIGKILL to the next one, of one broker and of three.
async fn measure(kit: &Kit) -> Result<Vec<String>, ClusterError> {
    kit.prepare(&|line| say::note(line)).await?;
    let mut lines = Vec::new();
    for brokers in [1, 3] {
        let (mut starts, mut restarts) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let cluster = ProcessCluster::start(kit, brokers).await?;
            starts.push(cluster.first_produce_after());
            let restarted = restart(&cluster, brokers).await;
            cluster.shutdown().await;
            restarts.push(restarted?);
        }
        let who = if brokers == 1 {
            "1 broker".to_owned()
        } else {
            format!("{brokers} brokers")
        };
        lines.push(line(
            &format!("{who}, start"),
            "exec to first acknowledged produce",
            starts,
        ));
        lines.push(line(
            &format!("{who}, kill"),
            "SIGKILL of one to its next acknowledged produce",
            restarts,
        ));
    }
    Ok(lines)
}

async fn restart(cluster: &ProcessCluster, brokers: u32) -> Result<Duration, ClusterError> {
    let topic = TopicSpec {
        name: TOPIC.to_owned(),
        partitions: 1,
        replicas: brokers,
        ..TopicSpec::default()
    };
    cluster.create_topic(&topic).await?;
    let leader = cluster.leader(TOPIC, 0).await?;
    let killed = Instant::now();
    cluster.kill_broker(leader, Duration::ZERO).await?;
    cluster.start_broker(leader).await?;
    cluster.until_takes(TOPIC, 0).await?;
    Ok(killed.elapsed())
}

fn line(what: &str, text: &str, mut took: Vec<Duration>) -> String {
    took.sort();
    let seconds: Vec<String> = [took.first(), took.get(took.len() / 2), took.last()]
        .into_iter()
        .flatten()
        .map(|took| format!("{:.2}", took.as_secs_f64()))
        .collect();
    format!(
        "ok        {what:16} {} s ({text}: min, median, max of {})",
        seconds.join(" / "),
        took.len()
    )
}
