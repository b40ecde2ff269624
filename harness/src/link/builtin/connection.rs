//! One connection of a client: both directions in one task.
//!
//! The task moves what can be moved without waiting, then waits for whichever comes first: a socket, a change of the
//! control, or time. It reads through shared references, so that at the end it still has both whole streams: dropping a
//! write half of tokio sends FIN, and an RST after it comes too late.
#![expect(
    clippy::disallowed_methods,
    reason = "a link lets bytes wait: time itself is the condition"
)]

use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use brokerfall_report::history::ConnectionChange;
use futures::FutureExt;
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::Shared;
use super::broker::{Broker, LiveGuard};
use super::cut::Control;
use super::exchange::{Exchange, Mark};
use super::frame::{Frames, RequestHeader};
use super::idle::Idle;
use super::lane::{Lane, Read, Wait};

/// How often a held connection is looked at: a socket that is not read cannot be waited on without waking all the time.
pub(super) const HELD_TICK: Duration = Duration::from_millis(20);
/// Rounds after which a busy connection lets others run.
const ROUNDS: u32 = 32;

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// FIN at both sides.
    Closed,
    /// An RST, to be passed on to the other side.
    Reset(Side),
    /// A cut resets it.
    Cut,
    /// A cut resets it in the middle of a response.
    Severed,
    /// Nothing went either way for as long as is allowed.
    Idle,
    /// The link ends.
    Stopped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Broker,
}

/// Serves a client from accept to close.
pub(super) async fn serve(shared: Arc<Shared>, broker: Arc<Broker>, client: TcpStream, guard: LiveGuard) {
    let mut stop = shared.stop.subscribe();
    let control = broker.control();
    let mut connection = Connection {
        exchange: Exchange::new(Arc::clone(&shared)),
        shared,
        broker,
        guard,
        client,
        introduced: false,
        reached: false,
        held: None,
        slowed: None,
        first_close: None,
    };
    let mut upstream = None;
    let end = tokio::select! {
        biased;
        _ = stop.wait_for(|stop| *stop) => End::Stopped,
        end = connection.run(control, &mut upstream) => end,
    };
    connection.finish(end, upstream);
}

pub(super) struct Connection {
    pub(super) shared: Arc<Shared>,
    broker: Arc<Broker>,
    pub(super) guard: LiveGuard,
    pub(super) client: TcpStream,
    pub(super) exchange: Exchange,
    /// Its opening is recorded, with the client id that it told.
    introduced: bool,
    /// The broker was reached.
    reached: bool,
    /// The latest hold for which it is recorded that traffic waited.
    held: Option<u64>,
    /// The latest state of the cuts for which it is recorded that bytes were slowed.
    slowed: Option<u64>,
    /// Who closed first.
    first_close: Option<Side>,
}

impl Connection {
    async fn run(&mut self, mut control: watch::Receiver<Control>, upstream: &mut Option<TcpStream>) -> End {
        let connected = match self.connect(&mut control).await {
            Ok(connected) => upstream.insert(connected),
            Err(end) => return end,
        };
        self.reached = true;
        // Latency is the reader's and the broker's to choose; OK to go on with Nagle when it cannot be switched off.
        let _ = self.client.set_nodelay(true).and_then(|()| connected.set_nodelay(true));
        let (up_seed, down_seed) = self.guard.seeds(self.shared.options.seed);
        let (mut up, mut down) = (Lane::new(up_seed), Lane::new(down_seed));
        let end = self.relay(&mut control, &mut up, &mut down, connected).await;
        match (end, upstream.take()) {
            (End::Idle, Some(connected)) => self.close_idle(&mut control, up, down, connected).await,
            (end, connected) => {
                *upstream = connected;
                end
            }
        }
    }

