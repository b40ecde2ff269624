//! The format of a scenario file as a JSON schema, for editors. `scenarios/schema.json` is what [`schema`] returns.
//!
//! The words of a list (faults, codes, apis, invariants, phases) come from the types that decode them. The keys stand here a
//! second time, because a decoder that names the place of every error has no description of itself; tests compare them with
//! what the decoder says that it wanted, table by table, and hold every bundled and many generated scenarios against the
//! schema. What contradicts itself across keys is not told here: `brokerfall check` says it.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::decode::variants;
use super::plan::{InFlight, Joiner, MOST_VALUE_BYTES, State, USUAL_VALUE_BYTES};
use super::words::INVARIANTS;
use crate::cluster::Cleanup;
use crate::fault::delete_segments::{By, Past};
use crate::fault::deny_acl::Denied;
use crate::fault::kill_broker;
use crate::fault::move_address::Form;
use crate::fault::move_leader;
use crate::fault::panic_callback::{Callback, How};
use crate::fault::partition::{Connects, Heals, Mode, Way};
use crate::fault::roll_brokers::Gate;
use crate::fault::transaction::{End, Heals as EndsOpen};
use crate::link::codes::{ANSWERABLE_APIS, API_NAMES, ERROR_NAMES};
use brokerfall_report::history::{ExpectedEnd, Grade, Phase};
use brokerfall_report::protocol::{Isolation, Kind, Reset};

/// The schema of scenario files of format 1 (JSON Schema, draft 2020-12).
///
/// ```
/// let schema = brokerfall::scenario::schema::schema();
/// assert_eq!(schema["properties"]["format"]["const"], 1);
/// assert!(schema["$defs"]["fault"]["properties"].get("kill-broker").is_some());
/// ```
pub fn schema() -> Value {
    let mut schema = table(
        &["format", "title", "topic"],
        [
            ("format", json!({ "const": 1 })),
            ("title", text()),
            ("tags", array(text())),
            ("phase", words::<Phase>()),
            ("wall", duration()),
            ("cluster", cluster()),
            ("reader", reader()),
            ("load", load()),
            ("matrix", matrix()),
            ("topic", one_at_least(array(topic()))),
            ("step", array(json!({ "anyOf": [repeated(), reference("step")] }))),
            ("expect", expect()),
        ],
    );
    let head = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Brokerfall scenario, format 1",
        "$defs": {
            "axis": { "description": "a value of the matrix", "type": "string", "pattern": "^\\$[a-z][a-z0-9-]*$" },
            "duration": { "type": "string", "pattern": "^[0-9]+(ms|s|m)$" },
            "broker": { "anyOf": [{ "enum": ["leader", "coordinator", "all"] }, whole(1)["anyOf"][0]] },
            "step": step(),
            "fault": fault(),
        },
    });
    if let (Value::Object(schema), Value::Object(head)) = (&mut schema, head) {
        schema.extend(head);
    }
    schema
}

/// The schema as it is printed and committed.
pub fn text_of_schema() -> String {
    format!("{:#}\n", schema())
}

fn cluster() -> Value {
    table(
        &[],
        [
            ("brokers", between(1, 3)),
            ("election", duration()),
            ("idle", duration()),
            ("offsets-on", whole(1)),
        ],
    )
}

fn reader() -> Value {
    table(
        &[],
        [
            ("kind", words::<Kind>()),
            ("members", whole(1)),
            ("reset", words::<Reset>()),
            ("isolation", words::<Isolation>()),
            ("session", duration()),
            ("heartbeat", duration()),
            ("max-poll", duration()),
            ("static", boolean()),
            ("options", json!({ "type": "object" })),
        ],
    )
}

fn load() -> Value {
    let rate = or_axis(json!({ "type": "string", "pattern": "^[0-9.]+ */s$" }));
    table(&["rate"], [("rate", rate), ("until", text())])
}

fn matrix() -> Value {
    let value = json!({ "type": ["string", "number", "boolean"] });
    json!({
        "type": "object",
        "propertyNames": { "pattern": "^[a-z][a-z0-9-]*$" },
        "additionalProperties": one_at_least(array(value)),
    })
}

