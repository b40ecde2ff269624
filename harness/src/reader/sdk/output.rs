//! What goes out: one writer for every line, so that `seq`, clock and order agree whichever thread reports.
//!
//! Records are batched as runs and go out before any other event, so that no event overtakes a record that came before it.
//! Equal errors are counted here, because a library that fails a thousand times a second must not flood the history.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use brokerfall_report::exception::{Exception, Origin};
use brokerfall_report::protocol::{Delivered, Line, PROTOCOL, ReaderEvent};
use brokerfall_report::runs::Runs;

/// Pending records go out at this age, milliseconds.
const FLUSH_AFTER_MS: f64 = 100.0;
/// Pending records go out when there are this many.
const FLUSH_RECORDS: u64 = 10_000;
/// Pending records go out when their offsets and ids need this many runs.
const FLUSH_RUNS: usize = 500;
/// An error that was sent is counted for this long before it is sent again, milliseconds.
const ERROR_EVERY_MS: f64 = 1_000.0;
/// Distinct errors remembered; above it those that owe no count are forgotten.
const ERRORS_REMEMBERED: usize = 512;

/// Writes lines, batches records and counts equal errors. Callers hold a lock around it and pass the clock in.
pub(super) struct Output {
    sink: Box<dyn Write + Send>,
    seq: u64,
    /// Events of any other incarnation are dropped: its object is closed and speaks for nobody.
    inc: u32,
    /// Whether this incarnation has said that it ended.
    ended: bool,
    batch: Vec<Pending>,
    batched: u64,
    batch_since_ms: f64,
    errors: BTreeMap<ErrorKey, ErrorCount>,
}

struct Pending {
    topic: Arc<str>,
    partition: u32,
    offsets: Runs,
    /// Absent where the records hold no id of ours.
    ids: Option<Runs>,
    t: (f64, f64),
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ErrorKey {
    origin: Origin,
    type_name: String,
    code: Option<i64>,
    masked: String,
}

struct ErrorCount {
    sent_ms: f64,
    owed: u64,
    exception: Box<Exception>,
}

impl Output {
    pub(super) fn new(sink: Box<dyn Write + Send>) -> Self {
        Self {
            sink,
            seq: 0,
            inc: 0,
            ended: false,
            batch: Vec::new(),
            batched: 0,
            batch_since_ms: 0.0,
            errors: BTreeMap::new(),
        }
    }

    pub(super) fn inc(&self) -> u32 {
        self.inc
    }

    /// Begins a new incarnation: what the old one has read goes out, what it still says is dropped.
    pub(super) fn next_inc(&mut self, now_ms: f64) -> std::io::Result<u32> {
        self.flush(now_ms)?;
        self.settle_errors(now_ms, true)?;
        self.errors.clear();
        self.ended = false;
        self.inc += 1;
        Ok(self.inc)
    }

    pub(super) fn record(
        &mut self,
        now_ms: f64,
        topic: &Arc<str>,
        partition: u32,
        offset: u64,
        id: Option<u64>,
    ) -> std::io::Result<()> {
        if self.batch.is_empty() {
            self.batch_since_ms = now_ms;
        }
        let at = self
            .batch
            .iter()
            .position(|p| p.partition == partition && p.topic == *topic);
        let at = match at {
            // Ids must stay in step with offsets, so a record without an id begins an entry of its own.
            Some(at) if self.batch[at].ids.is_some() == id.is_some() => at,
            Some(_) => {
                self.flush(now_ms)?;
                return self.record(now_ms, topic, partition, offset, id);
            }
            None => {
                self.batch.push(Pending {
                    topic: topic.clone(),
                    partition,
                    offsets: Runs::default(),
                    ids: id.map(|_| Runs::default()),
                    t: (now_ms, now_ms),
                });
                self.batch.len() - 1
            }
        };
        let pending = &mut self.batch[at];
        pending.offsets.push(offset);
        if let (Some(ids), Some(id)) = (pending.ids.as_mut(), id) {
            ids.push(id);
        }
        pending.t.1 = now_ms;
        self.batched += 1;
        let runs = pending.offsets.as_slice().len() + pending.ids.as_ref().map_or(0, |ids| ids.as_slice().len());
        if self.batched >= FLUSH_RECORDS || runs >= FLUSH_RUNS {
            self.flush(now_ms)?;
        }
        Ok(())
    }

    /// Sends what is due by now: records that have waited long enough and counts of errors.
    pub(super) fn tick(&mut self, now_ms: f64) -> std::io::Result<()> {
        if !self.batch.is_empty() && now_ms - self.batch_since_ms >= FLUSH_AFTER_MS {
            self.flush(now_ms)?;
        }
        self.settle_errors(now_ms, false)
    }

