//! The readers that are known, and how a `--reader` word becomes something that can be started.
//!
//! ```text
//! NAME | NAME@VERSION | NAME@path:DIR | NAME@git:CLONE#REF | SUITE  -> one Launch per reader and kind
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use brokerfall_report::history::ReaderInfo;
use brokerfall_report::protocol::Kind;

use super::Launch;
use super::manifest::{Manifest, ManifestError, PythonProvision, nearest};
use super::provision::{self, Lock, ProvisionOptions, Source};

/// The readers that are known: the bundled ones and those of the user's folders.
///
/// ```no_run
/// # use brokerfall::reader::catalogue::{ReaderError, Readers};
/// # use brokerfall::reader::provision::ProvisionOptions;
/// let launches = Readers::load(&[])?.resolve("reference-group", &ProvisionOptions::default())?;
/// assert_eq!(launches[0].info.name, "reference-group");
/// # Ok::<(), ReaderError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Readers {
    found: BTreeMap<String, Found>,
}

/// A manifest and where it stands.
#[derive(Debug, Clone)]
struct Found {
    manifest: Manifest,
    /// The folder that it was found in; absent for the embedded ones.
    folder: Option<PathBuf>,
}

/// Why a reader cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReaderError {
    /// No such reader or version.
    #[error("unknown {what} `{found}`{}", hint(.nearest.as_deref(), .known))]
    Unknown {
        /// `reader`, `version of …`.
        what: String,
        /// What was asked for.
        found: String,
        /// The nearest known word.
        nearest: Option<String>,
        /// All known words.
        known: Vec<String>,
    },
    /// The word itself cannot be understood.
    #[error("reader `{spec}`: {text}")]
    Spec {
        /// The word.
        spec: String,
        /// What is wrong, and what was wanted.
        text: String,
    },
    /// A manifest cannot be used.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A lock (`--lock`) cannot be used.
    #[error("lock {place}: {text}")]
    Lock {
        /// The file, and the line where it is one line's fault.
        place: String,
        /// What was found, and what was wanted.
        text: String,
        /// The operating system's answer, where it could not be read.
        #[source]
        source: Option<std::io::Error>,
    },
    /// The environment could not be built: an index out of reach, a build that failed.
    #[error("{reader}: {what} failed\n{tail}")]
    Provision {
        /// Reader and version.
        reader: String,
        /// The step.
        what: String,
        /// The last 20 lines that it printed.
        tail: String,
    },
    /// No interpreter of the wanted version is on this machine: a named skip.
    #[error("{reader} needs {wanted}, which is not here (looked in {})", .looked.join(", "))]
    NoRuntime {
        /// Reader and version.
        reader: String,
        /// What was wanted.
        wanted: String,
        /// Where it was looked for.
        looked: Vec<String>,
    },
    /// The operating system refused.
    #[error("{what}")]
    Io {
        /// What was being done.
        what: String,
        /// Its answer.
        #[source]
        source: std::io::Error,
    },
}

fn hint(nearest: Option<&str>, known: &[String]) -> String {
    match nearest {
        Some(near) => format!(" (did you mean `{near}`?)"),
        None if known.is_empty() => String::new(),
        None => format!(" (known: {})", known.join(", ")),
    }
}

impl ReaderError {
    /// For `map_err` on I/O: says what was being done.
    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> ReaderError {
        let what = what.into();
        |source| ReaderError::Io { what, source }
    }
}

impl Readers {
    /// Reads the embedded manifests and every `*.toml` of the user's folders. A user's manifest takes the place of a
    /// bundled one of the same name.
    ///
    /// # Errors
    /// `Manifest` for one that cannot be used, `Io` for a folder that cannot be read.
    pub fn load(extra_dirs: &[PathBuf]) -> Result<Readers, ReaderError> {
        let mut found = BTreeMap::new();
        for (file, text) in provision::embedded_manifests() {
            let manifest = Manifest::parse(text, &file)?;
            found.insert(manifest.name.clone(), Found { manifest, folder: None });
        }
        for dir in extra_dirs {
            let mut files = Vec::new();
            let listing =
                std::fs::read_dir(dir).map_err(ReaderError::io(format!("reading readers from {}", dir.display())))?;
            for entry in listing {
                let path = entry
                    .map_err(ReaderError::io(format!("reading readers from {}", dir.display())))?
                    .path();
                if path.extension().is_some_and(|extension| extension == "toml") {
                    files.push(path);
                }
            }
            files.sort();
            for path in files {
                let text = std::fs::read_to_string(&path)
                    .map_err(ReaderError::io(format!("reading manifest {}", path.display())))?;
                let manifest = Manifest::parse(&text, &path.display().to_string())?;
                let folder =
                    std::path::absolute(dir).map_err(ReaderError::io(format!("resolving {}", dir.display())))?;
                found.insert(
                    manifest.name.clone(),
                    Found {
                        manifest,
                        folder: Some(folder),
                    },
                );
            }
        }
        Ok(Readers { found })
    }

