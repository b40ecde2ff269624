//! `report.md`: the matrix, then every run with its evidence, worst first.

use std::fmt::Write;

use super::escape::{cap, markdown, markdown_code};
use super::matrix::Matrix;
use super::sentences;
use crate::exception::{Exception, FrameOf, Relation};
use crate::report::{ColumnLine, Report, RunReport, Violation};
use crate::verdict::Verdict;
use crate::words;

/// A reader's string longer than this is cut; `report.json` has it whole.
const LONGEST: usize = 600;

/// The report as Markdown (GitHub's).
pub fn render(report: &Report) -> String {
    let mut out = Markdown::default();
    out.line("# Brokerfall report");
    out.gap();
    let exit = report.exit_code();
    out.line(&format!(
        "**{}; exit code {} ({}).**",
        sentences::count(report),
        exit.code(),
        exit.meaning()
    ));
    out.gap();
    out.line(&format!(
        "Command {}, started {}, harness {}.",
        code(&report.command),
        text(&report.started_at),
        text(&report.harness)
    ));
    if !report.runs.is_empty() {
        matrix(&mut out, report);
    }
    margins(&mut out, report);
    if !report.stale_known_failing.is_empty() {
        out.heading(2, "Stale known-failing entries");
        for stale in &report.stale_known_failing {
            out.line(&format!("- {}: {}", code(&stale.entry), text(&stale.text)));
        }
    }
    clusters(&mut out, report);
    let order = [
        (Verdict::Error, "Errors"),
        (Verdict::Failed, "Failed"),
        (Verdict::Void, "Void: nothing is said of the reader"),
        (Verdict::KnownFailing, "Known failures"),
        (Verdict::Passed, "Passed"),
        (Verdict::Skipped, "Skipped"),
    ];
    for (verdict, heading) in order {
        let mut runs = report.runs.iter().filter(|run| run.verdict == verdict).peekable();
        if runs.peek().is_none() {
            continue;
        }
        out.heading(2, heading);
        for run in runs {
            if verdict == Verdict::Skipped {
                skipped(&mut out, run);
            } else {
                section(&mut out, run);
            }
        }
    }
    out.0
}

#[derive(Default)]
struct Markdown(String);

impl Markdown {
    fn line(&mut self, line: &str) {
        self.0.push_str(line);
        self.0.push('\n');
    }

    fn gap(&mut self) {
        if !self.0.is_empty() && !self.0.ends_with("\n\n") {
            self.0.push('\n');
        }
    }

    fn heading(&mut self, level: usize, heading: &str) {
        self.gap();
        self.line(&format!("{} {heading}", "#".repeat(level)));
        self.gap();
    }

    /// A bold label with a list below; nothing when the list is empty.
    fn list(&mut self, label: &str, items: impl IntoIterator<Item = String>) {
        let mut items = items.into_iter().peekable();
        if items.peek().is_some() {
            self.gap();
            self.line(&format!("**{label}**"));
            self.gap();
            items.for_each(|item| self.line(&format!("- {item}")));
        }
    }

    fn table(&mut self, heads: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
        let mut rows = rows.into_iter().peekable();
        if rows.peek().is_none() {
            return;
        }
        self.gap();
        self.line(&format!("| {} |", heads.join(" | ")));
        self.line(&format!("|{}", "---|".repeat(heads.len())));
        rows.for_each(|row| self.line(&format!("| {} |", row.join(" | "))));
    }
}

fn text(text: &str) -> String {
    markdown(&cap(text, LONGEST))
}

fn code(text: &str) -> String {
    markdown_code(&cap(text, LONGEST))
}

fn matrix(out: &mut Markdown, report: &Report) {
    let matrix = Matrix::of(report);
    let heads: Vec<_> = matrix.readers.iter().map(|reader| text(reader)).collect();
    let heads: Vec<_> = std::iter::once("scenario")
        .chain(heads.iter().map(String::as_str))
        .collect();
    let rows = matrix.rows.iter().map(|(scenario, row)| {
        let cells = row.iter().map(|cell| match cell {
            Some(cell) if matches!(cell.verdict, Verdict::Failed | Verdict::Error | Verdict::Void) => {
                format!("**{}**", cell.words)
            }
            Some(cell) => cell.words.clone(),
            None => String::new(),
        });
        std::iter::once(code(scenario)).chain(cells).collect()
    });
    out.table(&heads, rows);
}

