//! Histories as literals, for tests of invariants and verdicts.

use std::collections::BTreeMap;

use brokerfall_report::exception::{Code, Exception, Origin};
use brokerfall_report::history::*;
use brokerfall_report::protocol::*;
use brokerfall_report::runs::Runs;
use brokerfall_report::verdict::Outcome;

use crate::history::facts::Facts;

/// `history! { plan; ms => event, … }`: entries numbered from 0, the plan first.
macro_rules! history {
    ($plan:expr; $($ms:expr => $event:expr),* $(,)?) => {{
        let mut entries = vec![$crate::invariant::support::entry(0, 0, brokerfall_report::history::Event::Opened(Box::new($plan)))];
        $(
            let n = entries.len() as u64;
            entries.push($crate::invariant::support::entry(n, $ms, $event));
        )*
        entries
    }};
}
pub(crate) use history;

pub(crate) const TOPIC: &str = "orders";

pub(crate) fn entry(n: u64, ms: u64, mut event: Event) -> Entry {
    if let Event::Reader { reader_us, .. } = &mut event {
        *reader_us = ms * 1000;
    }
    Entry {
        n,
        at_us: ms * 1000,
        event,
    }
}

/// A plan with one topic of one partition, ten keys, a recovery window of 5 s and no fault.
pub(crate) fn plan(kind: Kind) -> Opened {
    let limit = |value: f64| Limit {
        value,
        origin: "default".into(),
    };
    Opened {
        format: HISTORY_FORMAT,
        harness: "0".into(),
        scenario: "folder/name".into(),
        title: String::new(),
        phase: Phase::Live,
        quiet: false,
        cluster: ClusterInfo {
            kind: "mock".into(),
            kafka: String::new(),
            brokers: 1,
            properties: Vec::new(),
        },
        link: "builtin".into(),
        reader: ReaderInfo {
            name: "reader".into(),
            version: String::new(),
            source: "bundled".into(),
            kind,
            lock: None,
            declares: Declares::default(),
        },
        members: 1,
        group: (kind == Kind::Group).then(|| "g".to_owned()),
        reset: Reset::Earliest,
        isolation: Isolation::ReadUncommitted,
        session_ms: Some(6000),
        topics: vec![TopicInfo {
            name: TOPIC.into(),
            partitions: 1,
            role: None,
            compacted: false,
            generator: Generator {
                keys: 10,
                value_bytes: 20,
                tombstone_every: None,
            },
        }],
        faults: Vec::new(),
        steps: Vec::new(),
        expect: Expect {
            outcome: ExpectedEnd::Recovers,
            named: Vec::new(),
            duplicates: None,
            not_judged: BTreeMap::new(),
        },
        expected: None,
        limits: Limits {
            within_ms: limit(5000.0),
            stop_grace_ms: limit(1000.0),
            cpu_cores: limit(0.10),
            requests_per_s: limit(200.0),
            errors_per_s: limit(100.0),
            memory_mib: limit(16.0),
            descriptors: limit(16.0),
        },
        exclusive: false,
        seed: 1,
        started_at: String::new(),
        reproduce: String::new(),
    }
}

/// The plan with one fault named `f`.
pub(crate) fn with_fault(kind: Kind, fault: &str) -> Opened {
    let mut plan = plan(kind);
    plan.faults.push(FaultInfo {
        name: "f".into(),
        kind: fault.into(),
        grade: Grade::Delivered,
    });
    plan
}

/// The plan with this expected outcome.
pub(crate) fn expecting(mut plan: Opened, outcome: ExpectedEnd) -> Opened {
    plan.expect.outcome = outcome;
    plan
}

pub(crate) fn stage(stage: Stage) -> Event {
    Event::Stage(stage)
}

/// Ids `a..=b`, acknowledged at offsets `a - 1..=b - 1`.
pub(crate) fn produced(a: u64, b: u64) -> Event {
    outcome(a, b, ProduceOutcome::Acked)
}

pub(crate) fn outcome(a: u64, b: u64, outcome: ProduceOutcome) -> Event {
    Event::Produced {
        topic: TOPIC.into(),
        partition: 0,
        ids: Runs::one(a, b),
        offsets: if outcome == ProduceOutcome::Acked {
            Runs::one(a - 1, b - 1)
        } else {
            Runs::default()
        },
        outcome,
    }
}

