//! The error codes that brokers give or gave to an api, in every version that can be read: it stands on the wire where a
//! broker puts it, and the rest of the answer is what a broker sends with it.
//!
//! Which codes those are is told by the comments on `FetchResponse`, `ListOffsetsResponse` and so on of Apache Kafka 4.
//! librdkafka 2.12 and aiokafka 0.14 speak versions inside these ranges, which are those that kafka-protocol can encode.

use std::ops::RangeInclusive;

use super::*;

const FETCH: [&str; 14] = [
    "OFFSET_OUT_OF_RANGE",
    "CORRUPT_MESSAGE",
    "UNKNOWN_TOPIC_OR_PARTITION",
    "NOT_LEADER_OR_FOLLOWER",
    "REPLICA_NOT_AVAILABLE",
    "TOPIC_AUTHORIZATION_FAILED",
    "KAFKA_STORAGE_ERROR",
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
    "UNSUPPORTED_COMPRESSION_TYPE",
    "OFFSET_NOT_AVAILABLE",
    "UNKNOWN_TOPIC_ID",
    "INCONSISTENT_TOPIC_ID",
    "UNKNOWN_SERVER_ERROR",
];
const FETCH_SESSION: [&str; 3] = [
    "FETCH_SESSION_ID_NOT_FOUND",
    "INVALID_FETCH_SESSION_EPOCH",
    "FETCH_SESSION_TOPIC_ID_ERROR",
];
const LIST_OFFSETS: [&str; 11] = [
    "UNKNOWN_TOPIC_OR_PARTITION",
    "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_OR_FOLLOWER",
    "REPLICA_NOT_AVAILABLE",
    "TOPIC_AUTHORIZATION_FAILED",
    "UNSUPPORTED_FOR_MESSAGE_FORMAT",
    "KAFKA_STORAGE_ERROR",
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
    "OFFSET_NOT_AVAILABLE",
    "UNKNOWN_SERVER_ERROR",
];
const METADATA_TOPIC: [&str; 5] = [
    "UNKNOWN_TOPIC_OR_PARTITION",
    "LEADER_NOT_AVAILABLE",
    "INVALID_TOPIC_EXCEPTION",
    "TOPIC_AUTHORIZATION_FAILED",
    "UNKNOWN_SERVER_ERROR",
];
const METADATA_PARTITION: [&str; 3] = ["LEADER_NOT_AVAILABLE", "REPLICA_NOT_AVAILABLE", "LISTENER_NOT_FOUND"];
const OFFSET_COMMIT: [&str; 13] = [
    "UNKNOWN_TOPIC_OR_PARTITION",
    "REQUEST_TIMED_OUT",
    "OFFSET_METADATA_TOO_LARGE",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "ILLEGAL_GENERATION",
    "UNKNOWN_MEMBER_ID",
    "REBALANCE_IN_PROGRESS",
    "INVALID_COMMIT_OFFSET_SIZE",
    "TOPIC_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED",
    "FENCED_INSTANCE_ID",
];
const HEARTBEAT: [&str; 7] = [
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "ILLEGAL_GENERATION",
    "UNKNOWN_MEMBER_ID",
    "REBALANCE_IN_PROGRESS",
    "GROUP_AUTHORIZATION_FAILED",
    "FENCED_INSTANCE_ID",
];
const JOIN_GROUP: [&str; 11] = [
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "INCONSISTENT_GROUP_PROTOCOL",
    "INVALID_GROUP_ID",
    "UNKNOWN_MEMBER_ID",
    "INVALID_SESSION_TIMEOUT",
    "GROUP_AUTHORIZATION_FAILED",
    "MEMBER_ID_REQUIRED",
    "GROUP_MAX_SIZE_REACHED",
    "FENCED_INSTANCE_ID",
];

/// Answers one request under an armed rule for each code and version. `check` gets what the client reads, and the number
/// of the code; the code must be in the history too, as the rule's doing.
fn sweep(
    api: &str,
    codes: &[&str],
    versions: RangeInclusive<i16>,
    partition: Option<u32>,
    exchange: impl Fn(i16) -> (RequestKind, ResponseKind),
    check: impl Fn(i16, i16, ResponseKind),
) {
    for version in versions {
        for name in codes {
            let mut lab = Lab::new(false);
            lab.shared.topic_ids.learn(&[7; 16], "orders");
            lab.arm(api, name, |rule| rule.partition = partition);
            let (request, response) = exchange(version);
            let struck = lab.through(version, &request, &response);
            let code = crate::link::codes::code(name).unwrap();
            check(version, code, struck);
            let errors = lab.errors();
            assert!(!errors.is_empty(), "{name} in {api} version {version}");
            for (told_api, told_code, .., by, _) in errors {
                assert_eq!(
                    (told_api.as_str(), told_code, by),
                    (api, i64::from(code), some("answer-error-1"))
                );
            }
            let failed = |event: &Event| matches!(event, Event::Failure { .. });
            assert!(!lab.events().iter().any(failed), "{name} in {api} version {version}");
        }
    }
}

