//! Who was told where to go: leaders and coordinators as Metadata and FindCoordinator answers named them to each client.

use std::collections::HashMap;
use std::sync::Mutex;

use brokerfall_report::history::{Event, Place};
use kafka_protocol::messages::{FindCoordinatorResponse, MetadataResponse, ResponseKind};

use super::exchange::TopicIds;
use super::request::Body;
use crate::cluster::NodeId;

/// What each client was told last.
#[derive(Default)]
pub(super) struct Told(Mutex<HashMap<String, HashMap<Place, NodeId>>>);

impl Told {
    /// What an answer tells its client that it was not told before.
    pub(super) fn news(&self, client: &str, body: &Body, response: &ResponseKind, ids: &TopicIds) -> Vec<Event> {
        let told = match response {
            ResponseKind::Metadata(answer) => leaders(answer, ids),
            ResponseKind::FindCoordinator(answer) => coordinators(answer, body),
            _ => return Vec::new(),
        };
        let mut all = crate::lock(&self.0);
        let known = all.entry(client.to_owned()).or_default();
        let mut news = Vec::new();
        for (place, node) in told {
            if known.insert(place.clone(), node) != Some(node) {
                news.push(Event::WireTold {
                    client: client.to_owned(),
                    place,
                    node,
                });
            }
        }
        news
    }
}

fn leaders(answer: &MetadataResponse, ids: &TopicIds) -> Vec<(Place, NodeId)> {
    let mut told = Vec::new();
    for topic in &answer.topics {
        let name = topic.name.as_ref().map_or("", |name| name.0.as_str());
        let Some(name) = ids.resolve(name, topic.topic_id.as_bytes()) else {
            continue;
        };
        for partition in &topic.partitions {
            if let Ok(index) = u32::try_from(partition.partition_index) {
                let place = Place::Partition {
                    topic: name.clone(),
                    partition: index,
                };
                told.push((place, partition.leader_id.0));
            }
        }
    }
    told
}

/// Up to version 3 an answer does not say which group it is about; its request does.
fn coordinators(answer: &FindCoordinatorResponse, body: &Body) -> Vec<(Place, NodeId)> {
    let many = answer
        .coordinators
        .iter()
        .map(|one| (one.key.to_string(), one.error_code, one.node_id.0));
    let one = match body {
        Body::Coordinator { group } => Some((group.clone(), answer.error_code, answer.node_id.0)),
        _ => None,
    };
    // An error names nobody, and says nothing of who it was or will be.
    many.chain(one)
        .filter(|(_, code, _)| *code == 0)
        .map(|(group, _, node)| (Place::Group(group), node))
        .collect()
}
