//! `run`: scenarios × readers, carried out, judged and reported.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use brokerfall_report::exception::Origin;
use brokerfall_report::history::FailureOf;
use brokerfall_report::render;
use brokerfall_report::report::{ExceptionReport, Report, RunReport, StaleEntry};
use brokerfall_report::verdict::{ExitCode, FailureKind, Verdict};
use tokio::sync::Semaphore;

use super::args::{ClusterArg, KeepArg, RunArgs};
use super::config::Config;
use super::error::SuiteError;
use super::journal::{Asked as AskedRun, Header, Journal, Resumed};
use super::out::{Out, run_folder};
use super::pairing::{self, Asked, Machine, Pair};
use super::progress::Progress;
use super::{say, signals};
use crate::cluster::ClusterKind;
use crate::cluster::clusters::{Clusters, Starters};
use crate::cluster::container::Swept;
use crate::link::LinkSource;
use crate::process::Spawner;
use crate::reader::manifest::ManifestLimits;
use crate::reader::provision::Fnv;
use crate::run::{self, Cancel, Order};
use crate::scenario::catalogue;
use crate::scenario::expected::Expected;
use crate::scenario::known_failing::{self, KnownFailing, Match};
use crate::verdict;

/// Everything that the runs of a suite share.
struct Suite {
    args: RunArgs,
    out: Out,
    clusters: Clusters,
    link: LinkSource,
    /// Known failures by reader name.
    known: BTreeMap<String, KnownFailing>,
    /// Accepted exceptions by reader name.
    expected: BTreeMap<String, Expected>,
    progress: Progress,
    done: AtomicUsize,
    journal: Journal,
    /// Of brokerfall.toml.
    limits: ManifestLimits,
    cancel: Cancel,
}

/// Runs at a time for each core where the user does not say: a run waits for its reader most of the time.
const RUNS_PER_CORE: usize = 2;

