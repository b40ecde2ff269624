//! Strings of an adapter in every free text of the protocol, in file names and in stderr: no output obeys them.

use brokerfall_report::report::Report;

use super::bench::{BROKEN, Bench, Ended};

/// Characters that would act on a terminal or turn a line round.
fn acts(c: char) -> bool {
    (c.is_control() && c != '\n') || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{ffff}')
}

fn assert_tame(bench: &Bench, ended: &Ended) -> Report {
    assert!(!ended.stdout.contains(acts), "{:?}", ended.stdout);
    assert!(!ended.stderr.contains(acts), "{:?}", ended.stderr);
    // A faked verdict needs a line of its own.
    assert!(!ended.stdout.lines().any(|line| line.starts_with("fake: passed")));
    let folder = bench.invocation();
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let page = read("report.md");
    assert!(!page.contains(acts) && !page.contains("<script"), "{page}");
    assert!(!page.lines().any(|line| line.starts_with("# h")), "{page}");
    let columns = |line: &str| line.replace("\\|", "").matches('|').count();
    for table in page.split("\n\n").filter(|part| part.starts_with('|')) {
        let wanted = table.lines().next().map(columns);
        assert!(table.lines().all(|line| Some(columns(line)) == wanted), "{table}");
    }
    let junit = read("junit.xml");
    assert!(!junit.contains(acts), "{junit}");
    let parsed = quick_junit::Report::deserialize_from_str(&junit).unwrap();
    assert_eq!(parsed.test_suites.len(), 1);
    serde_json::from_str(&read("report.json")).unwrap()
}

#[test]
fn strings_of_an_adapter_are_shown_and_never_obeyed() {
    let bench = Bench::new();
    bench.reader("hostile", "group", &[BROKEN, "hostile"]);
    let ended = bench.run(Bench::arguments("control/idle", "hostile"));
    ended.assert_code(11).assert_calm().assert_says("\\x1b[31mred");
    let report = assert_tame(&bench, &ended);
    // In the file that programs read, the type is what the adapter sent, to the letter.
    let exception = &report.runs[0].exceptions[0].exception;
    assert!(
        exception.type_name.starts_with("\u{1b}[31mred\u{7}\u{202e}turned"),
        "{:?}",
        exception.type_name
    );
    assert!(
        ended.stdout.len() < 20_000,
        "a message of 100 kB is cut: {} bytes",
        ended.stdout.len()
    );
    bench.assert_clean();
}

#[test]
fn name_of_an_adapter_is_shown_and_never_obeyed() {
    let bench = Bench::new();
    let name = "\u{1b}[31m\u{202e}<script>|evil";
    std::os::unix::fs::symlink(BROKEN, bench.path(name)).unwrap();
    let adapter = format!("'./{name}' exits-before-hello");
    let ended = bench.run_adapter(&adapter);
    ended.assert_calm();
    assert_tame(&bench, &ended);
    bench.assert_clean();
}
