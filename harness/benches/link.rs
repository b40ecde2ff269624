//! What the link's data path costs, beside the direct path: for watching one against its own past (criterion keeps it).
//! Ratios to other proxies are `link_peers`'.
#![expect(clippy::unwrap_used, reason = "a bench may panic")]
#![expect(clippy::print_stdout, reason = "a peer tells its address")]
#![expect(clippy::disallowed_methods, reason = "a bench measures time")]

#[expect(dead_code, reason = "peers and reader are for link_peers")]
mod lab;

use std::path::Path;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group};
use lab::peer::{self, Kind, Peer};
use lab::wire::{self, Client};

const KINDS: [Kind; 3] = [Kind::Direct, Kind::Link, Kind::LinkArmed];

fn peers() -> Vec<Peer> {
    let upstream = wire::broker();
    let start = |kind| Peer::start(kind, upstream, Path::new(""));
    KINDS.map(start).into()
}

fn bulk(criterion: &mut Criterion) {
    let peers = peers();
    for len in [4 << 10, 64 << 10, 1 << 20] {
        let mut group = criterion.benchmark_group(format!("bulk of {} KiB", len >> 10));
        group.throughput(Throughput::Bytes(len as u64));
        for peer in &peers {
            let mut client = Client::connect(peer.address);
            group.bench_function(BenchmarkId::from_parameter(peer.kind.name()), |bencher| {
                bencher.iter_custom(|frames| client.bulk(len, usize::try_from(frames).unwrap()));
            });
        }
        group.finish();
    }
}

fn round_trip(criterion: &mut Criterion) {
    let peers = peers();
    let mut group = criterion.benchmark_group("round trip of 64 B");
    for peer in &peers {
        let mut client = Client::connect(peer.address);
        group.bench_function(BenchmarkId::from_parameter(peer.kind.name()), |bencher| {
            bencher.iter_custom(|count| {
                let times = client.round_trips(usize::try_from(count).unwrap());
                Duration::from_secs_f64(times.iter().sum::<f64>() / 1e6)
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(30).measurement_time(Duration::from_secs(3)).warm_up_time(Duration::from_secs(1));
    targets = bulk, round_trip
}

fn main() {
    peer::serve_if_asked();
    benches();
    Criterion::default().configure_from_args().final_summary();
}
