//! Stored histories and reports must still be read: the fixtures were written once and are never written again.

use std::collections::BTreeSet;

use brokerfall_report::history::{Entry, HISTORY_FORMAT};
use brokerfall_report::render::json;
use brokerfall_report::render::text::{self, TextOptions};
use brokerfall_report::report::{REPORT_SCHEMA, RunReport};
use brokerfall_report::verdict::Verdict;
use proptest::prelude::*;
use serde_json::Value;

use crate::history;

const HISTORY: &str = include_str!("../fixtures/history-v1.jsonl");
const REPORT: &str = include_str!("../fixtures/report-v1.json");

/// Everything in `old` must stand in `new` under the same name with the same value; `new` may have more.
fn lost(old: &Value, new: &Value, path: &str) -> Option<String> {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => old.iter().find_map(|(name, value)| {
            let path = format!("{path}.{name}");
            match new.get(name) {
                Some(found) => lost(value, found, &path),
                // A field that is left out when empty says the same as an empty one.
                None => (!value.is_null()).then_some(path),
            }
        }),
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            let mut pairs = old.iter().zip(new).enumerate();
            pairs.find_map(|(i, (old, new))| lost(old, new, &format!("{path}[{i}]")))
        }
        _ => (old != new).then(|| path.to_owned()),
    }
}

#[test]
fn a_history_of_format_1_is_read_without_loss() {
    for line in HISTORY.lines() {
        let entry: Entry = serde_json::from_str(line).unwrap_or_else(|cause| panic!("{cause}: {line}"));
        let old = serde_json::from_str(line).unwrap();
        let new = serde_json::to_value(&entry).unwrap();
        assert_eq!(lost(&old, &new, ""), None, "{line}");
    }
    assert_eq!(
        HISTORY_FORMAT, 1,
        "a new format keeps this fixture and gets one of its own"
    );
}

#[test]
fn the_history_fixture_holds_every_kind_of_event() {
    let tag = |event: &Value| match event {
        Value::String(name) => name.clone(),
        event => event.as_object().unwrap().keys().next().unwrap().clone(),
    };
    let lines = HISTORY.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let events: Vec<Value> = lines.map(|line| line["event"].clone()).collect();
    let tags: BTreeSet<_> = events.iter().map(tag).collect();
    let said: BTreeSet<_> = events
        .iter()
        .filter_map(|event| event["reader"]["event"]["type"].as_str())
        .collect();
    assert_eq!((tags.len(), said.len()), (38, 17), "{tags:?} {said:?}");
}

#[test]
fn a_history_of_format_1_is_still_reported() {
    let entries = HISTORY.lines().map(|line| serde_json::from_str::<Entry>(line).unwrap());
    let judgement = history::judgement(Verdict::Void, "a fixture", Vec::new());
    let run = RunReport::from_history(entries, &judgement);
    assert!(!run.partial);
    assert_eq!(run.scenario, "fixtures/every-event");
    insta::assert_snapshot!(text::run(&run, TextOptions::default()));
}

/// Every number in a history at once made as large as it can be: an adapter or a file may say anything.
fn blow_up(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_u64() => *number = u64::MAX.into(),
        Value::Array(items) => items.iter_mut().for_each(blow_up),
        Value::Object(fields) => fields.values_mut().for_each(blow_up),
        _ => {}
    }
}

#[test]
fn absurd_numbers_in_a_history_are_survived() {
    let mut read = 0;
    let entries = HISTORY.lines().filter_map(|line| {
        let mut entry: Value = serde_json::from_str(line).unwrap();
        blow_up(&mut entry);
        // Some fields are narrower than 64 bits: those events cannot be read at all.
        let entry = serde_json::from_value::<Entry>(entry).ok()?;
        read += 1;
        Some(entry)
    });
    let run = RunReport::from_history(entries, &history::judgement(Verdict::Void, "absurd", Vec::new()));
    assert!(read > 30, "{read}");
    assert!(text::run(&run, TextOptions::default()).starts_with("VOID"));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn events_in_any_order_and_at_any_time_are_survived(
        order in proptest::sample::subsequence((0..HISTORY.lines().count()).collect::<Vec<_>>(), 0..60).prop_shuffle(),
        times in proptest::collection::vec(any::<u64>(), 60),
    ) {
        let lines: Vec<_> = HISTORY.lines().collect();
        let entries = order.iter().zip(times).map(|(i, at_us)| Entry { at_us, ..serde_json::from_str(lines[*i]).unwrap() });
        let run = RunReport::from_history(entries, &history::judgement(Verdict::Void, "shuffled", Vec::new()));
        prop_assert!(text::run(&run, TextOptions::default()).starts_with("VOID"));
    }
}

#[test]
fn a_report_of_schema_1_is_read_without_loss() {
    let report = json::parse(REPORT).unwrap();
    let old = serde_json::from_str(REPORT).unwrap();
    let new = serde_json::to_value(&report).unwrap();
    assert_eq!(lost(&old, &new, ""), None);
    assert_eq!(
        (report.schema, REPORT_SCHEMA),
        (1, 1),
        "a new schema keeps this fixture and gets one of its own"
    );
    assert_eq!(report.exit_code().code(), report.summary.exit_code);
}
