//! Evidence that a cut has hit a connection: bytes that came in at Toxiproxy while a toxic was on their direction, or that
//! stay in it although they came before.
//!
//! What the reader sends comes in at the proxy's own port; what a broker answers comes in at the other end of Toxiproxy's
//! connections to the builtin link behind it. Whose connection it is only the latter can tell.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use brokerfall_report::history::ConnectionChange;
use tokio::task::JoinHandle;

use super::sockets::{self, Cookie, Of, Seen};
use super::toxics::{KILOBYTE, Stream};
use crate::cluster::NodeId;
use crate::link::builtin::BuiltinLink;
use crate::link::{Cut, CutMode};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(25);
/// Bytes that may come in on a connection and prove nothing: its FIN counts as one.
const FIN: u64 = 1;

/// Watches the connections of a cut until it ends.
pub(super) struct Watch {
    looking: Arc<Mutex<Looking>>,
    task: JoinHandle<()>,
}

struct Looking {
    behind: Arc<BuiltinLink>,
    places: Vec<Place>,
    change: ConnectionChange,
    /// More than so many bytes since the cut show that it hit.
    more_than: u64,
}

/// The connections of one broker.
struct Place {
    node: NodeId,
    ways: Vec<Way>,
    /// Connections recorded so far: the two directions cannot be told to be of one connection, so that the greater number
    /// of both counts.
    recorded: usize,
}

/// Their sockets in one direction.
struct Way {
    /// Where bytes come in.
    of: Of,
    /// Where they go out.
    to: Of,
    /// Bytes were in Toxiproxy at the last look.
    keeps: bool,
    /// Bytes when the cut came in force; 0 for what was connected later.
    before: HashMap<Cookie, u64>,
    hit: HashSet<Cookie>,
}

impl Watch {
    /// Starts to watch a cut that is in force; `None` for one that leaves its traces elsewhere. `places` are brokers with
    /// the address of their proxy and of the link behind it.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn start(
        cut: &Cut,
        places: &[(NodeId, SocketAddr, SocketAddr)],
        behind: &Arc<BuiltinLink>,
    ) -> io::Result<Option<Self>> {
        let (change, more_than) = match cut.mode {
            CutMode::Hold => (ConnectionChange::Held, FIN),
            CutMode::Delay { .. } => (ConnectionChange::Slowed, FIN),
            // As many as pass in a millisecond: fewer wait for less than Toxiproxy's clock can tell.
            CutMode::Throttle { bytes_per_s } => (ConnectionChange::Slowed, (bytes_per_s / KILOBYTE).max(FIN)),
            CutMode::Reset | CutMode::Refuse | CutMode::MidResponse { .. } => return Ok(None),
        };
        let mut watched = Vec::with_capacity(places.len());
        for &(node, front, back) in places {
            let mut ways = Vec::new();
            for stream in Stream::of(cut.direction) {
                let (of, to) = match stream {
                    Stream::Upstream => (Of::Local(front), Of::Remote(back)),
                    Stream::Downstream => (Of::Remote(back), Of::Local(front)),
                };
                let seen = sockets::connected(of)?;
                ways.push(Way {
                    of,
                    to,
                    keeps: false,
                    before: seen.into_iter().map(|(cookie, seen)| (cookie, seen.received)).collect(),
                    hit: HashSet::new(),
                });
            }
            watched.push(Place {
                node,
                ways,
                recorded: 0,
            });
        }
        let looking = Arc::new(Mutex::new(Looking {
            behind: Arc::clone(behind),
            places: watched,
            change,
            more_than,
        }));
        let task = tokio::spawn(look_often(Arc::clone(&looking)));
        Ok(Some(Watch { looking, task }))
    }

    /// Looks a last time.
    pub(super) fn end(self) {
        crate::lock(&self.looking).look();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn look_often(looking: Arc<Mutex<Looking>>) {
    loop {
        crate::before_the_next_look(LOOK).await;
        crate::lock(&looking).look();
    }
}

/// Whether more came in than went out. Told of all connections together, since the two ends of one cannot be told to be
/// of one, and so only where there are as many of the one as of the other.
fn keeps(came: &HashMap<Cookie, Seen>, went: &HashMap<Cookie, Seen>) -> bool {
    let received: u64 = came.values().map(|seen| seen.received.saturating_sub(FIN)).sum();
    let sent: u64 = went.values().map(|seen| seen.sent).sum();
    came.len() == went.len() && received > sent
}

impl Looking {
    fn look(&mut self) {
        for place in &mut self.places {
            for way in &mut place.ways {
                // Evidence that cannot be read is evidence that does not come, and told as that.
                let Ok(seen) = sockets::connected(way.of) else { continue };
                if self.change == ConnectionChange::Held && place.recorded == 0 {
                    let kept = sockets::connected(way.to).is_ok_and(|out| keeps(&seen, &out));
                    // Twice, since bytes may be on their way from one socket to the other.
                    if kept && way.keeps {
                        place.recorded = 1;
                        self.behind.note("", place.node, self.change);
                    }
                    way.keeps = kept;
                }
                for (cookie, socket) in seen {
                    let before = way.before.get(&cookie).copied().unwrap_or_default();
                    if socket.received.saturating_sub(before) <= self.more_than || !way.hit.insert(cookie) {
                        continue;
                    }
                    if way.hit.len() > place.recorded {
                        place.recorded = way.hit.len();
                        let client = match way.of {
                            Of::Remote(_) => self.behind.client_at(place.node, socket.local),
                            Of::Local(_) => None,
                        };
                        self.behind.note(&client.unwrap_or_default(), place.node, self.change);
                    }
                }
            }
        }
    }
}
