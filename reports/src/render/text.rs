//! The terminal report: a line for each passed run with its evidence, ten for each failure, the matrix, and the count.
//!
//! The worst comes last, where a person looks first. ASCII only, apart from what readers say themselves.

use std::collections::BTreeMap;

use super::escape::{cap, terminal};
use super::matrix::Matrix;
use super::page::Page;
use super::palette::{Palette, Style};
use super::sentences::{self, Narrowest};
use crate::report::{ColumnLine, Report, RunReport};
use crate::verdict::{ExitCode, Verdict};
use crate::words;

/// A reader's string longer than this is cut; `report.json` has it whole.
const LONGEST: usize = 240;
/// Sentences of one column that are shown.
const SENTENCES: usize = 6;
/// Limits whose narrowest margin is shown; `report.md` has all.
const MARGINS: usize = 3;
/// Width of the verdict in front of a run.
const VERDICT: usize = 15;

/// How to render.
#[derive(Debug, Clone, Copy)]
pub struct TextOptions {
    /// Colours.
    pub palette: Palette,
    /// Columns of the terminal.
    pub width: usize,
    /// Passed runs with the whole of their evidence, and every limit.
    pub verbose: bool,
}

impl Default for TextOptions {
    fn default() -> Self {
        Self {
            palette: Palette::plain(),
            width: 110,
            verbose: false,
        }
    }
}

/// The whole report.
pub fn render(report: &Report, options: TextOptions) -> String {
    let mut page = Page::new(options.palette, options.width);
    notes(&mut page, report);
    let of = |verdict: Verdict| report.runs.iter().filter(move |run| run.verdict == verdict);
    page.gap();
    if options.verbose {
        of(Verdict::Passed).for_each(|run| run_block(&mut page, run));
    } else {
        passed_in_short(&mut page, report);
        of(Verdict::Passed)
            .filter(|run| run.known_failing.is_some())
            .for_each(|run| run_block(&mut page, run));
    }
    skipped(&mut page, report);
    for verdict in [Verdict::KnownFailing, Verdict::Void, Verdict::Failed, Verdict::Error] {
        of(verdict).for_each(|run| run_block(&mut page, run));
    }
    if !report.stale_known_failing.is_empty() {
        page.gap();
        for stale in &report.stale_known_failing {
            let text = format!("known-failing entry {}: {}", stale.entry, stale.text);
            page.field("stale", &show(&text));
        }
    }
    if report.runs.len() > 1 {
        page.gap();
        matrix(&mut page, report);
    }
    page.gap();
    for warning in sentences::mostly_skipped(report) {
        page.field("warning", &show(&warning));
    }
    let margins: Vec<_> = sentences::narrowest(report)
        .iter()
        .take(MARGINS)
        .map(narrowest)
        .collect();
    if !margins.is_empty() && report.runs.len() > 1 {
        page.field("margins", &format!("narrowest of passed runs: {}", margins.join("; ")));
    }
    if let Some(overhead) = sentences::overhead(report) {
        page.line(&format!("harness's own time: {}", show(&overhead)));
    }
    page.line(&last_line(report, options.palette));
    page.finish()
}

/// One run alone: what is printed as soon as it is over.
pub fn run(run: &RunReport, options: TextOptions) -> String {
    let mut page = Page::new(options.palette, options.width);
    run_block(&mut page, run);
    page.finish()
}

/// `judged 12 (11 passed, 1 failed), skipped 1, void 0; exit code 10 (a violation)`.
pub fn last_line(report: &Report, palette: Palette) -> String {
    let exit = report.exit_code();
    let style = match exit {
        ExitCode::AsExpected => Verdict::Passed,
        ExitCode::Void | ExitCode::NothingJudged => Verdict::Void,
        ExitCode::Violation | ExitCode::KnownFailurePassed => Verdict::Failed,
        ExitCode::HarnessBug | ExitCode::Usage | ExitCode::Environment => Verdict::Error,
    };
    let exit = palette.paint(
        Style::Verdict(style),
        &format!("exit code {} ({})", exit.code(), exit.meaning()),
    );
    format!("{}; {exit}", sentences::count(report))
}

/// Escaped and cut.
fn show(text: &str) -> String {
    terminal(&cap(text, LONGEST))
}

