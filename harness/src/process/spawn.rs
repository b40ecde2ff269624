//! The spawner: one OS thread starts every child, so that no child depends on the life of a worker thread.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Mutex, mpsc};

use nix::sys::signal::Signal;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::{Group, MARK, proc};

/// Variables that a child inherits, besides every `LC_*`. All others are the developer's own and would make a run
/// depend on who starts it.
const INHERITED: [&str; 7] = ["PATH", "HOME", "LANG", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR"];

static SHARED: Mutex<Option<Spawner>> = Mutex::new(None);

/// What to start.
#[derive(Debug, Clone, Default)]
pub struct Spec {
    /// Program and arguments. The program is looked up in `PATH` unless it holds a slash.
    pub command: Vec<String>,
    /// Variables added to the inherited ones (`PATH`, `HOME`, `LANG`, `LC_*`, `TZ`, `TMPDIR`, `SSL_CERT_FILE`,
    /// `SSL_CERT_DIR`); nothing else of the harness's environment reaches a child.
    pub env: Vec<(String, String)>,
    /// Working folder; absent means the harness's own.
    pub folder: Option<PathBuf>,
}

/// A child with piped standard streams, the leader of its own process group, tracked by the watchdog.
#[derive(Debug)]
pub struct Child {
    /// Its process group; its pid is `group.pid()`.
    pub group: Group,
    /// Its stdin, until taken.
    pub stdin: Option<ChildStdin>,
    /// Its stdout, until taken.
    pub stdout: Option<ChildStdout>,
    /// Its stderr, until taken.
    pub stderr: Option<ChildStderr>,
    inner: tokio::process::Child,
}

impl Child {
    /// Waits until it ends and reaps it.
    ///
    /// # Errors
    /// The operating system's.
    pub async fn wait(&mut self) -> std::io::Result<ExitStatus> {
        self.inner.wait().await
    }
}

/// Starts children. Clones share one thread and one watchdog.
///
/// ```no_run
/// # use brokerfall::process::{SpawnError, Spawner, Spec};
/// # async fn example() -> Result<(), SpawnError> {
/// let spawner = Spawner::shared()?;
/// let command = vec!["python3".to_owned(), "my_adapter.py".to_owned()];
/// let child = spawner.spawn(Spec { command, ..Spec::default() }).await?;
/// println!("process {}", child.group.pid());
/// spawner.shut_down().await; // kills what is left of every child
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Spawner {
    requests: mpsc::Sender<Request>,
}

enum Request {
    Spawn {
        spec: Spec,
        runtime: Handle,
        reply: oneshot::Sender<Result<Child, SpawnError>>,
    },
    Tell(String),
    ShutDown(oneshot::Sender<()>),
}

impl Spawner {
    /// The spawner of this process, started at the first call with this program's own hidden subcommand `watchdog`.
    ///
    /// # Errors
    /// [`SpawnError::Watchdog`] when the watchdog cannot be started.
    pub fn shared() -> Result<Spawner, SpawnError> {
        // Not `current_exe`: that path is gone when a build replaces the binary during a run.
        Self::shared_with(Path::new(if cfg!(target_os = "linux") {
            "/proc/self/exe"
        } else {
            "brokerfall"
        }))
    }

    /// The spawner of this process, where one was started.
    pub fn existing() -> Option<Spawner> {
        crate::lock(&SHARED).clone()
    }

    /// Like [`Spawner::shared`], for programs that have no subcommand `watchdog` of their own: `watchdog` is the path of
    /// one that has. Only the first call in a process decides.
    ///
    /// # Errors
    /// [`SpawnError::Watchdog`] when the watchdog cannot be started.
    pub fn shared_with(watchdog: &Path) -> Result<Spawner, SpawnError> {
        let mut shared = crate::lock(&SHARED);
        if let Some(spawner) = shared.as_ref() {
            return Ok(spawner.clone());
        }
        let spawner = Self::start(watchdog)?;
        *shared = Some(spawner.clone());
        Ok(spawner)
    }

    /// Starts a spawner and its watchdog, `watchdog` being the path of a program with the hidden subcommand `watchdog`.
    ///
    /// # Errors
    /// [`SpawnError::Watchdog`] when the watchdog cannot be started.
    pub fn start(watchdog: &Path) -> Result<Spawner, SpawnError> {
        static SPAWNERS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let own = std::process::id();
        let started = proc::stat(own).map_or(0, |stat| stat.started);
        // A pid and its start time name a process for as long as the machine is up; no clock or chance is needed.
        let mark = format!(
            "{own}-{started}-{}",
            SPAWNERS.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
        );
        let (requests, inbox) = mpsc::channel();
        let dog = Dog::start(watchdog, &mark, started)?;
        std::thread::Builder::new()
            .name("spawner".to_owned())
            .spawn(move || serve(&inbox, dog, &mark))
            .map_err(|source| SpawnError::Watchdog {
                program: watchdog.to_owned(),
                source,
            })?;
        Ok(Spawner { requests })
    }

    /// Starts a child and tracks it with the watchdog. Must be called inside a tokio runtime, which then reaps it.
    ///
    /// # Errors
    /// [`SpawnError::Program`] when the program cannot be started; the others are the harness's own.
    pub async fn spawn(&self, spec: Spec) -> Result<Child, SpawnError> {
        let (reply, answer) = oneshot::channel();
        let runtime = Handle::current();
        self.requests
            .send(Request::Spawn { spec, runtime, reply })
            .map_err(|_| SpawnError::Ended)?;
        answer.await.map_err(|_| SpawnError::Ended)?
    }

    /// Has the watchdog kill the process group of this leader should the harness die: for a child that was started without
    /// the spawner. It must be running or not yet reaped.
    pub fn track(&self, leader: u32) {
        let started = proc::stat(leader).map_or(0, |stat| stat.started);
        self.tell(format!("track {leader} {started}"));
    }

    /// Takes [`Spawner::track`] back.
    pub fn untrack(&self, leader: u32) {
        self.tell(format!("untrack {leader}"));
    }

    /// Tells the watchdog that nothing of this group is left.
    pub fn forget(&self, group: &Group) {
        self.tell(format!("untrack {}", group.pid));
    }

    /// Has the watchdog remove this folder should the harness die. The path must not hold a line break.
    pub fn guard_folder(&self, folder: &Path) {
        if let Some(path) = folder.to_str().filter(|path| !path.contains('\n')) {
            self.tell(format!("remove-dir {path}"));
        }
    }

    /// Ends the watchdog, which kills what is left of every child, and returns when it is reaped. Nothing can be
    /// spawned afterwards.
    pub async fn shut_down(&self) {
        let (reply, answer) = oneshot::channel();
        if self.requests.send(Request::ShutDown(reply)).is_ok() {
            // An error means that the thread has ended already, which is what was wanted.
            let _ = answer.await;
        }
    }

    fn tell(&self, line: String) {
        // An error means that the spawner was shut down: the watchdog has done everything it could.
        let _ = self.requests.send(Request::Tell(line));
    }
}

/// Runs a helper of the harness's own, such as an installer, to its end. It has a process group of its own, which the
/// watchdog kills should the harness end first.
///
/// # Errors
/// The operating system's, when it cannot be started or read.
pub fn output(command: &mut std::process::Command) -> std::io::Result<std::process::Output> {
    let child = command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let (leader, spawner) = (child.id(), Spawner::existing());
    if let Some(spawner) = &spawner {
        spawner.track(leader);
    }
    let output = child.wait_with_output();
    if let Some(spawner) = &spawner {
        spawner.untrack(leader);
    }
    output
}

fn serve(inbox: &mpsc::Receiver<Request>, mut dog: Dog, mark: &str) {
    let mut count = 0u64;
    while let Ok(request) = inbox.recv() {
        match request {
            Request::Spawn { spec, runtime, reply } => {
                count += 1;
                let child = spawn(spec, &runtime, format!("{mark}.{count}"), &mut dog);
                if let Err(Ok(child)) = reply.send(child) {
                    // Whoever asked has been cancelled meanwhile.
                    child.group.kill_all();
                }
            }
            // A watchdog that is gone is reported by the next spawn.
            Request::Tell(line) => drop(dog.tell(&line)),
            Request::ShutDown(reply) => {
                dog.end();
                let _ = reply.send(());
                return;
            }
        }
    }
    dog.end();
}

fn spawn(spec: Spec, runtime: &Handle, mark: String, dog: &mut Dog) -> Result<Child, SpawnError> {
    dog.check()?;
    let Some((program, arguments)) = spec.command.split_first() else {
        return Err(SpawnError::Empty);
    };
    let mut command = std::process::Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(inherited())
        .envs(spec.env)
        .env(MARK, &mark)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(folder) = &spec.folder {
        command.current_dir(folder);
    }
    let failed = |source| SpawnError::Program {
        program: program.clone(),
        source,
    };
    let _inside = runtime.enter();
    let mut inner = tokio::process::Command::from(command).spawn().map_err(failed)?;
    let Some(pid) = inner.id() else {
        return Err(failed(std::io::Error::other("it ended before its pid could be read")));
    };
    // The child cannot have been reaped yet, so this is its own start time.
    let started = proc::stat(pid).map_or(0, |stat| stat.started);
    let group = Group { pid, started, mark };
    if let Err(cause) = dog.tell(&format!("track {pid} {started}")) {
        group.signal(Signal::SIGKILL);
        return Err(cause);
    }
    Ok(Child {
        stdin: inner.stdin.take(),
        stdout: inner.stdout.take(),
        stderr: inner.stderr.take(),
        group,
        inner,
    })
}

fn inherited() -> impl Iterator<Item = (std::ffi::OsString, std::ffi::OsString)> {
    std::env::vars_os().filter(|(name, _)| {
        name.to_str()
            .is_some_and(|name| INHERITED.contains(&name) || name.starts_with("LC_"))
    })
}

/// The harness's end of the watchdog.
struct Dog {
    program: PathBuf,
    child: std::process::Child,
}

impl Dog {
    fn start(program: &Path, mark: &str, started: u64) -> Result<Dog, SpawnError> {
        let child = std::process::Command::new(program)
            .arg0("brokerfall")
            .arg("watchdog")
            // Without our environment it carries no mark of an outer harness, which would sweep it away too early.
            .env_clear()
            .current_dir("/")
            // Ctrl-C and a closed terminal strike the foreground group only.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|source| SpawnError::Watchdog {
                program: program.to_owned(),
                source,
            })?;
        let mut dog = Dog {
            program: program.to_owned(),
            child,
        };
        dog.tell(&format!("run {mark} {started}"))?;
        Ok(dog)
    }

    /// The line is in the pipe when this returns: it survives the harness.
    fn tell(&mut self, line: &str) -> Result<(), SpawnError> {
        let Some(stdin) = self.child.stdin.as_mut() else {
            return Err(SpawnError::Ended);
        };
        stdin
            .write_all(format!("{line}\n").as_bytes())
            .map_err(|source| SpawnError::Watchdog {
                program: self.program.clone(),
                source,
            })
    }

    fn check(&mut self) -> Result<(), SpawnError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(SpawnError::WatchdogGone {
                program: self.program.clone(),
                status: status.to_string(),
            }),
            Err(source) => Err(SpawnError::Watchdog {
                program: self.program.clone(),
                source,
            }),
        }
    }

    fn end(&mut self) {
        drop(self.child.stdin.take());
        // OK to ignore the answer: there is nothing left to do with it.
        let _ = self.child.wait();
    }
}

/// Why a child was not started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// The command holds no program.
    #[error("the command is empty (wanted a program and its arguments)")]
    Empty,
    /// The program could not be started: the command's or the environment's fault.
    #[error("`{program}` cannot be started")]
    Program {
        /// Program.
        program: String,
        /// The operating system's answer.
        #[source]
        source: std::io::Error,
    },
    /// The watchdog could not be started or reached.
    #[error("the watchdog `{} watchdog` cannot be reached", program.display())]
    Watchdog {
        /// Its program.
        program: PathBuf,
        /// The operating system's answer.
        #[source]
        source: std::io::Error,
    },
    /// The watchdog ended: children would outlive a harness that is killed.
    #[error("the watchdog `{} watchdog` ended by itself: {status} (start the run again)", program.display())]
    WatchdogGone {
        /// Its program.
        program: PathBuf,
        /// How it ended.
        status: String,
    },
    /// The spawner was shut down.
    #[error("the spawner has been shut down (a bug in the harness)")]
    Ended,
}
