//! Faults of cluster, topic and group, through the program as users run it: each is felt by the reference readers, which
//! come back; and where it silently does nothing, its evidence is refused and the run is void.

use std::process::Command;
use std::sync::LazyLock;

use brokerfall_report::report::{Report, RunReport};
use brokerfall_report::verdict::Verdict;

const READERS: [&str; 3] = ["reference-table", "reference-group", "reference-assign"];

/// Name and what follows format and title. Every fault here has to be felt.
const FELT: [(&str, &str); 10] = [
    (
        "leader-moves-twice",
        r#"
        cluster = { brokers = 3 }
        load = { rate = "50/s" }
        [[topic]]
        name = "orders"
        partitions = 2
        preload = { records = 50 }
        [[step]]
        name = "first"
        when = { caught-up = true }
        do = { move-leader = { partition = 0, to = 2 } }
        grade = "felt"
        [[step]]
        name = "second"
        after = "500ms"
        do = { move-leader = { partition = 0, to = 3 } }
        grade = "felt"
        "#,
    ),
    (
        "leader-and-coordinator-move-at-once",
        r#"
        cluster = { brokers = 3, offsets-on = 2 }
        reader = { kind = "group" }
        load = { rate = "50/s" }
        [[topic]]
        name = "orders"
        brokers = [1, 2]
        preload = { records = 50 }
        [[step]]
        name = "coordinator"
        when = { caught-up = true }
        do = { move-coordinator = { to = 3 } }
        grade = "felt"
        [[step]]
        name = "leader"
        do = { move-leader = { to = 2 } }
        grade = "felt"
        "#,
    ),
    (
        "broker-gone-for-good",
        r#"
        cluster = { brokers = 3 }
        load = { rate = "50/s" }
        [[topic]]
        name = "orders"
        partitions = 3
        preload = { records = 50 }
        [[step]]
        name = "gone"
        when = { caught-up = true }
        do = { kill-broker = { broker = "leader", for-good = true } }
        grade = "felt"
        "#,
    ),
    (
        "brokers-restarted-in-turn",
        r#"
        cluster = { brokers = 3 }
        load = { rate = "50/s" }
        [[topic]]
        name = "orders"
        partitions = 3
        preload = { records = 50 }
        [[step]]
        name = "one"
        when = { caught-up = true }
        do = { kill-broker = { broker = 1 } }
        [[step]]
        after = "1s"
        heal = ["one"]
        [[step]]
        name = "two"
        do = { kill-broker = { broker = 2 } }
        [[step]]
        after = "1s"
        heal = ["two"]
        [[step]]
        name = "three"
        do = { kill-broker = { broker = 3 } }
        [[step]]
        after = "1s"
        heal = ["three"]
        "#,
    ),
    (
        "no-broker-at-the-start",
        r#"
        phase = "start"
        [[topic]]
        name = "orders"
        preload = { records = 50 }
        [[step]]
        name = "absent"
        when = { before-start = true }
        do = { kill-broker = { broker = "all" } }
        [[step]]
        after = "3s"
        heal = ["absent"]
        "#,
    ),
    (
        "all-down-past-the-session",
        r#"
        cluster = { brokers = 3 }
        reader = { kind = "group", session = "6s" }
        [[topic]]
        name = "orders"
        partitions = 3
        preload = { records = 50 }
        [[step]]
        name = "dark"
        when = { caught-up = true }
        do = { kill-broker = { broker = "all" } }
        grade = "felt"
        [[step]]
        after = "8s"
        heal = ["dark"]
        "#,
    ),
    (
        "topic-grows",
        r#"
        reader = { kind = "group" }
        load = { rate = "50/s" }
        [[topic]]
        name = "orders"
        partitions = 2
        preload = { records = 50 }
        [[step]]
        name = "grown"
        when = { caught-up = true }
        do = { add-partitions = { to = 4 } }
        grade = "felt"
        "#,
    ),
    (
        "connections-reset-while-members-rebalance",
        r#"
        reader = { kind = "group", members = 2, session = "6s" }
        load = { rate = "50/s" }
        phase = "rebalance"
        [[topic]]
        name = "orders"
        partitions = 3
        preload = { records = 50 }
        [[step]]
        name = "third"
        when = { caught-up = true }
        do = "join-member"
        [[step]]
        name = "cut"
        when = { wire = { api = "JoinGroup" } }
        do = { partition = { mode = "reset" } }
        [[step]]
        after = "1s"
        heal = ["cut"]
        "#,
    ),
    (
        "join-broken-off-while-members-rebalance",
        r#"
        reader = { kind = "group", members = 2, session = "6s" }
        load = { rate = "50/s" }
        phase = "rebalance"
        [[topic]]
        name = "orders"
        partitions = 3
        preload = { records = 50 }
        [[step]]
        name = "third"
        when = { caught-up = true }
        do = "join-member"
        [[step]]
        name = "cut"
        when = { wire = { api = "JoinGroup" } }
        do = { partition = { mode = "cut", api = "JoinGroup", times = 2 } }
        [[step]]
        after = "1s"
        heal = ["cut"]
        "#,
    ),
    (
        "neutral-member-comes-and-goes",
        r#"
        reader = { kind = "group" }
        load = { rate = "50/s" }
        [[topic]]
        name = "orders"
        partitions = 2
        preload = { records = 50 }
        [[step]]
        name = "joined"
        when = { caught-up = true }
        do = { join-member = { reader = "neutral" } }
        [[step]]
        after = "7s"
        heal = ["joined"]
        "#,
    ),
];

