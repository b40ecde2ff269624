//! Stored histories: `history.jsonl` read back into facts.

use std::io::BufRead;
use std::path::{Path, PathBuf};

use brokerfall_report::history::{Entry, Event, HISTORY_FORMAT};

use crate::history::facts::Facts;

/// Reads a stored history. A file that was cut off within a line is taken as far as it goes ([`Facts::closed`] is absent
/// then, and the judgement says that it is partial).
///
/// # Errors
/// [`JudgeError::Io`] when the file cannot be read; [`JudgeError::Empty`]; [`JudgeError::NotAHistory`] when a line that
/// is not the last is no entry, an event number is out of turn, or the first event is no plan; [`JudgeError::Format`]
/// when it was written by a newer version.
pub fn read_facts(path: &Path) -> Result<Facts, JudgeError> {
    let mut facts = Facts::default();
    read_each(path, |entry| facts.observe(&entry))?;
    Ok(facts)
}

/// Reads the entries of a stored history.
///
/// # Errors
/// As [`read_facts`].
pub fn read(path: &Path) -> Result<Vec<Entry>, JudgeError> {
    let mut entries = Vec::new();
    read_each(path, |entry| entries.push(entry))?;
    Ok(entries)
}

fn read_each(path: &Path, mut take: impl FnMut(Entry)) -> Result<(), JudgeError> {
    let io = |source| JudgeError::Io {
        path: path.to_owned(),
        source,
    };
    let mut file = std::io::BufReader::with_capacity(1 << 18, std::fs::File::open(path).map_err(io)?);
    let mut line = Vec::new();
    let mut number = 0u64;
    loop {
        line.clear();
        if file.read_until(b'\n', &mut line).map_err(io)? == 0 {
            break;
        }
        let whole = line.ends_with(b"\n");
        let entry: Entry = match serde_json::from_slice(&line) {
            Ok(entry) => entry,
            // The last line of a run that was killed while it wrote.
            Err(_) if !whole && number > 0 => break,
            Err(source) => {
                return Err(JudgeError::NotAHistory {
                    path: path.to_owned(),
                    line: number + 1,
                    text: "is no entry".to_owned(),
                    source: Some(source),
                });
            }
        };
        let out_of_turn = |text: String| JudgeError::NotAHistory {
            path: path.to_owned(),
            line: number + 1,
            text,
            source: None,
        };
        if entry.n != number {
            return Err(out_of_turn(format!("holds event #{}, #{number} was expected", entry.n)));
        }
        if number == 0 {
            match &entry.event {
                Event::Opened(opened) if opened.format > HISTORY_FORMAT => {
                    return Err(JudgeError::Format {
                        path: path.to_owned(),
                        found: opened.format,
                    });
                }
                Event::Opened(_) => {}
                _ => return Err(out_of_turn("does not open with the plan".to_owned())),
            }
        }
        take(entry);
        number += 1;
    }
    if number == 0 {
        return Err(JudgeError::Empty { path: path.to_owned() });
    }
    Ok(())
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
