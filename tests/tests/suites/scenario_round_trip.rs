//! A plan written as a scenario file and read back is the same plan.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use brokerfall::cluster::Cleanup;
use brokerfall::fault::{
    BrokerChoice, FaultSpec,
    absent_topic::AbsentTopic,
    add_partitions::AddPartitions,
    answer_error::AnswerError,
    delete_segments::{By, DeleteSegments, Past},
    deny_acl::{Denied, DenyAcl},
    isolate_broker::IsolateBroker,
    kill_broker::{self, KillBroker},
    kill_reader::{KillReader, State},
    move_address::{Form, MoveAddress},
    move_coordinator::MoveCoordinator,
    move_leader::{self, MoveLeader},
    panic_callback::{Callback, How, On, PanicCallback},
    partition::{Connects, Heals, Mode, Partition, Way},
    pause_broker::PauseBroker,
    pause_reader::PauseReader,
    recreate_topic::RecreateTopic,
    roll_brokers::{Gate, RollBrokers},
    transaction::{End, Heals as EndsOpen, Transaction},
};
use brokerfall::link::codes;
use brokerfall::scenario::{self, plan::*, words};
use brokerfall_report::history::{ExpectedEnd, Generator, Grade, Phase};
use brokerfall_report::protocol::{Isolation, Kind, Reset, Times};
use proptest::collection::{btree_map, vec};
use proptest::option::of as maybe;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

const TOPIC: &str = "orders";
const PARTITIONS: u32 = 4;

fn length() -> impl Strategy<Value = Duration> {
    prop_oneof![
        (1u64..100_000).prop_map(Duration::from_millis),
        (1u64..600).prop_map(Duration::from_secs),
        (1u64..60).prop_map(|minutes| Duration::from_secs(60 * minutes)),
    ]
}

fn times() -> impl Strategy<Value = Times> {
    prop_oneof![Just(Times::Always), (1u64..1_000).prop_map(Times::Count)]
}

fn broker() -> impl Strategy<Value = BrokerChoice> {
    prop_oneof![
        Just(BrokerChoice::Leader),
        Just(BrokerChoice::Coordinator),
        Just(BrokerChoice::All),
        (1i32..=3).prop_map(BrokerChoice::Node),
    ]
}

fn partition(kind: Kind) -> impl Strategy<Value = Partition> {
    let way = select(vec![Way::Both, Way::ToBroker, Way::ToReader]);
    let plain = Partition {
        brokers: Vec::new(),
        mode: Mode::Hold,
        direction: Way::Both,
        heals: Heals::Keep,
        bytes_per_s: None,
        connects: Connects::Accepted,
        by: None,
        jitter: None,
        after_bytes: None,
        api: None,
        times: None,
    };
    let hold = (
        way.clone(),
        select(vec![Heals::Keep, Heals::Reset]),
        select(vec![Connects::Accepted, Connects::Unanswered]),
    );
    let api = maybe(select(if kind == Kind::Group {
        vec!["Fetch", "OffsetCommit"]
    } else {
        vec!["Fetch", "Metadata"]
    }));
    let of = move |change: Partition| (Just(change), vec(broker(), 1..3));
    let modes = prop_oneof![
        hold.prop_map({
            let plain = plain.clone();
            move |(direction, heals, connects)| Partition {
                direction,
                heals,
                connects,
                ..plain.clone()
            }
        }),
        select(vec![Mode::Reset, Mode::Refuse]).prop_map({
            let plain = plain.clone();
            move |mode| Partition { mode, ..plain.clone() }
        }),
        (way.clone(), 1u64..1_000_000_000).prop_map({
            let plain = plain.clone();
            move |(direction, bytes)| Partition {
                mode: Mode::Throttle,
                direction,
                bytes_per_s: Some(bytes),
                ..plain.clone()
            }
        }),
        (way, length(), any::<bool>()).prop_map({
            let plain = plain.clone();
            move |(direction, by, jitter)| Partition {
                mode: Mode::Delay,
                direction,
                by: Some(by),
                jitter: jitter.then_some(by),
                ..plain.clone()
            }
        }),
        (maybe(0u64..1_000), api, maybe(times())).prop_map(move |(after_bytes, api, times)| Partition {
            mode: Mode::Cut,
            after_bytes,
            api: api.map(str::to_owned),
            times,
            ..plain.clone()
        }),
    ];
    modes
        .prop_flat_map(of)
        .prop_map(|(partition, brokers)| Partition { brokers, ..partition })
}

