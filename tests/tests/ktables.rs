//! The ktables adapter on the bare mock cluster, driven over the protocol: it must show what was measured by hand, of the
//! bad release and of the good ones.

#![expect(clippy::unwrap_used, reason = "helpers of tests: a panic fails the test")]

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use brokerfall::reader::Launch;
use brokerfall_report::exception::{Exception, FrameOf, Origin, Relation};
use brokerfall_report::history::Generator;
use brokerfall_report::protocol::{
    ArmCallback, Callback, Command as Ask, Done, How, Isolation, Kind, Line, On, Raise, ReaderEvent, Request, Reset,
    Start, Times, TopicRef,
};
use rdkafka::ClientConfig;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

const TOPIC: &str = "orders";
const BAD: [&str; 1] = ["1.1.1"];
const GOOD: [&str; 2] = ["1.1.2", "2.0.0"];
/// Longest wait for anything; nothing here takes more than a few seconds on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A reader to start, or `None` (said aloud) where its environment cannot be had on this machine.
fn ktables(version: &str) -> Option<Launch> {
    ktables_with(version, &[], None)
}

/// The same with `--with` and `--runtime`.
fn ktables_with(version: &str, with: &[&str], runtime: Option<&str>) -> Option<Launch> {
    brokerfall_tests::ktables(version, with, runtime, &cache())
}

/// The cache of these tests, which outlives them.
fn cache() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("brokerfall-cache")
}

/// A mock cluster with one topic and a producer of its own.
struct Log {
    cluster: MockCluster<'static, DefaultProducerContext>,
    producer: BaseProducer,
    generator: Generator,
    next: Vec<u64>,
}

impl Log {
    fn new(partitions: u32, generator: Generator) -> Log {
        let cluster = MockCluster::new(1).unwrap();
        cluster
            .create_topic(TOPIC, i32::try_from(partitions).unwrap(), 1)
            .unwrap();
        let producer = ClientConfig::new()
            .set("bootstrap.servers", cluster.bootstrap_servers())
            .create()
            .unwrap();
        Log {
            cluster,
            producer,
            generator,
            next: vec![1; partitions as usize],
        }
    }

    /// Writes `count` records to every partition and waits until they are acknowledged.
    fn write(&mut self, count: u64) {
        for (partition, next) in self.next.iter_mut().enumerate() {
            let number = u32::try_from(partition).unwrap();
            for id in *next..*next + count {
                let (key, value) = (self.generator.key(number, id), self.generator.value(id));
                let mut record = BaseRecord::to(TOPIC)
                    .partition(i32::try_from(partition).unwrap())
                    .key(&key);
                record.payload = value.as_ref();
                self.producer.send(record).map_err(|(error, _)| error).unwrap();
            }
            *next += count;
        }
        self.producer.flush(PATIENCE).unwrap();
    }
}

/// Ends the child even when an assertion fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An adapter's process and every line that it said.
struct Adapter {
    process: Running,
    commands: Option<ChildStdin>,
    said: Arc<(Mutex<Vec<Line>>, Condvar)>,
    asked: u64,
}

