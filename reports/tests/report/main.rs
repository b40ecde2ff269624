//! Reports from histories, and what people and tools read of them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must say where")]

mod fold;
mod formats;
mod history;
mod hostile;
mod renderers;
mod stories;
