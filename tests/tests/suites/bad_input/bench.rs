//! A folder of a test's own, the binary run in it, and the proof that nothing is left.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use brokerfall::process::proc::{self, Stat};
use brokerfall_report::report::Report;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_brokerfall-under-test");
pub(crate) const BROKEN: &str = env!("CARGO_BIN_EXE_broken-adapter");
pub(crate) const MUTANT: &str = env!("CARGO_BIN_EXE_mutant");

/// Longest wait for anything; nothing takes a tenth of it on a machine that is not busy.
pub(crate) const LONGEST: Duration = Duration::from_secs(60);
/// How often a condition of another process is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// Waits until `look` finds something, and fails the test after [`LONGEST`].
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let (_open, tick) = std::sync::mpsc::channel::<()>();
    for _ in 0..LONGEST.as_millis() / LOOK.as_millis() {
        if let Some(found) = look() {
            return found;
        }
        // Only the time-out can come: the sender is held above.
        let _ = tick.recv_timeout(LOOK);
    }
    panic!("{what} did not come within {LONGEST:?}");
}

/// How an invocation ended.
pub(crate) struct Ended {
    status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    #[track_caller]
    pub(crate) fn assert_code(&self, wanted: i32) -> &Self {
        assert_eq!(self.code(), Some(wanted), "{self}");
        self
    }

    /// Asserts that the words stand on stdout, whatever the line breaks.
    #[track_caller]
    pub(crate) fn assert_says(&self, words: &str) -> &Self {
        let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat(&self.stdout).contains(&flat(words)), "wanted {words:?} in {self}");
        self
    }

    /// Asserts that the words stand on stderr.
    #[track_caller]
    pub(crate) fn assert_complains(&self, words: &str) -> &Self {
        assert!(self.stderr.contains(words), "wanted {words:?} in {self}");
        self
    }

    /// Asserts that nothing of ours panicked, whatever else went wrong.
    #[track_caller]
    pub(crate) fn assert_calm(&self) -> &Self {
        assert!(!self.stderr.contains("panicked"), "{self}");
        self
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}\nstdout:\n{}\nstderr:\n{}", self.status, self.stdout, self.stderr)
    }
}

/// An invocation that goes on. Dropping it kills it.
pub(crate) struct Running {
    child: Option<Child>,
    streams: Vec<std::thread::JoinHandle<()>>,
    texts: [Arc<Mutex<Vec<u8>>>; 2],
}

