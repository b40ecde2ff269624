//! The adapters of Python libraries on the bare mock cluster, driven over the protocol.

#![expect(clippy::unwrap_used, reason = "helpers of tests: a panic fails the test")]

mod aiokafka;
mod driver;
mod ktables;
mod skeletons;
