//! Known failures: what a reader is known to get wrong, so that a suite can be green and still notice every change.
//!
//! ```toml
//! [[entry]]
//! scenario = "callback-panic/*"
//! versions = "<1.1.2"
//! violated = ["callback_isolated", "recovers"]
//! exception = "builtins.ValueError"
//! reason = "an exception of on_set ends the table (fixed in 1.1.2)"
//! ```

use std::cmp::Ordering;
use std::fmt;

use brokerfall_report::protocol::Kind;

use super::Diagnostics;
use super::diagnostics::{Sink, quoted, unknown};
use super::section::{Section, list};
use super::words::INVARIANTS;

/// The known failures of one reader.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownFailing {
    /// In the order of the file.
    pub entries: Vec<Entry>,
}

/// One known failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Scenario id; `*` stands for any characters. Without axes it covers every value of them.
    pub scenario: String,
    /// The kind that the reader is built as; absent means every kind.
    pub kind: Option<Kind>,
    /// Versions of the reader that have it.
    pub versions: Versions,
    /// Invariants that are violated, all of them.
    pub violated: Vec<String>,
    /// Invariants that may be violated besides, such as those that depend on timing.
    pub may_violate: Vec<String>,
    /// Fully qualified type that is raised; absent (`none` in the file) when nothing is.
    pub exception: Option<String>,
    /// Why it is known.
    pub reason: String,
    /// Where it stands, `file:line`.
    pub place: String,
}

/// A run as an entry sees it.
#[derive(Debug, Clone)]
pub struct Run<'a> {
    /// Id of the plan.
    pub scenario: &'a str,
    /// What the reader was built as.
    pub kind: Kind,
    /// Version of the reader; empty where it has none.
    pub version: &'a str,
    /// Invariants that were violated; empty when it passed.
    pub violated: &'a [String],
    /// Fully qualified types of the exceptions that reached the caller, with those that they were raised from.
    pub exceptions: &'a [String],
}

