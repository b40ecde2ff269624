//! The bundled scenarios: each tells a story that stands where it belongs, together they cover every fault in every phase
//! in which it makes sense, and every fault is felt by a correct reader that passes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use brokerfall::fault::FaultSpec;
use brokerfall::scenario::catalogue;
use brokerfall::scenario::plan::{Action, Plan};
use brokerfall_report::history::{Grade, Phase};
use brokerfall_report::verdict::Verdict;

/// Faults, partitions by mode, and the phases in which some scenario must inject them.
const COVERED: [(&str, &[Phase]); 26] = {
    use Phase::{CatchUp, Close, Commit, Live, Rebalance, Start};
    [
        ("kill-broker", &[Start, CatchUp, Live, Commit, Rebalance, Close]),
        ("pause-broker", &[Start, CatchUp, Live, Commit]),
        ("partition hold", &[Start, CatchUp, Live, Commit, Rebalance, Close]),
        ("partition reset", &[Start, CatchUp, Live]),
        ("partition refuse", &[Start, Live]),
        ("partition throttle", &[CatchUp, Live]),
        ("partition delay", &[CatchUp, Live]),
        ("partition cut", &[Start, CatchUp, Live, Commit]),
        ("answer-error", &[Start, CatchUp, Live, Commit, Rebalance, Close]),
        ("panic-callback", &[CatchUp, Live]),
        ("pause-reader", &[CatchUp, Live]),
        ("kill-reader", &[CatchUp, Live]),
        ("delete-segments", &[CatchUp, Live]),
        ("absent-topic", &[Start, Live]),
        ("add-partitions", &[Live]),
        ("move-leader", &[CatchUp, Live]),
        ("move-coordinator", &[Live, Commit]),
        ("deny-acl", &[Start, Live]),
        ("recreate-topic", &[Live]),
        ("transaction", &[CatchUp, Live]),
        ("compact-log", &[CatchUp, Live]),
        ("isolate-broker", &[Live]),
        ("roll-brokers", &[Live]),
        ("unclean-election", &[Live]),
        ("move-address", &[Live]),
        ("fence-member", &[Live]),
    ]
};

/// What the mock cluster cannot do: the suite `process` shows that it is felt.
const ON_KAFKA: [&str; 8] = [
    "compact-log",
    "deny-acl",
    "fence-member",
    "isolate-broker",
    "recreate-topic",
    "roll-brokers",
    "transaction",
    "unclean-election",
];

/// Scenarios of a few seconds that have every other fault between them.
const SHORT: [&str; 17] = [
    "address/advertised-live",
    "answer-error/commit-rebalance",
    "broker-kill/commit",
    "broker-pause/start",
    "callback-panic/on-record-catch-up",
    "leadership/coordinator-moves",
    "leadership/leader-moves",
    "partition/cut-live",
    "partition/delay-live",
    "partition/hold-commit",
    "partition/leader-cut",
    "partition/reset-catch-up",
    "reader/kill-catch-up",
    "reader/pause-live",
    "retention/two-partitions",
    "topic/absent-start",
    "topic/partitions-added",
];

/// A file of a bundled scenario.
struct File {
    /// `folder/name`.
    id: String,
    /// The comment at its top, on one line.
    story: String,
    /// What follows.
    body: String,
}

fn files() -> Vec<File> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios");
    let below = |folder: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).expect("the folder can be read");
        entries.map(|entry| entry.expect("it can be listed").path()).collect()
    };
    let folders = below(&root).into_iter().filter(|path| path.is_dir());
    let bundled = folders.filter(|path| !path.ends_with("known-failing") && !path.ends_with("expected"));
    let mut files: Vec<File> = bundled
        .flat_map(|folder| below(&folder))
        .map(|path| {
            let text = std::fs::read_to_string(&path).expect("the file can be read");
            let story: Vec<&str> = text.lines().map_while(|line| line.strip_prefix('#')).collect();
            let body = text.lines().skip(story.len()).collect::<Vec<_>>().join("\n");
            let id = path.strip_prefix(&root).expect("it lies below").with_extension("");
            File {
                id: id.to_string_lossy().into_owned(),
                story: story.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" "),
                body,
            }
        })
        .collect();
    files.sort_by(|one, other| one.id.cmp(&other.id));
    files
}

fn plans() -> Vec<Plan> {
    catalogue::plans().expect("the bundled scenarios are sound")
}

/// `folder/name` of a plan.
fn scenario(plan: &Plan) -> &str {
    plan.id.split('[').next().unwrap_or_default()
}

/// A fault by its kind, a partition by its mode too.
fn what(fault: &FaultSpec) -> String {
    let kind = fault.fault().kind();
    match fault {
        FaultSpec::Partition(partition) => format!("{kind} {}", format!("{:?}", partition.mode).to_lowercase()),
        _ => kind.to_owned(),
    }
}

#[test]
fn each_opens_with_its_story() {
    let files = files();
    assert!(files.len() >= 60, "{} scenarios", files.len());
    for File { id, story, body } in files {
        assert!(
            body.starts_with("format = 1\n"),
            "{id}: the story ends where the scenario begins"
        );
        assert!(
            story.ends_with('.') && story.len() >= 100,
            "{id}: too short for a story: {story}"
        );
    }
}

#[test]
fn each_is_full_and_leaves_limits_to_the_reader() {
    for plan in plans() {
        let tags: BTreeSet<&str> = plan.tags.iter().map(String::as_str).collect();
        assert!(tags.contains("full"), "{}: {tags:?}", plan.id);
        assert!(
            tags.is_subset(&BTreeSet::from(["quick", "full"])),
            "{}: {tags:?}",
            plan.id
        );
        assert_eq!(plan.expect.within, None, "{}", plan.id);
        assert_eq!(plan.expect.duplicates, None, "{}", plan.id);
    }
}

