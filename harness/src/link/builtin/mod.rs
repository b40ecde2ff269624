//! The builtin link: a Kafka-aware proxy on tokio.
//!
//! ```text
//! client ── broker::accept ── connection::serve ── upstream broker
//!                               │ frame     where frames end
//!                               │ exchange  request / response: tap, rewrite, view, rule, cure, group
//!                               ├ cut       what is in force: hold, reset, refuse, throttle, delay; sever: cut in mid-response
//!                               └ idle      closed when nothing goes either way
//! broker::probe: is the upstream alive?     shut::keep: connects that get no answer
//! tap::Taps: counts, flushed into the history four times a second
//! ```
//!
//! Frames pass as the bytes they came as unless something in them has to be changed. A frame that cannot be decoded passes
//! untouched and is counted. Deliberately not here: TLS and SASL tokens, which pass as they are and cannot be read.

#[cfg(feature = "toxiproxy")]
mod behind;
mod broker;
mod connection;
mod cure;
mod cut;
mod exchange;
mod frame;
mod group;
mod idle;
mod lane;
mod request;
mod rewrite;
mod rule;
mod sever;
mod shut;
mod tap;
#[cfg(test)]
mod tests;
mod told;
mod trouble;
mod views;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use brokerfall_report::history::Event;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::MissedTickBehavior;

use super::{
    AnswerRule, Connects, Cut, CutHeal, CutId, CutMode, Link, LinkError, PROBE, RuleCounts, RuleId, UNANSWERED_AFTER,
    codes,
};
use crate::cluster::NodeId;
use crate::history::recorder::Recorder;
use crate::ports::{self, Port};
use broker::Broker;
use cure::SyncGate;
use exchange::TopicIds;
use group::Groups;
pub(crate) use group::assignment;
use rewrite::Addresses;
pub(crate) use rewrite::name_of;
use rule::Rules;
use sever::Severs;
use tap::Taps;
use told::Told;
use views::Views;

/// Length of a window of the taps.
const WINDOW: Duration = Duration::from_millis(250);
/// How long a change may take to reach every connection.
const SETTLES_WITHIN: Duration = Duration::from_secs(2);

/// How a link behaves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkOptions {
    /// The cluster is librdkafka's mock: its answers are cured on the way.
    pub emulated: bool,
    /// A connection on which nothing goes either way for this long is closed, as a broker does; absent means never.
    pub idle: Option<Duration>,
    /// What the jitter of delays is drawn from.
    pub seed: u64,
    /// Readers are told names of brokers and not addresses; whoever starts them lets them resolve those.
    pub named: bool,
}

/// A proxy in front of every broker of a cluster.
///
/// ```no_run
/// # use brokerfall::history::recorder::Recorder;
/// # use brokerfall::link::{Link, builtin::{BuiltinLink, LinkOptions}};
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let upstreams = vec![(1, "127.0.0.1:9092".parse()?)];
/// let link = BuiltinLink::start(upstreams, Recorder::new(None)?, LinkOptions { emulated: true, ..LinkOptions::default() })?;
/// println!("the reader is given {}", link.bootstrap());
/// link.shutdown().await;
/// # Ok(())
/// # }
/// ```
pub struct BuiltinLink {
    shared: Arc<Shared>,
    next_cut: AtomicU64,
}

/// What all connections of a link share.
struct Shared {
    options: LinkOptions,
    brokers: Vec<Arc<Broker>>,
    addresses: Addresses,
    topic_ids: TopicIds,
    taps: Taps,
    told: Told,
    rules: Rules,
    severs: Severs,
    views: Views,
    groups: Groups,
    sync_gate: SyncGate,
    undecodable: AtomicU64,
    /// Texts of the failures recorded so far.
    failures: Mutex<HashSet<String>>,
    /// True once everything is to end.
    stop: watch::Sender<bool>,
    tasks: Mutex<JoinSet<()>>,
}

impl BuiltinLink {
    /// Listens in front of every broker. Returns when every port accepts; needs a tokio runtime around it.
    ///
    /// # Errors
    /// [`LinkError::Port`] when too few ports are free, [`LinkError::Io`] when the operating system refuses one.
    pub fn start(
        upstreams: Vec<(NodeId, SocketAddr)>,
        recorder: Recorder,
        options: LinkOptions,
    ) -> Result<Self, LinkError> {
        let ports = ports::reserve(upstreams.len())?.into_iter().map(Arc::new).collect();
        Self::start_on(ports, upstreams, recorder, options)
    }

