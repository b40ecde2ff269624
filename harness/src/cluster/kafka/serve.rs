//! What the trait promises, carried out by the brokers: each command waits until every broker that answers shows it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use brokerfall_report::history::ClusterInfo;
use futures::future::{join_all, try_join_all};
use nix::sys::signal::Signal;

use super::topics::{self, OFFSETS, configs_of, offsets_partition, replicas_of};
use super::{
    ASKER, KafkaCluster, LOOK_EVERY, acls, admin, brokers_of, leader_in, metadata_of, refused, settings, until,
};
use crate::cluster::{Ability, Cluster, ClusterError, NodeId, Replicas, Resource, TopicSpec, direct};
use crate::fault::list;
use crate::ports::Port;

#[async_trait]
impl Cluster for KafkaCluster {
    fn info(&self) -> ClusterInfo {
        ClusterInfo {
            kind: self.kind.name().to_owned(),
            kafka: self.kafka(),
            brokers: u32::try_from(self.nodes.len()).unwrap_or(u32::MAX),
            properties: Vec::new(),
        }
    }

    fn brokers(&self) -> Vec<(NodeId, SocketAddr)> {
        self.nodes
            .iter()
            .map(|node| (node.id(), node.addresses().oracle))
            .collect()
    }

    fn login(&self) -> Option<direct::Login> {
        Some(settings::LOGIN)
    }

    fn upstreams(&self) -> Vec<(NodeId, SocketAddr)> {
        self.nodes
            .iter()
            .map(|node| (node.id(), node.addresses().reader))
            .collect()
    }

    fn advertised(&self) -> Vec<Arc<Port>> {
        self.advertised.clone()
    }

    fn can(&self, ability: Ability) -> bool {
        match ability {
            Ability::PauseBroker
            | Ability::DeleteRecords
            | Ability::Retention
            | Ability::DeleteTopic
            | Ability::DenyRead
            | Ability::StopBroker
            | Ability::UncleanElection
            | Ability::Reassign => true,
        }
    }

    fn log_to(&self, folder: &Path) {
        for node in &self.nodes {
            node.log_to(folder);
        }
    }

    async fn create_topic(&self, topic: &TopicSpec) -> Result<(), ClusterError> {
        let all: Vec<NodeId> = self.nodes.iter().map(|node| node.id()).collect();
        let replicas = replicas_of(topic, &all);
        let configs = configs_of(topic, &self.kafka());
        self.create(&topic.name, &replicas, &configs).await?;
        for (partition, replicas) in (0..).zip(&replicas) {
            self.until_first_leads(&topic.name, partition, replicas[0]).await?;
            self.until_led(&topic.name, partition, replicas[0]).await?;
        }
        Ok(())
    }

    /// Brokers elect by themselves, once the dead one's session is over.
    async fn kill_broker(&self, node: NodeId, _election: Duration) -> Result<String, ClusterError> {
        let node = self.node(node)?;
        if !node.is_running() {
            return Err(refused(format!("kill broker {}", node.id()), "it is down"));
        }
        let name = node.name();
        node.end(Signal::SIGKILL).await?;
        for address in [node.addresses().reader, node.addresses().oracle] {
            direct::refuses(address, LOOK_EVERY).await?;
        }
        Ok(format!(
            "broker {}: {name} was killed and is gone, {} refuses connections",
            node.id(),
            node.addresses().reader
        ))
    }

    async fn stop_broker(&self, node: NodeId) -> Result<String, ClusterError> {
        let node = self.node(node)?;
        if !node.answers() {
            return Err(refused(format!("stop broker {}", node.id()), "it is down or paused"));
        }
        let (name, told) = (node.name(), tokio::time::Instant::now());
        let ended = async {
            let ended = node.end(Signal::SIGTERM).await?;
            Ok::<_, ClusterError>((ended, told.elapsed()))
        };
        let led = async {
            let others = self.until_leads_nothing(node).await?;
            Ok((others, told.elapsed()))
        };
        let ((ended, after), (others, led)) = futures::future::try_join(ended, led).await?;
        let status = ended.status.ok_or_else(|| {
            let command = format!("stop broker {}", node.id());
            refused(command, &format!("it did not end by itself: {}", ended.last_words))
        })?;
        for address in [node.addresses().reader, node.addresses().oracle] {
            direct::refuses(address, LOOK_EVERY).await?;
        }
        let led = match others.as_slice() {
            [] => "nobody was there to lead instead of it".to_owned(),
            others => format!("broker {} named it the leader of nothing after {led:.1?}", list(others)),
        };
        Ok(format!(
            "broker {}: {name} was told to stop (SIGTERM) and ended by itself after {after:.1?} with status {status}; {led}",
            node.id()
        ))
    }

