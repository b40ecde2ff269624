//! The matrix: scenarios down, readers across. Shared by the terminal and Markdown.

use std::collections::BTreeMap;

use super::sentences;
use crate::report::{Report, RunReport};
use crate::verdict::Verdict;

/// Verdict words by scenario and reader.
pub(super) struct Matrix<'a> {
    /// Column headings: the reader, and what tells it from another of the same name.
    pub(super) readers: Vec<String>,
    /// Scenario and one cell per reader; `None` where there was no run.
    pub(super) rows: Vec<(&'a str, Vec<Option<Cell>>)>,
}

/// One cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cell {
    /// The worst verdict.
    pub(super) verdict: Verdict,
    /// Its words.
    pub(super) words: String,
}

/// What makes a column.
type Key<'a> = (&'a str, &'a str, &'a str, &'static str);

fn key(run: &RunReport) -> Key<'_> {
    (
        &run.reader.name,
        &run.reader.version,
        &run.cluster.kind,
        run.reader.kind.name(),
    )
}

impl<'a> Matrix<'a> {
    pub(super) fn of(report: &'a Report) -> Self {
        let mut columns: Vec<Key<'a>> = Vec::new();
        let mut scenarios: Vec<&'a str> = Vec::new();
        let mut cells: BTreeMap<(usize, usize), Vec<&'a RunReport>> = BTreeMap::new();
        // A run that never got a cluster belongs to the reader's column, whatever cluster the others ran on.
        let clustered: Vec<Key<'a>> = report.runs.iter().map(key).filter(|k| !k.2.is_empty()).collect();
        for run in &report.runs {
            let mut column = key(run);
            if column.2.is_empty() {
                let same = |k: &&Key<'a>| (k.0, k.1, k.3) == (column.0, column.1, column.3);
                column = clustered.iter().find(same).copied().unwrap_or(column);
            }
            let x = position(&mut columns, column);
            let y = position(&mut scenarios, run.scenario.as_str());
            cells.entry((y, x)).or_default().push(run);
        }
        let readers = columns.iter().map(|column| heading(column, &columns)).collect();
        let rows = scenarios.iter().enumerate().map(|(y, scenario)| {
            let row = (0..columns.len()).map(|x| cells.get(&(y, x)).map(|runs| cell(runs)));
            (*scenario, row.collect())
        });
        Self {
            readers,
            rows: rows.collect(),
        }
    }
}

fn position<T: PartialEq>(list: &mut Vec<T>, item: T) -> usize {
    list.iter().position(|known| *known == item).unwrap_or_else(|| {
        list.push(item);
        list.len() - 1
    })
}

/// The name and version; kind and cluster only where they tell two columns apart.
fn heading(column: &Key<'_>, all: &[Key<'_>]) -> String {
    let same_name = |other: &&Key<'_>| (other.0, other.1) == (column.0, column.1);
    let mut parts = vec![column.0, column.1];
    if all.iter().filter(same_name).any(|other| other.3 != column.3) {
        parts.push(column.3);
    }
    if all.iter().filter(same_name).any(|other| other.2 != column.2) {
        parts.push(column.2);
    }
    parts.retain(|part| !part.is_empty());
    parts.join(" ")
}

/// Repeated runs show the worst verdict with its share.
fn cell(runs: &[&RunReport]) -> Cell {
    let worst = runs
        .iter()
        .min_by_key(|run| run.verdict)
        .map_or(Verdict::Skipped, |run| run.verdict);
    let same: Vec<_> = runs.iter().filter(|run| run.verdict == worst).collect();
    let mut words = same.first().map_or(String::new(), |run| sentences::verdict(run));
    if runs.len() > 1 {
        words = format!("{words} {}/{}", same.len(), runs.len());
    }
    if worst == Verdict::Passed && runs.iter().any(|run| run.known_failing.is_some()) {
        words.push_str(" (!)");
    }
    Cell { verdict: worst, words }
}
