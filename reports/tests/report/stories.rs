//! Literal histories with their judgements: what the renderers' snapshots tell.

use brokerfall_report::exception::{Code, Frame, FrameOf, Origin};
use brokerfall_report::history::*;
use brokerfall_report::protocol::*;
use brokerfall_report::report::{Report, RunReport, SkipReport, StaleEntry};
use brokerfall_report::verdict::*;

use crate::history::*;

/// Incident 1: an exception of the user's callback ends the table, and its status says so.
pub(crate) fn callback_killed_reader() -> (Vec<Entry>, Judgement) {
    let reader = ReaderInfo {
        source: "pypi".into(),
        lock: Some("lock.txt".into()),
        ..reader_info("ktables", "1.1.1", Kind::Table)
    };
    let faults = [("boom", "panic-callback")];
    let mut h = History::new(opened(
        "callback-panic/live",
        "A callback raises once, live",
        Phase::Live,
        reader,
        &faults,
    ));
    h.starts("ktables 1.1.1", "aiokafka 0.13.0", "CPython 3.11.9", Kind::Table);
    h.delivered(430.0, 1, 100);
    h.reader(440.0, ReaderEvent::CaughtUp);
    h.beat(500.0, "caught_up", Some(true), Some(true), None);
    h.injecting(
        600.0,
        "boom",
        "panic-callback",
        "on_set raises an exception at its next call",
        false,
    );
    h.injected(602.0, "boom", "the adapter armed on_set");
    h.produced(610.0, 101, 115);
    let call = CallbackCall {
        callback: Callback::OnSet,
        key: Some("p0-k1".into()),
        offset: Some(100),
    };
    h.reader(640.0, ReaderEvent::CallbackRaised(call));
    h.struck(641.0, "boom", "on_set raised at offset 100");
    let mut raised = exception("builtins.ValueError", "brokerfall: raised on purpose");
    raised.frames = vec![
        Frame {
            file: "ktables/table.py".into(),
            function: "KafkaTable._apply".into(),
            line: Some(212),
            of: FrameOf::Library,
        },
        Frame {
            file: "adapter.py".into(),
            function: "on_set".into(),
            line: Some(80),
            of: FrameOf::Callback,
        },
    ];
    let error = ReaderEvent::Error {
        origin: Origin::Reader,
        fatal: true,
        exception: raised.clone(),
        count: 1,
    };
    let error = h.reader(650.0, error);
    h.reader(
        651.0,
        ReaderEvent::Status {
            state: "failed".into(),
            detail: String::new(),
        },
    );
    h.beat(750.0, "failed", Some(false), Some(false), None);
    h.healed(760.0, "boom", "on_set raised once and is no longer armed");
    h.wire(1000.0, 1000, &[("Fetch", 9), ("Metadata", 2)]);
    h.stage(1200.0, Stage::Recovering);
    h.produced(1201.0, 116, 116);
    h.sentinel(1201.1, 116);
    h.stage(6300.0, Stage::Settling);
    h.asked(6301.0, 5, "barrier");
    h.answered(6320.0, 5, Some(false));
    h.beat(6350.0, "failed", Some(false), Some(false), None);
    h.stage(6400.0, Stage::Diagnosing);
    let text = "the backlog drained and the next sentinel arrived after 310 ms".to_owned();
    h.at(
        6800.0,
        Event::Cure {
            renewed: Renewed::Object,
            worked: true,
            text,
        },
    );
    h.ends(6810.0, Some(38));
    let text = "one exception of on_set at orders-0 offset 100 ended the reader; 16 later records were never applied";
    let findings = vec![
        undecided("recovers", "the reader has ended"),
        held("no_lost_record"),
        violated("callback_isolated", &[error], text, Some(FailureKind::Terminal)),
        held("failure_typed"),
        not_applicable("group_member", "kind table has no group"),
    ];
    let mut judgement = judgement(Verdict::Failed, text, findings);
    judgement.failure_kind = Some(FailureKind::Terminal);
    judgement.behind = Some(Behind {
        records: 16,
        seconds: 5.7,
    });
    let print = "3f0c9a51";
    judgement
        .exceptions
        .push(seen(raised, Origin::Reader, Phase::Live, true, error, print));
    (h.entries, judgement)
}

