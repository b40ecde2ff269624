//! Toxiproxy's API, driven so that what is said to be in force is in force.
//!
//! The client crate looks at no status (a refused toxic "succeeds"), panics where a connection fails, and may be neither
//! made nor dropped among tokio's tasks. So it lives on a thread of its own, a panic of it is an error, and after each
//! change the proxy is read back and compared. What it lacks (one toxic's removal and update, reset_peer, the version) is
//! plain HTTP here, whose statuses are errors.

use std::any::Any;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::timeout;
use toxiproxy_rust::client::Client;
use toxiproxy_rust::proxy::{Proxy as Remote, ProxyPack};
use toxiproxy_rust::toxic::ToxicPack;

use super::toxics::{Kind, State, Stream, Toxic};

/// Longest wait for an answer. Toxiproxy itself gives up after 25 s, such as where a connection takes no bytes and so no
/// toxic can be put on it.
const WITHIN: Duration = Duration::from_secs(10);
/// Longest answer that is read, bytes.
const LONGEST: u64 = 1 << 20;
/// A toxic is for every connection.
const ALWAYS: f32 = 1.0;

/// A server's API.
pub struct Api {
    control: SocketAddr,
    jobs: mpsc::Sender<Job>,
}

type Job = Box<dyn FnOnce(&Client) + Send>;

/// A proxy to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewProxy {
    /// Its name.
    pub name: String,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Where it leads.
    pub upstream: SocketAddr,
}

/// Why a server did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApiError {
    /// It was not reached, or did not answer.
    #[error("Toxiproxy at {control} did not answer to {what}: {text} (has it ended?)")]
    Away {
        /// Its address.
        control: SocketAddr,
        /// What it was asked for.
        what: String,
        /// What the client says of it.
        text: String,
    },
    /// It answered with a status that is no success.
    #[error("Toxiproxy answered {status} to {what}: {answer}")]
    Refused {
        /// What it was asked for.
        what: String,
        /// The status.
        status: u16,
        /// Its words.
        answer: String,
    },
    /// It took the change and is not as it should be.
    #[error("after {what} Toxiproxy tells of {proxy} {found} (wanted {wanted})")]
    NotInForce {
        /// What it was asked for.
        what: String,
        /// The proxy.
        proxy: String,
        /// What it tells.
        found: String,
        /// What it should tell.
        wanted: String,
    },
    /// Its answer is none that Toxiproxy gives.
    #[error("the answer to {what} cannot be read: {answer} (is another program at {control}?)")]
    Unreadable {
        /// Its address.
        control: SocketAddr,
        /// What it was asked for.
        what: String,
        /// The answer.
        answer: String,
    },
    /// The client's thread could not be started.
    #[error("the client of Toxiproxy cannot be started")]
    Client(#[source] std::io::Error),
}

/// What the crate has been asked to do.
type Crate<T> = Result<T, String>;

impl Api {
    /// The API at an address; nobody is asked yet.
    ///
    /// # Errors
    /// [`ApiError::Client`].
    pub fn new(control: SocketAddr) -> Result<Self, ApiError> {
        let (jobs, inbox) = mpsc::channel::<Job>();
        std::thread::Builder::new()
            .name("toxiproxy".to_owned())
            .spawn(move || {
                let client = Client::new(control);
                while let Ok(job) = inbox.recv() {
                    job(&client);
                }
            })
            .map_err(ApiError::Client)?;
        Ok(Api { control, jobs })
    }

