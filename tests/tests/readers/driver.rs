//! A driver that speaks the adapter protocol to a reader's process, and a mock cluster with records of the harness's form.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, RwLock};
use std::time::Duration;

use brokerfall_report::protocol::{
    ArmCallback, Callback, Command, Done, Heartbeat, How, Isolation, Kind, Line, On, Raise, ReaderEvent, Request,
    Reset, Start, Times, TopicRef,
};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer};

/// Longer than anything here takes on a loaded machine; only a failure waits for it.
pub(crate) const LONG: Duration = Duration::from_secs(30);

pub(crate) const TOPIC: &str = "orders";

/// Held shared while a child is started, and alone while a broker goes down.
static STARTING: RwLock<()> = RwLock::new(());

/// A reader's process and every line that it has sent.
pub(crate) struct Reader {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Arc<(Mutex<Vec<Line>>, Condvar)>,
    next_id: u64,
}

impl Reader {
    pub(crate) fn spawn(name: &str) -> Self {
        let starting = STARTING.read().expect("nobody panics with it");
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_mutant"))
            .arg(name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the reader's process starts");
        let stdout = child.stdout.take().expect("its stdout is piped");
        let lines: Arc<(Mutex<Vec<Line>>, Condvar)> = Arc::default();
        let seen = lines.clone();
        std::thread::spawn(move || {
            for (at, text) in BufReader::new(stdout).lines().map_while(Result::ok).enumerate() {
                let line: Line = serde_json::from_str(&text).expect("every line is one of the protocol");
                assert_eq!(line.seq, at as u64 + 1, "seq rises by one");
                seen.0.lock().expect("no thread panics with the lines").push(line);
                seen.1.notify_all();
            }
        });
        let reader = Self {
            stdin: child.stdin.take(),
            child,
            lines,
            next_id: 0,
        };
        // What it says shows that it runs its program, and has no descriptor of this process any more.
        reader.wait_all("hello", |lines| (!lines.is_empty()).then_some(()));
        drop(starting);
        reader
    }

    /// Spawns and starts a reader on the topic.
    pub(crate) fn started(name: &str, kind: Kind, cluster: &Cluster) -> Self {
        let mut reader = Self::spawn(name);
        let done = reader.ask(Command::Start(start(kind, cluster)));
        assert!(done.ok, "start: {done:?}");
        reader
    }

    pub(crate) fn send(&mut self, command: Command) -> u64 {
        self.next_id += 1;
        let request = Request {
            id: self.next_id,
            command,
        };
        let line = serde_json::to_string(&request).expect("commands are JSON");
        let stdin = self.stdin.as_mut().expect("stdin is open");
        writeln!(stdin, "{line}").expect("the reader takes commands");
        self.next_id
    }

    pub(crate) fn ask(&mut self, command: Command) -> Done {
        let id = self.send(command);
        self.done(id)
    }

    pub(crate) fn done(&self, id: u64) -> Done {
        self.wait("done", |event| match event {
            ReaderEvent::Done(done) if done.id == id => Some(done.clone()),
            _ => None,
        })
    }

    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Waits for the first event that `look` finds.
    pub(crate) fn wait<T>(&self, what: &str, look: impl Fn(&ReaderEvent) -> Option<T>) -> T {
        self.wait_all(what, |lines| lines.iter().find_map(|line| look(&line.event)))
    }

    /// Waits until all lines together show what `look` finds.
    pub(crate) fn wait_all<T>(&self, what: &str, look: impl Fn(&[Line]) -> Option<T>) -> T {
        let mut found = None;
        let guard = self.lines.0.lock().expect("no thread panics with the lines");
        let (lines, _) = self
            .lines
            .1
            .wait_timeout_while(guard, LONG, |lines| {
                found = look(lines);
                found.is_none()
            })
            .expect("no thread panics with the lines");
        let told = lines
            .iter()
            .filter(|line| !matches!(line.event, ReaderEvent::Heartbeat(_)));
        let tail: Vec<_> = told.chain(lines.last()).map(|line| format!("{line:?}")).collect();
        found.unwrap_or_else(|| panic!("no {what} within {LONG:?}; all but heartbeats, and the last line: {tail:#?}"))
    }

    /// Every line so far.
    pub(crate) fn lines(&self) -> Vec<Line> {
        self.lines.0.lock().expect("no thread panics with the lines").clone()
    }

    /// Waits until this many records were delivered, duplicates included.
    pub(crate) fn wait_delivered(&self, records: u64) {
        self.wait_all("delivery", |lines| {
            (delivered(lines).len() as u64 >= records).then_some(())
        });
    }

    /// The table's content, sorted.
    pub(crate) fn snapshot(&mut self) -> Vec<(String, Option<u64>)> {
        let id = self.send(Command::Snapshot);
        assert!(self.done(id).ok);
        let lines = self.lines();
        let parts = lines.iter().filter_map(|line| match &line.event {
            ReaderEvent::SnapshotPart { id: of, entries } if *of == id => Some(entries.clone()),
            _ => None,
        });
        let mut entries: Vec<_> = parts.flatten().collect();
        entries.sort();
        entries
    }

    /// Waits for the process to end.
    pub(crate) fn exit(&mut self) -> ExitStatus {
        // The end of its stdout is the end of the process, or of everything it does.
        self.wait_exit(LONG).expect("the process ends")
    }

    /// Kills the process at once (SIGKILL). What it had sent stays.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("the process is ours");
        self.child.wait().expect("the process is ours");
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn wait_exit(&mut self, within: Duration) -> Option<ExitStatus> {
        let never = (Mutex::new(()), Condvar::new());
        for _ in 0..within.as_millis() / 10 {
            if let Some(status) = self.child.try_wait().expect("the process is ours") {
                return Some(status);
            }
            let guard = never.0.lock().expect("nobody else has it");
            let _ = never
                .1
                .wait_timeout(guard, Duration::from_millis(10))
                .expect("nobody else has it");
        }
        None
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A mock cluster with the topic and a producer.
pub(crate) struct Cluster {
    pub(crate) mock: MockCluster<'static, DefaultProducerContext>,
    pub(crate) partitions: u32,
    /// What readers of this cluster keep on disk.
    pub(crate) state: tempfile::TempDir,
    producer: BaseProducer,
    next_id: u64,
}

impl Cluster {
    pub(crate) fn new(brokers: i32, partitions: u32) -> Self {
        let mock = MockCluster::new(brokers).expect("a mock cluster starts");
        mock.create_topic(TOPIC, partitions as i32, 1)
            .expect("it creates a topic");
        let producer = rdkafka::ClientConfig::new()
            .set("bootstrap.servers", mock.bootstrap_servers())
            .set("reconnect.backoff.max.ms", "200")
            .set("socket.timeout.ms", "1000")
            .create()
            .expect("a producer starts");
        Self {
            mock,
            partitions,
            state: tempfile::tempdir().expect("a temporary folder can be made"),
            producer,
            next_id: 1,
        }
    }

    /// Takes a broker down. The mock closes its listener and binds the port again at once, and aborts where it cannot; a
    /// child that is just being started has a copy of every descriptor, the listener's too, until it runs its program.
    pub(crate) fn broker_down(&self, node: i32) {
        let _nobody_starts = STARTING.write().expect("nobody panics with it");
        self.mock.broker_down(node).expect("the mock takes orders");
    }

    pub(crate) fn broker_up(&self, node: i32) {
        self.mock.broker_up(node).expect("the mock takes orders");
    }

    /// Writes values for these keys, one id each; `None` as value is a tombstone. Returns the last id.
    pub(crate) fn write(&mut self, partition: u32, keys: &[(&str, bool)]) -> u64 {
        for (key, value) in keys {
            let id = self.next_id.to_string();
            self.next_id += 1;
            let payload = format!("{id}|xxxxxxxx");
            let headers = OwnedHeaders::new().insert(Header {
                key: "bf-id",
                value: Some(&id),
            });
            let mut record = BaseRecord::to(TOPIC)
                .key(*key)
                .partition(partition as i32)
                .headers(headers);
            if *value {
                record = record.payload(&payload);
            }
            self.producer
                .send(record)
                .map_err(|(error, _)| error)
                .expect("a record is queued");
        }

        self.producer.flush(LONG).expect("the mock takes them");
        self.next_id - 1
    }

    /// Writes records without a key until the mock has deleted what stood in the partition: it keeps about 5 MiB.
    pub(crate) fn write_until_deleted(&mut self, partition: u32) {
        let (_, end) = self.watermarks(partition);
        while self.watermarks(partition).0 < end {
            let id = self.next_id.to_string();
            self.next_id += 1;
            let payload = format!("{id}|{}", "x".repeat(900_000));
            let record = BaseRecord::<str, str>::to(TOPIC)
                .partition(partition as i32)
                .payload(&payload);
            self.producer
                .send(record)
                .map_err(|(error, _)| error)
                .expect("a record is queued");
            self.producer.flush(LONG).expect("the mock takes them");
        }
    }

    /// Log start and log end.
    pub(crate) fn watermarks(&self, partition: u32) -> (i64, i64) {
        let client = self.producer.client();
        client
            .fetch_watermarks(TOPIC, partition as i32, LONG)
            .expect("the mock answers")
    }

    /// Writes this many values over ten keys.
    pub(crate) fn fill(&mut self, partition: u32, records: usize) {
        let keys: Vec<String> = (0..10).map(|n| format!("p{partition}-k{n}")).collect();
        let list: Vec<_> = (0..records).map(|n| (keys[n % 10].as_str(), true)).collect();
        self.write(partition, &list);
    }
}

pub(crate) fn start(kind: Kind, cluster: &Cluster) -> Start {
    Start {
        bootstrap: cluster.mock.bootstrap_servers(),
        topics: vec![TopicRef {
            name: TOPIC.to_owned(),
            partitions: cluster.partitions,
            role: None,
        }],
        kind,
        group: (kind == Kind::Group).then(|| "g1".to_owned()),
        client_id: "r1".to_owned(),
        reset: Reset::Earliest,
        isolation: Isolation::ReadUncommitted,
        session_ms: (kind == Kind::Group).then_some(6_000),
        heartbeat_ms: None,
        max_poll_ms: None,
        group_instance_id: None,
        state_dir: Some(cluster.state.path().to_string_lossy().into_owned()),
        options: Default::default(),
    }
}

pub(crate) fn raising(callback: Callback, on: On, how: How) -> Command {
    Command::ArmCallback(ArmCallback {
        callback,
        on,
        raise: Raise {
            how,
            type_name: None,
            ms: None,
        },
        times: Times::Count(1),
    })
}

/// `(partition, offset, id)` of every record delivered, in order of delivery per partition.
pub(crate) fn delivered(lines: &[Line]) -> Vec<(u32, u64, u64)> {
    let mut all = Vec::new();
    for line in lines {
        if let ReaderEvent::Records { partitions } = &line.event {
            for part in partitions {
                let offsets = part.offsets.iter().flat_map(|runs| runs.iter());
                let ids = part.ids.iter().flat_map(|runs| runs.iter());
                all.extend(offsets.zip(ids).map(|(offset, id)| (part.partition, offset, id)));
            }
        }
    }
    all
}

pub(crate) fn offsets(lines: &[Line], partition: u32) -> Vec<u64> {
    let all = delivered(lines).into_iter();
    all.filter(|(of, _, _)| *of == partition)
        .map(|(_, offset, _)| offset)
        .collect()
}

pub(crate) fn is_status(event: &ReaderEvent, wanted: &str) -> Option<()> {
    matches!(event, ReaderEvent::Status { state, .. } if state == wanted).then_some(())
}

/// The heartbeats among the lines.
pub(crate) fn beats(lines: &[Line]) -> impl Iterator<Item = &Heartbeat> {
    lines.iter().filter_map(|line| match &line.event {
        ReaderEvent::Heartbeat(beat) => Some(beat),
        _ => None,
    })
}
