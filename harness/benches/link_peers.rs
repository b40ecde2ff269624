//! The link beside Toxiproxy, a plain copy and no proxy at all: all paths in turn, round by round, so that a ratio compares
//! what ran within the same second.
//!
//! `cargo bench --bench link_peers -- --write BENCHMARKS.md` puts the figures there.
#![expect(clippy::unwrap_used, reason = "a bench may panic")]
#![expect(clippy::print_stdout, reason = "a bench prints")]
#![expect(clippy::disallowed_methods, reason = "a bench measures time")]

mod lab;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use lab::kafka::{self, Broker, Log};
use lab::peer::{self, Kind, Peer};
use lab::table::{Series, Table, Target, machine, publish, targets};
use lab::wire::{self, Client};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

const ROUNDS: usize = 21;
/// Bytes of one bulk cell.
const BULK: usize = 256 << 20;
const ROUND_TRIPS: usize = 4_000;
const GB: f64 = 1e9;

fn main() {
    peer::serve_if_asked();
    let toxiproxy = peer::toxiproxy();
    let mut notes = String::new();
    let (kinds, server) = match toxiproxy {
        Ok(server) => (Kind::ALL.to_vec(), server),
        Err(cause) => {
            notes = format!("\n**Skipped: Toxiproxy.** {cause}.\n");
            (
                Kind::ALL.into_iter().filter(|kind| *kind != Kind::Toxiproxy).collect(),
                PathBuf::new(),
            )
        }
    };
    // All, or the ones that are named: `bulk`, `trips`, `reader`.
    let words: Vec<String> = std::env::args().skip(1).collect();
    let named = |part: &str| words.iter().any(|word| word == part);
    let is_wanted = |part: &str| named(part) || !["bulk", "trips", "reader"].into_iter().any(named);
    let mut text = String::new();
    let mut found = Vec::new();
    if is_wanted("bulk") {
        for (name, len) in [("64 KiB", 64 << 10), ("1 MiB", 1 << 20)] {
            let bulk = bulk(&kinds, &server, len);
            text += &format!(
                "\n### Bulk: Fetch answers of {name}, one connection\n\n{}",
                bulk.table()
            );
            if len == 64 << 10 {
                found.extend(bulk.targets());
            }
        }
    }
    if is_wanted("trips") {
        let trips = round_trips(&kinds, &server);
        text += &format!(
            "\n### Round trip: Fetch of 64 B each way, all on one core\n\n{}",
            trips.table()
        );
        found.extend(trips.targets());
    }
    if is_wanted("reader") {
        let reader = reader(&kinds, &server);
        let records = kafka::RECORDS;
        text += &format!(
            "\n### librdkafka: {records} records of 200 B from one partition\n\n{}",
            reader.table()
        );
        found.extend(reader.targets());
    }
    let head = format!(
        "{} {ROUNDS} rounds, every path once in each; least / **median** / most. A ratio is that of one round.\n",
        machine()
    );
    publish("link", &format!("{head}{notes}\n{}{text}", targets(&found)));
}

/// What was measured, by path; values in one order of rounds.
#[derive(Default)]
struct Cells(HashMap<(&'static str, &'static str), Series>);

impl Cells {
    fn add(&mut self, kind: Kind, what: &'static str, value: f64) {
        self.0.entry((kind.name(), what)).or_default().0.push(value);
    }

    fn get(&self, kind: Kind, what: &'static str) -> Option<&Series> {
        self.0.get(&(kind.name(), what))
    }

    fn over(&self, kind: Kind, other: Kind, what: &'static str) -> Option<Series> {
        Some(self.get(kind, what)?.over(self.get(other, what)?))
    }

    fn row(&self, kind: Kind, main: (&'static str, usize), more: &[(&'static str, usize)]) -> Option<Vec<String>> {
        let mut row = vec![kind.name().to_owned(), self.get(kind, main.0)?.spread(main.1)];
        for other in [Kind::Direct, Kind::Toxiproxy] {
            row.push(match self.over(kind, other, main.0) {
                Some(ratio) if kind != other => ratio.spread(2),
                _ => String::new(),
            });
        }
        row.extend(more.iter().map(|(what, decimals)| {
            self.get(kind, what)
                .map(|all| all.spread(*decimals))
                .unwrap_or_default()
        }));
        Some(row)
    }

    fn rows(&self, heads: &[&str], main: (&'static str, usize), more: &[(&'static str, usize)]) -> String {
        let mut table = Table::new(heads);
        for row in Kind::ALL.into_iter().filter_map(|kind| self.row(kind, main, more)) {
            table.row(&row);
        }
        table.text()
    }
}

struct Bulk(Cells);

fn start(kinds: &[Kind], upstream: SocketAddr, server: &Path) -> Vec<Peer> {
    kinds.iter().map(|kind| Peer::start(*kind, upstream, server)).collect()
}

fn bulk(kinds: &[Kind], server: &Path, len: usize) -> Bulk {
    let peers = start(kinds, wire::broker(), server);
    let mut cells = Cells::default();
    for _ in 0..ROUNDS {
        for peer in &peers {
            let mut client = Client::connect(peer.address);
            let before = peer.cpu();
            let took = client.bulk(len, BULK / len).as_secs_f64();
            cells.add(peer.kind, "MB/s", BULK as f64 / 1e6 / took);
            if let (Some(before), Some(after)) = (before, peer.cpu()) {
                cells.add(peer.kind, "CPU", (after - before) / (BULK as f64 / GB));
            }
        }
    }
    Bulk(cells)
}

impl Bulk {
    fn table(&self) -> String {
        let heads = ["path", "MB/s", "x direct", "x Toxiproxy", "CPU s/GB"];
        self.0.rows(&heads, ("MB/s", 0), &[("CPU", 2)])
    }

