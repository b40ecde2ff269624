//! The builtin link: between raw sockets, and in front of librdkafka's mock cluster with real clients.
#![expect(clippy::unwrap_used, reason = "a test may panic, its helpers too")]

mod faults;
mod kafka;
mod lab;
mod sequences;
mod sockets;
