//! `bounded_cpu` and `bounded_requests`: what an outage costs.

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
