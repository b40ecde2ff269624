//! Every invariant is violated by its mutant and by no correct reader, through the program as users run it.
//!
//! `data/mutants.toml` says what must be violated where, and why. The mutants and the references run in two invocations
//! of the whole harness, of which every test here reads the reports.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Output};
use std::sync::LazyLock;

use brokerfall::invariant;
use brokerfall_report::report::{Report, RunReport};
use brokerfall_report::verdict::{Outcome, Verdict};
use brokerfall_tests::mutants::MUTANTS;

/// A row of the table.
#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Row {
    name: String,
    kind: String,
    /// The correct reader that passes where the mutant fails; `reference-` and the kind by default.
    #[serde(default)]
    reference: Option<String>,
    scenario: String,
    violated: BTreeSet<String>,
    #[serde(default)]
    may_violate: BTreeSet<String>,
    #[serde(default)]
    endpoint: bool,
    #[serde(default)]
    cured_by: Option<String>,
    why: String,
}

#[derive(serde::Deserialize)]
struct Table {
    mutant: Vec<Row>,
}

static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| {
    let text = include_str!("../../data/mutants.toml");
    let table: Table = toml::from_str(text).expect("the table is well formed");
    table.mutant
});

/// What one invocation left: how it ended, and its report.
struct Suite {
    output: Output,
    report: Report,
}

impl Suite {
    fn run(&self, reader: &str, scenario: &str) -> &RunReport {
        self.report
            .runs
            .iter()
            .find(|run| run.reader.name == reader && run.scenario == scenario)
            .unwrap_or_else(|| panic!("no run of {reader} in {scenario}\n{}", self.text()))
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned() + &String::from_utf8_lossy(&self.output.stderr)
    }
}

/// All mutants, each in its scenario.
static MUTANTS_RUN: LazyLock<Suite> = LazyLock::new(|| {
    let readers = ROWS.iter().map(|row| {
        // Dead mutants are judged after 5 s; a stop that never returns is given 2 s.
        let claim = match row.endpoint {
            true => "[[claim]]\nname = \"readiness\"\nhttp = \"http://127.0.0.1:{port}/ready\"\nevery = \"500ms\"\n",
            false => "",
        };
        let manifest = format!(
            "name = {:?}\nkinds = [{:?}]\ncommand = [{:?}, {:?}]\nscenarios = [{:?}]\n\n[limits]\nwithin = \"5s\"\n\
             stop-grace = \"2s\"\n{claim}",
            row.name,
            row.kind,
            env!("CARGO_BIN_EXE_mutant"),
            row.name,
            row.scenario
        );
        (row.name.clone(), manifest)
    });
    run(readers.collect())
});

impl Row {
    fn reference(&self) -> String {
        self.reference
            .clone()
            .unwrap_or_else(|| format!("reference-{}", self.kind))
    }
}

/// Each reference in every scenario that a mutant of it has, with its own limits.
static REFERENCES_RUN: LazyLock<Suite> = LazyLock::new(|| {
    // One after the other: a harness that is starved of its cores calls its runs void.
    LazyLock::force(&MUTANTS_RUN);
    let mut scenarios: BTreeMap<(String, &str), BTreeSet<&str>> = BTreeMap::new();
    for row in ROWS.iter() {
        let reference = (row.reference(), row.kind.as_str());
        scenarios.entry(reference).or_default().insert(&row.scenario);
    }
    let readers = scenarios.into_iter().map(|((name, kind), scenarios)| {
        let scenarios = Vec::from_iter(scenarios);
        let manifest = format!(
            "name = {name:?}\nkinds = [{kind:?}]\ncommand = [\"{{program}}\", \"reader\", {name:?}]\n\
             scenarios = {scenarios:?}\n\n[limits]\nwithin = \"20s\"\n"
        );
        (name, manifest)
    });
    run(readers.collect())
});

/// Runs these readers, by name and manifest, each in the scenarios that its manifest names.
fn run(readers: Vec<(String, String)>) -> Suite {
    let place = tempfile::tempdir().expect("a temporary folder can be made");
    let (manifests, out) = (place.path().join("readers"), place.path().join("out"));
    std::fs::create_dir(&manifests).expect("the folder is new");
    let mut command = Command::new(env!("CARGO_BIN_EXE_brokerfall-under-test"));
    command.arg("run");
    command.args(ROWS.iter().map(|row| &row.scenario).collect::<BTreeSet<_>>());
    for (name, manifest) in &readers {
        std::fs::write(manifests.join(format!("{name}.toml")), manifest).expect("the folder can be written");
        command.args(["--reader", name]);
    }
    command.args(["--expected", "data/expected"]);
    command.arg("--readers-dir").arg(&manifests).arg("--out").arg(&out);
    let output = command.args(["--jobs", "4"]).output().expect("the program starts");
    let report = brokerfall_tests::only_report(&out).unwrap_or_else(|| {
        let (stdout, stderr) = (&output.stdout, &output.stderr);
        panic!(
            "no report\n{}{}",
            String::from_utf8_lossy(stdout),
            String::from_utf8_lossy(stderr)
        )
    });
    Suite { output, report }
}