    /// The version that the server tells.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn version(&self) -> Result<String, ApiError> {
        #[derive(Deserialize)]
        struct Told {
            version: String,
        }
        let answer = self.ask("GET", "/version", "").await?;
        let told: Result<Told, _> = serde_json::from_str(&answer);
        told.map(|told| told.version)
            .map_err(|_| self.unreadable("GET /version", &answer))
    }

    /// Makes proxies; each listens when this returns.
    ///
    /// # Errors
    /// [`ApiError::Refused`] where one of that name is missing afterwards, as when its port is taken;
    /// [`ApiError::NotInForce`] where it is another one.
    pub async fn populate(&self, proxies: &[NewProxy]) -> Result<(), ApiError> {
        let pack =
            |proxy: &NewProxy| ProxyPack::new(proxy.name.clone(), proxy.listen.to_string(), proxy.upstream.to_string());
        let packs: Vec<ProxyPack> = proxies.iter().map(pack).collect();
        let made = self
            .call("populate", move |client| client.populate(packs).map(drop))
            .await;
        if let Err(cause @ ApiError::Away { .. }) = made {
            return Err(cause);
        }
        // The crate cannot read a refusal; what is there afterwards counts.
        for proxy in proxies {
            let found = self.pack(&proxy.name).await?;
            let told = format!("{} to {}", found.listen, found.upstream);
            let wanted = format!("{} to {}", proxy.listen, proxy.upstream);
            if told != wanted || !found.enabled {
                return Err(self.not_in_force("populate", &proxy.name, told, wanted));
            }
        }
        Ok(())
    }

    /// The state of a proxy.
    ///
    /// # Errors
    /// [`ApiError::Refused`] with status 404 where there is no such proxy.
    pub async fn state(&self, proxy: &str) -> Result<State, ApiError> {
        let pack = self.pack(proxy).await?;
        let toxics: Result<Vec<Toxic>, String> = pack.toxics.iter().map(toxic).collect();
        let mut toxics = toxics.map_err(|strange| self.unreadable(&format!("GET {}", path(proxy)), &strange))?;
        toxics.sort_by_key(|toxic| (toxic.stream, toxic.kind));
        Ok(State {
            enabled: pack.enabled,
            toxics,
        })
    }

    /// Makes a proxy listen, or refuse and close its connections.
    ///
    /// # Errors
    /// [`ApiError::NotInForce`] where it does not, as when its port is taken.
    pub async fn enable(&self, proxy: &str, enabled: bool) -> Result<(), ApiError> {
        let what = if enabled { "enable" } else { "disable" };
        self.of(proxy, what, move |remote| match enabled {
            true => remote.enable(),
            false => remote.disable(),
        })
        .await?;
        self.compare(what, proxy, |state| state.enabled == enabled, || what.to_owned() + "d")
            .await
    }

    /// Puts a toxic on a proxy, in force on every connection when this returns.
    ///
    /// # Errors
    /// [`ApiError::NotInForce`] where another one of its name stands there; [`ApiError::Refused`] in place of it for
    /// `reset_peer`.
    pub async fn add(&self, proxy: &str, toxic: &Toxic) -> Result<(), ApiError> {
        let what = format!("add {toxic}");
        if toxic.kind == Kind::ResetPeer {
            let body = serde_json::json!({
                "name": toxic.name(),
                "type": toxic.kind.name(),
                "stream": toxic.stream.name(),
                "toxicity": ALWAYS,
                "attributes": toxic.attributes,
            });
            self.ask("POST", &format!("{}/toxics", path(proxy)), &body.to_string())
                .await?;
        } else {
            let wanted = toxic.clone();
            self.of(proxy, &what, move |remote| {
                let stream = wanted.stream.name().to_owned();
                match wanted.kind {
                    Kind::Bandwidth => remote.with_bandwidth(stream, wanted.attribute("rate"), ALWAYS),
                    Kind::Latency => {
                        let (latency, jitter) = (wanted.attribute("latency"), wanted.attribute("jitter"));
                        remote.with_latency(stream, latency, jitter, ALWAYS)
                    }
                    Kind::Timeout => remote.with_timeout(stream, wanted.attribute("timeout"), ALWAYS),
                    Kind::ResetPeer => return Err("the crate knows no reset_peer".to_owned()),
                };
                Ok(())
            })
            .await?;
        }
        self.has(&what, proxy, toxic).await
    }

    /// Changes the settings of a toxic that is there.
    ///
    /// # Errors
    /// [`ApiError::Refused`] with status 404 where there is none of its name.
    pub async fn update(&self, proxy: &str, toxic: &Toxic) -> Result<(), ApiError> {
        let body = serde_json::json!({ "attributes": toxic.attributes }).to_string();
        let path = format!("{}/toxics/{}", path(proxy), toxic.name());
        self.ask("PATCH", &path, &body).await?;
        self.has(&format!("change to {toxic}"), proxy, toxic).await
    }

    /// Takes a toxic from a proxy.
    ///
    /// # Errors
    /// [`ApiError::Refused`] with status 404 where there is none of its name.
    pub async fn remove(&self, proxy: &str, toxic: &Toxic) -> Result<(), ApiError> {
        let path = format!("{}/toxics/{}", path(proxy), toxic.name());
        self.ask("DELETE", &path, "").await?;
        let is_gone = |state: &State| state.toxic(toxic).is_none();
        self.compare(&format!("remove {toxic}"), proxy, is_gone, || {
            format!("no {}", toxic.name())
        })
        .await
    }

    async fn has(&self, what: &str, proxy: &str, toxic: &Toxic) -> Result<(), ApiError> {
        self.compare(
            what,
            proxy,
            |state| state.toxic(toxic) == Some(toxic),
            || toxic.to_string(),
        )
        .await
    }

    async fn compare(
        &self,
        what: &str,
        proxy: &str,
        holds: impl Fn(&State) -> bool,
        wanted: impl Fn() -> String,
    ) -> Result<(), ApiError> {
        let state = self.state(proxy).await?;
        if holds(&state) {
            return Ok(());
        }
        Err(self.not_in_force(what, proxy, state.to_string(), wanted()))
    }

    fn not_in_force(&self, what: &str, proxy: &str, found: String, wanted: String) -> ApiError {
        ApiError::NotInForce {
            what: what.to_owned(),
            proxy: proxy.to_owned(),
            found,
            wanted,
        }
    }

    /// What the crate reads of a proxy.
    async fn pack(&self, proxy: &str) -> Result<ProxyPack, ApiError> {
        let what = format!("GET {}", path(proxy));
        let name = proxy.to_owned();
        let asked = self.call(&what, move |client| {
            client.find_proxy(&name).map(|found| found.proxy_pack)
        });
        self.explained(&what, proxy, asked.await).await
    }

    /// Has the crate do something to a proxy. It is looked for first, so that a server that is gone is an error of that
    /// look and no panic of what follows.
    async fn of(
        &self,
        proxy: &str,
        what: &str,
        job: impl FnOnce(&Remote) -> Crate<()> + Send + 'static,
    ) -> Result<(), ApiError> {
        let name = proxy.to_owned();
        let asked = self.call(what, move |client| job(&client.find_proxy(&name)?));
        self.explained(what, proxy, asked.await).await
    }

    /// Where the crate could not read what it was told of a proxy, plain HTTP says why.
    async fn explained<T>(&self, what: &str, proxy: &str, asked: Result<T, ApiError>) -> Result<T, ApiError> {
        match asked {
            Err(ApiError::Unreadable { .. }) => {
                let answer = self.ask("GET", &path(proxy), "").await?;
                Err(self.unreadable(what, &answer))
            }
            other => other,
        }
    }

    /// Has the crate do something.
    async fn call<T: Send + 'static>(
        &self,
        what: &str,
        job: impl FnOnce(&Client) -> Crate<T> + Send + 'static,
    ) -> Result<T, ApiError> {
        let (reply, answer) = oneshot::channel();
        let job: Job = Box::new(move |client| {
            // The client has nothing of its own that a panic could leave half done.
            let done = catch_unwind(AssertUnwindSafe(|| job(client)));
            // OK to drop an answer: whoever asked has given up.
            let _ = reply.send(done.unwrap_or_else(|panic| Err(said(&*panic))));
        });
        let away = |text: &str| ApiError::Away {
            control: self.control,
            what: what.to_owned(),
            text: text.to_owned(),
        };
        self.jobs.send(job).map_err(|_| away("the client's thread has ended"))?;
        match timeout(WITHIN, answer).await {
            Ok(Ok(Ok(done))) => Ok(done),
            // The crate's errors are text alone: this one is of an answer, all others of none.
            Ok(Ok(Err(text))) if text.contains("json deserialize failed") => Err(self.unreadable(what, &text)),
            Ok(Ok(Err(text))) => Err(away(&text)),
            Ok(Err(_)) => Err(away("the client's thread has ended")),
            Err(_) => Err(away(&format!("no answer within {WITHIN:?}"))),
        }
    }

    /// Asks by plain HTTP, and returns the body of a success.
    async fn ask(&self, method: &str, path: &str, body: &str) -> Result<String, ApiError> {
        let what = format!("{method} {path}");
        let away = |text: String| ApiError::Away {
            control: self.control,
            what: what.clone(),
            text,
        };
        let asking = async {
            let mut stream = TcpStream::connect(self.control).await?;
            // Of HTTP 1.0, so that the answer comes in one piece.
            let head = format!(
                "{method} {path} HTTP/1.0\r\nHost: {}\r\nContent-Length: {}\r\n\r\n",
                self.control,
                body.len()
            );
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(body.as_bytes()).await?;
            let mut answer = Vec::new();
            stream.take(LONGEST).read_to_end(&mut answer).await?;
            std::io::Result::Ok(answer)
        };
        let answer = match timeout(WITHIN, asking).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(cause)) => return Err(away(cause.to_string())),
            Err(_) => return Err(away(format!("no answer within {WITHIN:?}"))),
        };
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut head = httparse::Response::new(&mut headers);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        match head.parse(&answer) {
            Ok(httparse::Status::Complete(len)) => {
                let body = text(answer.get(len..).unwrap_or_default());
                match head.code {
                    Some(200..300) => Ok(body),
                    status => Err(ApiError::Refused {
                        what,
                        status: status.unwrap_or_default(),
                        answer: words(&body),
                    }),
                }
            }
            _ => Err(self.unreadable(&what, &text(&answer))),
        }
    }

    fn unreadable(&self, what: &str, answer: &str) -> ApiError {
        ApiError::Unreadable {
            control: self.control,
            what: what.to_owned(),
            answer: answer.to_owned(),
        }
    }
}

