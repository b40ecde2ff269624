//! `brokerfall explain NAME`: what the words of the product mean.
//!
//! The texts are `harness/explain/*.md`, one `## name` section for each fault, invariant, verdict, grade, failure kind,
//! exit code, exception of our own and word of a report.

use crate::scenario::nearest;

const TEXTS: [(&str, &str); 8] = [
    ("faults", include_str!("../explain/faults.md")),
    ("invariants", include_str!("../explain/invariants.md")),
    ("verdicts and evidence", include_str!("../explain/verdicts.md")),
    ("kinds of failure", include_str!("../explain/failures.md")),
    ("exit codes", include_str!("../explain/exit-codes.md")),
    ("words of reports", include_str!("../explain/report-words.md")),
    ("exceptions of our own", include_str!("../explain/exceptions.md")),
    ("reading a verdict", include_str!("../explain/reading-a-verdict.md")),
];

/// No text has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Nearest {
    /// What was asked for.
    pub name: String,
    /// The name that is nearest to it, if one is near.
    pub nearest: Option<&'static str>,
}

impl std::fmt::Display for Nearest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "nothing to explain under `{}`", self.name.escape_debug())?;
        match self.nearest {
            Some(near) => write!(f, " (did you mean `{near}`?)"),
            None => f.write_str(" (names of faults, invariants, verdicts, failure kinds, exit codes, our own exceptions and the words of reports are known; `brokerfall explain` lists them)"),
        }
    }
}

/// Every name that can be explained, in the order of the texts.
pub fn names() -> Vec<&'static str> {
    sections().map(|(name, _)| name).collect()
}

/// Every topic with the names below it, in the order of the texts.
pub fn topics() -> Vec<(&'static str, Vec<&'static str>)> {
    TEXTS
        .iter()
        .map(|(topic, text)| (*topic, sections_of(text).map(|(name, _)| name).collect()))
        .collect()
}

/// The text of a name, Markdown without its heading. Case, `-`, `_` and spaces do not matter; an exit code may be given as
/// its number.
///
/// # Errors
/// [`Nearest`] when there is none.
pub fn lookup(name: &str) -> Result<&'static str, Nearest> {
    let wanted = match name.parse::<u8>() {
        Ok(code) => format!("exit-{code}"),
        Err(_) => plain(name),
    };
    sections()
        .find(|(known, _)| plain(known) == wanted)
        .map(|(_, text)| text)
        .ok_or_else(|| Nearest {
            name: name.chars().take(80).collect(),
            nearest: nearest(&wanted, names()),
        })
}

fn plain(name: &str) -> String {
    name.trim().to_lowercase().replace(['_', ' '], "-")
}

fn sections() -> impl Iterator<Item = (&'static str, &'static str)> {
    TEXTS.iter().flat_map(|(_, text)| sections_of(text))
}

fn sections_of(text: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    text.strip_prefix("## ")
        .unwrap_or(text)
        .split("\n## ")
        .filter_map(|section| section.split_once('\n'))
        .map(|(name, text)| (name.trim(), text.trim()))
}

#[cfg(test)]
mod tests {
    use brokerfall_report::verdict::{ExitCode, FailureKind, Verdict};

    use super::*;
    use crate::scenario::words::{FAULTS, INVARIANTS};

    #[test]
    fn every_fault_invariant_verdict_failure_and_exit_code_is_explained() {
        let verdicts = [
            Verdict::Error,
            Verdict::Void,
            Verdict::Failed,
            Verdict::Skipped,
            Verdict::KnownFailing,
            Verdict::Passed,
        ];
        let failures = [
            FailureKind::Terminal,
            FailureKind::Silent,
            FailureKind::Stuck,
            FailureKind::Slow,
            FailureKind::Hot,
        ];
        let codes = [
            ExitCode::AsExpected,
            ExitCode::HarnessBug,
            ExitCode::Usage,
            ExitCode::Environment,
            ExitCode::Violation,
            ExitCode::Void,
            ExitCode::KnownFailurePassed,
            ExitCode::NothingJudged,
        ];
        let mut names: Vec<String> = FAULTS
            .iter()
            .chain(&INVARIANTS)
            .map(|name| (*name).to_owned())
            .collect();
        names.extend(verdicts.map(|verdict| verdict.name().to_owned()));
        names.extend(failures.map(|failure| failure.name().to_owned()));
        names.extend(codes.map(|code| code.code().to_string()));
        for name in names {
            assert!(lookup(&name).is_ok_and(|text| text.len() > 20), "{name}");
        }
    }

    /// Types that our own SDKs and readers raise, found in their sources.
    #[test]
    fn every_exception_of_our_own_is_explained() {
        let mut types = Vec::new();
        let mut folders = vec![std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/reader")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = std::fs::read_to_string(path).unwrap();
                let words = text.split('"').filter(|word| word.starts_with("brokerfall::reader::"));
                types.extend(words.map(str::to_owned));
            }
        }
        let sdk = crate::reader::provision::embedded_adapter("python/brokerfall_adapter.py").unwrap();
        let classes = sdk
            .lines()
            .filter_map(|line| line.strip_prefix("class ")?.split_once('('));
        let raised = classes.filter(|(_, parents)| parents.contains("Exception"));
        types.extend(raised.map(|(name, _)| format!("brokerfall_adapter.{name}")));
        assert!(types.len() >= 9, "{types:?}");
        for name in types {
            assert!(lookup(&name).is_ok_and(|text| text.len() > 20), "{name}");
        }
    }

    #[test]
    fn every_name_stands_below_a_topic() {
        let below: Vec<_> = topics().into_iter().flat_map(|(_, names)| names).collect();
        assert_eq!(below, names());
        for page in ["what a verdict does not say", "clocks and SIGSTOP"] {
            assert!(below.contains(&page), "{page}");
        }
    }

    #[test]
    fn a_fault_says_its_evidence_and_its_heal() {
        for fault in FAULTS.iter() {
            let text = lookup(fault).unwrap();
            for part in ["Injected:", "Delivered:", "Felt:", "Heal:"] {
                assert!(text.contains(part), "{fault} lacks `{part}`");
            }
            let example = text.lines().find(|line| line.starts_with("    do = ")).unwrap();
            let file = format!(
                "format = 1\ntitle = \"t\"\ncluster = {{ brokers = 3 }}\n[[topic]]\nname = \"orders\"\nreplicas = 2\ncleanup = \"compact,delete\"\n[[step]]\n{example}\n"
            );
            let plans = crate::scenario::load(fault, &file).and_then(|scenario| scenario.plans());
            assert!(plans.is_ok(), "{fault}: {plans:?}");
        }
    }

    #[test]
    fn names_are_unique_and_spelling_is_forgiven() {
        let mut all = names();
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count);
        assert_eq!(lookup("Known failing"), lookup("known-failing"));
        assert_eq!(lookup("no-lost-record"), lookup("no_lost_record"));
        assert_eq!(
            lookup("recover").unwrap_err().to_string(),
            "nothing to explain under `recover` (did you mean `recovers`?)"
        );
    }
}