    /// Every known manifest, by name.
    pub fn manifests(&self) -> impl Iterator<Item = &Manifest> {
        self.found.values().map(|one| &one.manifest)
    }

    /// Turns one `--reader` word into something that can be started, building its environment where it needs one.
    /// Blocks while an environment is built (seconds to minutes); every step is told to `options.progress`.
    ///
    /// # Errors
    /// `Unknown`, `Spec` and `Lock` before anything starts; `NoRuntime` is a named skip; `Provision` and `Io` are the
    /// environment's.
    pub fn resolve(&self, spec: &str, options: &ProvisionOptions<'_>) -> Result<Vec<Launch>, ReaderError> {
        let suite: Vec<&Found> = self
            .found
            .values()
            .filter(|one| one.manifest.in_suite.as_deref() == Some(spec))
            .collect();
        if !suite.is_empty() {
            let mut launches = Vec::new();
            for one in suite {
                launches.extend(launch(one, None, options)?);
            }
            return Ok(launches);
        }
        let (name, wanted) = match spec.split_once('@') {
            Some((name, wanted)) => (name, Some(wanted)),
            None => (spec, None),
        };
        let Some(found) = self.found.get(name) else {
            let suites = self.manifests().filter_map(|one| one.in_suite.as_deref());
            let known = self.found.keys().map(String::as_str).chain(suites);
            return Err(ReaderError::Unknown {
                what: "reader".to_owned(),
                found: name.to_owned(),
                nearest: nearest(name, known).map(str::to_owned),
                known: self.found.keys().cloned().collect(),
            });
        };
        launch(found, wanted, options)
    }
}

/// One launch per kind.
fn launch(found: &Found, wanted: Option<&str>, options: &ProvisionOptions<'_>) -> Result<Vec<Launch>, ReaderError> {
    let manifest = &found.manifest;
    let adapters = provision::write_adapters(&options.cache_dir()?)?;
    let program = options.program_path()?;
    let mut fill = BTreeMap::from([
        ("adapter", adapters.display().to_string()),
        ("program", program.display().to_string()),
        (
            "folder",
            found.folder.as_ref().unwrap_or(&adapters).display().to_string(),
        ),
    ]);
    let python = manifest.provision.as_ref().and_then(|one| one.python.as_ref());
    if let Some(option) = options.with.iter().find(|one| one.trim_start().starts_with('-')) {
        return Err(ReaderError::Spec {
            spec: manifest.name.clone(),
            text: format!("`--with {option}` is no requirement (wanted one such as \"aiokafka==0.13.0\")"),
        });
    }
    let (version, source, lock) = match python {
        Some(python) => {
            let lock = options.lock.as_deref().map(Lock::read).transpose()?;
            let source = source_of(manifest, python, wanted, lock.as_ref())?;
            let env = provision::python::environment(&manifest.name, python, &source, lock.as_ref(), options)?;
            fill.insert("python", env.python.display().to_string());
            (source.version(), source.name(), Some(env.lock))
        }
        None => {
            if let Some(wanted) = wanted {
                return Err(ReaderError::Spec {
                    spec: format!("{}@{wanted}", manifest.name),
                    text: "it has no versions, for its manifest installs nothing (leave out what follows the `@`)"
                        .to_owned(),
                });
            }
            if let Some(lock) = &options.lock {
                return Err(ReaderError::Lock {
                    place: lock.display().to_string(),
                    text: format!(
                        "{} is not provisioned: its manifest installs nothing that a lock could name (leave out --lock)",
                        manifest.name
                    ),
                    source: None,
                });
            }
            if !options.with.is_empty() || options.runtime.is_some() {
                (options.progress)(&format!(
                    "{} is not provisioned: --with and --runtime do not apply to it",
                    manifest.name
                ));
            }
            match &found.folder {
                None => (env!("CARGO_PKG_VERSION").to_owned(), "bundled".to_owned(), None),
                Some(folder) => (String::new(), format!("path:{}", folder.display()), None),
            }
        }
    };
    let filled = |word: &String| fill_in(word, &fill);
    let info = |kind| ReaderInfo {
        name: manifest.name.clone(),
        version: version.clone(),
        source: source.clone(),
        kind,
        lock: lock.as_ref().map(|_| "lock.txt".to_owned()),
        declares: manifest.declared(),
    };
    Ok(manifest
        .kinds
        .iter()
        .map(|kind| Launch {
            info: info(*kind),
            command: manifest.command.iter().map(filled).collect(),
            env: manifest
                .env
                .iter()
                .map(|(key, value)| (key.clone(), filled(value)))
                .collect(),
            folder: None,
            manifest: manifest.clone(),
            lock: lock.clone(),
            neutral: false,
        })
        .collect())
}