fn path(proxy: &str) -> String {
    format!("/proxies/{proxy}")
}

/// What a refusal says: the field `error` of its body, else the body.
fn words(body: &str) -> String {
    let fields: Option<HashMap<String, serde_json::Value>> = serde_json::from_str(body).ok();
    let error = fields.and_then(|fields| Some(fields.get("error")?.as_str()?.to_owned()));
    error.unwrap_or_else(|| body.to_owned())
}

/// What a panic says.
fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "the client panicked".to_owned())
}

/// A toxic as it is read; what we never put there is strange.
fn toxic(pack: &ToxicPack) -> Result<Toxic, String> {
    let kinds = [Kind::Bandwidth, Kind::Latency, Kind::ResetPeer, Kind::Timeout];
    let kind = kinds.into_iter().find(|kind| kind.name() == pack.r#type);
    let streams = [Stream::Upstream, Stream::Downstream];
    let stream = streams.into_iter().find(|stream| stream.name() == pack.stream);
    match (kind, stream) {
        (Some(kind), Some(stream)) if pack.toxicity >= ALWAYS => Ok(Toxic {
            kind,
            stream,
            attributes: pack
                .attributes
                .iter()
                .map(|(key, value)| (key.clone(), *value))
                .collect(),
        }),
        _ => Err(format!("a toxic `{}` of somebody else", pack.name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_in_toxiproxys_words() {
        assert_eq!(
            words(r#"{"error":"toxic already exists","status":409}"#),
            "toxic already exists"
        );
        assert_eq!(words("404 page not found"), "404 page not found");
    }

    #[test]
    fn panics_are_told_in_their_words() {
        assert_eq!(said(&"short"), "short");
        assert_eq!(said(&"long".to_owned()), "long");
        assert_eq!(said(&7), "the client panicked");
    }

    #[test]
    fn toxic_that_we_never_put_there_is_strange() {
        let pack = |kind: &str, toxicity| ToxicPack {
            name: "mine".to_owned(),
            r#type: kind.to_owned(),
            stream: "upstream".to_owned(),
            toxicity,
            attributes: HashMap::from([("rate".to_owned(), 3)]),
        };
        assert_eq!(
            toxic(&pack("bandwidth", 1.0)),
            Ok(Toxic::new(Kind::Bandwidth, Stream::Upstream, &[("rate", 3)]))
        );
        for strange in [pack("slicer", 1.0), pack("bandwidth", 0.5)] {
            assert!(toxic(&strange).unwrap_err().contains("`mine`"));
        }
    }
}
