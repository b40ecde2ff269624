//! Mutant readers: each is a reference reader that does one thing wrong, so that one invariant must catch it.
//!
//! `tests/data/mutants.toml` says in which scenario each is run and which invariants it must violate there. Mutants that
//! need a fault to show themselves wait for the first error that their client reports, and are correct until then;
//! others strike at a record whose number fits the scenario of their row.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use brokerfall::reader::bundled::hooks::{Hooks, Record, Turn};
use brokerfall::reader::bundled::policy::Policy;
use brokerfall::reader::bundled::{main as bundled, speak};
use brokerfall::reader::claims::PORT_VARIABLE;
use brokerfall::reader::sdk::Sdk;
use brokerfall_report::exception::{Exception, Origin};
use brokerfall_report::protocol::{Heartbeat, Kind, Start};

/// What a mutant does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    /// Ends, with the exception, at the first error that it could have waited out.
    EndsAtFirstError,
    /// Hands out each record only when the next one comes, until it has once waited for one.
    HoldsBackTheLastRecord,
    /// Hands out 40 records a second.
    ReadsSlowly,
    /// Does not apply tombstones.
    KeepsDeletedKeys,
    /// Leaves one record out after an error.
    SkipsARecord,
    /// Hands out a record that was never written.
    InventsARecord,
    /// Hands two records of a partition out in the wrong order.
    SwapsTwoRecords,
    /// Goes back 50 records, says nothing and hands them out again.
    SeeksBackSilently,
    /// Stands still for longer than its recovery window, does not say that it is well, and goes on.
    StandsStill,
    /// Its reading loop ends after an error, without a word. A fresh object reads.
    DiesSilently,
    /// The same, and so does every object of this process: something global is broken.
    DiesWithItsProcess,
    /// Its reading loop ends at one record, without a word, whoever reads it.
    DiesOfARecord,
    /// Its reading loop ends after an error, and it calls itself healthy for ever.
    DiesHealthy,
    /// The same without a word of its own, but its HTTP endpoint goes on to say that all is well.
    DiesBehindAGreenEndpoint,
    /// Claims that it has caught up from its first heartbeat on.
    ClaimsCaughtUpEarly,
    /// Answers every barrier with "reached" at once.
    LiesAboutBarriers,
    /// Counts two failures of a callback for one.
    MiscountsCallbackErrors,
    /// Ends at one record and says so, without an exception.
    EndsUntyped,
    /// The second member ends at once and says so, without an exception; the first is correct.
    SecondMemberEndsUntyped,
    /// Its process ends with status 0 after an error.
    ExitsWithZero,
    /// Leaves its group without a word and goes on by hand, slowly at first.
    LeavesItsGroup,
    /// Commits far beyond what it has processed.
    CommitsAhead,
    /// Never returns from stop.
    HangsInStop,
    /// Starts a process that outlives it.
    LeavesAGrandchild,
    /// Burns a core from an error to the next record.
    SpinsWhileCutOff,
    /// Connects 400 times a second until it has caught up.
    StormsWhileCatchingUp,
    /// Opens files from an error to the next record, and keeps them.
    LeaksWhileCutOff,
    /// Reports an exception that nobody has seen of it before.
    RaisesSomethingNew,
    /// Jumps over what retention took and tells nobody.
    HidesAReset,
    /// Comes back from its disk with every other key, and with all of its offsets.
    ComesBackHalfEmpty,
}