/// What the passed runs left of each limit, at the least.
fn margins(out: &mut Markdown, report: &Report) {
    let rows: Vec<_> = sentences::narrowest(report)
        .iter()
        .map(|narrowest| {
            let (scenario, reader) = (&narrowest.run.scenario, sentences::reader(narrowest.run));
            vec![
                text(&narrowest.text()),
                format!("{} with {}", code(scenario), text(&reader)),
            ]
        })
        .collect();
    if !rows.is_empty() {
        out.heading(2, "Narrowest margins of passed runs");
        out.table(&["limit", "run"], rows);
    }
}

fn clusters(out: &mut Markdown, report: &Report) {
    let mut seen = Vec::new();
    for cluster in report.runs.iter().map(|run| &run.cluster) {
        if cluster.properties.is_empty() || seen.contains(&(&cluster.kind, &cluster.kafka)) {
            continue;
        }
        seen.push((&cluster.kind, &cluster.kafka));
        let label = format!(
            "Cluster {} ({}) is emulated; it differs from Apache Kafka",
            code(&cluster.kind),
            text(&cluster.kafka)
        );
        out.list(&label, cluster.properties.iter().map(|property| text(property)));
    }
}

fn skipped(out: &mut Markdown, run: &RunReport) {
    let skip = run.skipped.as_ref();
    let reason = text(skip.map_or(&run.cause, |skip| &skip.reason));
    let enable = skip.map_or(String::new(), |skip| format!(" ({})", text(&skip.enable)));
    out.line(&format!(
        "- {} with {}: {reason}{enable}",
        code(&run.scenario),
        text(&sentences::reader(run))
    ));
}

fn section(out: &mut Markdown, run: &RunReport) {
    let how: Vec<_> = [sentences::verdict(run)]
        .into_iter()
        .chain(sentences::behind(run))
        .collect();
    out.heading(
        3,
        &format!(
            "{} with {}: {}",
            code(&run.scenario),
            text(&sentences::reader(run)),
            how.join(", ")
        ),
    );
    out.line(&format!(
        "{} ({}; phase {}).",
        text(&run.title),
        text(&sentences::circumstances(run)),
        run.phase.name()
    ));
    let cause = match run.error_of {
        Some(of) => format!(
            "The {} failed, not the reader: {}",
            words::failure_of(of),
            text(&run.cause)
        ),
        None => text(&sentences::cause(run)),
    };
    if !cause.is_empty() {
        out.gap();
        out.line(&format!("**{cause}**"));
    }
    if let Some(reason) = &run.known_failing {
        out.gap();
        out.line(&match run.verdict {
            Verdict::KnownFailing => format!("Known: {}", text(reason)),
            Verdict::Passed => format!("A known failure passed; remove its entry: {}", text(reason)),
            _ => format!("Its known-failing entry was not met: {}", text(reason)),
        });
    }
    if run.partial {
        out.gap();
        out.line("The history has no end: the run was cut off.");
    }
    out.list("Void because", run.voids.iter().map(|void| text(&words::void(void))));
    out.list("Violated", run.violations.iter().map(violation));
    out.list("Observed, not attributed", run.observed.iter().map(violation));
    out.list("Remarks", run.remarks.iter().map(|remark| text(remark)));
    out.list(
        "Evidence",
        run.evidence
            .iter()
            .map(|evidence| text(&sentences::evidence(evidence, false))),
    );
    out.list("Wire", column(&run.columns.wire));
    out.list("Raised", column(&run.columns.raised));
    out.list("Claimed", column(&run.columns.claimed));
    exceptions(out, run);
    out.table(
        &["signal", "told after", "what"],
        run.signals.iter().map(|signal| {
            let told = signal.told_s.map_or("never".to_owned(), sentences::secs);
            vec![text(&signal.signal), told, text(&signal.text)]
        }),
    );
    out.list(
        "Cures",
        run.cures.iter().map(|cure| {
            let worked = if cure.worked { "worked" } else { "did not work" };
            format!("{} {worked}: {}", words::renewed(cure.renewed), text(&cure.text))
        }),
    );
    if !run.limits.is_empty() {
        let limits: Vec<_> = run.limits.iter().map(|limit| text(&sentences::limit(limit))).collect();
        out.gap();
        out.line(&format!("Limits: {}.", limits.join("; ")));
    }
    footer(out, run);
}

