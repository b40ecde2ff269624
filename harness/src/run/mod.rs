//! The run loop: carries a plan out, injects, heals, waits, and records.
//!
//! ```text
//! up (cluster, link, oracle, topics, preload) -> start the reader -> steps -> heal what is left -> prove the path
//!    -> [quiet scenarios: wait for catches_up] -> sentinel -> quiet -> snapshot, barrier -> [failed: try cures] -> stop
//!    -> last scan -> closed -> judge
//! ```
//!
//! Waiting is always for a fact of the history, with a limit; nothing here decides whether a reader is good. Everything
//! that was set up is taken down on every path: an error, a panic of ours, a signal, a cluster that dies.

pub mod order;
pub mod paces;
pub mod rig;

mod finish;
mod setup;
mod steps;

use std::sync::Arc;
use std::time::Duration;

use brokerfall_report::history::{Event, FailureOf};
use brokerfall_report::verdict::Judgement;
use tokio::sync::watch;

pub use order::Order;
pub(crate) use setup::RunError;

use crate::history::recorder::Recorder;
use crate::scenario::duration;
use crate::verdict;
use rig::Rig;

/// Tells runs to end early: holds the name of the signal once one has come.
pub type Cancel = watch::Receiver<Option<&'static str>>;

/// The recorder of an order's history, in its folder, which is made.
///
/// # Errors
/// The operating system's, when the folder or file cannot be written.
pub fn recorder(order: &Order) -> std::io::Result<Recorder> {
    std::fs::create_dir_all(&order.folder)?;
    Recorder::new(Some(&order.history()))
}

/// Carries an order out and judges its history.
///
/// # Errors
/// Only when the history itself cannot be written or read: everything else that goes wrong stands in the judgement.
pub async fn run(order: Order, recorder: Recorder, cancel: Cancel) -> std::io::Result<Judgement> {
    let history = order.history();
    let mut cancel = cancel;
    let up = tokio::select! {
        up = setup::up(&order, &recorder) => Some(up),
        signal = cancelled(&mut cancel) => {
            if recorder.mark() == 0 {
                setup::open_unborn(&order, &recorder);
            }
            recorder.record(Event::Interrupted { signal: signal.to_owned() });
            None
        }
    };
    match up {
        // What was begun has ended with the future that held it.
        None => {}
        Some(Ok(rig)) => {
            let rig = Arc::new(rig);
            live(rig.clone(), &recorder, &mut cancel).await;
            if order.keep_up {
                hold_up(&rig, &recorder, &mut cancel).await;
            }
            setup::down(&rig).await;
        }
        Some(Err(cause)) => {
            recorder.record(Event::Failure {
                of: cause.of(),
                text: crate::chain(&cause),
            });
        }
    }
    recorder.record(Event::Closed);
    recorder.flush()?;
    verdict::judge_file(&history).map_err(std::io::Error::other)
}

/// Carries the plan out in a task of its own, so that neither a signal, nor a cluster's death, nor a panic of ours keeps
/// the rig from being taken down.
async fn live(rig: Arc<Rig>, recorder: &Recorder, cancel: &mut Cancel) {
    let mut carried = tokio::spawn(steps::carry_out(rig.clone()));
    tokio::select! {
        ended = &mut carried => match ended {
            Ok(Ok(())) => {}
            Ok(Err(cause)) => {
                recorder.record(Event::Failure { of: cause.of(), text: crate::chain(&cause) });
            }
            Err(panicked) => {
                recorder.record(Event::Failure { of: FailureOf::Harness, text: format!("the run loop panicked: {panicked}") });
            }
        },
        last_words = rig.cluster.died() => {
            carried.abort();
            recorder.record(Event::Failure {
                of: FailureOf::Environment,
                text: format!("the {} cluster ended by itself: {last_words}", rig.cluster.info().kind),
            });
        }
        last_words = rig.link.died() => {
            carried.abort();
            recorder.record(Event::Failure {
                of: FailureOf::Environment,
                text: format!("a process of the link ended by itself: {last_words}"),
            });
        }
        signal = cancelled(cancel) => {
            carried.abort();
            recorder.record(Event::Interrupted { signal: signal.to_owned() });
        }
        // Every wait of a run has a limit of its own; a scenario of many steps may add up to more than anybody waits for.
        () = elapsed(rig.plan.wall) => {
            carried.abort();
            let signal = format!("the limit wall = \"{}\"", duration::format(rig.plan.wall));
            recorder.record(Event::Interrupted { signal });
        }
        // The failure itself is told by the flush at the end; running on would only cost time.
        () = recorder.lost() => carried.abort(),
    }
    // An aborted task still owns what it was doing until it has been joined; joining one that has ended would panic.
    if !carried.is_finished() {
        let _ = carried.await;
    }
}

/// Records that an order cannot be carried out here, and judges that.
///
/// # Errors
/// When the history cannot be written or read.
pub fn skip(order: &Order, recorder: &Recorder, reason: String, enable: String) -> std::io::Result<Judgement> {
    let cluster = brokerfall_report::history::ClusterInfo {
        kind: "none".into(),
        kafka: String::new(),
        brokers: order.plan.cluster.brokers,
        properties: Vec::new(),
    };
    recorder.record(Event::Opened(Box::new(order.opened(cluster, "none"))));
    recorder.record(Event::Skipped { reason, enable });
    recorder.record(Event::Closed);
    recorder.flush()?;
    verdict::judge_file(&order.history()).map_err(std::io::Error::other)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the limit is one of the clock on the wall: time is the condition"
)]
async fn elapsed(length: Duration) {
    tokio::time::sleep(length).await;
}

/// A duration in whole milliseconds.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Waits for a signal and returns its name.
pub(crate) async fn cancelled(cancel: &mut Cancel) -> &'static str {
    loop {
        if let Some(signal) = *cancel.borrow_and_update() {
            return signal;
        }
        if cancel.changed().await.is_err() {
            // Nobody is left who could cancel.
            std::future::pending::<()>().await;
        }
    }
}

/// `--keep-up`: after a failure, cluster and link stay until a signal comes; one that came before has asked for the end.
async fn hold_up(rig: &Rig, recorder: &Recorder, cancel: &mut Cancel) {
    if recorder.flush().is_err() {
        return;
    }
    let judgement = recorder.with(verdict::judge_facts);
    if judgement.verdict != brokerfall_report::verdict::Verdict::Failed {
        return;
    }
    if cancel.borrow().is_none() {
        crate::cli::say::kept_up(
            &rig.link.bootstrap(),
            &rig.cluster.direct_bootstrap(),
            rig.cluster.login(),
        );
    }
    cancelled(cancel).await;
}
