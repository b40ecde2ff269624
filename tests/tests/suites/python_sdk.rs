//! Runs the tests of the Python SDK, which are written in Python, with every interpreter that the machine offers by name.

#![expect(clippy::print_stdout, reason = "a skip is said aloud")]

use std::path::Path;
use std::process::Command;

#[test]
fn python_sdk_passes_its_own_tests_where_python_is_here() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../harness/adapters/python");
    for python in ["python3", "python3.9", "python3.13"] {
        let here = Command::new(python).args(["-c", "import unittest"]).output();
        if !here.is_ok_and(|output| output.status.success()) {
            println!("skipped: no {python} on this machine (install it, or select it in pyenv)");
            continue;
        }
        let output = Command::new(python)
            .args(["-B", "-m", "unittest", "test_sdk"])
            .current_dir(&folder)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{python}:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
