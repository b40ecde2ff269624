//! Python environments: find an interpreter, build an isolated environment with uv where it is there, else with venv and
//! pip, and write down what was resolved.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::catalogue::ReaderError;
use super::super::manifest::PythonProvision;
use super::{Fnv, Lock, ProvisionOptions, Source};
use crate::process;

/// The file in an environment that says what it was built for.
const KEY_FILE: &str = "brokerfall-key.txt";
/// The file in an environment that holds the resolved lock.
const LOCK_FILE: &str = "lock.txt";
/// How many lines of a failed step are shown.
const TAIL_LINES: usize = 20;

/// A built environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// Its interpreter.
    pub python: PathBuf,
    /// The resolved lock.
    pub lock: PathBuf,
}

/// An interpreter of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Interpreter {
    program: PathBuf,
    /// `3.12.1`.
    version: String,
}

/// Finds or builds the environment for a library.
pub(in super::super) fn environment(
    name: &str,
    python: &PythonProvision,
    source: &Source,
    lock: Option<&Lock>,
    options: &ProvisionOptions<'_>,
) -> Result<Environment, ReaderError> {
    let reader = format!("{name}@{}", source.version());
    let interpreter = find_interpreter(&reader, options.runtime.as_deref(), python.requires.as_deref())?;
    let wanted = match lock {
        Some(lock) => {
            let library = source.is_local().then_some(python.package.as_str());
            Wanted::Locked {
                lock,
                library,
                requirements: lock.without(library),
            }
        }
        None => Wanted::Pinned(requirements(source.requirements(), &options.with)),
    };
    let key = format!(
        "reader {name}\n{}\n{} {}\npython {} {}\n",
        source.identity(),
        wanted.word(),
        wanted.requirements().join(" "),
        interpreter.version,
        interpreter.program.display(),
    );
    let mut hash = Fnv::default();
    hash.part(key.as_bytes());
    let envs = options.cache_dir()?.join("envs");
    let label = format!("{name}-{}-{}", source.version(), hash.hex());
    let place = envs.join(&label);
    let environment = Environment {
        python: place.join("bin/python"),
        lock: place.join(LOCK_FILE),
    };
    let complete = || std::fs::read_to_string(place.join(KEY_FILE)).is_ok_and(|found| found == key);
    if complete() {
        return Ok(environment);
    }

    let failed = |what: &str| format!("{what} in {} (set BROKERFALL_CACHE)", envs.display());
    std::fs::create_dir_all(&envs).map_err(ReaderError::io(failed("making a folder")))?;
    let _lock = super::lock(&envs.join(format!(".{label}.lock")), options.progress)?;
    if complete() {
        return Ok(environment);
    }
    if place.exists() {
        std::fs::remove_dir_all(&place).map_err(ReaderError::io(failed("removing a broken environment")))?;
    }
    // Left by a process that was killed while it held the lock that we hold now.
    let building_prefix = format!(".building-{label}-");
    for entry in std::fs::read_dir(&envs)
        .map_err(ReaderError::io(failed("reading")))?
        .flatten()
    {
        if entry.file_name().to_string_lossy().starts_with(&building_prefix) {
            std::fs::remove_dir_all(entry.path()).map_err(ReaderError::io(failed("removing a stale build")))?;
        }
    }
    let building = tempfile::Builder::new()
        .prefix(&building_prefix)
        .tempdir_in(&envs)
        .map_err(ReaderError::io(failed("making a folder")))?;
    super::guard(building.path());
    build(&reader, &interpreter, source, &wanted, building.path(), options)?;
    std::fs::write(building.path().join(KEY_FILE), &key).map_err(ReaderError::io(failed("writing the key")))?;
    super::move_into_place(building, &place)?;
    (options.progress)(&format!("{reader} is ready in {}", place.display()));
    Ok(environment)
}

