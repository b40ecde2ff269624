//! What is asked of Kafka's brokers, in its own protocol: one request, one answer, and its error codes read.
//!
//! Requests that only the controller can carry out go to any broker, which hands them on. Deliberately not here: whom to ask,
//! and asking again.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::ResponseError;
use kafka_protocol::indexmap::IndexMap;
use kafka_protocol::messages::alter_partition_reassignments_request::{ReassignablePartition, ReassignableTopic};
use kafka_protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::elect_leaders_request::TopicPartitions;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    AlterPartitionReassignmentsRequest, BrokerId, CreateTopicsRequest, DeleteGroupsRequest, DeleteRecordsRequest,
    DeleteTopicsRequest, DescribeGroupsRequest, ElectLeadersRequest, FetchRequest, GroupId,
    IncrementalAlterConfigsRequest, LeaveGroupRequest, ProduceRequest,
};
use kafka_protocol::protocol::{Request, StrBytes};
use kafka_protocol::records::{
    Compression, NO_PARTITION_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, Record, RecordBatchEncoder,
    RecordEncodeOptions, TimestampType,
};

use super::{ASKER, refused};
use crate::cluster::direct::{self, DirectError};
use crate::cluster::{ClusterError, NodeId};

/// Longest wait for an answer.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The same, as brokers are told.
const ANSWER_WITHIN_MS: i32 = 5_000;

/// `ELECT_LEADERS` for the first of a partition's replicas.
const PREFERRED: i8 = 0;

/// Kafka's numbers for what settings are of, and what is done to one of them.
const TOPIC_CONFIG: i8 = 2;
const SET: i8 = 0;
const DELETE: i8 = 1;

/// Every in-sync replica.
const ACKS_ALL: i16 = -1;

/// Versions that Kafka 3.9 and 4 both answer.
mod version {
    pub(super) const ALTER_PARTITION_REASSIGNMENTS: i16 = 0;
    pub(super) const CREATE_TOPICS: i16 = 5;
    pub(super) const DELETE_GROUPS: i16 = 2;
    pub(super) const DELETE_RECORDS: i16 = 2;
    pub(super) const DELETE_TOPICS: i16 = 6;
    pub(super) const DESCRIBE_GROUPS: i16 = 5;
    pub(super) const ELECT_LEADERS: i16 = 2;
    pub(super) const FETCH: i16 = 11;
    pub(super) const INCREMENTAL_ALTER_CONFIGS: i16 = 1;
    pub(super) const LEAVE_GROUP: i16 = 5;
    pub(super) const PRODUCE: i16 = 7;
}

/// Codes that mean what was wanted, or what can be asked again.
pub(super) mod code {
    pub(crate) const NONE: i16 = 0;
    pub(crate) const GROUP_ID_NOT_FOUND: i16 = 69;
    pub(crate) const ELECTION_NOT_NEEDED: i16 = 84;
    pub(crate) const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
    pub(crate) const UNKNOWN_MEMBER_ID: i16 = 25;
    pub(crate) const TOPIC_ALREADY_EXISTS: i16 = 36;
    pub(crate) const FENCED_INSTANCE_ID: i16 = 82;
    pub(crate) const INVALID_REPLICA_ASSIGNMENT: i16 = 39;
}

pub(super) async fn ask<R: Request>(
    address: SocketAddr,
    api: &'static str,
    version: i16,
    request: &R,
) -> Result<R::Response, ClusterError> {
    direct::ask(address, ASKER, version, request, ANSWER_WITHIN)
        .await
        .map_err(direct_error(api))
}

/// As the cluster's error.
pub(super) fn direct_error(command: &'static str) -> impl Fn(DirectError) -> ClusterError {
    move |source| ClusterError::Direct {
        cluster: super::NAME,
        command,
        source,
    }
}

/// Refuses every code but 0 and those that are as good.
pub(super) fn check(command: impl Fn() -> String, code: i16, good: &[i16]) -> Result<(), ClusterError> {
    if code == code::NONE || good.contains(&code) {
        return Ok(());
    }
    let name = ResponseError::try_from_code(code).map_or_else(String::new, |error| format!(" ({error:?})"));
    Err(refused(command(), &format!("error code {code}{name}")))
}

