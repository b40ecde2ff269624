//! The links: the builtin one between raw sockets and in front of librdkafka's mock cluster with real clients; with the
//! feature `toxiproxy`, Toxiproxy in place of it (`arms`), and the wrapper of its API.
#![expect(clippy::unwrap_used, reason = "a test may panic, its helpers too")]

mod arms;
mod faults;
mod kafka;
mod lab;
mod sequences;
mod sockets;
#[cfg(feature = "toxiproxy")]
mod toxiproxy;
