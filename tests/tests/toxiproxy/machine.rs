//! What the machine may lack, what may be broken, and what is left when the server or the harness is killed.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use brokerfall_report::verdict::Verdict;
use brokerfall_tests::SOON;
use brokerfall_tests::machine::{children, moment, within};

use super::{report, run, text, toxiproxy};

/// A run on Toxiproxy; `on_path` in front of a PATH without Go and Toxiproxy, the cache in `out`.
fn bare(out: &Path, on_path: &Path) -> Command {
    let path = std::env::var_os("PATH").unwrap();
    let lacks = |folder: &PathBuf| !folder.join("go").exists() && !folder.join("toxiproxy-server").exists();
    let folders = std::iter::once(on_path.to_owned()).chain(std::env::split_paths(&path).filter(lacks));
    let mut command = run(
        out,
        &[
            "partition/refuse-live",
            "--reader",
            "reference-assign",
            "--link",
            "toxiproxy",
        ],
    );
    command
        .env("PATH", std::env::join_paths(folders).unwrap())
        .env("BROKERFALL_CACHE", out.join("cache"));
    command
}

/// A program of a few lines on a PATH of its own.
fn script(folder: &Path, name: &str, lines: &str) -> PathBuf {
    let bin = folder.join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    let path = bin.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{lines}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    bin
}

#[test]
fn without_server_and_go_is_a_named_skip_that_says_what_to_install() {
    let out = tempfile::tempdir().unwrap();
    let output = bare(out.path(), Path::new("/nowhere")).output().unwrap();
    let said = text(&output);
    assert_eq!(output.status.code(), Some(13), "{said}");
    assert!(
        said.contains("no go on PATH could build it") && said.contains("toxiproxy-server 2.12.0 on PATH"),
        "{said}"
    );
    assert!(!out.path().join("cache").join("links").exists());
}

#[test]
fn another_version_on_path_is_passed_over_and_named() {
    for (says, told) in [
        ("echo toxiproxy-server version 2.5.0", "is 2.5.0"),
        ("exit 1", "is no Toxiproxy that tells its version"),
    ] {
        let out = tempfile::tempdir().unwrap();
        let bin = script(out.path(), "toxiproxy-server", says);
        let output = bare(out.path(), &bin).output().unwrap();
        let said = text(&output);
        assert_eq!(output.status.code(), Some(13), "{said}");
        assert!(said.contains(told), "{said}");
    }
}

#[test]
fn go_that_fails_is_the_environments_failure_with_its_last_lines() {
    let out = tempfile::tempdir().unwrap();
    let bin = script(out.path(), "go", "echo 'dial tcp: lookup: no such host' >&2; exit 1");
    let output = bare(out.path(), &bin).output().unwrap();
    let said = text(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("no such host") && said.contains("needs a network"),
        "{said}"
    );
    // Nothing half built is taken for a program the next time.
    let links = std::fs::read_dir(out.path().join("cache").join("links")).unwrap();
    assert!(links.flatten().all(|entry| entry.path().is_file()));
}

#[test]
fn server_that_does_not_come_up_is_an_error_with_its_last_words() {
    // It says the right version, and then does not listen.
    for (does, told) in [
        (
            "echo 'bind: address already in use'; exec sleep 600",
            "bind: address already in use",
        ),
        ("echo 'no memory' >&2; exit 7", "exit status: 7"),
    ] {
        let out = tempfile::tempdir().unwrap();
        let lines = format!("[ \"$1\" = -version ] && {{ echo toxiproxy-server version 2.12.0; exit; }}\n{does}");
        let bin = script(out.path(), "toxiproxy-server", &lines);
        let output = bare(out.path(), &bin).output().unwrap();
        let report = report(out.path(), &output);
        let only = &report.runs[0];
        assert_eq!(only.verdict, Verdict::Error, "{}", only.cause);
        assert!(
            only.cause.contains("Toxiproxy did not come up") && only.cause.contains(told),
            "{}",
            only.cause
        );
        assert_eq!(output.status.code(), Some(3));
        assert!(naming(out.path()).is_empty());
    }
}

