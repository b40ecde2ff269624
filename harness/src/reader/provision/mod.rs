//! Provisioning: a library gets an isolated environment in the cache, built once, shown while it is built, and locked.
//!
//! ```text
//! $BROKERFALL_CACHE, else $XDG_CACHE_HOME/brokerfall, else ~/.cache/brokerfall
//!   adapters/HASH/            the embedded adapters and SDKs, by content
//!   envs/NAME-VERSION-HASH/   an environment: complete or not there at all
//!   clusters/                 what starts Kafka's brokers (`cluster/process/kit.rs`)
//! ```
//!
//! An environment is built in a temporary folder beside its place and renamed when it is complete, under a lock file, so
//! that two processes do not collide and nothing half installed is ever used. Deliberately not here: downloads of
//! interpreters. A runtime that is not on the machine is a named skip.

mod lock;
pub mod python;
mod source;

use std::fs::File;
use std::path::{Path, PathBuf};

use include_dir::{Dir, include_dir};
use nix::fcntl::{Flock, FlockArg};

use super::catalogue::ReaderError;
use crate::process::Spawner;
pub use lock::Lock;
pub use source::Source;

static ADAPTERS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/adapters");

/// How environments are built.
pub struct ProvisionOptions<'a> {
    /// `--with NAME==VERSION`: requirements that replace pins of the same package, or are added.
    pub with: Vec<String>,
    /// `--lock FILE`: the packages of the environment, and no others, instead of pins and [`ProvisionOptions::with`].
    pub lock: Option<PathBuf>,
    /// `--runtime`: a version such as `3.12`, or the path of an interpreter.
    pub runtime: Option<String>,
    /// The cache folder; absent means the user's.
    pub cache: Option<PathBuf>,
    /// The harness's own binary; absent means the running one.
    pub program: Option<PathBuf>,
    /// Is told every step; provisioning never happens silently.
    pub progress: &'a dyn Fn(&str),
}

impl Default for ProvisionOptions<'_> {
    fn default() -> Self {
        Self {
            with: Vec::new(),
            lock: None,
            runtime: None,
            cache: None,
            program: None,
            progress: &|_| {},
        }
    }
}

impl ProvisionOptions<'_> {
    /// The cache folder: the given one, else the user's.
    ///
    /// # Errors
    /// `Io` when neither a cache nor a home folder is known.
    pub fn cache_dir(&self) -> Result<PathBuf, ReaderError> {
        let set = |name: &str| {
            std::env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let dir = self
            .cache
            .clone()
            .or_else(|| set("BROKERFALL_CACHE"))
            .or_else(|| set("XDG_CACHE_HOME").map(|dir| dir.join("brokerfall")))
            .or_else(|| set("HOME").map(|dir| dir.join(".cache/brokerfall")));
        let missing = || {
            ReaderError::io("finding a cache folder (set BROKERFALL_CACHE)")(std::io::Error::from(
                std::io::ErrorKind::NotFound,
            ))
        };
        std::path::absolute(dir.ok_or_else(missing)?).map_err(ReaderError::io("resolving the cache folder"))
    }

    /// The harness's own binary.
    ///
    /// # Errors
    /// `Io` when the system does not tell it.
    pub fn program_path(&self) -> Result<PathBuf, ReaderError> {
        match &self.program {
            Some(program) => Ok(program.clone()),
            None => std::env::current_exe().map_err(ReaderError::io("finding the harness's own binary")),
        }
    }
}

/// The embedded manifests: file name for errors, and text.
pub(super) fn embedded_manifests() -> impl Iterator<Item = (String, &'static str)> {
    ADAPTERS
        .get_dir("manifests")
        .into_iter()
        .flat_map(|dir| dir.files())
        .filter(|file| file.path().extension().is_some_and(|extension| extension == "toml"))
        .filter_map(|file| Some((format!("adapters/{}", file.path().display()), file.contents_utf8()?)))
}

/// Writes the embedded adapters into the cache, in a folder named by their content, and returns it. Readers are always
/// run from there, so that a build of the harness runs the adapters that it was built with.
///
/// # Errors
/// `Io`.
pub fn write_adapters(cache: &Path) -> Result<PathBuf, ReaderError> {
    let mut files = Vec::new();
    embedded_files(&ADAPTERS, &mut files);
    let mut hash = Fnv::default();
    for (path, contents) in &files {
        hash.part(path.as_os_str().as_encoded_bytes());
        hash.part(contents);
    }
    let parent = cache.join("adapters");
    let place = parent.join(hash.hex());
    if place.is_dir() {
        return Ok(place);
    }
    let failed = || format!("writing the adapters to {} (set BROKERFALL_CACHE)", place.display());
    std::fs::create_dir_all(&parent).map_err(ReaderError::io(failed()))?;
    let building = tempfile::Builder::new()
        .prefix(".building-")
        .tempdir_in(&parent)
        .map_err(ReaderError::io(failed()))?;
    for (path, contents) in files {
        let target = building.path().join(path);
        if let Some(folder) = target.parent() {
            std::fs::create_dir_all(folder).map_err(ReaderError::io(failed()))?;
        }
        std::fs::write(target, contents).map_err(ReaderError::io(failed()))?;
    }
    move_into_place(building, &place)?;
    Ok(place)
}

