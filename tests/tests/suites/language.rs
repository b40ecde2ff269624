//! The words of the scenario language that act on a run, each in a run of the real binary: phases that are missed, steps
//! that are repeated, commands in flight, readers that close, members that join, load that ends, a run that lasts too long.

use std::path::Path;
use std::process::Command;

use brokerfall_report::history::{Entry, Event, Grade, StepState};
use brokerfall_report::render::json;
use brokerfall_report::report::{Report, RunReport};
use brokerfall_report::verdict::Verdict;

/// A run of one scenario by one bundled reader.
struct Ran {
    run: RunReport,
    history: Vec<Entry>,
}

/// Runs the scenario whose text, after its format and title, is given.
fn run(reader: &str, text: &str) -> Ran {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let scenario = folder.path().join("scenario.toml");
    std::fs::write(&scenario, format!("format = 1\ntitle = \"t\"\n{text}")).expect("it can be written");
    let out = folder.path().join("out");
    let output = Command::new(env!("CARGO_BIN_EXE_brokerfall-under-test"))
        .arg("run")
        .arg(&scenario)
        .args(["--reader", reader, "--keep", "all", "--out"])
        .arg(&out)
        .output()
        .expect("the program starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let mut report = report(&out).unwrap_or_else(|| panic!("no report\n{said}"));
    let history = history(&out).unwrap_or_else(|| panic!("no history\n{said}"));
    assert_eq!(report.runs.len(), 1, "{said}");
    Ran {
        run: report.runs.remove(0),
        history,
    }
}

/// The report of the only invocation below an output folder.
fn report(out: &Path) -> Option<Report> {
    let path = below(out).into_iter().map(|folder| folder.join("report.json"));
    let path = path.into_iter().find(|path| path.is_file())?;
    json::parse(&std::fs::read_to_string(path).ok()?).ok()
}

/// The history of its only run.
fn history(out: &Path) -> Option<Vec<Entry>> {
    let mut folders = vec![out.to_owned()];
    while let Some(folder) = folders.pop() {
        if let Ok(text) = std::fs::read_to_string(folder.join("history.jsonl")) {
            return text.lines().map(|line| serde_json::from_str(line).ok()).collect();
        }
        folders.extend(below(&folder));
    }
    None
}

fn below(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let folders = entries.filter_map(|entry| Some(entry.ok()?.path()));
    folders.filter(|path| path.is_dir() && !path.is_symlink()).collect()
}

impl Ran {
    #[track_caller]
    fn assert_passed(&self) {
        assert_eq!(self.run.verdict, Verdict::Passed, "{}", self.run.cause);
    }

    /// It is void, and says why in these words.
    #[track_caller]
    fn assert_void(&self, words: &str) {
        assert_eq!(self.run.verdict, Verdict::Void, "{}", self.run.cause);
        assert!(
            self.run.cause.contains(words),
            "wanted {words:?} in {:?}",
            self.run.cause
        );
    }

    /// Numbers of the events that `wanted` knows.
    fn events(&self, wanted: impl Fn(&Event) -> bool) -> Vec<u64> {
        let found = self.history.iter().filter(|entry| wanted(&entry.event));
        found.map(|entry| entry.n).collect()
    }

    fn asked(&self, name: &str) -> Vec<u64> {
        self.events(|event| matches!(event, Event::Asked { command, .. } if command == name))
    }

    /// When the step at this place was done.
    fn done(&self, step: u32) -> u64 {
        let done =
            self.events(|event| matches!(event, Event::Step { index, state: StepState::Done, .. } if *index == step));
        assert_eq!(done.len(), 1, "step {step}");
        done[0]
    }
}

const TOPIC: &str = "[[topic]]\nname = \"orders\"\ncleanup = \"compact\"\npreload = { records = 300, keys = 50 }\n";
const HOLD: &str = "do = { partition = { mode = \"hold\" } }\n";

#[test]
fn a_fault_after_the_first_record_misses_the_start() {
    let ran = run(
        "reference-table",
        &format!("phase = \"start\"\n{TOPIC}[[step]]\nname = \"late\"\nwhen = {{ delivered = 1 }}\n{HOLD}"),
    );
    ran.assert_void("`late` missed the phase start: the reader had delivered");
}

#[test]
fn a_fault_after_the_last_record_misses_the_catch_up() {
    let ran = run(
        "reference-table",
        &format!("phase = \"catch-up\"\n{TOPIC}[[step]]\nname = \"late\"\nwhen = {{ delivered = 300 }}\n{HOLD}"),
    );
    ran.assert_void("`late` missed the phase catch-up: the catch-up was over before the fault was injected");
}

#[test]
fn a_fault_while_a_fresh_process_reads_misses_the_live_phase() {
    // 6 s of reading for the fresh process.
    let ran = run(
        "reference-table",
        "[[topic]]\nname = \"orders\"\ncleanup = \"compact\"\npreload = { records = 3_000, keys = 3_000, value-bytes = 1_000 }\n\
         [[step]]\nname = \"slow\"\ndo = { partition = { mode = \"throttle\", bytes-per-s = 500_000 } }\n\
         [[step]]\nname = \"dead\"\ndo = { kill-reader = {} }\n\
         [[step]]\nheal = [\"dead\"]\n\
         [[step]]\nname = \"early\"\ndo = { partition = { mode = \"hold\" } }\n",
    );
    ran.assert_void("`early` missed the phase live: the reader had not caught up");
}

#[test]
fn a_fault_long_after_the_last_commit_misses_it() {
    let ran = run(
        "reference-group",
        &format!("phase = \"commit\"\n{TOPIC}[[step]]\nname = \"late\"\nafter = \"3s\"\n{HOLD}"),
    );
    ran.assert_void("`late` missed the phase commit: no OffsetCommit was seen in the second before when `late` struck");
}

#[test]
fn a_fault_in_a_stable_group_misses_the_rebalance() {
    let ran = run(
        "reference-group",
        &format!("phase = \"rebalance\"\n{TOPIC}[[step]]\nname = \"calm\"\n{HOLD}"),
    );
    ran.assert_void("`calm` missed the phase rebalance: every member had its partitions in the same generation");
}

#[test]
fn a_fault_that_is_healed_before_the_reader_closes_misses_the_close() {
    let ran = run(
        "reference-table",
        &format!(
            "phase = \"close\"\n{TOPIC}[[step]]\nname = \"early\"\n{HOLD}[[step]]\nheal = \"all\"\n[[step]]\ndo = \"stop\"\n"
        ),
    );
    ran.assert_void("`early` missed the phase close: no `stop` was in flight when `early` struck");
}

#[test]
fn a_reader_that_closes_while_its_broker_is_dead_is_judged_by_how_it_closes() {
    let ran = run(
        "reference-group",
        &format!(
            "phase = \"close\"\n{TOPIC}[[step]]\nname = \"dead\"\ndo = {{ kill-broker = {{ broker = 1 }} }}\n\
             [[step]]\ndo = {{ stop = {{ wait = false }} }}\n[[step]]\nafter = \"200ms\"\nheal = [\"dead\"]\n\
             [expect]\nstops_cleanly = {{}}\n"
        ),
    );
    ran.assert_passed();
    assert_eq!(ran.asked("stop").len(), 1, "it is asked once, by the step");
    let left = ran.events(|event| matches!(event, Event::Left { .. }));
    assert_eq!(left.len(), 1);
    assert!(ran.asked("stop")[0] < ran.done(1), "the step is done once it is asked");
    assert!(
        ran.events(|event| matches!(event, Event::Sentinel { .. })).is_empty(),
        "nothing more is expected of it"
    );
}

#[test]
fn a_closed_reader_that_is_started_again_is_the_patient() {
    let ran = run(
        "reference-table",
        &format!(
            "{TOPIC}[[step]]\ndo = \"stop\"\n[[step]]\ndo = \"restart-reader\"\n[[step]]\nwhen = {{ caught-up = true }}\ndo = \"snapshot\"\n"
        ),
    );
    ran.assert_passed();
    let spawned = ran.events(|event| matches!(event, Event::Spawned { .. }));
    assert_eq!(spawned.len(), 2);
    assert!(ran.done(0) < spawned[1] && spawned[1] < ran.done(1));
    assert_eq!(ran.asked("stop").len(), 2, "once by the step, once at the end");
}

#[test]
fn repeated_steps_inject_and_heal_a_fault_of_each_round() {
    let ran = run(
        "reference-table",
        &format!(
            "load = {{ rate = \"50/s\" }}\n{TOPIC}[[step]]\nrepeat = 3\n[[step.step]]\nname = \"cut\"\n{HOLD}\
             [[step.step]]\nafter = \"300ms\"\nheal = [\"cut\"]\n"
        ),
    );
    ran.assert_passed();
    let faults: Vec<(&str, Option<Grade>)> = ran
        .run
        .evidence
        .iter()
        .map(|evidence| (evidence.fault.as_str(), evidence.reached))
        .collect();
    let names: Vec<&str> = faults.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["cut-1", "cut-2", "cut-3"]);
    assert!(
        faults.iter().all(|(_, reached)| *reached >= Some(Grade::Delivered)),
        "{faults:?}"
    );
    let healed = |name: &str| ran.events(|event| matches!(event, Event::Healed { fault, .. } if fault == name))[0];
    let injected = |name: &str| ran.events(|event| matches!(event, Event::Injected { fault, .. } if fault == name))[0];
    assert!(healed("cut-1") < injected("cut-2") && healed("cut-2") < injected("cut-3"));
}