    /// Listens on ports that are held already, one for each broker: those that the brokers advertise. One link at a time.
    ///
    /// # Errors
    /// [`LinkError::Io`] when the operating system refuses one.
    pub(crate) fn start_on(
        ports: Vec<Arc<Port>>,
        upstreams: Vec<(NodeId, SocketAddr)>,
        recorder: Recorder,
        options: LinkOptions,
    ) -> Result<Self, LinkError> {
        let told = upstreams
            .iter()
            .zip(&ports)
            .map(|((node, _), port)| (*node, port.address()));
        let addresses = match options.named {
            true => Addresses::named(told),
            false => Addresses::new(told),
        };
        Self::start_telling(addresses, ports, upstreams, recorder, options)
    }

    /// The same, where readers are told of other addresses than these ports.
    fn start_telling(
        addresses: Addresses,
        ports: Vec<Arc<Port>>,
        upstreams: Vec<(NodeId, SocketAddr)>,
        recorder: Recorder,
        options: LinkOptions,
    ) -> Result<Self, LinkError> {
        let mut brokers = Vec::with_capacity(upstreams.len());
        for ((node, upstream), port) in upstreams.into_iter().zip(ports) {
            brokers.push(Arc::new(Broker::new(node, upstream, port)?));
        }
        let shared = Arc::new(Shared::new(addresses, brokers, recorder, options));
        for broker in &shared.brokers {
            shared.spawn(broker::accept(Arc::clone(&shared), Arc::clone(broker)));
            shared.spawn(broker::probe(Arc::clone(&shared), Arc::clone(broker)));
            shared.spawn(shut::keep(Arc::clone(&shared), Arc::clone(broker)));
        }
        shared.spawn(flush_often(Arc::clone(&shared)));
        Ok(BuiltinLink {
            shared,
            next_cut: AtomicU64::new(0),
        })
    }

    /// Frames so far that could not be decoded and passed untouched.
    pub fn undecodable(&self) -> u64 {
        self.shared.undecodable.load(Ordering::Relaxed)
    }

    fn broker(&self, node: NodeId) -> Result<&Arc<Broker>, LinkError> {
        let found = self.shared.brokers.iter().find(|broker| broker.node == node);
        found.ok_or(LinkError::NoBroker { node })
    }
}

impl Shared {
    fn new(addresses: Addresses, brokers: Vec<Arc<Broker>>, recorder: Recorder, options: LinkOptions) -> Self {
        Shared {
            options,
            addresses,
            brokers,
            topic_ids: TopicIds::default(),
            taps: Taps::new(recorder),
            told: Told::default(),
            rules: Rules::default(),
            severs: Severs::default(),
            views: Views::default(),
            groups: Groups::default(),
            sync_gate: SyncGate::new(),
            undecodable: AtomicU64::new(0),
            failures: Mutex::new(HashSet::new()),
            stop: watch::Sender::new(false),
            tasks: Mutex::new(JoinSet::new()),
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks();
        // Tasks that ended are forgotten here, so that the set does not grow with every connection.
        while let Some(ended) = tasks.try_join_next() {
            self.check(ended);
        }
        tasks.spawn(task);
    }

    /// A task that panicked is a bug of the link, which must not pass for a broken connection.
    fn check(&self, ended: Result<(), JoinError>) {
        if let Err(cause) = ended {
            self.fail(format!("a task of the link failed: {cause}"));
        }
    }

    fn count_undecodable(&self) {
        self.undecodable.fetch_add(1, Ordering::Relaxed);
    }

    fn record_all(&self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            self.taps.recorder().record(event);
        }
    }

    fn tasks(&self) -> MutexGuard<'_, JoinSet<()>> {
        crate::lock(&self.tasks)
    }
}

async fn flush_often(shared: Arc<Shared>) {
    let mut stop = shared.stop.subscribe();
    let mut window = tokio::time::interval(WINDOW);
    window.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            _ = window.tick() => shared.taps.flush(),
        }
    }
}

#[async_trait]
impl Link for BuiltinLink {
    fn bootstrap(&self) -> String {
        self.shared.addresses.bootstrap()
    }

    fn address(&self, node: NodeId) -> Option<SocketAddr> {
        self.broker(node).ok().map(|broker| broker.address())
    }

