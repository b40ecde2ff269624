//! One broker: a container that may end and be started again, with its ports, its data and its log.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::{Stream, StreamExt};
use nix::sys::signal::Signal;
use testcontainers::bollard;
use testcontainers::bollard::container::LogOutput;
use testcontainers::bollard::models::{ContainerState, NetworkConnectRequest, NetworkDisconnectRequest};
use testcontainers::bollard::query_parameters::{
    AttachContainerOptionsBuilder, InspectContainerOptions, KillContainerOptionsBuilder, LogsOptionsBuilder,
    WaitContainerOptionsBuilder,
};
use testcontainers::core::IntoContainerPort;
use testcontainers::runners::AsyncRunner;
use testcontainers::{ContainerAsync, ContainerRequest, GenericImage, ImageExt};
use tokio::sync::watch;

use super::EngineError;
use crate::cluster::kafka::log::Log;
use crate::cluster::kafka::{self, Addresses, Ended, Node};
use crate::cluster::{ClusterError, NodeId};
use crate::lock;

/// Longest wait for the engine to make and start a container, on a loaded machine.
const STARTS_WITHIN: Duration = Duration::from_secs(120);

/// An engine says that a container has ended about 200 ms after SIGKILL.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// What a container that has ended still had to say comes at once, or not at all.
const LOG_ENDS_WITHIN: Duration = Duration::from_secs(2);

/// Between two looks at a container whose end the engine did not tell.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// An image, by name and tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Image {
    name: String,
    tag: String,
}

impl Image {
    /// Reads `apache/kafka:4.1.0`; without a tag it is `latest`, as engines have it. A digest stands where a tag does.
    pub(super) fn parse(text: &str) -> Image {
        // A registry may have a port: only behind the last slash a colon begins a tag.
        let last = text.rfind('/').map_or(0, |slash| slash + 1);
        let (name, tag) = match text[last..].rfind(':') {
            Some(colon) => (&text[..last + colon], &text[last + colon + 1..]),
            None => (text, "latest"),
        };
        Image {
            name: name.to_owned(),
            tag: tag.to_owned(),
        }
    }
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.tag)
    }
}

/// What a container is made of.
#[derive(Debug, Clone)]
pub(super) struct Recipe {
    /// Its name, which is its host name on the network too.
    pub(super) name: String,
    /// What it runs.
    pub(super) image: Image,
    /// The network that it shares with the other brokers.
    pub(super) network: String,
    /// Whose it is.
    pub(super) labels: HashMap<String, String>,
    /// What the image's entry reads.
    pub(super) variables: Vec<(String, String)>,
    /// Addresses on this machine, and the ports inside that they lead to.
    pub(super) published: Vec<(SocketAddr, u16)>,
}

impl Recipe {
    fn request(&self) -> ContainerRequest<GenericImage> {
        let mut request = GenericImage::new(self.image.name.clone(), self.image.tag.clone())
            .with_container_name(&self.name)
            .with_network(&self.network)
            .with_labels(&self.labels)
            .with_startup_timeout(STARTS_WITHIN);
        for (name, value) in &self.variables {
            request = request.with_env_var(name, value);
        }
        for (address, inside) in &self.published {
            request = request.with_mapped_port(address.port(), inside.tcp());
        }
        // Ports would be published on every address of the machine.
        let host = self.published.first().map(|(address, _)| address.ip().to_string());
        request.with_host_config_modifier(move |config| {
            let bindings = config.port_bindings.iter_mut().flat_map(HashMap::values_mut);
            for binding in bindings.flatten().flatten() {
                binding.host_ip = host.clone();
            }
        })
    }
}

/// A broker of the cluster.
pub(super) struct Container {
    id: NodeId,
    addresses: Addresses,
    docker: bollard::Docker,
    recipe: Recipe,
    log: Arc<Log>,
    /// The container, once it was made.
    made: tokio::sync::Mutex<Option<ContainerAsync<GenericImage>>>,
    life: Mutex<Option<Life>>,
    /// Is told last words when it ends unasked.
    died: watch::Sender<Option<String>>,
}

/// One run of a container, from start to end.
struct Life {
    /// Its process id on the engine's machine.
    pid: Option<u32>,
    /// How it ended, once it has.
    ended: watch::Receiver<Option<Ended>>,
    /// It was told to end.
    asked: Arc<AtomicBool>,
    paused: bool,
    isolated: bool,
}

