//! For each invariant histories that hold and histories that violate, by subject.

mod bounds;
mod callbacks;
mod catches_up;
mod converges;
mod ends;
mod group_member;
mod leaving;
mod no_silent_death;
mod records;
mod recovers;
mod recreated;
mod status_honest;
mod told;
mod transactions;
mod truncated;

use brokerfall_report::exception::Origin;
use brokerfall_report::history::{ExpectedEnd, GroupChange, ProduceOutcome, Renewed, Stage};
use brokerfall_report::protocol::{Claims, Hello, Kind, ReaderEvent, Reset, STATE};
use brokerfall_report::runs::Runs;
use brokerfall_report::verdict::{FailureKind, Outcome};

use super::support::*;

const FIXED: brokerfall_report::history::Event = brokerfall_report::history::Event::Stage(Stage::Stopping);
const QUIET: brokerfall_report::history::Event = brokerfall_report::history::Event::Quiet;

fn kind_of(id: &str, entries: &[brokerfall_report::history::Entry]) -> Option<FailureKind> {
    match outcome_of(id, entries) {
        Outcome::Violated { kind, .. } => kind,
        other => panic!("{id}: {other:?}"),
    }
}
