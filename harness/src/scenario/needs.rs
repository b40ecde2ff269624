//! What a plan asks of cluster and reader, and what follows from its steps: kinds, quiet, default outcome.

use std::collections::BTreeMap;

use brokerfall_report::history::{ExpectedEnd, Phase};
use brokerfall_report::protocol::{Kind, Reset, STATE, STATIC_MEMBER, Times};

use super::plan::{Action, Ask, InFlight, Joiner, Plan, ReaderPlan, State, When};
use super::words::{GROUP_APIS, is_authorization};
use crate::cluster::ClusterKind;
use crate::fault::FaultSpec;
use crate::fault::delete_segments::{By, Past};
use crate::fault::deny_acl::Denied;
use crate::fault::kill_broker;
use crate::fault::move_address::{Form, MoveAddress};
use crate::fault::move_leader;
use crate::fault::panic_callback::{Callback, How, PanicCallback};
use crate::fault::partition::{Connects, Mode, Partition};
use crate::invariant::{ALL, Invariant};
use crate::link::LinkKind;
use crate::reader::validate::{ARM_CALLBACK, ARM_CALLBACK_DELAY};

/// Most bytes that a partition of the mock may hold: it drops whole batches above 5 MiB and moves its log start.
pub const MOCK_PARTITION_BYTES: u64 = 4 * 1024 * 1024;

/// Bytes that a record takes in a log beside its value: key, `bf-id` header, lengths and its share of the batch header.
const RECORD_OVERHEAD: u64 = 48;

/// What takes a broker off a network of its own.
const IN_CONTAINERS: &str = "run with --cluster container: each cluster has a network of its own there";

/// Something that cluster or reader must be able to do. Derived from the steps, never declared.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Need {
    /// Kill a broker and start it again with its data.
    KillBroker,
    /// Stop a broker in an orderly way, so that it hands over what it leads (SIGTERM).
    StopBroker,
    /// Stop a broker in its tracks.
    PauseBroker,
    /// Take a broker off the network.
    IsolateBroker,
    /// Delete the oldest part of a log. In a quiet scenario it must do so without writing to it.
    DeleteSegments {
        /// Nothing may be written meanwhile.
        quiet: bool,
    },
    /// A partition that holds this many bytes.
    LogBytes(u64),
    /// A group of more than one member, or one that changes.
    Members,
    /// The reader's group session timeout, heartbeat interval or longest time between polls can be set.
    Session,
    /// Old records are deleted by the cluster itself (`retention.ms`, `retention.bytes`, `segment.bytes`).
    Retention,
    /// A topic whose existence can be denied.
    AbsentTopic,
    /// A topic that can grow.
    AddPartitions,
    /// Leaders that can be moved.
    MoveLeader,
    /// Brokers that can be reached at another address.
    MoveAddress,
    /// Partitions that can be taken from a broker.
    Reassign,
    /// A group's coordinator that can be chosen or moved.
    MoveCoordinator,
    /// Brokers that can be chosen to hold a topic.
    PlaceTopic,
    /// Topics that can be deleted and created anew.
    RecreateTopic,
    /// A cleaner, which compacts logs.
    Compaction,
    /// Transactions, whose markers stand in the log.
    Transactions,
    /// Replicas that may lack records and lead all the same.
    UncleanElection,
    /// Rights of readers that can be taken away by ACL.
    DenyRead,
    /// Connections on which nothing goes are closed.
    IdleConnections,
    /// Connects that are neither accepted nor refused.
    UnansweredConnects,
    /// A response that breaks off in the middle.
    CutInResponse,
    /// A throttle to so many bytes a second.
    Throttle(u64),
    /// Members that keep their place in the group by a name of their own (KIP-345).
    StaticMember,
    /// The bundled `reference-group`, beside the reader under test.
    NeutralMember,
    /// The reader is a process of its own, which signals can reach.
    Process,
    /// The reader's callback can be made to misbehave.
    Callback(Callback),
    /// The processing of a record can be made to take long.
    Delay,
    /// The reader knows this command of the adapter protocol.
    Command(&'static str),
}

