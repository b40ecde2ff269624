//! Addresses of brokers in responses: the link's own take the place of the brokers', by node id.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Mutex;

use kafka_protocol::messages::ResponseKind;
use kafka_protocol::protocol::StrBytes;

use crate::cluster::NodeId;

/// What readers are told of each broker.
pub(super) struct Addresses(Mutex<HashMap<NodeId, (StrBytes, i32)>>);

/// The name of a broker where readers are told names: nobody else's, by RFC 2606.
pub(crate) fn name_of(node: NodeId) -> String {
    format!("broker-{node}.brokerfall.test")
}

fn told(host: impl std::fmt::Display, port: u16) -> (StrBytes, i32) {
    (StrBytes::from_string(host.to_string()), port.into())
}

/// What rewriting a response came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Rewritten {
    /// An address was changed.
    pub(super) changed: bool,
    /// Addresses of brokers that the link does not stand in front of.
    pub(super) strangers: Vec<String>,
}

impl Addresses {
    pub(super) fn new(addresses: impl Iterator<Item = (NodeId, SocketAddr)>) -> Self {
        Addresses(Mutex::new(
            addresses.map(|(node, at)| (node, told(at.ip(), at.port()))).collect(),
        ))
    }

    /// The same by name; only the ports are those of the addresses.
    pub(super) fn named(addresses: impl Iterator<Item = (NodeId, SocketAddr)>) -> Self {
        let named = addresses.map(|(node, at)| (node, told(name_of(node), at.port())));
        Addresses(Mutex::new(named.collect()))
    }

    /// Readers are told another address from now on.
    pub(super) fn moved(&self, node: NodeId, at: SocketAddr) {
        crate::lock(&self.0).insert(node, told(at.ip(), at.port()));
    }

    /// As a client is given them: `host:port,…`, in order of node id.
    pub(super) fn bootstrap(&self) -> String {
        let known = crate::lock(&self.0);
        let mut nodes: Vec<_> = known.iter().collect();
        nodes.sort_unstable_by_key(|(node, _)| **node);
        let addresses: Vec<String> = nodes
            .into_iter()
            .map(|(_, (host, port))| format!("{}:{port}", host.as_str()))
            .collect();
        addresses.join(",")
    }

    /// Rewrites every address in a response.
    pub(super) fn rewrite(&self, response: &mut ResponseKind) -> Rewritten {
        let mut done = Rewritten::default();
        match response {
            ResponseKind::Metadata(answer) => {
                for broker in &mut answer.brokers {
                    self.one(broker.node_id.0, &mut broker.host, &mut broker.port, &mut done);
                }
            }
            ResponseKind::FindCoordinator(answer) => {
                // An answer with an error names no broker: node -1 and an empty host.
                if answer.error_code == 0 && answer.coordinators.is_empty() {
                    self.one(answer.node_id.0, &mut answer.host, &mut answer.port, &mut done);
                }
                for found in answer.coordinators.iter_mut().filter(|found| found.error_code == 0) {
                    self.one(found.node_id.0, &mut found.host, &mut found.port, &mut done);
                }
            }
            ResponseKind::DescribeCluster(answer) => {
                for broker in &mut answer.brokers {
                    self.one(broker.broker_id.0, &mut broker.host, &mut broker.port, &mut done);
                }
            }
            ResponseKind::Produce(answer) => {
                for node in &mut answer.node_endpoints {
                    self.one(node.node_id.0, &mut node.host, &mut node.port, &mut done);
                }
            }
            ResponseKind::Fetch(answer) => {
                for node in &mut answer.node_endpoints {
                    self.one(node.node_id.0, &mut node.host, &mut node.port, &mut done);
                }
            }
            _ => {}
        }
        done
    }

    fn one(&self, node: NodeId, host: &mut StrBytes, port: &mut i32, done: &mut Rewritten) {
        match crate::lock(&self.0).get(&node) {
            Some((own_host, own_port)) => {
                if *host != *own_host || *port != *own_port {
                    *host = own_host.clone();
                    *port = *own_port;
                    done.changed = true;
                }
            }
            None => done
                .strangers
                .push(format!("broker {node} at {}:{port}", host.as_str())),
        }
    }
}