fn topic() -> Value {
    let preload = [
        ("records", whole(0)),
        ("keys", whole(1)),
        ("value-bytes", between(0, USUAL_VALUE_BYTES)),
        ("tombstone-every", whole(1)),
        ("age", duration()),
    ];
    table(
        &["name"],
        [
            ("name", text()),
            ("partitions", between(1, 1_000)),
            ("replicas", between(1, 3)),
            ("brokers", array(whole(1))),
            ("segment-bytes", whole(14)),
            ("retention", table(&[], [("bytes", whole(1)), ("ms", whole(1))])),
            ("cleanup", one_of(Cleanup::ALL.map(Cleanup::name))),
            ("role", one_of(["input", "changelog"])),
            ("preload", table(&[], preload)),
        ],
    )
}

fn repeated() -> Value {
    let steps = one_at_least(array(reference("step")));
    table(&["repeat", "step"], [("repeat", between(1, 1_000)), ("step", steps)])
}

fn step() -> Value {
    let heal = json!({ "anyOf": [{ "const": "all" }, one_at_least(array(text()))] });
    let wire = table(
        &["api"],
        [
            ("api", one_of(API_NAMES.iter().map(|(_, name)| name.as_str()))),
            ("count", whole(1)),
        ],
    );
    let when = [
        ("before-start", boolean()),
        ("caught-up", boolean()),
        ("delivered", whole(1)),
        ("wire", wire),
        ("in-flight", words::<InFlight>()),
    ];
    let what = or_axis(json!({ "anyOf": [{ "enum": BARE }, command(), reference("fault")] }));
    let mut step = table(
        &[],
        [
            ("name", text()),
            ("when", table(&[], when)),
            ("after", duration()),
            ("wait", duration()),
            ("grade", words::<Grade>()),
            ("do", what),
            ("heal", heal),
        ],
    );
    step["oneOf"] = json!([{ "required": ["do"] }, { "required": ["heal"] }]);
    step
}

/// Commands that may stand without a table.
const BARE: [&str; 6] = ["snapshot", "barrier", "commit", "restart-reader", "stop", "join-member"];

fn command() -> Value {
    let wait = || table(&[], [("wait", boolean())]);
    let produce = [
        ("records", whole(1)),
        ("value-bytes", between(0, MOST_VALUE_BYTES)),
        ("null-values", boolean()),
    ];
    one_key([
        ("produce", table(&["records"], produce)),
        ("snapshot", wait()),
        ("barrier", wait()),
        ("commit", wait()),
        ("stop", wait()),
        ("restart-reader", table(&[], [("state", words::<State>())])),
        ("join-member", table(&[], [("reader", words::<Joiner>())])),
    ])
}

fn fault() -> Value {
    let broker = || or_axis(reference("broker"));
    let codes = ERROR_NAMES
        .iter()
        .filter(|(code, _)| *code != 0)
        .map(|(_, name)| name.as_str());
    let partition = [
        ("brokers", one_at_least(array(broker()))),
        ("mode", words::<Mode>()),
        ("direction", words::<Way>()),
        ("heals", words::<Heals>()),
        ("bytes-per-s", whole(1)),
        ("connects", words::<Connects>()),
        ("by", duration()),
        ("jitter", duration()),
        ("after-bytes", whole(0)),
        ("api", one_of(API_NAMES.iter().map(|(_, name)| name.as_str()))),
        ("times", times()),
    ];
    let on = or_axis(one_key([("key", text()), ("offset", whole(0)), ("nth", whole(1))]));
    let callback = [
        ("callback", words::<Callback>()),
        ("on", on),
        ("raise", words::<How>()),
        ("type", text()),
        ("for", duration()),
        ("times", times()),
    ];
    let place = || [("topic", text()), ("partition", whole(0))];
    let answer = [
        ("api", one_of(ANSWERABLE_APIS)),
        ("code", one_of(codes)),
        ("times", times()),
    ];
    let kill_broker = [
        ("broker", broker()),
        ("for-good", boolean()),
        ("by", words::<kill_broker::By>()),
    ];
    one_key([
        ("kill-broker", table(&["broker"], kill_broker)),
        ("pause-broker", table(&["broker"], [("broker", broker())])),
        ("partition", table(&["mode"], partition)),
        (
            "delete-segments",
            table(
                &[],
                place()
                    .into_iter()
                    .chain([("past", words::<Past>()), ("past-reader-by", whole(0))])
                    .chain([("by", words::<By>()), ("older-than", duration())]),
            ),
        ),
        ("panic-callback", table(&["callback", "raise"], callback)),
        ("pause-reader", table(&[], [])),
        ("kill-reader", table(&[], [("state", words::<State>())])),
        (
            "answer-error",
            table(&["api", "code"], place().into_iter().chain(answer)),
        ),
        ("absent-topic", table(&[], [("topic", text())])),
        (
            "add-partitions",
            table(&["to"], [("topic", text()), ("to", between(2, 1_000))]),
        ),
        (
            "move-leader",
            table(
                &[],
                place()
                    .into_iter()
                    .chain([("to", whole(1)), ("by", words::<move_leader::By>())]),
            ),
        ),
        ("move-coordinator", table(&[], [("to", whole(1))])),
        (
            "recreate-topic",
            table(
                &["records"],
                [("topic", text()), ("records", whole(0)), ("gap", duration())],
            ),
        ),
        (
            "compact-log",
            table(&[], place().into_iter().chain([("tombstones", boolean())])),
        ),
        (
            "transaction",
            table(
                &["records", "end"],
                place().into_iter().chain([
                    ("records", whole(1)),
                    ("end", words::<End>()),
                    ("heals", words::<EndsOpen>()),
                ]),
            ),
        ),
        ("isolate-broker", table(&["broker"], [("broker", broker())])),
        ("roll-brokers", table(&[], [("gate", words::<Gate>())])),
        (
            "move-address",
            table(&["broker"], [("broker", broker()), ("form", words::<Form>())]),
        ),
        (
            "unclean-election",
            table(
                &["lost", "records"],
                [("topic", text()), ("lost", whole(1)), ("records", whole(0))],
            ),
        ),
        ("fence-member", table(&[], [("member", whole(1))])),
        ("deny-acl", table(&[], [("on", words::<Denied>()), ("topic", text())])),
    ])
}