/// What the entries say of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Match<'a> {
    /// No entry covers it.
    NotListed,
    /// It failed exactly as the entry says.
    Known(&'a Entry),
    /// It failed, but not as any entry that covers it says; the text compares it with the first.
    Differs(&'a Entry, String),
    /// It passed although an entry says that it fails.
    Passed(&'a Entry),
}

/// Reads a file of known failures.
///
/// # Errors
/// Everything that is wrong with it.
pub fn parse(file: &str, text: &str) -> Result<KnownFailing, Diagnostics> {
    let sink = Sink::new(file, text);
    let root = sink.parse()?;
    let mut entries = Vec::new();
    if let Some(top) = Section::new("the file", &root, &sink) {
        let read = list(&top, "entry", &sink, |section| entry(section, file, &sink));
        entries = read.into_iter().flatten().collect();
        top.done();
    }
    sink.finish(KnownFailing { entries })
}

fn entry(section: &Section<'_>, file: &str, sink: &Sink<'_>) -> Option<Entry> {
    let scenario: Option<String> = section.required("scenario", "an id, with `*` for any characters");
    let kind: Option<Kind> = section.optional("kind");
    let versions: Option<String> = section.required("versions", "a range such as \"<1.1.2\", or \"*\"");
    let violated: Option<Vec<String>> = section.required("violated", "ids of invariants");
    let may_violate: Option<Vec<String>> = section.or("may-violate", Vec::new());
    let exception: Option<String> = section.required("exception", "a fully qualified type, or \"none\"");
    let reason: Option<String> = section.required("reason", "why this failure is known");
    for (key, ids) in [("violated", &violated), ("may-violate", &may_violate)] {
        for id in ids.iter().flatten().filter(|id| !INVARIANTS.contains(&id.as_str())) {
            sink.push(&section.span_of(key), unknown("invariant", id, &INVARIANTS));
        }
    }
    if violated.as_ref().is_some_and(Vec::is_empty) {
        sink.push(
            &section.span_of("violated"),
            "a known failure violates nothing (name an invariant, or drop the entry)",
        );
    }
    let versions = Versions::parse(&versions?)
        .map_err(|message| sink.push(&section.span_of("versions"), message))
        .ok();
    Some(Entry {
        scenario: scenario?,
        kind,
        versions: versions?,
        violated: violated?,
        may_violate: may_violate?,
        exception: exception.map(|exception| (exception != "none").then_some(exception))?,
        reason: reason?,
        place: format!("{file}:{}", sink.line(&section.span())),
    })
}

impl KnownFailing {
    /// What the entries say of a run.
    pub fn judge(&self, run: &Run<'_>) -> Match<'_> {
        let listed: Vec<&Entry> = self.entries.iter().filter(|entry| entry.covers(run)).collect();
        let Some(first) = listed.first() else {
            return Match::NotListed;
        };
        if run.violated.is_empty() {
            return Match::Passed(first);
        }
        match listed.iter().find(|entry| entry.difference(run).is_none()) {
            Some(entry) => Match::Known(entry),
            None => Match::Differs(first, first.difference(run).unwrap_or_default()),
        }
    }

    /// Entries whose scenario is none of these ids: of a full catalogue they are stale, since no cluster can show them.
    pub fn stale(&self, catalogue: &[String]) -> Vec<&Entry> {
        self.entries
            .iter()
            .filter(|entry| !catalogue.iter().any(|id| entry.names(id)))
            .collect()
    }
}

impl Entry {
    fn covers(&self, run: &Run<'_>) -> bool {
        self.names(run.scenario) && self.kind.is_none_or(|kind| kind == run.kind) && self.versions.contain(run.version)
    }

    fn names(&self, id: &str) -> bool {
        names(&self.scenario, id)
    }

    /// How a failed run differs from this entry; `None` when it does not.
    fn difference(&self, run: &Run<'_>) -> Option<String> {
        let missing = without(&self.violated, run.violated, &[]);
        let surplus = without(run.violated, &self.violated, &self.may_violate);
        let mut parts = Vec::new();
        if !missing.is_empty() {
            parts.push(format!("held although listed as violated: {}", missing.join(", ")));
        }
        if !surplus.is_empty() {
            parts.push(format!("violated and not listed: {}", surplus.join(", ")));
        }
        match &self.exception {
            Some(exception) if !run.exceptions.contains(exception) => parts.push(format!(
                "exception {} listed, {} seen",
                quoted(exception),
                if run.exceptions.is_empty() {
                    "none".to_owned()
                } else {
                    run.exceptions.join(", ")
                }
            )),
            None if !run.exceptions.is_empty() => {
                parts.push(format!("no exception listed, {} seen", run.exceptions.join(", ")));
            }
            _ => {}
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

fn without<'a>(these: &'a [String], those: &[String], nor: &[String]) -> Vec<&'a str> {
    these
        .iter()
        .filter(|id| !those.contains(id) && !nor.contains(id))
        .map(String::as_str)
        .collect()
}

/// Whether a pattern names a plan: with its axes, or without them all of its values.
pub(super) fn names(pattern: &str, id: &str) -> bool {
    let base = id.split_once('[').map_or(id, |(base, _)| base);
    glob(pattern, id) || glob(pattern, base)
}

/// Whether `pattern`, in which `*` stands for any characters, covers the whole of `text`.
fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// A range of versions: comparators that must all hold, such as `>=1.1 <2`, or `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versions(Vec<(Comparator, String)>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparator {
    Below,
    AtMost,
    Above,
    AtLeast,
    Exactly,
}

impl Versions {
    /// Reads a range.
    ///
    /// # Errors
    /// A sentence that says what was found and wanted.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wanted = "wanted `*`, or `<`, `<=`, `>`, `>=`, `=` before a version, such as \">=1.1 <2\"";
        if text.trim() == "*" {
            return Ok(Self(Vec::new()));
        }
        let parts: Vec<&str> = text.split([' ', ',']).filter(|part| !part.is_empty()).collect();
        if parts.is_empty() {
            return Err(format!("a range of versions is empty ({wanted})"));
        }
        let mut comparators = Vec::new();
        for part in parts {
            let version = part.trim_start_matches(['<', '>', '=']);
            let comparator = match &part[..part.len() - version.len()] {
                "<" => Comparator::Below,
                "<=" => Comparator::AtMost,
                ">" => Comparator::Above,
                ">=" => Comparator::AtLeast,
                "=" | "==" => Comparator::Exactly,
                _ => return Err(format!("{} is no range of versions ({wanted})", quoted(part))),
            };
            if Version::parse(version).is_none() {
                return Err(format!("{} is no version ({wanted})", quoted(version)));
            }
            comparators.push((comparator, version.to_owned()));
        }
        Ok(Self(comparators))
    }

    /// Whether a version lies in the range. `*` holds every version, also none; a word that is no version lies in no
    /// other range.
    pub fn contain(&self, version: &str) -> bool {
        self.0.iter().all(|(comparator, bound)| {
            let (Some(version), Some(bound)) = (Version::parse(version), Version::parse(bound)) else {
                return false;
            };
            let order = version.compare(&bound);
            match comparator {
                Comparator::Below => order == Ordering::Less,
                Comparator::AtMost => order != Ordering::Greater,
                Comparator::Above => order == Ordering::Greater,
                Comparator::AtLeast => order != Ordering::Less,
                Comparator::Exactly => order == Ordering::Equal,
            }
        })
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("*");
        }
        for (n, (comparator, version)) in self.0.iter().enumerate() {
            let sign = match comparator {
                Comparator::Below => "<",
                Comparator::AtMost => "<=",
                Comparator::Above => ">",
                Comparator::AtLeast => ">=",
                Comparator::Exactly => "=",
            };
            write!(f, "{}{sign}{version}", if n > 0 { " " } else { "" })?;
        }
        Ok(())
    }
}

/// Numbers, and what follows the last of them: `1.2.0rc1` is [1, 2, 0] before a release.
struct Version<'a> {
    numbers: Vec<u64>,
    pre: &'a str,
}

