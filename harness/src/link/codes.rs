//! The names that Kafka's protocol gives to error codes and apis, made from the crate kafka-protocol.
//!
//! Scenarios, rules and events speak these names; a library's own types never stand in for them.

use std::sync::LazyLock;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::ApiKey;

/// Name of a code that the protocol does not know.
pub const UNKNOWN_CODE: &str = "UNKNOWN_ERROR_CODE";

/// Error codes and their names, by rising code. 0 is `NONE`.
pub static ERROR_NAMES: LazyLock<Vec<(i16, String)>> = LazyLock::new(|| {
    let known = |code: i16| match ResponseError::try_from_code(code) {
        _ if code == 0 => Some("NONE".to_owned()),
        None | Some(ResponseError::Unknown(_)) => None,
        Some(error) => Some(upper_snake(&error.to_string())),
    };
    (-1..=i16::from(u8::MAX))
        .filter_map(|code| Some((code, known(code)?)))
        .collect()
});

/// Api keys and their names, by rising key.
pub static API_NAMES: LazyLock<Vec<(i16, String)>> = LazyLock::new(|| {
    (0..=i16::from(u8::MAX))
        .filter_map(|key| Some((key, format!("{:?}", ApiKey::try_from(key).ok()?))))
        .collect()
});

/// Apis whose answers a rule of the link can turn into errors, and the error codes that brokers give or gave to each.
///
/// From Kafka 4.1.0 and 3.9: the comments on `FetchResponse` and its like, both group coordinators (`GroupCoordinator`,
/// `GroupCoordinatorService`, `GroupMetadataManager`), `KafkaApis` and `SaslServerAuthenticator`.
const ANSWERED: [(&str, &[&str]); 15] = [
    (
        "Fetch",
        &[
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
            "UNSUPPORTED_VERSION",
            "OFFSET_NOT_AVAILABLE",
            "OFFSET_MOVED_TO_TIERED_STORAGE",
            "UNKNOWN_TOPIC_ID",
            "INCONSISTENT_TOPIC_ID",
            "FETCH_SESSION_ID_NOT_FOUND",
            "INVALID_FETCH_SESSION_EPOCH",
            "FETCH_SESSION_TOPIC_ID_ERROR",
        ],
    ),
    (
        "ListOffsets",
        &[
            "UNKNOWN_TOPIC_OR_PARTITION",
            "LEADER_NOT_AVAILABLE",
            "NOT_LEADER_OR_FOLLOWER",
            "REPLICA_NOT_AVAILABLE",
            "TOPIC_AUTHORIZATION_FAILED",
            "INVALID_REQUEST",
            "UNSUPPORTED_VERSION",
            "UNSUPPORTED_FOR_MESSAGE_FORMAT",
            "KAFKA_STORAGE_ERROR",
            "FENCED_LEADER_EPOCH",
            "UNKNOWN_LEADER_EPOCH",
            "OFFSET_NOT_AVAILABLE",
        ],
    ),
    (
        "Metadata",
        &[
            "UNKNOWN_TOPIC_OR_PARTITION",
            "LEADER_NOT_AVAILABLE",
            "REPLICA_NOT_AVAILABLE",
            "LISTENER_NOT_FOUND",
            "INVALID_TOPIC_EXCEPTION",
            "INVALID_REPLICATION_FACTOR",
            "TOPIC_AUTHORIZATION_FAILED",
            "UNKNOWN_TOPIC_ID",
        ],
    ),
    (
        "OffsetCommit",
        &[
            "UNKNOWN_TOPIC_OR_PARTITION",
            "UNKNOWN_TOPIC_ID",
            "REQUEST_TIMED_OUT",
            "OFFSET_METADATA_TOO_LARGE",
            "COORDINATOR_LOAD_IN_PROGRESS",
            "COORDINATOR_NOT_AVAILABLE",
            "NOT_COORDINATOR",
            "INVALID_GROUP_ID",
            "ILLEGAL_GENERATION",
            "UNKNOWN_MEMBER_ID",
            "REBALANCE_IN_PROGRESS",
            "INVALID_COMMIT_OFFSET_SIZE",
            "TOPIC_AUTHORIZATION_FAILED",
            "GROUP_AUTHORIZATION_FAILED",
            "GROUP_ID_NOT_FOUND",
            "FENCED_INSTANCE_ID",
            "STALE_MEMBER_EPOCH",
            "UNSUPPORTED_VERSION",
        ],
    ),
    (
        "OffsetFetch",
        &[
            "UNKNOWN_TOPIC_OR_PARTITION",
            "UNKNOWN_TOPIC_ID",
            "COORDINATOR_LOAD_IN_PROGRESS",
            "COORDINATOR_NOT_AVAILABLE",
            "NOT_COORDINATOR",
            "INVALID_GROUP_ID",
            "ILLEGAL_GENERATION",
            "UNKNOWN_MEMBER_ID",
            "TOPIC_AUTHORIZATION_FAILED",
            "GROUP_AUTHORIZATION_FAILED",
            "GROUP_ID_NOT_FOUND",
            "UNSTABLE_OFFSET_COMMIT",
            "STALE_MEMBER_EPOCH",
            "UNSUPPORTED_VERSION",
        ],
    ),
    (
        "FindCoordinator",
        &[
            "COORDINATOR_LOAD_IN_PROGRESS",
            "COORDINATOR_NOT_AVAILABLE",
            "INVALID_GROUP_ID",
            "INVALID_REQUEST",
            "GROUP_AUTHORIZATION_FAILED",
            "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        ],
    ),
    (
        "JoinGroup",
        &[
            "COORDINATOR_LOAD_IN_PROGRESS",
            "COORDINATOR_NOT_AVAILABLE",
            "NOT_COORDINATOR",
            "INCONSISTENT_GROUP_PROTOCOL",
            "INVALID_GROUP_ID",
            "UNKNOWN_MEMBER_ID",
            "INVALID_SESSION_TIMEOUT",
            "REBALANCE_IN_PROGRESS",
            "GROUP_AUTHORIZATION_FAILED",
            "MEMBER_ID_REQUIRED",
            "GROUP_MAX_SIZE_REACHED",
            "FENCED_INSTANCE_ID",
            "UNSUPPORTED_VERSION",
        ],
    ),
    (
        "Heartbeat",
        &[
            "COORDINATOR_NOT_AVAILABLE",
            "NOT_COORDINATOR",
            "INVALID_GROUP_ID",
            "ILLEGAL_GENERATION",
            "UNKNOWN_MEMBER_ID",
            "REBALANCE_IN_PROGRESS",
            "GROUP_AUTHORIZATION_FAILED",
            "FENCED_INSTANCE_ID",
            "UNSUPPORTED_VERSION",
        ],
    ),
    (
        "LeaveGroup",
        &[
            "COORDINATOR_LOAD_IN_PROGRESS",
            "COORDINATOR_NOT_AVAILABLE",
            "NOT_COORDINATOR",
            "INVALID_GROUP_ID",
            "UNKNOWN_MEMBER_ID",
            "GROUP_AUTHORIZATION_FAILED",
            "FENCED_INSTANCE_ID",
        ],
    ),
    (
        "SyncGroup",
        &[
            "COORDINATOR_LOAD_IN_PROGRESS",
            "COORDINATOR_NOT_AVAILABLE",
            "NOT_COORDINATOR",
            "INCONSISTENT_GROUP_PROTOCOL",
            "INVALID_GROUP_ID",
            "ILLEGAL_GENERATION",
            "UNKNOWN_MEMBER_ID",
            "REBALANCE_IN_PROGRESS",
            "GROUP_AUTHORIZATION_FAILED",
            "FENCED_INSTANCE_ID",
            "UNSUPPORTED_VERSION",
        ],
    ),
    (
        "ConsumerGroupHeartbeat",
        &[
            "COORDINATOR_LOAD_IN_PROGRESS",
            "COORDINATOR_NOT_AVAILABLE",
            "NOT_COORDINATOR",
            "INVALID_REQUEST",
            "UNKNOWN_MEMBER_ID",
            "FENCED_MEMBER_EPOCH",
            "FENCED_INSTANCE_ID",
            "UNRELEASED_INSTANCE_ID",
            "UNSUPPORTED_ASSIGNOR",
            "UNSUPPORTED_VERSION",
            "GROUP_ID_NOT_FOUND",
            "GROUP_MAX_SIZE_REACHED",
            "GROUP_AUTHORIZATION_FAILED",
            "TOPIC_AUTHORIZATION_FAILED",
            "INVALID_REGULAR_EXPRESSION",
        ],
    ),
    (
        "OffsetForLeaderEpoch",
        &[
            "UNKNOWN_TOPIC_OR_PARTITION",
            "NOT_LEADER_OR_FOLLOWER",
            "REPLICA_NOT_AVAILABLE",
            "TOPIC_AUTHORIZATION_FAILED",
            "KAFKA_STORAGE_ERROR",
            "FENCED_LEADER_EPOCH",
            "UNKNOWN_LEADER_EPOCH",
        ],
    ),
    ("ApiVersions", &["UNSUPPORTED_VERSION", "INVALID_REQUEST"]),
    ("SaslHandshake", &["UNSUPPORTED_SASL_MECHANISM", "ILLEGAL_SASL_STATE"]),
    (
        "SaslAuthenticate",
        &["SASL_AUTHENTICATION_FAILED", "ILLEGAL_SASL_STATE"],
    ),
];

/// What went wrong in a broker in a way that it has no code for; it may be answered to anything.
const ANYWHERE: &str = "UNKNOWN_SERVER_ERROR";

/// Apis whose answers a rule of the link can turn into errors.
pub const ANSWERABLE_APIS: [&str; ANSWERED.len()] = {
    let mut apis = [""; ANSWERED.len()];
    let mut i = 0;
    // A `for` cannot stand in a constant.
    while i < apis.len() {
        apis[i] = ANSWERED[i].0;
        i += 1;
    }
    apis
};

/// The error codes that brokers give to an api; empty for one that is not in [`ANSWERABLE_APIS`].
///
/// ```
/// use brokerfall::link::codes;
/// assert!(codes::answers("Heartbeat").any(|code| code == "REBALANCE_IN_PROGRESS"));
/// assert!(!codes::answers("Heartbeat").any(|code| code == "OFFSET_OUT_OF_RANGE"));
/// ```
pub fn answers(api: &str) -> impl Iterator<Item = &'static str> {
    let known = ANSWERED.iter().find(|(known, _)| *known == api);
    known
        .into_iter()
        .flat_map(|(_, codes)| codes.iter().copied().chain([ANYWHERE]))
}

