//! Lines of a terminal page: labelled fields, wrapped with a hanging indent.

use super::palette::{Palette, Style};

/// Width of a field's label.
const LABEL: usize = 13;

/// A page under construction.
pub(super) struct Page {
    out: String,
    width: usize,
    pub(super) palette: Palette,
}

impl Page {
    pub(super) fn new(palette: Palette, width: usize) -> Self {
        Self {
            out: String::new(),
            // Narrower than this, a hanging indent leaves no room to read.
            width: width.max(40),
            palette,
        }
    }

    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// A line as it stands.
    pub(super) fn line(&mut self, text: &str) {
        self.out.push_str(text.trim_end());
        self.out.push('\n');
    }

    /// An empty line, unless the page is empty or has one already.
    pub(super) fn gap(&mut self) {
        if !self.out.is_empty() && !self.out.ends_with("\n\n") {
            self.out.push('\n');
        }
    }

    /// `  label      text`, wrapped. The text must be escaped already.
    pub(super) fn field(&mut self, label: &str, text: &str) {
        let indent = LABEL + 2;
        let mut lines = wrap(text, self.width - indent).into_iter();
        let first = lines.next().unwrap_or_default();
        self.labelled(label, &first);
        for line in lines {
            self.line(&format!("{:indent$}{line}", ""));
        }
    }

    /// `  label      text` on one line however long: a command or a path that is to be copied.
    pub(super) fn labelled(&mut self, label: &str, text: &str) {
        let padded = self.palette.paint(Style::Faint, &format!("{label:LABEL$}"));
        self.line(&format!("  {padded}{text}"));
    }

    pub(super) fn finish(self) -> String {
        self.out
    }
}

/// Breaks at spaces; a word longer than the width stays whole, so that it can be copied.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in words(text) {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > width {
            lines.push(String::new());
            used = 0;
        }
        let Some(line) = lines.last_mut() else { continue };
        if used > 0 {
            line.push(' ');
            used += 1;
        }
        line.push_str(&word);
        used += length;
    }
    lines
}

/// Words, a number and its unit of time being one.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let is_unit = matches!(word.trim_end_matches(|c: char| !c.is_alphanumeric()), "s" | "ms");
        match words
            .last_mut()
            .filter(|last| is_unit && last.ends_with(|c: char| c.is_ascii_digit()))
        {
            Some(number) => {
                number.push(' ');
                number.push_str(word);
            }
            None => words.push(word.to_owned()),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_at_spaces_and_long_words_stay_whole() {
        assert_eq!(wrap("aa bb cc", 5), ["aa bb", "cc"]);
        assert_eq!(wrap("aaaaaaaa b", 4), ["aaaaaaaa", "b"]);
        assert_eq!(wrap("", 4), [""]);
        assert_eq!(wrap("after 41 ms; it", 8), ["after", "41 ms;", "it"]);
    }
}
