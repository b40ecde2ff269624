//! `adapter check`: drives an adapter through its paces on the embedded cluster and says what it does wrong.
//!
//! Not a scenario: nothing is injected, and nothing is judged of the library. What is checked is whether the adapter says
//! what it must say, so that judging has something to go by.

use std::time::Duration;

use brokerfall_report::history::Event;
use brokerfall_report::protocol::{ArmCallback, Callback, Command, Done, How, Kind, On, Raise, Times};
use brokerfall_report::verdict::Outcome;

use super::order::Order;
use super::rig::Rig;
use super::setup::{self, RunError};
use crate::history::facts::Facts;
use crate::history::recorder::Recorder;
use crate::invariant;
use crate::reader::host::{HostError, ReaderProcess};
use crate::reader::validate::{ARM_CALLBACK_DELAY, holds};

/// The plan that every adapter is checked on: two partitions, values and tombstones, nothing injected.
pub const PLAN: &str = r#"# An adapter is driven through its paces.
format = 1
title = "adapter check"
phase = "live"

[[topic]]
name = "orders"
partitions = 2
cleanup = "compact"
preload = { records = 300, keys = 50, value-bytes = 40, tombstone-every = 7 }

[expect]
recovers = {}
"#;

/// How long each pace may take.
const PACE: Duration = Duration::from_secs(20);

/// One thing that was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pace {
    /// What was asked of the adapter.
    pub what: String,
    /// `Ok` with what was seen, or `Err` with what was wrong and what to do.
    pub result: Result<String, String>,
}

/// Drives the adapter of an order through its paces. Everything is taken down again.
///
/// # Errors
/// Only what is not the adapter's doing.
pub(crate) async fn check(order: &Order, recorder: &Recorder) -> Result<Vec<Pace>, RunError> {
    let rig = setup::up(order, recorder).await?;
    let mut paces = Paces { list: Vec::new() };
    let result = drive(&rig, &mut paces).await;
    if let Some(broken) = rig.readers().iter().find_map(|reader| reader.broken()) {
        paces.bad(
            "the protocol is kept",
            format!("{broken} (PROTOCOL.md, \"Every line from the adapter\")"),
        );
    } else if recorder.with(|facts| facts.hello("r1").is_some()) {
        paces.good("the protocol is kept", "every line was well formed");
    }
    setup::down(&rig).await;
    recorder.record(Event::Closed);
    result.map(|()| paces.list)
}

struct Paces {
    list: Vec<Pace>,
}

impl Paces {
    fn good(&mut self, what: &str, seen: impl Into<String>) {
        self.list.push(Pace {
            what: what.into(),
            result: Ok(seen.into()),
        });
    }

    fn bad(&mut self, what: &str, wrong: impl Into<String>) {
        self.list.push(Pace {
            what: what.into(),
            result: Err(wrong.into()),
        });
    }

    fn note(&mut self, what: &str, held: bool, seen: impl Into<String>, wrong: impl Into<String>) {
        if held {
            self.good(what, seen)
        } else {
            self.bad(what, wrong)
        }
    }

    /// The answer to a command, or a bad pace.
    fn answer(&mut self, what: &str, answer: Result<Done, HostError>) -> Option<Done> {
        match answer {
            Ok(done) if done.ok => return Some(done),
            Ok(done) => {
                let error = done
                    .error
                    .map_or_else(|| "no exception given".into(), |error| error.label());
                self.bad(what, format!("answered ok: false ({error})"));
            }
            Err(cause) => self.bad(what, crate::chain(&cause)),
        }
        None
    }
}

/// Waits for what the adapter has to show; false when it did not come in time, or can come no more.
async fn comes(rig: &Rig, there: impl Fn(&Facts) -> bool) -> bool {
    let found = rig
        .recorder
        .wait_until(PACE, |facts| {
            let there = there(facts);
            (there || facts.nothing_can_come()).then_some(there)
        })
        .await;
    found == Some(true)
}

