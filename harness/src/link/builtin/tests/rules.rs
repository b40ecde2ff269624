//! Rules on encoded responses.

use super::*;

#[test]
fn fetch_rule_strikes_one_partition_as_a_broker_does_and_only_so_many_times() {
    for version in [4, 11, 12, 13, 17] {
        let mut lab = Lab::new(false);
        lab.through(12, &metadata_request(), &metadata(12, &[1]));
        let rule = lab.arm("Fetch", "OFFSET_OUT_OF_RANGE", |rule| {
            rule.topic = some("orders");
            rule.partition = Some(1);
            rule.times = Some(1);
        });
        let request = RequestKind::Fetch(km::FetchRequest::default());
        let ResponseKind::Fetch(struck) = lab.through(version, &request, &fetch_response(version)) else {
            panic!()
        };
        let [kept, struck] = &struck.responses[0].partitions[..] else {
            panic!()
        };
        assert_eq!(
            (kept.error_code, kept.records.as_deref()),
            (0, Some(&b"records"[..])),
            "version {version}"
        );
        assert_eq!(struck.error_code, 1);
        let offsets = (
            struck.high_watermark,
            struck.last_stable_offset,
            struck.log_start_offset,
        );
        assert_eq!(offsets, (-1, -1, -1));
        assert_eq!(struck.records.as_deref(), Some(&b""[..]));
        assert_eq!(struck.aborted_transactions.as_ref().map_or(0, Vec::len), 0);

        let again = lab.through(version, &request, &fetch_response(version));
        assert_eq!(
            again,
            decoded(version, ApiKey::Fetch, &fetch_response(version)),
            "exhausted"
        );
        let counts = lab.shared.rules.counts(rule);
        assert_eq!((counts.matched, counts.triggered, counts.undecodable), (2, 1, 0));
        let injected = (
            "Fetch".to_owned(),
            1,
            some("orders"),
            Some(1),
            some("answer-error-1"),
            1,
        );
        assert_eq!(lab.errors(), vec![injected], "version {version}");
    }
}

#[test]
fn rule_without_topic_strikes_every_partition_and_rule_for_another_client_none() {
    let mut lab = Lab::new(false);
    lab.arm("Fetch", "TOPIC_AUTHORIZATION_FAILED", |rule| rule.client = some("r1"));
    let other = lab.arm("Fetch", "NOT_LEADER_OR_FOLLOWER", |rule| rule.client = some("r2"));
    let ResponseKind::Fetch(struck) = lab.through(11, &fetch_request(), &fetch_response(11)) else {
        panic!()
    };
    let codes: Vec<i16> = struck.responses[0]
        .partitions
        .iter()
        .map(|partition| partition.error_code)
        .collect();
    assert_eq!(codes, [29, 29]);
    assert_eq!(lab.shared.rules.counts(other), crate::link::RuleCounts::default());
}

#[test]
fn metadata_rule_clears_the_topic_it_names_and_no_other() {
    let mut lab = Lab::new(false);
    lab.arm("Metadata", "UNKNOWN_TOPIC_OR_PARTITION", |rule| {
        rule.topic = some("orders")
    });
    let passed = lab.through(12, &metadata_request(), &metadata(12, &[1]));
    let ResponseKind::Metadata(passed) = passed else {
        panic!()
    };
    let topics: Vec<_> = passed
        .topics
        .iter()
        .map(|topic| (topic.error_code, topic.partitions.len()))
        .collect();
    assert_eq!(topics, [(3, 0), (0, 2)]);
    assert!(passed.topics[0].topic_id.is_nil());
    assert_eq!(
        lab.errors(),
        vec![(
            "Metadata".to_owned(),
            3,
            some("orders"),
            None,
            some("answer-error-1"),
            1
        )]
    );
}

#[test]
fn metadata_rule_for_a_partition_takes_its_leader_away() {
    let mut lab = Lab::new(false);
    lab.arm("Metadata", "LEADER_NOT_AVAILABLE", |rule| {
        rule.topic = some("orders");
        rule.partition = Some(1);
    });
    let ResponseKind::Metadata(passed) = lab.through(9, &metadata_request(), &metadata(9, &[1])) else {
        panic!()
    };
    let partitions = passed.topics[0]
        .partitions
        .iter()
        .map(|partition| (partition.error_code, partition.leader_id.0));
    assert_eq!(partitions.collect::<Vec<_>>(), [(0, 1), (5, -1)]);
}

