//! unclean-election: a broker that lacks records is made the leader, so that the end of the log moves back and other records
//! take the offsets of those that are lost.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{Fault, FaultError, Heal, Injected, PROOF, list, reaction};
use crate::cluster::NodeId;
use crate::history::facts::Facts;
use crate::run::rig::Rig;

/// How often the cluster is asked what has become of its replicas: a session of a dead broker lasts 1.5 s.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How long the reader may take to read what is about to be lost: it comes over loopback in milliseconds.
const READ_WITHIN: Duration = Duration::from_secs(10);

/// Whether a replica that is not in sync may lead, as Kafka names the setting of a topic.
const UNCLEAN: &str = "unclean.leader.election.enable";

/// `unclean-election = { lost = 50, records = 20 }`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct UncleanElection {
    /// Which topic, of two replicas; default the first.
    #[serde(default)]
    pub topic: Option<String>,
    /// How many records are written to each of its partitions, acknowledged, and then lost; 1 at least.
    pub lost: u64,
    /// How many others are written to each of its partitions as soon as it has its new leader; they take the offsets of
    /// those that are lost.
    pub records: u64,
}

/// What brokers answer, of any api, to a reader that stands past the end of the log, or in an epoch that is over.
const TOLD: [&str; 4] = [
    "OFFSET_OUT_OF_RANGE",
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
    "NOT_LEADER_OR_FOLLOWER",
];

#[async_trait]
impl Fault for UncleanElection {
    fn kind(&self) -> &'static str {
        "unclean-election"
    }

    fn text(&self) -> String {
        let topic = self.topic.as_deref().unwrap_or("the first topic");
        format!(
            "a replica that lacks the last {} records of each partition of {topic} is elected, and {} others take their place",
            self.lost, self.records
        )
    }

    fn closes_path(&self) -> bool {
        true
    }

    async fn inject(&self, rig: &Rig, _name: &str) -> Result<Injected, FaultError> {
        let (topic, partitions) = rig.chosen(self.topic.as_deref(), None);
        // A machine that starves a broker fences it.
        rig.cluster.until_in_sync().await?;
        let pair = Pair::of(rig, &topic).await?;
        let Pair { leader, follower } = pair;
        let was_loaded = rig.suspend_load().await?;
        for &partition in &partitions {
            rig.oracle.scan(&topic, partition).await?;
        }
        rig.cluster.set_topic(&topic, UNCLEAN, Some(true.to_string())).await?;
        rig.link.broker_going(follower).await?;
        let mut proofs = vec![rig.cluster.kill_broker(follower, rig.election).await?];
        pair.until_alone(rig, &topic, &partitions).await?;
        rig.oracle.preload(&topic, self.lost).await?;
        let mut ends = Vec::new();
        for &partition in &partitions {
            ends.push(rig.oracle.watermarks(&topic, partition).await?.1);
        }
        let had_read = until_read(rig, &topic, &partitions, &ends).await;
        let mark = rig.mark();
        rig.link.broker_going(leader).await?;
        proofs.push(rig.cluster.kill_broker(leader, rig.election).await?);
        proofs.push(rig.cluster.start_broker(follower).await?);
        pair.until_elected(rig, &topic, &partitions).await?;
        rig.oracle.forget_log(&topic).await;
        for (&partition, before) in partitions.iter().zip(ends) {
            let (_, end) = rig.oracle.watermarks(&topic, partition).await?;
            if end + self.lost > before {
                return Err(FaultError::NotProven {
                    what: format!("that {topic}-{partition} lost its last {} records", self.lost),
                    seen: format!("it ends at {end}, and ended at {before} before"),
                });
            }
            rig.log_truncated(&topic, partition, end);
            proofs.push(format!(
                "broker {follower} leads {topic}-{partition}, which ends at {end} now and ended at {before} on broker {leader}"
            ));
        }
        let anew = rig.mark();
        proofs.push(had_read);
        rig.oracle.preload(&topic, self.records).await?;
        for &partition in &partitions {
            let scan = rig.oracle.scan(&topic, partition).await?;
            if let (Some(id), Some(offset)) = (scan.ids.last(), scan.offsets.last()) {
                proofs.push(format!("id {id} stands at offset {offset} of {topic}-{partition}"));
            }
        }
        // Only now: a reader that asked before the others stood there would be told so by the end of the log alone.
        rig.link.broker_back(follower, PROOF).await?;
        if was_loaded {
            rig.start_load();
        }
        let watched = topic.clone();
        Ok(Injected {
            proof: proofs.join("; "),
            delivered: Box::new(move |facts| {
                let told = TOLD.iter().find_map(|code| {
                    let answers = facts.refused_since(mark, code, Some(&watched));
                    (answers > 0).then(|| format!("{answers} answer(s) of brokers about {watched}: {code}"))
                });
                // Asked for the end of its epoch, a broker tells where the log ends, which is no error.
                told.or_else(|| {
                    let asked = facts.wire_requests_since(anew, Some("OffsetForLeaderEpoch"))
                        + facts.wire_requests_since(anew, Some("Fetch"));
                    let closed = facts.closed_since(mark, Some(leader));
                    (asked > 0 && closed > 0).then(|| {
                        format!("its connection to broker {leader} closed, and it sent {asked} request(s) about what is left")
                    })
                })
            }),
            felt: Box::new(move |facts, since| {
                let resets = facts.resets_since(since.n);
                if resets > 0 {
                    return Some(format!("the reader reported {resets} reset(s)"));
                }
                facts.delivered_anew(&topic).or_else(|| reaction()(facts, since))
            }),
            strikes_later: false,
            heal: Box::new(Behind { leader }),
        })
    }
}

