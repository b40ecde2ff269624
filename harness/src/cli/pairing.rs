//! Which scenarios meet which readers.

use std::path::Path;

use brokerfall_report::history::{Declares, Phase, ReaderInfo};
use brokerfall_report::protocol::Kind;
use brokerfall_report::report::{RunReport, SkipReport};

use super::args::{ClusterArg, RunArgs};
use super::error::SuiteError;
use super::say;
use crate::cluster::ClusterKind;
use crate::cluster::clusters::Starters;
use crate::cluster::container::{Engine, EngineError};
use crate::cluster::process::{KAFKA, Kit, KitError, KitOptions};
use crate::link::{LinkKind, LinkSource};
use crate::reader::Launch;
use crate::reader::catalogue::{ReaderError, Readers};
use crate::reader::claims::{Claim, PORT_VARIABLE};
use crate::reader::provision::ProvisionOptions;
use crate::scenario::catalogue;
use crate::scenario::plan::Plan;

/// The suite of readers that runs without `--reader`.
const BUNDLED: &str = "bundled";

/// A plan and the reader that it is carried out on.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    pub(crate) plan: Plan,
    pub(crate) launch: Launch,
    pub(crate) cluster: ClusterKind,
    /// Reason and remedy, when the pair cannot be carried out here.
    pub(crate) skip: Option<(String, String)>,
}

/// A reader that was asked for: what starts it, or why it is not to be had here.
#[derive(Debug, Clone)]
pub(crate) enum Asked {
    /// It can be started.
    Here(Box<Launch>),
    /// A named skip.
    Away {
        /// The word of the command line.
        spec: String,
        /// Why, and what would enable it.
        reason: String,
    },
}

/// The plans that the arguments name.
pub(crate) fn plans(args: &RunArgs) -> Result<Vec<Plan>, SuiteError> {
    Ok(catalogue::select(&args.scenarios, args.tag.as_deref())?)
}

/// Has every reader of a user's own asked for the claims of brokerfall.toml. The bundled ones have no endpoint.
///
/// # Errors
/// [`SuiteError::Usage`] for a claim at one place that several runs at a time would share.
pub(crate) fn add_claims(asked: &mut [Asked], claims: &[Claim], jobs: usize) -> Result<(), SuiteError> {
    for asked in asked {
        let Asked::Here(launch) = asked else { continue };
        if launch.info.source != BUNDLED {
            launch.manifest.claims.extend(claims.iter().cloned());
        }
        let shared = launch.manifest.claims.iter().find(|claim| claim.is_shared());
        if let (Some(claim), 2..) = (shared, jobs) {
            return Err(SuiteError::Usage(format!(
                "the claim `{}` is asked at one port, which {jobs} runs at a time would share (write {{port}} there and have \
                 the reader listen on the port of its variable {PORT_VARIABLE}, or take --jobs 1)",
                claim.name
            )));
        }
    }
    Ok(())
}

/// The readers that the arguments name, provisioned.
pub(crate) fn readers(args: &RunArgs, program: &Path) -> Result<Vec<Asked>, SuiteError> {
    if let (Some(command), Some(kind)) = (&args.adapter, args.kind) {
        let launch = Launch::adapter(command, kind.into()).map_err(SuiteError::Reader)?;
        return Ok(vec![Asked::Here(Box::new(launch))]);
    }
    if args.lock.is_some() && args.readers.len() != 1 {
        return Err(SuiteError::Usage(format!(
            "--lock holds the packages of one environment, and {} readers are asked for (wanted one --reader)",
            args.readers.len()
        )));
    }
    let readers = Readers::load(&args.readers_dirs).map_err(SuiteError::Reader)?;
    let progress = |line: &str| say::note(line);
    let options = ProvisionOptions {
        with: args.with.clone(),
        lock: args.lock.clone(),
        runtime: args.runtime.clone(),
        program: Some(program.to_owned()),
        progress: &progress,
        ..ProvisionOptions::default()
    };
    let specs = if args.readers.is_empty() {
        vec![BUNDLED.to_owned()]
    } else {
        args.readers.clone()
    };
    let mut asked = Vec::new();
    for spec in specs {
        match readers.resolve(&spec, &options) {
            Ok(launches) => asked.extend(launches.into_iter().map(|launch| Asked::Here(Box::new(launch)))),
            Err(cause @ ReaderError::NoRuntime { .. }) => {
                asked.push(Asked::Away {
                    spec,
                    reason: crate::chain(&cause),
                });
            }
            Err(
                cause @ (ReaderError::Unknown { .. }
                | ReaderError::Spec { .. }
                | ReaderError::Lock { .. }
                | ReaderError::Manifest(_)),
            ) => return Err(SuiteError::Reader(cause)),
            Err(cause) => return Err(SuiteError::Provision(cause)),
        }
    }
    Ok(asked)
}

