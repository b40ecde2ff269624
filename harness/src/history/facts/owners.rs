//! Who owned which partition of the group, as its coordinator told; as the wire told where no coordinator was asked.

use std::collections::BTreeMap;

use brokerfall_report::history::GroupChange;
use brokerfall_report::protocol::{Kind, TopicPartition};

use super::{Facts, Moment};

/// Session timeout of libraries that are given none, microseconds.
const SESSION_US: u64 = 45_000_000;

/// A time in which one client owned a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owned {
    /// `client.id`.
    pub client: String,
    /// The event that gave it the partition.
    pub event: u64,
    /// From, microseconds.
    pub from_us: u64,
    /// To, microseconds.
    pub to_us: u64,
}

struct Now<'a> {
    owns: &'a [TopicPartition],
    event: u64,
    from_us: u64,
    heard_us: u64,
}

impl Facts {
    /// The group's session timeout, microseconds.
    pub fn session_us(&self) -> u64 {
        self.opened()
            .and_then(|opened| opened.session_ms)
            .map_or(SESSION_US, |ms| ms.saturating_mul(1000))
    }

    /// Who owned each partition when, before `until`.
    pub fn owners(&self, until: Moment) -> BTreeMap<(&str, u32), Vec<Owned>> {
        match self.described().first() {
            Some(first) if first.at.n < until.n => self.owners_told(until),
            _ => self.owners_seen(until),
        }
    }

    /// By its coordinator's word: from when it first told that a member owns it to when it first told otherwise.
    fn owners_told(&self, until: Moment) -> BTreeMap<(&str, u32), Vec<Owned>> {
        let mut owners: BTreeMap<(&str, u32), Vec<Owned>> = BTreeMap::new();
        // The events in which each member, by the id that the coordinator gave it, was last told to own something.
        let mut described = self.described().iter().filter(|told| told.at.n < until.n).peekable();
        let mut open: BTreeMap<(&str, &str, u32), (u64, u64)> = BTreeMap::new();
        while let Some(told) = described.next() {
            let to_us = described.peek().map_or(until.us, |next| next.at.us);
            let mut still = BTreeMap::new();
            for member in &told.members {
                for owned in &member.owns {
                    let place = (owned.topic.as_str(), owned.partition);
                    let key = (member.member_id.as_str(), place.0, place.1);
                    let (event, from_us) = open.get(&key).copied().unwrap_or((told.at.n, told.at.us));
                    still.insert(key, (event, from_us));
                    let all = owners.entry(place).or_default();
                    match all
                        .iter_mut()
                        .find(|one| one.event == event && one.client == member.client)
                    {
                        Some(one) => one.to_us = to_us,
                        None => all.push(Owned {
                            client: member.client.clone(),
                            event,
                            from_us,
                            to_us,
                        }),
                    }
                }
            }
            open = still;
        }
        owners
    }

    /// By the link's: from a member's SyncGroup until it leaves, joins anew or is not heard of for a session.
    fn owners_seen(&self, until: Moment) -> BTreeMap<(&str, u32), Vec<Owned>> {
        let session_us = self.session_us();
        let mut now: BTreeMap<&str, Now<'_>> = BTreeMap::new();
        let mut owners: BTreeMap<(&str, u32), Vec<Owned>> = BTreeMap::new();
        for standing in self.wire().standings.iter().filter(|standing| standing.at.n < until.n) {
            let client = standing.client.as_str();
            match &standing.change {
                GroupChange::Alive { .. } => {
                    if let Some(owned) = now.get_mut(client) {
                        owned.heard_us = standing.until.us.min(until.us);
                    }
                }
                GroupChange::Joined { .. } | GroupChange::Gone { .. } => {
                    if let Some(owned) = now.remove(client) {
                        close(&mut owners, client, &owned, standing.at.us, session_us);
                    }
                }
                GroupChange::Synced { owns, .. } => {
                    let next = Now {
                        owns,
                        event: standing.at.n,
                        from_us: standing.at.us,
                        heard_us: standing.at.us,
                    };
                    if let Some(owned) = now.insert(client, next) {
                        close(&mut owners, client, &owned, standing.at.us, session_us);
                    }
                }
            }
        }
        for (client, owned) in now {
            close(&mut owners, client, &owned, until.us, session_us);
        }
        owners
    }

    /// Partitions of the plan that no member of the group owns now; none for kinds without a group, and none before
    /// anything showed a group at all.
    pub fn unowned(&self) -> Vec<(String, u32)> {
        let is_shown = !self.wire().standings.is_empty() || !self.described().is_empty();
        if self.kind() != Kind::Group || !is_shown {
            return Vec::new();
        }
        let now = Moment {
            n: self.now().n.saturating_add(1),
            us: self.now().us,
        };
        let owners = self.owners(now);
        self.planned_partitions()
            .into_iter()
            .filter(|place| {
                !owners
                    .get(place)
                    .is_some_and(|owned| owned.iter().any(|o| o.to_us >= now.us))
            })
            .map(|(topic, partition)| (topic.to_owned(), partition))
            .collect()
    }
}

fn close<'a>(
    owners: &mut BTreeMap<(&'a str, u32), Vec<Owned>>,
    client: &str,
    owned: &Now<'a>,
    us: u64,
    session_us: u64,
) {
    for partition in owned.owns {
        owners
            .entry((partition.topic.as_str(), partition.partition))
            .or_default()
            .push(Owned {
                client: client.to_owned(),
                event: owned.event,
                from_us: owned.from_us,
                to_us: us.min(owned.heard_us.saturating_add(session_us)),
            });
    }
}
