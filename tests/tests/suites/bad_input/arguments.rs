//! Bad arguments and unusable files: exit 2, a message that names the nearest right word, and nothing was started.

use super::bench::Bench;

/// Arguments after `run`, and what must be said of them.
const BAD_RUNS: [(&[&str], &str); 31] = [
    (
        &["control/idel"],
        "unknown scenario `control/idel` (did you mean `control/idle`?)",
    ),
    (&["contrl"], "did you mean `control`?"),
    (
        &["--tag", "qick"],
        "no scenario carries the tag `qick` (did you mean `quick`?)",
    ),
    (
        &["control/idle", "--reader", "reference-gruop"],
        "unknown reader `reference-gruop` (did you mean `reference-group`?)",
    ),
    (
        &["control/idle", "--reader", "ktables@9.9.9"],
        "unknown version of ktables `9.9.9` (known: 1.1.1, 1.1.2, 2.0.0)",
    ),
    (&["control/idle", "--reader", ""], "unknown reader ``"),
    (&["control/idle", "--adapter", "x"], "--kind <KIND>"),
    (&["control/idle", "--kind", "group"], "--adapter <CMD>"),
    (
        &[
            "control/idle",
            "--adapter",
            "x",
            "--kind",
            "group",
            "--reader",
            "ktables",
        ],
        "cannot be used with",
    ),
    (
        &["control/idle", "--adapter", "x", "--kind", "group", "--with", "a==1"],
        "cannot be used with",
    ),
    (&["control/idle", "--lock", "lock.txt"], "--reader <READER>"),
    (
        &["control/idle", "--link", "toxiproxi"],
        "possible values: builtin, toxiproxy",
    ),
    (
        &[
            "control/idle",
            "--reader",
            "ktables",
            "--lock",
            "lock.txt",
            "--with",
            "a==1",
        ],
        "cannot be used with",
    ),
    (
        &["control/idle", "--reader", "ktables", "--lock", "missing.txt"],
        "lock missing.txt: cannot be read: No such file",
    ),
    (
        &["control/idle", "--reader", "ktables", "--lock", "lock.txt"],
        "lock lock.txt: does not pin `ktables`, the reader's library (it pins aiokafka)",
    ),
    (
        &["control/idle", "--reader", "aiokafka@0.14.0", "--lock", "lock.txt"],
        "lock lock.txt: pins aiokafka 0.13.0, but version 0.14.0 was asked for",
    ),
    (
        &["control/idle", "--reader", "reference-group", "--lock", "lock.txt"],
        "lock lock.txt: reference-group is not provisioned",
    ),
    (
        &[
            "control/idle",
            "--reader",
            "aiokafka",
            "--reader",
            "ktables",
            "--lock",
            "lock.txt",
        ],
        "--lock holds the packages of one environment, and 2 readers are asked for",
    ),
    (
        &["control/idle", "--adapter", "", "--kind", "group"],
        "the adapter's command is empty",
    ),
    (
        &["control/idle", "--adapter", "'x", "--kind", "group"],
        "a quote is left open",
    ),
    (
        &["control/idle", "--adapter", "x", "--kind", "grup"],
        "invalid value 'grup'",
    ),
    (
        &["control/idle", "--keep-up", "--jobs", "2"],
        "--keep-up needs --jobs 1",
    ),
    (&["control/idle", "--jobs", "0"], "0 is not in 1..=64"),
    (&["control/idle", "--repeat", "0"], "0 is not in 1..=10000"),
    (&["control/idle", "--seed=-1"], "--seed"),
    (
        &["control/idle", "--last-failed"],
        "no earlier report under the output folder",
    ),
    (&["folder.toml"], "cannot read scenario folder.toml: Is a directory"),
    (&["unreadable.toml"], "cannot read scenario unreadable.toml"),
    (
        &["latin.toml"],
        "cannot read scenario latin.toml: stream did not contain valid UTF-8",
    ),
    (&["impossible.toml"], "impossible.toml:5:"),
    (
        &["control/idle", "--readers-dir", "missing"],
        "reading readers from missing: No such file",
    ),
];

