//! What the kernel knows of the sockets of a port: which are there, and how many bytes have come in and gone out on each.
//!
//! Toxiproxy counts the bytes of a connection only when it ends, so that its own state cannot tell whether a cut has hit a
//! connection. The kernel's `sock_diag` can: bytes that came in while a toxic holds their direction wait in Toxiproxy.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

// linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h, linux/tcp.h.
const AF_NETLINK: i32 = 16;
const NETLINK_SOCK_DIAG: i32 = 4;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const AF_INET: u8 = 2;
const IPPROTO_TCP: u8 = 6;
const INET_DIAG_INFO: u16 = 2;
const ESTABLISHED: u8 = 1;
/// Lengths of `nlmsghdr` and `inet_diag_msg`; in the latter, where `idiag_wqueue` stands; in `tcp_info`, where
/// `tcpi_bytes_acked` and `tcpi_bytes_received` do.
const HEADER: usize = 16;
const MESSAGE: usize = 72;
const QUEUED: usize = 60;
const ACKED: usize = 120;
const RECEIVED: usize = 128;
/// Longest wait for the kernel.
const WITHIN: Duration = Duration::from_secs(2);

/// A socket, named by the kernel's cookie: never given twice while the machine is up.
pub(super) type Cookie = u64;

/// A connected socket of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    /// Its own address.
    pub(super) local: SocketAddr,
    /// The other end has not closed.
    pub(super) established: bool,
    /// Bytes that came in; a FIN counts as one.
    pub(super) received: u64,
    /// Bytes that were given to it to be sent, whether they have arrived or not; a SYN may count as one.
    pub(super) sent: u64,
}

/// Which sockets.
#[derive(Debug, Clone, Copy)]
pub(super) enum Of {
    /// Those of this address.
    Local(SocketAddr),
    /// Those connected to this address.
    Remote(SocketAddr),
}

/// The connected IPv4 sockets of a place.
///
/// # Errors
/// The kernel's, or `Unsupported` where it does not tell.
pub(super) fn connected(of: Of) -> io::Result<HashMap<Cookie, Seen>> {
    let mut socket = Socket::new(
        Domain::from(AF_NETLINK),
        Type::DGRAM,
        Some(Protocol::from(NETLINK_SOCK_DIAG)),
    )?;
    socket.set_read_timeout(Some(WITHIN))?;
    socket.write_all(&request(of))?;
    let mut seen = HashMap::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let len = socket.read(&mut buffer)?;
        if take(buffer.get(..len).unwrap_or_default(), of, &mut seen)? {
            return Ok(seen);
        }
    }
}

