//! From a tree without names to a [`Plan`]: every key with its default.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use brokerfall_report::history::{ExpectedEnd, Generator, Grade, Phase};
use brokerfall_report::protocol::{Isolation, Kind, Reset};

use super::decode::decode;
use super::diagnostics::{Sink, quoted, unknown};
use super::plan::{
    Action, Ask, ClusterPlan, ExpectPlan, Joiner, LoadPlan, Plan, Produce, ReaderPlan, Retention, State, Step,
    TopicPlan, When, WireTrigger,
};
use super::section::{Section, list, taken};
use super::tree::{Entry, Node, Value};
use super::words::{COMMANDS, FAULTS, INVARIANTS};
use crate::cluster::Cleanup;
use crate::fault::FaultSpec;

/// `format` of a scenario file.
const FORMAT: u32 = 1;
/// How long a step waits for its trigger unless it says otherwise.
pub(super) const WAIT: Duration = Duration::from_secs(60);
/// How long after a kill leaders move unless the file says otherwise.
pub(super) const ELECTION: Duration = Duration::from_millis(200);
/// How long a run may last unless the file says otherwise: twice the recovery window that any bundled reader declares,
/// beside the longest scenario.
pub(super) const WALL: Duration = Duration::from_secs(600);
/// Keys per partition unless the file says otherwise.
pub(super) const KEYS: u64 = 100;
/// Bytes of a value unless the file says otherwise.
pub(super) const VALUE_BYTES: u64 = 100;

/// A plan as far as it could be read.
pub(super) struct Draft {
    /// The plan, with defaults in place of what could not be read.
    pub(super) plan: Plan,
    /// Everything was read, so that this is the plan that the file means.
    pub(super) whole: bool,
    /// The parts that were read and can be checked.
    pub(super) read: Parts,
}

/// What could be read of a file.
pub(super) struct Parts {
    pub(super) cluster: bool,
    pub(super) reader: bool,
    pub(super) load: bool,
    pub(super) topics: bool,
    /// One for each step.
    pub(super) steps: Vec<bool>,
}

/// Reads a plan, as far as it can be read (the sink knows what could not); `None` where the tree is no table.
pub(super) fn plan(root: &Node, id: String, story: &str, sink: &Sink<'_>) -> Option<Draft> {
    let before = sink.count();
    let top = Section::new("the file", root, sink)?;
    if let Some(format) = top.required::<u32>("format", "`format = 1`")
        && format != FORMAT
    {
        sink.push(
            &top.span_of("format"),
            format!("format {format} is not known (wanted {FORMAT})"),
        );
    }
    top.node("matrix");
    let title = top.required("title", "one line that says what happens");
    let tags = top.or("tags", vec!["quick".to_owned()]);
    let phase = top.or("phase", Phase::Live);
    let wall = top.length("wall", Some(WALL));
    // What was wrong in a part is known by how much is wrong since.
    let count = |from: &mut usize| {
        let good = sink.count() == *from;
        *from = sink.count();
        good
    };
    let mut from = sink.count();
    let cluster = cluster(top.table("cluster"));
    let cluster_read = count(&mut from);
    let reader = reader(top.table("reader"));
    let reader_read = count(&mut from) && phase.is_some();
    let load = top.table("load").and_then(|section| load(&section));
    let load_read = count(&mut from);
    let topics = list(&top, "topic", sink, topic);
    if top.node("topic").is_none() {
        sink.push(
            &(0..0),
            "the scenario has no topic (wanted a `[[topic]]` with a `name`)",
        );
    }
    let topics_read = count(&mut from);
    let steps = list(&top, "step", sink, step);
    let expect = expect(top.table("expect"));
    top.done();
    Some(Draft {
        whole: sink.count() == before,
        read: Parts {
            cluster: cluster_read,
            reader: reader_read,
            load: load_read,
            topics: topics_read,
            steps: steps.iter().map(Option::is_some).collect(),
        },
        plan: Plan {
            id,
            // A title that was not read is no empty one.
            title: title.unwrap_or_else(|| "…".to_owned()),
            story: story.to_owned(),
            tags: tags.unwrap_or_default(),
            phase: phase.unwrap_or(Phase::Live),
            cluster: cluster.or_else(|| self::cluster(None))?,
            reader: reader.or_else(|| self::reader(None))?,
            topics: topics.into_iter().flatten().collect(),
            load,
            steps: named(
                steps
                    .into_iter()
                    .map(|step| step.unwrap_or_else(Unnamed::unread))
                    .collect(),
            ),
            expect: expect.or_else(|| self::expect(None))?,
            wall: wall.unwrap_or(WALL),
        },
    })
}

