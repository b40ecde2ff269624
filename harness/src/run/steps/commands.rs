//! Steps that ask the reader for something, and members that come and go.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use brokerfall_report::history::{Event, Grade, Proof};
use brokerfall_report::protocol::{Command, Done};

use super::faults::whose_evidence;
use super::start_member;
use crate::fault::{FaultError, Heal};
use crate::history::facts::Facts;
use crate::reader::host::{HostError, ReaderProcess};
use crate::run::millis;
use crate::run::rig::{InForce, Rig};
use crate::run::setup::RunError;
use crate::scenario::plan::{Ask, Joiner, State};

/// How long a neutral member that leaves may take to close.
const LEAVE: Duration = Duration::from_secs(10);

/// Longest wait of a reader command that is a step of a scenario.
const COMMAND: Duration = Duration::from_secs(30);

/// How long the connections of a process that has ended may take to show on the link.
const CONNECTIONS: Duration = Duration::from_millis(2_500);

/// Grace of a reader whose adapter broke the protocol.
const BROKEN_GRACE: Duration = Duration::from_secs(2);

/// Asks every member the same. The answers stand in the history too.
pub(in crate::run) async fn ask_all(rig: &Rig, command: impl Fn() -> Command) -> Vec<Result<Done, HostError>> {
    futures::future::join_all(rig.readers().iter().map(|reader| {
        let command = command();
        async move { reader.ask(command, COMMAND).await }
    }))
    .await
}

/// Asks every member for something; without `wait` the step is over once it is asked. What they answer is judged from the
/// history.
pub(super) async fn ask(rig: &Arc<Rig>, what: Ask, wait: bool) {
    let command = || match what {
        Ask::Snapshot => Some(Command::Snapshot),
        Ask::Barrier => Some(Command::Barrier {
            timeout_ms: millis(COMMAND),
        }),
        Ask::Commit => Some(Command::Commit),
        Ask::Stop => None,
    };
    for reader in rig.readers() {
        match command() {
            Some(command) if !wait => drop(reader.ask_in_background(command, COMMAND)),
            Some(_) => {}
            None => {
                let leaving = rig.clone();
                let member = reader.member().to_owned();
                rig.leaves(member, tokio::spawn(async move { leave(&leaving, &reader).await }));
            }
        }
    }
    if what == Ask::Stop {
        if wait {
            rig.all_have_left().await;
        } else {
            // Asked, at least: a fault in the next step must find it in flight.
            let asked = |facts: &Facts, member: &str| {
                !facts.is_alive(member) || facts.life(member).is_some_and(|life| life.asked_to_stop.is_some())
            };
            let readers = rig.readers();
            let _ = rig
                .recorder
                .wait_until(COMMAND, |facts| {
                    let all = readers.iter().all(|reader| asked(facts, reader.member()));
                    all.then_some(())
                })
                .await;
        }
    } else if wait {
        drop(ask_all(rig, || command().unwrap_or(Command::Commit)).await);
    }
}

/// Stops a member within its grace and notes how it left.
async fn leave(rig: &Rig, reader: &ReaderProcess) {
    let grace = Duration::from_secs_f64(rig.limits.stop_grace_ms.value / 1000.0);
    if reader.broken().is_some() {
        // How it leaves is not judged, and it may have lost count of its commands: it need not be waited for.
        let _ = reader.shut_down(BROKEN_GRACE.min(grace)).await;
        return;
    }
    let stopped = reader.shut_down(grace).await;
    let connections = rig.link.closed_within(reader.member(), CONNECTIONS).await;
    rig.recorder.record(Event::Left {
        member: reader.member().to_owned(),
        stopped_ms: stopped.stopped_ms,
        processes: stopped.leftover,
        connections,
    });
}

/// Lets every member leave that has not left in a step.
pub(in crate::run) async fn dismiss(rig: &Rig) {
    let left = rig.all_have_left().await;
    for reader in rig.readers() {
        if !left.iter().any(|member| member == reader.member()) {
            leave(rig, &reader).await;
        }
    }
}