/// Name, kind and misdeed of every mutant.
pub const MUTANTS: [(&str, Kind, Wrong); 29] = [
    ("ends-at-first-error", Kind::Assign, Wrong::EndsAtFirstError),
    ("reads-slowly", Kind::Assign, Wrong::ReadsSlowly),
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
    ("stands-still", Kind::Assign, Wrong::StandsStill),
    ("dies-silently", Kind::Assign, Wrong::DiesSilently),
    ("dies-with-its-process", Kind::Assign, Wrong::DiesWithItsProcess),
    ("dies-of-a-record", Kind::Assign, Wrong::DiesOfARecord),
    ("dies-healthy", Kind::Assign, Wrong::DiesHealthy),
    (
        "dies-behind-a-green-endpoint",
        Kind::Assign,
        Wrong::DiesBehindAGreenEndpoint,
    ),
    ("claims-caught-up-early", Kind::Table, Wrong::ClaimsCaughtUpEarly),
    ("lies-about-barriers", Kind::Table, Wrong::LiesAboutBarriers),
    ("miscounts-callback-errors", Kind::Table, Wrong::MiscountsCallbackErrors),
    ("ends-untyped", Kind::Assign, Wrong::EndsUntyped),
    (
        "second-member-ends-untyped",
        Kind::Group,
        Wrong::SecondMemberEndsUntyped,
    ),
    ("exits-with-zero", Kind::Assign, Wrong::ExitsWithZero),
    ("leaves-its-group", Kind::Group, Wrong::LeavesItsGroup),
    ("commits-ahead", Kind::Group, Wrong::CommitsAhead),
    ("hangs-in-stop", Kind::Assign, Wrong::HangsInStop),
    ("leaves-a-grandchild", Kind::Assign, Wrong::LeavesAGrandchild),
    ("spins-while-cut-off", Kind::Table, Wrong::SpinsWhileCutOff),
    ("storms-while-catching-up", Kind::Table, Wrong::StormsWhileCatchingUp),
    ("leaks-while-cut-off", Kind::Table, Wrong::LeaksWhileCutOff),
    ("raises-something-new", Kind::Assign, Wrong::RaisesSomethingNew),
    ("hides-a-reset", Kind::Assign, Wrong::HidesAReset),
    ("comes-back-half-empty", Kind::Table, Wrong::ComesBackHalfEmpty),
];

/// How many records a silent seek goes back.
const BACK: u64 = 50;
/// The record, counted from the first, at which mutants of the record stream strike.
const STRIKE_AT: u64 = 10;
/// Heartbeats of 250 ms after which records that come are taken for live ones.
const SETTLED: u64 = 4;
/// How far ahead of its position a mutant commits.
const AHEAD: u64 = 1_000;
/// The record, counted from the first, at which a mutant stands still: the 600 of the preload have been read.
const STILL_AT: u64 = 620;
/// How long it does: above its recovery window of 5 s.
const STILL: Duration = Duration::from_millis(7_000);
/// The pace of a slow reader: 300 records take 7.5 s, which lies between the recovery window of 5 s and twice that.
const SLOW: Duration = Duration::from_millis(25);
/// Offset of the record that kills: written while the link is held, after the 320 that the fault waits for.
const POISON: u64 = 350;
/// The record, counted from the first, at which a mutant leaves its group: the 300 of the preload have been read.
const LEAVE_AT: u64 = 305;
/// How many records it then reads slowly, and at which pace: 8 s without membership, while nothing stands still.
const AFTER_LEAVING: u64 = 10;
const BY_HAND: Duration = Duration::from_millis(800);
/// Pace of a storm, and of the looks at its schedule.
const STORM_PER_S: f64 = 400.0;
const STORM_TICK: Duration = Duration::from_millis(2);
/// Pace of a leak: in the second between the first third of a four-second outage and the last, twice what is allowed.
const LEAK_TICK: Duration = Duration::from_millis(25);

/// Runs the mutant of this name, or the bundled reader of this name, as an adapter on stdin and stdout.
pub fn main(name: &str) -> ExitCode {
    match MUTANTS.iter().find(|(mutant, _, _)| *mutant == name) {
        Some((name, kind, wrong)) => speak(name, *kind, policy(*wrong), Arc::new(Mutant::new(*wrong))),
        None => bundled(name),
    }
}

fn policy(wrong: Wrong) -> Policy {
    match wrong {
        Wrong::ComesBackHalfEmpty => Policy::STORED,
        _ => Policy::REFERENCE,
    }
}

struct Mutant {
    wrong: Wrong,
    /// Set by an error; taken back by the next record where the misdeed lasts no longer than the outage, and by a fresh
    /// object where that cures.
    erred: Arc<AtomicBool>,
    /// The one-time misdeed was done.
    done: AtomicBool,
    records: AtomicU64,
    /// Heartbeats since the last record.
    quiet: AtomicU64,
    held: Mutex<Option<Record>>,
    /// It stands still on purpose.
    still: AtomicBool,
    /// It is the second member.
    second: AtomicBool,
    caught_up: Arc<AtomicBool>,
    sdk: Mutex<Option<Sdk>>,
}

