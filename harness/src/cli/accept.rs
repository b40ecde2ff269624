//! `accept`: what a run showed becomes what is expected of its reader.

use std::path::PathBuf;

use brokerfall_report::verdict::{ExitCode, Verdict};

use super::args::AcceptArgs;
use super::config::{Config, of_reader};
use super::error::SuiteError;
use super::say;
use crate::invariant::exception_expected::as_expected;
use crate::scenario::expected::{self, Expected};
use crate::verdict;

/// Where expected exceptions are kept when nothing else is said.
const EXPECTED: &str = "scenarios/expected";

/// Writes entries for every exception of a stored run into `DIR/<reader>.toml`.
///
/// # Errors
/// [`SuiteError::Usage`] when the history or the reader's file cannot be read, or the run proves nothing;
/// [`SuiteError::Wrong`] for what is wrong in a file; [`SuiteError::Io`] when the file cannot be written.
pub(crate) fn accept(args: &AcceptArgs) -> Result<ExitCode, SuiteError> {
    let config = Config::load(args.settings.config.as_deref())?;
    let usage = |cause: &dyn std::error::Error| SuiteError::Usage(crate::chain(cause));
    let history = verdict::history_of(&args.run);
    let facts = verdict::read_facts(&history).map_err(|cause| usage(&cause))?;
    let judgement = verdict::judge_facts(&facts);
    let opened = match (facts.opened(), judgement.verdict) {
        (Some(opened), Verdict::Passed | Verdict::Failed) => opened,
        _ => {
            return Err(SuiteError::Usage(format!(
                "the run is {}: {} (accept a run that was judged)",
                judgement.verdict.name(),
                judgement.cause
            )));
        }
    };
    let (reader, version) = (&opened.reader.name, &opened.reader.version);
    let named = args.expected.clone().or_else(|| config.project.expected.clone());
    let folder = named.unwrap_or_else(|| PathBuf::from(EXPECTED));
    let (known, before) = match of_reader(Some(&folder), reader)? {
        Some((name, text)) => (expected::parse(&name, &text)?, text),
        None => (Expected::default(), String::new()),
    };
    let path = folder.join(format!("{reader}.toml"));
    let end = facts.end();
    let seen: Vec<_> = facts
        .seen()
        .values()
        .filter(|seen| seen.first.n < end.n)
        .map(as_expected)
        .collect();
    let new = expected::entries_of(&known, &opened.scenario, version, &seen);
    if new.is_empty() {
        say::out_tame(&format!("{} holds all of it already", path.display()));
        return Ok(ExitCode::AsExpected);
    }
    let io = |source| SuiteError::Io {
        what: "write the expected exceptions",
        source,
    };
    std::fs::create_dir_all(&folder).map_err(io)?;
    std::fs::write(&path, (before + &new).trim_start()).map_err(io)?;
    say::out_tame(new.trim());
    say::out_tame(&format!(
        "{} entries added to {} (look at each: what stands there is not noticed any more)",
        new.matches("[[entry]]").count(),
        path.display()
    ));
    Ok(ExitCode::AsExpected)
}
