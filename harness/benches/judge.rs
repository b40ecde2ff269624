//! What judging costs: reading a stored history, folding it into facts, judging, and reporting.
//!
//! The reference history is made here, the same on every machine: the lines of a long run in the mix that the histories
//! of 35 real runs had (19 scenarios, reference-table and reference-group, one-off lines left out), with an outage every
//! ten minutes. Time is the CPU time of the one thread that judges; memory is the peak above what was there before.
//!
//! `cargo bench --bench judge -- --write BENCHMARKS.md` puts the figures there.
#![expect(clippy::unwrap_used, reason = "a bench may panic")]
#![expect(clippy::print_stdout, reason = "a bench prints")]
#![expect(clippy::disallowed_methods, reason = "a bench tells its date")]

#[expect(dead_code, reason = "some of it is for link_peers")]
#[path = "lab/table.rs"]
mod table;

use std::hint::black_box;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use brokerfall::history::facts::Facts;
use brokerfall::verdict;
use brokerfall_report::history::EntryReader;
use nix::time::{ClockId, clock_gettime};

use table::{Series, Table, Target, machine, publish, targets};

/// Samples of each figure.
const SAMPLES: usize = 10;

/// The CPU time of this thread, what the kernel does for it included: judging is one thread's work, and a machine that is
/// busy with something else makes it no dearer.
fn cpu_time() -> Duration {
    Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap())
}

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
        writeln!(self.out, "{{\"n\":{},\"at_us\":{},\"event\":{event}}}", self.n, self.us).unwrap();
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

/// Writes the reference history, of this many lines, with an outage every so many.
fn write(path: &Path, lines: u64, outage_every: u64) {
    let mut history = History {
        out: BufWriter::new(std::fs::File::create(path).unwrap()),
        n: 0,
        us: 0,
        logs: Default::default(),
        random: 1,
        cpu_ms: 0,
    };
    let opened: serde_json::Value = serde_json::from_str(OPENED.lines().next().unwrap()).unwrap();
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
        let into = history.n % outage_every;
        let outage = (outage_every / 2..outage_every / 2 + OUTAGE_LINES).contains(&into);
        if into == outage_every / 2 {
            history.line(format_args!(
                "{}",
                r#"{"injecting":{"fault":"cut","kind":"partition","text":"nothing gets through","emulated":false}}"#
            ));
            history.line(format_args!("{}", r#"{"injected":{"fault":"cut","proof":"held"}}"#));
        }
        if into == outage_every / 2 + OUTAGE_LINES {
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
        history.frequent(kind.unwrap().0, outage);
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
    history.out.flush().unwrap();
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
    black_box(verdict::judge_file(path).unwrap());
    Some(memory_kib("VmHWM:")?.saturating_sub(before))
}

/// Milliseconds of CPU, sample by sample; what comes of the work is dropped outside of them.
fn sampled<T>(mut work: impl FnMut() -> T) -> Series {
    let mut series = Series::default();
    for _ in 0..SAMPLES {
        let start = cpu_time();
        let result = black_box(work());
        series.0.push((cpu_time() - start).as_secs_f64() * 1e3);
        drop(result);
    }
    series
}

fn main() {
    let folder = tempfile::tempdir().unwrap();
    // What a longer run adds, and what its outages do.
    let histories = [
        ("a tenth of it", LINES / 10, OUTAGE_EVERY),
        ("all of it, an outage in 100 minutes", LINES, 10 * OUTAGE_EVERY),
        ("all of it", LINES, OUTAGE_EVERY),
    ];
    let mut memory = Table::new(&["history", "lines", "MB", "peak MiB"]);
    let paths = histories.map(|(name, lines, outage_every)| {
        let path = folder.path().join(format!("{lines}-{outage_every}.jsonl"));
        write(&path, lines, outage_every);
        let megabytes = std::fs::metadata(&path).unwrap().len() as f64 / 1e6;
        let peak = peak_kib(&path).map_or("not known here".to_owned(), |kib| format!("{:.1}", kib as f64 / 1024.0));
        memory.row(&[name.into(), lines.to_string(), format!("{megabytes:.0}"), peak]);
        path
    });
    let mut lists = Table::new(&["what is kept", "of a tenth", "of all", "KiB of all"]);
    let [tenth, all] = [&paths[0], &paths[2]].map(|path| verdict::read_facts(path).unwrap().kept());
    for kept in all.iter().filter(|kept| kept.entries > 0) {
        let before = tenth.iter().find(|before| before.what == kept.what);
        lists.row(&[
            kept.what.into(),
            before.map_or(0, |before| before.entries).to_string(),
            kept.entries.to_string(),
            (kept.bytes / 1024).to_string(),
        ]);
    }

    let text = std::fs::read(&paths[0]).unwrap();
    let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    let entries: Vec<_> = {
        let mut reader = EntryReader::default();
        lines.iter().map(|line| reader.read(line).unwrap().clone()).collect()
    };
    let mut reader = EntryReader::default();
    let figures = [
        (
            "judge a stored history: read, take apart, fold, judge",
            LINES,
            sampled(|| verdict::judge_file(&paths[2]).unwrap()),
        ),
        (
            "judge and report it in the same pass",
            LINES,
            sampled(|| verdict::report_file(&paths[2]).unwrap()),
        ),
        (
            "lines to entries alone, in memory",
            LINES / 10,
            sampled(|| {
                for line in &lines {
                    black_box(reader.read(line).unwrap());
                }
            }),
        ),
        (
            "entries to facts alone",
            LINES / 10,
            sampled(|| {
                let mut facts = Facts::default();
                entries.iter().for_each(|entry| facts.observe(entry));
                facts
            }),
        ),
    ];
    let mut times = Table::new(&["what", "lines", "ms", "lines a second"]);
    let pace = |lines: u64, series: &Series| lines as f64 / series.median() * 1e3;
    for (what, lines, series) in &figures {
        let per_second = format!("{:.0}", pace(*lines, series));
        times.row(&[(*what).into(), lines.to_string(), series.spread(1), per_second]);
    }
    let targets = targets(&[Target::at_least(
        "lines judged a second",
        2_500_000.0,
        pace(figures[0].1, &figures[0].2),
    )]);
    publish(
        "judges",
        &format!(
            "{} {SAMPLES} samples; least / **median** / most.\n\n{targets}\n{}\n{}\n{}",
            machine(),
            times.text(),
            memory.text(),
            lists.text()
        ),
    );
}