#[test]
fn each_stands_in_the_folder_of_its_fault() {
    for plan in plans() {
        let id = scenario(&plan);
        let faults: BTreeSet<&str> = plan.faults().map(|fault| fault.fault().kind()).collect();
        let has = |any: &[&str]| any.iter().any(|kind| faults.contains(kind));
        let asks = plan.steps.iter().any(|step| {
            matches!(
                step.action,
                Action::Ask { .. } | Action::Restart(_) | Action::Join(_) | Action::Produce(_)
            )
        });
        let folder = id.split('/').next().unwrap_or_default();
        let fits = match folder {
            "broker-kill" => has(&["kill-broker", "roll-brokers", "isolate-broker"]),
            "broker-pause" => has(&["pause-broker"]),
            "partition" => has(&["partition"]),
            "answer-error" => has(&["answer-error"]),
            "callback-panic" | "callback-upset" => has(&["panic-callback"]),
            "retention" => has(&["delete-segments"]),
            "leadership" => has(&["move-leader", "move-coordinator", "unclean-election"]),
            "topic" => has(&["absent-topic", "add-partitions", "recreate-topic"]),
            "acl" => has(&["deny-acl"]),
            "transaction" => has(&["transaction"]),
            "compaction" => has(&["compact-log"]),
            "address" => has(&["move-address"]),
            "group" => has(&["fence-member"]),
            "reader" => asks || has(&["pause-reader", "kill-reader"]),
            "control" | "record" => faults.is_empty() && asks,
            "incidents" => !faults.is_empty() || asks,
            _ => panic!("{id}: say here what the folder `{folder}` is for"),
        };
        assert!(fits, "{id} has {faults:?}");
    }
}

/// `owner/repo#number`, `KAFKA-number`, or `number` of a pull request, as a story names it.
fn names(story: &str, number: &str) -> bool {
    [format!("#{number}"), format!("KAFKA-{number}"), format!("PR {number}")]
        .iter()
        .any(|name| {
            story
                .match_indices(name)
                .any(|(at, _)| !story[at + name.len()..].starts_with(|next: char| next.is_ascii_digit()))
        })
}

#[test]
fn incidents_name_their_issue_and_speak_of_no_librarys_types() {
    let mut from_issues = BTreeSet::new();
    for File { id, story, body } in files() {
        let Some(name) = id.strip_prefix("incidents/") else {
            continue;
        };
        match name
            .rsplit('-')
            .next()
            .filter(|last| last.chars().all(|c| c.is_ascii_digit()))
        {
            Some(number) => {
                assert!(names(&story, number), "{id}: the story does not name issue {number}");
                from_issues.insert(name.to_owned());
            }
            // Found by measuring, or known by its libraries' documents.
            None if story.contains("No public issue") => {}
            // `faust-651-quiet-log` and its like: the issue, then what sets it apart.
            None => {
                let number = name
                    .split('-')
                    .find(|word| !word.is_empty() && word.chars().all(|c| c.is_ascii_digit()));
                let named = number.is_some_and(|number| names(&story, number));
                assert!(named || story.contains(" PR "), "{id}: the story names no issue");
            }
        }
        assert!(!body.contains("type = "), "{id}: a library's type is set");
    }
    assert!(from_issues.len() >= 20, "{from_issues:?}");
}

#[test]
fn every_fault_has_a_scenario_in_every_phase_in_which_it_makes_sense() {
    let mut there: BTreeMap<String, Vec<Phase>> = BTreeMap::new();
    for plan in plans() {
        for fault in plan.faults() {
            there.entry(what(fault)).or_default().push(plan.phase);
        }
    }
    let wanted: BTreeSet<&str> = COVERED.iter().map(|(fault, _)| *fault).collect();
    let found: BTreeSet<&str> = there.keys().map(String::as_str).collect();
    assert_eq!(found, wanted);
    for (fault, phases) in COVERED {
        for phase in phases {
            assert!(
                there[fault].contains(phase),
                "no scenario has {fault} in the phase {}",
                phase.name()
            );
        }
    }
}

#[test]
fn every_fault_is_felt_by_a_correct_reader_that_passes() {
    let out = tempfile::tempdir().expect("a temporary folder can be made");
    let mut command = Command::new(env!("CARGO_BIN_EXE_brokerfall-under-test"));
    command
        .arg("run")
        .args(SHORT)
        .args(["--reader", "reference-group", "--jobs", "4"]);
    let output = command
        .arg("--out")
        .arg(out.path())
        .output()
        .expect("the program starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let report = brokerfall_tests::only_report(out.path()).unwrap_or_else(|| panic!("no report\n{text}"));
    let plans = plans();
    let mut felt = BTreeSet::new();
    for run in &report.runs {
        assert_eq!(run.verdict, Verdict::Passed, "{}: {}\n{text}", run.scenario, run.cause);
        let plan = plans
            .iter()
            .find(|plan| plan.id == run.scenario)
            .expect("it is bundled");
        for evidence in run.evidence.iter().filter(|one| one.reached == Some(Grade::Felt)) {
            let step = plan.steps.iter().find(|step| step.name == evidence.fault);
            if let Some(Action::Do { fault, .. }) = step.map(|step| &step.action) {
                felt.insert(what(fault));
            }
        }
    }
    let faults = COVERED.iter().map(|(fault, _)| *fault);
    let wanted: BTreeSet<String> = faults
        .filter(|fault| !ON_KAFKA.contains(fault))
        .map(str::to_owned)
        .collect();
    assert_eq!(felt, wanted, "{text}");
}
