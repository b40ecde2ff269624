//! Steps as sentences, for reports.

use super::duration::format as length;
use super::plan::{Action, Ask, Joiner, Produce, State, Step, WireTrigger};

impl Step {
    /// The step as a sentence: `once caught up and 200 records delivered, 2s later: kill broker (leader)`.
    pub fn sentence(&self) -> String {
        let mut conditions = Vec::new();
        if self.when.before_start {
            conditions.push("before the start".to_owned());
        }
        match self.when.caught_up {
            Some(true) => conditions.push("once caught up".to_owned()),
            Some(false) => conditions.push("while not caught up".to_owned()),
            None => {}
        }
        if let Some(records) = self.when.delivered {
            conditions.push(format!(
                "once {records} {} delivered",
                plural(records, "record is", "records are")
            ));
        }
        if let Some(WireTrigger { api, count }) = &self.when.wire {
            conditions.push(format!(
                "once {count} {api} {} seen",
                plural(*count, "request is", "requests are")
            ));
        }
        if let Some(command) = self.when.in_flight {
            conditions.push(format!("while `{}` is in flight", command.name()));
        }
        let mut text = conditions.join(" and ");
        if let Some(after) = self.after {
            if !text.is_empty() {
                text.push_str(", ");
            }
            text.push_str(&format!("{} later", length(after)));
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text + &self.action_text()
    }

    /// What the step does, without its trigger.
    pub fn action_text(&self) -> String {
        match &self.action {
            Action::Do { fault, .. } => fault.fault().text(),
            Action::Heal(names) => format!("heal {}", names.join(", ")),
            Action::HealAll => "heal everything in force".to_owned(),
            Action::Produce(Produce {
                records,
                value_bytes,
                null_values,
            }) => {
                let values = match (value_bytes, null_values) {
                    (Some(bytes), _) => format!(" of {bytes} bytes"),
                    (None, true) => " with null values".to_owned(),
                    (None, false) => String::new(),
                };
                format!(
                    "write {records} {}{values} to each partition",
                    plural(*records, "record", "records")
                )
            }
            Action::Ask { what, wait } => {
                let text = match what {
                    Ask::Snapshot => "take a snapshot of the table",
                    Ask::Barrier => "ask the reader for a barrier",
                    Ask::Commit => "ask the reader to commit",
                    Ask::Stop => "ask the reader to close",
                };
                let unanswered = if *wait { "" } else { ", without waiting for the answer" };
                format!("{text}{unanswered}")
            }
            Action::Restart(State::Keep) => "close and rebuild the reader object".to_owned(),
            Action::Restart(State::Wipe) => {
                "close the reader object, empty its state folder, and rebuild it".to_owned()
            }
            Action::Join(Joiner::Same) => "another member joins".to_owned(),
            Action::Join(Joiner::Neutral) => "a neutral member joins (reference-group)".to_owned(),
        }
    }
}

fn plural<'a>(n: u64, one: &'a str, many: &'a str) -> &'a str {
    if n == 1 { one } else { many }
}

#[cfg(test)]
mod tests {
    use crate::scenario::load;

    fn sentence(step: &str) -> String {
        let text = format!("format = 1\ntitle = \"t\"\n[[topic]]\nname = \"orders\"\n[[step]]\n{step}");
        let plans = load("mine/sentence.toml", &text).and_then(|scenario| scenario.plans());
        plans.unwrap_or_else(|wrong| panic!("{wrong}"))[0].steps[0].sentence()
    }

    #[test]
    fn steps_read_as_sentences() {
        let sentences = [
            (
                "when = { caught-up = true, delivered = 200 }\nafter = \"2s\"\ndo = { kill-broker = { broker = \"leader\" } }",
                "once caught up and once 200 records are delivered, 2s later: kill the leader of partition 0",
            ),
            (
                "when = { wire = { api = \"Heartbeat\", count = 3 } }\ndo = { pause-broker = { broker = 1 } }",
                "once 3 Heartbeat requests are seen: pause broker 1",
            ),
            (
                "do = { partition = { brokers = [\"leader\", \"coordinator\"], mode = \"hold\", heals = \"reset\" } }",
                "hold all traffic with the leader of partition 0 and the group's coordinator, connections reset at the heal",
            ),
            (
                "do = { partition = { mode = \"throttle\", bytes-per-s = 5, direction = \"to-reader\" } }",
                "throttle traffic with every broker to 5 bytes/s, towards the reader only",
            ),
            (
                "do = { answer-error = { api = \"Fetch\", code = \"OFFSET_OUT_OF_RANGE\", topic = \"orders\", times = 2 } }",
                "the next 2 Fetch answers for orders carry OFFSET_OUT_OF_RANGE",
            ),
            (
                "do = { panic-callback = { callback = \"on-set\", raise = \"exception\", type = \"ValueError\", times = \"always\" } }",
                "on-set raises ValueError on the next call and on every one after it",
            ),
            (
                "after = \"1500ms\"\ndo = { produce = { records = 1 } }",
                "1500ms later: write 1 record to each partition",
            ),
            (
                "do = { delete-segments = { past-reader-by = 10 } }",
                "delete the start of the first topic until 10 records past what the reader fetched are gone",
            ),
        ];
        for (step, wanted) in sentences {
            assert_eq!(sentence(step), wanted);
        }
    }
}