/// One answer of several was wanted and none came.
pub(super) fn nothing(command: String) -> ClusterError {
    refused(command, "an answer that says nothing of it")
}

pub(super) fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

pub(super) fn group_id(group: &str) -> GroupId {
    GroupId(text(group))
}

/// Creates a topic whose partitions have these replicas, the first of each being its leader; returns the error code.
pub(super) async fn create_topic(
    address: SocketAddr,
    topic: &str,
    replicas: &[Vec<NodeId>],
    configs: &[(&str, String)],
) -> Result<i16, ClusterError> {
    let assignments = (0..).zip(replicas).map(|(partition, nodes)| {
        CreatableReplicaAssignment::default()
            .with_partition_index(partition)
            .with_broker_ids(nodes.iter().map(|node| BrokerId(*node)).collect())
    });
    let configs = configs.iter().map(|(name, value)| {
        CreatableTopicConfig::default()
            .with_name(text(name))
            .with_value(Some(text(value)))
    });
    let created = CreatableTopic::default()
        .with_name(direct::topic_name(topic))
        .with_num_partitions(-1)
        .with_replication_factor(-1)
        .with_assignments(assignments.collect())
        .with_configs(configs.collect());
    let request = CreateTopicsRequest::default()
        .with_topics(vec![created])
        .with_timeout_ms(ANSWER_WITHIN_MS);
    let answer = ask(address, "CreateTopics", version::CREATE_TOPICS, &request).await?;
    let created = answer.topics.first();
    created
        .map(|created| created.error_code)
        .ok_or_else(|| nothing(format!("create topic {topic}")))
}

/// Deletes topics; those that are not there are as good as deleted.
pub(super) async fn delete_topics(address: SocketAddr, topics: &[String]) -> Result<(), ClusterError> {
    let states = topics
        .iter()
        .map(|topic| DeleteTopicState::default().with_name(Some(direct::topic_name(topic))));
    let request = DeleteTopicsRequest::default()
        .with_topics(states.collect())
        .with_timeout_ms(ANSWER_WITHIN_MS);
    let answer = ask(address, "DeleteTopics", version::DELETE_TOPICS, &request).await?;
    answer.responses.iter().try_for_each(|deleted| {
        let command = || {
            format!(
                "delete topic {}",
                deleted.name.as_ref().map_or("", |name| name.as_str())
            )
        };
        check(command, deleted.error_code, &[code::UNKNOWN_TOPIC_OR_PARTITION])
    })
}

/// Changes a setting of a topic; without a value it is taken back to the cluster's.
pub(super) async fn set_topic(
    address: SocketAddr,
    topic: &str,
    setting: &'static str,
    value: Option<String>,
) -> Result<(), ClusterError> {
    let config = AlterableConfig::default()
        .with_name(text(setting))
        .with_config_operation(if value.is_some() { SET } else { DELETE })
        .with_value(value.as_deref().map(text));
    let resource = AlterConfigsResource::default()
        .with_resource_type(TOPIC_CONFIG)
        .with_resource_name(text(topic))
        .with_configs(vec![config]);
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    let api = "IncrementalAlterConfigs";
    let answer = ask(address, api, version::INCREMENTAL_ALTER_CONFIGS, &request).await?;
    let command = || format!("set {setting} of topic {topic}");
    let altered = answer.responses.first().ok_or_else(|| nothing(command()))?;
    check(command, altered.error_code, &[])
}

