//! Claims: what a user's own endpoint or program says of the reader, asked over and over beside the adapter's status.
//!
//! ```toml
//! [[claim]]                                       # in brokerfall.toml, or in a reader's manifest
//! name = "readiness"
//! http = "http://127.0.0.1:{port}/ready"          # an answer of 200 to 299 says that the reader is healthy
//! every = "1s"
//! timeout = "500ms"
//!
//! [[claim]]
//! name = "probe"
//! exec = ["./probe.sh", "{port}"]                 # exit status 0 says so
//! ```
//!
//! `{port}` is a port of each reader process, free when it starts, which it learns from the variable `BROKERFALL_PORT`; so
//! several can run at a time. This file says what a claim is; [`poll`] asks. Deliberately not here: whether a claim is true
//! (that is `invariant/status_honest`).

pub mod poll;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::scenario::duration;

/// What stands for the reader's own port.
const PORT: &str = "{port}";
/// The variable that tells a reader, and a program that is asked, this port.
pub const PORT_VARIABLE: &str = "BROKERFALL_PORT";
/// How often is asked where nothing is said.
const EVERY: Duration = Duration::from_secs(1);
/// A claim stands for half a second without being repeated; asking more often than ten times a second only costs time.
const LEAST: Duration = Duration::from_millis(100);
const MOST: Duration = Duration::from_secs(60);

/// A claim to be asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Claim {
    /// How reports name it.
    pub name: String,
    /// Whom to ask.
    pub ask: Ask,
    /// Between two questions, 100 ms to 60 s.
    pub every: Duration,
    /// How long an answer may take; at most `every`. None by then says that the reader is not healthy.
    pub timeout: Duration,
}

/// Whom to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// An HTTP endpoint on a loopback address.
    Http(Url),
    /// A program, with its arguments.
    Exec(Vec<String>),
}

/// `http://ADDRESS:PORT/PATH` on a loopback address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    ip: IpAddr,
    /// Absent for the reader's own.
    port: Option<u16>,
    /// With its leading slash.
    path: String,
    text: String,
}

/// As it is written in TOML.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Written {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    http: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exec: Option<Vec<String>>,
    #[serde(default, with = "duration::option", skip_serializing_if = "Option::is_none")]
    every: Option<Duration>,
    #[serde(default, with = "duration::option", skip_serializing_if = "Option::is_none")]
    timeout: Option<Duration>,
}

impl TryFrom<Written> for Claim {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let Written {
            name,
            http,
            exec,
            every,
            timeout,
        } = written;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || !name.chars().all(plain) {
            return Err(format!(
                "`{}` is no name of a claim (wanted letters, digits, hyphens, dots)",
                name.escape_default()
            ));
        }
        let ask = match (http, exec) {
            (Some(text), None) => Ask::Http(Url::parse(&text)?),
            (None, Some(words)) if words.first().is_some_and(|program| !program.is_empty()) => Ask::Exec(words),
            (None, Some(_)) => {
                return Err(format!(
                    "`exec` of claim `{name}` is empty (wanted a program and its arguments)"
                ));
            }
            (Some(_), Some(_)) => return Err(format!("claim `{name}` has both `http` and `exec` (wanted one)")),
            (None, None) => {
                return Err(format!(
                    "claim `{name}` says nothing of whom to ask (wanted `http` or `exec`)"
                ));
            }
        };
        let every = every.unwrap_or(EVERY);
        if !(LEAST..=MOST).contains(&every) {
            return Err(format!(
                "`every` of claim `{name}` is out of range (wanted 100ms to 1m)"
            ));
        }
        let timeout = timeout.unwrap_or(every);
        if timeout.is_zero() || timeout > every {
            return Err(format!(
                "`timeout` of claim `{name}` is out of range (wanted more than 0 and at most `every`)"
            ));
        }
        Ok(Self {
            name,
            ask,
            every,
            timeout,
        })
    }
}

impl From<Claim> for Written {
    fn from(claim: Claim) -> Self {
        let (http, exec) = match claim.ask {
            Ask::Http(url) => (Some(url.text), None),
            Ask::Exec(words) => (None, Some(words)),
        };
        Self {
            name: claim.name,
            http,
            exec,
            every: Some(claim.every),
            timeout: Some(claim.timeout),
        }
    }
}

impl Claim {
    /// Whether every reader process would be asked at the same place.
    pub fn is_shared(&self) -> bool {
        match &self.ask {
            Ask::Http(url) => url.port.is_some(),
            // It knows of which process it is to tell.
            Ask::Exec(_) => false,
        }
    }
}

