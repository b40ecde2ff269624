//! Renderers: one report, many readers. Every renderer says the same things in the same words.

pub mod escape;
pub mod json;
mod matrix;
mod page;
mod palette;
mod progress;
mod sentences;
pub mod text;

pub use palette::{Palette, Style};
pub use progress::{ProgressState, status_line};
