//! What judging costs: reading a stored history, folding it into facts, judging, and reporting.
//!
//! The reference history is made here, the same on every machine: the lines of a long run in the mix that the histories
//! of 35 real runs had (19 scenarios, reference-table and reference-group, one-off lines left out), with an outage every
//! ten minutes. Peak memory is printed first, for a tenth of it and for all of it.

use std::hint::black_box;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use brokerfall::history::facts::Facts;
use brokerfall::verdict;
use brokerfall_report::history::EntryReader;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// Lines of the reference history.
const LINES: u64 = 1_000_000;

/// Frequent kinds and their share of the lines of real histories, in ten thousandths.
const MIX: [(Kind, u64); 11] = [
    (Kind::Produced, 5_950),
    (Kind::Heartbeat, 825),
    (Kind::Sample, 790),
    (Kind::Connection, 545),
    (Kind::Wire, 485),
    (Kind::Records, 470),
    (Kind::Watermarks, 240),
    (Kind::Commit, 200),
    (Kind::Error, 175),
    (Kind::Group, 200),
    (Kind::Committed, 120),
];

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Produced,
    Heartbeat,
    Sample,
    Connection,
    Wire,
    Records,
    Watermarks,
    Commit,
    Error,
    Group,
    Committed,
}

/// Microseconds between two lines: 47 lines a second, as real runs with one reader and a load of 25 records a second.
const STEP_US: u64 = 21_000;
const PARTITIONS: u64 = 3;
const OUTAGE_EVERY: u64 = 28_000;
const OUTAGE_LINES: u64 = 470;

/// The opening of a stored history of a real run.
const OPENED: &str = include_str!("../../reports/tests/fixtures/history-v1.jsonl");

/// What stands in one partition.
#[derive(Clone, Copy, Default)]
struct Log {
    written: u64,
    delivered: u64,
}

struct History<W: Write> {
    out: W,
    n: u64,
    us: u64,
    logs: [Log; PARTITIONS as usize],
    /// Of a linear congruential generator: the same lines everywhere.
    random: u64,
    cpu_ms: u64,
}

