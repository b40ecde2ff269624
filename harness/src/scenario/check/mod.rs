//! Plans that are well formed and still impossible.

mod fault;

use std::collections::BTreeSet;
use std::ops::Range;

use brokerfall_report::history::Phase;
use brokerfall_report::protocol::Kind;

use super::diagnostics::{Sink, nearest, quoted, unknown};
use super::plan::{Action, MOST_VALUE_BYTES, Plan, Produce, ReaderPlan, Step, TopicPlan, USUAL_VALUE_BYTES, When};
use super::read::Draft;
use super::tree::{At, Node};
use crate::cluster::NodeId;
use crate::fault::FaultSpec;
use crate::link::codes::API_NAMES;

/// Partitions of a topic beyond this are a slip: the mock answers Metadata for each.
const MOST_PARTITIONS: u32 = 1000;

/// The least `segment.bytes` that brokers take: 14 bytes up to Kafka 3.9, 1 MiB since (KIP-1030).
const LEAST_SEGMENT: u64 = 14;

/// Says everything that makes the plan impossible, as far as it was read: what could not be read is not checked, and
/// neither is what depends on it.
pub(super) fn draft(draft: &Draft, root: &Node, sink: &Sink<'_>) {
    let Draft { plan, whole, read } = draft;
    let check = Check { plan, root, sink };
    let all_steps = read.steps.iter().all(|read| *read);
    check.whole();
    if read.cluster && read.reader {
        check.cluster();
    }
    if read.reader {
        check.reader();
    }
    if read.load && read.reader {
        check.load(all_steps);
    }
    if read.topics && read.cluster {
        check.topics();
    }
    if all_steps {
        check.steps();
        check.names_and_heals();
    }
    let steps = plan.steps.iter().enumerate().zip(&read.steps);
    for ((n, step), _) in steps.filter(|(_, read)| **read) {
        check.trigger(n, step);
        if read.cluster && read.topics && read.reader {
            check.action(n, step);
        }
    }
    if *whole {
        check.kinds();
    }
}

struct Check<'a> {
    plan: &'a Plan,
    root: &'a Node,
    sink: &'a Sink<'a>,
}

