//! Everything but `run`: commands that look, explain and judge again.

use std::time::{Duration, Instant};

use brokerfall_report::render;
use brokerfall_report::verdict::{ExitCode, Verdict};

use super::args::{AdapterCheckArgs, CheckArgs, DoctorArgs, ExplainArgs, JudgeArgs, ListArgs, ReadersArgs};
use super::config::Config;
use super::error::SuiteError;
use super::out::Out;
use super::{say, text_options};
use crate::cluster::clusters::{Clusters, Starters};
use crate::cluster::mock::MockCluster;
use crate::cluster::{Cluster, ClusterKind};
use crate::history::recorder::Recorder;
use crate::link::builtin::{BuiltinLink, LinkOptions};
use crate::link::{Link, LinkSource};
use crate::process::Spawner;
use crate::reader::Launch;
use crate::reader::catalogue::Readers;
use crate::reader::provision::ProvisionOptions;
use crate::run::{self, Order, paces};
use crate::scenario::{catalogue, project, schema};
use crate::{explain as pages, verdict};

fn usage(cause: &dyn std::error::Error) -> ExitCode {
    say::error(cause);
    ExitCode::Usage
}

/// `list`: the bundled scenarios, and those that brokerfall.toml names.
///
/// # Errors
/// [`SuiteError::Select`] and [`SuiteError::Wrong`] for what is wrong in any of them, or in brokerfall.toml.
pub(crate) fn list(args: &ListArgs) -> Result<ExitCode, SuiteError> {
    let config = Config::load(args.settings.config.as_deref())?;
    let mut summaries = catalogue::list()?;
    summaries.extend(config.scenarios()?);
    // A scenario of one's own has its path as its id, which may be typed from the working folder.
    let begins = |id: &str, word: &String| {
        let path = std::path::absolute(word).unwrap_or_default();
        id.starts_with(word.as_str()) || (path.is_absolute() && id.starts_with(&*path.to_string_lossy()))
    };
    let wanted = |id: &str| args.scenarios.is_empty() || args.scenarios.iter().any(|word| begins(id, word));
    let found: Vec<_> = summaries.iter().filter(|one| wanted(&one.id)).collect();
    if found.is_empty() {
        return Err(SuiteError::Usage(
            "no scenario has an id that begins so (`brokerfall list` shows all)".into(),
        ));
    }
    if args.json {
        let rows: Vec<serde_json::Value> = found
            .iter()
            .map(|one| {
                serde_json::json!({
                    "id": one.id,
                    "title": one.title,
                    "tags": one.tags,
                    "phases": one.phases,
                    "kinds": one.kinds,
                    "plans": one.plans,
                })
            })
            .collect();
        say::out(&serde_json::Value::from(rows).to_string());
        return Ok(ExitCode::AsExpected);
    }
    let width = found.iter().map(|one| one.id.len()).max().unwrap_or(0);
    let tags = found.iter().map(|one| one.tags.join(",").len()).max().unwrap_or(0);
    for one in found {
        let kinds: Vec<&str> = one.kinds.iter().map(|kind| kind.name()).collect();
        say::out_tame(&format!(
            "{:width$}  {:18}  {:tags$}  {}",
            one.id,
            kinds.join(","),
            one.tags.join(","),
            one.title
        ));
    }
    Ok(ExitCode::AsExpected)
}

/// `check`: the given files, else those that brokerfall.toml names, else the bundled ones.
///
/// # Errors
/// [`SuiteError::Usage`] and [`SuiteError::Wrong`] for a brokerfall.toml that cannot be used. What is wrong with scenarios
/// is said file by file.
pub(crate) fn check(args: &CheckArgs) -> Result<ExitCode, SuiteError> {
    if args.schema {
        say::out(schema::text_of_schema().trim_end());
        return Ok(ExitCode::AsExpected);
    }
    let config = Config::load(args.settings.config.as_deref())?;
    let paths = if args.paths.is_empty() {
        &config.project.scenarios
    } else {
        &args.paths
    };
    if paths.is_empty() {
        say::out(&format!("{} bundled scenarios are good", catalogue::list()?.len()));
        return Ok(ExitCode::AsExpected);
    }
    let mut code = ExitCode::AsExpected;
    for path in paths {
        match catalogue::check(path) {
            Ok(checked) => {
                for one in &checked.good {
                    say::out_tame(&format!("{}: {} plan(s), {}", one.id, one.plans.len(), one.title));
                }
                for wrong in &checked.wrong {
                    code = usage(wrong);
                }
                if checked.files > 1 {
                    let (wrong, errors) = (checked.wrong.len(), checked.errors());
                    let good = checked.files - wrong;
                    say::note(&format!("{good} file(s) are good, {wrong} are not ({errors} error(s))"));
                }
            }
            Err(cause) => code = usage(&cause),
        }
    }
    Ok(code)
}

