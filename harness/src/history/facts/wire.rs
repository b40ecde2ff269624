//! What the link saw, over time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use brokerfall_report::exception::Code;
use brokerfall_report::history::{ConnectionChange, GroupChange, Place};

use super::thin::{APART_US, Together};
use super::{Facts, Moment};

/// Traffic of one client in one window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// The end of the window.
    pub at: Moment,
    /// `client.id`.
    pub client: Arc<str>,
    /// Its length, microseconds.
    pub span_us: u64,
    /// Requests by api.
    pub requests: Vec<(Arc<str>, u64)>,
    /// Connections opened.
    pub connects: u64,
}

impl Window {
    /// All requests.
    pub fn total(&self) -> u64 {
        self.requests.iter().fold(0, |sum, (_, n)| sum.saturating_add(*n))
    }
}

/// An error code on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// When.
    pub at: Moment,
    /// `client.id`.
    pub client: String,
    /// Api.
    pub api: String,
    /// Code.
    pub code: Code,
    /// Topic, where it is one topic's.
    pub topic: Option<String>,
    /// Partition, where it is one partition's.
    pub partition: Option<u32>,
    /// The fault that put it there.
    pub injected_by: Option<String>,
    /// How many.
    pub count: u64,
}

/// A group member's standing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// When.
    pub at: Moment,
    /// When it was last repeated: signs of life of one member, one after the other, are told once.
    pub until: Moment,
    /// `client.id`.
    pub client: String,
    /// What happened.
    pub change: GroupChange,
}

/// A commit: acknowledged on the wire, or reported by the reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// When.
    pub at: Moment,
    /// Member.
    pub member: String,
    /// Topic.
    pub topic: String,
    /// Partition.
    pub partition: u32,
    /// Next offset to read.
    pub offset: u64,
    /// The link saw it; else the reader said so.
    pub on_wire: bool,
}

/// Changes of connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// When.
    pub at: Moment,
    /// `client.id`; empty until a request told it.
    pub client: String,
    /// Broker.
    pub node: i32,
    /// What.
    pub change: ConnectionChange,
    /// How many.
    pub count: u64,
}

/// A client was told who leads or coordinates, where that was news to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// When.
    pub at: Moment,
    /// `client.id`.
    pub client: String,
    /// Of what.
    pub place: Place,
    /// The broker; -1 for none.
    pub node: i32,
}

/// Everything that the link saw.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wire {
    /// Traffic windows in order.
    pub windows: Vec<Window>,
    /// Error codes in order.
    pub answers: Vec<Answer>,
    /// Connections in order.
    pub connections: Vec<Connection>,
    /// Group standings in order.
    pub standings: Vec<Standing>,
    /// Commits in order.
    pub commits: Vec<Commit>,
    /// Commits that were acknowledged or reported, those that later ones stand for included.
    pub committed: u64,
    /// Who was told where to go, in order.
    pub told: Vec<Told>,
    /// Highest fetch offset per topic and partition.
    pub fetched: BTreeMap<String, BTreeMap<u32, u64>>,
    /// Names of apis and clients, each held once.
    names: BTreeSet<Arc<str>>,
}

impl Wire {
    /// The one copy of a name.
    pub(super) fn name(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return known.clone();
        }
        let new: Arc<str> = name.into();
        self.names.insert(new.clone());
        new
    }

    pub(super) fn commit(&mut self, commit: Commit) {
        self.committed = self.committed.saturating_add(1);
        self.commits.push(commit);
    }

    pub(super) fn thin(&mut self, together: &Together<'_>) {
        together.by_key(
            &mut self.windows,
            |one| one.at,
            |window| window.client.clone(),
            |later, earlier| {
                let joins = together.may_soon(earlier.at, later.at) && earlier.span_us <= APART_US;
                if joins {
                    later.span_us = later.span_us.saturating_add(earlier.span_us);
                    later.connects = later.connects.saturating_add(earlier.connects);
                    for (api, n) in &earlier.requests {
                        match later.requests.iter_mut().find(|(known, _)| known == api) {
                            Some((_, sum)) => *sum = sum.saturating_add(*n),
                            None => later.requests.push((api.clone(), *n)),
                        }
                    }
                }
                joins
            },
        );
        together.neighbours(
            &mut self.connections,
            |one| one.at,
            |earlier, later| {
                let same =
                    earlier.client == later.client && earlier.node == later.node && earlier.change == later.change;
                let joins = same && together.may_soon(earlier.at, later.at);
                if joins {
                    earlier.count = earlier.count.saturating_add(later.count);
                }
                joins
            },
        );
        // A later commit of more stands for the earlier one.
        together.by_key(
            &mut self.commits,
            |one| one.at,
            |commit| {
                (
                    commit.member.clone(),
                    commit.topic.clone(),
                    commit.partition,
                    commit.on_wire,
                )
            },
            |later, earlier| later.offset >= earlier.offset && together.may_soon(earlier.at, later.at),
        );
    }
}

