//! The words that reports use for the enums of the record format.

use crate::exception::Origin;
use crate::history::{ConnectionChange, FailureOf, Grade, Proof, Renewed, Stage};
use crate::verdict::{VoidReason, VoidWhose};

pub(crate) fn stage(stage: Stage) -> &'static str {
    match stage {
        Stage::Preparing => "preparing",
        Stage::Starting => "starting",
        Stage::Steps => "steps",
        Stage::Healing => "healing",
        Stage::CatchingUp => "catching up",
        Stage::Recovering => "recovering",
        Stage::Settling => "settling",
        Stage::Diagnosing => "diagnosing",
        Stage::Stopping => "stopping",
        Stage::Closing => "closing",
    }
}

pub(crate) fn grade(grade: Grade) -> &'static str {
    match grade {
        Grade::Injected => "injected",
        Grade::Delivered => "delivered",
        Grade::Felt => "felt",
    }
}

pub(crate) fn proof(proof: Proof) -> &'static str {
    match proof {
        Proof::Injected => "injected",
        Proof::Delivered => "delivered",
        Proof::Felt => "felt",
        Proof::Healed => "healed",
        Proof::Phase => "the phase",
        Proof::HealthyBefore => "a healthy reader before the fault",
    }
}

pub(crate) fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Reader => "call or property",
        Origin::Callback => "user callback",
        Origin::Poll => "poll",
        Origin::Background => "background",
        Origin::Log => "only in the log",
    }
}

pub(crate) fn connection(change: ConnectionChange) -> &'static str {
    match change {
        ConnectionChange::Opened => "connection opened",
        ConnectionChange::ClosedByClient => "connection closed by the reader",
        ConnectionChange::ClosedByBroker => "connection closed by the broker",
        ConnectionChange::ResetByLink => "connection reset by the link",
        ConnectionChange::TurnedAway => "connect turned away, broker gone",
        ConnectionChange::Held => "connection held with traffic waiting",
        ConnectionChange::Slowed => "connection slowed",
        ConnectionChange::CutInResponse => "connection cut in the middle of a response",
        ConnectionChange::ClosedIdle => "idle connection closed",
        ConnectionChange::Unanswered => "connect left unanswered",
    }
}

/// Who can mend it, where it lies, and the sentence.
pub(crate) fn void(void: &VoidReason) -> String {
    let (by, whose) = (void.by.name(), whose(void.whose));
    if by == whose {
        return format!("{by}: {}", void.text);
    }
    format!("{by} ({whose}): {}", void.text)
}

fn whose(whose: VoidWhose) -> &'static str {
    match whose {
        VoidWhose::Adapter => "adapter",
        VoidWhose::Reader => "reader",
        VoidWhose::Evidence => "evidence",
        VoidWhose::Cluster => "cluster",
        VoidWhose::Machine => "machine",
        VoidWhose::Judge => "judge",
        VoidWhose::Undecided => "undecided",
    }
}

pub(crate) fn failure_of(of: FailureOf) -> &'static str {
    match of {
        FailureOf::Harness => "harness",
        FailureOf::Environment => "environment",
    }
}

pub(crate) fn renewed(renewed: Renewed) -> &'static str {
    match renewed {
        Renewed::Object => "a fresh object in the same process",
        Renewed::Process => "a fresh process",
    }
}
