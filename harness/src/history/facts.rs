//! Facts: the fold of a history, built one entry at a time.
//!
//! The run loop asks it while the run goes on (`Recorder::wait_until`), and the invariants judge it when it is over: the
//! same fold, so that what a run waited for and what it is judged by cannot differ. No I/O, no clock.

use brokerfall_report::history::Entry;

/// What a history says so far.
#[derive(Debug, Default)]
pub struct Facts {}

impl Facts {
    /// Takes in one entry.
    pub fn observe(&mut self, _entry: &Entry) {}
}
