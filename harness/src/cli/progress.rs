//! Live progress on a terminal: one line per run that is going on. Plain lines elsewhere.

use std::io::IsTerminal;
use std::time::Duration;

use brokerfall_report::render::{ProgressState, status_line};
use brokerfall_report::verdict::Verdict;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use tokio::task::JoinHandle;

use super::say;
use crate::history::recorder::Recorder;

/// How often a line is drawn anew.
const DRAW_EVERY: Duration = Duration::from_millis(200);

/// Where progress goes.
pub(crate) struct Progress {
    lines: Option<MultiProgress>,
    total: usize,
}

/// The line of one run.
pub(crate) struct Line {
    bar: Option<ProgressBar>,
    drawing: Option<JoinHandle<()>>,
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(drawing) = &self.drawing {
            drawing.abort();
        }
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Progress {
    /// Progress of `total` runs: live where stderr is a terminal that is not a CI's and `NO_COLOR` is not set.
    pub(crate) fn new(total: usize) -> Self {
        let plain = std::env::var_os("CI").is_some() || std::env::var_os("NO_COLOR").is_some();
        let live = std::io::stderr().is_terminal() && !plain;
        Self {
            lines: live.then(MultiProgress::new),
            total,
        }
    }

    /// Starts the line of a run.
    pub(crate) fn start(&self, scenario: &str, reader: &str, recorder: &Recorder) -> Line {
        let Some(lines) = &self.lines else {
            return Line {
                bar: None,
                drawing: None,
            };
        };
        let bar = lines.add(ProgressBar::new_spinner());
        // OK to fall back: the template is a constant that indicatif accepts.
        let style =
            ProgressStyle::with_template("{spinner} {wide_msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
        bar.set_style(style);
        let (drawn, recorder) = (bar.clone(), recorder.clone());
        let (scenario, reader) = (scenario.to_owned(), reader.to_owned());
        let drawing = tokio::spawn(async move {
            let mut every = tokio::time::interval(DRAW_EVERY);
            loop {
                every.tick().await;
                let elapsed = Duration::from_micros(recorder.now_us());
                let state = recorder.with(|facts| ProgressState {
                    scenario: scenario.clone(),
                    reader: reader.clone(),
                    stage: facts.stage(),
                    position: facts.delivered_total(),
                    lag: Some(facts.lag()),
                    active_faults: facts.faults_in_force(),
                    elapsed,
                });
                drawn.set_message(status_line(&state));
                drawn.tick();
            }
        });
        Line {
            bar: Some(bar),
            drawing: Some(drawing),
        }
    }

    /// Ends the line of a run and says how it ended.
    pub(crate) fn end(&self, line: Line, done: usize, scenario: &str, reader: &str, verdict: Verdict, seconds: f64) {
        drop(line);
        let text = format!(
            "[{done}/{}] {:<13} {scenario}  {reader}  {seconds:.1}s",
            self.total,
            verdict.name()
        );
        match &self.lines {
            // A terminal that went away takes its progress with it.
            Some(lines) => drop(lines.println(say::tame(&text))),
            None => say::note(&text),
        }
    }

    /// Says something above the live lines.
    pub(crate) fn say(&self, text: &str) {
        match &self.lines {
            Some(lines) => drop(lines.println(say::tame(text))),
            None => say::note(text),
        }
    }
}
