//! From the reader's start to the last heal: the steps of the scenario.

mod commands;
mod faults;

use std::sync::Arc;
use std::time::Duration;

use brokerfall_report::history::{Event, Phase, Proof, Stage, StepState};

pub(super) use commands::{ask_all, dismiss};

use super::finish;
use super::rig::{Released, Rig};
use super::setup::RunError;
use crate::fault::FaultError;
use crate::history::facts::Facts;
use crate::oracle::Make;
use crate::reader::host::{HostError, ReaderProcess};
use crate::scenario::needs::Need;
use crate::scenario::plan::{Action, Step};
use faults::Course;

/// How long the library's own start call may take beyond the recovery window before the harness stops waiting for it.
const START_SLACK: Duration = Duration::from_secs(30);

/// Carries the plan out, from the start of the reader to its stop.
pub(super) async fn carry_out(rig: Arc<Rig>) -> Result<(), RunError> {
    rig.recorder.record(Event::Stage(Stage::Starting));
    rig.watch_group();
    let course = Arc::new(Course::default());
    match start(&rig, &course).await? {
        Ok(Started::Reads) => {}
        Ok(Started::Skipped) => return finish::stop(&rig).await,
        Err(cause @ (HostError::Spawn { .. } | HostError::Io { .. })) => return Err(RunError::Reader(cause)),
        // The process did not come so far as to say hello: that stands in the history.
        Err(_) => return finish::stop(&rig).await,
    }
    rig.recorder.record(Event::Stage(Stage::Steps));
    let healthy = healthy_before(&rig).await;
    if healthy {
        rig.start_load();
        for (index, step) in rig.plan.steps.iter().enumerate() {
            if !step.when.before_start && !take(&rig, &course, index, step).await? {
                break;
            }
        }
    }
    rig.recorder.record(Event::Stage(Stage::Healing));
    faults::heal(&rig, Released::Everything).await?;
    course.conclude(&rig);
    if !healthy || rig.plan.ends_closed() {
        // The run is void, or its reader is gone because a step said so: nothing that a recovery window or a cure could
        // show would be judged.
        return finish::stop(&rig).await;
    }
    finish::finish(&rig).await
}

/// Starts every member. The inner error is the reader's, the outer one ours.
async fn start(rig: &Arc<Rig>, course: &Arc<Course>) -> Result<Result<Started, HostError>, RunError> {
    match rig.name_brokers().await {
        Ok(None) => {}
        Ok(Some(lacking)) => {
            rig.recorder.record(Event::Skipped {
                reason: format!("a reader cannot be given a hosts file of its own on this machine: {lacking}"),
                enable: "run as root: a mount namespace takes CAP_SYS_ADMIN".to_owned(),
            });
            return Ok(Ok(Started::Skipped));
        }
        Err(cause) => return Ok(Err(cause)),
    }
    let mut readers = Vec::new();
    for member in 1..=rig.plan.reader.members {
        match rig.spawn(&format!("r{member}")).await {
            Ok(reader) => readers.push(reader),
            Err(cause) => return Ok(Err(cause)),
        }
    }
    if let Some(lacking) = lacking(rig) {
        rig.recorder.record(Event::Skipped {
            reason: format!("the scenario needs `{lacking}`, which the reader's adapter does not have"),
            enable: format!("an adapter that names `{lacking}` in its hello"),
        });
        return Ok(Ok(Started::Skipped));
    }
    for (index, step) in rig.plan.steps.iter().enumerate() {
        if step.when.before_start && !take(rig, course, index, step).await? {
            break;
        }
    }
    for reader in readers {
        start_member(rig, reader);
    }
    Ok(Ok(Started::Reads))
}

/// How the start went.
enum Started {
    /// Every member was told to start.
    Reads,
    /// The adapter cannot do what the scenario needs.
    Skipped,
}

/// The first capability that the plan needs and the reader's `hello` does not name.
fn lacking(rig: &Rig) -> Option<&'static str> {
    let has = |name: &str| {
        let readers = rig.readers();
        readers
            .iter()
            .all(|reader| rig.recorder.with(|facts| facts.has_capability(reader.member(), name)))
    };
    rig.plan
        .needs()
        .iter()
        .filter_map(Need::capability)
        .find(|name| !has(name))
}

/// Tells a member to start and lets the run go on: a library's start call may last as long as its catch-up.
fn start_member(rig: &Arc<Rig>, reader: Arc<ReaderProcess>) {
    let within = rig.within() + START_SLACK;
    let for_task = rig.clone();
    rig.watch(tokio::spawn(async move {
        // Its answer, its refusal and its death stand in the history, which is where they are judged.
        if let Err(cause @ FaultError::Oracle(_)) = for_task.start(&reader, within).await {
            for_task.fail(brokerfall_report::history::FailureOf::Environment, crate::chain(&cause));
        }
    }));
}

