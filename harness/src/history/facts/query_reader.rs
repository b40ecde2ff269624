//! What is asked of the facts about readers: members, lives, what they said and did.

use std::collections::BTreeMap;

use brokerfall_report::protocol::{CallbackCall, Hello, Kind, RECORDS_IDS, RECORDS_OFFSETS, STATE};

use crate::reader::validate::holds;

use super::{Asked, Ended, Excuse, Facts, Life, Member, Moment, ResetTold, Snapshot};

impl Facts {
    /// Members by name.
    pub fn members(&self) -> &BTreeMap<String, Member> {
        &self.members
    }

    /// Every life of every member, in the order of their beginning.
    pub fn lives(&self) -> &[Life] {
        &self.lives
    }

    pub(super) fn last_life(&self, member: &str) -> Option<usize> {
        self.members.get(member)?.lives.last().copied()
    }

    pub(super) fn last_life_mut(&mut self, member: &str) -> Option<&mut Life> {
        let index = self.last_life(member)?;
        self.lives.get_mut(index)
    }

    /// The life that a member leads now.
    pub fn life(&self, member: &str) -> Option<&Life> {
        self.lives.get(self.last_life(member)?)
    }

    /// The lives that are judged: of each member the one that runs when the log becomes quiet (or when the verdict is
    /// fixed), without those that were asked to leave before.
    pub fn patients(&self) -> Vec<usize> {
        let end = self.quiet.map_or(self.end(), |quiet| quiet.min(self.end()));
        self.members
            .values()
            .filter_map(|member| {
                let life = member
                    .lives
                    .iter()
                    .rev()
                    .copied()
                    .find(|&life| self.lives.get(life).is_some_and(|life| life.born.n < end.n))?;
                let facts = self.lives.get(life)?;
                let left = facts.asked_to_stop.is_some_and(|at| at.n < end.n)
                    || facts.exit.as_ref().is_some_and(|exit| exit.asked && exit.at.n < end.n);
                (!left).then_some(life)
            })
            .collect()
    }

    /// What a member's adapter said of itself.
    pub fn hello(&self, member: &str) -> Option<&Hello> {
        self.members.get(member)?.hello.as_ref()
    }

    /// Whether a member's adapter has an optional event or command.
    pub fn has_capability(&self, member: &str, name: &str) -> bool {
        self.hello(member)
            .is_some_and(|hello| holds(hello.capabilities.iter().map(String::as_str), name))
    }

    /// Whether a life of a member goes on where its earlier ones were: its adapter keeps state, and that was not wiped
    /// before the life.
    pub(crate) fn goes_on(&self, member: &str, life: usize) -> bool {
        let wiped = self.members.get(member).map_or(0, |member| member.wiped);
        self.has_capability(member, STATE) && life > wiped
    }

    /// Whether the reader tells tombstones as records: a table without offsets knows only their keys.
    pub fn tells_tombstones(&self) -> bool {
        self.kind() != Kind::Table
            || self.lives.iter().any(|life| life.tells_offsets)
            || self
                .members
                .keys()
                .any(|member| self.has_capability(member, RECORDS_OFFSETS))
    }

    /// Whether positions in heartbeats count: only where nothing better is told, or where the reader may skip.
    pub(super) fn trusts_told(&self, life: usize) -> bool {
        let Some(life) = self.lives.get(life) else { return false };
        let better = life.tells_offsets
            || life.tells_ids
            || self.has_capability(&life.member, RECORDS_OFFSETS)
            || self.has_capability(&life.member, RECORDS_IDS);
        !better
            || self
                .opened()
                .is_some_and(|opened| opened.reader.declares.skips_on_reset)
    }

    /// How the life that a member leads ended by itself; `None` while it goes on or when it was asked to end.
    pub fn ended(&self, member: &str) -> Option<Ended<'_>> {
        self.life_ended(self.last_life(member)?, self.now.us)
    }

    /// How a life ended by itself, as known at a time.
    pub fn life_ended(&self, life: usize, now_us: u64) -> Option<Ended<'_>> {
        let calm_us = self
            .faults
            .calm_since(now_us)
            .map_or(0, |since| now_us.saturating_sub(since));
        self.lives.get(life)?.ended(calm_us, now_us, self.within_us())
    }

    /// The last end, once every member that was not asked to leave has ended by itself.
    pub fn all_ended(&self) -> Option<Ended<'_>> {
        let mut last: Option<Ended<'_>> = None;
        for index in self.members.values().filter_map(|member| member.lives.last().copied()) {
            let Some(life) = self.lives.get(index) else { continue };
            if life.asked_to_stop.is_some() || life.exit.as_ref().is_some_and(|exit| exit.asked) {
                continue;
            }
            let ended = self.life_ended(index, self.now.us)?;
            if last.as_ref().is_none_or(|last| last.at_us <= ended.at_us) {
                last = Some(ended);
            }
        }
        last
    }

    /// Commands sent, with their answers.
    pub fn asked(&self) -> &[Asked] {
        &self.asked
    }

    /// Snapshots: the newest complete one and what came after it.
    pub fn snapshots(&self) -> &[Snapshot] {
        &self.snapshots
    }

    /// What lets positions go back.
    pub fn excuses(&self) -> &[Excuse] {
        &self.excuses
    }

    /// Calls of armed callbacks: when, which life, which call, and whether it raised (else: was entered).
    pub fn struck(&self) -> &[(Moment, usize, CallbackCall, bool)] {
        &self.struck
    }

    /// Armed callbacks entered from event `mark` on.
    pub fn callbacks_entered_since(&self, mark: u64) -> u64 {
        let entered = self.struck.iter().filter(|(at, _, _, raised)| at.n >= mark && !raised);
        entered.count() as u64
    }

    /// Error events: when, which life, where they surfaced, how many.
    pub fn errors(&self) -> &[(Moment, usize, brokerfall_report::exception::Origin, u64)] {
        &self.errors
    }

    /// Resets reported from event `mark` on.
    pub fn resets_since(&self, mark: u64) -> u64 {
        self.resets.iter().filter(|reset| reset.at.n >= mark).count() as u64
    }

    /// Resets reported.
    pub fn resets(&self) -> &[ResetTold] {
        &self.resets
    }
}