fn cluster(section: Option<Section<'_>>) -> Option<ClusterPlan> {
    let section = section.unwrap_or_else(Section::absent);
    let brokers = section.or("brokers", 1);
    let election = section.length("election", Some(ELECTION));
    let idle = section.length("idle", None);
    let offsets_on = section.optional("offsets-on");
    section.done();
    Some(ClusterPlan {
        brokers: brokers?,
        election: election?,
        idle,
        offsets_on,
    })
}

fn reader(section: Option<Section<'_>>) -> Option<ReaderPlan> {
    let section = section.unwrap_or_else(Section::absent);
    let kind: Option<Kind> = section.optional("kind");
    let members = section.or("members", 1);
    let reset = section.or("reset", Reset::Earliest);
    let isolation = section.or("isolation", Isolation::ReadUncommitted);
    let session = section.length("session", None);
    let heartbeat = section.length("heartbeat", None);
    let max_poll = section.length("max-poll", None);
    let is_static = section.or("static", false);
    let options = section.or("options", BTreeMap::new());
    section.done();
    Some(ReaderPlan {
        kind,
        members: members?,
        reset: reset?,
        isolation: isolation?,
        session,
        heartbeat,
        max_poll,
        is_static: is_static?,
        options: options?,
    })
}

fn topic(section: &Section<'_>) -> Option<TopicPlan> {
    let name = section.required("name", "the topic's name");
    let partitions = section.or("partitions", 1);
    let replicas = section.optional("replicas");
    let brokers = section.or("brokers", Vec::new());
    let segment_bytes = section.optional("segment-bytes");
    let retention = section.table("retention").and_then(|section| retention(&section));
    let cleanup = section.word("cleanup", &Cleanup::ALL.map(Cleanup::name), Cleanup::default().name());
    let role = section.word("role", &["input", "changelog"], "");
    let preload = section.table("preload").unwrap_or_else(Section::absent);
    let records = preload.or("records", 0);
    let keys = preload.or("keys", KEYS);
    let value_bytes = preload.or("value-bytes", VALUE_BYTES);
    let tombstone_every = preload.optional("tombstone-every");
    let age = preload.length("age", None);
    preload.done();
    Some(TopicPlan {
        name: name?,
        partitions: partitions?,
        replicas,
        brokers: brokers?,
        segment_bytes,
        retention,
        cleanup: Cleanup::ALL
            .into_iter()
            .find(|known| Some(known.name()) == cleanup.as_deref())?,
        role: role.filter(|role| !role.is_empty()),
        preload: records?,
        age,
        generator: Generator {
            keys: keys?,
            value_bytes: value_bytes?,
            tombstone_every,
        },
    })
}

fn retention(section: &Section<'_>) -> Option<Retention> {
    let retention = Retention {
        bytes: section.optional("bytes"),
        ms: section.optional("ms"),
    };
    if section.node("bytes").is_none() && section.node("ms").is_none() {
        section.sink()?.push(
            &section.span(),
            "`retention` keeps everything (wanted `bytes = …` or `ms = …`)",
        );
    }
    section.done();
    Some(retention)
}

fn load(section: &Section<'_>) -> Option<LoadPlan> {
    let rate: Option<String> = section.required("rate", "records a second, such as \"25/s\"");
    let until = section.or("until", "end".to_owned());
    section.done();
    let rate = rate?;
    let per_second = rate
        .strip_suffix("/s")
        .and_then(|number| number.trim().parse::<f64>().ok());
    if per_second.is_none() {
        let text = format!(
            "rate {} is no rate (wanted a number and `/s`, such as \"25/s\")",
            quoted(&rate)
        );
        section.sink()?.push(&section.span_of("rate"), text);
    }
    Some(LoadPlan {
        per_second: per_second?,
        until: until.filter(|until| until != "end"),
    })
}

/// A step whose name may still have to be made.
struct Unnamed {
    name: Option<String>,
    step: Step,
}