/// What holds for all runs: how the clusters differ from Apache Kafka, and what was not judged.
fn notes(page: &mut Page, report: &Report) {
    let mut clusters: BTreeMap<(&str, &str), &[String]> = BTreeMap::new();
    let mut not_judged: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for run in &report.runs {
        if !run.cluster.properties.is_empty() {
            clusters.insert((&run.cluster.kind, &run.cluster.kafka), &run.cluster.properties);
        }
        for item in &run.not_judged {
            *not_judged.entry((&item.invariant, &item.why)).or_default() += 1;
        }
    }
    for ((kind, kafka), properties) in clusters {
        page.field(
            "cluster",
            &format!(
                "{} ({}) is emulated; it differs from Apache Kafka:",
                show(kind),
                show(kafka)
            ),
        );
        for property in properties {
            page.field("", &format!("- {}", show(property)));
        }
    }
    let mut label = "not judged";
    for ((invariant, why), runs) in not_judged {
        page.field(
            label,
            &format!(
                "{} in {}: {}",
                show(invariant),
                sentences::plural(runs, "run"),
                show(why)
            ),
        );
        label = "";
    }
}

fn head(page: &mut Page, run: &RunReport, after: &str) {
    let palette = page.palette;
    let word = match run.verdict {
        Verdict::Failed => "FAILED",
        Verdict::Error => "ERROR",
        Verdict::Void => "VOID",
        other => other.name(),
    };
    let word = palette.paint(Style::Verdict(run.verdict), &format!("{word:VERDICT$}"));
    let name = palette.paint(
        Style::Strong,
        &format!("{}  {}", show(&run.scenario), show(&sentences::reader(run))),
    );
    page.line(&format!("{word}{name}{after}"));
}

fn run_block(page: &mut Page, run: &RunReport) {
    match run.verdict {
        Verdict::Passed if run.known_failing.is_none() => passed(page, run),
        Verdict::Passed => {
            page.gap();
            head(page, run, "");
            let reason = run.known_failing.as_deref().unwrap_or_default();
            page.field(
                "unexpected",
                &format!("a known failure passed: {} (remove the entry)", show(reason)),
            );
            proven(page, run);
            where_to_look(page, run);
        }
        Verdict::Skipped => {
            let skip = run.skipped.as_ref();
            head(page, run, "");
            page.field("reason", &show(skip.map_or(&run.cause, |skip| &skip.reason)));
            page.field("enabled by", &show(skip.map_or("", |skip| &skip.enable)));
        }
        Verdict::Void => void(page, run),
        Verdict::Failed | Verdict::KnownFailing => failed(page, run),
        Verdict::Error => error(page, run),
    }
}

/// One line and its evidence.
fn passed(page: &mut Page, run: &RunReport) {
    head(page, run, "");
    let mut parts: Vec<_> = run
        .evidence
        .iter()
        .map(|evidence| show(&sentences::evidence(evidence, true)))
        .collect();
    if parts.is_empty() {
        parts.push("no fault".to_owned());
    }
    parts.extend(sentences::recovery(run).map(|text| show(&text)));
    parts.extend(run.remarks.iter().map(|remark| show(remark)));
    page.field("", &parts.join("; "));
    limits(page, run);
}

/// Passed runs folder by folder, a line for each scenario and reader: a passed run must show that its fault struck.
fn passed_in_short(page: &mut Page, report: &Report) {
    let mut folders: Vec<(&str, Vec<Vec<&RunReport>>)> = Vec::new();
    let passed = |run: &&RunReport| run.verdict == Verdict::Passed && run.known_failing.is_none();
    for run in report.runs.iter().filter(passed) {
        let folder = sentences::folder_and_name(&run.scenario).0;
        let groups = match folders.iter_mut().find(|(known, _)| *known == folder) {
            Some((_, groups)) => groups,
            None => {
                folders.push((folder, Vec::new()));
                let last = folders.len() - 1;
                &mut folders[last].1
            }
        };
        let same = |group: &&mut Vec<&RunReport>| {
            let first = group[0];
            first.scenario == run.scenario && first.reader == run.reader
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(run),
            None => groups.push(vec![run]),
        }
    }
    for (folder, groups) in folders {
        let runs: usize = groups.iter().map(Vec::len).sum();
        let word = page
            .palette
            .paint(Style::Verdict(Verdict::Passed), &format!("{:VERDICT$}", "passed"));
        let folder = if folder.is_empty() { "." } else { folder };
        let head = page.palette.paint(Style::Strong, &show(folder));
        page.line(&format!("{word}{head} ({})", sentences::plural(runs as u64, "run")));
        let names: Vec<_> = groups
            .iter()
            .map(|group| show(sentences::folder_and_name(&group[0].scenario).1))
            .collect();
        let readers: Vec<_> = groups.iter().map(|group| show(&sentences::reader(group[0]))).collect();
        let longest = |texts: &[String]| texts.iter().map(|text| text.chars().count()).max().unwrap_or(0);
        let (first, second) = (longest(&names), longest(&readers));
        for ((name, reader), group) in names.iter().zip(&readers).zip(&groups) {
            let text = show(&sentences::passed_in_short(group));
            page.line(&format!("  {name:first$}  {reader:second$}  {text}"));
        }
    }
}

