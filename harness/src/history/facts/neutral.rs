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
            count = count.saturating_add(partition.delivered(at, NEUTRAL, delivered).records);
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
            | Event::Claim { member, .. }
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

#[cfg(test)]
mod tests {
    use brokerfall_report::history::{ConnectionChange, Event};
    use brokerfall_report::protocol::{Hello, Kind, ReaderEvent, STATE};

    use crate::invariant::support::*;

    fn neutral() -> Event {
        Event::Spawned {
            member: "n1".into(),
            pid: Some(2),
            command: Vec::new(),
            neutral: true,
        }
    }

    fn opened_by(client: &str) -> Event {
        Event::WireConnection {
            client: client.to_owned(),
            node: 1,
            change: ConnectionChange::Opened,
            count: 1,
        }
    }

    fn grown() -> Event {
        Event::PartitionsAdded {
            topic: TOPIC.into(),
            from: 1,
            to: 3,
        }
    }

    #[test]
    fn what_a_neutral_member_read_was_read_by_the_group_and_it_is_no_member_to_be_judged() {
        let facts = facts(&history! { plan(Kind::Group);
            0 => produced(1, 10), 1 => spawned("r1"), 2 => delivered(1, 5), 3 => neutral(),
            4 => member_says("n1", 1, records(&[(6, 10)])), 5 => opened_by("n1"), 6 => exited_by("n1", Some(0), None, true),
        });
        assert_eq!(facts.position(TOPIC, 0), Some(10));
        assert_eq!((facts.lag(), facts.delivered_total()), (0, 10));
        assert_eq!(facts.members().keys().collect::<Vec<_>>(), ["r1"]);
        assert_eq!(facts.connections_since(0, None, ConnectionChange::Opened), 0);
        assert!(facts.all_ended().is_none() && facts.troubles().failures.is_empty());
    }

    #[test]
    fn neutral_member_that_ends_by_itself_is_the_harness_failing() {
        let facts = facts(&history! { plan(Kind::Group);
            0 => spawned("r1"), 1 => neutral(), 2 => exited_by("n1", Some(3), None, false),
        });
        assert_eq!(facts.troubles().failures.len(), 1);
        assert!(facts.all_ended().is_none());
    }

    #[test]
    fn partitions_added_are_owed_by_a_group_at_once_and_by_assigned_readers_once_they_start_again() {
        let planned = |kind, again: &[Event]| {
            let mut entries = history! { plan(kind); 0 => spawned("r1"), 1 => asked(1, "start"), 2 => grown() };
            for event in again {
                let n = entries.len() as u64;
                entries.push(entry(n, n, event.clone()));
            }
            facts(&entries).planned_partitions().len()
        };
        assert_eq!(planned(Kind::Group, &[]), 3);
        assert_eq!(planned(Kind::Assign, &[]), 1);
        assert_eq!(
            planned(Kind::Assign, &[asked(2, "restart")]),
            1,
            "it is built with what it was told"
        );
        assert_eq!(planned(Kind::Assign, &[asked(2, "start")]), 3);
    }

    #[test]
    fn state_that_is_kept_carries_the_position_over_until_it_is_wiped() {
        let hello = |capabilities: &[&str]| {
            says(ReaderEvent::Hello(Hello {
                protocol: 1,
                library: "l 1".into(),
                client: "c 1".into(),
                runtime: "r 1".into(),
                kinds: vec![Kind::Assign],
                capabilities: capabilities.iter().map(|&it| it.to_owned()).collect(),
            }))
        };
        let wiped = || Event::StateWiped {
            member: "r1".into(),
            entries: 1,
        };
        let position = |capabilities: &[&str], between: Event| {
            let entries = history! { plan(Kind::Assign);
                0 => produced(1, 10), 1 => spawned("r1"), 2 => hello(capabilities), 3 => delivered(1, 8),
                4 => exited_by("r1", None, Some(9), true), 5 => between, 6 => spawned("r1"), 7 => hello(capabilities),
                8 => produced(11, 12),
            };
            facts(&entries).position(TOPIC, 0)
        };
        assert_eq!(position(&[STATE], asked(9, "commit")), Some(8));
        assert_eq!(position(&[STATE], wiped()), None);
        assert_eq!(position(&[], asked(9, "commit")), None);
    }
}
