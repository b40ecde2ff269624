//! The adapter host against adapters that misbehave: the event that tells it, and nothing left afterwards.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must say where")]

use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::process::{Command as Program, Stdio};
use std::time::Duration;

use brokerfall::history::recorder::Recorder;
use brokerfall::process::{MARK, proc};
use brokerfall::reader::host::{HostError, ReaderProcess};
use brokerfall::reader::sampler::Sampler;
use brokerfall_report::history::{Entry, Event};
use brokerfall_report::protocol::{Command, ReaderEvent};
use brokerfall_tests::launch;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const ADAPTER: &str = env!("CARGO_BIN_EXE_broken-adapter");
const WATCHDOG: &str = env!("CARGO_BIN_EXE_brokerfall-under-test");
const PARENT: &str = env!("CARGO_BIN_EXE_host-parent");
/// Longest wait for what takes milliseconds on a machine that is not busy.
const SOON: Duration = Duration::from_secs(20);
const GRACE: Duration = Duration::from_secs(5);

/// One reader in a folder of its own, with its history.
struct Bed {
    recorder: Recorder,
    folder: tempfile::TempDir,
    reader: ReaderProcess,
}

impl Bed {
    async fn new(mode: &str) -> Self {
        brokerfall_tests::watched();
        let folder = tempfile::tempdir().unwrap();
        let recorder = Recorder::new(Some(&folder.path().join("history.jsonl"))).unwrap();
        let launch = launch(Path::new(ADAPTER), mode);
        let reader = ReaderProcess::spawn(&launch, "r1", &folder.path().join("r1"), recorder.clone())
            .await
            .unwrap();
        Self {
            recorder,
            folder,
            reader,
        }
    }

    async fn greeted(mode: &str) -> Self {
        let bed = Self::new(mode).await;
        bed.reader.hello(SOON).await.unwrap();
        bed
    }

    fn events(&self) -> Vec<Event> {
        self.recorder.flush().unwrap();
        let text = std::fs::read_to_string(self.folder.path().join("history.jsonl")).unwrap();
        text.lines()
            .map(|line| serde_json::from_str::<Entry>(line).unwrap().event)
            .collect()
    }

    fn count(&self, mut is: impl FnMut(&Event) -> bool) -> usize {
        self.events().iter().filter(|event| is(event)).count()
    }

    async fn wait_for<T>(&self, what: &str, mut find: impl FnMut(&Event) -> Option<T>) -> T {
        self.until(what, || self.events().iter().find_map(&mut find)).await
    }

    async fn until<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let mut looks = tokio::time::interval(Duration::from_millis(20));
        let waited = async {
            loop {
                looks.tick().await;
                if let Some(found) = look() {
                    return found;
                }
            }
        };
        match tokio::time::timeout(SOON, waited).await {
            Ok(found) => found,
            Err(_) => panic!("{what} did not come; the history: {:#?}", self.events()),
        }
    }

    async fn broken(&self) -> (String, String) {
        // First, because reading the history again and again would keep this thread from reading a flood.
        self.until("a broken rule", || self.reader.broken()).await;
        self.wait_for("ProtocolBroken", |event| match event {
            Event::ProtocolBroken { text, line, .. } => Some((text.clone(), line.clone())),
            _ => None,
        })
        .await
    }

    fn file(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.folder.path().join("r1").join(name)).unwrap()
    }

    /// Kills the reader and asserts that nothing of it is left.
    async fn end(self) {
        self.reader.kill().await.unwrap();
        self.assert_alone();
    }

    fn assert_alone(&self) {
        assert_eq!(self.reader.group().left(), []);
        assert_eq!(self.reader.group().state(), None, "it is not reaped");
    }
}

fn is_broken(event: &Event) -> bool {
    matches!(event, Event::ProtocolBroken { .. })
}

fn is_blocked(event: &Event) -> bool {
    matches!(event, Event::ReaderBlocked { .. })
}

fn marked(prefix: &str) -> Vec<proc::Process> {
    proc::all()
        .into_iter()
        .filter(|stat| stat.is_alive())
        .filter(|stat| proc::variable(stat.pid, MARK).is_some_and(|value| value.starts_with(prefix)))
        .map(proc::describe)
        .collect()
}