/// Closes and rebuilds every reader object. With a wiped state, and where a step before has stopped the reader, that is a
/// fresh process: an adapter's `stop` ends its process. False when the state could not be wiped.
pub(super) async fn restart(rig: &Arc<Rig>, step: &str, state: State) -> Result<bool, RunError> {
    let left = rig.all_have_left().await;
    if state == State::Keep && left.is_empty() {
        drop(ask_all(rig, || Command::Restart).await);
        return Ok(true);
    }
    for reader in rig.readers() {
        if !left.iter().any(|member| member == reader.member()) {
            leave(rig, &reader).await;
        }
        if state == State::Wipe
            && let Err(cause) = rig.wipe_state(reader.member())
        {
            return undone(rig, step, cause);
        }
    }
    for reader in rig.readers() {
        // A process that does not come is seen in the history, like the first one.
        if let Ok(fresh) = rig.spawn(reader.member()).await {
            start_member(rig, fresh);
        }
    }
    let readers = rig.readers();
    let _ = rig
        .recorder
        .wait_until(COMMAND, |facts| {
            let answered = readers.iter().all(|reader| facts.has_answered_start(reader.member()));
            (answered || facts.nothing_can_come()).then_some(())
        })
        .await;
    Ok(true)
}

/// Starts another member. Healing the step lets it leave. False when a neutral one did not come.
pub(super) async fn join(rig: &Arc<Rig>, step: &str, joiner: Joiner) -> Result<bool, RunError> {
    let reader = match joiner {
        Joiner::Same => {
            let member = format!("r{}", rig.recorder.with(|facts| facts.members().len()) + 1);
            // A member that does not come is seen in the history, like the first one.
            let Ok(reader) = rig.spawn(&member).await else {
                return Ok(true);
            };
            start_member(rig, reader.clone());
            reader
        }
        Joiner::Neutral => match rig.join_neutral(None).await {
            Ok(reader) => reader,
            Err(cause) => return undone(rig, step, cause),
        },
    };
    rig.hold(InForce {
        name: step.to_owned(),
        grade: Grade::Injected,
        closes_path: false,
        for_good: false,
        heal: Box::new(Joined { reader, joiner }),
    });
    Ok(true)
}

/// A step of the harness's own that could not be carried out: what the reader shows afterwards says nothing of the scenario.
/// False, because the steps are over.
fn undone(rig: &Rig, step: &str, cause: FaultError) -> Result<bool, RunError> {
    if !whose_evidence(&cause) {
        return Err(cause.into());
    }
    rig.recorder.record(Event::NotProven {
        fault: step.to_owned(),
        wanted: Proof::Injected,
        text: crate::chain(&cause),
    });
    Ok(false)
}

/// A member that joined in a step.
struct Joined {
    reader: Arc<ReaderProcess>,
    joiner: Joiner,
}

#[async_trait]
impl Heal for Joined {
    fn waits_for_delivery(&self) -> bool {
        false
    }

    async fn heal(self: Box<Self>, rig: &Rig) -> Result<String, FaultError> {
        match self.joiner {
            Joiner::Same => {
                leave(rig, &self.reader).await;
                rig.forget(self.reader.member());
            }
            Joiner::Neutral => {
                self.reader.shut_down(LEAVE).await;
            }
        }
        Ok(format!("member {} has left", self.reader.member()))
    }
}

impl Facts {
    /// Whether the process that a member has now was told to start and has answered.
    fn has_answered_start(&self, member: &str) -> bool {
        let Some(born) = self.life(member).map(|life| life.born) else {
            return false;
        };
        let mut asked = self.asked().iter().rev();
        asked.any(|asked| {
            asked.member == member && asked.command == "start" && asked.at.n > born.n && asked.answer.is_some()
        })
    }
}
