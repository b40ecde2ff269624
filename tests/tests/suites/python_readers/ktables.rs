//! The ktables adapter: it must show what was measured by hand, of the bad release and of the good ones.

use brokerfall::reader::Launch;
use brokerfall_report::exception::{FrameOf, Origin, Relation};
use brokerfall_report::history::Generator;
use brokerfall_report::protocol::{Command as Ask, Done, How, Kind, Line, ReaderEvent};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

use super::driver::{Adapter, Log, cache, error_of, plain};

const BAD: [&str; 1] = ["1.1.1"];
const GOOD: [&str; 2] = ["1.1.2", "2.0.0"];

/// A reader to start, or `None` (said aloud) where its environment cannot be had on this machine.
fn ktables(version: &str) -> Option<Launch> {
    ktables_with(version, &[], None)
}

/// The same with `--with` and `--runtime`.
fn ktables_with(version: &str, with: &[&str], runtime: Option<&str>) -> Option<Launch> {
    brokerfall_tests::ktables(version, with, runtime, &cache())
}

/// Starts a table that polls often.
fn start(adapter: &mut Adapter, log: &Log) -> Done {
    adapter.start(log, Kind::Table, |start| {
        start.options = [("poll_timeout_ms", 20), ("fetch_max_wait_ms", 20)]
            .map(|(name, value)| (name.to_owned(), value.into()))
            .into();
    })
}

fn state(all: &[Line], wanted: &str) -> Option<()> {
    all.iter()
        .any(|line| matches!(&line.event, ReaderEvent::Status { state, .. } if state == wanted))
        .then_some(())
}

#[test]
fn observer_that_raises_in_the_live_phase_ends_1_1_1_with_the_users_own_exception() {
    for version in BAD {
        let Some(launch) = ktables(version) else { return };
        let mut log = Log::new(1, plain());
        log.write(20);
        let mut adapter = Adapter::spawn(&launch);
        assert!(start(&mut adapter, &log).ok);
        adapter.delivered(1, 20);
        adapter.wait("caught up", |all| state(all, "caught_up"));
        adapter.arm(How::Exception);
        log.write(5);
        adapter.wait("failed", |all| state(all, "failed"));

        let (fatal, exception) = adapter.wait("the failure", |all| {
            all.iter().find_map(|line| error_of(Origin::Reader)(&line.event))
        });
        assert!(fatal);
        assert_eq!(exception.type_name, "builtins.ValueError");
        let innermost = |of: FrameOf| exception.frames.iter().rfind(|frame| frame.of == of).unwrap();
        assert_eq!(
            (
                innermost(FrameOf::Library).file.as_str(),
                innermost(FrameOf::Library).function.as_str()
            ),
            ("ktables/kafka_table.py", "_apply")
        );
        assert!(
            exception
                .frames
                .iter()
                .any(|frame| frame.of == FrameOf::Callback && frame.function == "on_set")
        );
        // It says so in its log as well, and claims no health any more.
        assert!(
            adapter
                .events(error_of(Origin::Log))
                .iter()
                .any(|(_, one)| one.type_name == "builtins.ValueError")
        );
        adapter.wait("a heartbeat that says so", |all| {
            all.iter().find_map(|line| match &line.event {
                ReaderEvent::Heartbeat(beat) if beat.state == "failed" => {
                    assert_eq!((beat.claims.healthy, beat.claims.caught_up), (Some(false), Some(false)));
                    Some(())
                }
                _ => None,
            })
        });
        assert_eq!(adapter.ask(Ask::Barrier { timeout_ms: 2000 }).reached, Some(false));
        // Frozen at the record: the one whose observer raised is the last.
        assert_eq!(adapter.ids(1).len(), 21);

        // A fresh object in the same process reads everything.
        assert!(adapter.ask(Ask::Restart).ok);
        adapter.delivered(2, 25);
        assert_eq!(adapter.ask(Ask::Barrier { timeout_ms: 10_000 }).reached, Some(true));
        adapter.stop();
    }
}

#[test]
fn observer_that_raises_in_the_live_phase_does_not_end_the_fixed_releases() {
    for version in GOOD {
        let Some(launch) = ktables(version) else { return };
        let mut log = Log::new(1, plain());
        log.write(20);
        let mut adapter = Adapter::spawn(&launch);
        assert!(start(&mut adapter, &log).ok);
        adapter.delivered(1, 20);
        adapter.arm(How::Exception);
        log.write(5);
        adapter.delivered(1, 25);
        assert_eq!(adapter.ask(Ask::Barrier { timeout_ms: 10_000 }).reached, Some(true));
        adapter.wait("the library's own count", |all| {
            all.iter().find_map(|line| match &line.event {
                ReaderEvent::Heartbeat(beat) if beat.counters.get("callback_errors") == Some(&1.0) => {
                    assert_eq!(beat.state, "caught_up");
                    Some(())
                }
                _ => None,
            })
        });
        assert!(adapter.events(error_of(Origin::Reader)).is_empty());
        let logged = adapter.events(error_of(Origin::Log));
        assert!(
            logged.iter().any(|(_, one)| one.type_name == "builtins.ValueError"),
            "{version}: {logged:?}"
        );
        adapter.stop();
    }
}

