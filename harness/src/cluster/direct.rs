//! Requests straight to a broker's direct listener, spoken in Kafka's protocol: for clusters and the oracle, never for
//! a reader.
//!
//! ```text
//! oracle, cluster --DirectConnection::ask--> broker (direct listener; the link is not on this way)
//! ```
//!
//! A client library would add threads, queues, retries and backoffs of its own, and could then not tell a request that
//! never left from one whose answer was lost. Here one request is in flight at a time and every error says which it was
//! ([`DirectError::never_sent`]). Deliberately not here: retries, and knowing who leads what.

use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    ApiKey, FindCoordinatorRequest, MetadataRequest, MetadataResponse, RequestHeader, ResponseHeader,
    SaslAuthenticateRequest, SaslHandshakeRequest, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{ClusterError, NodeId};

/// Largest answer taken. A broker's answers to the requests made here stay far below it; a length above it is garbage.
const MAX_FRAME: u32 = 64 << 20;

/// Below version 9, where the mock cluster appends a surplus byte; Kafka 4 still answers it.
const METADATA_VERSION: i16 = 8;

/// Longest wait until the port of a broker that has gone refuses.
const REFUSES_WITHIN: Duration = Duration::from_secs(5);

/// A probe of a port that takes longer says nothing.
const PROBE_WITHIN: Duration = Duration::from_millis(50);

/// Last version that is not flexible.
const FIND_COORDINATOR_VERSION: i16 = 2;

/// The one after which the login itself is framed as a request.
const SASL_HANDSHAKE_VERSION: i16 = 1;

/// Last version that is not flexible.
const SASL_AUTHENTICATE_VERSION: i16 = 1;

/// Who asks: its `client.id`, and its login where the listener wants one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asker {
    client: &'static str,
    login: Option<Login>,
}

/// A user and password for SASL/PLAIN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Login {
    /// User, `User:NAME` as a principal.
    pub user: &'static str,
    /// Password.
    pub password: &'static str,
}

impl Asker {
    /// The same client, logging in.
    #[must_use]
    pub const fn new(client: &'static str, login: Option<Login>) -> Self {
        Self { client, login }
    }
}

impl From<&'static str> for Asker {
    fn from(client: &'static str) -> Self {
        Self::new(client, None)
    }
}

/// One connection to a direct listener, one request at a time.
#[derive(Debug)]
pub struct DirectConnection {
    address: SocketAddr,
    stream: TcpStream,
    client: StrBytes,
    correlation: i32,
    /// False while a request is in flight: a connection whose caller went away in the middle must not be used again.
    between_requests: bool,
}

impl DirectConnection {
    /// Connects, and logs in where the asker has a login.
    ///
    /// # Errors
    /// [`DirectError::Connect`], [`DirectError::Login`].
    pub async fn open(address: SocketAddr, asker: impl Into<Asker>, within: Duration) -> Result<Self, DirectError> {
        let Asker { client, login } = asker.into();
        let deadline = tokio::time::Instant::now() + within;
        let connected = match tokio::time::timeout(within, TcpStream::connect(address)).await {
            Ok(connected) => connected,
            Err(_) => Err(std::io::ErrorKind::TimedOut.into()),
        };
        let opened = connected.and_then(|stream| stream.set_nodelay(true).map(|()| stream));
        let stream = opened.map_err(|source| DirectError::Connect { address, source })?;
        let mut connection = Self {
            address,
            stream,
            client: StrBytes::from_static_str(client),
            correlation: 0,
            between_requests: true,
        };
        if let Some(login) = login {
            let left = deadline.saturating_duration_since(tokio::time::Instant::now());
            connection.log_in(login, left).await.map_err(|cause| match cause {
                // Whatever was to be asked has not been sent.
                DirectError::Lost { source, .. } => DirectError::Connect { address, source },
                cause => cause,
            })?;
        }
        Ok(connection)
    }

