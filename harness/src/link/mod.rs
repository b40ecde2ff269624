//! The link: what stands between the reader and every broker. Only the reader uses it; the oracle goes round it.
//!
//! One trait; [`builtin`] is a Kafka-aware proxy on tokio, `toxiproxy` (a feature) a real Toxiproxy in front of it, which
//! does the cuts. Deliberately not here: deciding what a fault is
//! (that is `fault`) and judging what the wire said (that is `invariant`). The link records what it sees
//! (`Wire`, `WireError`, `WireConnection`, `WireGroup`, `WireCommit`, `Deviation`) into the history itself.

pub mod builtin;
pub mod codes;
#[cfg(feature = "toxiproxy")]
pub mod toxiproxy;

use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;

use crate::before_the_next_look;
use crate::cluster::NodeId;

/// `client.id` of the harness's own questions through the link: evidence is about the reader, and these are left out of it.
pub const PROBE: &str = "brokerfall-probe";

/// What is on its way over loopback has arrived by then: a request that waits longer waits for the broker.
pub const UNANSWERED_AFTER: Duration = Duration::from_millis(50);

/// The folder of the cache that programs of links are kept in.
pub(crate) const CACHED: &str = "links";

/// Between two looks at what connections are left.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Which link stands between reader and brokers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LinkKind {
    /// The Kafka-aware proxy alone.
    #[default]
    Builtin,
    /// A Toxiproxy server in front of it.
    Toxiproxy,
}

impl LinkKind {
    /// As `--link` names it.
    pub fn name(self) -> &'static str {
        match self {
            LinkKind::Builtin => "builtin",
            LinkKind::Toxiproxy => "toxiproxy",
        }
    }
}

/// What the links of runs are started from.
#[derive(Debug, Clone, Default)]
pub enum LinkSource {
    /// Nothing is needed.
    #[default]
    Builtin,
    /// The server's program.
    #[cfg(feature = "toxiproxy")]
    Toxiproxy(toxiproxy::Program),
}

impl LinkSource {
    /// Which link it makes.
    pub fn kind(&self) -> LinkKind {
        match self {
            LinkSource::Builtin => LinkKind::Builtin,
            #[cfg(feature = "toxiproxy")]
            LinkSource::Toxiproxy(_) => LinkKind::Toxiproxy,
        }
    }

    /// As histories name it: with the version of what is not ours.
    pub fn label(&self) -> String {
        match self {
            LinkSource::Builtin => self.kind().name().to_owned(),
            #[cfg(feature = "toxiproxy")]
            LinkSource::Toxiproxy(_) => format!("{} {}", self.kind().name(), toxiproxy::VERSION),
        }
    }
}

/// A running link.
#[async_trait]
pub trait Link: Send + Sync {
    /// `host:port,…`: what the reader is given.
    fn bootstrap(&self) -> String;

    /// The address that stands for a broker.
    fn address(&self, node: NodeId) -> Option<SocketAddr>;

    /// Puts a cut in force on the brokers named and returns when it is in force. Cuts of different ids may overlap. Where
    /// connects are to be left unanswered, one of the link's own was before this returns.
    ///
    /// # Errors
    /// [`LinkError::NoBroker`], [`LinkError::TimedOut`] when a connection does not follow or a connect is still answered,
    /// [`LinkError::Io`].
    async fn cut(&self, cut: Cut) -> Result<CutId, LinkError>;

    /// What a program that is not ours tells of a cut in force, as a further proof of it.
    fn told_of(&self, _cut: CutId) -> Option<String> {
        None
    }

    /// Returns when a process of the link has ended by itself, with its last words; never where it has none.
    async fn died(&self) -> String {
        std::future::pending().await
    }

    /// True while the link listens for the broker: the broker is alive as far as is known, and no cut refuses connects or
    /// leaves them unanswered.
    fn is_open(&self, node: NodeId) -> bool;

    /// Takes a cut back. Returns when traffic can flow again.
    ///
    /// # Errors
    /// [`LinkError::NoCut`], otherwise as [`Link::cut`].
    async fn heal(&self, cut: CutId) -> Result<(), LinkError>;