    /// Connects to the broker, once nothing is held.
    async fn connect(&mut self, control: &mut watch::Receiver<Control>) -> Result<TcpStream, End> {
        loop {
            let now = *control.borrow_and_update();
            self.guard.saw(now.version);
            if now.kills(self.guard.epoch) {
                return Err(End::Cut);
            }
            if !now.holds() {
                break;
            }
            if is_readable(&self.client) {
                self.record_held(&now);
            }
            self.watch_held_client();
            tokio::select! {
                _ = control.changed() => {}
                () = sleep_until(Instant::now() + HELD_TICK) => {}
            }
        }
        // Goes on through changes of the control, all but those that end it: a connect to a stopped process may hang.
        let connecting = TcpStream::connect(self.broker.upstream);
        tokio::pin!(connecting);
        loop {
            tokio::select! {
                _ = control.changed() => {}
                connected = &mut connecting => return connected.map_err(|_| End::Reset(Side::Broker)),
            }
            let now = *control.borrow_and_update();
            self.guard.saw(now.version);
            if now.kills(self.guard.epoch) {
                return Err(End::Cut);
            }
        }
    }

    async fn relay(
        &mut self,
        control: &mut watch::Receiver<Control>,
        up: &mut Lane,
        down: &mut Lane,
        upstream: &TcpStream,
    ) -> End {
        let mut idle = self.shared.options.idle.map(Idle::new);
        let mut sync = self.shared.sync_gate.subscribe();
        let mut rounds = 0;
        loop {
            let now = *control.borrow_and_update();
            self.guard.saw(now.version);
            if now.kills(self.guard.epoch) {
                return End::Cut;
            }
            sync.mark_unchanged();
            let (mut up_wait, mut down_wait) = (Wait::default(), Wait::default());
            let mut moved = false;
            if !now.up.held {
                match self.move_up(&now, up, down, upstream) {
                    Ok((wait, read)) => (up_wait, moved) = (wait, read),
                    Err(side) => return End::Reset(side),
                }
            }
            if !now.down.held {
                match self.move_down(&now, up, down, upstream) {
                    Ok((wait, read)) => (down_wait, moved) = (wait, moved || read),
                    Err(side) => return End::Reset(side),
                }
            }
            if up.fin_sent && down.fin_sent {
                return End::Closed;
            }
            if down.severed && !down.has_queued() {
                return End::Severed;
            }
            if let Some(idle) = &mut idle
                && (moved || up_wait.wrote || down_wait.wrote)
            {
                idle.moved();
            }
            if moved {
                self.guard.moved(self.exchange.is_waiting());
                rounds += 1;
                if rounds % ROUNDS == 0 {
                    tokio::task::yield_now().await;
                }
                continue;
            }
            let mut until = earliest(up_wait.until, down_wait.until);
            if (now.up.slows() && up_wait.until.is_some()) || (now.down.slows() && down_wait.until.is_some()) {
                self.record_slowed(&now);
            }
            if let Some(idle) = &mut idle {
                idle.waits();
                if now.holds() {
                    idle.looked(upstream);
                }
            }
            if now.holds() {
                self.watch_held(&now, up, down, upstream);
                until = earliest(until, Some(Instant::now() + HELD_TICK));
            }
            let client_wants = interest(!now.up.held && up.is_hungry(), down_wait.writable);
            let broker_wants = interest(!now.down.held && down.is_hungry(), up_wait.writable);
            tokio::select! {
                // The sender lives in the broker, which this connection holds.
                _ = control.changed() => {}
                // An error shows again at the next read or write.
                _ = ready(&self.client, client_wants), if client_wants.is_some() => {}
                _ = ready(upstream, broker_wants), if broker_wants.is_some() => {}
                () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => {}
                _ = sync.changed(), if up_wait.sync => {}
                () = Idle::fired(idle.as_mut()), if idle.is_some() => {
                    if idle.as_mut().is_some_and(Idle::is_over) {
                        return End::Idle;
                    }
                }
            }
        }
    }

    /// Moves requests. Says what waits and whether anything was read.
    fn move_up(
        &mut self,
        now: &Control,
        up: &mut Lane,
        down: &mut Lane,
        upstream: &TcpStream,
    ) -> Result<(Wait, bool), Side> {
        let mut moved = false;
        if up.is_hungry() {
            match up.read(&self.client) {
                Ok(Read::Nothing) => {}
                Ok(Read::Fin) => {
                    moved = true;
                    if let Some(rest) = up.frames.rest() {
                        up.push(rest, &now.up, Mark::None);
                    }
                    self.closed_by_client();
                }
                Ok(Read::Bytes) => {
                    moved = true;
                    while let Some(bytes) = up.frames.next() {
                        let (bytes, mark) = if up.frames.is_opaque() {
                            self.give_up_reading(&mut down.frames);
                            (bytes, Mark::None)
                        } else {
                            self.exchange.request(bytes)
                        };
                        up.push(bytes, &now.up, mark);
                    }
                    self.introduce();
                }
                Err(_) => return Err(Side::Client),
            }
        }
        let wait = up
            .write(upstream, &now.up, &self.shared.sync_gate)
            .map_err(|_| Side::Broker)?;
        if up.is_at_fin() && self.exchange.is_closed_unnoticed() {
            return Err(Side::Client);
        }
        pass_fin(up, upstream).map_err(|_| Side::Broker)?;
        Ok((wait, moved))
    }