/// `readers`.
///
/// # Errors
/// [`SuiteError::Reader`] for a manifest that cannot be used, [`SuiteError::Usage`] and [`SuiteError::Wrong`] for such a
/// brokerfall.toml.
pub(crate) fn readers(args: &ReadersArgs) -> Result<ExitCode, SuiteError> {
    let config = Config::load(args.settings.config.as_deref())?;
    let readers = Readers::load(config.readers_dirs(&args.readers_dirs)).map_err(SuiteError::Reader)?;
    let width = readers
        .manifests()
        .map(|manifest| manifest.name.len())
        .max()
        .unwrap_or(0);
    for manifest in readers.manifests() {
        let kinds: Vec<&str> = manifest.kinds.iter().map(|kind| kind.name()).collect();
        let versions: Vec<&str> = manifest
            .versions
            .iter()
            .map(|version| version.version.as_str())
            .collect();
        let versions = if versions.is_empty() {
            "built in".to_owned()
        } else {
            versions.join(", ")
        };
        say::out_tame(&format!(
            "{:width$}  {:14}  {versions:22}  {}",
            manifest.name,
            kinds.join(","),
            manifest.summary
        ));
    }
    Ok(ExitCode::AsExpected)
}

/// `judge`.
pub(crate) fn judge(args: &JudgeArgs) -> ExitCode {
    let report = match verdict::report_file(&verdict::history_of(&args.history)) {
        Ok(report) => report,
        Err(cause) => return usage(&cause),
    };
    if args.json {
        match serde_json::to_string_pretty(&report) {
            Ok(json) => say::out(&json),
            Err(cause) => return usage(&cause),
        }
    } else {
        say::out(&render::text::run(&report, text_options(true)));
    }
    match (report.verdict, report.error_of) {
        (Verdict::Error, Some(brokerfall_report::history::FailureOf::Harness)) => ExitCode::HarnessBug,
        (Verdict::Error, _) => ExitCode::Environment,
        (Verdict::Failed, _) => ExitCode::Violation,
        (Verdict::Void, _) => ExitCode::Void,
        (Verdict::Skipped, _) => ExitCode::NothingJudged,
        (Verdict::Passed | Verdict::KnownFailing, _) => ExitCode::AsExpected,
    }
}

/// `explain`.
pub(crate) fn explain(args: &ExplainArgs) -> ExitCode {
    let Some(name) = &args.name else {
        for (topic, names) in pages::topics() {
            say::out(&format!("{topic}:"));
            for name in names {
                say::out(&format!("  {name}"));
            }
        }
        return ExitCode::AsExpected;
    };
    match pages::lookup(name) {
        Ok(page) => {
            say::out(page.trim_end());
            ExitCode::AsExpected
        }
        Err(cause) => usage(&cause),
    }
}

/// `doctor`.
pub(crate) async fn doctor(args: &DoctorArgs) -> ExitCode {
    let mut healthy = true;
    let mut line = |good: bool, what: &str, text: String| {
        healthy &= good;
        say::out(&format!(
            "{} {what:18} {text}",
            if good { "ok     " } else { "missing" }
        ));
    };
    match ready().await {
        Ok(first) => {
            line(
                true,
                "mock cluster",
                "starts, and the link stands in front of it".into(),
            );
            if args.timing {
                line(true, "  first start", format!("{:.1} ms", first.as_secs_f64() * 1e3));
                let mut later = Vec::new();
                for _ in 0..10 {
                    match ready().await {
                        Ok(took) => later.push(took.as_secs_f64() * 1e3),
                        Err(text) => line(false, "mock cluster", text),
                    }
                }
                later.sort_by(f64::total_cmp);
                if let (Some(min), Some(mid), Some(max)) = (later.first(), later.get(later.len() / 2), later.last()) {
                    line(
                        true,
                        "  later starts",
                        format!("{min:.1} / {mid:.1} / {max:.1} ms (min, median, max of 10)"),
                    );
                }
            }
        }
        Err(text) => line(false, "mock cluster", text),
    }
    super::brokers::doctor(args.timing).await;
    say::out_tame(&toxiproxy());
    let python = crate::which("python3");
    let text = python.as_ref().map_or_else(
        || "Python readers (ktables) need Python 3.10 or later with venv".to_owned(),
        |path| match version_of(path) {
            Some(version) => format!("{version} ({})", path.display()),
            None => format!("{} does not say its version", path.display()),
        },
    );
    line(python.is_some(), "python3", text);
    let uv = crate::which("uv");
    say::out(&format!(
        "{} {:18} {}",
        if uv.is_some() { "ok     " } else { "absent " },
        "uv",
        uv.map_or_else(
            || "not needed: venv and pip are used".to_owned(),
            |path| path.display().to_string()
        )
    ));
    match Config::load(args.settings.config.as_deref()) {
        Ok(config) => {
            let file = config
                .file
                .map_or("none from here upward".to_owned(), |file| file.display().to_string());
            say::out(&format!("ok      {:18} {file}", project::FILE));
        }
        Err(cause) => {
            healthy = false;
            say::out_tame(&format!("wrong   {:18} {}", project::FILE, crate::chain(&cause)));
        }
    }
    match ProvisionOptions::default().cache_dir() {
        Ok(folder) => say::out(&format!("ok      {:18} {}", "cache folder", folder.display())),
        Err(cause) => {
            healthy = false;
            say::out(&format!("missing {:18} {}", "cache folder", crate::chain(&cause)));
        }
    }
    if healthy {
        ExitCode::AsExpected
    } else {
        ExitCode::Environment
    }
}

