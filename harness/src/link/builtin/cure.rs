//! Cures: what librdkafka's mock cluster does otherwise than a broker, put right on the way.
//!
//! Only on an emulated cluster. The other bugs of the mock are avoided by capping the versions that it advertises, and
//! Metadata is cured by being encoded anew (the mock puts one surplus byte at its end, which strict clients refuse).

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::{BrokerId, FindCoordinatorResponse, JoinGroupResponse, ResponseKind, SyncGroupResponse};
use kafka_protocol::protocol::StrBytes;
use tokio::sync::watch;
use tokio::time::Instant;

use super::frame::Cursor;
use super::request::api;

/// How long the leader's SyncGroup waits for those of its followers.
const SYNC_WAIT: Duration = Duration::from_secs(2);
/// What the mock is given to read the followers' first: they went up other connections.
const SYNC_LEAD: Duration = Duration::from_millis(5);

/// UNSUPPORTED_VERSION.
pub(super) const UNSUPPORTED_VERSION: i16 = 35;

/// What a broker answers to an ApiVersions request of a version that it does not have: version 0 of the response, error
/// 35 and the versions of ApiVersions that it does have. The mock's own answer is of no version at all: franz-go drops
/// the connection, the Java client reads a throttle time of 19.7 minutes from it.
///
/// `None` when the answer needs no cure. `frame` has its length prefix.
pub(super) fn api_versions(version: i16, frame: &[u8]) -> Option<Bytes> {
    let error = frame.get(8..10)?;
    if version < 3 || error != UNSUPPORTED_VERSION.to_be_bytes() {
        return None;
    }
    let correlation = frame.get(4..8)?;
    let mut cured = Vec::with_capacity(20);
    cured.extend_from_slice(&16i32.to_be_bytes());
    cured.extend_from_slice(correlation);
    cured.extend_from_slice(&UNSUPPORTED_VERSION.to_be_bytes());
    cured.extend_from_slice(&1i32.to_be_bytes());
    for field in [18i16, 0, 2] {
        cured.extend_from_slice(&field.to_be_bytes());
    }
    Some(cured.into())
}

/// What a broker answers where the mock writes null for a string or bytes that cannot be null: an empty one.
///
/// The mock does so in every error of FindCoordinator, JoinGroup and SyncGroup, and for a member that was assigned
/// nothing; neither kafka-protocol nor the Java client can read that. `None` for other responses.
pub(super) fn nulls(api: i16, version: i16, frame: &[u8]) -> Option<ResponseKind> {
    // From these versions on the response has a throttle time, and a flexible header.
    let (throttled, flexible) = match api {
        api::FIND_COORDINATOR if version <= 3 => (1, 3),
        api::JOIN_GROUP => (2, 6),
        api::SYNC_GROUP => (1, 4),
        _ => return None,
    };
    let mut cursor = Cursor::new(frame.get(8..)?);
    if version >= flexible {
        cursor.set_flexible();
        cursor.tags()?;
    }
    if version >= throttled {
        cursor.i32()?;
    }
    let code = cursor.i16()?;
    Some(match api {
        api::FIND_COORDINATOR => {
            let message = if version >= 1 { cursor.string()? } else { None };
            let answer = FindCoordinatorResponse::default()
                .with_error_code(code)
                .with_node_id(BrokerId(-1))
                .with_port(-1);
            ResponseKind::FindCoordinator(
                answer.with_error_message(message.map(|text| StrBytes::from_string(text.to_owned()))),
            )
        }
        api::JOIN_GROUP => {
            let answer = JoinGroupResponse::default()
                .with_error_code(code)
                .with_generation_id(-1);
            ResponseKind::JoinGroup(answer.with_protocol_name(Some(StrBytes::default())))
        }
        _ => ResponseKind::SyncGroup(SyncGroupResponse::default().with_error_code(code)),
    })
}

/// Keeps the leader's SyncGroup back until those of its followers went up: the mock answers INVALID_REQUEST to a
/// follower that comes after the leader, where a broker answers the assignment. Timing only, no content.
pub(super) struct SyncGate {
    went_up: Mutex<HashMap<String, Generation>>,
    changed: watch::Sender<u64>,
}

struct Generation {
    number: i32,
    members: HashSet<String>,
}

/// A SyncGroup of a leader that waits.
#[derive(Debug, Clone)]
pub(super) struct LeaderSync {
    pub(super) group: String,
    pub(super) generation: i32,
    /// How many followers it waits for.
    pub(super) followers: usize,
    since: Instant,
}

/// Whether it may go.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SyncTurn {
    /// At this instant.
    At(Instant),
    /// When the gate changes, at the latest at this instant.
    NotYet(Instant),
}

impl SyncGate {
    pub(super) fn new() -> Self {
        SyncGate {
            went_up: Mutex::new(HashMap::new()),
            changed: watch::Sender::new(0),
        }
    }

    /// A leader's SyncGroup came in.
    pub(super) fn leader(group: &str, generation: i32, assignments: usize) -> LeaderSync {
        LeaderSync {
            group: group.to_owned(),
            generation,
            followers: assignments.saturating_sub(1),
            since: Instant::now(),
        }
    }

    /// A follower's SyncGroup went up.
    pub(super) fn follower_went_up(&self, group: &str, generation: i32, member: &str) {
        let mut groups = self.lock();
        let seen = groups.entry(group.to_owned()).or_insert_with(|| Generation {
            number: generation,
            members: HashSet::new(),
        });
        if seen.number != generation {
            seen.number = generation;
            seen.members.clear();
        }
        seen.members.insert(member.to_owned());
        drop(groups);
        self.changed.send_modify(|version| *version += 1);
    }

    /// Whether a leader's SyncGroup may go up.
    pub(super) fn turn(&self, leader: &LeaderSync) -> SyncTurn {
        if leader.followers == 0 {
            return SyncTurn::At(leader.since);
        }
        let groups = self.lock();
        let up = groups
            .get(&leader.group)
            .filter(|seen| seen.number == leader.generation)
            .map_or(0, |seen| seen.members.len());
        drop(groups);
        let latest = leader.since + SYNC_WAIT;
        if up >= leader.followers {
            SyncTurn::At(latest.min(Instant::now() + SYNC_LEAD))
        } else if Instant::now() >= latest {
            SyncTurn::At(latest)
        } else {
            SyncTurn::NotYet(latest)
        }
    }

    /// Tells of every follower that goes up.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Generation>> {
        crate::lock(&self.went_up)
    }
}
