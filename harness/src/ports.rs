//! Loopback addresses and ports, held for as long as their holder lives: the link's, and those that a cluster's brokers
//! listen on.
//!
//! A port is bound once, exclusively, and stays bound until its holder ends. To refuse connections its socket stops
//! listening (`shutdown` of a listening socket on Linux) and to accept again it listens anew: at no moment could anybody
//! else take the port. Ports lie below the range of ephemeral ports, because a client that retries a dead port inside
//! that range can end up connected to itself.
//!
//! A broker that is a process of its own binds the port that is held for it a second time, which the kernel allows as long
//! as the held one does not listen (both have SO_REUSEADDR, as every server socket of a JVM has, and of the proxy that a
//! container engine puts before a published port). While the broker is down the port refuses, and nobody else can take it.

use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};

use socket2::{Domain, Protocol, Socket, Type};

/// First port that is tried.
const FIRST: u16 = 20_000;
/// Last port that is tried, unless ephemeral ports start below it.
const LAST: u16 = 27_999;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// Reservations made by this process; together with the process id it spreads runs over addresses and ports.
static STARTED: AtomicU32 = AtomicU32::new(0);

/// A port that is held: bound, and listening or not.
pub struct Port {
    socket: Socket,
    address: SocketAddr,
}

impl Port {
    /// Address and port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts connections from now on.
    pub(crate) fn listen(&self) -> std::io::Result<()> {
        self.socket.listen(BACKLOG)
    }

    /// Leaves connects unanswered once the one connection that still fits is there and is not accepted.
    pub(crate) fn leave_unanswered(&self) -> std::io::Result<()> {
        self.socket.listen(0)
    }

    /// Refuses connections from now on; those not yet accepted are reset.
    pub(crate) fn refuse(&self) -> std::io::Result<()> {
        self.socket.shutdown(Shutdown::Read)
    }

    /// A listener on this port's socket. Dropping it does not stop the port from listening.
    pub(crate) fn listener(&self) -> std::io::Result<tokio::net::TcpListener> {
        let listener = std::net::TcpListener::from(self.socket.try_clone()?);
        tokio::net::TcpListener::from_std(listener)
    }
}

/// Why no port could be held.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// No free port.
    #[error("no free port on {host} between {from} and {to} (other runs hold them; lower --jobs)")]
    NoPort {
        /// Loopback address.
        host: String,
        /// First port tried.
        from: u16,
        /// Last port tried.
        to: u16,
    },
    /// The operating system refused.
    #[error("cannot bind {address}")]
    Bind {
        /// Address.
        address: SocketAddr,
        /// Its answer.
        #[source]
        source: std::io::Error,
    },
}

/// Binds so many ports, all on one loopback address.
pub(crate) fn reserve(count: usize) -> Result<Vec<Port>, PortError> {
    let seed = std::process::id()
        .wrapping_mul(31)
        .wrapping_add(STARTED.fetch_add(1, Ordering::Relaxed));
    reserve_from(seed, count)
}

fn reserve_from(seed: u32, count: usize) -> Result<Vec<Port>, PortError> {
    let host = host(seed);
    let (from, to) = range();
    let width = u32::from(to - from) + 1;
    let start = seed.wrapping_mul(7919) % width;
    let mut ports = Vec::with_capacity(count);
    for step in 0..width {
        if ports.len() == count {
            break;
        }
        // OK because the sum stays below `to`, which is a u16.
        let port = from + u16::try_from((start + step) % width).unwrap_or_default();
        let address = SocketAddr::new(IpAddr::V4(host), port);
        match bind(address) {
            Ok(socket) => ports.push(Port { socket, address }),
            Err(cause) if cause.kind() == std::io::ErrorKind::AddrInUse => {}
            Err(source) => {
                return Err(PortError::Bind { address, source });
            }
        }
    }
    if ports.len() < count {
        return Err(PortError::NoPort {
            host: host.to_string(),
            from,
            to,
        });
    }
    Ok(ports)
}

