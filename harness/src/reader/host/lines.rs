//! Cuts a stream of bytes into lines with bounded memory, whatever comes.

use crate::reader::validate::LINE_BYTES;

/// A stream of which at most one line is kept.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The line begun.
    open: Vec<u8>,
    /// The rest of a line that was too long is being passed over.
    skipping: bool,
}

/// What a stream holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// A line without its line break.
    Line(&'a [u8]),
    /// The start of a line longer than [`LINE_BYTES`]; told once for the line.
    TooLong(&'a [u8]),
}

impl Lines {
    /// Takes the next bytes of the stream and hands out what is complete.
    pub(super) fn feed(&mut self, mut chunk: &[u8], mut take: impl FnMut(Piece<'_>)) {
        while let Some(end) = chunk.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = chunk.split_at(end);
            chunk = &rest[1..];
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            if self.open.is_empty() && line.len() <= LINE_BYTES {
                take(Piece::Line(line));
                continue;
            }
            self.open.extend_from_slice(line);
            if self.open.len() > LINE_BYTES {
                take(Piece::TooLong(&self.open));
            } else {
                take(Piece::Line(&self.open));
            }
            self.open.clear();
        }
        if self.skipping {
            return;
        }
        self.open.extend_from_slice(chunk);
        if self.open.len() > LINE_BYTES {
            take(Piece::TooLong(&self.open));
            self.skipping = true;
            self.open = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(chunks: &[&[u8]]) -> Vec<Result<Vec<u8>, usize>> {
        let mut lines = Lines::default();
        let mut out = Vec::new();
        for chunk in chunks {
            lines.feed(chunk, |piece| {
                out.push(match piece {
                    Piece::Line(line) => Ok(line.to_vec()),
                    Piece::TooLong(line) => Err(line.len()),
                });
            });
        }
        out
    }

    #[test]
    fn lines_are_whole_however_they_arrive() {
        let wanted = vec![Ok(b"ab".to_vec()), Ok(b"".to_vec()), Ok(b"c".to_vec())];
        assert_eq!(pieces(&[b"ab\n\nc\nrest"]), wanted);
        assert_eq!(pieces(&[b"a", b"b\n", b"\nc", b"\n", b"rest"]), wanted);
    }

    #[test]
    fn line_without_end_is_told_once_and_not_kept() {
        let huge = vec![b'x'; LINE_BYTES + 7];
        assert_eq!(
            pieces(&[&huge, &huge, b"tail\nnext\n"]),
            vec![Err(LINE_BYTES + 7), Ok(b"next".to_vec())]
        );
        let mut lines = Lines::default();
        lines.feed(&huge, |_| {});
        lines.feed(&huge, |_| {});
        assert_eq!(lines.open.capacity(), 0);
    }

    #[test]
    fn longest_line_allowed_is_a_line() {
        let mut exact = vec![b'x'; LINE_BYTES];
        exact.push(b'\n');
        assert_eq!(pieces(&[&exact]), vec![Ok(vec![b'x'; LINE_BYTES])]);
        assert_eq!(pieces(&[&exact[..9], &exact[9..]]), vec![Ok(vec![b'x'; LINE_BYTES])]);
        assert_eq!(pieces(&[&exact[..9], b"xx", &exact[9..]]), vec![Err(LINE_BYTES + 2)]);
    }
}
