//! One broker as the link stands in front of it: its port, whether it is alive, and the cuts in force on it.
#![expect(
    clippy::disallowed_methods,
    reason = "a link lets bytes wait: time itself is the condition"
)]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::cut::Control;
use super::{Connects, Cut, CutHeal, CutId, CutMode, LinkError, Shared, connection};
use crate::cluster::NodeId;
use crate::ports::Port;

/// First and longest pause between two looks at a broker that is away. The listener is back at most this much later than
/// the broker; a refused connect leaves nothing behind at the broker, so this may be often.
const PROBE_FIRST: Duration = Duration::from_millis(2);
const PROBE_LONGEST: Duration = Duration::from_millis(50);
/// How long one look may take.
const PROBE_WITHIN: Duration = Duration::from_secs(1);
/// A dying process closes its connections before its listener: a second look this much later.
const PROBE_AGAIN: Duration = Duration::from_millis(20);
/// Pause after an accept that failed, such as for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// A broker of the link.
pub(super) struct Broker {
    pub(super) node: NodeId,
    pub(super) upstream: SocketAddr,
    gate: Mutex<Gate>,
    /// What the port does now.
    door: watch::Sender<Door>,
    /// The latest door that was shut and found to answer nobody.
    shut: watch::Sender<u64>,
    /// Ends of connections that the link made to its own port so that it answers nobody else.
    stoppers: Mutex<HashSet<SocketAddr>>,
    /// Whether the broker is known to accept connections.
    alive: watch::Sender<bool>,
    control: watch::Sender<Control>,
    look: Notify,
    live: Mutex<HashMap<u64, Arc<Live>>>,
    next_live: AtomicU64,
    /// Told whenever a connection has seen a change or ended.
    moved: Notify,
    /// Connections that end at the client's side are ended by a proxy in front of the link, not by the client.
    pub(super) cut_in_front: AtomicBool,
}

/// What a port does with connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Accepts,
    /// Neither accepts nor refuses.
    Shut,
    Refuses,
}

/// A state and its number, which rises with each change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Door {
    pub(super) state: State,
    pub(super) number: u64,
}

struct Gate {
    port: Arc<Port>,
    /// Ports that it listened on before it moved. They are held, and refuse.
    left: Vec<Arc<Port>>,
    alive: bool,
    /// It is about to die, and nobody has said that it is back: that it accepts means nothing. A broker that dies goes on
    /// accepting for a moment, and the proxy before a container's port accepts seconds before its broker does.
    going: bool,
    closed: bool,
    cuts: BTreeMap<u64, Cut>,
}

/// A connection as the link counts it.
pub(super) struct Live {
    /// The client's end.
    #[cfg_attr(not(feature = "toxiproxy"), expect(dead_code, reason = "only a proxy in front asks"))]
    pub(super) peer: SocketAddr,
    client: Mutex<String>,
    /// The last version of the control that it acts by.
    seen: AtomicU64,
    closed_by_client: AtomicBool,
    /// Since when a request waits and nothing has gone either way.
    waits: Mutex<Option<Instant>>,
}

/// Keeps a connection in its broker's list while it lives.
pub(super) struct LiveGuard {
    broker: Arc<Broker>,
    id: u64,
    live: Arc<Live>,
    /// The epoch in which it was accepted.
    pub(super) epoch: u64,
}

impl Broker {
    pub(super) fn new(node: NodeId, upstream: SocketAddr, port: Arc<Port>) -> Result<Self, LinkError> {
        let broker = Broker {
            node,
            upstream,
            gate: Mutex::new(Gate {
                port,
                left: Vec::new(),
                alive: true,
                going: false,
                closed: false,
                cuts: BTreeMap::new(),
            }),
            door: watch::Sender::new(Door {
                state: State::Refuses,
                number: 0,
            }),
            shut: watch::Sender::new(0),
            stoppers: Mutex::new(HashSet::new()),
            alive: watch::Sender::new(true),
            control: watch::Sender::new(Control::default()),
            look: Notify::new(),
            live: Mutex::new(HashMap::new()),
            next_live: AtomicU64::new(0),
            moved: Notify::new(),
            cut_in_front: AtomicBool::new(false),
        };
        broker.reconcile(&mut broker.gate())?;
        Ok(broker)
    }