/// Incident 2: one OFFSET_OUT_OF_RANGE during catch-up, the reader jumps to the end of a quiet log and waits for ever.
pub(crate) fn stuck_after_out_of_range() -> (Vec<Entry>, Judgement) {
    let reader = reader_info("teaching-reset-latest", "0.1.0", Kind::Table);
    let faults = [("jump", "answer-error")];
    let title = "A Fetch is answered OFFSET_OUT_OF_RANGE during catch-up";
    let mut h = History::new(opened("incidents/reset-latest", title, Phase::CatchUp, reader, &faults));
    h.starts("brokerfall 0.1.0", "rdkafka 0.39.0", "rustc 1.88.0", Kind::Table);
    h.delivered(430.0, 1, 40);
    h.beat(440.0, "recovering", Some(false), Some(true), Some(60));
    h.injecting(
        450.0,
        "jump",
        "answer-error",
        "the next Fetch of orders-0 is answered OFFSET_OUT_OF_RANGE",
        false,
    );
    h.injected(450.3, "jump", "the link holds the rule");
    let code = Code {
        value: 1,
        name: "OFFSET_OUT_OF_RANGE".into(),
    };
    h.at(
        470.0,
        Event::WireError {
            client: "r1".into(),
            api: "Fetch".into(),
            code,
            topic: Some("orders".into()),
            partition: Some(0),
            injected_by: Some("jump".into()),
            count: 1,
        },
    );
    h.struck(470.1, "jump", "Fetch of r1 answered OFFSET_OUT_OF_RANGE once");
    let mut said = exception(
        "rdkafka::error::KafkaError::Global",
        "Fetch offset 40 is out of range, resetting offset",
    );
    said.code = Some(Code {
        value: -140,
        name: "_AUTO_OFFSET_RESET".into(),
    });
    let log = ReaderEvent::Error {
        origin: Origin::Log,
        fatal: false,
        exception: said.clone(),
        count: 1,
    };
    let log = h.reader(480.0, log);
    h.reader(
        481.0,
        ReaderEvent::Reset {
            topic: "orders".into(),
            partition: 0,
            from: Some(40),
            to: Some(100),
            cause: ResetCause::OutOfRange,
        },
    );
    h.healed(490.0, "jump", "the rule is gone after one answer");
    h.stage(500.0, Stage::CatchingUp);
    for second in 1..=5 {
        h.wire(f64::from(second) * 1000.0, 1000, &[("Fetch", 2)]);
        h.beat(
            f64::from(second) * 1000.0,
            "recovering",
            Some(false),
            Some(true),
            Some(0),
        );
    }
    h.stage(5_500.0, Stage::Diagnosing);
    h.at(
        5_900.0,
        Event::Cure {
            renewed: Renewed::Object,
            worked: false,
            text: "it jumped to the end again".into(),
        },
    );
    h.at(
        6_300.0,
        Event::Cure {
            renewed: Renewed::Process,
            worked: true,
            text: "it read from the log start".into(),
        },
    );
    h.ends(6_310.0, Some(20));
    let text = "orders-0 stands at offset 40 of 100, no progress for 5 s with the path open";
    let findings = vec![
        violated("catches_up", &[log], text, Some(FailureKind::Stuck)),
        violated(
            "no_lost_record",
            &[log],
            "60 records of orders-0 from offset 40 were never delivered",
            None,
        ),
        violated(
            "status_honest",
            &[log],
            "claimed lag 0 while 60 records behind for 5 s",
            Some(FailureKind::Silent),
        ),
        undecided(
            "recovers",
            "nothing was published: the topic was quiet until catches_up was decided",
        ),
    ];
    let mut judgement = judgement(Verdict::Failed, text, findings);
    judgement.failure_kind = Some(FailureKind::Stuck);
    judgement.behind = Some(Behind {
        records: 60,
        seconds: 5.0,
    });
    judgement.remarks.push("stuck until a new record arrived".into());
    judgement
        .exceptions
        .push(seen(said, Origin::Log, Phase::CatchUp, false, log, "a81be2d0"));
    (h.entries, judgement)
}

