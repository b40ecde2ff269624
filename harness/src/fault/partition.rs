//! partition: the network between the reader and some brokers fails.

use std::time::Duration;

use async_trait::async_trait;
use brokerfall_report::history::ConnectionChange;
use brokerfall_report::protocol::Times;
use serde::{Deserialize, Serialize};

use super::{BrokerChoice, Fault, FaultError, Heal, Injected, Look, list, reaction, refused_at_start};
use crate::cluster::NodeId;
use crate::link::{self, Cut, CutHeal, CutId, CutMode, Direction, codes};
use crate::run::rig::Rig;
use crate::scenario::duration;

/// Bytes of a response that still arrive before `cut` resets the connection, unless the scenario says otherwise: the
/// length and correlation id are complete, the first field of most bodies is not.
const AFTER_BYTES: u64 = 10;

/// `partition = { brokers = ["leader"], mode = "hold" }`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Partition {
    /// Which brokers; default all.
    #[serde(default = "all")]
    pub brokers: Vec<BrokerChoice>,
    /// `hold`, `reset`, `refuse`, `throttle`, `delay` or `cut`.
    pub mode: Mode,
    /// Which way a hold, throttle or delay works; default both.
    #[serde(default)]
    pub direction: Way,
    /// What becomes of held connections at the heal; default keep.
    #[serde(default)]
    pub heals: Heals,
    /// For `throttle`: bytes a second and direction, at least 1.
    #[serde(default)]
    pub bytes_per_s: Option<u64>,
    /// For `hold`: what becomes of new connects; default accepted.
    #[serde(default)]
    pub connects: Connects,
    /// For `delay`: how much later bytes pass.
    #[serde(default, with = "crate::scenario::duration::option")]
    pub by: Option<Duration>,
    /// For `delay`: how far it may differ, evenly and by the run's seed; at most `by`, default not at all.
    #[serde(default, with = "crate::scenario::duration::option")]
    pub jitter: Option<Duration>,
    /// For `cut`: bytes of the response after its length and correlation id that still arrive; default 10. Shorter
    /// responses pass.
    #[serde(default)]
    pub after_bytes: Option<u64>,
    /// For `cut`: the api whose responses are cut, such as `Fetch`; default any.
    #[serde(default)]
    pub api: Option<String>,
    /// For `cut`: how many responses, or `"always"` (until healed); default 1.
    #[serde(default)]
    pub times: Option<Times>,
}

fn all() -> Vec<BrokerChoice> {
    vec![BrokerChoice::All]
}

/// What the network does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Half-open: nothing gets through, nothing is lost, nobody is told.
    Hold,
    /// Connections are reset, new ones too.
    Reset,
    /// Connections are reset, new ones refused.
    Refuse,
    /// Few bytes a second.
    Throttle,
    /// Every byte comes later.
    Delay,
    /// A connection is reset in the middle of a response.
    Cut,
}

/// What becomes of new connects during a hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Connects {
    /// They succeed, and are held.
    #[default]
    Accepted,
    /// They get no answer.
    Unanswered,
}

/// Direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Both ways.
    #[default]
    Both,
    /// Only what the reader sends.
    ToBroker,
    /// Only what the broker answers.
    ToReader,
}

/// What becomes of held connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Heals {
    /// Bytes flow on.
    #[default]
    Keep,
    /// They are reset.
    Reset,
}

impl Partition {
    fn cut(&self, nodes: Vec<NodeId>) -> Cut {
        Cut {
            nodes,
            mode: match self.mode {
                Mode::Hold => CutMode::Hold,
                Mode::Reset => CutMode::Reset,
                Mode::Refuse => CutMode::Refuse,
                // OK because a plan with a throttle and no rate is refused when it is checked.
                Mode::Throttle => CutMode::Throttle {
                    bytes_per_s: self.bytes_per_s.unwrap_or(1).max(1),
                },
                // OK because a plan with a delay of no length is refused when it is checked.
                Mode::Delay => CutMode::Delay {
                    by: self.by.unwrap_or_default(),
                    jitter: self.jitter.unwrap_or_default(),
                },
                Mode::Cut => CutMode::MidResponse {
                    after_bytes: self.after_bytes(),
                    // An api that there is not matches nothing; a plan that names one is refused when it is checked.
                    api: self.api.as_deref().map(|api| codes::api_key(api).unwrap_or(i16::MIN)),
                    times: match self.times() {
                        Times::Always => None,
                        Times::Count(times) => Some(times),
                    },
                },
            },
            connects: match self.connects {
                Connects::Accepted => link::Connects::Accepted,
                Connects::Unanswered => link::Connects::Unanswered,
            },
            direction: match self.direction {
                Way::Both => Direction::Both,
                Way::ToBroker => Direction::ToBroker,
                Way::ToReader => Direction::ToReader,
            },
            heals: match self.heals {
                Heals::Keep => CutHeal::Keep,
                Heals::Reset => CutHeal::Reset,
            },
        }
    }

