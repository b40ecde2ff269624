//! How many scenario runs an hour one job makes, and what four make together: `brokerfall run` itself, on the quick
//! scenarios and a bundled reader, with one job and with four in turn.
//!
//! `cargo bench --bench runs -- --write BENCHMARKS.md` puts the figures there.
#![expect(clippy::unwrap_used, reason = "a bench may panic")]
#![expect(clippy::print_stdout, reason = "a bench prints")]
#![expect(clippy::disallowed_methods, reason = "a bench measures time")]

#[expect(dead_code, reason = "some of it is for link_peers")]
#[path = "lab/table.rs"]
mod table;

use std::process::Command;

use table::{Series, Table, Target, machine, publish, targets};

const ROUNDS: usize = 2;
const JOBS: [usize; 2] = [1, 4];
const READER: &str = "reference-group";

fn main() {
    let (mut hourly, mut runs) = (JOBS.map(|_| Series::default()), String::new());
    for _ in 0..ROUNDS {
        for (jobs, series) in JOBS.iter().zip(&mut hourly) {
            let pace = pace(*jobs);
            series.0.push(pace.hourly);
            runs = pace.runs;
        }
    }
    let mut table = Table::new(&["jobs", "runs an hour", "for each job", "x 1 job"]);
    for (jobs, series) in JOBS.iter().zip(&hourly) {
        let each = Series(series.0.iter().map(|all| all / *jobs as f64).collect());
        table.row(&[
            jobs.to_string(),
            series.spread(0),
            each.spread(0),
            series.over(&hourly[0]).spread(2),
        ]);
    }
    let (one, four) = (hourly[0].median(), hourly[1].over(&hourly[0]).median());
    let targets = targets(&[
        Target::at_least("runs an hour, 1 job", 1500.0, one),
        Target::at_least("4 jobs over 1 job", 2.5, four),
    ]);
    publish(
        "runs",
        &format!(
            "{} {runs} runs of tag `quick` on `{READER}`, {ROUNDS} rounds of 1 and 4 jobs in turn; least / **median** / \
             most.\n\n{targets}\n{}",
            machine(),
            table.text()
        ),
    );
}

struct Pace {
    runs: String,
    hourly: f64,
}

/// One invocation, and the pace that it tells at its end.
fn pace(jobs: usize) -> Pace {
    let out = tempfile::tempdir().unwrap();
    let ran = Command::new(env!("CARGO_BIN_EXE_brokerfall"))
        .args([
            "run",
            "--tag",
            "quick",
            "--reader",
            READER,
            "--jobs",
            &jobs.to_string(),
            "--out",
        ])
        .arg(out.path())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&ran.stdout);
    // A figure of runs that failed would be one of something else.
    assert!(ran.status.success(), "{}\n{told}", ran.status);
    let words: Vec<&str> = told
        .lines()
        .find_map(|line| line.strip_prefix("pace: "))
        .unwrap()
        .split(' ')
        .collect();
    Pace {
        runs: words[0].to_owned(),
        hourly: words[5].parse().unwrap(),
    }
}