    /// Puts a cut in force and returns the version of the control that has it.
    pub(super) fn cut(&self, id: CutId, cut: Cut) -> Result<u64, LinkError> {
        let mut gate = self.gate();
        let mode = cut.mode;
        gate.cuts.insert(id.0, cut);
        self.recompose(
            &mut gate,
            matches!(mode, CutMode::Reset | CutMode::Refuse),
            mode == CutMode::Hold,
        )
    }

    /// Takes a cut back; `None` when it is not in force here.
    pub(super) fn heal(&self, id: CutId) -> Result<Option<u64>, LinkError> {
        let mut gate = self.gate();
        let Some(cut) = gate.cuts.remove(&id.0) else {
            return Ok(None);
        };
        let resets = cut.mode == CutMode::Hold && cut.heals == CutHeal::Reset;
        self.recompose(&mut gate, resets, false).map(Some)
    }

    /// Returns when every connection acts by this version of the control.
    pub(super) async fn settled(&self, version: u64, within: Duration) -> Result<(), LinkError> {
        let deadline = Instant::now() + within;
        loop {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            if self
                .live()
                .values()
                .all(|live| live.seen.load(Ordering::Acquire) >= version)
            {
                return Ok(());
            }
            if timeout_at(deadline, moved).await.is_err() {
                return Err(LinkError::TimedOut {
                    what: format!("that every connection to broker {} has seen the change", self.node),
                    within,
                });
            }
        }
    }

    /// The link's own address for it.
    pub(super) fn address(&self) -> SocketAddr {
        self.gate().port.address()
    }

    /// Listens on another port from now on and refuses on the old one; connections that came there are reset. Returns the
    /// version of the control that has it.
    pub(super) fn move_to(&self, port: Arc<Port>) -> Result<u64, LinkError> {
        let mut gate = self.gate();
        if self.door.borrow().state != State::Refuses {
            gate.port.refuse().map_err(|source| LinkError::Io {
                what: format!("cannot make {} refuse", gate.port.address()),
                source,
            })?;
            self.stoppers().clear();
        }
        let number = self.door.borrow().number + 1;
        self.door.send_replace(Door {
            state: State::Refuses,
            number,
        });
        let left = std::mem::replace(&mut gate.port, port);
        gate.left.push(left);
        self.recompose(&mut gate, true, false)
    }

    /// The broker is about to die: refuse from now on.
    pub(super) fn going(&self) -> Result<(), LinkError> {
        let mut gate = self.gate();
        gate.alive = false;
        gate.going = true;
        let done = self.reconcile(&mut gate);
        drop(gate);
        self.look.notify_one();
        done
    }

    /// Returns when the broker is reached and its port listens.
    pub(super) async fn back(&self, within: Duration) -> Result<(), LinkError> {
        self.gate().going = false;
        self.look.notify_one();
        let mut alive = self.alive.subscribe();
        match timeout(within, alive.wait_for(|alive| *alive)).await {
            Ok(_) => Ok(()),
            Err(_) => Err(LinkError::TimedOut {
                what: format!("that broker {} at {} accepts connections", self.node, self.upstream),
                within,
            }),
        }
    }

    /// Stops listening for good.
    pub(super) fn close(&self) {
        let mut gate = self.gate();
        gate.closed = true;
        // OK to drop an error: the socket is closed with the link anyway.
        let _ = self.reconcile(&mut gate);
    }

    /// Asks for a look at the broker at once.
    pub(super) fn look(&self) {
        self.look.notify_one();
    }

    pub(super) fn control(&self) -> watch::Receiver<Control> {
        self.control.subscribe()
    }

    /// Connections of a client that are open at the client's end; an empty client id counts all.
    pub(super) fn open_connections(&self, client: &str) -> u32 {
        let live = self.live();
        let open = live
            .values()
            .filter(|live| !live.is_closed_by_client() && (client.is_empty() || *live.client() == client));
        u32::try_from(open.count()).unwrap_or(u32::MAX)
    }

    /// Whether a proxy in front ends connections now.
    pub(super) fn is_cut_in_front(&self) -> bool {
        self.cut_in_front.load(Ordering::Acquire)
    }

