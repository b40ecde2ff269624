//! `stops_cleanly`: stop returns within its grace in every phase, the broker down included, and leaves no process of its
//! group and no connection on the link behind.

use brokerfall_report::verdict::{FailureKind, Outcome};

use super::{held, of_kind, undecided, violated};
use crate::history::facts::{Facts, shown};

pub(super) fn judge(facts: &Facts) -> Outcome {
    let Some(opened) = facts.opened() else {
        return undecided("the run was never opened");
    };
    let grace_ms = opened.limits.stop_grace_ms.value.max(0.0);
    let (mut events, mut texts, mut slowest, mut judged) = (Vec::new(), Vec::new(), 0, false);
    for left in facts.left() {
        let life = left.life.and_then(|life| facts.lives().get(life));
        // Of a process that is already gone there is nothing to stop.
        if left.life.is_some_and(|life| facts.is_cure(life)) || life.is_none_or(|life| life.asked_to_stop.is_none()) {
            continue;
        }
        judged = true;
        let mut wrong = Vec::new();
        match left.stopped_ms {
            None => wrong.push(format!("had to be killed (grace {grace_ms} ms)")),
            Some(ms) if ms as f64 > grace_ms => wrong.push(format!("took {ms} ms to stop (grace {grace_ms} ms)")),
            Some(ms) => slowest = slowest.max(ms),
        }
        if !left.processes.is_empty() {
            let names: Vec<String> = left.processes.iter().take(4).map(|process| shown(process)).collect();
            wrong.push(format!(
                "left {} processes behind ({})",
                left.processes.len(),
                names.join(", ")
            ));
        }
        if left.connections > 0 {
            wrong.push(format!("left {} connections open", left.connections));
        }
        if !wrong.is_empty() {
            events.push(left.at.n);
            texts.push(format!("{} {}", left.member, wrong.join(" and ")));
        }
    }
    if !texts.is_empty() {
        return of_kind(violated(events, texts.join("; ")), FailureKind::Stuck, None);
    }
    if !judged && !facts.cures().is_empty() {
        return undecided("the reader was renewed by a cure before it could be stopped");
    }
    if !judged {
        return undecided("no reader was there to be stopped");
    }
    held(format!("{slowest} ms of {grace_ms} ms"))
}
