//! The link `toxiproxy`: a real Toxiproxy server does the cuts, and the builtin link behind it does the rest.
//!
//! ```text
//! reader ── Toxiproxy ── builtin link ── broker
//!             │  ▲          taps, answer rules, views, rewriting (readers are told of Toxiproxy's ports), cures
//!     sockets │  │ api
//!             ▼  │
//!           ToxiproxyLink: toxics (what cuts mean), state by state, read back after each change; program, server: the child
//! ```
//!
//! A cut in force is proven by what Toxiproxy tells of its proxies, and that it hit a connection by what the kernel tells of
//! Toxiproxy's sockets. Where it differs from the builtin link: connections that were open when a reset or refusal came are
//! closed (FIN) rather than reset, because Toxiproxy resets new ones only; a FIN passes a hold with nothing before it; a broker
//! that dies unannounced is seen as an accept and a close; jitter follows no seed. Deliberately not here: what Toxiproxy cannot do, which is a
//! named skip (`scenario/needs.rs`).

pub mod api;
mod evidence;
pub mod program;
mod server;
mod sockets;
pub mod toxics;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use super::builtin::{BuiltinLink, LinkOptions};
use super::{AnswerRule, Connects, Cut, CutId, CutMode, Link, LinkError, RuleCounts, RuleId};
use crate::cluster::NodeId;
use crate::history::recorder::Recorder;
use crate::ports::{self, Port, PortError};
use crate::process::SpawnError;
use api::{Api, ApiError, NewProxy};
use evidence::Watch;
pub use program::{Program, ProgramError, VERSION};
use server::Server;
use sockets::Of;
use toxics::{KILOBYTE, State};

/// How long connections that Toxiproxy has closed may take to be seen closed behind it.
const SETTLES_WITHIN: Duration = Duration::from_secs(2);
/// Between two looks at them.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Toxiproxy in front of every broker of a cluster.
pub struct ToxiproxyLink {
    behind: Arc<BuiltinLink>,
    server: Server,
    api: Api,
    fronts: Vec<Front>,
    /// One change at a time: each is read back.
    inner: tokio::sync::Mutex<Inner>,
    watches: Mutex<HashMap<u64, Watch>>,
    told: Mutex<HashMap<u64, String>>,
    next_cut: AtomicU64,
}

/// A broker as readers reach it.
struct Front {
    node: NodeId,
    /// The proxy's name.
    proxy: String,
    /// Held, and bound by Toxiproxy a second time: while the proxy is disabled it refuses, and nobody else can take it.
    port: Arc<Port>,
    enabled: AtomicBool,
}

/// What is in force.
#[derive(Default)]
struct Inner {
    cuts: BTreeMap<u64, Cut>,
    /// Brokers that are dead or about to die.
    going: HashSet<NodeId>,
}