impl<W: Write> History<W> {
    fn line(&mut self, event: std::fmt::Arguments<'_>) {
        writeln!(self.out, "{{\"n\":{},\"at_us\":{},\"event\":{event}}}", self.n, self.us).expect("written");
        self.n += 1;
        self.us += STEP_US;
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) % below
    }

    fn reader(&mut self, event: std::fmt::Arguments<'_>) {
        let us = self.us - 140;
        self.line(format_args!(
            "{{\"reader\":{{\"member\":\"r1\",\"inc\":1,\"reader_us\":{us},\"event\":{event}}}}}"
        ));
    }

    /// One frequent line. During an outage nothing is delivered or committed.
    fn frequent(&mut self, kind: Kind, outage: bool) {
        let partition = self.random(PARTITIONS);
        let log = self.logs[partition as usize];
        let ms = self.us as f64 / 1e3;
        match kind {
            Kind::Produced => {
                let (id, offset) = (log.written + 1, log.written);
                self.logs[partition as usize].written += 1;
                self.line(format_args!(
                    "{{\"produced\":{{\"topic\":\"orders\",\"partition\":{partition},\"ids\":[[{id},{id}]],\"offsets\":[[{offset},{offset}]],\"outcome\":\"acked\"}}}}"
                ));
            }
            Kind::Records if !outage => {
                // A flush hands out what came in each partition since the last one.
                let mut parts = Vec::new();
                for (partition, log) in self.logs.iter_mut().enumerate() {
                    if log.written > log.delivered {
                        let (a, b) = (log.delivered, log.written - 1);
                        parts.push(format!(
                            "{{\"topic\":\"orders\",\"partition\":{partition},\"offsets\":[[{a},{b}]],\"ids\":[[{},{}]],\"t\":[{:.3},{ms:.3}]}}",
                            a + 1, b + 1, ms - 90.0
                        ));
                        log.delivered = log.written;
                    }
                }
                self.reader(format_args!("{{\"type\":\"records\",\"partitions\":[{}]}}", parts.join(",")));
            }
            Kind::Committed if !outage => {
                let offset = log.delivered;
                self.reader(format_args!(
                    "{{\"type\":\"committed\",\"offsets\":[{{\"topic\":\"orders\",\"partition\":{partition},\"offset\":{offset}}}]}}"
                ));
            }
            Kind::Commit if !outage => {
                let offset = log.delivered;
                self.line(format_args!(
                    "{{\"wire_commit\":{{\"client\":\"r1\",\"group\":\"brokerfall\",\"topic\":\"orders\",\"partition\":{partition},\"offset\":{offset},\"code\":0}}}}"
                ));
            }
            Kind::Heartbeat | Kind::Records | Kind::Committed | Kind::Commit => {
                let positions: Vec<String> = self
                    .logs
                    .iter()
                    .enumerate()
                    .map(|(p, log)| format!("{{\"topic\":\"orders\",\"partition\":{p},\"offset\":{}}}", log.delivered))
                    .collect();
                let lag: u64 = self.logs.iter().map(|log| log.written - log.delivered).sum();
                let age = self.random(9_000) as f64 / 1e3;
                self.reader(format_args!(
                    "{{\"type\":\"heartbeat\",\"state\":\"caught_up\",\"positions\":[{}],\"loop_age_ms\":{age:.3},\"claims\":{{\"caught_up\":true,\"healthy\":true,\"lag\":{lag}}},\"counters\":{{\"callback_errors\":0.0}}}}",
                    positions.join(",")
                ));
            }
            Kind::Sample => {
                self.cpu_ms += self.random(9);
                let (cpu, rss) = (self.cpu_ms, 19_000 + self.random(900));
                self.line(format_args!(
                    "{{\"sample\":{{\"member\":\"r1\",\"cpu_ms\":{cpu},\"rss_kib\":{rss},\"descriptors\":14,\"processes\":1}}}}"
                ));
            }
            Kind::Connection => {
                let change = if outage { "reset_by_link" } else { "opened" };
                self.line(format_args!(
                    "{{\"wire_connection\":{{\"client\":\"r1\",\"node\":1,\"change\":\"{change}\",\"count\":1}}}}"
                ));
            }
            Kind::Wire => {
                let (fetches, offset) = (self.random(20) + 1, log.delivered);
                self.line(format_args!(
                    "{{\"wire\":{{\"client\":\"r1\",\"span_us\":250170,\"requests\":{{\"Fetch\":{fetches},\"Heartbeat\":1,\"Metadata\":1}},\"connects\":0,\"fetch_offsets\":[{{\"topic\":\"orders\",\"partition\":{partition},\"offset\":{offset}}}]}}}}"
                ));
            }
            Kind::Watermarks => {
                let end = log.written;
                self.line(format_args!(
                    "{{\"watermarks\":{{\"topic\":\"orders\",\"partition\":{partition},\"log_start\":0,\"log_end\":{end}}}}}"
                ));
            }
            Kind::Error => self.reader(format_args!(
                "{{\"type\":\"error\",\"origin\":\"poll\",\"fatal\":false,\"exception\":{{\"type\":\"rdkafka::error::KafkaError::MessageConsumption\",\"code\":{{\"value\":-187,\"name\":\"AllBrokersDown\"}},\"attributes\":{{\"reason\":\"1/1 brokers are down\"}},\"message\":\"Message consumption error: AllBrokersDown (Local: All broker connections are down)\",\"children\":[{{\"type\":\"rdkafka::types::RDKafkaErrorCode\",\"code\":{{\"value\":-187,\"name\":\"AllBrokersDown\"}},\"message\":\"AllBrokersDown\",\"relation\":\"cause\"}}]}},\"count\":1}}"
            )),
            Kind::Group => self.line(format_args!(
                "{{\"wire_group\":{{\"client\":\"r1\",\"group\":\"brokerfall\",\"change\":{{\"alive\":{{\"generation\":2}}}}}}}}"
            )),
        }
    }
}

