//! Arguments of the command line.

use std::path::PathBuf;

use brokerfall_report::protocol::Kind;
use clap::{Args, Parser, Subcommand, ValueEnum};

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
    /// Explain a fault, an invariant, a verdict, a failure kind, an exit code or a word of a report.
    Explain(ExplainArgs),
    /// Say what this machine can run, and what would enable the rest.
    Doctor(DoctorArgs),
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

#[derive(Debug, Clone, Args)]
pub(crate) struct AcceptArgs {
    /// The folder of a run, or its history.jsonl.
    pub(crate) run: PathBuf,
    /// Folder of the files of expected exceptions, one for each reader.
    #[arg(long, value_name = "DIR", default_value = "scenarios/expected")]
    pub(crate) expected: PathBuf,
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
    #[arg(long, value_name = "CMD", requires = "kind", conflicts_with_all = ["readers", "with", "runtime"])]
    pub(crate) adapter: Option<String>,
    /// Kind of the reader behind --adapter.
    #[arg(long, value_name = "KIND", requires = "adapter")]
    pub(crate) kind: Option<KindArg>,
    /// Pin a package of the reader's environment, such as aiokafka==0.13.0; may be repeated.
    #[arg(long = "with", value_name = "PACKAGE==VERSION")]
    pub(crate) with: Vec<String>,
    /// Language runtime of the reader's environment, such as 3.12.
    #[arg(long, value_name = "VERSION")]
    pub(crate) runtime: Option<String>,
    /// A folder of further reader manifests; may be repeated.
    #[arg(long = "readers-dir", value_name = "DIR")]
    pub(crate) readers_dirs: Vec<PathBuf>,
    /// Cluster to run on.
    #[arg(long, value_enum, default_value_t = ClusterArg::Auto)]
    pub(crate) cluster: ClusterArg,
    /// Runs at a time; default the number of cores.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) jobs: Option<u16>,
    /// Seed to record with the runs, one higher with each repeat; no fault draws on it so far.
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Run everything this often.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) repeat: u32,
    /// Folder for reports and artifacts.
    #[arg(long, value_name = "DIR", default_value = ".brokerfall")]
    pub(crate) out: PathBuf,
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

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Scenario ids or prefixes; none means all.
    pub(crate) scenarios: Vec<String>,
    /// As JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Scenario files or folders; none means the bundled ones.
    pub(crate) paths: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ReadersArgs {
    /// A folder of further reader manifests; may be repeated.
    #[arg(long = "readers-dir", value_name = "DIR")]
    pub(crate) readers_dirs: Vec<PathBuf>,
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
    #[arg(long, value_name = "DIR", default_value = ".brokerfall")]
    pub(crate) out: PathBuf,
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
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KeepArg {
    /// Keep the histories of runs that did not pass.
    Failed,
    /// Keep every history.
    All,
}
