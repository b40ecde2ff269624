//! Facts: the fold of a history, built one entry at a time.
//!
//! The run loop asks it while the run goes on (`Recorder::wait_until`), and the invariants judge it when it is over: the
//! same fold, so that what a run waited for and what it is judged by cannot differ. No I/O, no clock: the time is that
//! of the last entry.
//!
//! ```text
//! oracle events -> Log (per partition)      reader events -> Life (per reader object), Reads (per partition)
//! fault events  -> Faults, the path         link events   -> Wire
//!                                           coordinators  -> Coordinated
//! ```
//!
//! Runs and changes are kept, not events, so that memory follows what happened and not how often it was told; what a
//! long run tells while nothing happens is put together (`thin`).
//! Deliberately not here: any judgement (that is `invariant`).

mod coordinated;
mod faults;
mod incarnations;
mod life;
mod live;
mod log;
mod neutral;
mod observe;
mod observe_reader;
mod observe_wire;
mod owners;
mod phase;
mod query;
mod query_reader;
mod reads;
mod runset;
mod snapshot;
mod thin;
mod transactions;
mod wire;

use std::collections::{BTreeMap, BTreeSet};

use brokerfall_report::exception::{Exception, Origin};
use brokerfall_report::history::{FailureOf, LogEnd, Opened, Phase, Proof, Renewed, SentinelRecord, Stage};
use brokerfall_report::protocol::{CallbackCall, Done, Hello, ResetCause};

pub use coordinated::Described;
pub use faults::{Fault, Faults};
pub use life::{Claimed, Ended, Exit, HowEnded, Life, Usage, shown};
pub(crate) use log::not_tombstone;
pub use log::{Bounds, Log, Piece, Scan};
pub use owners::Owned;
pub use reads::{Mark, Reach, Reads, Segment};
pub use runset::RunSet;
pub use snapshot::{Snapshot, partition_of};
pub use thin::Kept;
pub use transactions::Transaction;
pub use wire::{Answer, Commit, Connection, Standing, Told, Window, Wire};

/// When something happened: the number of its event and its time, microseconds since the run was opened. What a reader
/// says carries the time at which it happened there, not that of its receipt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Event number.
    pub n: u64,
    /// Microseconds since the run was opened.
    pub us: u64,
}

/// One partition: the truth and what readers were given of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Partition {
    /// What the oracle knows.
    pub log: Log,
    /// What readers were given.
    pub reads: Reads,
    /// What it was before its topic was deleted and created anew, or lost its end, the oldest first.
    pub earlier: Vec<Partition>,
    /// When the log before it came to its end; absent of the first.
    pub since: Option<Moment>,
    /// When its topic was deleted, or its end lost; absent of the one that stands.
    pub until: Option<Moment>,
    /// Where only its end was lost: its records below this offset stand on in the log that follows.
    pub kept: Option<u64>,
}

/// Partitions that a topic got in the run.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Added {
    at: Moment,
    topic: String,
    to: u32,
}

/// A sentinel round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sentinel {
    /// Round, from 1.
    pub round: u32,
    /// When it was acknowledged.
    pub at: Moment,
    /// Each record, and when it was first delivered or shown.
    pub records: Vec<(SentinelRecord, Option<Moment>)>,
}

/// A command sent to a reader.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// Member.
    pub member: String,
    /// Id.
    pub id: u64,
    /// Name.
    pub command: String,
    /// When.
    pub at: Moment,
    /// Index of the life asked.
    pub life: Option<usize>,
    /// The answer.
    pub answer: Option<(Moment, Done)>,
}

/// Something that lets a position go back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excuse {
    /// When.
    pub at: Moment,
    /// The life that it excuses; absent for a client known only by name.
    pub life: Option<usize>,
    /// The client that it excuses, where only the wire told.
    pub client: Option<String>,
    /// Only this topic and partition.
    pub partition: Option<(String, u32)>,
    /// What.
    pub what: &'static str,
}

