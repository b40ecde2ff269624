//! Taps: what the wire said, counted per client and put into the history.
//!
//! The first of equal errors or connection changes is recorded at once, the others of the same window as one event with
//! their count, so that a flood costs one event per window and a proof does not wait for one. Request counts come once
//! per window. No lock of the taps is held while the history is written to: waiters on the history may ask the taps.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::mem;
use std::sync::{Mutex, MutexGuard};

use brokerfall_report::exception::Code;
use brokerfall_report::history::{ConnectionChange, Event, LogEnd};

use crate::cluster::NodeId;
use crate::history::recorder::Recorder;
use crate::link::codes;

/// An error code in a response.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Trouble {
    pub(super) code: i16,
    pub(super) topic: Option<String>,
    pub(super) partition: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct WireErrorKey {
    client: String,
    api: i16,
    trouble: Trouble,
    injected_by: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ConnectionKey {
    client: String,
    node: NodeId,
    change: ConnectionChange,
}

pub(super) struct Taps {
    recorder: Recorder,
    inner: Mutex<Inner>,
    /// Held over taking the counts and recording them, so that after `flush` everything counted before is recorded.
    flushing: Mutex<()>,
}

#[derive(Default)]
struct Inner {
    window_from_us: u64,
    clients: HashMap<String, Client>,
    errors: Coalesced<WireErrorKey>,
    connections: Coalesced<ConnectionKey>,
}

#[derive(Default)]
struct Client {
    requests: BTreeMap<i16, u64>,
    connects: u64,
    fetched: HashMap<(String, u32), Fetched>,
    last_request_us: HashMap<i16, u64>,
}

#[derive(Default)]
struct Fetched {
    /// Highest offset asked for in this window.
    highest: Option<u64>,
    told: Option<u64>,
}

/// Equal events of one window.
struct Coalesced<K>(HashMap<K, u64>);

impl<K> Default for Coalesced<K> {
    fn default() -> Self {
        Coalesced(HashMap::new())
    }
}

impl<K: Hash + Eq + Clone> Coalesced<K> {
    /// Whether this one is to be recorded at once; otherwise it is counted.
    fn is_first(&mut self, key: &K) -> bool {
        if let Some(more) = self.0.get_mut(key) {
            *more += 1;
            return false;
        }
        self.0.insert(key.clone(), 0);
        true
    }

    /// Ends the window: what was counted. What went on counting is not a first in the next window either.
    fn drain(&mut self) -> Vec<(K, u64)> {
        self.0.retain(|_, more| *more > 0);
        self.0
            .iter_mut()
            .map(|(key, more)| (key.clone(), mem::take(more)))
            .collect()
    }
}

impl Taps {
    pub(super) fn new(recorder: Recorder) -> Self {
        let inner = Inner {
            window_from_us: recorder.now_us(),
            ..Inner::default()
        };
        Taps {
            recorder,
            inner: Mutex::new(inner),
            flushing: Mutex::new(()),
        }
    }

    /// The history.
    pub(super) fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    pub(super) fn request(&self, client: &str, api: i16) {
        let now = self.recorder.now_us();
        let mut inner = self.lock();
        let client = inner.client(client);
        *client.requests.entry(api).or_default() += 1;
        client.last_request_us.insert(api, now);
    }

    pub(super) fn fetch_offset(&self, client: &str, topic: String, partition: u32, offset: u64) {
        let mut inner = self.lock();
        let fetched = inner.client(client).fetched.entry((topic, partition)).or_default();
        fetched.highest = fetched.highest.max(Some(offset));
    }

    pub(super) fn connect(&self, client: &str) {
        self.lock().client(client).connects += 1;
    }

    pub(super) fn connection(&self, client: &str, node: NodeId, change: ConnectionChange) {
        let key = ConnectionKey {
            client: client.to_owned(),
            node,
            change,
        };
        let first = self.lock().connections.is_first(&key);
        if first {
            self.recorder.record(key.event(1));
        }
    }

    pub(super) fn error(&self, client: &str, api: i16, trouble: Trouble, injected_by: Option<String>) {
        let key = WireErrorKey {
            client: client.to_owned(),
            api,
            trouble,
            injected_by,
        };
        let first = self.lock().errors.is_first(&key);
        if first {
            self.recorder.record(key.event(1));
        }
    }

    /// Milliseconds since the last request of this api; an empty client id means any client.
    pub(super) fn last_request_age_ms(&self, client: &str, api: i16) -> Option<u64> {
        let now = self.recorder.now_us();
        let inner = self.lock();
        let last = inner
            .clients
            .iter()
            .filter(|(name, _)| client.is_empty() || name.as_str() == client)
            .filter_map(|(_, counted)| counted.last_request_us.get(&api))
            .max()?;
        Some(now.saturating_sub(*last) / 1_000)
    }

    /// Puts what was counted since the last flush into the history.
    pub(super) fn flush(&self) {
        let _flushing = crate::lock(&self.flushing);
        let now = self.recorder.now_us();
        let events = self.lock().end_window(now);
        for event in events {
            self.recorder.record(event);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        crate::lock(&self.inner)
    }
}

impl Inner {
    fn client(&mut self, name: &str) -> &mut Client {
        self.clients.entry(name.to_owned()).or_default()
    }

    fn end_window(&mut self, now_us: u64) -> Vec<Event> {
        let span_us = now_us.saturating_sub(self.window_from_us);
        self.window_from_us = now_us;
        let mut events: Vec<Event> = Vec::new();
        for (name, client) in &mut self.clients {
            events.extend(client.end_window(name, span_us));
        }
        events.extend(self.errors.drain().into_iter().map(|(key, count)| key.event(count)));
        events.extend(
            self.connections
                .drain()
                .into_iter()
                .map(|(key, count)| key.event(count)),
        );
        events
    }
}

impl Client {
    fn end_window(&mut self, name: &str, span_us: u64) -> Option<Event> {
        let requests: BTreeMap<String, u64> = mem::take(&mut self.requests)
            .into_iter()
            .map(|(api, count)| (api_name(api), count))
            .collect();
        let connects = mem::take(&mut self.connects);
        let mut fetch_offsets = Vec::new();
        for ((topic, partition), fetched) in &mut self.fetched {
            let highest = fetched.highest.take();
            // Every poll asks for the same offset again while nothing new arrives.
            if let Some(offset) = highest
                && fetched.told != highest
            {
                fetched.told = highest;
                fetch_offsets.push(LogEnd {
                    topic: topic.clone(),
                    partition: *partition,
                    offset,
                });
            }
        }
        fetch_offsets.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
        (!requests.is_empty() || connects > 0 || !fetch_offsets.is_empty()).then(|| Event::Wire {
            client: name.to_owned(),
            span_us,
            requests,
            connects,
            fetch_offsets,
        })
    }
}

impl WireErrorKey {
    fn event(&self, count: u64) -> Event {
        Event::WireError {
            client: self.client.clone(),
            api: api_name(self.api),
            code: Code {
                value: self.trouble.code.into(),
                name: codes::name(self.trouble.code).to_owned(),
            },
            topic: self.trouble.topic.clone(),
            partition: self.trouble.partition,
            injected_by: self.injected_by.clone(),
            count,
        }
    }
}

impl ConnectionKey {
    fn event(&self, count: u64) -> Event {
        Event::WireConnection {
            client: self.client.clone(),
            node: self.node,
            change: self.change,
            count,
        }
    }
}

/// The name of an api, also of one that this version does not know.
pub(super) fn api_name(key: i16) -> String {
    codes::api_name(key).map_or_else(|| format!("Api({key})"), str::to_owned)
}
