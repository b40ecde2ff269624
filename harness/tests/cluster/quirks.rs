//! The bugs of librdkafka's mock cluster that this project works around, each as it shows on a direct port: an upgrade of
//! librdkafka that mends or adds one is noticed here. What is capped is gone from the harness's cluster; what the link
//! cures must still be there.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use brokerfall::cluster::Cluster;
use brokerfall::cluster::direct::{DirectConnection, DirectError};
use bytes::{Buf, Bytes};
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::{ApiVersionsRequest, GroupId, JoinGroupRequest, MetadataRequest, MetadataResponse};
use kafka_protocol::protocol::{Decodable, StrBytes};
use rdkafka::mocking::MockCluster as BareMock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Lab, SOON, eventually};

/// Keys whose versions this project limits, with what the bare mock advertises and what is left.
const CAPPED: [(&str, i16, i16, i16); 4] = [
    ("JoinGroup", 11, 6, 5),
    ("SyncGroup", 14, 4, 3),
    ("LeaveGroup", 13, 4, 2),
    ("Heartbeat", 12, 5, 4),
];

/// Keys that this project hides.
const HIDDEN: [(&str, i16); 3] = [
    ("ConsumerGroupHeartbeat", 68),
    ("GetTelemetrySubscriptions", 71),
    ("PushTelemetry", 72),
];

#[tokio::test]
async fn versions_that_the_mock_cannot_speak_are_not_advertised() {
    let lab = Lab::start(1).await;
    let left = api_versions(lab.address(1)).await;
    for (name, key, _, max) in CAPPED {
        assert_eq!(left.get(&key), Some(&(0, max)), "{name}");
    }
    for (name, key) in HIDDEN {
        assert_eq!(left.get(&key), None, "{name}");
    }
    lab.cluster.shutdown().await;
}

#[tokio::test]
async fn bare_mock_still_advertises_what_is_capped_and_hidden() {
    let bare = BareMock::new(1).unwrap();
    let advertised = api_versions(bare.bootstrap_servers().parse().unwrap()).await;
    for (name, key, max, _) in CAPPED {
        assert_eq!(advertised.get(&key), Some(&(0, max)), "{name}: lift or change its cap");
    }
    for (name, key) in HIDDEN {
        assert!(advertised.contains_key(&key), "{name}: no longer to be hidden");
    }
    // What the oracle and the link rely on.
    assert_eq!(advertised.get(&18), Some(&(0, 2)), "ApiVersions");
    assert_eq!(advertised.get(&3), Some(&(0, 12)), "Metadata");
    assert_eq!(advertised.get(&1), Some(&(0, 16)), "Fetch");
}

#[tokio::test]
async fn join_group_6_closes_the_connection_on_the_bare_mock() {
    let bare = BareMock::new(1).unwrap();
    let address = bare.bootstrap_servers().parse().unwrap();
    let lost = ask_join(address, 6).await.unwrap_err();
    assert!(
        matches!(lost, DirectError::Lost { .. }),
        "JoinGroup 6 was answered: lift its cap"
    );
    ask_join(address, 5).await.unwrap();
}

#[tokio::test]
async fn capped_version_is_refused_and_complained_about() {
    let lab = Lab::start(1).await;
    let refused = ask_join(lab.address(1), 6).await.unwrap_err();
    assert!(matches!(refused, DirectError::Lost { .. }), "{refused:?}");
    let complaint = eventually("a complaint", async || lab.cluster.complaints().pop()).await;
    assert!(
        complaint.contains("unsupported JoinGroupRequest version 6"),
        "{complaint}"
    );
    lab.cluster.shutdown().await;
}

#[tokio::test]
async fn hidden_api_is_refused_and_complained_about() {
    let lab = Lab::start(1).await;
    for (name, key) in HIDDEN {
        let answer = raw(lab.address(1), key, if key == 68 { 1 } else { 0 }, &[0]).await;
        assert_eq!(answer, None, "{name}");
        let complaint = eventually("a complaint", async || lab.cluster.complaints().pop()).await;
        assert!(complaint.contains(&format!("unsupported {name}Request")), "{complaint}");
    }
    lab.cluster.shutdown().await;
}