#[test]
fn codes_of_fetch_stand_at_partitions_without_offsets_and_records() {
    let exchange = |version| (fetch_request(), fetch_response(version));
    sweep("Fetch", &FETCH, 4..=18, None, exchange, |version, code, struck| {
        let ResponseKind::Fetch(struck) = struck else { panic!() };
        assert_eq!((struck.error_code, struck.responses.len()), (0, 1));
        for partition in &struck.responses[0].partitions {
            let offsets = (partition.high_watermark, partition.last_stable_offset);
            assert_eq!((partition.error_code, offsets), (code, (-1, -1)), "version {version}");
            // Before version 5 there is no log start, and -1 is what a reader of it is given.
            assert_eq!(
                (partition.log_start_offset, &partition.aborted_transactions),
                (-1, &None)
            );
            assert_eq!(partition.records, Some(Bytes::new()));
        }
    });
    sweep(
        "Fetch",
        &FETCH_SESSION,
        7..=18,
        None,
        exchange,
        |version, code, struck| {
            let ResponseKind::Fetch(struck) = struck else { panic!() };
            let whole = (struck.error_code, struck.session_id, struck.responses.len());
            assert_eq!(whole, (code, 0, 0), "version {version}");
        },
    );
}

#[test]
fn codes_of_list_offsets_stand_at_partitions_without_an_offset() {
    let exchange = |version| {
        let mut partition = km::list_offsets_response::ListOffsetsPartitionResponse::default()
            .with_timestamp(5)
            .with_offset(9);
        if version >= 4 {
            partition.leader_epoch = 3;
        }
        let orders = km::list_offsets_response::ListOffsetsTopicResponse::default()
            .with_name(topic("orders"))
            .with_partitions(vec![partition]);
        let answer = km::ListOffsetsResponse::default().with_topics(vec![orders]);
        (
            RequestKind::ListOffsets(km::ListOffsetsRequest::default()),
            ResponseKind::ListOffsets(answer),
        )
    };
    sweep(
        "ListOffsets",
        &LIST_OFFSETS,
        1..=10,
        None,
        exchange,
        |version, code, struck| {
            let ResponseKind::ListOffsets(struck) = struck else {
                panic!()
            };
            let partition = &struck.topics[0].partitions[0];
            let place = (partition.timestamp, partition.offset, partition.leader_epoch);
            assert_eq!((partition.error_code, place), (code, (-1, -1, -1)), "version {version}");
        },
    );
}

#[test]
fn codes_of_metadata_stand_at_topics_without_partitions_or_at_partitions_without_a_leader() {
    let exchange = |version| (metadata_request(), metadata(version, &[1, 2]));
    sweep(
        "Metadata",
        &METADATA_TOPIC,
        0..=13,
        None,
        exchange,
        |version, code, struck| {
            let ResponseKind::Metadata(struck) = struck else {
                panic!()
            };
            assert_eq!((struck.brokers.len(), struck.topics.len()), (2, 2));
            for told in &struck.topics {
                assert_eq!((told.error_code, told.partitions.len()), (code, 0), "version {version}");
                assert!(told.name.is_some());
            }
        },
    );
    sweep(
        "Metadata",
        &METADATA_PARTITION,
        0..=13,
        Some(1),
        exchange,
        |version, code, struck| {
            let ResponseKind::Metadata(struck) = struck else {
                panic!()
            };
            for told in &struck.topics {
                let partitions: Vec<_> = told
                    .partitions
                    .iter()
                    .map(|told| (told.error_code, told.leader_id.0))
                    .collect();
                // A leader is there although a replica is not.
                let leader = if code == 9 { 1 } else { -1 };
                assert_eq!(
                    (told.error_code, partitions),
                    (0, vec![(0, 1), (code, leader)]),
                    "version {version}"
                );
            }
        },
    );
}