#[test]
fn a_fault_hits_a_barrier_in_flight() {
    // What the barrier waits for is behind the hold, so that it cannot be answered before the fault is injected.
    let ran = run(
        "reference-table",
        &format!(
            "{TOPIC}[[step]]\nname = \"cut\"\n{HOLD}[[step]]\ndo = {{ produce = {{ records = 5 }} }}\n\
             [[step]]\ndo = {{ barrier = {{ wait = false }} }}\n\
             [[step]]\nname = \"asleep\"\nwhen = {{ in-flight = \"barrier\" }}\ndo = {{ pause-reader = {{}} }}\n\
             [[step]]\nafter = \"300ms\"\nheal = \"all\"\n"
        ),
    );
    ran.assert_passed();
    let asked = ran.asked("barrier")[0];
    let paused = ran.events(|event| matches!(event, Event::Injected { fault, .. } if fault == "asleep"))[0];
    let answered = ran.events(|event| {
        matches!(event, Event::Reader { event: brokerfall_report::protocol::ReaderEvent::Done(done), .. } if done.reached.is_some())
    });
    assert!(
        asked < paused && answered.iter().all(|n| paused < *n),
        "{asked} {paused} {answered:?}"
    );
}

#[test]
fn a_command_that_is_never_in_flight_leaves_its_step_unmet() {
    let ran = run(
        "reference-table",
        &format!(
            "{TOPIC}[[step]]\nwhen = {{ in-flight = \"barrier\" }}\nwait = \"500ms\"\ndo = {{ pause-reader = {{}} }}\n"
        ),
    );
    ran.assert_void("no `barrier` was in flight");
}