impl<'a> Version<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let end = text
            .find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .unwrap_or(text.len());
        let (numbers, rest) = text.split_at(end);
        let numbers = numbers
            .trim_end_matches('.')
            .split('.')
            .map(|part| part.parse().ok())
            .collect::<Option<Vec<u64>>>()?;
        // Build metadata (`1.0+local`) does not order versions.
        let pre = rest
            .split('+')
            .next()
            .unwrap_or_default()
            .trim_start_matches(['-', '.']);
        Some(Self { numbers, pre })
    }

    fn compare(&self, other: &Self) -> Ordering {
        let length = self.numbers.len().max(other.numbers.len());
        let at = |version: &Self, n: usize| version.numbers.get(n).copied().unwrap_or(0);
        (0..length)
            .map(|n| at(self, n).cmp(&at(other, n)))
            .find(|order| order.is_ne())
            .unwrap_or_else(|| match (self.pre.is_empty(), other.pre.is_empty()) {
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                _ => self.pre.cmp(other.pre),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
[[entry]]
scenario = "callback-panic/*"
versions = "<1.1.2"
violated = ["callback_isolated", "recovers"]
may-violate = ["status_honest"]
exception = "builtins.ValueError"
reason = "an exception of on_set ends the table"
[[entry]]
scenario = "partition/hold-live[partitions=3]"
kind = "table"
versions = "*"
violated = ["recovers"]
exception = "none"
reason = "it goes to sleep"
"#;

    fn strings(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn judge(scenario: &str, version: &str, violated: &[&str], exceptions: &[&str]) -> String {
        judge_kind(Kind::Table, scenario, version, violated, exceptions)
    }

    fn judge_kind(kind: Kind, scenario: &str, version: &str, violated: &[&str], exceptions: &[&str]) -> String {
        let known = parse("known-failing/ktables.toml", FILE).unwrap();
        let (violated, exceptions) = (strings(violated), strings(exceptions));
        let run = Run {
            scenario,
            kind,
            version,
            violated: &violated,
            exceptions: &exceptions,
        };
        match known.judge(&run) {
            Match::NotListed => "not listed".to_owned(),
            Match::Known(entry) => format!("known at {}", entry.place),
            Match::Differs(_, text) => text,
            Match::Passed(entry) => format!("passed although {}", entry.reason),
        }
    }

    const ON_SET: &str = "callback-panic/on-set-live";

    #[test]
    fn a_run_that_fails_as_listed_is_known() {
        let violated = ["recovers", "callback_isolated"];
        let known = "known at known-failing/ktables.toml:2";
        assert_eq!(
            judge(ON_SET, "1.1.1", &violated, &["RuntimeError", "builtins.ValueError"]),
            known
        );
        let more = ["recovers", "callback_isolated", "status_honest"];
        assert_eq!(judge(ON_SET, "1.1.1", &more, &["builtins.ValueError"]), known);
    }

    #[test]
    fn a_run_that_fails_otherwise_differs_and_says_how() {
        assert_eq!(
            judge(ON_SET, "1.1.1", &["recovers", "no_lost_record"], &["builtins.KeyError"]),
            "held although listed as violated: callback_isolated; violated and not listed: no_lost_record; exception \
             `builtins.ValueError` listed, builtins.KeyError seen"
        );
        assert_eq!(
            judge("partition/hold-live[partitions=3]", "", &["recovers"], &["X"]),
            "no exception listed, X seen"
        );
    }

    #[test]
    fn other_versions_other_axes_and_other_kinds_are_not_listed() {
        let hold = "partition/hold-live[partitions=3]";
        assert_eq!(judge_kind(Kind::Group, hold, "9", &["recovers"], &[]), "not listed");
        assert_eq!(
            judge_kind(Kind::Table, hold, "9", &["recovers"], &[]),
            "known at known-failing/ktables.toml:9"
        );
        assert_eq!(judge(ON_SET, "1.1.2", &["recovers"], &[]), "not listed");
        assert_eq!(judge(ON_SET, "path:src", &["recovers"], &[]), "not listed");
        assert_eq!(
            judge("partition/hold-live[partitions=1]", "9", &["recovers"], &[]),
            "not listed"
        );
        assert_eq!(judge("callback-upset/hang", "1.1.1", &["recovers"], &[]), "not listed");
    }

    #[test]
    fn a_known_failure_that_passes_is_told() {
        assert_eq!(
            judge("callback-panic/x[partitions=3]", "1.0", &[], &[]),
            "passed although an exception of on_set ends the table"
        );
    }

    #[test]
    fn an_entry_whose_scenario_does_not_exist_is_stale() {
        let known = parse("f", FILE).unwrap();
        let stale = |ids: &[&str]| known.stale(&strings(ids)).len();
        assert_eq!(stale(&[ON_SET, "partition/hold-live[partitions=3]"]), 0);
        assert_eq!(stale(&["partition/hold-live[partitions=1]"]), 2);
    }

    #[test]
    fn version_ranges_compare_numbers_and_releases() {
        let within = |range: &str, version: &str| Versions::parse(range).unwrap().contain(version);
        assert!(within(">=1.1 <2", "1.10.3") && !within(">=1.1 <2", "2.0") && !within(">=1.1 <2", "1.0.9"));
        assert!(within("<2.0.0", "2.0.0rc1") && !within("=2.0.0", "2.0.0rc1") && within("=2", "2.0.0"));
        assert!(within("*", "") && !within("<1", ""));
        assert!(Versions::parse("1.1").is_err() && Versions::parse("~1.1").is_err() && Versions::parse("").is_err());
    }

    #[test]
    fn stars_stand_for_any_characters() {
        assert!(glob("*", "a/b") && glob("a/*", "a/b") && glob("a*c*e", "abcde") && glob("a/b", "a/b"));
        assert!(!glob("a/*", "b/a") && !glob("a*c", "abcd") && !glob("a", "ab") && !glob("ab*ba", "aba"));
    }
}
