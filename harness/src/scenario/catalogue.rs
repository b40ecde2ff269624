//! The scenarios that are embedded in the binary, and how the command line names them and a user's own.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use include_dir::{Dir, include_dir};

use super::diagnostics::quoted;
use super::expected::{self, Expected};
use super::known_failing::{self, KnownFailing};
use super::{Diagnostics, Plan, Scenario, Summary, load, nearest};

static EMBEDDED: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/scenarios");

/// Folders below `scenarios/` that hold no scenarios.
const NOT_SCENARIOS: [&str; 2] = ["known-failing", "expected"];

/// The tag that is run where nothing else is said.
pub const QUICK: &str = "quick";

/// Every bundled scenario.
///
/// # Errors
/// Everything that is wrong with any of their files.
pub fn all() -> Result<Vec<Scenario>, Diagnostics> {
    gather(files(&EMBEDDED).into_iter().map(|(id, text)| load(&id, text)))
}

/// The plans of every bundled scenario.
///
/// # Errors
/// Everything that is wrong with any of their files.
pub fn plans() -> Result<Vec<Plan>, Diagnostics> {
    let plans = gather(all()?.iter().map(Scenario::plans))?;
    Ok(plans.into_iter().flatten().collect())
}

/// What `list` shows: every bundled scenario.
///
/// # Errors
/// Everything that is wrong with any of their files.
pub fn list() -> Result<Vec<Summary>, Diagnostics> {
    gather(all()?.iter().map(Scenario::summary))
}

/// The known failures of a reader that are bundled; empty where none are.
///
/// # Errors
/// Everything that is wrong with their file.
pub fn known_failing(reader: &str) -> Result<KnownFailing, Diagnostics> {
    let path = format!("known-failing/{reader}.toml");
    match EMBEDDED.get_file(&path).and_then(|file| file.contents_utf8()) {
        Some(text) => known_failing::parse(&format!("scenarios/{path}"), text),
        None => Ok(KnownFailing::default()),
    }
}

/// What is expected of a reader's exceptions; none without a file of its name.
///
/// # Errors
/// Everything that is wrong with their file.
pub fn expected(reader: &str) -> Result<Expected, Diagnostics> {
    let path = format!("expected/{reader}.toml");
    match EMBEDDED.get_file(&path).and_then(|file| file.contents_utf8()) {
        Some(text) => expected::parse(&format!("scenarios/{path}"), text),
        None => Ok(Expected::default()),
    }
}

/// Plans named on the command line, each once, in the order of the words. A word is the id of a scenario (with
/// `[axis=value,…]` only the plans with these values), the start of an id such as a folder, or a path that ends in
/// `.toml`. Without words: every bundled plan. `tag` keeps only plans that carry it; without words and without a tag it
/// is [`QUICK`].
///
/// # Errors
/// [`SelectError`]: the user's doing, before anything starts.
pub fn select(words: &[String], tag: Option<&str>) -> Result<Vec<Plan>, SelectError> {
    let tag = tag.or(words.is_empty().then_some(QUICK));
    let mut plans = Vec::new();
    if words.is_empty() {
        plans = self::plans()?;
    }
    for word in words {
        plans.extend(named(word)?);
    }
    if let Some(tag) = tag {
        let tags: BTreeSet<String> = plans.iter().flat_map(|plan| plan.tags.iter().cloned()).collect();
        plans.retain(|plan| plan.tags.iter().any(|known| known == tag));
        if plans.is_empty() {
            return Err(SelectError::UnknownTag {
                tag: quoted(tag),
                hint: did_you_mean(tag, tags.iter().map(String::as_str)),
            });
        }
    }
    let mut seen = BTreeSet::new();
    plans.retain(|plan| seen.insert(plan.id.clone()));
    Ok(plans)
}

