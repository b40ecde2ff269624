//! What an invocation has done so far, so that one that was cut can go on: `runs.jsonl` in its folder.
//!
//! The first line says what was asked for; each further one holds the report of a finished run, on the disk before the next
//! is begun. A run that was cut leaves no line and is carried out again. The file is locked as long as the invocation lives,
//! so that no two go on with the same one.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use brokerfall_report::report::RunReport;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use super::out::Out;

/// Name of the file in the folder of an invocation.
const NAME: &str = "runs.jsonl";
/// Version of the file.
const FORMAT: u32 = 1;

/// What an invocation was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    format: u32,
    /// Version of the harness.
    harness: String,
    /// Wall clock at the start of its first sitting, RFC 3339, UTC.
    pub(crate) started_at: String,
    /// The arguments that decide which runs there are.
    arguments: Vec<String>,
    /// Every run, in order.
    runs: Vec<Asked>,
}

/// A run that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Asked {
    /// `SCENARIO with READER`.
    pub(crate) name: String,
    /// Changes with the scenario, the reader's lock, and what is expected of both.
    pub(crate) print: String,
}

/// A run that has ended.
#[derive(Debug, Serialize, Deserialize)]
struct Done<R> {
    /// From 1, in the order of the invocation.
    index: usize,
    report: R,
}

/// Why an invocation cannot be taken up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JournalError {
    /// Nothing there.
    #[error("{} holds no {NAME} (wanted the folder of an invocation below the output folder)", folder.display())]
    Nothing { folder: PathBuf },
    /// It was asked for something else.
    #[error(
        "{} was begun with other arguments, `{begun}` (repeat them with --resume, or begin anew without it)",
        folder.display()
    )]
    Arguments { folder: PathBuf, begun: String },
    /// What was asked for is no longer the same.
    #[error(
        "{} cannot be taken up: {what} since it was begun (begin anew without --resume: one report must not mix the two)",
        folder.display()
    )]
    Changed { folder: PathBuf, what: String },
    /// Another process goes on with it.
    #[error("{} is still going on in another process", folder.display())]
    Running { folder: PathBuf },
    /// The file itself is broken.
    #[error("{} is broken at line {line}", path.display())]
    Broken {
        path: PathBuf,
        line: usize,
        #[source]
        source: serde_json::Error,
    },
    /// The operating system refused.
    #[error("cannot read or write {}", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

impl Header {
    pub(crate) fn new(started_at: &str, arguments: Vec<String>, runs: Vec<Asked>) -> Self {
        Self {
            format: FORMAT,
            harness: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: started_at.to_owned(),
            arguments,
            runs,
        }
    }

    /// What is no longer as it was, if anything.
    fn change(&self, now: &Header) -> Option<String> {
        if (self.format, &self.harness) != (now.format, &now.harness) {
            return Some(format!("the harness was {} and is {}", self.harness, now.harness));
        }
        let changed = self.runs.iter().zip(&now.runs).find(|(then, now)| then != now);
        match changed {
            Some((then, now)) if then.name == now.name => Some(format!(
                "the scenario, the reader's lock or what is expected of {} has changed",
                now.name
            )),
            Some((then, now)) => Some(format!("the run of {} has become one of {}", then.name, now.name)),
            None if self.runs.len() != now.runs.len() => {
                Some(format!("{} runs have become {}", self.runs.len(), now.runs.len()))
            }
            None => None,
        }
    }
}

/// The journal of this invocation.
#[derive(Debug)]
pub(crate) struct Journal {
    file: Mutex<Flock<File>>,
}

/// An invocation that is taken up.
pub(crate) struct Resumed {
    pub(crate) journal: Journal,
    pub(crate) folder: PathBuf,
    pub(crate) started_at: String,
    /// Finished runs by their index, from 1.
    pub(crate) done: BTreeMap<usize, RunReport>,
}