fn callback(kind: Kind) -> impl Strategy<Value = PanicCallback> {
    let callbacks = match kind {
        Kind::Table => vec![Callback::OnSet, Callback::OnDelete],
        _ => vec![Callback::OnRecord],
    };
    let on = prop_oneof![
        "[^$]{0,12}".prop_map(On::Key),
        (0u64..1 << 62).prop_map(On::Offset),
        (1u64..1 << 62).prop_map(On::Nth)
    ];
    let how = select(vec![How::Exception, How::BaseException, How::Hang, How::Delay]);
    let type_name = maybe(select(vec![
        "ValueError".to_owned(),
        "kafka \"quoted\" \\ Error".to_owned(),
    ]));
    (select(callbacks), on, how, type_name, length(), times()).prop_map(
        |(callback, on, raise, type_name, length, times)| PanicCallback {
            callback,
            on,
            raise,
            type_name: type_name.filter(|_| matches!(raise, How::Exception | How::BaseException)),
            length: Some(length).filter(|_| raise == How::Delay),
            times,
        },
    )
}

fn answer(kind: Kind) -> impl Strategy<Value = AnswerError> {
    let apis: Vec<&str> = codes::ANSWERABLE_APIS
        .into_iter()
        .filter(|api| kind == Kind::Group || !words::GROUP_APIS.contains(api))
        .collect();
    let codes = |api| (Just(api), select(codes::answers(api).collect::<Vec<_>>()));
    (
        select(apis).prop_flat_map(codes),
        maybe(Just(TOPIC)),
        maybe(0..PARTITIONS),
        times(),
    )
        .prop_map(|((api, code), topic, partition, times)| AnswerError {
            api: api.to_owned(),
            code: code.to_owned(),
            topic: topic.map(str::to_owned),
            partition,
            times,
        })
}

fn fault(kind: Kind) -> impl Strategy<Value = FaultSpec> {
    prop_oneof![
        (broker(), any::<bool>(), any::<bool>()).prop_map(|(broker, for_good, term)| {
            let for_good = for_good && broker != BrokerChoice::All;
            let by = match term && broker != BrokerChoice::All {
                true => kill_broker::By::Sigterm,
                false => kill_broker::By::Sigkill,
            };
            FaultSpec::KillBroker(KillBroker { broker, for_good, by })
        }),
        select(vec![Gate::InSync, Gate::None]).prop_map(|gate| FaultSpec::RollBrokers(RollBrokers { gate })),
        broker().prop_map(|broker| FaultSpec::PauseBroker(PauseBroker { broker })),
        broker().prop_map(|broker| FaultSpec::IsolateBroker(IsolateBroker { broker })),
        partition(kind).prop_map(FaultSpec::Partition),
        (
            maybe(Just(TOPIC.to_owned())),
            maybe(0..PARTITIONS),
            0u64..1_000,
            select(vec![By::Request, By::RetentionBytes, By::RetentionMs]),
            (select(vec![Past::Reader, Past::Committed]), maybe(length())),
        )
            .prop_map(move |(topic, partition, past_reader_by, by, (past, older_than))| {
                FaultSpec::DeleteSegments(DeleteSegments {
                    topic,
                    partition,
                    // Only a group commits.
                    past: if kind == Kind::Group { past } else { Past::Reader },
                    past_reader_by,
                    by,
                    older_than: older_than.filter(|_| by == By::RetentionMs),
                })
            }),
        broker().prop_map(|broker| {
            let form = match broker {
                BrokerChoice::All => Form::Name,
                _ => Form::Advertised,
            };
            FaultSpec::MoveAddress(MoveAddress { broker, form })
        }),
        callback(kind).prop_map(FaultSpec::PanicCallback),
        Just(FaultSpec::PauseReader(PauseReader {})),
        select(vec![State::Keep, State::Wipe]).prop_map(|state| FaultSpec::KillReader(KillReader { state })),
        answer(kind).prop_map(FaultSpec::AnswerError),
        maybe(Just(TOPIC.to_owned())).prop_map(|topic| FaultSpec::AbsentTopic(AbsentTopic { topic })),
        moved(kind),
        denied(kind),
        // A table's keys belong to their partitions, so that its topic cannot grow.
        if kind == Kind::Table {
            Just(FaultSpec::PauseReader(PauseReader {}))
        } else {
            Just(FaultSpec::AddPartitions(AddPartitions { topic: None, to: 0 }))
        },
    ]
}