#[test]
fn bad_arguments_name_what_is_wrong_and_start_nothing() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("folder.toml")).unwrap();
    // Unreadable for root too, unlike a file without permissions.
    std::os::unix::fs::symlink("/proc/self/mem", bench.path("unreadable.toml")).unwrap();
    bench.write("lock.txt", "# a lock\naiokafka==0.13.0\n");
    bench.write("latin.toml", b"format = 1\ntitle = \"gr\xfc\xdfe\"\n");
    bench.write(
        "impossible.toml",
        "# A plan that no cluster can carry out.\nformat = 1\ntitle = \"x\"\nphase = \"live\"\ncluster = { brokers = 9 }\n[[topic]]\nname = \"t\"\n",
    );
    for (arguments, words) in BAD_RUNS {
        let all = ["run"].iter().chain(arguments).chain(&["--out", "out"]);
        let ended = bench.run(all);
        ended.assert_code(2).assert_complains(words).assert_calm();
        assert_eq!(ended.stdout, "", "{arguments:?}");
        assert!(!bench.path("out").exists(), "{arguments:?} left an output folder");
    }
    bench.assert_clean();
}

#[test]
fn bad_files_of_other_commands_are_named() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("empty")).unwrap();
    bench.write("notes.txt", "root:x:0:0\n");
    bench.write(
        "readers/bad.toml",
        "name = \"bad\"\nkinds = [\"tabel\"]\ncommand = [\"x\"]\n",
    );
    for (arguments, words) in [
        (
            ["check", "empty"],
            "no scenario at or below empty (wanted files that end in .toml)",
        ),
        (["check", "notes.txt"], "no scenario at or below notes.txt"),
        (["check", "missing"], "cannot read scenario missing"),
        (["list", "nothing-begins-so"], "no scenario has an id that begins so"),
        (["readers", "--readers-dir=readers"], "readers/bad.toml:2:"),
        (["explain", "recoverz"], "recovers"),
        (["judge", "missing"], "cannot read missing"),
    ] {
        bench
            .run(arguments)
            .assert_code(2)
            .assert_complains(words)
            .assert_calm();
    }
}

#[test]
fn words_of_files_and_arguments_do_not_act_on_the_terminal() {
    let bench = Bench::new();
    bench.write(
        "evil.toml",
        "format = 1\ntitle = \"\\u001b[31mred\\u202e\"\nphase = \"live\"\n[[topic]]\nname = \"t\"\n",
    );
    bench.write(
        "readers/evil.toml",
        "name = \"evil\"\nsummary = \"\\u001b[31mred\"\nkinds = [\"table\"]\ncommand = [\"x\"]\n",
    );
    for arguments in [
        &["check", "evil.toml"] as &[&str],
        &["readers", "--readers-dir", "readers"],
        &["run", "\u{1b}[31mred"],
        &["run", "\u{1b}[31mred.toml"],
        &["judge", "\u{1b}[31mred"],
        &["explain", "\u{1b}[31mred"],
        &["list", "\u{1b}[31mred"],
        &["run", "control/idle", "--reader", "\u{1b}[31mred"],
    ] {
        let ended = bench.run(arguments);
        let acts = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(
            !ended.stdout.contains(acts) && !ended.stderr.contains(acts),
            "{arguments:?}: {ended}"
        );
    }
}

#[test]
fn argument_that_is_not_text_is_no_panic() {
    use std::os::unix::ffi::OsStringExt;
    let bench = Bench::new();
    let out = std::ffi::OsString::from_vec(b"out-\xff".to_vec());
    let mut command = bench.command(["run", "control/idle", "--adapter", "./none", "--kind", "group", "--out"]);
    command.arg(out);
    super::bench::start(command)
        .end()
        .assert_code(3)
        .assert_calm()
        .assert_says("cannot be started");
}

#[cfg(not(feature = "chaos"))]
#[test]
fn link_that_the_program_was_built_without_is_named() {
    let bench = Bench::new();
    bench
        .run([
            "run",
            "control/idle",
            "--reader",
            "reference-assign",
            "--link",
            "toxiproxy",
        ])
        .assert_code(13)
        .assert_says("this program was built without the feature `toxiproxy`");
    bench.write("brokerfall.toml", "link = \"toxi\"\n");
    bench
        .run(["run", "control/idle"])
        .assert_code(2)
        .assert_complains("brokerfall.toml:1:8: unknown");
    bench
        .run(["doctor"])
        .assert_says("absent toxiproxy this program was built without the feature");
}
