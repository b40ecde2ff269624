//! What the machine may lack, what may be broken, and what is left when the harness is killed.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use super::{cache, kit, program};

/// `run` on Kafka with one reader, in a folder of its own.
fn run(folder: &Path) -> Command {
    let mut command = Command::new(program());
    command
        .args([
            "run",
            "broker-kill/live",
            "--reader",
            "reference-table",
            "--cluster",
            "process",
        ])
        .args(["--jobs", "1"])
        .current_dir(folder)
        .env_remove("KAFKA_HOME");
    command
}

fn text(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    // Lines are wrapped for people.
    let text = String::from_utf8_lossy(&text).into_owned();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Folders of PATH without those that hold a program.
fn path_without(program: &str) -> std::ffi::OsString {
    let path = std::env::var_os("PATH").unwrap();
    let folders = std::env::split_paths(&path).filter(|folder| !folder.join(program).exists());
    std::env::join_paths(folders).unwrap()
}

fn java() -> std::path::PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    let mut java = std::env::split_paths(&path).map(|folder| folder.join("java"));
    let java = java.find(|java| java.is_file()).unwrap();
    // JAVA_HOME/bin/java.
    std::fs::canonicalize(java)
        .unwrap()
        .parent()
        .unwrap()
        .parent()
        .unwrap()
        .to_owned()
}

#[test]
fn without_java_is_a_named_skip_that_says_what_to_install() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path()).env("JAVA_HOME", folder.path()).output().unwrap();
    let text = text(&output);
    assert_eq!(output.status.code(), Some(13), "{text}");
    assert!(
        text.contains("no Java is here") && text.contains("openjdk-17-jre-headless"),
        "{text}"
    );
}

#[test]
fn without_maven_and_cache_is_a_named_skip() {
    let folder = tempfile::tempdir().unwrap();
    let mut empty = run(folder.path());
    let output = empty
        .env("JAVA_HOME", java())
        .env("PATH", path_without("mvn"))
        .env("BROKERFALL_CACHE", folder.path().join("cache"))
        .output()
        .unwrap();
    let said = text(&output);
    assert_eq!(output.status.code(), Some(13), "{said}");
    assert!(said.contains("install maven, or set KAFKA_HOME"), "{said}");
}

#[tokio::test]
async fn what_is_in_the_cache_runs_without_maven() {
    kit().await;
    let folder = tempfile::tempdir().unwrap();
    let mut cached = run(folder.path());
    let output = cached
        .env("JAVA_HOME", java())
        .env("PATH", path_without("mvn"))
        .env("BROKERFALL_CACHE", cache())
        .output()
        .unwrap();
    let said = text(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
}

#[test]
fn maven_that_fails_is_the_environments_failure_with_its_last_lines() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let maven = folder.path().join("mvn");
    std::fs::write(&maven, "#!/bin/sh\necho '[ERROR] Network is unreachable'\nexit 1\n").unwrap();
    std::fs::set_permissions(&maven, std::fs::Permissions::from_mode(0o755)).unwrap();
    let rest = path_without("mvn");
    let path = std::env::join_paths(std::iter::once(folder.path().to_owned()).chain(std::env::split_paths(&rest)));
    let path = path.unwrap();
    let output = run(folder.path())
        .env("JAVA_HOME", java())
        .env("PATH", path)
        .env("BROKERFALL_CACHE", folder.path().join("cache"))
        .output()
        .unwrap();
    let said = text(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("Network is unreachable") && said.contains("4.1.0"),
        "{said}"
    );
}

#[test]
fn broken_jars_are_the_environments_failure_with_what_java_says() {
    let folder = tempfile::tempdir().unwrap();
    let libs = folder.path().join("kafka/libs");
    std::fs::create_dir_all(&libs).unwrap();
    std::fs::write(libs.join("kafka_2.13-4.1.0.jar"), "no jar").unwrap();
    let output = run(folder.path())
        .env("KAFKA_HOME", folder.path().join("kafka"))
        .env("BROKERFALL_CACHE", folder.path().join("cache"))
        .output()
        .unwrap();
    let said = text(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("kafka.tools.StorageTool"), "{said}");
}

#[test]
fn version_that_is_none_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path()).args(["--kafka", "latest"]).output().unwrap();
    let said = text(&output);
    assert!(said.contains("`latest` is no version of Apache Kafka"), "{said}");
    assert_eq!(output.status.code(), Some(2), "{said}");
}

/// Processes whose command line names a folder.
fn naming(folder: &Path) -> Vec<u32> {
    let needle = folder.to_string_lossy().into_owned();
    let listing = std::fs::read_dir("/proc").unwrap();
    let pids = listing
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&needle)
    })
    .collect()
}

/// Waits for at most `within`; returns whether it came true.
#[expect(
    clippy::disallowed_methods,
    reason = "what is looked at lies outside any history: processes and folders of the machine"
)]
fn within(within: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + within;
    while !holds() {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// SIGKILL at moments spread over the whole of a run: no JVM is left, and no folder of data.
#[tokio::test]
async fn harness_that_is_killed_leaves_no_broker_behind() {
    kit().await;
    let folder = tempfile::tempdir().unwrap();
    // Brokers' folders are below it, and so named by their command lines.
    let scratch = folder.path().join("scratch");
    std::fs::create_dir(&scratch).unwrap();
    let mut with_broker = 0;
    for moment in 0..KILLS {
        let mut harness = run(folder.path())
            .env("TMPDIR", &scratch)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // The moment counts from the first broker's start, which a loaded machine delays.
        assert!(
            within(brokerfall_tests::SOON, || !naming(&scratch).is_empty()),
            "no broker was started"
        );
        let later = LONGEST * moment / KILLS;
        within(later, || harness.try_wait().unwrap().is_some());
        with_broker += u32::from(!naming(&scratch).is_empty());
        harness.kill().unwrap();
        harness.wait().unwrap();
        assert!(
            within(Duration::from_secs(2), || naming(&scratch).is_empty()),
            "killed after {later:?}: {:?} are left",
            naming(&scratch)
        );
        let empty = || std::fs::read_dir(&scratch).unwrap().next().is_none();
        assert!(
            within(Duration::from_secs(5), empty),
            "killed after {later:?}: a folder is left"
        );
    }
    assert!(with_broker >= KILLS / 2, "only {with_broker} kills met a broker");
}

/// How often the harness is killed.
const KILLS: u32 = 12;

/// A run on a quiet machine takes 5 s.
const LONGEST: Duration = Duration::from_secs(6);