/// Gives a partition these replicas, the first of which is to lead.
pub(super) async fn reassign(
    address: SocketAddr,
    topic: &str,
    partition: i32,
    replicas: &[NodeId],
) -> Result<(), ClusterError> {
    let partitions = vec![
        ReassignablePartition::default()
            .with_partition_index(partition)
            .with_replicas(Some(replicas.iter().map(|node| BrokerId(*node)).collect())),
    ];
    let request = AlterPartitionReassignmentsRequest::default()
        .with_timeout_ms(ANSWER_WITHIN_MS)
        .with_topics(vec![
            ReassignableTopic::default()
                .with_name(direct::topic_name(topic))
                .with_partitions(partitions),
        ]);
    let api = "AlterPartitionReassignments";
    let answer = ask(address, api, version::ALTER_PARTITION_REASSIGNMENTS, &request).await?;
    let command = || format!("give {topic}-{partition} the replicas {replicas:?}");
    check(command, answer.error_code, &[])?;
    let moved = answer.responses.iter().flat_map(|topic| &topic.partitions).next();
    check(command, moved.ok_or_else(|| nothing(command()))?.error_code, &[])
}

/// Has the first replica of a partition lead it.
pub(super) async fn elect_first(address: SocketAddr, topic: &str, partition: i32) -> Result<(), ClusterError> {
    let request = ElectLeadersRequest::default()
        .with_election_type(PREFERRED)
        .with_timeout_ms(ANSWER_WITHIN_MS)
        .with_topic_partitions(Some(vec![
            TopicPartitions::default()
                .with_topic(direct::topic_name(topic))
                .with_partitions(vec![partition]),
        ]));
    let answer = ask(address, "ElectLeaders", version::ELECT_LEADERS, &request).await?;
    let command = || format!("elect the first replica of {topic}-{partition}");
    check(command, answer.error_code, &[])?;
    answer
        .replica_election_results
        .iter()
        .flat_map(|topic| &topic.partition_result)
        .try_for_each(|result| check(command, result.error_code, &[code::ELECTION_NOT_NEEDED]))
}

/// Deletes the records of a partition below an offset; returns where its log starts then. Asks the partition's leader.
pub(super) async fn delete_records(
    leader: SocketAddr,
    topic: &str,
    partition: i32,
    before: u64,
) -> Result<u64, ClusterError> {
    let partitions = vec![
        DeleteRecordsPartition::default()
            .with_partition_index(partition)
            .with_offset(i64::try_from(before).unwrap_or(i64::MAX)),
    ];
    let request = DeleteRecordsRequest::default()
        .with_timeout_ms(ANSWER_WITHIN_MS)
        .with_topics(vec![
            DeleteRecordsTopic::default()
                .with_name(direct::topic_name(topic))
                .with_partitions(partitions),
        ]);
    let answer = ask(leader, "DeleteRecords", version::DELETE_RECORDS, &request).await?;
    let command = || format!("delete the records of {topic}-{partition} below {before}");
    let deleted = answer.topics.iter().flat_map(|topic| topic.partitions.iter()).next();
    let deleted = deleted.ok_or_else(|| nothing(command()))?;
    check(command, deleted.error_code, &[])?;
    Ok(u64::try_from(deleted.low_watermark).unwrap_or_default())
}

/// Ends a group: its members, who are no more, are made to leave it, and it is deleted with its commits. Asks its
/// coordinator.
pub(super) async fn end_group(coordinator: SocketAddr, group: &str) -> Result<(), ClusterError> {
    let request = DescribeGroupsRequest::default().with_groups(vec![group_id(group)]);
    let answer = ask(coordinator, "DescribeGroups", version::DESCRIBE_GROUPS, &request).await?;
    let members: Vec<MemberIdentity> = answer
        .groups
        .iter()
        .flat_map(|group| &group.members)
        .map(|known| member(&known.member_id, known.group_instance_id.as_deref()))
        .collect();
    if !members.is_empty() {
        leave(coordinator, group, members).await?;
    }
    let request = DeleteGroupsRequest::default().with_groups_names(vec![group_id(group)]);
    let answer = ask(coordinator, "DeleteGroups", version::DELETE_GROUPS, &request).await?;
    let command = || format!("delete group {group}");
    let deleted = answer.results.first().ok_or_else(|| nothing(command()))?;
    check(command, deleted.error_code, &[code::GROUP_ID_NOT_FOUND])
}