/// What a reader may not read any more.
fn denied(kind: Kind) -> impl Strategy<Value = FaultSpec> {
    (maybe(Just(TOPIC.to_owned())), any::<bool>()).prop_map(move |(topic, group)| {
        let deny = match group && kind == Kind::Group {
            true => DenyAcl {
                on: Denied::Group,
                topic: None,
            },
            false => DenyAcl {
                on: Denied::Topic,
                topic,
            },
        };
        FaultSpec::DenyAcl(deny)
    })
}

/// A topic that is created anew; it is written to, which a quiet plan does not allow.
fn anew() -> impl Strategy<Value = FaultSpec> {
    (maybe(Just(TOPIC.to_owned())), 0u64..1_000, maybe(length()))
        .prop_map(|(topic, records, gap)| FaultSpec::RecreateTopic(RecreateTopic { topic, records, gap }))
}

/// Records of a transaction, which a quiet plan does not allow once the reader has started.
fn transaction() -> impl Strategy<Value = FaultSpec> {
    let ends = select(vec![
        (End::Commit, EndsOpen::Commit),
        (End::Abort, EndsOpen::Commit),
        (End::Open, EndsOpen::Commit),
        (End::Open, EndsOpen::Abort),
    ]);
    let place = (maybe(Just(TOPIC.to_owned())), maybe(0..PARTITIONS));
    (place, 1u64..1_000, ends).prop_map(|((topic, partition), records, (end, heals))| {
        FaultSpec::Transaction(Transaction {
            topic,
            partition,
            records,
            end,
            heals,
        })
    })
}

/// What moves leaders of any reader, and the coordinator of a group.
fn moved(kind: Kind) -> impl Strategy<Value = FaultSpec> {
    let leader = (maybe(Just(TOPIC.to_owned())), maybe(0..PARTITIONS), maybe(1i32..=3));
    (leader, any::<bool>()).prop_map(move |((topic, partition, to), leads)| {
        if leads || kind != Kind::Group {
            let by = match partition {
                Some(0) => move_leader::By::Reassignment,
                _ => move_leader::By::Election,
            };
            FaultSpec::MoveLeader(MoveLeader {
                topic,
                partition,
                to,
                by,
            })
        } else {
            FaultSpec::MoveCoordinator(MoveCoordinator { to })
        }
    })
}

fn command(kind: Kind, quiet: bool) -> impl Strategy<Value = Action> {
    let mut commands = vec![Action::Restart(State::Keep), Action::Restart(State::Wipe)];
    let mut asks = vec![Ask::Stop];
    match kind {
        Kind::Table => asks.extend([Ask::Snapshot, Ask::Barrier]),
        Kind::Group => {
            asks.push(Ask::Commit);
            commands.extend([Action::Join(Joiner::Same), Action::Join(Joiner::Neutral)]);
        }
        Kind::Assign => {}
    }
    commands.extend(
        asks.into_iter()
            .flat_map(|what| [true, false].map(|wait| Action::Ask { what, wait })),
    );
    if !quiet {
        commands.push(Action::Produce(Produce {
            records: 7,
            ..Produce::default()
        }));
        commands.push(Action::Produce(Produce {
            records: 2,
            value_bytes: Some(3_000_000),
            null_values: false,
        }));
        if kind != Kind::Table {
            commands.push(Action::Produce(Produce {
                records: 1,
                value_bytes: None,
                null_values: true,
            }));
        }
    }
    select(commands)
}

fn in_flight(kind: Kind) -> impl Strategy<Value = Option<InFlight>> {
    let mut commands = vec![InFlight::Start, InFlight::Stop];
    match kind {
        Kind::Table => commands.extend([InFlight::Snapshot, InFlight::Barrier]),
        Kind::Group => commands.push(InFlight::Commit),
        Kind::Assign => {}
    }
    maybe(select(commands))
}

