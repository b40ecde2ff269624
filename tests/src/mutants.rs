//! Mutant readers: each is a reference reader that does one thing wrong, so that one invariant must catch it.
//!
//! `tests/data/mutants.toml` says in which scenario each is run and which invariants it must violate there. Mutants that
//! need a fault to show themselves wait for the first error that their client reports, and are correct until then.

use std::net::TcpStream;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use brokerfall::reader::bundled::hooks::{Hooks, Record, Turn};
use brokerfall::reader::bundled::policy::Policy;
use brokerfall::reader::bundled::{main as bundled, speak};
use brokerfall::reader::sdk::Sdk;
use brokerfall_report::protocol::{Heartbeat, Kind};

/// What a mutant does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    /// Ends, with the exception, at the first error that it could have waited out.
    EndsAtFirstError,
    /// Hands out each record only when the next one comes, until it has once waited for one.
    HoldsBackTheLastRecord,
    /// Does not apply tombstones.
    KeepsDeletedKeys,
    /// Leaves one record out after an error.
    SkipsARecord,
    /// Hands out a record that was never written.
    InventsARecord,
    /// Hands two records out in the wrong order.
    SwapsTwoRecords,
    /// Goes back 50 records, says nothing and hides what it reads again.
    SeeksBackSilently,
    /// Its reading loop ends after an error, without a word.
    DiesSilently,
    /// The same, and it calls itself healthy for ever.
    DiesHealthy,
    /// Claims that it has caught up from its first heartbeat on.
    ClaimsCaughtUpEarly,
    /// Answers every barrier with "reached" at once.
    LiesAboutBarriers,
    /// Counts two failures of a callback for one.
    MiscountsCallbackErrors,
    /// Ends after an error and says so, without an exception.
    EndsUntyped,
    /// Its process ends with status 0 after an error.
    ExitsWithZero,
    /// Leaves its group after an error and goes on by hand.
    LeavesItsGroup,
    /// Commits far beyond what it has processed.
    CommitsAhead,
    /// Never returns from stop.
    HangsInStop,
    /// Starts a process that outlives it.
    LeavesAGrandchild,
    /// Burns a core from an error to the next record.
    SpinsWhileCutOff,
    /// Connects 400 times a second from an error to the next record.
    StormsWhileCutOff,
}

/// Name, kind and misdeed of every mutant.
pub const MUTANTS: [(&str, Kind, Wrong); 20] = [
    ("ends-at-first-error", Kind::Assign, Wrong::EndsAtFirstError),
    (
        "holds-back-the-last-record",
        Kind::Assign,
        Wrong::HoldsBackTheLastRecord,
    ),
    ("keeps-deleted-keys", Kind::Table, Wrong::KeepsDeletedKeys),
    ("skips-a-record", Kind::Assign, Wrong::SkipsARecord),
    ("invents-a-record", Kind::Assign, Wrong::InventsARecord),
    ("swaps-two-records", Kind::Assign, Wrong::SwapsTwoRecords),
    ("seeks-back-silently", Kind::Assign, Wrong::SeeksBackSilently),
    ("dies-silently", Kind::Assign, Wrong::DiesSilently),
    ("dies-healthy", Kind::Assign, Wrong::DiesHealthy),
    ("claims-caught-up-early", Kind::Table, Wrong::ClaimsCaughtUpEarly),
    ("lies-about-barriers", Kind::Table, Wrong::LiesAboutBarriers),
    ("miscounts-callback-errors", Kind::Table, Wrong::MiscountsCallbackErrors),
    ("ends-untyped", Kind::Assign, Wrong::EndsUntyped),
    ("exits-with-zero", Kind::Assign, Wrong::ExitsWithZero),
    ("leaves-its-group", Kind::Group, Wrong::LeavesItsGroup),
    ("commits-ahead", Kind::Group, Wrong::CommitsAhead),
    ("hangs-in-stop", Kind::Assign, Wrong::HangsInStop),
    ("leaves-a-grandchild", Kind::Assign, Wrong::LeavesAGrandchild),
    ("spins-while-cut-off", Kind::Assign, Wrong::SpinsWhileCutOff),
    ("storms-while-cut-off", Kind::Assign, Wrong::StormsWhileCutOff),
];

