//! Strings of readers, brokers and files are data: whatever they hold, no output obeys them.

use brokerfall_report::render::text::TextOptions;
use brokerfall_report::render::{json, junit, markdown, text};
use brokerfall_report::report::Report;
use proptest::prelude::*;
use quick_xml::events::Event;
use serde_json::Value;

use crate::stories;

/// Fields that hold words of the format and not of others.
const WORDS: [&str; 16] = [
    "phase",
    "verdict",
    "kind",
    "error_of",
    "failure_kind",
    "asked",
    "reached",
    "grade",
    "wanted",
    "renewed",
    "stage",
    "whose",
    "by",
    "outcome",
    "relation",
    "of",
];

/// The suite of all stories, with every string that others wrote replaced by `hostile`.
fn poisoned(hostile: &str) -> Report {
    let mut report = serde_json::to_value(stories::suite()).unwrap();
    poison(&mut report, hostile);
    serde_json::from_value(report).unwrap()
}

fn poison(value: &mut Value, hostile: &str) {
    match value {
        Value::String(text) => *text = hostile.to_owned(),
        Value::Array(items) => items.iter_mut().for_each(|item| poison(item, hostile)),
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                // Origin is a free word in a limit and one of the format in an exception.
                let word = WORDS.contains(&name.as_str()) || name == "origin";
                if !(word && field.is_string()) {
                    poison(field, hostile);
                }
            }
            if fields.contains_key("attributes") {
                fields["attributes"][hostile] = hostile.into();
            }
        }
        _ => {}
    }
}

fn acts(c: char) -> bool {
    let bidi_or_hidden =
        matches!(u32::from(c), 0x200B..=0x200F | 0x2028..=0x202E | 0x2060..=0x206F | 0xFEFF | 0xE0000..=0xE007F);
    (c.is_control() && c != '\n') || bidi_or_hidden
}

/// Every character that XML 1.0 allows.
fn is_xml(c: char) -> bool {
    matches!(u32::from(c), 0x9 | 0xA | 0xD | 0x20..=0xD7FF | 0xE000..=0xFFFD | 0x10000..=0x10FFFF)
}

fn check(hostile: &str) -> Result<(), TestCaseError> {
    let report = poisoned(hostile);

    let terminal = text::render(&report, TextOptions::default());
    let offender = terminal.lines().find(|line| line.contains(acts));
    prop_assert_eq!(offender, None, "terminal");

    let page = markdown::render(&report);
    let offender = page.lines().find(|line| line.contains('<') || line.contains(acts));
    prop_assert_eq!(offender, None, "Markdown");
    // The text may differ, the structure must not: as many lines, cells and headings as with a harmless word.
    let harmless = markdown::render(&poisoned("x"));
    for ((line, found), wanted) in page.lines().zip(structure(&page)).zip(structure(&harmless)) {
        prop_assert_eq!(found, wanted, "Markdown line {}", line);
    }
    prop_assert_eq!(page.lines().count(), harmless.lines().count());

    let xml = junit::render(&report).unwrap();
    prop_assert_eq!(xml.chars().find(|c| !is_xml(*c)), None, "JUnit");
    let mut reader = quick_xml::Reader::from_str(&xml);
    let mut cases = 0;
    loop {
        match reader.read_event() {
            Ok(Event::Eof) => break,
            Ok(Event::Start(tag) | Event::Empty(tag)) => {
                cases += u32::from(tag.name().as_ref() == b"testcase");
                for attribute in tag.attributes() {
                    let attribute = attribute.map_err(|cause| TestCaseError::fail(cause.to_string()))?;
                    let value = attribute.normalized_value(quick_xml::XmlVersion::Implicit1_0);
                    prop_assert!(value.is_ok(), "JUnit attribute {attribute:?}");
                }
            }
            Ok(_) => {}
            Err(cause) => return Err(TestCaseError::fail(format!("JUnit: {cause}"))),
        }
    }
    prop_assert_eq!(cases, 9);

    // JSON keeps every string whole.
    prop_assert_eq!(json::parse(&json::render(&report).unwrap()).unwrap(), report);
    Ok(())
}

/// What each line opens, and how many cells it has.
fn structure(page: &str) -> Vec<(String, usize)> {
    page.lines()
        .map(|line| {
            let opens = line.find(|c| !"#-|* ".contains(c)).unwrap_or(line.len());
            let mut escaped = false;
            let pipes = line.chars().filter(|c| {
                let bare = *c == '|' && !escaped;
                escaped = *c == '\\' && !escaped;
                bare
            });
            (line[..opens].trim_end().to_owned(), pipes.count())
        })
        .collect()
}

#[test]
fn known_tricks_do_not_act() {
    for hostile in [
        "\x1b[2J\x1b]0;title\x07x",
        "x\u{202e}drowssap\u{2066}",
        "a\u{200b}b\u{feff}",
        "a\r\n# heading\n\n- item\n\n| cell |",
        "x | y || \\| z",
        "<script>alert(1)</script><!-- -->",
        "![x](http://127.0.0.1/a.png) [y](javascript:z) https://example.org www.example.org <http://x>",
        "```\nfence\n``` ` `` x",
        "]]></system-out><failure/>&amp;&#0;&bogus;",
        "\u{0}\u{1}\u{fffe}\u{ffff}\u{85}x",
        "**bold** __x__ ~~y~~ $z$ &nbsp;",
        "- x",
        "1. x",
        "    x",
        "--- x",
        "é\u{301}漢字 x",
    ] {
        check(hostile).unwrap_or_else(|cause| panic!("{hostile:?}: {cause}"));
    }
}

#[test]
fn long_messages_are_cut_for_people_and_kept_in_json() {
    let report = poisoned(&"long ".repeat(2_000));
    let terminal = text::render(&report, TextOptions::default());
    // A path and a command stay whole, because they are there to be copied.
    let copied = |line: &&str| line.starts_with("  files ") || line.starts_with("  again ");
    let longest = terminal.lines().filter(|line| !copied(line)).map(str::len).max();
    assert!(longest < Some(800), "{longest:?}");
    assert!(json::render(&report).unwrap().len() > 500_000);
}

proptest! {
    // A case renders eight runs three times; failing ones are shrunk and belong in the list above, not in a file.
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_string_acts_in_any_output(hostile in "(\\PC|[\\x00-\\x1f\\x7f-\\x9f\u{200b}-\u{206f}]|[-#|`*_\\[\\]()<>&!~\\\\\"': \\n]){0,24}x") {
        check(&hostile)?;
    }
}