fn named(word: &str) -> Result<Vec<Plan>, SelectError> {
    let (base, axes) = match word.strip_suffix(']').and_then(|word| word.split_once('[')) {
        Some((base, axes)) => (base, Some(axes)),
        None => (word, None),
    };
    let plans: Vec<Plan> = if base.ends_with(".toml") {
        let text = fs::read_to_string(base).map_err(|source| SelectError::Unreadable {
            path: PathBuf::from(base),
            source,
        })?;
        load(base, &text)?.plans()?
    } else {
        let files = files(&EMBEDDED);
        let exact = files.iter().any(|(id, _)| id == base);
        let wanted = |id: &str| {
            if exact {
                id == base
            } else {
                id.starts_with(base) && axes.is_none()
            }
        };
        let scenarios = gather(
            files
                .iter()
                .filter(|(id, _)| wanted(id))
                .map(|(id, text)| load(id, text)),
        )?;
        if scenarios.is_empty() || base.is_empty() {
            let mut known: BTreeSet<&str> = files.iter().map(|(id, _)| id.as_str()).collect();
            known.extend(
                files
                    .iter()
                    .filter_map(|(id, _)| id.split_once('/'))
                    .map(|(folder, _)| folder),
            );
            return Err(SelectError::Unknown {
                word: quoted(word),
                hint: did_you_mean(base, known),
            });
        }
        gather(scenarios.iter().map(Scenario::plans))?
            .into_iter()
            .flatten()
            .collect()
    };
    let Some(axes) = axes else { return Ok(plans) };
    let ids: Vec<String> = plans.iter().map(|plan| plan.id.clone()).collect();
    let wanted: Vec<&str> = axes.split(',').collect();
    let plans: Vec<Plan> = plans
        .into_iter()
        .filter(|plan| wanted.iter().all(|axis| axes_of(&plan.id).contains(axis)))
        .collect();
    if plans.is_empty() {
        return Err(SelectError::Unknown {
            word: quoted(word),
            hint: did_you_mean(word, ids.iter().map(String::as_str)),
        });
    }
    Ok(plans)
}

fn axes_of(id: &str) -> Vec<&str> {
    match id.strip_suffix(']').and_then(|id| id.split_once('[')) {
        Some((_, axes)) => axes.split(',').collect(),
        None => Vec::new(),
    }
}

/// What [`check`] found.
#[derive(Debug)]
pub struct Checked {
    /// The scenarios of files in which nothing is wrong.
    pub good: Vec<Summary>,
    /// How many files were looked at, those that hold no scenario included.
    pub files: usize,
    /// What is wrong, for each file with something wrong.
    pub wrong: Vec<SelectError>,
}

impl Checked {
    /// How many things are wrong.
    pub fn errors(&self) -> usize {
        let each = self.wrong.iter().map(|wrong| match wrong {
            SelectError::Wrong(diagnostics) => diagnostics.0.len(),
            _ => 1,
        });
        each.sum()
    }
}

