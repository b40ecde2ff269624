//! A builder for literal histories and judgements.

use std::collections::BTreeMap;

use brokerfall_report::exception::{Exception, Origin, Relation};
use brokerfall_report::history::*;
use brokerfall_report::protocol::*;
use brokerfall_report::runs::Runs;
use brokerfall_report::verdict::*;

/// A history under construction: every event with the millisecond in which it was recorded.
pub(crate) struct History {
    pub(crate) entries: Vec<Entry>,
}

impl History {
    pub(crate) fn new(opened: Opened) -> Self {
        let mut history = Self { entries: Vec::new() };
        history.at(0.0, Event::Opened(Box::new(opened)));
        history
    }

    pub(crate) fn at(&mut self, ms: f64, event: Event) -> u64 {
        let n = self.entries.len() as u64;
        let at_us = (ms * 1000.0) as u64;
        self.entries.push(Entry { n, at_us, event });
        n
    }

    pub(crate) fn reader(&mut self, ms: f64, event: ReaderEvent) -> u64 {
        let member = "r1".to_owned();
        let (inc, reader_us) = (1, (ms * 1000.0) as u64);
        self.at(
            ms,
            Event::Reader {
                member,
                inc,
                reader_us,
                event,
            },
        )
    }

    pub(crate) fn beat(
        &mut self,
        ms: f64,
        state: &str,
        caught_up: Option<bool>,
        healthy: Option<bool>,
        lag: Option<u64>,
    ) {
        let claims = Claims {
            caught_up,
            healthy,
            lag,
        };
        let state = state.to_owned();
        self.reader(
            ms,
            ReaderEvent::Heartbeat(Heartbeat {
                state,
                claims,
                ..Heartbeat::default()
            }),
        );
    }

    /// The sentinel of the first round, written as record `id`.
    pub(crate) fn sentinel(&mut self, ms: f64, id: u64) {
        let record = SentinelRecord {
            topic: "orders".into(),
            partition: 0,
            id,
            offset: id - 1,
        };
        let records = vec![record];
        self.at(ms, Event::Sentinel { round: 1, records });
    }

    pub(crate) fn produced(&mut self, ms: f64, first_id: u64, last_id: u64) {
        let (ids, offsets) = (Runs::one(first_id, last_id), Runs::one(first_id - 1, last_id - 1));
        let (topic, partition, outcome) = ("orders".to_owned(), 0, ProduceOutcome::Acked);
        self.at(
            ms,
            Event::Produced {
                topic,
                partition,
                ids,
                offsets,
                outcome,
            },
        );
    }

    pub(crate) fn delivered(&mut self, ms: f64, first_id: u64, last_id: u64) {
        let delivered = Delivered {
            topic: "orders".into(),
            partition: 0,
            offsets: Some(Runs::one(first_id - 1, last_id - 1)),
            ids: Some(Runs::one(first_id, last_id)),
            t: (ms, ms),
        };
        self.reader(
            ms,
            ReaderEvent::Records {
                partitions: vec![delivered],
            },
        );
    }

    pub(crate) fn injecting(&mut self, ms: f64, fault: &str, kind: &str, text: &str, emulated: bool) {
        let (fault, kind, text) = (fault.to_owned(), kind.to_owned(), text.to_owned());
        self.at(
            ms,
            Event::Injecting {
                fault,
                kind,
                text,
                emulated,
            },
        );
    }

    pub(crate) fn injected(&mut self, ms: f64, fault: &str, proof: &str) {
        self.at(
            ms,
            Event::Injected {
                fault: fault.into(),
                proof: proof.into(),
            },
        );
    }

    pub(crate) fn struck(&mut self, ms: f64, fault: &str, proof: &str) {
        self.at(
            ms,
            Event::Delivered {
                fault: fault.into(),
                proof: proof.into(),
            },
        );
    }

