//! A mock cluster with one topic, and an adapter's process that is driven over the protocol.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use brokerfall::reader::Launch;
use brokerfall_report::exception::{Exception, Origin};
use brokerfall_report::history::Generator;
use brokerfall_report::protocol::{
    ArmCallback, Callback, Command as Ask, Done, How, Isolation, Kind, Line, On, Raise, ReaderEvent, Request, Reset,
    Start, Times, TopicRef,
};
use rdkafka::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer};

pub(crate) const TOPIC: &str = "orders";
/// Longest wait for anything; nothing here takes more than a few seconds on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The cache of these tests, which outlives them.
pub(crate) fn cache() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("brokerfall-cache")
}

/// A mock cluster with one topic and a producer of its own.
pub(crate) struct Log {
    pub(crate) cluster: MockCluster<'static, DefaultProducerContext>,
    producer: BaseProducer,
    pub(crate) generator: Generator,
    next: Vec<u64>,
}

impl Log {
    pub(crate) fn new(partitions: u32, generator: Generator) -> Log {
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
    pub(crate) fn write(&mut self, count: u64) {
        for (partition, next) in self.next.iter_mut().enumerate() {
            let number = u32::try_from(partition).unwrap();
            for id in *next..*next + count {
                let (key, value) = (self.generator.key(number, id), self.generator.value(id));
                let mut record = BaseRecord::to(TOPIC)
                    .partition(i32::try_from(partition).unwrap())
                    .key(&key);
                record.payload = value.as_ref();
                record.headers = Some(OwnedHeaders::new().insert(Header {
                    key: "bf-id",
                    value: Some(&id.to_string()),
                }));
                self.producer.send(record).map_err(|(error, _)| error).unwrap();
            }
            *next += count;
        }
        self.producer.flush(PATIENCE).unwrap();
    }
}

/// Ends the child even when an assertion fails.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An adapter's process and every line that it said.
pub(crate) struct Adapter {
    pub(crate) process: Running,
    pub(crate) commands: Option<ChildStdin>,
    pub(crate) said: Arc<(Mutex<Vec<Line>>, Condvar)>,
    asked: u64,
}

impl Adapter {
    pub(crate) fn spawn(launch: &Launch) -> Adapter {
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
    pub(crate) fn wait<T>(&self, what: &str, wanted: impl Fn(&[Line]) -> Option<T>) -> T {
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

    pub(crate) fn ask(&mut self, command: Ask) -> Done {
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

    /// Starts a reader of a kind on the log; `edit` changes what it is told.
    pub(crate) fn start(&mut self, log: &Log, kind: Kind, edit: impl FnOnce(&mut Start)) -> Done {
        let mut start = Start {
            bootstrap: log.cluster.bootstrap_servers(),
            topics: vec![TopicRef {
                name: TOPIC.into(),
                partitions: u32::try_from(log.next.len()).unwrap(),
                role: None,
            }],
            kind,
            group: (kind == Kind::Group).then(|| "g1".to_owned()),
            client_id: "r1".into(),
            reset: Reset::Earliest,
            isolation: Isolation::ReadUncommitted,
            session_ms: None,
            heartbeat_ms: None,
            max_poll_ms: None,
            group_instance_id: None,
            state_dir: None,
            options: BTreeMap::new(),
        };
        edit(&mut start);
        self.ask(Ask::Start(start))
    }

    /// Arms one ordinary exception in the next `on_set`.
    pub(crate) fn arm(&mut self, how: How) {
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
    pub(crate) fn delivered(&self, inc: u32, count: u64) {
        self.wait("delivery", |all| (ids(all, inc).len() as u64 >= count).then_some(()));
    }

    /// Partition and id of every record that an incarnation delivered.
    pub(crate) fn ids(&self, inc: u32) -> Vec<(u32, u64)> {
        ids(&self.said.0.lock().unwrap(), inc)
    }

    pub(crate) fn events<T>(&self, of: impl Fn(&ReaderEvent) -> Option<T>) -> Vec<T> {
        self.said
            .0
            .lock()
            .unwrap()
            .iter()
            .filter_map(|line| of(&line.event))
            .collect()
    }

    /// Stops it and waits for its end.
    pub(crate) fn stop(mut self) {
        assert!(self.ask(Ask::Stop { grace_ms: 5000 }).ok);
        let status = self.process.0.wait().unwrap();
        assert_eq!(status.code(), Some(0));
        let stopped = self.events(|event| {
            matches!(event, ReaderEvent::Stopped { reason, exception: None } if reason == "asked").then_some(())
        });
        assert_eq!(stopped.len(), 1);
    }
}

pub(crate) fn error_of(origin: Origin) -> impl Fn(&ReaderEvent) -> Option<(bool, Exception)> {
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

pub(crate) fn plain() -> Generator {
    Generator {
        keys: 10,
        value_bytes: 20,
        tombstone_every: None,
    }
}

fn ids(all: &[Line], inc: u32) -> Vec<(u32, u64)> {
    let mut found = Vec::new();
    for line in all.iter().filter(|line| line.inc == inc) {
        if let ReaderEvent::Records { partitions } = &line.event {
            for one in partitions {
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