/// The same on another partition.
pub(crate) fn on_partition(to: u32, mut event: Event) -> Event {
    match &mut event {
        Event::Produced { partition, .. } | Event::Scanned { partition, .. } => *partition = to,
        Event::Reader {
            event: ReaderEvent::Records { partitions },
            ..
        } => partitions.iter_mut().for_each(|delivered| delivered.partition = to),
        other => panic!("{other:?}"),
    }
    event
}

/// A scan that finds ids `a..=b` where [`produced`] put them.
pub(crate) fn scanned(a: u64, b: u64) -> Event {
    Event::Scanned {
        topic: TOPIC.into(),
        partition: 0,
        from: a - 1,
        to: b,
        ids: Runs::one(a, b),
        offsets: Runs::one(a - 1, b - 1),
    }
}

pub(crate) fn watermarks(log_start: u64, log_end: u64) -> Event {
    Event::Watermarks {
        topic: TOPIC.into(),
        partition: 0,
        log_start,
        log_end,
    }
}

pub(crate) fn targets(end: u64) -> Event {
    Event::Targets {
        member: "r1".into(),
        ends: vec![LogEnd {
            topic: TOPIC.into(),
            partition: 0,
            offset: end,
        }],
    }
}

pub(crate) fn sentinel(id: u64) -> Event {
    Event::Sentinel {
        round: 1,
        records: vec![SentinelRecord {
            topic: TOPIC.into(),
            partition: 0,
            id,
            offset: id - 1,
        }],
    }
}

pub(crate) fn spawned(member: &str) -> Event {
    Event::Spawned {
        member: member.into(),
        pid: Some(1),
        command: Vec::new(),
        neutral: false,
    }
}

pub(crate) fn exited(code: i32) -> Event {
    exited_by("r1", Some(code), None, false)
}

pub(crate) fn exited_by(member: &str, code: Option<i32>, signal: Option<i32>, asked: bool) -> Event {
    Event::Exited {
        member: member.into(),
        code,
        signal,
        asked,
        stderr_tail: String::new(),
    }
}

pub(crate) fn asked(id: u64, command: &str) -> Event {
    Event::Asked {
        member: "r1".into(),
        id,
        command: command.into(),
        within_ms: 1000,
    }
}

pub(crate) fn says(event: ReaderEvent) -> Event {
    member_says("r1", 1, event)
}

pub(crate) fn member_says(member: &str, inc: u32, event: ReaderEvent) -> Event {
    Event::Reader {
        member: member.into(),
        inc,
        reader_us: 0,
        event,
    }
}

pub(crate) fn done(id: u64, reached: Option<bool>) -> Event {
    says(ReaderEvent::Done(Done {
        id,
        ok: true,
        error: None,
        reached,
        elapsed_ms: None,
    }))
}

pub(crate) fn start_raised(id: u64, type_name: &str) -> Event {
    says(ReaderEvent::Done(Done {
        id,
        ok: false,
        error: Some(exception(type_name)),
        reached: None,
        elapsed_ms: None,
    }))
}

/// Runs of ids, at the offsets where [`produced`] put them.
pub(crate) fn records(runs: &[(u64, u64)]) -> ReaderEvent {
    let (mut ids, mut offsets) = (Runs::default(), Runs::default());
    for &(a, b) in runs {
        ids.push_run(a, b);
        offsets.push_run(a - 1, b - 1);
    }
    records_as(Some(ids), Some(offsets))
}

pub(crate) fn records_as(ids: Option<Runs>, offsets: Option<Runs>) -> ReaderEvent {
    ReaderEvent::Records {
        partitions: vec![Delivered {
            topic: TOPIC.into(),
            partition: 0,
            offsets,
            ids,
            t: (0.0, 0.0),
        }],
    }
}

/// Member r1 was given ids `a..=b`.
pub(crate) fn delivered(a: u64, b: u64) -> Event {
    says(records(&[(a, b)]))
}

pub(crate) fn heartbeat(state: &str, claims: Claims) -> Event {
    says(ReaderEvent::Heartbeat(Heartbeat {
        state: state.into(),
        claims,
        ..Heartbeat::default()
    }))
}

