//! What readers are shown of a topic: hidden altogether, or only its first partitions.
//!
//! A cluster cannot always be without a topic when a scenario asks for it: the mock makes a topic that a client asks for,
//! and cannot add partitions to one. So the topic stands there from the beginning, and the link answers as a cluster
//! does that does not have it yet. A Metadata request goes on without the topics that are hidden, so that no cluster is
//! asked to make them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use kafka_protocol::messages::metadata_response::MetadataResponseTopic;
use kafka_protocol::messages::{MetadataResponse, ResponseKind, TopicName};
use kafka_protocol::protocol::StrBytes;

use super::exchange::TopicIds;
use super::request::{MetadataAsked, api};
use super::rule::{Aim, Injected, strike};
use super::tap::Trouble;
use crate::link::{PROBE, RuleCounts};

const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
/// What a broker answers where a request names the topic by its id.
const UNKNOWN_TOPIC_ID: i16 = 100;
/// Stands for the fault in answers about partitions that are not shown: no fault is in force then.
const LINK: &str = "the link";

/// How readers see topics. One that never was changed has no entry.
#[derive(Default)]
pub(super) struct Views {
    /// Whether anything is hidden now; asked for every response.
    hides: AtomicBool,
    topics: Mutex<HashMap<String, View>>,
}

#[derive(Default)]
struct View {
    /// The faults that hide the topic, oldest first.
    hidden_by: Vec<(String, RuleCounts)>,
    /// Partitions from this one on are not shown.
    limit: Option<u32>,
    /// Metadata answers about it since this view last changed.
    told: u64,
}

impl View {
    fn hider(&self) -> Option<&str> {
        self.hidden_by.first().map(|(fault, _)| fault.as_str())
    }

    fn hides(&self, partition: Option<u32>) -> bool {
        let is_beyond = || Some(partition? >= self.limit?);
        !self.hidden_by.is_empty() || is_beyond().unwrap_or(false)
    }
}

impl Views {
    pub(super) fn hide(&self, topic: &str, fault: &str) {
        self.change(topic, |view| {
            view.hidden_by.push((fault.to_owned(), RuleCounts::default()));
        });
    }

    /// Takes back what one fault hides and returns what came of it.
    pub(super) fn show(&self, topic: &str, fault: &str) -> RuleCounts {
        self.change(topic, |view| {
            let at = view.hidden_by.iter().position(|(by, _)| by == fault);
            at.map(|at| view.hidden_by.remove(at).1).unwrap_or_default()
        })
    }

    pub(super) fn limit(&self, topic: &str, partitions: Option<u32>) {
        self.change(topic, |view| view.limit = partitions);
    }

    /// Metadata answers about a topic since its view last changed.
    pub(super) fn told(&self, topic: &str) -> u64 {
        self.lock().get(topic).map_or(0, |view| view.told)
    }

    /// Whether answers of this api have to be looked into for what is hidden. Cheap.
    pub(super) fn hide_in(&self, api: i16) -> bool {
        self.hides.load(Ordering::Relaxed)
            && matches!(
                api,
                api::METADATA | api::FETCH | api::LIST_OFFSETS | api::OFFSET_FOR_LEADER_EPOCH | api::OFFSET_COMMIT
            )
    }

    /// Of the topics that a Metadata request names, those that must not reach the cluster.
    pub(super) fn withheld(&self, names: &[String]) -> Vec<Trouble> {
        let topics = self.lock();
        let is_hidden = |name: &&String| topics.get(*name).is_some_and(|view| view.hider().is_some());
        names.iter().filter(is_hidden).map(|name| unknown(name)).collect()
    }

    /// Counts a response that may have named a hidden topic and could not be decoded.
    pub(super) fn undecodable(&self, api: i16) {
        if self.hide_in(api) {
            let mut topics = self.lock();
            for (_, counts) in topics.values_mut().flat_map(|view| &mut view.hidden_by) {
                counts.undecodable += 1;
            }
        }
    }

    /// Makes a response say what readers are to see, and returns the codes that were put into it.
    pub(super) fn apply(
        &self,
        client: &str,
        (api, version): (i16, i16),
        asked: Option<&MetadataAsked>,
        response: &mut ResponseKind,
        ids: &TopicIds,
    ) -> Shown {
        let mut topics = self.lock();
        let mut shown = Shown::default();
        if let ResponseKind::Metadata(answer) = response {
            let told = metadata(&topics, asked, answer, ids, &mut shown);
            for name in told.iter().filter(|_| client != PROBE) {
                if let Some(view) = topics.get_mut(name) {
                    view.told += 1;
                }
            }
        } else if self.hide_in(api) {
            // From these versions on topics are named by their id.
            let by_id = match api {
                api::FETCH => version >= 13,
                api::OFFSET_COMMIT => version >= 10,
                _ => false,
            };
            let aim = Aim {
                code: if by_id {
                    UNKNOWN_TOPIC_ID
                } else {
                    UNKNOWN_TOPIC_OR_PARTITION
                },
                topics: true,
                partitions: true,
                wants: &|topic, partition| {
                    topic
                        .and_then(|topic| topics.get(topic))
                        .is_some_and(|view| view.hides(partition))
                },
            };
            shown.troubles = strike(&aim, version, response, ids, true);
        }
        shown.changed |= !shown.troubles.is_empty();
        count(&mut topics, &shown.troubles);
        shown.injected = shown
            .troubles
            .drain(..)
            .map(|trouble| injected(&topics, trouble))
            .collect();
        shown
    }