/// A member as LeaveGroup names it.
pub(super) fn member(id: &str, instance: Option<&str>) -> MemberIdentity {
    MemberIdentity::default()
        .with_member_id(text(id))
        .with_group_instance_id(instance.map(text))
}

/// Has members leave their group; those that it does not know, or that others have taken the name of, are as good as gone.
/// Asks its coordinator.
pub(super) async fn leave(
    coordinator: SocketAddr,
    group: &str,
    members: Vec<MemberIdentity>,
) -> Result<(), ClusterError> {
    let request = LeaveGroupRequest::default()
        .with_group_id(group_id(group))
        .with_members(members);
    let answer = ask(coordinator, "LeaveGroup", version::LEAVE_GROUP, &request).await?;
    let command = || format!("have members of group {group} leave");
    check(command, answer.error_code, &[])?;
    answer.members.iter().try_for_each(|member| {
        let gone = [code::UNKNOWN_MEMBER_ID, code::FENCED_INSTANCE_ID];
        check(command, member.error_code, &gone)
    })
}

/// Writes one record to a partition, acknowledged by every in-sync replica, and returns its offset. Asks the leader.
pub(super) async fn produce(leader: SocketAddr, topic: &str, partition: i32) -> Result<i64, ClusterError> {
    let command = || format!("take a record for {topic}-{partition}");
    let record = Record {
        transactional: false,
        control: false,
        delete_horizon: false,
        partition_leader_epoch: NO_PARTITION_LEADER_EPOCH,
        producer_id: NO_PRODUCER_ID,
        producer_epoch: NO_PRODUCER_EPOCH,
        timestamp_type: TimestampType::Creation,
        offset: 0,
        sequence: NO_SEQUENCE,
        timestamp: 0,
        // Without a key a compacted topic would refuse it.
        key: Some(Bytes::from_static(b"ready")),
        value: Some(Bytes::from_static(b"ready")),
        headers: IndexMap::new(),
    };
    let options = RecordEncodeOptions {
        version: 2,
        compression: Compression::None,
    };
    let mut batch = BytesMut::new();
    RecordBatchEncoder::encode(&mut batch, [&record], &options)
        .map_err(|cause| refused(command(), &format!("a record that cannot be encoded: {cause:#}")))?;
    let data = PartitionProduceData::default()
        .with_index(partition)
        .with_records(Some(batch.freeze()));
    let request = ProduceRequest::default()
        .with_acks(ACKS_ALL)
        .with_timeout_ms(ANSWER_WITHIN_MS)
        .with_topic_data(vec![
            TopicProduceData::default()
                .with_name(direct::topic_name(topic))
                .with_partition_data(vec![data]),
        ]);
    let answer = ask(leader, "Produce", version::PRODUCE, &request).await?;
    let written = answer
        .responses
        .iter()
        .flat_map(|topic| &topic.partition_responses)
        .next();
    let written = written.ok_or_else(|| nothing(command()))?;
    check(command, written.error_code, &[])?;
    Ok(written.base_offset)
}

/// Reads a partition from an offset; returns how many bytes came. Asks the leader.
pub(super) async fn fetch(leader: SocketAddr, topic: &str, partition: i32, offset: i64) -> Result<usize, ClusterError> {
    let command = || format!("read {topic}-{partition} from offset {offset}");
    let wanted = FetchPartition::default()
        .with_partition(partition)
        .with_fetch_offset(offset)
        .with_partition_max_bytes(1 << 20);
    let request = FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(500)
        .with_min_bytes(1)
        .with_session_id(0)
        .with_session_epoch(-1)
        .with_topics(vec![
            FetchTopic::default()
                .with_topic(direct::topic_name(topic))
                .with_partitions(vec![wanted]),
        ]);
    let answer = ask(leader, "Fetch", version::FETCH, &request).await?;
    let read = answer.responses.iter().flat_map(|topic| &topic.partitions).next();
    let read = read.ok_or_else(|| nothing(command()))?;
    check(command, read.error_code, &[])?;
    Ok(read.records.as_ref().map_or(0, Bytes::len))
}