/// Every plan with every reader that it suits, reader by reader. A plan does not suit a reader of another kind, nor one
/// whose manifest names other scenarios; what cluster or reader lack is a named skip.
pub(crate) fn pairs(plans: &[Plan], asked: &[Asked], machine: &Machine) -> Vec<Pair> {
    suited(plans, asked)
        .map(|(plan, launch)| pair(plan, launch, machine))
        .collect()
}

fn suited<'a>(plans: &'a [Plan], asked: &'a [Asked]) -> impl Iterator<Item = (&'a Plan, &'a Launch)> {
    let suits =
        |plan: &Plan, launch: &Launch| plan.kinds().contains(&launch.info.kind) && launch.manifest.runs(&plan.id);
    here(asked).flat_map(move |launch| {
        let suited = plans.iter().filter(move |plan| suits(plan, launch));
        suited.map(move |plan| (plan, launch))
    })
}

fn here(asked: &[Asked]) -> impl Iterator<Item = &Launch> {
    asked.iter().filter_map(|asked| match asked {
        Asked::Here(launch) => Some(&**launch),
        Asked::Away { .. } => None,
    })
}

impl Asked {
    /// The report of a reader that is not to be had here.
    pub(crate) fn skipped(&self) -> Option<RunReport> {
        let Asked::Away { spec, reason } = self else {
            return None;
        };
        let (name, version) = spec.split_once('@').unwrap_or((spec, ""));
        let info = ReaderInfo {
            name: name.to_owned(),
            version: version.to_owned(),
            source: String::new(),
            kind: Kind::Table,
            lock: None,
            declares: Declares::default(),
        };
        let skip = SkipReport {
            reason: reason.clone(),
            enable: "install that runtime, or name another with --runtime".into(),
        };
        Some(RunReport::skipped("every scenario", "", Phase::Start, &info, skip))
    }
}

fn pair(plan: &Plan, launch: &Launch, machine: &Machine) -> Pair {
    let by_reader = || {
        plan.needs()
            .iter()
            .filter_map(|need| need.capability())
            .find(|name| launch.manifest.can(name) == Some(false))
            .map(|name| {
                (
                    format!("{} cannot do `{name}`, which the scenario needs", label(&launch.info)),
                    "an adapter with that capability".to_owned(),
                )
            })
    };
    let (cluster, by_cluster) = machine.cluster_for(plan, launch);
    Pair {
        plan: plan.clone(),
        launch: launch.clone(),
        cluster,
        skip: by_cluster.or_else(|| machine.link_lacks(plan)).or_else(by_reader),
    }
}

/// The clusters that the arguments allow, and what this machine has for them.
pub(crate) struct Machine {
    cluster: ClusterArg,
    /// What starts Kafka's brokers, or why nothing does.
    kit: Result<Kit, KitError>,
    /// The link that is asked for.
    link: LinkKind,
    /// What it is started from, or what this machine lacks for it.
    link_source: Result<LinkSource, Lack>,
    /// What runs them in containers, or why nothing does; absent where nobody asked.
    engine: Option<Result<Engine, EngineError>>,
}

/// Why a machine lacks something, and what would enable it.
type Lack = (String, String);