fn pid(pid: u32) -> Pid {
    Pid::from_raw(pid.try_into().unwrap())
}

#[tokio::test]
async fn good_adapter_is_asked_and_stopped_and_its_history_is_whole() {
    let bed = Bed::greeted("good").await;
    let done = bed.reader.ask(Command::Commit, SOON).await.unwrap();
    assert!(done.ok);
    let stopped = bed.reader.shut_down(GRACE).await;
    assert!(stopped.stopped_ms.is_some_and(|ms| ms < 5_000), "{stopped:?}");
    assert!(!stopped.ended_before && stopped.leftover.is_empty(), "{stopped:?}");
    bed.assert_alone();

    let events = bed.events();
    assert!(matches!(&events[0], Event::Spawned { member, pid, .. }
        if member == "r1" && *pid == Some(bed.reader.pid())));
    let asked: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::Asked { id, command, .. } => Some((*id, command.as_str())),
            _ => None,
        })
        .collect();
    assert_eq!(asked, [(1, "commit"), (2, "stop")]);
    let done = |event: &Event| matches!(event, Event::Reader { event: ReaderEvent::Done(done), .. } if done.ok);
    assert_eq!(bed.count(done), 2);
    let exited = events.last().unwrap();
    assert!(
        matches!(
            exited,
            Event::Exited {
                code: Some(0),
                signal: None,
                asked: true,
                ..
            }
        ),
        "{exited:?}"
    );
    assert_eq!(bed.count(is_broken), 0);
}