/// Incident 3: the broker goes away, consume returns without an error and nobody calls it again.
pub(crate) fn silent_consume_once() -> (Vec<Entry>, Judgement) {
    let reader = reader_info("teaching-consume-once", "0.1.0", Kind::Group);
    let faults = [("kill-broker-1", "kill-broker")];
    let mut h = History::new(opened(
        "incidents/consume-once",
        "The broker dies and returns",
        Phase::Live,
        reader,
        &faults,
    ));
    h.starts("brokerfall 0.1.0", "rdkafka 0.39.0", "rustc 1.88.0", Kind::Group);
    h.delivered(900.0, 1, 100);
    h.beat(950.0, "consuming", Some(true), Some(true), Some(0));
    h.injecting(1_000.0, "kill-broker-1", "kill-broker", "broker 1 is killed", true);
    h.injected(1_002.0, "kill-broker-1", "port 127.0.0.2:19101 refused");
    h.connection(1_003.0, ConnectionChange::ClosedByBroker, 2);
    h.struck(
        1_004.0,
        "kill-broker-1",
        "2 connections of r1 closed, 1 connect refused",
    );
    h.connection(1_104.0, ConnectionChange::TurnedAway, 3);
    let call = "consume".to_owned();
    let returned = h.reader(
        1_220.0,
        ReaderEvent::Returned {
            call,
            value: serde_json::Value::Null,
            error: None,
        },
    );
    h.wire(
        1_300.0,
        1_300,
        &[("Fetch", 12), ("JoinGroup", 1), ("SyncGroup", 1), ("Heartbeat", 2)],
    );
    let gone = GroupChange::Gone {
        how: "LeaveGroup".into(),
    };
    h.at(
        1_230.0,
        Event::WireGroup {
            client: "r1".into(),
            group: "bf".into(),
            change: gone,
        },
    );
    h.beat(1_250.0, "consuming", Some(true), Some(true), Some(0));
    h.healed(4_000.0, "kill-broker-1", "the oracle read through the broker");
    h.stage(4_010.0, Stage::Recovering);
    h.produced(4_020.0, 101, 130);
    h.sentinel(4_020.1, 130);
    h.beat(9_000.0, "consuming", Some(true), Some(true), Some(0));
    h.stage(9_050.0, Stage::Diagnosing);
    h.at(
        9_800.0,
        Event::Cure {
            renewed: Renewed::Object,
            worked: true,
            text: "consume was called again".into(),
        },
    );
    h.ends(9_810.0, Some(20));
    let text = "no progress for 5 s with the path open and 30 records behind, and the reader has not ended";
    let findings = vec![
        violated(
            "recovers",
            &[returned],
            "the sentinel of orders-0 did not arrive within 5 s",
            Some(FailureKind::Stuck),
        ),
        violated("no_silent_death", &[returned], text, Some(FailureKind::Silent)),
        violated(
            "group_member",
            &[returned + 2],
            "orders-0 had no member for 7.8 s",
            None,
        ),
    ];
    let mut judgement = judgement(Verdict::Failed, text, findings);
    judgement.failure_kind = Some(FailureKind::Silent);
    judgement.behind = Some(Behind {
        records: 30,
        seconds: 8.1,
    });
    (h.entries, judgement)
}

/// A reader that comes back: its report must refute as well as others accuse.
pub(crate) fn passed() -> (Vec<Entry>, Judgement) {
    let reader = reader_info("reference-table", "0.1.0", Kind::Table);
    let faults = [("cut", "partition")];
    let mut h = History::new(opened(
        "partition/live[mode=hold]",
        "The network stops",
        Phase::Live,
        reader,
        &faults,
    ));
    h.starts("brokerfall 0.1.0", "rdkafka 0.39.0", "rustc 1.88.0", Kind::Table);
    h.delivered(430.0, 1, 100);
    h.beat(440.0, "live", Some(true), Some(true), Some(0));
    h.injecting(
        500.0,
        "cut",
        "partition",
        "nothing gets through between reader and brokers",
        false,
    );
    h.injected(500.2, "cut", "3 connections held");
    h.connection(510.0, ConnectionChange::Held, 3);
    h.struck(
        511.0,
        "cut",
        "a Fetch of r1 has been waiting for its answer since 510 ms",
    );
    h.at(
        900.0,
        Event::Felt {
            fault: "cut".into(),
            proof: "the reader reported _TIMED_OUT".into(),
        },
    );
    let mut timed_out = exception("rdkafka::error::KafkaError::MessageConsumption", "Local: Timed out");
    timed_out.code = Some(Code {
        value: -185,
        name: "_TIMED_OUT".into(),
    });
    let error = ReaderEvent::Error {
        origin: Origin::Poll,
        fatal: false,
        exception: timed_out.clone(),
        count: 4,
    };
    let error = h.reader(901.0, error);
    h.beat(950.0, "reconnecting", Some(true), Some(false), None);
    h.healed(2_500.0, "cut", "held bytes flowed on");
    h.stage(2_510.0, Stage::Recovering);
    h.produced(2_512.0, 101, 101);
    h.sentinel(2_512.1, 101);
    h.delivered(2_870.0, 101, 101);
    h.beat(2_900.0, "live", Some(true), Some(true), Some(0));
    h.wire(2_950.0, 2_900, &[("Fetch", 30), ("Metadata", 6)]);
    h.stage(2_960.0, Stage::Settling);
    h.asked(2_961.0, 9, "barrier");
    h.answered(2_965.0, 9, Some(true));
    h.ends(2_970.0, Some(12));
    let findings = vec![
        held("recovers"),
        held("no_lost_record"),
        not_applicable("group_member", "kind table has no group"),
    ];
    let mut judgement = judgement(Verdict::Passed, "", findings);
    judgement
        .exceptions
        .push(seen(timed_out, Origin::Poll, Phase::Live, false, error, "77d1f0aa"));
    (h.entries, judgement)
}

