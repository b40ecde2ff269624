//! Manifests: what describes a reader, bundled or not. Nothing about a library is compiled into the harness.
//!
//! A manifest is one TOML file; `harness/adapters/manifests/ktables.toml` shows its keys, but for `[[claim]]`
//! ([`super::claims`]). This module reads and checks one; finding them is in [`super::catalogue`], carrying out their
//! `[provision]` in [`super::provision`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use brokerfall_report::history::Declares;
use brokerfall_report::protocol::{Kind, RECORDS_IDS, RECORDS_OFFSETS, STATE, STATIC_MEMBER};
use serde::{Deserialize, Serialize};

use super::claims::Claim;
use super::validate::{ARM_CALLBACK, ARM_CALLBACK_DELAY, holds};
use crate::scenario::duration;

/// Every capability of adapter protocol v1: the optional events and commands by name, and the optional parts of
/// `records` and `heartbeat`, whether local state is kept, and whether members can be static.
pub const CAPABILITIES: [&str; 19] = [
    "rebalanced",
    "reset",
    "committed",
    "caught_up",
    "status",
    "snapshot",
    "barrier",
    "wait_caught_up",
    ARM_CALLBACK,
    ARM_CALLBACK_DELAY,
    "commit",
    "restart",
    "returned",
    "deleted",
    RECORDS_OFFSETS,
    RECORDS_IDS,
    "heartbeat.positions",
    STATE,
    STATIC_MEMBER,
];

/// Kinds of cluster that a manifest can name.
pub const CLUSTERS: [&str; 3] = ["mock", "process", "container"];

/// Words in braces that a command may hold.
const PLACEHOLDERS: [&str; 4] = ["adapter", "folder", "program", "python"];

/// A reader's manifest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Manifest {
    /// Name, as `--reader` takes it: lower-case letters, digits and hyphens.
    pub name: String,
    /// One line for `brokerfall readers`.
    #[serde(default)]
    pub summary: String,
    /// Kinds that the adapter can build, at least one. One run is made per kind.
    pub kinds: Vec<Kind>,
    /// Program and arguments. `{adapter}` is the folder of the bundled adapters, `{folder}` the manifest's own folder,
    /// `{program}` the harness's own binary, `{python}` the interpreter of the provisioned environment.
    pub command: Vec<String>,
    /// Variables added to the allow-listed environment; values may hold the same placeholders.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The suite that this reader belongs to: `--reader SUITE` takes all of it.
    #[serde(default)]
    pub in_suite: Option<String>,
    /// Clusters that it can use; empty means all.
    #[serde(default)]
    pub clusters: Vec<String>,
    /// What its adapter can do ([`CAPABILITIES`]); absent means that only its `hello` tells.
    #[serde(default)]
    pub capabilities: Option<Vec<String>>,
    /// Run only these scenarios (an id, with or without its matrix part, or a folder); empty means all.
    #[serde(default)]
    pub scenarios: Vec<String>,
    /// Limits, per library and never per version.
    #[serde(default)]
    pub limits: ManifestLimits,
    /// Documented behaviour that judging must know.
    #[serde(default)]
    pub declares: ManifestDeclares,
    /// Endpoints and programs of its own that say how it is; those of brokerfall.toml come to them.
    #[serde(rename = "claim", default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<Claim>,
    /// How the library is installed; absent for readers that are there already.
    #[serde(default)]
    pub provision: Option<Provision>,
    /// Known versions, oldest first; the last is taken when none is asked for.
    #[serde(rename = "version", default)]
    pub versions: Vec<Version>,
}

/// Limits that a library declares. What is absent is left to the defaults.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ManifestLimits {
    /// Recovery window.
    #[serde(default, with = "duration::option", skip_serializing_if = "Option::is_none")]
    pub within: Option<Duration>,
    /// How long its own close may take.
    #[serde(default, with = "duration::option", skip_serializing_if = "Option::is_none")]
    pub stop_grace: Option<Duration>,
    /// CPU of its process group over an outage, in cores.
    #[serde(default)]
    pub cpu: Option<f64>,
    /// Requests and connects over an outage, per second.
    #[serde(default)]
    pub requests: Option<f64>,
    /// Error events over an outage, per second.
    #[serde(default)]
    pub errors: Option<f64>,
    /// Rise of the memory of its process group over an outage, MiB.
    #[serde(default)]
    pub memory_mib: Option<f64>,
    /// Rise of its open descriptors over an outage.
    #[serde(default)]
    pub descriptors: Option<f64>,
}