impl Journal {
    /// Begins the journal of an invocation.
    ///
    /// # Errors
    /// [`JournalError::Io`].
    pub(crate) fn begin(folder: &Path, header: &Header) -> Result<Self, JournalError> {
        let path = folder.join(NAME);
        let io = |source| JournalError::Io {
            path: path.clone(),
            source,
        };
        let file = File::options().create_new(true).append(true).open(&path).map_err(io)?;
        let journal = Self {
            file: Mutex::new(locked(file, folder)?),
        };
        journal.line(header).map_err(io)?;
        // The name too must outlive a loss of power.
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(io)?;
        Ok(journal)
    }

    /// Takes up `wanted`, or the newest invocation below `root` that was begun with the same arguments and is not
    /// finished; none where there is no such one.
    ///
    /// # Errors
    /// [`JournalError`]: what is in the way, before anything starts.
    pub(crate) fn resume(root: &Path, wanted: Option<&Path>, now: &Header) -> Result<Option<Resumed>, JournalError> {
        if let Some(folder) = wanted {
            let below = root.join(folder);
            let folder = if folder.join(NAME).is_file() { folder } else { &below };
            return take_up(folder, now).map(Some);
        }
        let folders = Out::invocations(root).unwrap_or_default();
        for folder in folders.into_iter().rev() {
            let Ok((header, done, _)) = read(&folder) else { continue };
            if header.arguments == now.arguments && done.len() < header.runs.len() {
                match take_up(&folder, now) {
                    Err(JournalError::Running { .. }) => {}
                    taken => return taken.map(Some),
                }
            }
        }
        Ok(None)
    }

    /// Remembers a finished run: it is on the disk when this returns.
    ///
    /// # Errors
    /// The operating system's; the run is then carried out again by `--resume`.
    pub(crate) fn remember(&self, index: usize, report: &RunReport) -> std::io::Result<()> {
        self.line(&Done { index, report })
    }

    fn line(&self, what: &impl Serialize) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(what)?;
        line.push(b'\n');
        // OK to go on after a panic elsewhere: a line is written whole or cut off when it is read.
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(&line)?;
        file.sync_data()
    }
}

/// Whether the invocation of a folder still runs, as far as its journal tells.
pub(crate) fn is_locked(folder: &Path) -> bool {
    File::open(folder.join(NAME)).is_ok_and(|file| Flock::lock(file, FlockArg::LockSharedNonblock).is_err())
}

fn locked(file: File, folder: &Path) -> Result<Flock<File>, JournalError> {
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
        Errno::EWOULDBLOCK => JournalError::Running {
            folder: folder.to_owned(),
        },
        errno => JournalError::Io {
            path: folder.join(NAME),
            source: errno.into(),
        },
    })
}

fn take_up(folder: &Path, now: &Header) -> Result<Resumed, JournalError> {
    let path = folder.join(NAME);
    if !path.is_file() {
        return Err(JournalError::Nothing {
            folder: folder.to_owned(),
        });
    }
    let io = |source| JournalError::Io {
        path: path.clone(),
        source,
    };
    let file = File::options().read(true).append(true).open(&path).map_err(io)?;
    let mut file = locked(file, folder)?;
    let (header, done, whole) = read(folder)?;
    if header.arguments != now.arguments {
        return Err(JournalError::Arguments {
            folder: folder.to_owned(),
            begun: header.arguments.join(" "),
        });
    }
    if let Some(what) = header.change(now) {
        return Err(JournalError::Changed {
            folder: folder.to_owned(),
            what,
        });
    }
    // A line that was cut off must not run into the next one.
    file.set_len(whole).map_err(io)?;
    file.seek(SeekFrom::End(0)).map_err(io)?;
    Ok(Resumed {
        journal: Journal { file: Mutex::new(file) },
        folder: folder.to_owned(),
        started_at: header.started_at,
        done,
    })
}

