//! Transactions: what a reader that reads committed records only is not given, and when.
//!
//! Their records stand in the log like all others. To such a reader the log ends where the first transaction begins that has
//! not ended (the last stable offset), and records whose transaction was aborted are not there at all.

use brokerfall_report::history::TransactionState;
use brokerfall_report::protocol::Isolation;
use brokerfall_report::runs::Runs;

use super::runset::RunSet;
use super::{Facts, Log, Moment};

/// Records of one partition that were written in one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    /// Their ids.
    pub ids: RunSet,
    /// Before the first of them was written.
    pub begun: Moment,
    /// Before it was committed; absent while it was not.
    pub committing: Option<Moment>,
    /// Once its marker was seen in the log.
    pub ended: Option<Moment>,
}

impl Transaction {
    /// Whether it was open at a time.
    fn is_open(&self, us: u64) -> bool {
        self.begun.us <= us && self.ended.is_none_or(|ended| ended.us > us)
    }

    /// Whether its records are never given to a reader that reads committed records only, by what is known now.
    fn is_lost(&self) -> bool {
        self.committing.is_none() || self.ended.is_none()
    }
}

impl Log {
    pub(super) fn transaction(&mut self, at: Moment, ids: &Runs, state: TransactionState) {
        let first = ids.as_slice().first().map(|[first, _]| *first);
        if state == TransactionState::Begun {
            let mut all = RunSet::default();
            for &[first, last] in ids.as_slice() {
                all.insert(first, last);
            }
            self.transactions.push(Transaction {
                ids: all,
                begun: at,
                committing: None,
                ended: None,
            });
            return;
        }
        let known = self.transactions.iter_mut();
        let Some(known) = known.rev().find(|known| known.ids.first() == first) else {
            return;
        };
        match state {
            TransactionState::Begun => {}
            TransactionState::Committing => known.committing = Some(at),
            TransactionState::Committed | TransactionState::Aborted => known.ended = Some(at),
        }
    }

    /// Transactions, in the order in which they began.
    pub fn transactions(&self) -> &[Transaction] {
        &self.transactions
    }

    /// The last stable offset at a time, at most `end`.
    fn stable_end(&self, end: u64, us: u64) -> u64 {
        let open = self.transactions.iter().filter(|one| one.is_open(us));
        let begins = open.filter_map(|one| one.ids.first().and_then(|id| self.offset_of(id)));
        begins.fold(end, u64::min)
    }
}

impl Facts {
    /// Whether the reader was told to read committed records only.
    fn reads_committed(&self) -> bool {
        self.opened()
            .is_some_and(|opened| opened.isolation == Isolation::ReadCommitted)
    }

    /// Where a log that ends at `end` ends for the reader, as it was at a time: below what an open transaction holds back.
    pub(crate) fn visible(&self, log: &Log, end: u64, us: u64) -> u64 {
        match self.reads_committed() {
            true => log.stable_end(end, us),
            false => end,
        }
    }

    /// Where the log ended for the reader at a time; 0 before anything is known of it.
    pub(crate) fn visible_at(&self, log: &Log, us: u64) -> u64 {
        let end = log.at_us(us).map_or(0, |bounds| bounds.end);
        self.visible(log, end, us)
    }

    /// Ids in the log that are not there for the reader: of transactions that were aborted, or have not ended.
    pub(crate) fn hidden(&self, log: &Log) -> RunSet {
        let mut hidden = RunSet::default();
        if self.reads_committed() {
            for one in log.transactions.iter().filter(|one| one.is_lost()) {
                for (first, last) in one.ids.runs() {
                    hidden.insert(first, last);
                }
            }
        }
        hidden
    }

    /// The first record that was given to the reader before its transaction was committed, with the event that told.
    pub(crate) fn given_uncommitted(&self, log: &Log, first: u64, last: u64, n: u64) -> Option<u64> {
        if !self.reads_committed() {
            return None;
        }
        log.transactions
            .iter()
            .filter(|one| one.committing.is_none_or(|committing| n < committing.n))
            .find_map(|one| one.ids.within(first, last).first().map(|(id, _)| *id))
    }
}