/// Why a plan cannot be carried out, and what would enable it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmet {
    /// What is missing.
    pub reason: String,
    /// What would enable it.
    pub enable: String,
}

impl Need {
    /// What a cluster lacks for it; `None` when it can serve it.
    pub fn unmet_by(&self, cluster: ClusterKind) -> Option<Unmet> {
        match cluster {
            ClusterKind::Mock => self.unmet_by_mock(),
            ClusterKind::Process if *self == Need::IsolateBroker => Some(Unmet {
                reason: "brokers that are processes share the network of this machine, off which none is taken alone"
                    .to_owned(),
                enable: IN_CONTAINERS.to_owned(),
            }),
            // What Kafka does not do by itself the link does for it.
            ClusterKind::Process | ClusterKind::Container => None,
        }
    }

    /// What a link lacks for it; `None` when it can serve it.
    pub fn unmet_by_link(&self, link: LinkKind) -> Option<Unmet> {
        match link {
            LinkKind::Builtin => None,
            LinkKind::Toxiproxy => self.unmet_by_toxiproxy(),
        }
    }

    fn unmet_by_toxiproxy(&self) -> Option<Unmet> {
        let reason = match self {
            Need::UnansweredConnects => {
                "Toxiproxy accepts or refuses a connect and never leaves it unanswered".to_owned()
            }
            Need::MoveAddress => {
                "Toxiproxy listens where it was told to at its start, and writes nothing into answers".to_owned()
            }
            Need::CutInResponse => {
                "Toxiproxy cuts a connection after so many bytes of it (limit_data) and knows no response".to_owned()
            }
            Need::Throttle(bytes_per_s) if bytes_per_s % 1_000 != 0 => format!(
                "Toxiproxy throttles to whole kilobytes (of 1,000 bytes) a second, and the plan asks for {bytes_per_s} bytes a second"
            ),
            _ => return None,
        };
        Some(Unmet {
            reason,
            enable: "run with --link builtin".to_owned(),
        })
    }

    fn unmet_by_mock(&self) -> Option<Unmet> {
        let (reason, enable) = match self {
            Need::DeleteSegments { quiet: true } => (
                "the mock cluster deletes by writing, and nothing may be written in a start or catch-up scenario"
                    .into(),
                "run with --cluster process: Apache Kafka deletes records without writing",
            ),
            Need::LogBytes(bytes) if *bytes > MOCK_PARTITION_BYTES => (
                format!(
                    "the mock cluster holds {MOCK_PARTITION_BYTES} bytes in a partition and the plan writes about {bytes}"
                ),
                "write fewer or smaller records, or run with --cluster process",
            ),
            Need::Retention => (
                "the mock cluster deletes nothing by itself: it knows neither segments nor retention".into(),
                "use the fault `delete-segments` without `by`, or run with --cluster process",
            ),
            Need::IsolateBroker => (
                "the brokers of the mock cluster are threads of one process".into(),
                IN_CONTAINERS,
            ),
            Need::RecreateTopic => (
                "the mock cluster deletes no topic".into(),
                "use the fault `absent-topic`, or run with --cluster process",
            ),
            Need::Compaction => ("the mock cluster compacts no log".into(), "run with --cluster process"),
            Need::Transactions => (
                "the mock cluster takes the records of a transaction and writes no marker".into(),
                "run with --cluster process",
            ),
            Need::UncleanElection => (
                "the brokers of the mock cluster share one log, which no election shortens".into(),
                "run with --cluster process: each broker of Apache Kafka has a log of its own",
            ),
            Need::Reassign => (
                "every broker of the mock cluster holds every partition".into(),
                "use the fault `move-leader` without `by`, or run with --cluster process",
            ),
            Need::StopBroker => (
                "the brokers of the mock cluster are threads of one process, which no signal stops".into(),
                "use the fault `kill-broker` without `by`, or run with --cluster process",
            ),
            Need::DenyRead => (
                "the mock cluster knows no ACLs".into(),
                "use the fault `answer-error`, or run with --cluster process",
            ),
            Need::StaticMember => (
                "the mock cluster takes a static member for a dynamic one".into(),
                "use the fault `answer-error`, or run with --cluster process",
            ),
            _ => return None,
        };
        Some(Unmet {
            reason,
            enable: enable.to_owned(),
        })
    }