    /// Moves responses. Says what waits and whether anything was read.
    fn move_down(
        &mut self,
        now: &Control,
        up: &mut Lane,
        down: &mut Lane,
        upstream: &TcpStream,
    ) -> Result<(Wait, bool), Side> {
        let moved = self.read_down(now, up, down, upstream)?;
        let wait = down
            .write(&self.client, &now.down, &self.shared.sync_gate)
            .map_err(|_| Side::Client)?;
        pass_fin(down, &self.client).map_err(|_| Side::Client)?;
        Ok((wait, moved))
    }

    /// Reads what the broker sends, without waiting. Returns whether there was anything.
    pub(super) fn read_down(
        &mut self,
        now: &Control,
        up: &mut Lane,
        down: &mut Lane,
        upstream: &TcpStream,
    ) -> Result<bool, Side> {
        if !down.is_hungry() {
            return Ok(false);
        }
        match down.read(upstream) {
            Ok(Read::Nothing) => return Ok(false),
            Ok(Read::Fin) => {
                if let Some(rest) = down.frames.rest() {
                    down.push(rest, &now.down, Mark::None);
                }
                self.closed(Side::Broker, ConnectionChange::ClosedByBroker);
            }
            Ok(Read::Bytes) => {
                while let Some(bytes) = down.frames.next() {
                    if down.frames.is_opaque() {
                        self.give_up_reading(&mut up.frames);
                        down.push(bytes, &now.down, Mark::None);
                        continue;
                    }
                    let api = now.severs.then(|| self.exchange.api_of(&bytes)).flatten();
                    let mut bytes = self.exchange.response(bytes);
                    let kept = api.and_then(|api| self.shared.severs.take(self.broker.node, api, bytes.len()));
                    if let Some(kept) = kept {
                        bytes.truncate(kept);
                        down.severed = true;
                    }
                    down.push(bytes, &now.down, Mark::None);
                    if down.severed {
                        break;
                    }
                }
            }
            Err(_) => return Err(Side::Broker),
        }
        Ok(true)
    }

    /// One direction is no Kafka, so the other is not looked into either.
    fn give_up_reading(&self, other: &mut Frames) {
        if !other.is_opaque() {
            self.shared.count_undecodable();
            other.set_opaque();
        }
    }

    /// Looks at a held connection without reading from it.
    fn watch_held(&mut self, now: &Control, up: &Lane, down: &Lane, upstream: &TcpStream) {
        let waits_up = || up.has_queued() || (!up.ended && is_readable(&self.client));
        let waits_down = || self.exchange.is_waiting() || down.has_queued() || (!down.ended && is_readable(upstream));
        if self.held != Some(now.hold) && ((now.up.held && waits_up()) || (now.down.held && waits_down())) {
            self.record_held(now);
        }
        if now.up.held && !up.ended {
            self.watch_held_client();
        }
    }

    /// Notices a client that closes its end of a connection that is not read: it is no longer open at the reader.
    pub(super) fn watch_held_client(&mut self) {
        let ready = self.client.ready(Interest::READABLE).now_or_never();
        if matches!(ready, Some(Ok(ready)) if ready.is_read_closed()) {
            self.closed_by_client();
        }
    }

    fn record_held(&mut self, now: &Control) {
        if self.held != Some(now.hold) {
            self.held = Some(now.hold);
            let client = match self.exchange.client() {
                Some(client) => client.to_owned(),
                None => peek_client(&self.client).unwrap_or_default(),
            };
            self.shared
                .taps
                .connection(&client, self.broker.node, ConnectionChange::Held);
        }
    }

