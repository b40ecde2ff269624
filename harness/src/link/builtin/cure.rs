//! Cures: what librdkafka's mock cluster does otherwise than a broker, put right on the way.
//!
//! Only on an emulated cluster. The other bugs of the mock are avoided by capping the versions that it advertises, and
//! Metadata is cured by being encoded anew (the mock puts one surplus byte at its end, which strict clients refuse).

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::Instant;

/// How long the leader's SyncGroup waits for those of its followers.
const SYNC_WAIT: Duration = Duration::from_secs(2);
/// What the mock is given to read the followers' first: they went up other connections.
const SYNC_LEAD: Duration = Duration::from_millis(5);

/// UNSUPPORTED_VERSION.
const UNSUPPORTED_VERSION: i16 = 35;

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
        self.went_up.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
