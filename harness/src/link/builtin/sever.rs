//! Responses that are cut off in the middle, with their connection.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use super::{Cut, CutId, CutMode};
use crate::cluster::NodeId;

/// What stands before the body of a response: its length and its correlation id.
const BEFORE_BODY: u64 = 8;

/// The cuts of this kind that are in force, on all brokers.
#[derive(Default)]
pub(super) struct Severs(Mutex<BTreeMap<u64, Sever>>);

struct Sever {
    nodes: Vec<NodeId>,
    after_bytes: u64,
    api: Option<i16>,
    /// How many more it cuts.
    left: Option<u64>,
}

impl Severs {
    /// Arms a cut, where it is one of this kind.
    pub(super) fn arm(&self, id: CutId, cut: &Cut) {
        if let CutMode::MidResponse {
            after_bytes,
            api,
            times,
        } = cut.mode
        {
            let sever = Sever {
                nodes: cut.nodes.clone(),
                after_bytes,
                api,
                left: times,
            };
            self.lock().insert(id.0, sever);
        }
    }

    pub(super) fn disarm(&self, id: CutId) {
        self.lock().remove(&id.0);
    }

    /// Takes a response of `len` bytes (length prefix included) for the oldest cut that means it; how much of it passes.
    pub(super) fn take(&self, node: NodeId, api: i16, len: usize) -> Option<usize> {
        let mut severs = self.lock();
        for sever in severs.values_mut() {
            let kept = usize::try_from(sever.after_bytes.saturating_add(BEFORE_BODY)).unwrap_or(usize::MAX);
            let means = sever.nodes.contains(&node) && sever.api.is_none_or(|wanted| wanted == api) && kept < len;
            if means && sever.left != Some(0) {
                sever.left = sever.left.map(|left| left - 1);
                return Some(kept);
            }
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Sever>> {
        crate::lock(&self.0)
    }
}
