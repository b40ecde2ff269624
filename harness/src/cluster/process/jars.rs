//! Kafka's jars: from KAFKA_HOME, or resolved by Maven into the cache, once for each version.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{KAFKA, KitError};
use crate::process;
use crate::reader::provision::{self, Fnv};

/// What Maven resolves.
const POM: &str = include_str!("pom.xml");

/// Lines of a failed step that are shown.
const TAIL_LINES: usize = 12;

/// The jar that tells Kafka's version, up to the version.
const SERVER: &str = "kafka_2.13-";

/// Kafka, ready to be put on a class path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Jars {
    /// `4.1.0`.
    pub(super) version: String,
    /// Every jar, in one order for ever: an archive of classes serves one class path only.
    pub(super) class_path: String,
}

/// Finds or resolves Kafka of `version`, the default where none is named. Nothing is downloaded when `may_download` is
/// false.
///
/// # Errors
/// [`KitError::Home`], [`KitError::Version`], [`KitError::NoMaven`], [`KitError::Maven`], [`KitError::NotCached`],
/// [`KitError::Cache`].
pub(super) fn find(
    version: Option<&str>,
    cache: &Path,
    may_download: bool,
    progress: &dyn Fn(&str),
) -> Result<Jars, KitError> {
    match std::env::var_os("KAFKA_HOME").filter(|home| !home.is_empty()) {
        Some(home) => of_home(Path::new(&home), version),
        None => of_cache(version.unwrap_or(KAFKA), cache, may_download, progress),
    }
}

/// The jars of an unpacked Kafka.
fn of_home(home: &Path, wanted: Option<&str>) -> Result<Jars, KitError> {
    let wrong = |reason: String| KitError::Home {
        home: home.to_owned(),
        reason,
    };
    let jars =
        in_folder(&home.join("libs")).map_err(|cause| wrong(format!("its folder libs cannot be read: {cause}")))?;
    if let Some(wanted) = wanted.filter(|wanted| *wanted != jars.version) {
        return Err(wrong(format!(
            "it holds Kafka {} and --kafka asks for {wanted} (unset KAFKA_HOME)",
            jars.version
        )));
    }
    Ok(jars)
}

fn of_cache(version: &str, cache: &Path, may_download: bool, progress: &dyn Fn(&str)) -> Result<Jars, KitError> {
    check(version)?;
    let pom = POM.replace("@KAFKA@", version);
    let mut hash = Fnv::default();
    hash.part(pom.as_bytes());
    let label = format!("kafka-{version}-{}", hash.hex());
    let clusters = cache.join(super::CACHED);
    let place = clusters.join(&label);
    let read = |place: &Path| in_folder(place).map_err(KitError::io(format!("reading {}", place.display())));
    if place.is_dir() {
        return read(&place);
    }
    if !may_download {
        return Err(KitError::NotCached {
            version: version.to_owned(),
        });
    }
    let Some(maven) = crate::which("mvn") else {
        return Err(KitError::NoMaven {
            version: version.to_owned(),
        });
    };
    std::fs::create_dir_all(&clusters).map_err(KitError::io(format!("making {}", clusters.display())))?;
    let _lock = provision::lock(&clusters.join(format!(".{label}.lock")), progress)?;
    // Whoever held the lock may have resolved the same.
    if place.is_dir() {
        return read(&place);
    }
    let building = provision::building(&clusters, &label)?;
    progress(&format!(
        "resolving Apache Kafka {version} with {} (once)",
        maven.display()
    ));
    std::fs::write(building.path().join("pom.xml"), &pom).map_err(KitError::io("writing the pom"))?;
    let output = process::output(
        Command::new(&maven)
            .current_dir(building.path())
            .args(["-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"])
            .arg(format!("-DoutputDirectory={}", building.path().display())),
    )
    .map_err(KitError::io(format!("running {}", maven.display())))?;
    if !output.status.success() {
        return Err(KitError::Maven {
            version: version.to_owned(),
            // Maven tells its errors on stdout.
            tail: tail(&output.stdout, &output.stderr),
        });
    }
    in_folder(building.path()).map_err(|cause| KitError::Maven {
        version: version.to_owned(),
        tail: cause.to_string(),
    })?;
    provision::move_into_place(building, &place)?;
    read(&place)
}

/// A version is written into a pom: nothing but a version may stand there.
fn check(version: &str) -> Result<(), KitError> {
    let good = version.starts_with(|first: char| first.is_ascii_digit())
        && version.split('.').count() == 3
        && version
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'));
    if good {
        return Ok(());
    }
    Err(KitError::Version {
        found: version.to_owned(),
    })
}

fn in_folder(folder: &Path) -> std::io::Result<Jars> {
    let mut jars: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "jar") {
            jars.push(path);
        }
    }
    jars.sort();
    let version = jars
        .iter()
        .filter_map(|jar| jar.file_stem()?.to_str()?.strip_prefix(SERVER))
        .find(|version| version.starts_with(|first: char| first.is_ascii_digit()) && !version.contains("-sources"));
    let Some(version) = version else {
        return Err(std::io::Error::other(format!(
            "{} holds no {SERVER}*.jar",
            folder.display()
        )));
    };
    let paths: Vec<_> = jars.iter().map(|jar| jar.to_string_lossy()).collect();
    Ok(Jars {
        version: version.to_owned(),
        class_path: paths.join(":"),
    })
}

/// The last lines of what a step printed.
pub(super) fn tail(stdout: &[u8], stderr: &[u8]) -> String {
    let text = [String::from_utf8_lossy(stdout), String::from_utf8_lossy(stderr)].concat();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet(_: &str) {}

    #[test]
    fn version_that_is_none_never_reaches_the_pom() {
        for found in ["latest", "4.1", "4.1.0</version>", "4.1.0 ", "", "../../x"] {
            assert!(matches!(check(found), Err(KitError::Version { .. })), "{found}");
        }
        check("4.1.0").unwrap();
        check("4.2.0-rc1").unwrap();
    }

    #[test]
    fn what_is_not_cached_is_not_downloaded_unasked() {
        let cache = tempfile::tempdir().unwrap();
        let error = of_cache("4.1.0", cache.path(), false, &quiet).unwrap_err();
        assert!(matches!(error, KitError::NotCached { .. }), "{error}");
        assert_eq!(std::fs::read_dir(cache.path()).unwrap().count(), 0);
    }

    #[test]
    fn home_tells_its_version_and_every_jar_in_order() {
        let home = tempfile::tempdir().unwrap();
        let libs = home.path().join("libs");
        std::fs::create_dir(&libs).unwrap();
        for name in [
            "kafka_2.13-3.9.1.jar",
            "kafka_2.13-3.9.1-sources.jar",
            "a.jar",
            "README",
        ] {
            std::fs::write(libs.join(name), "").unwrap();
        }
        let jars = of_home(home.path(), None).unwrap();
        assert_eq!(jars.version, "3.9.1");
        let names: Vec<&str> = jars
            .class_path
            .split(':')
            .filter_map(|path| path.rsplit('/').next())
            .collect();
        assert_eq!(names, ["a.jar", "kafka_2.13-3.9.1-sources.jar", "kafka_2.13-3.9.1.jar"]);
        let error = of_home(home.path(), Some("4.1.0")).unwrap_err().to_string();
        assert!(error.contains("3.9.1") && error.contains("4.1.0"), "{error}");
    }

    #[test]
    fn home_without_kafka_is_named() {
        let home = tempfile::tempdir().unwrap();
        let error = of_home(home.path(), None).unwrap_err().to_string();
        assert!(error.contains("KAFKA_HOME") && error.contains("libs"), "{error}");
    }
}