fn expect() -> Value {
    let nothing = || table(&[], []);
    let limits = [
        ("outcome", words::<ExpectedEnd>()),
        ("duplicates", whole(0)),
        ("within", duration()),
    ];
    table(&[], limits.into_iter().chain(INVARIANTS.map(|id| (id, nothing()))))
}

// Parts.

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{name}") })
}

/// A value for which an axis of the matrix may stand.
fn or_axis(value: Value) -> Value {
    json!({ "anyOf": [value, reference("axis")] })
}

/// A table that knows these keys and no others.
fn table<'k>(required: &[&str], keys: impl IntoIterator<Item = (&'k str, Value)>) -> Value {
    let keys: Map<String, Value> = keys.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let mut table = json!({ "type": "object", "properties": keys, "additionalProperties": false });
    if !required.is_empty() {
        table["required"] = json!(required);
    }
    table
}

/// A table with exactly one of these keys.
fn one_key<'k>(keys: impl IntoIterator<Item = (&'k str, Value)>) -> Value {
    let mut table = table(&[], keys);
    table["minProperties"] = json!(1);
    table["maxProperties"] = json!(1);
    table
}

fn array(item: Value) -> Value {
    json!({ "type": "array", "items": item })
}

fn one_at_least(mut array: Value) -> Value {
    array["minItems"] = json!(1);
    array
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn boolean() -> Value {
    or_axis(json!({ "type": "boolean" }))
}

fn duration() -> Value {
    or_axis(reference("duration"))
}

fn whole(least: u64) -> Value {
    or_axis(json!({ "type": "integer", "minimum": least }))
}

fn between(least: u64, most: u64) -> Value {
    or_axis(json!({ "type": "integer", "minimum": least, "maximum": most }))
}

fn times() -> Value {
    or_axis(json!({ "anyOf": [{ "const": "always" }, { "type": "integer", "minimum": 1 }] }))
}

fn one_of<'w>(words: impl IntoIterator<Item = &'w str>) -> Value {
    let words: Vec<&str> = words.into_iter().collect();
    or_axis(json!({ "enum": words }))
}