#[test]
fn doctor_names_the_server_and_builds_nothing() {
    let Some(program) = toxiproxy() else { return };
    let out = tempfile::tempdir().unwrap();
    let doctor = |cache: &Path| {
        let mut command = Command::new(super::program());
        command
            .arg("doctor")
            .env("BROKERFALL_CACHE", cache)
            .current_dir(out.path());
        text(&command.output().unwrap())
    };
    copied(out.path(), program.path());
    let said = doctor(&out.path().join("cache"));
    assert!(said.contains("ok toxiproxy 2.12.0"), "{said}");
    if which("toxiproxy-server").is_none() {
        let said = doctor(&out.path().join("empty"));
        assert!(
            said.contains("absent toxiproxy") && said.contains("builds it with Go"),
            "{said}"
        );
    }
}

fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

/// Puts the server into a cache of the test's own, so that its processes are known by their command lines.
fn copied(out: &Path, program: &Path) {
    let kept = out
        .join("cache")
        .join("links")
        .join(program.parent().unwrap().file_name().unwrap());
    std::fs::create_dir_all(&kept).unwrap();
    std::fs::copy(program, kept.join("toxiproxy-server")).unwrap();
}

/// Processes whose command line names a server below a folder.
fn naming(folder: &Path) -> Vec<u32> {
    let needle = folder.to_string_lossy().into_owned();
    let listing = std::fs::read_dir("/proc").unwrap();
    let pids = listing
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        line.contains(&needle) && line.contains("-port=")
    })
    .collect()
}

#[test]
fn server_that_dies_in_the_middle_is_an_error_by_name_and_nothing_is_left() {
    let Some(program) = toxiproxy() else { return };
    let out = tempfile::tempdir().unwrap();
    copied(out.path(), program.path());
    let words = [
        "partition/hold-past-timeouts",
        "--reader",
        "reference-group",
        "--link",
        "toxiproxy",
    ];
    let harness = run(out.path(), &words)
        .env("BROKERFALL_CACHE", out.path().join("cache"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    assert!(within(SOON, || !naming(out.path()).is_empty()), "no server was started");
    let pid = naming(out.path())[0];
    assert!(
        Command::new("kill")
            .args(["-9", &pid.to_string()])
            .status()
            .unwrap()
            .success()
    );
    let output = harness.wait_with_output().unwrap();
    let report = report(out.path(), &output);
    let only = &report.runs[0];
    assert_eq!(only.verdict, Verdict::Error, "{}", only.cause);
    assert!(only.cause.to_lowercase().contains("toxiproxy"), "{}", only.cause);
    assert_eq!(output.status.code(), Some(3));
    assert!(naming(out.path()).is_empty());
}

/// How often the harness is killed.
const KILLS: u32 = 13;
/// A run on a quiet machine takes 4 s.
const LONGEST: Duration = Duration::from_secs(4);

/// SIGKILL at moments spread over the whole of a run.
#[test]
fn harness_that_is_killed_leaves_nothing_behind() {
    let Some(program) = toxiproxy() else { return };
    let out = tempfile::tempdir().unwrap();
    copied(out.path(), program.path());
    let scratch = out.path().join("scratch");
    std::fs::create_dir(&scratch).unwrap();
    let living = || children(&scratch);
    for _ in 0..KILLS {
        let words = [
            "partition/hold-live",
            "--reader",
            "reference-table",
            "--link",
            "toxiproxy",
        ];
        let mut harness = run(out.path(), &words)
            .env("BROKERFALL_CACHE", out.path().join("cache"))
            .env("TMPDIR", &scratch)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // The moment counts from the server's start, which a loaded machine delays.
        assert!(within(SOON, || !naming(out.path()).is_empty()), "no server was started");
        assert!(!living().is_empty(), "the server is no child of the run");
        let later = moment(LONGEST);
        within(later, || harness.try_wait().unwrap().is_some());
        harness.kill().unwrap();
        harness.wait().unwrap();
        assert!(
            within(Duration::from_secs(2), || living().is_empty()),
            "killed after {later:?}: {:?} are left",
            living()
        );
    }
}