impl Mutant {
    fn new(wrong: Wrong) -> Self {
        Self {
            wrong,
            erred: Arc::default(),
            done: AtomicBool::new(false),
            records: AtomicU64::new(0),
            quiet: AtomicU64::new(0),
            held: Mutex::default(),
            still: AtomicBool::new(false),
            second: AtomicBool::new(false),
            caught_up: Arc::default(),
            sdk: Mutex::default(),
        }
    }

    fn erred(&self) -> bool {
        self.erred.load(Ordering::Relaxed)
    }

    fn done(&self) -> bool {
        self.done.load(Ordering::Relaxed)
    }

    /// True once.
    fn once(&self) -> bool {
        !self.done.swap(true, Ordering::Relaxed)
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Option<Record>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sdk(&self) -> std::sync::MutexGuard<'_, Option<Sdk>> {
        self.sdk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }
}

impl Hooks for Mutant {
    fn built(&self, sdk: &Sdk, start: &Start) {
        *self.sdk() = Some(sdk.clone());
        self.second.store(start.client_id == "r2", Ordering::Relaxed);
        if self.wrong == Wrong::DiesBehindAGreenEndpoint && self.once() {
            std::thread::spawn(green_endpoint);
        }
        match self.wrong {
            Wrong::DiesWithItsProcess => {}
            Wrong::LeavesAGrandchild if self.once() => {
                // Ends by itself in the end, so that a harness that misses it leaves nothing behind for long. OK to drop
                // the result: without the program the mutant is no mutant, and its test says so.
                let _ = Command::new("sleep")
                    .arg("60")
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn();
            }
            Wrong::StormsWhileCatchingUp => {
                let addresses: Vec<SocketAddr> = start.bootstrap.split(',').flat_map(str::parse).collect();
                let (sdk, over) = (sdk.clone(), self.caught_up.clone());
                std::thread::spawn(move || storm(&addresses, &sdk, &over));
            }
            Wrong::DiesOfARecord | Wrong::EndsUntyped => self.done.store(false, Ordering::Relaxed),
            _ => self.erred.store(false, Ordering::Relaxed),
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
                let partition = record.partition;
                pass(record);
                if let Some(held) = self.held().take_if(|held| held.partition == partition) {
                    pass(held);
                }
            }
            Wrong::HoldsBackTheLastRecord if !self.done() => {
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
            Wrong::ReadsSlowly => {
                pause(SLOW);
                pass(record);
            }
            Wrong::StandsStill if n == STILL_AT => {
                self.still.store(true, Ordering::Relaxed);
                pause(STILL);
                self.still.store(false, Ordering::Relaxed);
                pass(record);
            }
            Wrong::DiesOfARecord | Wrong::EndsUntyped if record.offset >= POISON => {
                self.done.store(true, Ordering::Relaxed);
            }
            Wrong::LeavesItsGroup if n > LEAVE_AT && n <= LEAVE_AT + AFTER_LEAVING => {
                pause(BY_HAND);
                pass(record);
            }
            Wrong::SpinsWhileCutOff | Wrong::LeaksWhileCutOff => {
                self.erred.store(false, Ordering::Relaxed);
                pass(record);
            }
            Wrong::RaisesSomethingNew => {
                if n == STRIKE_AT
                    && let Some(sdk) = &*self.sdk()
                {
                    sdk.error(Origin::Background, false, Box::new(something_new()));
                }
                pass(record);
            }
            _ => pass(record),
        }
    }

    fn applies_tombstone(&self) -> bool {
        self.wrong != Wrong::KeepsDeletedKeys
    }

    fn restores(&self, key: &str) -> bool {
        // Keys end with their number.
        self.wrong != Wrong::ComesBackHalfEmpty || key.ends_with(['0', '2', '4', '6', '8'])
    }

    fn met_error(&self) {
        if self.erred.swap(true, Ordering::Relaxed) {
            return;
        }
        let erred = self.erred.clone();
        match self.wrong {
            Wrong::SpinsWhileCutOff => _ = std::thread::spawn(move || while erred.load(Ordering::Relaxed) {}),
            Wrong::LeaksWhileCutOff => _ = std::thread::spawn(move || leak(&erred)),
            _ => {}
        }
    }

