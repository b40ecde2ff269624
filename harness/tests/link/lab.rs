//! A link in front of a broker that the test plays, and what every test of the link reads from the history.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use brokerfall::cluster::NodeId;
use brokerfall::history::recorder::Recorder;
use brokerfall::link::builtin::{BuiltinLink, LinkOptions};
#[cfg(feature = "toxiproxy")]
use brokerfall::link::toxiproxy::ToxiproxyLink;
use brokerfall::link::{Connects, Cut, CutHeal, CutId, CutMode, Direction, Link};
use brokerfall_report::history::{ConnectionChange, Entry, Event};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// Longest wait for something that must happen.
pub(crate) const SOON: Duration = Duration::from_secs(10);
/// How long nothing must happen.
pub(crate) const WHILE: Duration = Duration::from_millis(120);

/// A link in front of one broker that the test plays.
pub(crate) struct Lab<L: Link = BuiltinLink> {
    pub(crate) link: L,
    pub(crate) broker: Option<TcpListener>,
    pub(crate) upstream: SocketAddr,
    pub(crate) recorder: Recorder,
    pub(crate) folder: tempfile::TempDir,
}

impl Lab {
    pub(crate) async fn new() -> Self {
        Lab::with(LinkOptions::default()).await
    }

    pub(crate) async fn with(options: LinkOptions) -> Self {
        Lab::start(async |upstreams, recorder| BuiltinLink::start(upstreams, recorder, options).unwrap()).await
    }
}

#[cfg(feature = "toxiproxy")]
impl Lab<ToxiproxyLink> {
    /// The same with Toxiproxy; `None` (said aloud) where there is no server and no Go to build one.
    pub(crate) async fn toxiproxy() -> Option<Self> {
        let program = crate::toxiproxy::program()?;
        let start = async |upstreams, recorder| {
            let own = std::path::Path::new(env!("CARGO_BIN_EXE_brokerfall"));
            let link = ToxiproxyLink::start(&program, own, upstreams, recorder, LinkOptions::default());
            link.await.unwrap()
        };
        Some(Lab::start(start).await)
    }
}

impl<L: Link> Lab<L> {
    async fn start(link: impl AsyncFnOnce(Vec<(NodeId, SocketAddr)>, Recorder) -> L) -> Self {
        let broker = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstream = broker.local_addr().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let recorder = Recorder::new(Some(&folder.path().join("history.jsonl"))).unwrap();
        let link = link(vec![(1, upstream)], recorder.clone()).await;
        Lab {
            link,
            broker: Some(broker),
            upstream,
            recorder,
            folder,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.link.address(1).unwrap()
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address()).await.unwrap()
    }

    /// The next connection that bytes come out of: the link's own looks at the broker are left out.
    pub(crate) async fn accept(&self) -> TcpStream {
        loop {
            let (stream, _) = timeout(SOON, self.broker.as_ref().unwrap().accept())
                .await
                .unwrap()
                .unwrap();
            let mut byte = [0];
            if !matches!(timeout(SOON, stream.peek(&mut byte)).await.unwrap(), Ok(0) | Err(_)) {
                return stream;
            }
        }
    }

    /// A client that has sent one request, and the broker's end, which has read it.
    pub(crate) async fn pair(&self, client: &str) -> (TcpStream, TcpStream) {
        let mut reader = self.connect().await;
        let sent = request(1, client, 10);
        reader.write_all(&sent).await.unwrap();
        let mut broker = self.accept().await;
        assert_eq!(read(&mut broker, sent.len()).await, sent);
        (reader, broker)
    }

    pub(crate) async fn cut(&self, mode: CutMode, direction: Direction, heals: CutHeal) -> CutId {
        let cut = Cut {
            nodes: vec![1],
            mode,
            direction,
            heals,
            connects: Connects::Accepted,
        };
        self.link.cut(cut).await.unwrap()
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        events(&self.link, &self.recorder, &self.folder)
    }

    pub(crate) fn count(&self, wanted: ConnectionChange) -> u64 {
        count(&self.events(), wanted)
    }