    async fn cut(&self, cut: Cut) -> Result<CutId, LinkError> {
        let brokers = cut
            .nodes
            .iter()
            .map(|node| self.broker(*node))
            .collect::<Result<Vec<_>, _>>()?;
        let id = CutId(self.next_cut.fetch_add(1, Ordering::Relaxed));
        self.shared.severs.arm(id, &cut);
        let mut versions = Vec::with_capacity(brokers.len());
        for broker in &brokers {
            versions.push(broker.cut(id, cut.clone())?);
        }
        for (broker, version) in brokers.iter().zip(versions) {
            let settled = async {
                broker.settled(version, SETTLES_WITHIN).await?;
                broker.shut(SETTLES_WITHIN).await
            };
            if let Err(cause) = settled.await {
                // Nobody could take it back later, since its id is not told.
                self.shared.severs.disarm(id);
                brokers.iter().try_for_each(|broker| broker.heal(id).map(drop))?;
                return Err(cause);
            }
        }
        Ok(id)
    }

    async fn heal(&self, cut: CutId) -> Result<(), LinkError> {
        self.shared.severs.disarm(cut);
        let mut healed = Vec::new();
        for broker in &self.shared.brokers {
            if let Some(version) = broker.heal(cut)? {
                healed.push((broker, version));
            }
        }
        if healed.is_empty() {
            return Err(LinkError::NoCut { id: cut.0 });
        }
        for (broker, version) in healed {
            broker.settled(version, SETTLES_WITHIN).await?;
            // Another cut may leave connects unanswered still.
            broker.shut(SETTLES_WITHIN).await?;
        }
        Ok(())
    }

    fn is_open(&self, node: NodeId) -> bool {
        self.broker(node).is_ok_and(|broker| broker.is_open())
    }

    async fn broker_going(&self, node: NodeId) -> Result<(), LinkError> {
        self.broker(node)?.going()
    }

    async fn broker_back(&self, node: NodeId, within: Duration) -> Result<(), LinkError> {
        self.broker(node)?.back(within).await
    }

    async fn move_address(&self, node: NodeId, tells: bool) -> Result<SocketAddr, LinkError> {
        let broker = self.broker(node)?;
        let port = Arc::new(ports::beside(broker.address())?);
        let to = port.address();
        let version = broker.move_to(port)?;
        if tells && !self.shared.options.named {
            self.shared.addresses.moved(node, to);
        }
        broker.settled(version, SETTLES_WITHIN).await?;
        Ok(to)
    }

    fn arm(&self, rule: AnswerRule) -> RuleId {
        self.shared.rules.arm(rule)
    }

    fn disarm(&self, rule: RuleId) -> RuleCounts {
        self.shared.rules.disarm(rule)
    }

    fn hide_topic(&self, topic: &str, fault: &str) {
        self.shared.views.hide(topic, fault);
    }

    fn show_topic(&self, topic: &str, fault: &str) -> RuleCounts {
        self.shared.views.show(topic, fault)
    }

    fn limit_partitions(&self, topic: &str, partitions: Option<u32>) {
        self.shared.views.limit(topic, partitions);
    }

    fn metadata_answers(&self, topic: &str) -> u64 {
        self.shared.views.told(topic)
    }

    fn open_connections(&self, client: &str) -> u32 {
        self.shared
            .brokers
            .iter()
            .map(|broker| broker.open_connections(client))
            .sum()
    }

    fn unanswered(&self, node: NodeId) -> u32 {
        self.broker(node)
            .map_or(0, |broker| broker.unanswered(UNANSWERED_AFTER, PROBE))
    }

    fn last_request_age_ms(&self, client: &str, api: &str) -> Option<u64> {
        self.shared.taps.last_request_age_ms(client, codes::api_key(api)?)
    }

    fn assignor(&self, group: &str) -> Option<String> {
        self.shared.groups.assignor(group)
    }

    fn flush(&self) {
        self.shared.taps.flush();
    }

    async fn shutdown(&self) {
        self.shared.stop.send_replace(true);
        for broker in &self.shared.brokers {
            broker.close();
        }
        // A connection may be accepted while the others end, so the set is emptied until it stays empty.
        loop {
            let mut tasks = std::mem::take(&mut *self.shared.tasks());
            if tasks.is_empty() {
                break;
            }
            while let Some(ended) = tasks.join_next().await {
                self.shared.check(ended);
            }
        }
        self.shared.taps.flush();
    }
}

impl Drop for BuiltinLink {
    fn drop(&mut self) {
        // Tasks share the link's state, so without this they would keep each other alive.
        self.shared.stop.send_replace(true);
    }
}