fn skipped(page: &mut Page, report: &Report) {
    let mut groups: Vec<((String, String), Vec<String>)> = Vec::new();
    for run in report.runs.iter().filter(|run| run.verdict == Verdict::Skipped) {
        let skip = run.skipped.as_ref();
        let reason = skip.map_or(run.cause.clone(), |skip| skip.reason.clone());
        let enable = skip.map_or(String::new(), |skip| skip.enable.clone());
        let name = format!("{} with {}", run.scenario, sentences::reader(run));
        match groups
            .iter_mut()
            .find(|(why, _)| *why == (reason.clone(), enable.clone()))
        {
            Some((_, names)) => names.push(name),
            None => groups.push(((reason, enable), vec![name])),
        }
    }
    for ((reason, enable), names) in groups {
        let word = format!("{:VERDICT$}", "skipped");
        let word = page.palette.paint(Style::Verdict(Verdict::Skipped), &word);
        let enable = if enable.is_empty() {
            String::new()
        } else {
            format!(" ({})", show(&enable))
        };
        page.line(&format!("{word}{}{enable}", show(&reason)));
        let names: Vec<_> = names.iter().map(|name| show(name)).collect();
        page.field("", &names.join(", "));
    }
}

fn failed(page: &mut Page, run: &RunReport) {
    page.gap();
    head(page, run, &format!("  {}", sentences::failure(run)));
    page.field("with", &show(&sentences::circumstances(run)));
    cause(page, run);
    match &run.known_failing {
        Some(reason) if run.verdict == Verdict::KnownFailing => page.field("known as", &show(reason)),
        Some(reason) => page.field("unlike", &format!("its known-failing entry: {}", show(reason))),
        None => {}
    }
    proven(page, run);
    columns(page, run);
    if let Some(signals) = sentences::signals(&run.signals) {
        page.field("signals", &show(&signals));
    }
    if let Some(cure) = sentences::cures(&run.cures) {
        page.field("cured by", &show(&cure));
    }
    limits(page, run);
    observed(page, run);
    where_to_look(page, run);
}

fn void(page: &mut Page, run: &RunReport) {
    page.gap();
    head(page, run, "  nothing is said of the reader");
    if run.voids.is_empty() {
        page.field("cause", &show(&run.cause));
    }
    for void in &run.voids {
        page.field("cause", &show(&words::void(void)));
    }
    observed(page, run);
    proven(page, run);
    columns(page, run);
    where_to_look(page, run);
}

fn error(page: &mut Page, run: &RunReport) {
    page.gap();
    let of = run.error_of.map_or("harness", words::failure_of);
    head(page, run, &format!("  the {of} failed, not the reader"));
    page.field("cause", &show(&run.cause));
    observed(page, run);
    where_to_look(page, run);
}

fn cause(page: &mut Page, run: &RunReport) {
    page.field("cause", &show(&sentences::cause(run)));
    let others: Vec<_> = sentences::other_violations(run).map(|other| show(&other)).collect();
    if !others.is_empty() {
        page.field("also", &others.join("; "));
    }
    for void in &run.voids {
        page.field("else void", &show(&words::void(void)));
    }
    if !run.remarks.is_empty() {
        page.field("remarks", &show(&run.remarks.join("; ")));
    }
}