#[test]
fn rules_for_offsets_strike_partitions() {
    let mut lab = Lab::new(false);
    let partition = km::list_offsets_response::ListOffsetsPartitionResponse::default()
        .with_offset(9)
        .with_timestamp(9);
    let orders = km::list_offsets_response::ListOffsetsTopicResponse::default()
        .with_name(topic("orders"))
        .with_partitions(vec![partition]);
    let listed = ResponseKind::ListOffsets(km::ListOffsetsResponse::default().with_topics(vec![orders]));
    lab.arm("ListOffsets", "NOT_LEADER_OR_FOLLOWER", |_| {});
    let request = RequestKind::ListOffsets(km::ListOffsetsRequest::default());
    let ResponseKind::ListOffsets(struck) = lab.through(5, &request, &listed) else {
        panic!()
    };
    let struck = &struck.topics[0].partitions[0];
    assert_eq!((struck.error_code, struck.offset, struck.timestamp), (6, -1, -1));

    let partition = km::offset_fetch_response::OffsetFetchResponsePartition::default().with_committed_offset(9);
    let orders = km::offset_fetch_response::OffsetFetchResponseTopic::default()
        .with_name(topic("orders"))
        .with_partitions(vec![partition]);
    let committed = ResponseKind::OffsetFetch(km::OffsetFetchResponse::default().with_topics(vec![orders]));
    let rule = lab.arm("OffsetFetch", "UNSTABLE_OFFSET_COMMIT", |_| {});
    let group = |name: &str| GroupId(text(name));
    let request = RequestKind::OffsetFetch(km::OffsetFetchRequest::default().with_group_id(group("g")));
    let ResponseKind::OffsetFetch(struck) = lab.through(7, &request, &committed) else {
        panic!()
    };
    let partition = &struck.topics[0].partitions[0];
    assert_eq!(
        (struck.error_code, partition.error_code, partition.committed_offset),
        (0, 88, -1)
    );

    // A code of the group stands for the whole response, where the version has a place for it.
    lab.shared.rules.disarm(rule);
    lab.arm("OffsetFetch", "NOT_COORDINATOR", |_| {});
    let ResponseKind::OffsetFetch(struck) = lab.through(7, &request, &committed) else {
        panic!()
    };
    assert_eq!((struck.error_code, struck.topics.len()), (16, 0));
    let ResponseKind::OffsetFetch(struck) = lab.through(1, &request, &committed) else {
        panic!()
    };
    assert_eq!((struck.error_code, struck.topics[0].partitions[0].error_code), (0, 16));

    let partition = km::offset_fetch_response::OffsetFetchResponsePartitions::default().with_committed_offset(9);
    let orders = km::offset_fetch_response::OffsetFetchResponseTopics::default()
        .with_name(topic("orders"))
        .with_partitions(vec![partition]);
    let groups = km::offset_fetch_response::OffsetFetchResponseGroup::default()
        .with_group_id(group("g"))
        .with_topics(vec![orders]);
    let committed = ResponseKind::OffsetFetch(km::OffsetFetchResponse::default().with_groups(vec![groups]));
    let request = RequestKind::OffsetFetch(km::OffsetFetchRequest::default());
    let ResponseKind::OffsetFetch(struck) = lab.through(8, &request, &committed) else {
        panic!()
    };
    assert_eq!((struck.groups[0].error_code, struck.groups[0].topics.len()), (16, 0));
}

#[test]
fn rules_for_group_apis_strike_the_whole_response() {
    let mut lab = Lab::new(false);
    for api in ["FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup"] {
        lab.arm(api, "NOT_COORDINATOR", |_| {});
    }
    let found = km::FindCoordinatorResponse::default()
        .with_node_id(BrokerId(1))
        .with_host(text("x"))
        .with_port(1);
    let request = RequestKind::FindCoordinator(km::FindCoordinatorRequest::default());
    let struck = lab.through(2, &request, &ResponseKind::FindCoordinator(found));
    let ResponseKind::FindCoordinator(struck) = struck else {
        panic!()
    };
    assert_eq!(
        (struck.error_code, struck.node_id.0, struck.host.as_str()),
        (16, -1, "")
    );

    let joined = km::JoinGroupResponse::default()
        .with_generation_id(4)
        .with_member_id(text("m"))
        .with_members(vec![km::join_group_response::JoinGroupResponseMember::default()]);
    let request = RequestKind::JoinGroup(km::JoinGroupRequest::default().with_group_id(GroupId(text("g"))));
    let ResponseKind::JoinGroup(struck) = lab.through(5, &request, &ResponseKind::JoinGroup(joined)) else {
        panic!()
    };
    assert_eq!(
        (struck.error_code, struck.generation_id, struck.members.len()),
        (16, -1, 0)
    );

    let synced = km::SyncGroupResponse::default().with_assignment(Bytes::from_static(b"owned"));
    let request = RequestKind::SyncGroup(km::SyncGroupRequest::default());
    let ResponseKind::SyncGroup(struck) = lab.through(3, &request, &ResponseKind::SyncGroup(synced)) else {
        panic!()
    };
    assert_eq!((struck.error_code, struck.assignment.len()), (16, 0));

    let request = RequestKind::Heartbeat(km::HeartbeatRequest::default());
    let alive = ResponseKind::Heartbeat(km::HeartbeatResponse::default());
    let ResponseKind::Heartbeat(struck) = lab.through(4, &request, &alive) else {
        panic!()
    };
    assert_eq!(struck.error_code, 16);

    let request = RequestKind::LeaveGroup(km::LeaveGroupRequest::default());
    let left = ResponseKind::LeaveGroup(km::LeaveGroupResponse::default());
    let ResponseKind::LeaveGroup(struck) = lab.through(2, &request, &left) else {
        panic!()
    };
    assert_eq!(struck.error_code, 16);
    assert!(lab.errors().iter().all(|error| error.4 == some("answer-error-1")));
}

