//! `junit.xml`: one test suite for each reader, one test case for each run.
//!
//! A violation is a failure whose type names the violated invariants; `error` and `void` are errors; a known failure that
//! failed as its entry says is a success with the property `known-failing`, and one that passed is a failure.

use std::time::Duration;

use quick_junit::{NonSuccessKind, Property, TestCase, TestCaseStatus, TestSuite};

use super::escape::{cap, terminal, xml};
use super::sentences;
use super::text::{self, TextOptions};
use crate::report::{Report, RunReport};
use crate::verdict::Verdict;
use crate::words;

/// A report could not be written as XML.
#[derive(Debug, thiserror::Error)]
#[error("junit report could not be written")]
pub struct JunitError {
    #[from]
    source: quick_junit::SerializeError,
}

/// Messages stand in an attribute, on one line.
const LONGEST: usize = 500;

/// The report as JUnit XML.
///
/// # Errors
/// When the XML writer refuses.
pub fn render(report: &Report) -> Result<String, JunitError> {
    let mut junit = quick_junit::Report::new("brokerfall");
    let mut readers: Vec<(String, Vec<&RunReport>)> = Vec::new();
    for run in &report.runs {
        let name = sentences::reader(run);
        match readers.iter_mut().find(|(known, _)| *known == name) {
            Some((_, runs)) => runs.push(run),
            None => readers.push((name, vec![run])),
        }
    }
    for (name, runs) in readers {
        let mut suite = TestSuite::new(line(&name));
        suite.add_property(Property::new("harness", line(&report.harness)));
        suite.set_time(runs.iter().map(|run| time(run)).sum());
        suite.add_test_cases(runs.into_iter().map(case));
        junit.add_test_suite(suite);
    }
    for stale in &report.stale_known_failing {
        let mut status = failure(NonSuccessKind::Failure, &stale.text, "stale-known-failing");
        status.set_description(xml(&stale.text));
        let mut suite = TestSuite::new("known-failing entries");
        suite.add_test_case(TestCase::new(line(&stale.entry), status));
        junit.add_test_suite(suite);
    }
    Ok(junit.to_string()?)
}

fn line(text: &str) -> String {
    terminal(&cap(text, LONGEST))
}

fn time(run: &RunReport) -> Duration {
    Duration::try_from_secs_f64(run.timings.total_ms / 1000.0).unwrap_or_default()
}

fn failure(kind: NonSuccessKind, message: &str, type_name: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(kind);
    status.set_message(line(message)).set_type(line(type_name));
    status
}

fn case(run: &RunReport) -> TestCase {
    let page = text::run(run, TextOptions::default());
    let mut status = match run.verdict {
        Verdict::Failed => {
            let violated: Vec<_> = run
                .violations
                .iter()
                .map(|violation| violation.invariant.as_str())
                .collect();
            failure(NonSuccessKind::Failure, &run.cause, &violated.join(", "))
        }
        Verdict::Passed if run.known_failing.is_some() => {
            let reason = run.known_failing.as_deref().unwrap_or_default();
            let message = format!("a known failure passed: {reason}");
            failure(NonSuccessKind::Failure, &message, "known-failure-passed")
        }
        Verdict::Void => {
            let by = sentences::void_by(run).map_or(String::new(), |by| format!(" by the {by}"));
            failure(NonSuccessKind::Error, &run.cause, &format!("void{by}"))
        }
        Verdict::Error => {
            let of = run.error_of.map_or("harness", words::failure_of);
            failure(NonSuccessKind::Error, &run.cause, &format!("error of the {of}"))
        }
        Verdict::Skipped => {
            let mut status = TestCaseStatus::skipped();
            let skip = run.skipped.as_ref();
            let enable = skip.map_or(String::new(), |skip| format!(" ({})", skip.enable));
            status.set_message(line(&format!(
                "{}{enable}",
                skip.map_or(&run.cause, |skip| &skip.reason)
            )));
            status
        }
        Verdict::KnownFailing | Verdict::Passed => TestCaseStatus::success(),
    };
    let says_all = matches!(status, TestCaseStatus::Success { .. });
    if matches!(status, TestCaseStatus::NonSuccess { .. }) {
        status.set_description(xml(&page));
    }
    let mut case = TestCase::new(line(&run.scenario), status);
    case.set_classname(line(&sentences::reader(run))).set_time(time(run));
    case.add_property(Property::new("verdict", sentences::verdict(run)));
    if let Some(reason) = run
        .known_failing
        .as_ref()
        .filter(|_| run.verdict == Verdict::KnownFailing)
    {
        case.add_property(Property::new("known-failing", line(reason)));
    }
    if let Some(folder) = &run.artifacts {
        // Relative to the report, as every path in it.
        case.add_property(Property::new("history", line(&format!("{folder}/history.jsonl"))));
    }
    if says_all {
        case.set_system_out(xml(&page));
    }
    case
}