    async fn until_in_sync(&self) -> Result<String, ClusterError> {
        let nodes: Vec<NodeId> = self.nodes.iter().map(|node| node.id()).collect();
        try_join_all(self.nodes.iter().map(|node| self.until_named(&**node, &nodes))).await?;
        let what = "that every partition has a leader and all of its replicas in sync";
        let partitions = until(what, || async {
            let mut partitions = 0;
            for node in &self.nodes {
                let metadata = metadata_of(node.addresses().oracle, &[]).await?;
                if let Some(lacking) = topics::lacking(&metadata) {
                    return Err(refused(
                        what.to_owned(),
                        &format!("broker {} says {lacking}", node.id()),
                    ));
                }
                partitions = metadata.topics.iter().map(|topic| topic.partitions.len()).sum();
            }
            Ok(partitions)
        })
        .await?;
        Ok(format!(
            "broker {} name each other and say that all replicas of {partitions} partition(s) are in sync",
            list(&nodes)
        ))
    }

    async fn start_broker(&self, node: NodeId) -> Result<String, ClusterError> {
        let node = self.node(node)?;
        if node.is_running() {
            return Err(refused(format!("start broker {}", node.id()), "it runs"));
        }
        node.start().await?;
        self.until_named(node, &[node.id()]).await?;
        Ok(format!(
            "broker {}: {} serves at {}",
            node.id(),
            node.name(),
            node.addresses().reader
        ))
    }

    async fn pause_broker(&self, node: NodeId) -> Result<String, ClusterError> {
        let node = self.node(node)?;
        let seen = node.set_paused(true).await?;
        Ok(format!("broker {}: {} {seen}", node.id(), node.name()))
    }

    async fn resume_broker(&self, node: NodeId) -> Result<String, ClusterError> {
        let node = self.node(node)?;
        let seen = node.set_paused(false).await?;
        self.until_named(node, &[node.id()]).await?;
        Ok(format!(
            "broker {}: {} {seen} and answers Metadata",
            node.id(),
            node.name()
        ))
    }

    async fn delete_records(&self, topic: &str, partition: u32, before: u64) -> Result<String, ClusterError> {
        let index = i32::try_from(partition).unwrap_or(i32::MAX);
        let leader = self.leader(topic, partition).await?;
        let start = admin::delete_records(self.node(leader)?.addresses().oracle, topic, index, before).await?;
        Ok(format!(
            "DeleteRecords moved the log start of {topic}-{partition} to {start}"
        ))
    }

    async fn set_topic(&self, topic: &str, setting: &'static str, value: Option<String>) -> Result<(), ClusterError> {
        admin::set_topic(self.any()?, topic, setting, value).await
    }

    async fn delete_topic(&self, topic: &str) -> Result<String, ClusterError> {
        admin::delete_topics(self.any()?, &[topic.to_owned()]).await?;
        let what = format!("that no broker knows topic {topic}");
        until(&what, || async {
            for node in self.nodes.iter().filter(|node| node.answers()) {
                let metadata = metadata_of(node.addresses().oracle, &[topic.to_owned()]).await?;
                let code = metadata.topics.first().map(|topic| topic.error_code);
                if code != Some(admin::code::UNKNOWN_TOPIC_OR_PARTITION) {
                    let answer = format!("broker {} answers code {code:?}", node.id());
                    return Err(refused(what.clone(), &answer));
                }
            }
            Ok(())
        })
        .await?;
        Ok(format!("Metadata of every broker answered that {topic} is unknown"))
    }

    async fn deny_read(&self, resource: &Resource) -> Result<String, ClusterError> {
        acls::deny_read(self.any()?, resource).await?;
        self.until_readers(resource, true).await
    }

    async fn allow_read(&self, resource: &Resource) -> Result<String, ClusterError> {
        acls::allow_read(self.any()?, resource).await?;
        self.until_readers(resource, false).await
    }

    fn live(&self) -> Vec<NodeId> {
        let running = self.nodes.iter().filter(|node| node.is_running());
        running.map(|node| node.id()).collect()
    }