#[test]
fn response_that_cannot_be_decoded_passes_and_counts_against_the_rule() {
    let mut lab = Lab::new(false);
    let rule = lab.arm("Fetch", "OFFSET_OUT_OF_RANGE", |_| {});
    let (key, _) = lab.ask(11, &fetch_request());
    let whole = lab.answer(key, 11, &fetch_response(11));
    let cut_short = whole.slice(..30);
    assert_eq!(lab.exchange.response(cut_short.clone()), cut_short);
    let counts = lab.shared.rules.counts(rule);
    assert_eq!((counts.matched, counts.triggered, counts.undecodable), (0, 0, 1));
}

#[test]
fn every_trigger_is_counted_in_the_history_and_first_ones_at_once() {
    let mut lab = Lab::new(false);
    lab.arm("Heartbeat", "REBALANCE_IN_PROGRESS", |rule| rule.times = Some(5));
    let request = RequestKind::Heartbeat(km::HeartbeatRequest::default());
    for _ in 0..8 {
        lab.through(4, &request, &ResponseKind::Heartbeat(km::HeartbeatResponse::default()));
    }
    let heartbeat = |count| ("Heartbeat".to_owned(), 27, None, None, some("answer-error-1"), count);
    assert_eq!(lab.errors(), vec![heartbeat(1), heartbeat(4)]);
}

#[test]
fn commit_answered_by_a_rule_is_recorded_as_the_broker_did_it() {
    let mut lab = Lab::new(false);
    let partition = |partition: i32, offset| {
        km::offset_commit_request::OffsetCommitRequestPartition::default()
            .with_partition_index(partition)
            .with_committed_offset(offset)
    };
    let orders = km::offset_commit_request::OffsetCommitRequestTopic::default()
        .with_name(topic("orders"))
        .with_partitions(vec![partition(0, 5), partition(1, 7)]);
    let request = km::OffsetCommitRequest::default()
        .with_group_id(GroupId(text("g")))
        .with_topics(vec![orders]);
    let answered = |partition: i32, code| {
        km::offset_commit_response::OffsetCommitResponsePartition::default()
            .with_partition_index(partition)
            .with_error_code(code)
    };
    let orders = km::offset_commit_response::OffsetCommitResponseTopic::default()
        .with_name(topic("orders"))
        .with_partitions(vec![answered(0, 0), answered(1, 22)]);
    let answer = km::OffsetCommitResponse::default().with_topics(vec![orders]);
    lab.arm("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", |rule| {
        rule.partition = Some(0)
    });
    let struck = lab.through(
        8,
        &RequestKind::OffsetCommit(request),
        &ResponseKind::OffsetCommit(answer),
    );
    let ResponseKind::OffsetCommit(struck) = struck else {
        panic!()
    };
    assert_eq!(struck.topics[0].partitions[0].error_code, 14);
    let commits: Vec<_> = lab
        .events()
        .into_iter()
        .filter_map(|event| match event {
            Event::WireCommit {
                partition,
                offset,
                code,
                ..
            } => Some((partition, offset, code)),
            _ => None,
        })
        .collect();
    assert_eq!(commits, [(0, 5, 0), (1, 7, 22)]);
    let errors: Vec<_> = lab
        .errors()
        .into_iter()
        .map(|error| (error.1, error.3, error.4))
        .collect();
    assert_eq!(errors, [(14, Some(0), some("answer-error-1")), (22, Some(1), None)]);
}

#[test]
fn invalid_request_in_a_group_is_a_deviation_of_the_mock_unless_a_rule_put_it_there() {
    let deviations = |lab: &Lab| {
        lab.events()
            .iter()
            .filter(|event| matches!(event, Event::Deviation { .. }))
            .count()
    };
    let sync = RequestKind::SyncGroup(km::SyncGroupRequest::default());
    let refused = ResponseKind::SyncGroup(km::SyncGroupResponse::default().with_error_code(42));

    let mut mock = Lab::new(true);
    mock.through(3, &sync, &refused);
    assert_eq!(deviations(&mock), 1);

    let mut real = Lab::new(false);
    real.through(3, &sync, &refused);
    assert_eq!(deviations(&real), 0);

    let mut injected = Lab::new(true);
    injected.arm("SyncGroup", "INVALID_REQUEST", |_| {});
    injected.through(3, &sync, &ResponseKind::SyncGroup(km::SyncGroupResponse::default()));
    assert_eq!(deviations(&injected), 0);
}
