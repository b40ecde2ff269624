//! A table being read: each key with its default, and every key that nobody asked for as an error.

use std::cell::RefCell;
use std::ops::Range;
use std::time::Duration;

use serde::Deserialize;

use super::decode::decode;
use super::diagnostics::{Sink, escaped, unknown};
use super::duration;
use super::tree::{Node, Value};

/// Every table of an array of tables; `None` for one that could not be read.
pub(super) fn list<T>(
    top: &Section<'_>,
    key: &str,
    sink: &Sink<'_>,
    mut one: impl FnMut(&Section<'_>) -> Option<T>,
) -> Vec<Option<T>> {
    let Some(node) = top.node(key) else {
        return Vec::new();
    };
    let Value::Array(items) = &node.value else {
        let text = format!("`{key}` is {} (wanted `[[{key}]]`)", node.value.noun());
        sink.push(&node.span, text);
        return Vec::new();
    };
    let mut all = Vec::new();
    for item in items {
        all.push(Section::new(key, item, sink).and_then(|section| {
            let read = one(&section);
            section.done();
            read
        }));
    }
    all
}

pub(super) fn taken<T>(result: Result<T, (Range<usize>, String)>, sink: &Sink<'_>) -> Option<T> {
    result.map_err(|(span, message)| sink.push(&span, message)).ok()
}

/// A table being read: what was not asked for by [`Section::done`] is an unknown key.
pub(super) struct Section<'a> {
    node: Option<(&'a Node, &'a Sink<'a>)>,
    asked: RefCell<Vec<String>>,
}

impl<'a> Section<'a> {
    /// The table that stands under `key`.
    pub(super) fn new(key: &str, node: &'a Node, sink: &'a Sink<'a>) -> Option<Self> {
        if node.entries().is_none() {
            let text = format!("`{key}` is {} (wanted a table)", node.value.noun());
            sink.push(&node.span, text);
            return None;
        }
        Some(Self {
            node: Some((node, sink)),
            asked: RefCell::default(),
        })
    }

    /// A table that the file leaves out: every key has its default.
    pub(super) fn absent() -> Self {
        Self {
            node: None,
            asked: RefCell::default(),
        }
    }

    pub(super) fn sink(&self) -> Option<&'a Sink<'a>> {
        self.node.map(|(_, sink)| sink)
    }

    pub(super) fn span(&self) -> Range<usize> {
        self.node.map(|(node, _)| node.span.clone()).unwrap_or_default()
    }

    pub(super) fn span_of(&self, key: &str) -> Range<usize> {
        self.node
            .and_then(|(node, _)| node.get(key))
            .map_or_else(|| self.span(), |node| node.span.clone())
    }

    pub(super) fn node(&self, key: &str) -> Option<&'a Node> {
        self.asked.borrow_mut().push(key.to_owned());
        self.node?.0.get(key)
    }

    pub(super) fn optional<T: for<'de> Deserialize<'de>>(&self, key: &str) -> Option<T> {
        let node = self.node(key)?;
        taken(decode(key, node), self.sink()?)
    }

    /// The value, or the default where the key is absent; `None` where it could not be read.
    pub(super) fn or<T: for<'de> Deserialize<'de>>(&self, key: &str, default: T) -> Option<T> {
        match self.node(key) {
            Some(_) => self.optional(key),
            None => Some(default),
        }
    }

    pub(super) fn required<T: for<'de> Deserialize<'de>>(&self, key: &str, wanted: &str) -> Option<T> {
        if self.node(key).is_none() {
            if let Some(sink) = self.sink() {
                sink.push(&self.span(), format!("`{key}` is missing (wanted {wanted})"));
            }
            return None;
        }
        self.optional(key)
    }

    pub(super) fn length(&self, key: &str, default: Option<Duration>) -> Option<Duration> {
        if self.node(key).is_none() {
            return default;
        }
        let text: String = self.optional(key)?;
        match duration::parse(&text) {
            Ok(length) => Some(length),
            Err(message) => {
                self.sink()?
                    .push(&self.span_of(key), format!("`{key}`: {}", escaped(&message)));
                None
            }
        }
    }

    pub(super) fn word(&self, key: &str, known: &[&str], default: &str) -> Option<String> {
        let word: String = self.or(key, default.to_owned())?;
        if self.node(key).is_some() && !known.contains(&word.as_str()) {
            self.sink()?
                .push(&self.span_of(key), unknown(&format!("`{key}`"), &word, known));
            return None;
        }
        Some(word)
    }

    pub(super) fn table(&self, key: &str) -> Option<Section<'a>> {
        Section::new(key, self.node(key)?, self.sink()?)
    }

    /// Every key that was not asked for is unknown.
    pub(super) fn done(&self) {
        let Some((node, sink)) = self.node else { return };
        let asked = self.asked.borrow();
        let known: Vec<&str> = asked.iter().map(String::as_str).collect();
        for entry in node.entries().unwrap_or_default() {
            if !known.contains(&entry.key.as_str()) {
                sink.push(&entry.key_span, unknown("key", &entry.key, &dedup(&known)));
            }
        }
    }
}

fn dedup<'k>(words: &[&'k str]) -> Vec<&'k str> {
    let mut seen: Vec<&str> = Vec::new();
    for word in words {
        if !seen.contains(word) {
            seen.push(word);
        }
    }
    seen
}
