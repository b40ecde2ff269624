//! Steps as sentences, for reports.

use brokerfall_report::protocol::Times;

use super::duration::format as length;
use super::plan::{Action, Step, WireTrigger};
use crate::fault::panic_callback::{Callback, How, On, PanicCallback};
use crate::fault::partition::{Heals, Mode, Partition, Way};
use crate::fault::{BrokerChoice, FaultSpec};

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
            Action::Do { fault, .. } => fault_text(fault),
            Action::Heal(names) => format!("heal {}", names.join(", ")),
            Action::HealAll => "heal everything in force".to_owned(),
            Action::Produce(records) => {
                format!(
                    "write {records} {} to each partition",
                    plural(*records, "record", "records")
                )
            }
            Action::Snapshot => "take a snapshot of the table".to_owned(),
            Action::Barrier => "ask the reader for a barrier".to_owned(),
            Action::Commit => "ask the reader to commit".to_owned(),
            Action::Restart => "close and rebuild the reader object".to_owned(),
            Action::Join => "a second member joins".to_owned(),
        }
    }
}

/// A fault as a sentence.
pub fn fault_text(fault: &FaultSpec) -> String {
    match fault {
        FaultSpec::KillBroker(kill) => format!("kill {}", broker(&kill.broker)),
        FaultSpec::PauseBroker(pause) => format!("pause {}", broker(&pause.broker)),
        FaultSpec::Partition(cut) => partition(cut),
        FaultSpec::DeleteSegments(delete) => format!(
            "delete the start of {} until {} {} past what the reader fetched {} gone",
            place(delete.topic.as_deref(), delete.partition).unwrap_or_else(|| "the first topic".to_owned()),
            delete.past_reader_by,
            plural(delete.past_reader_by, "record", "records"),
            plural(delete.past_reader_by, "is", "are"),
        ),
        FaultSpec::PanicCallback(panic) => callback(panic),
        FaultSpec::PauseReader(_) => "pause the reader's process".to_owned(),
        FaultSpec::KillReader(_) => "kill the reader's process".to_owned(),
        FaultSpec::AnswerError(answer) => {
            let times = match answer.times {
                Times::Always => format!("every {} answer", answer.api),
                Times::Count(1) => format!("the next {} answer", answer.api),
                Times::Count(n) => format!("the next {n} {} answers", answer.api),
            };
            let place = place(answer.topic.as_deref(), answer.partition).map(|place| format!(" for {place}"));
            let carry = match answer.times {
                Times::Count(n) if n > 1 => "carry",
                _ => "carries",
            };
            format!("{times}{} {carry} {}", place.unwrap_or_default(), answer.code)
        }
    }
}

fn partition(cut: &Partition) -> String {
    let brokers = cut.brokers.iter().map(broker).collect::<Vec<_>>().join(" and ");
    let way = match cut.direction {
        Way::Both => "",
        Way::ToBroker => ", towards the broker only",
        Way::ToReader => ", towards the reader only",
    };
    match cut.mode {
        Mode::Hold => {
            let heals = match cut.heals {
                Heals::Keep => "",
                Heals::Reset => ", connections reset at the heal",
            };
            format!("hold all traffic with {brokers}{way}{heals}")
        }
        Mode::Reset => format!("reset connections to {brokers}"),
        Mode::Refuse => format!("refuse connections to {brokers}"),
        Mode::Throttle => format!(
            "throttle traffic with {brokers} to {} bytes/s{way}",
            cut.bytes_per_s.unwrap_or_default()
        ),
    }
}

fn callback(panic: &PanicCallback) -> String {
    let name = match panic.callback {
        Callback::OnSet => "on-set",
        Callback::OnDelete => "on-delete",
        Callback::OnRecord => "on-record",
    };
    let does = match panic.raise {
        How::Exception => format!(
            "raises {}",
            panic.type_name.as_deref().unwrap_or("an ordinary exception")
        ),
        How::BaseException => format!(
            "raises {}",
            panic
                .type_name
                .as_deref()
                .unwrap_or("an exception that ordinary handlers do not catch")
        ),
        How::Hang => "never returns".to_owned(),
        How::Delay => format!("returns {} late", panic.length.map(length).unwrap_or_default()),
    };
    let on = match &panic.on {
        On::Key(key) => format!("the call with key {key}"),
        On::Offset(offset) => format!("the call with offset {offset}"),
        On::Nth(1) => "the next call".to_owned(),
        On::Nth(n) => format!("call {n} from now"),
    };
    let times = match panic.times {
        Times::Always => " and on every one after it",
        Times::Count(1) => "",
        Times::Count(_) => " and on those after it",
    };
    let count = match panic.times {
        Times::Count(n) if n > 1 => format!(", {n} times in all"),
        _ => String::new(),
    };
    format!("{name} {does} on {on}{times}{count}")
}

fn broker(choice: &BrokerChoice) -> String {
    match choice {
        BrokerChoice::Leader => "the leader of partition 0".to_owned(),
        BrokerChoice::Coordinator => "the group's coordinator".to_owned(),
        BrokerChoice::All => "every broker".to_owned(),
        BrokerChoice::Node(node) => format!("broker {node}"),
    }
}

fn place(topic: Option<&str>, partition: Option<u32>) -> Option<String> {
    match (topic, partition) {
        (Some(topic), Some(partition)) => Some(format!("{topic}-{partition}")),
        (Some(topic), None) => Some(topic.to_owned()),
        (None, Some(partition)) => Some(format!("partition {partition}")),
        (None, None) => None,
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
