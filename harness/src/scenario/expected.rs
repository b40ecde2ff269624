//! Expected exceptions: those that a person looked at and accepted, so that a new one is noticed.
//!
//! ```toml
//! [[entry]]
//! scenario = "broker-kill/live"
//! versions = ">=1.1 <2"
//! phase = "live"
//! origin = "log"
//! type = "aiokafka.errors.KafkaConnectionError"
//! code = 7                # where the class alone says nothing
//!
//! [[entry]]               # a run that showed none
//! scenario = "control/idle"
//! versions = "*"
//! type = "none"
//! ```
//!
//! `brokerfall accept RUN` writes entries from a run ([`entries_of`]). What applies to a run stands in its history, so that
//! it is judged by nothing else. Deliberately not here: judging (`invariant/exception_expected`).

use std::fmt::Write;

use brokerfall_report::exception::Origin;
use brokerfall_report::history::{ExpectedException, Phase};

use super::Diagnostics;
use super::diagnostics::Sink;
use super::known_failing::{Versions, names};
use super::section::{Section, list};

/// Stands for no exception at all.
const NONE: &str = "none";

/// The accepted exceptions of one reader.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expected {
    /// In the order of the file.
    pub entries: Vec<Entry>,
}

/// One accepted exception.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Scenario id; `*` stands for any characters. Without axes it covers every value of them.
    pub scenario: String,
    /// Versions of the reader that show it.
    pub versions: Versions,
    /// What it shows; absent (`none` in the file) for a run that showed nothing.
    pub exception: Option<ExpectedException>,
}

/// Reads a file of expected exceptions.
///
/// # Errors
/// Everything that is wrong with it.
///
/// ```
/// let text = "[[entry]]\nscenario = \"broker-kill/*\"\nversions = \"<2\"\nphase = \"live\"\norigin = \"poll\"\ntype = \"a.B\"\n";
/// let expected = brokerfall::scenario::expected::parse("expected/mine.toml", text)?;
/// assert_eq!(expected.of("broker-kill/live", "1.4").map(|some| some.len()), Some(1));
/// assert_eq!(expected.of("broker-kill/live", "2.0"), None);
/// # Ok::<(), brokerfall::scenario::Diagnostics>(())
/// ```
pub fn parse(file: &str, text: &str) -> Result<Expected, Diagnostics> {
    let sink = Sink::new(file, text);
    let root = sink.parse()?;
    let mut entries = Vec::new();
    if let Some(top) = Section::new("the file", &root, &sink) {
        entries = list(&top, "entry", &sink, |section| entry(section, &sink))
            .into_iter()
            .flatten()
            .collect();
        top.done();
    }
    sink.finish(Expected { entries })
}

fn entry(section: &Section<'_>, sink: &Sink<'_>) -> Option<Entry> {
    let scenario: Option<String> = section.required("scenario", "an id, with `*` for any characters");
    let versions: Option<String> = section.required("versions", "a range such as \"<1.1.2\", or \"*\"");
    let type_name: Option<String> = section.required("type", "a fully qualified type, or \"none\"");
    let versions = Versions::parse(&versions?)
        .map_err(|message| sink.push(&section.span_of("versions"), message))
        .ok();
    let exception = match type_name?.as_str() {
        NONE => None,
        type_name => {
            let phase: Option<Phase> = section.required("phase", "the phase in which it first surfaced");
            let origin: Option<Origin> = section.required("origin", "where it surfaced, such as \"poll\"");
            let code: Option<Option<i64>> = match section.node("code") {
                Some(_) => section.optional("code").map(Some),
                None => Some(None),
            };
            Some(ExpectedException {
                phase: phase?,
                origin: origin?,
                type_name: type_name.to_owned(),
                code: code?,
            })
        }
    };
    Some(Entry {
        scenario: scenario?,
        versions: versions?,
        exception,
    })
}