/// The two brokers that hold the topic: the one that dies with what it alone has, and the one that leads then.
#[derive(Clone, Copy)]
struct Pair {
    leader: NodeId,
    follower: NodeId,
}

impl Pair {
    async fn of(rig: &Rig, topic: &str) -> Result<Pair, FaultError> {
        let not_proven = |seen: String| FaultError::NotProven {
            what: format!("that {topic} has two replicas in sync"),
            seen,
        };
        let replicas = rig.cluster.replicas(topic, 0).await?;
        let leader = rig.cluster.leader(topic, 0).await?;
        match replicas.all.iter().filter(|node| **node != leader).collect::<Vec<_>>()[..] {
            [&follower] if replicas.in_sync.len() == 2 => Ok(Pair { leader, follower }),
            _ => Err(not_proven(format!(
                "broker {} hold it, broker {} are in sync",
                list(&replicas.all),
                list(&replicas.in_sync)
            ))),
        }
    }

    /// Returns when the leader alone is in sync, and leads everything.
    async fn until_alone(self, rig: &Rig, topic: &str, partitions: &[u32]) -> Result<(), FaultError> {
        let alone = format!("broker {} alone is in sync", self.leader);
        self.until(rig, topic, partitions, self.leader, &alone, |in_sync| {
            in_sync == [self.leader]
        })
        .await
    }

    /// Returns when the follower leads everything.
    async fn until_elected(self, rig: &Rig, topic: &str, partitions: &[u32]) -> Result<(), FaultError> {
        let elected = format!("broker {} was elected", self.follower);
        self.until(rig, topic, partitions, self.follower, &elected, |_| true)
            .await
    }

    async fn until(
        self,
        rig: &Rig,
        topic: &str,
        partitions: &[u32],
        led_by: NodeId,
        what: &str,
        in_sync: impl Fn(&[NodeId]) -> bool,
    ) -> Result<(), FaultError> {
        let deadline = tokio::time::Instant::now() + PROOF;
        for &partition in partitions {
            loop {
                let seen = match (
                    rig.cluster.leader(topic, partition).await,
                    rig.cluster.replicas(topic, partition).await,
                ) {
                    (Ok(leader), Ok(replicas)) if leader == led_by && in_sync(&replicas.in_sync) => break,
                    (Ok(leader), Ok(replicas)) => {
                        format!("broker {leader} leads, broker {} in sync", list(&replicas.in_sync))
                    }
                    // While nobody leads it there is no leader to be told, and a loaded broker answers later.
                    (Err(cause), _) | (_, Err(cause)) => crate::chain(&cause),
                };
                if tokio::time::Instant::now() >= deadline {
                    return Err(FaultError::NotProven {
                        what: format!("that {what} for {topic}-{partition}"),
                        seen,
                    });
                }
                crate::before_the_next_look(LOOK_EVERY).await;
            }
        }
        Ok(())
    }
}

/// Gives the reader time to read what is about to be lost, and a group to commit it, and says how far it came.
async fn until_read(rig: &Rig, topic: &str, partitions: &[u32], ends: &[u64]) -> String {
    let commits = rig.group.is_some();
    let read = rig.recorder.wait_until(READ_WITHIN, |facts| {
        let done = |partition: u32, end: u64| {
            let committed = || committed(facts, topic, partition) >= Some(end);
            facts.position(topic, partition) >= Some(end) && (!commits || committed())
        };
        let mut places = partitions.iter().zip(ends);
        let all = places.all(|(&partition, &end)| done(partition, end));
        (all || facts.nothing_can_come()).then_some(())
    });
    // What it has not read by then it is not given any more, and the proof says so.
    let _ = read.await;
    let places = partitions.iter().map(|&partition| {
        let (position, committed) = rig.recorder.with(|facts| {
            let position = facts.position(topic, partition).unwrap_or_default();
            (position, committed(facts, topic, partition))
        });
        let committed = committed.map_or_else(String::new, |offset| format!(" and committed {offset}"));
        format!("up to {position} of {topic}-{partition}{committed}")
    });
    format!("the reader had read {} by then", places.collect::<Vec<_>>().join(", "))
}

/// The offset that the reader's group committed last, as the link or the reader told it.
fn committed(facts: &Facts, topic: &str, partition: u32) -> Option<u64> {
    let mut commits = facts.commits().iter().rev();
    let last = commits.find(|commit| commit.topic == topic && commit.partition == partition)?;
    Some(last.offset)
}

/// The old leader is down, and behind.
struct Behind {
    leader: NodeId,
}

#[async_trait]
impl Heal for Behind {
    async fn heal(self: Box<Self>, rig: &Rig) -> Result<String, FaultError> {
        let back = rig.cluster.start_broker(self.leader).await?;
        rig.link.broker_back(self.leader, PROOF).await?;
        let in_sync = rig.cluster.until_in_sync().await?;
        // The setting stays: with every replica in sync it has no effect, and the topic goes with the run.
        Ok(format!("{back}; {in_sync}; what is lost stays lost"))
    }
}
