//! Faults that cannot be injected as they are written.

use brokerfall_report::protocol::Times;

use super::super::diagnostics::{nearest, quoted, unknown};
use super::super::plan::{Action, TopicPlan};
use super::super::tree::At;
use super::{Check, MOST_PARTITIONS};
use crate::cluster::{Cleanup, NodeId};
use crate::fault::add_partitions::AddPartitions;
use crate::fault::delete_segments::By;
use crate::fault::deny_acl::Denied;
use crate::fault::fence_member::FenceMember;
use crate::fault::kill_broker;
use crate::fault::move_address::{Form, MoveAddress};
use crate::fault::panic_callback::{How, On, PanicCallback};
use crate::fault::partition::{Connects, Heals as HealsCut, Mode, Partition, Way};
use crate::fault::transaction::{End, Heals, Transaction};
use crate::fault::unclean_election::UncleanElection;
use crate::fault::{BrokerChoice, FaultSpec};
use crate::link::codes::{self, ANSWERABLE_APIS, ERROR_NAMES};

/// Answers that no broker gives although their like is given, and what it does instead: api, code, how. From Kafka's
/// coordinators, the old and the new (`GroupCoordinator.handleHeartbeat`, `GroupCoordinatorService.heartbeat`). To SyncGroup
/// the old one never gives this code, the new one does.
const INSTEAD: [(&str, &str, &str); 1] = [(
    "Heartbeat",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "while it loads the group it answers as if all were well; use JoinGroup, SyncGroup, OffsetCommit or OffsetFetch",
)];

