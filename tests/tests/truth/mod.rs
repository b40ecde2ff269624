//! The harness against what was measured by hand: the real binary runs the rows of a file, and its reports and histories
//! must say the same. A difference is a false alarm or a missed death of ours. Which file, and on which cluster, is the
//! suites' to say.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use brokerfall_report::exception::{Exception, Origin};
use brokerfall_report::history::{Entry, Event, Grade, Stage};
use brokerfall_report::protocol::ReaderEvent;
use brokerfall_report::report::{Report, RunReport};
use brokerfall_report::verdict::{Verdict, VoidWhose};
use serde::Deserialize;

/// Tries of a row that the machine starves.
const TRIES: u32 = 3;

/// A file of rows.
#[derive(Debug, Deserialize)]
pub(crate) struct Truth {
    pub(crate) row: Vec<Row>,
}

/// What the rows are run on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct On<'a> {
    /// As `--cluster` takes it.
    pub(crate) cluster: &'static str,
    /// Runs at a time.
    pub(crate) jobs: &'static str,
    /// Where environments of readers are kept.
    pub(crate) cache: &'a Path,
}

/// One measurement; the file explains the keys.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Row {
    scenario: String,
    pub(crate) reader: String,
    client: Option<String>,
    #[serde(rename = "by-hand", alias = "from-source")]
    #[expect(dead_code, reason = "for people")]
    known_from: String,
    within: Option<String>,
    verdict: String,
    #[serde(default)]
    violated: BTreeSet<String>,
    fatal: Vec<String>,
    start: Option<String>,
    status: Option<String>,
    barrier: Option<bool>,
    cure: Option<String>,
    #[expect(dead_code, reason = "for people")]
    notes: Option<String>,
}

/// What a history shows of the patient before any cure, beyond what the report says.
#[derive(Debug, Default)]
struct Shown {
    status: Option<String>,
    barrier: Option<bool>,
    start: Option<String>,
}

impl Shown {
    fn read(history: &Path) -> Shown {
        let mut shown = Shown::default();
        let (mut started, mut barrier) = (None, None);
        for line in std::fs::read_to_string(history).unwrap().lines() {
            match serde_json::from_str::<Entry>(line).unwrap().event {
                Event::Stage(Stage::Diagnosing | Stage::Stopping) => break,
                Event::Asked { id, command, .. } if command == "start" => started = Some(id),
                Event::Asked { id, command, .. } if command == "barrier" => barrier = Some(id),
                Event::Reader { event, .. } => match event {
                    ReaderEvent::Status { state, .. } => shown.status = Some(state),
                    ReaderEvent::Done(done) if Some(done.id) == started => {
                        shown.start = done.error.as_ref().map(chain);
                    }
                    ReaderEvent::Done(done) if Some(done.id) == barrier => shown.barrier = done.reached,
                    _ => {}
                },
                _ => {}
            }
        }
        shown
    }
}

/// Types alone, from the outermost to the innermost.
fn chain(exception: &Exception) -> String {
    let types: Vec<_> = exception.preorder().iter().map(|one| one.type_name.clone()).collect();
    types.join(" <- ")
}

/// The scenario of the tests' own, or the bundled one, or one of the same steps with the row's own recovery window.
fn scenario(row: &Row, folder: &Path) -> String {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("data/{}.toml", row.scenario));
    if own.exists() {
        return own.to_str().unwrap().to_owned();
    }
    let Some(within) = &row.within else {
        return row.scenario.clone();
    };
    let bundled = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../scenarios/{}.toml", row.scenario));
    let mut text = std::fs::read_to_string(bundled).unwrap();
    assert!(
        !text.contains("[expect]"),
        "{} has expectations of its own",
        row.scenario
    );
    text.push_str(&format!("\n[expect]\nwithin = \"{within}\"\n"));
    let path = folder.join(format!("{}.toml", row.scenario.replace('/', "-")));
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Runs the rows of one reader and returns what differs from them. A run that the machine starved says nothing, so its row
/// is run again.
fn differences(rows: &[&Row], on: On<'_>) -> Vec<String> {
    let mut differences = Vec::new();
    let mut left = rows.to_vec();
    for _ in 0..TRIES {
        let starved = run(&left, on, &mut differences);
        if starved.is_empty() {
            return differences;
        }
        left = starved;
    }
    let names = left.iter().map(|row| format!("{}, {}", row.reader, row.scenario));
    differences.extend(names.map(|name| format!("{name}: the machine starved each of {TRIES} runs")));
    differences
}