fn footer(out: &mut Markdown, run: &RunReport) {
    out.gap();
    let timings = &run.timings;
    let ms = |ms: f64| sentences::secs(ms / 1000.0);
    let start = timings
        .reader_start_ms
        .map_or(String::new(), |start| format!(", start of the reader {}", ms(start)));
    out.line(&format!(
        "Time: {} in all, waiting for triggers {}, for the reader {}{start}; the harness's own {}.",
        ms(timings.total_ms),
        ms(timings.waits_ms),
        ms(timings.reader_ms),
        ms(timings.overhead_ms)
    ));
    if let Some(folder) = &run.artifacts {
        out.gap();
        out.line(&format!("Files: {}", code(folder)));
    }
    if !run.reproduce.is_empty() {
        out.gap();
        out.line(&format!("Again: {}", code(&run.reproduce)));
    }
}

fn violation(violation: &Violation) -> String {
    let mut events = String::new();
    let lead = if violation.events.len() == 1 {
        " (event "
    } else {
        " (events "
    };
    for (i, n) in violation.events.iter().take(8).enumerate() {
        let _ = write!(events, "{}{n}", if i == 0 { lead } else { ", " });
    }
    if !events.is_empty() {
        events.push_str(if violation.events.len() > 8 { ", ...)" } else { ")" });
    }
    format!("{}: {}{events}", code(&violation.invariant), text(&violation.text))
}

fn column(lines: &[ColumnLine]) -> impl Iterator<Item = String> {
    lines.iter().map(|line| text(&sentences::column(line)))
}

fn exceptions(out: &mut Markdown, run: &RunReport) {
    out.table(
        &["exception", "where", "phase", "fatal", "count", "fingerprint"],
        run.exceptions.iter().map(|seen| {
            vec![
                code(&seen.exception.label()),
                words::origin(seen.origin).to_owned(),
                seen.phase.name().to_owned(),
                if seen.fatal { "yes" } else { "no" }.to_owned(),
                seen.count.to_string(),
                code(&seen.fingerprint),
            ]
        }),
    );
    if !run.exceptions.is_empty() {
        out.gap();
        run.exceptions.iter().for_each(|seen| tree(out, &seen.exception, 0));
    }
}

/// The exception and all below it as a nested list, each with its attributes and the innermost frame of a library.
fn tree(out: &mut Markdown, exception: &Exception, depth: usize) {
    // Deeper than this, a list is no longer readable; `report.json` has the rest.
    if depth > 8 {
        return;
    }
    let relation = match exception.relation {
        None => "",
        Some(Relation::Cause) => "caused by ",
        Some(Relation::Context) => "while handling ",
        Some(Relation::Joined) => "joined ",
        Some(Relation::Suppressed) => "suppressed ",
    };
    let mut line = format!("{}- {relation}{}", "  ".repeat(depth), code(&exception.label()));
    if !exception.message.is_empty() {
        let _ = write!(line, ": {}", text(&exception.message));
    }
    for (name, value) in &exception.attributes {
        let _ = write!(line, ", {} = {}", text(name), text(&value.to_string()));
    }
    if let Some(frame) = exception.frames.iter().rev().find(|frame| frame.of == FrameOf::Library) {
        let number = frame.line.map_or(String::new(), |n| format!(":{n}"));
        let _ = write!(
            line,
            ", in {} at {}",
            code(&frame.function),
            code(&format!("{}{number}", frame.file))
        );
    }
    out.line(&line);
    exception.children.iter().for_each(|child| tree(out, child, depth + 1));
}
