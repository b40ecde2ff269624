//! Reads the lines of a history, fast: what judging spends its time on.
//!
//! Most lines of a history are of a few kinds (records written and delivered, heartbeats, samples, the wire). A line of
//! such a kind, spelled as [`Entry`] is written, is taken apart where it lies, in one pass and byte for byte, and poured
//! into an entry of its kind that is kept from line to line: nothing is allocated, and a name that stood in the line
//! before is compared, not copied. Whatever else a line holds (other kinds, other spellings, escapes, spaces) goes to
//! serde, so that this reads exactly what [`Entry`]'s own `Deserialize` reads.
//!
//! ```
//! use brokerfall_report::history::EntryReader;
//! let mut reader = EntryReader::default();
//! let entry = reader.read(br#"{"n":7,"at_us":1200,"event":{"sample":{"member":"r1","cpu_ms":20,"rss_kib":900,"descriptors":9,"processes":1}}}"#)?;
//! assert_eq!((entry.n, entry.at_us), (7, 1200));
//! # Ok::<(), serde_json::Error>(())
//! ```

use std::collections::BTreeMap;

use super::{ConnectionChange, Entry, Event, GroupChange, LogEnd, ProduceOutcome};
use crate::exception::{Exception, Origin};
use crate::protocol::{Delivered, Heartbeat, Position, ReaderEvent};
use crate::runs::Runs;

/// Reads lines into entries that it keeps and fills anew.
#[derive(Debug)]
pub struct EntryReader {
    produced: Entry,
    watermarks: Entry,
    records: Entry,
    heartbeat: Entry,
    committed: Entry,
    error: Entry,
    /// The exception of the last error, as it was spelled: clients say the same again and again.
    spelled: Vec<u8>,
    sample: Entry,
    wire: Entry,
    connection: Entry,
    commit: Entry,
    group: Entry,
    /// Whatever serde read last.
    other: Entry,
}

impl Default for EntryReader {
    fn default() -> Self {
        let entry = |event| Entry { n: 0, at_us: 0, event };
        let reader = |event| {
            entry(Event::Reader {
                member: String::new(),
                inc: 0,
                reader_us: 0,
                event,
            })
        };
        Self {
            produced: entry(Event::Produced {
                topic: String::new(),
                partition: 0,
                ids: Runs::default(),
                offsets: Runs::default(),
                outcome: ProduceOutcome::Acked,
            }),
            watermarks: entry(Event::Watermarks {
                topic: String::new(),
                partition: 0,
                log_start: 0,
                log_end: 0,
            }),
            records: reader(ReaderEvent::Records { partitions: Vec::new() }),
            heartbeat: reader(ReaderEvent::Heartbeat(Heartbeat::default())),
            committed: reader(ReaderEvent::Committed { offsets: Vec::new() }),
            error: reader(ReaderEvent::Error {
                origin: Origin::Reader,
                fatal: false,
                exception: no_exception(),
                count: 0,
            }),
            spelled: Vec::new(),
            sample: entry(Event::Sample {
                member: String::new(),
                cpu_ms: 0,
                rss_kib: 0,
                descriptors: 0,
                processes: 0,
                waited_ms: None,
            }),
            wire: entry(Event::Wire {
                client: String::new(),
                span_us: 0,
                requests: BTreeMap::new(),
                connects: 0,
                fetch_offsets: Vec::new(),
            }),
            connection: entry(Event::WireConnection {
                client: String::new(),
                node: 0,
                change: ConnectionChange::Opened,
                count: 0,
            }),
            commit: entry(Event::WireCommit {
                client: String::new(),
                group: String::new(),
                topic: String::new(),
                partition: 0,
                offset: 0,
                code: 0,
            }),
            group: entry(Event::WireGroup {
                client: String::new(),
                group: String::new(),
                change: GroupChange::Alive { generation: 0 },
            }),
            other: entry(Event::Closed),
        }
    }
}