    /// Tells the link that a broker is about to die: it stops listening for it at once, so that readers are refused.
    /// It listens again, on the same port, once [`Link::broker_back`] was called and the broker accepts connections.
    ///
    /// # Errors
    /// [`LinkError::NoBroker`], [`LinkError::Io`].
    async fn broker_going(&self, node: NodeId) -> Result<(), LinkError>;

    /// Returns when the link listens for the broker again and reaches it.
    ///
    /// # Errors
    /// [`LinkError::NoBroker`], [`LinkError::TimedOut`] when it does not within `within`.
    async fn broker_back(&self, node: NodeId, within: Duration) -> Result<(), LinkError>;

    /// Has a broker move to another address: the link listens on the same port of another loopback address, refuses on the
    /// old one from now on and resets the connections that came there. `tells` says whether answers name the new address;
    /// where readers are told names, they never do. Returns the new address once it accepts.
    ///
    /// # Errors
    /// [`LinkError::NoBroker`], [`LinkError::Port`], [`LinkError::Io`]; [`LinkError::Cannot`] where a program that is not
    /// ours listens.
    async fn move_address(&self, node: NodeId, _tells: bool) -> Result<SocketAddr, LinkError> {
        Err(LinkError::Cannot {
            what: format!("move broker {node} to another address"),
        })
    }

    /// Arms a rule that answers matching requests with an error code.
    fn arm(&self, rule: AnswerRule) -> RuleId;

    /// Takes a rule back and returns its last counts.
    fn disarm(&self, rule: RuleId) -> RuleCounts;

    /// Answers from now on as a cluster does that has no such topic: UNKNOWN_TOPIC_OR_PARTITION in Metadata, Fetch,
    /// ListOffsets, OffsetForLeaderEpoch and OffsetCommit (UNKNOWN_TOPIC_ID where the topic is named by its id), and no
    /// word of it in an answer that lists all topics. The cluster itself is not asked for the topic meanwhile. `fault`
    /// stands in the `WireError` events of those answers; faults may overlap.
    fn hide_topic(&self, topic: &str, fault: &str);

    /// Takes back what one fault hides, and returns what came of it: answers changed, and answers that might have named
    /// the topic and could not be decoded.
    fn show_topic(&self, topic: &str, fault: &str) -> RuleCounts;

    /// Shows readers only the partitions of a topic below this number, as a cluster does to which the others are not
    /// added yet; `None` shows all. What is asked of the others is answered UNKNOWN_TOPIC_OR_PARTITION.
    fn limit_partitions(&self, topic: &str, partitions: Option<u32>);

    /// Metadata answers that told readers of a topic as it is shown now: since it was last hidden, shown or limited. 0 for
    /// a topic that never was.
    fn metadata_answers(&self, topic: &str) -> u64;

    /// Connections of this client that are open now; an empty client id counts all.
    fn open_connections(&self, client: &str) -> u32;

    /// Waits until a client has no connection left, at most `within`; returns how many it still has.
    async fn closed_within(&self, client: &str, within: Duration) -> u32 {
        let deadline = tokio::time::Instant::now() + within;
        loop {
            let open = self.open_connections(client);
            if open == 0 || tokio::time::Instant::now() >= deadline {
                return open;
            }
            before_the_next_look(LOOK_AGAIN).await;
        }
    }

    /// Connections to a broker on which a request of a reader has waited for its answer for [`UNANSWERED_AFTER`] or longer.
    fn unanswered(&self, node: NodeId) -> u32;

    /// Milliseconds since a client last sent a request of this api; `None` when it never did. An empty client id means
    /// any client.
    fn last_request_age_ms(&self, client: &str, api: &str) -> Option<u64>;

    /// The assignor that a member of this group offered first when it last asked to join; `None` before any did.
    fn assignor(&self, group: &str) -> Option<String>;

    /// Flushes what taps have counted into the history.
    fn flush(&self);

    /// Closes every listener and connection. Idempotent.
    async fn shutdown(&self);
}

/// Identifies a cut in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CutId(pub u64);

/// Identifies an armed rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RuleId(pub u64);

