//! Reports from histories, and what people and tools read of them.

#![expect(clippy::unwrap_used, reason = "tests")]

mod fold;
mod formats;
mod history;
mod hostile;
mod renderers;
mod stories;
