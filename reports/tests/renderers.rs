//! What a person reads: snapshots of every renderer over the stories.

mod stories;

use brokerfall_report::render::text::TextOptions;
use brokerfall_report::render::{Palette, json, junit, markdown, text};
use brokerfall_report::report::RunReport;

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
        width: 110,
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