impl Check<'_> {
    pub(super) fn fault(&self, n: usize, fault: &FaultSpec) {
        match fault {
            FaultSpec::KillBroker(kill) => {
                self.broker(n, &["do", "kill-broker", "broker"], &kill.broker);
                if kill.for_good && kill.broker == BrokerChoice::All {
                    let text =
                        "nothing is left to serve where all brokers are gone for good (name one, or drop `for-good`)";
                    self.at_step(n, &["do", "kill-broker", "for-good"], text);
                } else if kill.for_good && self.plan.cluster.brokers < 2 {
                    let text = "the only broker is gone for good (set `cluster = { brokers = 2 }`, or drop `for-good`)";
                    self.at_step(n, &["do", "kill-broker", "for-good"], text);
                }
                let all_stop = kill.by == kill_broker::By::Sigterm && kill.broker == BrokerChoice::All;
                if all_stop && self.plan.cluster.brokers > 1 {
                    let text = "brokers that are told to stop wait until others take over, and all are told (name one, or \
                                use `roll-brokers`)";
                    self.at_step(n, &["do", "kill-broker", "by"], text);
                }
            }
            FaultSpec::IsolateBroker(isolate) => {
                self.broker(n, &["do", "isolate-broker", "broker"], &isolate.broker);
            }
            FaultSpec::PauseBroker(pause) => self.broker(n, &["do", "pause-broker", "broker"], &pause.broker),
            FaultSpec::Partition(partition) => self.partition(n, partition),
            FaultSpec::DeleteSegments(delete) => {
                self.place(n, "delete-segments", delete.topic.as_deref(), delete.partition);
                self.cleanup(n, "delete-segments", delete.topic.as_deref(), Cleanup::deletes);
                if delete.older_than.is_some() && delete.by != By::RetentionMs {
                    let text = "only age decides by `older-than` (set `by = \"retention-ms\"`, or drop it)";
                    self.at_step(n, &["do", "delete-segments", "older-than"], text);
                } else if delete.older_than.is_some_and(|age| age.is_zero()) {
                    let text = "no record is younger than 0 (wanted 1ms at least)";
                    self.at_step(n, &["do", "delete-segments", "older-than"], text);
                }
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
                let is_given = codes::answers(api).any(|code| code == answer.code);
                if ANSWERABLE_APIS.contains(&api)
                    && codes::code(&answer.code).is_some_and(|code| code != 0)
                    && !is_given
                {
                    let text = format!(
                        "Kafka does not answer {} to {api} ({})",
                        answer.code,
                        instead(api, &answer.code)
                    );
                    self.at_step(n, &["do", "answer-error", "code"], text);
                }
                self.times(n, "answer-error", answer.times);
                self.place(n, "answer-error", answer.topic.as_deref(), answer.partition);
            }
            FaultSpec::AbsentTopic(absent) => self.place(n, "absent-topic", absent.topic.as_deref(), None),
            FaultSpec::AddPartitions(add) => self.add_partitions(n, add),
            FaultSpec::MoveLeader(moved) => {
                self.place(n, "move-leader", moved.topic.as_deref(), moved.partition);
                self.moves(n, "move-leader", moved.to);
            }
            FaultSpec::MoveCoordinator(moved) => self.moves(n, "move-coordinator", moved.to),
            FaultSpec::DenyAcl(deny) if deny.on == Denied::Group && deny.topic.is_some() => {
                let text = "the reader's group is no topic (drop `topic`, or `on`)";
                self.at_step(n, &["do", "deny-acl", "topic"], text);
            }
            FaultSpec::DenyAcl(deny) => self.place(n, "deny-acl", deny.topic.as_deref(), None),
            FaultSpec::RecreateTopic(recreate) => {
                self.place(n, "recreate-topic", recreate.topic.as_deref(), None);
                if self.plan.quiet() {
                    self.at_step(n, &["do"], self.quiet_rule("`recreate-topic`"));
                }
                self.no_transaction_before(n, "recreate-topic", recreate.topic.as_deref(), &[End::Open]);
            }
            FaultSpec::CompactLog(compact) => {
                self.place(n, "compact-log", compact.topic.as_deref(), compact.partition);
                self.cleanup(n, "compact-log", compact.topic.as_deref(), Cleanup::compacts);
                self.written_before_the_start(n, "`compact-log` (it writes a record to close a segment)");
                self.no_transaction_before(n, "compact-log", compact.topic.as_deref(), &[End::Open, End::Abort]);
            }
            FaultSpec::Transaction(transaction) => self.transaction(n, transaction),
            FaultSpec::MoveAddress(moved) => self.move_address(n, moved),
            FaultSpec::UncleanElection(election) => self.unclean_election(n, election),
            FaultSpec::FenceMember(fence) => self.fence(n, fence),
            FaultSpec::RollBrokers(_) | FaultSpec::PauseReader(_) | FaultSpec::KillReader(_) => {}
        }
    }

    fn transaction(&self, n: usize, transaction: &Transaction) {
        self.place(n, "transaction", transaction.topic.as_deref(), transaction.partition);
        if transaction.records == 0 {
            let text = "0 records are none (wanted 1 at least)";
            self.at_step(n, &["do", "transaction", "records"], text);
        }
        if transaction.end != End::Open && transaction.heals != Heals::Commit {
            let text =
                "only a transaction that is left open is ended by its heal (drop `heals`, or set `end = \"open\"`)";
            self.at_step(n, &["do", "transaction", "heals"], text);
        }
        self.written_before_the_start(n, "`transaction`");
    }

    /// A fault that works on whole logs: what a transaction on its topic that ended so (or has not ended) leaves in the log would
    /// make it prove nothing, or keep it from its end.
    fn no_transaction_before(&self, n: usize, fault: &str, topic: Option<&str>, ends: &[End]) {
        let topic = topic.unwrap_or(self.first_topic());
        let before = self
            .plan
            .steps
            .iter()
            .take(n)
            .enumerate()
            .find(|(_, step)| match &step.action {
                Action::Do {
                    fault: FaultSpec::Transaction(transaction),
                    ..
                } => {
                    ends.contains(&transaction.end)
                        && transaction.topic.as_deref().unwrap_or(self.first_topic()) == topic
                }
                _ => false,
            });
        if let Some((before, _)) = before {
            let text = format!(
                "`{fault}` after the transaction of step {} on {} (wanted one that commits before it, or another topic)",
                before + 1,
                quoted(topic)
            );
            self.at_step(n, &["do", fault], text);
        }
    }

    /// A fault of a topic whose `cleanup` must be so that Kafka does it.
    fn cleanup(&self, n: usize, fault: &str, topic: Option<&str>, does: impl Fn(Cleanup) -> bool) {
        let topic = topic.unwrap_or(self.first_topic());
        let Some(planned) = self.plan.topics.iter().find(|planned| planned.name == topic) else {
            return;
        };
        if !does(planned.cleanup) {
            let text = format!(
                "`{fault}` does nothing to {}, whose `cleanup` is `{}` (wanted `cleanup = \"compact,delete\"`, which does both)",
                quoted(topic),
                planned.cleanup.name()
            );
            self.at_step(n, &["do", fault], text);
        }
    }

    /// In a quiet scenario records are written before the reader starts, or not at all.
    fn written_before_the_start(&self, n: usize, what: &str) {
        if self.plan.quiet() && !self.plan.steps[n].when.before_start {
            self.at_step(n, &["do"], self.quiet_rule(what));
        }
    }

    /// Who is fenced is one of those that there are at the start.
    fn fence(&self, n: usize, fence: &FenceMember) {
        let members = self.plan.reader.members;
        if !(1..=members).contains(&fence.member) {
            let text = format!(
                "there is no member {} of {members} (wanted 1 to {members})",
                fence.member
            );
            self.at_step(n, &["do", "fence-member", "member"], text);
        }
    }

    fn broker(&self, n: usize, path: &[&str], choice: &BrokerChoice) {
        if let BrokerChoice::Node(node) = choice
            && let Some(text) = self.no_broker(*node)
        {
            self.at_step(n, path, text);
        }
    }

    fn add_partitions(&self, n: usize, add: &AddPartitions) {
        self.place(n, "add-partitions", add.topic.as_deref(), None);
        let named = |topic: &&TopicPlan| add.topic.as_ref().is_none_or(|name| *name == topic.name);
        let Some(topic) = self.plan.topics.iter().find(named) else {
            return;
        };
        let before = self.plan.steps[..n].iter().filter_map(|step| match &step.action {
            Action::Do {
                fault: FaultSpec::AddPartitions(other),
                ..
            } if other.topic.as_deref().unwrap_or(self.first_topic()) == topic.name => Some(other.to),
            _ => None,
        });
        let has = before.chain([topic.partitions]).max().unwrap_or_default();
        if !(has.saturating_add(1)..=MOST_PARTITIONS).contains(&add.to) {
            let text = format!(
                "{} has {has} partitions and cannot grow to {} (wanted {} to {MOST_PARTITIONS})",
                quoted(&topic.name),
                add.to,
                has.saturating_add(1)
            );
            self.at_step(n, &["do", "add-partitions", "to"], text);
        }
    }

    fn move_address(&self, n: usize, moved: &MoveAddress) {
        self.broker(n, &["do", "move-address", "broker"], &moved.broker);
        let nobody_tells = moved.broker == BrokerChoice::All || self.plan.cluster.brokers < 2;
        if moved.form == Form::Advertised && nobody_tells {
            let text = "no broker is left that could tell its new address to a reader (set `cluster = { brokers = 2 }` and name \
                        one, or use `form = \"name\"`)";
            self.at_step(n, &["do", "move-address"], text);
        }
    }

    fn unclean_election(&self, n: usize, election: &UncleanElection) {
        let at = |key: &'static str, text: &str| self.at_step(n, &["do", "unclean-election", key], text);
        self.place(n, "unclean-election", election.topic.as_deref(), None);
        self.no_transaction_before(n, "unclean-election", election.topic.as_deref(), &[End::Open]);
        if self.plan.quiet() {
            self.at_step(n, &["do"], self.quiet_rule("`unclean-election`"));
        }
        if election.lost == 0 {
            at("lost", "0 records are none (wanted 1 at least)");
        }
        let named = |topic: &&TopicPlan| election.topic.as_ref().is_none_or(|name| *name == topic.name);
        let brokers = self.plan.cluster.brokers;
        let Some(topic) = self.plan.topics.iter().find(named) else {
            return;
        };
        let held = u32::try_from(topic.brokers.len()).ok().filter(|held| *held > 0);
        let replicas = topic.replicas.or(held).unwrap_or(brokers);
        if replicas != 2 || brokers != 3 {
            let text = format!(
                "{} has {replicas} replicas on {brokers} brokers (wanted 2 on 3: one that is lost, one that lacks its records, \
                 and a broker that keeps the quorum; set `cluster = {{ brokers = 3 }}` and `replicas = 2`)",
                quoted(&topic.name)
            );
            self.at_step(n, &["do", "unclean-election"], text);
        }
    }

    /// What moves needs a broker to move to.
    fn moves(&self, n: usize, fault: &str, to: Option<NodeId>) {
        if let Some(node) = to {
            self.broker(n, &["do", fault, "to"], &BrokerChoice::Node(node));
        }
        if self.plan.cluster.brokers < 2 {
            let text = "there is no other broker to move to (set `cluster = { brokers = 2 }`)";
            self.at_step(n, &["do", fault], text);
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
        for (i, choice) in partition.brokers.iter().enumerate() {
            if let BrokerChoice::Node(node) = choice
                && let Some(text) = self.no_broker(*node)
            {
                let step = [At::Key("step"), At::Index(n)];
                let place = ["do", "partition", "brokers"].map(At::Key);
                self.at(&[&step[..], &place, &[At::Index(i)]].concat(), text);
            }
        }
        match (partition.mode, partition.bytes_per_s) {
            (Mode::Throttle, None) => at("mode", "mode `throttle` lacks `bytes-per-s` (wanted 1 at least)"),
            (Mode::Throttle, Some(0)) => at("bytes-per-s", "0 bytes a second is no throttle (use mode `hold`)"),
            (Mode::Throttle, Some(_)) | (_, None) => {}
            (_, Some(_)) => at("bytes-per-s", "only mode `throttle` has `bytes-per-s`"),
        }
        if partition.direction != Way::Both && matches!(partition.mode, Mode::Reset | Mode::Refuse | Mode::Cut) {
            at(
                "direction",
                "a reset closes both ways (drop `direction`, or use mode `hold`, `throttle` or `delay`)",
            );
        }
        if partition.heals != HealsCut::Keep && partition.mode != Mode::Hold {
            at(
                "heals",
                "only mode `hold` keeps connections that a heal could reset (drop `heals`)",
            );
        }
        if partition.connects != Connects::Accepted && partition.mode != Mode::Hold {
            at(
                "connects",
                "only mode `hold` has `connects` (drop it, or use mode `refuse`)",
            );
        }
        match (partition.mode, partition.by) {
            (Mode::Delay, None) => at("mode", "mode `delay` lacks its length (wanted `by = \"50ms\"`)"),
            (Mode::Delay, Some(by)) if by.is_zero() => at("by", "a delay of no length is none"),
            (Mode::Delay, Some(_)) | (_, None) => {}
            (_, Some(_)) => at("by", "only mode `delay` has `by`"),
        }
        match (partition.mode, partition.jitter) {
            (Mode::Delay, Some(jitter)) if partition.by.is_some_and(|by| jitter > by) => {
                at("jitter", "nothing arrives before it was sent (wanted at most `by`)");
            }
            (Mode::Delay, _) | (_, None) => {}
            (_, Some(_)) => at("jitter", "only mode `delay` has `jitter`"),
        }
        if partition.mode == Mode::Cut {
            self.times(n, "partition", partition.times.unwrap_or(Times::Count(1)));
            if let Some(api) = &partition.api {
                let apis: Vec<&str> = codes::API_NAMES.iter().map(|(_, name)| name.as_str()).collect();
                if !apis.contains(&api.as_str()) {
                    at("api", &unknown("api", api, &apis));
                }
            }
            return;
        }
        let of_cut = [
            ("after-bytes", partition.after_bytes.is_some()),
            ("api", partition.api.is_some()),
            ("times", partition.times.is_some()),
        ];
        for (key, _) in of_cut.into_iter().filter(|(_, set)| *set) {
            at(key, &format!("only mode `cut` has `{key}`"));
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

/// What is answered instead of a code that Kafka does not give.
fn instead(api: &str, code: &str) -> String {
    let known = INSTEAD.iter().find(|(of, never, _)| (*of, *never) == (api, code));
    match known {
        Some((_, _, instead)) => (*instead).to_owned(),
        None => format!("it gives {}", codes::answers(api).collect::<Vec<_>>().join(", ")),
    }
}