    /// The capability of adapter protocol v1 that a reader must tell in its `hello`; `None` where none is needed.
    pub fn capability(&self) -> Option<&'static str> {
        match self {
            Need::Callback(_) => Some(ARM_CALLBACK),
            Need::Delay => Some(ARM_CALLBACK_DELAY),
            Need::StaticMember => Some(STATIC_MEMBER),
            Need::Command(command) => Some(command),
            _ => None,
        }
    }
}

impl Plan {
    /// True while nothing may be written before `catches_up` is decided: in the phases start and catch-up, in which a
    /// new record could wake a reader that a fault has put to sleep for good.
    pub fn quiet(&self) -> bool {
        matches!(self.phase, Phase::Start | Phase::CatchUp)
    }

    /// Kinds of reader that the plan can use: what it names, narrowed by what its steps need. Empty when the steps
    /// contradict each other or it.
    pub fn kinds(&self) -> Vec<Kind> {
        [Kind::Table, Kind::Group, Kind::Assign]
            .into_iter()
            .filter(|kind| self.reader.kind.is_none_or(|named| named == *kind))
            .filter(|kind| {
                *kind == Kind::Group || (self.reader.members == 1 && !self.sets_session() && !self.reader.is_static)
            })
            .filter(|kind| *kind == Kind::Group || !matches!(self.phase, Phase::Commit | Phase::Rebalance))
            .filter(|kind| self.steps.iter().all(|step| serves(*kind, &step.action)))
            .filter(|kind| self.steps.iter().all(|step| can_meet(*kind, &step.when)))
            .collect()
    }

