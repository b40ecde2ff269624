//! What is read from requests and responses.

use brokerfall_report::history::GroupChange;
use brokerfall_report::protocol::TopicPartition;

use crate::link::builtin::frame::RequestHeader;
use crate::link::builtin::request::{self, Body, PartitionOffset};

use super::*;

#[test]
fn wire_window_has_requests_and_offsets_that_changed() {
    let mut lab = Lab::new(false);
    let empty = ResponseKind::Fetch(km::FetchResponse::default());
    for _ in 0..2 {
        lab.through(11, &fetch_request(), &empty);
    }
    let windows = |lab: &Lab| {
        let wires = lab.events().into_iter().filter_map(|event| match event {
            Event::Wire {
                client,
                requests,
                fetch_offsets,
                ..
            } => Some((client, requests.into_iter().collect::<Vec<_>>(), fetch_offsets.len())),
            _ => None,
        });
        wires.collect::<Vec<_>>()
    };
    let wire = |count, offsets| ("r1".to_owned(), vec![("Fetch".to_owned(), count)], offsets);
    assert_eq!(windows(&lab), [wire(2, 2)]);
    lab.through(11, &fetch_request(), &empty);
    assert_eq!(windows(&lab), [wire(2, 2), wire(1, 0)]);
    assert_eq!(windows(&lab).len(), 2, "a window without traffic is not recorded");
    assert!(lab.shared.taps.last_request_age_ms("r1", api::FETCH).is_some());
    assert!(lab.shared.taps.last_request_age_ms("", api::FETCH).is_some());
    assert_eq!(lab.shared.taps.last_request_age_ms("r2", api::FETCH), None);
    assert_eq!(lab.shared.taps.last_request_age_ms("r1", api::METADATA), None);
}

#[test]
fn fetch_offsets_by_topic_id_are_named_once_metadata_told_the_name() {
    let mut lab = Lab::new(false);
    let partition = km::fetch_request::FetchPartition::default()
        .with_partition(3)
        .with_fetch_offset(77);
    let orders = km::fetch_request::FetchTopic::default()
        .with_topic_id(ORDERS_ID.parse().unwrap())
        .with_partitions(vec![partition]);
    let request = RequestKind::Fetch(km::FetchRequest::default().with_topics(vec![orders]));
    lab.through(12, &metadata_request(), &metadata(12, &[1]));
    lab.through(15, &request, &ResponseKind::Fetch(km::FetchResponse::default()));
    let found = lab.events().into_iter().find_map(|event| match event {
        Event::Wire { fetch_offsets, .. } => Some(fetch_offsets),
        _ => None,
    });
    let found = found.unwrap();
    assert_eq!(
        (found[0].topic.as_str(), found[0].partition, found[0].offset),
        ("orders", 3, 77)
    );
}

#[test]
fn membership_and_commits_are_read_from_the_wire() {
    let mut lab = Lab::new(true);
    let g = || GroupId(text("g"));
    let join = RequestKind::JoinGroup(km::JoinGroupRequest::default().with_group_id(g()));
    let joined = km::JoinGroupResponse::default()
        .with_generation_id(4)
        .with_member_id(text("m1"));
    lab.through(5, &join, &ResponseKind::JoinGroup(joined));
    let sync = km::SyncGroupRequest::default()
        .with_group_id(g())
        .with_generation_id(4)
        .with_member_id(text("m1"));
    let owned = [
        0, 1, 0, 0, 0, 1, 0, 6, b'o', b'r', b'd', b'e', b'r', b's', 0, 0, 0, 1, 0, 0, 0, 1, 255, 255, 255, 255,
    ];
    let synced = km::SyncGroupResponse::default().with_assignment(Bytes::copy_from_slice(&owned));
    lab.through(3, &RequestKind::SyncGroup(sync), &ResponseKind::SyncGroup(synced));
    let beat = RequestKind::Heartbeat(km::HeartbeatRequest::default().with_group_id(g()).with_generation_id(4));
    for code in [0, 0, 27, 25] {
        let answer = km::HeartbeatResponse::default().with_error_code(code);
        lab.through(4, &beat, &ResponseKind::Heartbeat(answer));
    }
    let leave = RequestKind::LeaveGroup(km::LeaveGroupRequest::default().with_group_id(g()));
    lab.through(2, &leave, &ResponseKind::LeaveGroup(km::LeaveGroupResponse::default()));
    lab.ask(2, &leave);
    lab.exchange.closed_by_client();

    let changes: Vec<GroupChange> = lab
        .events()
        .into_iter()
        .filter_map(|event| match event {
            Event::WireGroup { client, group, change } => {
                assert_eq!((client.as_str(), group.as_str()), ("r1", "g"));
                Some(change)
            }
            _ => None,
        })
        .collect();
    let gone = |how: &str| GroupChange::Gone { how: how.to_owned() };
    let owns = vec![TopicPartition {
        topic: "orders".to_owned(),
        partition: 1,
    }];
    let expected = [
        GroupChange::Joined {
            generation: 4,
            member_id: "m1".to_owned(),
        },
        GroupChange::Synced { generation: 4, owns },
        GroupChange::Alive { generation: 4 },
        gone("UNKNOWN_MEMBER_ID"),
        gone("LeaveGroup"),
        gone("LeaveGroup"),
    ];
    assert_eq!(changes, expected);
}