impl EntryReader {
    /// The entry that a line holds, with or without its end of line. It stands until the next line is read.
    ///
    /// # Errors
    /// serde's, when the line is no entry.
    pub fn read(&mut self, line: &[u8]) -> Result<&Entry, serde_json::Error> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let (kind, fits) = match Kind::of(line) {
            Some((kind, head)) => (kind, self.fill(kind, head).is_some()),
            None => (Kind::Other, false),
        };
        if !fits {
            self.other = serde_json::from_slice(line)?;
            return Ok(&self.other);
        }
        Ok(self.kept(kind))
    }

    fn kept(&mut self, kind: Kind) -> &mut Entry {
        match kind {
            Kind::Produced => &mut self.produced,
            Kind::Watermarks => &mut self.watermarks,
            Kind::Records => &mut self.records,
            Kind::Heartbeat => &mut self.heartbeat,
            Kind::Committed => &mut self.committed,
            Kind::Error => &mut self.error,
            Kind::Sample => &mut self.sample,
            Kind::Wire => &mut self.wire,
            Kind::Connection => &mut self.connection,
            Kind::Commit => &mut self.commit,
            Kind::Group => &mut self.group,
            Kind::Other => &mut self.other,
        }
    }

    /// Fills the entry of a kind; `None` when the line is not spelled as expected. What is half filled then is filled
    /// anew before it is shown.
    fn fill(&mut self, kind: Kind, head: Head<'_>) -> Option<()> {
        let mut line = head.rest;
        let mut spelled = std::mem::take(&mut self.spelled);
        let entry = self.kept(kind);
        (entry.n, entry.at_us) = (head.n, head.at_us);
        let filled = event(&mut line, &mut entry.event, &mut spelled);
        self.spelled = spelled;
        filled?;
        line.token(b"}}")?;
        line.0.is_empty().then_some(())
    }
}

/// The kinds that are taken apart here.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Produced,
    Watermarks,
    Records,
    Heartbeat,
    Committed,
    Error,
    Sample,
    Wire,
    Connection,
    Commit,
    Group,
    Other,
}

/// What stands before the event's own fields.
struct Head<'a> {
    n: u64,
    at_us: u64,
    rest: Line<'a>,
}

impl Kind {
    fn of(line: &[u8]) -> Option<(Kind, Head<'_>)> {
        let mut line = Line(line);
        line.token(b"{\"n\":")?;
        let n = line.uint()?;
        line.token(b",\"at_us\":")?;
        let at_us = line.uint()?;
        line.token(b",\"event\":{\"")?;
        let rest = line;
        let kind = match rest.0.first()? {
            b'p' if line.token(b"produced\":").is_some() => Kind::Produced,
            b'r' if line.token(b"reader\":").is_some() => line.reader_kind()?,
            b's' if line.token(b"sample\":").is_some() => Kind::Sample,
            b'w' if line.token(b"wire\":").is_some() => Kind::Wire,
            b'w' if line.token(b"watermarks\":").is_some() => Kind::Watermarks,
            b'w' if line.token(b"wire_connection\":").is_some() => Kind::Connection,
            b'w' if line.token(b"wire_commit\":").is_some() => Kind::Commit,
            b'w' if line.token(b"wire_group\":").is_some() => Kind::Group,
            _ => return None,
        };
        // A reader's line is looked into twice: its kind stands behind the name of the member.
        let rest = if matches!(kind, Kind::Records | Kind::Heartbeat | Kind::Committed | Kind::Error) {
            rest
        } else {
            line
        };
        Some((kind, Head { n, at_us, rest }))
    }
}

