//! A port that answers nobody: a connect to it hangs, as where a network drops the packets.
//!
//! The kernel answers for a listening socket until the queue of connections that wait to be accepted is full; then it
//! drops every SYN, and the client sends it again 1, 3, 7 … seconds later. So nothing is accepted, the queue is made as
//! short as can be, and the link fills it with connections of its own. That works on loopback and needs no privilege.
//! Connects that wait are seen in the kernel's table of sockets (Linux only), since nothing of them reaches this process.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use brokerfall_report::history::ConnectionChange;
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::Shared;
use super::broker::{Broker, Door, State};

/// A connect on loopback that has no answer after this long gets none. An answered one took below 1 ms.
const UNANSWERED: Duration = Duration::from_millis(150);
/// How often connects that wait are looked for; each waits a second at least.
const LOOK: Duration = Duration::from_millis(100);
/// Most connections that one backlog of 0 may hold; Linux lets one in.
const MOST: usize = 16;

/// Fills the queue of a port whenever it is to answer nobody, and counts the connects that wait.
pub(super) async fn keep(shared: Arc<Shared>, broker: Arc<Broker>) {
    let mut stop = shared.stop.subscribe();
    let mut door = broker.door();
    loop {
        let now = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            now = door.wait_for(|door| door.state == State::Shut) => match now {
                Ok(now) => *now,
                // The sender lives in the broker, which this task holds.
                Err(_) => return,
            },
        };
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            _ = door.wait_for(|door| *door != now) => {}
            () = stand(&shared, &broker, now) => {}
        }
    }
}

/// Stands in the way until it is dropped.
async fn stand(shared: &Shared, broker: &Broker, door: Door) {
    let mut stoppers = Vec::new();
    while let Ok(connected) = timeout(UNANSWERED, TcpStream::connect(broker.address())).await {
        let connected = connected.and_then(|stream| Ok((stream.local_addr()?, stream)));
        let Ok((from, stream)) = connected else {
            // It refuses in the meantime: this door is no longer the one that stands.
            return std::future::pending().await;
        };
        broker.stoppers().insert(from);
        stoppers.push(stream);
        if stoppers.len() > MOST {
            shared.fail(format!(
                "{} still answers connects after {MOST} that were not accepted, so it cannot leave them unanswered",
                broker.address()
            ));
            return std::future::pending().await;
        }
    }
    broker.answers_nobody(door.number);
    let mut told = HashSet::new();
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        for from in waiting(broker.address()) {
            if told.insert(from) {
                shared.taps.connection("", broker.node, ConnectionChange::Unanswered);
            }
        }
    }
}

/// The ends of the connects to an address that wait for an answer. Clients on sockets of IPv6 stand in a table of their
/// own, with the address mapped.
fn waiting(to: SocketAddr) -> Vec<String> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| std::fs::read_to_string(table).unwrap_or_default());
    tables.iter().flat_map(|table| unanswered(table, to)).collect()
}

fn unanswered(table: &str, to: SocketAddr) -> Vec<String> {
    const SYN_SENT: &str = "02";
    let IpAddr::V4(host) = to.ip() else {
        return Vec::new();
    };
    let remote = format!("{:08X}:{:04X}", u32::from_ne_bytes(host.octets()), to.port());
    let row = |row: &str| {
        let mut fields = row.split_whitespace().skip(1);
        let (local, peer, state) = (fields.next()?, fields.next()?, fields.next()?);
        (state == SYN_SENT && peer.ends_with(&remote)).then(|| local.to_owned())
    };
    table.lines().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connects_that_wait_are_read_from_the_kernels_tables_of_both_families() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
             0: 0500007F:4E20 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0\n   \
             1: 0100007F:D431 0500007F:4E20 02 00000001:00000000 01:00000064 00000001     0        0 0 2 0\n   \
             2: 0100007F:D432 0500007F:4E20 01 00000000:00000000 00:00000000 00000000     0        0 9 1 0\n   \
             3: 0100007F:D433 0500007F:4E21 02 00000001:00000000 01:00000064 00000001     0        0 0 2 0\n";
        let mapped = "   0: 0000000000000000FFFF00000100007F:D434 0000000000000000FFFF00000500007F:4E20 02 0:0 0:0\n";
        let to = "127.0.0.5:20000".parse().unwrap();
        assert_eq!(unanswered(table, to), ["0100007F:D431"]);
        assert_eq!(unanswered(mapped, to), ["0000000000000000FFFF00000100007F:D434"]);
    }
}