/// How many records a silent seek goes back.
const BACK: u64 = 50;
/// The record, counted from the first, at which mutants of the record stream strike.
const STRIKE_AT: u64 = 10;
/// Heartbeats of 250 ms after which records that come are taken for live ones.
const SETTLED: u64 = 4;
/// How far ahead of its position a mutant commits.
const AHEAD: u64 = 1_000;

/// Runs the mutant of this name, or the bundled reader of this name, as an adapter on stdin and stdout.
pub fn main(name: &str) -> ExitCode {
    match MUTANTS.iter().find(|(mutant, _, _)| *mutant == name) {
        Some((name, kind, wrong)) => speak(name, *kind, Policy::REFERENCE, Arc::new(Mutant::new(*wrong))),
        None => bundled(name),
    }
}

struct Mutant {
    wrong: Wrong,
    /// Set by an error; taken back by the next record where the misdeed lasts no longer than the outage.
    erred: Arc<AtomicBool>,
    /// The one-time misdeed was done.
    done: AtomicBool,
    records: AtomicU64,
    /// Heartbeats so far.
    beats: AtomicU64,
    /// Heartbeats since the last record.
    quiet: AtomicU64,
    held: Mutex<Option<Record>>,
    /// Offset up to which a silent seek hides what is read again.
    seen: AtomicU64,
    /// Heartbeats that still show the position of a silent seek.
    rewound: AtomicU64,
    bootstrap: Mutex<String>,
}

impl Mutant {
    fn new(wrong: Wrong) -> Self {
        Self {
            wrong,
            erred: Arc::default(),
            done: AtomicBool::new(false),
            records: AtomicU64::new(0),
            beats: AtomicU64::new(0),
            quiet: AtomicU64::new(0),
            held: Mutex::default(),
            seen: AtomicU64::new(0),
            rewound: AtomicU64::new(0),
            bootstrap: Mutex::default(),
        }
    }

    fn erred(&self) -> bool {
        self.erred.load(Ordering::Relaxed)
    }