impl Expected {
    /// What was accepted for a version of the reader in a scenario; `None` where nobody has accepted anything.
    pub fn of(&self, scenario: &str, version: &str) -> Option<Vec<ExpectedException>> {
        let covers = |entry: &&Entry| names(&entry.scenario, scenario) && entry.versions.contain(version);
        let mut covering = self.entries.iter().filter(covers).peekable();
        covering.peek()?;
        let mut all: Vec<ExpectedException> = covering.filter_map(|entry| entry.exception.clone()).collect();
        all.sort();
        all.dedup();
        Some(all)
    }
}

/// Entries, as text for the end of a file, for what a run showed and `known` does not hold yet; empty when it holds all.
pub fn entries_of(known: &Expected, scenario: &str, version: &str, seen: &[ExpectedException]) -> String {
    let accepted = known.of(scenario, version);
    let range = Versions::parse(&format!("={version}")).map_or("*".to_owned(), |range| range.to_string());
    let mut text = String::new();
    let head = |text: &mut String| {
        let (scenario, range) = (quoted(scenario), quoted(&range));
        // OK to ignore: writing to a string does not fail.
        let _ = write!(text, "\n[[entry]]\nscenario = {scenario}\nversions = {range}\n");
    };
    if seen.is_empty() && accepted.is_none() {
        head(&mut text);
        text.push_str("type = \"none\"\n");
    }
    let mut new: Vec<&ExpectedException> = seen.iter().collect();
    new.sort();
    new.dedup();
    for exception in new {
        if accepted.as_ref().is_some_and(|accepted| accepted.contains(exception)) {
            continue;
        }
        head(&mut text);
        let (phase, origin) = (exception.phase.name(), exception.origin.name());
        let type_name = quoted(&exception.type_name);
        let _ = write!(text, "phase = \"{phase}\"\norigin = \"{origin}\"\ntype = {type_name}\n");
        if let Some(code) = exception.code {
            let _ = writeln!(text, "code = {code}");
        }
    }
    text
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(type_name: &str, code: Option<i64>) -> ExpectedException {
        ExpectedException {
            phase: Phase::Live,
            origin: Origin::Poll,
            type_name: type_name.to_owned(),
            code,
        }
    }

    #[test]
    fn what_was_accepted_is_what_the_file_holds_afterwards() {
        let shown = [seen("a.\"B\"", Some(-187)), seen("a.C", None), seen("a.C", None)];
        let text = entries_of(&Expected::default(), "broker-kill/live[mode=hold]", "1.1.2", &shown);
        let file = parse("expected/r.toml", &text).unwrap();
        let accepted = file.of("broker-kill/live[mode=hold]", "1.1.2");
        assert_eq!(accepted.unwrap(), [shown[0].clone(), shown[1].clone()]);
        assert_eq!(file.of("broker-kill/live[mode=hold]", "1.1.3"), None, "{text}");
        assert_eq!(entries_of(&file, "broker-kill/live[mode=hold]", "1.1.2", &shown), "");
    }

    #[test]
    fn a_run_that_showed_nothing_is_accepted_as_such() {
        let text = entries_of(&Expected::default(), "control/idle", "", &[]);
        let file = parse("f", &text).unwrap();
        assert_eq!(file.of("control/idle", "").unwrap(), []);
        assert_eq!(entries_of(&file, "control/idle", "", &[]), "");
        let more = entries_of(&file, "control/idle", "", &[seen("a.B", None)]);
        assert!(
            more.contains("type = \"a.B\"") && more.contains("versions = \"*\""),
            "{more}"
        );
    }

    #[test]
    fn what_is_wrong_with_a_file_is_named() {
        let wrong =
            "[[entry]]\nscenario = \"a/b\"\nversions = \"1\"\nphase = \"lively\"\norigin = \"poll\"\ntype = \"a.B\"\n";
        let text = parse("expected/r.toml", wrong).unwrap_err().to_string();
        assert!(
            text.contains("expected/r.toml:3") && text.contains("is no range of versions"),
            "{text}"
        );
        let wrong = wrong.replace("\"1\"", "\"*\"");
        let text = parse("expected/r.toml", &wrong).unwrap_err().to_string();
        assert!(text.contains(":4") && text.contains("live"), "{text}");
    }
}
