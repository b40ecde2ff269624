//! Who leads what, and the kept connections to them.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use kafka_protocol::protocol::Request;

use super::{OracleError, PartitionKey};
use crate::cluster::NodeId;
use crate::cluster::direct::{self, Asker, Coordinated, DirectConnection, Login};

/// `client.id` of the oracle.
const CLIENT: &str = "brokerfall-oracle";

/// Longest wait for a connection or for Metadata; a stopped broker accepts and answers nothing.
const KNOCK_WITHIN: Duration = Duration::from_secs(1);

/// Writes and reads use different connections, so that a write which waits for a stopped broker holds up no probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Lane {
    Write,
    Read,
}

type Slot = Arc<tokio::sync::Mutex<Option<DirectConnection>>>;

/// The brokers as the oracle knows them.
pub(super) struct Nodes {
    asker: Asker,
    topics: Vec<String>,
    bootstrap: Vec<SocketAddr>,
    view: Mutex<View>,
    /// One connection per broker and lane: the mock cluster's backlog is 5, and a connect beyond it waits a second.
    slots: Mutex<HashMap<(NodeId, Lane), Slot>>,
}

#[derive(Default)]
struct View {
    addresses: BTreeMap<NodeId, SocketAddr>,
    leaders: HashMap<PartitionKey, NodeId>,
}

impl Nodes {
    pub(super) async fn new(bootstrap: &str, login: Option<Login>, topics: Vec<String>) -> Result<Self, OracleError> {
        let mut addresses = Vec::new();
        for broker in bootstrap.split(',') {
            addresses.extend(resolve(broker.trim()).await);
        }
        if addresses.is_empty() {
            return Err(OracleError::NoAddress {
                bootstrap: bootstrap.to_owned(),
            });
        }
        Ok(Self {
            asker: Asker::new(CLIENT, login),
            topics,
            bootstrap: addresses,
            view: Mutex::default(),
            slots: Mutex::default(),
        })
    }

    /// Asks the first broker that answers who leads what.
    pub(super) async fn refresh(&self) -> Result<(), OracleError> {
        let mut addresses: Vec<SocketAddr> = self.view().addresses.values().copied().collect();
        // Brokers that are down are missing from Metadata, so those given at the start are asked too.
        addresses.extend(
            self.bootstrap
                .iter()
                .filter(|known| !addresses.contains(known))
                .copied()
                .collect::<Vec<_>>(),
        );
        let mut last = None;
        for address in &addresses {
            match direct::metadata(*address, self.asker, &self.topics, KNOCK_WITHIN).await {
                Ok(metadata) => {
                    let mut view = View::default();
                    for broker in &metadata.brokers {
                        let address = resolve(&format!("{}:{}", broker.host.as_str(), broker.port)).await;
                        view.addresses
                            .extend(address.map(|address| (broker.node_id.0, address)));
                    }
                    for topic in &metadata.topics {
                        let name = topic.name.as_ref().map_or("", |name| name.0.as_str());
                        for partition in &topic.partitions {
                            let key = (
                                name.to_owned(),
                                u32::try_from(partition.partition_index).unwrap_or(u32::MAX),
                            );
                            view.leaders.insert(key, partition.leader_id.0);
                        }
                    }
                    *self.view() = view;
                    return Ok(());
                }
                Err(cause) => last = Some(cause),
            }
        }
        match last {
            Some(source) => Err(OracleError::NoBroker {
                brokers: addresses.len(),
                source,
            }),
            None => unreachable!("`new` refuses an empty list"),
        }
    }

    /// The leader of a partition, asked for when it is not known.
    pub(super) async fn leader(&self, key: &PartitionKey) -> Result<NodeId, OracleError> {
        if let Some(node) = self.known_leader(key) {
            return Ok(node);
        }
        self.refresh().await?;
        self.known_leader(key).ok_or_else(|| OracleError::NoLeader {
            topic: key.0.clone(),
            partition: key.1,
        })
    }

    fn known_leader(&self, key: &PartitionKey) -> Option<NodeId> {
        let view = self.view();
        view.leaders
            .get(key)
            .copied()
            .filter(|node| view.addresses.contains_key(node))
    }

    /// Forgets who leads a partition: its leader failed or said that it is not the one.
    pub(super) fn forget_leader(&self, key: &PartitionKey) {
        self.view().leaders.remove(key);
    }

    /// Sends a request to a partition's leader. A failure on the way makes the leader be asked for again.
    pub(super) async fn ask_leader<R: Request + Sync>(
        &self,
        key: &PartitionKey,
        lane: Lane,
        version: i16,
        request: &R,
        within: Duration,
    ) -> Result<R::Response, OracleError> {
        let node = self.leader(key).await?;
        let answer = self.ask(node, lane, version, request, within).await;
        if answer.is_err() {
            self.forget_leader(key);
        }
        answer
    }

    /// The node that coordinates a group or a transaction, with an answer from any broker.
    pub(super) async fn coordinator(&self, of: Coordinated<'_>) -> Result<NodeId, OracleError> {
        self.refresh().await?;
        let nodes: Vec<(NodeId, SocketAddr)> = self.view().addresses.clone().into_iter().collect();
        let mut last = None;
        for (node, address) in nodes {
            match direct::coordinator(address, self.asker, of, KNOCK_WITHIN).await {
                Ok(Some(coordinator)) => return Ok(coordinator),
                Ok(None) => {}
                Err(source) => last = Some(OracleError::Request { node, source }),
            }
        }
        Err(last.unwrap_or(OracleError::Missing {
            api: "FindCoordinator",
            subject: of.to_string(),
            missing: "a coordinator",
        }))
    }

    /// Sends a request to a broker over its kept connection, which is opened where there is none.
    pub(super) async fn ask<R: Request + Sync>(
        &self,
        node: NodeId,
        lane: Lane,
        version: i16,
        request: &R,
        within: Duration,
    ) -> Result<R::Response, OracleError> {
        let failed = |source| OracleError::Request { node, source };
        let address = self.view().addresses.get(&node).copied();
        let address = address.ok_or(OracleError::Away { node })?;
        let slot = Arc::clone(self.slots().entry((node, lane)).or_default());
        let mut slot = slot.lock().await;
        let connection = match slot.take().filter(DirectConnection::is_usable) {
            Some(connection) => slot.insert(connection),
            None => slot.insert(
                DirectConnection::open(address, self.asker, KNOCK_WITHIN)
                    .await
                    .map_err(failed)?,
            ),
        };
        let answer = connection.ask(version, request, within).await;
        if answer.is_err() {
            *slot = None;
        }
        answer.map_err(failed)
    }

    fn view(&self) -> MutexGuard<'_, View> {
        crate::lock(&self.view)
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<(NodeId, Lane), Slot>> {
        crate::lock(&self.slots)
    }
}

/// An address from `host:port`, IPv4 where a name has both.
async fn resolve(broker: &str) -> Option<SocketAddr> {
    if let Ok(address) = broker.parse() {
        return Some(address);
    }
    let found: Vec<SocketAddr> = tokio::net::lookup_host(broker).await.ok()?.collect();
    let v4 = found.iter().find(|address| matches!(address.ip(), IpAddr::V4(_)));
    v4.or(found.first()).copied()
}