    fn turn(&self) -> Turn {
        match self.wrong {
            Wrong::EndsAtFirstError if self.erred() => Turn::EndTyped,
            Wrong::DiesSilently | Wrong::DiesHealthy | Wrong::DiesBehindAGreenEndpoint | Wrong::DiesWithItsProcess
                if self.erred() =>
            {
                Turn::Vanish
            }
            Wrong::DiesOfARecord if self.done() => Turn::Vanish,
            Wrong::EndsUntyped if self.done() => Turn::EndUntyped,
            Wrong::SecondMemberEndsUntyped if self.second.load(Ordering::Relaxed) => Turn::EndUntyped,
            Wrong::ExitsWithZero if self.erred() => std::process::exit(0),
            Wrong::LeavesItsGroup if self.records() >= LEAVE_AT && self.once() => Turn::LeaveGroup,
            Wrong::SeeksBackSilently if self.records() > 2 * BACK && self.once() => Turn::SeekBack(BACK),
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
        self.quiet.fetch_add(1, Ordering::Relaxed);
        self.caught_up
            .fetch_or(heartbeat.claims.caught_up == Some(true), Ordering::Relaxed);
        match self.wrong {
            Wrong::ClaimsCaughtUpEarly => heartbeat.claims.caught_up = Some(true),
            Wrong::StandsStill if self.still.load(Ordering::Relaxed) => heartbeat.claims.healthy = Some(false),
            Wrong::DiesHealthy => {
                heartbeat.claims.healthy = Some(true);
                heartbeat.loop_age_ms = heartbeat.loop_age_ms.map(|_| 0.0);
            }
            _ => {}
        }
    }

    fn tells_caller(&self) -> bool {
        self.wrong != Wrong::HidesAReset
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

/// Opens files as long as the error stands, and keeps them to the end of the process.
fn leak(erred: &AtomicBool) {
    let mut kept = Vec::new();
    while erred.load(Ordering::Relaxed) {
        // OK to drop an error: without a file the mutant is no mutant, and its test says so.
        kept.extend(std::fs::File::open("/dev/null"));
        pause(LEAK_TICK);
    }
    std::mem::forget(kept);
}

/// Answers every request with "all is well", whatever becomes of the reader.
fn green_endpoint() {
    let port = std::env::var(PORT_VARIABLE).ok().and_then(|port| port.parse().ok());
    // OK to do nothing without a port: the mutant is no mutant then, and its test says so.
    let Some(listener) = port.and_then(|port: u16| TcpListener::bind(("127.0.0.1", port)).ok()) else {
        return;
    };
    for mut stream in listener.incoming().flatten() {
        let mut request = [0; 1024];
        // OK to drop the results: whoever hangs up asks again.
        let _ = stream.read(&mut request);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    }
}

fn something_new() -> Exception {
    Exception {
        type_name: "mutants::SomethingNew".to_owned(),
        code: None,
        attributes: Default::default(),
        message: "never seen before".to_owned(),
        relation: None,
        children: Vec::new(),
        frames: Vec::new(),
    }
}

/// Connects at [`STORM_PER_S`], by a schedule, so that a loaded machine makes it no gentler.
fn storm(addresses: &[SocketAddr], sdk: &Sdk, over: &AtomicBool) {
    let since_ms = sdk.now_ms();
    let mut made = 0_u32;
    while !over.load(Ordering::Relaxed) && !addresses.is_empty() {
        let due = (sdk.now_ms() - since_ms) / 1_000.0 * STORM_PER_S;
        while f64::from(made) < due {
            // OK to drop the result: a connect is a connect, refused or not.
            let _ = TcpStream::connect_timeout(&addresses[made as usize % addresses.len()], Duration::from_millis(50));
            made += 1;
        }
        pause(STORM_TICK);
    }
}

/// Lets time pass: the pace of a misdeed.
fn pause(length: Duration) {
    let never = Mutex::new(());
    let guard = never.lock().unwrap_or_else(PoisonError::into_inner);
    // OK to drop the result: nobody notifies, so it returns when the time has passed.
    let _ = Condvar::new().wait_timeout_while(guard, length, |()| true);
}
