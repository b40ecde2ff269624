//! Environments are built once, completely, from a folder or a clone, without a network.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests: a panic fails the test, and a skip is said aloud"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use brokerfall::reader::Launch;
use brokerfall::reader::catalogue::{ReaderError, Readers};
use brokerfall::reader::provision::ProvisionOptions;

/// A build backend of the standard library alone, so that nothing is fetched.
const BACKEND: &str = r#"
import pathlib, zipfile

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    name = "lib-7.0-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / name, "w") as wheel:
        wheel.writestr("lib.py", pathlib.Path("lib.py").read_text())
        wheel.writestr("lib-7.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: lib\nVersion: 7.0\n")
        wheel.writestr("lib-7.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("lib-7.0.dist-info/RECORD", "")
    return name
"#;

const MANIFEST: &str = r#"
name = "lib"
kinds = ["table"]
command = ["{python}", "-c", "import lib; print(lib.NUMBER)"]
[provision.python]
package = "lib"
[[version]]
version = "1.0"
pins = ["lib @ file:///nowhere/at/all/lib-1.0-py3-none-any.whl"]
"#;

/// A user's readers folder, a library's source folder and a cache; `None` (said aloud) without Python.
struct Place {
    folder: tempfile::TempDir,
    readers: Readers,
}

impl Place {
    fn new() -> Option<Place> {
        brokerfall_tests::watched();
        let here = Command::new("python3").args(["-c", "import ensurepip, venv"]).output();
        if !here.is_ok_and(|output| output.status.success()) {
            println!("skipped: no python3 with venv on this machine");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("lib");
        std::fs::create_dir(&source).unwrap();
        std::fs::write(
            source.join("pyproject.toml"),
            "[build-system]\nrequires = []\nbuild-backend = \"backend\"\nbackend-path = [\".\"]\n",
        )
        .unwrap();
        std::fs::write(source.join("backend.py"), BACKEND).unwrap();
        std::fs::write(source.join("lib.py"), "NUMBER = 1\n").unwrap();
        std::fs::write(folder.path().join("lib.toml"), MANIFEST).unwrap();
        let readers = Readers::load(&[folder.path().to_owned()]).unwrap();
        Some(Place { folder, readers })
    }

    fn source(&self) -> PathBuf {
        self.folder.path().join("lib")
    }

    fn envs(&self) -> PathBuf {
        self.folder.path().join("cache/envs")
    }

    fn resolve(&self, spec: &str, builds: &AtomicUsize) -> Result<Vec<Launch>, ReaderError> {
        self.readers.resolve(
            spec,
            &ProvisionOptions {
                cache: Some(self.folder.path().join("cache")),
                progress: &|step| {
                    if step.starts_with("provisioning ") {
                        builds.fetch_add(1, Ordering::Relaxed);
                    }
                },
                ..ProvisionOptions::default()
            },
        )
    }

    /// Names in the folder of environments that are no lock files.
    fn built(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.envs())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| Path::new(name).extension().is_none_or(|extension| extension != "lock"))
            .collect();
        names.sort();
        names
    }
}

