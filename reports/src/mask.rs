//! Masks what varies from run to run: for telling equal messages apart from new ones, and for snapshots.

/// A message with its numbers, addresses and ids masked. Equal ones (with type and origin) are one and the same.
///
/// ```
/// use brokerfall_report::mask::mask;
/// assert_eq!(mask("connect to 127.0.0.3:40121 failed after 12.5 ms"), "connect to <address> failed after # ms");
/// assert_eq!(mask("object at 0x7f3a90c0 in orders-12"), "object at <address> in orders-#");
/// assert_eq!(mask("member 9b2c1f04-8d1e-4c6a-9a3b-0d5e7f102030 left"), "member <uuid> left");
/// ```
pub fn mask(message: &str) -> String {
    replace(message, |rest, before| {
        uuid(rest)
            .map(|len| (len, "<uuid>"))
            .or_else(|| hex_address(rest).map(|len| (len, "<address>")))
            .or_else(|| socket_address(rest, before).map(|len| (len, "<address>")))
            .or_else(|| hex_id(rest, before).map(|len| (len, "<id>")))
            .or_else(|| number(rest).map(|len| (len, "#")))
    })
}

/// Text of a report with times, addresses, process ids and the given paths replaced, so that a snapshot of it stays.
///
/// Paths are replaced first, in the order given. Runs of spaces and dashes are squeezed, because the padding of a column depends on what
/// was in it.
///
/// ```
/// use brokerfall_report::mask::redact;
/// let line = "recovered in 1.2 s at 127.0.0.3:40121,   files in /tmp/x1/run (pid 4711)";
/// assert_eq!(redact(line, &["/tmp/x1"]), "recovered in <time> at <address>,  files in <path>/run (pid <pid>)");
/// ```
pub fn redact(text: &str, paths: &[&str]) -> String {
    let mut text = text.to_owned();
    for path in paths.iter().filter(|path| !path.is_empty()) {
        text = text.replace(path, "<path>");
    }
    let text = replace(&text, |rest, before| {
        uuid(rest)
            .map(|len| (len, "<uuid>"))
            .or_else(|| timestamp(rest, before).map(|len| (len, "<timestamp>")))
            .or_else(|| socket_address(rest, before).map(|len| (len, "<address>")))
            .or_else(|| duration(rest, before).map(|len| (len, "<time>")))
            .or_else(|| {
                (before.ends_with("pid "))
                    .then(|| number(rest))
                    .flatten()
                    .map(|len| (len, "<pid>"))
            })
    });
    text.lines()
        .map(squeeze)
        .fold(String::new(), |mut all, line| {
            all.push_str(line.trim_end());
            all.push('\n');
            all
        })
        .trim_end_matches('\n')
        .to_owned()
        + if text.ends_with('\n') { "\n" } else { "" }
}

/// Replaces whatever `find` recognises at the start of the rest; it is given the text before, too.
fn replace(text: &str, find: impl Fn(&str, &str) -> Option<(usize, &'static str)>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        match find(&text[at..], &text[..at]) {
            Some((len, placeholder)) => {
                out.push_str(placeholder);
                at += len;
            }
            None => {
                out.push(c);
                at += c.len_utf8();
            }
        }
    }
    out
}

/// Length of the longest prefix whose bytes are all accepted.
fn prefix(text: &str, accept: impl Fn(u8) -> bool) -> usize {
    text.bytes().take_while(|b| accept(*b)).count()
}

fn is_word(before: &str) -> bool {
    before.chars().next_back().is_some_and(char::is_alphanumeric)
}

fn uuid(text: &str) -> Option<usize> {
    let mut at = 0;
    for (i, len) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if i > 0 {
            (text.as_bytes().get(at) == Some(&b'-')).then_some(())?;
            at += 1;
        }
        let group = text.as_bytes().get(at..at + len)?;
        group.iter().all(u8::is_ascii_hexdigit).then_some(())?;
        at += len;
    }
    (prefix(&text[at..], |b| b.is_ascii_hexdigit()) == 0).then_some(at)
}

fn hex_address(text: &str) -> Option<usize> {
    let digits = prefix(text.strip_prefix("0x")?, |b| b.is_ascii_hexdigit());
    (digits > 0).then_some(2 + digits)
}