/// Documented behaviour of a library.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ManifestDeclares {
    /// Whether `caught_up` latches at the initial end (the default) or is always current.
    #[serde(default)]
    pub caught_up: CaughtUp,
    /// `reset`: a jump to the end after an out-of-range answer is documented.
    #[serde(default)]
    pub skips: Option<Skips>,
    /// `cleared`: keys whose every record was deleted leave the table.
    #[serde(default)]
    pub expired: Option<Expired>,
    /// `on-loop`: user callbacks run on the event loop that close runs on too, so that one that never returns can only be
    /// ended with its process.
    #[serde(default)]
    pub callbacks: Option<Callbacks>,
}

/// What `caught_up` means.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CaughtUp {
    /// True from the initial end on.
    #[default]
    Latch,
    /// True only while the reader is at the end.
    Current,
}

/// What a reader may skip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Skips {
    /// What a reset to the end jumps over.
    Reset,
}

/// Where a library calls the user's callbacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Callbacks {
    /// On the application's event loop.
    OnLoop,
}

/// What becomes of keys whose every record was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expired {
    /// They leave the table.
    Cleared,
}

/// How a library is installed. Exactly one language.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Provision {
    /// From a Python package index.
    #[serde(default)]
    pub python: Option<PythonProvision>,
}

/// A Python environment of the reader's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PythonProvision {
    /// The library's package name; `@path:` and `@git:` must provide it.
    pub package: String,
    /// Lowest Python version, such as `3.10`.
    #[serde(default)]
    pub requires: Option<String>,
    /// What is installed beside a library from `@path:` or `@git:`.
    #[serde(default)]
    pub packages: Vec<String>,
}

/// A version of the library that is known to install.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Version {
    /// As `--reader NAME@VERSION` takes it.
    pub version: String,
    /// Exact requirements, the library's own first.
    #[serde(default)]
    pub pins: Vec<String>,
}

/// A manifest that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {text}")]
pub struct ManifestError {
    /// File.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What was found and what was wanted.
    pub text: String,
}

impl Manifest {
    /// Reads and checks a manifest. `file` is only named in errors.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place and the nearest word that would have been right.
    pub fn parse(text: &str, file: &str) -> Result<Manifest, ManifestError> {
        let manifest: Manifest = toml::from_str(text).map_err(|error| {
            let (line, column) = place(text, error.span().map_or(0, |span| span.start));
            ManifestError {
                file: file.to_owned(),
                line,
                column,
                text: with_nearest(error.message()),
            }
        })?;
        match manifest.complaint() {
            None => Ok(manifest),
            Some((needle, complaint)) => {
                let (line, column) = place(text, text.find(&needle).unwrap_or(0));
                Err(ManifestError {
                    file: file.to_owned(),
                    line,
                    column,
                    text: complaint,
                })
            }
        }
    }

    /// What describes a program of which only the command line and the kind are known.
    pub fn bare(name: &str, kind: Kind, command: Vec<String>) -> Manifest {
        Manifest {
            name: name.to_owned(),
            summary: String::new(),
            kinds: vec![kind],
            command,
            env: BTreeMap::new(),
            in_suite: None,
            clusters: Vec::new(),
            capabilities: None,
            scenarios: Vec::new(),
            limits: ManifestLimits::default(),
            declares: ManifestDeclares::default(),
            claims: Vec::new(),
            provision: None,
            versions: Vec::new(),
        }
    }

    /// Whether the manifest says that the adapter can do this; `None` where only its `hello` tells.
    pub fn can(&self, capability: &str) -> Option<bool> {
        self.capabilities
            .as_ref()
            .map(|all| holds(all.iter().map(String::as_str), capability))
    }

    /// Whether it can use this kind of cluster.
    pub fn serves_on(&self, cluster: &str) -> bool {
        self.clusters.is_empty() || self.clusters.iter().any(|one| one == cluster)
    }

