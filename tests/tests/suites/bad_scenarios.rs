//! Every file of `data/bad-scenarios` is refused, with a message that a person can act on: one snapshot each.

use std::fs;
use std::path::Path;

use brokerfall::scenario;

#[test]
fn bad_scenario_files_are_refused_with_place_and_nearest_word() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/bad-scenarios");
    let mut paths: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    paths.sort();
    assert!(!paths.is_empty());
    for path in paths {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        match scenario::load(&format!("{name}.toml"), &text).and_then(|scenario| scenario.plans()) {
            Ok(_) => panic!("{name}.toml was accepted"),
            Err(wrong) => insta::assert_snapshot!(name, wrong.to_string()),
        }
    }
}