    /// SASL/PLAIN: the mechanism is agreed on, then user and password are sent.
    async fn log_in(&mut self, login: Login, within: Duration) -> Result<(), DirectError> {
        let address = self.address;
        let refused = |code: i16, said: Option<&str>| {
            let name = ResponseError::try_from_code(code).map_or_else(String::new, |error| format!("{error:?}: "));
            DirectError::Login {
                address,
                user: login.user,
                reason: format!("{name}{}", said.unwrap_or("no more is said")),
            }
        };
        let handshake = SaslHandshakeRequest::default().with_mechanism(StrBytes::from_static_str("PLAIN"));
        let answer = self.ask(SASL_HANDSHAKE_VERSION, &handshake, within).await?;
        if answer.error_code != 0 {
            return Err(refused(answer.error_code, None));
        }
        let words = format!("\0{}\0{}", login.user, login.password);
        let authenticate = SaslAuthenticateRequest::default().with_auth_bytes(Bytes::from(words));
        let answer = self.ask(SASL_AUTHENTICATE_VERSION, &authenticate, within).await?;
        match answer.error_code {
            0 => Ok(()),
            code => Err(refused(code, answer.error_message.as_deref())),
        }
    }

    /// Whether another request may be sent: nothing is in flight and the broker has not closed the connection.
    ///
    /// Asked before each use of a kept connection, because a request written into one that the broker has closed
    /// meanwhile would count as sent, and its records as maybe written.
    pub fn is_usable(&self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        let peeked = socket2::SockRef::from(&self.stream).peek(&mut byte);
        self.between_requests && matches!(peeked, Err(cause) if cause.kind() == std::io::ErrorKind::WouldBlock)
    }

    /// Sends a request in `version` and waits for its answer.
    ///
    /// # Errors
    /// [`DirectError::Lost`] when the connection breaks or `within` passes, [`DirectError::Undecodable`]. Either way the
    /// connection is no longer usable.
    pub async fn ask<R: Request>(
        &mut self,
        version: i16,
        request: &R,
        within: Duration,
    ) -> Result<R::Response, DirectError> {
        let api = ApiKey::try_from(R::KEY).map_or_else(|()| R::KEY.to_string(), |key| format!("{key:?}"));
        self.correlation = self.correlation.wrapping_add(1);
        let frame = self
            .frame(version, request)
            .map_err(|reason| DirectError::Unencodable {
                api: api.clone(),
                version,
                reason,
            })?;
        self.between_requests = false;
        let answer = match tokio::time::timeout(within, exchange(&mut self.stream, &frame)).await {
            Ok(answer) => answer,
            Err(_) => Err(std::io::ErrorKind::TimedOut.into()),
        };
        let mut answer = answer.map_err(|source| DirectError::Lost {
            api: api.clone(),
            address: self.address,
            source,
        })?;
        let response = self
            .decode::<R>(version, &mut answer)
            .map_err(|reason| DirectError::Undecodable { api, version, reason })?;
        self.between_requests = true;
        Ok(response)
    }

    fn frame<R: Request>(&self, version: i16, request: &R) -> Result<Bytes, String> {
        let mut frame = BytesMut::new();
        frame.put_u32(0);
        RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(self.correlation)
            .with_client_id(Some(self.client.clone()))
            .encode(&mut frame, R::header_version(version))
            .and_then(|()| request.encode(&mut frame, version))
            // kafka-protocol's errors are `anyhow::Error`, which is no `std::error::Error`: only their text can be kept.
            .map_err(|cause| format!("{cause:#}"))?;
        let length = u32::try_from(frame.len() - 4).map_err(|_| "longer than 4 GiB".to_owned())?;
        frame[..4].copy_from_slice(&length.to_be_bytes());
        Ok(frame.freeze())
    }

    fn decode<R: Request>(&self, version: i16, answer: &mut Bytes) -> Result<R::Response, String> {
        let header = ResponseHeader::decode(answer, R::Response::header_version(version))
            .map_err(|cause| format!("{cause:#}"))?;
        if header.correlation_id != self.correlation {
            return Err(format!(
                "it answers request {}, wanted {}",
                header.correlation_id, self.correlation
            ));
        }
        R::Response::decode(answer, version).map_err(|cause| format!("{cause:#}"))
    }
}