fn event(line: &mut Line<'_>, event: &mut Event, spelled: &mut Vec<u8>) -> Option<()> {
    match event {
        Event::Produced {
            topic,
            partition,
            ids,
            offsets,
            outcome,
        } => {
            line.token(b"{\"topic\":")?;
            line.text(topic)?;
            line.token(b",\"partition\":")?;
            *partition = line.uint32()?;
            line.token(b",\"ids\":")?;
            line.runs(ids)?;
            line.token(b",\"offsets\":")?;
            line.runs(offsets)?;
            line.token(b",\"outcome\":\"")?;
            *outcome = line.word(&[
                (b"acked", ProduceOutcome::Acked),
                (b"failed", ProduceOutcome::Failed),
                (b"maybe", ProduceOutcome::Maybe),
            ])?;
        }
        Event::Watermarks {
            topic,
            partition,
            log_start,
            log_end,
        } => {
            line.token(b"{\"topic\":")?;
            line.text(topic)?;
            line.token(b",\"partition\":")?;
            *partition = line.uint32()?;
            line.token(b",\"log_start\":")?;
            *log_start = line.uint()?;
            line.token(b",\"log_end\":")?;
            *log_end = line.uint()?;
        }
        Event::Reader {
            member,
            inc,
            reader_us,
            event,
        } => {
            line.token(b"reader\":{\"member\":")?;
            line.text(member)?;
            line.token(b",\"inc\":")?;
            *inc = line.uint32()?;
            line.token(b",\"reader_us\":")?;
            *reader_us = line.uint()?;
            line.token(b",\"event\":{\"type\":\"")?;
            reader_event(line, event, spelled)?;
            line.token(b"}")?;
        }
        Event::Sample {
            member,
            cpu_ms,
            rss_kib,
            descriptors,
            processes,
            waited_ms,
        } => {
            line.token(b"{\"member\":")?;
            line.text(member)?;
            line.token(b",\"cpu_ms\":")?;
            *cpu_ms = line.uint()?;
            line.token(b",\"rss_kib\":")?;
            *rss_kib = line.uint()?;
            line.token(b",\"descriptors\":")?;
            *descriptors = line.uint()?;
            line.token(b",\"processes\":")?;
            *processes = line.uint32()?;
            *waited_ms = match line.token(b",\"waited_ms\":") {
                Some(_) => Some(line.uint()?),
                None => None,
            };
        }
        Event::Wire {
            client,
            span_us,
            requests,
            connects,
            fetch_offsets,
        } => {
            line.token(b"{\"client\":")?;
            line.text(client)?;
            line.token(b",\"span_us\":")?;
            *span_us = line.uint()?;
            line.token(b",\"requests\":")?;
            line.counts(requests)?;
            line.token(b",\"connects\":")?;
            *connects = line.uint()?;
            if line.token(b",\"fetch_offsets\":").is_none() {
                fetch_offsets.clear();
            } else {
                line.list(fetch_offsets, empty_end, |line, end: &mut LogEnd| {
                    line.place(&mut end.topic, &mut end.partition, &mut end.offset)
                })?;
            }
        }
        Event::WireConnection {
            client,
            node,
            change,
            count,
        } => {
            line.token(b"{\"client\":")?;
            line.text(client)?;
            line.token(b",\"node\":")?;
            *node = i32::try_from(line.uint()?).ok()?;
            line.token(b",\"change\":\"")?;
            *change = line.word(&[
                (b"opened", ConnectionChange::Opened),
                (b"closed_by_client", ConnectionChange::ClosedByClient),
                (b"closed_by_broker", ConnectionChange::ClosedByBroker),
                (b"reset_by_link", ConnectionChange::ResetByLink),
                (b"turned_away", ConnectionChange::TurnedAway),
                (b"held", ConnectionChange::Held),
                (b"slowed", ConnectionChange::Slowed),
            ])?;
            line.token(b",\"count\":")?;
            *count = line.uint()?;
        }
        Event::WireCommit {
            client,
            group,
            topic,
            partition,
            offset,
            code,
        } => {
            line.token(b"{\"client\":")?;
            line.text(client)?;
            line.token(b",\"group\":")?;
            line.text(group)?;
            line.token(b",\"topic\":")?;
            line.text(topic)?;
            line.token(b",\"partition\":")?;
            *partition = line.uint32()?;
            line.token(b",\"offset\":")?;
            *offset = line.uint()?;
            line.token(b",\"code\":")?;
            *code = i16::try_from(line.uint()?).ok()?;
        }
        Event::WireGroup {
            client,
            group,
            change: GroupChange::Alive { generation },
        } => {
            line.token(b"{\"client\":")?;
            line.text(client)?;
            line.token(b",\"group\":")?;
            line.text(group)?;
            line.token(b",\"change\":{\"alive\":{\"generation\":")?;
            *generation = i32::try_from(line.uint()?).ok()?;
            line.token(b"}}")?;
        }
        _ => return None,
    }
    line.token(b"}")
}