/// In the live phase the reader must have caught up before the first fault; else nothing that follows says anything.
async fn healthy_before(rig: &Rig) -> bool {
    let needs_health = !matches!(rig.plan.phase, Phase::Start | Phase::CatchUp);
    if !needs_health {
        return true;
    }
    let healthy = rig
        .recorder
        .wait_until(rig.within(), |facts| {
            if facts.all_ended().is_some() || facts.nothing_can_come() {
                return Some(false);
            }
            facts.reached_targets().then_some(true)
        })
        .await;
    if healthy == Some(true) {
        return true;
    }
    let text = match healthy {
        Some(_) if rig.recorder.with(Facts::protocol_is_broken) => "its adapter broke the protocol before".to_owned(),
        Some(_) => "it ended before the first fault".to_owned(),
        None => format!(
            "it did not catch up within {:?} (lag {}{})",
            rig.within(),
            rig.recorder.with(Facts::lag),
            if rig.recorder.with(Facts::start_is_unanswered) {
                "; `start` was not answered"
            } else {
                ""
            }
        ),
    };
    rig.recorder.record(Event::NotProven {
        fault: String::new(),
        wanted: Proof::HealthyBefore,
        text,
    });
    false
}

/// Waits for a step's trigger and carries it out; false when the trigger was not met and the steps are over.
async fn take(rig: &Arc<Rig>, course: &Arc<Course>, index: usize, step: &Step) -> Result<bool, RunError> {
    let index = u32::try_from(index).unwrap_or(u32::MAX);
    let text = step.sentence();
    let moved = |state: StepState, detail: String| {
        rig.recorder.record(Event::Step {
            index,
            text: text.clone(),
            state,
            detail,
        });
    };
    let mark = rig.mark();
    moved(StepState::Waiting, String::new());
    let met = rig
        .recorder
        .wait_until(step.wait, |facts| {
            let met = met(step, facts, mark);
            (met || facts.nothing_can_come()).then_some(met)
        })
        .await;
    if met != Some(true) {
        moved(
            StepState::Unmet,
            rig.recorder.with(|facts| last_seen(step, facts, mark)),
        );
        return Ok(false);
    }
    if let Some(after) = step.after {
        pause(after).await;
    }
    moved(StepState::Triggered, String::new());
    let goes_on = match &step.action {
        Action::Do { fault, grade } => faults::inject(rig, course, step, fault, *grade).await?,
        Action::Heal(names) => {
            faults::heal(rig, Released::Named(names)).await?;
            true
        }
        Action::HealAll => {
            faults::heal(rig, Released::All).await?;
            true
        }
        Action::Produce(produce) => {
            for topic in &rig.plan.topics {
                for partition in 0..rig.partitions(&topic.name) {
                    let make = Make {
                        value_bytes: produce.value_bytes,
                        null_values: produce.null_values,
                        ..Make::default()
                    };
                    rig.oracle
                        .produce_with(&topic.name, partition, produce.records, make)
                        .await?;
                }
            }
            true
        }
        Action::Ask { what, wait } => {
            commands::ask(rig, *what, *wait).await;
            true
        }
        Action::Restart(state) => commands::restart(rig, &step.name, *state).await?,
        Action::Join(joiner) => commands::join(rig, &step.name, *joiner).await?,
    };
    if !goes_on {
        return Ok(false);
    }
    if ends_load(rig, step) {
        rig.stop_load().await?;
    }
    moved(StepState::Done, String::new());
    Ok(true)
}

fn ends_load(rig: &Rig, step: &Step) -> bool {
    let load = rig.plan.load.as_ref();
    load.is_some_and(|load| load.until.as_ref() == Some(&step.name))
}

#[expect(
    clippy::disallowed_methods,
    reason = "`after` is the scenario's own length of a fault: time is the condition"
)]
async fn pause(after: Duration) {
    tokio::time::sleep(after).await;
}

fn met(step: &Step, facts: &Facts, mark: u64) -> bool {
    let when = &step.when;
    when.caught_up.is_none_or(|wanted| facts.reached_targets() == wanted)
        && when.delivered.is_none_or(|wanted| facts.delivered_total() >= wanted)
        && when
            .wire
            .as_ref()
            .is_none_or(|wire| facts.wire_requests_since(mark, Some(&wire.api)) >= wire.count)
        && when.in_flight.is_none_or(|command| facts.is_in_flight(command.name()))
}

/// The last values of what a step waited for.
fn last_seen(step: &Step, facts: &Facts, mark: u64) -> String {
    let when = &step.when;
    let mut seen = Vec::new();
    if let Some(wanted) = when.caught_up {
        seen.push(format!("caught up is {}, wanted {wanted}", facts.reached_targets()));
    }
    if let Some(wanted) = when.delivered {
        seen.push(format!(
            "{} records delivered, wanted {wanted}",
            facts.delivered_total()
        ));
    }
    if let Some(wire) = &when.wire {
        let requests = facts.wire_requests_since(mark, Some(&wire.api));
        seen.push(format!("{requests} {} request(s), wanted {}", wire.api, wire.count));
    }
    if let Some(command) = when.in_flight {
        seen.push(format!("no `{}` was in flight", command.name()));
    }
    format!("not met within {:?}: {}", step.wait, seen.join(", "))
}