/// Builds an environment in `env` and writes its lock. Its scripts keep the temporary path in their first line, so
/// readers run `bin/python`, which finds its environment by where it stands (tested).
fn build(
    reader: &str,
    interpreter: &Interpreter,
    source: &Source,
    wanted: &Wanted<'_>,
    env: &Path,
    options: &ProvisionOptions<'_>,
) -> Result<(), ReaderError> {
    let uv = on_path("uv");
    let tool = if uv.is_some() { "uv" } else { "venv and pip" };
    (options.progress)(&format!(
        "provisioning {reader} with {tool} on Python {} ({}): {} {}",
        interpreter.version,
        interpreter.program.display(),
        source.name(),
        wanted.requirements().join(" "),
    ));
    if let Wanted::Locked { lock, .. } = wanted
        && let Some(version) = lock.python().filter(|version| *version != interpreter.version)
    {
        (options.progress)(&format!(
            "the lock was made on Python {version}, not {} (--runtime {version} asks for that one)",
            interpreter.version
        ));
    }
    let python = env.join("bin/python");
    let scratch = tempfile::tempdir().map_err(ReaderError::io("making a temporary folder"))?;
    super::guard(scratch.path());
    let library = source.check_out(reader, &scratch.path().join("source"))?;

    let mut make = match &uv {
        Some(uv) => {
            let mut make = command(uv, &["venv", "--quiet", "--allow-existing", "--python"]);
            make.arg(&interpreter.program);
            make
        }
        None => command(&interpreter.program, &["-m", "venv"]),
    };
    run(reader, "making the environment", make.arg(env))?;

    let pip = |uv_words: &[&str], pip_words: &[&str]| match &uv {
        Some(uv) => {
            let mut pip = command(uv, &["pip"]);
            pip.args(uv_words).arg("--python").arg(&python);
            pip
        }
        None => {
            let mut pip = command(&python, &["-m", "pip"]);
            pip.args(pip_words);
            pip
        }
    };
    let install = || pip(&["install", "--quiet", "--compile-bytecode"], &["install", "--quiet"]);
    let installing = "installing the packages";
    match wanted {
        Wanted::Pinned(requirements) => {
            run(reader, installing, install().args(requirements).args(&library))?;
        }
        Wanted::Locked { requirements, .. } => {
            let file = scratch.path().join("lock.txt");
            std::fs::write(&file, requirements.join("\n")).map_err(ReaderError::io("writing the lock"))?;
            if !requirements.is_empty() {
                run(reader, installing, install().args(["--no-deps", "-r"]).arg(&file))?;
            }
            // By itself: where packages have hashes, a folder cannot stand beside them.
            if let Some(library) = &library {
                run(
                    reader,
                    "installing the library",
                    install().arg("--no-deps").arg(library),
                )?;
            }
        }
    }

    let list = || {
        let mut list = pip(
            &["list", "--format=freeze"],
            &["list", "--format=freeze", "--exclude", "pip"],
        );
        run(reader, "listing what was installed", &mut list)
    };
    let mut listed = list()?;
    if let Wanted::Locked { lock, library, .. } = wanted {
        // An environment made by venv comes with packages of its own on some versions of Python.
        let mut more: Vec<String> = listed.lines().map(package_of).collect();
        more.retain(|package| !lock.names(package) && library.map(package_of).as_ref() != Some(package));
        if !more.is_empty() {
            let mut remove = pip(&["uninstall", "--quiet"], &["uninstall", "--quiet", "--yes"]);
            run(reader, "removing what the lock does not name", remove.args(&more))?;
            listed = list()?;
        }
    }
    let lock = format!(
        "# {reader} from {}, Python {}, installed with {tool}\n{listed}",
        source.name(),
        interpreter.version,
    );
    std::fs::write(env.join(LOCK_FILE), lock).map_err(ReaderError::io(format!("writing {}", env.display())))
}

/// What an environment is to hold.
enum Wanted<'a> {
    /// These, and whatever they need.
    Pinned(Vec<String>),
    /// What a lock names, and nothing else.
    Locked {
        lock: &'a Lock,
        /// The reader's library, where it comes from this machine instead.
        library: Option<&'a str>,
        requirements: Vec<String>,
    },
}

