//! The validator: reads an adapter's lines with distrust. Pure: bytes and a time in, a line or a broken rule out.
//!
//! A broken rule voids the run, because nothing that the adapter said before or says afterwards can be relied on. A
//! *late* line is never a broken rule: it is a fact about the reader.

use std::collections::{BTreeMap, BTreeSet};

use brokerfall_report::protocol::{
    Command, Delivered, Done, Hello, Kind, Line, PROTOCOL, RECORDS_IDS, RECORDS_OFFSETS, ReaderEvent,
};
use brokerfall_report::runs::Runs;

/// Longest line, bytes, its line break not counted.
pub const LINE_BYTES: usize = 1 << 20;
/// Most lines that may arrive in one second.
pub const LINES_PER_SECOND: u32 = 5_000;
/// Most entries in one `snapshot_part`.
pub const SNAPSHOT_ENTRIES: usize = 1_000;
/// Most records in one `records` line. Adapters flush every 10,000; a run that claims billions would keep every judge
/// busy counting.
pub const RECORDS_PER_LINE: u64 = 1_000_000;
/// Capability: heartbeats carry positions.
pub const HEARTBEAT_POSITIONS: &str = "heartbeat.positions";
/// Command and capability: a callback can be made to fail.
pub const ARM_CALLBACK: &str = "arm_callback";
/// Capability: the application's own processing of a record can be made to take long. Whoever has [`ARM_CALLBACK`] has it.
pub const ARM_CALLBACK_DELAY: &str = "arm_callback.delay";

/// Whether these capabilities hold this one: by name, or as a part of what they name.
pub fn holds<'a>(mut capabilities: impl Iterator<Item = &'a str>, wanted: &str) -> bool {
    capabilities.any(|one| one == wanted || (one, wanted) == (ARM_CALLBACK, ARM_CALLBACK_DELAY))
}

/// Kafka's offsets are signed 64-bit numbers.
const LARGEST_NUMBER: u64 = i64::MAX as u64;
/// 30,000 years; beyond it a clock is broken and arithmetic on it would be too.
const LARGEST_MONO_MS: f64 = 1e15;
/// How much of an offending line is kept.
const SHOWN_BYTES: usize = 300;

const TYPES: [&str; 17] = [
    "hello",
    "started",
    "records",
    "deleted",
    "heartbeat",
    "stopped",
    "done",
    "rebalanced",
    "reset",
    "committed",
    "caught_up",
    "status",
    "snapshot_part",
    "callback_entered",
    "callback_raised",
    "returned",
    "error",
];

/// A rule that an adapter broke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// Which rule, what was found and what was wanted.
    pub text: String,
    /// The start of the offending line; empty where there is none.
    pub line: String,
}

impl Broken {
    /// A broken rule, shown with the start of the line that broke it.
    pub fn new(text: impl Into<String>, line: &[u8]) -> Self {
        let cut = line.len().min(SHOWN_BYTES);
        Self {
            text: text.into(),
            line: String::from_utf8_lossy(&line[..cut]).into_owned(),
        }
    }
}

/// The state of one adapter's conversation.
#[derive(Debug)]
pub struct Validator {
    kind: Kind,
    last_seq: u64,
    inc: u32,
    capabilities: Option<BTreeSet<String>>,
    /// Name of the command by its id, until its `done`.
    pending: BTreeMap<u64, &'static str>,
    last_asked: u64,
    /// Topic to its number of partitions: as the last `start` named them, and what came to it since.
    topics: BTreeMap<String, u32>,
    window_from_us: u64,
    window_lines: u32,
}