/// Runs the suite that the arguments ask for.
pub(crate) async fn run(mut args: RunArgs) -> Result<ExitCode, SuiteError> {
    let config = Config::load(args.settings.config.as_deref())?;
    config.apply(&mut args)?;
    let root = config.out(args.out.clone());
    let jobs = args.jobs.map_or_else(
        || RUNS_PER_CORE * std::thread::available_parallelism().map_or(1, usize::from),
        usize::from,
    );
    if args.keep_up && jobs != 1 {
        return Err(SuiteError::Usage(
            "--keep-up needs --jobs 1: one failure is kept up at a time".into(),
        ));
    }
    let started_at = run::order::now_rfc3339();
    let plans = pairing::plans(&args)?;
    let full_catalogue = args.scenarios.is_empty() && args.tag.is_none() && !args.last_failed;
    let program = own_program()?;
    // Before provisioning, whose helpers the watchdog must know.
    let spawner = Spawner::shared()?;
    let mut cancel = signals::listen().map_err(|source| SuiteError::Io {
        what: "listen for signals",
        source,
    })?;
    // Provisioning blocks for seconds to minutes: away from the tasks that watch for signals.
    let for_readers = (args.clone(), program.clone());
    let provisioning = tokio::task::spawn_blocking(move || pairing::readers(&for_readers.0, &for_readers.1));
    let mut asked = tokio::select! {
        asked = provisioning => {
            asked.map_err(SuiteError::Provisioning)??
        }
        signal = run::cancelled(&mut cancel) => return Ok(before_the_first_run(signal)),
    };
    let looking = {
        let (args, plans, asked, program) = (args.clone(), plans.clone(), asked.clone(), program.clone());
        tokio::task::spawn_blocking(move || Machine::look(&args, &plans, &asked, &program))
    };
    let machine = tokio::select! {
        machine = looking => machine.map_err(SuiteError::Provisioning)??,
        signal = run::cancelled(&mut cancel) => return Ok(before_the_first_run(signal)),
    };
    pairing::add_claims(&mut asked, &config.project.claims, jobs)?;
    let mut pairs = pairing::pairs(&plans, &asked, &machine);
    if args.last_failed {
        keep_last_failed(&mut pairs, &root)?;
    }
    let starters = machine.starters_for(&pairs);
    tokio::select! {
        prepared = prepare(&starters) => prepared?,
        signal = run::cancelled(&mut cancel) => return Ok(before_the_first_run(signal)),
    }
    let away: Vec<RunReport> = asked.iter().filter_map(Asked::skipped).collect();
    if pairs.is_empty() && away.is_empty() {
        return Err(SuiteError::Usage(pairing::nothing_to_run(&plans, &asked)));
    }
    let known = by_reader(&pairs, |reader| config.known_failing(reader))?;
    let expected = by_reader(&pairs, |reader| config.expected(args.expected.as_deref(), reader))?;
    let runs = asked_runs(&pairs, args.repeat, &known, &expected, &config.project.limits)?;
    let header = Header::new(&started_at, pairing::deciding_words(&args), runs);
    let resumed = match &args.resume {
        Some(folder) => {
            let folder = Some(folder.as_path()).filter(|folder| *folder != Path::new("newest"));
            Journal::resume(&root, folder, &header).map_err(SuiteError::Resume)?
        }
        None => None,
    };
    let total = pairs.len() * args.repeat as usize;
    let (out, journal, started_at, before) = match resumed {
        Some(Resumed {
            journal,
            folder,
            started_at,
            done,
        }) => {
            say::note(&format!(
                "{} is taken up: {} of {total} runs are done",
                folder.display(),
                done.len()
            ));
            (Out::reopen(&folder)?, journal, started_at, done)
        }
        None => {
            if args.resume.is_some() {
                say::note("no invocation with these arguments is unfinished: this one begins anew");
            }
            // Only now, so that a word mistyped twenty times does not push twenty reports out.
            let stamp: String = started_at.chars().filter(|c| !matches!(c, '-' | ':')).collect();
            let out = Out::create(&root, &stamp)?;
            let journal = Journal::begin(&out.folder, &header).map_err(SuiteError::Journal)?;
            (out, journal, started_at, BTreeMap::new())
        }
    };
    let earlier = before.len();
    let carried_out_before = carried_out(before.values());
    let suite = Arc::new(Suite {
        progress: Progress::new(total),
        args,
        clusters: Clusters::new(program, out.folder.clone(), starters),
        link: machine.link_source(),
        out,
        known,
        expected,
        done: AtomicUsize::new(earlier),
        journal,
        limits: config.project.limits,
        cancel,
    });
    if suite.args.cluster() == ClusterArg::Auto {
        suite.progress.say(&chosen(&pairs));
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "the pace is told to a person; nothing is judged by this clock"
    )]
    let began = std::time::Instant::now();
    let mut runs = carry_out(&suite, pairs, jobs, before).await;
    let ran = runs.len().saturating_sub(earlier);
    let pace = pace(&runs, carried_out_before, began.elapsed(), jobs);
    runs.extend(away);
    let stale = if full_catalogue {
        stale(&suite.known)
    } else {
        Vec::new()
    };
    let report = Report::new(
        env!("CARGO_PKG_VERSION"),
        started_at,
        super::command_line(),
        runs,
        stale,
    );
    suite.clusters.shutdown().await;
    spawner.shut_down().await;
    write(&suite, &report)?;
    if ran + earlier < total {
        say::note(&format!(
            "{} of {total} runs are not done; the same command with --resume goes on",
            total - ran - earlier
        ));
    }
    say::out_tame(&pace);
    if suite.cancel.borrow().is_some() && report.exit_code() == ExitCode::AsExpected {
        // What was not run was not judged.
        return Ok(ExitCode::NothingJudged);
    }
    Ok(report.exit_code())
}

/// Makes what starts brokers ready: the kit is prepared, and what killed harnesses left on the engine is removed.
async fn prepare(starters: &Starters) -> Result<(), SuiteError> {
    if let Some(kit) = &starters.kit {
        kit.prepare(&|line| say::note(line)).await.map_err(SuiteError::Kit)?;
    }
    if let Some(engine) = &starters.engine {
        let swept = engine.sweep().await.map_err(SuiteError::Engine)?;
        if swept != Swept::default() {
            say::note(&format!(
                "removed what killed runs had left: {} container(s), {} network(s)",
                swept.containers, swept.networks
            ));
        }
    }
    Ok(())
}

fn before_the_first_run(signal: &str) -> ExitCode {
    say::note(&format!("{signal} came before the first run: nothing was judged"));
    ExitCode::NothingJudged
}

/// This binary: the mock cluster and the bundled readers are hidden subcommands of it.
fn own_program() -> Result<PathBuf, SuiteError> {
    std::env::current_exe().map_err(|source| SuiteError::Io {
        what: "find this binary",
        source,
    })
}

/// What a file of each reader's name holds.
fn by_reader<T>(
    pairs: &[Pair],
    file: impl Fn(&str) -> Result<T, SuiteError>,
) -> Result<BTreeMap<String, T>, SuiteError> {
    let names: BTreeSet<&String> = pairs.iter().map(|pair| &pair.launch.info.name).collect();
    names.into_iter().map(|name| Ok((name.clone(), file(name)?))).collect()
}

