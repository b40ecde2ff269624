//! Setting a run up and taking it down.

use std::sync::Arc;
use std::time::Duration;

use brokerfall_report::history::{ClusterInfo, Event, FailureOf, Stage};

use super::order::{GROUP, Order};
use super::rig::Rig;
use crate::cluster::clusters::Wanted;
use crate::cluster::{Cluster, ClusterError, TopicSpec};
use crate::fault::{FaultError, FaultSpec};
use crate::history::recorder::Recorder;
use crate::link::builtin::{BuiltinLink, LinkOptions};
#[cfg(feature = "toxiproxy")]
use crate::link::toxiproxy::ToxiproxyLink;
use crate::link::{Link, LinkError, LinkSource};
use crate::oracle::{Oracle, OracleError};
use crate::reader::host::HostError;
use crate::scenario::plan::{Action, Plan, TopicPlan, USUAL_VALUE_BYTES};

/// Why a run could not be carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// The cluster failed.
    #[error("failed to set the cluster up")]
    Cluster(#[from] ClusterError),
    /// The link failed.
    #[error("failed to set the link up")]
    Link(#[from] LinkError),
    /// The oracle failed.
    #[error("the oracle lost the cluster")]
    Oracle(#[from] OracleError),
    /// The log could not be read a last time.
    #[error("the last scan of the log did not end within {LAST_LOOK:?}")]
    NoLastLook,
    /// A reader's process could not be started, or its folder not be written.
    #[error("failed to start the reader")]
    Reader(#[source] HostError),
    /// A fault failed in a way that is not evidence.
    #[error("failed to handle a fault")]
    Fault(#[from] FaultError),
}

impl RunError {
    /// Whose failure it is. What only our own code can have caused is ours; everything else that our parts meet on a
    /// machine is the environment's.
    pub(crate) fn of(&self) -> FailureOf {
        let ours = match self {
            RunError::Cluster(cause) => is_ours_of_cluster(cause),
            RunError::Link(cause) => is_ours_of_link(cause),
            RunError::Oracle(cause) => cause.is_ours(),
            RunError::Fault(cause) => match cause {
                FaultError::Cluster(cause) => is_ours_of_cluster(cause),
                FaultError::Link(cause) => is_ours_of_link(cause),
                FaultError::Oracle(cause) => cause.is_ours(),
                FaultError::Host(_) | FaultError::NotProven { .. } => false,
            },
            RunError::Reader(_) | RunError::NoLastLook => false,
        };
        if ours {
            FailureOf::Harness
        } else {
            FailureOf::Environment
        }
    }
}

/// A request that cannot be encoded.
fn is_ours_of_cluster(cause: &ClusterError) -> bool {
    matches!(cause, ClusterError::Direct { source, .. } if source.is_ours())
}

/// A broker or cut that the link was never told of, or a cut that it cannot do.
fn is_ours_of_link(cause: &LinkError) -> bool {
    #[cfg(feature = "toxiproxy")]
    if let LinkError::Toxiproxy(cause) = cause {
        return matches!(**cause, crate::link::toxiproxy::ToxiproxyError::Cannot { .. });
    }
    matches!(cause, LinkError::NoBroker { .. } | LinkError::NoCut { .. })
}

/// Starts cluster, link and oracle, makes the topics and writes what stands in them before the reader starts.
pub(crate) async fn up(order: &Order, recorder: &Recorder) -> Result<Rig, RunError> {
    let plan = &order.plan;
    let wanted = Wanted {
        kind: order.cluster,
        brokers: plan.cluster.brokers,
        group: GROUP,
        folder: &order.folder,
    };
    let lease = match order.clusters.up(wanted).await {
        Ok(lease) => lease,
        Err(cause) => {
            open_unborn(order, recorder);
            return Err(cause.into());
        }
    };
    let cluster = lease.cluster.clone();
    let opened = order.opened(cluster.info(), &order.link.label());
    let topics = opened.topics.clone();
    recorder.record(Event::Opened(Box::new(opened)));
    recorder.record(Event::Stage(Stage::Preparing));
    let options = LinkOptions {
        emulated: cluster.emulated(),
        idle: plan.cluster.idle,
        seed: order.seed,
        named: plan.names_brokers(),
    };
    let link = link(order, &*cluster, recorder, options).await?;
    for topic in &plan.topics {
        let partitions = most_partitions(plan, &topic.name).max(topic.partitions);
        cluster.create_topic(&topic_spec(plan, topic, partitions)).await?;
        if partitions > topic.partitions {
            link.limit_partitions(&topic.name, Some(topic.partitions));
        }
    }
    if let Some(group) = order.group() {
        cluster.note_group(&group);
        if let Some(node) = plan.cluster.offsets_on {
            cluster.move_coordinator(&group, node).await?;
        }
    }
    let oracle = Oracle::connect(&cluster.direct_bootstrap(), cluster.login(), recorder.clone(), &topics).await?;
    for topic in &plan.topics {
        match topic.age {
            Some(age) => oracle.preload_aged(&topic.name, topic.preload, age).await?,
            None => oracle.preload(&topic.name, topic.preload).await?,
        }
    }
    // While the reader starts: this run waits for it.
    order.clusters.start_ahead(order.cluster, plan.cluster.brokers);
    Ok(Rig::new(order, lease, link, Arc::new(oracle), recorder.clone()))
}

/// Starts the link, on the ports that the cluster's brokers advertise where they advertise any.
async fn link(
    order: &Order,
    cluster: &dyn Cluster,
    recorder: &Recorder,
    options: LinkOptions,
) -> Result<Arc<dyn Link>, LinkError> {
    let (ports, upstreams) = (cluster.advertised(), cluster.upstreams());
    let recorder = recorder.clone();
    Ok(match &order.link {
        LinkSource::Builtin if ports.is_empty() => Arc::new(BuiltinLink::start(upstreams, recorder, options)?),
        LinkSource::Builtin => Arc::new(BuiltinLink::start_on(ports, upstreams, recorder, options)?),
        #[cfg(feature = "toxiproxy")]
        LinkSource::Toxiproxy(program) => {
            let own = order.clusters.program();
            if ports.is_empty() {
                Arc::new(ToxiproxyLink::start(program, own, upstreams, recorder, options).await?)
            } else {
                Arc::new(ToxiproxyLink::start_on(ports, program, own, upstreams, recorder, options).await?)
            }
        }
    })
}

/// A topic of the plan, as a cluster is to have it.
pub(super) fn topic_spec(plan: &Plan, topic: &TopicPlan, partitions: u32) -> TopicSpec {
    let replicas = match topic.brokers.len() {
        0 => plan.cluster.brokers,
        named => u32::try_from(named).unwrap_or(plan.cluster.brokers),
    };
    TopicSpec {
        name: topic.name.clone(),
        partitions,
        replicas: topic.replicas.unwrap_or(replicas),
        brokers: topic.brokers.clone(),
        cleanup: topic.cleanup,
        retention_ms: topic.retention.and_then(|retention| retention.ms),
        retention_bytes: topic.retention.and_then(|retention| retention.bytes),
        segment_bytes: topic.segment_bytes,
        max_message_bytes: longest(plan),
    }
}

/// The length of records that topics must take, where it is more than they take by themselves.
fn longest(plan: &Plan) -> Option<u64> {
    let values = plan.steps.iter().filter_map(|step| match &step.action {
        Action::Produce(produce) => produce.value_bytes,
        _ => None,
    });
    let longest = values.max().filter(|bytes| *bytes > USUAL_VALUE_BYTES)?;
    Some(longest.saturating_add(BATCH_OVERHEAD))
}

/// Bytes of a batch beside the value of its only record: more than there are.
const BATCH_OVERHEAD: u64 = 1_000;

/// The most partitions that a step adds to a topic. The mock cluster cannot add any, so they are there from the start and
/// the link shows them when their time has come.
fn most_partitions(plan: &Plan, topic: &str) -> u32 {
    let first = plan.topics.first().map_or("", |topic| topic.name.as_str());
    plan.faults()
        .filter_map(|fault| match fault {
            FaultSpec::AddPartitions(added) if added.topic.as_deref().unwrap_or(first) == topic => Some(added.to),
            _ => None,
        })
        .max()
        .unwrap_or(0)
}

/// Opens the history of a run whose cluster did not come up.
pub(crate) fn open_unborn(order: &Order, recorder: &Recorder) {
    let unborn = ClusterInfo {
        kind: order.cluster.name().into(),
        kafka: "not started".into(),
        brokers: order.plan.cluster.brokers,
        properties: Vec::new(),
    };
    recorder.record(Event::Opened(Box::new(order.opened(unborn, &order.link.label()))));
}

/// Ends every process, connection and listener of the run. Whatever state they are in.
pub(crate) async fn down(rig: &Rig) {
    for reader in rig.processes() {
        // Already stopped ones answer at once; those that an error or signal left running are killed.
        if let Err(HostError::Broken { .. }) = reader.kill().await {
            rig.fail(
                FailureOf::Harness,
                format!("reader {} could not be killed", reader.member()),
            );
        }
    }
    rig.stop_watching();
    rig.stop_asking().await;
    rig.stop_watching_group().await;
    // The link first: its ports go with the cluster, to the next run.
    rig.link.shutdown().await;
    rig.lease.end().await;
}

/// How long the last scan and the last watermarks may take before the run ends without them.
pub(crate) const LAST_LOOK: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_our_code_can_have_caused_is_ours_and_the_rest_the_environments() {
        let unknown = || OracleError::UnknownPartition {
            topic: "orders".to_owned(),
            partition: 9,
        };
        let timed_out = |source| OracleError::TimedOut {
            what: "reading".to_owned(),
            within: Duration::from_secs(1),
            source: Box::new(source),
        };
        let ours = [
            RunError::Oracle(unknown()),
            RunError::Fault(FaultError::Oracle(timed_out(unknown()))),
            RunError::Fault(FaultError::Link(LinkError::NoBroker { node: 9 })),
        ];
        for cause in ours {
            assert_eq!(cause.of(), FailureOf::Harness, "{cause:?}");
        }
        let environments = [
            RunError::NoLastLook,
            RunError::Oracle(timed_out(OracleError::Away { node: 1 })),
            RunError::Cluster(ClusterError::Died {
                cluster: "mock",
                last_words: "signal: 6".to_owned(),
            }),
        ];
        for cause in environments {
            assert_eq!(cause.of(), FailureOf::Environment, "{cause:?}");
        }
    }
}