    fn targets(&self) -> Vec<Target> {
        let mut all = Vec::new();
        if let Some(ratio) = self.0.over(Kind::Link, Kind::Toxiproxy, "MB/s") {
            all.push(Target::at_least("64 KiB bulk over Toxiproxy", 1.8, ratio.median()));
        }
        if let Some(ratio) = self.0.over(Kind::Link, Kind::Direct, "MB/s") {
            all.push(Target::at_least("64 KiB bulk over direct", 0.5, ratio.median()));
        }
        if let Some(ratio) = self.0.over(Kind::LinkArmed, Kind::Link, "MB/s") {
            all.push(Target::at_least(
                "64 KiB bulk, a rule armed, over none",
                0.95,
                ratio.median(),
            ));
        }
        if let Some(ratio) = self.0.over(Kind::LinkIdle, Kind::Link, "MB/s") {
            all.push(Target::at_least(
                "64 KiB bulk, `idle` armed, over none",
                0.95,
                ratio.median(),
            ));
        }
        if let Some(spent) = self.0.get(Kind::Link, "CPU") {
            all.push(Target::at_most("CPU s/GB at 64 KiB", 0.6, spent.median()));
        }
        all
    }
}

struct RoundTrips(Cells);

/// On two cores the time of a round trip is that of a wake-up on another core, which jumps between two values.
fn round_trips(kinds: &[Kind], server: &Path) -> RoundTrips {
    let this = Pid::from_raw(0);
    let all = sched_getaffinity(this).unwrap();
    let first = (0..CpuSet::count()).find(|cpu| all.is_set(*cpu).unwrap()).unwrap();
    let mut one = CpuSet::new();
    one.set(first).unwrap();
    // Threads and processes that are started from here on inherit it.
    sched_setaffinity(this, &one).unwrap();
    let peers = start(kinds, wire::broker(), server);
    let mut cells = Cells::default();
    for _ in 0..ROUNDS {
        for peer in &peers {
            let mut client = Client::connect(peer.address);
            client.round_trips(ROUND_TRIPS / 10);
            let before = peer.cpu();
            let times = client.round_trips(ROUND_TRIPS);
            cells.add(peer.kind, "p50", times[ROUND_TRIPS / 2]);
            cells.add(peer.kind, "p99", times[ROUND_TRIPS * 99 / 100]);
            if let (Some(before), Some(after)) = (before, peer.cpu()) {
                cells.add(peer.kind, "CPU", (after - before) * 1e6 / ROUND_TRIPS as f64);
            }
        }
    }
    sched_setaffinity(this, &all).unwrap();
    RoundTrips(cells)
}

impl RoundTrips {
    fn table(&self) -> String {
        let heads = ["path", "p50 µs", "x direct", "x Toxiproxy", "p99 µs", "CPU µs"];
        self.0.rows(&heads, ("p50", 1), &[("p99", 0), ("CPU", 1)])
    }

    fn targets(&self) -> Vec<Target> {
        let mut all = Vec::new();
        if let Some(ratio) = self.0.over(Kind::Link, Kind::Toxiproxy, "p50") {
            all.push(Target::at_most(
                "64 B round trip p50 over Toxiproxy's",
                1.0,
                ratio.median(),
            ));
        }
        if let Some(ratio) = self.0.over(Kind::LinkArmed, Kind::Link, "p50") {
            all.push(Target::at_most(
                "64 B round trip p50, a rule armed, over none",
                1.05,
                ratio.median(),
            ));
        }
        if let Some(ratio) = self.0.over(Kind::LinkIdle, Kind::Link, "p50") {
            all.push(Target::at_most(
                "64 B round trip p50, `idle` armed, over none",
                1.05,
                ratio.median(),
            ));
        }
        all
    }
}

struct Reader(Cells);

fn reader(kinds: &[Kind], server: &Path) -> Reader {
    let log = Log::new();
    let peers: Vec<Peer> = kinds
        .iter()
        .map(|kind| {
            let broker = Broker::start(log.clone());
            let peer = Peer::start(*kind, broker.address, server);
            broker.advertise(peer.address);
            peer
        })
        .collect();
    let mut cells = Cells::default();
    for _ in 0..ROUNDS {
        for peer in &peers {
            let before = peer.cpu();
            let reading = kafka::read(peer.address);
            cells.add(peer.kind, "k/s", reading.records_per_s / 1e3);
            cells.add(peer.kind, "first", reading.first.as_secs_f64() * 1e3);
            cells.add(peer.kind, "whole", reading.whole.as_secs_f64());
            if let (Some(before), Some(after)) = (before, peer.cpu()) {
                cells.add(peer.kind, "CPU", (after - before) / (log.len() as f64 / GB));
            }
        }
    }
    Reader(cells)
}

impl Reader {
    fn table(&self) -> String {
        let heads = [
            "path",
            "1,000 records/s",
            "x direct",
            "x Toxiproxy",
            "first record ms",
            "whole read s",
            "CPU s/GB",
        ];
        self.0
            .rows(&heads, ("k/s", 0), &[("first", 0), ("whole", 2), ("CPU", 2)])
    }

    fn targets(&self) -> Vec<Target> {
        let mut all = Vec::new();
        if let Some(ratio) = self.0.over(Kind::Link, Kind::Direct, "k/s") {
            all.push(Target::at_least("librdkafka reader over direct", 0.95, ratio.median()));
        }
        if let Some(ratio) = self.0.over(Kind::LinkArmed, Kind::Link, "k/s") {
            all.push(Target::at_least(
                "librdkafka reader, a rule armed, over none",
                0.95,
                ratio.median(),
            ));
        }
        all
    }
}