    /// Everything that cluster and reader must be able to do, each once.
    pub fn needs(&self) -> Vec<Need> {
        let mut needs = Vec::new();
        let changing_members =
            self.reader.members > 1 || self.steps.iter().any(|step| matches!(step.action, Action::Join(_)));
        for step in &self.steps {
            match &step.action {
                Action::Do { fault, .. } => match fault {
                    FaultSpec::KillBroker(kill) if kill.by == kill_broker::By::Sigterm => needs.push(Need::StopBroker),
                    FaultSpec::KillBroker(_) => needs.push(Need::KillBroker),
                    FaultSpec::RollBrokers(_) => needs.push(Need::StopBroker),
                    FaultSpec::PauseBroker(_) => needs.push(Need::PauseBroker),
                    FaultSpec::IsolateBroker(_) => needs.push(Need::IsolateBroker),
                    FaultSpec::DeleteSegments(delete) if delete.by != By::Request => needs.push(Need::Retention),
                    FaultSpec::DeleteSegments(_) => needs.push(Need::DeleteSegments { quiet: self.quiet() }),
                    FaultSpec::PanicCallback(panic) => needs.push(match panic.raise {
                        How::Delay => Need::Delay,
                        _ => Need::Callback(panic.callback),
                    }),
                    FaultSpec::KillReader(kill) if kill.state == State::Wipe => {
                        needs.extend([Need::Process, Need::Command(STATE)]);
                    }
                    FaultSpec::PauseReader(_) | FaultSpec::KillReader(_) => needs.push(Need::Process),
                    FaultSpec::AnswerError(_) => {}
                    FaultSpec::Partition(partition) => needs.extend(needs_of_cut(partition)),
                    FaultSpec::AbsentTopic(_) => needs.push(Need::AbsentTopic),
                    FaultSpec::AddPartitions(_) => needs.push(Need::AddPartitions),
                    FaultSpec::MoveLeader(moved) if moved.by == move_leader::By::Reassignment => {
                        needs.push(Need::Reassign)
                    }
                    FaultSpec::MoveLeader(_) => needs.push(Need::MoveLeader),
                    FaultSpec::MoveCoordinator(_) => needs.push(Need::MoveCoordinator),
                    FaultSpec::DenyAcl(_) => needs.push(Need::DenyRead),
                    FaultSpec::FenceMember(_) => needs.push(Need::NeutralMember),
                    FaultSpec::RecreateTopic(_) => needs.push(Need::RecreateTopic),
                    FaultSpec::Transaction(_) => needs.push(Need::Transactions),
                    FaultSpec::CompactLog(_) => needs.push(Need::Compaction),
                    FaultSpec::MoveAddress(MoveAddress { form, .. }) => {
                        needs.push(Need::MoveAddress);
                        if *form == Form::Name {
                            needs.push(Need::Process);
                        }
                    }
                    FaultSpec::UncleanElection(_) => needs.push(Need::UncleanElection),
                },
                // Every adapter can be stopped.
                Action::Ask { what: Ask::Stop, .. } => {}
                Action::Ask { what, .. } => needs.push(Need::Command(what.name())),
                Action::Restart(State::Keep) => needs.push(Need::Command("restart")),
                // What is wiped says nothing of a reader that keeps nothing.
                Action::Restart(State::Wipe) => needs.extend([Need::Process, Need::Command(STATE)]),
                Action::Join(Joiner::Neutral) => needs.push(Need::NeutralMember),
                Action::Join(Joiner::Same) | Action::Heal(_) | Action::HealAll | Action::Produce(_) => {}
            }
        }
        if changing_members {
            needs.push(Need::Members);
        }
        if self.is_static() {
            needs.push(Need::StaticMember);
        }
        if self.sets_session() {
            needs.push(Need::Session);
        }
        if self.cluster.idle.is_some() {
            needs.push(Need::IdleConnections);
        }
        if self.cluster.offsets_on.is_some() {
            needs.push(Need::MoveCoordinator);
        }
        for topic in &self.topics {
            if topic.retention.is_some() || topic.segment_bytes.is_some() {
                needs.push(Need::Retention);
            }
            if !topic.brokers.is_empty() {
                needs.push(Need::PlaceTopic);
            }
        }
        needs.push(Need::LogBytes(self.partition_bytes()));
        let mut each_once: Vec<Need> = Vec::new();
        for need in needs {
            if !each_once.contains(&need) {
                each_once.push(need);
            }
        }
        each_once
    }

    /// What a cluster lacks for this plan; empty when it can serve it.
    pub fn unmet_by(&self, cluster: ClusterKind) -> Vec<Unmet> {
        self.needs().iter().filter_map(|need| need.unmet_by(cluster)).collect()
    }

    /// What a link lacks for this plan; empty when it can serve it.
    pub fn unmet_by_link(&self, link: LinkKind) -> Vec<Unmet> {
        let needs = self.needs();
        needs.iter().filter_map(|need| need.unmet_by_link(link)).collect()
    }

    /// Whether members have names that they keep: only such a one can lose its name to another.
    pub fn is_static(&self) -> bool {
        self.reader.is_static || self.faults().any(|fault| matches!(fault, FaultSpec::FenceMember(_)))
    }

    /// Whether it sets what only a group member has.
    fn sets_session(&self) -> bool {
        let ReaderPlan {
            session,
            heartbeat,
            max_poll,
            ..
        } = &self.reader;
        session.or(*heartbeat).or(*max_poll).is_some()
    }

    /// About how many bytes the fullest partition holds before load: preload and `produce` steps.
    fn partition_bytes(&self) -> u64 {
        let bytes = |records: u64, value: u64| records.saturating_mul(value.max(8).saturating_add(RECORD_OVERHEAD));
        let produced = |usual: u64| {
            let steps = self.steps.iter().map(move |step| match &step.action {
                Action::Produce(produce) => bytes(produce.records, produce.value_bytes.unwrap_or(usual)),
                _ => 0,
            });
            steps.fold(0, u64::saturating_add)
        };
        self.topics
            .iter()
            .map(|topic| {
                let usual = topic.generator.value_bytes;
                bytes(topic.preload, usual).saturating_add(produced(usual))
            })
            .max()
            .unwrap_or(0)
    }

