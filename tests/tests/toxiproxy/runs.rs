//! The same scenarios on both links: the same verdicts, violations and exceptions, the same faults that hit the reader, one of
//! each kind felt, and cuts proven by what Toxiproxy tells of them.

use std::collections::{BTreeMap, BTreeSet};

use brokerfall_report::exception::Origin;
use brokerfall_report::history::Grade;
use brokerfall_report::report::RunReport;
use brokerfall_report::verdict::Verdict;

use super::{report, run, toxiproxy};

/// Every mode that Toxiproxy has, and brokers that die under it.
const SCENARIOS: [&str; 13] = [
    "broker-kill/coordinator",
    "broker-kill/leader-of-three",
    "broker-kill/live",
    "broker-kill/start",
    "broker-pause/live",
    "partition/delay-live",
    "partition/hold-live",
    "partition/hold-one-way",
    "partition/hold-reset",
    "partition/refuse-live",
    "partition/reset-live",
    "partition/reset-start",
    "partition/throttle-live",
];

/// Runs that the machine starves are tried again.
const TRIES: u32 = 3;

/// Scenario and reader.
type Cell = (String, String);

fn all(link: &str) -> BTreeMap<Cell, RunReport> {
    let mut cells: BTreeMap<Cell, RunReport> = BTreeMap::new();
    for round in 0..TRIES {
        let open: BTreeSet<Cell> = cells
            .iter()
            .filter(|(_, run)| run.verdict == Verdict::Void)
            .map(|(cell, _)| cell.clone())
            .collect();
        let mut words: Vec<&str> = if round == 0 {
            SCENARIOS.to_vec()
        } else {
            open.iter().map(|(scenario, _)| scenario.as_str()).collect()
        };
        words.dedup();
        if words.is_empty() {
            break;
        }
        words.extend(["--reader", "bundled", "--link", link, "--jobs", "4"]);
        let out = tempfile::tempdir().unwrap();
        let output = run(out.path(), &words).output().unwrap();
        for run in report(out.path(), &output).runs {
            let cell = (run.scenario.clone(), run.reader.name.clone());
            if round == 0 || open.contains(&cell) {
                cells.insert(cell, run);
            }
        }
    }
    cells
}

/// What is compared: the verdict, what was violated, the types of what the reader raised to its caller, and whether each
/// fault hit it. Whether it was felt hangs on moments for faults that a reader hardly notices, and is asked of each scenario.
fn told(run: &RunReport) -> String {
    let violated: BTreeSet<&str> = run.violations.iter().map(|one| one.invariant.as_str()).collect();
    let types: BTreeSet<&str> = run
        .exceptions
        .iter()
        .filter(|seen| seen.fatal && seen.origin != Origin::Log)
        .map(|seen| seen.exception.type_name.as_str())
        .collect();
    let grades: Vec<String> = run
        .evidence
        .iter()
        .map(|one| format!("{} hit: {}", one.fault, one.reached >= Some(Grade::Delivered)))
        .collect();
    format!(
        "{}; violated {violated:?}; raised {types:?}; {}",
        run.verdict.name(),
        grades.join(", ")
    )
}

#[test]
fn bundled_readers_end_on_toxiproxy_as_they_do_on_the_builtin_link() {
    if toxiproxy().is_none() {
        return;
    }
    let (builtin, toxiproxy) = (all("builtin"), all("toxiproxy"));
    let mut wrong = Vec::new();
    let mut felt: BTreeSet<&str> = BTreeSet::new();
    for (cell, on_builtin) in &builtin {
        let Some(on_toxiproxy) = toxiproxy.get(cell) else {
            wrong.push(format!("{cell:?} was not run on Toxiproxy"));
            continue;
        };
        assert_eq!(on_builtin.link, "builtin");
        assert_eq!(on_toxiproxy.link, "toxiproxy 2.12.0");
        let (one, other) = (told(on_builtin), told(on_toxiproxy));
        if one != other {
            let (why, otherwise) = (&on_builtin.cause, &on_toxiproxy.cause);
            wrong.push(format!(
                "{cell:?}: builtin {one} ({why}); Toxiproxy {other} ({otherwise})"
            ));
        }
        for evidence in &on_toxiproxy.evidence {
            if evidence.reached == Some(Grade::Felt) {
                felt.extend(SCENARIOS.into_iter().find(|scenario| cell.0.starts_with(scenario)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(
        felt,
        BTreeSet::from(SCENARIOS),
        "a fault of each scenario was felt by a reader"
    );
    assert!(builtin.len() >= 36, "only {} runs were compared", builtin.len());
}

#[test]
fn cut_is_proven_in_the_history_by_what_toxiproxy_tells() {
    if toxiproxy().is_none() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let words = [
        "partition/hold-live",
        "--reader",
        "reference-assign",
        "--link",
        "toxiproxy",
        "--keep",
        "all",
    ];
    let output = run(out.path(), &words).output().unwrap();
    let report = report(out.path(), &output);
    let only = &report.runs[0];
    assert_eq!(only.verdict, Verdict::Passed, "{}", only.cause);
    assert!(only.reproduce.contains("--link toxiproxy"), "{}", only.reproduce);
    let folder = std::fs::read_dir(out.path()).unwrap().find_map(|entry| {
        let history = entry.ok()?.path().join(only.artifacts.as_ref()?).join("history.jsonl");
        history.is_file().then_some(history)
    });
    let history = std::fs::read_to_string(folder.unwrap()).unwrap();
    for words in [
        "Toxiproxy 2.12.0 tells that broker-1 is enabled, with bandwidth_upstream (rate 0) and bandwidth_downstream (rate 0)",
        r#""link":"toxiproxy 2.12.0""#,
        r#""change":"held""#,
    ] {
        assert!(history.contains(words), "{words}\n{history}");
    }
}

#[test]
fn what_toxiproxy_cannot_do_is_skipped_by_name_before_the_run() {
    let out = tempfile::tempdir().unwrap();
    let words = [
        "partition/cut-live",
        "partition/unanswered-live",
        "--reader",
        "reference-assign",
        "--link",
        "toxiproxy",
    ];
    let output = run(out.path(), &words).output().unwrap();
    let report = report(out.path(), &output);
    let skips: Vec<String> = report
        .runs
        .iter()
        .map(|run| {
            let skip = run
                .skipped
                .as_ref()
                .unwrap_or_else(|| panic!("{} was not skipped", run.scenario));
            format!("{}: {} ({})", run.scenario, skip.reason, skip.enable)
        })
        .collect();
    let skips = skips.join("\n");
    assert_eq!(report.runs.len(), 2, "{skips}");
    for words in [
        "knows no response",
        "never leaves it unanswered",
        "run with --link builtin",
    ] {
        assert!(skips.contains(words), "{skips}");
    }
}
