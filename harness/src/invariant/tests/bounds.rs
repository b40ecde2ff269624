//! `bounded_cpu`, `bounded_requests` and `bounded_memory`: what an outage costs.

use super::*;

fn outage(events: Vec<(u64, brokerfall_report::history::Event)>, to_ms: u64) -> Vec<brokerfall_report::history::Entry> {
    let mut entries = history! { with_fault(Kind::Group, "kill-broker");
        0 => spawned("r1"), 100 => injecting("kill-broker"), 100 => injected(),
    };
    for (ms, event) in events {
        entries.push(entry(entries.len() as u64, ms, event));
    }
    for (ms, event) in [(to_ms, healing()), (to_ms, healed()), (to_ms + 1, FIXED)] {
        entries.push(entry(entries.len() as u64, ms, event));
    }
    entries
}

#[test]
fn cpu_over_the_outage_is_judged_without_its_first_second() {
    // 0.5 s of CPU in the first second, then almost none.
    let calm = outage(
        vec![
            (150, sample(0)),
            (1000, sample(500)),
            (1200, sample(510)),
            (9000, sample(600)),
        ],
        10_000,
    );
    let spins = outage(
        vec![(150, sample(0)), (1200, sample(500)), (9200, sample(8500))],
        10_000,
    );
    assert_held("bounded_cpu", &calm);
    assert_violated(
        "bounded_cpu",
        "r1 used 1.00 cores over 8.0 s of `f` (limit 0.10)",
        &spins,
    );
}

#[test]
fn short_outage_decides_nothing() {
    let entries = outage(vec![(1200, sample(0)), (3000, sample(1800))], 4000);
    assert_eq!(
        outcome_of("bounded_cpu", &entries),
        super::super::undecided("outage shorter than 4 s")
    );
    assert_undecided("bounded_requests", &entries);
}

#[test]
fn requests_over_the_outage_are_counted() {
    let of = |requests| {
        outage(
            (0..8).map(|i| (2500 + i * 1000, wire(requests, 1000))).collect(),
            10_100,
        )
    };
    assert_held("bounded_requests", &of(10));
    assert_violated(
        "bounded_requests",
        "requests and connects a second over 9.0 s of `f` (limit 200)",
        &of(300),
    );
}

#[test]
fn error_events_over_the_outage_are_counted() {
    let many = says(ReaderEvent::Error {
        origin: Origin::Log,
        fatal: false,
        exception: exception("a.Rebootstrapping"),
        count: 2000,
    });
    assert_violated(
        "bounded_requests",
        "222 error events a second",
        &outage(vec![(5000, many)], 10_100),
    );
}

/// Samples every 250 ms from 1.2 s on, over 9 s.
fn held_over(of: impl Fn(u64) -> (u64, u64)) -> Vec<brokerfall_report::history::Entry> {
    let sample = |i: u64| {
        let (rss_kib, descriptors) = of(i);
        (1200 + i * 250, holds(rss_kib, descriptors))
    };
    outage((0..35).map(sample).collect(), 10_100)
}

#[test]
fn memory_and_descriptors_that_go_up_and_down_are_flat() {
    // A collector of garbage that lets 100 MiB pass before it runs, and a client that changes its sockets.
    let entries = held_over(|i| (20_000 + (i % 5) * 25_600, 10 + (i % 3) * 20));
    assert_eq!(
        outcome_of("bounded_memory", &entries),
        super::super::held("rose by 0.0 of 16.0 MiB and 0 of 16 descriptors")
    );
}

#[test]
fn memory_or_descriptors_that_rise_and_stay_violate() {
    // 35 samples: the first third ends with the 11th, the last begins with the 25th; 14 steps lie between them.
    let leaks = |kib: u64, descriptors: u64| held_over(move |i| (20_480 + i * kib, 10 + i * descriptors));
    assert_held("bounded_memory", &leaks(1024, 0));
    assert_violated(
        "bounded_memory",
        "r1 rose by 28.0 MiB of memory (limit 16.0) over 9.0 s of `f`",
        &leaks(2048, 0),
    );
    assert_held("bounded_memory", &leaks(0, 1));
    assert_violated(
        "bounded_memory",
        "r1 rose by 28 open descriptors (limit 16)",
        &leaks(0, 2),
    );
}

#[test]
fn outage_without_samples_says_nothing_of_memory() {
    let entries = outage(vec![(1500, wire(1, 1000))], 10_000);
    assert_eq!(
        outcome_of("bounded_memory", &entries),
        super::super::not_applicable("samples of the reader's process")
    );
}

#[test]
fn contended_machine_leaves_cpu_undecided_unless_it_is_clear_all_the_same() {
    // 8 s of the outage are sampled; of all its seconds something waited for a core for `waited_ms`.
    let between = |first, last, waited_ms: u64| {
        let mut events: Vec<_> = vec![(1200, first)];
        events.extend((2..=10).map(|second| (second * 1000 + 50, contended(1000, waited_ms))));
        events.push((9200, last));
        events.sort_by_key(|(ms, _)| *ms);
        outage(events, 10_100)
    };
    let of = |used_ms: u64, waited_ms: u64| between(sample(0), sample(used_ms), waited_ms);
    // 0.05 cores, at most 0.06 alone; 0.05 of what may have been 0.5; 0.15, which may have been dearer; 0.3, which is more.
    assert_held("bounded_cpu", &of(400, 200));
    assert_undecided("bounded_cpu", &of(400, 900));
    assert_undecided("bounded_cpu", &of(1200, 900));
    assert_violated("bounded_cpu", "0.30 cores", &of(2400, 900));
    assert_violated("bounded_cpu", "0.15 cores", &of(1200, 200));

    // Where the reader's own waiting is counted, what others waited for is no doubt of it.
    let own = |waited_ms: u64| between(sample_waiting(0, 50), sample_waiting(400, 50 + waited_ms), 900);
    assert_held("bounded_cpu", &own(240));
    assert_undecided("bounded_cpu", &own(1600));
}
