//! What Brokerfall writes and others parse: the history record format, the adapter protocol's lines, verdicts, exit
//! codes, and the renderers of reports.
//!
//! This crate is the small stable part of the workspace. It has no async runtime and no Kafka client, so that a tool
//! that only reads histories or reports builds in seconds. Deciding is deliberately not here: invariants live in the
//! crate `brokerfall` (`invariant/`), which depends on this one and never the reverse.
//!
//! Read [`history`] first: one [`history::Event`] enum is everything that can stand in a run's `history.jsonl`.

pub mod exception;
pub mod history;
pub mod mask;
pub mod protocol;
pub mod render;
pub mod report;
pub mod runs;
pub mod verdict;
mod words;
