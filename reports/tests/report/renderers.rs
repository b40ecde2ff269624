//! What a person reads: snapshots of every renderer over the stories.

use brokerfall_report::history::{Entry, Event, Grade};
use brokerfall_report::protocol::Kind;
use brokerfall_report::render::text::TextOptions;
use brokerfall_report::render::{Palette, json, junit, markdown, text};
use brokerfall_report::report::RunReport;
use brokerfall_report::verdict::Verdict;

use crate::stories;

#[test]
fn suite_on_a_terminal() {
    insta::assert_snapshot!(text::render(&stories::suite(), TextOptions::default()));
}

#[test]
fn suite_as_markdown() {
    insta::assert_snapshot!(markdown::render(&stories::suite()));
}

#[test]
fn suite_as_junit() {
    insta::assert_snapshot!(junit::render(&stories::suite()).unwrap());
}

#[test]
fn one_run_as_json() {
    let (entries, judgement) = stories::callback_killed_reader();
    let mut suite = stories::suite();
    suite.runs = vec![RunReport::from_history(entries, &judgement)];
    suite.stale_known_failing.clear();
    suite.count();
    insta::assert_snapshot!(json::render(&suite).unwrap());
}

#[test]
fn colours_change_nothing_but_colours() {
    let options = TextOptions {
        palette: Palette::ansi(),
        ..TextOptions::default()
    };
    let coloured = text::render(&stories::suite(), options);
    let mut plain = String::new();
    let mut rest = coloured.as_str();
    while let Some((before, after)) = rest.split_once("\x1b[") {
        plain.push_str(before);
        rest = after.split_once('m').unwrap().1;
    }
    plain.push_str(rest);
    let trimmed: String = plain.lines().map(|line| line.trim_end().to_owned() + "\n").collect();
    assert_eq!(trimmed, text::render(&stories::suite(), TextOptions::default()));
}

#[test]
fn repeated_runs_share_a_cell_that_shows_the_worst_and_its_share() {
    let mut suite = stories::suite();
    let failed = suite.runs[2].clone();
    let mut passed = failed.clone();
    passed.verdict = Verdict::Passed;
    suite.runs = vec![passed.clone(), failed, passed];
    suite.count();
    let page = text::render(&suite, TextOptions::default());
    assert!(
        page.contains("\nincidents/reset-latest  failed (stuck) 1/3\n"),
        "{page}"
    );
}

#[test]
fn readers_of_one_name_are_told_apart_by_kind_and_cluster_where_they_differ() {
    let mut suite = stories::suite();
    let first = suite.runs[0].clone();
    let mut other_kind = first.clone();
    other_kind.reader.kind = Kind::Group;
    let mut other_cluster = first.clone();
    other_cluster.cluster.kind = "process".into();
    suite.runs = vec![first, other_kind, other_cluster];
    let page = markdown::render(&suite);
    let heads = "| scenario | reference-table 0.1.0 table mock | reference-table 0.1.0 group mock | reference-table 0.1.0 table process |";
    assert!(page.lines().any(|line| line == heads), "{page}");
}

#[test]
fn a_known_failure_that_passed_says_which_entry_to_remove() {
    let mut suite = stories::suite();
    suite.runs.truncate(1);
    suite.stale_known_failing.clear();
    suite.runs[0].apply_known_failing("it did not come back (some-library#1)", false);
    suite.count();
    insta::assert_snapshot!(text::render(&suite, TextOptions::default()));
    assert!(junit::render(&suite).unwrap().contains("type=\"known-failure-passed\""));
}

#[test]
fn passed_runs_stand_in_a_line_each_and_whole_where_it_is_asked_for() {
    let mut suite = stories::suite();
    let first = suite.runs[0].clone();
    let mut slower = first.clone();
    slower.timings.recovery_ms = Some(2_500.0);
    slower.evidence[0].reached = Some(Grade::Injected);
    let mut other = first.clone();
    other.scenario = "control/idle".into();
    other.evidence.clear();
    other.timings.recovery_ms = None;
    suite.runs = vec![first, other, slower];
    suite.stale_known_failing.clear();
    suite.count();
    let page = text::render(&suite, TextOptions::default());
    let from = page.find("passed").unwrap();
    let lines: Vec<&str> = page[from..].lines().take(4).collect();
    assert_eq!(lines[0], "passed         partition (2 runs)");
    assert!(lines[1].starts_with(
        "  live[mode=hold]  reference-table 0.1.0  x2; cut injected, healed after 2.0 s; recovered in 2.5 s"
    ));
    assert_eq!(lines[2], "passed         control (1 run)");
    assert!(
        lines[3].starts_with("  idle  reference-table 0.1.0  no fault"),
        "{}",
        lines[3]
    );
    assert!(!page.contains("the reader reported"), "{page}");
    let options = TextOptions {
        verbose: true,
        ..TextOptions::default()
    };
    assert!(text::render(&suite, options).contains("the reader reported"));
}

/// A member that joined in a step is no fault: it has nothing to prove, and its leaving is told as what it is.
#[test]
fn step_that_is_no_fault_says_how_it_was_undone() {
    let (mut entries, judgement) = stories::passed();
    let healed = |entry: &&mut Entry| matches!(entry.event, Event::Healed { .. });
    let cut = entries.iter_mut().find(healed).unwrap();
    let mut joined = cut.clone();
    joined.event = Event::Healed {
        fault: "joined".into(),
        proof: "member n1 has left".into(),
    };
    let after = usize::try_from(cut.n).unwrap() + 1;
    entries.insert(after, joined);
    for (n, entry) in (0..).zip(&mut entries) {
        entry.n = n;
    }
    let mut suite = stories::suite();
    suite.runs = vec![RunReport::from_history(entries, &judgement)];
    suite.count();
    let verbose = TextOptions {
        verbose: true,
        ..TextOptions::default()
    };
    let flat = |page: String| page.split_whitespace().collect::<Vec<_>>().join(" ");
    let (page, long) = (
        text::render(&suite, TextOptions::default()),
        text::render(&suite, verbose),
    );
    assert!(
        flat(page.clone()).contains("healed after 2.0 s; member n1 has left;"),
        "{page}"
    );
    assert!(flat(long.clone()).contains("joined: member n1 has left"), "{long}");
    assert!(!format!("{page}{long}{}", markdown::render(&suite)).contains("never injected"));
}

#[test]
fn reader_that_is_mostly_skipped_is_told_with_the_command_that_would_judge_it() {
    let mut suite = stories::suite();
    let skipped = suite
        .runs
        .iter()
        .find(|run| run.verdict == Verdict::Skipped)
        .unwrap()
        .clone();
    let mut passed = skipped.clone();
    passed.verdict = Verdict::Passed;
    passed.skipped = None;
    suite.runs = vec![skipped.clone(), skipped.clone(), passed.clone()];
    suite.command = "brokerfall run rebalance".into();
    let flat = |suite: &_| {
        let page = text::render(suite, TextOptions::default());
        page.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let wanted = "warning 2 of 3 runs of reference-group 0.1.0 were skipped; what would have 2 of them judged: run with --cluster process; then: brokerfall run rebalance --cluster process";
    assert!(flat(&suite).contains(wanted), "{}", flat(&suite));
    // Half is not over half.
    suite.runs = vec![skipped, passed];
    assert!(!flat(&suite).contains("warning"));
}