impl Machine {
    /// Looks for Java and Kafka, where any of these pairs may need them, and for a container engine where it was asked for.
    /// Blocks while Maven resolves, which only `--cluster process` lets it do: `auto` uses what is there. On a thread of a
    /// runtime that may block.
    ///
    /// # Errors
    /// [`KitError`] and [`EngineError`] where their cluster was asked for and something failed, as [`SuiteError`] says it; the
    /// same of `--link toxiproxy`. What is missing is a named skip.
    pub(crate) fn look(args: &RunArgs, plans: &[Plan], asked: &[Asked], program: &Path) -> Result<Machine, SuiteError> {
        let not_on_mock = |(plan, launch): (&Plan, &Launch)| unserved(plan, launch, ClusterKind::Mock).is_some();
        let may_need = match args.cluster() {
            ClusterArg::Mock | ClusterArg::Container => false,
            ClusterArg::Process => true,
            ClusterArg::Auto => suited(plans, asked).any(not_on_mock),
        };
        let kit = if may_need {
            let cache = ProvisionOptions::default().cache_dir().map_err(SuiteError::Provision)?;
            let options = KitOptions {
                kafka: args.kafka.as_deref(),
                cache: &cache,
                may_download: args.cluster() == ClusterArg::Process,
                progress: &|line| say::note(line),
            };
            Kit::find(&options, program)
        } else {
            Err(KitError::NotCached {
                version: KAFKA.to_owned(),
            })
        };
        let engine = (args.cluster() == ClusterArg::Container)
            .then(|| tokio::runtime::Handle::current().block_on(Engine::find(args.image().as_deref())));
        let engine = match engine {
            Some(Err(cause)) if !cause.is_missing() => return Err(SuiteError::Engine(cause)),
            engine => engine,
        };
        match kit {
            Err(cause) if args.cluster() == ClusterArg::Process && !cause.is_missing() => Err(SuiteError::Kit(cause)),
            kit => Ok(Machine {
                cluster: args.cluster(),
                kit,
                engine,
                link: args.link(),
                link_source: link_source(args.link())?,
            }),
        }
    }

    /// What starts Kafka's brokers, where one of these pairs runs on them.
    pub(crate) fn starters_for(&self, pairs: &[Pair]) -> Starters {
        let used = |cluster| pairs.iter().any(|pair| pair.cluster == cluster && pair.skip.is_none());
        let kit = self.kit.as_ref().ok().filter(|_| used(ClusterKind::Process));
        let engine = self.engine.as_ref().and_then(|engine| engine.as_ref().ok());
        Starters {
            kit: kit.cloned(),
            engine: engine.filter(|_| used(ClusterKind::Container)).cloned(),
        }
    }

    /// What the links of runs are started from; the builtin one where every run is skipped for want of the other.
    pub(crate) fn link_source(&self) -> LinkSource {
        self.link_source.clone().unwrap_or_default()
    }

    /// What the link lacks for a plan, or this machine for the link.
    fn link_lacks(&self, plan: &Plan) -> Option<Lack> {
        let unmet = plan.unmet_by_link(self.link).into_iter().next();
        let unmet = unmet.map(|unmet| (unmet.reason, unmet.enable));
        unmet.or_else(|| self.link_source.as_ref().err().cloned())
    }

    /// The cluster for a pair: the fastest that can serve it, or the first with the reason why none can.
    fn cluster_for(&self, plan: &Plan, launch: &Launch) -> (ClusterKind, Option<(String, String)>) {
        let allowed: &[ClusterKind] = match self.cluster {
            ClusterArg::Auto => &[ClusterKind::Mock, ClusterKind::Process],
            ClusterArg::Mock => &[ClusterKind::Mock],
            ClusterArg::Process => &[ClusterKind::Process],
            ClusterArg::Container => &[ClusterKind::Container],
        };
        let mut first = None;
        for &cluster in allowed {
            match unserved(plan, launch, cluster).or_else(|| self.lacks(cluster)) {
                None => return (cluster, None),
                Some(lack) => {
                    first.get_or_insert((cluster, Some(lack)));
                }
            }
        }
        first.unwrap_or((ClusterKind::Mock, None))
    }

