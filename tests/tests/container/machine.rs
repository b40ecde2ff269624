//! What the machine may lack, an engine that goes away, and what is left when the harness is killed.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use brokerfall::cluster::Cluster;
use brokerfall::cluster::container::Swept;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use brokerfall_tests::SOON;
use brokerfall_tests::machine::{Turn, children, moment, within};

use super::{engine, program};

/// `run` in containers with one reader, in a folder of its own.
fn run(folder: &Path) -> Command {
    let mut command = Command::new(program());
    command
        .args(["run", "broker-kill/live", "--reader", "reference-table"])
        .args(["--cluster", "container", "--jobs", "1"])
        .current_dir(folder);
    command
}

fn text(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    // Lines are wrapped for people.
    let text = String::from_utf8_lossy(&text).into_owned();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn said(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().unwrap();
    (output.status.code(), text(&output))
}

/// Containers and networks that a harness has started and that are still there.
fn things_of(harness: u32) -> Vec<String> {
    let mut things = Vec::new();
    for list in [&["ps", "--all"][..], &["network", "ls"]] {
        let output = Command::new("docker")
            .args(list)
            .args(["--filter", "label=brokerfall.owner"])
            .args(["--format", "{{.Label \"brokerfall.owner\"}} {{.ID}}"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output));
        let listed = String::from_utf8(output.stdout).unwrap();
        let own = listed.lines().filter(|line| line.starts_with(&format!("{harness}-")));
        things.extend(own.map(|line| format!("{} {line}", list[0])));
    }
    things
}

/// Whether a file of this name is somewhere below a folder.
fn has_file(folder: &Path, name: &str) -> bool {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| {
        let path = entry.path();
        entry.file_name() == name || path.is_dir() && has_file(&path, name)
    })
}

#[test]
fn without_an_engine_is_a_named_skip_that_says_where_it_was_looked_for() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = format!("unix://{}/none.sock", folder.path().display());
    let (code, said) = said(run(folder.path()).env("DOCKER_HOST", &nowhere));
    assert_eq!(code, Some(13), "{said}");
    assert!(said.contains(&nowhere) && said.contains("set DOCKER_HOST"), "{said}");
}

#[test]
fn engine_that_hangs_is_a_named_skip() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("hangs.sock");
    let _accepts_and_says_nothing = UnixListener::bind(&socket).unwrap();
    let (code, said) = said(run(folder.path()).env("DOCKER_HOST", format!("unix://{}", socket.display())));
    assert_eq!(code, Some(13), "{said}");
    assert!(said.contains("no container engine answers"), "{said}");
}

#[test]
fn address_that_is_none_is_the_environments_failure() {
    let folder = tempfile::tempdir().unwrap();
    let (code, said) = said(run(folder.path()).env("DOCKER_HOST", "carrier-pigeon://roof"));
    assert_eq!(code, Some(3), "{said}");
    assert!(
        said.contains("carrier-pigeon://roof") && said.contains("wanted one such as"),
        "{said}"
    );
}

#[tokio::test]
async fn absent_image_is_a_named_skip_and_nothing_is_pulled() {
    if engine().await.is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for named in ["option", "variable"] {
        let mut command = run(folder.path());
        match named {
            "option" => command.args(["--image", "brokerfall/none:0"]),
            _ => command.env("KAFKA_IMAGE", "brokerfall/none:0"),
        };
        let (code, said) = said(&mut command);
        assert_eq!(code, Some(13), "{said}");
        assert!(
            said.contains("docker pull brokerfall/none:0") && said.contains("just image"),
            "{said}"
        );
    }
}

#[tokio::test]
async fn doctor_says_which_engine_and_image_there_are() {
    let Some(engine) = engine().await else { return };
    let (_, said) = said(Command::new(program()).arg("doctor"));
    let wanted = format!("container cluster image {} on {}", engine.image(), engine.engine());
    assert!(said.contains(&wanted), "{said}");
}

/// The harness, and the time until it had started a container.
fn with_a_container(command: &mut Command) -> Child {
    let harness = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let started = within(SOON, || {
        things_of(harness.id()).iter().any(|thing| thing.starts_with("ps"))
    });
    assert!(started, "no container was started");
    harness
}

#[tokio::test]
async fn harness_that_is_told_to_end_takes_everything_down() {
    let _turn = Turn::one();
    if engine().await.is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut harness = with_a_container(&mut run(folder.path()));
    kill(Pid::from_raw(i32::try_from(harness.id()).unwrap()), Signal::SIGTERM).unwrap();
    harness.wait().unwrap();
    assert_eq!(things_of(harness.id()), [""; 0]);
}