#[tokio::test]
async fn exit_before_hello_is_told_with_its_status_and_last_lines() {
    let bed = Bed::new("exits-before-hello").await;
    let error = bed.reader.hello(SOON).await.unwrap_err();
    assert!(matches!(error, HostError::Exited { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("exits-before-hello` exited with status 3 before `hello`"),
        "{text}"
    );
    assert!(
        text.contains("line 11\n") && text.ends_with("line 30") && !text.contains("line 10\n"),
        "{text}"
    );
    assert_eq!(bed.reader.exited().unwrap().code, Some(3));
    bed.wait_for("Exited", |event| match event {
        Event::Exited {
            code: Some(3),
            asked: false,
            stderr_tail,
            ..
        } => stderr_tail.ends_with("line 30").then_some(()),
        _ => None,
    })
    .await;
    assert!(bed.file("stderr.log").starts_with(b"line 1\nline 2\n"));
    let stopped = bed.reader.shut_down(GRACE).await;
    assert!(stopped.ended_before && stopped.stopped_ms == Some(0), "{stopped:?}");
    // An end that nobody asked for stays so, although the reader was stopped afterwards.
    assert!(!bed.reader.exited().unwrap().asked);
    bed.assert_alone();
}

#[tokio::test]
async fn program_that_is_not_there_cannot_be_started() {
    brokerfall_tests::watched();
    let folder = tempfile::tempdir().unwrap();
    let recorder = Recorder::new(None).unwrap();
    let missing = launch(Path::new("/no/such/adapter"), "x");
    let error = ReaderProcess::spawn(&missing, "r1", folder.path(), recorder)
        .await
        .err()
        .unwrap();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(cause, "`/no/such/adapter` cannot be started");
}

#[tokio::test]
async fn text_that_is_not_protocol_is_broken_once_and_kept_as_it_came() {
    let bed = Bed::greeted("babbles").await;
    let (text, line) = bed.broken().await;
    assert!(text.contains("not JSON"), "{text}");
    assert_eq!(line, "DEBUG \u{fffd} connecting to broker 1");
    let error = bed.reader.ask(Command::Commit, SOON).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("the adapter of reader r1 broke the protocol: {text}: \"DEBUG \u{fffd} connecting to broker 1\"")
    );
    // It still closes in order when told to.
    let stopped = bed.reader.shut_down(GRACE).await;
    assert!(stopped.stopped_ms.is_some(), "{stopped:?}");
    assert_eq!(bed.count(is_broken), 1);
    let kept = bed.file("stdout-broken.log");
    assert!(kept.starts_with(b"DEBUG \xff connecting to broker 1\n"));
    assert!(kept.ends_with(b"\"type\":\"stopped\",\"reason\":\"asked\"}\n"));
    bed.assert_alone();
}

#[tokio::test]
async fn gap_in_seq_is_broken() {
    let bed = Bed::greeted("gap").await;
    assert!(bed.broken().await.0.starts_with("seq is 3, wanted 2"));
    bed.end().await;
}

#[tokio::test]
async fn unknown_type_is_broken() {
    let bed = Bed::greeted("unknown-type").await;
    assert_eq!(bed.broken().await.0, r#"unknown type "gossip""#);
    bed.end().await;
}

#[tokio::test]
async fn late_answer_is_recorded_and_breaks_nothing() {
    let bed = Bed::greeted("late").await;
    let error = bed
        .reader
        .ask(Command::Commit, Duration::from_millis(200))
        .await
        .unwrap_err();
    assert!(matches!(error, HostError::TimedOut { .. }), "{error}");
    let done = bed.reader.ask(Command::Commit, SOON).await.unwrap();
    assert_eq!(done.id, 2);
    bed.wait_for("the late done", |event| match event {
        Event::Reader {
            event: ReaderEvent::Done(done),
            ..
        } if done.id == 1 => Some(()),
        _ => None,
    })
    .await;
    assert_eq!(bed.count(is_broken), 0);
    bed.end().await;
}

#[tokio::test]
async fn answers_out_of_order_reach_whoever_asked() {
    let bed = Bed::greeted("late").await;
    let first = bed.reader.ask_in_background(Command::Commit, SOON);
    let second = bed.reader.ask_in_background(Command::Commit, SOON);
    assert_eq!(first.wait().await.unwrap().id, 1);
    assert_eq!(second.wait().await.unwrap().id, 2);
    bed.end().await;
}

#[tokio::test]
async fn second_answer_is_broken() {
    let bed = Bed::greeted("answers-twice").await;
    bed.reader.ask(Command::Commit, SOON).await.unwrap();
    assert_eq!(bed.broken().await.0, "a second `done` for id 1");
    bed.end().await;
}

#[tokio::test]
async fn answer_that_never_comes_times_out_and_an_end_meanwhile_is_told() {
    let bed = Bed::greeted("never-answers").await;
    let error = bed
        .reader
        .ask(Command::Commit, Duration::from_millis(100))
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "reader r1 did not send the answer to `commit` within 100ms (its stderr is in the run's folder)"
    );
    let answer = bed.reader.ask_in_background(Command::Commit, SOON);
    bed.reader.kill().await.unwrap();
    let error = answer.wait().await.unwrap_err();
    assert!(matches!(error, HostError::Exited { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains("was ended by SIGKILL before it answered `commit`"),
        "{error}"
    );
    let error = bed.reader.ask(Command::Commit, SOON).await.unwrap_err();
    assert!(matches!(error, HostError::Exited { .. }), "{error}");
    bed.end().await;
}

#[tokio::test]
async fn reader_that_ignores_stop_and_sigterm_is_killed() {
    let bed = Bed::greeted("ignores-sigterm").await;
    let stopped = bed.reader.shut_down(Duration::from_millis(100)).await;
    assert_eq!((stopped.stopped_ms, stopped.ended_before), (None, false));
    assert_eq!(stopped.leftover, Vec::<String>::new());
    let exit = bed.reader.exited().unwrap();
    assert_eq!((exit.signal, exit.asked), (Some(9), true));
    bed.assert_alone();
}

#[tokio::test]
async fn reader_that_ignores_stop_only_is_ended_by_sigterm() {
    let bed = Bed::greeted("hangs").await;
    let stopped = bed.reader.shut_down(Duration::from_millis(100)).await;
    assert_eq!(stopped.stopped_ms, None);
    assert_eq!(bed.reader.exited().unwrap().signal, Some(15));
    bed.assert_alone();
}

#[tokio::test]
async fn hundred_megabytes_are_drained_and_little_of_them_is_kept() {
    let bed = Bed::greeted("prints-100-mb").await;
    let exit = tokio::time::timeout(SOON, bed.reader.wait_exit()).await.unwrap();
    // It ends by itself only after everything was taken from it.
    assert_eq!(exit.code, Some(0));
    assert_eq!(exit.stderr_tail.lines().last(), Some("all printed"));
    assert_eq!(bed.broken().await.0, "a line longer than 1048576 bytes");
    assert!(bed.file("stdout-broken.log").len() <= 1 << 20);
    assert!(bed.file("stderr.log").len() < 600 * 1024);
    bed.end().await;
}

#[test]
fn hundred_megabytes_are_drained_in_little_memory() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("readers");
    std::fs::create_dir(&folder).unwrap();
    let mut parent = parent(&folder, &["prints-100-mb"]);
    let prefix = format!("{}-", parent.id());
    // It ends by itself only after everything was taken from it.
    assert!(within(SOON, || marked(&prefix).is_empty()), "it was not drained");
    let status = std::fs::read_to_string(format!("/proc/{}/status", parent.id())).unwrap();
    parent.kill().unwrap();
    parent.wait().unwrap();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let most_kib: u64 = most.split_whitespace().next().unwrap().parse().unwrap();
    assert!(most_kib < 60 * 1024, "{most_kib} KiB at most");
}

/// A harness in small, once all its readers have said hello.
fn parent(folder: &Path, modes: &[&str]) -> std::process::Child {
    let mut parent = Program::new(PARENT)
        .args([WATCHDOG, ADAPTER])
        .arg(folder)
        .args(modes)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufReader::new(parent.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "ready\n");
    parent
}

#[tokio::test]
async fn flood_is_broken_and_drained() {
    let bed = Bed::greeted("floods").await;
    assert_eq!(bed.broken().await.0, "more than 5000 lines in one second");
    let lines = bed.count(|event| matches!(event, Event::Reader { .. }));
    assert!(lines <= 20_000, "{lines}");
    bed.end().await;
}

#[tokio::test]
async fn huge_line_is_broken() {
    let bed = Bed::greeted("huge-line").await;
    let (text, line) = bed.broken().await;
    assert_eq!(text, "a line longer than 1048576 bytes");
    assert_eq!(line.len(), 300);
    bed.end().await;
}

#[tokio::test]
async fn closed_stdout_of_a_living_process_is_broken() {
    let bed = Bed::greeted("closes-stdout").await;
    assert_eq!(bed.broken().await.0, "the adapter closed its stdout but runs on");
    bed.end().await;
}

#[tokio::test]
async fn grandchild_left_in_the_group_is_named_and_killed() {
    let bed = Bed::greeted("leaves-grandchild").await;
    assert_eq!(bed.reader.group().usage().processes, 2);
    let stopped = bed.reader.shut_down(GRACE).await;
    assert!(stopped.stopped_ms.is_some(), "{stopped:?}");
    assert_eq!(stopped.leftover.len(), 1, "{stopped:?}");
    assert!(stopped.leftover[0].ends_with("broken-adapter sleeper"), "{stopped:?}");
    bed.assert_alone();
}

#[tokio::test]
async fn grandchild_that_left_the_group_is_named_and_killed() {
    let bed = Bed::greeted("leaves-daemon").await;
    assert_eq!(bed.reader.group().strays().len(), 1);
    let stopped = bed.reader.shut_down(GRACE).await;
    assert_eq!(stopped.leftover.len(), 1, "{stopped:?}");
    assert!(stopped.leftover[0].ends_with("broken-adapter daemon"), "{stopped:?}");
    bed.assert_alone();
}

#[tokio::test]
async fn silent_process_is_blocked_and_told_once() {
    let bed = Bed::greeted("hangs").await;
    let hello_us = bed.recorder.now_us();
    let since = bed
        .wait_for("ReaderBlocked", |event| match event {
            Event::ReaderBlocked { since_us, .. } => Some(*since_us),
            _ => None,
        })
        .await;
    assert!(
        since <= hello_us,
        "blocked since {since}, but `hello` was there at {hello_us}"
    );
    assert!(bed.recorder.now_us() - since >= 2_000_000);
    bed.end().await;
}

#[tokio::test]
async fn loop_that_stands_is_blocked_although_it_beats_and_comes_back() {
    let bed = Bed::greeted("loop-stands").await;
    bed.wait_for("ReaderUnblocked", |event| {
        matches!(event, Event::ReaderUnblocked { .. }).then_some(())
    })
    .await;
    assert_eq!(bed.count(is_blocked), 1);
    bed.end().await;
}

#[tokio::test]
async fn process_that_stopped_itself_is_not_blocked() {
    let bed = Bed::greeted("stops-itself").await;
    bed.until("state T", || (bed.reader.group().state() == Some('T')).then_some(()))
        .await;
    // Time itself is the condition: silence is told after 2 s at the earliest.
    let _ = bed.recorder.wait_until(Duration::from_secs(3), |_| None::<()>).await;
    assert_eq!(bed.count(is_blocked), 0);
    bed.reader.resume().await.unwrap();
    bed.reader.ask(Command::Commit, SOON).await.unwrap();
    assert_eq!(bed.count(is_blocked), 0);
    bed.end().await;
}

#[tokio::test]
async fn paused_reader_is_in_state_t_and_not_blocked() {
    let bed = Bed::greeted("leaves-grandchild").await;
    let proof = bed.reader.pause().await.unwrap();
    assert!(proof.starts_with("every process of its group in state T: "), "{proof}");
    let states: Vec<_> = bed.reader.group().members().iter().map(|stat| stat.state).collect();
    assert_eq!(states, ['T', 'T']);
    let _ = bed.recorder.wait_until(Duration::from_secs(3), |_| None::<()>).await;
    assert_eq!(bed.reader.group().state(), Some('T'));
    bed.reader.resume().await.unwrap();
    assert_ne!(bed.reader.group().state(), Some('T'));
    bed.reader.ask(Command::Commit, SOON).await.unwrap();
    assert_eq!(bed.count(is_blocked), 0);
    bed.end().await;
}

#[tokio::test]
async fn paused_reader_stops_in_order_and_can_be_killed() {
    let bed = Bed::greeted("good").await;
    bed.reader.pause().await.unwrap();
    let stopped = bed.reader.shut_down(GRACE).await;
    assert!(stopped.stopped_ms.is_some(), "{stopped:?}");
    let bed = Bed::greeted("good").await;
    bed.reader.pause().await.unwrap();
    let proof = bed.reader.kill().await.unwrap();
    assert!(proof.ends_with("was ended by SIGKILL and is reaped"), "{proof}");
    let error = bed.reader.pause().await.unwrap_err();
    assert!(matches!(error, HostError::Exited { .. }), "{error}");
    bed.assert_alone();
}

#[tokio::test]
async fn dropped_reader_is_killed() {
    let bed = Bed::greeted("leaves-daemon").await;
    let group = bed.reader.group();
    drop(bed.reader);
    let mut looks = tokio::time::interval(Duration::from_millis(20));
    let gone = async {
        while group.state().is_some() || !group.left().is_empty() {
            looks.tick().await;
        }
    };
    tokio::time::timeout(SOON, gone).await.unwrap();
}

#[tokio::test]
async fn environment_is_the_allow_list() {
    let bed = Bed::new("tells-environment").await;
    bed.reader.wait_exit().await;
    let text = String::from_utf8(bed.file("stderr.log")).unwrap();
    let names: Vec<_> = text.lines().collect();
    // Cargo sets these for the tests themselves.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    assert!(names.contains(&"PATH") && names.contains(&MARK), "{names:?}");
    let allowed = [
        "PATH",
        "HOME",
        "LANG",
        "TZ",
        "TMPDIR",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        MARK,
    ];
    let others: Vec<_> = names
        .iter()
        .filter(|name| !allowed.contains(name) && !name.starts_with("LC_"))
        .collect();
    assert!(others.is_empty(), "{others:?}");
    bed.end().await;
}

#[tokio::test]
async fn sampler_tells_what_the_group_uses() {
    let bed = Bed::greeted("leaves-grandchild").await;
    let sampler = Sampler::start(bed.recorder.clone());
    sampler.add("r1", bed.reader.group());
    let (rss, descriptors, processes, waited) = bed
        .wait_for("Sample", |event| match event {
            Event::Sample {
                member,
                rss_kib,
                descriptors,
                processes,
                waited_ms,
                ..
            } if member == "r1" => Some((*rss_kib, *descriptors, *processes, *waited_ms)),
            _ => None,
        })
        .await;
    assert!(rss > 0 && descriptors >= 6, "{rss} {descriptors}");
    assert_eq!(processes, 2);
    assert_eq!(waited.is_some(), Path::new("/proc/self/schedstat").exists());
    sampler.remove("r1");
    let seen = bed.count(|event| matches!(event, Event::Sample { .. }));
    let _ = bed
        .recorder
        .wait_until(Duration::from_millis(600), |_| None::<()>)
        .await;
    // One may have been under way.
    assert!(bed.count(|event| matches!(event, Event::Sample { .. })) <= seen + 1);
    bed.end().await;
}

#[tokio::test]
async fn machine_that_starves_the_harness_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.jsonl");
    let recorder = Recorder::new(Some(&path)).unwrap();
    let sampler = Sampler::start(recorder.clone());
    // The sampler has had its first turn when this returns; then nobody else gets one for longer than a second.
    let _ = recorder.wait_until(Duration::from_millis(300), |_| None::<()>).await;
    assert!(!within(Duration::from_millis(1_200), || false));
    let starved = async {
        loop {
            recorder.wait_until(Duration::from_millis(50), |_| None::<()>).await;
            recorder.flush().unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            let entry = text
                .lines()
                .find_map(|line| match serde_json::from_str::<Entry>(line).unwrap().event {
                    Event::Starved { gap_ms } => Some(gap_ms),
                    _ => None,
                });
            if let Some(gap_ms) = entry {
                return gap_ms;
            }
        }
    };
    let gap_ms = tokio::time::timeout(SOON, starved).await.unwrap();
    assert!(gap_ms > 1_000, "{gap_ms}");
    drop(sampler);
}

#[test]
fn nothing_outlives_a_harness_that_is_killed() {
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("guarded folder");
    std::fs::create_dir(&folder).unwrap();
    let mut parent = parent(
        &folder,
        &["good", "ignores-sigterm", "leaves-grandchild", "leaves-daemon"],
    );
    let prefix = format!("{}-", parent.id());
    // Four readers and two grandchildren, one of them in a session of its own.
    assert_eq!(marked(&prefix).len(), 6);
    parent.kill().unwrap();
    parent.wait().unwrap();
    let gone = || marked(&prefix).is_empty() && !folder.exists();
    assert!(within(Duration::from_secs(2), gone), "left: {:?}", marked(&prefix));
}

#[test]
fn watchdog_ignores_signals_and_spares_a_recycled_pid() {
    let mut ours = sleeper();
    let mut recycled = sleeper();
    let started = |pid: u32| proc::stat(pid).unwrap().started;
    let mut watchdog = Program::new(WATCHDOG)
        .arg("watchdog")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    // Bit n - 1 of the mask stands for signal n.
    let wanted = 1u64 << (15 - 1) | 1 << (2 - 1) | 1 << (1 - 1);
    assert!(within(SOON, || blocked_signals(watchdog.id())
        .is_some_and(|mask| mask & wanted == wanted)));
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        kill(pid(watchdog.id()), signal).unwrap();
    }
    let mut stdin = watchdog.stdin.take().unwrap();
    let lines = [
        format!("track {} {}", ours.id(), started(ours.id())),
        format!("track {} {}", recycled.id(), started(recycled.id()) - 1),
    ];
    std::io::Write::write_all(&mut stdin, format!("{}\n{}\n", lines[0], lines[1]).as_bytes()).unwrap();
    drop(stdin);
    assert!(watchdog.wait().unwrap().success());
    assert!(within(SOON, || ours.try_wait().unwrap().is_some()));
    assert!(
        recycled.try_wait().unwrap().is_none(),
        "a process that was not tracked was killed"
    );
    recycled.kill().unwrap();
    recycled.wait().unwrap();
}

/// A process in a group of its own that does nothing.
fn sleeper() -> std::process::Child {
    use std::os::unix::process::CommandExt;
    let mut child = Program::new(PathBuf::from(ADAPTER))
        .arg("sleeper")
        .process_group(0)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    child
}

fn blocked_signals(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

fn within(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let (_open, never) = std::sync::mpsc::channel::<()>();
    for _ in 0..limit.as_millis() / 10 {
        if holds() {
            return true;
        }
        let _ = never.recv_timeout(Duration::from_millis(10));
    }
    holds()
}