    fn lacks(&self, cluster: ClusterKind) -> Option<(String, String)> {
        let (cause, enable): (&dyn std::error::Error, _) = match cluster {
            ClusterKind::Mock => return None,
            ClusterKind::Process => (
                self.kit.as_ref().err()?,
                "Java 17 or later, and Maven or KAFKA_HOME (see `brokerfall doctor`)",
            ),
            ClusterKind::Container => (
                self.engine.as_ref()?.as_ref().err()?,
                "a build with `--features container`, a Docker engine, and the image on it (see `brokerfall doctor`)",
            ),
        };
        Some((crate::chain(cause), enable.to_owned()))
    }
}

/// What a link is started from. Blocks while Go builds Toxiproxy.
#[cfg(feature = "toxiproxy")]
fn link_source(link: LinkKind) -> Result<Result<LinkSource, Lack>, SuiteError> {
    use crate::link::toxiproxy::Program;
    if link == LinkKind::Builtin {
        return Ok(Ok(LinkSource::Builtin));
    }
    let cache = ProvisionOptions::default().cache_dir().map_err(SuiteError::Provision)?;
    match Program::find(&cache, true, &|line| say::note(line)) {
        Ok(program) => Ok(Ok(LinkSource::Toxiproxy(program))),
        Err(cause) if cause.is_missing() => Ok(Err((
            crate::chain(&cause),
            "Go, or toxiproxy-server on PATH (see `brokerfall doctor`)".to_owned(),
        ))),
        Err(cause) => Err(SuiteError::Toxiproxy(cause)),
    }
}

/// What a link is started from.
#[cfg(not(feature = "toxiproxy"))]
fn link_source(link: LinkKind) -> Result<Result<LinkSource, Lack>, SuiteError> {
    match link {
        LinkKind::Builtin => Ok(Ok(LinkSource::Builtin)),
        LinkKind::Toxiproxy => Ok(Err((
            "this program was built without the feature `toxiproxy`".to_owned(),
            "a build with `--features toxiproxy`".to_owned(),
        ))),
    }
}

/// Why a kind of cluster cannot serve a pair, and what would.
fn unserved(plan: &Plan, launch: &Launch, cluster: ClusterKind) -> Option<(String, String)> {
    let unmet = plan.unmet_by(cluster).into_iter().next();
    if let Some(unmet) = unmet {
        return Some((unmet.reason, unmet.enable));
    }
    (!launch.manifest.serves_on(cluster.name())).then(|| {
        (
            format!("{} does not run on the {} cluster", label(&launch.info), cluster.name()),
            format!("--cluster with one of {}", launch.manifest.clusters.join(", ")),
        )
    })
}

/// `NAME@VERSION`, and the kind where the reader can be built as several.
pub(crate) fn label(info: &ReaderInfo) -> String {
    if info.version.is_empty() || info.source == BUNDLED {
        info.name.clone()
    } else {
        format!("{}@{}", info.name, info.version)
    }
}

/// Why no pair came of it.
pub(crate) fn nothing_to_run(plans: &[Plan], asked: &[Asked]) -> String {
    let readers: Vec<String> = here(asked)
        .map(|launch| format!("{} ({})", label(&launch.info), launch.info.kind.name()))
        .collect();
    format!(
        "none of the {} scenario(s) suits any of the readers {} (see `brokerfall list` for the kinds that each scenario serves)",
        plans.len(),
        readers.join(", ")
    )
}

