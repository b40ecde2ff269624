//! `accept`: what a run showed becomes what is expected of its reader.

use std::path::Path;

use brokerfall_report::verdict::{ExitCode, Verdict};

use super::args::AcceptArgs;
use super::error::SuiteError;
use super::say;
use crate::invariant::exception_expected::as_expected;
use crate::scenario::expected::{self, Expected};
use crate::verdict;

/// Writes entries for every exception of a stored run into `DIR/<reader>.toml`.
///
/// # Errors
/// [`SuiteError::Usage`] when the history cannot be read, the run proves nothing, or the file of the reader is wrong;
/// [`SuiteError::Io`] when it cannot be written.
pub(crate) fn accept(args: &AcceptArgs) -> Result<ExitCode, SuiteError> {
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
    let path = args.expected.join(format!("{reader}.toml"));
    let (known, before) = read(&path)?;
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
    std::fs::create_dir_all(&args.expected).map_err(io)?;
    std::fs::write(&path, (before + &new).trim_start()).map_err(io)?;
    say::out_tame(new.trim());
    say::out_tame(&format!(
        "{} entries added to {} (look at each: what stands there is not noticed any more)",
        new.matches("[[entry]]").count(),
        path.display()
    ));
    Ok(ExitCode::AsExpected)
}

/// The file as it is, if there is one.
fn read(path: &Path) -> Result<(Expected, String), SuiteError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => return Ok(Default::default()),
        Err(source) => {
            return Err(SuiteError::Io {
                what: "read the expected exceptions",
                source,
            });
        }
    };
    let known =
        expected::parse(&path.to_string_lossy(), &text).map_err(|wrong| SuiteError::Usage(wrong.to_string()))?;
    Ok((known, text))
}