impl Wanted<'_> {
    fn requirements(&self) -> &[String] {
        match self {
            Wanted::Pinned(requirements) | Wanted::Locked { requirements, .. } => requirements,
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Wanted::Pinned(_) => "requirements",
            Wanted::Locked { .. } => "lock",
        }
    }
}

/// A command that does not see the caller's own Python environment.
fn command(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_remove("PYTHONPATH")
        .env_remove("PYTHONHOME")
        .env_remove("VIRTUAL_ENV")
        .env("PIP_DISABLE_PIP_VERSION_CHECK", "1")
        .env("PIP_NO_INPUT", "1")
        .stdin(std::process::Stdio::null());
    command
}

/// Runs a step to its end and returns what it printed to stdout.
fn run(reader: &str, what: &str, command: &mut Command) -> Result<String, ReaderError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output =
        process::output(command).map_err(ReaderError::io(format!("{what} for {reader}: running {program}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let mut printed = String::from_utf8_lossy(&output.stdout).into_owned();
    printed.push_str(&String::from_utf8_lossy(&output.stderr));
    Err(ReaderError::Provision {
        reader: reader.to_owned(),
        what: what.to_owned(),
        tail: tail(&printed),
    })
}

/// The last lines of what a step printed.
pub(super) fn tail(printed: &str) -> String {
    let lines: Vec<&str> = printed.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

/// Pins with `--with` applied: a requirement replaces the one of the same package, or is added.
fn requirements(pins: &[String], with: &[String]) -> Vec<String> {
    let mut all = pins.to_vec();
    for requirement in with {
        match all.iter_mut().find(|pin| package_of(pin) == package_of(requirement)) {
            Some(pin) => pin.clone_from(requirement),
            None => all.push(requirement.clone()),
        }
    }
    all
}

/// The package that a requirement names, in its normal form (PEP 503).
pub(super) fn package_of(requirement: &str) -> String {
    let name = requirement
        .split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')))
        .next()
        .unwrap_or_default();
    name.to_ascii_lowercase().replace(['_', '.'], "-")
}

/// Finds an interpreter by `--runtime` (through pyenv, uv and PATH, in this order), or the machine's usual one if it is
/// new enough.
fn find_interpreter(reader: &str, runtime: Option<&str>, requires: Option<&str>) -> Result<Interpreter, ReaderError> {
    let mut looked = Vec::new();
    for (place, programs) in candidates(runtime) {
        looked.push(place);
        for program in programs {
            // A pyenv shim is on PATH for every version that pyenv has, and fails for all but the selected ones: only
            // running it tells.
            if let Some(found) = probe(&program)
                && runtime.is_none_or(|wanted| wanted.contains('/') || is_release(&found.version, wanted))
                && requires.is_none_or(|lowest| at_least(&found.version, lowest))
            {
                return Ok(found);
            }
        }
    }
    Err(ReaderError::NoRuntime {
        reader: reader.to_owned(),
        wanted: match (runtime, requires) {
            (Some(runtime), Some(lowest)) => format!("Python {runtime} (at least {lowest})"),
            (Some(runtime), None) => format!("Python {runtime}"),
            (None, Some(lowest)) => format!("Python {lowest} or newer"),
            (None, None) => "Python".to_owned(),
        },
        looked,
    })
}

/// Programs to try, by place.
fn candidates(runtime: Option<&str>) -> Vec<(String, Vec<PathBuf>)> {
    match runtime {
        Some(path) if path.contains('/') => vec![(path.to_owned(), vec![PathBuf::from(path)])],
        Some(version) => vec![
            ("pyenv".to_owned(), pyenv_versions(Some(version))),
            ("uv".to_owned(), uv_find(version).into_iter().collect()),
            (
                "PATH".to_owned(),
                on_path(&format!("python{version}"))
                    .into_iter()
                    .chain(on_path("python3"))
                    .collect(),
            ),
        ],
        None => vec![
            ("PATH".to_owned(), on_path("python3").into_iter().collect()),
            ("pyenv".to_owned(), pyenv_versions(None)),
        ],
    }
}

/// Interpreters that pyenv has installed, newest first.
fn pyenv_versions(wanted: Option<&str>) -> Vec<PathBuf> {
    let root = std::env::var_os("PYENV_ROOT")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".pyenv")));
    let Some(listing) = root.and_then(|root| std::fs::read_dir(root.join("versions")).ok()) else {
        return Vec::new();
    };
    let mut versions: Vec<(Vec<u32>, PathBuf)> = listing
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            wanted
                .is_none_or(|wanted| is_release(&name, wanted))
                .then(|| (numbers(&name), entry.path().join("bin/python")))
        })
        .collect();
    versions.sort_by(|a, b| b.cmp(a));
    versions.into_iter().map(|(_, program)| program).collect()
}

