//! Signals at every stage, and a harness that is killed: nothing is left, and the history is closed or marked partial.

use std::time::{Duration, Instant};

use brokerfall_report::verdict::Verdict;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use brokerfall::process::proc::Stat;

use super::bench::{BROKEN, Bench, MUTANT, assert_gone, descendants, listeners, listening, start, wait_for};

/// What a signal may take: the mock cluster gets two seconds to end, the kernel five to reap.
const PROMPT: Duration = Duration::from_secs(10);

/// Starts a run that does not end by itself, sends the signal when the history holds the text, and looks at what is left.
fn interrupted(scenario: &str, command: &[&str], kind: &str, text: &str, signal: Signal) {
    let bench = Bench::new();
    let manifest = format!(
        "name = \"slow\"\nkinds = [{kind:?}]\ncommand = {command:?}\n[limits]\nwithin = \"120s\"\nstop-grace = \"120s\"\n"
    );
    bench.write("readers/slow.toml", manifest);
    let mut running = bench.start(Bench::arguments(scenario, "slow"));
    bench.wait_for_history(&mut running, text);
    let ours = descendants(running.pid());
    #[expect(clippy::disallowed_methods, reason = "how long a signal takes is what is claimed")]
    let sent = Instant::now();
    running.signal(signal);
    let ended = running.end();
    let took = sent.elapsed();
    ended
        .assert_code(11)
        .assert_calm()
        .assert_says(&format!("{} ended the run early", signal.as_str()));
    assert!(took < PROMPT, "{text}: {took:?}");
    let report = bench.report();
    let run = &report.runs[0];
    assert_eq!((run.verdict, run.partial), (Verdict::Void, false), "{text}");
    assert!(run.voids[0].text.contains("ended the run early"), "{:?}", run.voids);
    for name in ["junit.xml", "report.md"] {
        assert!(bench.invocation().join(name).is_file());
    }
    let history = std::fs::read_to_string(&bench.histories()[0]).unwrap();
    assert!(
        history.contains("\"interrupted\"") && history.ends_with("\"closed\"}\n"),
        "{text}: {}",
        history.lines().rev().take(5).collect::<Vec<_>>().join("\n")
    );
    assert_gone(&ours);
    bench.assert_clean();
}

fn stage(name: &str) -> String {
    format!("\"stage\":\"{name}\"")
}

/// A reader that hangs in its stop for two minutes: whatever stage is waited for, the run goes on when the signal comes.
const HANGS_IN_STOP: [&str; 2] = [MUTANT, "hangs-in-stop"];

#[test]
fn sigint_while_the_cluster_comes_up() {
    interrupted("control/idle", &HANGS_IN_STOP, "assign", "\"opened\"", Signal::SIGINT);
}

#[test]
fn sigterm_while_preparing() {
    interrupted(
        "control/idle",
        &HANGS_IN_STOP,
        "assign",
        &stage("preparing"),
        Signal::SIGTERM,
    );
}

#[test]
fn sigint_while_a_reader_does_not_say_hello() {
    interrupted(
        "control/idle",
        &[BROKEN, "silent"],
        "group",
        "\"spawned\"",
        Signal::SIGINT,
    );
}

#[test]
fn sigterm_while_a_reader_does_not_start() {
    interrupted(
        "control/idle",
        &[BROKEN, "hangs"],
        "group",
        &stage("steps"),
        Signal::SIGTERM,
    );
}

#[test]
fn sigint_while_a_fault_is_in_force() {
    interrupted(
        "reader/pause-live",
        &HANGS_IN_STOP,
        "assign",
        "\"injected\"",
        Signal::SIGINT,
    );
}

#[test]
fn sigterm_while_healing() {
    interrupted(
        "broker-kill/live",
        &HANGS_IN_STOP,
        "assign",
        &stage("healing"),
        Signal::SIGTERM,
    );
}

#[test]
fn sigint_while_a_dead_reader_is_given_its_recovery_window() {
    interrupted(
        "broker-kill/live",
        &[MUTANT, "dies-healthy"],
        "assign",
        &stage("recovering"),
        Signal::SIGINT,
    );
}

#[test]
fn sigterm_while_settling() {
    interrupted(
        "control/idle",
        &HANGS_IN_STOP,
        "assign",
        &stage("settling"),
        Signal::SIGTERM,
    );
}

#[test]
fn sigint_while_a_reader_does_not_stop() {
    interrupted(
        "control/idle",
        &HANGS_IN_STOP,
        "assign",
        &stage("stopping"),
        Signal::SIGINT,
    );
}

#[test]
fn second_signal_ends_the_harness_at_once_and_the_watchdog_cleans_up() {
    let bench = Bench::new();
    bench.reader_within("hangs", "group", &[BROKEN, "hangs"], "120s");
    let mut running = bench.start(Bench::arguments("control/idle", "hangs"));
    bench.wait_for_history(&mut running, &stage("steps"));
    let ours = descendants(running.pid());
    // A cluster that cannot end makes the orderly end take two seconds, in which the second signal comes.
    let mock = ours
        .iter()
        .find(|stat| command_line(stat.pid).contains("mock-cluster"))
        .unwrap();
    kill(Pid::from_raw(i32::try_from(mock.pid).unwrap()), Signal::SIGSTOP).unwrap();
    running.signal(Signal::SIGINT);
    // The reader's end shows that the first signal was taken.
    wait_for("the reader's end", || {
        let reader = |stat: &&Stat| command_line(stat.pid).contains("broken-adapter");
        descendants(running.pid()).iter().find(reader).is_none().then_some(())
    });
    running.signal(Signal::SIGTERM);
    let ended = running.end();
    ended.assert_code(143);
    assert_gone(&ours);
    bench.assert_clean();
}

