//! Invariants: pure functions of the facts of a history.
//!
//! One file each; the file's header is its definition. None does I/O or holds a clock, and each looks only at what
//! happened before the patient's verdict was fixed ([`Facts::end`]), except for the oracle's last scans, which tell what
//! the log held. [`ALL`] fixes their order, which is that of every report.

pub mod bounded_cpu;
pub mod bounded_memory;
pub mod bounded_requests;
pub mod callback_isolated;
pub mod catches_up;
pub mod commit_not_ahead;
pub mod converges;
pub mod exception_expected;
pub mod failure_typed;
pub mod gap_reported;
pub mod group_member;
pub mod in_order;
#[cfg(test)]
mod model;
pub mod no_lost_record;
pub mod no_phantom_record;
pub mod no_rewind;
pub mod no_silent_death;
mod owed;
mod progress;
pub mod recovers;
pub mod restart_cures;
pub mod status_honest;
pub mod stops_cleanly;
#[cfg(test)]
pub(crate) mod support;
#[cfg(test)]
mod tests;

use brokerfall_report::verdict::{Behind, FailureKind, Outcome};

use crate::history::facts::Facts;
pub(crate) use progress::ends as patients_ended;

/// An invariant.
#[derive(Debug, Clone, Copy)]
pub struct Invariant {
    /// Its id, as users write and read it.
    pub id: &'static str,
    /// Judges a history.
    pub judge: fn(&Facts) -> Outcome,
    /// It tells whether the reader came back: one of these must be decided, or the run proves nothing.
    pub is_progress: bool,
    /// Its violation needs no fault to be wrong, so that it stands in a void run.
    pub is_safety: bool,
    /// It explains and never fails.
    pub is_diagnosis: bool,
}

const PLAIN: Invariant = Invariant {
    id: "",
    judge: |_| undecided("not an invariant"),
    is_progress: false,
    is_safety: false,
    is_diagnosis: false,
};

/// Every invariant, in the order of reports.
pub const ALL: [Invariant; 20] = [
    Invariant {
        id: "recovers",
        judge: recovers::judge,
        is_progress: true,
        ..PLAIN
    },
    Invariant {
        id: "catches_up",
        judge: catches_up::judge,
        is_progress: true,
        ..PLAIN
    },
    Invariant {
        id: "converges",
        judge: converges::judge,
        ..PLAIN
    },
    Invariant {
        id: "no_lost_record",
        judge: no_lost_record::judge,
        is_safety: true,
        ..PLAIN
    },
    Invariant {
        id: "no_phantom_record",
        judge: no_phantom_record::judge,
        is_safety: true,
        ..PLAIN
    },
    Invariant {
        id: "in_order",
        judge: in_order::judge,
        is_safety: true,
        ..PLAIN
    },
    Invariant {
        id: "no_rewind",
        judge: no_rewind::judge,
        ..PLAIN
    },
    Invariant {
        id: "no_silent_death",
        judge: no_silent_death::judge,
        is_progress: true,
        ..PLAIN
    },
    Invariant {
        id: "status_honest",
        judge: status_honest::judge,
        ..PLAIN
    },
    Invariant {
        id: "callback_isolated",
        judge: callback_isolated::judge,
        ..PLAIN
    },
    Invariant {
        id: "failure_typed",
        judge: failure_typed::judge,
        ..PLAIN
    },
    Invariant {
        id: "group_member",
        judge: group_member::judge,
        ..PLAIN
    },
    Invariant {
        id: "commit_not_ahead",
        judge: commit_not_ahead::judge,
        is_safety: true,
        ..PLAIN
    },
    Invariant {
        id: "stops_cleanly",
        judge: stops_cleanly::judge,
        ..PLAIN
    },
    Invariant {
        id: "bounded_cpu",
        judge: bounded_cpu::judge,
        ..PLAIN
    },
    Invariant {
        id: "bounded_requests",
        judge: bounded_requests::judge,
        ..PLAIN
    },
    Invariant {
        id: "bounded_memory",
        judge: bounded_memory::judge,
        ..PLAIN
    },
    Invariant {
        id: "exception_expected",
        judge: exception_expected::judge,
        ..PLAIN
    },
    Invariant {
        id: "gap_reported",
        judge: gap_reported::judge,
        ..PLAIN
    },
    Invariant {
        id: "restart_cures",
        judge: restart_cures::judge,
        is_diagnosis: true,
        ..PLAIN
    },
];

/// The invariant of this id.
pub fn by_id(id: &str) -> Option<&'static Invariant> {
    ALL.iter().find(|invariant| invariant.id == id)
}

fn held(text: impl Into<String>) -> Outcome {
    Outcome::Held { text: text.into() }
}

fn undecided(why: impl Into<String>) -> Outcome {
    Outcome::Undecided { why: why.into() }
}

fn not_applicable(missing: impl Into<String>) -> Outcome {
    Outcome::NotApplicable {
        missing: missing.into(),
    }
}

/// A violation without a kind of its own ([`of_kind`] gives it one).
fn violated(mut events: Vec<u64>, text: impl Into<String>) -> Outcome {
    events.sort_unstable();
    events.dedup();
    Outcome::Violated {
        events,
        text: text.into(),
        kind: None,
        behind: None,
    }
}

/// The violation with its kind and how far behind the reader was.
fn of_kind(outcome: Outcome, of: FailureKind, how_far: Option<Behind>) -> Outcome {
    match outcome {
        Outcome::Violated { events, text, .. } => Outcome::Violated {
            events,
            text,
            kind: Some(of),
            behind: how_far,
        },
        other => other,
    }
}

/// Microseconds as seconds for a sentence.
fn seconds(us: u64) -> String {
    format!("{:.1} s", us as f64 / 1e6)
}

/// Runs of numbers for a sentence: the first three, then how many more.
fn runs_text(runs: &[(u64, u64)]) -> String {
    let shown: Vec<String> = runs
        .iter()
        .take(3)
        .map(|&(a, b)| if a == b { a.to_string() } else { format!("{a}..={b}") })
        .collect();
    let mut text = shown.join(", ");
    if runs.len() > 3 {
        text.push_str(&format!(" and {} more runs", runs.len() - 3));
    }
    text
}
