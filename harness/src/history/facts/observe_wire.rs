//! The fold of what the link saw.

use std::collections::BTreeMap;

use brokerfall_report::history::{Event, GroupChange};

use super::thin::APART_US;
use super::{Answer, Commit, Connection, Excuse, Facts, Moment, Standing, Told, Window};

/// Error codes after which a position may go back: the log is not what the reader thought, or the group moves.
const EXCUSING_CODES: [&str; 7] = [
    "OFFSET_OUT_OF_RANGE",
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
    "UNKNOWN_MEMBER_ID",
    "ILLEGAL_GENERATION",
    "REBALANCE_IN_PROGRESS",
    "FENCED_MEMBER_EPOCH",
];

impl Facts {
    pub(super) fn observe_wire(&mut self, at: Moment, event: &Event) {
        match event {
            // Evidence, triggers and limits are about the reader under test.
            Event::Wire { client, .. } | Event::WireError { client, .. } | Event::WireConnection { client, .. }
                if self.is_stranger(client) => {}
            Event::Wire {
                client,
                span_us,
                requests,
                connects,
                fetch_offsets,
            } => {
                for fetched in fetch_offsets {
                    if !self.wire.fetched.contains_key(&fetched.topic) {
                        self.wire.fetched.insert(fetched.topic.clone(), BTreeMap::new());
                    }
                    if let Some(topic) = self.wire.fetched.get_mut(&fetched.topic) {
                        let highest = topic.entry(fetched.partition).or_default();
                        *highest = (*highest).max(fetched.offset);
                    }
                }
                let window = Window {
                    at,
                    client: self.wire.name(client),
                    span_us: *span_us,
                    requests: requests.iter().map(|(api, n)| (self.wire.name(api), *n)).collect(),
                    connects: *connects,
                };
                self.wire.windows.push(window);
            }
            Event::WireError {
                client,
                api,
                code,
                topic,
                partition,
                injected_by,
                count,
            } => {
                if EXCUSING_CODES.contains(&code.name.as_str()) {
                    self.excuses.push(Excuse {
                        at,
                        life: None,
                        client: Some(client.clone()),
                        partition: topic.clone().zip(*partition),
                        what: "an error code on the wire",
                    });
                }
                self.wire.answers.push(Answer {
                    at,
                    client: client.clone(),
                    api: api.clone(),
                    code: code.clone(),
                    topic: topic.clone(),
                    partition: *partition,
                    injected_by: injected_by.clone(),
                    count: *count,
                });
            }
            Event::WireConnection {
                client,
                node,
                change,
                count,
            } => self.wire.connections.push(Connection {
                at,
                client: client.clone(),
                node: *node,
                change: *change,
                count: *count,
            }),
            Event::WireTold { client, place, node } if !self.is_stranger(client) => self.wire.told.push(Told {
                at,
                client: client.clone(),
                place: place.clone(),
                node: *node,
            }),
            Event::WireGroup { client, change, .. } => {
                if let GroupChange::Joined { member_id, .. } = change {
                    self.coordinated.joined(client, member_id);
                }
                if !matches!(change, GroupChange::Alive { .. }) {
                    self.excuses.push(Excuse {
                        at,
                        life: None,
                        client: Some(client.clone()),
                        partition: None,
                        what: "a rebalance on the wire",
                    });
                }
                if matches!(change, GroupChange::Joined { .. } | GroupChange::Synced { .. })
                    && let Some(life) = self.last_life(client)
                    && let Some(life) = self.lives.get_mut(life)
                {
                    life.saw_loop_turn(at.us);
                }
                match self.wire.standings.last_mut() {
                    // Within a session's least length nobody can have taken it for gone in between.
                    Some(last)
                        if last.client == *client
                            && last.change == *change
                            && matches!(change, GroupChange::Alive { .. })
                            && at.us.saturating_sub(last.until.us) <= APART_US =>
                    {
                        last.until = at;
                    }
                    _ => self.wire.standings.push(Standing {
                        at,
                        until: at,
                        client: client.clone(),
                        change: change.clone(),
                    }),
                }
            }
            Event::WireCommit {
                client,
                topic,
                partition,
                offset,
                code,
                ..
            } if *code == 0 => {
                self.wire.commit(Commit {
                    at,
                    member: client.clone(),
                    topic: topic.clone(),
                    partition: *partition,
                    offset: *offset,
                    on_wire: true,
                });
            }
            _ => {}
        }
    }
}