    /// Sends the records that wait.
    pub(super) fn flush(&mut self, now_ms: f64) -> std::io::Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        self.batched = 0;
        let partitions = std::mem::take(&mut self.batch)
            .into_iter()
            .map(|pending| Delivered {
                topic: pending.topic.to_string(),
                partition: pending.partition,
                offsets: Some(pending.offsets),
                ids: pending.ids,
                t: pending.t,
            })
            .collect();
        self.write(now_ms, ReaderEvent::Records { partitions })
    }

    pub(super) fn event(&mut self, now_ms: f64, event: ReaderEvent) -> std::io::Result<()> {
        self.flush(now_ms)?;
        self.write(now_ms, event)
    }

    /// Says that the reader has ended, once per incarnation: what ended it first is what ended it.
    pub(super) fn stopped(
        &mut self,
        now_ms: f64,
        reason: &str,
        exception: Option<Box<Exception>>,
    ) -> std::io::Result<()> {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(());
        }
        self.settle_errors(now_ms, true)?;
        self.event(
            now_ms,
            ReaderEvent::Stopped {
                reason: reason.to_owned(),
                exception: exception.map(|exception| *exception),
            },
        )
    }

    /// Sends an error, or counts it when an equal one was sent within the last second. A fatal one is always sent.
    pub(super) fn error(
        &mut self,
        now_ms: f64,
        origin: Origin,
        fatal: bool,
        exception: Box<Exception>,
    ) -> std::io::Result<()> {
        let key = ErrorKey {
            origin,
            type_name: exception.type_name.clone(),
            code: exception.code.as_ref().map(|code| code.value),
            masked: mask(&exception.message),
        };
        let mut count = 1;
        if !fatal {
            if let Some(known) = self.errors.get_mut(&key) {
                if now_ms - known.sent_ms < ERROR_EVERY_MS {
                    known.owed += 1;
                    known.exception = exception;
                    return Ok(());
                }
                count += known.owed;
            }
            if self.errors.len() >= ERRORS_REMEMBERED {
                self.errors.retain(|_, known| known.owed > 0);
            }
            self.errors.insert(
                key,
                ErrorCount {
                    sent_ms: now_ms,
                    owed: 0,
                    exception: exception.clone(),
                },
            );
        }
        self.event(
            now_ms,
            ReaderEvent::Error {
                origin,
                fatal,
                exception: *exception,
                count,
            },
        )
    }

    /// Sends the counts that are due, or all of them.
    pub(super) fn settle_errors(&mut self, now_ms: f64, all: bool) -> std::io::Result<()> {
        let due: Vec<_> = self
            .errors
            .iter_mut()
            .filter(|(_, known)| known.owed > 0 && (all || now_ms - known.sent_ms >= ERROR_EVERY_MS))
            .map(|(key, known)| {
                known.sent_ms = now_ms;
                ReaderEvent::Error {
                    origin: key.origin,
                    fatal: false,
                    exception: (*known.exception).clone(),
                    count: std::mem::take(&mut known.owed),
                }
            })
            .collect();
        due.into_iter().try_for_each(|event| self.event(now_ms, event))
    }

    fn write(&mut self, now_ms: f64, event: ReaderEvent) -> std::io::Result<()> {
        self.seq += 1;
        let line = Line {
            v: PROTOCOL,
            seq: self.seq,
            inc: self.inc,
            mono_ms: now_ms,
            event,
        };
        let mut bytes = serde_json::to_vec(&line)?;
        bytes.push(b'\n');
        // One write for the whole line: a process killed in between must not leave half a line behind for long.
        self.sink.write_all(&bytes)?;
        self.sink.flush()
    }
}