impl Check<'_> {
    fn at(&self, path: &[At<'_>], message: impl Into<String>) {
        self.sink.push(&self.root.span_at(path), message);
    }

    fn at_top(&self, path: &[&str], message: impl Into<String>) {
        let path: Vec<At<'_>> = path.iter().map(|key| At::Key(key)).collect();
        self.at(&path, message);
    }

    fn at_topic(&self, n: usize, path: &[&str], message: impl Into<String>) {
        self.sink.push(&self.span_in("topic", n, path), message);
    }

    fn at_step(&self, n: usize, path: &[&str], message: impl Into<String>) {
        self.sink.push(&self.span_in("step", n, path), message);
    }

    fn span_in(&self, list: &str, n: usize, path: &[&str]) -> Range<usize> {
        let mut full = vec![At::Key(list), At::Index(n)];
        full.extend(path.iter().map(|key| At::Key(key)));
        self.root.span_at(&full)
    }

    fn whole(&self) {
        let expect = &self.plan.expect;
        if self.plan.title.trim().is_empty() || self.plan.title.chars().any(char::is_control) {
            self.at_top(
                &["title"],
                "the title is empty or holds control characters (wanted one line of text)",
            );
        }
        if let Some(tag) = self.plan.tags.iter().find(|tag| !is_word(tag)) {
            let text = format!("tag {} is no word (wanted letters, digits, `.`, `_`, `-`)", quoted(tag));
            self.at_top(&["tags"], text);
        }
        if self.plan.wall.is_zero() {
            self.at_top(
                &["wall"],
                "a run of no length is over before it begins (wanted \"1m\" at least)",
            );
        }
        if expect.within.is_some_and(|within| within.is_zero()) {
            self.at_top(
                &["expect", "within"],
                "no reader recovers within no time (wanted \"1s\" at least)",
            );
        }
    }

    fn cluster(&self) {
        let cluster = &self.plan.cluster;
        if !(1..=3).contains(&cluster.brokers) {
            let text = format!("a cluster of {} brokers cannot be had (wanted 1 to 3)", cluster.brokers);
            self.at_top(&["cluster", "brokers"], text);
        }
        if cluster.idle.is_some_and(|idle| idle.is_zero()) {
            self.at_top(
                &["cluster", "idle"],
                "connections that are idle for no time never serve (wanted \"1s\" at least, or leave it out)",
            );
        }
        if let Some(node) = cluster.offsets_on {
            if let Some(text) = self.no_broker(node) {
                self.at_top(&["cluster", "offsets-on"], text);
            }
            if self.plan.reader.kind.is_some_and(|kind| kind != Kind::Group) {
                self.at_top(
                    &["cluster", "offsets-on"],
                    "only kind `group` has a coordinator (drop `offsets-on` or set the kind)",
                );
            }
        }
    }

    fn load(&self, steps_are_known: bool) {
        let Some(load) = &self.plan.load else { return };
        if self.plan.quiet() {
            self.at_top(&["load"], self.quiet_rule("load"));
        }
        if !(load.per_second > 0.0 && load.per_second <= 100_000.0) {
            let text = format!(
                "a rate of {} records a second cannot be kept (wanted above 0, at most 100000)",
                load.per_second
            );
            self.at_top(&["load", "rate"], text);
        }
        if steps_are_known
            && let Some(until) = &load.until
            && !self.plan.steps.iter().any(|step| step.name == *until)
        {
            let names = self.plan.steps.iter().map(|step| step.name.as_str());
            let hint = match nearest(until, names.chain(["end"])) {
                Some(near) => format!("did you mean {}?", quoted(near)),
                None => "wanted \"end\" or the name of a step".to_owned(),
            };
            let text = format!("load until an unknown step {} ({hint})", quoted(until));
            self.at_top(&["load", "until"], text);
        }
    }

    fn reader(&self) {
        let reader = &self.plan.reader;
        let phase = self.plan.phase;
        if let Some(kind) = reader.kind
            && kind != Kind::Group
            && matches!(phase, Phase::Commit | Phase::Rebalance)
        {
            let text = format!(
                "a reader of kind `{}` has no phase `{}` (set `kind = \"group\"`)",
                kind.name(),
                phase.name()
            );
            self.at_top(&["phase"], text);
        }
        if reader.members == 0 {
            self.at_top(
                &["reader", "members"],
                "a reader of 0 members reads nothing (wanted 1 at least)",
            );
        }
        if reader.members > 1 && reader.kind.is_some_and(|kind| kind != Kind::Group) {
            self.at_top(
                &["reader", "members"],
                "only kind `group` has several members (set `kind = \"group\"` or `members = 1`)",
            );
        }
        if reader.is_static && reader.kind.is_some_and(|kind| kind != Kind::Group) {
            self.at_top(
                &["reader", "static"],
                "only kind `group` has static members (set `kind = \"group\"` or drop `static`)",
            );
        }
        let lengths = [
            ("session", reader.session),
            ("heartbeat", reader.heartbeat),
            ("max-poll", reader.max_poll),
        ];
        for (key, length) in lengths {
            let Some(length) = length else { continue };
            if reader.kind.is_some_and(|kind| kind != Kind::Group) {
                let text = format!("only kind `group` has a {key} (drop `{key}` or set the kind)");
                self.at_top(&["reader", key], text);
            }
            if length.is_zero() {
                let text = format!("a {key} of no length ends at once (wanted \"1s\" at least)");
                self.at_top(&["reader", key], text);
            }
        }
        if let (Some(heartbeat), Some(session)) = (reader.heartbeat, reader.session)
            && heartbeat >= session
        {
            self.at_top(
                &["reader", "heartbeat"],
                "a heartbeat that is not shorter than the session comes too late (wanted a third of `session` at most)",
            );
        }
        if let (Some(max_poll), Some(session)) = (reader.max_poll, reader.session)
            && max_poll < session
        {
            // librdkafka refuses it: "`max.poll.interval.ms` must be >= `session.timeout.ms`".
            self.at_top(
                &["reader", "max-poll"],
                "a max-poll that is shorter than the session is refused by clients (wanted at least `session`)",
            );
        }
    }

    /// What is wrong with a node id, if anything.
    fn no_broker(&self, node: NodeId) -> Option<String> {
        let brokers = self.plan.cluster.brokers;
        let known = u32::try_from(node).is_ok_and(|node| (1..=brokers).contains(&node));
        (!known).then(|| format!("there is no broker {node} in a cluster of {brokers} (wanted 1 to {brokers})"))
    }

    fn first_topic(&self) -> &str {
        self.plan.topics.first().map_or("", |topic| topic.name.as_str())
    }

    pub(super) fn quiet_rule(&self, what: &str) -> String {
        format!(
            "{what} in phase `{}`: a new record could wake a reader that should wake by itself (drop it, or use phase `live`)",
            self.plan.phase.name()
        )
    }

    fn topics(&self) {
        let brokers = self.plan.cluster.brokers;
        for (n, topic) in self.plan.topics.iter().enumerate() {
            let legal = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            if topic.name.is_empty()
                || topic.name.len() > 249
                || !topic.name.chars().all(legal)
                || [".", ".."].contains(&topic.name.as_str())
            {
                let text = format!(
                    "topic {} is no name for Kafka (wanted up to 249 letters, digits, `.`, `_`, `-`)",
                    quoted(&topic.name)
                );
                self.at_topic(n, &["name"], text);
            }
            if self.plan.topics[..n].iter().any(|other| other.name == topic.name) {
                let text = format!("topic {} stands twice in the scenario", quoted(&topic.name));
                self.at_topic(n, &["name"], text);
            }
            if !(1..=MOST_PARTITIONS).contains(&topic.partitions) {
                let text = format!(
                    "{} partitions cannot be had (wanted 1 to {MOST_PARTITIONS})",
                    topic.partitions
                );
                self.at_topic(n, &["partitions"], text);
            }
            if let Some(replicas) = topic.replicas
                && !(1..=brokers).contains(&replicas)
            {
                let text = format!("{replicas} replicas do not fit a cluster of {brokers} (wanted 1 to {brokers})");
                self.at_topic(n, &["replicas"], text);
            }
            self.place_of(n, topic);
            if topic.generator.keys == 0 {
                self.at_topic(
                    n,
                    &["preload", "keys"],
                    "0 keys leave a record without one (wanted 1 at least)",
                );
            }
            if topic.generator.value_bytes > USUAL_VALUE_BYTES {
                let text = format!(
                    "a value of {} bytes is above what a broker takes (at most 900000)",
                    topic.generator.value_bytes
                );
                self.at_topic(n, &["preload", "value-bytes"], text);
            }
            if topic.generator.tombstone_every == Some(0) {
                self.at_topic(
                    n,
                    &["preload", "tombstone-every"],
                    "every 0th record is none (wanted 1 at least, or leave it out)",
                );
            }
        }
    }

    /// Where a topic stands and how long it keeps its records.
    fn place_of(&self, n: usize, topic: &TopicPlan) {
        for (i, node) in topic.brokers.iter().enumerate() {
            let at = |text: String| {
                let path = [At::Key("topic"), At::Index(n), At::Key("brokers"), At::Index(i)];
                self.at(&path, text);
            };
            if let Some(text) = self.no_broker(*node) {
                at(text);
            } else if topic.brokers[..i].contains(node) {
                at(format!(
                    "broker {node} stands twice (a broker holds one replica of a partition)"
                ));
            }
        }
        let held = topic.brokers.len();
        if let Some(replicas) = topic.replicas
            && held > 0
            && usize::try_from(replicas).is_ok_and(|replicas| replicas != held)
        {
            let text =
                format!("{held} brokers hold {held} replicas of a partition and not {replicas} (drop `replicas`)");
            self.at_topic(n, &["replicas"], text);
        }
        if topic.segment_bytes.is_some_and(|bytes| bytes < LEAST_SEGMENT) {
            let text = format!("a segment that small is refused by brokers (wanted {LEAST_SEGMENT} bytes at least)");
            self.at_topic(n, &["segment-bytes"], text);
        }
        let kept = topic.retention.unwrap_or_default();
        for (key, value) in [("bytes", kept.bytes), ("ms", kept.ms)] {
            if value == Some(0) {
                let text = format!("`{key} = 0` keeps nothing (wanted 1 at least)");
                self.at_topic(n, &["retention", key], text);
            }
        }
    }

    fn trigger(&self, n: usize, step: &Step) {
        let when = &step.when;
        let only_start = When {
            before_start: true,
            ..When::default()
        };
        if when.before_start && *when != only_start {
            self.at_step(
                n,
                &["when"],
                "nothing is read before the start (drop `before-start` or the other triggers)",
            );
        }
        if when.delivered == Some(0) {
            self.at_step(
                n,
                &["when", "delivered"],
                "0 records are delivered at any time (wanted 1 at least)",
            );
        }
        if let Some(wire) = &when.wire {
            if wire.count == 0 {
                self.at_step(
                    n,
                    &["when", "wire", "count"],
                    "0 requests are seen at any time (wanted 1 at least)",
                );
            }
            let apis: Vec<&str> = API_NAMES.iter().map(|(_, name)| name.as_str()).collect();
            if !apis.contains(&wire.api.as_str()) {
                self.at_step(n, &["when", "wire", "api"], unknown("api", &wire.api, &apis));
            }
        }
        if step.wait.is_zero() {
            self.at_step(
                n,
                &["wait"],
                "a wait of no length is over before it begins (wanted \"1s\" at least)",
            );
        }
    }

    /// Whether the order of the steps makes sense.
    fn steps(&self) {
        let mut started = false;
        for (n, step) in self.plan.steps.iter().enumerate() {
            if step.when.before_start && started {
                self.at_step(
                    n,
                    &["when", "before-start"],
                    "`before-start` after a step that waits for the reader (move it to the front)",
                );
            }
            started |= !step.when.before_start;
        }
        let first_fault = self
            .plan
            .steps
            .iter()
            .enumerate()
            .find(|(_, step)| matches!(step.action, Action::Do { .. }));
        if let Some((n, step)) = first_fault {
            let phase = self.plan.phase;
            if step.when.before_start && !matches!(phase, Phase::Start | Phase::CatchUp) {
                let text = format!(
                    "the first fault comes before the start, so it cannot hit phase `{}`",
                    phase.name()
                );
                self.at_step(n, &["when", "before-start"], text);
            }
            let caught_up = self.plan.steps[..=n]
                .iter()
                .filter_map(|step| step.when.caught_up)
                .next_back();
            let contradicts = match phase {
                Phase::Start | Phase::CatchUp => caught_up == Some(true),
                _ => caught_up == Some(false),
            };
            if contradicts {
                let text = format!(
                    "the first fault waits for the wrong thing to hit phase `{}`",
                    phase.name()
                );
                self.at_step(n, &["when", "caught-up"], text);
            }
        }
    }

    fn names_and_heals(&self) {
        let steps = &self.plan.steps;
        let mut in_force: Vec<&str> = Vec::new();
        let mut names: BTreeSet<&str> = BTreeSet::new();
        for (n, step) in steps.iter().enumerate() {
            if !is_word(&step.name) {
                let text = format!(
                    "step {} is no name (wanted letters, digits, `.`, `_`, `-`)",
                    quoted(&step.name)
                );
                self.at_step(n, &["name"], text);
            }
            if !names.insert(&step.name) {
                self.at_step(n, &["name"], format!("two steps are named {}", quoted(&step.name)));
            }
            match &step.action {
                Action::Do { fault, .. } if fault.fault().for_good() => {}
                Action::Do { .. } | Action::Join(_) => in_force.push(&step.name),
                Action::Heal(names) => {
                    for (i, name) in names.iter().enumerate() {
                        self.heal(n, i, name, &in_force);
                    }
                    in_force.retain(|fault| !names.iter().any(|name| name == fault));
                }
                Action::HealAll => {
                    if in_force.is_empty() {
                        self.at_step(
                            n,
                            &["heal"],
                            "nothing is in force here (inject a fault in a step before)",
                        );
                    }
                    in_force.clear();
                }
                _ => {}
            }
        }
    }

    fn heal(&self, n: usize, i: usize, name: &str, in_force: &[&str]) {
        let steps = &self.plan.steps;
        let faults: Vec<&str> = steps
            .iter()
            .filter(|step| matches!(step.action, Action::Do { .. } | Action::Join(_)))
            .map(|step| step.name.as_str())
            .collect();
        let shown = quoted(name);
        let for_good = |step: &Step| matches!(&step.action, Action::Do { fault, .. } if fault.fault().for_good());
        let message = if in_force.contains(&name) {
            return;
        } else if steps.iter().any(|step| step.name == name && for_good(step)) {
            format!("what step {shown} does is for good (drop the heal)")
        } else if !faults.contains(&name) {
            if steps.iter().any(|step| step.name == name) {
                format!("step {shown} injects nothing that could be healed")
            } else {
                match nearest(name, faults.iter().copied()) {
                    Some(near) => format!("heal of an unknown step {shown} (did you mean `{near}`?)"),
                    None => format!("heal of an unknown step {shown}"),
                }
            }
        } else if steps[..n].iter().any(|step| step.name == name) {
            format!("step {shown} is healed twice")
        } else {
            format!("step {shown} is healed before it is injected")
        };
        self.at(&[At::Key("step"), At::Index(n), At::Key("heal"), At::Index(i)], message);
    }

    fn action(&self, n: usize, step: &Step) {
        let before_start = step.when.before_start;
        match &step.action {
            Action::Do { fault, .. } => {
                if before_start && matches!(fault, FaultSpec::PauseReader(_) | FaultSpec::KillReader(_)) {
                    self.at_step(
                        n,
                        &["when", "before-start"],
                        "there is no reader to strike before the start",
                    );
                }
                self.fault(n, fault);
            }
            Action::Produce(Produce {
                records,
                value_bytes,
                null_values,
            }) => {
                if self.plan.quiet() {
                    self.at_step(n, &["do"], self.quiet_rule("`produce`"));
                }
                if *records == 0 {
                    self.at_step(
                        n,
                        &["do", "produce", "records"],
                        "0 records are none (wanted 1 at least)",
                    );
                }
                if value_bytes.is_some_and(|bytes| bytes > MOST_VALUE_BYTES) {
                    let text = format!("a value is too long (wanted at most {MOST_VALUE_BYTES} bytes)");
                    self.at_step(n, &["do", "produce", "value-bytes"], text);
                }
                if *null_values && value_bytes.is_some() {
                    let text = "a null value has no length (drop `value-bytes`, or `null-values`)";
                    self.at_step(n, &["do", "produce", "value-bytes"], text);
                }
            }
            Action::Ask { .. } | Action::Restart(_) | Action::Join(_) if before_start => {
                self.at_step(
                    n,
                    &["when", "before-start"],
                    "there is no reader to ask before the start",
                );
            }
            _ => {}
        }
    }

    /// Steps that contradict the reader's kind, or each other.
    fn kinds(&self) {
        if !self.plan.kinds().is_empty() || self.plan.reader.members == 0 {
            return;
        }
        // What else contradicts the kind is said where it stands.
        let bare = Plan {
            phase: Phase::Live,
            reader: ReaderPlan {
                members: 1,
                session: None,
                heartbeat: None,
                max_poll: None,
                is_static: false,
                ..self.plan.reader.clone()
            },
            ..self.plan.clone()
        };
        for (n, step) in self.plan.steps.iter().enumerate() {
            let alone = Plan {
                steps: vec![step.clone()],
                ..bare.clone()
            };
            let always = Plan {
                steps: vec![Step {
                    when: When::default(),
                    ..step.clone()
                }],
                ..bare.clone()
            };
            let Some(kind) = self.plan.reader.kind else { continue };
            if alone.kinds().is_empty() && !always.kinds().is_empty() {
                let text = format!("a reader of kind `{}` never meets this", kind.name());
                self.at_step(n, &["when"], text);
                return;
            }
            if alone.kinds().is_empty() {
                let text = format!(
                    "a reader of kind `{}` cannot be part of this ({})",
                    kind.name(),
                    step.action_text()
                );
                self.at_step(
                    n,
                    &[if matches!(step.action, Action::Heal(_)) {
                        "heal"
                    } else {
                        "do"
                    }],
                    text,
                );
                return;
            }
        }
        if self.plan.reader.kind.is_none() {
            self.at_top(
                &["reader"],
                "no kind of reader can carry out all steps (some need a table, others a group)",
            );
        }
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.len() <= 64 && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
}
