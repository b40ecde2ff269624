//! Topics as Kafka is to have them: replicas, settings, and where a group's commits stand.

use kafka_protocol::messages::MetadataResponse;

use crate::cluster::{NodeId, TopicSpec};

/// The group's commits and members.
pub(super) const OFFSETS: &str = "__consumer_offsets";

/// Its partitions, as the brokers are told.
pub(super) const OFFSETS_PARTITIONS: i32 = 3;

/// The replicas of each partition, leader first: the topic's brokers in turn.
pub(super) fn replicas_of(topic: &TopicSpec, all: &[NodeId]) -> Vec<Vec<NodeId>> {
    let nodes = if topic.brokers.is_empty() { all } else { &topic.brokers };
    let count = (topic.replicas as usize).clamp(1, nodes.len());
    (0..topic.partitions as usize)
        .map(|partition| {
            nodes
                .iter()
                .cycle()
                .skip(partition % nodes.len())
                .take(count)
                .copied()
                .collect()
        })
        .collect()
}

/// The settings of a topic, as Kafka names them.
pub(super) fn configs_of(topic: &TopicSpec, kafka: &str) -> Vec<(&'static str, String)> {
    let mut configs = Vec::new();
    if topic.cleanup.compacts() {
        configs.push(("cleanup.policy", topic.cleanup.name().to_owned()));
    }
    if let Some(ms) = topic.retention_ms {
        configs.push(("retention.ms", ms.to_string()));
    }
    if let Some(bytes) = topic.retention_bytes {
        configs.push(("retention.bytes", bytes.to_string()));
    }
    if let Some(bytes) = topic.max_message_bytes {
        configs.push(("max.message.bytes", bytes.to_string()));
    }
    if let Some(bytes) = topic.segment_bytes {
        // From 4.1 on segments below 1 MiB go by another name.
        let small = bytes < (1 << 20) && !kafka.starts_with("3.");
        let name = if small {
            "internal.segment.bytes"
        } else {
            "segment.bytes"
        };
        configs.push((name, bytes.to_string()));
    }
    configs
}

/// The first partition that has no leader, or not all of its replicas in sync, as Metadata tell it.
pub(super) fn lacking(metadata: &MetadataResponse) -> Option<String> {
    metadata.topics.iter().find_map(|topic| {
        let name = topic.name.as_ref().map_or("", |name| name.as_str());
        topic.partitions.iter().find_map(|partition| {
            let index = partition.partition_index;
            let (replicas, in_sync) = (partition.replica_nodes.len(), partition.isr_nodes.len());
            if partition.leader_id.0 <= 0 {
                return Some(format!("that nobody leads {name}-{index}"));
            }
            (in_sync < replicas).then(|| format!("that {in_sync} of {replicas} replicas of {name}-{index} are in sync"))
        })
    })
}

/// The partition of the topic of commits that holds a group: the hash that Java gives its name.
pub(super) fn offsets_partition(group: &str) -> u32 {
    let hash = group
        .encode_utf16()
        .fold(0i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    u32::try_from((hash & i32::MAX) % OFFSETS_PARTITIONS).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(partitions: u32, replicas: u32, brokers: &[NodeId]) -> TopicSpec {
        TopicSpec {
            name: "orders".to_owned(),
            partitions,
            replicas,
            brokers: brokers.to_vec(),
            ..TopicSpec::default()
        }
    }

    #[test]
    fn leaders_of_a_topic_go_round_its_brokers() {
        let all = [1, 2, 3];
        assert_eq!(
            replicas_of(&topic(4, 3, &[]), &all),
            [[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 2, 3]]
        );
        assert_eq!(replicas_of(&topic(3, 1, &[]), &all), [[1], [2], [3]]);
        assert_eq!(replicas_of(&topic(2, 2, &[2, 3]), &all), [[2, 3], [3, 2]]);
        assert_eq!(replicas_of(&topic(2, 1, &[2]), &all), [[2], [2]]);
    }

    #[test]
    fn small_segments_go_by_the_name_that_the_version_knows() {
        let small = TopicSpec {
            segment_bytes: Some(4096),
            ..topic(1, 1, &[])
        };
        assert_eq!(
            configs_of(&small, "4.1.0"),
            [("internal.segment.bytes", "4096".to_owned())]
        );
        assert_eq!(configs_of(&small, "3.9.1"), [("segment.bytes", "4096".to_owned())]);
        let large = TopicSpec {
            segment_bytes: Some(1 << 20),
            retention_ms: Some(1000),
            ..topic(1, 1, &[])
        };
        assert_eq!(
            configs_of(&large, "4.1.0"),
            [
                ("retention.ms", "1000".to_owned()),
                ("segment.bytes", "1048576".to_owned())
            ]
        );
    }

    #[test]
    fn partition_of_a_group_is_javas_hash_of_its_name() {
        // As Java 17 told them: "a".hashCode() and "brokerfall".hashCode().
        assert_eq!(offsets_partition("a"), 97 % 3);
        assert_eq!(offsets_partition("brokerfall"), 1_682_160_340 % 3);
        // The hash of this one is Integer.MIN_VALUE, whose absolute value is none.
        assert_eq!(offsets_partition("polygenelubricants"), 0);
    }
}