#[test]
fn codes_of_offset_commit_stand_at_every_partition() {
    let exchange = |_| {
        let partitions = [0, 1].map(|partition| {
            km::offset_commit_response::OffsetCommitResponsePartition::default().with_partition_index(partition)
        });
        let orders = km::offset_commit_response::OffsetCommitResponseTopic::default()
            .with_name(topic("orders"))
            .with_partitions(partitions.to_vec());
        let request = km::OffsetCommitRequest::default().with_group_id(GroupId(text("g")));
        let answer = km::OffsetCommitResponse::default().with_topics(vec![orders]);
        (RequestKind::OffsetCommit(request), ResponseKind::OffsetCommit(answer))
    };
    sweep(
        "OffsetCommit",
        &OFFSET_COMMIT,
        2..=9,
        None,
        exchange,
        |version, code, struck| {
            let ResponseKind::OffsetCommit(struck) = struck else {
                panic!()
            };
            let told: Vec<_> = struck.topics[0]
                .partitions
                .iter()
                .map(|told| (told.partition_index, told.error_code))
                .collect();
            assert_eq!(told, [(0, code), (1, code)], "version {version}");
        },
    );
}

#[test]
fn codes_of_heartbeat_stand_for_the_whole() {
    let exchange = |_| {
        let request = km::HeartbeatRequest::default().with_group_id(GroupId(text("g")));
        (
            RequestKind::Heartbeat(request),
            ResponseKind::Heartbeat(km::HeartbeatResponse::default()),
        )
    };
    sweep(
        "Heartbeat",
        &HEARTBEAT,
        0..=4,
        None,
        exchange,
        |version, code, struck| {
            let ResponseKind::Heartbeat(struck) = struck else {
                panic!()
            };
            assert_eq!(struck.error_code, code, "version {version}");
        },
    );
}

#[test]
fn codes_of_join_group_leave_the_member_its_id_and_nothing_else() {
    let exchange = |version| {
        let member = km::join_group_response::JoinGroupResponseMember::default().with_member_id(text("m"));
        let mut answer = km::JoinGroupResponse::default()
            .with_generation_id(4)
            .with_protocol_name(Some(text("range")))
            .with_leader(text("m"))
            .with_member_id(text("m"))
            .with_members(vec![member]);
        if version >= 7 {
            answer.protocol_type = Some(text("consumer"));
        }
        let request = km::JoinGroupRequest::default().with_group_id(GroupId(text("g")));
        (RequestKind::JoinGroup(request), ResponseKind::JoinGroup(answer))
    };
    sweep(
        "JoinGroup",
        &JOIN_GROUP,
        0..=9,
        None,
        exchange,
        |version, code, struck| {
            let ResponseKind::JoinGroup(struck) = struck else {
                panic!()
            };
            let group = (struck.generation_id, struck.leader.as_str(), struck.members.len());
            assert_eq!((struck.error_code, group), (code, (-1, "", 0)), "version {version}");
            assert_eq!(struck.member_id.as_str(), "m");
            let none = (version < 7).then(|| text(""));
            assert_eq!(
                (struck.protocol_name, struck.protocol_type),
                (none, None),
                "version {version}"
            );
        },
    );
}

#[test]
fn codes_of_consumer_group_heartbeat_take_the_member_id_epoch_and_assignment_away() {
    let codes: Vec<&str> = crate::link::codes::answers("ConsumerGroupHeartbeat").collect();
    let exchange = |_| {
        let request = km::ConsumerGroupHeartbeatRequest::default().with_group_id(GroupId(text("g")));
        let answer = km::ConsumerGroupHeartbeatResponse::default()
            .with_member_id(Some(text("m")))
            .with_member_epoch(4)
            .with_heartbeat_interval_ms(5_000)
            .with_assignment(Some(km::consumer_group_heartbeat_response::Assignment::default()));
        (
            RequestKind::ConsumerGroupHeartbeat(request),
            ResponseKind::ConsumerGroupHeartbeat(answer),
        )
    };
    sweep(
        "ConsumerGroupHeartbeat",
        &codes,
        0..=1,
        None,
        exchange,
        |version, code, struck| {
            let ResponseKind::ConsumerGroupHeartbeat(struck) = struck else {
                panic!()
            };
            let standing = (struck.member_id, struck.member_epoch, struck.assignment);
            assert_eq!(
                (struck.error_code, standing),
                (code, (None, 0, None)),
                "version {version}"
            );
        },
    );
}

