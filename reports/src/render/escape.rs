//! Strings of readers, brokers and files on their way into an output: they are data and must never act.
//!
//! A message may carry terminal escapes, a right-to-left override that turns a line round, a table's pipe, a link, or a
//! character that XML forbids. Each output shows such characters instead of obeying them. JSON needs none of this.

use std::fmt::Write;

/// At most `max` characters, the last three of them dots where something was cut off.
///
/// Cut before escaping: an escape cut in half would be another character.
pub fn cap(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        None => text.to_owned(),
        Some(_) => {
            let kept: String = text.chars().take(max.saturating_sub(3)).collect();
            format!("{}...", kept.trim_end())
        }
    }
}

/// For a terminal, on one line: control characters, escapes, bidirectional and invisible characters in visible form.
///
/// ```
/// use brokerfall_report::render::escape::terminal;
/// assert_eq!(terminal("a\x1b[31mb\u{202e}c\nd"), "a\\x1b[31mb\\u{202e}c\\nd");
/// ```
pub fn terminal(text: &str) -> String {
    escape(text, visible)
}

/// For XML text and attributes: as [`terminal`], but lines stay lines. Markup itself is escaped by the XML writer.
pub fn xml(text: &str) -> String {
    escape(text, |c, out| c != '\n' && visible(c, out))
}

/// For Markdown in running text, list items and table cells: nothing opens a cell, a link, a heading, a tag or code.
///
/// ```
/// use brokerfall_report::render::escape::markdown;
/// assert_eq!(markdown("a|b `c` <script> [x](http://y)"), r"a\|b \`c\` &lt;script&gt; \[x\](http\://y)");
/// ```
pub fn markdown(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    let mut before = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let after = chars.peek().copied();
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            // A bare address, `www.` or an address of mail would become a link, `@name` would call somebody.
            ':' if after == Some('/') => out.push_str("\\:"),
            '.' if before == Some('w') => out.push_str("&#46;"),
            '@' => out.push_str("&#64;"),
            // Inside a word an underscore means nothing; ids stay readable.
            '_' if before.is_some_and(char::is_alphanumeric) && after.is_some_and(char::is_alphanumeric) => {
                out.push('_')
            }
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' | '!' | '$' => {
                out.push('\\');
                out.push(c);
            }
            // These open a list, a rule or a heading, but only as the first character.
            '-' | '+' | '=' if before.is_none() => {
                out.push('\\');
                out.push(c);
            }
            // `1.` and `1)` open a list.
            '.' | ')'
                if !out.is_empty()
                    && out.bytes().all(|b| b.is_ascii_digit())
                    && after.is_none_or(char::is_whitespace) =>
            {
                out.push('\\');
                out.push(c);
            }
            _ => {
                let mut shown = String::new();
                if visible(c, &mut shown) {
                    out.push_str(&shown.replace('\\', "\\\\"));
                } else {
                    out.push(c);
                }
            }
        }
        before = Some(c);
    }
    // Spaces at either end would make an indented block or a hard line break.
    out.trim().to_owned()
}

/// As Markdown code where every character is harmless there, else as [`markdown`].
pub fn markdown_code(text: &str) -> String {
    let tame = |c: char| c.is_ascii_alphanumeric() || "-_./=[]{}(),:@#+*$'\"; ~".contains(c);
    if !text.is_empty() && text.trim() == text && text.chars().all(tame) {
        format!("`{text}`")
    } else {
        markdown(text)
    }
}

fn escape(text: &str, visible: impl Fn(char, &mut String) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if !visible(c, &mut out) {
            out.push(c);
        }
    }
    out
}

/// Writes the visible form of a character that would act or hide; false when it is an ordinary one.
fn visible(c: char, out: &mut String) -> bool {
    match c {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c if c.is_control() => {
            let _ = write!(out, "\\x{:02x}", u32::from(c));
        }
        c if is_hidden(c) => {
            let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
        }
        _ => return false,
    }
    true
}

/// Characters without a shape of their own that turn, join, hide or split what stands around them, and non-characters.
fn is_hidden(c: char) -> bool {
    matches!(u32::from(c),
        0xAD | 0x34F | 0x61C | 0x115F | 0x1160 | 0x17B4 | 0x17B5 | 0x180B..=0x180F
        | 0x200B..=0x200F | 0x2028..=0x202E | 0x2060..=0x206F | 0x3164 | 0xFE00..=0xFE0F | 0xFEFF | 0xFFA0
        | 0xFDD0..=0xFDEF | 0xFFF0..=0xFFFB | 0xE0000..=0xE0FFF)
        || u32::from(c) & 0xFFFE == 0xFFFE
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn long_text_is_cut_and_short_text_is_not() {
        assert_eq!(cap("abcdef", 6), "abcdef");
        assert_eq!(cap("abcdefg", 6), "abc...");
        assert_eq!(cap("ü".repeat(9).as_str(), 5), "üü...");
    }

    #[test]
    fn ordinary_text_of_any_script_stays() {
        for text in ["orders-0 größer 漢字 ελ", "{\"a\": 1}", ""] {
            assert_eq!(terminal(text), text);
            assert_eq!(xml(text), text);
        }
        assert_eq!(
            markdown("no_lost_record: 3 of 4, see p0-k1"),
            "no_lost_record: 3 of 4, see p0-k1"
        );
    }

    #[test]
    fn first_characters_that_open_a_block_are_disarmed() {
        for (text, wanted) in [
            ("- a", "\\- a"),
            ("1. a", "1\\. a"),
            ("# a", "\\# a"),
            ("    a", "a"),
            ("===", "\\==="),
        ] {
            assert_eq!(markdown(text), wanted);
        }
    }

    #[test]
    fn code_is_used_for_tame_text_only() {
        assert_eq!(
            markdown_code("broker-kill/live[mode=hold]"),
            "`broker-kill/live[mode=hold]`"
        );
        assert_eq!(markdown_code("a`b"), "a\\`b");
        assert_eq!(markdown_code("a|b"), "a\\|b");
    }

    proptest! {
        #[test]
        fn nothing_in_a_terminal_line_acts(text in "\\PC*|[\\x00-\\x1f\u{7f}-\u{9f}\u{200b}-\u{206f}\u{feff}a-z]{0,40}|.*") {
            let shown = terminal(&text);
            prop_assert!(!shown.chars().any(|c| c.is_control() || is_hidden(c)), "{shown:?}");
        }

        #[test]
        fn nothing_in_a_markdown_line_opens_a_tag_or_a_cell(text: String) {
            let shown = markdown(&text);
            prop_assert!(!shown.contains(['<', '>', '\n', '\r']));
            let bare = |c: char| shown.char_indices().any(|(at, found)| {
                found == c && shown[..at].bytes().rev().take_while(|b| *b == b'\\').count() % 2 == 0
            });
            prop_assert!(!bare('|') && !bare('`') && !bare('['), "{shown:?}");
        }
    }
}
