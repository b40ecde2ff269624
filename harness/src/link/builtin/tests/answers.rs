//! What becomes of addresses, and the cures of the mock.

use brokerfall_report::history::FailureOf;
use kafka_protocol::protocol::Decodable;

use crate::link::builtin::frame;

use super::*;

#[test]
fn addresses_in_every_version_of_metadata_are_the_links() {
    for version in 0..=13 {
        let mut lab = Lab::new(false);
        let passed = lab.through(version, &metadata_request(), &metadata(version, &[1, 2]));
        let ResponseKind::Metadata(passed) = passed else {
            panic!()
        };
        for broker in &passed.brokers {
            let got = (broker.host.to_string(), broker.port);
            assert_eq!(got, lab.host_and_port(broker.node_id.0), "version {version}");
        }
        assert_eq!(passed.brokers.len(), 2);
    }
}

#[test]
fn addresses_of_coordinators_and_of_moved_leaders_are_the_links() {
    let mut lab = Lab::new(false);
    let old = km::FindCoordinatorResponse::default()
        .with_node_id(BrokerId(2))
        .with_host(text("x"))
        .with_port(1);
    let request = RequestKind::FindCoordinator(km::FindCoordinatorRequest::default());
    let passed = lab.through(3, &request, &ResponseKind::FindCoordinator(old));
    let ResponseKind::FindCoordinator(passed) = passed else {
        panic!()
    };
    assert_eq!((passed.host.to_string(), passed.port), lab.host_and_port(2));

    let found = km::find_coordinator_response::Coordinator::default()
        .with_node_id(BrokerId(1))
        .with_host(text("x"))
        .with_port(1);
    let new = km::FindCoordinatorResponse::default().with_coordinators(vec![found]);
    let request = RequestKind::FindCoordinator(km::FindCoordinatorRequest::default());
    let passed = lab.through(4, &request, &ResponseKind::FindCoordinator(new));
    let ResponseKind::FindCoordinator(passed) = passed else {
        panic!()
    };
    assert_eq!(
        (passed.coordinators[0].host.to_string(), passed.coordinators[0].port),
        lab.host_and_port(1)
    );

    let endpoint = km::fetch_response::NodeEndpoint::default()
        .with_node_id(BrokerId(2))
        .with_host(text("x"));
    let ResponseKind::Fetch(moved) = fetch_response(16) else {
        panic!()
    };
    let moved = ResponseKind::Fetch(moved.with_node_endpoints(vec![endpoint]));
    let request = RequestKind::Fetch(km::FetchRequest::default());
    let ResponseKind::Fetch(passed) = lab.through(16, &request, &moved) else {
        panic!()
    };
    assert_eq!(
        (passed.node_endpoints[0].host.to_string(), passed.node_endpoints[0].port),
        lab.host_and_port(2)
    );

    let endpoint = km::produce_response::NodeEndpoint::default()
        .with_node_id(BrokerId(1))
        .with_host(text("x"));
    let moved = ResponseKind::Produce(km::ProduceResponse::default().with_node_endpoints(vec![endpoint]));
    let request = RequestKind::Produce(km::ProduceRequest::default().with_acks(-1));
    let ResponseKind::Produce(passed) = lab.through(10, &request, &moved) else {
        panic!()
    };
    assert_eq!(
        (passed.node_endpoints[0].host.to_string(), passed.node_endpoints[0].port),
        lab.host_and_port(1)
    );

    let broker = km::describe_cluster_response::DescribeClusterBroker::default().with_broker_id(BrokerId(2));
    let described = ResponseKind::DescribeCluster(km::DescribeClusterResponse::default().with_brokers(vec![broker]));
    let request = RequestKind::DescribeCluster(km::DescribeClusterRequest::default());
    let ResponseKind::DescribeCluster(passed) = lab.through(0, &request, &described) else {
        panic!()
    };
    assert_eq!(
        (passed.brokers[0].host.to_string(), passed.brokers[0].port),
        lab.host_and_port(2)
    );
}