/// Name, what follows format and title, and what the void must say.
const REFUSED: [(&str, &str, &str); 5] = [
    // The reader has closed, so no client of its own asks for Metadata any more.
    (
        "nobody-asks-for-the-partitions-that-were-added",
        r#"
        [[topic]]
        name = "orders"
        preload = { records = 50 }
        [[step]]
        when = { caught-up = true }
        do = "stop"
        [[step]]
        name = "grown"
        do = { add-partitions = { to = 3 } }
        "#,
        "`grown` stayed below the grade asked: wanted delivered, proven injected",
    ),
    (
        "leader-moves-to-itself",
        r#"
        cluster = { brokers = 3 }
        [[topic]]
        name = "orders"
        brokers = [2]
        preload = { records = 50 }
        [[step]]
        when = { caught-up = true }
        do = { move-leader = { to = 2 } }
        "#,
        "it is broker 2 already",
    ),
    (
        "coordinator-moves-to-itself",
        r#"
        cluster = { brokers = 3, offsets-on = 3 }
        reader = { kind = "group" }
        [[topic]]
        name = "orders"
        preload = { records = 50 }
        [[step]]
        when = { caught-up = true }
        do = { move-coordinator = { to = 3 } }
        "#,
        "it is broker 3 already",
    ),
    (
        "dead-broker-dies-again",
        r#"
        cluster = { brokers = 3 }
        [[topic]]
        name = "orders"
        preload = { records = 50 }
        [[step]]
        when = { caught-up = true }
        do = { kill-broker = { broker = 3, for-good = true } }
        grade = "injected"
        [[step]]
        name = "again"
        do = { kill-broker = { broker = 3 } }
        "#,
        "it was down before",
    ),
    (
        "sleeping-reader-misses-the-move",
        r#"
        cluster = { brokers = 3 }
        [[topic]]
        name = "orders"
        preload = { records = 50 }
        [[step]]
        name = "asleep"
        when = { caught-up = true }
        do = { pause-reader = {} }
        [[step]]
        name = "moved"
        do = { move-leader = {} }
        [[step]]
        after = "1s"
        heal = ["moved"]
        [[step]]
        heal = ["asleep"]
        "#,
        "`moved`",
    ),
];

/// The bundled stored table, for any scenario.
const STORED: &str = r#"
name = "stored"
kinds = ["table"]
command = ["{program}", "reader", "reference-table-stored"]
"#;

/// The stored table has read nothing yet, so there is nothing to be wiped.
const NOTHING_TO_WIPE: [(&str, &str, &str); 2] = [
    (
        "killed-with-an-empty-folder",
        r#"
        [[topic]]
        name = "orders"
        [[step]]
        name = "dead"
        when = { caught-up = true }
        do = { kill-reader = { state = "wipe" } }
        [[step]]
        heal = ["dead"]
        "#,
        "its folder holds nothing",
    ),
    (
        "rebuilt-with-an-empty-folder",
        r#"
        [[topic]]
        name = "orders"
        [[step]]
        name = "anew"
        when = { caught-up = true }
        do = { restart-reader = { state = "wipe" } }
        "#,
        "its folder holds nothing",
    ),
];

static SUITE: LazyLock<Report> = LazyLock::new(|| {
    let felt = FELT.iter().map(|(name, rest)| (*name, *rest));
    let refused = REFUSED.iter().map(|(name, rest, _)| (*name, *rest));
    let scenarios: Vec<_> = felt.chain(refused).collect();
    carry_out(&scenarios, &READERS, None)
});