/// Checks a file, or every file below a folder, and says what is in it and what is wrong with any.
///
/// # Errors
/// [`SelectError`] when there is nothing that could be checked.
pub fn check(path: &Path) -> Result<Checked, SelectError> {
    let mut paths = Vec::new();
    walk(path, &mut paths).map_err(|source| SelectError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    if paths.is_empty() {
        return Err(SelectError::Nothing { path: path.to_owned() });
    }
    let mut checked = Checked {
        good: Vec::new(),
        files: paths.len(),
        wrong: Vec::new(),
    };
    for path in paths {
        match check_file(&path) {
            Ok(summary) => checked.good.extend(summary),
            Err(wrong) => checked.wrong.push(wrong),
        }
    }
    Ok(checked)
}

/// What is in a file; `None` where it is not a scenario.
fn check_file(path: &Path) -> Result<Option<Summary>, SelectError> {
    let name = path.to_string_lossy().into_owned();
    let text = fs::read_to_string(path).map_err(|source| SelectError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    let folder = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    match folder {
        Some("known-failing") => {
            known_failing::parse(&name, &text)?;
            Ok(None)
        }
        Some("expected") => {
            expected::parse(&name, &text)?;
            Ok(None)
        }
        _ => Ok(Some(load(&name, &text)?.summary()?)),
    }
}

/// Every `.toml` at or below a path, sorted. Links to folders are not followed: they can lead round in a circle.
fn walk(path: &Path, into: &mut Vec<PathBuf>) -> io::Result<()> {
    let is_toml = |path: &Path| path.extension().is_some_and(|extension| extension == "toml");
    if !fs::metadata(path)?.is_dir() {
        into.extend(is_toml(path).then(|| path.to_owned()));
        return Ok(());
    }
    let mut entries = fs::read_dir(path)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let kind = entry.file_type()?;
        let path = entry.path();
        if kind.is_dir() {
            walk(&path, into)?;
        } else if is_toml(&path) {
            into.push(path);
        }
    }
    Ok(())
}

/// Id and text of every scenario below a folder, sorted by id.
fn files(folder: &'static Dir<'static>) -> Vec<(String, &'static str)> {
    let mut found = Vec::new();
    let mut folders = vec![folder];
    while let Some(folder) = folders.pop() {
        folders.extend(folder.dirs().filter(|dir| {
            let name = dir.path().to_string_lossy();
            !NOT_SCENARIOS.contains(&name.as_ref())
        }));
        for file in folder.files() {
            let path = file.path().to_string_lossy().replace('\\', "/");
            if let (Some(id), Some(text)) = (path.strip_suffix(".toml"), file.contents_utf8()) {
                found.push((id.to_owned(), text));
            }
        }
    }
    found.sort();
    found
}

/// All values, or everything that is wrong with any.
fn gather<T>(results: impl IntoIterator<Item = Result<T, Diagnostics>>) -> Result<Vec<T>, Diagnostics> {
    let mut values = Vec::new();
    let mut wrong = Vec::new();
    for result in results {
        match result {
            Ok(value) => values.push(value),
            Err(diagnostics) => wrong.extend(diagnostics.0),
        }
    }
    if wrong.is_empty() {
        Ok(values)
    } else {
        Err(Diagnostics(wrong))
    }
}

fn did_you_mean<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> String {
    match nearest(word, known) {
        Some(near) => format!("did you mean {}?", quoted(near)),
        None => "`brokerfall list` shows what there is".to_owned(),
    }
}

/// Why nothing could be selected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// No scenario has this id.
    #[error("unknown scenario {word} ({hint})")]
    Unknown {
        /// What was asked for, in backticks.
        word: String,
        /// The nearest id.
        hint: String,
    },
    /// No plan that was selected carries this tag.
    #[error("no scenario carries the tag {tag} ({hint})")]
    UnknownTag {
        /// What was asked for, in backticks.
        tag: String,
        /// The nearest tag.
        hint: String,
    },
    /// No scenarios at this path.
    #[error("no scenario at or below {} (wanted files that end in .toml)", path.display())]
    Nothing {
        /// The path.
        path: PathBuf,
    },
    /// A file could not be read.
    #[error("cannot read scenario {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Files are wrong.
    #[error(transparent)]
    Wrong(#[from] Diagnostics),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids_of(words: &[&str]) -> Vec<String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        select(&words, None).unwrap().into_iter().map(|plan| plan.id).collect()
    }

    #[test]
    fn bundled_files_parse_expand_and_carry_story_and_title() {
        let plans = plans().unwrap_or_else(|wrong| panic!("{wrong}"));
        for plan in &plans {
            assert!(!plan.story.is_empty(), "{} has no story", plan.id);
            assert!(!plan.kinds().is_empty(), "{} fits no kind", plan.id);
        }
        let ids: BTreeSet<&String> = plans.iter().map(|plan| &plan.id).collect();
        assert_eq!(ids.len(), plans.len(), "ids are unique");
    }

    #[test]
    fn quick_scenarios_are_served_by_the_mock() {
        for plan in select(&[], None).unwrap_or_else(|wrong| panic!("{wrong}")) {
            assert_eq!(plan.unmet_by(crate::cluster::ClusterKind::Mock), [], "{}", plan.id);
        }
    }

    #[test]
    fn every_fault_is_used_by_a_bundled_scenario() {
        let plans = plans().unwrap_or_else(|wrong| panic!("{wrong}"));
        for fault in super::super::words::FAULTS.iter() {
            assert!(
                plans
                    .iter()
                    .flat_map(Plan::faults)
                    .any(|used| used.fault().kind() == *fault),
                "{fault} is used by no scenario"
            );
        }
    }

    #[test]
    fn a_folder_selects_all_below_it_and_a_plan_named_twice_is_run_once() {
        let ids = ids_of(&["broker-kill", "broker-kill/live"]);
        assert!(ids.iter().all(|id| id.starts_with("broker-kill/")), "{ids:?}");
        assert_eq!(ids.iter().filter(|id| *id == "broker-kill/live").count(), 1);
    }

    #[test]
    fn an_unknown_id_names_the_nearest_one() {
        let error = select(&["broker-kil/live".to_owned()], None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown scenario `broker-kil/live` (did you mean `broker-kill/live`?)"
        );
        assert!(
            select(&[String::new()], None).is_err(),
            "an empty word is no prefix of everything"
        );
    }

    #[test]
    fn bundled_known_failures_parse_and_none_is_stale() {
        let ids: Vec<String> = plans().unwrap().into_iter().map(|plan| plan.id).collect();
        let folder = EMBEDDED.get_dir("known-failing").unwrap();
        for file in folder.files() {
            let reader = file.path().file_stem().unwrap().to_str().unwrap();
            let known = known_failing(reader).unwrap_or_else(|wrong| panic!("{wrong}"));
            assert!(!known.entries.is_empty(), "{reader} has no entry");
            assert_eq!(known.stale(&ids), Vec::<&known_failing::Entry>::new(), "{reader}");
        }
    }
}
