//! Arguments of the command line.

use std::path::PathBuf;

use brokerfall_report::protocol::Kind;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::cluster::ClusterKind;
use crate::cluster::container::IMAGE_VARIABLE;
use crate::link::LinkKind;

/// Fault-injection chaos test harness for Kafka readers.
#[derive(Debug, Parser)]
#[command(
    name = "brokerfall",
    version,
    about = "Does this Kafka reader come back, and if not, what killed it?",
    after_help = "Exit codes: 0 all as expected; 1 a bug in the harness; 2 bad arguments or scenario; 3 the environment \
                  failed; 10 a violation; 11 a void run; 12 a known failure passed; 13 nothing was judged. \
                  `brokerfall explain NAME` explains every fault, invariant, verdict and exit code."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run scenarios against readers, judge them, and write reports.
    Run(Box<RunArgs>),
    /// List the scenarios.
    List(ListArgs),
    /// Check scenario files or folders without running them.
    Check(CheckArgs),
    /// List the readers that can be put under test.
    Readers(ReadersArgs),
    /// Judge a stored history again.
    Judge(JudgeArgs),
    /// Accept the exceptions of a stored run: what it showed is expected from then on.
    Accept(AcceptArgs),
    /// Explain a fault, an invariant, a verdict, an exit code, an exception of ours or a word; without one, list them.
    Explain(ExplainArgs),
    /// Say what this machine can run, and what would enable the rest.
    Doctor(DoctorArgs),
    /// Write a file to begin with: a scenario, or an adapter.
    #[command(subcommand)]
    Init(InitCommand),
    /// List what readers, clusters and links keep in the cache, or prune it
    Cache(CacheArgs),
    /// Tools for adapter authors.
    #[command(subcommand)]
    Adapter(AdapterCommand),
    /// A bundled reader, speaking the adapter protocol on stdin and stdout.
    #[command(hide = true)]
    Reader {
        /// Its name.
        name: String,
    },
    /// The embedded cluster, commanded on stdin.
    #[command(hide = true)]
    MockCluster {
        /// What its parent tells it.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Kills recorded process groups when its stdin ends.
    #[command(hide = true)]
    Watchdog,
}