/// What to install for the words after the `@`. With a lock, the version is the one that it pins, known or not.
fn source_of(
    manifest: &Manifest,
    python: &PythonProvision,
    wanted: Option<&str>,
    lock: Option<&Lock>,
) -> Result<Source, ReaderError> {
    let spec = |text: &str| ReaderError::Spec {
        spec: format!("{}@{}", manifest.name, wanted.unwrap_or_default()),
        text: text.to_owned(),
    };
    let folder = |dir: &str| {
        let path = Path::new(dir);
        if path.is_dir() {
            std::path::absolute(path).map_err(ReaderError::io(format!("resolving {dir}")))
        } else {
            Err(spec(&format!("`{dir}` is no folder")))
        }
    };
    if let Some(dir) = wanted.and_then(|text| text.strip_prefix("path:")) {
        return Source::path(&folder(dir)?, python.packages.clone());
    }
    if let Some(rest) = wanted.and_then(|text| text.strip_prefix("git:")) {
        let (clone, reference) = rest
            .rsplit_once('#')
            .filter(|(clone, reference)| !clone.is_empty() && !reference.is_empty())
            .ok_or_else(|| spec("wanted a local clone and a ref in it, such as `git:../library#main`"))?;
        return Source::git(&manifest.name, &folder(clone)?, reference, python.packages.clone());
    }
    if let Some(lock) = lock {
        return Ok(Source::index(&lock.version(&python.package, wanted)?, Vec::new()));
    }
    let version = match wanted {
        None => manifest.versions.last(),
        Some(wanted) => manifest.versions.iter().find(|one| one.version == wanted),
    };
    match version {
        Some(version) => Ok(Source::index(&version.version, version.pins.clone())),
        None => Err(ReaderError::Unknown {
            what: format!("version of {}", manifest.name),
            found: wanted.unwrap_or_default().to_owned(),
            nearest: None,
            known: manifest.versions.iter().map(|one| one.version.clone()).collect(),
        }),
    }
}

fn fill_in(word: &str, values: &BTreeMap<&str, String>) -> String {
    let mut filled = word.to_owned();
    for (name, value) in values {
        filled = filled.replace(&format!("{{{name}}}"), value);
    }
    filled
}