impl Url {
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| {
            format!(
                "`{}` {what} (wanted one such as \"http://127.0.0.1:{PORT}/ready\")",
                text.escape_default()
            )
        };
        let rest = text
            .strip_prefix("http://")
            .ok_or_else(|| wrong("does not begin with `http://`"))?;
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        if !path.chars().all(|c| c.is_ascii_graphic()) {
            return Err(wrong("has blanks or other letters than ASCII in its path"));
        }
        let (host, port) = authority.rsplit_once(':').ok_or_else(|| wrong("names no port"))?;
        let port = match port {
            PORT => None,
            port => Some(
                port.parse()
                    .ok()
                    .filter(|port| *port != 0)
                    .ok_or_else(|| wrong("names no port"))?,
            ),
        };
        let ip = match host.trim_start_matches('[').trim_end_matches(']') {
            "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
            ip => ip.parse().map_err(|_| wrong("names no address"))?,
        };
        if !ip.is_loopback() {
            return Err(wrong("is not on a loopback address, and nothing else is asked"));
        }
        Ok(Self {
            ip,
            port,
            path: path.to_owned(),
            text: text.to_owned(),
        })
    }

    /// Where to connect to, for a reader of this port.
    fn address(&self, own: u16) -> SocketAddr {
        SocketAddr::new(self.ip, self.port.unwrap_or(own))
    }
}

/// A port that nobody listens on now, on any address. It lies above those of the link and below the ephemeral ones, so that
/// neither is in its way: whoever asks again and again at a dead port within the ephemeral range can get connected to
/// itself.
pub(crate) fn free_port() -> Option<u16> {
    const FIRST: u16 = 28_000;
    const WIDTH: u16 = 4_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Harnesses that run at the same time begin at different places.
    let start = (std::process::id() % u32::from(WIDTH)) as u16;
    (0..WIDTH).find_map(|_| {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + (start.wrapping_add(step)) % WIDTH;
        std::net::TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))
            .ok()
            .map(|_| port)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(text: &str) -> Result<Claim, String> {
        toml::from_str(text).map_err(|cause: toml::de::Error| cause.message().to_owned())
    }

    #[test]
    fn claims_are_read_and_written_back() {
        let http = claim("name = \"ready\"\nhttp = \"http://127.0.0.1:{port}/ready?full=1\"\n").unwrap();
        assert_eq!((http.every, http.timeout), (EVERY, EVERY));
        assert!(!http.is_shared());
        let Ask::Http(url) = &http.ask else { panic!("{http:?}") };
        assert_eq!(
            (url.address(4711), url.path.as_str()),
            (SocketAddr::from(([127, 0, 0, 1], 4711)), "/ready?full=1")
        );
        for (host, address) in [("[::1]:80", "[::1]:80"), ("localhost:8080", "127.0.0.1:8080")] {
            let fixed = claim(&format!("name = \"x\"\nhttp = \"http://{host}\"\n")).unwrap();
            let Ask::Http(url) = &fixed.ask else {
                panic!("{fixed:?}")
            };
            assert_eq!(
                (url.address(1).to_string(), url.path.as_str()),
                (address.to_owned(), "/")
            );
            assert!(fixed.is_shared());
        }
        let exec = claim("name = \"probe\"\nexec = [\"probe\"]\nevery = \"2s\"\ntimeout = \"1s\"\n").unwrap();
        assert_eq!(claim(&toml::to_string(&exec).unwrap()).unwrap(), exec);
    }

    #[test]
    fn anything_else_is_refused_with_what_was_wanted() {
        let http = |url: &str| claim(&format!("name = \"x\"\nhttp = \"{url}\"\n")).unwrap_err();
        assert!(http("https://127.0.0.1:1/").contains("does not begin with `http://`"));
        assert!(http("http://127.0.0.1/ready").contains("names no port"));
        assert!(http("http://127.0.0.1:0/").contains("names no port"));
        assert!(http("http://example.com:80/").contains("names no address"));
        assert!(http("http://192.0.2.1:80/").contains("is not on a loopback address"));
        assert!(http("http://127.0.0.1:1/a b").contains("blanks"));
        for (text, wanted) in [
            ("name = \"\"\nexec = [\"x\"]\n", "is no name of a claim"),
            ("name = \"x\"\n", "wanted `http` or `exec`"),
            ("name = \"x\"\nexec = []\n", "`exec` of claim `x` is empty"),
            (
                "name = \"x\"\nexec = [\"x\"]\nhttp = \"http://127.0.0.1:1/\"\n",
                "both `http` and `exec`",
            ),
            ("name = \"x\"\nexec = [\"x\"]\nevery = \"50ms\"\n", "wanted 100ms to 1m"),
            (
                "name = \"x\"\nexec = [\"x\"]\nevery = \"1s\"\ntimeout = \"2s\"\n",
                "at most `every`",
            ),
            (
                "name = \"x\"\nexec = [\"x\"]\nperiod = \"1s\"\n",
                "unknown field `period`",
            ),
        ] {
            let refused = claim(text).unwrap_err();
            assert!(refused.contains(wanted), "{text}: {refused}");
        }
    }

    #[test]
    fn free_ports_differ() {
        assert_ne!(free_port().unwrap(), free_port().unwrap());
    }
}