    /// How the plan may end where `[expect]` does not say: an honest end is as good as a recovery where a fault is
    /// terminal by design, so that recovering is the reader's choice.
    fn default_outcome(&self) -> ExpectedEnd {
        let terminal = self.reader.reset == Reset::None
            || self.faults().any(|fault| match fault {
                FaultSpec::AnswerError(answer) => is_authorization(&answer.code),
                FaultSpec::DenyAcl(_) | FaultSpec::FenceMember(_) => true,
                FaultSpec::PanicCallback(panic) => is_upset(panic),
                _ => false,
            });
        if terminal {
            ExpectedEnd::RecoversOrEnds
        } else {
            ExpectedEnd::Recovers
        }
    }

    /// How the plan may end.
    pub fn outcome(&self) -> ExpectedEnd {
        self.expect.outcome.unwrap_or_else(|| self.default_outcome())
    }

    /// Whether readers are told names of brokers, so that a name can come to stand for another address.
    pub fn names_brokers(&self) -> bool {
        self.faults()
            .any(|fault| matches!(fault, FaultSpec::MoveAddress(moved) if moved.form == Form::Name))
    }

    /// Whether a callback never returns.
    pub fn hangs(&self) -> bool {
        self.faults()
            .any(|fault| matches!(fault, FaultSpec::PanicCallback(panic) if panic.raise == How::Hang))
    }

    /// Invariants that the nature of the steps takes out of judging, with the reason. A callback that hangs stops a reader
    /// that calls it in its own loop, rightly; what it may not do is lie about it or refuse to close. A reader that was
    /// told to close owes no progress.
    pub fn not_judged(&self) -> BTreeMap<String, String> {
        let hangs = self.hangs();
        let reason = if hangs {
            "a callback that comes back: while one hangs, only status_honest and stops_cleanly are asked, unless [expect] names more"
        } else if self.ends_closed() {
            "a reader that goes on: the scenario tells it to close, and no progress is owed unless [expect] names it"
        } else {
            return BTreeMap::new();
        };
        let asked = |invariant: &Invariant| match hangs {
            true => ["status_honest", "stops_cleanly"].contains(&invariant.id),
            false => !invariant.is_progress,
        };
        ALL.iter()
            .filter(|invariant| !asked(invariant))
            .map(|invariant| invariant.id)
            .filter(|id| !self.expect.named.iter().any(|named| named == *id))
            .map(|id| (id.to_owned(), reason.to_owned()))
            .collect()
    }

    /// Whether the last that its steps do to the reader's life is to tell it to close.
    pub(crate) fn ends_closed(&self) -> bool {
        let last = self.steps.iter().rev().find_map(|step| match &step.action {
            Action::Ask { what: Ask::Stop, .. } => Some(true),
            Action::Restart(_) => Some(false),
            _ => None,
        });
        last == Some(true)
    }

    /// The faults of its steps, in order.
    pub fn faults(&self) -> impl Iterator<Item = &FaultSpec> {
        self.steps.iter().filter_map(|step| match &step.action {
            Action::Do { fault, .. } => Some(fault),
            _ => None,
        })
    }
}

/// What a cut of the network asks of the link, beyond what every link can do.
fn needs_of_cut(partition: &Partition) -> Vec<Need> {
    match partition.mode {
        Mode::Hold if partition.connects == Connects::Unanswered => vec![Need::UnansweredConnects],
        // A scenario knows no time shorter than Toxiproxy's millisecond.
        Mode::Hold | Mode::Reset | Mode::Refuse | Mode::Delay => Vec::new(),
        Mode::Throttle => partition.bytes_per_s.map(Need::Throttle).into_iter().collect(),
        Mode::Cut => vec![Need::CutInResponse],
    }
}

