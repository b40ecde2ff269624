//! The paths that are compared, each a process of its own, so that what it costs can be read from `/proc`.
//!
//! The bench starts itself again as `peer KIND UPSTREAM` for the link and for the plain copy. Toxiproxy is the real one,
//! built by `go install` into a folder below `target/`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use brokerfall::history::recorder::Recorder;
use brokerfall::link::builtin::{BuiltinLink, LinkOptions};
use brokerfall::link::{AnswerRule, Link};
use tokio::io::copy_bidirectional_with_sizes;

const TOXIPROXY: &str = "v2.12.0";
/// Buffer of the plain copy: with tokio's default of 8 KiB it is as slow as Toxiproxy, which would be a straw man.
const COPY: usize = 64 << 10;

/// A way from a client to a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Direct,
    Copy,
    Toxiproxy,
    Link,
    /// The link with a rule armed for Fetch that never finds its topic.
    LinkArmed,
    /// The link that closes what is idle for 20 s.
    LinkIdle,
}

impl Kind {
    pub(crate) const ALL: [Kind; 6] = [
        Kind::Direct,
        Kind::Copy,
        Kind::Toxiproxy,
        Kind::Link,
        Kind::LinkArmed,
        Kind::LinkIdle,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Direct => "direct loopback",
            Kind::Copy => "tokio copy, 64 KiB",
            Kind::Toxiproxy => "Toxiproxy",
            Kind::Link => "link, taps on",
            Kind::LinkArmed => "link, a rule armed",
            Kind::LinkIdle => "link, `idle` armed",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Kind::Direct => "direct",
            Kind::Copy => "copy",
            Kind::Toxiproxy => "toxiproxy",
            Kind::Link => "link",
            Kind::LinkArmed => "link-armed",
            Kind::LinkIdle => "link-idle",
        }
    }
}

/// A path that stands.
pub(crate) struct Peer {
    pub(crate) kind: Kind,
    pub(crate) address: SocketAddr,
    /// The child, and the process that forwards: it, or Toxiproxy below it.
    child: Option<(Child, u32)>,
}

impl Peer {
    /// Starts a path to `upstream`. `toxiproxy` is its server.
    pub(crate) fn start(kind: Kind, upstream: SocketAddr, toxiproxy: &Path) -> Self {
        let (address, child) = match kind {
            Kind::Direct => (upstream, None),
            _ => {
                let mut child = Command::new(std::env::current_exe().unwrap())
                    .args(["peer", kind.word(), &upstream.to_string()])
                    .arg(toxiproxy)
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .spawn()
                    .unwrap();
                let mut told = String::new();
                let stdout = child.stdout.as_mut().unwrap();
                BufReader::new(stdout).read_line(&mut told).unwrap();
                let (address, pid) = told.trim().split_once(' ').unwrap();
                (address.parse().unwrap(), Some((child, pid.parse().unwrap())))
            }
        };
        Peer { kind, address, child }
    }

    /// CPU time that the process has used, in seconds; none for the direct path.
    pub(crate) fn cpu(&self) -> Option<f64> {
        let tasks = format!("/proc/{}/task", self.child.as_ref()?.1);
        let spent = std::fs::read_dir(tasks).unwrap().flatten().filter_map(|task| {
            // Nanoseconds on a processor; `stat` counts in hundredths of a second, which is too coarse here.
            let told = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            told.split(' ').next()?.parse::<f64>().ok()
        });
        Some(spent.sum::<f64>() / 1e9)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if let Some((child, _)) = &mut self.child {
            drop(child.stdin.take());
            // OK to drop an error: then it has ended already.
            let _ = child.wait();
        }
    }
}

/// Serves as a peer where the arguments ask for it, until stdin ends.
pub(crate) fn serve_if_asked() {
    let args: Vec<String> = std::env::args().collect();
    let [_, first, kind, upstream, server] = &args[..] else {
        return;
    };
    if first != "peer" {
        return;
    }
    let upstream: SocketAddr = upstream.parse().unwrap();
    match kind.as_str() {
        "copy" => serve_copy(upstream),
        "toxiproxy" => serve_toxiproxy(Path::new(server), upstream),
        _ => serve_link(upstream, kind == "link-armed", kind == "link-idle"),
    }
    std::process::exit(0);
}

