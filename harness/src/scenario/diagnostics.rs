//! What is wrong with a file, with line, column and the nearest word.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::Range;

use super::tree::Node;

/// One thing that is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Diagnostic {
    /// The file, as it was named.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// A lowercase fragment: what was found, what was wanted.
    pub message: String,
    /// The line itself and where in it, unless nothing of the file can be shown.
    pub excerpt: Option<Excerpt>,
}

/// A line of a file, fit for a terminal, and the part of it that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Excerpt {
    /// The line: what could act on a terminal escaped, tabs as spaces, and no more of it than a screen is wide.
    pub line: String,
    /// How many characters of it stand before the part that is wrong.
    pub before: usize,
    /// How many characters of it are wrong, from 1.
    pub wrong: usize,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Diagnostic {
            file,
            line,
            column,
            message,
            excerpt,
        } = self;
        write!(f, "{}:{line}:{column}: {message}", escaped(file))?;
        if let Some(Excerpt {
            line: text,
            before,
            wrong,
        }) = excerpt
        {
            let number = line.to_string();
            write!(f, "\n  {number} | {text}\n  {:1$} | ", "", number.len())?;
            write!(f, "{:before$}{:^<wrong$}", "", "")?;
        }
        Ok(())
    }
}

/// Everything that is wrong, each with its line and a caret, in the order of the files.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, diagnostic) in self.0.iter().enumerate() {
            if n > 0 {
                f.write_str("\n")?;
            }
            diagnostic.fmt(f)?;
        }
        Ok(())
    }
}

/// Collects diagnostics of one file.
pub(super) struct Sink<'a> {
    file: &'a str,
    text: &'a str,
    found: RefCell<Vec<Diagnostic>>,
    pushed: Cell<usize>,
}

impl<'a> Sink<'a> {
    pub(super) fn new(file: &'a str, text: &'a str) -> Self {
        Self {
            file,
            text,
            found: RefCell::default(),
            pushed: Cell::default(),
        }
    }

    /// Notes that the text at `span` is wrong. The same thing said twice (once for each value of an axis) counts once.
    pub(super) fn push(&self, span: &Range<usize>, message: impl Into<String>) {
        let (line, column) = position(self.text, span.start);
        let diagnostic = Diagnostic {
            file: self.file.to_owned(),
            line,
            column,
            message: message.into(),
            excerpt: excerpt(self.text, span),
        };
        self.pushed.set(self.pushed.get() + 1);
        let mut found = self.found.borrow_mut();
        if !found.contains(&diagnostic) {
            found.push(diagnostic);
        }
    }

    /// The line, from 1, on which `span` starts.
    pub(super) fn line(&self, span: &Range<usize>) -> usize {
        position(self.text, span.start).0
    }

    /// How often something was wrong so far, repetitions included: what a reader of one plan compares before and after.
    pub(super) fn count(&self) -> usize {
        self.pushed.get()
    }

    /// `value`, unless something is wrong.
    pub(super) fn finish<T>(self, value: T) -> Result<T, Diagnostics> {
        let mut found = self.found.into_inner();
        if found.is_empty() {
            return Ok(value);
        }
        found.sort();
        Err(Diagnostics(found))
    }

    /// The tree of the file, or every syntax error in it.
    pub(super) fn parse(&self) -> Result<Node, Diagnostics> {
        Node::parse(self.text).map_err(|errors| {
            for (span, message) in errors {
                self.push(&span, message);
            }
            let mut found = self.found.take();
            found.sort();
            Diagnostics(found)
        })
    }
}

/// Line and column, from 1, of a byte offset.
fn position(text: &str, offset: usize) -> (usize, usize) {
    let mut end = offset.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let before = &text[..end];
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (
        before.matches('\n').count() + 1,
        before[line_start..].chars().count() + 1,
    )
}

/// The first line of a span. Nothing where the span is empty: then something is missing, and no place is wrong.
fn excerpt(text: &str, span: &Range<usize>) -> Option<Excerpt> {
    let wrong = text.get(span.clone()).filter(|wrong| !wrong.is_empty())?;
    let start = text[..span.start].rfind('\n').map_or(0, |at| at + 1);
    let line = text[start..].split(['\n', '\r']).next().unwrap_or_default();
    let shown = |text: &str| escaped(&text.replace('\t', " "));
    let before = shown(&text[start..span.start]);
    let wrong = shown(wrong.split(['\n', '\r']).next().unwrap_or_default());
    let after = shown(line.get(span.start - start..).unwrap_or_default());
    // Of a long line the part around the place is shown.
    let skipped = before.chars().count().saturating_sub(SHOWN_BEFORE);
    let before: String = before.chars().skip(skipped).collect();
    let room = SHOWN - before.chars().count();
    let cut = |mark: bool| if mark { "…" } else { "" };
    let (head, tail) = (cut(skipped > 0), cut(after.chars().count() > room));
    let kept: String = after.chars().take(room).collect();
    Some(Excerpt {
        line: format!("{head}{before}{kept}{tail}"),
        before: head.chars().count() + before.chars().count(),
        wrong: wrong.chars().count().clamp(1, room),
    })
}

