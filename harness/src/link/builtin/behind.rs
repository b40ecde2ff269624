//! What the link offers a proxy that stands in front of it and does the cuts: readers are told of that proxy's addresses,
//! and a connection that it ends is not taken for one that its reader has closed.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use brokerfall_report::history::ConnectionChange;

use super::rewrite::Addresses;
use super::{BuiltinLink, LinkError, LinkOptions};
use crate::cluster::NodeId;
use crate::history::recorder::Recorder;
use crate::ports;

impl BuiltinLink {
    /// Listens in front of every broker, on ports of its own; readers are told of `fronts`.
    ///
    /// # Errors
    /// As [`BuiltinLink::start`].
    pub(in crate::link) fn start_behind(
        fronts: &[(NodeId, SocketAddr)],
        upstreams: Vec<(NodeId, SocketAddr)>,
        recorder: Recorder,
        options: LinkOptions,
    ) -> Result<Self, LinkError> {
        let ports = ports::reserve(upstreams.len())?.into_iter().map(Arc::new).collect();
        let addresses = Addresses::new(fronts.iter().copied());
        Self::start_telling(addresses, ports, upstreams, recorder, options)
    }

    /// While this is true, what ends at the client's side of a broker's connections is ended by the proxy in front.
    pub(in crate::link) fn cut_in_front(&self, node: NodeId, cuts: bool) -> Result<(), LinkError> {
        self.broker(node)?.cut_in_front.store(cuts, Ordering::Release);
        Ok(())
    }

    /// Puts into the history what the proxy in front did to a connection.
    pub(in crate::link) fn note(&self, client: &str, node: NodeId, change: ConnectionChange) {
        self.shared.taps.connection(client, node, change);
    }

    /// The id of the client whose connection comes from here, as far as it has told one.
    pub(in crate::link) fn client_at(&self, node: NodeId, peer: SocketAddr) -> Option<String> {
        let broker = self.broker(node).ok()?;
        let live = broker.live();
        let found = live.values().find(|live| live.peer == peer)?;
        Some(found.client().clone())
    }

    /// The connections to a broker that are open at the client's side.
    pub(in crate::link) fn open(&self, node: NodeId) -> HashSet<u64> {
        let Ok(broker) = self.broker(node) else {
            return HashSet::new();
        };
        let live = broker.live();
        let open = live.iter().filter(|(_, live)| !live.is_closed_by_client());
        open.map(|(id, _)| *id).collect()
    }
}