impl Validator {
    /// A conversation with an adapter that is to build a reader of this kind.
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            last_seq: 0,
            inc: 0,
            capabilities: None,
            pending: BTreeMap::new(),
            last_asked: 0,
            topics: BTreeMap::new(),
            window_from_us: 0,
            window_lines: 0,
        }
    }

    /// Says that a command is sent with this id. Ids rise.
    pub fn asked(&mut self, id: u64, command: &Command) {
        self.last_asked = id;
        self.pending.insert(id, name_of(command));
        if let Command::Start(start) = command {
            self.topics = start
                .topics
                .iter()
                .map(|topic| (topic.name.clone(), topic.partitions))
                .collect();
        }
    }

    /// Says that a topic has more partitions now, of which records may come.
    pub fn partitions_added(&mut self, topic: &str, to: u32) {
        if let Some(partitions) = self.topics.get_mut(topic) {
            *partitions = to.max(*partitions);
        }
    }

    /// Judges one line, without its line break, received at `received_us`.
    ///
    /// # Errors
    /// [`Broken`] with the rule that the line breaks.
    pub fn line(&mut self, bytes: &[u8], received_us: u64) -> Result<Line, Broken> {
        self.judge(bytes, received_us).map_err(|text| Broken::new(text, bytes))
    }

    fn judge(&mut self, bytes: &[u8], received_us: u64) -> Result<Line, String> {
        self.count(received_us)?;
        if bytes.len() > LINE_BYTES {
            return Err(too_long());
        }
        let line: Line = serde_json::from_slice(bytes).map_err(|cause| explain(bytes, &cause))?;
        if line.v != PROTOCOL {
            return Err(format!("v is {}, wanted {PROTOCOL}", line.v));
        }
        let wanted = self.last_seq + 1;
        if line.seq != wanted {
            return Err(format!(
                "seq is {}, wanted {wanted} (it rises by one with every line)",
                line.seq
            ));
        }
        self.last_seq = line.seq;
        if line.inc < self.inc {
            return Err(format!("inc fell from {} to {}", self.inc, line.inc));
        }
        self.inc = line.inc;
        if line.mono_ms.abs() > LARGEST_MONO_MS {
            return Err(format!("mono_ms is {}, which no clock shows", line.mono_ms));
        }
        self.event(&line.event)?;
        Ok(line)
    }

    fn count(&mut self, received_us: u64) -> Result<(), String> {
        if received_us.saturating_sub(self.window_from_us) >= 1_000_000 {
            self.window_from_us = received_us;
            self.window_lines = 0;
        }
        self.window_lines += 1;
        if self.window_lines > LINES_PER_SECOND {
            return Err(format!("more than {LINES_PER_SECOND} lines in one second"));
        }
        Ok(())
    }

    fn event(&mut self, event: &ReaderEvent) -> Result<(), String> {
        let Some(capabilities) = &self.capabilities else {
            let ReaderEvent::Hello(hello) = event else {
                return Err("the first line is no `hello`".to_owned());
            };
            self.capabilities = Some(self.hello(hello)?);
            return Ok(());
        };
        let needs = |capability: &str, what: &str| {
            if capabilities.contains(capability) {
                Ok(())
            } else {
                Err(format!("{what} without the capability `{capability}` in `hello`"))
            }
        };
        match event {
            ReaderEvent::Hello(_) => Err("a second `hello`".to_owned()),
            ReaderEvent::Started | ReaderEvent::Stopped { .. } | ReaderEvent::Error { .. } => Ok(()),
            ReaderEvent::Done(done) => self.done(done),
            ReaderEvent::Records { partitions } => self.records(partitions),
            ReaderEvent::Heartbeat(beat) => match beat.positions {
                Some(_) => needs(HEARTBEAT_POSITIONS, "positions in a heartbeat"),
                None => Ok(()),
            },
            ReaderEvent::Deleted { .. } => needs("deleted", "`deleted`"),
            ReaderEvent::Rebalanced { .. } => needs("rebalanced", "`rebalanced`"),
            ReaderEvent::Reset { .. } => needs("reset", "`reset`"),
            ReaderEvent::Committed { .. } => needs("committed", "`committed`"),
            ReaderEvent::CaughtUp => needs("caught_up", "`caught_up`"),
            ReaderEvent::Status { .. } => needs("status", "`status`"),
            // A delay is entered, and raises nothing.
            ReaderEvent::CallbackEntered(_) if capabilities.contains(ARM_CALLBACK_DELAY) => Ok(()),
            ReaderEvent::CallbackEntered(_) => needs(ARM_CALLBACK, "`callback_entered`"),
            ReaderEvent::CallbackRaised(_) => needs(ARM_CALLBACK, "`callback_raised`"),
            ReaderEvent::Returned { .. } => needs("returned", "`returned`"),
            ReaderEvent::SnapshotPart { id, entries } => {
                if self.pending.get(id) != Some(&"snapshot") {
                    return Err(format!("snapshot_part for id {id}, which is no `snapshot` in hand"));
                }
                if entries.len() > SNAPSHOT_ENTRIES {
                    let found = entries.len();
                    return Err(format!(
                        "{found} entries in one snapshot_part, at most {SNAPSHOT_ENTRIES} are allowed"
                    ));
                }
                Ok(())
            }
        }
    }

    fn hello(&self, hello: &Hello) -> Result<BTreeSet<String>, String> {
        if hello.protocol != PROTOCOL {
            return Err(format!(
                "the adapter speaks protocol {}, wanted {PROTOCOL}",
                hello.protocol
            ));
        }
        if !hello.kinds.contains(&self.kind) {
            let has: Vec<_> = hello.kinds.iter().map(|kind| kind.name()).collect();
            let (has, wanted) = (has.join(", "), self.kind.name());
            return Err(format!(
                "the adapter builds kinds [{has}], asked for was `{wanted}` (see --kind)"
            ));
        }
        Ok(hello.capabilities.iter().cloned().collect())
    }

    fn done(&mut self, done: &Done) -> Result<(), String> {
        match self.pending.remove(&done.id) {
            Some(_) => Ok(()),
            None if done.id >= 1 && done.id <= self.last_asked => Err(format!("a second `done` for id {}", done.id)),
            None => Err(format!("`done` for id {}, which was never asked", done.id)),
        }
    }

    fn records(&self, partitions: &[Delivered]) -> Result<(), String> {
        let mut sum = 0u64;
        for delivered in partitions {
            let Delivered { topic, partition, .. } = delivered;
            let at = format!("{topic}-{partition}");
            match self.topics.get(topic) {
                Some(partitions) if partition < partitions => {}
                Some(partitions) => return Err(format!("records of {at}, but the topic has {partitions} partitions")),
                None => return Err(format!("records of {at}, a topic that `start` did not name")),
            }
            let offsets = self.runs(delivered.offsets.as_ref(), RECORDS_OFFSETS, &at)?;
            let ids = self.runs(delivered.ids.as_ref(), RECORDS_IDS, &at)?;
            if let (Some(offsets), Some(ids)) = (offsets, ids)
                && offsets != ids
            {
                return Err(format!("records of {at}: {offsets} offsets but {ids} ids"));
            }
            let (first, last) = delivered.t;
            if first.abs() > LARGEST_MONO_MS || last.abs() > LARGEST_MONO_MS {
                return Err(format!("records of {at}: t is [{first}, {last}], which no clock shows"));
            }
            sum = sum.saturating_add(offsets.or(ids).unwrap_or(0));
        }
        if sum > RECORDS_PER_LINE {
            return Err(format!(
                "{sum} records in one line, at most {RECORDS_PER_LINE} are believed"
            ));
        }
        Ok(())
    }

    /// How many numbers the runs hold; none where the adapter leaves them out, as its capabilities say it must.
    fn runs(&self, runs: Option<&Runs>, capability: &str, at: &str) -> Result<Option<u64>, String> {
        let has = self
            .capabilities
            .as_ref()
            .is_some_and(|capabilities| capabilities.contains(capability));
        let runs = match (has, runs) {
            (true, Some(runs)) => runs,
            (false, None) => return Ok(None),
            (true, None) => return Err(format!("records of {at} lack what capability `{capability}` promises")),
            (false, Some(_)) => {
                return Err(format!(
                    "records of {at} carry what needs capability `{capability}` in `hello`"
                ));
            }
        };
        // Not `Runs::count`, which trusts its numbers.
        let mut count = 0u64;
        for [first, last] in runs.as_slice() {
            if first > last || *last > LARGEST_NUMBER {
                return Err(format!(
                    "records of {at}: [{first}, {last}] is no run (wanted first <= last < 2^63)"
                ));
            }
            count = count.saturating_add(last - first + 1);
        }
        Ok(Some(count))
    }
}