    fn after_bytes(&self) -> u64 {
        self.after_bytes.unwrap_or(AFTER_BYTES)
    }

    fn times(&self) -> Times {
        self.times.unwrap_or(Times::Count(1))
    }
}

/// `50ms`, or `50ms ± 20ms`.
fn delay_text(by: Duration, jitter: Duration) -> String {
    let by = duration::format(by);
    if jitter.is_zero() {
        by
    } else {
        format!("{by} ± {}", duration::format(jitter))
    }
}

#[async_trait]
impl Fault for Partition {
    fn kind(&self) -> &'static str {
        "partition"
    }

    fn text(&self) -> String {
        let brokers = self
            .brokers
            .iter()
            .map(BrokerChoice::text)
            .collect::<Vec<_>>()
            .join(" and ");
        let way = match self.direction {
            Way::Both => "",
            Way::ToBroker => ", towards the broker only",
            Way::ToReader => ", towards the reader only",
        };
        match self.mode {
            Mode::Hold => {
                let heals = match self.heals {
                    Heals::Keep => "",
                    Heals::Reset => ", connections reset at the heal",
                };
                let connects = match self.connects {
                    Connects::Accepted => "",
                    Connects::Unanswered => ", connects unanswered",
                };
                format!("hold all traffic with {brokers}{way}{connects}{heals}")
            }
            Mode::Reset => format!("reset connections to {brokers}"),
            Mode::Refuse => format!("refuse connections to {brokers}"),
            Mode::Throttle => {
                let bytes = self.bytes_per_s.unwrap_or_default();
                format!("throttle traffic with {brokers} to {bytes} bytes/s{way}")
            }
            Mode::Delay => {
                let delay = delay_text(self.by.unwrap_or_default(), self.jitter.unwrap_or_default());
                format!("delay traffic with {brokers} by {delay}{way}")
            }
            Mode::Cut => {
                let api = self.api.as_deref().map_or_else(String::new, |api| format!("{api} "));
                let which = match self.times() {
                    Times::Always => format!("every {api}response"),
                    Times::Count(1) => format!("the next {api}response"),
                    Times::Count(n) => format!("the next {n} {api}responses"),
                };
                format!("cut {which} of {brokers} after {} bytes", self.after_bytes())
            }
        }
    }

    fn closes_path(&self) -> bool {
        match self.mode {
            Mode::Hold | Mode::Reset | Mode::Refuse => true,
            Mode::Throttle | Mode::Delay => false,
            Mode::Cut => self.times() == Times::Always,
        }
    }

    async fn inject(&self, rig: &Rig, _name: &str) -> Result<Injected, FaultError> {
        let mut nodes = Vec::new();
        for choice in &self.brokers {
            nodes.extend(choice.nodes(rig).await?);
        }
        nodes.sort_unstable();
        nodes.dedup();
        Cutting::start(rig, self.cut(nodes)).await
    }
}

/// A cut in force on the link; pause-broker uses it too where a broker cannot be stopped.
pub(super) struct Cutting {
    id: CutId,
    cut: Cut,
}

