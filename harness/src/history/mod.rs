//! The history: one recorder appends, facts fold, everything else only reads.

pub mod facts;
pub mod limits;
pub mod recorder;
