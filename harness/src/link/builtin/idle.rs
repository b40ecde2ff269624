//! Connections on which nothing goes either way: closed after a while, as a broker with `connections.max.idle.ms` does.
//!
//! Behind a hold it is the same broker behind a dead network. Its clock runs on, and it closes its end; what it had sent
//! before, and its FIN, come out of the network when the hold is healed. Bytes that the reader sent meanwhile then reach
//! a socket that is closed, and are answered with RST. A connection that was accepted while a hold was in force has not
//! reached the broker, so no clock runs for it.
#![expect(
    clippy::disallowed_methods,
    reason = "a link lets bytes wait: time itself is the condition"
)]

use std::pin::Pin;
use std::time::Duration;

use brokerfall_report::history::ConnectionChange;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep_until};

use super::connection::{Connection, End, HELD_TICK, Side, is_readable, pass_fin, ready};
use super::cut::Control;
use super::lane::{Lane, Wait};

/// The idle clock of one connection. Its timer is not set anew when bytes move: it looks when it fires how long ago that
/// was, so that a busy connection pays for one look at the clock per wait.
pub(super) struct Idle {
    after: Duration,
    last: Instant,
    moved: bool,
    /// Whether the broker had bytes waiting when a held connection was last looked at.
    answered: bool,
    timer: Pin<Box<Sleep>>,
}

impl Idle {
    pub(super) fn new(after: Duration) -> Self {
        let now = Instant::now();
        Idle {
            after,
            last: now,
            moved: false,
            answered: false,
            timer: Box::pin(sleep_until(now + after)),
        }
    }

    /// Bytes moved.
    pub(super) fn moved(&mut self) {
        self.moved = true;
        self.answered = false;
    }

    /// The connection waits from now on.
    pub(super) fn waits(&mut self) {
        if std::mem::take(&mut self.moved) {
            self.last = Instant::now();
        }
    }

    /// A held connection was looked at: what the broker wrote into it starts its clock anew, once.
    pub(super) fn looked(&mut self, upstream: &TcpStream) {
        if !self.answered && is_readable(upstream) {
            self.answered = true;
            self.last = Instant::now();
        }
    }

    /// Returns when the timer fires.
    pub(super) async fn fired(idle: Option<&mut Idle>) {
        match idle {
            Some(idle) => idle.timer.as_mut().await,
            None => std::future::pending().await,
        }
    }

    /// Whether it has been idle for long enough, now that the timer fired. Sets the timer anew where it was not.
    pub(super) fn is_over(&mut self) -> bool {
        let due = self.last + self.after;
        let over = Instant::now() >= due;
        if !over {
            self.timer.as_mut().reset(due);
        }
        over
    }
}

impl Connection {
    /// Closes an idle connection as its broker would.
    pub(super) async fn close_idle(
        &mut self,
        control: &mut watch::Receiver<Control>,
        mut up: Lane,
        mut down: Lane,
        upstream: TcpStream,
    ) -> End {
        let now = *control.borrow();
        self.closed(Side::Broker, ConnectionChange::ClosedIdle);
        if self.exchange.is_closed_unnoticed() {
            // OK to drop an error: the broker closed first.
            let _ = upstream.set_zero_linger();
        }
        if !now.holds() {
            return End::Closed;
        }
        // What the broker sent before it closed is on its way. An error means that it closed by itself before.
        while let Ok(true) = self.read_down(&now, &mut up, &mut down, &upstream) {}
        if let Some(rest) = down.frames.rest() {
            down.push(rest, &now.down, super::exchange::Mark::None);
        }
        down.ended = true;
        drop(upstream);
        loop {
            let now = *control.borrow_and_update();
            self.guard.saw(now.version);
            if now.kills(self.guard.epoch) {
                return End::Cut;
            }
            let mut wait = Wait::default();
            if !now.down.held {
                let written = down.write(&self.client, &now.down, &self.shared.sync_gate);
                let Ok(waits) = written.and_then(|waits| pass_fin(&mut down, &self.client).map(|()| waits)) else {
                    return End::Reset(Side::Client);
                };
                wait = waits;
                if down.fin_sent && !now.up.held {
                    // Bytes that the link has not read make the kernel send RST by itself.
                    let has_read = up.has_queued() || up.frames.rest().is_some();
                    return if has_read {
                        End::Reset(Side::Broker)
                    } else {
                        End::Closed
                    };
                }
            }
            self.watch_held_client();
            let tick = Instant::now() + HELD_TICK;
            let writable = wait.writable.then_some(Interest::WRITABLE);
            tokio::select! {
                _ = control.changed() => {}
                _ = ready(&self.client, writable), if writable.is_some() => {}
                () = sleep_until(wait.until.map_or(tick, |until| until.min(tick))) => {}
            }
        }
    }
}