/// The name of an error code; [`UNKNOWN_CODE`] for one that the protocol does not know.
///
/// ```
/// use brokerfall::link::codes;
/// assert_eq!(codes::name(29), "TOPIC_AUTHORIZATION_FAILED");
/// assert_eq!(codes::code("TOPIC_AUTHORIZATION_FAILED"), Some(29));
/// ```
pub fn name(code: i16) -> &'static str {
    lookup(&ERROR_NAMES, code).unwrap_or(UNKNOWN_CODE)
}

/// The error code of a name; `None` for a name that Kafka's protocol does not have. Case matters.
pub fn code(name: &str) -> Option<i16> {
    reverse(&ERROR_NAMES, name)
}

/// The name of an api key; `None` for a key that the protocol does not know.
pub fn api_name(key: i16) -> Option<&'static str> {
    lookup(&API_NAMES, key)
}

/// The key of an api's name, such as `Fetch`. Case matters.
pub fn api_key(name: &str) -> Option<i16> {
    reverse(&API_NAMES, name)
}

fn lookup(table: &'static [(i16, String)], number: i16) -> Option<&'static str> {
    let at = table.binary_search_by_key(&number, |(candidate, _)| *candidate).ok()?;
    Some(&table.get(at)?.1)
}

fn reverse(table: &[(i16, String)], name: &str) -> Option<i16> {
    table
        .iter()
        .find(|(_, candidate)| candidate == name)
        .map(|(number, _)| *number)
}

/// `TopicAuthorizationFailed` as `TOPIC_AUTHORIZATION_FAILED`.
fn upper_snake(name: &str) -> String {
    let mut upper = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !upper.is_empty() {
            upper.push('_');
        }
        upper.push(c.to_ascii_uppercase());
    }
    upper
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_those_of_kafkas_protocol() {
        let known = [
            ("UNKNOWN_SERVER_ERROR", -1),
            ("NONE", 0),
            ("OFFSET_OUT_OF_RANGE", 1),
            ("UNKNOWN_TOPIC_OR_PARTITION", 3),
            ("NOT_LEADER_OR_FOLLOWER", 6),
            ("COORDINATOR_LOAD_IN_PROGRESS", 14),
            ("ILLEGAL_GENERATION", 22),
            ("UNKNOWN_MEMBER_ID", 25),
            ("REBALANCE_IN_PROGRESS", 27),
            ("TOPIC_AUTHORIZATION_FAILED", 29),
            ("GROUP_AUTHORIZATION_FAILED", 30),
            ("UNSUPPORTED_VERSION", 35),
            ("KAFKA_STORAGE_ERROR", 56),
            ("SASL_AUTHENTICATION_FAILED", 58),
            ("FENCED_LEADER_EPOCH", 74),
            ("FENCED_INSTANCE_ID", 82),
            ("UNKNOWN_TOPIC_ID", 100),
        ];
        for (text, number) in known {
            assert_eq!((name(number), code(text)), (text, Some(number)));
        }
        for (text, key) in [
            ("Produce", 0),
            ("Fetch", 1),
            ("Metadata", 3),
            ("ConsumerGroupHeartbeat", 68),
        ] {
            assert_eq!((api_name(key), api_key(text)), (Some(text), Some(key)));
        }
    }

    #[test]
    fn every_name_leads_back_to_its_number() {
        for (number, text) in ERROR_NAMES.iter() {
            assert_eq!((name(*number), code(text)), (text.as_str(), Some(*number)));
        }
        for (number, text) in API_NAMES.iter() {
            assert_eq!((api_name(*number), api_key(text)), (Some(text.as_str()), Some(*number)));
        }
        for api in ANSWERABLE_APIS {
            assert!(api_key(api).is_some(), "{api}");
            for code_of_it in answers(api) {
                assert!(code(code_of_it).is_some_and(|code| code != 0), "{api} {code_of_it}");
            }
        }
        assert_eq!(answers("Produce").count(), 0);
    }

    #[test]
    fn unknown_numbers_and_names_are_told_apart_from_known_ones() {
        assert_eq!(name(9999), UNKNOWN_CODE);
        assert_eq!(code(UNKNOWN_CODE), None);
        assert_eq!(code("topic_authorization_failed"), None);
        assert_eq!(api_name(-1), None);
        assert_eq!(api_key("fetch"), None);
    }
}