impl Running {
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.pid()).unwrap()), signal).unwrap();
    }

    pub(crate) fn is_over(&mut self) -> bool {
        self.child.as_mut().unwrap().try_wait().unwrap().is_some()
    }

    fn text(&self, at: usize) -> String {
        String::from_utf8(self.texts[at].lock().unwrap().clone()).unwrap()
    }

    /// Waits until these words stand on stderr.
    pub(crate) fn wait_for_remark(&self, words: &str) {
        wait_for(words, || self.text(1).contains(words).then_some(()));
    }

    /// Waits until it ends.
    #[track_caller]
    pub(crate) fn end(mut self) -> Ended {
        let status = wait_for("the end of the invocation", || {
            self.child.as_mut().unwrap().try_wait().unwrap()
        });
        self.streams.drain(..).for_each(|stream| stream.join().unwrap());
        let [stdout, stderr] = [0, 1].map(|at| self.text(at));
        self.child = None;
        Ended { status, stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // OK to ignore: a test that failed only tidies up here.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A test's own folder.
pub(crate) struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let bench = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        for name in ["tmp", "readers"] {
            std::fs::create_dir(bench.path(name)).unwrap();
        }
        bench
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Describes a reader with short limits, so that what it fails to do is known soon.
    pub(crate) fn reader(&self, name: &str, kind: &str, command: &[&str]) {
        self.reader_within(name, kind, command, "2s");
    }

    pub(crate) fn reader_within(&self, name: &str, kind: &str, command: &[&str], within: &str) {
        let manifest = format!(
            "name = {name:?}\nkinds = [{kind:?}]\ncommand = {command:?}\n[limits]\nwithin = {within:?}\nstop-grace = \"2s\"\n"
        );
        self.write(&format!("readers/{name}.toml"), manifest);
    }

    pub(crate) fn command<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(BINARY);
        command.args(arguments);
        self.prepare(&mut command);
        command
    }

    /// The environment that a bench knows its processes by.
    pub(crate) fn prepare(&self, command: &mut Command) {
        command
            .current_dir(self.folder.path())
            .env("TMPDIR", self.path("tmp"))
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
    }

    pub(crate) fn start<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Running {
        start(self.command(arguments))
    }

    #[track_caller]
    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Ended {
        self.start(arguments).end()
    }

    /// Runs `control/idle` against an adapter's command line, as a group.
    pub(crate) fn run_adapter(&self, command: &str) -> Ended {
        self.run([
            "run",
            "control/idle",
            "--adapter",
            command,
            "--kind",
            "group",
            "--out",
            "out",
        ])
    }

    /// `run SCENARIO --reader NAME` for a reader of this bench or a bundled one.
    pub(crate) fn arguments<'a>(scenario: &'a str, reader: &'a str) -> Vec<&'a str> {
        vec![
            "run",
            scenario,
            "--reader",
            reader,
            "--readers-dir",
            "readers",
            "--out",
            "out",
        ]
    }

    /// The folders of the invocations so far, oldest first.
    pub(crate) fn invocations(&self) -> Vec<PathBuf> {
        let Ok(found) = std::fs::read_dir(self.path("out")) else {
            return Vec::new();
        };
        let mut folders: Vec<PathBuf> = found
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_dir())
            .collect();
        folders.sort();
        folders
    }

    /// The folder of the only invocation.
    #[track_caller]
    pub(crate) fn invocation(&self) -> PathBuf {
        let folders = self.invocations();
        assert_eq!(folders.len(), 1, "{folders:?}");
        folders.into_iter().next().unwrap()
    }

    #[track_caller]
    pub(crate) fn report(&self) -> Report {
        read_report(&self.invocation())
    }

    /// The histories of all runs, as far as they are written.
    pub(crate) fn histories(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for invocation in self.invocations() {
            for run in std::fs::read_dir(invocation).unwrap() {
                let history = run.unwrap().path().join("history.jsonl");
                if history.is_file() {
                    found.push(history);
                }
            }
        }
        found
    }

    /// Waits until a history holds this text, or the invocation is over.
    pub(crate) fn wait_for_history(&self, running: &mut Running, text: &str) {
        wait_for(text, || {
            let holds = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default().contains(text);
            (running.is_over() || self.histories().into_iter().any(holds)).then_some(())
        });
    }

    /// Processes of this bench that live.
    pub(crate) fn alive(&self) -> Vec<Stat> {
        let tmp = self.path("tmp").to_string_lossy().into_owned();
        proc::all()
            .into_iter()
            .filter(Stat::is_alive)
            .filter(|stat| proc::variable(stat.pid, "TMPDIR").is_some_and(|value| value == tmp))
            .collect()
    }

    /// Waits until nothing of this bench is left: no process and no temporary file.
    #[track_caller]
    pub(crate) fn assert_clean(&self) {
        let what = "an empty list of processes";
        wait_for(what, || self.alive().is_empty().then_some(()));
        let left: Vec<_> = std::fs::read_dir(self.path("tmp"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        assert!(left.is_empty(), "temporary files are left: {left:?}");
    }
}

pub(crate) fn start(mut command: Command) -> Running {
    let mut child = command.spawn().unwrap();
    let streams: [Box<dyn Read + Send>; 2] = [
        Box::new(child.stdout.take().unwrap()),
        Box::new(child.stderr.take().unwrap()),
    ];
    let texts: [Arc<Mutex<Vec<u8>>>; 2] = Default::default();
    let read = |(mut stream, text): (Box<dyn Read + Send>, Arc<Mutex<Vec<u8>>>)| {
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let length @ 1.. = stream.read(&mut chunk).unwrap() {
                text.lock().unwrap().extend_from_slice(&chunk[..length]);
            }
        })
    };
    Running {
        child: Some(child),
        streams: streams.into_iter().zip(texts.clone()).map(read).collect(),
        texts,
    }
}

#[track_caller]
pub(crate) fn read_report(invocation: &Path) -> Report {
    let text = std::fs::read_to_string(invocation.join("report.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Processes that descend from this one and live, itself included.
pub(crate) fn descendants(root: u32) -> Vec<Stat> {
    let all = proc::all();
    let mut known = BTreeSet::from([root]);
    loop {
        let more: Vec<u32> = all
            .iter()
            .filter(|stat| known.contains(&stat.parent) && !known.contains(&stat.pid))
            .map(|stat| stat.pid)
            .collect();
        if more.is_empty() {
            break;
        }
        known.extend(more);
    }
    all.into_iter()
        .filter(|stat| known.contains(&stat.pid) && stat.is_alive())
        .collect()
}

/// Waits until none of these processes lives.
#[track_caller]
pub(crate) fn assert_gone(processes: &[Stat]) {
    wait_for("the end of every process", || {
        let lives =
            |stat: &&Stat| proc::stat(stat.pid).is_some_and(|now| now.started == stat.started && now.is_alive());
        processes.iter().find(lives).is_none().then_some(())
    });
}

/// Ports that a process listens on, as `/proc/net/tcp` shows them.
pub(crate) fn listening(pid: u32) -> BTreeSet<String> {
    let sockets: BTreeSet<String> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            Some(
                std::fs::read_link(entry.ok()?.path())
                    .ok()?
                    .to_string_lossy()
                    .into_owned(),
            )
        })
        .filter_map(|link| Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    listeners()
        .into_iter()
        .filter(|(_, inode)| sockets.contains(inode))
        .map(|(address, _)| address)
        .collect()
}

/// Address and inode of everything that listens on this machine.
pub(crate) fn listeners() -> Vec<(String, String)> {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            (*fields.get(3)? == "0A").then(|| Some(((*fields.get(1)?).to_owned(), (*fields.get(9)?).to_owned())))?
        })
        .collect()
}