/// A fault of the network between the reader and some brokers.
#[derive(Debug, Clone, PartialEq)]
pub struct Cut {
    /// Brokers it strikes.
    pub nodes: Vec<NodeId>,
    /// What it does.
    pub mode: CutMode,
    /// Which way; `Both` for modes that close connections.
    pub direction: Direction,
    /// What becomes of held connections when it is healed.
    pub heals: CutHeal,
    /// What becomes of new connects during a hold.
    pub connects: Connects,
}

/// What a cut does to traffic.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CutMode {
    /// Half-open: nothing is read or written, nothing is discarded.
    Hold,
    /// Live connections are reset once, and every new one too while the cut is in force.
    Reset,
    /// Connects are refused; live connections are reset once.
    Refuse,
    /// At most this many bytes a second and direction.
    Throttle {
        /// Bytes a second, at least 1.
        bytes_per_s: u64,
    },
    /// Each chunk is forwarded later, in order: by a time drawn evenly from `by` less `jitter` to `by` more `jitter`.
    Delay {
        /// The delay.
        by: Duration,
        /// How far it may differ; at most `by`.
        jitter: Duration,
    },
    /// A connection is reset in the middle of a response to its client; others and later ones pass.
    MidResponse {
        /// Bytes of the response after its length and correlation id that still arrive. Only longer responses are cut.
        after_bytes: u64,
        /// Key of the api whose responses are cut; absent means any.
        api: Option<i16>,
        /// How many responses are cut on all its brokers together; absent means until it is healed.
        times: Option<u64>,
    },
}

/// Direction of a cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Both ways.
    Both,
    /// What the reader sends.
    ToBroker,
    /// What the broker answers.
    ToReader,
}

/// What becomes of a new connect during a hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Connects {
    /// It succeeds, as where a kernel still accepts for a process that is stopped.
    #[default]
    Accepted,
    /// It gets no answer, as where packets are dropped.
    Unanswered,
}

/// What becomes of held connections at the heal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutHeal {
    /// Bytes flow on.
    Keep,
    /// They are reset.
    Reset,
}

/// Answers matching requests with an error code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerRule {
    /// Name of the fault; it stands in the `WireError` events of answers that this rule gave.
    pub fault: String,
    /// Api name, such as `Fetch`.
    pub api: String,
    /// Error code.
    pub code: i16,
    /// Only this topic; for apis that carry topics.
    pub topic: Option<String>,
    /// Only this partition; for apis that carry partitions.
    pub partition: Option<u32>,
    /// Only this `client.id`.
    pub client: Option<String>,
    /// How many matching answers; absent means until it is disarmed.
    pub times: Option<u64>,
}

/// What a rule did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RuleCounts {
    /// Responses that matched.
    pub matched: u64,
    /// Responses that were changed.
    pub triggered: u64,
    /// Responses of the rule's api that could not be decoded while it was armed; any makes the run void.
    pub undecodable: u64,
}

/// Why a link could not do something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// No port to listen on.
    #[error("no port for the link")]
    Port(#[from] crate::ports::PortError),
    /// The broker is not one of the link's.
    #[error("the link stands in front of no broker {node}")]
    NoBroker {
        /// Node id.
        node: NodeId,
    },
    /// This link is not able to.
    #[error("this link cannot {what} (run with --link builtin)")]
    Cannot {
        /// What was asked.
        what: String,
    },
    /// The cut is not in force.
    #[error("no cut {id} is in force on the link")]
    NoCut {
        /// Cut id.
        id: u64,
    },
    /// Something did not become true in time.
    #[error("{what} did not become true within {within:?}")]
    TimedOut {
        /// What was awaited.
        what: String,
        /// How long.
        within: Duration,
    },
    /// Toxiproxy failed.
    #[cfg(feature = "toxiproxy")]
    #[error("the link `toxiproxy`")]
    Toxiproxy(#[source] Box<toxiproxy::ToxiproxyError>),
    /// The operating system refused.
    #[error("{what}")]
    Io {
        /// What was being done.
        what: String,
        /// Its answer.
        #[source]
        source: std::io::Error,
    },
}