fn reader_event(line: &mut Line<'_>, event: &mut ReaderEvent, spelled: &mut Vec<u8>) -> Option<()> {
    match event {
        ReaderEvent::Records { partitions } => {
            line.token(b"records\",\"partitions\":")?;
            line.list(partitions, empty_delivery, Line::delivered)
        }
        ReaderEvent::Heartbeat(heartbeat) => {
            line.token(b"heartbeat\",\"state\":")?;
            line.heartbeat(heartbeat)
        }
        ReaderEvent::Committed { offsets } => {
            line.token(b"committed\",\"offsets\":")?;
            line.list(offsets, empty_position, |line, position: &mut Position| {
                line.place(&mut position.topic, &mut position.partition, &mut position.offset)
            })
        }
        ReaderEvent::Error {
            origin,
            fatal,
            exception,
            count,
        } => {
            line.token(b"error\",\"origin\":\"")?;
            *origin = line.word(&[
                (b"reader", Origin::Reader),
                (b"callback", Origin::Callback),
                (b"poll", Origin::Poll),
                (b"background", Origin::Background),
                (b"log", Origin::Log),
            ])?;
            line.token(b",\"fatal\":")?;
            *fatal = line.truth()?;
            line.token(b",\"exception\":")?;
            line.exception(exception, spelled)?;
            line.token(b",\"count\":")?;
            *count = line.uint()?;
            Some(())
        }
        _ => None,
    }
}

fn no_exception() -> Exception {
    Exception {
        type_name: String::new(),
        code: None,
        attributes: BTreeMap::new(),
        message: String::new(),
        relation: None,
        children: Vec::new(),
        frames: Vec::new(),
    }
}

fn empty_end() -> LogEnd {
    LogEnd {
        topic: String::new(),
        partition: 0,
        offset: 0,
    }
}

fn empty_position() -> Position {
    Position {
        topic: String::new(),
        partition: 0,
        offset: 0,
    }
}

fn empty_delivery() -> Delivered {
    Delivered {
        topic: String::new(),
        partition: 0,
        offsets: None,
        ids: None,
        t: (0.0, 0.0),
    }
}

/// What is left of a line. Every method takes what it is named after off the front, or is `None` where something else
/// stands there; what it has filled by then is of no meaning.
#[derive(Debug, Clone, Copy)]
struct Line<'a>(&'a [u8]);