impl Adapter {
    fn spawn(launch: &Launch) -> Adapter {
        let mut child = Command::new(&launch.command[0])
            .args(&launch.command[1..])
            .envs(launch.env.iter().cloned())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let to = Arc::clone(&said);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let line: Line = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
                let mut all = to.0.lock().unwrap();
                assert_eq!(line.seq, all.len() as u64 + 1, "a gap in seq");
                all.push(line);
                to.1.notify_all();
            }
        });
        let commands = child.stdin.take();
        Adapter {
            process: Running(child),
            commands,
            said,
            asked: 0,
        }
    }

    /// Waits until `wanted` finds what it wants among the lines, oldest first.
    fn wait<T>(&self, what: &str, wanted: impl Fn(&[Line]) -> Option<T>) -> T {
        let (all, waited) = {
            let guard = self.said.0.lock().unwrap();
            self.said
                .1
                .wait_timeout_while(guard, PATIENCE, |all| wanted(all).is_none())
                .unwrap()
        };
        match wanted(&all) {
            Some(found) => found,
            None => {
                let last = &all[all.len().saturating_sub(20)..];
                panic!(
                    "{what} did not come (timed out: {}); last lines: {last:#?}",
                    waited.timed_out()
                );
            }
        }
    }

    fn ask(&mut self, command: Ask) -> Done {
        self.asked += 1;
        let id = self.asked;
        let line = serde_json::to_string(&Request { id, command }).unwrap();
        writeln!(self.commands.as_mut().unwrap(), "{line}").unwrap();
        self.wait("done", |all| {
            all.iter().find_map(|line| match &line.event {
                ReaderEvent::Done(done) if done.id == id => Some(done.clone()),
                _ => None,
            })
        })
    }

    fn start(&mut self, log: &Log) -> Done {
        self.ask(Ask::Start(Start {
            bootstrap: log.cluster.bootstrap_servers(),
            topics: vec![TopicRef {
                name: TOPIC.into(),
                partitions: u32::try_from(log.next.len()).unwrap(),
                role: None,
            }],
            kind: Kind::Table,
            group: None,
            client_id: "r1".into(),
            reset: Reset::Earliest,
            isolation: Isolation::ReadUncommitted,
            session_ms: None,
            heartbeat_ms: None,
            max_poll_ms: None,
            state_dir: None,
            options: [("poll_timeout_ms", 20), ("fetch_max_wait_ms", 20)]
                .map(|(name, value)| (name.to_owned(), value.into()))
                .into(),
        }))
    }

    /// Arms one ordinary exception in the next `on_set`.
    fn arm(&mut self, how: How) {
        let done = self.ask(Ask::ArmCallback(ArmCallback {
            callback: Callback::OnSet,
            on: On::Nth(1),
            raise: Raise {
                how,
                type_name: None,
                ms: None,
            },
            times: Times::Count(1),
        }));
        assert!(done.ok, "{done:?}");
    }

    /// Waits until incarnation `inc` delivered this many records in all.
    fn delivered(&self, inc: u32, count: u64) {
        self.wait("delivery", |all| (ids(all, inc).len() as u64 >= count).then_some(()));
    }

    fn events<T>(&self, of: impl Fn(&ReaderEvent) -> Option<T>) -> Vec<T> {
        self.said
            .0
            .lock()
            .unwrap()
            .iter()
            .filter_map(|line| of(&line.event))
            .collect()
    }

    /// Stops it and waits for its end.
    fn stop(mut self) {
        assert!(self.ask(Ask::Stop { grace_ms: 5000 }).ok);
        let status = self.process.0.wait().unwrap();
        assert_eq!(status.code(), Some(0));
        let stopped = self.events(|event| {
            matches!(event, ReaderEvent::Stopped { reason, exception: None } if reason == "asked").then_some(())
        });
        assert_eq!(stopped.len(), 1);
    }
}

/// Partition and id of every record that an incarnation delivered.
fn ids(all: &[Line], inc: u32) -> Vec<(u32, u64)> {
    let mut found = Vec::new();
    for line in all.iter().filter(|line| line.inc == inc) {
        if let ReaderEvent::Records { partitions } = &line.event {
            for one in partitions {
                assert!(one.offsets.is_none(), "ktables tells no offsets");
                found.extend(
                    one.ids
                        .iter()
                        .flat_map(|runs| runs.iter())
                        .map(|id| (one.partition, id)),
                );
            }
        }
    }
    found
}

fn error_of(origin: Origin) -> impl Fn(&ReaderEvent) -> Option<(bool, Exception)> {
    move |event| match event {
        ReaderEvent::Error {
            origin: found,
            fatal,
            exception,
            ..
        } if *found == origin => Some((*fatal, exception.clone())),
        _ => None,
    }
}

fn state(all: &[Line], wanted: &str) -> Option<()> {
    all.iter()
        .any(|line| matches!(&line.event, ReaderEvent::Status { state, .. } if state == wanted))
        .then_some(())
}

fn plain() -> Generator {
    Generator {
        keys: 10,
        value_bytes: 20,
        tombstone_every: None,
    }
}

#[test]
fn observer_that_raises_in_the_live_phase_ends_1_1_1_with_the_users_own_exception() {
    for version in BAD {
        let Some(launch) = ktables(version) else { return };
        let mut log = Log::new(1, plain());
        log.write(20);
        let mut adapter = Adapter::spawn(&launch);
        assert!(adapter.start(&log).ok);
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
        assert_eq!(ids(&adapter.said.0.lock().unwrap(), 1).len(), 21);

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
        assert!(adapter.start(&log).ok);
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
        let done = adapter.start(&log);
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
        assert!(adapter.start(&log).ok);
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
        assert!(adapter.start(&log).ok);
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
        let mut read = ids(&adapter.said.0.lock().unwrap(), 1);
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
    assert!(adapter.start(&log).ok);
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