impl Facts {
    /// Requests that the link saw from event `mark` on: of one api, or of all.
    pub fn wire_requests_since(&self, mark: u64, api: Option<&str>) -> u64 {
        let from = self.wire.windows.partition_point(|window| window.at.n < mark);
        self.wire
            .windows
            .iter()
            .skip(from)
            .flat_map(|window| &window.requests)
            .filter(|(name, _)| api.is_none_or(|api| *api == **name))
            .fold(0, |sum, (_, n)| sum.saturating_add(*n))
    }

    /// Error codes that a broker itself answered on the link from event `mark` on, for one api, code (its name) and
    /// partition; what a rule of the link put there does not count.
    pub fn broker_errors_since(&self, mark: u64, api: &str, code: &str, topic: &str, partition: u32) -> u64 {
        self.wire
            .answers
            .iter()
            .filter(|answer| answer.at.n >= mark && answer.injected_by.is_none())
            .filter(|answer| answer.api == api && answer.code.name == code)
            .filter(|answer| answer.topic.as_deref() == Some(topic) && answer.partition == Some(partition))
            .fold(0, |sum, answer| sum.saturating_add(answer.count))
    }

    /// Answers of any api from event `mark` on in which a broker said with this code that it is not the one to ask: about
    /// a partition, or (for `place` `None`) about anything.
    pub fn turned_away_since(&self, mark: u64, code: &str, place: Option<(&str, u32)>) -> u64 {
        self.wire
            .answers
            .iter()
            .filter(|answer| answer.at.n >= mark && answer.injected_by.is_none() && answer.code.name == code)
            .filter(|answer| {
                place.is_none_or(|(topic, partition)| {
                    answer.topic.as_deref() == Some(topic) && answer.partition == Some(partition)
                })
            })
            .fold(0, |sum, answer| sum.saturating_add(answer.count))
    }

    /// Answers of any api from event `mark` on in which a broker refused the reader something with this code: about a topic,
    /// or (for `topic` `None`) about anything.
    pub fn refused_since(&self, mark: u64, code: &str, topic: Option<&str>) -> u64 {
        self.wire
            .answers
            .iter()
            .filter(|answer| answer.at.n >= mark && answer.injected_by.is_none() && answer.code.name == code)
            .filter(|answer| topic.is_none() || answer.topic.as_deref() == topic)
            .fold(0, |sum, answer| sum.saturating_add(answer.count))
    }

    /// The first time from event `mark` on that a client of the reader was told of another broker than `from` in charge.
    pub fn told_since(&self, mark: u64, place: &Place, from: i32) -> Option<&Told> {
        let told = self.wire.told.iter();
        told.filter(|told| told.at.n >= mark && told.node > 0 && told.node != from)
            .find(|told| told.place == *place)
    }

    /// Answers that a fault's rule put on the wire.
    pub fn injected_answers(&self, fault: &str) -> u64 {
        self.wire
            .answers
            .iter()
            .filter(|answer| answer.injected_by.as_deref() == Some(fault))
            .fold(0, |sum, answer| sum.saturating_add(answer.count))
    }

    /// Changes of connections from event `mark` on: of one broker, or of all.
    pub fn connections_since(&self, mark: u64, node: Option<i32>, change: ConnectionChange) -> u64 {
        self.wire
            .connections
            .iter()
            .filter(|c| c.at.n >= mark && c.change == change && node.is_none_or(|node| node == c.node))
            .fold(0, |sum, c| sum.saturating_add(c.count))
    }

    /// Connections to a node (without one: to any) that its broker closed, or the link for it, at and after an event.
    pub fn closed_since(&self, mark: u64, node: Option<i32>) -> u64 {
        let of = |change| self.connections_since(mark, node, change);
        of(ConnectionChange::ClosedByBroker).saturating_add(of(ConnectionChange::ResetByLink))
    }

    /// Commits, in order.
    pub fn commits(&self) -> &[Commit] {
        &self.wire.commits
    }
}
