//! Exceptions as data: the exact type, code, tree and frames of what a reader raised.
//!
//! Types are kept verbatim and fully qualified (`aiokafka.errors.TopicAuthorizationFailedError`, `*net.OpError`); nothing
//! here trims, translates or merges them, because the exact type is what the product reports.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::history::Phase;

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

    /// The innermost frame of the library: no frame of the adapter, its SDK, a user callback or the runtime. Where the
    /// exception itself has none (a wrapper made in the adapter), the first one below it in preorder that has.
    pub fn library_frame(&self) -> Option<&Frame> {
        self.preorder()
            .into_iter()
            .find_map(|e| e.frames.iter().rev().find(|frame| frame.of == FrameOf::Library))
    }

    /// A name for this exception that is the same in every run: a hash of (type, code) in preorder, the innermost frame
    /// of the library without its line number, the phase and the origin. Messages and attributes are left out, because
    /// they hold addresses and times.
    pub fn fingerprint(&self, phase: Phase, origin: Origin) -> String {
        // FNV-1a, 64 bits: stable across releases and platforms, which `std`'s hasher does not promise.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut add = |part: &str| {
            // The unit separator keeps ("ab", "c") apart from ("a", "bc").
            for byte in part.bytes().chain([0x1f]) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
        };
        for e in self.preorder() {
            add(&e.type_name);
            add(&e.code.as_ref().map_or_else(String::new, |code| code.value.to_string()));
        }
        if let Some(frame) = self.library_frame() {
            add(&frame.file);
            add(&frame.function);
        }
        add(phase.name());
        add(origin.name());
        format!("{hash:016x}")
    }
}

impl Origin {
    /// The name used in files and reports.
    pub fn name(self) -> &'static str {
        match self {
            Origin::Reader => "reader",
            Origin::Callback => "callback",
            Origin::Poll => "poll",
            Origin::Background => "background",
            Origin::Log => "log",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Exception, Frame, FrameOf, Origin};
    use crate::history::Phase;

    fn exception(type_name: &str) -> Exception {
        Exception {
            type_name: type_name.into(),
            code: None,
            attributes: Default::default(),
            message: String::new(),
            relation: None,
            children: Vec::new(),
            frames: Vec::new(),
        }
    }

    fn frame(of: FrameOf, function: &str, line: u32) -> Frame {
        Frame {
            file: "lib/reader.py".into(),
            function: function.into(),
            line: Some(line),
            of,
        }
    }

    #[test]
    fn line_numbers_messages_and_callback_frames_leave_the_fingerprint_as_it_is() {
        let mut one = exception("builtins.ValueError");
        one.frames = vec![
            frame(FrameOf::Library, "apply", 10),
            frame(FrameOf::Callback, "on_set", 3),
        ];
        let mut other = one.clone();
        other.message = "at 0x7f00".into();
        other.frames = vec![frame(FrameOf::Library, "apply", 99)];
        assert_eq!(
            one.fingerprint(Phase::Live, Origin::Callback),
            other.fingerprint(Phase::Live, Origin::Callback)
        );
    }

    #[test]
    fn type_frame_phase_origin_and_tree_each_change_the_fingerprint() {
        let mut base = exception("a.B");
        base.frames = vec![frame(FrameOf::Library, "apply", 10)];
        let of = |e: &Exception| e.fingerprint(Phase::Live, Origin::Poll);
        let mut typed = base.clone();
        typed.type_name = "a.C".into();
        let mut framed = base.clone();
        framed.frames = vec![frame(FrameOf::Library, "poll", 10)];
        let mut tree = base.clone();
        tree.children = vec![exception("a.B")];
        let all = [
            of(&base),
            of(&typed),
            of(&framed),
            of(&tree),
            base.fingerprint(Phase::CatchUp, Origin::Poll),
            base.fingerprint(Phase::Live, Origin::Log),
        ];
        for (i, one) in all.iter().enumerate() {
            assert!(!all[..i].contains(one), "{i}");
        }
    }
}
