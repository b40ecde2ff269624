//! Stored histories: `history.jsonl` read back into facts.

use std::io::BufRead;
use std::path::{Path, PathBuf};

use brokerfall_report::history::{Entry, EntryReader, Event, HISTORY_FORMAT};

use crate::history::facts::Facts;

/// How much of the file is read at once, bytes.
const READ_AHEAD: usize = 1 << 18;

/// The history that a path names: the folder of a run is what a report names.
pub fn history_of(path: &Path) -> PathBuf {
    if path.is_dir() {
        path.join("history.jsonl")
    } else {
        path.to_owned()
    }
}

/// Reads a stored history. A file that was cut off within a line is taken as far as it goes ([`Facts::closed`] is absent
/// then, and the judgement says that it is partial).
///
/// # Errors
/// [`JudgeError::Io`] when the file cannot be read; [`JudgeError::Empty`]; [`JudgeError::NotAHistory`] when a line that
/// is not the last is no entry, an event number is out of turn, or the first event is no plan; [`JudgeError::Format`]
/// when it was written by a newer version.
pub fn read_facts(path: &Path) -> Result<Facts, JudgeError> {
    let mut facts = Facts::default();
    each(path, |entry| facts.observe(entry))?;
    Ok(facts)
}

/// Hands the entries of a stored history out, one after the other, each as it is read: however long the history, only a
/// line of it is in memory.
///
/// # Errors
/// As [`read_facts`].
pub fn each(path: &Path, mut take: impl FnMut(&Entry)) -> Result<(), JudgeError> {
    let io = |source| JudgeError::Io {
        path: path.to_owned(),
        source,
    };
    let mut file = std::io::BufReader::with_capacity(READ_AHEAD, std::fs::File::open(path).map_err(io)?);
    let mut lines = Lines {
        path,
        entries: EntryReader::default(),
        number: 0,
    };
    // A line that lies across two reads.
    let mut carried = Vec::new();
    loop {
        let block = file.fill_buf().map_err(io)?;
        if block.is_empty() {
            break;
        }
        let mut rest = block;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let (line, after) = rest.split_at(end + 1);
            if carried.is_empty() {
                take(lines.whole(line)?);
            } else {
                carried.extend_from_slice(line);
                take(lines.whole(&carried)?);
                carried.clear();
            }
            rest = after;
        }
        carried.extend_from_slice(rest);
        let read = block.len();
        file.consume(read);
    }
    if !carried.is_empty()
        && let Some(entry) = lines.last(&carried)?
    {
        take(entry);
    }
    if lines.number == 0 {
        return Err(JudgeError::Empty { path: path.to_owned() });
    }
    Ok(())
}

/// Lines of a stored history as they come, with what must hold of each.
struct Lines<'a> {
    path: &'a Path,
    entries: EntryReader,
    /// Of the next event.
    number: u64,
}

impl Lines<'_> {
    /// The entry of a line that has its end.
    fn whole(&mut self, line: &[u8]) -> Result<&Entry, JudgeError> {
        let number = self.number;
        let bad = |text: String, source| JudgeError::NotAHistory {
            path: self.path.to_owned(),
            line: number + 1,
            text,
            source,
        };
        let entry = match self.entries.read(line) {
            Ok(entry) => entry,
            Err(source) => return Err(bad("is no entry".to_owned(), Some(source))),
        };
        if entry.n != number {
            return Err(bad(format!("holds event #{}, #{number} was expected", entry.n), None));
        }
        if number == 0 {
            match &entry.event {
                Event::Opened(opened) if opened.format > HISTORY_FORMAT => {
                    return Err(JudgeError::Format {
                        path: self.path.to_owned(),
                        found: opened.format,
                    });
                }
                Event::Opened(_) => {}
                _ => return Err(bad("does not open with the plan".to_owned(), None)),
            }
        }
        self.number += 1;
        Ok(entry)
    }

    /// The entry of a line without an end: none where it was cut off, as by a run that was killed while it wrote.
    fn last(&mut self, line: &[u8]) -> Result<Option<&Entry>, JudgeError> {
        if self.number > 0 && self.entries.read(line).is_err() {
            return Ok(None);
        }
        self.whole(line).map(Some)
    }
}

/// Why a stored history could not be judged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JudgeError {
    /// The operating system refused.
    #[error("cannot read {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Its answer.
        #[source]
        source: std::io::Error,
    },
    /// Nothing stands in the file: the run ended before it had begun.
    #[error("{} is empty (give the history.jsonl of a run)", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The file is no history.
    #[error("{}:{line}: the line {text} (give the history.jsonl of a run)", path.display())]
    NotAHistory {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: u64,
        /// What is wrong with it.
        text: String,
        /// The parser's answer.
        #[source]
        source: Option<serde_json::Error>,
    },
    /// A newer version wrote it.
    #[error("{}: record format {found} is newer than {HISTORY_FORMAT}, which this version reads (use a newer brokerfall)", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
}
