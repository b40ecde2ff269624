//! A plan written as a scenario file and read back is the same plan.

use std::collections::BTreeMap;
use std::time::Duration;

use brokerfall::fault::{
    BrokerChoice, FaultSpec,
    answer_error::AnswerError,
    delete_segments::DeleteSegments,
    kill_broker::KillBroker,
    kill_reader::KillReader,
    panic_callback::{Callback, How, On, PanicCallback},
    partition::{Heals, Mode, Partition, Way},
    pause_broker::PauseBroker,
    pause_reader::PauseReader,
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

fn cut() -> impl Strategy<Value = Partition> {
    let way = select(vec![Way::Both, Way::ToBroker, Way::ToReader]);
    let heals = select(vec![Heals::Keep, Heals::Reset]);
    (vec(broker(), 1..3), 0..4, way, heals, 1u64..1_000_000_000).prop_map(|(brokers, mode, way, heals, bytes)| {
        let (mode, direction, heals, bytes_per_s) = match mode {
            0 => (Mode::Hold, way, heals, None),
            1 => (Mode::Reset, Way::Both, Heals::Keep, None),
            2 => (Mode::Refuse, Way::Both, Heals::Keep, None),
            _ => (Mode::Throttle, way, Heals::Keep, Some(bytes)),
        };
        Partition {
            brokers,
            mode,
            direction,
            heals,
            bytes_per_s,
        }
    })
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
    let codes: Vec<String> = codes::ERROR_NAMES
        .iter()
        .filter(|(code, _)| *code != 0)
        .map(|(_, name)| name.clone())
        .collect();
    (
        select(apis),
        select(codes),
        maybe(Just(TOPIC)),
        maybe(0..PARTITIONS),
        times(),
    )
        .prop_map(|(api, code, topic, partition, times)| AnswerError {
            api: api.to_owned(),
            code,
            topic: topic.map(str::to_owned),
            partition,
            times,
        })
}

fn fault(kind: Kind) -> impl Strategy<Value = FaultSpec> {
    prop_oneof![
        broker().prop_map(|broker| FaultSpec::KillBroker(KillBroker { broker })),
        broker().prop_map(|broker| FaultSpec::PauseBroker(PauseBroker { broker })),
        cut().prop_map(FaultSpec::Partition),
        (maybe(Just(TOPIC.to_owned())), maybe(0..PARTITIONS), 0u64..1_000).prop_map(
            |(topic, partition, past_reader_by)| {
                FaultSpec::DeleteSegments(DeleteSegments {
                    topic,
                    partition,
                    past_reader_by,
                })
            }
        ),
        callback(kind).prop_map(FaultSpec::PanicCallback),
        Just(FaultSpec::PauseReader(PauseReader {})),
        Just(FaultSpec::KillReader(KillReader {})),
        answer(kind).prop_map(FaultSpec::AnswerError),
    ]
}

fn command(kind: Kind, quiet: bool) -> impl Strategy<Value = Action> {
    let mut commands = vec![Action::Restart];
    match kind {
        Kind::Table => commands.extend([Action::Snapshot, Action::Barrier]),
        Kind::Group => commands.extend([Action::Commit, Action::Join]),
        Kind::Assign => {}
    }
    if !quiet {
        commands.push(Action::Produce(7));
    }
    select(commands)
}

fn when() -> impl Strategy<Value = When> {
    let wire = (select(vec!["Fetch", "Metadata"]), 1u64..1_000).prop_map(|(api, count)| WireTrigger {
        api: api.to_owned(),
        count,
    });
    (maybe(1u64..1 << 62), maybe(wire)).prop_map(|(delivered, wire)| When {
        before_start: false,
        caught_up: None,
        delivered,
        wire,
    })
}

/// Steps in which every heal finds what it heals: after some steps, what is in force is healed.
fn steps(kind: Kind, quiet: bool) -> impl Strategy<Value = Vec<Step>> {
    let grade = select(vec![Grade::Injected, Grade::Delivered, Grade::Felt]);
    let action = prop_oneof![
        (fault(kind), grade).prop_map(|(fault, grade)| Action::Do { fault, grade }),
        command(kind, quiet),
    ];
    vec((when(), maybe(length()), length(), action, 0..4), 0..6).prop_map(|drawn| {
        let mut steps = Vec::new();
        let mut in_force: Vec<String> = Vec::new();
        for (n, (when, after, wait, action, heal)) in drawn.into_iter().enumerate() {
            let name = format!("step.{n}");
            if matches!(action, Action::Do { .. } | Action::Join) {
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
    (any::<bool>(), 1u32..4, reset, isolation, maybe(length()), options()).prop_map(
        move |(named, members, reset, isolation, session, options)| ReaderPlan {
            kind: named.then_some(kind),
            members: if kind == Kind::Group { members } else { 1 },
            reset,
            isolation,
            session: session.filter(|_| kind == Kind::Group),
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
    let topic = (maybe(1u32..=3), any::<bool>(), role, 0u64..1 << 62, generator);
    vec(topic, 1..3).prop_map(|drawn| {
        drawn
            .into_iter()
            .enumerate()
            .map(|(n, (replicas, compacted, role, preload, generator))| TopicPlan {
                name: if n == 0 { TOPIC.to_owned() } else { format!("topic_{n}") },
                partitions: PARTITIONS,
                replicas,
                compacted,
                role,
                preload,
                generator,
            })
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

prop_compose! {
    fn plan()(
        kind in select(vec![Kind::Table, Kind::Group, Kind::Assign]),
        phase in select(vec![Phase::Start, Phase::CatchUp, Phase::Live, Phase::Commit, Phase::Rebalance, Phase::Close]),
    )(
        steps in steps(kind, matches!(phase, Phase::Start | Phase::CatchUp)),
        reader in reader(kind),
        topics in topics(),
        expect in expect(),
        rate in maybe(0.001f64..100_000.0),
        election in length(),
        title in "[!-~äé語]([ -~äé語]{0,30}[!-~])?",
        story in vec("([ -~ä語]{0,30}[!-~])?", 0..4),
        tags in vec("[a-z._-]{1,8}", 0..3),
        phase in Just(phase),
    ) -> Plan {
        Plan {
            id: "mine/generated".to_owned(),
            // `$name` stands for an axis; a written plan has none left.
            title: title.replace('$', "S"),
            story: story.join("\n"),
            tags,
            load: rate.filter(|_| !matches!(phase, Phase::Start | Phase::CatchUp)).map(|per_second| LoadPlan { per_second }),
            phase,
            cluster: ClusterPlan { brokers: 3, election },
            reader,
            topics,
            steps,
            expect,
        }
    }
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
        for (at, _) in text.char_indices().step_by(11) {
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
    let readme = include_str!("../../scenarios/README.md");
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