#[test]
fn observer_that_raises_during_catch_up_makes_start_of_1_1_1_raise_with_its_cause() {
    for (version, dies) in [(BAD[0], true), (GOOD[0], false), (GOOD[1], false)] {
        let Some(launch) = ktables(version) else { return };
        let mut log = Log::new(1, plain());
        log.write(20);
        let mut adapter = Adapter::spawn(&launch);
        adapter.arm(How::Exception);
        let done = start(&mut adapter, &log);
        assert_eq!(done.ok, !dies, "{version}: {done:?}");
        if let Some(error) = done.error {
            assert_eq!(error.type_name, "builtins.RuntimeError");
            assert!(error.message.contains("died during catch-up"), "{}", error.message);
            assert_eq!(error.children[0].relation, Some(Relation::Cause));
            assert_eq!(error.children[0].type_name, "builtins.ValueError");
        } else {
            adapter.delivered(1, 20);
        }
        adapter.stop();
    }
}

#[test]
fn fetch_answered_topic_authorization_failed_ends_every_release_honestly() {
    for version in BAD.iter().chain(&GOOD) {
        let Some(launch) = ktables(version) else { return };
        let mut log = Log::new(1, plain());
        log.write(5);
        let mut adapter = Adapter::spawn(&launch);
        assert!(start(&mut adapter, &log).ok);
        adapter.delivered(1, 5);
        log.cluster.request_errors(
            RDKafkaApiKey::Fetch,
            &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED],
        );
        let (fatal, exception) = adapter.wait("the failure", |all| {
            all.iter().find_map(|line| error_of(Origin::Reader)(&line.event))
        });
        assert!(fatal);
        assert_eq!(
            exception.label(),
            "aiokafka.errors.TopicAuthorizationFailedError(29 TOPIC_AUTHORIZATION_FAILED)"
        );
        adapter.stop();
    }
}

#[test]
fn table_of_three_partitions_with_tombstones_is_told_whole() {
    for version in BAD.iter().chain(&GOOD) {
        let Some(launch) = ktables(version) else { return };
        let mut log = Log::new(
            3,
            Generator {
                keys: 8,
                value_bytes: 20,
                tombstone_every: Some(5),
            },
        );
        log.write(40);
        let mut adapter = Adapter::spawn(&launch);
        assert!(start(&mut adapter, &log).ok);
        assert_eq!(adapter.ask(Ask::WaitCaughtUp { timeout_ms: 5000 }).reached, Some(true));
        assert!(adapter.ask(Ask::Snapshot).ok);

        let mut wanted = Vec::new();
        let mut table = std::collections::BTreeMap::new();
        for partition in 0..3 {
            for id in 1..=40 {
                let key = log.generator.key(partition, id);
                if log.generator.is_tombstone(id) {
                    table.remove(&key);
                } else {
                    wanted.push((partition, id));
                    table.insert(key, Some(id));
                }
            }
        }
        let mut read = adapter.ids(1);
        read.sort_unstable();
        assert_eq!(read, wanted);
        let told: std::collections::BTreeMap<_, _> = adapter
            .events(|event| match event {
                ReaderEvent::SnapshotPart { entries, .. } => Some(entries.clone()),
                _ => None,
            })
            .into_iter()
            .flatten()
            .collect();
        assert_eq!(told, table);
        let deleted: usize = adapter
            .events(|event| match event {
                ReaderEvent::Deleted { keys } => Some(keys.len()),
                _ => None,
            })
            .into_iter()
            .sum();
        assert_eq!(deleted, 3 * 8);
        adapter.stop();
    }
}

#[test]
fn hello_names_the_client_of_with_and_the_runtime_that_was_asked_for() {
    let asked = [
        (&[][..], None),
        (&["aiokafka==0.14.0"][..], None),
        (&[][..], Some("3.10")),
    ];
    for (with, runtime) in asked {
        let Some(launch) = ktables_with("1.1.1", with, runtime) else {
            continue;
        };
        let adapter = Adapter::spawn(&launch);
        let hello = adapter.wait("hello", |all| match &all.first()?.event {
            ReaderEvent::Hello(hello) => Some(hello.clone()),
            other => panic!("the first line is {other:?}"),
        });
        assert_eq!(hello.library, "ktables 1.1.1");
        assert_eq!(
            hello.client,
            if with.is_empty() {
                "aiokafka 0.13.0"
            } else {
                "aiokafka 0.14.0"
            }
        );
        assert!(
            hello
                .runtime
                .starts_with(&format!("CPython {}", runtime.unwrap_or("3"))),
            "{}",
            hello.runtime
        );
        let mut declared = launch.manifest.capabilities.clone().unwrap();
        declared.sort();
        assert_eq!(
            hello.capabilities, declared,
            "the manifest declares what the adapter has"
        );
        let lock = std::fs::read_to_string(launch.lock.as_ref().unwrap()).unwrap();
        assert!(
            lock.contains("ktables==1.1.1") && lock.contains(&hello.client.replace(' ', "==")),
            "{lock}"
        );
        adapter.stop();
    }
}

#[test]
fn observer_that_hangs_shows_in_the_loop_age_and_the_end_of_stdin_still_ends_the_process() {
    let Some(launch) = ktables(GOOD[0]) else { return };
    let mut log = Log::new(1, plain());
    log.write(5);
    let mut adapter = Adapter::spawn(&launch);
    assert!(start(&mut adapter, &log).ok);
    adapter.arm(How::Hang);
    log.write(1);
    adapter.wait("an old loop", |all| {
        all.iter().find_map(|line| match &line.event {
            ReaderEvent::Heartbeat(beat) if beat.loop_age_ms? > 1000.0 => Some(()),
            _ => None,
        })
    });
    drop(adapter.commands.take());
    assert_eq!(adapter.process.0.wait().unwrap().code(), Some(0));
}