async fn exchange(stream: &mut TcpStream, frame: &[u8]) -> std::io::Result<Bytes> {
    stream.write_all(frame).await?;
    let length = stream.read_u32().await?;
    if length > MAX_FRAME {
        return Err(std::io::Error::other(format!(
            "a frame of {length} bytes was announced"
        )));
    }
    let mut answer = BytesMut::with_capacity(length as usize).limit(length as usize);
    while answer.has_remaining_mut() {
        if stream.read_buf(&mut answer).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(answer.into_inner().freeze())
}

/// Sends one request over a connection of its own.
///
/// # Errors
/// Those of [`DirectConnection::open`] and [`DirectConnection::ask`].
pub async fn ask<R: Request>(
    address: SocketAddr,
    asker: impl Into<Asker>,
    version: i16,
    request: &R,
    within: Duration,
) -> Result<R::Response, DirectError> {
    let mut connection = DirectConnection::open(address, asker, within).await?;
    connection.ask(version, request, within).await
}

/// Asks one broker for the metadata of these topics (all when empty). Creates no topic.
///
/// # Errors
/// Those of [`DirectConnection::open`] and [`DirectConnection::ask`].
pub async fn metadata(
    address: SocketAddr,
    asker: impl Into<Asker>,
    topics: &[String],
    within: Duration,
) -> Result<MetadataResponse, DirectError> {
    let wanted = topics
        .iter()
        .map(|name| MetadataRequestTopic::default().with_name(Some(topic_name(name))))
        .collect();
    let request = MetadataRequest::default()
        .with_topics(if topics.is_empty() { None } else { Some(wanted) })
        .with_allow_auto_topic_creation(false);
    ask(address, asker, METADATA_VERSION, &request, within).await
}

/// What a broker coordinates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coordinated<'a> {
    /// A consumer group.
    Group(&'a str),
    /// The transactions of a producer, by its transactional id.
    Transaction(&'a str),
}

impl std::fmt::Display for Coordinated<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Coordinated::Group(name) => write!(f, "group {name}"),
            Coordinated::Transaction(name) => write!(f, "transactional id {name}"),
        }
    }
}

/// Asks one broker which node coordinates a group or a transaction; `None` while none does.
///
/// # Errors
/// Those of [`DirectConnection::open`] and [`DirectConnection::ask`].
pub async fn coordinator(
    address: SocketAddr,
    asker: impl Into<Asker>,
    of: Coordinated<'_>,
    within: Duration,
) -> Result<Option<NodeId>, DirectError> {
    let (name, kind) = match of {
        Coordinated::Group(name) => (name, 0),
        Coordinated::Transaction(name) => (name, 1),
    };
    let request = FindCoordinatorRequest::default()
        .with_key(StrBytes::from_string(name.to_owned()))
        .with_key_type(kind);
    let answer = ask(address, asker, FIND_COORDINATOR_VERSION, &request, within).await?;
    Ok((answer.error_code == 0).then_some(answer.node_id.0))
}

/// Waits until a port refuses connections, with a probe `every` so often; returns how many it took.
///
/// # Errors
/// [`ClusterError::TimedOut`] when it still accepts, or does not answer, after 5 s.
pub(super) async fn refuses(address: SocketAddr, every: Duration) -> Result<u32, ClusterError> {
    let deadline = tokio::time::Instant::now() + REFUSES_WITHIN;
    let mut probes = 0;
    loop {
        probes += 1;
        let last_seen = match tokio::time::timeout(PROBE_WITHIN, TcpStream::connect(address)).await {
            Ok(Err(cause)) if cause.kind() == std::io::ErrorKind::ConnectionRefused => return Ok(probes),
            Ok(Err(cause)) => cause.to_string(),
            Ok(Ok(_)) => "a connection".to_owned(),
            Err(_) => "no answer".to_owned(),
        };
        if tokio::time::Instant::now() >= deadline {
            return Err(ClusterError::TimedOut {
                what: format!("refusal at {address}"),
                within: REFUSES_WITHIN,
                last_seen,
            });
        }
        crate::before_the_next_look(every).await;
    }
}