/// A reset that a reader reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResetTold {
    /// When.
    pub at: Moment,
    /// Topic.
    pub topic: String,
    /// Partition.
    pub partition: u32,
    /// Why, in its words.
    pub cause: ResetCause,
}

/// An exception as it was seen, equal ones together.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// The first of them.
    pub exception: Exception,
    /// Where it surfaced.
    pub origin: Origin,
    /// Phase at that time.
    pub phase: Phase,
    /// Whether any of them was fatal.
    pub fatal: bool,
    /// How many.
    pub count: u64,
    /// First event.
    pub first: Moment,
    /// Index of the life.
    pub life: Option<usize>,
}

/// How a process left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// When.
    pub at: Moment,
    /// Member.
    pub member: String,
    /// Index of the life that left.
    pub life: Option<usize>,
    /// From stop to end, milliseconds; absent when it was killed.
    pub stopped_ms: Option<u64>,
    /// Processes still there.
    pub processes: Vec<String>,
    /// Connections still open on the link.
    pub connections: u32,
}

/// A cure that was tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cure {
    /// When.
    pub at: Moment,
    /// What was renewed.
    pub renewed: Renewed,
    /// Whether it worked.
    pub worked: bool,
    /// What was seen.
    pub text: String,
}

/// A member of the reader and what is known of all its lives.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Member {
    /// Indices into [`Facts::lives`], in order.
    pub lives: Vec<usize>,
    /// Its last `hello`.
    pub hello: Option<Hello>,
    /// Its adapter said anything at all.
    pub spoke: bool,
    /// Lives from this index on know nothing of what those before them kept in the state folder.
    pub wiped: usize,
    /// What it was to reach, each time it was started.
    pub targets: Vec<(Moment, Vec<LogEnd>)>,
}

/// What could go wrong with the run itself, each with its event.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Troubles {
    /// The adapter broke the protocol: member and text.
    pub protocol: Vec<(u64, String, String)>,
    /// Something was not proven: fault, what, text.
    pub not_proven: Vec<(u64, String, Proof, String)>,
    /// Steps whose trigger was not met: index, text, detail.
    pub unmet: Vec<(u64, u32, String, String)>,
    /// The cluster deviated.
    pub deviations: Vec<(u64, String)>,
    /// The machine starved the harness: when the gap ended, and its length in milliseconds.
    pub starved: Vec<(Moment, u64)>,
    /// Harness or environment failed.
    pub failures: Vec<(u64, FailureOf, String)>,
    /// The run cannot take place: reason, what would enable it.
    pub skipped: Option<(u64, String, String)>,
    /// A signal ended it.
    pub interrupted: Option<(u64, String)>,
}

/// Stands for the lives of neutral members among deliveries. What they were given counts as read by the group; nothing else
/// of them is judged, so that they are no members here and have no [`Life`].
pub(crate) const NEUTRAL: usize = usize::MAX;

/// What a history says so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    opened: Option<Box<Opened>>,
    now: Moment,
    stages: Vec<(Moment, Stage)>,
    closed: Option<Moment>,
    quiet: Option<Moment>,
    faults: Faults,
    topics: BTreeMap<String, BTreeMap<u32, Partition>>,
    sentinels: Vec<Sentinel>,
    lives: Vec<Life>,
    processes: usize,
    members: BTreeMap<String, Member>,
    asked: Vec<Asked>,
    snapshots: Vec<Snapshot>,
    wire: Wire,
    coordinated: coordinated::Coordinated,
    added: Vec<Added>,
    neutrals: BTreeSet<String>,
    excuses: Vec<Excuse>,
    struck: Vec<(Moment, usize, CallbackCall, bool)>,
    seen: BTreeMap<String, Seen>,
    errors: Vec<(Moment, usize, Origin, u64)>,
    resets: Vec<ResetTold>,
    delivered: u64,
    calm: thin::Calm,
    thinned_us: u64,
    last_progress: Option<u64>,
    contended: Vec<(Moment, u64, u64)>,
    left: Vec<Left>,
    cures: Vec<Cure>,
    troubles: Troubles,
}