/// Writes the reference history, of this many lines.
fn write(path: &Path, lines: u64) {
    let mut history = History {
        out: BufWriter::new(std::fs::File::create(path).expect("the folder can be written")),
        n: 0,
        us: 0,
        logs: Default::default(),
        random: 1,
        cpu_ms: 0,
    };
    let opened: serde_json::Value = serde_json::from_str(OPENED.lines().next().expect("a line")).expect("an entry");
    let mut opened = opened["event"].clone();
    opened["opened"]["topics"][0]["name"] = "orders".into();
    opened["opened"]["topics"][0]["partitions"] = PARTITIONS.into();
    opened["opened"]["reader"]["kind"] = "group".into();
    opened["opened"]["faults"] = serde_json::json!([{"name": "cut", "kind": "partition", "grade": "injected"}]);
    opened["opened"]["expect"]["named"] = serde_json::json!([]);
    history.line(format_args!("{opened}"));
    history.line(format_args!("{}", r#"{"stage":"preparing"}"#));
    history.line(format_args!(
        "{}",
        r#"{"spawned":{"member":"r1","pid":4711,"command":["reader"]}}"#
    ));
    history.line(format_args!(
        "{}",
        r#"{"asked":{"member":"r1","id":1,"command":"start","within_ms":30000}}"#
    ));
    history.reader(format_args!("{}", r#"{"type":"hello","protocol":1,"library":"lib 1","client":"client 2","runtime":"rt 3","kinds":["group"],"capabilities":["records.offsets","records.ids"]}"#));
    history.reader(format_args!("{}", r#"{"type":"started"}"#));
    history.line(format_args!(
        "{}",
        r#"{"wire_group":{"client":"r1","group":"brokerfall","change":{"synced":{"generation":2,"owns":[{"topic":"orders","partition":0},{"topic":"orders","partition":1},{"topic":"orders","partition":2}]}}}}"#
    ));
    while history.n + 24 < lines {
        let into = history.n % OUTAGE_EVERY;
        let outage = into >= OUTAGE_EVERY / 2 && into < OUTAGE_EVERY / 2 + OUTAGE_LINES;
        if into == OUTAGE_EVERY / 2 {
            history.line(format_args!(
                "{}",
                r#"{"injecting":{"fault":"cut","kind":"partition","text":"nothing gets through","emulated":false}}"#
            ));
            history.line(format_args!("{}", r#"{"injected":{"fault":"cut","proof":"held"}}"#));
        }
        if into == OUTAGE_EVERY / 2 + OUTAGE_LINES {
            history.line(format_args!("{}", r#"{"healing":{"fault":"cut"}}"#));
            history.line(format_args!("{}", r#"{"healed":{"fault":"cut","proof":"flows"}}"#));
        }
        let mut at = history.random(10_000);
        let kind = MIX.iter().find(|(_, share)| match at < *share {
            true => true,
            false => {
                at -= share;
                false
            }
        });
        history.frequent(kind.expect("the shares add up").0, outage);
    }
    history.frequent(Kind::Records, false);
    history.line(format_args!("{}", r#"{"stage":"stopping"}"#));
    history.line(format_args!("{}", r#"{"stage":"closing"}"#));
    for partition in 0..PARTITIONS {
        let end = history.logs[partition as usize].written;
        history.line(format_args!(
            "{{\"scanned\":{{\"topic\":\"orders\",\"partition\":{partition},\"from\":0,\"to\":{end},\"ids\":[[1,{end}]],\"offsets\":[[0,{}]]}}}}",
            end - 1
        ));
    }
    history.line(format_args!("{}", r#""closed""#));
    history.out.flush().expect("written");
}

/// A number of `/proc/self/status`, KiB; nothing on systems without it.
fn memory_kib(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// How much memory judging a history takes at its peak, KiB, above what was there before.
fn peak_kib(path: &Path) -> Option<u64> {
    // Resets the peak to what is in use now.
    std::fs::write("/proc/self/clear_refs", "5").ok()?;
    let before = memory_kib("VmRSS:")?;
    black_box(verdict::judge_file(path).expect("a history"));
    Some(memory_kib("VmHWM:")?.saturating_sub(before))
}

fn judging(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |lines: u64| -> PathBuf { folder.path().join(format!("{lines}.jsonl")) };
    for lines in [LINES / 10, LINES] {
        write(&path(lines), lines);
        let bytes = std::fs::metadata(path(lines)).expect("it was written").len();
        let peak = peak_kib(&path(lines)).map_or("not known here".to_owned(), |kib| format!("{kib} KiB"));
        let judgement = verdict::judge_file(&path(lines)).expect("a history");
        println!(
            "{lines} lines of {:.0} B: peak memory {peak}; {} ({})",
            bytes as f64 / lines as f64,
            judgement.verdict.name(),
            judgement.cause
        );
    }
    let text = std::fs::read(path(LINES / 10)).expect("it was written");
    let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    let entries: Vec<_> = {
        let mut reader = EntryReader::default();
        lines
            .iter()
            .map(|line| reader.read(line).expect("an entry").clone())
            .collect()
    };

    let mut group = criterion.benchmark_group("judge");
    group.sample_size(10);
    group.throughput(Throughput::Elements(LINES));
    group.bench_function("stored history, 1,000,000 lines", |bench| {
        bench.iter(|| verdict::judge_file(&path(LINES)).expect("a history"));
    });
    group.bench_function("stored history with its report, 1,000,000 lines", |bench| {
        bench.iter(|| verdict::report_file(&path(LINES)).expect("a history"));
    });
    group.throughput(Throughput::Elements(LINES / 10));
    group.bench_function("lines to entries, 100,000", |bench| {
        let mut reader = EntryReader::default();
        bench.iter(|| {
            for line in &lines {
                black_box(reader.read(line).expect("an entry"));
            }
        });
    });
    group.bench_function("entries to facts, 100,000", |bench| {
        bench.iter(|| {
            let mut facts = Facts::default();
            for entry in &entries {
                facts.observe(entry);
            }
            facts
        });
    });
    group.finish();
}

criterion_group!(benches, judging);
criterion_main!(benches);