    pub(crate) fn healed(&mut self, ms: f64, fault: &str, proof: &str) {
        self.at(ms, Event::Healing { fault: fault.into() });
        self.at(
            ms + 1.0,
            Event::Healed {
                fault: fault.into(),
                proof: proof.into(),
            },
        );
    }

    pub(crate) fn stage(&mut self, ms: f64, stage: Stage) {
        self.at(ms, Event::Stage(stage));
    }

    pub(crate) fn asked(&mut self, ms: f64, id: u64, command: &str) {
        let (member, command) = ("r1".to_owned(), command.to_owned());
        self.at(
            ms,
            Event::Asked {
                member,
                id,
                command,
                within_ms: 5_000,
            },
        );
    }

    pub(crate) fn answered(&mut self, ms: f64, id: u64, reached: Option<bool>) -> u64 {
        self.reader(
            ms,
            ReaderEvent::Done(Done {
                id,
                ok: true,
                error: None,
                reached,
                elapsed_ms: None,
            }),
        )
    }

    pub(crate) fn wire(&mut self, ms: f64, span_ms: u64, requests: &[(&str, u64)]) {
        let requests = requests.iter().map(|(api, n)| ((*api).to_owned(), *n)).collect();
        let (client, span_us) = ("r1".to_owned(), span_ms * 1000);
        self.at(
            ms,
            Event::Wire {
                client,
                span_us,
                requests,
                connects: 0,
                fetch_offsets: Vec::new(),
            },
        );
    }

    pub(crate) fn connection(&mut self, ms: f64, change: ConnectionChange, count: u64) {
        self.at(
            ms,
            Event::WireConnection {
                client: "r1".into(),
                node: 1,
                change,
                count,
            },
        );
    }

    pub(crate) fn starts(&mut self, library: &str, client: &str, runtime: &str, kind: Kind) {
        self.stage(0.2, Stage::Preparing);
        self.produced(4.0, 1, 100);
        self.stage(6.0, Stage::Starting);
        self.at(
            6.1,
            Event::Spawned {
                member: "r1".into(),
                pid: Some(4711),
                command: vec!["python3".into(), "adapter.py".into()],
                neutral: false,
            },
        );
        let hello = Hello {
            protocol: 1,
            library: library.into(),
            client: client.into(),
            runtime: runtime.into(),
            kinds: vec![kind],
            capabilities: vec![RECORDS_OFFSETS.into(), RECORDS_IDS.into()],
        };
        self.reader(180.0, ReaderEvent::Hello(hello));
        self.reader(420.0, ReaderEvent::Started);
        self.stage(421.0, Stage::Steps);
    }

    pub(crate) fn ends(&mut self, ms: f64, stopped_ms: Option<u64>) {
        self.stage(ms, Stage::Stopping);
        self.at(
            ms + 40.0,
            Event::Exited {
                member: "r1".into(),
                code: Some(0),
                signal: None,
                asked: true,
                stderr_tail: String::new(),
            },
        );
        self.at(
            ms + 41.0,
            Event::Left {
                member: "r1".into(),
                stopped_ms,
                processes: Vec::new(),
                connections: 0,
            },
        );
        self.stage(ms + 42.0, Stage::Closing);
        self.at(ms + 44.0, Event::Closed);
    }
}

pub(crate) fn reader_info(name: &str, version: &str, kind: Kind) -> ReaderInfo {
    ReaderInfo {
        name: name.into(),
        version: version.into(),
        source: "bundled".into(),
        kind,
        lock: None,
        declares: Declares::default(),
    }
}