#[test]
fn sigterm_ends_what_is_kept_up() {
    let bench = Bench::new();
    bench.reader("invents", "assign", &[MUTANT, "invents-a-record"]);
    let mut arguments = Bench::arguments("control/idle", "invents");
    arguments.extend(["--keep-up", "--jobs", "1"]);
    let mut running = bench.start(arguments);
    bench.wait_for_history(&mut running, &stage("closing"));
    // The reader is gone by then, cluster and link stay.
    running.wait_for_remark("kept up: the link listens on 127.0.0.");
    let ours = descendants(running.pid());
    assert!(ours.iter().any(|stat| !listening(stat.pid).is_empty()));
    running.signal(Signal::SIGTERM);
    running
        .end()
        .assert_code(10)
        .assert_calm()
        .assert_says("no_phantom_record violated");
    assert_gone(&ours);
    bench.assert_clean();
}

#[test]
fn signal_during_provisioning_ends_its_helpers_and_removes_what_is_half_built() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("bin")).unwrap();
    for (name, script) in [
        ("python3", "#!/bin/sh\necho 3.12.1\necho \"$0\"\n"),
        ("uv", "#!/bin/sh\nsleep 300 & exec sleep 301\n"),
    ] {
        let path = bench.write(&format!("bin/{name}"), script);
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    let mut command = bench.command(Bench::arguments("control/idle", "ktables@1.1.2"));
    command.env("BROKERFALL_CACHE", bench.path("cache"));
    command.env("PATH", format!("{}:/usr/bin:/bin", bench.path("bin").display()));
    let running = start(command);
    wait_for("the installer", || {
        let sleeps = |stat: &&Stat| stat.name == "sleep";
        (bench.alive().iter().filter(sleeps).count() == 2).then_some(())
    });
    let ours = descendants(running.pid());
    running.signal(Signal::SIGTERM);
    let ended = running.end();
    ended.assert_code(13).assert_calm();
    ended.assert_complains("SIGTERM came before the first run: nothing was judged");
    assert_gone(&ours);
    bench.assert_clean();
    let built: Vec<_> = std::fs::read_dir(bench.path("cache/envs"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.ends_with(".lock"))
        .collect();
    assert!(built.is_empty(), "{built:?}");
}

#[test]
fn signal_during_adapter_check_leaves_nothing() {
    let bench = Bench::new();
    let mut running = bench.start([
        "adapter", "check", "--kind", "group", "--out", "out", "--", BROKEN, "hangs",
    ]);
    bench.wait_for_history(&mut running, "\"asked\"");
    // Stopped, so that the check is not over by the time a busy machine has listed what belongs to it.
    running.signal(Signal::SIGSTOP);
    let ours = descendants(running.pid());
    // Not SIGINT: whoever starts the tests in the background of a shell has it ignored, and this command handles none.
    running.signal(Signal::SIGTERM);
    running.signal(Signal::SIGCONT);
    assert_eq!(running.end().code(), None, "no code: the signal ended it");
    assert_gone(&ours);
    bench.assert_clean();
}

/// Kills the harness when its history has so many lines, and looks at what is left.
fn killed_at(lines: usize) {
    let bench = Bench::new();
    let mut running = bench.start(Bench::arguments("broker-kill/live", "reference-group"));
    wait_for("the history", || {
        let written = bench.histories().first().map_or(0, |path| {
            std::fs::read_to_string(path).unwrap_or_default().lines().count()
        });
        (written >= lines || running.is_over()).then_some(())
    });
    // Stopped, so that the run is not over by the time a busy machine has listed what belongs to it.
    running.signal(Signal::SIGSTOP);
    let ours = descendants(running.pid());
    let ports: Vec<String> = ours.iter().flat_map(|stat| listening(stat.pid)).collect();
    assert!(
        !running.is_over(),
        "the run of {lines} lines was over before it was killed"
    );
    running.signal(Signal::SIGKILL);
    assert_eq!(running.end().code(), None);
    assert_gone(&ours);
    bench.assert_clean();
    let open: Vec<String> = listeners().into_iter().map(|(address, _)| address).collect();
    assert!(!ports.iter().any(|port| open.contains(port)), "{ports:?} of {open:?}");
    let history = bench.histories()[0].to_string_lossy().into_owned();
    let judged = bench.run(["judge", &history]);
    judged
        .assert_code(11)
        .assert_calm()
        .assert_says("the history is partial: it was cut off after event #");
}

#[test]
fn killed_harness_leaves_nothing_alive_and_its_history_is_partial() {
    // From the plan alone to the reader's recovery: a whole history has more than 180 lines.
    let kills: Vec<_> = [1, 2, 5, 12, 25, 40, 60, 80, 110, 150]
        .map(|lines| std::thread::spawn(move || killed_at(lines)))
        .into();
    for kill in kills {
        kill.join().unwrap();
    }
}

fn command_line(pid: u32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}
