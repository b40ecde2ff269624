//! The fast path and serde read every line alike.

use proptest::prelude::*;

use super::*;
use crate::protocol::Claims;

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop_oneof![Just("orders".to_owned()), Just("r1".to_owned()), Just(String::new())],
        1 => "[a-zäé\"\\\\\n\u{7f} ]{0,6}",
    ]
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0u64..2_000, 1 => any::<u64>(), 1 => Just(9_999_999_999_999_999_999)]
}

fn float() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => (0u64..10_000_000, 0i32..7).prop_map(|(n, power)| n as f64 / 10f64.powi(power)),
        1 => any::<f64>().prop_filter("JSON has no such number", |float| float.is_finite()),
    ]
}

fn runs() -> impl Strategy<Value = Runs> {
    proptest::collection::vec([number(), number()], 0..4).prop_map(|list| {
        let mut runs = Runs::default();
        *runs.raw() = list;
        runs
    })
}

fn position() -> impl Strategy<Value = Position> {
    (name(), any::<u32>(), number()).prop_map(|(topic, partition, offset)| Position {
        topic,
        partition,
        offset,
    })
}

const ORIGINS: [Origin; 5] = [
    Origin::Reader,
    Origin::Callback,
    Origin::Poll,
    Origin::Background,
    Origin::Log,
];

fn exception() -> BoxedStrategy<Exception> {
    let one = || {
        (name(), name(), proptest::option::of(-5i64..5)).prop_map(|(type_name, message, code)| Exception {
            type_name,
            code: code.map(|value| crate::exception::Code {
                value,
                name: "C".into(),
            }),
            attributes: [("retriable".to_owned(), true.into())].into(),
            message,
            ..no_exception()
        })
    };
    let with_child = (one(), one()).prop_map(|(outer, inner)| Exception {
        children: vec![inner],
        ..outer
    });
    prop_oneof![one(), with_child].boxed()
}

// Boxed, all of them: nested as they are they would not fit on the stack of a test.
fn reader_event() -> BoxedStrategy<ReaderEvent> {
    use proptest::{collection::btree_map, collection::vec, option::of, sample::select};
    let delivered = (name(), any::<u32>(), of(runs()), of(runs()), (float(), float())).prop_map(
        |(topic, partition, offsets, ids, t)| Delivered {
            topic,
            partition,
            offsets,
            ids,
            t,
        },
    );
    let claims = (of(any::<bool>()), of(any::<bool>()), of(number())).prop_map(|(caught_up, healthy, lag)| Claims {
        caught_up,
        healthy,
        lag,
    });
    let ages = (of(float()), of(float()), of(float()));
    let heartbeat = (
        name(),
        of(vec(position(), 0..3)),
        ages,
        claims,
        btree_map(name(), float(), 0..3),
    )
        .prop_map(
            |(state, positions, (loop_age_ms, last_poll_age_ms, last_commit_age_ms), claims, counters)| {
                ReaderEvent::Heartbeat(Heartbeat {
                    state,
                    positions,
                    loop_age_ms,
                    last_poll_age_ms,
                    last_commit_age_ms,
                    claims,
                    counters,
                })
            },
        );
    prop_oneof![
        vec(delivered, 0..3).prop_map(|partitions| ReaderEvent::Records { partitions }),
        heartbeat,
        vec(position(), 0..3).prop_map(|offsets| ReaderEvent::Committed { offsets }),
        (exception(), any::<bool>(), select(ORIGINS.to_vec()), number()).prop_map(
            |(exception, fatal, origin, count)| ReaderEvent::Error {
                origin,
                fatal,
                exception,
                count,
            }
        ),
        Just(ReaderEvent::CaughtUp),
    ]
    .boxed()
}

fn event() -> BoxedStrategy<Event> {
    use proptest::{collection::btree_map, collection::vec, sample::select};
    let outcome = select(vec![
        ProduceOutcome::Acked,
        ProduceOutcome::Failed,
        ProduceOutcome::Maybe,
    ]);
    let change = select(vec![
        ConnectionChange::Opened,
        ConnectionChange::ClosedByClient,
        ConnectionChange::ClosedByBroker,
        ConnectionChange::ResetByLink,
        ConnectionChange::TurnedAway,
        ConnectionChange::Held,
        ConnectionChange::Slowed,
    ]);
    let end = position().prop_map(|at| LogEnd {
        topic: at.topic,
        partition: at.partition,
        offset: at.offset,
    });
    prop_oneof![
        (name(), any::<u32>(), runs(), runs(), outcome).prop_map(|(topic, partition, ids, offsets, outcome)| {
            Event::Produced {
                topic,
                partition,
                ids,
                offsets,
                outcome,
            }
        }),
        (name(), any::<u32>(), number(), number()).prop_map(|(topic, partition, log_start, log_end)| {
            Event::Watermarks {
                topic,
                partition,
                log_start,
                log_end,
            }
        }),
        (name(), any::<u32>(), number(), reader_event()).prop_map(|(member, inc, reader_us, event)| {
            Event::Reader {
                member,
                inc,
                reader_us,
                event,
            }
        }),
        (
            name(),
            number(),
            number(),
            number(),
            any::<u32>(),
            proptest::option::of(number())
        )
            .prop_map(
                |(member, cpu_ms, rss_kib, descriptors, processes, waited_ms)| Event::Sample {
                    member,
                    cpu_ms,
                    rss_kib,
                    descriptors,
                    processes,
                    waited_ms,
                }
            ),
        (
            name(),
            number(),
            btree_map(name(), number(), 0..4),
            number(),
            vec(end, 0..3)
        )
            .prop_map(|(client, span_us, requests, connects, fetch_offsets)| Event::Wire {
                client,
                span_us,
                requests,
                connects,
                fetch_offsets,
            }),
        (name(), any::<i32>(), change, number()).prop_map(|(client, node, change, count)| Event::WireConnection {
            client,
            node,
            change,
            count
        }),
        (name(), name(), name(), any::<u32>(), number(), any::<i16>()).prop_map(
            |(client, group, topic, partition, offset, code)| Event::WireCommit {
                client,
                group,
                topic,
                partition,
                offset,
                code,
            }
        ),
        (name(), name(), any::<i32>()).prop_map(|(client, group, generation)| Event::WireGroup {
            client,
            group,
            change: GroupChange::Alive { generation },
        }),
        Just(Event::Quiet),
    ]
    .boxed()
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let entry = (number(), number(), event()).prop_map(|(n, at_us, event)| Entry { n, at_us, event });
    proptest::collection::vec(entry, 1..12)
}