    fn register(self: &Arc<Self>, peer: SocketAddr) -> LiveGuard {
        let epoch = self.control.borrow().epoch;
        let live = Arc::new(Live {
            peer,
            client: Mutex::default(),
            seen: AtomicU64::default(),
            closed_by_client: AtomicBool::default(),
            waits: Mutex::default(),
        });
        let id = self.next_live.fetch_add(1, Ordering::Relaxed);
        self.live().insert(id, Arc::clone(&live));
        LiveGuard {
            broker: Arc::clone(self),
            id,
            live,
            epoch,
        }
    }

    fn saw(&self, refused: bool) -> Result<(), LinkError> {
        let mut gate = self.gate();
        if refused {
            gate.alive = false;
        } else if !gate.going {
            gate.alive = true;
        }
        self.reconcile(&mut gate)
    }

    fn is_away(&self) -> bool {
        !self.gate().alive
    }

    fn recompose(&self, gate: &mut Gate, resets: bool, holds: bool) -> Result<u64, LinkError> {
        let now = *self.control.borrow();
        let version = now.version + 1;
        let epoch = now.epoch + u64::from(resets);
        let hold = if holds { version } else { now.hold };
        let next = Control::compose(version, epoch, hold, gate.cuts.values());
        // The port first when it is to refuse, the connections first when it is to accept: neither order lets a
        // connection in that the cut should have turned away.
        if next.refuses {
            self.reconcile(gate)?;
            self.control.send_replace(next);
        } else {
            self.control.send_replace(next);
            self.reconcile(gate)?;
        }
        Ok(version)
    }

    /// Makes the port listen or refuse, as it should.
    fn reconcile(&self, gate: &mut Gate) -> Result<(), LinkError> {
        let refuses = gate.cuts.values().any(|cut| cut.mode == CutMode::Refuse);
        let leaves_unanswered = |cut: &Cut| cut.mode == CutMode::Hold && cut.connects == Connects::Unanswered;
        // Refusing comes first: that a broker is dead is proven by a connect that is refused.
        let state = if !gate.alive || refuses || gate.closed {
            State::Refuses
        } else if gate.cuts.values().any(leaves_unanswered) {
            State::Shut
        } else {
            State::Accepts
        };
        let now = *self.door.borrow();
        if state != now.state {
            let (done, what) = match state {
                State::Accepts => (gate.port.listen(), "listen"),
                State::Shut => (gate.port.leave_unanswered(), "leave connects unanswered"),
                State::Refuses => (gate.port.refuse(), "refuse"),
            };
            done.map_err(|source| LinkError::Io {
                what: format!("cannot make {} {what}", gate.port.address()),
                source,
            })?;
            if state == State::Refuses {
                // What waited to be accepted is reset.
                self.stoppers().clear();
            }
            let number = now.number + 1;
            self.door.send_replace(Door { state, number });
        }
        self.alive.send_replace(gate.alive);
        Ok(())
    }

    /// Whether the port accepts.
    pub(super) fn is_open(&self) -> bool {
        self.door.borrow().state == State::Accepts
    }

    /// What the port does.
    pub(super) fn door(&self) -> watch::Receiver<Door> {
        self.door.subscribe()
    }

    /// The port, in this state, was found to answer nobody.
    pub(super) fn answers_nobody(&self, number: u64) {
        self.shut.send_replace(number);
    }

    /// Returns when the port answers nobody, where a cut wants that.
    pub(super) async fn shut(&self, within: Duration) -> Result<(), LinkError> {
        let mut shut = self.shut.subscribe();
        let answers_nobody = shut.wait_for(|number| {
            let door = *self.door.borrow();
            door.state != State::Shut || door.number == *number
        });
        match timeout(within, answers_nobody).await {
            Ok(_) => Ok(()),
            Err(_) => Err(LinkError::TimedOut {
                what: format!("that a connect to {} gets no answer", self.address()),
                within,
            }),
        }
    }

    pub(super) fn stoppers(&self) -> MutexGuard<'_, HashSet<SocketAddr>> {
        crate::lock(&self.stoppers)
    }

    fn listener(&self) -> std::io::Result<tokio::net::TcpListener> {
        self.gate().port.listener()
    }

    /// Connections on which a request has waited this long for its answer, and nothing went either way; without `client`'s.
    pub(super) fn unanswered(&self, long: Duration, client: &str) -> u32 {
        let waits = |live: &Arc<Live>| {
            let since = *crate::lock(&live.waits);
            since.is_some_and(|since| since.elapsed() >= long) && *live.client() != client
        };
        u32::try_from(self.live().values().filter(|live| waits(live)).count()).unwrap_or(u32::MAX)
    }

    fn gate(&self) -> MutexGuard<'_, Gate> {
        crate::lock(&self.gate)
    }

    pub(super) fn live(&self) -> MutexGuard<'_, HashMap<u64, Arc<Live>>> {
        crate::lock(&self.live)
    }
}