/// Whether `--link toxiproxy` can be used, without building anything. Lacking it is no fault: the builtin link needs nothing.
#[cfg(feature = "toxiproxy")]
fn toxiproxy() -> String {
    use crate::link::toxiproxy::{Program, VERSION};
    let cache = ProvisionOptions::default().cache_dir();
    let found = cache
        .map_err(|cause| crate::chain(&cause))
        .and_then(|cache| Program::find(&cache, false, &|_| {}).map_err(|cause| crate::chain(&cause)));
    match found {
        Ok(program) => format!("ok      {:18} {VERSION} ({})", "toxiproxy", program.path().display()),
        Err(text) => format!("absent  {:18} {text}", "toxiproxy"),
    }
}

#[cfg(not(feature = "toxiproxy"))]
fn toxiproxy() -> String {
    format!(
        "absent  {:18} this program was built without the feature `toxiproxy`; the builtin link needs nothing",
        "toxiproxy"
    )
}

/// How long cluster and link take until a reader could connect.
#[expect(
    clippy::disallowed_methods,
    reason = "doctor measures; nothing is judged by this clock"
)]
async fn ready() -> Result<Duration, String> {
    let failed = |cause: &dyn std::error::Error| crate::chain(cause);
    let folder = tempfile::tempdir().map_err(|cause| failed(&cause))?;
    let program = std::env::current_exe().map_err(|cause| failed(&cause))?;
    let recorder = Recorder::new(None).map_err(|cause| failed(&cause))?;
    let start = Instant::now();
    let cluster = MockCluster::start(1, &program, folder.path())
        .await
        .map_err(|cause| failed(&cause))?;
    let link = BuiltinLink::start(
        cluster.brokers(),
        recorder,
        LinkOptions {
            emulated: true,
            ..LinkOptions::default()
        },
    )
    .map_err(|cause| failed(&cause))?;
    let took = start.elapsed();
    link.shutdown().await;
    cluster.shutdown().await;
    Ok(took)
}

/// What an interpreter says of itself: `Python 3.11.7`.
fn version_of(python: &std::path::Path) -> Option<String> {
    let output = std::process::Command::new(python).arg("--version").output().ok()?;
    let said = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !said.is_empty()).then_some(said)
}

/// `adapter check`.
pub(crate) async fn adapter_check(args: AdapterCheckArgs) -> Result<ExitCode, SuiteError> {
    let config = Config::load(args.settings.config.as_deref())?;
    let started_at = run::order::now_rfc3339();
    let stamp: String = started_at.chars().filter(|c| !matches!(c, '-' | ':')).collect();
    let out = Out::create(&config.out(args.out), &stamp)?;
    let spawner = Spawner::shared()?;
    let plan = crate::scenario::load("adapter-check", paces::PLAN)
        .and_then(|scenario| scenario.plans())?
        .remove(0);
    let command = shlex::try_join(args.command.iter().map(String::as_str)).map_err(SuiteError::Quote)?;
    let launch = Launch::adapter(&command, args.kind.into()).map_err(SuiteError::Reader)?;
    let program = std::env::current_exe().map_err(|source| SuiteError::Io {
        what: "find this binary",
        source,
    })?;
    let order = Order {
        plan,
        launch,
        cluster: ClusterKind::Mock,
        clusters: Clusters::new(program, out.folder.clone(), Starters::default()),
        link: LinkSource::Builtin,
        folder: out.folder.join("adapter-check"),
        expected: None,
        exclusive: true,
        limits: config.project.limits,
        seed: 0,
        reproduce: super::command_line(),
        keep_up: false,
    };
    let recorder = run::recorder(&order).map_err(|source| SuiteError::Io {
        what: "write the history",
        source,
    })?;
    let checked = paces::check(&order, &recorder).await;
    order.clusters.shutdown().await;
    spawner.shut_down().await;
    recorder.flush().map_err(|source| SuiteError::Io {
        what: "write the history",
        source,
    })?;
    let checked = checked?;
    for pace in &checked {
        let (mark, text) = match &pace.result {
            Ok(text) => ("ok ", text),
            Err(text) => ("BAD", text),
        };
        say::out(&format!("{mark} {}: {}", pace.what, render::escape::terminal(text)));
    }
    let bad = checked.iter().filter(|pace| pace.result.is_err()).count();
    say::out(&format!(
        "{} checked, {bad} bad; everything it said is in {}",
        checked.len(),
        order.folder.display()
    ));
    Ok(if bad == 0 {
        ExitCode::AsExpected
    } else {
        ExitCode::Violation
    })
}