fn violated(run: &RunReport) -> BTreeMap<&str, &str> {
    let findings = run.findings.iter();
    findings
        .filter_map(|finding| match &finding.outcome {
            Outcome::Violated { text, .. } => Some((finding.invariant.as_str(), text.as_str())),
            _ => None,
        })
        .collect()
}

fn outcome<'a>(run: &'a RunReport, invariant: &str) -> Option<&'a Outcome> {
    let finding = run.findings.iter().find(|finding| finding.invariant == invariant)?;
    Some(&finding.outcome)
}

#[test]
fn every_mutant_violates_what_its_row_says_and_nothing_else() {
    let suite = &*MUTANTS_RUN;
    let mut wrong = Vec::new();
    for row in ROWS.iter() {
        let run = suite.run(&row.name, &row.scenario);
        let seen = violated(run);
        let missed: Vec<_> = row
            .violated
            .iter()
            .filter(|id| !seen.contains_key(id.as_str()))
            .collect();
        let more: Vec<_> = seen
            .iter()
            .filter(|(id, _)| !row.violated.contains(**id) && !row.may_violate.contains(**id))
            .collect();
        if !missed.is_empty() || !more.is_empty() || run.verdict != Verdict::Failed {
            let verdict = run.verdict.name();
            wrong.push(format!(
                "{} in {}: {verdict} ({}); missed {missed:?}; violated too {more:?}\n    expected because {}",
                row.name, row.scenario, run.cause, row.why
            ));
        }
    }
    assert!(wrong.is_empty(), "{}\n\n{}", wrong.join("\n"), suite.text());
    assert_eq!(suite.output.status.code(), Some(10), "{}", suite.text());
}

#[test]
fn correct_readers_pass_where_mutants_fail_and_hold_what_those_violate() {
    let suite = &*REFERENCES_RUN;
    for row in ROWS.iter() {
        let run = suite.run(&row.reference(), &row.scenario);
        assert_eq!(run.verdict, Verdict::Passed, "{}: {}", row.scenario, run.cause);
        for id in &row.violated {
            let outcome = outcome(run, id);
            assert!(
                matches!(outcome, Some(Outcome::Held { .. })),
                "{id} in {}: {outcome:?}",
                row.scenario
            );
        }
    }
    assert_eq!(suite.output.status.code(), Some(0), "{}", suite.text());
}

#[test]
fn green_endpoint_is_what_is_told_of_a_reader_that_is_honest_itself() {
    let row = ROWS.iter().find(|row| row.endpoint).expect("a mutant has an endpoint");
    let run = MUTANTS_RUN.run(&row.name, &row.scenario);
    let text = violated(run)["status_honest"];
    assert!(text.contains("healthy by the claim `readiness`"), "{text}");
    let at_the_end = "at the end readiness healthy (status 200) (truth: ";
    assert!(
        run.columns.claimed.iter().any(|line| line.text.contains(at_the_end)),
        "{:?}",
        run.columns.claimed
    );
    let signal = run.signals.iter().find(|signal| signal.signal == "claim readiness");
    assert_eq!(signal.map(|signal| signal.told_s), Some(None), "it never told");
}

#[test]
fn restart_cures_says_object_process_or_neither() {
    let mut found = BTreeSet::new();
    for row in ROWS.iter() {
        let Some(wanted) = &row.cured_by else { continue };
        let run = MUTANTS_RUN.run(&row.name, &row.scenario);
        let outcome = outcome(run, "restart_cures");
        assert!(
            matches!(outcome, Some(Outcome::Held { text }) if text == wanted),
            "{} is cured by {wanted}: {outcome:?}",
            row.name
        );
        found.insert(wanted.as_str());
    }
    assert_eq!(found, BTreeSet::from(["object", "process", "cluster"]));
}

#[test]
fn table_proves_every_invariant_and_names_every_mutant_once() {
    let named: Vec<_> = ROWS.iter().map(|row| (row.name.as_str(), row.kind.as_str())).collect();
    let built: Vec<_> = MUTANTS.iter().map(|(name, kind, _)| (*name, kind.name())).collect();
    assert_eq!(named, built);
    let judged: BTreeSet<_> = invariant::ALL
        .iter()
        .filter(|one| !one.is_diagnosis)
        .map(|one| one.id)
        .collect();
    let proven: BTreeSet<_> = ROWS.iter().flat_map(|row| &row.violated).map(String::as_str).collect();
    assert_eq!(proven, judged);
    let alone: BTreeSet<_> = ROWS
        .iter()
        .filter(|row| row.violated.len() == 1 && row.may_violate.is_empty())
        .flat_map(|row| &row.violated)
        .map(String::as_str)
        .collect();
    assert_eq!(alone, judged, "each invariant has a mutant that it alone catches");
}
