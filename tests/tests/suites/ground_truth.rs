//! The harness on the mock cluster against what was measured by hand, as far as that cluster can show it.

use std::path::{Path, PathBuf};

use crate::truth::{On, Truth, assert_as_measured, by_reader, ktables_rows};

const TRUTH: &str = include_str!("../../data/ground-truth.toml");
/// The same of what was not measured but is said by the library's own source.
const SLEEP: &str = include_str!("../../data/sleep/expected.toml");

fn cache() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("brokerfall-cache")
}

fn mock(cache: &Path) -> On<'_> {
    On {
        cluster: "mock",
        jobs: "4",
        cache,
    }
}

#[test]
fn three_releases_of_ktables_end_and_come_back_as_measured_by_hand() {
    let truth: Truth = toml::from_str(TRUTH).unwrap();
    let cache = cache();
    assert_eq!(by_reader(&truth.row, |row| row.reader.starts_with("ktables@")).len(), 3);
    assert_as_measured(&ktables_rows(&truth, &cache), mock(&cache));
}

#[test]
fn two_releases_of_ktables_sleep_and_lose_the_network_as_their_source_says() {
    let truth: Truth = toml::from_str(SLEEP).unwrap();
    let cache = cache();
    assert_as_measured(&ktables_rows(&truth, &cache), mock(&cache));
}

#[test]
fn readers_with_the_bug_of_an_incident_and_without_it_end_and_come_back_as_measured_by_hand() {
    let truth: Truth = toml::from_str(TRUTH).unwrap();
    let cache = cache();
    let readers = by_reader(&truth.row, |row| !row.reader.starts_with("ktables@"));
    assert_eq!(readers.len(), 4);
    assert_as_measured(&readers, mock(&cache));
}