fn observed(page: &mut Page, run: &RunReport) {
    for violation in &run.observed {
        let text = format!("{}: {} (observed, not attributed)", violation.invariant, violation.text);
        page.field("observed", &show(&text));
    }
}

fn proven(page: &mut Page, run: &RunReport) {
    let proven: Vec<_> = run
        .evidence
        .iter()
        .map(|evidence| show(&sentences::evidence(evidence, false)))
        .collect();
    page.field(
        "proven",
        &if proven.is_empty() {
            "no fault".to_owned()
        } else {
            proven.join("; ")
        },
    );
}

fn columns(page: &mut Page, run: &RunReport) {
    page.field("wire", &column(&run.columns.wire, "nothing seen"));
    raised(page, run);
    page.field("claimed", &column(&run.columns.claimed, "nothing claimed"));
}

fn raised(page: &mut Page, run: &RunReport) {
    page.field("raised", &column(&run.columns.raised, "none raised"));
}

/// The first sentences and the last: what came first explains, what stood at the end decides.
fn column(lines: &[ColumnLine], nothing: &str) -> String {
    if lines.is_empty() {
        return nothing.to_owned();
    }
    let mut shown: Vec<_> = lines.iter().map(|line| show(&sentences::column(line))).collect();
    if shown.len() > SENTENCES {
        let left_out = shown.len() - SENTENCES;
        shown.splice(SENTENCES - 1..shown.len() - 1, [format!("({left_out} more)")]);
    }
    shown.join("; ")
}

fn narrowest(narrowest: &Narrowest<'_>) -> String {
    let Narrowest { run, .. } = narrowest;
    show(&format!(
        "{} in {} with {}",
        narrowest.text(),
        run.scenario,
        sentences::reader(run)
    ))
}

/// Every limit with its origin and what was left of it.
fn limits(page: &mut Page, run: &RunReport) {
    let limits: Vec<_> = run.limits.iter().map(|limit| show(&sentences::limit(limit))).collect();
    if !limits.is_empty() {
        page.field("limits", &limits.join("; "));
    }
}

fn where_to_look(page: &mut Page, run: &RunReport) {
    if run.partial {
        page.field("partial", "the history has no end: the run was cut off");
    }
    if let Some(folder) = &run.artifacts {
        page.labelled("files", &terminal(folder));
    }
    if !run.reproduce.is_empty() {
        page.labelled("again", &terminal(&run.reproduce));
    }
}

fn matrix(page: &mut Page, report: &Report) {
    let matrix = Matrix::of(report);
    let names = matrix.rows.iter().map(|(scenario, _)| show(scenario).chars().count());
    let first = names.max().unwrap_or(0).max("scenario".len());
    let widths: Vec<_> = (0..matrix.readers.len())
        .map(|x| {
            let cells = matrix.rows.iter().filter_map(|(_, row)| row[x].as_ref());
            let cells = cells.map(|cell| cell.words.chars().count()).max().unwrap_or(0);
            cells.max(show(&matrix.readers[x]).chars().count())
        })
        .collect();
    let mut from = 0;
    while from < widths.len() {
        // As many readers as fit, one at least; the others follow below.
        let mut to = from + 1;
        let mut used = first + 2 + widths[from];
        while to < widths.len() && used + 2 + widths[to] <= page.width() {
            used += 2 + widths[to];
            to += 1;
        }
        if from > 0 {
            page.gap();
        }
        let heads = (from..to).map(|x| format!("  {:width$}", show(&matrix.readers[x]), width = widths[x]));
        let heads = format!("{:first$}{}", "scenario", heads.collect::<String>());
        let heads = page.palette.paint(Style::Strong, heads.trim_end());
        page.line(&heads);
        for (scenario, row) in &matrix.rows {
            if row[from..to].iter().all(Option::is_none) {
                continue;
            }
            let mut line = format!("{:first$}", show(scenario));
            for (x, cell) in row.iter().enumerate().take(to).skip(from) {
                let width = widths[x];
                let padded = match cell {
                    Some(cell) => {
                        let words = format!("{:width$}", cell.words);
                        page.palette.paint(Style::Verdict(cell.verdict), &words)
                    }
                    None => format!("{:width$}", "-"),
                };
                line.push_str("  ");
                line.push_str(&padded);
            }
            page.line(&line);
        }
        from = to;
    }
}
