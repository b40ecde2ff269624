//! `brokerfall.toml`: found from the working folder upward, in force for every command that it can mean something to.

use super::bench::{Bench, read_report, start};

#[test]
fn settings_of_a_repository_are_found_upward_and_come_after_options() {
    let bench = Bench::new();
    bench.run(["init", "scenario", "chaos/first"]).assert_code(0);
    std::fs::create_dir_all(bench.path("deep/down")).unwrap();
    let settings = "scenarios = [\"chaos\"]\nout = \"reports\"\njobs = 1\nlimits = { within = \"41s\" }\nknown-failing = \"known\"\n";
    let path = bench.write("brokerfall.toml", settings);
    let below = |words: &[&str]| {
        let mut command = bench.command(words);
        command.current_dir(bench.path("deep/down"));
        start(command).end()
    };
    below(&["run", "--reader", "reference-assign"]).assert_code(0);
    let read = |out: &str| {
        let folder = std::fs::read_dir(bench.path(out)).unwrap();
        let folders = folder.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
        read_report(&folders.last().unwrap())
    };
    let report = read("reports");
    assert_eq!(report.runs.len(), 1);
    assert!(report.runs[0].scenario.ends_with("chaos/first.toml"));
    let within = report.runs[0]
        .limits
        .iter()
        .find(|limit| limit.name == "within")
        .unwrap();
    assert_eq!((within.value, within.origin.as_str()), (41.0, "brokerfall.toml"));
    below(&["doctor"]).assert_says(&format!("ok brokerfall.toml {}", path.display()));
    // Options come first.
    below(&["run", "control/idle", "--reader", "reference-assign", "--out", "here"]).assert_code(0);
    assert_eq!(read("deep/down/here").runs[0].scenario, "control/idle");
    // A known failure of one's own that passes is told.
    std::fs::create_dir(bench.path("known")).unwrap();
    bench.write(
        "known/reference-assign.toml",
        "[[entry]]\nscenario = \"control/*\"\nversions = \"*\"\nviolated = [\"recovers\"]\nexception = \"none\"\nreason = \"mine\"\n",
    );
    below(&["run", "control/idle", "--reader", "reference-assign"]).assert_code(12);
    bench.write(
        "brokerfall.toml",
        "scenario = [\"chaos\"]\n[[claim]]\nname = \"ready\"\n",
    );
    below(&["run", "control/idle"])
        .assert_code(2)
        .assert_complains("brokerfall.toml:1:1: unknown key `scenario` (did you mean `scenarios`?)")
        .assert_complains("wanted `http` or `exec`");
    below(&["run", "control/idle", "--config", "none.toml"])
        .assert_code(2)
        .assert_complains("cannot read none.toml");
}

/// A repository with a scenario and a reader of its own, and accepted exceptions in a folder of another name.
fn repository() -> Bench {
    let bench = Bench::new();
    bench.run(["init", "scenario", "chaos/first"]).assert_code(0);
    bench.reader("mine", "assign", &["{program}", "reader", "reference-assign"]);
    let settings = "scenarios = [\"chaos\"]\nreaders-dir = \"readers\"\nexpected = \"accepted\"\nout = \"out\"\n";
    bench.write("brokerfall.toml", settings);
    std::fs::create_dir(bench.path("deep")).unwrap();
    bench
}

#[test]
fn settings_reach_every_command_that_looks_for_what_they_name() {
    let bench = repository();
    let below = |words: &[&str]| {
        let mut command = bench.command(words);
        command.current_dir(bench.path("deep"));
        start(command).end()
    };
    let title = "The broker dies for a second";
    below(&["list"])
        .assert_code(0)
        .assert_says(title)
        .assert_says("control/idle");
    below(&["list", "../chaos"]).assert_code(2);
    let chaos = bench.path("chaos").to_string_lossy().into_owned();
    let own = below(&["list", &chaos]);
    own.assert_code(0).assert_says(title);
    assert_eq!(own.stdout.lines().count(), 1, "{own}");
    below(&["check"])
        .assert_code(0)
        .assert_says("chaos/first.toml: 1 plan(s)");
    below(&["readers"]).assert_code(0).assert_says("mine");
    below(&["run", "control/idle", "--reader", "mine", "--keep", "all"]).assert_code(0);
    let run = bench.histories().remove(0);
    below(&["accept", &run.to_string_lossy()]).assert_code(0);
    assert!(bench.path("accepted/mine.toml").is_file());
    assert!(!bench.path("deep/scenarios").exists());
    let invocations = bench.invocations().len();
    below(&["adapter", "check", "--kind", "group", "--", "./none"]).assert_code(3);
    assert_eq!(
        bench.invocations().len(),
        invocations + 1,
        "in the folder of the settings"
    );
    assert!(!bench.path("deep/.brokerfall").exists());
    // What is wrong in the file is told by all of them.
    bench.write("brokerfall.toml", "scenario = []\n");
    for words in [
        &["list"] as &[&str],
        &["check"],
        &["readers"],
        &["accept", "x"],
        &["adapter", "check", "--kind", "group", "--", "./none"],
    ] {
        below(words)
            .assert_code(2)
            .assert_complains("unknown key `scenario` (did you mean `scenarios`?)");
    }
    // And another can be named.
    bench.write("other.toml", "");
    below(&["list", "--config", "../other.toml"]).assert_code(0);
    bench.assert_clean();
}

#[test]
fn file_of_accepted_exceptions_that_cannot_be_read_ends_every_command_alike() {
    let bench = repository();
    bench
        .run(["run", "control/idle", "--reader", "mine", "--keep", "all"])
        .assert_code(0);
    let run = bench.histories().remove(0);
    std::fs::create_dir_all(bench.path("accepted/mine.toml")).unwrap();
    let run = run.to_string_lossy();
    for words in [
        &["accept", &*run] as &[&str],
        &["run", "control/idle", "--reader", "mine"],
    ] {
        bench
            .run(words)
            .assert_code(2)
            .assert_complains("accepted/mine.toml: Is a directory");
    }
}