/// A callback fault that no isolation of ordinary errors can be asked to survive.
fn is_upset(panic: &PanicCallback) -> bool {
    matches!(panic.raise, How::BaseException | How::Hang)
        || (panic.raise == How::Exception && panic.times == Times::Always)
}

/// Whether a reader of this kind can be part of an action.
fn serves(kind: Kind, action: &Action) -> bool {
    match action {
        Action::Do { fault, .. } => match fault {
            FaultSpec::PanicCallback(panic) => match panic.callback {
                Callback::OnSet | Callback::OnDelete => kind == Kind::Table,
                Callback::OnRecord => kind != Kind::Table,
            },
            FaultSpec::AnswerError(answer) => kind == Kind::Group || !GROUP_APIS.contains(&answer.api.as_str()),
            FaultSpec::Partition(partition) => {
                let group_api = partition.api.as_deref().is_some_and(|api| GROUP_APIS.contains(&api));
                kind == Kind::Group || !group_api
            }
            FaultSpec::MoveCoordinator(_) | FaultSpec::FenceMember(_) => kind == Kind::Group,
            FaultSpec::DeleteSegments(delete) => kind == Kind::Group || delete.past != Past::Committed,
            FaultSpec::DenyAcl(deny) => kind == Kind::Group || deny.on != Denied::Group,
            // A table's keys belong to their partitions: its topic keeps the number that it has.
            FaultSpec::AddPartitions(_) => kind != Kind::Table,
            _ => true,
        },
        Action::Ask {
            what: Ask::Snapshot | Ask::Barrier,
            ..
        } => kind == Kind::Table,
        Action::Ask { what: Ask::Commit, .. } | Action::Join(_) => kind == Kind::Group,
        // To a table a null value says that a key is deleted.
        Action::Produce(produce) => kind != Kind::Table || !produce.null_values,
        _ => true,
    }
}

