//! The words that scenario files may use: faults, invariants, apis and error codes.

use std::sync::LazyLock;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::ApiKey;
use serde::Deserialize;

use super::decode::De;
use super::tree::{Node, Value};
use crate::fault::FaultSpec;

/// Names of faults, as [`FaultSpec`] spells them.
pub static FAULTS: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    // serde knows the names of the variants and tells them to whoever asks for one that is not there, so that a new
    // fault needs no second list.
    let nowhere = Node {
        span: 0..0,
        value: Value::Text(String::new()),
    };
    match FaultSpec::deserialize(De { node: &nowhere }) {
        Err(error) => error.variants().unwrap_or_default().to_vec(),
        Ok(_) => Vec::new(),
    }
});

/// Steps that are no faults.
pub const COMMANDS: [&str; 6] = [
    "produce",
    "snapshot",
    "barrier",
    "commit",
    "restart-reader",
    "join-member",
];

/// Ids of invariants, in the order in which reports show them.
pub const INVARIANTS: [&str; 17] = [
    "recovers",
    "catches_up",
    "converges",
    "no_lost_record",
    "no_phantom_record",
    "in_order",
    "no_rewind",
    "no_silent_death",
    "status_honest",
    "callback_isolated",
    "failure_typed",
    "group_member",
    "commit_not_ahead",
    "stops_cleanly",
    "bounded_cpu",
    "bounded_requests",
    "restart_cures",
];

/// Apis whose answers the link can change.
pub const ANSWERABLE_APIS: [&str; 10] = [
    "Metadata",
    "Fetch",
    "ListOffsets",
    "FindCoordinator",
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "LeaveGroup",
    "OffsetCommit",
    "OffsetFetch",
];

/// Apis that only a group member uses.
pub const GROUP_APIS: [&str; 7] = [
    "FindCoordinator",
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "LeaveGroup",
    "OffsetCommit",
    "OffsetFetch",
];

/// Names of all apis, as Kafka spells them.
pub static APIS: LazyLock<Vec<String>> = LazyLock::new(|| {
    (0..200)
        .filter_map(|key| ApiKey::try_from(key).ok())
        .map(|api| format!("{api:?}"))
        .collect()
});

/// An error code of Kafka's protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorCode {
    /// Its name, such as `TOPIC_AUTHORIZATION_FAILED`.
    pub name: String,
    /// Its number.
    pub code: i16,
    /// Whether Kafka's protocol calls it retriable.
    pub retriable: bool,
}

/// Every error code of Kafka's protocol but `NONE`.
pub static ERROR_CODES: LazyLock<Vec<ErrorCode>> = LazyLock::new(|| {
    (-1..200)
        .filter_map(ResponseError::try_from_code)
        .filter(|error| !matches!(error, ResponseError::Unknown(_)))
        .map(|error| ErrorCode {
            name: upper_snake(&error.to_string()),
            code: error.code(),
            retriable: error.is_retriable(),
        })
        .collect()
});

/// The error code of this name.
pub fn error_code(name: &str) -> Option<&'static ErrorCode> {
    ERROR_CODES.iter().find(|code| code.name == name)
}

/// Whether the error says that the reader may not do what it does; by Kafka's protocol that is not for retrying.
pub fn is_authorization(code: &str) -> bool {
    code.ends_with("_AUTHORIZATION_FAILED") || code.ends_with("_AUTHENTICATION_FAILED")
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

/// The name of a fault's kind, as files spell it.
pub fn fault_kind(fault: &FaultSpec) -> &'static str {
    match fault {
        FaultSpec::KillBroker(_) => "kill-broker",
        FaultSpec::PauseBroker(_) => "pause-broker",
        FaultSpec::Partition(_) => "partition",
        FaultSpec::DeleteSegments(_) => "delete-segments",
        FaultSpec::PanicCallback(_) => "panic-callback",
        FaultSpec::PauseReader(_) => "pause-reader",
        FaultSpec::KillReader(_) => "kill-reader",
        FaultSpec::AnswerError(_) => "answer-error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_names_come_from_the_enum_itself() {
        assert_eq!(
            *FAULTS,
            [
                "kill-broker",
                "pause-broker",
                "partition",
                "delete-segments",
                "panic-callback",
                "pause-reader",
                "kill-reader",
                "answer-error"
            ]
        );
    }

    #[test]
    fn error_codes_have_kafkas_own_names_and_numbers() {
        let known = [
            ("UNKNOWN_SERVER_ERROR", -1),
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
            ("UNKNOWN_TOPIC_ID", 100),
        ];
        for (name, number) in known {
            assert_eq!(error_code(name).map(|code| code.code), Some(number), "{name}");
        }
    }

    #[test]
    fn group_apis_are_apis_of_kafka() {
        for api in GROUP_APIS.iter().chain(&ANSWERABLE_APIS) {
            assert!(APIS.iter().any(|known| known == api), "{api}");
        }
    }
}