/// The message with everything that varies between equal errors (numbers, addresses, ports) replaced by `#`.
pub(super) fn mask(message: &str) -> String {
    let mut masked = String::with_capacity(message.len());
    for c in message.chars() {
        if !c.is_ascii_digit() {
            masked.push(c);
        } else if !masked.ends_with('#') {
            masked.push('#');
        }
    }
    masked
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Sink {
        fn lines(&self) -> Vec<Line> {
            let bytes = self.0.lock().unwrap();
            let text = std::str::from_utf8(&bytes).unwrap();
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        }
    }

    fn output() -> (Output, Sink) {
        let sink = Sink::default();
        (Output::new(Box::new(sink.clone())), sink)
    }

    fn failure(message: &str) -> Box<Exception> {
        super::super::exceptions::plain("x::Failure", message)
    }

    fn delivered(line: &Line) -> &[Delivered] {
        match &line.event {
            ReaderEvent::Records { partitions } => partitions,
            other => panic!("records expected, not {other:?}"),
        }
    }

    #[test]
    fn records_wait_100_ms_and_then_go_out_as_runs_per_partition() {
        let (mut output, sink) = output();
        let topic: Arc<str> = "orders".into();
        for (at, partition, offset) in [(0.0, 0, 5), (1.0, 1, 9), (2.0, 0, 6), (3.0, 0, 9)] {
            output.record(at, &topic, partition, offset, Some(offset + 1)).unwrap();
        }
        output.tick(99.0).unwrap();
        assert!(sink.lines().is_empty());
        output.tick(100.0).unwrap();
        let lines = sink.lines();
        assert_eq!(lines.len(), 1);
        let parts = delivered(&lines[0]);
        assert_eq!(parts[0].offsets.as_ref().unwrap().as_slice(), [[5, 6], [9, 9]]);
        assert_eq!(parts[0].ids.as_ref().unwrap().as_slice(), [[6, 7], [10, 10]]);
        assert_eq!(parts[0].t, (0.0, 3.0));
        assert_eq!(parts[1].offsets.as_ref().unwrap().as_slice(), [[9, 9]]);
    }

    #[test]
    fn ten_thousand_records_go_out_without_waiting() {
        let (mut output, sink) = output();
        let topic: Arc<str> = "orders".into();
        for offset in 0..9_999 {
            output.record(0.0, &topic, 0, offset, Some(offset + 1)).unwrap();
        }
        assert!(sink.lines().is_empty());
        output.record(0.0, &topic, 0, 9_999, Some(10_000)).unwrap();
        assert_eq!(delivered(&sink.lines()[0])[0].offsets, Some(Runs::one(0, 9_999)));
    }

    #[test]
    fn five_hundred_runs_go_out_without_waiting() {
        let (mut output, sink) = output();
        let topic: Arc<str> = "orders".into();
        for n in 0..250 {
            assert!(sink.lines().is_empty());
            output.record(0.0, &topic, 0, n * 2, Some(n * 2 + 1)).unwrap();
        }
        let lines = sink.lines();
        assert_eq!(lines.len(), 1);
        assert_eq!(delivered(&lines[0])[0].offsets.as_ref().unwrap().as_slice().len(), 250);
    }

    #[test]
    fn any_other_event_is_overtaken_by_the_records_before_it() {
        let (mut output, sink) = output();
        output.record(0.0, &"orders".into(), 0, 1, Some(1)).unwrap();
        output.event(1.0, ReaderEvent::CaughtUp).unwrap();
        let lines = sink.lines();
        delivered(&lines[0]);
        assert_eq!(lines[1].event, ReaderEvent::CaughtUp);
        assert_eq!([lines[0].seq, lines[1].seq], [1, 2]);
    }

    #[test]
    fn record_without_an_id_goes_out_in_an_entry_without_ids() {
        let (mut output, sink) = output();
        let topic: Arc<str> = "orders".into();
        output.record(0.0, &topic, 0, 1, Some(7)).unwrap();
        output.record(0.0, &topic, 0, 2, None).unwrap();
        output.flush(0.0).unwrap();
        let lines = sink.lines();
        assert_eq!(delivered(&lines[0])[0].ids, Some(Runs::one(7, 7)));
        assert_eq!(delivered(&lines[1])[0].offsets, Some(Runs::one(2, 2)));
        assert_eq!(delivered(&lines[1])[0].ids, None);
    }

    #[test]
    fn equal_errors_are_sent_once_and_then_counted_once_a_second() {
        let (mut output, sink) = output();
        for n in 0..100 {
            let text = format!("connect to 127.0.0.1:{} refused", 9000 + n);
            output.error(f64::from(n), Origin::Poll, false, failure(&text)).unwrap();
        }
        assert_eq!(sink.lines().len(), 1);
        output.tick(999.0).unwrap();
        assert_eq!(sink.lines().len(), 1);
        output.tick(1_000.0).unwrap();
        output.tick(3_000.0).unwrap();
        let counts: Vec<u64> = sink
            .lines()
            .iter()
            .map(|line| match line.event {
                ReaderEvent::Error { count, .. } => count,
                _ => 0,
            })
            .collect();
        assert_eq!(counts, [1, 99]);
    }

    #[test]
    fn fatal_error_is_never_swallowed_by_an_equal_one() {
        let (mut output, sink) = output();
        output.error(0.0, Origin::Poll, false, failure("no")).unwrap();
        output.error(1.0, Origin::Poll, true, failure("no")).unwrap();
        output.error(2.0, Origin::Callback, false, failure("no")).unwrap();
        assert_eq!(sink.lines().len(), 3);
    }

    #[test]
    fn new_incarnation_settles_what_the_old_one_owed() {
        let (mut output, sink) = output();
        output.error(0.0, Origin::Poll, false, failure("no")).unwrap();
        output.error(1.0, Origin::Poll, false, failure("no")).unwrap();
        assert_eq!(output.next_inc(2.0).unwrap(), 1);
        output.event(3.0, ReaderEvent::Started).unwrap();
        let incs: Vec<u32> = sink.lines().iter().map(|line| line.inc).collect();
        assert_eq!(incs, [0, 0, 1]);
    }
}
