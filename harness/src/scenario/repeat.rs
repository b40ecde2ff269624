//! `repeat`: steps that are carried out again and again, unrolled into flat ones before anything is decoded.
//!
//! The rest of the language knows no loops: what it sees are steps whose names carry the number of their round, and the
//! places of errors are those of the one text that was written.

use super::diagnostics::{Sink, quoted};
use super::tree::{Entry, Node, Value};

/// Rounds beyond this are a slip.
const MOST_ROUNDS: i128 = 1_000;
/// Steps of one plan beyond this are a slip: each is recorded three times, and shown.
const MOST_STEPS: usize = 5_000;

/// A copy of the tree in which every step with `repeat` has given way to the rounds of its own steps.
pub(super) fn unrolled(root: Node, sink: &Sink<'_>) -> Node {
    let Value::Table(mut entries) = root.value else {
        return root;
    };
    for entry in &mut entries {
        if entry.key == "step"
            && let Value::Array(steps) = &mut entry.node.value
        {
            *steps = flat(std::mem::take(steps), sink);
        }
    }
    Node {
        span: root.span,
        value: Value::Table(entries),
    }
}

fn flat(steps: Vec<Node>, sink: &Sink<'_>) -> Vec<Node> {
    let mut flat = Vec::new();
    for step in steps {
        if step.get("repeat").is_none() && step.get("step").is_none() {
            flat.push(step);
            continue;
        }
        let Some((rounds, inner)) = repeated(&step, sink) else {
            continue;
        };
        if flat.len().saturating_add(rounds.saturating_mul(inner.len())) > MOST_STEPS {
            sink.push(
                &step.get("repeat").unwrap_or(&step).span,
                format!("the scenario has more than {MOST_STEPS} steps when it is unrolled (repeat less often)"),
            );
            continue;
        }
        let names: Vec<&str> = inner.iter().filter_map(name_of).collect();
        for round in 1..=rounds {
            flat.extend(inner.iter().map(|step| in_round(step, &names, round)));
        }
    }
    flat
}

/// How often, and what; says what is wrong with it.
fn repeated<'s>(step: &'s Node, sink: &Sink<'_>) -> Option<(usize, &'s [Node])> {
    let before = sink.count();
    for entry in step.entries().unwrap_or_default() {
        if !["repeat", "step"].contains(&entry.key.as_str()) {
            let text = format!(
                "{} stands beside `repeat` (move it into a `[[step.step]]`)",
                quoted(&entry.key)
            );
            sink.push(&entry.key_span, text);
        }
    }
    let rounds = match step.get("repeat").map(|node| (&node.value, &node.span)) {
        Some((Value::Integer(rounds), span)) => {
            if !(1..=MOST_ROUNDS).contains(rounds) {
                let text = format!("{rounds} rounds cannot be had (wanted 1 to {MOST_ROUNDS})");
                sink.push(span, text);
            }
            usize::try_from(*rounds).unwrap_or_default()
        }
        Some((other, span)) => {
            let text = format!("`repeat` is {} (wanted how often, 1 to {MOST_ROUNDS})", other.noun());
            sink.push(span, text);
            0
        }
        None => {
            let text = format!("steps inside a step without `repeat` (wanted `repeat = …`, 1 to {MOST_ROUNDS})");
            sink.push(&step.span, text);
            0
        }
    };
    let inner = match step.get("step").map(|node| (&node.value, &node.span)) {
        Some((Value::Array(inner), _)) if !inner.is_empty() => inner.as_slice(),
        Some((other, span)) => {
            let text = format!("`step` is {} (wanted `[[step.step]]`, one at least)", other.noun());
            sink.push(span, text);
            &[]
        }
        None => {
            sink.push(
                &step.span,
                "`repeat` repeats nothing (wanted a `[[step.step]]` below it)",
            );
            &[]
        }
    };
    for inner in inner {
        if let Some(nested) = inner.get("repeat").or(inner.get("step")) {
            sink.push(
                &nested.span,
                "a repeat inside a repeat (write the inner steps out, or use one `repeat`)",
            );
        }
    }
    (sink.count() == before).then_some((rounds, inner))
}

fn name_of(step: &Node) -> Option<&str> {
    match &step.get("name")?.value {
        Value::Text(name) => Some(name),
        _ => None,
    }
}

/// A step of one round: its name carries the round's number, and so do the names that it heals of the same round.
fn in_round(step: &Node, names: &[&str], round: usize) -> Node {
    let numbered = |node: &Node| match &node.value {
        Value::Text(name) if names.contains(&name.as_str()) => Node {
            span: node.span.clone(),
            value: Value::Text(format!("{name}-{round}")),
        },
        _ => node.clone(),
    };
    let Some(entries) = step.entries() else {
        return step.clone();
    };
    let entries = entries.iter().map(|entry| {
        let node = match (entry.key.as_str(), &entry.node.value) {
            ("name", _) => numbered(&entry.node),
            ("heal", Value::Array(healed)) => Node {
                span: entry.node.span.clone(),
                value: Value::Array(healed.iter().map(numbered).collect()),
            },
            _ => entry.node.clone(),
        };
        Entry { node, ..entry.clone() }
    });
    Node {
        span: step.span.clone(),
        value: Value::Table(entries.collect()),
    }
}

#[cfg(test)]
mod tests {
    use crate::scenario::load;
    use crate::scenario::plan::{Action, Plan};

    fn plan(steps: &str) -> Plan {
        let text = format!("format = 1\ntitle = \"t\"\n[[topic]]\nname = \"orders\"\n{steps}");
        let plans = load("mine/repeat.toml", &text).and_then(|scenario| scenario.plans());
        plans.unwrap_or_else(|wrong| panic!("{wrong}")).remove(0)
    }

    #[test]
    fn steps_are_repeated_and_a_heal_means_the_fault_of_its_own_round() {
        let plan = plan(
            "[[step]]\ndo = { pause-reader = {} }\n[[step]]\nheal = \"all\"\n[[step]]\nrepeat = 2\n[[step.step]]\nname = \"cut\"\n\
             do = { partition = { mode = \"hold\" } }\n[[step.step]]\nafter = \"1s\"\nheal = [\"cut\"]\n",
        );
        let names: Vec<&str> = plan.steps.iter().map(|step| step.name.as_str()).collect();
        assert_eq!(
            names,
            ["pause-reader-1", "heal-1", "cut-1", "heal-2", "cut-2", "heal-3"]
        );
        assert_eq!(plan.steps[3].action, Action::Heal(vec!["cut-1".to_owned()]));
        assert_eq!(plan.steps[5].action, Action::Heal(vec!["cut-2".to_owned()]));
    }

    #[test]
    fn a_fault_of_a_step_outside_can_be_healed_in_a_round() {
        let plan = plan(
            "[[step]]\nname = \"out\"\ndo = { pause-reader = {} }\n[[step]]\nrepeat = 1\n[[step.step]]\nheal = [\"out\"]\n",
        );
        assert_eq!(plan.steps[1].action, Action::Heal(vec!["out".to_owned()]));
    }
}