/// A topic's name as the protocol's types want it.
pub fn topic_name(name: &str) -> TopicName {
    TopicName(StrBytes::from_string(name.to_owned()))
}

/// Why a direct request failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectError {
    /// The broker could not be reached; nothing was sent.
    #[error("no connection to the broker at {address}")]
    Connect {
        /// Direct address.
        address: SocketAddr,
        /// The operating system's answer.
        #[source]
        source: std::io::Error,
    },
    /// The broker let nobody in; nothing was sent but the login.
    #[error("the broker at {address} refused the login of `{user}`: {reason}")]
    Login {
        /// Direct address.
        address: SocketAddr,
        /// Who wanted in.
        user: &'static str,
        /// What the broker said.
        reason: String,
    },
    /// The request was sent, at least in part, and no answer came.
    #[error("no answer to {api} from the broker at {address}")]
    Lost {
        /// Api name.
        api: String,
        /// Direct address.
        address: SocketAddr,
        /// The operating system's answer.
        #[source]
        source: std::io::Error,
    },
    /// The answer is not what the protocol says.
    #[error("the answer to {api} version {version} could not be decoded: {reason}")]
    Undecodable {
        /// Api name.
        api: String,
        /// Version.
        version: i16,
        /// What the decoder said.
        reason: String,
    },
    /// The request could not be encoded; nothing was sent. A bug of ours.
    #[error("a request {api} version {version} could not be encoded: {reason}")]
    Unencodable {
        /// Api name.
        api: String,
        /// Version.
        version: i16,
        /// What the encoder said.
        reason: String,
    },
}

impl DirectError {
    /// True when only a bug of ours can have caused it.
    pub(crate) fn is_ours(&self) -> bool {
        matches!(self, DirectError::Unencodable { .. })
    }

    /// True when the broker cannot have seen the request.
    pub fn never_sent(&self) -> bool {
        matches!(
            self,
            DirectError::Connect { .. } | DirectError::Login { .. } | DirectError::Unencodable { .. }
        )
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::ApiVersionsRequest;
    use tokio::net::TcpListener;

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    async fn pair() -> (DirectConnection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connection = DirectConnection::open(listener.local_addr().unwrap(), "test", SOON)
            .await
            .unwrap();
        (connection, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn connection_that_the_broker_closed_is_not_usable() {
        let (connection, broker) = pair().await;
        assert!(connection.is_usable());
        drop(broker);
        // The FIN has arrived when a read sees it.
        connection.stream.readable().await.unwrap();
        assert!(!connection.is_usable());
    }

    #[tokio::test]
    async fn connection_whose_request_was_given_up_is_not_usable() {
        let (mut connection, _broker) = pair().await;
        let request = ApiVersionsRequest::default();
        let given_up = tokio::time::timeout(Duration::from_millis(20), connection.ask(0, &request, SOON)).await;
        assert!(given_up.is_err());
        assert!(!connection.is_usable());
    }

    #[tokio::test]
    async fn broker_that_speaks_another_protocol_is_lost_and_not_believed() {
        let (mut connection, mut broker) = pair().await;
        broker.write_all(b"HTTP/1.1 400 Bad Request").await.unwrap();
        let lost = connection
            .ask(0, &ApiVersionsRequest::default(), SOON)
            .await
            .unwrap_err();
        assert!(
            matches!(lost, DirectError::Lost { .. }) && !lost.never_sent(),
            "{lost:?}"
        );
    }

    #[tokio::test]
    async fn port_that_refuses_never_saw_the_request() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let refused = DirectConnection::open(address, "test", SOON).await.unwrap_err();
        assert!(refused.never_sent(), "{refused:?}");
    }
}