/// Which clusters `--cluster auto` has taken, and why.
fn chosen(pairs: &[Pair]) -> String {
    let on = |cluster| {
        pairs
            .iter()
            .filter(|pair| pair.cluster == cluster && pair.skip.is_none())
            .count()
    };
    match (on(ClusterKind::Mock), on(ClusterKind::Process)) {
        (_, 0) => "cluster mock (--cluster auto): the fastest that there is".to_owned(),
        (mock, process) => format!(
            "cluster mock for {mock} runs, the fastest that there is; process for {process} that it cannot serve (--cluster auto)"
        ),
    }
}

/// How long the runs of this sitting took together, and how many an hour that makes.
fn pace(runs: &[RunReport], before: usize, took: Duration, jobs: usize) -> String {
    let carried_out = carried_out(runs).saturating_sub(before);
    let seconds = took.as_secs_f64();
    let hourly = carried_out as f64 * 3600.0 / seconds.max(0.001);
    let before = match before {
        0 => String::new(),
        n => format!(", after {n} in earlier sittings"),
    };
    format!(
        "pace: {carried_out} runs in {seconds:.1} s, {hourly:.0} an hour, {:.0} for each of {jobs} jobs{before}",
        hourly / jobs as f64
    )
}

/// What was skipped took no time and does not count.
fn carried_out<'a>(runs: impl IntoIterator<Item = &'a RunReport>) -> usize {
    let is_carried_out = |run: &&RunReport| run.verdict != Verdict::Skipped;
    runs.into_iter().filter(is_carried_out).count()
}

/// Entries of known failures whose scenario exists nowhere.
fn stale(known: &BTreeMap<String, KnownFailing>) -> Vec<StaleEntry> {
    let ids: Vec<String> = match catalogue::plans() {
        Ok(plans) => plans.into_iter().map(|plan| plan.id).collect(),
        Err(_) => return Vec::new(),
    };
    known
        .values()
        .flat_map(|known| known.stale(&ids))
        .map(|entry| StaleEntry {
            entry: format!("{} ({})", entry.scenario, entry.place),
            text: "no scenario of the catalogue has such an id".into(),
        })
        .collect()
}

/// Every run of the invocation, with a print that changes with what it is judged by.
fn asked_runs(
    pairs: &[Pair],
    repeat: u32,
    known: &BTreeMap<String, KnownFailing>,
    expected: &BTreeMap<String, Expected>,
    limits: &ManifestLimits,
) -> Result<Vec<AskedRun>, SuiteError> {
    let mut once = Vec::new();
    for Pair {
        plan,
        launch,
        cluster,
        skip,
    } in pairs
    {
        let io = |what| move |source| SuiteError::Io { what, source };
        let toml = plan
            .to_toml()
            .map_err(std::io::Error::other)
            .map_err(io("write the plan"))?;
        let lock = match &launch.lock {
            Some(lock) => std::fs::read(lock).map_err(io("read the lock of a reader"))?,
            None => Vec::new(),
        };
        let mut print = Fnv::default();
        print.part(toml.as_bytes());
        print.part(&lock);
        print.part(format!("{:?} {:?} {:?}", launch.info, launch.command, launch.manifest).as_bytes());
        print.part(
            format!(
                "{:?} {:?}",
                known.get(&launch.info.name),
                expected.get(&launch.info.name)
            )
            .as_bytes(),
        );
        print.part(format!("{cluster:?} {skip:?} {limits:?}").as_bytes());
        once.push(AskedRun {
            name: format!("{} with {}", plan.id, pairing::label(&launch.info)),
            print: print.hex(),
        });
    }
    let all = once.iter().cycle().take(once.len() * repeat as usize);
    Ok(all.cloned().collect())
}

