//! After the last heal: recovery, settling, diagnosis, stop, and the last look at the log.

use std::time::Duration;

use brokerfall_report::history::{Event, Renewed, Stage};
use brokerfall_report::protocol::{Command, Kind};
use brokerfall_report::verdict::{Judgement, Outcome};

use super::millis;
use super::rig::Rig;
use super::setup::{LAST_LOOK, RunError};
use super::steps::dismiss;
use crate::history::facts::{Facts, HowEnded};
use crate::verdict;

/// A reader may take this long to hand its exception over after it has ended (the definition of an honest end).
const HONEST: Duration = Duration::from_secs(5);

/// Adapters flush records every 100 ms: what a reader was given last before it died may be told this much after the sentinel
/// was written, and its standstill, which begins there, must be seen for as long as it is allowed.
const LAST_TOLD: Duration = Duration::from_millis(500);

/// How long a barrier that must be reached already may take.
const BARRIER: Duration = Duration::from_secs(5);

/// Answers to snapshot, barrier and restart: a reader that is blocked must not hold the run for long.
const ANSWER: Duration = Duration::from_secs(10);

/// Two heartbeats: what a reader claims once the log is quiet.
const CLAIMS: Duration = Duration::from_millis(2_500);

/// What the wait for owners may take beyond its limit, so that the limit itself has certainly passed.
const OWNERS: Duration = Duration::from_secs(2);

/// Invariants whose violation a fresh object or process might cure.
const CURABLE: [&str; 6] = [
    "recovers",
    "catches_up",
    "no_silent_death",
    "callback_isolated",
    "converges",
    "group_member",
];

/// Waits for recovery, settles, tries cures where it failed, stops the reader and looks at the log a last time.
pub(super) async fn finish(rig: &Rig) -> Result<(), RunError> {
    let recorder = &rig.recorder;
    if recorder.with(Facts::everyone_leaves) {
        // A step told the reader to close: nothing more is to be expected of it.
        return stop(rig).await;
    }
    if rig.plan.quiet() {
        recorder.record(Event::Stage(Stage::CatchingUp));
        decided(rig, rig.within(), |facts| {
            facts.reached_targets() && !facts.hangs_at_the_end()
        })
        .await;
    }
    rig.stop_load().await?;
    recorder.record(Event::Stage(Stage::Recovering));
    rig.oracle.sentinel(1).await?;
    decided(rig, rig.within() + LAST_TOLD, |facts| facts.sentinel_arrived(1)).await;
    settle(rig).await?;
    let judgement = recorder.with(verdict::judge_facts);
    // Of an adapter that is not believed no cure could be told.
    if is_sick(&judgement) && !recorder.with(Facts::protocol_is_broken) {
        recorder.record(Event::Stage(Stage::Diagnosing));
        diagnose(rig).await?;
    }
    stop(rig).await
}

/// Waits until the reader is where it should be, or has ended for good, or `within` has passed.
async fn decided(rig: &Rig, within: Duration, there: impl Fn(&Facts) -> bool) {
    let found = rig
        .recorder
        .wait_until(within, |facts| {
            if there(facts) {
                return Some(true);
            }
            if facts.nothing_can_come() {
                return Some(false);
            }
            // A reader that has told why it ended does not come back.
            facts
                .all_ended()
                .filter(|ended| ended.how != HowEnded::Silent)
                .map(|_| false)
        })
        .await;
    if found == Some(false) {
        // The rest of what it tells of its end belongs to it.
        let _ = rig
            .recorder
            .wait_until(HONEST, |facts| {
                (facts.end_is_explained() || facts.protocol_is_broken()).then_some(())
            })
            .await;
    }
}

fn owned_or_over(facts: &Facts) -> Option<()> {
    let owned = facts.unowned().is_empty() && !facts.may_expire();
    // Of one that has ended without a word the coordinator is still to tell.
    let is_over = |how| how != HowEnded::Silent || facts.described().is_empty();
    (owned || facts.all_ended().is_some_and(|ended| is_over(ended.how))).then_some(())
}

