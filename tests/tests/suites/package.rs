//! What `cargo install` gets outside of a clone: the package holds all that the binary embeds.

use std::process::Command;

#[test]
fn package_holds_scenarios_adapters_and_pages() {
    let listed = Command::new(env!("CARGO"))
        .args(["package", "-p", "brokerfall", "--list", "--allow-dirty", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let files = String::from_utf8_lossy(&listed.stdout).into_owned();
    for wanted in [
        "scenarios/broker-kill/live.toml",
        "scenarios/known-failing/teaching-consume-once.toml",
        "explain/faults.md",
        "explain/reading-a-verdict.md",
        "adapters/PROTOCOL.md",
        "adapters/manifests/ktables.toml",
        "adapters/python/brokerfall_adapter.py",
        "adapters/python/skeleton_threads.py",
        "src/cli/init-scenario.toml",
        "build.rs",
    ] {
        assert!(files.lines().any(|file| file == wanted), "{wanted} is not packaged");
    }
}