    async fn move_leader(&self, topic: &str, partition: u32, to: NodeId) -> Result<String, ClusterError> {
        let before = self.replicas(topic, partition).await?.all;
        // As many replicas as before; one gives way where the new leader had none.
        let mut after = vec![to];
        after.extend(before.iter().copied().filter(|node| *node != to));
        after.truncate(before.len());
        self.reassign(topic, partition, &after).await?;
        Ok(format!(
            "Metadata of every broker names broker {to} the leader of {topic}-{partition}"
        ))
    }

    async fn reassign(&self, topic: &str, partition: u32, replicas: &[NodeId]) -> Result<String, ClusterError> {
        let to = *replicas
            .first()
            .ok_or_else(|| refused(format!("replicas of {topic}-{partition}"), "none were named"))?;
        if !self.node(to)?.answers() {
            return Err(refused(format!("broker {to} in charge"), "it is down or paused"));
        }
        let index = i32::try_from(partition).unwrap_or(i32::MAX);
        admin::reassign(self.any()?, topic, index, replicas).await?;
        let what = format!(
            "that broker {} alone hold {topic}-{partition}, broker {to} in sync",
            list(replicas)
        );
        until(&what, || async {
            let now = self.replicas(topic, partition).await?;
            let same = now.all.len() == replicas.len() && replicas.iter().all(|node| now.all.contains(node));
            if same && now.in_sync.contains(&to) {
                Ok(())
            } else {
                Err(refused(what.clone(), &format!("{now:?}")))
            }
        })
        .await?;
        admin::elect_first(self.any()?, topic, index).await?;
        self.until_led(topic, index, to).await?;
        Ok(format!(
            "Metadata of every broker names broker {to} the leader of {topic}-{partition}, which broker {} hold",
            list(replicas)
        ))
    }

    /// A group's coordinator is the leader of the partition that holds its commits.
    async fn move_coordinator(&self, group: &str, to: NodeId) -> Result<String, ClusterError> {
        let partition = offsets_partition(group);
        self.move_leader(OFFSETS, partition, to).await?;
        let what = format!("that broker {to} coordinates group {group}");
        until(&what, || async {
            match self.coordinator(group).await? {
                node if node == to => Ok(()),
                node => Err(refused(what.clone(), &format!("it is broker {node}"))),
            }
        })
        .await?;
        Ok(format!(
            "FindCoordinator names broker {to} the coordinator of group {group}, which leads {OFFSETS}-{partition}"
        ))
    }

    async fn members(&self) -> Result<Vec<NodeId>, ClusterError> {
        Ok(brokers_of(&self.metadata(&[]).await?))
    }

    async fn leader(&self, topic: &str, partition: u32) -> Result<NodeId, ClusterError> {
        let metadata = self.metadata(&[topic.to_owned()]).await?;
        leader_in(&metadata, i32::try_from(partition).unwrap_or(i32::MAX)).ok_or_else(|| {
            refused(
                format!("leader of {topic}-{partition}"),
                "no such partition, or it has no leader",
            )
        })
    }

    async fn replicas(&self, topic: &str, partition: u32) -> Result<Replicas, ClusterError> {
        let index = i32::try_from(partition).unwrap_or(i32::MAX);
        let metadata = self.metadata(&[topic.to_owned()]).await?;
        let mut partitions = metadata.topics.iter().flat_map(|topic| &topic.partitions);
        let found = partitions.find(|found| found.partition_index == index);
        let found = found.ok_or_else(|| refused(format!("replicas of {topic}-{partition}"), "no such partition"))?;
        Ok(Replicas {
            all: found.replica_nodes.iter().map(|node| node.0).collect(),
            in_sync: found.isr_nodes.iter().map(|node| node.0).collect(),
        })
    }

    async fn coordinator(&self, group: &str) -> Result<NodeId, ClusterError> {
        direct::coordinator(self.any()?, ASKER, group, admin::ANSWER_WITHIN)
            .await
            .map_err(admin::direct_error("FindCoordinator"))?
            .ok_or_else(|| refused(format!("coordinator of group {group}"), "it has none"))
    }

    fn complaints(&self) -> Vec<String> {
        Vec::new()
    }

    async fn died(&self) -> String {
        let mut died = self.died.subscribe();
        let last_words = died.wait_for(Option::is_some).await;
        match last_words.ok().and_then(|last_words| last_words.clone()) {
            Some(last_words) => last_words,
            None => std::future::pending().await,
        }
    }

    async fn shutdown(&self) {
        // What stays is ended by the watchdog at the end, or by the sweep of the next start.
        let _ = self.end_by(Signal::SIGKILL).await;
        join_all(self.nodes.iter().map(|node| node.clear())).await;
        self.ground.clear().await;
    }
}
