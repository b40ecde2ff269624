//! What tells the bundled readers of one kind apart: one decision each, and nothing else.

/// The decisions in which the bundled readers differ. The references take the first of each; the stored table, a reference
/// too, differs in where it keeps its content.
///
/// Declared timeouts and limits that the readers' manifests need: `stop` returns within 3 s and within the grace it is
/// given; recovery takes at most 5 s after a heal (the longest backoff is 1 s, a half-open connection is given up after
/// 5 s), plus the session timeout where a group member died; idle or cut off they take under 0.05 core and under 40
/// requests and connects a second per broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// What an exception of a user callback does.
    pub callback_failure: CallbackFailure,
    /// Where a table goes when its position is out of range while it catches up.
    pub out_of_range: OutOfRange,
    /// Who calls consume again when it has returned.
    pub consume: Consume,
    /// Where a table is kept.
    pub keeps: Keeps,
}

impl Policy {
    /// The references' decisions.
    pub const REFERENCE: Policy = Policy {
        callback_failure: CallbackFailure::Isolated,
        out_of_range: OutOfRange::Rebuild,
        consume: Consume::Supervised,
        keeps: Keeps::InMemory,
    };

    /// A table that outlives its process: what it knows and where it goes on stand in the state folder.
    pub const STORED: Policy = Policy {
        keeps: Keeps::OnDisk,
        ..Policy::REFERENCE
    };

    /// Incident 1, as in ktables 1.1.1: an exception of the observer callback ends the reading task.
    pub const CALLBACK_FATAL: Policy = Policy {
        callback_failure: CallbackFailure::Fatal,
        ..Policy::REFERENCE
    };

    /// Incident 2, as in faust: `auto.offset.reset = latest` holds while the table still catches up.
    pub const RESET_LATEST: Policy = Policy {
        out_of_range: OutOfRange::JumpToEnd,
        ..Policy::REFERENCE
    };

    /// Incident 3, as in sarama: consume is called once.
    pub const CONSUME_ONCE: Policy = Policy {
        consume: Consume::Once,
        ..Policy::REFERENCE
    };
}

/// What an exception of a user callback does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallbackFailure {
    /// It is counted and reported; reading goes on.
    Isolated,
    /// It ends the reading task.
    Fatal,
}

/// Where a table goes when its position is out of range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutOfRange {
    /// It is cleared and rebuilt from the log start.
    Rebuild,
    /// The client jumps to the log end, and nobody tells the table.
    JumpToEnd,
}

/// Who calls consume again when it has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consume {
    /// A loop with backoff.
    Supervised,
    /// Nobody.
    Once,
}

/// Where a table is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeps {
    /// It is gone with its object, and the next one reads the topic from the log start.
    InMemory,
    /// In the state folder, with its offsets: the next object goes on from there.
    OnDisk,
}