    /// Whether it runs this scenario (`folder/name[axis=value]`).
    pub fn runs(&self, scenario: &str) -> bool {
        self.scenarios.is_empty()
            || self.scenarios.iter().any(|pattern| {
                scenario
                    .strip_prefix(pattern.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '[']))
            })
    }

    /// What judging must know, in the history's form.
    pub fn declared(&self) -> Declares {
        Declares {
            caught_up_is_current: self.declares.caught_up == CaughtUp::Current,
            skips_on_reset: self.declares.skips.is_some(),
            clears_expired: self.declares.expired.is_some(),
            stop_grace_ms: self
                .limits
                .stop_grace
                .map(|grace| u64::try_from(grace.as_millis()).unwrap_or(u64::MAX)),
        }
    }

    /// What is wrong beyond the file's form: the text to point at, and the sentence.
    fn complaint(&self) -> Option<(String, String)> {
        let quoted = |word: &str| format!("\"{word}\"");
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if self.name.is_empty() || !self.name.chars().all(plain) {
            return Some((
                quoted(&self.name),
                format!(
                    "`{}` is no reader name (wanted lower-case letters, digits and hyphens)",
                    self.name
                ),
            ));
        }
        if self.kinds.is_empty() {
            return Some(("kinds".to_owned(), "`kinds` is empty (wanted at least one)".to_owned()));
        }
        if self.command.is_empty() {
            return Some((
                "command".to_owned(),
                "`command` is empty (wanted a program and its arguments)".to_owned(),
            ));
        }
        for word in self.command.iter().chain(self.env.values()) {
            if let Some(unknown) = placeholders(word).find(|name| !PLACEHOLDERS.contains(name)) {
                return Some((
                    format!("{{{unknown}}}"),
                    unknown_word("placeholder", unknown, &PLACEHOLDERS),
                ));
            }
        }
        for cluster in &self.clusters {
            if !CLUSTERS.contains(&cluster.as_str()) {
                return Some((quoted(cluster), unknown_word("cluster", cluster, &CLUSTERS)));
            }
        }
        for capability in self.capabilities.iter().flatten() {
            if !CAPABILITIES.contains(&capability.as_str()) {
                return Some((
                    quoted(capability),
                    unknown_word("capability", capability, &CAPABILITIES),
                ));
            }
        }
        let provisioned = self.provision.as_ref().is_some_and(|p| p.python.is_some());
        if self
            .command
            .iter()
            .any(|word| placeholders(word).any(|name| name == "python"))
            && !provisioned
        {
            return Some((
                "{python}".to_owned(),
                "`{python}` needs an environment (add `[provision.python]`)".to_owned(),
            ));
        }
        if provisioned && self.versions.is_empty() {
            return Some((
                "[provision".to_owned(),
                "no version is known (add `[[version]]` with `version` and `pins`)".to_owned(),
            ));
        }
        let mut seen = BTreeSet::new();
        for version in &self.versions {
            if !seen.insert(&version.version) {
                return Some((
                    quoted(&version.version),
                    format!("version `{}` stands here twice", version.version),
                ));
            }
            if provisioned && version.pins.is_empty() {
                return Some((
                    quoted(&version.version),
                    format!(
                        "version `{}` has no `pins` (wanted exact requirements such as \"{}=={}\")",
                        version.version, self.name, version.version
                    ),
                ));
            }
        }
        None
    }
}

/// The words in braces of a command's word.
fn placeholders(word: &str) -> impl Iterator<Item = &str> {
    word.split('{')
        .skip(1)
        .filter_map(|rest| rest.split_once('}').map(|(name, _)| name))
}

/// `unknown KIND \`word\`` with the nearest known word, or all of them.
pub(super) fn unknown_word(kind: &str, word: &str, known: &[&str]) -> String {
    match nearest(word, known.iter().copied()) {
        Some(near) => format!("unknown {kind} `{word}` (did you mean `{near}`?)"),
        None => format!("unknown {kind} `{word}` (known: {})", known.join(", ")),
    }
}

/// The known word that is most like `word`, if any is like it at all.
pub(super) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|candidate| (strsim::jaro_winkler(word, candidate), candidate))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// Adds the nearest word to serde's "unknown field" and "unknown variant" messages.
fn with_nearest(message: &str) -> String {
    let first = message.lines().next().unwrap_or_default();
    let mut words = first.split('`').skip(1).step_by(2);
    if first.starts_with("unknown ")
        && let Some(found) = words.next()
    {
        let known: Vec<&str> = words.collect();
        let kind = if first.starts_with("unknown field") {
            "key"
        } else {
            "value"
        };
        return unknown_word(kind, found, &known);
    }
    first.to_owned()
}