pub(crate) fn opened(scenario: &str, title: &str, phase: Phase, reader: ReaderInfo, faults: &[(&str, &str)]) -> Opened {
    let limit = |value: f64, origin: &str| Limit {
        value,
        origin: origin.into(),
    };
    let again = format!(
        "brokerfall run '{scenario}' --reader {}@{} --seed 7",
        reader.name, reader.version
    );
    let fault = |(name, kind): &(&str, &str)| FaultInfo {
        name: (*name).into(),
        kind: (*kind).into(),
        grade: Grade::Delivered,
    };
    Opened {
        format: HISTORY_FORMAT,
        harness: "0.1.0".into(),
        scenario: scenario.into(),
        title: title.into(),
        phase,
        quiet: phase == Phase::CatchUp,
        cluster: ClusterInfo {
            kind: "mock".into(),
            kafka: "librdkafka 2.12.1 mock".into(),
            brokers: 1,
            properties: vec![
                "no elections: leaders are moved 200 ms after a kill".into(),
                "group sessions last 6 s whatever the reader asks for".into(),
            ],
        },
        link: "builtin".into(),
        group: (reader.kind == Kind::Group).then(|| "bf".into()),
        reader,
        members: 1,
        reset: Reset::Earliest,
        isolation: Isolation::ReadUncommitted,
        session_ms: None,
        topics: vec![TopicInfo {
            name: "orders".into(),
            partitions: 1,
            role: None,
            compacted: false,
            generator: Generator {
                keys: 10,
                value_bytes: 40,
                tombstone_every: None,
            },
        }],
        faults: faults.iter().map(fault).collect(),
        steps: vec!["do something".into()],
        expect: Expect {
            outcome: ExpectedEnd::Recovers,
            named: Vec::new(),
            duplicates: None,
            not_judged: BTreeMap::new(),
        },
        expected: None,
        limits: Limits {
            within_ms: limit(5_000.0, "manifest"),
            stop_grace_ms: limit(10_000.0, "default"),
            cpu_cores: limit(0.1, "default"),
            requests_per_s: limit(200.0, "default"),
            errors_per_s: limit(100.0, "default"),
            memory_mib: limit(16.0, "default"),
            descriptors: limit(16.0, "default"),
        },
        seed: 7,
        started_at: "2026-11-30T00:58:40Z".into(),
        reproduce: again,
    }
}

pub(crate) fn exception(type_name: &str, message: &str) -> Exception {
    Exception {
        type_name: type_name.into(),
        code: None,
        attributes: BTreeMap::new(),
        message: message.into(),
        relation: None,
        children: Vec::new(),
        frames: Vec::new(),
    }
}

pub(crate) fn seen(
    exception: Exception,
    origin: Origin,
    phase: Phase,
    fatal: bool,
    first_event: u64,
    fingerprint: &str,
) -> SeenException {
    SeenException {
        exception,
        origin,
        phase,
        fatal,
        count: 1,
        first_event,
        fingerprint: fingerprint.into(),
    }
}

pub(crate) fn held(invariant: &str) -> Finding {
    Finding {
        invariant: invariant.into(),
        outcome: Outcome::Held { text: String::new() },
    }
}

pub(crate) fn violated(invariant: &str, events: &[u64], text: &str, kind: Option<FailureKind>) -> Finding {
    let (events, text) = (events.to_vec(), text.to_owned());
    Finding {
        invariant: invariant.into(),
        outcome: Outcome::Violated {
            events,
            text,
            kind,
            behind: None,
        },
    }
}

pub(crate) fn undecided(invariant: &str, why: &str) -> Finding {
    Finding {
        invariant: invariant.into(),
        outcome: Outcome::Undecided { why: why.into() },
    }
}

pub(crate) fn not_applicable(invariant: &str, missing: &str) -> Finding {
    Finding {
        invariant: invariant.into(),
        outcome: Outcome::NotApplicable {
            missing: missing.into(),
        },
    }
}

pub(crate) fn judgement(verdict: Verdict, cause: &str, findings: Vec<Finding>) -> Judgement {
    Judgement {
        verdict,
        cause: cause.into(),
        error_of: None,
        failure_kind: None,
        behind: None,
        findings,
        voids: Vec::new(),
        exceptions: Vec::new(),
        remarks: Vec::new(),
    }
}

/// The cause of an exception, hung below it.
pub(crate) fn caused_by(mut outer: Exception, mut inner: Exception) -> Exception {
    inner.relation = Some(Relation::Cause);
    outer.children.push(inner);
    outer
}
