//! What `/proc` says of a process. Every function answers "gone" where there is no `/proc`.

use std::collections::HashSet;
use std::path::PathBuf;

/// `/proc` counts CPU time in units of `USER_HZ`, which is 100 on every Linux that Rust supports.
const MS_PER_TICK: u64 = 10;
/// A command line longer than this is cut in reports.
const COMMAND_LENGTH: usize = 200;

/// One line of `/proc/PID/stat`, as far as it is needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Process id.
    pub pid: u32,
    /// Name of the executable, at most 15 bytes.
    pub name: String,
    /// `R`, `S`, `D`, `T` (stopped), `t` (traced), `Z` (zombie), …
    pub state: char,
    /// Parent.
    pub parent: u32,
    /// Process group.
    pub group: u32,
    /// User and system time, its own and that of the children it has reaped, milliseconds.
    pub cpu_ms: u64,
    /// When it was started, clock ticks since boot. With the pid it names a process for good: pids are used again.
    pub started: u64,
}

impl Stat {
    /// Whether it still runs or could run again: not a zombie.
    pub fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X' | 'x')
    }

    /// Whether a signal (or a debugger) has stopped it.
    pub fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }
}

/// A process as reports name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// What `/proc` says of it.
    pub stat: Stat,
    /// Its command line, one line, cut to a sane length.
    pub command: String,
}

impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.stat.pid, self.command)
    }
}

/// Resources of some processes together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// User and system time so far, milliseconds, children already reaped included.
    pub cpu_ms: u64,
    /// Resident memory, KiB.
    pub rss_kib: u64,
    /// Open file descriptors.
    pub descriptors: u64,
    /// How many processes were there.
    pub processes: u32,
}

/// Reads one process; `None` when it is gone.
pub fn stat(pid: u32) -> Option<Stat> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(&String::from_utf8_lossy(&text))
}

/// Every process there is now.
pub fn all() -> Vec<Stat> {
    all_but(&HashSet::new())
}

/// The same, without reading those that the caller knows already: a listing reads one file per process.
pub fn all_but(known: &HashSet<u32>) -> Vec<Stat> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| !known.contains(pid))
        .filter_map(stat)
        .collect()
}

/// Names a process for a report.
pub fn describe(stat: Stat) -> Process {
    let raw = std::fs::read(format!("/proc/{}/cmdline", stat.pid)).unwrap_or_default();
    let words: Vec<_> = raw
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .map(String::from_utf8_lossy)
        .collect();
    let command = if words.is_empty() {
        format!("[{}]", stat.name)
    } else {
        words.join(" ")
    };
    let command = command
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(COMMAND_LENGTH)
        .collect();
    Process { stat, command }
}

/// The value of a variable in the environment that a process was started with; `None` when it is not set, the process
/// is gone, a zombie, or another user's.
pub fn variable(pid: u32, name: &str) -> Option<String> {
    let raw = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    raw.split(|byte| *byte == 0).find_map(|entry| {
        let value = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        Some(String::from_utf8_lossy(value).into_owned())
    })
}

/// Adds up what these processes use; those that are gone count nothing.
pub fn usage(pids: &[u32]) -> Usage {
    let mut sum = Usage::default();
    for pid in pids {
        let Some(stat) = stat(*pid) else { continue };
        sum.cpu_ms += stat.cpu_ms;
        if !stat.is_alive() {
            continue;
        }
        sum.processes += 1;
        sum.rss_kib += resident_kib(*pid).unwrap_or(0);
        sum.descriptors += descriptors(*pid).unwrap_or(0);
    }
    sum
}

/// For how long each thread of a process was ready to run and had no core so far, nanoseconds, by thread id. Empty where the
/// kernel does not count it (it does with `CONFIG_SCHED_INFO`).
pub fn waits_ns(pid: u32) -> Vec<(u32, u64)> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    threads
        .filter_map(|thread| {
            let thread = thread.ok()?;
            let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
            // Time on a core, time waiting for one, turns.
            let waited = text.split_whitespace().nth(1)?.parse().ok()?;
            Some((thread.file_name().to_str()?.parse().ok()?, waited))
        })
        .collect()
}

/// For how long something on this machine had to wait for a core since it was started, microseconds (pressure stall
/// information); `None` where the kernel does not tell.
pub fn waited_for_cpu_us() -> Option<u64> {
    parse_waited_us(&std::fs::read_to_string("/proc/pressure/cpu").ok()?)
}

fn parse_waited_us(text: &str) -> Option<u64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    some.split(' ')
        .find_map(|field| field.strip_prefix("total="))?
        .parse()
        .ok()
}

fn resident_kib(pid: u32) -> Option<u64> {
    let text = std::fs::read(format!("/proc/{pid}/status")).ok()?;
    parse_resident_kib(&String::from_utf8_lossy(&text))
}

fn parse_resident_kib(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn descriptors(pid: u32) -> Option<u64> {
    let entries = std::fs::read_dir(PathBuf::from(format!("/proc/{pid}/fd"))).ok()?;
    u64::try_from(entries.count()).ok()
}

fn parse_stat(text: &str) -> Option<Stat> {
    // The name stands in parentheses and may itself hold spaces and parentheses, so the last one ends it.
    let (head, tail) = text.rsplit_once(')')?;
    let (pid, name) = head.split_once(" (")?;
    let fields: Vec<&str> = tail.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    // utime, stime, cutime, cstime are fields 14 to 17 of proc(5); `fields` starts with field 3.
    let ticks: u64 = (11..=14).map(number).sum::<Option<u64>>()?;
    Some(Stat {
        pid: pid.trim().parse().ok()?,
        name: name.to_owned(),
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        cpu_ms: ticks * MS_PER_TICK,
        started: number(19)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let text = "4711 (tmux: (1) x) S 1 4711 4711 0 -1 4194560 9 1 2 3 120 30 7 5 20 0 1 0 987654 1 2 3\n";
        let stat = parse_stat(text).unwrap();
        assert_eq!(stat.pid, 4711);
        assert_eq!(stat.name, "tmux: (1) x");
        assert_eq!((stat.state, stat.parent, stat.group), ('S', 1, 4711));
        assert_eq!(stat.cpu_ms, 1620);
        assert_eq!(stat.started, 987_654);
    }

    #[test]
    fn cut_off_stat_line_is_no_process() {
        assert_eq!(parse_stat("12 (x) S 1"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn resident_memory_is_read_in_kib() {
        assert_eq!(parse_resident_kib("VmPeak:\t 9 kB\nVmRSS:\t   1234 kB\n"), Some(1234));
        assert_eq!(parse_resident_kib("Name:\tkthreadd\n"), None);
    }

    #[test]
    fn time_waited_for_a_core_is_the_total_of_some() {
        let text = "some avg10=96.21 avg60=97.56 avg300=94.25 total=1323149031\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(parse_waited_us(text), Some(1_323_149_031));
        assert_eq!(parse_waited_us(""), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn own_process_is_seen_with_its_memory_and_descriptors() {
        let pid = std::process::id();
        let stat = stat(pid).unwrap();
        assert!(stat.is_alive() && !stat.is_stopped());
        let usage = usage(&[pid]);
        assert_eq!(usage.processes, 1);
        assert!(usage.rss_kib > 0 && usage.descriptors >= 3);
        assert!(
            all()
                .iter()
                .any(|other| other.pid == pid && other.started == stat.started)
        );
    }
}