impl<'a> Line<'a> {
    #[inline(always)]
    fn token<const N: usize>(&mut self, token: &[u8; N]) -> Option<()> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        (head == token).then(|| self.0 = rest)
    }

    #[inline(always)]
    fn word<T: Copy>(&mut self, words: &[(&[u8], T)]) -> Option<T> {
        words.iter().find_map(|(word, meaning)| {
            let rest = self.0.strip_prefix(*word)?.strip_prefix(b"\"")?;
            self.0 = rest;
            Some(*meaning)
        })
    }

    /// A whole number of at most 19 digits: those cannot overflow.
    #[inline(always)]
    fn uint(&mut self) -> Option<u64> {
        let (mut value, mut digits) = (0u64, 0);
        for byte in self.0 {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                break;
            }
            value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
            digits += 1;
        }
        let leading_zero = digits > 1 && self.0.first() == Some(&b'0');
        if digits == 0 || digits > 19 || leading_zero {
            return None;
        }
        self.0 = &self.0[digits..];
        Some(value)
    }

    #[inline(always)]
    fn uint32(&mut self) -> Option<u32> {
        u32::try_from(self.uint()?).ok()
    }

    /// A number without sign and exponent. Up to 2^53 over a power of ten up to 10^22, both exact, the quotient is the
    /// nearest number there is, as any right parser has it; beyond that serde reads the line.
    fn float(&mut self) -> Option<f64> {
        const POWERS: [f64; 17] = [
            1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
        ];
        let mut value = self.uint()?;
        let mut power = 0;
        if let Some(rest) = self.0.strip_prefix(b".") {
            let digits = rest.iter().take(17).take_while(|byte| byte.is_ascii_digit());
            for digit in digits {
                value = value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
                power += 1;
            }
            if power == 0 {
                return None;
            }
            self.0 = &rest[power..];
        }
        let ended = !matches!(self.0.first(), Some(b'0'..=b'9' | b'e' | b'E' | b'.'));
        (ended && value < 1 << 53).then_some(())?;
        Some(value as f64 / POWERS.get(power)?)
    }

    fn float_or_null(&mut self) -> Option<Option<f64>> {
        match self.token(b"null") {
            Some(()) => Some(None),
            None => self.float().map(Some),
        }
    }

    fn truth(&mut self) -> Option<bool> {
        match self.token(b"true") {
            Some(()) => Some(true),
            None => self.token(b"false").map(|()| false),
        }
    }

    /// A string without escapes, of ASCII.
    #[inline(always)]
    fn quoted(&mut self) -> Option<&'a [u8]> {
        let rest = self.0.strip_prefix(b"\"")?;
        let plain = |byte: &u8| (0x20..0x80).contains(byte) && *byte != b'"' && *byte != b'\\';
        let length = rest.iter().take_while(|byte| plain(byte)).count();
        self.0 = rest[length..].strip_prefix(b"\"")?;
        Some(&rest[..length])
    }

    /// A string that mostly is what it was in the line before.
    #[inline(always)]
    fn text(&mut self, text: &mut String) -> Option<()> {
        // OK to compare raw bytes: only strings without escapes were ever put there by this reader.
        let same = self
            .0
            .strip_prefix(b"\"")
            .and_then(|rest| rest.strip_prefix(text.as_bytes()));
        if let Some(rest) = same.and_then(|rest| rest.strip_prefix(b"\"")) {
            self.0 = rest;
            return Some(());
        }
        let quoted = std::str::from_utf8(self.quoted()?).ok()?;
        text.clear();
        text.push_str(quoted);
        Some(())
    }

    /// A list whose elements are kept and filled anew.
    #[inline(always)]
    fn list<T>(
        &mut self,
        list: &mut Vec<T>,
        empty: impl Fn() -> T,
        fill: impl Fn(&mut Self, &mut T) -> Option<()>,
    ) -> Option<()> {
        self.token(b"[")?;
        if self.token(b"]").is_some() {
            list.clear();
            return Some(());
        }
        let mut length = 0;
        loop {
            if length == list.len() {
                list.push(empty());
            }
            fill(self, list.get_mut(length)?)?;
            length += 1;
            if self.token(b",").is_none() {
                list.truncate(length);
                return self.token(b"]");
            }
        }
    }

    fn runs(&mut self, runs: &mut Runs) -> Option<()> {
        self.list(
            runs.raw(),
            || [0, 0],
            |line, run| {
                line.token(b"[")?;
                run[0] = line.uint()?;
                line.token(b",")?;
                run[1] = line.uint()?;
                line.token(b"]")
            },
        )
    }

    fn place(&mut self, topic: &mut String, partition: &mut u32, offset: &mut u64) -> Option<()> {
        self.token(b"{\"topic\":")?;
        self.text(topic)?;
        self.token(b",\"partition\":")?;
        *partition = self.uint32()?;
        self.token(b",\"offset\":")?;
        *offset = self.uint()?;
        self.token(b"}")
    }

    /// An exception, by serde: without a tag it needs no detour. One that is spelled as the last was is that one.
    fn exception(&mut self, exception: &mut Exception, spelled: &mut Vec<u8>) -> Option<()> {
        let same = self.0.strip_prefix(spelled.as_slice()).filter(|_| !spelled.is_empty());
        if let Some(rest) = same.filter(|rest| rest.starts_with(b",")) {
            self.0 = rest;
            return Some(());
        }
        spelled.clear();
        let mut values = serde_json::Deserializer::from_slice(self.0).into_iter::<Exception>();
        *exception = values.next()?.ok()?;
        let (this, rest) = self.0.split_at_checked(values.byte_offset())?;
        spelled.extend_from_slice(this);
        self.0 = rest;
        Some(())
    }

    fn delivered(&mut self, delivered: &mut Delivered) -> Option<()> {
        self.token(b"{\"topic\":")?;
        self.text(&mut delivered.topic)?;
        self.token(b",\"partition\":")?;
        delivered.partition = self.uint32()?;
        match self.token(b",\"offsets\":") {
            Some(()) => self.runs(delivered.offsets.get_or_insert_default())?,
            None => delivered.offsets = None,
        }
        match self.token(b",\"ids\":") {
            Some(()) => self.runs(delivered.ids.get_or_insert_default())?,
            None => delivered.ids = None,
        }
        self.token(b",\"t\":[")?;
        delivered.t.0 = self.float()?;
        self.token(b",")?;
        delivered.t.1 = self.float()?;
        self.token(b"]}")
    }

    fn heartbeat(&mut self, heartbeat: &mut Heartbeat) -> Option<()> {
        self.text(&mut heartbeat.state)?;
        match self.token(b",\"positions\":") {
            None => heartbeat.positions = None,
            Some(()) => {
                let positions = heartbeat.positions.get_or_insert_default();
                self.list(positions, empty_position, |line, position: &mut Position| {
                    line.place(&mut position.topic, &mut position.partition, &mut position.offset)
                })?;
            }
        }
        self.token(b",\"loop_age_ms\":")?;
        heartbeat.loop_age_ms = self.float_or_null()?;
        heartbeat.last_poll_age_ms = match self.token(b",\"last_poll_age_ms\":") {
            Some(()) => self.float_or_null()?,
            None => None,
        };
        heartbeat.last_commit_age_ms = match self.token(b",\"last_commit_age_ms\":") {
            Some(()) => self.float_or_null()?,
            None => None,
        };
        self.token(b",\"claims\":{")?;
        let claims = &mut heartbeat.claims;
        (claims.caught_up, claims.healthy, claims.lag) = (None, None, None);
        let mut first = true;
        if self.token(b"\"caught_up\":").is_some() {
            claims.caught_up = Some(self.truth()?);
            first = false;
        }
        if self.after(&mut first, b"\"healthy\":")? {
            claims.healthy = Some(self.truth()?);
        }
        if self.after(&mut first, b"\"lag\":")? {
            claims.lag = Some(self.uint()?);
        }
        self.token(b"}")?;
        match self.token(b",\"counters\":") {
            Some(()) => self.counters(&mut heartbeat.counters),
            None => {
                heartbeat.counters.clear();
                Some(())
            }
        }
    }

    /// Whether this key comes next, after a comma unless it is the first; `None` where a comma has another key behind it.
    fn after<const N: usize>(&mut self, first: &mut bool, key: &[u8; N]) -> Option<bool> {
        let before = *self;
        if !*first && self.token(b",").is_none() {
            return Some(false);
        }
        if self.token(key).is_none() {
            *self = before;
            return Some(false);
        }
        *first = false;
        Some(true)
    }

    fn counts(&mut self, counts: &mut BTreeMap<String, u64>) -> Option<()> {
        self.map(counts, Self::uint)
    }

    fn counters(&mut self, counters: &mut BTreeMap<String, f64>) -> Option<()> {
        self.map(counters, Self::float)
    }

    /// A map whose keys mostly are those of the line before: values are then put in their places.
    fn map<T: Copy>(&mut self, map: &mut BTreeMap<String, T>, value: impl Fn(&mut Self) -> Option<T>) -> Option<()> {
        let mut ahead = *self;
        if let Some(()) = ahead.same_keys(map, &value) {
            *self = ahead;
            return Some(());
        }
        map.clear();
        self.token(b"{")?;
        if self.token(b"}").is_some() {
            return Some(());
        }
        loop {
            let key = std::str::from_utf8(self.quoted()?).ok()?;
            self.token(b":")?;
            map.insert(key.to_owned(), value(self)?);
            if self.token(b",").is_none() {
                return self.token(b"}");
            }
        }
    }

    fn same_keys<T>(&mut self, map: &mut BTreeMap<String, T>, value: &impl Fn(&mut Self) -> Option<T>) -> Option<()> {
        self.token(b"{")?;
        let mut first = true;
        for (key, old) in map.iter_mut() {
            if !std::mem::take(&mut first) {
                self.token(b",")?;
            }
            let rest = self.0.strip_prefix(b"\"")?.strip_prefix(key.as_bytes())?;
            self.0 = rest.strip_prefix(b"\":")?;
            *old = value(self)?;
        }
        self.token(b"}")
    }

    /// The kind of a reader's line, which stands behind its member and incarnation.
    fn reader_kind(mut self) -> Option<Kind> {
        self.token(b"{\"member\":")?;
        self.quoted()?;
        self.token(b",\"inc\":")?;
        self.uint()?;
        self.token(b",\"reader_us\":")?;
        self.uint()?;
        self.token(b",\"event\":{\"type\":\"")?;
        let word = [
            (&b"records"[..], Kind::Records),
            (b"heartbeat", Kind::Heartbeat),
            (b"committed", Kind::Committed),
            (b"error", Kind::Error),
        ];
        self.word(&word)
    }
}
#[cfg(test)]
mod tests;