#[test]
fn coordinator_error_without_address_passes_and_unknown_broker_is_a_failure_of_the_harness() {
    let mut lab = Lab::new(false);
    let none = km::FindCoordinatorResponse::default()
        .with_error_code(15)
        .with_node_id(BrokerId(-1))
        .with_port(-1);
    let request = RequestKind::FindCoordinator(km::FindCoordinatorRequest::default());
    lab.through(2, &request, &ResponseKind::FindCoordinator(none));
    assert!(!lab.events().iter().any(|event| matches!(event, Event::Failure { .. })));

    for _ in 0..2 {
        lab.through(9, &metadata_request(), &metadata(9, &[1, 9]));
    }
    let failures: Vec<_> = lab
        .events()
        .into_iter()
        .filter_map(|event| match event {
            Event::Failure { of, text } => Some((of, text)),
            _ => None,
        })
        .collect();
    assert_eq!(failures.len(), 1, "each once: {failures:?}");
    assert_eq!(failures[0].0, FailureOf::Harness);
    assert!(failures[0].1.contains("broker 9 at localhost:9092"), "{failures:?}");
}

#[test]
fn unchanged_responses_pass_as_the_same_bytes_with_trailing_ones() {
    let mut lab = Lab::new(false);
    let (key, _) = lab.ask(12, &fetch_request());
    let mut bytes = BytesMut::from(&lab.answer(key, 12, &fetch_response(12))[..]);
    bytes.extend_from_slice(b"\0\0\0");
    let bytes = bytes.freeze();
    assert_eq!(lab.exchange.response(bytes.clone()), bytes);
    assert_eq!(lab.shared.undecodable.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[test]
fn surplus_byte_of_the_mocks_metadata_is_dropped() {
    let mut lab = Lab::new(true);
    let (host, port) = lab.host_and_port(1);
    let ResponseKind::Metadata(mut answer) = metadata(9, &[1]) else {
        panic!()
    };
    answer.brokers[0].host = text(&host);
    answer.brokers[0].port = port;
    let (key, _) = lab.ask(9, &metadata_request());
    let proper = lab.answer(key, 9, &ResponseKind::Metadata(answer));
    let mut surplus = BytesMut::from(&proper[..]);
    surplus.put_u8(0);
    assert_eq!(lab.exchange.response(surplus.freeze()), proper);
}

#[test]
fn api_versions_of_the_mock_is_answered_as_a_broker_does() {
    let mut lab = Lab::new(true);
    let request = RequestKind::ApiVersions(km::ApiVersionsRequest::default().with_client_software_name(text("x")));
    lab.ask(4, &request);
    // Error 35, a count of one byte, (18, 0, 2), throttle time: no version of the response.
    let mut malformed = BytesMut::new();
    malformed.put_i32(4 + 2 + 1 + 6 + 4);
    malformed.put_i32(lab.correlation);
    malformed.put_slice(&[0, 35, 1, 0, 18, 0, 0, 0, 2, 0, 0, 0, 0]);
    let cured = lab.exchange.response(malformed.clone().freeze());
    let (header, body) = (&cured[..8], cured.slice(8..));
    assert_eq!(header[..4], 16i32.to_be_bytes());
    assert_eq!(frame::correlation(header), Some(lab.correlation));
    let answer = km::ApiVersionsResponse::decode(&mut body.clone(), 0).unwrap();
    let range = (
        answer.api_keys[0].api_key,
        answer.api_keys[0].min_version,
        answer.api_keys[0].max_version,
    );
    assert_eq!((answer.error_code, answer.api_keys.len(), range), (35, 1, (18, 0, 2)));
    assert_eq!(lab.errors(), vec![], "the cured answer is no trouble");

    let mut real = Lab::new(false);
    real.ask(4, &request);
    assert_eq!(real.exchange.response(malformed.clone().freeze()), malformed.freeze());
    assert_eq!(real.errors(), vec![("ApiVersions".to_owned(), 35, None, None, None, 1)]);
}

#[test]
fn only_the_leader_of_a_mock_group_waits_for_its_followers() {
    let assignment = km::sync_group_request::SyncGroupRequestAssignment::default();
    let leader = km::SyncGroupRequest::default()
        .with_group_id(GroupId(text("g")))
        .with_generation_id(2)
        .with_assignments(vec![assignment.clone(), assignment]);
    let follower = km::SyncGroupRequest::default()
        .with_group_id(GroupId(text("g")))
        .with_generation_id(2);
    for version in [0, 3, 4, 5] {
        let mut lab = Lab::new(true);
        let (_, mark) = lab.ask(version, &RequestKind::SyncGroup(leader.clone()));
        assert!(
            matches!(mark, Mark::Leader(leader) if leader.followers == 1),
            "version {version}"
        );
        let (_, mark) = lab.ask(version, &RequestKind::SyncGroup(follower.clone()));
        assert!(matches!(mark, Mark::Follower { .. }), "version {version}");
    }
    let mut real = Lab::new(false);
    assert!(matches!(real.ask(3, &RequestKind::SyncGroup(leader)).1, Mark::None));
}
