//! What readers may not do: access control lists (ACLs), and how a broker answers a reader about them.
//!
//! Where the first ACL of a resource stands, Kafka denies everything that no ACL allows, so READ is never denied alone: an ACL
//! beside it allows readers everything else, and they still learn that a topic is there. Deliberately not here: asking
//! again until every broker has heard of it.

use std::net::SocketAddr;

use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::delete_acls_request::DeleteAclsFilter;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::{BrokerId, CreateAclsRequest, DeleteAclsRequest, FetchRequest, HeartbeatRequest};

use super::admin::{ANSWER_WITHIN, ask, check, direct_error, group_id, nothing, text};
use super::settings::READERS;
use super::{CLIENT, refused};
use crate::cluster::direct;
use crate::cluster::{ClusterError, Resource};

/// Versions that Kafka 3.9 and 4 both answer.
mod version {
    pub(super) const CREATE_ACLS: i16 = 3;
    pub(super) const DELETE_ACLS: i16 = 3;
    pub(super) const FETCH: i16 = 11;
    pub(super) const HEARTBEAT: i16 = 3;
}

/// Kafka's numbers for what an ACL is about.
mod resource {
    pub(super) const ANY: i8 = 1;
    pub(super) const TOPIC: i8 = 2;
    pub(super) const GROUP: i8 = 3;
}

/// Kafka's numbers for how names match.
mod pattern {
    pub(super) const ANY: i8 = 1;
    pub(super) const LITERAL: i8 = 3;
}

/// Kafka's numbers for what may be done, or not.
mod operation {
    pub(super) const ANY: i8 = 1;
    pub(super) const ALL: i8 = 2;
    pub(super) const READ: i8 = 3;
}

/// Kafka's numbers for whether it may be done.
mod permission {
    pub(super) const ANY: i8 = 1;
    pub(super) const DENY: i8 = 2;
    pub(super) const ALLOW: i8 = 3;
}

const TOPIC_AUTHORIZATION_FAILED: i16 = 29;
const GROUP_AUTHORIZATION_FAILED: i16 = 30;

/// From every host.
const HOSTS: &str = "*";

/// What stands while READ is denied, in the order in which brokers are to take it in: without the first, the second would
/// for a moment hide the whole topic. It is taken away in the reverse order.
const ENTRIES: [(i8, i8); 2] = [(operation::ALL, permission::ALLOW), (operation::READ, permission::DENY)];

fn kind_of(resource: &Resource) -> i8 {
    match resource {
        Resource::Topic(_) => resource::TOPIC,
        Resource::Group(_) => resource::GROUP,
    }
}

/// Denies readers READ on something.
pub(super) async fn deny_read(address: SocketAddr, resource: &Resource) -> Result<(), ClusterError> {
    let creations = ENTRIES.iter().map(|(operation, permission)| {
        AclCreation::default()
            .with_resource_type(kind_of(resource))
            .with_resource_name(text(resource.name()))
            .with_resource_pattern_type(pattern::LITERAL)
            .with_principal(text(READERS))
            .with_host(text(HOSTS))
            .with_operation(*operation)
            .with_permission_type(*permission)
    });
    let request = CreateAclsRequest::default().with_creations(creations.collect());
    let answer = ask(address, "CreateAcls", version::CREATE_ACLS, &request).await?;
    let command = || format!("deny READ on {resource}");
    if answer.results.len() != ENTRIES.len() {
        return Err(nothing(command()));
    }
    let mut results = answer.results.iter();
    results.try_for_each(|created| check(command, created.error_code, &[]))
}

/// Takes [`deny_read`] back.
pub(super) async fn allow_read(address: SocketAddr, resource: &Resource) -> Result<(), ClusterError> {
    let filters = ENTRIES.iter().rev().map(|(operation, permission)| {
        DeleteAclsFilter::default()
            .with_resource_type_filter(kind_of(resource))
            .with_resource_name_filter(Some(text(resource.name())))
            .with_pattern_type_filter(pattern::LITERAL)
            .with_principal_filter(Some(text(READERS)))
            .with_host_filter(Some(text(HOSTS)))
            .with_operation(*operation)
            .with_permission_type(*permission)
    });
    let deleted = delete(address, filters.collect(), &format!("allow READ on {resource}")).await?;
    if deleted == ENTRIES.len() {
        return Ok(());
    }
    let answer = format!("{deleted} ACL(s) were there to be deleted, wanted {}", ENTRIES.len());
    Err(refused(format!("allow READ on {resource}"), &answer))
}

/// Deletes every ACL that there is.
pub(super) async fn delete_all(address: SocketAddr) -> Result<(), ClusterError> {
    let every = DeleteAclsFilter::default()
        .with_resource_type_filter(resource::ANY)
        .with_resource_name_filter(None)
        .with_pattern_type_filter(pattern::ANY)
        .with_principal_filter(None)
        .with_host_filter(None)
        .with_operation(operation::ANY)
        .with_permission_type(permission::ANY);
    delete(address, vec![every], "delete every ACL").await.map(drop)
}

/// Deletes what matches; returns how many there were.
async fn delete(address: SocketAddr, filters: Vec<DeleteAclsFilter>, command: &str) -> Result<usize, ClusterError> {
    let request = DeleteAclsRequest::default().with_filters(filters);
    let answer = ask(address, "DeleteAcls", version::DELETE_ACLS, &request).await?;
    let mut deleted = 0;
    for result in &answer.filter_results {
        check(|| command.to_owned(), result.error_code, &[])?;
        for acl in &result.matching_acls {
            check(|| command.to_owned(), acl.error_code, &[])?;
            deleted += 1;
        }
    }
    Ok(deleted)
}

/// Whether a broker refuses a reader: asks as one, on the listener for readers. Brokers look at rights before anything else,
/// so that neither the partition's leader nor the group's coordinator has to be asked.
pub(super) async fn refuses_reader(reader: SocketAddr, resource: &Resource) -> Result<bool, ClusterError> {
    match resource {
        Resource::Topic(topic) => {
            let wanted = FetchTopic::default()
                .with_topic(direct::topic_name(topic))
                .with_partitions(vec![FetchPartition::default().with_partition_max_bytes(1)]);
            let request = FetchRequest::default()
                .with_replica_id(BrokerId(-1))
                .with_max_wait_ms(0)
                .with_session_epoch(-1)
                .with_topics(vec![wanted]);
            let answer = direct::ask(reader, CLIENT, version::FETCH, &request, ANSWER_WITHIN)
                .await
                .map_err(direct_error("Fetch"))?;
            let partition = answer.responses.iter().flat_map(|topic| &topic.partitions).next();
            let partition = partition.ok_or_else(|| nothing(format!("read {topic}")))?;
            Ok(partition.error_code == TOPIC_AUTHORIZATION_FAILED)
        }
        Resource::Group(group) => {
            // Of nobody, so that no member's session is touched.
            let request = HeartbeatRequest::default()
                .with_group_id(group_id(group))
                .with_member_id(text(CLIENT));
            let answer = direct::ask(reader, CLIENT, version::HEARTBEAT, &request, ANSWER_WITHIN)
                .await
                .map_err(direct_error("Heartbeat"))?;
            Ok(answer.error_code == GROUP_AUTHORIZATION_FAILED)
        }
    }
}