/// The command that carries out this pair alone, with the seed of its run.
pub(crate) fn reproduce(args: &RunArgs, pair: &Pair, seed: u64) -> String {
    let mut words = vec![
        "brokerfall".to_owned(),
        "run".to_owned(),
        scenario_word(args, &pair.plan.id),
    ];
    if let (Some(command), Some(_)) = (&args.adapter, args.kind) {
        words.extend([
            "--adapter".into(),
            command.clone(),
            "--kind".into(),
            pair.launch.info.kind.name().into(),
        ]);
    } else {
        words.extend(["--reader".into(), reader_word(args, &pair.launch.info)]);
    }
    for with in &args.with {
        words.extend(["--with".into(), with.clone()]);
    }
    if let Some(lock) = &args.lock {
        words.extend(["--lock".into(), lock.to_string_lossy().into_owned()]);
    }
    if let Some(runtime) = &args.runtime {
        words.extend(["--runtime".into(), runtime.clone()]);
    }
    for folder in &args.readers_dirs {
        words.extend(["--readers-dir".into(), folder.to_string_lossy().into_owned()]);
    }
    if let Some(folder) = &args.expected {
        words.extend(["--expected".into(), folder.to_string_lossy().into_owned()]);
    }
    if seed != 0 {
        words.extend(["--seed".into(), seed.to_string()]);
    }
    if args.link() != LinkKind::Builtin {
        words.extend(["--link".into(), args.link().name().into()]);
    }
    if pair.cluster != ClusterKind::Mock {
        words.extend(["--cluster".into(), pair.cluster.name().into()]);
    }
    match pair.cluster {
        ClusterKind::Mock => {}
        ClusterKind::Process => words.extend(args.kafka.iter().flat_map(|kafka| ["--kafka".into(), kafka.clone()])),
        ClusterKind::Container => words.extend(args.image().into_iter().flat_map(|image| ["--image".into(), image])),
    }
    words
        .iter()
        .map(|word| shlex::try_quote(word).map_or_else(|_| word.clone(), |quoted| quoted.into_owned()))
        .collect::<Vec<_>>()
        .join(" ")
}

/// The arguments that decide which runs an invocation has, in one order however they were typed.
pub(crate) fn deciding_words(args: &RunArgs) -> Vec<String> {
    let mut words = args.scenarios.clone();
    let mut option = |name: &str, value: &str| words.extend([name.to_owned(), value.to_owned()]);
    if let Some(tag) = &args.tag {
        option("--tag", tag);
    }
    for reader in &args.readers {
        option("--reader", reader);
    }
    if let (Some(command), Some(kind)) = (&args.adapter, args.kind) {
        option("--adapter", command);
        option("--kind", Kind::from(kind).name());
    }
    for with in &args.with {
        option("--with", with);
    }
    if let Some(lock) = &args.lock {
        option("--lock", &lock.to_string_lossy());
    }
    if let Some(runtime) = &args.runtime {
        option("--runtime", runtime);
    }
    for folder in &args.readers_dirs {
        option("--readers-dir", &folder.to_string_lossy());
    }
    if args.cluster() != ClusterArg::Auto {
        option("--cluster", args.cluster().word());
    }
    if let Some(kafka) = &args.kafka {
        option("--kafka", kafka);
    }
    if args.link() != LinkKind::Builtin {
        option("--link", args.link().name());
    }
    if let Some(image) = args.image() {
        option("--image", &image);
    }
    if args.seed != 0 {
        option("--seed", &args.seed.to_string());
    }
    if args.repeat != 1 {
        option("--repeat", &args.repeat.to_string());
    }
    words
}

/// A scenario of a user's own is named by its path, with the axes of the plan.
fn scenario_word(args: &RunArgs, id: &str) -> String {
    let base = id.split_once('[').map_or(id, |(base, _)| base);
    let path = args.scenarios.iter().find(|word| {
        word.ends_with(".toml")
            && (word.as_str() == base || word.strip_suffix(".toml").is_some_and(|stem| stem == base))
    });
    match path {
        Some(path) => path.clone(),
        None => id.to_owned(),
    }
}

/// The word that named this reader, where it says more than name and version do.
fn reader_word(args: &RunArgs, info: &ReaderInfo) -> String {
    let own = |spec: &&String| {
        let name = spec.split_once('@').map_or(spec.as_str(), |(name, _)| name);
        name == info.name && (spec.contains("@path:") || spec.contains("@git:"))
    };
    match args.readers.iter().find(own) {
        Some(spec) if info.source.starts_with("path:") || info.source.starts_with("git:") => spec.clone(),
        _ => label(info),
    }
}