async fn drive(rig: &Rig, paces: &mut Paces) -> Result<(), RunError> {
    let recorder = &rig.recorder;
    let kind = rig.launch.info.kind;
    let reader = match rig.spawn("r1").await {
        Ok(reader) => reader,
        Err(cause @ (HostError::Spawn { .. } | HostError::Io { .. })) => return Err(RunError::Reader(cause)),
        Err(cause) => {
            paces.bad("hello is the first line", crate::chain(&cause));
            return Ok(());
        }
    };
    let hello = recorder.with(|facts| facts.hello("r1").cloned());
    let capabilities = hello.map(|hello| hello.capabilities).unwrap_or_default();
    paces.good(
        "hello is the first line",
        format!("capabilities: {}", capabilities.join(", ")),
    );
    let answer = rig.start(&reader, PACE).await;
    let answer = match answer {
        Ok(done) => Ok(done),
        Err(crate::fault::FaultError::Host(cause)) => Err(cause),
        Err(cause) => return Err(cause.into()),
    };
    if paces.answer("start is answered", answer).is_none() {
        return Ok(());
    }
    let reached = comes(rig, Facts::reached_targets).await;
    let seen = recorder.with(Facts::delivered_total);
    paces.note(
        "the preloaded records are reported",
        reached,
        format!("{seen} records, up to the log end"),
        format!("{seen} reported of 600 in the log (report each record that reaches the user in `records`)"),
    );
    if recorder.with(Facts::nothing_can_come) {
        return Ok(());
    }
    heartbeats(rig, paces).await;
    rig.oracle.sentinel(1).await?;
    let arrived = comes(rig, |facts| facts.sentinel_arrived(1)).await;
    let missing = recorder.with(|facts| facts.sentinel_missing(1));
    paces.note(
        "a new record is reported",
        arrived,
        "one on every partition",
        format!("nothing new on {missing:?} (flush `records` every 100 ms)"),
    );
    let has = |name: &str| holds(capabilities.iter().map(String::as_str), name);
    commands(rig, &reader, paces, &has).await?;
    rig.recorder.record(Event::Quiet);
    if has("snapshot") && kind == Kind::Table {
        let answer = reader.ask(Command::Snapshot, PACE).await;
        paces.answer("snapshot is answered", answer);
    }
    let stopped = reader.shut_down(Duration::from_secs(10)).await;
    paces.note(
        "stop ends the process",
        stopped.stopped_ms.is_some() && stopped.leftover.is_empty(),
        format!("after {} ms, nothing left", stopped.stopped_ms.unwrap_or_default()),
        format!(
            "it had to be killed, or left {} behind (close the reader and exit 0 on `stop`, and at the end of stdin)",
            if stopped.leftover.is_empty() {
                "nothing".to_owned()
            } else {
                stopped.leftover.join(", ")
            }
        ),
    );
    rig.oracle.scan_all().await?;
    for id in ["no_phantom_record", "in_order", "no_lost_record", "converges"] {
        if let Some(Outcome::Violated { text, .. }) = recorder.with(|facts| Some((invariant::by_id(id)?.judge)(facts)))
        {
            paces.bad("what is reported agrees with the log", format!("{id}: {text}"));
        }
    }
    Ok(())
}

async fn heartbeats(rig: &Rig, paces: &mut Paces) {
    let mark = rig.recorder.mark();
    let mut since = mark;
    let mut beats = 0;
    let deadline = Duration::from_millis(1_500);
    while beats < 3 {
        let next = rig
            .recorder
            .wait_until(deadline, |facts| {
                facts
                    .life("r1")?
                    .last_heartbeat
                    .filter(|at| at.n >= since)
                    .map(|at| at.n + 1)
            })
            .await;
        match next {
            Some(next) => since = next,
            None => break,
        }
        beats += 1;
    }
    paces.note(
        "heartbeats come every 250 ms",
        beats == 3,
        "three in a row",
        format!("{beats} of 3 within their time (send them from a thread of their own)"),
    );
}

async fn commands(
    rig: &Rig,
    reader: &ReaderProcess,
    paces: &mut Paces,
    has: &impl Fn(&str) -> bool,
) -> Result<(), RunError> {
    if has("barrier") {
        let answer = reader.ask(Command::Barrier { timeout_ms: 5_000 }, PACE).await;
        if let Some(done) = paces.answer("barrier is answered", answer) {
            paces.note(
                "barrier says whether it was reached",
                done.reached == Some(true),
                "reached",
                format!("reached is {:?}, wanted true on a quiet log", done.reached),
            );
        }
    }
    if has(ARM_CALLBACK_DELAY) {
        let callback = if rig.launch.info.kind == Kind::Table {
            Callback::OnSet
        } else {
            Callback::OnRecord
        };
        let arm = ArmCallback {
            callback,
            on: On::Nth(1),
            raise: Raise {
                how: How::Delay,
                type_name: None,
                ms: Some(1),
            },
            times: Times::Count(1),
        };
        let mark = rig.mark();
        let answer = reader.ask(Command::ArmCallback(arm), PACE).await;
        if paces.answer("arm_callback is answered", answer).is_some() {
            rig.oracle.sentinel(2).await?;
            let entered = comes(rig, |facts| facts.callbacks_entered_since(mark) > 0).await;
            paces.note(
                "an armed callback is reported as it is entered",
                entered,
                "callback_entered",
                "no callback_entered came (report it before the callback misbehaves)",
            );
        }
    }
    if has("commit") {
        let mark = rig.mark();
        let answer = reader.ask(Command::Commit, PACE).await;
        if paces.answer("commit is answered", answer).is_some() {
            let seen = comes(rig, |facts| facts.commits().iter().any(|commit| commit.at.n >= mark)).await;
            paces.note(
                "commit reaches the broker",
                seen,
                "OffsetCommit seen on the wire",
                "no OffsetCommit was seen on the wire",
            );
        }
    }
    if has("restart") {
        let answer = reader.ask(Command::Restart, PACE).await;
        if paces.answer("restart is answered", answer).is_some() {
            rig.oracle.sentinel(3).await?;
            let arrived = comes(rig, |facts| facts.sentinel_arrived(3)).await;
            paces.note(
                "the restarted reader reads",
                arrived,
                "a new record arrived",
                "no new record arrived (build the object anew, with `inc` one higher)",
            );
        }
    }
    Ok(())
}
