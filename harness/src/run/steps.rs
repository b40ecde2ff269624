//! From the reader's start to the last heal: the steps of the scenario.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use brokerfall_report::history::{Event, Grade, Phase, Proof, Stage, StepState};
use brokerfall_report::protocol::{Command, Done};

use super::finish;
use super::rig::{InForce, Rig};
use super::setup::RunError;
use crate::fault::{FaultError, FaultSpec, Heal, PROOF};
use crate::history::facts::Facts;
use crate::reader::host::{HostError, ReaderProcess};
use crate::scenario::needs::Need;
use crate::scenario::plan::{Action, Ask, Joiner, State, Step};

/// How long the library's own start call may take beyond the recovery window before the harness stops waiting for it.
const START_SLACK: Duration = Duration::from_secs(30);

/// How long a member that leaves may take to close.
const LEAVE: Duration = Duration::from_secs(10);

/// How long a heal waits for the grade of evidence that its fault was asked to reach: a reader that polls once in its
/// default interval of 5 s (kafkajs, idle) must have met it.
const GRADE_WAIT: Duration = Duration::from_secs(10);

/// Longest wait of a reader command that is a step of a scenario.
const COMMAND: Duration = Duration::from_secs(30);

/// Carries the plan out, from the start of the reader to its stop.
pub(super) async fn carry_out(rig: Arc<Rig>) -> Result<(), RunError> {
    rig.recorder.record(Event::Stage(Stage::Starting));
    match start(&rig).await? {
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
            if !step.when.before_start && !take(&rig, index, step).await? {
                break;
            }
        }
    }
    rig.recorder.record(Event::Stage(Stage::Healing));
    heal(&rig, None).await?;
    if !healthy || rig.plan.stops() {
        // The run is void, or its reader is gone because a step said so: nothing that a recovery window or a cure could
        // show would be judged.
        return finish::stop(&rig).await;
    }
    finish::finish(&rig).await
}

