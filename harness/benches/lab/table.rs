//! Figures as they are told: spreads, ratios of the same round, and a section of BENCHMARKS.md.

use std::fmt::Write as _;
use std::path::Path;

/// One figure per round.
#[derive(Debug, Clone, Default)]
pub(crate) struct Series(pub(crate) Vec<f64>);

impl Series {
    pub(crate) fn median(&self) -> f64 {
        let sorted = self.sorted();
        let half = sorted.len() / 2;
        if sorted.len() % 2 == 1 {
            sorted[half]
        } else {
            (sorted[half - 1] + sorted[half]) / 2.0
        }
    }

    /// Round by round, this one over the other.
    pub(crate) fn over(&self, other: &Series) -> Series {
        Series(self.0.iter().zip(&other.0).map(|(own, other)| own / other).collect())
    }

    /// `least / median / most`.
    pub(crate) fn spread(&self, decimals: usize) -> String {
        let sorted = self.sorted();
        match (sorted.first(), sorted.last()) {
            (Some(least), Some(most)) => format!(
                "{least:.decimals$} / **{:.decimals$}** / {most:.decimals$}",
                self.median()
            ),
            _ => "none".into(),
        }
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }
}

/// A Markdown table.
pub(crate) struct Table(String);

impl Table {
    pub(crate) fn new(heads: &[&str]) -> Self {
        let rule = vec!["---"; heads.len()];
        Table(format!("| {} |\n| {} |\n", heads.join(" | "), rule.join(" | ")))
    }

    pub(crate) fn row(&mut self, cells: &[String]) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "| {} |", cells.join(" | "));
    }

    pub(crate) fn text(self) -> String {
        self.0
    }
}

/// A figure and the target it has to meet.
pub(crate) struct Target {
    what: &'static str,
    wanted: String,
    found: f64,
    met: bool,
}

impl Target {
    pub(crate) fn at_least(what: &'static str, limit: f64, found: f64) -> Self {
        Target {
            what,
            wanted: format!("at least {limit}"),
            found,
            met: found >= limit,
        }
    }

    pub(crate) fn at_most(what: &'static str, limit: f64, found: f64) -> Self {
        Target {
            what,
            wanted: format!("at most {limit}"),
            found,
            met: found <= limit,
        }
    }
}

/// The targets as a table.
pub(crate) fn targets(all: &[Target]) -> String {
    let mut table = Table::new(&["target", "wanted", "median found", ""]);
    for target in all {
        table.row(&[
            target.what.into(),
            target.wanted.clone(),
            format!("{:.2}", target.found),
            if target.met { "met" } else { "**missed**" }.into(),
        ]);
    }
    table.text()
}

/// Date, machine and load: without them a figure says nothing.
pub(crate) fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let model = read("/proc/cpuinfo")
        .lines()
        .find_map(|line| {
            line.strip_prefix("model name")?
                .split_once(": ")
                .map(|(_, name)| name.to_owned())
        })
        .unwrap_or_else(|| std::env::consts::ARCH.into());
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    let load = read("/proc/loadavg");
    let load: Vec<&str> = load.split(' ').take(2).collect();
    let now = humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string();
    format!(
        "{}, {cores} processors ({model}), {} {}, load average at the end {}.",
        &now[..10],
        std::env::consts::OS,
        kernel.trim(),
        load.join(" and "),
    )
}

/// Prints a section and, where the arguments hold `--write FILE`, puts it between its marks in that file.
pub(crate) fn publish(section: &str, text: &str) {
    println!("{text}");
    let mut args = std::env::args().skip_while(|arg| arg != "--write");
    let Some(file) = args.nth(1) else { return };
    // Cargo starts a bench in the folder of its package.
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
    let old = std::fs::read_to_string(&file).unwrap();
    let (begin, end) = (format!("<!-- {section} -->"), format!("<!-- /{section} -->"));
    let (before, rest) = old.split_once(&begin).unwrap_or_else(|| panic!("{begin} is missing"));
    let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("{end} is missing"));
    std::fs::write(&file, format!("{before}{begin}\n{text}\n{end}{after}")).unwrap();
}
