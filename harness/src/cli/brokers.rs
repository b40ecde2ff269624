//! What `doctor` says of the clusters of Apache Kafka: whether this machine has what starts their brokers, and how fast they
//! are.

use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::container::Engine;
use crate::cluster::kafka::KafkaCluster;
use crate::cluster::process::{Kit, KitOptions};
use crate::cluster::{Cluster, ClusterError, TopicSpec};
use crate::process::proc;
use crate::reader::provision::ProvisionOptions;

use super::say;

/// Starts and restarts that are measured.
const ROUNDS: usize = 5;

/// Topic that is written to while brokers are measured.
const TOPIC: &str = "doctor";

/// Looks for Java and Kafka and for a container engine, without downloading or removing anything; with `timing` it starts
/// brokers. Lacking them is no fault: the mock cluster needs neither.
pub(super) async fn doctor(timing: bool) {
    if let Some(kit) = found("process cluster", find_kit(), |kit| {
        let prepared = if kit.is_prepared() {
            ""
        } else {
            "; its start is prepared at first use"
        };
        format!("Apache Kafka {} on Java {}{prepared}", kit.kafka(), kit.java())
    })
    .filter(|_| timing)
    {
        let ready = kit.prepare(&|line| say::note(line)).await;
        let measured = match ready {
            Ok(()) => measure(async |brokers| kit.start(brokers).await).await,
            Err(cause) => Err(cause.into()),
        };
        tell("process cluster", measured);
    }
    let engine = Engine::find(None).await.map_err(|cause| crate::chain(&cause));
    if let Some(engine) = found("container cluster", engine, |engine| {
        format!("image {} on {}", engine.image(), engine.engine())
    })
    .filter(|_| timing)
    {
        tell(
            "container cluster",
            measure(async |brokers| engine.start(brokers).await).await,
        );
    }
}

fn find_kit() -> Result<Kit, String> {
    let cache = ProvisionOptions::default()
        .cache_dir()
        .map_err(|cause| crate::chain(&cause))?;
    let options = KitOptions {
        kafka: None,
        cache: &cache,
        may_download: false,
        progress: &|_| {},
    };
    let program = std::env::current_exe().map_err(|cause| cause.to_string())?;
    Kit::find(&options, &program).map_err(|cause| crate::chain(&cause))
}

/// Says whether it is here, and returns it where it is.
fn found<T>(what: &str, looked: Result<T, String>, is: impl FnOnce(&T) -> String) -> Option<T> {
    let (mark, text) = match &looked {
        Ok(found) => ("ok     ", is(found)),
        Err(text) => ("absent ", text.clone()),
    };
    say::out_tame(&format!("{mark} {what:18} {text}"));
    looked.ok()
}

fn tell(what: &str, measured: Result<Vec<String>, ClusterError>) {
    match measured {
        Ok(lines) => lines.iter().for_each(|line| say::out(line)),
        Err(cause) => say::out_tame(&format!("wrong   {what:18} {}", crate::chain(&cause))),
    }
}

/// Of one broker and of three: from the start to the first acknowledged produce, from SIGKILL to its proof and to the next
/// produce, from SIGSTOP to its proof, and the memory of a broker.
async fn measure(start: impl AsyncFn(u32) -> Result<KafkaCluster, ClusterError>) -> Result<Vec<String>, ClusterError> {
    let mut lines = Vec::new();
    for brokers in [1, 3] {
        let (mut starts, mut resident) = (Vec::new(), Vec::new());
        let mut faults = Faults::default();
        for _ in 0..ROUNDS {
            let cluster = start(brokers).await?;
            starts.push(cluster.first_produce_after());
            resident.extend(cluster.pids().iter().map(|pid| proc::usage(&[*pid]).rss_kib / 1024));
            let measured = faults.measure(&cluster, brokers).await;
            cluster.shutdown().await;
            measured?;
        }
        let who = if brokers == 1 {
            "1 broker".to_owned()
        } else {
            format!("{brokers} brokers")
        };
        lines.push(line(&format!("{who}, start"), "to first acknowledged produce", starts));
        lines.push(line(
            &format!("{who}, kill"),
            "SIGKILL of one to its next acknowledged produce",
            faults.restarts,
        ));
        lines.push(line(
            &format!("{who}, proof"),
            "SIGKILL of one to the proof that it is gone",
            faults.kills,
        ));
        lines.push(line(
            &format!("{who}, pause"),
            "SIGSTOP of one to the proof that it stands still",
            faults.pauses,
        ));
        // Nothing where the engine is on another machine: its process ids mean nothing here.
        if let Some(most) = resident.iter().max().filter(|most| **most > 0) {
            lines.push(format!(
                "ok        {:16} {most} MiB resident at most, each",
                format!("{who}, memory")
            ));
        }
    }
    Ok(lines)
}

/// How long it took until brokers were proven to stand still, to be gone and to be back.
#[derive(Default)]
struct Faults {
    pauses: Vec<Duration>,
    kills: Vec<Duration>,
    restarts: Vec<Duration>,
}

impl Faults {
    async fn measure(&mut self, cluster: &KafkaCluster, brokers: u32) -> Result<(), ClusterError> {
        let topic = TopicSpec {
            name: TOPIC.to_owned(),
            partitions: 1,
            replicas: brokers,
            ..TopicSpec::default()
        };
        cluster.create_topic(&topic).await?;
        let leader = cluster.leader(TOPIC, 0).await?;
        let begun = Instant::now();
        cluster.pause_broker(leader).await?;
        self.pauses.push(begun.elapsed());
        cluster.resume_broker(leader).await?;
        // A pause may have moved the leader.
        let leader = cluster.leader(TOPIC, 0).await?;
        let begun = Instant::now();
        cluster.kill_broker(leader, Duration::ZERO).await?;
        self.kills.push(begun.elapsed());
        cluster.start_broker(leader).await?;
        cluster.until_takes(TOPIC, 0).await?;
        self.restarts.push(begun.elapsed());
        Ok(())
    }
}

fn line(what: &str, text: &str, mut took: Vec<Duration>) -> String {
    took.sort();
    let seconds: Vec<String> = [took.first(), took.get(took.len() / 2), took.last()]
        .into_iter()
        .flatten()
        .map(|took| format!("{:.3}", took.as_secs_f64()))
        .collect();
    format!(
        "ok        {what:16} {} s ({text}: min, median, max of {})",
        seconds.join(" / "),
        took.len()
    )
}