impl Container {
    /// A broker that has never run.
    pub(super) fn new(
        id: NodeId,
        addresses: Addresses,
        docker: bollard::Docker,
        recipe: Recipe,
        died: watch::Sender<Option<String>>,
    ) -> Container {
        Container {
            id,
            addresses,
            docker,
            recipe,
            log: Arc::default(),
            made: tokio::sync::Mutex::default(),
            life: Mutex::new(None),
            died,
        }
    }

    fn down(&self) -> ClusterError {
        kafka::refused(format!("broker {}", self.id), "it is down")
    }

    /// As an error of the engine, about this container.
    fn refused(&self, what: &str) -> impl FnOnce(bollard::errors::Error) -> EngineError + use<> {
        let what = format!("{what} the container {}", self.recipe.name);
        move |source| EngineError::Refused { what, source }
    }

    /// The same of testcontainers.
    fn not_run(&self, what: &str) -> impl FnOnce(testcontainers::TestcontainersError) -> EngineError + use<> {
        let what = format!("{what} the container {}", self.recipe.name);
        move |source| EngineError::Run {
            what,
            source: Box::new(source),
        }
    }

    async fn state(&self) -> Result<ContainerState, EngineError> {
        let told = self
            .docker
            .inspect_container(&self.recipe.name, None::<InspectContainerOptions>);
        let told = told.await.map_err(self.refused("show"))?;
        Ok(told.state.unwrap_or_default())
    }
}

#[async_trait]
impl Node for Container {
    fn id(&self) -> NodeId {
        self.id
    }

    fn addresses(&self) -> Addresses {
        self.addresses
    }

    fn name(&self) -> String {
        format!("container {}", self.recipe.name)
    }

    fn pid(&self) -> Option<u32> {
        let life = lock(&self.life);
        life.as_ref().filter(|life| life.ended.borrow().is_none())?.pid
    }

    fn kafka(&self) -> Option<String> {
        self.log.kafka()
    }

    fn is_running(&self) -> bool {
        lock(&self.life)
            .as_ref()
            .is_some_and(|life| life.ended.borrow().is_none())
    }

    fn answers(&self) -> bool {
        self.is_running()
            && !lock(&self.life)
                .as_ref()
                .is_some_and(|life| life.paused || life.isolated)
    }

    fn last_words(&self) -> Option<String> {
        lock(&self.life)
            .as_ref()?
            .ended
            .borrow()
            .as_ref()
            .map(|ended| ended.last_words.clone())
    }

    fn log_to(&self, folder: &Path) {
        self.log.to_file(folder, self.id);
    }

    async fn start(&self) -> Result<(), ClusterError> {
        let mut made = self.made.lock().await;
        self.log.forget();
        let (asked, (end, ended)) = (Arc::<AtomicBool>::default(), watch::channel(None));
        let attended = Attended {
            id: self.id,
            name: self.recipe.name.clone(),
            docker: self.docker.clone(),
            log: Arc::clone(&self.log),
            asked: Arc::clone(&asked),
            died: self.died.clone(),
        };
        match made.as_ref() {
            None => {
                let started = self.recipe.request().start().await;
                *made = Some(started.map_err(self.not_run("start"))?);
                let options = LogsOptionsBuilder::new().follow(true).stdout(true).stderr(true).build();
                tokio::spawn(attended.attend(self.docker.logs(&self.recipe.name, Some(options)), end));
            }
            // Its log would be told again from the first start on: what it writes from now on is had by being there before.
            Some(container) => {
                let options = AttachContainerOptionsBuilder::new()
                    .stream(true)
                    .stdout(true)
                    .stderr(true)
                    .build();
                let attached = self.docker.attach_container(&self.recipe.name, Some(options)).await;
                let attached = attached.map_err(self.refused("attach to"))?;
                container.start().await.map_err(self.not_run("start"))?;
                tokio::spawn(attended.attend(attached.output, end));
            }
        }
        let pid = self.state().await?.pid.filter(|pid| *pid > 0);
        *lock(&self.life) = Some(Life {
            pid: pid.and_then(|pid| u32::try_from(pid).ok()),
            ended,
            asked,
            paused: false,
            isolated: false,
        });
        Ok(())
    }