impl Live {
    pub(super) fn is_closed_by_client(&self) -> bool {
        self.closed_by_client.load(Ordering::Relaxed)
    }

    pub(super) fn client(&self) -> MutexGuard<'_, String> {
        crate::lock(&self.client)
    }
}

impl LiveGuard {
    /// The connection acts by this version of the control from now on.
    pub(super) fn saw(&self, version: u64) {
        if self.live.seen.swap(version, Ordering::Release) != version {
            self.broker.moved.notify_waiters();
        }
    }

    /// Seeds for what the two directions of the connection draw, requests first: the same for the same run, broker and
    /// number of the connection.
    pub(super) fn seeds(&self, run: u64) -> (u64, u64) {
        let node = u64::from(self.broker.node.unsigned_abs());
        let of_connection = run ^ (node << 48) ^ (self.id << 1);
        // Multiplied by an odd number, so that neighbours are far apart.
        let spread = |seed: u64| seed.wrapping_mul(0xd134_2543_de82_ef95);
        (spread(of_connection), spread(of_connection | 1))
    }

    pub(super) fn set_client(&self, client: &str) {
        client.clone_into(&mut self.live.client());
    }

    /// Something went either way; a request waits for its answer, or none does.
    pub(super) fn moved(&self, waits: bool) {
        *crate::lock(&self.live.waits) = waits.then(Instant::now);
    }

    /// The client closed its end. Returns false when that was known.
    pub(super) fn closed_by_client(&self) -> bool {
        !self.live.closed_by_client.swap(true, Ordering::Relaxed)
    }
}

impl Drop for LiveGuard {
    fn drop(&mut self) {
        self.broker.live().remove(&self.id);
        self.broker.moved.notify_waiters();
    }
}

/// Accepts connections while the port listens.
pub(super) async fn accept(shared: Arc<Shared>, broker: Arc<Broker>) {
    let mut stop = shared.stop.subscribe();
    let mut door = broker.door();
    loop {
        let opened = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            opened = door.wait_for(|door| door.state == State::Accepts) => match opened {
                Ok(opened) => *opened,
                // The sender lives in the broker, which this task holds.
                Err(_) => return,
            },
        };
        let listener = match broker.listener() {
            Ok(listener) => listener,
            Err(cause) => return shared.fail(format!("cannot accept on {}: {cause}", broker.address())),
        };
        loop {
            let accepted = tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return,
                _ = door.wait_for(|now| *now != opened) => break,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((_, from)) if broker.stoppers().remove(&from) => {}
                Ok((client, from)) => {
                    let guard = broker.register(from);
                    shared.spawn(connection::serve(
                        Arc::clone(&shared),
                        Arc::clone(&broker),
                        client,
                        guard,
                    ));
                }
                Err(_) => sleep_until(Instant::now() + ACCEPT_PAUSE).await,
            }
        }
    }
}

/// Looks whether the broker accepts connections: when asked to, and while it is away.
pub(super) async fn probe(shared: Arc<Shared>, broker: Arc<Broker>) {
    let mut stop = shared.stop.subscribe();
    let mut pause = PROBE_FIRST;
    let mut again = None;
    loop {
        let next = if broker.is_away() {
            again = None;
            let next = Instant::now() + pause;
            pause = (pause * 2).min(PROBE_LONGEST);
            Some(next)
        } else {
            pause = PROBE_FIRST;
            again.take()
        };
        let asked = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            () = broker.look.notified() => true,
            () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => false,
        };
        let looked = match timeout(PROBE_WITHIN, TcpStream::connect(broker.upstream)).await {
            Ok(Ok(_)) => broker.saw(false),
            Ok(Err(cause)) if cause.kind() == ErrorKind::ConnectionRefused => broker.saw(true),
            // Anything else, such as a reset while it dies or starts, says neither.
            _ => Ok(()),
        };
        if let Err(cause) = looked {
            shared.fail(crate::chain(&cause));
        }
        if asked && !broker.is_away() {
            again = Some(Instant::now() + PROBE_AGAIN);
        }
    }
}
