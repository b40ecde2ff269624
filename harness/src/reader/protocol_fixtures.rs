//! The fixtures that implementers of adapters read, held against the types that the harness parses with.

use std::path::PathBuf;

use brokerfall_report::protocol::{Line, Request};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

fn fixture(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("adapters/fixtures")
        .join(name);
    std::fs::read_to_string(&path).unwrap()
}

fn is_command(line: &str) -> bool {
    serde_json::from_str::<Value>(line).is_ok_and(|value| value.get("command").is_some())
}

/// Parses, writes, parses again, and requires that nothing of the line was lost on the way.
fn round_trip<T: DeserializeOwned + Serialize + PartialEq + std::fmt::Debug>(line: &str) {
    let parsed: T = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    let written = serde_json::to_value(&parsed).unwrap();
    assert_eq!(serde_json::from_value::<T>(written.clone()).unwrap(), parsed, "{line}");
    assert_holds(&written, &serde_json::from_str(line).unwrap(), line);
}

/// Every key of `wanted` stands in `found` with an equal value; a null may be left out.
fn assert_holds(found: &Value, wanted: &Value, line: &str) {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            for (key, value) in wanted.iter().filter(|(_, value)| !value.is_null()) {
                assert_holds(found.get(key).unwrap_or(&Value::Null), value, line);
            }
        }
        (Value::Array(found), Value::Array(wanted)) => {
            assert_eq!(found.len(), wanted.len(), "{line}");
            found
                .iter()
                .zip(wanted)
                .for_each(|(found, wanted)| assert_holds(found, wanted, line));
        }
        _ => assert_eq!(found, wanted, "{line}"),
    }
}

#[test]
fn good_lines_parse_and_round_trip() {
    for line in fixture("good.jsonl").lines() {
        if is_command(line) {
            round_trip::<Request>(line);
        } else {
            round_trip::<Line>(line);
        }
    }
}

#[test]
fn good_lines_show_every_event_and_command() {
    let good = fixture("good.jsonl");
    let of = |key: &str| -> std::collections::BTreeSet<String> {
        good.lines()
            .filter_map(|line| Some(serde_json::from_str::<Value>(line).ok()?.get(key)?.as_str()?.to_owned()))
            .collect()
    };
    // serde lists the known words in its refusal of an unknown one.
    for (key, refusal) in [
        (
            "type",
            serde_json::from_str::<Line>(r#"{"v":1,"seq":1,"inc":0,"mono_ms":0,"type":"?"}"#)
                .unwrap_err()
                .to_string(),
        ),
        (
            "command",
            serde_json::from_str::<Request>(r#"{"id":1,"command":"?"}"#)
                .unwrap_err()
                .to_string(),
        ),
    ] {
        let known: std::collections::BTreeSet<String> =
            refusal.split('`').skip(3).step_by(2).map(str::to_owned).collect();
        assert!(known.len() > 5, "{refusal}");
        assert_eq!(of(key), known, "{key}");
    }
}

#[test]
fn bad_lines_are_refused_by_whom_the_fixture_names() {
    for entry in fixture("bad.jsonl").lines() {
        let entry: Value = serde_json::from_str(entry).unwrap();
        let (line, why) = (entry["line"].as_str().unwrap(), entry["why"].as_str().unwrap());
        let parses = if is_command(line) {
            serde_json::from_str::<Request>(line).is_ok()
        } else {
            serde_json::from_str::<Line>(line).is_ok()
        };
        match entry["by"].as_str().unwrap() {
            "parser" => assert!(!parses, "{why}: {line}"),
            "validator" => assert!(parses, "{why}: {line}"),
            other => panic!("unknown judge {other}"),
        }
    }
}