fn when(kind: Kind) -> impl Strategy<Value = When> {
    let wire = (select(vec!["Fetch", "Metadata"]), 1u64..1_000).prop_map(|(api, count)| WireTrigger {
        api: api.to_owned(),
        count,
    });
    (maybe(1u64..1 << 62), maybe(wire), in_flight(kind)).prop_map(|(delivered, wire, in_flight)| When {
        before_start: false,
        caught_up: None,
        delivered,
        wire,
        in_flight,
    })
}

/// Steps in which every heal finds what it heals: after some steps, what is in force is healed.
fn steps(kind: Kind, quiet: bool) -> impl Strategy<Value = Vec<Step>> {
    let grade = select(vec![Grade::Injected, Grade::Delivered, Grade::Felt]);
    let action = prop_oneof![
        (fault(kind), grade).prop_map(|(fault, grade)| Action::Do { fault, grade }),
        if quiet {
            Just(Action::Restart(State::Keep)).boxed()
        } else {
            let created = prop_oneof![anew(), transaction()].prop_map(|fault| Action::Do {
                fault,
                grade: Grade::Delivered,
            });
            created.boxed()
        },
        command(kind, quiet),
    ];
    vec((when(kind), maybe(length()), length(), action, 0..4), 0..6).prop_map(|drawn| {
        let mut steps = Vec::new();
        let mut in_force: Vec<String> = Vec::new();
        for (n, (when, after, wait, mut action, heal)) in drawn.into_iter().enumerate() {
            if let Action::Do {
                fault: FaultSpec::AddPartitions(add),
                ..
            } = &mut action
            {
                // A topic only grows.
                add.to = PARTITIONS + 1 + u32::try_from(n).unwrap_or(u32::MAX);
            }
            if let Action::Do {
                fault: FaultSpec::RecreateTopic(_),
                ..
            } = &action
            {
                // No topic goes while a transaction on it is open.
                steps.iter_mut().for_each(committed);
            }
            let name = format!("step.{n}");
            let heals = match &action {
                Action::Do { fault, .. } => !fault.fault().for_good(),
                action => matches!(action, Action::Join(_)),
            };
            if heals {
                in_force.push(name.clone());
            }
            steps.push(Step {
                name,
                when,
                after,
                wait,
                action,
            });
            if heal < 2 && !in_force.is_empty() {
                let healed = std::mem::take(&mut in_force);
                steps.push(Step {
                    name: format!("heal_{n}"),
                    when: When::default(),
                    after,
                    wait,
                    action: if heal == 0 {
                        Action::HealAll
                    } else {
                        Action::Heal(healed)
                    },
                });
            }
        }
        steps
    })
}

fn committed(step: &mut Step) {
    if let Action::Do {
        fault: FaultSpec::Transaction(transaction),
        ..
    } = &mut step.action
    {
        (transaction.end, transaction.heals) = (End::Commit, EndsOpen::Commit);
    }
}

fn options() -> impl Strategy<Value = BTreeMap<String, serde_json::Value>> {
    let value = prop_oneof![
        any::<i64>().prop_map(serde_json::Value::from),
        any::<bool>().prop_map(serde_json::Value::from),
        (-1e9f64..1e9).prop_map(serde_json::Value::from),
        "[^$]{0,8}".prop_map(serde_json::Value::from),
        vec(any::<u32>(), 0..3).prop_map(serde_json::Value::from),
    ];
    btree_map("[^$]{0,8}", value, 0..3)
}

fn reader(kind: Kind) -> impl Strategy<Value = ReaderPlan> {
    let isolation = select(vec![Isolation::ReadUncommitted, Isolation::ReadCommitted]);
    let reset = select(vec![Reset::Earliest, Reset::Latest, Reset::None]);
    // A session is longer than its heartbeats, and a max-poll no shorter than its session.
    let timeouts = (maybe((length(), 2u32..5)), maybe(length()));
    (any::<[bool; 2]>(), 1u32..4, reset, isolation, timeouts, options()).prop_map(
        move |([named, is_static], members, reset, isolation, (session, max_poll), options)| ReaderPlan {
            kind: named.then_some(kind),
            members: if kind == Kind::Group { members } else { 1 },
            reset,
            isolation,
            session: session
                .filter(|_| kind == Kind::Group)
                .map(|(heartbeat, times)| heartbeat * times),
            heartbeat: session.filter(|_| kind == Kind::Group).map(|(heartbeat, _)| heartbeat),
            max_poll: max_poll
                .filter(|_| kind == Kind::Group)
                .map(|max_poll| session.map_or(max_poll, |(heartbeat, times)| max_poll.max(heartbeat * times))),
            is_static: is_static && kind == Kind::Group,
            options,
        },
    )
}

