//! The group as its coordinator told the oracle: who was a member when, and what was committed.

use brokerfall_report::history::{Event, GroupChange, GroupMember};

use super::thin::Together;
use super::{Commit, Facts, Moment};

/// A group at the moment at which its coordinator described it so for the first time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// When.
    pub at: Moment,
    /// The broker that told it.
    pub coordinator: i32,
    /// Its word for the group's state.
    pub state: String,
    /// The members.
    pub members: Vec<GroupMember>,
}

impl Described {
    /// As a sentence has it: `broker 1 told 0 members (Empty)`.
    pub fn text(&self) -> String {
        let plural = if self.members.len() == 1 { "" } else { "s" };
        format!(
            "broker {} told {} member{plural} ({})",
            self.coordinator,
            self.members.len(),
            self.state
        )
    }
}

/// All that coordinators told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Coordinated {
    /// In order.
    pub(super) described: Vec<Described>,
    /// In order.
    pub(super) commits: Vec<Commit>,
}

impl Coordinated {
    /// A client was seen to join by a member id, which a coordinator may have told of before its answer came.
    pub(super) fn joined(&mut self, client: &str, id: &str) {
        let members = self.described.iter_mut().flat_map(|told| &mut told.members);
        for member in members.filter(|member| member.member_id == id) {
            client.clone_into(&mut member.client);
        }
    }

    /// A later commit of more stands for the earlier one.
    pub(super) fn thin(&mut self, together: &Together<'_>) {
        together.by_key(
            &mut self.commits,
            |one| one.at,
            |commit| (commit.topic.clone(), commit.partition),
            |later, earlier| later.offset >= earlier.offset && together.may_soon(earlier.at, later.at),
        );
    }
}

impl Facts {
    /// The group as its coordinator described it, in order; nothing where no coordinator was asked.
    pub fn described(&self) -> &[Described] {
        &self.coordinated.described
    }

    /// What coordinators told of commits, in order. Each may have been made some time before it was told.
    pub fn told_commits(&self) -> &[Commit] {
        &self.coordinated.commits
    }

    /// Whether the group has committed all that a sentinel round ends with, by its coordinator's word; `None` where that tells
    /// of no commit at all, as of a reader that keeps its offsets elsewhere.
    pub fn has_committed_sentinel(&self, round: u32) -> Option<bool> {
        if self.told_commits().is_empty() {
            return None;
        }
        let sentinel = self.sentinel(round)?;
        Some(sentinel.records.iter().all(|(record, _)| {
            let mut commits = self.told_commits().iter().rev();
            commits
                .find(|commit| commit.topic == record.topic && commit.partition == record.partition)
                .is_some_and(|commit| commit.offset > record.offset)
        }))
    }

    /// The client that the link saw join by a member id.
    fn joined_as(&self, id: &str) -> Option<&str> {
        let joined = |change: &GroupChange| matches!(change, GroupChange::Joined { member_id, .. } if member_id == id);
        let mut standings = self.wire().standings.iter().rev();
        let found = standings.find(|standing| joined(&standing.change))?;
        Some(&found.client)
    }

    /// Whether a member that its coordinator still takes for one may be none any more: it owns something, was not heard of on
    /// the link for a session, and records wait. A coordinator that was away gives members a new session when it is back.
    pub fn may_expire(&self) -> bool {
        let Some(told) = self.described().last().filter(|_| self.lag() > 0) else {
            return false;
        };
        let heard = |client: &str| {
            let standings = self
                .wire()
                .standings
                .iter()
                .filter(|standing| standing.client == client);
            standings.map(|standing| standing.until.us).max()
        };
        let is_silent =
            |client: &str| heard(client).is_none_or(|us| us.saturating_add(self.session_us()) <= self.now().us);
        let mut owners = told.members.iter().filter(|member| !member.owns.is_empty());
        owners.any(|member| is_silent(&member.client))
    }

    pub(super) fn observe_coordinator(&mut self, at: Moment, event: &Event) {
        match event {
            Event::GroupDescribed {
                coordinator,
                state,
                members,
                ..
            } => {
                let mut members = members.clone();
                // Of a static member whose name another one took, Kafka goes on telling the client id of the one before.
                for member in &mut members {
                    if let Some(client) = self.joined_as(&member.member_id) {
                        member.client = client.to_owned();
                    }
                }
                self.coordinated.described.push(Described {
                    at,
                    coordinator: *coordinator,
                    state: state.clone(),
                    members,
                });
            }
            Event::CommitsTold { group, offsets } => {
                let commits = offsets.iter().map(|end| Commit {
                    at,
                    member: format!("group {group}"),
                    topic: end.topic.clone(),
                    partition: end.partition,
                    offset: end.offset,
                    on_wire: false,
                });
                self.coordinated.commits.extend(commits);
            }
            _ => {}
        }
    }
}