/// Header, finished runs, and how many bytes of the file are whole lines.
fn read(folder: &Path) -> Result<(Header, BTreeMap<usize, RunReport>, u64), JournalError> {
    let path = folder.join(NAME);
    let text = std::fs::read(&path).map_err(|source| JournalError::Io {
        path: path.clone(),
        source,
    })?;
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let broken = |line: usize| {
        let path = path.clone();
        move |source| JournalError::Broken { path, line, source }
    };
    let mut lines = text[..whole]
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty());
    let header: Header = serde_json::from_slice(lines.next().unwrap_or_default()).map_err(broken(1))?;
    let mut done = BTreeMap::new();
    for (n, line) in lines.enumerate() {
        let run: Done<RunReport> = serde_json::from_slice(line).map_err(broken(n + 2))?;
        done.insert(run.index, run.report);
    }
    Ok((header, done, whole as u64))
}

#[cfg(test)]
mod tests {
    use brokerfall_report::history::{Phase, ReaderInfo};
    use brokerfall_report::protocol::Kind;
    use brokerfall_report::report::SkipReport;

    use super::*;

    fn header(prints: &[&str]) -> Header {
        let asked = |print: &&str| Asked {
            name: "a/b with r".into(),
            print: (*print).to_owned(),
        };
        Header::new(
            "2026-11-30T00:00:00Z",
            vec!["a/b".into()],
            prints.iter().map(asked).collect(),
        )
    }

    fn report(title: &str) -> RunReport {
        let reader = ReaderInfo {
            name: "r".into(),
            version: String::new(),
            source: "bundled".into(),
            kind: Kind::Table,
            lock: None,
            declares: Default::default(),
        };
        let skip = SkipReport {
            reason: "no".into(),
            enable: "yes".into(),
        };
        RunReport::skipped("a/b", title, Phase::Live, &reader, skip)
    }

    fn folder_below(root: &Path) -> PathBuf {
        let folder = root.join("20261130T005812Z-4999999");
        std::fs::create_dir(&folder).unwrap();
        folder
    }

    #[test]
    fn cut_invocation_goes_on_after_its_last_whole_line() {
        let root = tempfile::tempdir().unwrap();
        let folder = folder_below(root.path());
        let now = header(&["1", "2", "3"]);
        let journal = Journal::begin(&folder, &now).unwrap();
        journal.remember(2, &report("second")).unwrap();
        drop(journal);
        // Cut off within a line.
        let mut file = File::options().append(true).open(folder.join(NAME)).unwrap();
        file.write_all(b"{\"index\":1,\"repo").unwrap();
        let resumed = Journal::resume(root.path(), None, &now).unwrap().unwrap();
        assert_eq!(resumed.done.keys().copied().collect::<Vec<_>>(), [2]);
        assert_eq!(resumed.done[&2].title, "second");
        resumed.journal.remember(1, &report("first")).unwrap();
        drop(resumed);
        let again = Journal::resume(root.path(), None, &now).unwrap().unwrap();
        assert_eq!(again.done.len(), 2);
        again.journal.remember(3, &report("third")).unwrap();
        drop(again);
        assert!(
            Journal::resume(root.path(), None, &now).unwrap().is_none(),
            "it is finished"
        );
    }

    #[test]
    fn changed_plans_other_arguments_and_living_invocations_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let folder = folder_below(root.path());
        let now = header(&["1", "2"]);
        let journal = Journal::begin(&folder, &now).unwrap();
        assert!(is_locked(&folder));
        let refused = |now: &Header| {
            Journal::resume(root.path(), Some(&folder), now)
                .err()
                .unwrap()
                .to_string()
        };
        assert!(refused(&now).contains("still going on"));
        assert!(Journal::resume(root.path(), None, &now).unwrap().is_none(), "it runs");
        drop(journal);
        assert!(!is_locked(&folder));
        assert!(refused(&header(&["1", "x"])).contains("the reader's lock"));
        assert!(refused(&header(&["1"])).contains("2 runs have become 1"));
        let mut other = now.clone();
        other.arguments.push("--seed".into());
        assert!(refused(&other).contains("other arguments, `a/b`"));
        assert!(Journal::resume(root.path(), None, &other).unwrap().is_none());
        let missing = Journal::resume(root.path(), Some(Path::new("nothing")), &now)
            .err()
            .unwrap();
        assert!(missing.to_string().contains("holds no runs.jsonl"), "{missing}");
    }
}