#[tokio::test]
async fn api_versions_above_2_are_still_answered_malformed_on_direct_ports() {
    let lab = Lab::start(1).await;
    for version in [3, 4] {
        // Client software name and version, compact, and no tags.
        let mut answer = raw(lab.address(1), 18, version, b"\x02a\x021\x00").await.unwrap();
        assert_eq!(answer.get_i16(), 35, "UNSUPPORTED_VERSION");
        // A count of one byte where version 0, which real brokers answer here, has four.
        assert_eq!(answer.get_i8(), 1);
        assert_eq!((answer.get_i16(), answer.get_i16(), answer.get_i16()), (18, 0, 2));
        assert_eq!(answer.get_i32(), 0, "throttle time");
        assert!(!answer.has_remaining());
    }
    lab.cluster.shutdown().await;
}

#[tokio::test]
async fn metadata_from_9_still_ends_in_a_surplus_byte_on_direct_ports() {
    let lab = Lab::start(1).await;
    lab.create("orders", 2, 1).await;
    for (version, surplus) in [(8, 0), (9, 1), (12, 1)] {
        let answer = raw_metadata(lab.address(1), version).await;
        assert_eq!(answer, surplus, "version {version}");
    }
    lab.cluster.shutdown().await;
}

/// Surplus bytes after a Metadata answer.
async fn raw_metadata(address: SocketAddr, version: i16) -> usize {
    use kafka_protocol::protocol::Encodable;
    let mut body = bytes::BytesMut::new();
    MetadataRequest::default()
        .with_topics(None)
        .encode(&mut body, version)
        .unwrap();
    let mut answer = raw(address, 3, version, &body).await.unwrap();
    if version >= 9 {
        assert_eq!(answer.get_u8(), 0, "tags of the response header");
    }
    let metadata = MetadataResponse::decode(&mut answer, version).unwrap();
    assert_eq!(metadata.topics.len(), 1);
    answer.remaining()
}

async fn api_versions(address: SocketAddr) -> BTreeMap<i16, (i16, i16)> {
    let mut connection = DirectConnection::open(address, "quirks", SOON).await.unwrap();
    let answer = connection.ask(2, &ApiVersionsRequest::default(), SOON).await.unwrap();
    let keys = answer.api_keys.iter();
    keys.map(|api| (api.api_key, (api.min_version, api.max_version)))
        .collect()
}

async fn ask_join(address: SocketAddr, version: i16) -> Result<i16, DirectError> {
    let request = JoinGroupRequest::default()
        .with_group_id(GroupId(StrBytes::from_static_str("readers")))
        .with_session_timeout_ms(6_000)
        .with_rebalance_timeout_ms(6_000)
        .with_protocol_type(StrBytes::from_static_str("consumer"))
        .with_protocols(vec![
            JoinGroupRequestProtocol::default().with_name(StrBytes::from_static_str("range")),
        ]);
    let mut connection = DirectConnection::open(address, "quirks", SOON).await.unwrap();
    connection
        .ask(version, &request, SOON)
        .await
        .map(|answer| answer.error_code)
}

/// Sends a request byte by byte; the body of its answer after the correlation id, or nothing when the broker closes.
async fn raw(address: SocketAddr, key: i16, version: i16, body: &[u8]) -> Option<Bytes> {
    let mut frame = Vec::new();
    frame.extend_from_slice(&key.to_be_bytes());
    frame.extend_from_slice(&version.to_be_bytes());
    frame.extend_from_slice(&7i32.to_be_bytes());
    frame.extend_from_slice(b"\x00\x01q");
    let flexible = match key {
        3 => version >= 9,
        18 => version >= 3,
        _ => true,
    };
    if flexible {
        frame.push(0);
    }
    frame.extend_from_slice(body);
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_u32(u32::try_from(frame.len()).unwrap()).await.unwrap();
    stream.write_all(&frame).await.unwrap();
    let length = stream.read_u32().await.ok()?;
    let mut answer = vec![0; length as usize];
    stream.read_exact(&mut answer).await.unwrap();
    let mut answer = Bytes::from(answer);
    assert_eq!(answer.get_i32(), 7, "correlation id");
    Some(answer)
}
