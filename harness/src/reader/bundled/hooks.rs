//! Where a mutant reader can take hold: each method of [`Hooks`] is one thing that a correct reader does right.
//!
//! The bundled readers run with [`Honest`], whose methods change nothing. The mutants, which prove that every invariant
//! catches its violation, live in the crate `brokerfall-tests`.

use std::sync::Arc;

use brokerfall_report::protocol::{Heartbeat, Start};

use crate::reader::sdk::Sdk;

/// A record as the readers handle it.
#[derive(Debug, Clone)]
pub struct Record {
    /// Topic.
    pub topic: Arc<str>,
    /// Partition.
    pub partition: u32,
    /// Offset.
    pub offset: u64,
    /// Key, where it has one and it is text.
    pub key: Option<String>,
    /// The harness's record id, where the record holds one.
    pub id: Option<u64>,
    /// True when it has no value: it deletes its key.
    pub tombstone: bool,
}

/// What the reading loop does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn {
    /// It polls.
    Poll,
    /// It ends without a word; the process lives on.
    Vanish,
    /// It ends and says so, without saying why.
    EndUntyped,
    /// It ends and says why: the last error that it met.
    EndTyped,
    /// It goes back this many records in every partition and says nothing.
    SeekBack(u64),
    /// It leaves the group without a word and goes on by hand.
    LeaveGroup,
}

/// What a mutant changes. Every method has the correct reader's behaviour as its default.
pub trait Hooks: Send + Sync {
    /// A reader object is about to be built.
    fn built(&self, _sdk: &Sdk, _start: &Start) {}

    /// A record came from the client; `pass` delivers one.
    fn deliver(&self, record: Record, pass: &mut dyn FnMut(Record)) {
        pass(record);
    }

    /// Whether a tombstone is applied to the view.
    fn applies_tombstone(&self) -> bool {
        true
    }

    /// Whether an entry of a table that was stored is taken over.
    fn restores(&self, _key: &str) -> bool {
        true
    }

    /// The client reported an error that does not end the reader.
    fn met_error(&self) {}

    /// Called before every poll.
    fn turn(&self) -> Turn {
        Turn::Poll
    }

    /// The offset to commit, given the next offset to process.
    fn commit(&self, next: u64) -> u64 {
        next
    }

    /// Whether the caller is told of errors that were waited out and of positions that were moved.
    fn tells_caller(&self) -> bool {
        true
    }

    /// What the reader says of itself.
    fn heartbeat(&self, _heartbeat: &mut Heartbeat) {}

    /// A barrier answers this at once.
    fn barrier(&self) -> Option<bool> {
        None
    }

    /// How many failures of a callback are counted for one.
    fn callback_errors_per_failure(&self) -> u64 {
        1
    }

    /// `stop` was asked for; the reader closes when this returns.
    fn stopping(&self) {}
}

/// Changes nothing.
#[derive(Debug, Default, Clone, Copy)]
pub struct Honest;

impl Hooks for Honest {}
