//! The same scenarios on the mock cluster and in containers: verdicts and exceptions agree.

use std::collections::BTreeMap;

use brokerfall_report::history::Grade;
use brokerfall_report::verdict::Verdict;
use brokerfall_tests::parity::{report, told};

use super::{engine, program};

/// A broker is killed and one is paused: what containers do in their own way. The link does the rest as everywhere.
const SCENARIOS: [&str; 5] = [
    "broker-kill/live",
    "broker-kill/catch-up",
    "broker-pause/live",
    "incidents/ktables-broker-kill",
    "incidents/sarama-consume-once",
];

/// One reader of each kind, and one that is known to fail.
const READERS: [&str; 4] = [
    "reference-table",
    "reference-group",
    "reference-assign",
    "teaching-consume-once",
];

/// Not every reader suits every scenario.
const RUNS: usize = 12;

/// A machine that starves the harness voids runs; these are tried again.
const TRIES: u32 = 3;

/// What is told of each scenario and reader, and why.
fn all(cluster: &str) -> BTreeMap<(String, String), (String, String)> {
    let mut cells = BTreeMap::new();
    for _ in 0..TRIES {
        let out = tempfile::tempdir().unwrap();
        for run in report(program(), cluster, "quick", &SCENARIOS, &READERS, out.path()).runs {
            assert!(
                run.cluster.kind == cluster,
                "{} ran on {}",
                run.scenario,
                run.cluster.kind
            );
            if cluster == "container" {
                // The broker's own word, and not the image's name.
                let version = run.cluster.kafka.as_str();
                assert!(version.starts_with(|first: char| first.is_ascii_digit()), "{version}");
            }
            if run.verdict != Verdict::Void {
                cells.insert(
                    (run.scenario.clone(), run.reader.name.clone()),
                    (told(&run), run.cause.to_string()),
                );
            }
        }
        if cells.len() == RUNS {
            break;
        }
    }
    cells
}

#[tokio::test]
async fn bundled_readers_end_in_containers_as_they_do_on_the_mock() {
    if engine().await.is_none() {
        return;
    }
    let (mock, container) = (all("mock"), all("container"));
    let mut wrong = Vec::new();
    for (cell, (on_mock, why_on_mock)) in &mock {
        match container.get(cell) {
            Some((in_container, _)) if in_container == on_mock => {}
            Some((in_container, why)) => wrong.push(format!(
                "{cell:?}: mock {on_mock} ({why_on_mock}); container {in_container} ({why})"
            )),
            None => wrong.push(format!("{cell:?} was not judged in containers")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(mock.len(), RUNS, "{:?}", mock.keys());
}

#[tokio::test]
async fn readers_come_through_a_broker_off_the_network() {
    if engine().await.is_none() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let scenarios = ["broker-kill/isolated-leader"];
    let runs = report(program(), "container", "full", &scenarios, &READERS[..3], out.path()).runs;
    assert_eq!(runs.len(), 3);
    for run in runs {
        assert_eq!(run.verdict, Verdict::Passed, "{}: {}", run.reader.name, run.cause);
        let evidence = run.evidence.iter().find(|one| one.kind == "isolate-broker").unwrap();
        let proofs: Vec<&str> = evidence.proofs.iter().map(|proof| proof.text.as_str()).collect();
        assert_eq!(evidence.reached, Some(Grade::Felt), "{proofs:?}");
        assert!(
            proofs[0].contains("runs and is on no network") && proofs[0].contains("refuses connections"),
            "{proofs:?}"
        );
        let healed = evidence.heal.as_deref().unwrap();
        assert!(healed.contains("[1, 2, 3] name each other"), "{healed}");
    }
}