/// A fault that never reached the reader, and a violation that must therefore not be held against it.
pub(crate) fn void_with_a_violation() -> (Vec<Entry>, Judgement) {
    let reader = reader_info("kafkajs", "2.2.4", Kind::Group);
    let faults = [("pause-broker-1", "pause-broker")];
    let mut h = History::new(opened(
        "broker-pause/live",
        "The broker stops in its tracks",
        Phase::Live,
        reader,
        &faults,
    ));
    h.starts("kafkajs 2.2.4", "kafkajs 2.2.4", "node 22.11.0", Kind::Group);
    h.delivered(430.0, 1, 100);
    h.beat(440.0, "running", None, None, None);
    h.injecting(
        500.0,
        "pause-broker-1",
        "pause-broker",
        "all connections of broker 1 are held",
        true,
    );
    h.injected(500.2, "pause-broker-1", "2 connections held");
    let (fault, text) = (
        "pause-broker-1".to_owned(),
        "no request of r1 was waiting within 5 s".to_owned(),
    );
    let unproven = h.at(
        5_600.0,
        Event::NotProven {
            fault,
            wanted: Proof::Delivered,
            text,
        },
    );
    h.healed(5_610.0, "pause-broker-1", "held bytes flowed on");
    h.stage(5_620.0, Stage::Recovering);
    h.produced(5_621.0, 101, 130);
    h.sentinel(5_621.1, 130);
    let mut outer = exception("KafkaJSNonRetriableError", "Connection timeout");
    outer.attributes.insert("retriable".into(), false.into());
    let crash = caused_by(outer, exception("KafkaJSConnectionError", "Connection timeout"));
    h.reader(
        5_700.0,
        ReaderEvent::Error {
            origin: Origin::Background,
            fatal: true,
            exception: crash,
            count: 1,
        },
    );
    h.ends(10_700.0, None);
    let findings = vec![violated(
        "recovers",
        &[unproven + 2],
        "the sentinel of orders-0 did not arrive within 5 s",
        Some(FailureKind::Stuck),
    )];
    let why = "pause-broker-1 was to be delivered and reached only injected";
    let mut judgement = judgement(Verdict::Void, why, findings);
    let void = VoidReason::new(VoidWhose::Evidence, why.into(), vec![unproven]);
    judgement.voids.push(void);
    (h.entries, judgement)
}

/// The mock aborted: nobody's reader did that.
pub(crate) fn environment_failed() -> (Vec<Entry>, Judgement) {
    let reader = reader_info("reference-group", "0.1.0", Kind::Group);
    let faults = [("kill-broker-1", "kill-broker")];
    let mut h = History::new(opened(
        "broker-kill/live",
        "The broker dies and returns",
        Phase::Live,
        reader,
        &faults,
    ));
    h.starts("brokerfall 0.1.0", "rdkafka 0.39.0", "rustc 1.88.0", Kind::Group);
    let text = "the mock cluster ended with signal 6: Assertion `mcgrp->members' failed (its stderr is in cluster.log)";
    h.at(
        700.0,
        Event::Failure {
            of: FailureOf::Environment,
            text: text.into(),
        },
    );
    let mut judgement = judgement(
        Verdict::Error,
        text,
        vec![undecided("recovers", "the run did not get that far")],
    );
    judgement.error_of = Some(FailureOf::Environment);
    (h.entries, judgement)
}

/// Every story as a report, with two skips and an entry that nothing can meet.
pub(crate) fn suite() -> Report {
    let run = |(entries, judgement): (Vec<Entry>, Judgement), folder: &str| {
        let mut run = RunReport::from_history(entries, &judgement);
        run.artifacts = (!folder.is_empty()).then(|| format!("runs/{folder}"));
        run
    };
    let mut known = run(silent_consume_once(), "005");
    known.apply_known_failing(
        "consume is called once and its return is taken for the end (sarama#1192 and others)",
        true,
    );
    let skip = |scenario: &str| {
        let reason = "the mock cluster has no KIP-848 groups".to_owned();
        let skip = SkipReport {
            reason,
            enable: "run with --cluster process".into(),
        };
        RunReport::skipped(
            scenario,
            "t",
            Phase::Rebalance,
            &reader_info("reference-group", "0.1.0", Kind::Group),
            skip,
        )
    };
    let runs = vec![
        run(passed(), ""),
        run(callback_killed_reader(), "002"),
        run(stuck_after_out_of_range(), "003"),
        run(void_with_a_violation(), "004"),
        known,
        run(environment_failed(), "006"),
        skip("rebalance/kip-848"),
        skip("rebalance/kip-848-leave"),
    ];
    let stale = StaleEntry {
        entry: "known-failing/ktables.toml: broker-kill/old".into(),
        text: "no scenario of the catalogue has this id".into(),
    };
    Report::new(
        "0.1.0",
        "2026-11-30T00:58:40Z",
        "brokerfall run --reader bundled",
        runs,
        vec![stale],
    )
}