/// Where the settings of a repository stand.
#[derive(Debug, Clone, Args)]
pub(crate) struct SettingsArgs {
    /// Settings file; default the nearest brokerfall.toml from the working folder upward. Options come before it.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct AcceptArgs {
    /// The folder of a run, or its history.jsonl.
    pub(crate) run: PathBuf,
    /// Folder of the files of expected exceptions, one for each reader.
    ///
    /// Default scenarios/expected.
    #[arg(long, value_name = "DIR")]
    pub(crate) expected: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct RunArgs {
    /// Scenario id, id prefix (a folder), or a path that ends in .toml; none means every scenario of tag `quick`.
    pub(crate) scenarios: Vec<String>,
    /// Only scenarios with this tag.
    #[arg(long, value_name = "TAG")]
    pub(crate) tag: Option<String>,
    /// Reader: NAME, NAME@VERSION, NAME@path:DIR, NAME@git:CLONE#REF, or `bundled`; may be repeated.
    #[arg(long = "reader", value_name = "READER")]
    pub(crate) readers: Vec<String>,
    /// Put any program that speaks the adapter protocol under test; needs --kind.
    #[arg(long, value_name = "CMD", requires = "kind", conflicts_with_all = ["readers", "with", "lock", "runtime"])]
    pub(crate) adapter: Option<String>,
    /// Kind of the reader behind --adapter.
    #[arg(long, value_name = "KIND", requires = "adapter")]
    pub(crate) kind: Option<KindArg>,
    /// Pin a package of the reader's environment, such as aiokafka==0.13.0; may be repeated.
    #[arg(long = "with", value_name = "PACKAGE==VERSION")]
    pub(crate) with: Vec<String>,
    /// Install exactly the packages of FILE, and no others: the lock.txt of an earlier run, or any requirements file of exact
    /// pins, with or without hashes. For one --reader that is provisioned; its version is the one that FILE pins.
    #[arg(long, value_name = "FILE", conflicts_with = "with", requires = "readers")]
    pub(crate) lock: Option<PathBuf>,
    /// Language runtime of the reader's environment, such as 3.12.
    #[arg(long, value_name = "VERSION")]
    pub(crate) runtime: Option<String>,
    /// A folder of further reader manifests; may be repeated.
    #[arg(long = "readers-dir", value_name = "DIR")]
    pub(crate) readers_dirs: Vec<PathBuf>,
    /// A folder of expected exceptions, DIR/<reader>.toml, before the bundled ones.
    #[arg(long, value_name = "DIR")]
    pub(crate) expected: Option<PathBuf>,
    /// Cluster to run on.
    ///
    /// Default auto: the embedded one where it can serve a scenario, else Apache Kafka where Java is here and its jars are in
    /// the cache.
    #[arg(long, value_enum)]
    pub(crate) cluster: Option<ClusterArg>,
    /// Apache Kafka's version where a run is on --cluster process (auto takes it too), such as 3.9.1; default 4.1.0, or what KAFKA_HOME holds. Resolved with
    /// Maven into the cache the first time.
    #[arg(long, value_name = "VERSION")]
    pub(crate) kafka: Option<String>,
    /// What stands between reader and brokers; default builtin.
    ///
    /// `toxiproxy` is a real Toxiproxy server, whose toxics then do the cuts: found on PATH, or built once with Go. What it
    /// cannot do is skipped by name. Only in a program that was built with the feature `toxiproxy`.
    #[arg(long, value_enum)]
    pub(crate) link: Option<LinkArg>,
    /// Image of the brokers on --cluster container, with the same entry as apache/kafka; default KAFKA_IMAGE, else
    /// apache/kafka:4.1.0. None is pulled.
    #[arg(long, value_name = "NAME")]
    pub(crate) image: Option<String>,
    /// Runs at a time; default twice the number of cores, because a run waits far more than it computes. A run whose [expect] names bounded_cpu runs alone.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) jobs: Option<u16>,
    /// Decides all that Brokerfall draws at random in a run: the jitter of the fault `partition` in mode `delay` (not
    /// with --link toxiproxy, which draws by itself), and the pauses of bundled readers between two tries. Every reader process gets a number that follows from it in its variable
    /// BROKERFALL_SEED, for adapters that draw as well. The same for every seed: records, keys, the order of steps, runs and
    /// writers. Beyond any seed: what a library, the cluster and the operating system do. Repeats count up from it; each
    /// report and its command to reproduce name the run's own.
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Run everything this often; see --resume for many.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) repeat: u32,
    /// Go on with an invocation that was cut (Ctrl-C, kill, reboot): the newest unfinished one below --out with the same
    /// arguments (`newest`), or FOLDER. Finished runs are not repeated, and the report covers all. Refused when scenarios, locks or
    /// expectations have changed. Where none is unfinished, it begins anew. To name no FOLDER, put it last.
    #[arg(long, value_name = "FOLDER", num_args = 0..=1, default_missing_value = "newest", conflicts_with = "last_failed")]
    pub(crate) resume: Option<PathBuf>,
    /// Print passed runs with the whole of their evidence and every limit.
    #[arg(long, short)]
    pub(crate) verbose: bool,
    /// Folder for reports and artifacts.
    ///
    /// Default .brokerfall.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
    /// `all` keeps the histories of passed runs too.
    #[arg(long, value_enum, default_value_t = KeepArg::Failed)]
    pub(crate) keep: KeepArg,
    /// Leave cluster and link running after a failure, with their addresses, until SIGINT or SIGTERM; needs --jobs 1.
    #[arg(long)]
    pub(crate) keep_up: bool,
    /// Only the runs that did not end as expected the last time.
    #[arg(long)]
    pub(crate) last_failed: bool,
}

impl RunArgs {
    /// The cluster to run on.
    pub(crate) fn cluster(&self) -> ClusterArg {
        self.cluster.unwrap_or(ClusterArg::Auto)
    }

    /// The image of the brokers, where they run in containers and one is named.
    pub(crate) fn image(&self) -> Option<String> {
        if self.cluster() != ClusterArg::Container {
            return None;
        }
        let named = || std::env::var(IMAGE_VARIABLE).ok().filter(|named| !named.is_empty());
        self.image.clone().or_else(named)
    }