/// Runs these scenarios, by name and what follows format and title, with these readers.
fn carry_out(scenarios: &[(&str, &str)], readers: &[&str], manifest: Option<&str>) -> Report {
    let place = tempfile::tempdir().expect("a temporary folder can be made");
    let (folder, out) = (place.path().join("scenarios"), place.path().join("out"));
    std::fs::create_dir(&folder).expect("the folder is new");
    let mut command = Command::new(env!("CARGO_BIN_EXE_brokerfall-under-test"));
    command.arg("run").current_dir(&folder);
    for (name, rest) in scenarios {
        let lines: Vec<&str> = rest.lines().map(str::trim).collect();
        let text = format!("# A test.\nformat = 1\ntitle = \"{name}\"\n{}", lines.join("\n"));
        std::fs::write(folder.join(format!("{name}.toml")), text).expect("the folder can be written");
        command.arg(format!("{name}.toml"));
    }
    for reader in readers {
        command.args(["--reader", reader]);
    }
    if let Some(manifest) = manifest {
        let manifests = place.path().join("readers");
        std::fs::create_dir(&manifests).expect("the folder is new");
        std::fs::write(manifests.join("reader.toml"), manifest).expect("the folder can be written");
        command.arg("--readers-dir").arg(manifests);
    }
    let output = command.arg("--out").arg(&out).args(["--jobs", "3"]).output();
    let output = output.expect("the program starts");
    brokerfall_tests::only_report(&out).unwrap_or_else(|| {
        let (stdout, stderr) = (&output.stdout, &output.stderr);
        panic!(
            "no report\n{}{}",
            String::from_utf8_lossy(stdout),
            String::from_utf8_lossy(stderr)
        )
    })
}

/// The runs of a scenario that took place.
fn runs(name: &str) -> Vec<&'static RunReport> {
    let runs = SUITE.runs.iter().filter(|run| run.title == name);
    runs.filter(|run| run.verdict != Verdict::Skipped).collect()
}

#[test]
fn every_fault_is_felt_or_delivered_as_asked_and_the_references_come_back() {
    for (name, _) in FELT {
        let runs = runs(name);
        assert!(!runs.is_empty(), "{name} was not run");
        for run in runs {
            let reader = &run.reader.name;
            assert_eq!(run.verdict, Verdict::Passed, "{name} {reader}: {}", run.cause);
            // A member that joined is healed too, and was never injected.
            for evidence in run.evidence.iter().filter(|evidence| !evidence.text.is_empty()) {
                let (fault, found) = (&evidence.fault, evidence.reached);
                assert!(found >= Some(evidence.asked), "{name} {reader} {fault}: {found:?}");
                assert!(evidence.heal.is_some(), "{name} {reader} {fault} has no proven heal");
            }
        }
    }
}

#[test]
fn broker_that_is_gone_for_good_is_proven_to_be_away_at_the_end() {
    for run in runs("broker-gone-for-good") {
        let heal = run.evidence[0].heal.as_deref().unwrap_or_default();
        assert!(
            heal.contains("broker 1 stays away") && heal.contains("2 and 3"),
            "{heal}"
        );
    }
}

#[test]
fn topic_that_grew_is_recorded_as_emulated() {
    let runs = runs("topic-grows");
    assert!(!runs.is_empty() && runs.iter().all(|run| run.evidence[0].emulated));
}

#[test]
fn fault_that_did_nothing_voids_the_run_and_says_so() {
    for (name, _, says) in REFUSED {
        let runs = runs(name);
        assert!(!runs.is_empty(), "{name} was not run");
        for run in runs {
            let reader = &run.reader.name;
            assert_eq!(run.verdict, Verdict::Void, "{name} {reader}: {}", run.cause);
            let said = run.voids.iter().any(|void| void.text.contains(says));
            assert!(said, "{name} {reader}: {:?}", run.voids);
        }
    }
}

#[test]
fn wipe_of_a_folder_that_holds_nothing_voids_the_run_and_says_so() {
    let scenarios = NOTHING_TO_WIPE.map(|(name, rest, _)| (name, rest));
    let report = carry_out(&scenarios, &["stored"], Some(STORED));
    for (name, _, says) in NOTHING_TO_WIPE {
        let run = report.runs.iter().find(|run| run.title == name);
        let run = run.unwrap_or_else(|| panic!("{name} was not run"));
        assert_eq!(run.verdict, Verdict::Void, "{name}: {}", run.cause);
        let said = run.voids.iter().any(|void| void.text.contains(says));
        assert!(said, "{name}: {:?}", run.voids);
    }
}