/// What the launched command prints.
fn printed(launch: &Launch) -> String {
    let output = Command::new(&launch.command[0])
        .args(&launch.command[1..])
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn folder_is_installed_once_and_again_when_its_content_changes() {
    let Some(place) = Place::new() else { return };
    let builds = AtomicUsize::new(0);
    let spec = format!("lib@path:{}", place.source().display());
    let mut files = std::fs::read_dir(place.source()).unwrap().count();
    let first = place.resolve(&spec, &builds).unwrap();
    assert_eq!(printed(&first[0]), "1\n");
    assert_eq!(first[0].info.source, format!("path:{}", place.source().display()));
    assert_eq!(first[0].info.lock.as_deref(), Some("lock.txt"));
    let lock = std::fs::read_to_string(first[0].lock.as_ref().unwrap()).unwrap();
    assert!(lock.contains("lib==7.0") && lock.starts_with("# lib@"), "{lock}");

    place.resolve(&spec, &builds).unwrap();
    assert_eq!(builds.load(Ordering::Relaxed), 1);
    files -= std::fs::read_dir(place.source()).unwrap().count();
    assert_eq!(files, 0, "nothing is left in the user's folder");

    std::fs::write(place.source().join("lib.py"), "NUMBER = 2\n").unwrap();
    let second = place.resolve(&spec, &builds).unwrap();
    assert_eq!(printed(&second[0]), "2\n");
    assert_eq!(printed(&first[0]), "1\n");
    assert_eq!((builds.load(Ordering::Relaxed), place.built().len()), (2, 2));
}

#[test]
fn two_that_want_the_same_environment_at_once_build_it_once() {
    let Some(place) = Place::new() else { return };
    let builds = AtomicUsize::new(0);
    let spec = format!("lib@path:{}", place.source().display());
    std::thread::scope(|scope| {
        let both = [(); 2].map(|()| scope.spawn(|| place.resolve(&spec, &builds).unwrap()));
        for one in both {
            assert_eq!(printed(&one.join().unwrap()[0]), "1\n");
        }
    });
    assert_eq!((builds.load(Ordering::Relaxed), place.built().len()), (1, 1));
}

#[test]
fn build_that_fails_is_told_in_its_own_words_and_leaves_nothing_half_installed() {
    let Some(place) = Place::new() else { return };
    std::fs::write(
        place.source().join("backend.py"),
        "raise SystemError('this backend is broken')\n",
    )
    .unwrap();
    let spec = format!("lib@path:{}", place.source().display());
    let error = place.resolve(&spec, &AtomicUsize::new(0)).unwrap_err();
    let ReaderError::Provision { what, tail, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(what, "installing the packages");
    assert!(
        tail.contains("this backend is broken") && tail.lines().count() <= 20,
        "{tail}"
    );
    assert_eq!(place.built(), Vec::<String>::new());
}

#[test]
fn package_that_cannot_be_fetched_is_a_failure_of_provisioning() {
    let Some(place) = Place::new() else { return };
    let error = place.resolve("lib@1.0", &AtomicUsize::new(0)).unwrap_err();
    assert!(matches!(error, ReaderError::Provision { .. }), "{error:?}");
    assert!(error.to_string().contains("installing the packages failed"), "{error}");
    assert_eq!(place.built(), Vec::<String>::new());
}

#[test]
fn environment_without_its_key_is_built_again() {
    let Some(place) = Place::new() else { return };
    let builds = AtomicUsize::new(0);
    let spec = format!("lib@path:{}", place.source().display());
    place.resolve(&spec, &builds).unwrap();
    let [name] = &place.built()[..] else {
        panic!("{:?}", place.built())
    };
    std::fs::remove_file(place.envs().join(name).join("brokerfall-key.txt")).unwrap();
    std::fs::create_dir(place.envs().join(format!(".building-{name}-left-behind"))).unwrap();
    assert_eq!(printed(&place.resolve(&spec, &builds).unwrap()[0]), "1\n");
    assert_eq!((builds.load(Ordering::Relaxed), place.built().len()), (2, 1));
}

#[test]
fn ref_of_a_local_clone_is_installed_as_it_was_committed() {
    let Some(place) = Place::new() else { return };
    let git = |arguments: &[&str]| {
        let identity = ["-c", "user.name=t", "-c", "user.email=t@localhost", "-C"];
        let status = Command::new("git")
            .args(identity)
            .arg(place.source())
            .args(arguments)
            .status()
            .unwrap();
        assert!(status.success(), "git {arguments:?}");
    };
    git(&["init", "--quiet"]);
    git(&["add", "."]);
    git(&["commit", "--quiet", "-m", "one"]);
    git(&["tag", "v1"]);
    std::fs::write(place.source().join("lib.py"), "NUMBER = 2\n").unwrap();
    let builds = AtomicUsize::new(0);
    let launches = place
        .resolve(&format!("lib@git:{}#v1", place.source().display()), &builds)
        .unwrap();
    assert_eq!(printed(&launches[0]), "1\n");
    assert!(
        launches[0].info.source.ends_with("lib#v1"),
        "{}",
        launches[0].info.source
    );
}

/// Writes wheels of `lib`, which needs `core`, into a folder; prints the SHA-256 of the last.
const WHEELS: &str = r#"
import hashlib, pathlib, sys, zipfile

for name, version, needs in [("lib", "1.0", "core"), ("core", "1.1", ""), ("core", "1.0", "")]:
    path = pathlib.Path(sys.argv[1]) / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    requires = f"Requires-Dist: {needs}\n" if needs else ""
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}.py", "")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
print(hashlib.sha256(path.read_bytes()).hexdigest())
"#;

#[test]
fn lock_of_a_run_is_what_the_next_one_is_made_of() {
    let Some(place) = Place::new() else { return };
    let at = |name: &str| place.folder.path().join(name);
    std::fs::create_dir(at("wheels")).unwrap();
    let made = Command::new("python3")
        .args(["-c", WHEELS])
        .arg(at("wheels"))
        .output()
        .unwrap();
    let hash = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    std::fs::create_dir(at("readers")).unwrap();
    let manifest = MANIFEST
        .replace("\"table\"", "\"assign\"")
        .replace(
            "[\"{python}\", \"-c\", \"import lib; print(lib.NUMBER)\"]",
            "[\"{program}\", \"reader\", \"reference-assign\"]",
        )
        .replace("lib @ file:///nowhere/at/all/lib-1.0-py3-none-any.whl", "lib==1.0");
    std::fs::write(at("readers/lib.toml"), manifest).unwrap();
    let run = |out: &str, lock: Option<&Path>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_brokerfall-under-test"));
        command
            .current_dir(place.folder.path())
            .env("BROKERFALL_CACHE", at("cache"))
            .envs([("PIP_NO_INDEX", "1"), ("UV_NO_INDEX", "1")])
            .env("PIP_FIND_LINKS", at("wheels"))
            .env("UV_FIND_LINKS", at("wheels"))
            .args("run control/idle --reader lib --readers-dir readers --keep all --out".split(' '))
            .arg(out);
        if let Some(lock) = lock {
            command.arg("--lock").arg(lock);
        }
        command.output().unwrap()
    };
    // The lock that a run has kept, without its first line.
    let kept = |out: &str| {
        let mut folder = at(out);
        for _ in 0..2 {
            let inner = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
            folder = inner.filter(|path| path.is_dir()).max().unwrap();
        }
        let path = folder.join("lock.txt");
        let text = std::fs::read_to_string(&path).unwrap();
        let pins: Vec<String> = text.lines().skip(1).map(str::to_owned).collect();
        (path, pins)
    };
    assert_eq!(run("first", None).status.code(), Some(0));
    let (lock, pins) = kept("first");
    assert!(
        pins.contains(&"core==1.1".to_owned()) && pins.contains(&"lib==1.0".to_owned()),
        "{pins:?}"
    );
    assert_eq!(run("again", Some(&lock)).status.code(), Some(0));
    assert_eq!(kept("again").1, pins);

    // Another lock is another environment, and holds nothing that it does not name.
    std::fs::write(at("older.txt"), "lib==1.0\ncore==1.0\n").unwrap();
    assert_eq!(run("older", Some(&at("older.txt"))).status.code(), Some(0));
    assert_eq!(kept("older").1, ["core==1.0", "lib==1.0"]);
    assert_eq!(place.built().len(), 3, "{:?}", place.built());

    // A file that is not the one of the lock is not installed.
    for (hash, code) in [(hash.as_str(), 0), (&"0".repeat(64), 3)] {
        let hashed = format!("core==1.0 --hash=sha256:{hash}\n");
        std::fs::write(at("core.txt"), hashed).unwrap();
        let manifest = std::fs::read_to_string(at("readers/lib.toml")).unwrap();
        std::fs::write(
            at("readers/lib.toml"),
            manifest.replace("package = \"lib\"", "package = \"core\""),
        )
        .unwrap();
        let ended = run("hashed", Some(&at("core.txt")));
        let told = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(code), "{told}");
        assert_eq!(told.contains("installing the packages failed"), code == 3, "{told}");
    }
}
