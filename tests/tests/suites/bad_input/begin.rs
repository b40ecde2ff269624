//! Files to begin with, and the cache.

use super::bench::{Bench, start};

#[test]
fn scenario_to_begin_with_passes_check_runs_and_is_never_written_over() {
    let bench = Bench::new();
    bench.run(["init", "scenario", "chaos/first"]).assert_code(0);
    let path = bench.path("chaos/first.toml");
    let written = std::fs::read_to_string(&path).unwrap();
    bench
        .run(["check", "chaos"])
        .assert_code(0)
        .assert_says("The broker dies for a second");
    let words = "run chaos/first.toml --reader reference-group --out out";
    bench.run(words.split(' ')).assert_code(0);
    std::fs::write(&path, "mine").unwrap();
    bench
        .run(["init", "scenario", "chaos/first.toml"])
        .assert_code(2)
        .assert_complains("first.toml is there already");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    assert!(written.contains("format = 1"));
    bench.assert_clean();
}

#[test]
fn adapter_to_begin_with_comes_with_its_sdk_or_not_at_all() {
    let bench = Bench::new();
    for (folder, option, base) in [
        ("asyncio", None, "AsyncAdapter"),
        ("threads", Some("--threads"), "ThreadAdapter"),
    ] {
        let mut words = vec!["init", "adapter", "python", "--dir", folder];
        words.extend(option);
        bench
            .run(words)
            .assert_code(0)
            .assert_says(&format!("-- python3 {folder}/my_adapter.py"));
        let adapter = std::fs::read_to_string(bench.path(folder).join("my_adapter.py")).unwrap();
        assert!(adapter.contains(&format!("brokerfall_adapter.{base}")));
        assert!(!adapter.contains("skeleton"), "{adapter}");
        assert!(bench.path(folder).join("brokerfall_adapter.py").is_file());
    }
    // One of the two is there already: the other is not written either.
    std::fs::create_dir(bench.path("half")).unwrap();
    bench.write("half/brokerfall_adapter.py", "mine");
    bench
        .run(["init", "adapter", "python", "--dir", "half"])
        .assert_code(2)
        .assert_complains("brokerfall_adapter.py is there already");
    assert!(!bench.path("half/my_adapter.py").exists());
    assert_eq!(
        std::fs::read_to_string(bench.path("half/brokerfall_adapter.py")).unwrap(),
        "mine"
    );
}

#[test]
fn cache_is_listed_and_pruned() {
    let bench = Bench::new();
    let with_cache = |words: &[&str]| {
        let mut command = bench.command(words);
        command.env("BROKERFALL_CACHE", bench.path("cache"));
        start(command).end()
    };
    with_cache(&["cache"]).assert_code(0).assert_says("0 things, 0 B in");
    with_cache(&["run", "control/idle", "--reader", "reference-assign", "--out", "out"]).assert_code(0);
    let env = bench.path("cache/envs/lib-1-0123456789abcdef");
    std::fs::create_dir_all(&env).unwrap();
    std::fs::write(env.join("file"), vec![0; 2048]).unwrap();
    with_cache(&["cache"])
        .assert_code(0)
        .assert_says("envs/lib-1-0123456789abcdef 2.0 KiB built")
        .assert_says("2 things,");
    // Neither is 30 days old.
    with_cache(&["cache", "prune"]).assert_code(0).assert_says("0 B freed");
    with_cache(&["cache", "prune", "--older-than", "soon"]).assert_code(2);
    // One that is being built stays, whatever is asked.
    let lock = std::fs::File::create(bench.path("cache/envs/.lib-1-0123456789abcdef.lock")).unwrap();
    let held = nix::fcntl::Flock::lock(lock, nix::fcntl::FlockArg::LockExclusive).unwrap();
    with_cache(&["cache", "prune", "--all"])
        .assert_code(0)
        .assert_complains("is being built by another process and stays");
    assert!(env.join("file").is_file());
    drop(held);
    with_cache(&["cache", "prune", "--all"])
        .assert_code(0)
        .assert_says("removed envs/lib-1-0123456789abcdef");
    assert!(!env.exists());
    with_cache(&["cache"]).assert_code(0).assert_says("0 things");
}

/// Every verb of the command line, from its own help.
#[test]
fn every_verb_has_help_and_stands_in_the_readme() {
    let bench = Bench::new();
    let help = bench.run(["--help"]);
    help.assert_code(0);
    let verbs: Vec<&str> = help
        .stdout
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|verb| *verb != "help")
        .collect();
    assert!(verbs.contains(&"run") && verbs.len() >= 10, "{verbs:?}");
    let readme = include_str!("../../../../README.md");
    for verb in verbs {
        bench.run([verb, "--help"]).assert_code(0);
        let named = readme.contains(&format!("`{verb}")) || readme.contains(&format!("`brokerfall {verb}"));
        assert!(named, "README.md does not name `{verb}`");
    }
}