fn serve_copy(upstream: SocketAddr) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.spawn(async move {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        tell(listener.local_addr().unwrap(), std::process::id());
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut broker = tokio::net::TcpStream::connect(upstream).await.unwrap();
                client.set_nodelay(true).unwrap();
                broker.set_nodelay(true).unwrap();
                // How it ends is no matter of a bench.
                let _ = copy_bidirectional_with_sizes(&mut client, &mut broker, COPY, COPY).await;
            });
        }
    });
    runtime.block_on(until_stdin_ends());
}

/// The runtime is the product's (`cli::on_runtime`).
fn serve_link(upstream: SocketAddr, armed: bool, idle: bool) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    runtime.block_on(async {
        let recorder = Recorder::new(Some(&folder.path().join("history.jsonl"))).unwrap();
        let options = LinkOptions {
            idle: idle.then_some(Duration::from_secs(20)),
            ..LinkOptions::default()
        };
        let link = BuiltinLink::start(vec![(1, upstream)], recorder, options).unwrap();
        if armed {
            link.arm(AnswerRule {
                fault: "answer-error-1".into(),
                api: "Fetch".into(),
                code: 1,
                topic: Some("nobody-reads-it".into()),
                partition: None,
                client: None,
                times: None,
            });
        }
        tell(link.address(1).unwrap(), std::process::id());
        until_stdin_ends().await;
        link.shutdown().await;
    });
}

fn serve_toxiproxy(server: &Path, upstream: SocketAddr) {
    let (address, mut toxiproxy) = start_toxiproxy(server, upstream);
    tell(address, toxiproxy.id());
    // Either way it is to end now.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    toxiproxy.kill().unwrap();
    toxiproxy.wait().unwrap();
}

fn tell(address: SocketAddr, pid: u32) {
    println!("{address} {pid}");
}

async fn until_stdin_ends() {
    let read = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    read.await.unwrap().unwrap();
}

/// Builds Toxiproxy unless it is there already.
///
/// # Errors
/// Why there is none, for the named skip.
pub(crate) fn toxiproxy() -> Result<PathBuf, String> {
    // The bench itself stands in `target/PROFILE/deps`.
    let own = std::env::current_exe().unwrap();
    let folder = own.ancestors().nth(3).unwrap().join("peers").join(TOXIPROXY);
    let server = folder.join("server");
    if server.exists() {
        return Ok(server);
    }
    let package = format!("github.com/Shopify/toxiproxy/v2/cmd/server@{TOXIPROXY}");
    match Command::new("go")
        .args(["install", &package])
        .env("GOBIN", &folder)
        .status()
    {
        Ok(status) if status.success() => Ok(server),
        Ok(status) => Err(format!("`go install {package}` ended with {status}")),
        Err(cause) => Err(format!(
            "`go` cannot be started: {cause} (install Go to compare with Toxiproxy)"
        )),
    }
}

fn start_toxiproxy(server: &Path, upstream: SocketAddr) -> (SocketAddr, Child) {
    let control = free_address();
    let mut command = Command::new(server);
    command.args(["-host", &control.ip().to_string(), "-port", &control.port().to_string()]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let body = format!(r#"{{"name":"bench","listen":"127.0.0.1:0","upstream":"{upstream}","enabled":true}}"#);
    let asked = format!(
        "POST /proxies HTTP/1.1\r\nHost: {control}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut stream = loop {
        match TcpStream::connect(control) {
            Ok(stream) => break stream,
            Err(cause) => assert!(Instant::now() < deadline, "Toxiproxy does not answer: {cause}"),
        }
        std::thread::yield_now();
    };
    stream.write_all(asked.as_bytes()).unwrap();
    let mut told = String::new();
    stream.read_to_string(&mut told).unwrap();
    let (_, body) = told.split_once("\r\n\r\n").unwrap();
    let proxy: serde_json::Value = serde_json::from_str(body).unwrap();
    let listen = proxy["listen"]
        .as_str()
        .unwrap_or_else(|| panic!("Toxiproxy said {body}"));
    (listen.parse().unwrap(), child)
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}
