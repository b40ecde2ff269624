//! The skeletons run as they are, and the harness finds nothing wrong with them.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::driver::cache;

fn assert_nothing_wrong(skeleton: &str, package: &str, pins: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let adapters = Path::new(env!("CARGO_MANIFEST_DIR")).join("../harness/adapters/python");
    // As `pip install` and two copies into a folder of one's own would have it.
    for file in [skeleton, "brokerfall_adapter.py"] {
        std::fs::copy(adapters.join(file), folder.path().join(file)).unwrap();
    }
    let manifest = format!(
        "name = \"skeleton\"\nkinds = [\"group\"]\ncommand = [\"{{python}}\", \"{{folder}}/{skeleton}\"]\n\
         [provision.python]\npackage = \"{package}\"\n[[version]]\nversion = \"1\"\npins = {pins:?}\n"
    );
    std::fs::write(folder.path().join("skeleton.toml"), manifest).unwrap();
    let dirs: [PathBuf; 1] = [folder.path().to_owned()];
    let Some(launches) = brokerfall_tests::provisioned("skeleton@1", &dirs, &[], None, &cache()) else {
        return;
    };
    let checked = Command::new(env!("CARGO_BIN_EXE_brokerfall-under-test"))
        .args(["adapter", "check", "--kind", "group", "--out"])
        .arg(folder.path().join("out"))
        .arg("--")
        .args(&launches[0].command)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&checked.stdout);
    assert!(
        checked.status.success(),
        "{said}\n{}",
        String::from_utf8_lossy(&checked.stderr)
    );
    for pace in [
        "a new record is reported",
        "the restarted reader reads",
        "stop ends the process",
    ] {
        assert!(said.contains(&format!("ok  {pace}")), "{said}");
    }
}

#[test]
fn asyncio_skeleton_passes_the_check_as_it_is() {
    let pins = [
        "aiokafka==0.14.0",
        "async-timeout==5.0.1",
        "packaging==26.4",
        "typing-extensions==4.16.0",
    ];
    assert_nothing_wrong("skeleton_asyncio.py", "aiokafka", &pins);
}

#[test]
fn threads_skeleton_passes_the_check_as_it_is() {
    assert_nothing_wrong("skeleton_threads.py", "confluent-kafka", &["confluent-kafka==2.16.1"]);
}