/// Carries every pair out, `jobs` at a time, and returns the reports in the order of the pairs. Runs of `before` are not
/// repeated.
async fn carry_out(
    suite: &Arc<Suite>,
    pairs: Vec<Pair>,
    jobs: usize,
    mut before: BTreeMap<usize, RunReport>,
) -> Vec<RunReport> {
    let permits = Arc::new(Semaphore::new(jobs));
    let mut tasks = Vec::new();
    for round in 0..suite.args.repeat {
        for pair in &pairs {
            let (suite, permits, pair) = (suite.clone(), permits.clone(), pair.clone());
            let index = tasks.len() + 1;
            let broken = pair.clone();
            let remembered = before.remove(&index);
            let task = tokio::spawn(async move {
                if remembered.is_some() {
                    return remembered;
                }
                // What a reader uses is measured against a limit only where nothing of ours competes with it.
                let measured = pair.plan.expect.named.iter().any(|named| named == "bounded_cpu");
                let alone = measured && pair.skip.is_none();
                let wanted = if alone { jobs } else { 1 };
                // OK to ignore: the semaphore is never closed. Permits are handed out in turn, so nobody starves.
                let _permits = permits.acquire_many_owned(u32::try_from(wanted).unwrap_or(1)).await;
                if suite.cancel.borrow().is_some() {
                    return None;
                }
                let report = one(&suite, pair, index, round, wanted == jobs).await;
                // A run that a signal has cut is carried out again.
                if suite.cancel.borrow().is_none()
                    && let Err(cause) = suite.journal.remember(index, &report)
                {
                    let text = format!("error: a finished run cannot be remembered ({cause}); --resume will repeat it");
                    suite.progress.say(&text);
                }
                Some(report)
            });
            tasks.push((broken, task));
        }
    }
    let mut reports = Vec::new();
    for (pair, task) in tasks {
        match task.await {
            Ok(Some(report)) => reports.push(report),
            Ok(None) => {}
            Err(panicked) => reports.push(error(
                &pair,
                FailureOf::Harness,
                format!("a run of the harness panicked: {panicked}"),
            )),
        }
    }
    reports
}

/// One run, from order to report.
async fn one(suite: &Suite, pair: Pair, index: usize, round: u32, exclusive: bool) -> RunReport {
    match attempt(suite, pair.clone(), index, round, exclusive).await {
        Ok(report) => report,
        // The history could not be written or read: the folder is full, or gone.
        Err(cause) => {
            let text = format!(
                "the run's files below {} cannot be written or read: {cause} (make room, or choose another folder with --out)",
                suite.out.folder.display()
            );
            suite.progress.say(&format!("error: {}: {text}", pair.plan.id));
            error(&pair, FailureOf::Environment, text)
        }
    }
}

/// The report of a run that has no history to tell of it.
fn error(pair: &Pair, of: FailureOf, text: String) -> RunReport {
    let plan = &pair.plan;
    RunReport::error(&plan.id, &plan.title, plan.phase, &pair.launch.info, of, text)
}

async fn attempt(suite: &Suite, pair: Pair, index: usize, round: u32, exclusive: bool) -> std::io::Result<RunReport> {
    let label = pairing::label(&pair.launch.info);
    let seed = suite.args.seed.wrapping_add(u64::from(round));
    let order = Order {
        folder: suite.out.folder.join(run_folder(index, &pair.plan.id, &label)),
        cluster: pair.cluster,
        clusters: suite.clusters.clone(),
        link: suite.link.clone(),
        expected: suite
            .expected
            .get(&pair.launch.info.name)
            .and_then(|expected| expected.of(&pair.plan.id, &pair.launch.info.version)),
        exclusive,
        limits: suite.limits.clone(),
        seed,
        reproduce: pairing::reproduce(&suite.args, &pair, seed),
        keep_up: suite.args.keep_up,
        plan: pair.plan,
        launch: pair.launch,
    };
    let (folder, history, scenario) = (order.folder.clone(), order.history(), order.plan.id.clone());
    // What a run left that was cut.
    match std::fs::remove_dir_all(&folder) {
        Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => return Err(cause),
        _ => {}
    }
    let recorder = run::recorder(&order)?;
    let plan = order.plan.to_toml().map_err(std::io::Error::other)?;
    std::fs::write(folder.join("plan.toml"), plan)?;
    if let Some(lock) = &order.launch.lock {
        std::fs::copy(lock, folder.join("lock.txt"))?;
    }
    let line = suite.progress.start(&scenario, &label, &recorder);
    let judgement = match pair.skip {
        Some((reason, enable)) => run::skip(&order, &recorder, reason, enable)?,
        None => run::run(order, recorder, suite.cancel.clone()).await?,
    };
    let mut report = verdict::report_judged(&history, &judgement).map_err(std::io::Error::other)?;
    let seconds = report.timings.total_ms / 1e3;
    if let Some(known) = suite.known.get(&report.reader.name) {
        note_known(&mut report, known);
    }
    let done = suite.done.fetch_add(1, Ordering::Relaxed) + 1;
    suite
        .progress
        .end(line, done, &scenario, &label, report.verdict, seconds);
    if suite.args.keep == KeepArg::Failed && matches!(report.verdict, Verdict::Passed | Verdict::Skipped) {
        std::fs::remove_dir_all(&folder)?;
    } else {
        report.artifacts = Some(relative(&folder, &suite.out.folder));
    }
    Ok(report)
}

