//! Colours, or none.

use crate::verdict::Verdict;

/// Colours of a terminal. Whether there are any is the caller's decision (`NO_COLOR`, not a terminal, CI).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Palette {
    coloured: bool,
}

/// What a piece of text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// A verdict.
    Verdict(Verdict),
    /// A heading or name.
    Strong,
    /// A label or aside.
    Faint,
}

impl Palette {
    /// No colours.
    pub fn plain() -> Self {
        Self { coloured: false }
    }

    /// The terminal's sixteen colours.
    pub fn ansi() -> Self {
        Self { coloured: true }
    }

    /// The text in its colour. The text must be escaped already.
    pub fn paint(self, style: Style, text: &str) -> String {
        if !self.coloured || text.is_empty() {
            return text.to_owned();
        }
        let code = match style {
            Style::Verdict(Verdict::Passed) => "32",
            Style::Verdict(Verdict::Failed) => "1;31",
            Style::Verdict(Verdict::Error) => "1;35",
            Style::Verdict(Verdict::Void) => "1;33",
            Style::Verdict(Verdict::KnownFailing) => "33",
            Style::Verdict(Verdict::Skipped) | Style::Faint => "2",
            Style::Strong => "1",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}