    /// Returns when the engine says so.
    async fn end(&self, signal: Signal) -> Result<Ended, ClusterError> {
        let (mut ended, paused) = {
            let life = lock(&self.life);
            let life = life.as_ref().ok_or_else(|| self.down())?;
            life.asked.store(true, Ordering::Relaxed);
            (life.ended.clone(), life.paused)
        };
        if paused && signal != Signal::SIGKILL {
            // A paused container takes nothing else.
            let resumed = self.docker.unpause_container(&self.recipe.name).await;
            resumed.map_err(self.refused("resume"))?;
        }
        let options = KillContainerOptionsBuilder::new().signal(signal.as_str()).build();
        match self.docker.kill_container(&self.recipe.name, Some(options)).await {
            // It has ended by itself meanwhile; that is told soon.
            Ok(()) | Err(bollard::errors::Error::DockerResponseServerError { status_code: 409, .. }) => {}
            Err(cause) => return Err(self.refused("kill")(cause).into()),
        }
        let waited = tokio::time::timeout(ENDS_WITHIN, ended.wait_for(Option::is_some)).await;
        let ended = waited.ok().and_then(Result::ok).and_then(|ended| ended.clone());
        match ended {
            Some(ended) => Ok(ended),
            None => Err(ClusterError::TimedOut {
                what: format!("the end of broker {} ({})", self.id, self.name()),
                within: ENDS_WITHIN,
                last_seen: format!("{:?} after {signal}", self.state().await?.status),
            }),
        }
    }

    /// Returns when the engine says so.
    async fn set_paused(&self, paused: bool) -> Result<String, ClusterError> {
        let made = self.made.lock().await;
        let Some(container) = made.as_ref().filter(|_| self.is_running()) else {
            return Err(self.down());
        };
        let is_paused = lock(&self.life).as_ref().is_some_and(|life| life.paused);
        if is_paused != paused {
            let (done, what) = if paused {
                (container.pause().await, "pause")
            } else {
                (container.unpause().await, "resume")
            };
            done.map_err(self.not_run(what))?;
        }
        let state = self.state().await?;
        if state.paused != Some(paused) {
            return Err(kafka::refused(
                format!("broker {}", self.id),
                &format!("the engine says {:?}", state.status),
            ));
        }
        if let Some(life) = lock(&self.life).as_mut() {
            life.paused = paused;
        }
        Ok(if paused {
            "is frozen (the engine says paused)".to_owned()
        } else {
            "runs on".to_owned()
        })
    }

    /// Returns when the engine says so. Its published ports go with the network, and come back with it.
    async fn set_isolated(&self, isolated: bool) -> Result<String, ClusterError> {
        if !self.is_running() {
            return Err(self.down());
        }
        let (name, network) = (&self.recipe.name, &self.recipe.network);
        let is_isolated = lock(&self.life).as_ref().is_some_and(|life| life.isolated);
        if is_isolated != isolated {
            let (done, what) = if isolated {
                let request = NetworkDisconnectRequest {
                    container: name.clone(),
                    force: None,
                };
                (
                    self.docker.disconnect_network(network, request).await,
                    "take off its network",
                )
            } else {
                let request = NetworkConnectRequest {
                    container: name.clone(),
                    endpoint_config: None,
                };
                (
                    self.docker.connect_network(network, request).await,
                    "connect to its network",
                )
            };
            done.map_err(self.refused(what))?;
        }
        let told = self
            .docker
            .inspect_container(name, None::<InspectContainerOptions>)
            .await;
        let told = told.map_err(self.refused("show"))?;
        let networks = told
            .network_settings
            .and_then(|settings| settings.networks)
            .unwrap_or_default();
        if networks.contains_key(network) == isolated {
            let on: Vec<&str> = networks.keys().map(String::as_str).collect();
            return Err(kafka::refused(
                format!("broker {}", self.id),
                &format!("the engine says that it is on the networks {on:?}"),
            ));
        }
        if let Some(life) = lock(&self.life).as_mut() {
            life.isolated = isolated;
        }
        Ok(if isolated {
            "is on no network (the engine says)".to_owned()
        } else {
            "is on its network again".to_owned()
        })
    }