/// Why Toxiproxy could not do something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToxiproxyError {
    /// The server did not come up.
    #[error("Toxiproxy did not come up at {control}: {text} (run with --link builtin to do without it)")]
    NotStarted {
        /// Where its API was to be.
        control: SocketAddr,
        /// Its last words, or how long was waited.
        text: String,
    },
    /// Another version answers.
    #[error(
        "Toxiproxy at {control} is {found} (wanted {VERSION}; remove the folder of its program, which `brokerfall doctor` names)"
    )]
    Version {
        /// Where its API is.
        control: SocketAddr,
        /// What it says.
        found: String,
    },
    /// Its API did not do as asked.
    #[error("its API did not do as asked")]
    Api(#[from] ApiError),
    /// Its API did not do as asked, and its log says why.
    #[error("its API did not do as asked (the last line of its log: {log})")]
    Complained {
        /// What the API answered.
        #[source]
        source: Box<ApiError>,
        /// The log's last line.
        log: String,
    },
    /// A cut that it cannot do; such a plan is skipped before its run.
    #[error("Toxiproxy cannot {what} (a bug in the harness: such a plan is to be skipped)")]
    Cannot {
        /// What was asked for.
        what: &'static str,
    },
    /// No ports.
    #[error("no port for it")]
    Port(#[from] PortError),
    /// Its process could not be started.
    #[error("its process cannot be started")]
    Spawn(#[from] SpawnError),
    /// The kernel does not tell of sockets, so that no cut could be proven to have hit anything.
    #[error(
        "the kernel does not tell of sockets, which is what proves a cut (wanted sock_diag over netlink: `modprobe tcp_diag`, or run with --link builtin)"
    )]
    Sockets(#[source] std::io::Error),
}

impl From<ToxiproxyError> for LinkError {
    fn from(cause: ToxiproxyError) -> Self {
        LinkError::Toxiproxy(Box::new(cause))
    }
}

impl ToxiproxyLink {
    /// Starts a server and listens in front of every broker. `own` is the harness's binary, for the watchdog of its children.
    ///
    /// # Errors
    /// [`LinkError::Port`], [`LinkError::Io`], and [`LinkError::Toxiproxy`] for all that the server can do wrong.
    pub async fn start(
        program: &Program,
        own: &Path,
        upstreams: Vec<(NodeId, SocketAddr)>,
        recorder: Recorder,
        options: LinkOptions,
    ) -> Result<Self, LinkError> {
        let ports = ports::reserve(upstreams.len())?.into_iter().map(Arc::new).collect();
        Self::start_on(ports, program, own, upstreams, recorder, options).await
    }

    /// Listens on ports that are held already, one for each broker: those that the brokers advertise.
    ///
    /// # Errors
    /// As [`ToxiproxyLink::start`].
    pub(crate) async fn start_on(
        ports: Vec<Arc<Port>>,
        program: &Program,
        own: &Path,
        upstreams: Vec<(NodeId, SocketAddr)>,
        recorder: Recorder,
        options: LinkOptions,
    ) -> Result<Self, LinkError> {
        let fronts: Vec<Front> = upstreams
            .iter()
            .zip(ports)
            .map(|((node, _), port)| Front {
                node: *node,
                proxy: format!("broker-{node}"),
                port,
                enabled: AtomicBool::new(true),
            })
            .collect();
        let told: Vec<_> = fronts.iter().map(|front| (front.node, front.port.address())).collect();
        let behind = BuiltinLink::start_behind(&told, upstreams, recorder, options)?;
        let (server, api) = Server::start(program, own).await?;
        let link = ToxiproxyLink {
            behind: Arc::new(behind),
            server,
            api,
            fronts,
            inner: tokio::sync::Mutex::default(),
            watches: Mutex::default(),
            told: Mutex::default(),
            next_cut: AtomicU64::new(0),
        };
        if let Err(cause) = link.populate().await {
            link.shutdown().await;
            return Err(cause);
        }
        Ok(link)
    }

    /// Process id of the server.
    pub fn pid(&self) -> u32 {
        self.server.pid()
    }

    async fn populate(&self) -> Result<(), LinkError> {
        let mut proxies = Vec::with_capacity(self.fronts.len());
        for front in &self.fronts {
            let upstream = self.behind.address(front.node);
            proxies.push(NewProxy {
                name: front.proxy.clone(),
                listen: front.port.address(),
                upstream: upstream.ok_or(LinkError::NoBroker { node: front.node })?,
            });
            sockets::connected(Of::Local(front.port.address())).map_err(ToxiproxyError::Sockets)?;
        }
        self.api
            .populate(&proxies)
            .await
            .map_err(|cause| self.complained(cause))?;
        Ok(())
    }

    /// An error of the API, with what the server's log says of it.
    fn complained(&self, source: ApiError) -> ToxiproxyError {
        match self.server.complaint() {
            Some(log) => ToxiproxyError::Complained {
                source: Box::new(source),
                log,
            },
            None => ToxiproxyError::Api(source),
        }
    }

    fn failed(&self, cause: Failed) -> LinkError {
        match cause {
            Failed::Api(cause) => self.complained(cause).into(),
            Failed::Link(cause) => cause,
        }
    }

    fn front(&self, node: NodeId) -> Result<&Front, LinkError> {
        let found = self.fronts.iter().find(|front| front.node == node);
        found.ok_or(LinkError::NoBroker { node })
    }

    /// Makes a proxy what it should be, and returns its state as Toxiproxy tells it.
    async fn reconcile(&self, front: &Front, inner: &Inner) -> Result<State, LinkError> {
        let cuts = inner.cuts.values().filter(|cut| cut.nodes.contains(&front.node));
        let wanted = State::compose(inner.going.contains(&front.node), cuts.clone());
        let resets = cuts.clone().any(|cut| cut.mode == CutMode::Reset);
        if resets {
            // A connection that says something while the toxic comes in force is closed by it.
            self.behind.cut_in_front(front.node, true)?;
        }
        let changed = self.change(front, &wanted).await;
        changed.map_err(|cause| self.failed(cause))?;
        // While the proxy is disabled too: what the link behind had not accepted yet ends only then.
        self.behind.cut_in_front(front.node, resets || !wanted.enabled)?;
        Ok(wanted)
    }

    async fn change(&self, front: &Front, wanted: &State) -> Result<(), Failed> {
        let (api, proxy) = (&self.api, front.proxy.as_str());
        let found = api.state(proxy).await?;
        // The port first when it is to refuse, its toxics first when it is to accept.
        if found.enabled && !wanted.enabled {
            self.close(front).await?;
        }
        for toxic in found.toxics.iter().filter(|toxic| wanted.toxic(toxic).is_none()) {
            let closes = toxic.kind == toxics::Kind::Timeout;
            if closes {
                self.behind.cut_in_front(front.node, true)?;
                let open = self.behind.open(front.node);
                api.remove(proxy, toxic).await?;
                self.closed(front.node, &open).await?;
            } else {
                api.remove(proxy, toxic).await?;
            }
        }
        for toxic in &wanted.toxics {
            match found.toxic(toxic) {
                Some(same) if same == toxic => {}
                Some(_) => api.update(proxy, toxic).await?,
                None => api.add(proxy, toxic).await?,
            }
        }
        if wanted.enabled && !found.enabled {
            api.enable(proxy, true).await?;
        }
        front.enabled.store(wanted.enabled, Ordering::Release);
        Ok(())
    }

    /// Disables a proxy, which closes its connections, and returns when they are seen closed behind it.
    async fn close(&self, front: &Front) -> Result<(), Failed> {
        self.behind.cut_in_front(front.node, true)?;
        front.enabled.store(false, Ordering::Release);
        let open = self.behind.open(front.node);
        self.api.enable(&front.proxy, false).await?;
        self.closed(front.node, &open).await
    }

    /// Returns when these connections are closed at the client's side.
    async fn closed(&self, node: NodeId, open: &HashSet<u64>) -> Result<(), Failed> {
        let deadline = Instant::now() + SETTLES_WITHIN;
        while !self.behind.open(node).is_disjoint(open) {
            if Instant::now() >= deadline {
                return Err(Failed::Link(LinkError::TimedOut {
                    what: format!("that the connections which Toxiproxy has closed to broker {node} ended"),
                    within: SETTLES_WITHIN,
                }));
            }
            crate::before_the_next_look(LOOK_AGAIN).await;
        }
        Ok(())
    }

    /// Closes the connections that there are; the proxy listens again when this returns.
    async fn close_live(&self, front: &Front) -> Result<(), Failed> {
        self.close(front).await?;
        self.api.enable(&front.proxy, true).await?;
        front.enabled.store(true, Ordering::Release);
        Ok(())
    }

    async fn put_in_force(&self, id: u64, cut: &Cut, inner: &mut Inner) -> Result<(), LinkError> {
        inner.cuts.insert(id, cut.clone());
        let mut told = Vec::with_capacity(cut.nodes.len());
        for &node in &cut.nodes {
            let front = self.front(node)?;
            let state = self.reconcile(front, inner).await?;
            // Toxiproxy resets only what is connected after its toxic is there.
            if cut.mode == CutMode::Reset && state.enabled {
                let closed = self.close_live(front).await;
                closed.map_err(|cause| self.failed(cause))?;
            }
            told.push(format!("{} is {state}", front.proxy));
        }
        crate::lock(&self.told).insert(id, format!("Toxiproxy {VERSION} tells that {}", told.join("; ")));
        let places: Vec<_> = cut
            .nodes
            .iter()
            .filter_map(|&node| Some((node, self.address(node)?, self.behind.address(node)?)))
            .collect();
        if let Some(watch) = Watch::start(cut, &places, &self.behind).map_err(ToxiproxyError::Sockets)? {
            crate::lock(&self.watches).insert(id, watch);
        }
        Ok(())
    }

    async fn take_back(&self, id: u64, inner: &mut Inner) -> Result<(), LinkError> {
        let Some(cut) = inner.cuts.remove(&id) else {
            return Err(LinkError::NoCut { id });
        };
        if let Some(watch) = crate::lock(&self.watches).remove(&id) {
            watch.end();
        }
        crate::lock(&self.told).remove(&id);
        for &node in &cut.nodes {
            self.reconcile(self.front(node)?, inner).await?;
        }
        Ok(())
    }
}

/// Why a change did not come about.
enum Failed {
    Api(ApiError),
    Link(LinkError),
}

impl From<ApiError> for Failed {
    fn from(cause: ApiError) -> Self {
        Failed::Api(cause)
    }
}

impl From<LinkError> for Failed {
    fn from(cause: LinkError) -> Self {
        Failed::Link(cause)
    }
}

/// What Toxiproxy cannot do.
fn cannot(cut: &Cut) -> Option<&'static str> {
    match cut.mode {
        CutMode::Hold if cut.connects == Connects::Unanswered => Some("leave connects unanswered"),
        CutMode::MidResponse { .. } => Some("cut a response in the middle"),
        CutMode::Throttle { bytes_per_s } if bytes_per_s % KILOBYTE != 0 || bytes_per_s == 0 => {
            Some("throttle to part of a kilobyte a second")
        }
        CutMode::Delay { by, jitter } if !is_whole(by) || !is_whole(jitter) => Some("delay by part of a millisecond"),
        _ => None,
    }
}