/// Binds the port of the same number on another loopback address.
///
/// # Errors
/// [`PortError::NoPort`] when it is free on none, as where 127.0.0.1 is the only one; [`PortError::Bind`].
pub(crate) fn beside(taken: SocketAddr) -> Result<Port, PortError> {
    let hosts = (2..=254).map(|last| IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)));
    for host in hosts.filter(|host| cfg!(target_os = "linux") && *host != taken.ip()) {
        let address = SocketAddr::new(host, taken.port());
        match bind(address) {
            Ok(socket) => return Ok(Port { socket, address }),
            Err(cause) if cause.kind() == std::io::ErrorKind::AddrInUse => {}
            Err(source) => return Err(PortError::Bind { address, source }),
        }
    }
    Err(PortError::NoPort {
        host: "every other loopback address".to_owned(),
        from: taken.port(),
        to: taken.port(),
    })
}

fn bind(address: SocketAddr) -> std::io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // Without SO_REUSEADDR, so that a port held by another run is never shared while it refuses.
    socket.bind(&address.into())?;
    // From here on with it: connections inherit it, and listening again would otherwise fail while they linger.
    socket.set_reuse_address(true)?;
    Ok(socket)
}

/// On Linux all of 127.0.0.0/8 is loopback; elsewhere only 127.0.0.1 is sure to be there.
fn host(seed: u32) -> Ipv4Addr {
    if cfg!(target_os = "linux") {
        let last = 2 + u8::try_from(seed % 253).unwrap_or_default();
        Ipv4Addr::new(127, 0, 0, last)
    } else {
        Ipv4Addr::LOCALHOST
    }
}

/// The ports that are tried: below the ephemeral range as the machine has it now.
fn range() -> (u16, u16) {
    let ephemeral = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok();
    below(
        ephemeral
            .as_deref()
            .and_then(|text| text.split_whitespace().next()?.parse().ok()),
    )
}

fn below(ephemeral: Option<u16>) -> (u16, u16) {
    match ephemeral {
        Some(first) if first <= FIRST => (
            first.saturating_sub(4_000).max(1_024),
            first.saturating_sub(1).max(1_024),
        ),
        Some(first) => (FIRST, LAST.min(first - 1)),
        None => (FIRST, LAST),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connects(address: SocketAddr) -> std::io::Result<()> {
        std::net::TcpStream::connect(address).map(drop)
    }

    #[test]
    fn bound_port_refuses_until_it_listens_and_again_after_it_stopped() {
        let port = reserve(1).unwrap().remove(0);
        let refused = |result: std::io::Result<()>| result.unwrap_err().kind() == std::io::ErrorKind::ConnectionRefused;
        assert!(refused(connects(port.address())));
        for _ in 0..3 {
            port.listen().unwrap();
            connects(port.address()).unwrap();
            port.refuse().unwrap();
            assert!(refused(connects(port.address())));
        }
    }

    #[test]
    fn refusing_port_cannot_be_taken_by_another_link() {
        let port = reserve(1).unwrap().remove(0);
        port.listen().unwrap();
        port.refuse().unwrap();
        assert_eq!(bind(port.address()).unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    }

    #[test]
    fn port_beside_another_has_its_number_and_another_address() {
        let port = reserve(1).unwrap().remove(0);
        let other = beside(port.address()).unwrap();
        assert_eq!(other.address().port(), port.address().port());
        assert_ne!(other.address().ip(), port.address().ip());
        other.listen().unwrap();
        connects(other.address()).unwrap();
        assert!(connects(port.address()).is_err());
    }

    #[test]
    fn taken_ports_are_passed_over() {
        let seed = std::process::id();
        let taken = reserve_from(seed, 200).unwrap();
        let free = reserve_from(seed, 3).unwrap();
        assert_eq!(free.len(), 3);
        for port in &free {
            assert!(taken.iter().all(|taken| taken.address() != port.address()));
            port.listen().unwrap();
            connects(port.address()).unwrap();
        }
    }

    #[test]
    fn ports_stay_below_the_ephemeral_range() {
        assert_eq!(below(Some(32_768)), (FIRST, LAST));
        assert_eq!(below(Some(22_000)), (FIRST, 21_999));
        assert_eq!(below(Some(10_000)), (6_000, 9_999));
        assert_eq!(below(Some(1_024)), (1_024, 1_024));
        assert_eq!(below(None), (FIRST, LAST));
    }
}
