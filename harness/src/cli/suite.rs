//! `run`: scenarios × readers, carried out, judged and reported.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use brokerfall_report::history::{Entry, Event};
use brokerfall_report::render;
use brokerfall_report::report::{Report, RunReport};
use brokerfall_report::verdict::{ExitCode, Verdict};
use tokio::sync::Semaphore;

use super::args::{KeepArg, RunArgs};
use super::out::{Out, OutError, run_folder};
use super::pairing::{self, Pair};
use super::progress::Progress;
use super::{say, signals};
use crate::process::{ProcessError, Spawner};
use crate::run::{self, Cancel, Order};
use crate::scenario::known_failing::KnownFailing;
use crate::verdict;

/// Why a suite could not start or finish.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SuiteError {
    /// Arguments, scenarios or readers are wrong; nothing was started.
    #[error("{0}")]
    Usage(String),
    /// Something that the suite needs of the machine is not there.
    #[error("{0}")]
    Environment(String),
    /// The output folder cannot be used.
    #[error("failed to prepare the output")]
    Out(#[from] OutError),
    /// Child processes cannot be started.
    #[error("failed to prepare for child processes")]
    Process(#[from] ProcessError),
    /// The operating system refused.
    #[error("failed to {what}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// Its answer.
        #[source]
        source: std::io::Error,
    },
}

impl SuiteError {
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            SuiteError::Usage(_) => ExitCode::Usage,
            _ => ExitCode::Environment,
        }
    }
}

/// Everything that the runs of a suite share.
struct Suite {
    args: RunArgs,
    out: Out,
    spawner: Spawner,
    program: PathBuf,
    known: KnownFailing,
    progress: Progress,
    done: AtomicUsize,
    cancel: Cancel,
}

/// Runs the suite that the arguments ask for.
pub(crate) async fn run(args: RunArgs) -> Result<ExitCode, SuiteError> {
    let jobs = args.jobs.map_or_else(|| std::thread::available_parallelism().map_or(2, usize::from), usize::from);
    if args.keep_up && jobs != 1 {
        return Err(SuiteError::Usage("--keep-up needs --jobs 1: one failure is kept up at a time".into()));
    }
    let started_at = run::order::now_rfc3339();
    let plans = pairing::plans(&args)?;
    let full_catalogue = args.scenarios.is_empty() && args.tag.is_none() && !args.last_failed;
    let stamp: String = started_at.chars().filter(|c| !matches!(c, '-' | ':')).collect();
    let out = Out::create(&args.out, &stamp)?;
    let program = std::env::current_exe().map_err(|source| SuiteError::Io { what: "find this binary", source })?;
    let spawner = Spawner::start(&program)?;
    let cancel = signals::listen().map_err(|source| SuiteError::Io { what: "listen for signals", source })?;
    let launches = pairing::launches(&args, &program).await?;
    let mut pairs = pairing::pairs(&plans, &launches);
    if args.last_failed {
        keep_last_failed(&mut pairs, &out)?;
    }
    if pairs.is_empty() {
        return Err(SuiteError::Usage(pairing::nothing_to_run(&plans, &launches)));
    }
    let known = KnownFailing::bundled().map_err(|cause| SuiteError::Usage(cause.to_string()))?;
    let total = pairs.len() * args.repeat as usize;
    let suite = Arc::new(Suite {
        progress: Progress::new(total),
        args,
        out,
        spawner,
        program,
        known,
        done: AtomicUsize::new(0),
        cancel,
    });
    let runs = carry_out(&suite, pairs, jobs).await;
    let stale = if full_catalogue { suite.known.stale(&plans, &runs) } else { Vec::new() };
    let command = std::env::args().collect::<Vec<_>>().join(" ");
    let report = Report::new(env!("CARGO_PKG_VERSION"), &started_at, &command, runs, stale);
    write(&suite, &report)?;
    Ok(report.exit_code())
}