#[test]
fn codes_of_offset_for_leader_epoch_stand_at_partitions_without_an_offset() {
    let codes: Vec<&str> = crate::link::codes::answers("OffsetForLeaderEpoch").collect();
    let exchange = |_| {
        let told = km::offset_for_leader_epoch_response::EpochEndOffset::default()
            .with_partition(1)
            .with_leader_epoch(3)
            .with_end_offset(9);
        let orders = km::offset_for_leader_epoch_response::OffsetForLeaderTopicResult::default()
            .with_topic(topic("orders"))
            .with_partitions(vec![told]);
        (
            RequestKind::OffsetForLeaderEpoch(km::OffsetForLeaderEpochRequest::default()),
            ResponseKind::OffsetForLeaderEpoch(km::OffsetForLeaderEpochResponse::default().with_topics(vec![orders])),
        )
    };
    sweep(
        "OffsetForLeaderEpoch",
        &codes,
        2..=4,
        Some(1),
        exchange,
        |version, code, struck| {
            let ResponseKind::OffsetForLeaderEpoch(struck) = struck else {
                panic!()
            };
            let told = &struck.topics[0].partitions[0];
            let place = (told.leader_epoch, told.end_offset);
            assert_eq!((told.error_code, place), (code, (-1, -1)), "version {version}");
        },
    );
}

#[test]
fn codes_of_a_login_leave_nothing_of_it_in_the_answer() {
    let codes: Vec<&str> = crate::link::codes::answers("SaslHandshake").collect();
    let exchange = |_| {
        let request = km::SaslHandshakeRequest::default().with_mechanism(text("PLAIN"));
        let answer = km::SaslHandshakeResponse::default().with_mechanisms(vec![text("PLAIN")]);
        (RequestKind::SaslHandshake(request), ResponseKind::SaslHandshake(answer))
    };
    sweep(
        "SaslHandshake",
        &codes,
        0..=1,
        None,
        exchange,
        |version, code, struck| {
            let ResponseKind::SaslHandshake(struck) = struck else {
                panic!()
            };
            let told = (struck.error_code, struck.mechanisms.len());
            assert_eq!(told, (code, 0), "version {version}");
        },
    );
    let codes: Vec<&str> = crate::link::codes::answers("SaslAuthenticate").collect();
    let exchange = |version| {
        let mut answer = km::SaslAuthenticateResponse::default().with_auth_bytes(Bytes::from_static(b"v=proof"));
        answer.session_lifetime_ms = if version >= 1 { 9_000 } else { 0 };
        (
            RequestKind::SaslAuthenticate(km::SaslAuthenticateRequest::default()),
            ResponseKind::SaslAuthenticate(answer),
        )
    };
    sweep(
        "SaslAuthenticate",
        &codes,
        0..=2,
        None,
        exchange,
        |version, code, struck| {
            let ResponseKind::SaslAuthenticate(struck) = struck else {
                panic!()
            };
            let told = (struck.error_code, struck.auth_bytes.len(), struck.session_lifetime_ms);
            assert_eq!(told, (code, 0, 0), "version {version}");
        },
    );
}

/// A client that asked in a version of its own is told the versions of this one api, in version 0, which each client reads.
#[test]
fn codes_of_api_versions_are_told_as_a_broker_tells_them() {
    let versions = |key: ApiKey, max| {
        km::api_versions_response::ApiVersion::default()
            .with_api_key(key as i16)
            .with_max_version(max)
    };
    for (name, told) in [("UNSUPPORTED_VERSION", 1), ("INVALID_REQUEST", 0)] {
        for version in 0..=4 {
            let mut lab = Lab::new(false);
            lab.arm("ApiVersions", name, |_| {});
            let answer = km::ApiVersionsResponse::default()
                .with_api_keys(vec![versions(ApiKey::Fetch, 17), versions(ApiKey::ApiVersions, 4)]);
            let request = RequestKind::ApiVersions(km::ApiVersionsRequest::default());
            let (key, _) = lab.ask(version, &request);
            let bytes = lab.answer(key, version, &ResponseKind::ApiVersions(answer));
            let passed = lab.exchange.response(bytes);
            let spoken = if name == "UNSUPPORTED_VERSION" { 0 } else { version };
            let ResponseKind::ApiVersions(struck) = decode(key as i16, spoken, &passed).unwrap().2 else {
                panic!()
            };
            let code = crate::link::codes::code(name).unwrap();
            let keys: Vec<i16> = struck.api_keys.iter().map(|api| api.api_key).collect();
            assert_eq!((struck.error_code, keys), (code, vec![18; told]), "{name} {version}");
            assert_eq!(lab.errors().len(), 1, "{name} {version}");
        }
    }
}