pub(crate) fn healthy() -> Claims {
    Claims {
        healthy: Some(true),
        ..Claims::default()
    }
}

/// The answer of an endpoint of the user's own.
pub(crate) fn answered(healthy: bool) -> Event {
    Event::Claim {
        member: "r1".into(),
        name: "readiness".into(),
        healthy,
        text: String::new(),
    }
}

pub(crate) fn claims_caught_up() -> Claims {
    Claims {
        caught_up: Some(true),
        ..Claims::default()
    }
}

pub(crate) fn status(state: &str) -> Event {
    says(ReaderEvent::Status {
        state: state.into(),
        detail: String::new(),
    })
}

pub(crate) fn exception(type_name: &str) -> Exception {
    Exception {
        type_name: type_name.into(),
        code: None,
        attributes: BTreeMap::new(),
        message: String::new(),
        relation: None,
        children: Vec::new(),
        frames: Vec::new(),
    }
}

pub(crate) fn error(origin: Origin, fatal: bool, type_name: &str) -> Event {
    says(ReaderEvent::Error {
        origin,
        fatal,
        exception: exception(type_name),
        count: 1,
    })
}

pub(crate) fn stopped(type_name: Option<&str>) -> Event {
    says(ReaderEvent::Stopped {
        reason: "ended".into(),
        exception: type_name.map(exception),
    })
}

pub(crate) fn returned(type_name: Option<&str>) -> Event {
    says(ReaderEvent::Returned {
        call: "Consume".into(),
        value: serde_json::Value::Null,
        error: type_name.map(exception),
    })
}

pub(crate) fn callback(raised: bool, offset: u64) -> Event {
    let call = CallbackCall {
        callback: Callback::OnRecord,
        key: None,
        offset: Some(offset),
    };
    says(if raised {
        ReaderEvent::CallbackRaised(call)
    } else {
        ReaderEvent::CallbackEntered(call)
    })
}

pub(crate) fn reset() -> Event {
    says(ReaderEvent::Reset {
        topic: TOPIC.into(),
        partition: 0,
        from: None,
        to: None,
        cause: ResetCause::OutOfRange,
    })
}

pub(crate) fn snapshot_part(id: u64, entries: &[(&str, Option<u64>)]) -> Event {
    says(ReaderEvent::SnapshotPart {
        id,
        entries: entries.iter().map(|(key, id)| ((*key).to_owned(), *id)).collect(),
    })
}

pub(crate) fn injecting(kind: &str) -> Event {
    Event::Injecting {
        fault: "f".into(),
        kind: kind.into(),
        text: String::new(),
        emulated: false,
    }
}

pub(crate) fn injected() -> Event {
    Event::Injected {
        fault: "f".into(),
        proof: String::new(),
    }
}

pub(crate) fn fault_delivered() -> Event {
    Event::Delivered {
        fault: "f".into(),
        proof: String::new(),
    }
}

pub(crate) fn healing() -> Event {
    Event::Healing { fault: "f".into() }
}

pub(crate) fn healed() -> Event {
    Event::Healed {
        fault: "f".into(),
        proof: String::new(),
    }
}

pub(crate) fn wire(requests: u64, span_ms: u64) -> Event {
    Event::Wire {
        client: "r1".into(),
        span_us: span_ms * 1000,
        requests: [("Fetch".to_owned(), requests)].into(),
        connects: 0,
        fetch_offsets: Vec::new(),
    }
}

pub(crate) fn wire_error(code: i64, name: &str) -> Event {
    Event::WireError {
        client: "r1".into(),
        api: "Fetch".into(),
        code: Code {
            value: code,
            name: name.into(),
        },
        topic: Some(TOPIC.into()),
        partition: Some(0),
        injected_by: None,
        count: 1,
    }
}

pub(crate) fn group(client: &str, change: GroupChange) -> Event {
    Event::WireGroup {
        client: client.into(),
        group: "g".into(),
        change,
    }
}

pub(crate) fn synced(client: &str) -> Event {
    group(
        client,
        GroupChange::Synced {
            generation: 1,
            owns: vec![TopicPartition {
                topic: TOPIC.into(),
                partition: 0,
            }],
        },
    )
}

