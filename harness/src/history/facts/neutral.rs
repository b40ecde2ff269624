//! Neutral members: readers of ours that read along in the group of the reader under test.
//!
//! They own partitions and take records, and count for that: as owners on the wire, and as part of the group to which a
//! record is delivered. What else they do is not judged, and what they break is the harness's own failure.

use brokerfall_report::history::{Event, FailureOf};
use brokerfall_report::protocol::ReaderEvent;

use super::{Facts, Moment, NEUTRAL};
use crate::link::PROBE;

impl Facts {
    /// Whether a client on the wire is not the reader under test: a neutral member, or the harness itself.
    pub(super) fn is_stranger(&self, client: &str) -> bool {
        client == PROBE || self.neutrals.contains(client)
    }

    /// What a neutral member says.
    pub(super) fn observe_neutral(&mut self, at: Moment, event: &ReaderEvent) {
        let ReaderEvent::Records { partitions } = event else {
            return;
        };
        let mut count = 0u64;
        for delivered in partitions {
            let partition = self.partition_mut(&delivered.topic, delivered.partition);
            count = count.saturating_add(partition.reads.delivered(at, NEUTRAL, delivered).records);
            self.refresh(&delivered.topic, delivered.partition, at);
            self.look_for_sentinels(&delivered.topic, delivered.partition, at);
        }
        self.delivered = self.delivered.saturating_add(count);
    }

    /// What becomes of a neutral member's process; true when the event is about one.
    pub(super) fn observe_neutral_process(&mut self, at: Moment, event: &Event) -> bool {
        let member = match event {
            Event::Spawned {
                member, neutral: true, ..
            } => {
                self.neutrals.insert(member.clone());
                return true;
            }
            Event::Spawned { member, .. }
            | Event::Asked { member, .. }
            | Event::ProtocolBroken { member, .. }
            | Event::ReaderBlocked { member, .. }
            | Event::ReaderUnblocked { member }
            | Event::Exited { member, .. }
            | Event::Sample { member, .. }
            | Event::Left { member, .. } => member,
            _ => return false,
        };
        if !self.neutrals.contains(member) {
            return false;
        }
        let failure = match event {
            Event::ProtocolBroken { text, .. } => {
                Some(format!("the neutral member {member} broke the protocol: {text}"))
            }
            Event::Exited {
                asked: false,
                stderr_tail,
                ..
            } => Some(format!("the neutral member {member} ended by itself: {stderr_tail}")),
            _ => None,
        };
        if let Some(text) = failure {
            self.troubles.failures.push((at.n, FailureOf::Harness, text));
        }
        true
    }
}