    /// Waits until a change of a connection was recorded so many times.
    pub(crate) async fn recorded(&self, change: ConnectionChange, times: u64) {
        until(|| self.count(change) == times).await;
    }
}

/// Waits until a condition holds.
pub(crate) async fn until(mut holds: impl FnMut() -> bool) {
    let waiting = async {
        let mut look = tokio::time::interval(Duration::from_millis(5));
        while !holds() {
            look.tick().await;
        }
    };
    timeout(SOON, waiting).await.expect("the condition became true in time");
}

/// A request of an api that the link only counts.
pub(crate) fn request(correlation: i32, client: &str, payload: usize) -> Vec<u8> {
    request_of(9_999, correlation, client, payload)
}

pub(crate) fn request_of(api: i16, correlation: i32, client: &str, payload: usize) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend_from_slice(&api.to_be_bytes());
    body.extend_from_slice(&0i16.to_be_bytes());
    body.extend_from_slice(&correlation.to_be_bytes());
    body.extend_from_slice(&i16::try_from(client.len()).unwrap().to_be_bytes());
    body.extend_from_slice(client.as_bytes());
    body.extend((0..payload).map(|at| u8::try_from(at % 251).unwrap()));
    framed(&body)
}

pub(crate) fn response(correlation: i32, payload: usize) -> Vec<u8> {
    let mut body = correlation.to_be_bytes().to_vec();
    body.extend((0..payload).map(|at| u8::try_from(at % 241).unwrap()));
    framed(&body)
}

pub(crate) fn framed(body: &[u8]) -> Vec<u8> {
    let mut frame = i32::try_from(body.len()).unwrap().to_be_bytes().to_vec();
    frame.extend_from_slice(body);
    frame
}

pub(crate) async fn read(stream: &mut TcpStream, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    timeout(SOON, stream.read_exact(&mut bytes))
        .await
        .expect("bytes in time")
        .unwrap();
    bytes
}

/// What a read gives next: a number of bytes, 0 for FIN, or the error's kind.
pub(crate) async fn next(stream: &mut TcpStream) -> Result<usize, ErrorKind> {
    let mut bytes = [0; 4096];
    timeout(SOON, stream.read(&mut bytes))
        .await
        .expect("an end in time")
        .map_err(|cause| cause.kind())
}

pub(crate) async fn assert_silent(stream: &mut TcpStream) {
    let mut byte = [0];
    assert!(timeout(WHILE, stream.peek(&mut byte)).await.is_err(), "something came");
}

pub(crate) async fn refused(address: SocketAddr) -> bool {
    TcpStream::connect(address)
        .await
        .is_err_and(|cause| cause.kind() == ErrorKind::ConnectionRefused)
}

/// Whether a socket of this machine listens there.
pub(crate) fn listens(address: SocketAddr) -> bool {
    pub(crate) const LISTEN: &str = "0A";
    let SocketAddr::V4(address) = address else {
        panic!("{address} is not IPv4")
    };
    let local = format!(
        "{:08X}:{:04X}",
        u32::from_ne_bytes(address.ip().octets()),
        address.port()
    );
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let mut rows = table.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
    rows.any(|row| row[1] == local && row[3] == LISTEN)
}

/// Tries until a connect is refused.
pub(crate) async fn refuses_soon(address: SocketAddr) {
    let trying = async { while !refused(address).await {} };
    timeout(SOON, trying).await.expect("refused in time");
}

/// What a link has recorded so far.
pub(crate) fn events(link: &dyn Link, recorder: &Recorder, folder: &tempfile::TempDir) -> Vec<Event> {
    link.flush();
    recorder.flush().unwrap();
    let lines = std::fs::read_to_string(folder.path().join("history.jsonl")).unwrap();
    lines
        .lines()
        .map(|line| serde_json::from_str::<Entry>(line).unwrap().event)
        .collect()
}

/// How many connections went through a change.
pub(crate) fn count(events: &[Event], wanted: ConnectionChange) -> u64 {
    let counts = events.iter().map(|event| match event {
        Event::WireConnection { change, count, .. } if *change == wanted => *count,
        _ => 0,
    });
    counts.sum()
}
