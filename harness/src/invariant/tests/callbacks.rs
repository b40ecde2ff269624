//! `callback_isolated`: callbacks that raise.

use super::*;

fn run(after: Vec<(u64, brokerfall_report::history::Event)>) -> Vec<brokerfall_report::history::Entry> {
    let mut entries = history! { with_fault(Kind::Table, "panic-callback");
        0 => spawned("r1"), 5 => produced(1, 10), 10 => delivered(1, 4), 15 => injecting("panic-callback"), 16 => injected(),
        20 => callback(false, 4), 21 => callback(true, 4), 22 => fault_delivered(),
    };
    for (ms, event) in after {
        entries.push(entry(entries.len() as u64, ms, event));
    }
    entries
}

#[test]
fn reader_that_goes_on_and_tells_holds() {
    assert_held(
        "callback_isolated",
        &run(vec![
            (25, error(Origin::Log, false, "builtins.ValueError")),
            (30, delivered(6, 10)),
            (40, healed()),
            (9000, FIXED),
            (9001, scanned(1, 10)),
        ]),
    );
}

#[test]
fn reader_that_dies_of_the_callback_violates_with_its_exception() {
    assert_violated(
        "callback_isolated",
        "after the callback failed at offset 4, r1 shows the status `failed` with builtins.ValueError",
        &run(vec![
            (25, status("failed")),
            (26, error(Origin::Callback, true, "builtins.ValueError")),
            (9000, FIXED),
        ]),
    );
}

#[test]
fn honest_end_that_the_scenario_allows_is_not_judged_here() {
    let died = run(vec![
        (25, status("failed")),
        (26, error(Origin::Reader, true, "builtins.KeyboardInterrupt")),
        (9000, FIXED),
    ]);
    let mut allowed = died.clone();
    allowed[0].event = brokerfall_report::history::Event::Opened(Box::new(expecting(
        with_fault(Kind::Table, "panic-callback"),
        ExpectedEnd::RecoversOrEnds,
    )));
    assert!(matches!(
        outcome_of("callback_isolated", &allowed),
        Outcome::NotApplicable { .. }
    ));
    assert_held("recovers", &allowed);
    assert_violated("callback_isolated", "shows the status `failed`", &died);
}

#[test]
fn failure_that_nobody_hears_of_violates() {
    assert_violated(
        "callback_isolated",
        "nothing of it reached a log",
        &run(vec![
            (30, delivered(6, 10)),
            (40, healed()),
            (9000, FIXED),
            (9001, scanned(1, 10)),
        ]),
    );
}

#[test]
fn further_records_dropped_with_the_struck_one_violate() {
    assert_violated(
        "callback_isolated",
        "ids 6 of orders-0 were not delivered either",
        &run(vec![
            (25, error(Origin::Log, false, "builtins.ValueError")),
            (30, delivered(7, 10)),
            (40, healed()),
            (9000, FIXED),
            (9001, scanned(1, 10)),
        ]),
    );
}

#[test]
fn count_of_callback_errors_must_rise_by_the_number_raised() {
    let counted = |n: f64| {
        says(ReaderEvent::Heartbeat(brokerfall_report::protocol::Heartbeat {
            counters: [("callback_errors".to_owned(), n)].into(),
            ..Default::default()
        }))
    };
    let of = |ms, n| {
        run(vec![
            (30, delivered(6, 10)),
            (40, healed()),
            (ms, counted(n)),
            (9000, FIXED),
            (9001, scanned(1, 10)),
        ])
    };
    assert_held("callback_isolated", &of(2000, 1.0));
    assert_violated(
        "callback_isolated",
        "raised 1 times and the reader counts 0",
        &of(2000, 0.0),
    );
    assert_violated(
        "callback_isolated",
        "raised 1 times and the reader counts 2",
        &of(100, 2.0),
    );
}

#[test]
fn callback_that_was_never_called_decides_nothing() {
    assert_undecided(
        "callback_isolated",
        &history! { with_fault(Kind::Table, "panic-callback");
            0 => spawned("r1"), 15 => injecting("panic-callback"), 16 => injected(), 40 => FIXED,
        },
    );
}
