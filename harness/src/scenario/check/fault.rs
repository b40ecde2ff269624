//! Faults that cannot be injected as they are written.

use brokerfall_report::protocol::Times;

use super::super::diagnostics::{nearest, quoted, unknown};
use super::Check;
use crate::fault::panic_callback::{How, On, PanicCallback};
use crate::fault::partition::{Heals, Mode, Partition, Way};
use crate::fault::{BrokerChoice, FaultSpec};
use crate::link::codes::{self, ANSWERABLE_APIS, ERROR_NAMES};

impl Check<'_> {
    pub(super) fn fault(&self, n: usize, fault: &FaultSpec) {
        match fault {
            FaultSpec::KillBroker(kill) => self.broker(n, &["do", "kill-broker", "broker"], &kill.broker),
            FaultSpec::PauseBroker(pause) => self.broker(n, &["do", "pause-broker", "broker"], &pause.broker),
            FaultSpec::Partition(partition) => self.partition(n, partition),
            FaultSpec::DeleteSegments(delete) => {
                self.place(n, "delete-segments", delete.topic.as_deref(), delete.partition);
            }
            FaultSpec::PanicCallback(panic) => self.callback(n, panic),
            FaultSpec::AnswerError(answer) => {
                let api = answer.api.as_str();
                if !ANSWERABLE_APIS.contains(&api) {
                    let text = if codes::api_key(api).is_some() {
                        format!(
                            "the link cannot change answers of `{api}` (it can those of {})",
                            ANSWERABLE_APIS.join(", ")
                        )
                    } else {
                        unknown("api", api, &ANSWERABLE_APIS)
                    };
                    self.at_step(n, &["do", "answer-error", "api"], text);
                }
                if codes::code(&answer.code).is_none_or(|code| code == 0) {
                    let codes: Vec<&str> = ERROR_NAMES
                        .iter()
                        .filter(|(code, _)| *code != 0)
                        .map(|(_, name)| name.as_str())
                        .collect();
                    let text = match nearest(&answer.code, codes.iter().copied()) {
                        Some(_) => unknown("error code", &answer.code, &codes),
                        None => format!(
                            "unknown error code {} (wanted a name of Kafka's protocol, such as `OFFSET_OUT_OF_RANGE`)",
                            quoted(&answer.code)
                        ),
                    };
                    self.at_step(n, &["do", "answer-error", "code"], text);
                }
                self.times(n, "answer-error", answer.times);
                self.place(n, "answer-error", answer.topic.as_deref(), answer.partition);
            }
            FaultSpec::PauseReader(_)
            | FaultSpec::KillReader(_)
            | FaultSpec::MoveLeader(_)
            | FaultSpec::MoveCoordinator(_)
            | FaultSpec::AddPartitions(_) => {}
        }
    }

    fn broker(&self, n: usize, path: &[&str], choice: &BrokerChoice) {
        let brokers = self.plan.cluster.brokers;
        if let BrokerChoice::Node(node) = choice
            && !u32::try_from(*node).is_ok_and(|node| (1..=brokers).contains(&node))
        {
            let text = format!("there is no broker {node} in a cluster of {brokers} (wanted 1 to {brokers})");
            self.at_step(n, path, text);
        }
    }

    fn partition(&self, n: usize, partition: &Partition) {
        let at = |key: &'static str, text: &str| self.at_step(n, &["do", "partition", key], text);
        if partition.brokers.is_empty() {
            at(
                "brokers",
                "no broker is struck (name one, or leave `brokers` out for all)",
            );
        }
        for choice in &partition.brokers {
            self.broker(n, &["do", "partition", "brokers"], choice);
        }
        match (partition.mode, partition.bytes_per_s) {
            (Mode::Throttle, None) => at("mode", "mode `throttle` lacks `bytes-per-s` (wanted 1 at least)"),
            (Mode::Throttle, Some(0)) => at("bytes-per-s", "0 bytes a second is no throttle (use mode `hold`)"),
            (Mode::Throttle, Some(_)) | (_, None) => {}
            (_, Some(_)) => at("bytes-per-s", "only mode `throttle` has `bytes-per-s`"),
        }
        if partition.direction != Way::Both && matches!(partition.mode, Mode::Reset | Mode::Refuse) {
            at(
                "direction",
                "a reset closes both ways (drop `direction`, or use mode `hold` or `throttle`)",
            );
        }
        if partition.heals != Heals::Keep && partition.mode != Mode::Hold {
            at(
                "heals",
                "only mode `hold` keeps connections that a heal could reset (drop `heals`)",
            );
        }
    }

    fn callback(&self, n: usize, panic: &PanicCallback) {
        let at = |key: &'static str, text: &str| self.at_step(n, &["do", "panic-callback", key], text);
        if panic.on == On::Nth(0) {
            at("on", "there is no 0th call (wanted 1 at least)");
        }
        match (panic.raise, panic.length) {
            (How::Delay, None) => at("raise", "`raise = \"delay\"` lacks its length (wanted `for = \"2s\"`)"),
            (How::Delay, Some(length)) if length.is_zero() => at("for", "a delay of no length is none"),
            (How::Delay, Some(_)) | (_, None) => {}
            (_, Some(_)) => at("for", "only `raise = \"delay\"` has a length (drop `for`)"),
        }
        if panic.type_name.is_some() && matches!(panic.raise, How::Hang | How::Delay) {
            at("type", "nothing is raised here that could have a type (drop `type`)");
        }
        self.times(n, "panic-callback", panic.times);
    }

    fn times(&self, n: usize, fault: &str, times: Times) {
        if times == Times::Count(0) {
            let text = "a fault that strikes 0 times is none (wanted 1 at least, or \"always\")";
            self.at_step(n, &["do", fault, "times"], text);
        }
    }

    fn place(&self, n: usize, fault: &str, topic: Option<&str>, partition: Option<u32>) {
        let topics: Vec<&str> = self.plan.topics.iter().map(|topic| topic.name.as_str()).collect();
        if let Some(name) = topic
            && !topics.contains(&name)
        {
            self.at_step(n, &["do", fault, "topic"], unknown("topic", name, &topics));
            return;
        }
        let struck = match topic {
            Some(name) => self.plan.topics.iter().find(|topic| topic.name == name),
            // An answer about any topic is struck; a deletion strikes the first topic.
            None if fault == "answer-error" => self.plan.topics.iter().max_by_key(|topic| topic.partitions),
            None => self.plan.topics.first(),
        };
        if let (Some(partition), Some(topic)) = (partition, struck)
            && partition >= topic.partitions
        {
            let text = format!(
                "there is no partition {partition} of {} (wanted 0 to {})",
                quoted(&topic.name),
                topic.partitions.saturating_sub(1)
            );
            self.at_step(n, &["do", fault, "partition"], text);
        }
    }
}