pub(crate) fn gone(client: &str) -> Event {
    group(
        client,
        GroupChange::Gone {
            how: "LeaveGroup".into(),
        },
    )
}

/// The group as its coordinator tells it: each member owns the one partition, or none.
pub(crate) fn described(state: &str, members: &[(&str, bool)]) -> Event {
    let members = members.iter().map(|(client, owns)| GroupMember {
        member_id: format!("{client}-id"),
        client: (*client).into(),
        instance: None,
        owns: Vec::from_iter(owns.then(|| TopicPartition {
            topic: TOPIC.into(),
            partition: 0,
        })),
    });
    Event::GroupDescribed {
        group: "g".into(),
        coordinator: 1,
        state: state.into(),
        members: members.collect(),
    }
}

/// The one partition's commit as its coordinator tells it.
pub(crate) fn commit_told(offset: u64) -> Event {
    Event::CommitsTold {
        group: "g".into(),
        offsets: vec![LogEnd {
            topic: TOPIC.into(),
            partition: 0,
            offset,
        }],
    }
}

pub(crate) fn wire_commit(offset: u64) -> Event {
    Event::WireCommit {
        client: "r1".into(),
        group: "g".into(),
        topic: TOPIC.into(),
        partition: 0,
        offset,
        code: 0,
    }
}

pub(crate) fn sample(cpu_ms: u64) -> Event {
    Event::Sample {
        member: "r1".into(),
        cpu_ms,
        rss_kib: 1,
        descriptors: 1,
        processes: 1,
        waited_ms: None,
    }
}

/// The same, with how long it waited for a core.
pub(crate) fn sample_waiting(cpu_ms: u64, waited_ms: u64) -> Event {
    let Event::Sample { member, .. } = sample(cpu_ms) else {
        unreachable!("a sample is one")
    };
    Event::Sample {
        member,
        cpu_ms,
        rss_kib: 1,
        descriptors: 1,
        processes: 1,
        waited_ms: Some(waited_ms),
    }
}

/// What r1's process holds.
pub(crate) fn holds(rss_kib: u64, descriptors: u64) -> Event {
    Event::Sample {
        member: "r1".into(),
        cpu_ms: 0,
        rss_kib,
        descriptors,
        processes: 1,
        waited_ms: None,
    }
}

pub(crate) fn contended(span_ms: u64, waited_ms: u64) -> Event {
    Event::Contended {
        span_us: span_ms * 1000,
        waited_us: waited_ms * 1000,
    }
}

pub(crate) fn left(stopped_ms: Option<u64>, connections: u32) -> Event {
    Event::Left {
        member: "r1".into(),
        stopped_ms,
        processes: Vec::new(),
        connections,
    }
}

pub(crate) fn cure(renewed: Renewed, worked: bool) -> Event {
    Event::Cure {
        renewed,
        worked,
        text: String::new(),
    }
}

pub(crate) fn facts(entries: &[Entry]) -> Facts {
    let mut facts = Facts::default();
    for entry in entries {
        facts.observe(entry);
    }
    facts
}

/// What an invariant says of a history.
pub(crate) fn outcome_of(id: &str, entries: &[Entry]) -> Outcome {
    let invariant = super::by_id(id).unwrap();
    (invariant.judge)(&facts(entries))
}

#[track_caller]
pub(crate) fn assert_held(id: &str, entries: &[Entry]) {
    let outcome = outcome_of(id, entries);
    assert!(matches!(outcome, Outcome::Held { .. }), "{id}: {outcome:?}");
}

/// Violated, with these words in the sentence.
#[track_caller]
pub(crate) fn assert_violated(id: &str, words: &str, entries: &[Entry]) {
    let outcome = outcome_of(id, entries);
    let Outcome::Violated { text, events, .. } = &outcome else {
        panic!("{id}: {outcome:?}");
    };
    assert!(text.contains(words), "{id}: {text}");
    assert!(events.iter().all(|n| *n < entries.len() as u64), "{id}: {events:?}");
}

#[track_caller]
pub(crate) fn assert_undecided(id: &str, entries: &[Entry]) {
    let outcome = outcome_of(id, entries);
    assert!(matches!(outcome, Outcome::Undecided { .. }), "{id}: {outcome:?}");
}
