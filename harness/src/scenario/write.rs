//! A plan as the scenario file that makes exactly it: `plan.toml` of a run, for reading and for running again.

use std::time::Duration;

use serde::Serialize;
use toml::{Table, Value};

use super::duration;
use super::plan::{Action, Joiner, Plan, Produce, State, Step, TopicPlan, When};

impl Plan {
    /// The plan as a scenario file without a matrix. Reading it back gives the same plan.
    ///
    /// # Errors
    /// When a number is above what TOML can hold (2⁶³ − 1).
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        let mut top = Table::new();
        top.insert("format".into(), Value::Integer(1));
        top.insert("title".into(), self.title.clone().into());
        top.insert("tags".into(), value(&self.tags)?);
        top.insert("phase".into(), self.phase.name().into());
        top.insert("wall".into(), length(self.wall));

        let mut cluster = Table::new();
        cluster.insert("brokers".into(), value(&self.cluster.brokers)?);
        cluster.insert("election".into(), length(self.cluster.election));
        if let Some(idle) = self.cluster.idle {
            cluster.insert("idle".into(), length(idle));
        }
        if let Some(node) = self.cluster.offsets_on {
            cluster.insert("offsets-on".into(), value(&node)?);
        }
        top.insert("cluster".into(), cluster.into());

        let mut reader = Table::new();
        if let Some(kind) = self.reader.kind {
            reader.insert("kind".into(), kind.name().into());
        }
        reader.insert("members".into(), value(&self.reader.members)?);
        reader.insert("reset".into(), value(&self.reader.reset)?);
        reader.insert("isolation".into(), value(&self.reader.isolation)?);
        let lengths = [
            ("session", self.reader.session),
            ("heartbeat", self.reader.heartbeat),
            ("max-poll", self.reader.max_poll),
        ];
        for (key, given) in lengths {
            if let Some(given) = given {
                reader.insert(key.into(), length(given));
            }
        }
        if self.reader.is_static {
            reader.insert("static".into(), true.into());
        }
        if !self.reader.options.is_empty() {
            reader.insert("options".into(), value(&self.reader.options)?);
        }
        top.insert("reader".into(), reader.into());

        if let Some(load) = &self.load {
            let mut table = Table::new();
            table.insert("rate".into(), format!("{}/s", load.per_second).into());
            if let Some(until) = &load.until {
                table.insert("until".into(), until.clone().into());
            }
            top.insert("load".into(), table.into());
        }
        let topics: Result<Vec<Value>, _> = self.topics.iter().map(topic).collect();
        top.insert("topic".into(), Value::Array(topics?));
        if !self.steps.is_empty() {
            let steps: Result<Vec<Value>, _> = self.steps.iter().map(step).collect();
            top.insert("step".into(), Value::Array(steps?));
        }

        let mut expect = Table::new();
        if let Some(outcome) = self.expect.outcome {
            expect.insert("outcome".into(), value(&outcome)?);
        }
        if let Some(within) = self.expect.within {
            expect.insert("within".into(), length(within));
        }
        if let Some(duplicates) = self.expect.duplicates {
            expect.insert("duplicates".into(), value(&duplicates)?);
        }
        for invariant in &self.expect.named {
            expect.insert(invariant.clone(), Table::new().into());
        }
        if !expect.is_empty() {
            top.insert("expect".into(), expect.into());
        }

        let mut text = String::new();
        if !self.story.is_empty() {
            // Not `lines`: a story may end with an empty line of comment.
            text.extend(self.story.split('\n').map(|line| format!("# {line}\n")));
        }
        text.push_str(&toml::to_string(&top)?);
        Ok(text)
    }
}