/// SIGKILL at random moments of a run: no reader is left, the next start leaves nothing of it, and touches nothing of those that live.
#[tokio::test]
async fn what_a_killed_harness_left_the_next_start_removes() {
    let _turn = Turn::one();
    let Some(engine) = engine().await else { return };
    let folder = tempfile::tempdir().unwrap();
    let scratch = folder.path().join("scratch");
    std::fs::create_dir(&scratch).unwrap();
    let mut left = 0;
    for _ in 0..KILLS {
        let mut harness = with_a_container(run(folder.path()).env("TMPDIR", &scratch));
        let later = moment(LONGEST);
        within(later, || harness.try_wait().unwrap().is_some());
        harness.kill().unwrap();
        harness.wait().unwrap();
        assert!(
            within(Duration::from_secs(2), || children(&scratch).is_empty()),
            "killed after {later:?}: {:?} are left",
            children(&scratch)
        );
        left += u32::from(!things_of(harness.id()).is_empty());
        let living = engine.start(1).await.unwrap();
        engine.sweep().await.unwrap();
        // Another harness that starts meanwhile may be removing it too.
        let gone = within(SOON, || things_of(harness.id()).is_empty());
        assert!(gone, "{:?} is left", things_of(harness.id()));
        assert!(living.answers(), "the sweep took a cluster of a harness that lives");
        living.shutdown().await;
        let cleared = engine.clear().await.unwrap();
        assert_eq!(cleared, Swept::default(), "the shutdown left something");
    }
    assert!(left >= KILLS / 4, "only {left} kills left anything to remove");
}

/// How often the harness is killed.
const KILLS: u32 = 12;

/// A run on a quiet machine takes 8 s.
const LONGEST: Duration = Duration::from_secs(8);

/// A socket that leads to the engine until it is cut.
struct Way {
    socket: PathBuf,
    streams: Arc<Mutex<Vec<UnixStream>>>,
    cut: Arc<AtomicBool>,
}

impl Way {
    fn to_the_engine(folder: &Path) -> Way {
        let engine = std::env::var("DOCKER_HOST").unwrap_or_else(|_| "unix:///var/run/docker.sock".to_owned());
        let engine = engine
            .strip_prefix("unix://")
            .expect("an engine on a socket")
            .to_owned();
        let way = Way {
            socket: folder.join("way.sock"),
            streams: Arc::default(),
            cut: Arc::default(),
        };
        let listener = UnixListener::bind(&way.socket).unwrap();
        let (streams, cut) = (Arc::clone(&way.streams), Arc::clone(&way.cut));
        std::thread::spawn(move || {
            for here in listener.incoming() {
                if cut.load(Ordering::SeqCst) {
                    return;
                }
                let (here, there) = (here.unwrap(), UnixStream::connect(&engine).unwrap());
                for (mut from, mut to) in [
                    (here.try_clone().unwrap(), there.try_clone().unwrap()),
                    (there.try_clone().unwrap(), here.try_clone().unwrap()),
                ] {
                    std::thread::spawn(move || {
                        let mut bytes = [0; 16 << 10];
                        while let Ok(count @ 1..) = from.read(&mut bytes) {
                            if to.write_all(&bytes[..count]).is_err() {
                                break;
                            }
                        }
                        // OK to fail: the other way may have ended it.
                        let _ = to.shutdown(Shutdown::Write);
                    });
                }
                streams.lock().unwrap().extend([here, there]);
            }
        });
        way
    }

    fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
        std::fs::remove_file(&self.socket).unwrap();
        for stream in self.streams.lock().unwrap().drain(..) {
            // OK to fail: most have ended long ago.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

#[tokio::test]
async fn engine_that_goes_away_in_the_middle_is_the_environments_failure() {
    let _turn = Turn::one();
    let Some(engine) = engine().await else { return };
    let folder = tempfile::tempdir().unwrap();
    let way = Way::to_the_engine(folder.path());
    let mut command = run(folder.path());
    command.env("DOCKER_HOST", format!("unix://{}", way.socket.display()));
    let harness = with_a_container(&mut command);
    let pid = harness.id();
    // A run has its brokers' log from the moment that they serve.
    assert!(within(SOON, || has_file(folder.path(), "broker-1.log")), "no run began");
    way.cut();
    let output = harness.wait_with_output().unwrap();
    let said = text(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("container engine no longer answers"), "{said}");
    engine.sweep().await.unwrap();
    assert_eq!(things_of(pid), [""; 0]);
}