/// Writers have stopped: what the reader shows now is final.
async fn settle(rig: &Rig) -> Result<(), RunError> {
    let recorder = &rig.recorder;
    recorder.record(Event::Stage(Stage::Settling));
    let mark = recorder.record(Event::Quiet);
    if recorder.with(|facts| {
        facts
            .partitions()
            .any(|(_, _, partition)| partition.log.now().is_some_and(|log| log.start > 0))
    }) {
        // Records have left the log: which of them is what losing and converging are judged by.
        rig.oracle.scan_all().await?;
    }
    if rig.launch.info.kind == Kind::Group {
        // A member that has left says nothing of it; its partitions without an owner do. A healthy group waits for nothing
        // here, and one that rebalances is back within its session. A coordinator learns of one that is silent when its
        // session is over.
        let session = rig.session_ms.map_or(Duration::ZERO, Duration::from_millis);
        let limit = rig.within().max(session) + OWNERS;
        let within = match rig.cluster.emulated() {
            true => limit,
            false => session + limit,
        };
        let _ = recorder.wait_until(within, owned_or_over).await;
    }
    for reader in rig.readers() {
        let member = reader.member();
        let has = |name: &str| recorder.with(|facts| facts.has_capability(member, name));
        if rig.launch.info.kind == Kind::Table && recorder.with(|facts| facts.is_alive(member)) {
            if has("barrier") {
                let _ = reader
                    .ask(
                        Command::Barrier {
                            timeout_ms: millis(BARRIER),
                        },
                        ANSWER,
                    )
                    .await;
            }
            if has("snapshot") {
                let _ = reader.ask(Command::Snapshot, ANSWER).await;
            }
        }
    }
    // Every member that lives says once more what it claims, now that nothing moves.
    let _ = recorder
        .wait_until(CLAIMS, |facts| {
            (facts.all_alive_beat_since(mark) || facts.protocol_is_broken()).then_some(())
        })
        .await;
    Ok(())
}

/// Only a reader that does not come back is offered cures. The verdict itself is not asked: an open history is partial.
fn is_sick(judgement: &Judgement) -> bool {
    judgement.findings.iter().any(|finding| {
        matches!(finding.outcome, Outcome::Violated { .. }) && CURABLE.contains(&finding.invariant.as_str())
    })
}

/// Which renewal brings the reader back: a fresh object in the same process, or a fresh process? The patient's verdict
/// is fixed by now.
async fn diagnose(rig: &Rig) -> Result<(), RunError> {
    let restartable = |member: &str| {
        rig.recorder
            .with(|facts| facts.is_alive(member) && facts.has_capability(member, "restart"))
    };
    let can_restart = rig.readers().iter().all(|reader| restartable(reader.member()));
    if can_restart {
        let answers = super::steps::ask_all(rig, || Command::Restart).await;
        let refused = answers.iter().flatten().find(|done| !done.ok);
        if let Some(refused) = refused {
            // It says itself that it does not come back, so there is nothing to wait for.
            let error = refused.error.as_ref().map_or_else(String::new, |error| error.label());
            rig.recorder.record(Event::Cure {
                renewed: Renewed::Object,
                worked: false,
                text: format!("closing and rebuilding it failed with {error}"),
            });
        } else if cured(rig, Renewed::Object, 2).await? {
            return Ok(());
        }
    }
    for reader in rig.readers() {
        let _ = reader.kill().await;
    }
    match rig.start_again().await {
        Ok(_) => {
            cured(rig, Renewed::Process, 3).await?;
        }
        Err(cause) => {
            rig.recorder.record(Event::Cure {
                renewed: Renewed::Process,
                worked: false,
                text: format!("a fresh process did not start: {}", crate::chain(&cause)),
            });
        }
    }
    Ok(())
}

/// Whether the renewed reader reads: the next record arrives, and, where a coordinator tells what its group committed, nothing
/// is left of the backlog before it. A group gives a fresh member its partitions once the session of one that was killed is
/// over.
async fn cured(rig: &Rig, renewed: Renewed, round: u32) -> Result<bool, RunError> {
    rig.oracle.sentinel(round).await?;
    let session = match rig.group {
        Some(_) => rig.session_ms.map_or(Duration::ZERO, Duration::from_millis),
        None => Duration::ZERO,
    };
    let within = rig.within() + session;
    let drained = |facts: &Facts| facts.has_committed_sentinel(round) != Some(false);
    let worked = rig
        .recorder
        .wait_until(within, |facts| {
            (facts.sentinel_arrived(round) && drained(facts)).then_some(())
        })
        .await
        .is_some();
    let text = if worked {
        "the backlog drained and a new record arrived"
    } else if rig.recorder.with(|facts| facts.sentinel_arrived(round)) {
        "a new record arrived, and its group did not commit what stands before it within the recovery window"
    } else {
        "no new record arrived within the recovery window"
    };
    let text = text.to_owned();
    rig.recorder.record(Event::Cure { renewed, worked, text });
    Ok(worked)
}

/// Stops every member within its grace and notes how it left. Meanwhile the log is looked at a last time: what is asked of
/// the reader is settled when it is told to stop, and nobody writes any more.
pub(super) async fn stop(rig: &Rig) -> Result<(), RunError> {
    rig.stop_load().await?;
    rig.recorder.record(Event::Stage(Stage::Stopping));
    let (scanned, ()) = tokio::join!(tokio::time::timeout(LAST_LOOK, rig.oracle.scan_all()), dismiss(rig));
    rig.link.flush();
    rig.recorder.record(Event::Stage(Stage::Closing));
    match scanned {
        Ok(scanned) => Ok(scanned?),
        Err(_) => Err(RunError::NoLastLook),
    }
}