/// Line and column, from 1, of a byte position.
fn place(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "name = \"lib\"\nkinds = [\"table\"]\ncommand = [\"lib-adapter\"]\n";

    fn refused(text: &str) -> String {
        Manifest::parse(text, "lib.toml").unwrap_err().to_string()
    }

    #[test]
    fn smallest_manifest_leaves_everything_else_open() {
        let manifest = Manifest::parse(GOOD, "lib.toml").unwrap();
        assert_eq!(manifest, {
            let mut bare = Manifest::bare("lib", Kind::Table, vec!["lib-adapter".into()]);
            bare.limits = ManifestLimits::default();
            bare
        });
        assert_eq!(manifest.can("snapshot"), None);
        assert!(manifest.serves_on("mock") && manifest.runs("any/thing"));
        assert_eq!(manifest.declared(), Declares::default());
    }

    #[test]
    fn limits_and_declarations_reach_the_history_form() {
        let text = format!(
            "{GOOD}[limits]\nwithin = \"5s\"\nstop-grace = \"2s\"\n[declares]\ncaught-up = \"current\"\nskips = \"reset\"\nexpired = \"cleared\"\n"
        );
        let manifest = Manifest::parse(&text, "lib.toml").unwrap();
        assert_eq!(manifest.limits.within, Some(Duration::from_secs(5)));
        assert_eq!(
            manifest.declared(),
            Declares {
                caught_up_is_current: true,
                skips_on_reset: true,
                clears_expired: true,
                stop_grace_ms: Some(2000)
            }
        );
    }

    #[test]
    fn scenario_patterns_match_ids_matrices_and_folders_but_no_mere_prefix() {
        let mut manifest = Manifest::parse(GOOD, "lib.toml").unwrap();
        manifest.scenarios = vec!["callback-panic/on-set-live".into(), "incidents".into()];
        assert!(manifest.runs("callback-panic/on-set-live"));
        assert!(manifest.runs("callback-panic/on-set-live[partitions=3]"));
        assert!(manifest.runs("incidents/sarama-consume-once"));
        assert!(!manifest.runs("callback-panic/on-set-live-twice"));
        assert!(!manifest.runs("incidents-more/x"));
    }

    #[test]
    fn misspelt_words_are_refused_with_place_and_nearest_word() {
        assert_eq!(
            refused("name = \"lib\"\nkind = [\"table\"]\ncommand = [\"x\"]\n"),
            "lib.toml:2:1: unknown key `kind` (did you mean `kinds`?)"
        );
        assert_eq!(
            refused("name = \"lib\"\nkinds = [\"tabel\"]\ncommand = [\"x\"]\n"),
            "lib.toml:2:10: unknown value `tabel` (did you mean `table`?)"
        );
        assert_eq!(
            refused(&format!("{GOOD}capabilities = [\"snapshots\"]\n")),
            "lib.toml:4:17: unknown capability `snapshots` (did you mean `snapshot`?)"
        );
        assert_eq!(
            refused(&format!("{GOOD}clusters = [\"moc\"]\n")),
            "lib.toml:4:13: unknown cluster `moc` (did you mean `mock`?)"
        );
        assert_eq!(
            refused(&format!("{GOOD}[limits]\nwithin = \"5 s\"\n")),
            "lib.toml:5:10: `5 s` has no known unit (wanted `ms`, `s` or `m`, such as \"5s\")"
        );
    }

    #[test]
    fn commands_that_cannot_be_filled_in_are_refused() {
        assert_eq!(
            refused("name = \"lib\"\nkinds = [\"table\"]\ncommand = [\"{pyton}\", \"a.py\"]\n"),
            "lib.toml:3:13: unknown placeholder `pyton` (did you mean `python`?)"
        );
        assert_eq!(
            refused("name = \"lib\"\nkinds = [\"table\"]\ncommand = [\"{python}\", \"a.py\"]\n"),
            "lib.toml:3:13: `{python}` needs an environment (add `[provision.python]`)"
        );
        assert_eq!(
            refused("name = \"lib\"\nkinds = [\"table\"]\ncommand = []\n"),
            "lib.toml:3:1: `command` is empty (wanted a program and its arguments)"
        );
    }

    #[test]
    fn versions_without_pins_or_said_twice_are_refused() {
        let provisioned = format!("{GOOD}[provision.python]\npackage = \"lib\"\n");
        assert!(refused(&provisioned).contains("no version is known"));
        assert!(refused(&format!("{provisioned}[[version]]\nversion = \"1.0\"\n")).contains("has no `pins`"));
        let twice = "[[version]]\nversion = \"1.0\"\npins = [\"lib==1.0\"]\n".repeat(2);
        assert!(refused(&format!("{provisioned}{twice}")).contains("stands here twice"));
    }
}