impl Unnamed {
    /// Stands in the place of a step that could not be read, so that those after it keep theirs.
    fn unread() -> Self {
        Self {
            name: None,
            step: Step {
                name: String::new(),
                when: When::default(),
                after: None,
                wait: WAIT,
                action: Action::HealAll,
            },
        }
    }
}

fn step(section: &Section<'_>) -> Option<Unnamed> {
    // Unrolled before; known here so that a slip of the pen finds its nearest word.
    section.node("repeat");
    section.node("step");
    let name: Option<String> = section.optional("name");
    let when = match section.table("when") {
        Some(when) => trigger(&when),
        None => Some(When::default()),
    };
    let after = section.length("after", None);
    let wait = section.length("wait", Some(WAIT));
    let grade: Option<Grade> = section.optional("grade");
    let sink = section.sink()?;
    let action = match (section.node("do"), section.node("heal")) {
        (Some(what), None) => action(what, grade.unwrap_or(Grade::Delivered), sink),
        (None, Some(what)) => heal(what, sink),
        (Some(_), Some(what)) => {
            sink.push(&what.span, "a step has both `do` and `heal` (wanted a step for each)");
            None
        }
        (None, None) => {
            sink.push(&section.span(), "a step does nothing (wanted `do` or `heal`)");
            None
        }
    };
    if section.node("grade").is_some() && !matches!(action, None | Some(Action::Do { .. })) {
        sink.push(
            &section.span_of("grade"),
            "only a fault has a `grade` (drop it; this step does something else)",
        );
    }
    Some(Unnamed {
        name,
        step: Step {
            name: String::new(),
            when: when?,
            after,
            wait: wait?,
            action: action?,
        },
    })
}

fn trigger(section: &Section<'_>) -> Option<When> {
    let before_start = section.or("before-start", false);
    let caught_up = section.optional("caught-up");
    let delivered = section.optional("delivered");
    let wire = section.table("wire").and_then(|wire| {
        let (api, count) = (wire.required("api", "an api, such as `Heartbeat`"), wire.or("count", 1));
        wire.done();
        Some(WireTrigger {
            api: api?,
            count: count?,
        })
    });
    let in_flight = section.optional("in-flight");
    section.done();
    Some(When {
        before_start: before_start?,
        caught_up,
        delivered,
        wire,
        in_flight,
    })
}

fn heal(node: &Node, sink: &Sink<'_>) -> Option<Action> {
    match &node.value {
        Value::Text(text) if text == "all" => Some(Action::HealAll),
        Value::Array(items) if !items.is_empty() => {
            let names: Vec<Option<String>> = items.iter().map(|item| taken(decode("heal", item), sink)).collect();
            names.into_iter().collect::<Option<Vec<_>>>().map(Action::Heal)
        }
        _ => {
            sink.push(
                &node.span,
                "`heal` names nothing (wanted [\"name of a step\", …] or \"all\")",
            );
            None
        }
    }
}

fn action(node: &Node, grade: Grade, sink: &Sink<'_>) -> Option<Action> {
    let (word, span, value) = match &node.value {
        Value::Text(word) => (word.as_str(), &node.span, None),
        Value::Table(entries) if entries.len() == 1 => {
            let Entry { key, key_span, node } = &entries[0];
            (key.as_str(), key_span, Some(node))
        }
        Value::Table(entries) => {
            sink.push(
                &node.span,
                format!("`do` holds {} things (wanted one in each step)", entries.len()),
            );
            return None;
        }
        other => {
            let text = format!("`do` is {} (wanted a fault or a command)", other.noun());
            sink.push(&node.span, text);
            return None;
        }
    };
    if FAULTS.contains(&word) {
        if value.is_none() {
            let text = format!("fault `{word}` stands without its table (wanted do = {{ {word} = {{ … }} }})");
            sink.push(span, text);
            return None;
        }
        let before = sink.count();
        check_choices(value?, sink);
        let fault: FaultSpec = if sink.count() == before {
            taken(decode("do", node), sink)?
        } else {
            // The words that `check_choices` looks at would be refused a second time, in serde's words.
            decode("do", node).ok()?
        };
        return Some(Action::Do { fault, grade });
    }
    command(word, span, value, sink)
}