#[test]
fn load_ends_with_its_step() {
    let ran = run(
        "reference-group",
        &format!(
            "load = {{ rate = \"200/s\", until = \"pause\" }}\n{TOPIC}[[step]]\nname = \"pause\"\nafter = \"500ms\"\ndo = \"commit\"\n\
             [[step]]\nafter = \"700ms\"\ndo = \"commit\"\n"
        ),
    );
    ran.assert_passed();
    let produced = |from: u64, to: u64| {
        let written = ran.events(|event| matches!(event, Event::Produced { .. }));
        written.into_iter().filter(|n| (from..to).contains(n)).count()
    };
    let start = ran.events(|event| matches!(event, Event::Step { index: 0, .. }))[0];
    assert!(produced(start, ran.done(0)) > 0, "it writes until then");
    assert_eq!(produced(ran.done(0), ran.done(1)), 0, "and not afterwards");
}

#[test]
fn a_neutral_member_joins_and_leaves() {
    let ran = run(
        "reference-group",
        "load = { rate = \"20/s\" }\n[[topic]]\nname = \"orders\"\npartitions = 2\npreload = { records = 100, keys = 50 }\n\
         [[step]]\nname = \"guest\"\ndo = { join-member = { reader = \"neutral\" } }\n\
         [[step]]\nafter = \"1s\"\nheal = [\"guest\"]\n",
    );
    ran.assert_passed();
    let neutral = ran.events(|event| matches!(event, Event::Spawned { neutral: true, .. }));
    assert_eq!(neutral.len(), 1);
    let left = ran.events(|event| matches!(event, Event::Left { .. }));
    assert_eq!(left.len(), 1, "only the reader itself is judged by how it leaves");
}

#[test]
fn members_that_come_and_go_keep_their_own_names() {
    let ran = run(
        "reference-group",
        "load = { rate = \"20/s\" }\n[[topic]]\nname = \"orders\"\npartitions = 2\npreload = { records = 100, keys = 50 }\n\
         [[step]]\nrepeat = 2\n[[step.step]]\nname = \"more\"\ndo = \"join-member\"\n[[step.step]]\nafter = \"300ms\"\nheal = [\"more\"]\n",
    );
    ran.assert_passed();
    let of = |member: &str| {
        ran.history
            .iter()
            .filter(|entry| matches!(&entry.event, Event::Spawned { member: spawned, .. } if spawned == member))
            .count()
    };
    assert_eq!(["r1", "r2", "r3", "r4"].map(of), [1, 1, 1, 0]);
}

#[test]
fn a_run_above_its_wall_limit_is_ended_and_void() {
    let ran = run(
        "reference-table",
        &format!("wall = \"2s\"\n{TOPIC}[[step]]\nafter = \"5m\"\ndo = \"snapshot\"\n"),
    );
    ran.assert_void("the limit wall = \"2s\" ended the run early");
    assert!(
        ran.history
            .last()
            .is_some_and(|last| last.event == Event::Closed && last.at_us < 60_000_000),
        "and what was set up is taken down"
    );
}