/// Runs rows once, adds what differs, and returns those that the machine starved.
fn run<'a>(rows: &[&'a Row], on: On<'_>, differences: &mut Vec<String>) -> Vec<&'a Row> {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let scenarios: Vec<String> = rows.iter().map(|row| scenario(row, folder.path())).collect();
    let reader = &rows[0].reader;
    let ran = Command::new(env!("CARGO_BIN_EXE_brokerfall-under-test"))
        .arg("run")
        .args(&scenarios)
        .args(["--reader", reader, "--cluster", on.cluster, "--jobs", on.jobs])
        .args(["--keep", "all", "--out"])
        .arg(&out)
        .env("BROKERFALL_CACHE", on.cache)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    let folders = std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path());
    let [run_folder] = &folders.filter(|path| path.is_dir()).collect::<Vec<_>>()[..] else {
        panic!("one folder in {}: {said}", out.display());
    };
    let report: Report =
        serde_json::from_str(&std::fs::read_to_string(run_folder.join("report.json")).unwrap()).unwrap();

    let (mut starved, mut found) = (Vec::new(), Vec::new());
    for (row, scenario) in rows.iter().zip(&scenarios) {
        let Some(run) = report.runs.iter().find(|run| run.scenario == *scenario) else {
            found.push(format!("{reader}: {scenario} was not run"));
            continue;
        };
        if run.voids.iter().any(|void| void.whose == VoidWhose::Machine) {
            starved.push(*row);
            continue;
        }
        let compared = compare(row, run, &run_folder.join(run.artifacts.as_ref().unwrap()));
        found.extend(
            compared
                .into_iter()
                .map(|text| format!("{reader}, {}: {text}", row.scenario)),
        );
    }
    let fails = rows.iter().any(|row| row.verdict == "failed");
    if starved.is_empty() && ran.status.code() != Some(if fails { 10 } else { 0 }) {
        found.push(format!("{reader}: exit {:?}", ran.status.code()));
    }
    if !found.is_empty() {
        found.push(said.into_owned());
    }
    differences.extend(found);
    starved
}

fn compare(row: &Row, run: &RunReport, artifacts: &Path) -> Vec<String> {
    let mut differences = Vec::new();
    let mut same = |what: &str, found: String, wanted: String| {
        if found != wanted {
            differences.push(format!("{what} is {found}, measured {wanted}"));
        }
    };
    same("verdict", run.verdict.name().to_owned(), row.verdict.clone());
    let found: BTreeSet<String> = run
        .violations
        .iter()
        .map(|violation| violation.invariant.clone())
        .collect();
    // A teaching reader may violate more than what its incident is known by.
    if run.verdict == Verdict::KnownFailing {
        same(
            "violated beside others",
            format!("{:?}", &found & &row.violated),
            format!("{:?}", row.violated),
        );
    } else {
        same("violated", format!("{found:?}"), format!("{:?}", row.violated));
    }
    let reached = run
        .exceptions
        .iter()
        .filter(|seen| seen.fatal && seen.origin != Origin::Log);
    let fatal: Vec<_> = reached.map(|seen| chain(&seen.exception)).collect();
    same("fatal", format!("{fatal:?}"), format!("{:?}", row.fatal));
    if let Some(client) = &row.client {
        same("client", run.reader.client.clone(), client.clone());
    }
    let shown = Shown::read(&artifacts.join("history.jsonl"));
    same("start", format!("{:?}", shown.start), format!("{:?}", row.start));
    if row.status.is_some() {
        same("status", format!("{:?}", shown.status), format!("{:?}", row.status));
    }
    if row.barrier.is_some() {
        same("barrier", format!("{:?}", shown.barrier), format!("{:?}", row.barrier));
    }
    if row.cure.is_some() {
        let cured = run.cures.iter().find(|cure| cure.worked);
        let cured = cured.map(|cure| format!("{:?}", cure.renewed).to_lowercase());
        same("cure", format!("{cured:?}"), format!("{:?}", row.cure));
    }
    // Neither an accusation nor an acquittal counts without its fault.
    same("faults", (!run.evidence.is_empty()).to_string(), true.to_string());
    for evidence in &run.evidence {
        let bit = evidence.reached >= Some(Grade::Delivered) && evidence.heal.is_some();
        same(
            &format!("evidence of {}", evidence.fault),
            bit.to_string(),
            true.to_string(),
        );
    }
    differences
}

/// Rows by reader, in the order of the file.
pub(crate) fn by_reader(rows: &[Row], of: impl Fn(&Row) -> bool) -> Vec<Vec<&Row>> {
    let mut readers: Vec<Vec<&Row>> = Vec::new();
    for row in rows.iter().filter(|row| of(row)) {
        match readers.iter_mut().find(|known| known[0].reader == row.reader) {
            Some(known) => known.push(row),
            None => readers.push(vec![row]),
        }
    }
    readers
}

/// Runs the readers, at the same time where several runs may be: most of a run is waiting.
pub(crate) fn assert_as_measured(readers: &[Vec<&Row>], on: On<'_>) {
    let differences: Vec<String> = std::thread::scope(|scope| {
        let running: Vec<_> = readers
            .iter()
            .map(|rows| scope.spawn(|| differences(rows, on)))
            .collect();
        running.into_iter().flat_map(|one| one.join().unwrap()).collect()
    });
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Those of the rows that can be run here.
pub(crate) fn ktables_rows<'a>(truth: &'a Truth, cache: &Path) -> Vec<Vec<&'a Row>> {
    let mut readers = by_reader(&truth.row, |row| row.reader.starts_with("ktables@"));
    readers.retain(|rows| {
        let version = rows[0].reader.trim_start_matches("ktables@");
        brokerfall_tests::ktables(version, &[], None, cache).is_some()
    });
    readers
}
