//! A plan as the scenario file that makes exactly it: `plan.toml` of a run, for reading and for running again.

use std::time::Duration;

use serde::Serialize;
use toml::{Table, Value};

use super::duration;
use super::plan::{Action, Plan, Step, TopicPlan, When};

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

        let mut cluster = Table::new();
        cluster.insert("brokers".into(), value(&self.cluster.brokers)?);
        cluster.insert("election".into(), length(self.cluster.election));
        top.insert("cluster".into(), cluster.into());

        let mut reader = Table::new();
        if let Some(kind) = self.reader.kind {
            reader.insert("kind".into(), kind.name().into());
        }
        reader.insert("members".into(), value(&self.reader.members)?);
        reader.insert("reset".into(), value(&self.reader.reset)?);
        reader.insert("isolation".into(), value(&self.reader.isolation)?);
        if let Some(session) = self.reader.session {
            reader.insert("session".into(), length(session));
        }
        if !self.reader.options.is_empty() {
            reader.insert("options".into(), value(&self.reader.options)?);
        }
        top.insert("reader".into(), reader.into());

        if let Some(load) = &self.load {
            let mut table = Table::new();
            table.insert("rate".into(), format!("{}/s", load.per_second).into());
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
    if topic.compacted {
        table.insert("cleanup".into(), "compact".into());
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
        Action::Produce(records) => {
            let mut produce = Table::new();
            produce.insert("records".into(), value(records)?);
            let mut what = Table::new();
            what.insert("produce".into(), produce.into());
            ("do", what.into())
        }
        Action::Snapshot => ("do", "snapshot".into()),
        Action::Barrier => ("do", "barrier".into()),
        Action::Commit => ("do", "commit".into()),
        Action::Restart => ("do", "restart-reader".into()),
        Action::Join => ("do", "join-member".into()),
    };
    table.insert(key.into(), what);
    Ok(table.into())
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
    Ok(table.into())
}

fn value<T: Serialize + ?Sized>(of: &T) -> Result<Value, toml::ser::Error> {
    Value::try_from(of)
}

fn length(of: Duration) -> Value {
    duration::format(of).into()
}