/// Starts every member. The inner error is the reader's, the outer one ours.
async fn start(rig: &Arc<Rig>) -> Result<Result<Started, HostError>, RunError> {
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
        if step.when.before_start && !take(rig, index, step).await? {
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
async fn take(rig: &Arc<Rig>, index: usize, step: &Step) -> Result<bool, RunError> {
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
    let mark = rig.recorder.mark();
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
    match &step.action {
        Action::Do { fault, grade } => {
            if !inject(rig, step, fault, *grade).await? {
                return Ok(false);
            }
        }
        Action::Heal(names) => heal(rig, Some(names)).await?,
        Action::HealAll => heal(rig, None).await?,
        Action::Produce(records) => {
            for topic in &rig.plan.topics {
                for partition in 0..topic.partitions {
                    rig.oracle.produce(&topic.name, partition, *records).await?;
                }
            }
        }
        // What they answer is judged from the history.
        Action::Ask { what, wait } => ask(rig, *what, *wait).await,
        Action::Restart(State::Keep) => drop(ask_all(rig, || Command::Restart).await),
        Action::Restart(State::Wipe) | Action::Join(Joiner::Neutral) => {
            rig.recorder.record(Event::NotProven {
                fault: String::new(),
                wanted: Proof::Injected,
                text: "not built yet".into(),
            });
        }
        Action::Join(Joiner::Same) => join(rig, &step.name).await,
    }
    if rig
        .plan
        .load
        .as_ref()
        .is_some_and(|load| load.until.as_ref() == Some(&step.name))
    {
        rig.stop_load().await?;
    }
    moved(StepState::Done, String::new());
    Ok(true)
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

/// Injects a fault; false when it or its phase was not proven, and the steps are over.
async fn inject(rig: &Arc<Rig>, step: &Step, spec: &FaultSpec, grade: Grade) -> Result<bool, RunError> {
    let fault = spec.fault();
    let name = &step.name;
    let recorder = &rig.recorder;
    let not_proven = |wanted: Proof, text: String| {
        recorder.record(Event::NotProven {
            fault: name.clone(),
            wanted,
            text,
        });
    };
    if rig.plan.phase == Phase::CatchUp && !step.when.before_start && recorder.with(Facts::reached_targets) {
        not_proven(
            Proof::Phase,
            "the catch-up was over before the fault was injected".into(),
        );
        return Ok(false);
    }
    recorder.record(Event::Injecting {
        fault: name.clone(),
        kind: fault.kind().into(),
        text: fault.text(),
        emulated: fault.emulated(rig),
    });
    let mark = recorder.with(Facts::now);
    if fault.closes_path() {
        recorder.record(Event::Path {
            open: false,
            proof: format!("{name} is being injected"),
        });
    }
    let injected = match fault.inject(rig, name).await {
        Ok(injected) => injected,
        Err(cause) if whose_evidence(&cause) => {
            not_proven(Proof::Injected, crate::chain(&cause));
            return Ok(false);
        }
        Err(cause) => return Err(cause.into()),
    };
    recorder.record(Event::Injected {
        fault: name.clone(),
        proof: injected.proof,
    });
    let (watched, watching) = (name.clone(), rig.clone());
    let must_strike_in_catch_up = rig.plan.phase == Phase::CatchUp && step.when.before_start;
    let delivered = injected.delivered;
    let struck =
        recorder.lookout(move |facts| delivered(facts).map(|proof| (proof, facts.reached_targets(), facts.now())));
    rig.watch(tokio::spawn(async move {
        let recorder = &watching.recorder;
        // OK to end without a word: the recorder lives as long as the run.
        let Ok((proof, too_late, struck)) = struck.await else {
            return;
        };
        recorder.record(Event::Delivered {
            fault: watched.clone(),
            proof,
        });
        if must_strike_in_catch_up && too_late {
            recorder.record(Event::NotProven {
                fault: watched.clone(),
                wanted: Proof::Phase,
                text: "the catch-up was over before the fault struck".into(),
            });
        }
        let since = if injected.strikes_later { struck } else { mark };
        if let Some(proof) = recorder
            .wait_until(FOREVER, |facts| (injected.felt)(facts, since))
            .await
        {
            recorder.record(Event::Felt { fault: watched, proof });
        }
    }));
    rig.hold(InForce {
        name: name.clone(),
        grade,
        closes_path: fault.closes_path(),
        heal: injected.heal,
    });
    Ok(true)
}

/// Asks every member for something; without `wait` the step is over once it is asked.
async fn ask(rig: &Rig, what: Ask, wait: bool) {
    let command = || match what {
        Ask::Snapshot => Command::Snapshot,
        Ask::Barrier => Command::Barrier {
            timeout_ms: millis(COMMAND),
        },
        Ask::Commit => Command::Commit,
        Ask::Stop => Command::Stop {
            grace_ms: millis(LEAVE),
        },
    };
    if wait {
        drop(ask_all(rig, command).await);
    } else {
        for reader in rig.readers() {
            drop(reader.ask_in_background(command(), COMMAND));
        }
    }
}

/// Starts another member of the same reader. Healing the step lets it leave.
async fn join(rig: &Arc<Rig>, step: &str) {
    let member = format!("r{}", rig.readers().len() + 1);
    // A member that does not come is seen in the history, like the first one.
    if let Ok(reader) = rig.spawn(&member).await {
        start_member(rig, reader.clone());
        let heal = Box::new(Joined { reader });
        rig.hold(InForce {
            name: step.to_owned(),
            grade: Grade::Injected,
            closes_path: false,
            heal,
        });
    }
}

/// A member that joined in a step.
struct Joined {
    reader: Arc<ReaderProcess>,
}

#[async_trait]
impl Heal for Joined {
    fn waits_for_delivery(&self) -> bool {
        false
    }

    async fn heal(self: Box<Self>, _rig: &Rig) -> Result<String, FaultError> {
        self.reader.shut_down(LEAVE).await;
        Ok(format!("member {} has left", self.reader.member()))
    }
}

/// Longer than any run; the watcher is ended with the run.
const FOREVER: Duration = Duration::from_secs(30 * 24 * 3600);

/// What could not be proven voids the run; what broke is an error.
fn whose_evidence(cause: &FaultError) -> bool {
    matches!(cause, FaultError::NotProven { .. } | FaultError::Host(_))
}

/// Heals faults and proves it; then, when nothing cuts the path any more, proves that too.
async fn heal(rig: &Rig, names: Option<&[String]>) -> Result<(), RunError> {
    let faults = rig.release(names);
    let cut = faults.iter().any(|fault| fault.closes_path);
    for fault in faults {
        if fault.heal.waits_for_delivery() {
            wait_for_grade(rig, &fault).await;
        }
        rig.recorder.record(Event::Healing {
            fault: fault.name.clone(),
        });
        match fault.heal.heal(rig).await {
            Ok(proof) => {
                rig.recorder.record(Event::Healed {
                    fault: fault.name,
                    proof,
                });
            }
            Err(cause) => {
                rig.recorder.record(Event::NotProven {
                    fault: fault.name,
                    wanted: Proof::Healed,
                    text: crate::chain(&cause),
                });
            }
        }
    }
    if (cut || names.is_none()) && !rig.path_is_cut() {
        let proof = rig.oracle.prove_path(PROOF).await?;
        rig.recorder.record(Event::Path { open: true, proof });
    }
    Ok(())
}

/// Gives a fault in force the time to reach the grade that it was asked for, unless the reader is gone.
async fn wait_for_grade(rig: &Rig, fault: &InForce) {
    let reached = |facts: &Facts| {
        facts.grade_reached(&fault.name) >= Some(fault.grade) || facts.all_ended().is_some() || facts.nothing_can_come()
    };
    // Below the grade the run is void, and judging says so.
    let _ = rig
        .recorder
        .wait_until(GRADE_WAIT, |facts| reached(facts).then_some(()))
        .await;
}

/// Asks every member the same. The answers stand in the history too.
pub(super) async fn ask_all(rig: &Rig, command: impl Fn() -> Command) -> Vec<Result<Done, HostError>> {
    futures::future::join_all(rig.readers().iter().map(|reader| {
        let command = command();
        async move { reader.ask(command, COMMAND).await }
    }))
    .await
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