/// Compares a judged run with what is known of its reader.
fn note_known(report: &mut RunReport, known: &KnownFailing) {
    if !matches!(report.verdict, Verdict::Failed | Verdict::Passed) {
        return;
    }
    let mut violated: Vec<String> = report
        .violations
        .iter()
        .map(|violation| violation.invariant.clone())
        .collect();
    violated.dedup();
    // A start call that raised ended the reader as well, and is told as an answer.
    let fatal = report.exceptions.iter().any(|seen| seen.fatal);
    let terminal = report.failure_kind == Some(FailureKind::Terminal);
    let ended = |seen: &&ExceptionReport| seen.fatal || !fatal && terminal && seen.origin == Origin::Reader;
    let exceptions: Vec<String> = report
        .exceptions
        .iter()
        .filter(ended)
        .flat_map(|seen| {
            seen.exception
                .preorder()
                .into_iter()
                .map(|one| one.type_name.clone())
                .collect::<Vec<_>>()
        })
        .collect();
    let run = known_failing::Run {
        scenario: &report.scenario,
        kind: report.reader.kind,
        version: &report.reader.version,
        violated: &violated,
        exceptions: &exceptions,
    };
    let (reason, met) = match known.judge(&run) {
        Match::NotListed => return,
        Match::Known(entry) => (entry.reason.clone(), true),
        Match::Passed(entry) => (entry.reason.clone(), false),
        Match::Differs(entry, text) => (format!("{} ({text})", entry.reason), false),
    };
    report.apply_known_failing(reason, met);
}

fn relative(folder: &Path, root: &Path) -> String {
    folder
        .strip_prefix(root)
        .unwrap_or(folder)
        .to_string_lossy()
        .into_owned()
}

/// Writes the reports and prints what a person reads.
fn write(suite: &Suite, report: &Report) -> Result<(), SuiteError> {
    // First what a person reads: it must not be lost where the files cannot be written.
    say::out(&render::text::render(report, super::text_options(suite.args.verbose)));
    let json = render::json::render(report).map_err(|source| SuiteError::Io {
        what: "write report.json",
        source: source.into(),
    })?;
    suite.out.write("report.json", &json)?;
    let junit = render::junit::render(report).map_err(|source| SuiteError::Io {
        what: "write junit.xml",
        source: std::io::Error::other(source),
    })?;
    suite.out.write("junit.xml", &junit)?;
    suite.out.write("report.md", &render::markdown::render(report))?;
    say::out_tame(&format!("reports: {}", suite.out.folder.display()));
    Ok(())
}

/// Keeps the pairs that did not end as expected in the invocation before.
fn keep_last_failed(pairs: &mut Vec<Pair>, root: &Path) -> Result<(), SuiteError> {
    let none =
        || SuiteError::Usage("--last-failed: no earlier report under the output folder (run without it first)".into());
    let path = Out::last_report(root).ok_or_else(none)?;
    let text = std::fs::read_to_string(&path).map_err(|source| SuiteError::Io {
        what: "read the last report",
        source,
    })?;
    let report = render::json::parse(&text).map_err(|source| SuiteError::Io {
        what: "read the last report",
        source: source.into(),
    })?;
    let failed: BTreeSet<(String, String, String)> = report
        .runs
        .iter()
        .filter(|run| is_failed(run))
        .map(|run| {
            (
                run.scenario.clone(),
                run.reader.name.clone(),
                run.reader.version.clone(),
            )
        })
        .collect();
    pairs.retain(|pair| {
        let info = &pair.launch.info;
        failed.contains(&(pair.plan.id.clone(), info.name.clone(), info.version.clone()))
    });
    if pairs.is_empty() {
        let again = report.runs.iter().find(|run| is_failed(run)).map(|run| &run.reproduce);
        return Err(SuiteError::Usage(match again {
            None => format!("--last-failed: every run of {} ended as expected", path.display()),
            Some(again) => format!(
                "--last-failed: none of the {} failed run(s) of {} is in this selection (name their scenarios and readers \
                 again; the first is `{again}`)",
                failed.len(),
                path.display()
            ),
        }));
    }
    Ok(())
}

/// Whether a run did not end as expected.
fn is_failed(run: &RunReport) -> bool {
    match run.verdict {
        // Against an entry of the known failures.
        Verdict::Passed => run.known_failing.is_some(),
        Verdict::KnownFailing | Verdict::Skipped => false,
        Verdict::Failed | Verdict::Void | Verdict::Error => true,
    }
}