/// Whole milliseconds.
pub(crate) fn is_whole(duration: Duration) -> bool {
    duration.subsec_nanos().is_multiple_of(1_000_000)
}

#[async_trait]
impl Link for ToxiproxyLink {
    fn bootstrap(&self) -> String {
        let addresses: Vec<String> = self
            .fronts
            .iter()
            .map(|front| front.port.address().to_string())
            .collect();
        addresses.join(",")
    }

    fn address(&self, node: NodeId) -> Option<SocketAddr> {
        self.front(node).ok().map(|front| front.port.address())
    }

    async fn cut(&self, cut: Cut) -> Result<CutId, LinkError> {
        if let Some(what) = cannot(&cut) {
            return Err(ToxiproxyError::Cannot { what }.into());
        }
        for &node in &cut.nodes {
            self.front(node)?;
        }
        let id = self.next_cut.fetch_add(1, Ordering::Relaxed);
        let mut inner = self.inner.lock().await;
        if let Err(cause) = self.put_in_force(id, &cut, &mut inner).await {
            // Nobody could take it back later, since its id is not told. OK to drop an error of that: the first one counts,
            // and the server ends with the run.
            let _ = self.take_back(id, &mut inner).await;
            return Err(cause);
        }
        Ok(CutId(id))
    }