fn topics() -> impl Strategy<Value = Vec<TopicPlan>> {
    let role = maybe(select(vec!["input".to_owned(), "changelog".to_owned()]));
    let generator =
        (1u64..1 << 62, 0u64..900_000, maybe(1u64..1_000)).prop_map(|(keys, value_bytes, tombstone_every)| Generator {
            keys,
            value_bytes,
            tombstone_every,
        });
    // Named brokers hold one replica each, so that their number is that of the replicas.
    let brokers = prop_oneof![
        maybe(1u32..=3).prop_map(|replicas| (replicas, Vec::new())),
        subsequence(vec![1i32, 2, 3], 1..=3).prop_map(|brokers| (None, brokers)),
    ];
    let retention = prop_oneof![
        Just(None),
        (maybe(1u64..1 << 62), 1u64..1 << 62).prop_map(|(bytes, ms)| Some(Retention { bytes, ms: Some(ms) })),
        (1u64..1 << 62).prop_map(|bytes| Some(Retention {
            bytes: Some(bytes),
            ms: None
        })),
    ];
    let kept = (maybe(14u64..1 << 31), retention);
    let topic = (
        brokers,
        // Not compacted alone: from such a topic nothing is deleted.
        select(vec![Cleanup::Delete, Cleanup::CompactDelete]),
        role,
        (0u64..1 << 62, maybe(length())),
        generator,
        kept,
    );
    vec(topic, 1..3).prop_map(|drawn| {
        drawn
            .into_iter()
            .enumerate()
            .map(
                |(n, ((replicas, brokers), cleanup, role, (preload, age), generator, (segment_bytes, retention)))| {
                    TopicPlan {
                        name: if n == 0 { TOPIC.to_owned() } else { format!("topic_{n}") },
                        partitions: PARTITIONS,
                        replicas,
                        brokers,
                        segment_bytes,
                        retention,
                        cleanup,
                        role,
                        preload,
                        age,
                        generator,
                    }
                },
            )
            .collect()
    })
}

fn expect() -> impl Strategy<Value = ExpectPlan> {
    let outcome = select(vec![
        ExpectedEnd::Recovers,
        ExpectedEnd::Ends,
        ExpectedEnd::RecoversOrEnds,
    ]);
    let named = subsequence(
        words::INVARIANTS.map(str::to_owned).to_vec(),
        0..=words::INVARIANTS.len(),
    );
    (maybe(outcome), named, maybe(0u64..1 << 62), maybe(length())).prop_map(|(outcome, named, duplicates, within)| {
        ExpectPlan {
            outcome,
            named,
            duplicates,
            within,
        }
    })
}

/// Only a group has commits and rebalances.
fn phase(kind: Kind) -> impl Strategy<Value = Phase> {
    let mut phases = vec![Phase::Start, Phase::CatchUp, Phase::Live, Phase::Close];
    if kind == Kind::Group {
        phases.extend([Phase::Commit, Phase::Rebalance]);
    }
    select(phases)
}