/// Carries every pair out, `jobs` at a time, and returns the reports in the order of the pairs.
async fn carry_out(suite: &Arc<Suite>, pairs: Vec<Pair>, jobs: usize) -> Vec<RunReport> {
    let permits = Arc::new(Semaphore::new(jobs));
    let mut tasks = Vec::new();
    for round in 0..suite.args.repeat {
        for pair in &pairs {
            let (suite, permits, pair) = (suite.clone(), permits.clone(), pair.clone());
            let index = tasks.len() + 1;
            tasks.push(tokio::spawn(async move {
                // OK to ignore: the semaphore is never closed.
                let _permit = permits.acquire_owned().await;
                if suite.cancel.borrow().is_some() {
                    return None;
                }
                Some(one(&suite, pair, index, round).await)
            }));
        }
    }
    let mut reports = Vec::new();
    for task in tasks {
        match task.await {
            Ok(Some(Ok(report))) => reports.push(report),
            Ok(Some(Err(cause))) => suite.progress.say(&format!("error: a history was lost: {cause}")),
            Ok(None) => {}
            Err(panicked) => suite.progress.say(&format!("error: a run of the harness panicked: {panicked}")),
        }
    }
    reports
}

/// One run, from order to report.
async fn one(suite: &Suite, pair: Pair, index: usize, round: u32) -> std::io::Result<RunReport> {
    let label = pair.launch.info.label();
    let order = Order {
        folder: suite.out.folder.join(run_folder(index, &pair.plan.id, &label)),
        program: suite.program.clone(),
        spawner: suite.spawner.clone(),
        seed: suite.args.seed.wrapping_add(u64::from(round)),
        reproduce: pairing::reproduce(&suite.args, &pair),
        keep_up: suite.args.keep_up,
        plan: pair.plan,
        launch: pair.launch,
    };
    let (folder, history, scenario) = (order.folder.clone(), order.history(), order.plan.id.clone());
    let recorder = run::recorder(&order)?;
    std::fs::write(folder.join("plan.toml"), crate::scenario::to_toml(&order.plan))?;
    let line = suite.progress.start(&scenario, &label, &recorder);
    let ran = match pair.skip {
        Some((reason, enable)) => run::skip(&order, &recorder, reason, enable)?,
        None => run::run(order, recorder, suite.cancel.clone()).await?,
    };
    let entries = verdict::read(&history)?;
    let mut report = RunReport::from_history(entries.iter(), &ran.judgement);
    report.artifacts = relative(&folder, &suite.out.folder);
    suite.known.apply(&mut report);
    let done = suite.done.fetch_add(1, Ordering::Relaxed) + 1;
    let seconds = entries.last().map_or(0.0, |entry| entry.at_us as f64 / 1e6);
    suite.progress.end(line, done, &scenario, &label, report.verdict, seconds);
    if suite.args.keep == KeepArg::Failed && matches!(report.verdict, Verdict::Passed | Verdict::Skipped) {
        std::fs::remove_dir_all(&folder)?;
        report.artifacts = String::new();
    }
    Ok(report)
}

fn relative(folder: &Path, root: &Path) -> String {
    folder.strip_prefix(root).unwrap_or(folder).to_string_lossy().into_owned()
}

/// Writes the reports and prints what a person reads.
fn write(suite: &Suite, report: &Report) -> Result<(), SuiteError> {
    suite.out.write("report.json", &render::json(report))?;
    suite.out.write("junit.xml", &render::junit(report))?;
    suite.out.write("report.md", &render::markdown(report))?;
    say::out(&render::text(report, &super::palette()));
    say::out(&format!("reports: {}", suite.out.folder.display()));
    Ok(())
}

/// Keeps the pairs that did not end as expected in the invocation before.
fn keep_last_failed(pairs: &mut Vec<Pair>, out: &Out) -> Result<(), SuiteError> {
    let none = || SuiteError::Usage("--last-failed: no earlier report under the output folder (run without it first)".into());
    let path = out.last_report().ok_or_else(none)?;
    let text = std::fs::read_to_string(&path).map_err(|source| SuiteError::Io { what: "read the last report", source })?;
    let report: Report = serde_json::from_str(&text)
        .map_err(|source| SuiteError::Io { what: "read the last report", source: source.into() })?;
    let failed: BTreeSet<(String, String)> = report
        .runs
        .iter()
        .filter(|run| !matches!(run.verdict, Verdict::Passed | Verdict::KnownFailing | Verdict::Skipped))
        .map(|run| (run.scenario.clone(), run.reader.label()))
        .collect();
    pairs.retain(|pair| failed.contains(&(pair.plan.id.clone(), pair.launch.info.label())));
    if pairs.is_empty() {
        return Err(SuiteError::Usage(format!("--last-failed: every run of {} ended as expected", path.display())));
    }
    Ok(())
}

#[expect(unused, reason = "placeholder until the modules are merged")]
fn unused(_: Entry, _: Event) {}