/// The rule about the length of a line.
pub fn too_long() -> String {
    format!("a line longer than {LINE_BYTES} bytes")
}

/// The name that a command has on the wire.
pub fn name_of(command: &Command) -> &'static str {
    match command {
        Command::Start(_) => "start",
        Command::Snapshot => "snapshot",
        Command::Barrier { .. } => "barrier",
        Command::WaitCaughtUp { .. } => "wait_caught_up",
        Command::ArmCallback(_) => ARM_CALLBACK,
        Command::Commit => "commit",
        Command::Restart => "restart",
        Command::Stop { .. } => "stop",
    }
}

/// Says why a line could not be read, more exactly than the reader of whole lines can.
fn explain(bytes: &[u8], cause: &serde_json::Error) -> String {
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(bytes) else {
        return if bytes.starts_with(b"{") {
            format!("a line that is not JSON: {cause}")
        } else {
            "a line that is not JSON (an adapter re-points its stdout to stderr before it loads the library)".to_owned()
        };
    };
    match value.get("type") {
        None => "a line without a `type`".to_owned(),
        Some(serde_json::Value::String(name)) if TYPES.contains(&name.as_str()) => {
            format!("a `{name}` line that does not fit the protocol: {cause}")
        }
        Some(other) => {
            let shown: String = other.to_string().chars().take(60).collect();
            format!("unknown type {shown}")
        }
    }
}

#[cfg(test)]
mod tests;