    /// The link to run with.
    pub(crate) fn link(&self) -> LinkKind {
        match self.link {
            None | Some(LinkArg::Builtin) => LinkKind::Builtin,
            Some(LinkArg::Toxiproxy) => LinkKind::Toxiproxy,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Scenario ids or prefixes, paths of one's own included; none means all.
    pub(crate) scenarios: Vec<String>,
    /// As JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Scenario files or folders; none means those of brokerfall.toml, and without one the bundled ones.
    pub(crate) paths: Vec<PathBuf>,
    /// Print the format as a JSON schema, for editors, and check nothing.
    #[arg(long, conflicts_with = "paths")]
    pub(crate) schema: bool,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ReadersArgs {
    /// A folder of further reader manifests; may be repeated.
    #[arg(long = "readers-dir", value_name = "DIR")]
    pub(crate) readers_dirs: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
}

#[derive(Debug, Args)]
pub(crate) struct JudgeArgs {
    /// A history.jsonl, or the folder of a run.
    pub(crate) history: PathBuf,
    /// As JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// What to explain; none lists the names.
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
    /// Also measure how long cluster and link take to be ready.
    #[arg(long)]
    pub(crate) timing: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AdapterCommand {
    /// Drive an adapter through its paces on the embedded cluster and say what it does wrong.
    Check(AdapterCheckArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AdapterCheckArgs {
    /// Kind to ask it for.
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: KindArg,
    /// Folder for artifacts.
    ///
    /// Default .brokerfall.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
    /// The adapter's command line, after `--`.
    #[arg(required = true, last = true, value_name = "CMD")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KindArg {
    /// A materialised view.
    Table,
    /// A consumer-group member.
    Group,
    /// Partitions assigned by hand.
    Assign,
}

impl From<KindArg> for Kind {
    fn from(kind: KindArg) -> Self {
        match kind {
            KindArg::Table => Kind::Table,
            KindArg::Group => Kind::Group,
            KindArg::Assign => Kind::Assign,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClusterArg {
    /// The fastest that scenario, reader and machine allow.
    Auto,
    /// The embedded cluster.
    Mock,
    /// Apache Kafka as JVM processes; needs Java 17 or later, and Maven or KAFKA_HOME.
    Process,
    /// Apache Kafka in containers; needs a build with the feature `container`, a Docker engine, and the image on it.
    Container,
}

impl ClusterArg {
    /// As the command line has it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            ClusterArg::Auto => "auto",
            ClusterArg::Mock => ClusterKind::Mock.name(),
            ClusterArg::Process => ClusterKind::Process.name(),
            ClusterArg::Container => ClusterKind::Container.name(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LinkArg {
    /// The Kafka-aware proxy alone; it can do every fault.
    Builtin,
    /// A Toxiproxy server in front of it does the cuts.
    Toxiproxy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KeepArg {
    /// Keep the histories of runs that did not pass.
    Failed,
    /// Keep every history.
    All,
}

#[derive(Debug, Subcommand)]
pub(crate) enum InitCommand {
    /// Write a commented scenario that passes `check` and runs.
    Scenario(InitScenarioArgs),
    /// Write an adapter that runs, and its SDK beside it.
    Adapter(InitAdapterArgs),
}

#[derive(Debug, Args)]
pub(crate) struct InitScenarioArgs {
    /// Its path; `.toml` is added where it is missing.
    pub(crate) name: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct InitAdapterArgs {
    /// Language of the library.
    pub(crate) language: Language,
    /// For a library that blocks, instead of one for asyncio.
    #[arg(long)]
    pub(crate) threads: bool,
    /// Folder to write to.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) dir: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Language {
    /// Python 3.10 or later.
    Python,
}

#[derive(Debug, Args)]
pub(crate) struct CacheArgs {
    #[command(subcommand)]
    pub(crate) command: Option<CacheCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// Remove what was built over 30 days ago. What is in use stays.
    Prune {
        /// Remove everything.
        #[arg(long, conflicts_with = "older_than")]
        all: bool,
        /// Remove what was built longer ago than this, such as 12h or 7d.
        #[arg(long, value_name = "AGE")]
        older_than: Option<humantime::Duration>,
    },
}