#[test]
fn produce_without_answer_leaves_nothing_waiting() {
    let mut lab = Lab::new(false);
    for version in [3, 8, 9] {
        lab.ask(
            version,
            &RequestKind::Produce(km::ProduceRequest::default().with_acks(0)),
        );
        assert!(!lab.exchange.is_waiting(), "version {version}");
    }
    lab.ask(9, &RequestKind::Produce(km::ProduceRequest::default().with_acks(1)));
    assert!(lab.exchange.is_waiting());
}

#[test]
fn every_version_of_tapped_requests_is_read() {
    let partition = km::offset_commit_request::OffsetCommitRequestPartition::default()
        .with_partition_index(3)
        .with_committed_offset(77);
    let commit_topic = km::offset_commit_request::OffsetCommitRequestTopic::default().with_partitions(vec![partition]);
    let fetch_partition = km::fetch_request::FetchPartition::default()
        .with_partition(3)
        .with_fetch_offset(77);
    let fetch_topic = km::fetch_request::FetchTopic::default().with_partitions(vec![fetch_partition]);
    let read = |version, request: &RequestKind| {
        let key = api_of(request);
        let mut out = BytesMut::new();
        out.put_i32(0);
        let header = Header::default()
            .with_request_api_key(key as i16)
            .with_request_api_version(version);
        header
            .with_client_id(None)
            .encode(&mut out, key.request_header_version(version))
            .unwrap();
        request.encode(&mut out, version).unwrap();
        request::body(&RequestHeader::parse(&out).unwrap()).unwrap()
    };
    let one =
        |offsets: Vec<PartitionOffset>| offsets.len() == 1 && (offsets[0].partition, offsets[0].offset) == (3, 77);
    for version in 4..=18 {
        let mut topic_here = fetch_topic.clone();
        if version < 13 {
            topic_here.topic = topic("orders");
        }
        let request = RequestKind::Fetch(km::FetchRequest::default().with_topics(vec![topic_here]));
        let Body::Fetch(offsets) = read(version, &request) else {
            panic!()
        };
        assert!(one(offsets), "Fetch {version}");
    }
    for version in 2..=9 {
        let topic_here = commit_topic.clone().with_name(topic("orders"));
        let request = km::OffsetCommitRequest::default()
            .with_group_id(GroupId(text("g")))
            .with_topics(vec![topic_here]);
        let Body::Commit { group, offsets } = read(version, &RequestKind::OffsetCommit(request)) else {
            panic!()
        };
        assert!(group == "g" && one(offsets), "OffsetCommit {version}");
    }
}