impl Launch {
    /// Anyone's own program (`--adapter CMD --kind K`); `command` is split into words as a shell splits them, and nothing
    /// in it is expanded.
    ///
    /// # Errors
    /// `Spec` when the command is empty or a quote is left open.
    pub fn adapter(command: &str, kind: Kind) -> Result<Launch, ReaderError> {
        let spec = |text: &str| ReaderError::Spec {
            spec: command.to_owned(),
            text: text.to_owned(),
        };
        let words = shlex::split(command).ok_or_else(|| spec("a quote is left open in the adapter's command"))?;
        let program = words
            .first()
            .ok_or_else(|| spec("the adapter's command is empty (wanted a program and its arguments)"))?;
        // A script names a reader better than its interpreter does.
        let script = words.iter().skip(1).map(Path::new).find(|word| word.is_file());
        let named = script
            .and_then(Path::file_stem)
            .or_else(|| Path::new(program).file_name());
        let name = named.map_or_else(|| program.clone(), |name| name.to_string_lossy().into_owned());
        let manifest = Manifest::bare(&name, kind, words.clone());
        Ok(Launch {
            info: ReaderInfo {
                name,
                version: String::new(),
                source: "adapter".to_owned(),
                kind,
                lock: None,
                declares: manifest.declared(),
            },
            command: words,
            env: Vec::new(),
            // The user's words are relative to the folder in which they were typed.
            folder: std::env::current_dir().ok(),
            manifest,
            lock: None,
            neutral: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(cache: &Path) -> ProvisionOptions<'static> {
        ProvisionOptions {
            cache: Some(cache.to_owned()),
            program: Some(PathBuf::from("/bin/brokerfall")),
            ..ProvisionOptions::default()
        }
    }

    #[test]
    fn bundled_suite_is_seven_readers_that_need_no_environment() {
        let cache = tempfile::tempdir().unwrap();
        let readers = Readers::load(&[]).unwrap();
        let launches = readers.resolve("bundled", &options(cache.path())).unwrap();
        let mut names: Vec<_> = launches.iter().map(|one| one.info.name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            [
                "reference-assign",
                "reference-group",
                "reference-table",
                "reference-table-stored",
                "teaching-callback-fatal",
                "teaching-consume-once",
                "teaching-reset-latest"
            ]
        );
        for launch in &launches {
            assert_eq!(launch.command, ["/bin/brokerfall", "reader", launch.info.name.as_str()]);
            assert_eq!(launch.info.source, "bundled");
            let teaching = launch.info.name.starts_with("teaching-");
            let chosen = teaching || launch.info.name == "reference-table-stored";
            assert_eq!(!launch.manifest.scenarios.is_empty(), chosen);
            let within = if teaching { 5 } else { 20 };
            assert_eq!(
                launch.manifest.limits.within,
                Some(std::time::Duration::from_secs(within))
            );
        }
    }

    #[test]
    fn misspelt_reader_and_unknown_version_name_what_is_known() {
        let cache = tempfile::tempdir().unwrap();
        let readers = Readers::load(&[]).unwrap();
        let refused = |spec: &str| readers.resolve(spec, &options(cache.path())).unwrap_err().to_string();
        assert_eq!(refused("ktable"), "unknown reader `ktable` (did you mean `ktables`?)");
        assert_eq!(refused("bundle"), "unknown reader `bundle` (did you mean `bundled`?)");
        assert_eq!(
            refused("ktables@1.1.9"),
            "unknown version of ktables `1.1.9` (known: 1.1.1, 1.1.2, 2.0.0)"
        );
        assert!(refused("reference-table@1.0").contains("it has no versions"));
        assert!(refused("ktables@path:/nowhere/at-all").contains("`/nowhere/at-all` is no folder"));
        let with = ProvisionOptions {
            with: vec!["-r/etc/passwd".to_owned()],
            ..options(cache.path())
        };
        let error = readers.resolve("ktables@1.1.1", &with).unwrap_err().to_string();
        assert!(error.contains("`--with -r/etc/passwd` is no requirement"), "{error}");
        assert!(refused("ktables@git:/tmp").contains("wanted a local clone and a ref in it"));
    }

    #[test]
    fn users_manifest_takes_the_place_of_a_bundled_one_and_knows_its_folder() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join("mine.toml"),
            "name = \"reference-table\"\nkinds = [\"table\", \"group\"]\ncommand = [\"{folder}/run\"]\nenv = { HOME_OF = \"{adapter}\" }\n",
        )
        .unwrap();
        let readers = Readers::load(&[dir.path().to_owned()]).unwrap();
        let launches = readers.resolve("reference-table", &options(dir.path())).unwrap();
        assert_eq!(launches.len(), 2);
        assert_eq!(launches[0].command, [format!("{}/run", dir.path().display())]);
        assert_eq!(launches[1].info.kind, Kind::Group);
        assert!(Path::new(&launches[0].env[0].1).join("PROTOCOL.md").is_file());
    }

    #[test]
    fn adapter_command_is_split_as_a_shell_splits_it() {
        let launch = Launch::adapter("python3 -u 'my adapter.py' --flag=\"a b\"", Kind::Group).unwrap();
        assert_eq!(launch.command, ["python3", "-u", "my adapter.py", "--flag=a b"]);
        assert_eq!(
            (launch.info.name.as_str(), launch.info.source.as_str()),
            ("python3", "adapter")
        );
        let script = tempfile::Builder::new()
            .prefix("my_reader")
            .suffix(".py")
            .tempfile()
            .unwrap();
        let launch = Launch::adapter(&format!("python3 -u {}", script.path().display()), Kind::Group).unwrap();
        assert!(launch.info.name.starts_with("my_reader"), "{}", launch.info.name);
        assert!(
            Launch::adapter("python3 'open", Kind::Group)
                .unwrap_err()
                .to_string()
                .contains("quote")
        );
        assert!(
            Launch::adapter("  ", Kind::Group)
                .unwrap_err()
                .to_string()
                .contains("empty")
        );
    }
}