/// A step that is no fault: a bare word, or a word with a table of its keys.
fn command(word: &str, span: &Range<usize>, value: Option<&Node>, sink: &Sink<'_>) -> Option<Action> {
    let section = match value {
        Some(value) => Section::new(word, value, sink)?,
        None => Section::absent(),
    };
    let action = match word {
        "produce" if value.is_none() => {
            sink.push(
                span,
                "`produce` lacks its table (wanted do = { produce = { records = 1 } })",
            );
            return None;
        }
        "produce" => {
            let records = section.required("records", "records per partition");
            let value_bytes = section.optional("value-bytes");
            let null_values = section.or("null-values", false);
            records.zip(null_values).map(|(records, null_values)| {
                Action::Produce(Produce {
                    records,
                    value_bytes,
                    null_values,
                })
            })
        }
        "restart-reader" => section.or("state", State::Keep).map(Action::Restart),
        "join-member" => section.or("reader", Joiner::Same).map(Action::Join),
        _ => {
            let what = match word {
                "snapshot" => Ask::Snapshot,
                "barrier" => Ask::Barrier,
                "commit" => Ask::Commit,
                "stop" => Ask::Stop,
                _ => {
                    let noun = if value.is_some() { "fault" } else { "command" };
                    let known: Vec<&str> = FAULTS.iter().chain(&COMMANDS).copied().collect();
                    sink.push(span, unknown(noun, word, &known));
                    return None;
                }
            };
            section.or("wait", true).map(|wait| Action::Ask { what, wait })
        }
    };
    section.done();
    action
}

/// Values that are a word or a number: serde says of these only that nothing fitted.
fn check_choices(fault: &Node, sink: &Sink<'_>) {
    for entry in fault.entries().unwrap_or_default() {
        let (noun, words, number): (_, &[&str], _) = match entry.key.as_str() {
            "broker" | "brokers" => ("broker", &["leader", "coordinator", "all"], "a node id"),
            "times" => ("`times`", &["always"], "a number"),
            _ => continue,
        };
        let items = match &entry.node.value {
            Value::Array(items) if entry.key == "brokers" => items.as_slice(),
            _ if entry.key == "brokers" => continue,
            _ => std::slice::from_ref(&entry.node),
        };
        for item in items {
            match &item.value {
                Value::Text(word) if words.contains(&word.as_str()) => {}
                Value::Text(word) => sink.push(&item.span, unknown(noun, word, words)),
                Value::Integer(n) if u32::try_from(*n).is_ok_and(|n| i32::try_from(n).is_ok()) => {}
                Value::Integer(n) => sink.push(
                    &item.span,
                    format!("{noun} `{n}` is out of range (wanted {number} from 1)"),
                ),
                other => sink.push(
                    &item.span,
                    format!("{noun} is {} (wanted a word or {number})", other.noun()),
                ),
            }
        }
    }
}

fn expect(section: Option<Section<'_>>) -> Option<ExpectPlan> {
    let section = section.unwrap_or_else(Section::absent);
    let outcome: Option<ExpectedEnd> = section.optional("outcome");
    let duplicates = section.optional("duplicates");
    let within = section.length("within", None);
    let mut named = Vec::new();
    for invariant in INVARIANTS {
        if let Some(invariant_section) = section.table(invariant) {
            invariant_section.done();
            named.push(invariant.to_owned());
        }
    }
    section.done();
    Some(ExpectPlan {
        outcome,
        named,
        duplicates,
        within,
    })
}

/// Gives a name to every step that has none: its kind and the next free number.
fn named(steps: Vec<Unnamed>) -> Vec<Step> {
    let taken: BTreeSet<String> = steps.iter().filter_map(|step| step.name.clone()).collect();
    let mut next: BTreeMap<&'static str, u64> = BTreeMap::new();
    steps
        .into_iter()
        .map(|Unnamed { name, step }| {
            let name = name.unwrap_or_else(|| {
                let kind = kind_of(&step.action);
                let last = next.entry(kind).or_default();
                loop {
                    *last += 1;
                    let made = format!("{kind}-{last}");
                    if !taken.contains(&made) {
                        return made;
                    }
                }
            });
            Step { name, ..step }
        })
        .collect()
}

fn kind_of(action: &Action) -> &'static str {
    match action {
        Action::Do { fault, .. } => fault.fault().kind(),
        Action::Heal(_) | Action::HealAll => "heal",
        Action::Produce(_) => "produce",
        Action::Ask { what, .. } => what.name(),
        Action::Restart(_) => "restart-reader",
        Action::Join(_) => "join-member",
    }
}
