//! What the machine may lack, what may be broken, and what is left when the harness is killed.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use brokerfall_tests::SOON;
use brokerfall_tests::machine::{Turn, children, moment, within};

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

/// JAVA_HOME of the Java on PATH; `None` (said aloud) where there is none, but not on CI.
fn java() -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap();
    let found = std::env::split_paths(&path).map(|folder| folder.join("java"));
    let Some(java) = found.into_iter().find(|java| java.is_file()) else {
        assert!(std::env::var_os("CI").is_none(), "no Java on PATH");
        println!("skipped: no Java on PATH");
        return None;
    };
    // JAVA_HOME/bin/java.
    let java = std::fs::canonicalize(java).unwrap();
    Some(java.ancestors().nth(2).unwrap().to_owned())
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
    let Some(java) = java() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut empty = run(folder.path());
    let output = empty
        .env("JAVA_HOME", java)
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
    let _turn = Turn::one();
    if kit().await.is_none() {
        return;
    }
    let Some(java) = java() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut cached = run(folder.path());
    let output = cached
        .env("JAVA_HOME", java)
        .env("PATH", path_without("mvn"))
        .env("BROKERFALL_CACHE", cache())
        .output()
        .unwrap();
    let said = text(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
}

#[test]
fn maven_that_fails_is_the_environments_failure_with_its_last_lines() {
    let Some(java) = java() else { return };
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let maven = folder.path().join("mvn");
    std::fs::write(&maven, "#!/bin/sh\necho '[ERROR] Network is unreachable'\nexit 1\n").unwrap();
    std::fs::set_permissions(&maven, std::fs::Permissions::from_mode(0o755)).unwrap();
    let rest = path_without("mvn");
    let path = std::env::join_paths(std::iter::once(folder.path().to_owned()).chain(std::env::split_paths(&rest)));
    let path = path.unwrap();
    let output = run(folder.path())
        .env("JAVA_HOME", java)
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
    let Some(java) = java() else { return };
    let folder = tempfile::tempdir().unwrap();
    let libs = folder.path().join("kafka/libs");
    std::fs::create_dir_all(&libs).unwrap();
    std::fs::write(libs.join("kafka_2.13-4.1.0.jar"), "no jar").unwrap();
    let output = run(folder.path())
        .env("JAVA_HOME", java)
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

/// SIGKILL at random moments of a run: no JVM, no reader and no folder of data is left.
#[tokio::test]
async fn harness_that_is_killed_leaves_nothing_behind() {
    let _turn = Turn::one();
    if kit().await.is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let scratch = folder.path().join("scratch");
    std::fs::create_dir(&scratch).unwrap();
    let living = || children(&scratch);
    let (mut with_broker, mut with_reader) = (0, 0);
    for _ in 0..KILLS {
        let mut harness = run(folder.path())
            .env("TMPDIR", &scratch)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let is_broker = |line: &String| line.contains("kafka.Kafka");
        // The moment counts from the first broker's start, which a loaded machine delays.
        assert!(within(SOON, || living().iter().any(is_broker)), "no broker was started");
        let later = moment(LONGEST);
        within(later, || harness.try_wait().unwrap().is_some());
        with_broker += u32::from(living().iter().any(is_broker));
        with_reader += u32::from(living().iter().any(|line| line.contains("reader reference-table")));
        harness.kill().unwrap();
        harness.wait().unwrap();
        assert!(
            within(Duration::from_secs(2), || living().is_empty()),
            "killed after {later:?}: {:?} are left",
            living()
        );
        let empty = || std::fs::read_dir(&scratch).unwrap().next().is_none();
        assert!(
            within(Duration::from_secs(5), empty),
            "killed after {later:?}: a folder is left"
        );
    }
    // Otherwise it has shown nothing.
    assert!(with_broker >= KILLS / 4, "only {with_broker} kills met a broker");
    assert!(with_reader >= KILLS / 8, "only {with_reader} kills met a reader");
}

/// How often the harness is killed here; with those in containers and on Toxiproxy 50 times.
const KILLS: u32 = 25;

/// A run on a quiet machine takes 5 s.
const LONGEST: Duration = Duration::from_secs(6);
