//! What a reader wrote on stderr: all of it is read, the first and the last part are kept.

use std::collections::VecDeque;
use std::io::Write;
use std::path::Path;

/// How much of the beginning and of the end is kept, bytes each.
const KEPT: usize = 256 * 1024;
/// How many of the last lines go into `Exited`.
const TAIL_LINES: usize = 20;
/// Longest of those lines, characters.
const TAIL_LINE_LENGTH: usize = 500;

/// A capped copy of a stream: head in the file at once, tail in memory until the end.
#[derive(Debug)]
pub(super) struct Capped {
    file: Option<std::fs::File>,
    head_left: usize,
    tail: VecDeque<u8>,
    /// The last lines, which may stand in the head.
    last: VecDeque<u8>,
    dropped: u64,
}

impl Capped {
    /// Starts a copy in this file.
    ///
    /// # Errors
    /// The operating system's, when the file cannot be created.
    pub(super) fn create(path: &Path) -> std::io::Result<Self> {
        Ok(Self {
            file: Some(std::fs::File::create(path)?),
            head_left: KEPT,
            tail: VecDeque::new(),
            last: VecDeque::new(),
            dropped: 0,
        })
    }

    /// Takes the next bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        keep_last(&mut self.last, bytes, TAIL_LINES * TAIL_LINE_LENGTH);
        let (head, rest) = bytes.split_at(bytes.len().min(self.head_left));
        self.head_left -= head.len();
        self.write(head);
        self.dropped += keep_last(&mut self.tail, rest, KEPT);
    }

    /// Writes the tail. What comes later is read and forgotten.
    pub(super) fn finish(&mut self) {
        if self.dropped > 0 {
            let note = format!("\n[brokerfall: {} bytes left out]\n", self.dropped);
            self.write(note.as_bytes());
        }
        let tail: Vec<u8> = self.tail.drain(..).collect();
        self.write(&tail);
        self.file = None;
    }

    /// The last lines, without control characters except line breaks and tabs.
    pub(super) fn tail_lines(&self) -> String {
        let bytes: Vec<u8> = self.last.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<String> = text.trim_end().lines().map(clean).collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }

    fn write(&mut self, bytes: &[u8]) {
        // A full disk shows in the history's own file, which is checked; the reader must be drained in any case.
        if let Some(file) = self.file.as_mut()
            && file.write_all(bytes).is_err()
        {
            self.file = None;
        }
    }
}

fn clean(line: &str) -> String {
    line.chars()
        .filter(|c| !c.is_control() || *c == '\t')
        .take(TAIL_LINE_LENGTH)
        .collect()
}

/// Appends, and drops what is more than `most` from the front; returns how much was dropped.
fn keep_last(kept: &mut VecDeque<u8>, bytes: &[u8], most: usize) -> u64 {
    let skipped = bytes.len().saturating_sub(most);
    let bytes = &bytes[skipped..];
    let over = (kept.len() + bytes.len()).saturating_sub(most);
    kept.drain(..over);
    kept.extend(bytes);
    (over + skipped) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(chunks: &[Vec<u8>]) -> (Vec<u8>, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stderr.log");
        let mut capped = Capped::create(&path).unwrap();
        for chunk in chunks {
            capped.push(chunk);
        }
        capped.finish();
        capped.push(b"after the end");
        (std::fs::read(&path).unwrap(), capped.tail_lines())
    }

    #[test]
    fn short_stream_is_kept_whole() {
        let (file, tail) = written(&[b"one\n".to_vec(), b"two\xff\x1b[31m\n".to_vec()]);
        assert_eq!(file, b"one\ntwo\xff\x1b[31m\n");
        assert!(tail.starts_with("one\ntwo\u{fffd}[31m\n"), "{tail:?}");
    }

    #[test]
    fn long_stream_keeps_its_head_and_tail() {
        let mut chunks = vec![b"first\n".to_vec()];
        chunks.extend((0..100).map(|_| vec![b'.'; 10_000]));
        chunks.push(b"\nlast".to_vec());
        let (file, _) = written(&chunks);
        let text = String::from_utf8(file).unwrap();
        assert!(text.starts_with("first\n"));
        assert!(text.ends_with("\nlast"));
        let left_out = 11 + 1_000_000 - 2 * KEPT;
        assert!(text.contains(&format!("[brokerfall: {left_out} bytes left out]")));
        assert!(text.len() < 2 * KEPT + 100);
    }

    #[test]
    fn only_the_last_twenty_lines_are_told() {
        let chunk: Vec<u8> = (1..=50).flat_map(|n| format!("line {n}\n").into_bytes()).collect();
        let folder = tempfile::tempdir().unwrap();
        let mut capped = Capped::create(&folder.path().join("stderr.log")).unwrap();
        capped.push(&chunk);
        let tail = capped.tail_lines();
        assert_eq!(tail.lines().count(), 20);
        assert!(tail.starts_with("line 31\n") && tail.ends_with("line 50"));
    }
}