/// The words that a type knows.
fn words<T: for<'de> Deserialize<'de>>() -> Value {
    one_of(variants::<T>().iter().copied())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::scenario::load;
    use crate::scenario::words::{COMMANDS, FAULTS};

    /// The keys that the decoder wanted where it found `?`.
    fn wanted(text: &str) -> BTreeSet<String> {
        let head = "format = 1\ntitle = \"t\"\n";
        let wrong = load("mine/schema.toml", &format!("{head}{text}"))
            .and_then(|scenario| scenario.plans())
            .expect_err("`?` is no key of anything");
        let message = wrong.0.iter().find(|one| one.message.starts_with("unknown key `?`"));
        let message = &message.unwrap_or_else(|| panic!("{wrong}")).message;
        assert!(message.contains("(wanted "), "{message}");
        let words = message.split('`').skip(3).step_by(2).map(str::to_owned);
        words.filter(|word| message.contains(&format!("`{word}`"))).collect()
    }

    fn keys(table: &Value) -> BTreeSet<String> {
        let keys = table["properties"].as_object().expect("a table");
        keys.keys().cloned().collect()
    }

    #[test]
    fn every_table_has_the_keys_that_the_decoder_knows() {
        let schema = schema();
        let of = |path: &str| schema.pointer(path).unwrap_or_else(|| panic!("{path}"));
        let topic = "[[topic]]\nname = \"o\"\n";
        let step = |step: &str| format!("{topic}[[step]]\n{step}\n");
        let tables = [
            ("", format!("\"?\" = 1\n{topic}")),
            ("/properties/cluster", format!("cluster = {{ \"?\" = 1 }}\n{topic}")),
            ("/properties/reader", format!("reader = {{ \"?\" = 1 }}\n{topic}")),
            (
                "/properties/load",
                format!("load = {{ rate = \"1/s\", \"?\" = 1 }}\n{topic}"),
            ),
            ("/properties/topic/items", format!("{topic}\"?\" = 1\n")),
            (
                "/properties/topic/items/properties/preload",
                format!("{topic}preload = {{ \"?\" = 1 }}\n"),
            ),
            (
                "/properties/topic/items/properties/retention",
                format!("{topic}retention = {{ ms = 1, \"?\" = 1 }}\n"),
            ),
            ("/properties/expect", format!("{topic}[expect]\n\"?\" = 1\n")),
            (
                "/$defs/step/properties/when",
                step("when = { \"?\" = 1 }\ndo = \"snapshot\""),
            ),
            (
                "/$defs/step/properties/when/properties/wire",
                step("when = { wire = { api = \"Fetch\", \"?\" = 1 } }\ndo = \"snapshot\""),
            ),
        ];
        for (path, text) in tables {
            assert_eq!(keys(of(path)), wanted(&text), "{path}");
        }
        let mut steps = keys(of("/$defs/step"));
        steps.extend(["repeat".to_owned(), "step".to_owned()]);
        assert_eq!(steps, wanted(&step("do = \"snapshot\"\n\"?\" = 1")));
    }

    #[test]
    fn every_fault_and_command_has_the_keys_that_the_decoder_knows() {
        let schema = schema();
        let faults = &schema["$defs"]["fault"]["properties"];
        let commands = command();
        let commands = &commands["properties"];
        let known = |table: &Value| keys(&json!({ "properties": table }));
        assert_eq!(known(faults), FAULTS.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(known(commands), COMMANDS.map(str::to_owned).into());
        let all = faults.as_object().into_iter().chain(commands.as_object()).flatten();
        for (name, table) in all {
            let text = format!("[[topic]]\nname = \"o\"\n[[step]]\ndo = {{ {name} = {{ \"?\" = 1 }} }}\n");
            if table["properties"].as_object().is_some_and(Map::is_empty) {
                let wrong = load("mine/schema.toml", &format!("format = 1\ntitle = \"t\"\n{text}"));
                let wrong = wrong.and_then(|scenario| scenario.plans()).expect_err("`?` is no key");
                assert!(wrong.to_string().contains("(wanted none here)"), "{wrong}");
            } else {
                assert_eq!(keys(table), wanted(&text), "{name}");
            }
        }
        let bare: BTreeSet<&str> = BARE.into();
        let without_table = COMMANDS.into_iter().filter(|name| *name != "produce").collect();
        assert_eq!(bare, without_table);
    }

    #[test]
    fn words_are_those_of_the_types() {
        let schema = schema();
        assert_eq!(
            schema["properties"]["phase"]["anyOf"][0]["enum"],
            json!(["start", "catch-up", "live", "commit", "rebalance", "close"])
        );
        assert_eq!(
            schema["$defs"]["step"]["properties"]["grade"]["anyOf"][0]["enum"],
            json!(["injected", "delivered", "felt"])
        );
    }
}