    fn told_of(&self, cut: CutId) -> Option<String> {
        crate::lock(&self.told).get(&cut.0).cloned()
    }

    async fn heal(&self, cut: CutId) -> Result<(), LinkError> {
        let mut inner = self.inner.lock().await;
        self.take_back(cut.0, &mut inner).await
    }

    async fn died(&self) -> String {
        format!("Toxiproxy: {}", self.server.ended().await)
    }

    fn is_open(&self, node: NodeId) -> bool {
        self.front(node)
            .is_ok_and(|front| front.enabled.load(Ordering::Acquire))
            && self.behind.is_open(node)
    }

    async fn broker_going(&self, node: NodeId) -> Result<(), LinkError> {
        let front = self.front(node)?;
        let mut inner = self.inner.lock().await;
        inner.going.insert(node);
        self.reconcile(front, &inner).await?;
        self.behind.broker_going(node).await
    }

    async fn broker_back(&self, node: NodeId, within: Duration) -> Result<(), LinkError> {
        let front = self.front(node)?;
        self.behind.broker_back(node, within).await?;
        let mut inner = self.inner.lock().await;
        inner.going.remove(&node);
        self.reconcile(front, &inner).await?;
        Ok(())
    }

    fn arm(&self, rule: AnswerRule) -> RuleId {
        self.behind.arm(rule)
    }

    fn disarm(&self, rule: RuleId) -> RuleCounts {
        self.behind.disarm(rule)
    }

    fn hide_topic(&self, topic: &str, fault: &str) {
        self.behind.hide_topic(topic, fault);
    }

    fn show_topic(&self, topic: &str, fault: &str) -> RuleCounts {
        self.behind.show_topic(topic, fault)
    }

    fn limit_partitions(&self, topic: &str, partitions: Option<u32>) {
        self.behind.limit_partitions(topic, partitions);
    }

    fn metadata_answers(&self, topic: &str) -> u64 {
        self.behind.metadata_answers(topic)
    }

    /// Behind a hold a reader's FIN may wait in Toxiproxy for the bytes before it. What the kernel no longer has as open at the
    /// reader's end is taken off, in the reader's favour where it cannot be told whose it was.
    fn open_connections(&self, client: &str) -> u32 {
        let all = self.behind.open_connections("");
        let seen = |front: &Front| sockets::connected(Of::Local(front.port.address())).ok();
        let open: Option<usize> = self
            .fronts
            .iter()
            .map(|front| Some(seen(front)?.values().filter(|seen| seen.established).count()))
            .sum();
        let closed = open.map_or(0, |open| all.saturating_sub(u32::try_from(open).unwrap_or(u32::MAX)));
        self.behind.open_connections(client).saturating_sub(closed)
    }

    fn unanswered(&self, node: NodeId) -> u32 {
        self.behind.unanswered(node)
    }

    fn last_request_age_ms(&self, client: &str, api: &str) -> Option<u64> {
        self.behind.last_request_age_ms(client, api)
    }

    fn assignor(&self, group: &str) -> Option<String> {
        self.behind.assignor(group)
    }

    fn flush(&self) {
        self.behind.flush();
    }

    async fn shutdown(&self) {
        for (_, watch) in crate::lock(&self.watches).drain() {
            watch.end();
        }
        // Proxies and toxics end with the server.
        self.server.end().await;
        self.behind.shutdown().await;
    }
}
