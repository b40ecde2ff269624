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

/// Held shared while a child is started, and alone while a broker of a mock cluster in this process goes down: the mock binds
/// the broker's port again at once and aborts where it cannot, and a child that is just being started has a copy of every
/// descriptor, the listener's too.
static STARTING: std::sync::RwLock<()> = std::sync::RwLock::new(());