fn topic(topic: &TopicPlan) -> Result<Value, toml::ser::Error> {
    let mut table = Table::new();
    table.insert("name".into(), topic.name.clone().into());
    table.insert("partitions".into(), value(&topic.partitions)?);
    if let Some(replicas) = topic.replicas {
        table.insert("replicas".into(), value(&replicas)?);
    }
    if !topic.brokers.is_empty() {
        table.insert("brokers".into(), value(&topic.brokers)?);
    }
    if let Some(bytes) = topic.segment_bytes {
        table.insert("segment-bytes".into(), value(&bytes)?);
    }
    if let Some(kept) = &topic.retention {
        let mut retention = Table::new();
        for (key, given) in [("bytes", kept.bytes), ("ms", kept.ms)] {
            if let Some(given) = given {
                retention.insert(key.into(), value(&given)?);
            }
        }
        table.insert("retention".into(), retention.into());
    }
    if topic.cleanup.compacts() {
        table.insert("cleanup".into(), topic.cleanup.name().into());
    }
    if let Some(role) = &topic.role {
        table.insert("role".into(), role.clone().into());
    }
    let mut preload = Table::new();
    preload.insert("records".into(), value(&topic.preload)?);
    preload.insert("keys".into(), value(&topic.generator.keys)?);
    preload.insert("value-bytes".into(), value(&topic.generator.value_bytes)?);
    if let Some(every) = topic.generator.tombstone_every {
        preload.insert("tombstone-every".into(), value(&every)?);
    }
    if let Some(age) = topic.age {
        preload.insert("age".into(), duration::format(age).into());
    }
    table.insert("preload".into(), preload.into());
    Ok(table.into())
}

fn step(step: &Step) -> Result<Value, toml::ser::Error> {
    let mut table = Table::new();
    table.insert("name".into(), step.name.clone().into());
    if step.when != When::default() {
        table.insert("when".into(), when(&step.when)?);
    }
    if let Some(after) = step.after {
        table.insert("after".into(), length(after));
    }
    table.insert("wait".into(), length(step.wait));
    let (key, what) = match &step.action {
        Action::Do { fault, grade } => {
            table.insert("grade".into(), value(grade)?);
            ("do", value(fault)?)
        }
        Action::Heal(names) => ("heal", value(names)?),
        Action::HealAll => ("heal", "all".into()),
        Action::Produce(produce) => ("do", written(produce)?),
        Action::Ask { what, wait: true } => ("do", what.name().into()),
        Action::Ask { what, wait: false } => ("do", command(what.name(), "wait", false.into())),
        Action::Restart(State::Keep) => ("do", "restart-reader".into()),
        Action::Restart(state) => ("do", command("restart-reader", "state", value(state)?)),
        Action::Join(Joiner::Same) => ("do", "join-member".into()),
        Action::Join(reader) => ("do", command("join-member", "reader", value(reader)?)),
    };
    table.insert(key.into(), what);
    Ok(table.into())
}

/// `{ word = { key = of } }`.
fn command(word: &str, key: &str, of: Value) -> Value {
    let keys = Table::from_iter([(key.to_owned(), of)]);
    Table::from_iter([(word.to_owned(), Value::Table(keys))]).into()
}

fn when(when: &When) -> Result<Value, toml::ser::Error> {
    let mut table = Table::new();
    if when.before_start {
        table.insert("before-start".into(), true.into());
    }
    if let Some(caught_up) = when.caught_up {
        table.insert("caught-up".into(), caught_up.into());
    }
    if let Some(delivered) = when.delivered {
        table.insert("delivered".into(), value(&delivered)?);
    }
    if let Some(wire) = &when.wire {
        let mut trigger = Table::new();
        trigger.insert("api".into(), wire.api.clone().into());
        trigger.insert("count".into(), value(&wire.count)?);
        table.insert("wire".into(), trigger.into());
    }
    if let Some(command) = when.in_flight {
        table.insert("in-flight".into(), command.name().into());
    }
    Ok(table.into())
}

fn value<T: Serialize + ?Sized>(of: &T) -> Result<Value, toml::ser::Error> {
    Value::try_from(of)
}

fn length(of: Duration) -> Value {
    duration::format(of).into()
}

fn written(produce: &Produce) -> Result<Value, toml::ser::Error> {
    let mut keys = Table::new();
    keys.insert("records".into(), value(&produce.records)?);
    if let Some(bytes) = &produce.value_bytes {
        keys.insert("value-bytes".into(), value(bytes)?);
    }
    if produce.null_values {
        keys.insert("null-values".into(), true.into());
    }
    let mut table = Table::new();
    table.insert("produce".into(), keys.into());
    Ok(table.into())
}