prop_compose! {
    fn plan()(
        (kind, phase) in select(vec![Kind::Table, Kind::Group, Kind::Assign]).prop_flat_map(|kind| (Just(kind), phase(kind))),
    )(
        steps in steps(kind, matches!(phase, Phase::Start | Phase::CatchUp)),
        reader in reader(kind),
        topics in topics(),
        expect in expect(),
        rate in maybe(0.001f64..100_000.0),
        cluster in (length(), maybe(length()), maybe(1i32..=3)),
        wall in length(),
        until in any::<prop::sample::Index>(),
        title in "[!-~äé語]([ -~äé語]{0,30}[!-~])?",
        story in vec("([ -~ä語]{0,30}[!-~])?", 0..4),
        tags in vec("[a-z._-]{1,8}", 0..3),
        phase in Just(phase),
    ) -> Plan {
        let names: Vec<String> = steps.iter().map(|step| step.name.clone()).collect();
        let (election, idle, offsets_on) = cluster;
        Plan {
            id: "mine/generated".to_owned(),
            // `$name` stands for an axis; a written plan has none left.
            title: title.replace('$', "S"),
            story: story.join("\n"),
            tags,
            load: rate.filter(|_| !matches!(phase, Phase::Start | Phase::CatchUp)).map(|per_second| LoadPlan {
                per_second,
                // One in two goes on until the end.
                until: names.get(until.index(2 * names.len() + 1)).cloned(),
            }),
            phase,
            cluster: ClusterPlan {
                brokers: 3,
                election,
                idle,
                offsets_on: offsets_on.filter(|_| reader.kind.is_none_or(|kind| kind == Kind::Group)),
            },
            reader,
            topics,
            steps,
            expect,
            wall,
        }
    }
}

/// What the schema of scenario files says against a plan.
fn against_the_schema(plan: &Plan) -> Vec<String> {
    static VALIDATOR: LazyLock<jsonschema::Validator> =
        LazyLock::new(|| jsonschema::draft202012::new(&scenario::schema::schema()).expect("the schema is sound"));
    let text = plan.to_toml().expect("a plan can be written");
    let file = toml::from_str::<toml::Table>(&text).expect("it is TOML");
    let file = serde_json::to_value(file).expect("TOML fits into JSON");
    let errors = VALIDATOR.iter_errors(&file);
    errors
        .map(|error| format!("{error} at {}\n{text}", error.instance_path()))
        .collect()
}

fn read_back(plan: &Plan) -> Result<Vec<Plan>, String> {
    let text = plan.to_toml().map_err(|cause| cause.to_string())?;
    scenario::load(&plan.id, &text)
        .and_then(|scenario| scenario.plans())
        .map_err(|wrong| format!("{wrong}\n{text}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn a_plan_written_and_read_back_is_the_same_plan(plan in plan()) {
        prop_assert_eq!(against_the_schema(&plan), Vec::<String>::new());
        prop_assert_eq!(read_back(&plan), Ok(vec![plan]));
    }

    #[test]
    fn any_text_is_read_or_refused_and_never_panics(text in "(\\PC|\n){0,200}") {
        let _ = scenario::load("mine/any.toml", &text).and_then(|scenario| scenario.plans());
    }
}

#[test]
fn bundled_plans_written_and_read_back_are_the_same_plans() {
    for plan in scenario::catalogue::plans().unwrap() {
        assert_eq!(read_back(&plan), Ok(vec![plan]));
    }
}

/// Every bundled file with one character changed is read or refused with a place, and never panics.
#[test]
fn bundled_files_with_one_slip_never_panic() {
    for plan in scenario::catalogue::plans().unwrap() {
        let text = plan.to_toml().unwrap();
        for (at, _) in text.char_indices().step_by(41) {
            for slip in ["", "\"", "$a", "-1", "\u{0}"] {
                let mut slipped = text.clone();
                slipped.replace_range(at..=at, slip);
                if let Err(wrong) = scenario::load(&plan.id, &slipped).and_then(|scenario| scenario.plans()) {
                    assert!(!wrong.0.is_empty());
                    assert!(
                        wrong
                            .0
                            .iter()
                            .all(|one| one.line > 0 && one.column > 0 && !one.message.is_empty())
                    );
                }
            }
        }
    }
}

#[test]
fn the_example_of_the_readme_makes_four_plans() {
    let readme = include_str!("../../../scenarios/README.md");
    let example = readme.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let plans = scenario::load("mine/readme", example)
        .and_then(|scenario| scenario.plans())
        .unwrap();
    let ids: Vec<&str> = plans.iter().map(|plan| plan.id.as_str()).collect();
    assert_eq!(
        ids,
        [
            "mine/readme[partitions=1,mode=hold]",
            "mine/readme[partitions=1,mode=refuse]",
            "mine/readme[partitions=3,mode=hold]",
            "mine/readme[partitions=3,mode=refuse]"
        ]
    );
    assert!(plans[0].story.starts_with("A reader loses its leader's link"));
}