proptest! {
    #[test]
    fn lines_read_one_after_the_other_equal_what_serde_reads(entries in entries()) {
        let mut reader = EntryReader::default();
        for entry in &entries {
            let line = serde_json::to_vec(entry).unwrap();
            let by_serde: Entry = serde_json::from_slice(&line).unwrap();
            prop_assert_eq!(reader.read(&line).unwrap(), &by_serde, "{}", String::from_utf8_lossy(&line));
        }
    }

    // One byte changed, dropped or doubled: what is still an entry is the same entry, what is none is none.
    #[test]
    fn damaged_lines_are_read_or_refused_as_serde_does(
        entries in entries(), at in any::<prop::sample::Index>(), byte in any::<u8>(), how in 0..3,
    ) {
        let mut reader = EntryReader::default();
        for entry in &entries {
            let mut line = serde_json::to_vec(entry).unwrap();
            let at = at.index(line.len());
            match how {
                0 => line[at] = byte,
                1 => _ = line.remove(at),
                _ => line.insert(at, line[at]),
            }
            let (mine, by_serde) = (reader.read(&line).ok(), serde_json::from_slice::<Entry>(&line).ok());
            prop_assert_eq!(mine, by_serde.as_ref(), "{}", String::from_utf8_lossy(&line));
        }
    }
}

/// Lines as the recorder writes them, that must not need serde: the speed rests on it.
#[test]
fn ordinary_lines_of_frequent_kinds_are_taken_apart_without_serde() {
    let lines = [
        r#"{"n":39,"at_us":307151,"event":{"produced":{"topic":"orders","partition":0,"ids":[[315,315]],"offsets":[[314,314]],"outcome":"acked"}}}"#,
        r#"{"n":7,"at_us":15767,"event":{"watermarks":{"topic":"orders","partition":0,"log_start":0,"log_end":300}}}"#,
        r#"{"n":20,"at_us":23975,"event":{"reader":{"member":"r1","inc":1,"reader_us":23907,"event":{"type":"records","partitions":[{"topic":"orders","partition":0,"offsets":[[0,0]],"ids":[[1,1]],"t":[9.249,9.249]}]}}}}"#,
        r#"{"n":10,"at_us":16465,"event":{"reader":{"member":"r1","inc":0,"reader_us":16401,"event":{"type":"heartbeat","state":"new","positions":[{"topic":"orders","partition":0,"offset":5}],"loop_age_ms":null,"claims":{"caught_up":false,"lag":3},"counters":{"callback_errors":0.0}}}}}"#,
        r#"{"n":11,"at_us":16465,"event":{"reader":{"member":"r1","inc":1,"reader_us":16401,"event":{"type":"committed","offsets":[{"topic":"orders","partition":0,"offset":5}]}}}}"#,
        r#"{"n":39,"at_us":265172,"event":{"sample":{"member":"r1","cpu_ms":0,"rss_kib":19872,"descriptors":14,"processes":1}}}"#,
        r#"{"n":39,"at_us":265172,"event":{"sample":{"member":"r1","cpu_ms":0,"rss_kib":19872,"descriptors":14,"processes":1,"waited_ms":7}}}"#,
        r#"{"n":37,"at_us":257411,"event":{"wire":{"client":"r1","span_us":249170,"requests":{"ApiVersions":6,"Fetch":15},"connects":3,"fetch_offsets":[{"topic":"orders","partition":0,"offset":311}]}}}"#,
        r#"{"n":13,"at_us":18568,"event":{"wire_connection":{"client":"r1","node":1,"change":"opened","count":1}}}"#,
        r#"{"n":14,"at_us":18568,"event":{"wire_group":{"client":"r1","group":"g","change":{"alive":{"generation":2}}}}}"#,
        r#"{"n":15,"at_us":18568,"event":{"reader":{"member":"r1","inc":1,"reader_us":16401,"event":{"type":"error","origin":"poll","fatal":false,"exception":{"type":"a.B","code":{"value":-187,"name":"X"},"message":"m","children":[{"type":"a.C","message":"","relation":"cause"}]},"count":3}}}}"#,
        r#"{"n":14,"at_us":18568,"event":{"wire_commit":{"client":"r1","group":"g","topic":"orders","partition":0,"offset":311,"code":0}}}"#,
    ];
    let mut reader = EntryReader::default();
    for line in lines {
        let (kind, head) = Kind::of(line.as_bytes()).unwrap();
        assert!(reader.fill(kind, head).is_some(), "{line}");
    }
}
