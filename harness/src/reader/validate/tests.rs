use brokerfall_report::protocol::{Isolation, Reset, Start, TopicRef};

use super::*;

const ALL: &str = r#"["records.offsets","records.ids","heartbeat.positions","status"]"#;

fn start() -> Command {
    Command::Start(Start {
        bootstrap: String::new(),
        topics: vec![TopicRef {
            name: "orders".to_owned(),
            partitions: 2,
            role: None,
        }],
        kind: Kind::Group,
        group: None,
        client_id: "r1".to_owned(),
        reset: Reset::Earliest,
        isolation: Isolation::ReadUncommitted,
        session_ms: None,
        heartbeat_ms: None,
        max_poll_ms: None,
        group_instance_id: None,
        state_dir: None,
        options: BTreeMap::new(),
    })
}

fn hello(protocol: u32, kinds: &str, capabilities: &str) -> String {
    format!(
        r#""type":"hello","protocol":{protocol},"library":"l 1","client":"c 1","runtime":"r 1","kinds":{kinds},"capabilities":{capabilities}"#
    )
}

fn line(seq: u64, inc: u32, rest: &str) -> Vec<u8> {
    format!(r#"{{"v":1,"seq":{seq},"inc":{inc},"mono_ms":{seq}.5,{rest}}}"#).into_bytes()
}

/// A conversation after `hello` and `start` (id 1); the next seq is 2.
fn greeted(capabilities: &str) -> Validator {
    let mut validator = Validator::new(Kind::Group);
    validator
        .line(&line(1, 0, &hello(1, r#"["group"]"#, capabilities)), 0)
        .unwrap();
    validator.asked(1, &start());
    validator
}

fn broken(validator: &mut Validator, bytes: &[u8]) -> String {
    validator.line(bytes, 10).unwrap_err().text
}

fn records(body: &str) -> Vec<u8> {
    line(
        2,
        1,
        &format!(r#""type":"records","partitions":[{{{body},"t":[1,2]}}]"#),
    )
}

#[test]
fn good_conversation_is_taken_line_by_line() {
    let mut validator = greeted(ALL);
    let lines = [
        r#""type":"done","id":1,"ok":true"#,
        r#""type":"started""#,
        r#""type":"records","partitions":[{"topic":"orders","partition":1,"offsets":[[0,2],[5,5]],"ids":[[1,4]],"t":[1,2]}]"#,
        r#""type":"heartbeat","state":"live","loop_age_ms":null,"positions":[]"#,
        r#""type":"status","state":"ready","a_field_of_a_later_version":1"#,
        r#""type":"stopped","reason":"asked""#,
    ];
    for (seq, rest) in (2..).zip(lines) {
        let got = validator.line(&line(seq, 1, rest), 10).unwrap();
        assert_eq!(got.seq, seq);
    }
}

#[test]
fn text_that_is_not_json_is_shown_lossily() {
    let broken = greeted(ALL).line(b"DEBUG \xff\xfe connecting", 10).unwrap_err();
    assert!(broken.text.contains("not JSON"), "{}", broken.text);
    assert_eq!(broken.line, "DEBUG \u{fffd}\u{fffd} connecting");
}

#[test]
fn line_that_is_json_but_nothing_else_is_explained() {
    assert_eq!(broken(&mut greeted(ALL), b"{}"), "a line without a `type`");
    let text = broken(&mut greeted(ALL), br#"{"v":1,"seq":2,"#);
    assert!(text.starts_with("a line that is not JSON: EOF while parsing"), "{text}");
    assert_eq!(broken(&mut greeted(ALL), b"17"), "a line without a `type`");
    let text = broken(&mut greeted(ALL), &line(2, 0, r#""type":"gossip""#));
    assert_eq!(text, r#"unknown type "gossip""#);
    let text = broken(&mut greeted(ALL), br#"{"v":1,"type":"started"}"#);
    assert!(
        text.starts_with("a `started` line that does not fit the protocol"),
        "{text}"
    );
    let text = broken(&mut greeted(ALL), &line(2, 0, r#""type":"heartbeat","state":7"#));
    assert!(text.starts_with("a `heartbeat` line that does not fit"), "{text}");
}

#[test]
fn every_type_of_the_protocol_is_known_to_explain() {
    // Each is a known type with missing fields or a good line; none may be called unknown.
    for name in TYPES {
        let text = match greeted(ALL).line(&line(2, 0, &format!(r#""type":"{name}""#)), 10) {
            Ok(_) => continue,
            Err(broken) => broken.text,
        };
        assert!(!text.contains("unknown type"), "{name}: {text}");
    }
}

#[test]
fn other_protocol_version_is_refused() {
    let text = broken(
        &mut greeted(ALL),
        br#"{"v":2,"seq":2,"inc":0,"mono_ms":1,"type":"started"}"#,
    );
    assert_eq!(text, "v is 2, wanted 1");
    let mut fresh = Validator::new(Kind::Group);
    let text = broken(&mut fresh, &line(1, 0, &hello(2, r#"["group"]"#, "[]")));
    assert_eq!(text, "the adapter speaks protocol 2, wanted 1");
}

#[test]
fn gap_or_repeat_in_seq_is_broken() {
    let text = broken(&mut greeted(ALL), &line(3, 0, r#""type":"started""#));
    assert!(text.starts_with("seq is 3, wanted 2"), "{text}");
    let text = broken(&mut greeted(ALL), &line(1, 0, r#""type":"started""#));
    assert!(text.starts_with("seq is 1, wanted 2"), "{text}");
}

#[test]
fn incarnation_that_falls_is_broken() {
    let mut validator = greeted(ALL);
    validator.line(&line(2, 3, r#""type":"started""#), 10).unwrap();
    let text = broken(&mut validator, &line(3, 2, r#""type":"started""#));
    assert_eq!(text, "inc fell from 3 to 2");
}

#[test]
fn hello_comes_first_once_and_with_the_kind_asked() {
    let mut fresh = Validator::new(Kind::Group);
    let text = broken(&mut fresh, &line(1, 0, r#""type":"started""#));
    assert_eq!(text, "the first line is no `hello`");
    let text = broken(&mut greeted(ALL), &line(2, 0, &hello(1, r#"["group"]"#, "[]")));
    assert_eq!(text, "a second `hello`");
    let mut fresh = Validator::new(Kind::Table);
    let text = broken(&mut fresh, &line(1, 0, &hello(1, r#"["group","assign"]"#, "[]")));
    assert!(text.contains("[group, assign]") && text.contains("`table`"), "{text}");
}

#[test]
fn done_is_taken_once_and_only_for_what_was_asked() {
    let done = |seq, id: u64| line(seq, 0, &format!(r#""type":"done","id":{id},"ok":true"#));
    let mut validator = greeted(ALL);
    validator.asked(2, &Command::Commit);
    validator.asked(3, &Command::Commit);
    // Out of order is allowed: commands may be in hand at the same time.
    validator.line(&done(2, 3), 10).unwrap();
    validator.line(&done(3, 1), 10).unwrap();
    assert_eq!(broken(&mut validator, &done(4, 3)), "a second `done` for id 3");
    let text = broken(&mut validator, &done(5, 9));
    assert_eq!(text, "`done` for id 9, which was never asked");
}

#[test]
fn records_of_unknown_partitions_are_broken() {
    let text = broken(
        &mut greeted(ALL),
        &records(r#""topic":"orders","partition":2,"offsets":[],"ids":[]"#),
    );
    assert_eq!(text, "records of orders-2, but the topic has 2 partitions");
    let text = broken(
        &mut greeted(ALL),
        &records(r#""topic":"other","partition":0,"offsets":[],"ids":[]"#),
    );
    assert_eq!(text, "records of other-0, a topic that `start` did not name");
}

#[test]
fn runs_that_cannot_be_are_broken() {
    let text = broken(
        &mut greeted(ALL),
        &records(r#""topic":"orders","partition":0,"offsets":[[5,4]],"ids":[[1,1]]"#),
    );
    assert!(text.contains("[5, 4] is no run"), "{text}");
    let text = broken(
        &mut greeted(ALL),
        &records(r#""topic":"orders","partition":0,"offsets":[[0,18446744073709551615]],"ids":[[1,1]]"#),
    );
    assert!(text.contains("is no run"), "{text}");
    let text = broken(
        &mut greeted(ALL),
        &records(r#""topic":"orders","partition":0,"offsets":[[0,1]],"ids":[[1,3]]"#),
    );
    assert_eq!(text, "records of orders-0: 2 offsets but 3 ids");
    let text = broken(
        &mut greeted(ALL),
        &records(r#""topic":"orders","partition":0,"offsets":[[0,9000000000]],"ids":[[0,9000000000]]"#),
    );
    assert!(text.starts_with("9000000001 records in one line"), "{text}");
}

#[test]
fn processing_that_can_only_be_delayed_is_entered_and_raises_nothing() {
    let mut validator = greeted(r#"["arm_callback.delay"]"#);
    let entered = line(2, 1, r#""type":"callback_entered","callback":"on_record","offset":4"#);
    assert!(validator.line(&entered, 10).is_ok());
    let raised = line(3, 1, r#""type":"callback_raised","callback":"on_record","offset":4"#);
    assert_eq!(
        broken(&mut validator, &raised),
        "`callback_raised` without the capability `arm_callback` in `hello`"
    );
}

#[test]
fn what_hello_did_not_promise_is_broken() {
    let none = |rest: &str| broken(&mut greeted("[]"), &line(2, 1, rest));
    assert_eq!(
        none(r#""type":"caught_up""#),
        "`caught_up` without the capability `caught_up` in `hello`"
    );
    assert_eq!(
        none(r#""type":"callback_entered","callback":"on_set""#),
        "`callback_entered` without the capability `arm_callback` in `hello`"
    );
    assert_eq!(
        none(r#""type":"heartbeat","state":"x","positions":[]"#),
        "positions in a heartbeat without the capability `heartbeat.positions` in `hello`"
    );
    let text = broken(
        &mut greeted("[]"),
        &records(r#""topic":"orders","partition":0,"ids":[[1,1]]"#),
    );
    assert_eq!(
        text,
        "records of orders-0 carry what needs capability `records.ids` in `hello`"
    );
    let text = broken(
        &mut greeted(r#"["records.ids"]"#),
        &records(r#""topic":"orders","partition":0"#),
    );
    assert_eq!(text, "records of orders-0 lack what capability `records.ids` promises");
    greeted("[]")
        .line(&records(r#""topic":"orders","partition":0"#), 10)
        .unwrap();
}

#[test]
fn snapshot_part_belongs_to_a_snapshot_in_hand_and_is_short() {
    let part = |seq, id: u64, entries: usize| {
        let entries = vec![r#"["k",1]"#; entries].join(",");
        line(
            seq,
            1,
            &format!(r#""type":"snapshot_part","id":{id},"entries":[{entries}]"#),
        )
    };
    let text = broken(&mut greeted(ALL), &part(2, 1, 1));
    assert_eq!(text, "snapshot_part for id 1, which is no `snapshot` in hand");
    let mut validator = greeted(ALL);
    validator.asked(2, &Command::Snapshot);
    validator.line(&part(2, 2, 1_000), 10).unwrap();
    let text = broken(&mut validator, &part(3, 2, 1_001));
    assert!(text.starts_with("1001 entries in one snapshot_part"), "{text}");
}

#[test]
fn flood_is_broken_at_one_line_too_many() {
    let mut validator = greeted(ALL);
    let beat = r#""type":"heartbeat","state":"x""#;
    // `hello` was the first line of this second.
    for seq in 2..=u64::from(LINES_PER_SECOND) {
        validator.line(&line(seq, 0, beat), 999_999).unwrap();
    }
    let seq = u64::from(LINES_PER_SECOND) + 1;
    let text = validator.line(&line(seq, 0, beat), 999_999).unwrap_err().text;
    assert_eq!(text, "more than 5000 lines in one second");

    let mut patient = greeted(ALL);
    for seq in 2..=u64::from(LINES_PER_SECOND) {
        patient.line(&line(seq, 0, beat), 999_999).unwrap();
    }
    patient.line(&line(seq, 0, beat), 1_000_000).unwrap();
}

#[test]
fn line_of_one_mebibyte_is_taken_and_one_byte_more_is_not() {
    let of = |length: usize| {
        let mut bytes = line(2, 0, r#""type":"started""#);
        bytes.resize(length, b' ');
        bytes
    };
    greeted(ALL).line(&of(LINE_BYTES), 10).unwrap();
    let broken = greeted(ALL).line(&of(LINE_BYTES + 1), 10).unwrap_err();
    assert_eq!(broken.text, "a line longer than 1048576 bytes");
    assert_eq!(broken.line.len(), 300);
}

#[test]
fn clock_that_cannot_be_is_broken() {
    let text = broken(
        &mut greeted(ALL),
        br#"{"v":1,"seq":2,"inc":0,"mono_ms":1e300,"type":"started"}"#,
    );
    assert!(text.starts_with("mono_ms is 1"), "{text}");
}