/// Whether a reader of this kind can meet a trigger.
fn can_meet(kind: Kind, when: &When) -> bool {
    let wire = when
        .wire
        .as_ref()
        .is_some_and(|wire| GROUP_APIS.contains(&wire.api.as_str()));
    (kind == Kind::Group || !wire)
        && match when.in_flight {
            Some(InFlight::Snapshot | InFlight::Barrier) => kind == Kind::Table,
            Some(InFlight::Commit) => kind == Kind::Group,
            Some(InFlight::Start | InFlight::Stop) | None => true,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::load;
    use crate::scenario::words::INVARIANTS;

    fn plan(rest: &str) -> Plan {
        let text = format!("format = 1\ntitle = \"t\"\n{rest}");
        let plans = load("mine/needs.toml", &text).and_then(|scenario| scenario.plans());
        plans.unwrap_or_else(|wrong| panic!("{wrong}")).remove(0)
    }

    fn plan_of(step: &str) -> Plan {
        plan(&format!("[[topic]]\nname = \"orders\"\n[[step]]\n{step}\n"))
    }

    #[test]
    fn steps_narrow_the_kinds() {
        use Kind::{Assign, Group, Table};
        let kinds = [
            ("do = { kill-reader = {} }", vec![Table, Group, Assign]),
            (
                "do = { panic-callback = { callback = \"on-delete\", raise = \"hang\" } }",
                vec![Table],
            ),
            (
                "do = { panic-callback = { callback = \"on-record\", raise = \"hang\" } }",
                vec![Group, Assign],
            ),
            (
                "do = { answer-error = { api = \"Heartbeat\", code = \"UNKNOWN_MEMBER_ID\" } }",
                vec![Group],
            ),
            (
                "when = { wire = { api = \"OffsetCommit\" } }\ndo = { kill-reader = {} }",
                vec![Group],
            ),
            ("do = \"barrier\"", vec![Table]),
            ("do = \"join-member\"", vec![Group]),
        ];
        for (step, wanted) in kinds {
            assert_eq!(plan_of(step).kinds(), wanted, "{step}");
        }
    }

    #[test]
    fn several_members_and_a_session_need_a_group() {
        let of = |reader: &str| plan(&format!("reader = {{ {reader} }}\n[[topic]]\nname = \"orders\"")).kinds();
        assert_eq!(of("members = 2"), [Kind::Group]);
        assert_eq!(of("session = \"6s\""), [Kind::Group]);
        assert_eq!(of("kind = \"assign\""), [Kind::Assign]);
    }

    #[test]
    fn deleting_is_served_by_the_mock_only_where_it_may_write() {
        let delete = "[[topic]]\nname = \"orders\"\n[[step]]\ndo = { delete-segments = {} }";
        assert_eq!(plan(delete).unmet_by(ClusterKind::Mock), []);
        let quiet = plan(&format!("phase = \"catch-up\"\n{delete}")).unmet_by(ClusterKind::Mock);
        assert_eq!(quiet.len(), 1);
        assert!(quiet[0].reason.contains("deletes by writing"), "{quiet:?}");
    }

    #[test]
    fn what_toxiproxy_cannot_do_is_a_need_that_it_lacks_and_the_builtin_link_does_all() {
        let unmet = |keys: &str| {
            let plan = plan_of(&format!("do = {{ partition = {{ {keys} }} }}"));
            assert_eq!(plan.unmet_by_link(LinkKind::Builtin), [], "{keys}");
            let unmet = plan.unmet_by_link(LinkKind::Toxiproxy);
            unmet
                .into_iter()
                .map(|unmet| unmet.reason)
                .collect::<Vec<_>>()
                .join("; ")
        };
        let cannot = [
            (
                r#"mode = "hold", connects = "unanswered""#,
                "never leaves it unanswered",
            ),
            (r#"mode = "cut""#, "knows no response"),
            (
                r#"mode = "throttle", bytes-per-s = 1_500"#,
                "asks for 1500 bytes a second",
            ),
        ];
        for (keys, why) in cannot {
            assert!(unmet(keys).contains(why), "{keys}: {}", unmet(keys));
        }
        for keys in [
            r#"mode = "hold""#,
            r#"mode = "hold", heals = "reset", direction = "to-broker""#,
            r#"mode = "reset""#,
            r#"mode = "refuse""#,
            r#"mode = "throttle", bytes-per-s = 2_000"#,
            r#"mode = "delay", by = "50ms", jitter = "20ms""#,
        ] {
            assert_eq!(unmet(keys), "", "{keys}");
        }
    }

    #[test]
    fn a_partition_beyond_the_mocks_limit_is_a_need_that_it_lacks() {
        let of = |records: u64| {
            plan(&format!(
                "[[topic]]\nname = \"orders\"\npreload = {{ records = {records}, value-bytes = 1_000 }}"
            ))
            .unmet_by(ClusterKind::Mock)
            .len()
        };
        assert_eq!((of(4_002), of(4_003)), (0, 1), "1,048 bytes a record against 4,194,304");
    }

    #[test]
    fn faults_that_are_terminal_by_design_allow_an_honest_end() {
        use ExpectedEnd::{Recovers, RecoversOrEnds};
        let callback = |rest: &str| format!("do = {{ panic-callback = {{ callback = \"on-set\", {rest} }} }}");
        let answer = |code: &str| format!("do = {{ answer-error = {{ api = \"Fetch\", code = \"{code}\" }} }}");
        let outcomes = [
            (callback("raise = \"exception\""), Recovers),
            (callback("raise = \"exception\", times = 5"), Recovers),
            (callback("raise = \"exception\", times = \"always\""), RecoversOrEnds),
            (callback("raise = \"base-exception\""), RecoversOrEnds),
            (
                callback("raise = \"delay\", for = \"1s\", times = \"always\""),
                Recovers,
            ),
            (answer("TOPIC_AUTHORIZATION_FAILED"), RecoversOrEnds),
            (answer("OFFSET_OUT_OF_RANGE"), Recovers),
            ("do = { kill-broker = { broker = \"all\" } }".to_owned(), Recovers),
        ];
        for (step, wanted) in outcomes {
            assert_eq!(plan_of(&step).outcome(), wanted, "{step}");
        }
        let none = plan("reader = { reset = \"none\" }\n[[topic]]\nname = \"orders\"");
        assert_eq!(none.outcome(), RecoversOrEnds);
        let said = plan("reader = { reset = \"none\" }\n[[topic]]\nname = \"orders\"\n[expect]\noutcome = \"ends\"");
        assert_eq!(said.outcome(), ExpectedEnd::Ends);
    }

    #[test]
    fn a_hanging_callback_leaves_two_invariants_and_those_that_are_named() {
        let hang = "[[topic]]\nname = \"o\"\n[[step]]\ndo = { panic-callback = { callback = \"on-set\", raise = \"hang\" } }\n";
        let judged = |plan: Plan| -> Vec<&'static str> {
            let not = plan.not_judged();
            INVARIANTS.into_iter().filter(|id| !not.contains_key(*id)).collect()
        };
        assert_eq!(judged(plan(hang)), ["status_honest", "stops_cleanly"]);
        assert_eq!(
            judged(plan(&format!("{hang}[expect]\nrecovers = {{}}"))),
            ["recovers", "status_honest", "stops_cleanly"]
        );
        assert_eq!(plan_of("do = { kill-reader = {} }").not_judged(), BTreeMap::new());
    }

    #[test]
    fn a_reader_that_is_told_to_close_owes_no_progress_until_it_is_started_again() {
        let stop = "[[topic]]\nname = \"o\"\n[[step]]\ndo = \"stop\"\n";
        let not = |text: &str| plan(text).not_judged().into_keys().collect::<Vec<_>>();
        assert_eq!(not(stop), ["catches_up", "no_silent_death", "recovers"]);
        assert_eq!(
            not(&format!("{stop}[expect]\ncatches_up = {{}}\n")),
            ["no_silent_death", "recovers"]
        );
        assert!(not(&format!("{stop}[[step]]\ndo = \"restart-reader\"\n")).is_empty());
    }

    #[test]
    fn what_only_a_group_does_needs_a_group() {
        let of = |phase: &str| plan(&format!("phase = \"{phase}\"\n[[topic]]\nname = \"o\"")).kinds();
        assert_eq!(of("commit"), [Kind::Group]);
        assert_eq!(of("rebalance"), [Kind::Group]);
        assert_eq!(of("close").len(), 3);
        let reader = |keys: &str| plan(&format!("reader = {{ {keys} }}\n[[topic]]\nname = \"o\"")).kinds();
        assert_eq!(reader("heartbeat = \"1s\""), [Kind::Group]);
        assert_eq!(reader("max-poll = \"1s\""), [Kind::Group]);
        assert_eq!(
            plan_of("when = { in-flight = \"commit\" }\ndo = { kill-reader = {} }").kinds(),
            [Kind::Group]
        );
        assert_eq!(
            plan_of("when = { in-flight = \"barrier\" }\ndo = { kill-reader = {} }").kinds(),
            [Kind::Table]
        );
        assert_eq!(
            plan_of("do = { partition = { mode = \"cut\", api = \"OffsetCommit\" } }").kinds(),
            [Kind::Group]
        );
    }

    #[test]
    fn what_the_mock_deletes_by_itself_is_nothing() {
        for key in ["retention = { ms = 1_000 }", "segment-bytes = 1_000"] {
            let unmet = plan(&format!("[[topic]]\nname = \"o\"\n{key}")).unmet_by(ClusterKind::Mock);
            assert_eq!(unmet.len(), 1, "{key}");
            assert!(unmet[0].reason.contains("neither segments nor retention"), "{unmet:?}");
        }
        let placed =
            plan("cluster = { brokers = 2, idle = \"20s\", offsets-on = 2 }\n[[topic]]\nname = \"o\"\nbrokers = [2]");
        assert_eq!(placed.unmet_by(ClusterKind::Mock), []);
    }
}
