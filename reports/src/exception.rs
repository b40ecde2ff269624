//! Exceptions as data: the exact type, code, tree and frames of what a reader raised.
//!
//! Types are kept verbatim and fully qualified (`aiokafka.errors.TopicAuthorizationFailedError`, `*net.OpError`); nothing
//! here trims, translates or merges them, because the exact type is what the product reports.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One exception with everything it was raised from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exception {
    /// The fully qualified type, verbatim.
    #[serde(rename = "type")]
    pub type_name: String,
    /// The error code, where the class alone says nothing (`cimpl.KafkaException`, `sarama.KError`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// Scalar attributes of the exception object, such as `reason = "reader_dead"`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, serde_json::Value>,
    /// The message, verbatim.
    #[serde(default)]
    pub message: String,
    /// How this exception hangs on the one above it; absent at the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relation: Option<Relation>,
    /// What it was raised from, joined with, or what it suppressed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<Exception>,
    /// The stack, innermost frame last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frames: Vec<Frame>,
}

/// A numeric error code and the name that the library gives it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Code {
    /// The number, as the library has it (Kafka's own codes are from -1 up; librdkafka's local ones are below -1).
    pub value: i64,
    /// The library's name for it, verbatim.
    pub name: String,
}

/// How an exception hangs on its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    /// The parent was raised from this one on purpose (`__cause__`, `Unwrap`, `getCause`, `source`).
    Cause,
    /// The parent was raised while this one was being handled (`__context__`).
    Context,
    /// One of several errors that the parent joins.
    Joined,
    /// Suppressed by the parent.
    Suppressed,
}

/// One stack frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// File, relative to the library where possible.
    pub file: String,
    /// Function, qualified as far as the runtime says.
    pub function: String,
    /// Line number, from 1. Not part of a fingerprint: lines move between releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Whose code it is.
    pub of: FrameOf,
}

/// Whose code a frame stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FrameOf {
    /// The library under test, its client or another package.
    Library,
    /// The adapter or its SDK.
    Adapter,
    /// A user callback that the adapter supplied.
    Callback,
    /// The language's own runtime or standard library.
    Runtime,
}

/// Where an exception surfaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// A call of the reader's API raised it or a public property showed it.
    Reader,
    /// A user callback raised it.
    Callback,
    /// A poll or read call raised it.
    Poll,
    /// A background task, thread or error channel handed it out.
    Background,
    /// It stood only in the client's log; it never reached the caller.
    Log,
}

impl Exception {
    /// This exception and everything below it, in preorder.
    pub fn preorder(&self) -> Vec<&Exception> {
        let mut all = vec![self];
        for child in &self.children {
            all.extend(child.preorder());
        }
        all
    }

    /// `Type <- Type(code name) <- …` in preorder: the chain as one line.
    pub fn chain(&self) -> String {
        self.preorder()
            .iter()
            .map(|e| e.label())
            .collect::<Vec<_>>()
            .join(" <- ")
    }

    /// The type, with its code in parentheses where it has one.
    pub fn label(&self) -> String {
        match &self.code {
            Some(code) => format!("{}({} {})", self.type_name, code.value, code.name),
            None => self.type_name.clone(),
        }
    }
}