impl Cutting {
    pub(super) async fn start(rig: &Rig, cut: Cut) -> Result<Injected, FaultError> {
        let mark = rig.mark();
        let id = rig.link.cut(cut.clone()).await?;
        let proof = match cut.mode {
            CutMode::Refuse => {
                for &node in &cut.nodes {
                    rig.prove_refused(node).await?;
                }
                format!("the reader's port of broker {} refuses connections", list(&cut.nodes))
            }
            CutMode::Hold => {
                // The link returned from the cut with a connect of its own that had no answer.
                let connects = match cut.connects {
                    link::Connects::Accepted => "",
                    link::Connects::Unanswered => ", and a connect to its port got no answer",
                };
                format!(
                    "the link forwards nothing to or from broker {}{connects}",
                    list(&cut.nodes)
                )
            }
            CutMode::Reset => format!("the link resets every connection to broker {}", list(&cut.nodes)),
            CutMode::Throttle { bytes_per_s } => {
                format!(
                    "the link passes {bytes_per_s} bytes a second to and from broker {}",
                    list(&cut.nodes)
                )
            }
            CutMode::Delay { by, jitter } => {
                let delay = delay_text(by, jitter);
                format!(
                    "the link passes bytes to and from broker {} {delay} later",
                    list(&cut.nodes)
                )
            }
            CutMode::MidResponse { after_bytes, .. } => {
                format!(
                    "the link is armed to cut responses of broker {} after {after_bytes} bytes",
                    list(&cut.nodes)
                )
            }
        };
        let proof = match rig.link.told_of(id) {
            Some(told) => format!("{proof}; {told}"),
            None => proof,
        };
        Ok(Injected {
            proof,
            delivered: delivered(&cut, mark, cut.nodes.len() == rig.cluster.brokers().len()),
            felt: reaction(),
            strikes_later: matches!(cut.mode, CutMode::MidResponse { .. }),
            heal: Box::new(Self { id, cut }),
        })
    }
}

/// A hold hits the reader when traffic or a connect waits, a reset or refusal when a connection is closed, a throttle or
/// delay when bytes have passed through it, a cut when as many responses were cut as it was asked for.
fn delivered(cut: &Cut, mark: u64, everywhere: bool) -> Look {
    let nodes = cut.nodes.clone();
    let mode = cut.mode;
    Box::new(move |facts| {
        let count = |change| {
            nodes
                .iter()
                .map(|&node| facts.connections_since(mark, Some(node), change))
                .sum::<u64>()
        };
        match mode {
            CutMode::Hold => {
                let (held, unanswered) = (count(ConnectionChange::Held), count(ConnectionChange::Unanswered));
                match (held, unanswered) {
                    (0, 0) => None,
                    (0, _) => Some(format!("{unanswered} connect(s) of the reader wait for an answer")),
                    _ => Some(format!("traffic of the reader waits on {held} connection(s)")),
                }
            }
            CutMode::Reset | CutMode::Refuse => {
                let reset = count(ConnectionChange::ResetByLink) + count(ConnectionChange::TurnedAway);
                match (reset, mode) {
                    (0, CutMode::Refuse) if everywhere => refused_at_start(facts, mark),
                    (0, _) => None,
                    _ => Some(format!("{reset} connection(s) of the reader were reset or turned away")),
                }
            }
            CutMode::Throttle { .. } | CutMode::Delay { .. } => {
                let slowed = count(ConnectionChange::Slowed);
                (slowed > 0).then(|| format!("bytes of the reader waited on {slowed} connection(s)"))
            }
            CutMode::MidResponse { times, .. } => {
                let cut = count(ConnectionChange::CutInResponse);
                (cut >= times.unwrap_or(1)).then(|| format!("{cut} response(s) to the reader were cut in the middle"))
            }
        }
    })
}