/// Characters of a line that are shown.
const SHOWN: usize = 110;
/// Characters that are shown of a line before the place, at most.
const SHOWN_BEFORE: usize = 60;

/// The word of `known` that is nearest to `word`, if one is near: alike from the start on, or one slip away.
pub fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let word = word.to_lowercase();
    known
        .into_iter()
        .filter_map(|candidate| {
            let lower = candidate.to_lowercase();
            let likeness = strsim::jaro_winkler(&word, &lower);
            let one_slip = word.len() > 2 && strsim::osa_distance(&word, &lower) == 1;
            // 0.8 takes in two slips in words of this length and leaves out words that only begin alike.
            (one_slip || likeness >= 0.8).then_some((likeness, candidate))
        })
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// ``unknown fault `delete-segment` (did you mean `delete-segments`?)``, or with the words that were wanted where none
/// is near.
pub fn unknown(noun: &str, word: &str, known: &[&str]) -> String {
    let word_shown = quoted(word);
    match nearest(word, known.iter().copied()) {
        Some(near) => format!("unknown {noun} {word_shown} (did you mean `{near}`?)"),
        None if known.is_empty() => format!("unknown {noun} {word_shown} (wanted none here)"),
        None if known.len() > 20 => format!("unknown {noun} {word_shown}"),
        None => format!("unknown {noun} {word_shown} (wanted {})", one_of(known)),
    }
}

/// `` `a`, `b` or `c` ``.
pub(super) fn one_of(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => "nothing".to_owned(),
    }
}

/// A word from a file in backticks: control characters escaped, at most 80 characters.
pub(super) fn quoted(word: &str) -> String {
    let mut shown: String = escaped(word).chars().take(80).collect();
    if escaped(word).chars().count() > 80 {
        shown.push('…');
    }
    format!("`{shown}`")
}

/// Control characters and bidirectional overrides escaped: text from files and readers goes to terminals.
pub(super) fn escaped(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            let unsafe_char =
                c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
            let (escape, plain) = if unsafe_char {
                (Some(c.escape_unicode()), None)
            } else {
                (None, Some(c))
            };
            escape.into_iter().flatten().chain(plain)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_word_of_a_slip_is_found_and_a_strange_word_has_none() {
        let known = ["delete-segments", "kill-broker", "pause-broker"];
        assert_eq!(nearest("delete-segment", known), Some("delete-segments"));
        assert_eq!(nearest("Kill-Broker", known), Some("kill-broker"));
        assert_eq!(nearest("zzz", known), None);
        assert_eq!(nearest("nht", ["key", "nth"]), Some("nth"));
    }

    #[test]
    fn the_line_is_shown_and_what_is_wrong_in_it_is_marked() {
        let shown = |text: &str, wrong: &str| {
            let at = text.find(wrong).unwrap();
            let sink = Sink::new("f.toml", text);
            sink.push(&(at..at + wrong.len()), "no");
            sink.finish(()).unwrap_err().to_string()
        };
        assert_eq!(
            shown("a = 1\n\tdo = \"xé\" # why\n", "\"xé\""),
            "f.toml:2:7: no\n  2 |  do = \"xé\" # why\n    |       ^^^^"
        );
        assert_eq!(
            shown("a = \"\u{1b}\"", "\u{1b}"),
            "f.toml:1:6: no\n  1 | a = \"\\u{1b}\"\n    |      ^^^^^^"
        );
        assert_eq!(
            shown("[[a]]\nb = 1\n", "[[a]]\nb = 1"),
            "f.toml:1:1: no\n  1 | [[a]]\n    | ^^^^^"
        );
        let long = format!("a = {}x{}", "é".repeat(300), "é".repeat(300));
        let found = shown(&long, "x");
        let lines: Vec<Vec<char>> = found.lines().map(|line| line.chars().collect()).collect();
        let caret = lines[2].iter().position(|c| *c == '^').unwrap();
        assert_eq!((lines[1][caret], lines[1].len() < 130), ('x', true));
    }

    #[test]
    fn what_is_missing_has_no_line_to_show() {
        let sink = Sink::new("f.toml", "a = 1");
        sink.push(&(0..0), "`b` is missing");
        assert_eq!(sink.finish(()).unwrap_err().to_string(), "f.toml:1:1: `b` is missing");
    }

    #[test]
    fn columns_count_characters_not_bytes() {
        assert_eq!(position("a\nüé=", 6), (2, 3));
        assert_eq!(position("", 9), (1, 1));
    }

    #[test]
    fn escape_sequences_of_a_file_do_not_reach_the_terminal() {
        assert_eq!(quoted("a\u{1b}[31m"), "`a\\u{1b}[31m`");
    }
}
