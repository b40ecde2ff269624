//! The same scenarios on the mock cluster and on Kafka: verdicts and exceptions agree, and what differs is written down.

use std::collections::{BTreeMap, BTreeSet};

use brokerfall_report::report::RunReport;
use brokerfall_report::verdict::Verdict;
use brokerfall_tests::parity::{report, told};
use serde::Deserialize;

use super::{kit, program};

/// What may differ, with its reason.
const DIFFERENCES: &str = include_str!("../../data/parity.toml");

/// Runs that the machine starves are tried again.
const TRIES: u32 = 3;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Differences {
    #[serde(default)]
    difference: Vec<Difference>,
}

/// One known difference between the clusters.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Difference {
    scenario: String,
    reader: String,
    mock: String,
    process: String,
    #[expect(dead_code, reason = "for people")]
    reason: String,
}

/// Scenario and reader.
type Cell = (String, String);

/// Every run of a tag's scenarios with the bundled readers on a cluster. A machine that starves the harness voids runs; these
/// are tried again.
fn all(cluster: &str, tag: &str) -> BTreeMap<Cell, RunReport> {
    let mut cells: BTreeMap<Cell, RunReport> = BTreeMap::new();
    for round in 0..TRIES {
        let open: BTreeSet<Cell> = cells
            .iter()
            .filter(|(_, run)| run.verdict == Verdict::Void)
            .map(|(cell, _)| cell.clone())
            .collect();
        let (scenarios, readers): (Vec<&str>, Vec<&str>) = if round == 0 {
            (Vec::new(), vec!["bundled"])
        } else {
            let scenarios: BTreeSet<&str> = open.iter().map(|(scenario, _)| scenario.as_str()).collect();
            let readers: BTreeSet<&str> = open.iter().map(|(_, reader)| reader.as_str()).collect();
            (scenarios.into_iter().collect(), readers.into_iter().collect())
        };
        if round > 0 && open.is_empty() {
            break;
        }
        let out = tempfile::tempdir().unwrap();
        for run in report(program(), cluster, tag, &scenarios, &readers, out.path()).runs {
            let cell = (run.scenario.clone(), run.reader.name.clone());
            if round == 0 || open.contains(&cell) {
                cells.insert(cell, run);
            }
        }
    }
    cells
}

#[tokio::test]
async fn quick_catalogue_ends_on_kafka_as_it_does_on_the_mock() {
    agree("quick", 110).await;
}

#[tokio::test]
#[ignore = "takes most of an hour: `just parity`"]
async fn full_catalogue_ends_on_kafka_as_it_does_on_the_mock() {
    agree("full", 350).await;
}

/// Runs the scenarios of a tag on both clusters and compares; at least so many runs must be comparable.
async fn agree(tag: &str, at_least: usize) {
    if kit().await.is_none() {
        return;
    }
    let known: Differences = toml::from_str(DIFFERENCES).unwrap();
    let (mock, process) = (all("mock", tag), all("process", tag));
    let mut wrong = Vec::new();
    let mut compared = 0;
    // An entry about a run that this tag does not have is another tag's.
    let mut stale: BTreeSet<Cell> = known
        .difference
        .iter()
        .map(|one| (one.scenario.clone(), one.reader.clone()))
        .filter(|cell| tag == "full" || mock.contains_key(cell))
        .collect();
    for (cell, on_kafka) in &process {
        assert_eq!(on_kafka.cluster.kind, "process");
        assert_eq!(on_kafka.cluster.kafka, brokerfall::cluster::process::KAFKA);
        // What the mock cannot serve is judged by what the scenario expects, and no unexpected end is let pass.
        if mock.get(cell).is_none_or(|on_mock| on_mock.verdict == Verdict::Skipped)
            && !matches!(
                on_kafka.verdict,
                Verdict::Passed | Verdict::KnownFailing | Verdict::Skipped
            )
        {
            wrong.push(format!("{cell:?}: Kafka {} ({})", told(on_kafka), on_kafka.cause));
        }
    }
    for (cell, on_mock) in &mock {
        if on_mock.verdict == Verdict::Skipped {
            continue;
        }
        let Some(on_kafka) = process.get(cell) else {
            wrong.push(format!("{cell:?} was not run on Kafka"));
            continue;
        };
        compared += 1;
        let (mock, kafka) = (told(on_mock), told(on_kafka));
        let listed = known
            .difference
            .iter()
            .find(|one| (&one.scenario, &one.reader) == (&cell.0, &cell.1));
        match listed {
            Some(one) if (&one.mock, &one.process) == (&mock, &kafka) => {
                stale.remove(cell);
            }
            Some(_) => wrong.push(format!(
                "{cell:?} differs otherwise: mock {mock}; Kafka {kafka}: {}",
                on_kafka.cause
            )),
            None if mock != kafka => {
                wrong.push(format!(
                    "{cell:?}: mock {mock} ({}); Kafka {kafka} ({})",
                    on_mock.cause, on_kafka.cause
                ));
            }
            None => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(stale.is_empty(), "listed in parity.toml and not so: {stale:?}");
    assert!(compared >= at_least, "only {compared} runs were compared");
}
