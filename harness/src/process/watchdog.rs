//! The watchdog: a child that outlives the harness by the moment it takes to clean up after it.
//!
//! Hidden subcommand `brokerfall watchdog`. It reads lines on stdin (`run MARK START`, `track PID START`, `untrack PID`,
//! `remove-dir PATH`). At the end of stdin, which comes however the harness ends, SIGKILL included, it kills every tracked
//! process group, then everything that carries the run's mark, and removes the folders.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};

use super::group::kill;
use super::{Group, MARK, proc};

/// A process may fork between the listing and the kill; three sweeps have no more to find.
const SWEEPS: u32 = 3;

/// Runs the watchdog until its stdin ends.
pub fn main() -> ExitCode {
    // Blocked before anything else and never unblocked, which is as good as ignored; SIGPIPE Rust ignores by itself.
    let mut ignored = SigSet::empty();
    for signal in [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGQUIT,
        Signal::SIGTSTP,
    ] {
        ignored.add(signal);
    }
    if ignored.thread_block().is_err() {
        return ExitCode::FAILURE;
    }
    let mut duty = Duty::default();
    for line in std::io::stdin().lock().split(b'\n') {
        // An error ends the watch as an end of file does: there is nobody left to listen to.
        let Ok(line) = line else { break };
        duty.take(&String::from_utf8_lossy(&line));
    }
    duty.clean_up();
    ExitCode::SUCCESS
}

/// What is to be done when the harness is gone.
#[derive(Debug, Default, PartialEq, Eq)]
struct Duty {
    mark: Option<(String, u64)>,
    /// Leader's pid to its start time.
    groups: BTreeMap<u32, u64>,
    folders: BTreeSet<PathBuf>,
}

impl Duty {
    fn take(&mut self, line: &str) {
        let Some((word, rest)) = line.split_once(' ') else {
            return;
        };
        let pair = rest.split_once(' ');
        match word {
            "run" => {
                self.mark = pair.and_then(|(mark, started)| Some((mark.to_owned(), started.parse().ok()?)));
            }
            "track" => {
                if let Some((pid, started)) = pair.and_then(|(pid, at)| Some((pid.parse().ok()?, at.parse().ok()?))) {
                    self.groups.insert(pid, started);
                }
            }
            "untrack" => {
                if let Ok(pid) = rest.parse() {
                    self.groups.remove(&pid);
                }
            }
            "remove-dir" => {
                self.folders.insert(PathBuf::from(rest));
            }
            _ => {}
        }
    }

    fn clean_up(&self) {
        for (pid, started) in &self.groups {
            // Whoever outlived the leader of its group is left to the sweep, which knows the marks.
            let group = Group {
                pid: *pid,
                started: *started,
                mark: String::new(),
            };
            group.signal(Signal::SIGKILL);
        }
        if let Some((mark, since)) = &self.mark {
            let prefix = format!("{mark}.");
            for sweep in 1..=SWEEPS {
                let ours: Vec<_> = proc::all()
                    .into_iter()
                    .filter(|stat| stat.started >= *since && stat.is_alive())
                    .filter(|stat| proc::variable(stat.pid, MARK).is_some_and(|value| value.starts_with(&prefix)))
                    .collect();
                if ours.is_empty() {
                    break;
                }
                ours.iter().for_each(kill);
                if sweep < SWEEPS {
                    #[expect(
                        clippy::disallowed_methods,
                        reason = "SIGKILL takes a moment; the next sweep looks again"
                    )]
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        }
        for folder in &self.folders {
            // Best effort: there is nobody left to tell.
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_add_up_to_what_is_left() {
        let mut duty = Duty::default();
        for line in [
            "run 12-99-0 99",
            "track 100 5",
            "track 101 6",
            "untrack 100",
            "untrack 7",
            "remove-dir /tmp/a b",
            "nonsense",
            "track x y",
            "",
        ] {
            duty.take(line);
        }
        let wanted = Duty {
            mark: Some(("12-99-0".to_owned(), 99)),
            groups: BTreeMap::from([(101, 6)]),
            folders: BTreeSet::from([PathBuf::from("/tmp/a b")]),
        };
        assert_eq!(duty, wanted);
    }
}
