//! The words that scenario files may use: faults, invariants, apis and error codes.

use std::sync::LazyLock;

use super::decode::variants;
use crate::fault::FaultSpec;
use crate::invariant::ALL;

/// Names of faults, as [`FaultSpec`] spells them.
pub static FAULTS: LazyLock<&'static [&'static str]> = LazyLock::new(variants::<FaultSpec>);

/// Steps that are no faults.
pub const COMMANDS: [&str; 7] = [
    "produce",
    "snapshot",
    "barrier",
    "commit",
    "restart-reader",
    "stop",
    "join-member",
];

/// Ids of invariants, in the order in which reports show them.
pub const INVARIANTS: [&str; ALL.len()] = {
    let mut ids = [""; ALL.len()];
    let mut i = 0;
    // A `for` cannot stand in a constant.
    while i < ids.len() {
        ids[i] = ALL[i].id;
        i += 1;
    }
    ids
};

/// Apis that only a group member uses.
pub const GROUP_APIS: [&str; 8] = [
    "FindCoordinator",
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "LeaveGroup",
    "ConsumerGroupHeartbeat",
    "OffsetCommit",
    "OffsetFetch",
];

/// Whether the error says that the reader may not do what it does; by Kafka's protocol that is not for retrying.
pub fn is_authorization(code: &str) -> bool {
    code.ends_with("_AUTHORIZATION_FAILED") || code.ends_with("_AUTHENTICATION_FAILED")
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
                "answer-error",
                "absent-topic",
                "add-partitions",
                "move-leader",
                "move-coordinator",
                "deny-acl",
                "isolate-broker",
                "recreate-topic",
                "transaction",
                "compact-log",
                "roll-brokers",
                "unclean-election",
                "move-address",
                "fence-member"
            ]
        );
    }

    #[test]
    fn group_apis_are_apis_of_kafka() {
        for api in GROUP_APIS {
            assert!(crate::link::codes::api_key(api).is_some(), "{api}");
        }
    }
}