/// The text of an embedded adapter, by its path below `adapters/`.
pub(crate) fn embedded_adapter(path: &str) -> Option<&'static str> {
    ADAPTERS.get_file(path).and_then(|file| file.contents_utf8())
}

/// Removes a folder of the cache; `false` where another process builds it. It is renamed first, so that nobody ever finds
/// half of it.
///
/// # Errors
/// The operating system's.
pub(crate) fn remove(folder: &Path) -> std::io::Result<bool> {
    let (Some(parent), Some(name)) = (folder.parent(), folder.file_name().and_then(|name| name.to_str())) else {
        return Err(std::io::ErrorKind::InvalidInput.into());
    };
    // `.building-LABEL-RANDOM` is guarded by the lock of LABEL.
    let label = name
        .strip_prefix(".building-")
        .and_then(|rest| rest.rsplit_once('-'))
        .map_or(name, |(label, _)| label);
    let lock = parent.join(format!(".{label}.lock"));
    let _guard = if lock.is_file() {
        match Flock::lock(
            File::options().write(true).open(&lock)?,
            FlockArg::LockExclusiveNonblock,
        ) {
            Ok(guard) => Some(guard),
            Err(_) => return Ok(false),
        }
    } else {
        None
    };
    let away = parent.join(format!(".removing-{name}-{}", std::process::id()));
    std::fs::rename(folder, &away)?;
    std::fs::remove_dir_all(&away)?;
    Ok(true)
}

/// The embedded files, without tests and without what an interpreter left behind in the source tree.
fn embedded_files(dir: &'static Dir<'static>, into: &mut Vec<(&'static Path, &'static [u8])>) {
    let is_test = |file: &Path| {
        file.file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"test_"))
    };
    let files = dir.files().filter(|file| !is_test(file.path()));
    into.extend(files.map(|file| (file.path(), file.contents())));
    for inner in dir.dirs().filter(|inner| !inner.path().ends_with("__pycache__")) {
        embedded_files(inner, into);
    }
}

/// Renames a complete temporary folder to its place. Another process may have been faster: its folder has the same
/// content and stays.
pub(crate) fn move_into_place(building: tempfile::TempDir, place: &Path) -> Result<(), ReaderError> {
    match std::fs::rename(building.path(), place) {
        Ok(()) => {
            // The folder has moved; nothing is left for the guard to remove.
            let _ = building.keep();
            Ok(())
        }
        Err(_) if place.is_dir() => Ok(()),
        Err(source) => Err(ReaderError::io(format!("moving a folder to {}", place.display()))(
            source,
        )),
    }
}

/// A temporary folder beside the place that it is to be moved to. It is removed should the harness be ended first.
pub(crate) fn building(parent: &Path, label: &str) -> Result<tempfile::TempDir, ReaderError> {
    let building = tempfile::Builder::new()
        .prefix(&format!(".building-{label}-"))
        .tempdir_in(parent)
        .map_err(ReaderError::io(format!("making a folder in {}", parent.display())))?;
    guard(building.path());
    Ok(building)
}

/// Takes the lock of one folder of the cache; it is given back when the guard is dropped, or by the kernel if we die.
pub(crate) fn lock(path: &Path, progress: &dyn Fn(&str)) -> Result<Flock<File>, ReaderError> {
    let failed = || format!("locking {}", path.display());
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(ReaderError::io(failed()))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(guard) => Ok(guard),
        Err((file, _)) => {
            progress("another process builds the same; waiting for it");
            Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| ReaderError::io(failed())(errno.into()))
        }
    }
}

/// FNV-1a, 64 bits: names folders in the cache, and must not change between releases of Rust as `DefaultHasher` may.
pub(crate) struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    /// Adds one part; its length goes first, so that parts cannot run into each other.
    pub(crate) fn part(&mut self, bytes: &[u8]) {
        for byte in (bytes.len() as u64).to_le_bytes().iter().chain(bytes) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    pub(crate) fn value(&self) -> u64 {
        self.0
    }

    pub(crate) fn hex(&self) -> String {
        format!("{:016x}", self.0)
    }
}

/// Has a temporary folder removed should the harness be ended while it is in use.
fn guard(folder: &Path) {
    if let Some(spawner) = Spawner::existing() {
        spawner.guard_folder(folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adapters_are_written_once_and_completely() {
        let cache = tempfile::tempdir().unwrap();
        let first = write_adapters(cache.path()).unwrap();
        assert!(first.join("python/brokerfall_adapter.py").is_file());
        assert!(first.join("python/ktables_adapter.py").is_file());
        assert_eq!(write_adapters(cache.path()).unwrap(), first);
        let left: Vec<_> = std::fs::read_dir(cache.path().join("adapters")).unwrap().collect();
        assert_eq!(left.len(), 1, "no temporary folder is left behind");
    }

    #[test]
    fn cache_that_cannot_be_written_is_an_error_that_names_it() {
        let cache = tempfile::tempdir().unwrap();
        let file = cache.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = write_adapters(&file).unwrap_err();
        assert!(error.to_string().contains("BROKERFALL_CACHE"), "{error}");
    }

    #[test]
    fn hash_tells_parts_apart_that_join_to_the_same_bytes() {
        let of = |parts: &[&str]| {
            let mut hash = Fnv::default();
            parts.iter().for_each(|part| hash.part(part.as_bytes()));
            hash.hex()
        };
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
        assert_eq!(of(&["ab", "c"]), of(&["ab", "c"]));
    }
}