#[async_trait]
impl Heal for Cutting {
    async fn heal(self: Box<Self>, rig: &Rig) -> Result<String, FaultError> {
        rig.link.heal(self.id).await?;
        let mut open = Vec::new();
        for &node in &self.cut.nodes {
            // Another fault may refuse connects still, or have killed the broker.
            if rig.link.is_open(node) {
                rig.prove_accepts(node).await?;
                open.push(node);
            }
        }
        let brokers = list(&self.cut.nodes);
        Ok(match self.cut.mode {
            CutMode::MidResponse { .. } => format!("the link cuts no more responses of broker {brokers}"),
            _ if open == self.cut.nodes => {
                format!("the link forwards to and from broker {brokers} again, and its port accepts")
            }
            _ => format!(
                "the link forwards to and from broker {brokers} again; the ports of {} accept, another fault is in force \
                 at the others",
                list(&open)
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use brokerfall_report::history::Event;
    use brokerfall_report::protocol::Kind;

    use super::*;
    use crate::fault::FaultSpec;
    use crate::invariant::support::{entry, facts, history, plan};
    use crate::scenario::plan::Action;

    /// The fault of a scenario with these keys, brokers left out.
    fn partition(keys: &str) -> Partition {
        let file = format!(
            "format = 1\ntitle = \"t\"\n[[topic]]\nname = \"orders\"\n[[step]]\ndo = {{ partition = {{ {keys} }} }}\n"
        );
        let mut plans = crate::scenario::load("t", &file).unwrap().plans().unwrap();
        match plans.remove(0).steps.remove(0).action {
            Action::Do {
                fault: FaultSpec::Partition(partition),
                ..
            } => partition,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn modes_say_what_they_do_and_whether_progress_is_owed() {
        let said = [
            (
                r#"mode = "hold", connects = "unanswered""#,
                true,
                "hold all traffic with every broker, connects unanswered",
            ),
            (
                r#"mode = "delay", by = "50ms", jitter = "20ms", direction = "to-reader""#,
                false,
                "delay traffic with every broker by 50ms ± 20ms, towards the reader only",
            ),
            (
                r#"mode = "delay", by = "1s""#,
                false,
                "delay traffic with every broker by 1s",
            ),
            (
                r#"mode = "cut""#,
                false,
                "cut the next response of every broker after 10 bytes",
            ),
            (
                r#"mode = "cut", api = "Fetch", after-bytes = 3, times = 2"#,
                false,
                "cut the next 2 Fetch responses of every broker after 3 bytes",
            ),
            (
                r#"mode = "cut", api = "Fetch", times = "always""#,
                true,
                "cut every Fetch response of every broker after 10 bytes",
            ),
        ];
        for (keys, closes, text) in said {
            let partition = partition(keys);
            assert_eq!((partition.closes_path(), partition.text().as_str()), (closes, text));
        }
    }

    #[test]
    fn cut_in_the_link_is_what_the_scenario_asks_for() {
        let cut = partition(r#"mode = "cut", api = "Fetch", after-bytes = 3, times = 2"#).cut(vec![1]);
        let mode = CutMode::MidResponse {
            after_bytes: 3,
            api: Some(1),
            times: Some(2),
        };
        assert_eq!(cut.mode, mode);
        let cut = partition(r#"mode = "delay", by = "50ms", jitter = "20ms""#).cut(vec![1]);
        let (by, jitter) = (Duration::from_millis(50), Duration::from_millis(20));
        assert_eq!(cut.mode, CutMode::Delay { by, jitter });
        let cut = partition(r#"mode = "hold", connects = "unanswered""#).cut(vec![1]);
        assert_eq!((cut.mode, cut.connects), (CutMode::Hold, link::Connects::Unanswered));
    }

    #[test]
    fn delivered_is_what_hit_the_reader_on_a_broker_that_was_struck_and_as_often_as_asked() {
        let connection = |node, change, count| Event::WireConnection {
            client: "r1".into(),
            node,
            change,
            count,
        };
        let told = |keys: &str, events: &[Event]| {
            let mut entries = history! { plan(Kind::Group); 0 => connection(1, ConnectionChange::Opened, 1) };
            for (n, event) in (2..).zip(events) {
                entries.push(entry(n, n, event.clone()));
            }
            delivered(&partition(keys).cut(vec![1]), 3, false)(&facts(&entries))
        };
        let before = connection(1, ConnectionChange::CutInResponse, 5);
        let elsewhere = connection(2, ConnectionChange::CutInResponse, 5);
        let once = connection(1, ConnectionChange::CutInResponse, 1);
        let cut_twice = r#"mode = "cut", times = 2"#;
        assert_eq!(
            told(cut_twice, &[before.clone(), elsewhere.clone(), once.clone()]),
            None
        );
        assert_eq!(
            told(cut_twice, &[before.clone(), once.clone(), once.clone()]).as_deref(),
            Some("2 response(s) to the reader were cut in the middle")
        );
        assert!(told(r#"mode = "cut", times = "always""#, &[before, once]).is_some());

        let held = r#"mode = "hold", connects = "unanswered""#;
        let waits = connection(1, ConnectionChange::Unanswered, 2);
        assert_eq!(told(held, &[elsewhere.clone(), elsewhere.clone()]), None);
        assert_eq!(
            told(held, &[elsewhere.clone(), waits.clone()]).as_deref(),
            Some("2 connect(s) of the reader wait for an answer")
        );
        let traffic = connection(1, ConnectionChange::Held, 1);
        assert_eq!(
            told(held, &[elsewhere, waits, traffic]).as_deref(),
            Some("traffic of the reader waits on 1 connection(s)")
        );
    }
}