    fn change<T>(&self, topic: &str, change: impl FnOnce(&mut View) -> T) -> T {
        let mut topics = self.lock();
        let view = topics.entry(topic.to_owned()).or_default();
        view.told = 0;
        let done = change(view);
        let hides = topics
            .values()
            .any(|view| view.hider().is_some() || view.limit.is_some());
        self.hides.store(hides, Ordering::Relaxed);
        done
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, View>> {
        crate::lock(&self.topics)
    }
}

/// What was done to a response.
#[derive(Default)]
pub(super) struct Shown {
    pub(super) changed: bool,
    pub(super) injected: Vec<Injected>,
    troubles: Vec<Trouble>,
}

/// Makes a Metadata answer say what readers are to see, and returns the topics that it tells of.
fn metadata(
    topics: &HashMap<String, View>,
    asked: Option<&MetadataAsked>,
    answer: &mut MetadataResponse,
    ids: &TopicIds,
    shown: &mut Shown,
) -> Vec<String> {
    let all = asked.is_some_and(|asked| asked.all);
    let mut told = Vec::new();
    answer.topics.retain_mut(|topic| {
        let name = topic.name.as_ref().map(|name| name.to_string());
        let Some(name) = name.or_else(|| ids.name(topic.topic_id.as_bytes())) else {
            return true;
        };
        let Some(view) = topics.get(&name) else {
            return true;
        };
        if view.hider().is_none() {
            if let Some(limit) = view.limit {
                let before = topic.partitions.len();
                topic.partitions.retain(|partition| {
                    u32::try_from(partition.partition_index).is_ok_and(|partition| partition < limit)
                });
                shown.changed |= topic.partitions.len() < before;
            }
            told.push(name);
            return true;
        }
        if all {
            // Nobody is told of a topic that is not there.
            shown.changed = true;
            return false;
        }
        let by_id = asked.is_some_and(|asked| !asked.names.contains(&name));
        let id = topic.topic_id;
        *topic = absent(&name);
        let mut trouble = unknown(&name);
        if by_id {
            topic.error_code = UNKNOWN_TOPIC_ID;
            topic.name = None;
            topic.topic_id = id;
            trouble.code = UNKNOWN_TOPIC_ID;
        }
        shown.troubles.push(trouble);
        told.push(name);
        true
    });
    for trouble in asked.map(|asked| asked.withheld.as_slice()).unwrap_or_default() {
        let name = trouble.topic.as_deref().unwrap_or_default();
        answer.topics.push(absent(name));
        shown.troubles.push(trouble.clone());
        told.push(name.to_owned());
    }
    if all {
        told.extend(
            topics
                .iter()
                .filter(|(_, view)| view.hider().is_some())
                .map(|(name, _)| name.clone()),
        );
    }
    told
}

/// The answer about a topic that is not there.
fn absent(name: &str) -> MetadataResponseTopic {
    MetadataResponseTopic::default()
        .with_error_code(UNKNOWN_TOPIC_OR_PARTITION)
        .with_name(Some(TopicName(StrBytes::from_string(name.to_owned()))))
}

fn unknown(name: &str) -> Trouble {
    Trouble {
        code: UNKNOWN_TOPIC_OR_PARTITION,
        topic: Some(name.to_owned()),
        partition: None,
    }
}

/// Counts a response for the faults that hide what it says nothing of now.
fn count(topics: &mut HashMap<String, View>, troubles: &[Trouble]) {
    for (name, view) in topics {
        if troubles.iter().any(|trouble| trouble.topic.as_ref() == Some(name)) {
            for (_, counts) in &mut view.hidden_by {
                counts.matched += 1;
                counts.triggered += 1;
            }
        }
    }
}

fn injected(topics: &HashMap<String, View>, trouble: Trouble) -> Injected {
    let view = trouble.topic.as_ref().and_then(|topic| topics.get(topic));
    Injected {
        fault: view.and_then(View::hider).unwrap_or(LINK).to_owned(),
        trouble,
    }
}