/// KIP-848: one request joins, stays and leaves; partitions come by topic id, maybe before Metadata told the name.
#[test]
fn membership_of_kip_848_is_read_from_its_heartbeats() {
    let mut lab = Lab::new(false);
    let given = || {
        let partitions = km::consumer_group_heartbeat_response::TopicPartitions::default()
            .with_topic_id(ORDERS_ID.parse().unwrap())
            .with_partitions(vec![2, 0]);
        km::consumer_group_heartbeat_response::Assignment::default().with_topic_partitions(vec![partitions])
    };
    let beat = |lab: &mut Lab, asked: i32, answer: km::ConsumerGroupHeartbeatResponse| {
        let request = km::ConsumerGroupHeartbeatRequest::default()
            .with_group_id(GroupId(text("g")))
            .with_member_id(text("m1"))
            .with_member_epoch(asked);
        let answer = ResponseKind::ConsumerGroupHeartbeat(answer.with_member_id(Some(text("m1"))));
        lab.through(1, &RequestKind::ConsumerGroupHeartbeat(request), &answer);
    };
    let answer = |epoch: i32| km::ConsumerGroupHeartbeatResponse::default().with_member_epoch(epoch);
    let nothing = km::consumer_group_heartbeat_response::Assignment::default();
    beat(&mut lab, 0, answer(1).with_assignment(Some(nothing)));
    beat(&mut lab, 1, answer(2).with_assignment(Some(given())));
    lab.through(12, &metadata_request(), &metadata(12, &[1]));
    beat(&mut lab, 2, answer(2));
    beat(&mut lab, 2, answer(3));
    beat(&mut lab, 3, answer(0).with_error_code(110));
    beat(&mut lab, 0, answer(4).with_assignment(Some(given())));
    beat(&mut lab, -1, answer(-1));
    let request = km::ConsumerGroupHeartbeatRequest::default()
        .with_group_id(GroupId(text("g")))
        .with_member_epoch(-2);
    lab.ask(1, &RequestKind::ConsumerGroupHeartbeat(request));
    lab.exchange.closed_by_client();

    let changes: Vec<GroupChange> = lab
        .events()
        .into_iter()
        .filter_map(|event| match event {
            Event::WireGroup { client, group, change } => {
                assert_eq!((client.as_str(), group.as_str()), ("r1", "g"));
                Some(change)
            }
            _ => None,
        })
        .collect();
    let joined = |generation| GroupChange::Joined {
        generation,
        member_id: "m1".to_owned(),
    };
    let owns = |partitions: &[u32]| {
        let named = partitions.iter().map(|partition| TopicPartition {
            topic: "orders".to_owned(),
            partition: *partition,
        });
        named.collect::<Vec<_>>()
    };
    let synced = |generation, partitions: &[u32]| GroupChange::Synced {
        generation,
        owns: owns(partitions),
    };
    let gone = |how: &str| GroupChange::Gone { how: how.to_owned() };
    let expected = [
        joined(1),
        synced(1, &[]),
        synced(2, &[0, 2]),
        GroupChange::Alive { generation: 3 },
        gone("FENCED_MEMBER_EPOCH"),
        joined(4),
        synced(4, &[0, 2]),
        gone("ConsumerGroupHeartbeat"),
        gone("ConsumerGroupHeartbeat"),
    ];
    assert_eq!(changes, expected);
}

const PASSWORD: &str = "marker-of-a-password";

/// Whether the history holds words of a login, as they are or as numbers.
fn tells(lab: &Lab, words: &str) -> bool {
    lab.shared.taps.flush();
    lab.shared.taps.recorder().flush().unwrap();
    let history = std::fs::read_to_string(lab.folder.path().join("history.jsonl")).unwrap();
    let as_numbers: Vec<String> = words.bytes().map(|byte| byte.to_string()).collect();
    history.contains(words) || history.contains(&as_numbers.join(","))
}

#[test]
fn words_of_a_login_reach_no_history_whatever_is_answered() {
    for code in [0, 58, 34] {
        let mut lab = Lab::new(false);
        let handshake = RequestKind::SaslHandshake(km::SaslHandshakeRequest::default().with_mechanism(text("PLAIN")));
        let agreed = ResponseKind::SaslHandshake(km::SaslHandshakeResponse::default());
        lab.through(1, &handshake, &agreed);
        let words = format!("\0reader\0{PASSWORD}");
        let login = km::SaslAuthenticateRequest::default().with_auth_bytes(Bytes::from(words));
        let answer = km::SaslAuthenticateResponse::default()
            .with_error_code(code)
            .with_error_message(Some(text(PASSWORD)))
            .with_auth_bytes(Bytes::from(PASSWORD));
        lab.through(
            2,
            &RequestKind::SaslAuthenticate(login),
            &ResponseKind::SaslAuthenticate(answer),
        );
        let errors: Vec<_> = lab.errors().into_iter().map(|error| (error.0, error.1)).collect();
        let expected = Vec::from_iter((code != 0).then(|| ("SaslAuthenticate".to_owned(), i64::from(code))));
        assert_eq!(errors, expected);
        assert!(!tells(&lab, PASSWORD), "code {code}");
    }
}

/// Before KIP-152 the words of a login follow the handshake with nothing but their length before them.
#[test]
fn words_of_a_login_without_a_header_pass_unread_until_the_next_request() {
    let mut lab = Lab::new(false);
    let handshake = RequestKind::SaslHandshake(km::SaslHandshakeRequest::default().with_mechanism(text("PLAIN")));
    let agreed = ResponseKind::SaslHandshake(km::SaslHandshakeResponse::default());
    lab.through(0, &handshake, &agreed);
    // The second reads as a Produce of version 0 by a client whose name is the password.
    let as_request = [&[0u8; 8][..], &[0, 20], PASSWORD.as_bytes(), &[0; 4]].concat();
    for words in [format!("\0reader\0{PASSWORD}").into_bytes(), as_request] {
        let mut framed = i32::try_from(words.len()).unwrap().to_be_bytes().to_vec();
        framed.extend_from_slice(&words);
        let framed = Bytes::from(framed);
        assert_eq!(lab.exchange.request(framed.clone()).0, framed);
        assert!(!lab.exchange.is_waiting());
    }
    assert!(!tells(&lab, PASSWORD) && !tells(&lab, "Produce"));
    lab.ask(12, &metadata_request());
    assert!(lab.exchange.is_waiting());
}
