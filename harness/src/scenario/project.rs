//! `brokerfall.toml`: what a repository of a user's own sets for every invocation in it.
//!
//! ```toml
//! scenarios = ["chaos/scenarios"]     # what `run` carries out without words
//! readers-dir = "chaos/readers"       # manifests of your readers
//! known-failing = "chaos/known-failing"
//! expected = "chaos/expected"
//! out = ".brokerfall"
//! jobs = 2
//! cluster = "auto"
//! link = "builtin"
//! limits = { within = "30s", stop-grace = "10s", cpu = 0.2 }
//!
//! [[claim]]                           # what your own endpoint says of the reader; see [`crate::reader::claims`]
//! name = "readiness"
//! http = "http://127.0.0.1:{port}/ready"
//! ```
//!
//! Paths are relative to the file. Options of the command line come before it, and it comes before defaults.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::Diagnostics;
use super::diagnostics::Sink;
use super::section::Section;
use crate::reader::claims::Claim;
use crate::reader::manifest::ManifestLimits;

/// Name of the file.
pub const FILE: &str = "brokerfall.toml";

/// What the file sets; what it leaves out is absent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Project {
    /// Folders or files of scenarios that are run where none is named.
    pub scenarios: Vec<PathBuf>,
    /// Folders of further manifests.
    pub readers_dirs: Vec<PathBuf>,
    /// Folder of known failures, one file for each reader, beside the bundled ones.
    pub known_failing: Option<PathBuf>,
    /// Folder of expected exceptions, one file for each reader, beside the bundled ones.
    pub expected: Option<PathBuf>,
    /// Folder for reports and artifacts.
    pub out: Option<PathBuf>,
    /// `auto`, `mock` or `process`.
    pub cluster: Option<String>,
    /// `builtin` or `toxiproxy`.
    pub link: Option<String>,
    /// Runs at a time, 1 to 64.
    pub jobs: Option<u16>,
    /// Limits for every reader; they come after a scenario's and before a manifest's.
    pub limits: ManifestLimits,
    /// Endpoints and programs that say how a reader is, asked for every reader that is not bundled.
    pub claims: Vec<Claim>,
}

/// Reads a file; `folder` is where it stands.
///
/// # Errors
/// Everything that is wrong with it.
pub fn parse(file: &str, folder: &Path, text: &str) -> Result<Project, Diagnostics> {
    let sink = Sink::new(file, text);
    let root = sink.parse()?;
    let mut project = Project::default();
    if let Some(top) = Section::new("the file", &root, &sink) {
        let place = |path: String| folder.join(path);
        let scenarios: Option<Vec<String>> = top.optional("scenarios");
        project.scenarios = scenarios.unwrap_or_default().into_iter().map(place).collect();
        project.readers_dirs = top.optional::<String>("readers-dir").map(place).into_iter().collect();
        project.known_failing = top.optional::<String>("known-failing").map(place);
        project.expected = top.optional::<String>("expected").map(place);
        project.out = top.optional::<String>("out").map(place);
        project.jobs = top.optional("jobs");
        if project.jobs.is_some_and(|jobs| !(1..=64).contains(&jobs)) {
            sink.push(&top.span_of("jobs"), "`jobs` is out of range (wanted 1 to 64)");
        }
        let cluster = top.word("cluster", &["auto", "mock", "process", "container"], "auto");
        project.cluster = cluster.filter(|_| top.node("cluster").is_some());
        let link = top.word("link", &["builtin", "toxiproxy"], "builtin");
        project.link = link.filter(|_| top.node("link").is_some());
        if let Some(limits) = top.table("limits") {
            project.limits = ManifestLimits {
                within: limits.length("within", None),
                stop_grace: limits.length("stop-grace", None),
                cpu: limits.optional("cpu"),
                requests: limits.optional("requests"),
                errors: limits.optional("errors"),
                memory_mib: limits.optional("memory-mib"),
                descriptors: limits.optional("descriptors"),
            };
            limits.done();
        }
        project.claims = top.or("claim", Vec::new()).unwrap_or_default();
        let mut names = BTreeSet::new();
        if let Some(twice) = project.claims.iter().find(|claim| !names.insert(&claim.name)) {
            let text = format!(
                "the claim `{}` stands here twice (wanted names that differ)",
                twice.name
            );
            sink.push(&top.span_of("claim"), text);
        }
        top.done();
    }
    sink.finish(project)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_read_and_paths_are_relative_to_the_file() {
        let text = "scenarios = [\"a\"]\nreaders-dir = \"r\"\nknown-failing = \"k\"\nexpected = \"e\"\nout = \"/o\"\njobs = 3\ncluster = \"mock\"\nlink = \"toxiproxy\"\nlimits = { within = \"30s\", stop-grace = \"5s\", cpu = 0.5, requests = 10, errors = 1, memory-mib = 2, descriptors = 3 }\n";
        let project = parse("brokerfall.toml", Path::new("/home"), text).unwrap();
        assert_eq!(project.scenarios, [Path::new("/home/a")]);
        assert_eq!(project.readers_dirs, [Path::new("/home/r")]);
        assert_eq!(project.out.as_deref(), Some(Path::new("/o")));
        assert_eq!((project.jobs, project.limits.cpu), (Some(3), Some(0.5)));
        assert_eq!(project.cluster.as_deref(), Some("mock"));
        assert_eq!(project.link.as_deref(), Some("toxiproxy"));
        assert_eq!(project.limits.within, Some(std::time::Duration::from_secs(30)));
    }

    #[test]
    fn claims_are_read_and_what_is_wrong_with_one_has_its_place() {
        let claims = |text: &str| parse("brokerfall.toml", Path::new("."), text).map(|project| project.claims);
        let two = "[[claim]]\nname = \"a\"\nhttp = \"http://127.0.0.1:{port}/\"\n[[claim]]\nname = \"b\"\nexec = [\"x\"]\nevery = \"2s\"\n";
        let read = claims(two).unwrap();
        assert_eq!(
            read.iter().map(|claim| claim.name.as_str()).collect::<Vec<_>>(),
            ["a", "b"]
        );
        assert_eq!(read[1].every, std::time::Duration::from_secs(2));
        let wrong = |text: &str| claims(text).unwrap_err().to_string();
        let key = wrong("jobs = 1\n[[claim]]\nname = \"a\"\nhtpp = \"x\"\n");
        assert!(
            key.starts_with("brokerfall.toml:4:1: unknown key `htpp` (did you mean `http`?)"),
            "{key}"
        );
        let away = wrong("[[claim]]\nname = \"a\"\nhttp = \"http://192.0.2.1:80/\"\n");
        assert!(away.contains("is not on a loopback address"), "{away}");
        assert!(wrong(&two.replace("\"b\"", "\"a\"")).contains("the claim `a` stands here twice"));
        assert!(wrong("claim = 3\n").contains("`claim` is"));
    }

    #[test]
    fn wrong_keys_have_their_place_and_the_nearest_word() {
        let wrong = |text: &str| parse("brokerfall.toml", Path::new("."), text).unwrap_err().to_string();
        assert!(wrong("job = 2\n").starts_with("brokerfall.toml:1:1: unknown key `job` (did you mean `jobs`?)"));
        assert!(wrong("jobs = 0\n").contains("out of range"));
        assert!(wrong("cluster = \"proces\"\n").contains("unknown `cluster`"));
        assert!(wrong("[[claim]]\nname = \"ready\"\n").contains("wanted `http` or `exec`"));
    }
}