/// The interpreter that uv knows for a version; uv downloads nothing for this.
fn uv_find(version: &str) -> Option<PathBuf> {
    let uv = on_path("uv")?;
    let output = process::output(&mut command(&uv, &["python", "find", "--no-python-downloads", version])).ok()?;
    let printed = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| PathBuf::from(printed.trim()))
}

/// The first program of this name on PATH.
fn on_path(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|dir| dir.join(name))
        .find(|program| program.is_file())
}

/// Runs an interpreter to learn its version and its real place.
fn probe(program: &Path) -> Option<Interpreter> {
    let ask = "import platform, sys; print(platform.python_version()); print(sys.executable)";
    let output = process::output(&mut command(program, &["-I", "-c", ask])).ok()?;
    let printed = String::from_utf8(output.stdout).ok()?;
    let (version, executable) = printed.trim().split_once('\n')?;
    (output.status.success() && !executable.is_empty()).then(|| Interpreter {
        program: PathBuf::from(executable),
        version: version.to_owned(),
    })
}

/// Whether `version` is `wanted` or one of its releases (`3.12.1` is a `3.12`, and no `3.1`).
fn is_release(version: &str, wanted: &str) -> bool {
    version
        .strip_prefix(wanted)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn at_least(version: &str, lowest: &str) -> bool {
    numbers(version) >= numbers(lowest)
}

fn numbers(version: &str) -> Vec<u32> {
    version
        .split('.')
        .map_while(|part| {
            part.chars()
                .take_while(char::is_ascii_digit)
                .collect::<String>()
                .parse()
                .ok()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_replaces_the_pin_of_the_same_package_and_adds_others() {
        let pins = ["ktables==1.1.1".to_owned(), "typing_extensions==4.16.0".to_owned()];
        let with = ["Typing.Extensions==4.0".to_owned(), "lz4>=4".to_owned()];
        assert_eq!(
            requirements(&pins, &with),
            ["ktables==1.1.1", "Typing.Extensions==4.0", "lz4>=4"]
        );
    }

    #[test]
    fn versions_are_compared_by_number_and_matched_by_part() {
        assert!(at_least("3.10.1", "3.9") && at_least("3.10", "3.10") && !at_least("3.9.18", "3.10"));
        assert!(is_release("3.12.1", "3.12") && is_release("3.12", "3.12") && !is_release("3.12.1", "3.1"));
    }

    #[test]
    fn runtime_that_is_not_here_is_a_named_skip() {
        let error = find_interpreter("lib@1", Some("3.99"), None).unwrap_err();
        assert!(matches!(error, ReaderError::NoRuntime { .. }));
        assert_eq!(
            error.to_string(),
            "lib@1 needs Python 3.99, which is not here (looked in pyenv, uv, PATH)"
        );
    }

    #[test]
    fn tail_keeps_the_last_twenty_lines_with_text() {
        let printed: String = (1..=30).map(|n| format!("line {n}\n\n")).collect();
        let kept = tail(&printed);
        assert_eq!(kept.lines().count(), 20);
        assert!(kept.starts_with("line 11\n") && kept.ends_with("line 30"));
    }
}
