//! `exception_expected` and `gap_reported`: what the caller was told.

use brokerfall_report::history::{Entry, Event, ExpectedException, Opened, Phase};
use brokerfall_report::verdict::Outcome;

use super::*;

fn expected(type_name: &str) -> ExpectedException {
    ExpectedException {
        phase: Phase::Live,
        origin: Origin::Poll,
        type_name: type_name.into(),
        code: None,
    }
}

/// A reader that has caught up and then shows one exception.
fn shows(accepted: Option<Vec<ExpectedException>>, exception: Event) -> Vec<Entry> {
    let mut plan = plan(Kind::Group);
    plan.expected = accepted;
    history! { plan;
        0 => produced(1, 10), 1 => targets(10), 2 => spawned("r1"), 3 => says(ReaderEvent::Started), 10 => delivered(1, 10),
        20 => exception, 30 => FIXED,
    }
}

#[test]
fn exception_that_was_accepted_holds_and_another_one_violates() {
    let accepted = || Some(vec![expected("a.Known"), expected("a.Other")]);
    assert_eq!(
        outcome_of(
            "exception_expected",
            &shows(accepted(), error(Origin::Poll, false, "a.Known"))
        ),
        super::super::held("1 of 2 accepted exceptions came")
    );
    assert_violated(
        "exception_expected",
        "not among the 2 accepted: a.New (poll, live)",
        &shows(accepted(), error(Origin::Poll, false, "a.New")),
    );
    // The same type from elsewhere is another exception.
    assert_violated(
        "exception_expected",
        "a.Known (background, live)",
        &shows(accepted(), error(Origin::Background, true, "a.Known")),
    );
    assert_violated(
        "exception_expected",
        "not among the 0 accepted",
        &shows(Some(Vec::new()), error(Origin::Log, false, "a.Known")),
    );
}

#[test]
fn where_nothing_was_accepted_every_exception_is_new() {
    let outcome = outcome_of("exception_expected", &shows(None, error(Origin::Poll, false, "a.New")));
    let Outcome::NotApplicable { missing } = outcome else {
        panic!("{outcome:?}");
    };
    assert!(missing.contains("new: a.New (poll, live)"), "{missing}");
}

fn asking(named: bool) -> Opened {
    let mut plan = plan(Kind::Assign);
    plan.expect.named = named.then(|| "gap_reported".to_owned()).into_iter().collect();
    plan
}

/// Ids 11 to 20 leave the log before the reader, which stands at 10, reads on from 21.
fn passes(plan: Opened, told: Option<Event>) -> Vec<Entry> {
    let mut entries = history! { plan;
        0 => produced(1, 30), 1 => watermarks(0, 30), 2 => spawned("r1"),
        3 => says(ReaderEvent::Hello(Hello {
            protocol: 1,
            library: String::new(),
            client: String::new(),
            runtime: String::new(),
            kinds: vec![Kind::Assign],
            capabilities: vec!["reset".into()],
        })),
        10 => delivered(1, 10), 1000 => watermarks(20, 30),
    };
    entries.extend(told.map(|event| entry(7, 1500, event)));
    for (ms, event) in [(2000, delivered(21, 30)), (9000, FIXED), (9100, scanned(21, 30))] {
        entries.push(entry(entries.len() as u64, ms, event));
    }
    entries
}

#[test]
fn gap_that_retention_left_is_to_be_told() {
    let held = super::super::held("10 records had left the log, and the caller was told");
    assert_eq!(outcome_of("gap_reported", &passes(asking(true), Some(reset()))), held);
    let raised = error(Origin::Poll, false, "a.OffsetOutOfRange");
    assert_eq!(outcome_of("gap_reported", &passes(asking(true), Some(raised))), held);
    assert_violated(
        "gap_reported",
        "offsets 10..=19 of orders-0 had left the log when the reader came to them, and nobody was told",
        &passes(asking(true), None),
    );
    // A line in a log tells nobody.
    let logged = error(Origin::Log, false, "log:client");
    assert_violated("gap_reported", "nobody was told", &passes(asking(true), Some(logged)));
}

#[test]
fn gap_is_asked_for_only_where_a_scenario_names_it() {
    let outcome = outcome_of("gap_reported", &passes(asking(false), None));
    assert!(matches!(outcome, Outcome::NotApplicable { .. }), "{outcome:?}");
    let whole = history! { asking(true);
        0 => produced(1, 10), 2 => spawned("r1"),
        3 => says(ReaderEvent::Hello(Hello {
            protocol: 1,
            library: String::new(),
            client: String::new(),
            runtime: String::new(),
            kinds: vec![Kind::Assign],
            capabilities: vec!["reset".into()],
        })),
        10 => delivered(1, 10), 9000 => FIXED,
    };
    assert_undecided("gap_reported", &whole);
}