    fn record_slowed(&mut self, now: &Control) {
        if self.slowed != Some(now.version) {
            self.slowed = Some(now.version);
            let client = self.exchange.client().unwrap_or_default();
            self.shared
                .taps
                .connection(client, self.broker.node, ConnectionChange::Slowed);
        }
    }

    /// Records the opening as soon as the client has told its id.
    fn introduce(&mut self) {
        if !self.introduced
            && let Some(client) = self.exchange.client()
        {
            self.guard.set_client(client);
            self.opened();
        }
    }

    fn opened(&mut self) {
        if !self.introduced {
            self.introduced = true;
            self.shared.taps.connect(self.exchange.client().unwrap_or_default());
            if self.reached {
                self.record(ConnectionChange::Opened);
            }
        }
    }

    fn closed_by_client(&mut self) {
        // Asked first: whoever cuts in front waits until the guard is told.
        let how = if self.broker.is_cut_in_front() {
            ConnectionChange::ResetByLink
        } else {
            ConnectionChange::ClosedByClient
        };
        if self.guard.closed_by_client() {
            self.closed(Side::Client, how);
        }
    }

    /// One side closed; only the first is recorded.
    pub(super) fn closed(&mut self, side: Side, how: ConnectionChange) {
        if self.first_close.is_none() {
            self.first_close = Some(side);
            self.opened();
            self.record(how);
            if how == ConnectionChange::ClosedByBroker {
                self.broker.look();
            }
        }
    }

    fn record(&self, change: ConnectionChange) {
        let client = self.exchange.client().unwrap_or_default();
        self.shared.taps.connection(client, self.broker.node, change);
    }

    fn finish(mut self, end: End, upstream: Option<TcpStream>) {
        self.opened();
        match end {
            End::Closed | End::Idle => {}
            End::Reset(Side::Client) => self.closed_by_client(),
            End::Reset(Side::Broker) if self.reached => self.closed(Side::Broker, ConnectionChange::ClosedByBroker),
            End::Reset(Side::Broker) => {
                self.record(ConnectionChange::TurnedAway);
                self.broker.look();
            }
            End::Cut => self.record(ConnectionChange::ResetByLink),
            End::Severed => self.record(ConnectionChange::CutInResponse),
            End::Stopped => {}
        }
        if self.first_close == Some(Side::Client) {
            self.exchange.closed_by_client();
        }
        if end != End::Closed {
            // Dropping a stream whose linger time is zero sends RST. OK to drop an error: the socket is gone already.
            let _ = self.client.set_zero_linger();
            if let Some(upstream) = &upstream {
                let _ = upstream.set_zero_linger();
            }
        }
    }
}

/// Sends FIN once everything before it is written.
pub(super) fn pass_fin(lane: &mut Lane, to: &TcpStream) -> io::Result<()> {
    if lane.is_at_fin() {
        lane.fin_sent = true;
        match SockRef::from(to).shutdown(Shutdown::Write) {
            // The other side closed in the meantime; a reset shows at the next read.
            Err(cause) if cause.kind() == ErrorKind::NotConnected => {}
            other => return other,
        }
    }
    Ok(())
}

/// Whether bytes wait in the socket, without taking them.
pub(super) fn is_readable(stream: &TcpStream) -> bool {
    let peeked = stream.peek(&mut [0]).now_or_never();
    matches!(peeked, Some(Ok(len)) if len > 0)
}

/// The client id in the request that waits in the socket, without taking it.
fn peek_client(stream: &TcpStream) -> Option<String> {
    let mut start = [0; 512];
    let len = stream.peek(&mut start).now_or_never()?.ok()?;
    RequestHeader::parse(start.get(..len)?).map(|header| header.client.to_owned())
}

pub(super) async fn ready(stream: &TcpStream, interest: Option<Interest>) {
    if let Some(interest) = interest {
        // OK to drop the result: whatever it is shows at the next read or write.
        let _ = stream.ready(interest).await;
    }
}

fn interest(read: bool, write: bool) -> Option<Interest> {
    match (read, write) {
        (true, true) => Some(Interest::READABLE | Interest::WRITABLE),
        (true, false) => Some(Interest::READABLE),
        (false, true) => Some(Interest::WRITABLE),
        (false, false) => None,
    }
}

fn earliest(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, other) => one.or(other),
    }
}