/// `inet_diag_req_v2`: all states but listening, of one port.
fn request(of: Of) -> Vec<u8> {
    let (local, remote) = match of {
        Of::Local(at) => (at.port(), 0),
        Of::Remote(at) => (0, at.port()),
    };
    const LEN: u32 = 16 + 56;
    const NOT_LISTENING: u32 = !(1 << 10);
    let mut bytes = Vec::with_capacity(LEN as usize);
    bytes.extend(LEN.to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend((NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    // Sequence number and port id: one question a socket.
    bytes.extend([0; 8]);
    bytes.extend([AF_INET, IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), 0]);
    bytes.extend(NOT_LISTENING.to_ne_bytes());
    bytes.extend(local.to_be_bytes());
    bytes.extend(remote.to_be_bytes());
    // Addresses, interface and cookie: any.
    bytes.resize(LEN as usize, 0);
    bytes
}

/// Takes what one datagram holds; true at the end of the dump.
fn take(datagram: &[u8], of: Of, seen: &mut HashMap<Cookie, Seen>) -> io::Result<bool> {
    let mut rest = datagram;
    while let (Some(len), Some(kind)) = (u32_at(rest, 0), u16_at(rest, 4)) {
        let len = len as usize;
        let Some(message) = rest.get(HEADER..len) else {
            return Err(ErrorKind::InvalidData.into());
        };
        match kind {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => {
                let errno = u32_at(message, 0).map_or(0, |errno| errno.cast_signed().wrapping_neg());
                return Err(io::Error::from_raw_os_error(errno));
            }
            SOCK_DIAG_BY_FAMILY => {
                if let Some((cookie, socket)) = socket(message, of) {
                    seen.insert(cookie, socket);
                }
            }
            _ => {}
        }
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// One `inet_diag_msg`, where it is a socket of the place: the kernel filters by port alone.
fn socket(message: &[u8], of: Of) -> Option<(Cookie, Seen)> {
    let state = *message.get(1)?;
    let address = |port: usize, host: usize| {
        let port = u16::from_be_bytes(message.get(port..port + 2)?.try_into().ok()?);
        let host: [u8; 4] = message.get(host..host + 4)?.try_into().ok()?;
        Some(SocketAddr::new(IpAddr::from(host), port))
    };
    let (local, remote) = (address(4, 8)?, address(6, 24)?);
    let is_meant = match of {
        Of::Local(at) => local == at,
        Of::Remote(at) => remote == at,
    };
    let (low, high) = (u32_at(message, 44)?, u32_at(message, 48)?);
    let cookie = u64::from(high) << 32 | u64::from(low);
    let info = info(message.get(MESSAGE..)?)?;
    let queued = u64::from(u32_at(message, QUEUED)?);
    is_meant.then_some((
        cookie,
        Seen {
            local,
            established: state == ESTABLISHED,
            received: u64_at(info, RECEIVED)?,
            sent: u64_at(info, ACKED)?.saturating_add(queued),
        },
    ))
}

/// `tcp_info` among the attributes; a socket that has ended has none.
fn info(mut attributes: &[u8]) -> Option<&[u8]> {
    loop {
        let (len, kind) = (usize::from(u16_at(attributes, 0)?), u16_at(attributes, 2)?);
        let value = attributes.get(4..len)?;
        if kind == INET_DIAG_INFO {
            return Some(value);
        }
        attributes = attributes.get(len.next_multiple_of(4)..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn kernel_tells_both_ends_of_a_connection_and_what_came_in() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        assert!(
            connected(Of::Local(at)).unwrap().is_empty(),
            "a listener is no connection"
        );
        let mut client = TcpStream::connect(at).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[1; 300]).unwrap();
        server.read_exact(&mut [0; 300]).unwrap();
        server.write_all(&[2; 7]).unwrap();
        client.read_exact(&mut [0; 7]).unwrap();
        let only = |of| {
            let seen = connected(of).unwrap();
            assert_eq!(seen.len(), 1, "{seen:?}");
            seen.into_iter().next().unwrap()
        };
        let (cookie, theirs) = only(Of::Local(at));
        assert_eq!((theirs.received, theirs.sent, theirs.established), (300, 7, true));
        let (_, ours) = only(Of::Remote(at));
        assert_eq!((ours.received, ours.local), (7, client.local_addr().unwrap()));
        // Its SYN may count.
        assert!((300..=301).contains(&ours.sent), "{ours:?}");
        // What nobody reads waits in the sockets, and counts as sent.
        client.set_nonblocking(true).unwrap();
        let mut more = 0;
        while let Ok(len) = client.write(&[3; 65_536]) {
            more += len as u64;
        }
        client.set_nonblocking(false).unwrap();
        let (_, ours) = only(Of::Remote(at));
        assert!((300 + more..=301 + more).contains(&ours.sent), "{more} and {ours:?}");
        let mut rest = vec![0; usize::try_from(more).unwrap()];
        server.read_exact(&mut rest).unwrap();
        client.write_all(&[1; 5]).unwrap();
        server.read_exact(&mut [0; 5]).unwrap();
        let (again, theirs) = only(Of::Local(at));
        assert_eq!((again, theirs.received), (cookie, 305 + more));
        drop(client);
        server.read_to_end(&mut Vec::new()).unwrap();
        let (_, closed) = only(Of::Local(at));
        assert!(!closed.established);
    }

    #[test]
    fn refusal_of_the_kernel_is_an_error_and_rubbish_is_no_socket() {
        let at = Of::Local("127.0.0.1:1".parse().unwrap());
        let mut refusal = Vec::new();
        refusal.extend(20u32.to_ne_bytes());
        refusal.extend(NLMSG_ERROR.to_ne_bytes());
        refusal.extend([0; 10]);
        refusal.extend((-2i32).to_ne_bytes());
        let error = take(&refusal, at, &mut HashMap::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let mut seen = HashMap::new();
        let mut rubbish = Vec::new();
        rubbish.extend(20u32.to_ne_bytes());
        rubbish.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        rubbish.resize(20, 0xff);
        assert!(!take(&rubbish, at, &mut seen).unwrap());
        assert!(seen.is_empty());
        assert!(take(&[255; 16], at, &mut seen).is_err());
    }
}
