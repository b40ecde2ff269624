//! Reports from histories, and what people and tools read of them.

mod fold;
mod formats;
mod history;
mod hostile;
mod renderers;
mod stories;
