//! Which `brokerfall.toml` is in force, and what it changes of the arguments.

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::args::{ClusterArg, LinkArg, RunArgs};
use super::error::SuiteError;
use crate::scenario::expected::{self, Expected};
use crate::scenario::known_failing::{self, KnownFailing};
use crate::scenario::project::{self, FILE, Project};
use crate::scenario::{Summary, catalogue};

/// The file in force, and what it says.
#[derive(Debug, Clone, Default)]
pub(crate) struct Config {
    /// Absent where there is none.
    pub(crate) file: Option<PathBuf>,
    pub(crate) project: Project,
}

impl Config {
    /// The given file, else the nearest one from the working folder upward, else none.
    ///
    /// # Errors
    /// [`SuiteError::Usage`] for a file that cannot be read, [`SuiteError::Wrong`] for what is wrong in it.
    pub(crate) fn load(given: Option<&Path>) -> Result<Self, SuiteError> {
        let found = || {
            let folder = std::env::current_dir().ok()?;
            let mut files = folder.ancestors().map(|folder| folder.join(FILE));
            files.find(|file| file.is_file())
        };
        let Some(file) = given.map(Path::to_owned).or_else(found) else {
            return Ok(Self::default());
        };
        let unreadable =
            |source: std::io::Error| SuiteError::Usage(format!("cannot read {}: {source}", file.display()));
        let text = std::fs::read_to_string(&file).map_err(unreadable)?;
        let folder = file.parent().unwrap_or(Path::new(""));
        let project = project::parse(&file.to_string_lossy(), folder, &text)?;
        Ok(Self {
            file: Some(file),
            project,
        })
    }

    /// Fills in what the command line leaves open.
    ///
    /// # Errors
    /// [`SuiteError::Select`] for scenarios that cannot be read or are wrong.
    pub(crate) fn apply(&self, args: &mut RunArgs) -> Result<(), SuiteError> {
        let project = &self.project;
        if args.scenarios.is_empty() {
            args.scenarios.extend(self.scenarios()?.into_iter().map(|one| one.id));
        }
        args.readers_dirs = self.readers_dirs(&args.readers_dirs).to_owned();
        args.out = Some(self.out(args.out.take()));
        args.jobs = args.jobs.or(project.jobs);
        let cluster = project.cluster.as_deref();
        // OK to drop an error: the file knows the same words.
        let cluster = cluster.and_then(|word| ClusterArg::from_str(word, false).ok());
        args.cluster = args.cluster.or(cluster);
        let link = project.link.as_deref();
        let link = link.and_then(|word| LinkArg::from_str(word, false).ok());
        args.link = args.link.or(link);
        Ok(())
    }

    /// The scenarios that the file names.
    ///
    /// # Errors
    /// [`SuiteError::Select`] for the first that cannot be read or is wrong.
    pub(crate) fn scenarios(&self) -> Result<Vec<Summary>, SuiteError> {
        let mut good = Vec::new();
        for path in &self.project.scenarios {
            let checked = catalogue::check(path)?;
            if let Some(wrong) = checked.wrong.into_iter().next() {
                return Err(wrong.into());
            }
            good.extend(checked.good);
        }
        Ok(good)
    }

    /// Folders of further manifests: the given ones, else those of the file.
    pub(crate) fn readers_dirs<'a>(&'a self, given: &'a [PathBuf]) -> &'a [PathBuf] {
        if given.is_empty() {
            &self.project.readers_dirs
        } else {
            given
        }
    }

    /// Folder for reports and artifacts.
    pub(crate) fn out(&self, given: Option<PathBuf>) -> PathBuf {
        given
            .or_else(|| self.project.out.clone())
            .unwrap_or_else(|| PathBuf::from(".brokerfall"))
    }

    /// Known failures of a reader: the user's own before the bundled ones.
    ///
    /// # Errors
    /// [`SuiteError::Wrong`], or [`SuiteError::Usage`] for a file that cannot be read.
    pub(crate) fn known_failing(&self, reader: &str) -> Result<KnownFailing, SuiteError> {
        let mut known = catalogue::known_failing(reader)?;
        if let Some((name, text)) = of_reader(self.project.known_failing.as_deref(), reader)? {
            known.entries.splice(0..0, known_failing::parse(&name, &text)?.entries);
        }
        Ok(known)
    }

    /// Expected exceptions of a reader: the user's own, from the folder of `--expected` or of the file, before the bundled ones.
    ///
    /// # Errors
    /// As [`Config::known_failing`].
    pub(crate) fn expected(&self, folder: Option<&Path>, reader: &str) -> Result<Expected, SuiteError> {
        let mut known = catalogue::expected(reader)?;
        if let Some((name, text)) = of_reader(folder.or(self.project.expected.as_deref()), reader)? {
            known.entries.splice(0..0, expected::parse(&name, &text)?.entries);
        }
        Ok(known)
    }
}

/// Name and text of the file that a folder holds for a reader; `None` where there is no folder or no such file.
///
/// # Errors
/// [`SuiteError::Usage`] for a file that is there and cannot be read.
pub(super) fn of_reader(folder: Option<&Path>, reader: &str) -> Result<Option<(String, String)>, SuiteError> {
    let Some(path) = folder.map(|folder| folder.join(format!("{reader}.toml"))) else {
        return Ok(None);
    };
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Some((path.to_string_lossy().into_owned(), text))),
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(SuiteError::Usage(format!("cannot read {}: {cause}", path.display()))),
    }
}