/// Twelve hexadecimal digits or more with a decimal one among them: ids of members, objects, traces.
fn hex_id(text: &str, before: &str) -> Option<usize> {
    let len = prefix(text, |b| b.is_ascii_hexdigit());
    let mixed = text[..len].bytes().any(|b| b.is_ascii_digit()) && text[..len].bytes().any(|b| b.is_ascii_alphabetic());
    (len >= 12 && mixed && !is_word(before)).then_some(len)
}

fn number(text: &str) -> Option<usize> {
    let whole = prefix(text, |b| b.is_ascii_digit());
    (whole > 0).then_some(())?;
    let fraction = text[whole..]
        .strip_prefix('.')
        .map_or(0, |rest| prefix(rest, |b| b.is_ascii_digit()));
    Some(if fraction > 0 { whole + 1 + fraction } else { whole })
}

/// `a.b.c.d` with or without a port.
fn socket_address(text: &str, before: &str) -> Option<usize> {
    if is_word(before) || before.ends_with('.') {
        return None;
    }
    let mut at = 0;
    for i in 0..4 {
        if i > 0 {
            (text.as_bytes().get(at) == Some(&b'.')).then_some(())?;
            at += 1;
        }
        let len = prefix(&text[at..], |b| b.is_ascii_digit());
        (1..=3).contains(&len).then_some(())?;
        at += len;
    }
    let port = text[at..]
        .strip_prefix(':')
        .map_or(0, |rest| prefix(rest, |b| b.is_ascii_digit()));
    Some(if port > 0 { at + 1 + port } else { at })
}

/// `2026-01-31T10:00:00Z`, with or without a fraction.
fn timestamp(text: &str, before: &str) -> Option<usize> {
    if is_word(before) {
        return None;
    }
    const SHAPE: &[u8] = b"0000-00-00T00:00:00";
    let head = text.as_bytes().get(..SHAPE.len())?;
    let fits = head
        .iter()
        .zip(SHAPE)
        .all(|(b, shape)| if *shape == b'0' { b.is_ascii_digit() } else { b == shape });
    fits.then_some(())?;
    let rest = &text[SHAPE.len()..];
    let fraction = rest
        .strip_prefix('.')
        .map_or(0, |rest| 1 + prefix(rest, |b| b.is_ascii_digit()));
    let zone = usize::from(rest[fraction..].starts_with('Z'));
    Some(SHAPE.len() + fraction + zone)
}

/// `1.2 s`, `340 ms`, `2 min`.
fn duration(text: &str, before: &str) -> Option<usize> {
    if is_word(before) {
        return None;
    }
    let len = number(text)?;
    let unit = [" ms", " s", " min", "ms", "s"].into_iter().find(|unit| {
        let after = text[len..].strip_prefix(unit);
        after.is_some_and(|after| !after.chars().next().is_some_and(char::is_alphanumeric))
    })?;
    Some(len + unit.len())
}

/// Runs of spaces or dashes between words become two; indentation stays.
fn squeeze(line: &str) -> String {
    let indent = line.len() - line.trim_start_matches(' ').len();
    let mut out = line[..indent].to_owned();
    for c in line[indent..].chars() {
        let run = matches!(c, ' ' | '-') && out.len() >= indent + 2 && out.ends_with(&format!("{c}{c}"));
        if !run {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_topics_and_offsets_are_masked_alike_so_that_equal_failures_meet() {
        assert_eq!(
            mask("Fetch offset 103840 is out of range for t1-0"),
            mask("Fetch offset 7 is out of range for t2-11")
        );
        assert_ne!(mask("connection refused"), mask("connection reset"));
    }

    #[test]
    fn text_without_anything_variable_stays_as_it_is() {
        for text in ["", "größer … 漢字", "a.b.c", "-", "dead beef"] {
            assert_eq!(mask(text), text);
        }
    }

    #[test]
    fn words_and_versions_are_not_taken_for_times() {
        assert_eq!(
            redact("aiokafka 0.13.0, 3 s, 3 sessions, r1 s", &[]),
            "aiokafka 0.13.0, <time>, 3 sessions, r1 s"
        );
        assert_eq!(redact("at 2026-11-30T00:58:40.12Z\n", &[]), "at <timestamp>\n");
    }
}
