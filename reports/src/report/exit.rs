//! The exit code of a suite.

use std::collections::BTreeMap;

use super::{Report, RunReport, Summary};
use crate::history::FailureOf;
use crate::verdict::{ExitCode, Verdict};

/// Every verdict, worst first.
const VERDICTS: [Verdict; 6] = [
    Verdict::Error,
    Verdict::Void,
    Verdict::Failed,
    Verdict::Skipped,
    Verdict::KnownFailing,
    Verdict::Passed,
];

/// What one run asks the suite to exit with; `AsExpected` when it asks for nothing.
fn asks(run: &RunReport) -> ExitCode {
    match run.verdict {
        // An error that names nobody is ours until shown otherwise.
        Verdict::Error if run.error_of == Some(FailureOf::Environment) => ExitCode::Environment,
        Verdict::Error => ExitCode::HarnessBug,
        Verdict::Failed => ExitCode::Violation,
        Verdict::Void => ExitCode::Void,
        Verdict::Passed if run.known_failing.is_some() => ExitCode::KnownFailurePassed,
        Verdict::Passed | Verdict::KnownFailing | Verdict::Skipped => ExitCode::AsExpected,
    }
}

impl Verdict {
    /// Whether a run with this verdict says something of its reader.
    pub fn is_judged(self) -> bool {
        matches!(self, Verdict::Passed | Verdict::Failed | Verdict::KnownFailing)
    }
}

impl Report {
    /// The suite's exit code: the first of 1, 3, 10, 11, 12, 13 that anything asks for, else 0.
    pub fn exit_code(&self) -> ExitCode {
        let stale = (!self.stale_known_failing.is_empty()).then_some(ExitCode::KnownFailurePassed);
        let nothing_judged = (!self.runs.iter().any(|run| run.verdict.is_judged())).then_some(ExitCode::NothingJudged);
        self.runs
            .iter()
            .map(asks)
            .chain(stale)
            .chain(nothing_judged)
            .filter(|code| *code != ExitCode::AsExpected)
            // The codes rise in the order in which they win.
            .min()
            .unwrap_or(ExitCode::AsExpected)
    }
}

impl ExitCode {
    /// What it means, as a fragment.
    pub fn meaning(self) -> &'static str {
        match self {
            ExitCode::AsExpected => "all as expected",
            ExitCode::HarnessBug => "a bug in the harness",
            ExitCode::Usage => "bad arguments or a bad scenario",
            ExitCode::Environment => "the environment failed",
            ExitCode::Violation => "a violation",
            ExitCode::Void => "a void run",
            ExitCode::KnownFailurePassed => "a known failure passed, or an entry is stale",
            ExitCode::NothingJudged => "nothing was judged",
        }
    }
}

pub(super) fn summary(report: &Report) -> Summary {
    let mut verdicts: BTreeMap<String, u64> = VERDICTS.iter().map(|v| (v.name().to_owned(), 0)).collect();
    for run in &report.runs {
        *verdicts.entry(run.verdict.name().to_owned()).or_default() += 1;
    }
    let of = |verdict: Verdict| verdicts.get(verdict.name()).copied().unwrap_or(0);
    Summary {
        judged: VERDICTS.iter().filter(|v| v.is_judged()).map(|v| of(*v)).sum(),
        skipped: of(Verdict::Skipped),
        void: of(Verdict::Void),
        exit_code: report.exit_code().code(),
        verdicts,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::history::{Phase, ReaderInfo};
    use crate::protocol::Kind;
    use crate::report::{SkipReport, StaleEntry};

    /// `e` error of ours, `E` of the environment, `?` of nobody, `f` failed, `v` void, `p` passed, `P` passed against an
    /// entry, `k` known-failing, `F` failed otherwise than its entry says, `s` skipped, `S` skipped with an entry.
    fn run(letter: char) -> RunReport {
        let reader = ReaderInfo {
            name: "r".into(),
            version: String::new(),
            source: "bundled".into(),
            kind: Kind::Table,
            lock: None,
            declares: Default::default(),
        };
        let skip = SkipReport {
            reason: "no".into(),
            enable: "yes".into(),
        };
        let mut run = RunReport::skipped("a/b", "t", Phase::Live, &reader, skip);
        run.verdict = match letter {
            'e' | 'E' | '?' => Verdict::Error,
            'f' | 'F' => Verdict::Failed,
            'v' => Verdict::Void,
            'p' | 'P' => Verdict::Passed,
            'k' => Verdict::KnownFailing,
            _ => Verdict::Skipped,
        };
        run.error_of = match letter {
            'e' => Some(FailureOf::Harness),
            'E' => Some(FailureOf::Environment),
            _ => None,
        };
        if "PkFS".contains(letter) {
            run.known_failing = Some("reason".into());
        }
        run
    }

    fn code(letters: &str, stale: bool) -> i32 {
        let stale = stale.then(|| StaleEntry {
            entry: "x".into(),
            text: "gone".into(),
        });
        let report = Report::new(
            "0",
            "",
            "",
            letters.chars().map(run).collect(),
            stale.into_iter().collect(),
        );
        assert_eq!(report.summary.exit_code, report.exit_code().code());
        report.summary.exit_code
    }

    #[test]
    fn each_combination_of_runs_gives_the_code_of_the_table() {
        let table: [(&str, bool, i32); 26] = [
            ("", false, 13),
            ("s", false, 13),
            ("ss", true, 12),
            ("", true, 12),
            ("S", false, 13),
            ("p", false, 0),
            ("ps", false, 0),
            ("k", false, 0),
            ("ks", false, 0),
            ("pk", true, 12),
            ("P", false, 12),
            ("kP", false, 12),
            ("v", false, 11),
            ("pv", false, 11),
            ("vP", true, 11),
            ("f", false, 10),
            ("F", false, 10),
            ("fv", false, 10),
            ("pfvP", true, 10),
            ("E", false, 3),
            ("Ef", false, 3),
            ("Es", false, 3),
            ("e", false, 1),
            ("?", false, 1),
            ("eE", false, 1),
            ("EefvPsk", true, 1),
        ];
        for (letters, stale, wanted) in table {
            assert_eq!(code(letters, stale), wanted, "runs `{letters}`, stale entry {stale}");
        }
    }

    #[test]
    fn counts_of_all_verdicts_stand_in_the_summary() {
        let report = Report::new("0", "", "", "ppfkvsse".chars().map(run).collect(), Vec::new());
        assert_eq!(
            (report.summary.judged, report.summary.void, report.summary.skipped),
            (4, 1, 2)
        );
        let counted: Vec<_> = report
            .summary
            .verdicts
            .iter()
            .map(|(name, n)| format!("{name} {n}"))
            .collect();
        assert_eq!(
            counted.join(", "),
            "error 1, failed 1, known-failing 1, passed 2, skipped 2, void 1"
        );
    }

    /// The rules as a person reads them off the page, one question after the other.
    fn naive(letters: &str, stale: bool) -> i32 {
        let any = |wanted: &str| letters.chars().any(|c| wanted.contains(c));
        if any("e?") {
            return 1;
        }
        if any("E") {
            return 3;
        }
        if any("fF") {
            return 10;
        }
        if any("v") {
            return 11;
        }
        if stale || any("P") {
            return 12;
        }
        if !any("pkfFP") {
            return 13;
        }
        0
    }

    proptest! {
        #[test]
        fn any_suite_exits_as_the_rules_read(letters in "[eE?fFvpPksS]{0,12}", stale: bool) {
            prop_assert_eq!(code(&letters, stale), naive(&letters, stale));
        }
    }
}