    async fn clear(&self) {
        if let Some(container) = self.made.lock().await.take() {
            // OK to leave to what clears the cluster, and in the end to the next start's sweep.
            let _ = container.rm().await;
        }
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // Dropping a container removes it, which takes a runtime and panics without one. What is left then the next
        // start's sweep removes.
        if tokio::runtime::Handle::try_current().is_err() {
            std::mem::forget(self.made.get_mut().take());
        }
    }
}

/// What watches over one run of a container.
struct Attended {
    id: NodeId,
    name: String,
    docker: bollard::Docker,
    log: Arc<Log>,
    asked: Arc<AtomicBool>,
    died: watch::Sender<Option<String>>,
}

impl Attended {
    async fn attend(
        self,
        output: impl Stream<Item = Result<LogOutput, bollard::errors::Error>>,
        end: watch::Sender<Option<Ended>>,
    ) {
        let mut draining = pin!(self.drain(output));
        let mut ending = pin!(self.ended());
        let (how, status) = tokio::select! {
            how = &mut ending => {
                // OK to miss the rest of a log that does not end: an engine that is gone ends nothing.
                let _ = tokio::time::timeout(LOG_ENDS_WITHIN, draining).await;
                how
            }
            () = &mut draining => ending.await,
        };
        let last_words = format!(
            "broker {}: {how}; the last lines of its log:\n{}",
            self.id,
            self.log.last_lines()
        );
        if !self.asked.load(Ordering::Relaxed) {
            self.died.send_replace(Some(last_words.clone()));
        }
        end.send_replace(Some(Ended { status, last_words }));
    }

    async fn drain(&self, output: impl Stream<Item = Result<LogOutput, bollard::errors::Error>>) {
        let mut output = pin!(output);
        let mut line = Vec::new();
        while let Some(Ok(chunk)) = output.next().await {
            for part in chunk.into_bytes().split_inclusive(|byte| *byte == b'\n') {
                line.extend_from_slice(part);
                if line.ends_with(b"\n") {
                    self.log.take(String::from_utf8_lossy(&line).trim_end());
                    line.clear();
                }
            }
        }
    }

    /// Waits until the container has ended, or nobody can tell any more; how, and with which status.
    async fn ended(&self) -> (String, Option<i32>) {
        let name = &self.name;
        let exited = |code: i64| {
            (
                format!("container {name} ended with exit code {code}"),
                i32::try_from(code).ok(),
            )
        };
        loop {
            let options = WaitContainerOptionsBuilder::new().condition("not-running").build();
            let answer = pin!(self.docker.wait_container(name, Some(options))).next().await;
            match answer {
                Some(Ok(ended)) => return exited(ended.status_code),
                Some(Err(bollard::errors::Error::DockerContainerWaitError { code, .. })) => {
                    return exited(code);
                }
                _ => {}
            }
            // The answer was lost; a look tells whether the container was too, or the engine.
            let looked = self
                .docker
                .inspect_container(name, None::<InspectContainerOptions>)
                .await;
            match looked.map(|told| told.state.unwrap_or_default()) {
                Ok(state) if state.running == Some(true) => {}
                Ok(state) => return exited(state.exit_code.unwrap_or_default()),
                Err(bollard::errors::Error::DockerResponseServerError { status_code: 404, .. }) => {
                    return (format!("container {name} was removed by somebody else"), None);
                }
                Err(cause) => {
                    let cause = crate::chain(&cause);
                    let how = format!("the container engine no longer answers for container {name} ({cause})");
                    return (how, None);
                }
            }
            crate::before_the_next_look(LOOK_EVERY).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_is_read_with_and_without_tag_and_registry() {
        for (text, name, tag) in [
            ("apache/kafka:4.1.0", "apache/kafka", "4.1.0"),
            ("apache/kafka", "apache/kafka", "latest"),
            ("localhost:5000/kafka", "localhost:5000/kafka", "latest"),
            ("localhost:5000/kafka:3.9.1", "localhost:5000/kafka", "3.9.1"),
            ("apache/kafka@sha256:abc", "apache/kafka@sha256", "abc"),
        ] {
            let image = Image::parse(text);
            assert_eq!((image.name.as_str(), image.tag.as_str()), (name, tag));
        }
        assert_eq!(Image::parse("apache/kafka").to_string(), "apache/kafka:latest");
    }
}
