//! One scenario on several clusters: what is compared of it, and the program that runs it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use brokerfall_report::exception::Origin;
use brokerfall_report::report::{Report, RunReport};

use crate::machine::Turn;

/// What is compared: the verdict, what was violated, and the types of what the reader raised to its caller.
pub fn told(run: &RunReport) -> String {
    let violated: BTreeSet<&str> = run.violations.iter().map(|one| one.invariant.as_str()).collect();
    let types: BTreeSet<&str> = run
        .exceptions
        .iter()
        .filter(|seen| seen.fatal && seen.origin != Origin::Log)
        .map(|seen| seen.exception.type_name.as_str())
        .collect();
    let mut told = run.verdict.name().to_owned();
    for (label, names) in [("violated", violated), ("raised", types)] {
        if !names.is_empty() {
            told.push_str(&format!(
                "; {label} {}",
                names.into_iter().collect::<Vec<_>>().join(", ")
            ));
        }
    }
    told
}

/// Runs those of these scenarios that have a tag (without any: all that have it) with these readers on a cluster, two at a
/// time; its folders go below `out`.
///
/// # Panics
/// When the program writes no report.
pub fn report(program: &Path, cluster: &str, tag: &str, scenarios: &[&str], readers: &[&str], out: &Path) -> Report {
    let _turn = Turn::all();
    let mut command = Command::new(program);
    command.arg("run").args(scenarios).args(["--tag", tag]);
    for reader in readers {
        command.args(["--reader", reader]);
    }
    let output = command
        .args(["--cluster", cluster, "--jobs", "2", "--out"])
        .arg(out)
        .output()
        .expect("the program runs and writes");
    crate::only_report(out).unwrap_or_else(|| panic!("no report\n{}", String::from_utf8_lossy(&output.stderr)))
}