    /// True once.
    fn once(&self) -> bool {
        !self.done.swap(true, Ordering::Relaxed)
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Option<Record>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hooks for Mutant {
    fn built(&self, _sdk: &Sdk, bootstrap: &str) {
        *self.bootstrap.lock().unwrap_or_else(PoisonError::into_inner) = bootstrap.to_owned();
        if self.wrong == Wrong::LeavesAGrandchild && self.once() {
            // Ends by itself in the end, so that a harness that misses it leaves nothing behind for long. OK to drop the
            // result: without the program the mutant is no mutant, and its test says so.
            let _ = Command::new("sleep")
                .arg("60")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
        }
    }

    fn deliver(&self, record: Record, pass: &mut dyn FnMut(Record)) {
        let n = self.records.fetch_add(1, Ordering::Relaxed) + 1;
        let waited = self.quiet.swap(0, Ordering::Relaxed) >= SETTLED;
        match self.wrong {
            Wrong::SkipsARecord if self.erred() && self.once() => {}
            Wrong::InventsARecord if self.once() => {
                // Id 0 lies below every id, so that the order of ids stays right.
                pass(Record {
                    id: Some(0),
                    ..record.clone()
                });
                pass(record);
            }
            Wrong::SwapsTwoRecords if n == STRIKE_AT => *self.held() = Some(record),
            Wrong::SwapsTwoRecords => {
                pass(record);
                if let Some(held) = self.held().take() {
                    pass(held);
                }
            }
            Wrong::HoldsBackTheLastRecord if !self.done.load(Ordering::Relaxed) => {
                let before = self.held().take();
                if let Some(before) = before {
                    pass(before);
                }
                match waited && n > 1 {
                    true => {
                        self.done.store(true, Ordering::Relaxed);
                        pass(record);
                    }
                    false => *self.held() = Some(record),
                }
            }
            Wrong::SeeksBackSilently => {
                if record.offset >= self.seen.load(Ordering::Relaxed) {
                    self.seen.store(record.offset + 1, Ordering::Relaxed);
                    pass(record);
                }
            }
            Wrong::SpinsWhileCutOff | Wrong::StormsWhileCutOff => {
                self.erred.store(false, Ordering::Relaxed);
                pass(record);
            }
            _ => pass(record),
        }
    }

    fn applies_tombstone(&self) -> bool {
        self.wrong != Wrong::KeepsDeletedKeys
    }

    fn met_error(&self) {
        if self.erred.swap(true, Ordering::Relaxed) {
            return;
        }
        let erred = self.erred.clone();
        match self.wrong {
            Wrong::SpinsWhileCutOff => {
                std::thread::spawn(move || while erred.load(Ordering::Relaxed) {});
            }
            Wrong::StormsWhileCutOff => {
                let bootstrap = self.bootstrap.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let addresses: Vec<_> = bootstrap
                    .split(',')
                    .filter_map(|address| address.parse().ok())
                    .collect();
                std::thread::spawn(move || {
                    let mut at = 0;
                    while erred.load(Ordering::Relaxed) && !addresses.is_empty() {
                        // OK to drop the result: a connect is a connect, refused or not.
                        let _ = TcpStream::connect_timeout(&addresses[at % addresses.len()], Duration::from_millis(50));
                        at += 1;
                        pause(Duration::from_micros(2_500));
                    }
                });
            }
            _ => {}
        }
    }

    fn turn(&self) -> Turn {
        match self.wrong {
            Wrong::EndsAtFirstError if self.erred() => Turn::EndTyped,
            Wrong::DiesSilently | Wrong::DiesHealthy if self.erred() => Turn::Vanish,
            Wrong::EndsUntyped if self.erred() => Turn::EndUntyped,
            Wrong::ExitsWithZero if self.erred() => std::process::exit(0),
            Wrong::LeavesItsGroup if self.erred() && self.once() => Turn::LeaveGroup,
            // Late enough for heartbeats to have shown the position that it goes back from.
            Wrong::SeeksBackSilently
                if self.seen.load(Ordering::Relaxed) > 2 * BACK
                    && self.beats.load(Ordering::Relaxed) > 2 * SETTLED
                    && self.once() =>
            {
                self.rewound.store(SETTLED, Ordering::Relaxed);
                Turn::SeekBack(BACK)
            }
            _ => Turn::Poll,
        }
    }

    fn commit(&self, next: u64) -> u64 {
        match self.wrong {
            Wrong::CommitsAhead => next + AHEAD,
            _ => next,
        }
    }

    fn heartbeat(&self, heartbeat: &mut Heartbeat) {
        self.beats.fetch_add(1, Ordering::Relaxed);
        self.quiet.fetch_add(1, Ordering::Relaxed);
        match self.wrong {
            Wrong::ClaimsCaughtUpEarly => heartbeat.claims.caught_up = Some(true),
            Wrong::DiesHealthy => {
                heartbeat.claims.healthy = Some(true);
                heartbeat.loop_age_ms = heartbeat.loop_age_ms.map(|_| 0.0);
            }
            // Under load the next record hides the seek within milliseconds; the position that it went to is shown for
            // a second.
            Wrong::SeeksBackSilently if self.rewound.load(Ordering::Relaxed) > 0 => {
                self.rewound.fetch_sub(1, Ordering::Relaxed);
                let low = self.seen.load(Ordering::Relaxed).saturating_sub(BACK);
                for position in heartbeat.positions.iter_mut().flatten() {
                    position.offset = position.offset.min(low);
                }
            }
            _ => {}
        }
    }

    fn barrier(&self) -> Option<bool> {
        (self.wrong == Wrong::LiesAboutBarriers).then_some(true)
    }

    fn callback_errors_per_failure(&self) -> u64 {
        match self.wrong {
            Wrong::MiscountsCallbackErrors => 2,
            _ => 1,
        }
    }

    fn stopping(&self) {
        if self.wrong == Wrong::HangsInStop {
            loop {
                std::thread::park();
            }
        }
    }
}

/// Lets time pass: the pace of a storm.
fn pause(length: Duration) {
    let never = Mutex::new(());
    let guard = never.lock().unwrap_or_else(PoisonError::into_inner);
    // OK to drop the result: nobody notifies, so it returns when the time has passed.
    let _ = Condvar::new().wait_timeout_while(guard, length, |()| true);
}
