//! Renderers: one report, many readers. Terminal, JSON, JUnit and Markdown say the same things in the same words.

pub mod escape;
pub mod json;
pub mod junit;
pub mod markdown;
mod matrix;
mod page;
mod palette;
mod progress;
mod sentences;
pub mod text;

pub use palette::{Palette, Style};
pub use progress::{ProgressState, status_line};
