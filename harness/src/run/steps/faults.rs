//! Steps that inject and heal faults, and the phase that these must hit.

use std::sync::Arc;
use std::time::Duration;

use brokerfall_report::history::{Event, Grade, Phase, Proof};

use crate::fault::{FaultError, FaultSpec, Injected, PROOF};
use crate::history::facts::{Facts, Moment};
use crate::lock;
use crate::run::rig::{InForce, Released, Rig};
use crate::run::setup::RunError;
use crate::scenario::plan::Step;

/// How long a heal waits for the grade of evidence that its fault was asked to reach: a reader that polls once in its
/// default interval of 5 s (kafkajs, idle) must have met it.
const GRADE_WAIT: Duration = Duration::from_secs(10);

/// Longer than any run; the watcher is ended with the run.
const FOREVER: Duration = Duration::from_secs(30 * 24 * 3600);

/// What the faults of a run have hit so far.
#[derive(Default)]
pub(super) struct Course {
    /// Faults that missed the phase, and why; `None` once one has hit it.
    missed: std::sync::Mutex<Missed>,
}

#[derive(Default)]
struct Missed {
    hit: bool,
    faults: Vec<(String, String)>,
}

/// Whether every fault must hit the phase. In the others one of them must: what brings a rebalance about cannot hit it.
fn binds_every_fault(phase: Phase) -> bool {
    matches!(phase, Phase::Start | Phase::CatchUp | Phase::Live)
}

impl Course {
    fn note(&self, fault: &str, missed: Option<String>) {
        let mut course = lock(&self.missed);
        match missed {
            None => course.hit = true,
            Some(why) => course.faults.push((fault.to_owned(), why)),
        }
    }

    /// Says that the phase was missed where one fault at least had to hit it, and none did.
    pub(super) fn conclude(&self, rig: &Rig) {
        let course = lock(&self.missed);
        let phase = rig.plan.phase;
        // Of a fault that was in force when the reader was told to close, it is the close that did hit.
        let met = course.hit || (phase == Phase::Close && rig.recorder.with(Facts::closed_under_a_fault));
        if binds_every_fault(phase) || met {
            return;
        }
        if let Some((fault, _)) = course.faults.last() {
            let why: Vec<String> = course
                .faults
                .iter()
                .map(|(fault, why)| format!("{why} when `{fault}` struck"))
                .collect();
            rig.recorder.record(Event::NotProven {
                fault: fault.clone(),
                wanted: Proof::Phase,
                text: why.join("; "),
            });
        }
    }
}

/// Injects a fault; false when it or its phase was not proven, and the steps are over.
pub(super) async fn inject(
    rig: &Arc<Rig>,
    course: &Arc<Course>,
    step: &Step,
    spec: &FaultSpec,
    grade: Grade,
) -> Result<bool, RunError> {
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
    // What the link has counted belongs to what is known of the phase.
    rig.link.flush();
    let phase = rig.plan.phase;
    let missed = recorder.with(|facts| facts.missed(phase, recorder.now_us()));
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
        proof: injected.proof.clone(),
    });
    // What lies in wait hits the phase in which it strikes.
    let lies_in_wait = injected.strikes_later || step.when.before_start;
    let missed = missed.filter(|_| !(phase == Phase::Commit && answers_commits(spec)));
    let over = missed.as_ref().filter(|_| !lies_in_wait && binds_every_fault(phase));
    if let Some(why) = over {
        not_proven(Proof::Phase, format!("{why} before the fault was injected"));
    } else if !lies_in_wait {
        course.note(name, missed.clone());
    }
    let goes_on = over.is_none();
    let heal = watch(
        rig,
        course,
        name,
        injected,
        lies_in_wait.then(|| answers_commits(spec)),
        mark,
    );
    rig.hold(InForce {
        name: name.clone(),
        grade,
        closes_path: fault.closes_path(),
        for_good: fault.for_good(),
        heal,
    });
    Ok(goes_on)
}

/// Looks for the evidence that a fault hits the reader, and how it feels; returns what heals it. Where it lies in wait, it
/// is seen then whether it hits the phase; `lies_in_wait` says whether it strikes what makes the phase.
fn watch(
    rig: &Arc<Rig>,
    course: &Arc<Course>,
    fault: &str,
    injected: Injected,
    lies_in_wait: Option<bool>,
    mark: Moment,
) -> Box<dyn crate::fault::Heal> {
    let Injected {
        delivered,
        felt,
        strikes_later,
        heal,
        ..
    } = injected;
    let (fault, watching, course) = (fault.to_owned(), rig.clone(), course.clone());
    let phase = rig.plan.phase;
    let struck = rig.recorder.lookout(move |facts| {
        let now = facts.now();
        delivered(facts).map(|proof| (proof, facts.missed(phase, now.us), now))
    });
    rig.watch(tokio::spawn(async move {
        let recorder = &watching.recorder;
        // OK to end without a word: the recorder lives as long as the run.
        let Ok((proof, missed, struck)) = struck.await else {
            return;
        };
        if let Some(by_nature) = lies_in_wait {
            let missed = missed.filter(|_| !(by_nature && phase == Phase::Commit));
            match missed {
                Some(why) if binds_every_fault(phase) => {
                    recorder.record(Event::NotProven {
                        fault: fault.clone(),
                        wanted: Proof::Phase,
                        text: format!("{why} before the fault struck"),
                    });
                }
                missed => course.note(&fault, missed),
            }
        }
        // Noted before it counts as delivered: whoever waits for that finds the phase decided.
        recorder.record(Event::Delivered {
            fault: fault.clone(),
            proof,
        });
        let since = if strikes_later { struck } else { mark };
        if let Some(proof) = recorder.wait_until(FOREVER, |facts| felt(facts, since)).await {
            recorder.record(Event::Felt { fault, proof });
        }
    }));
    heal
}

/// Whether a fault strikes the answers to commits, so that it cannot but hit one.
fn answers_commits(spec: &FaultSpec) -> bool {
    match spec {
        FaultSpec::AnswerError(answer) => answer.api == "OffsetCommit",
        FaultSpec::Partition(partition) => partition.api.as_deref() == Some("OffsetCommit"),
        _ => false,
    }
}

/// What could not be proven voids the run; what broke is an error.
pub(super) fn whose_evidence(cause: &FaultError) -> bool {
    matches!(cause, FaultError::NotProven { .. } | FaultError::Host(_))
}

/// Heals faults and proves it; then, when nothing cuts the path any more, proves that too.
pub(super) async fn heal(rig: &Rig, which: Released<'_>) -> Result<(), RunError> {
    let faults = rig.release(which);
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
    if (cut || !matches!(which, Released::Named(_))) && !rig.path_is_cut() {
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
