//! The JSON schema of scenario files: what is committed is what the program prints, every good file conforms to it, and
//! what it is for, a wrong word in an editor, is refused by it.

use std::path::{Path, PathBuf};

use brokerfall::scenario::{self, catalogue, schema};
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|cause| panic!("{}: {cause}", path.display()))
}

/// A TOML file as the JSON that a schema speaks of; `None` where it is no TOML.
fn json(text: &str) -> Option<Value> {
    serde_json::to_value(toml::from_str::<toml::Table>(text).ok()?).ok()
}

/// What the schema says against a file.
fn errors(text: &str) -> Vec<String> {
    let validator = jsonschema::draft202012::new(&schema::schema()).expect("the schema is sound");
    let file = json(text).expect("the file is TOML");
    validator
        .iter_errors(&file)
        .map(|error| format!("{} at {}", error, error.instance_path()))
        .collect()
}

/// Scenario files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the folder can be listed");
    let mut found = Vec::new();
    for path in entries.map(|entry| entry.expect("it can be listed").path()) {
        if path.is_dir() {
            if !path.ends_with("known-failing") && !path.ends_with("expected") {
                found.extend(files(&path));
            }
        } else if path.extension().is_some_and(|extension| extension == "toml") {
            found.push(path);
        }
    }
    found
}

#[test]
fn the_committed_schema_is_the_one_that_the_program_prints() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_brokerfall-under-test"))
        .args(["check", "--schema"])
        .output()
        .expect("the program starts");
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), schema::text_of_schema());
    assert!(
        read(&root().join("scenarios/schema.json")) == schema::text_of_schema(),
        "scenarios/schema.json is old (write it anew: cargo run -- check --schema > scenarios/schema.json)"
    );
}

#[test]
fn every_bundled_scenario_conforms() {
    let files = files(&root().join("scenarios"));
    assert!(files.len() > 40, "{} files", files.len());
    for path in files {
        assert_eq!(errors(&read(&path)), Vec::<String>::new(), "{}", path.display());
    }
    for plan in catalogue::plans().expect("the bundled scenarios are sound") {
        let text = plan.to_toml().expect("a plan can be written");
        assert_eq!(errors(&text), Vec::<String>::new(), "{text}");
    }
}

/// Bad files whose errors lie between keys or beyond a file, or that are no TOML: a schema cannot tell these.
const BEYOND: [&str; 23] = [
    "control-characters-in-names",
    "duplicate-key",
    "empty",
    "fence-member",
    "for-good",
    "heals-in-order",
    "heartbeat-above-session",
    "in-flight-kinds",
    "kind-group",
    "kind-none",
    "kind-table",
    "matrix-many",
    "matrix-one-bad-value",
    "matrix-unused",
    "never-in-kafka",
    "phase-catch-up-when-caught-up",
    "phase-commit-of-a-table",
    "phase-live-before-start",
    "quiet-rule",
    "repeat-names",
    "step-names",
    "syntax",
    "transaction-before",
];

#[test]
fn wrong_words_are_refused_by_the_schema_too() {
    let mut refused = Vec::new();
    for path in files(&root().join("tests/data/bad-scenarios")) {
        let name = path.file_stem().expect("it has a name").to_string_lossy().into_owned();
        if !BEYOND.contains(&name.as_str()) && json(&read(&path)).is_some() {
            assert_ne!(errors(&read(&path)), Vec::<String>::new(), "{name}");
            refused.push(name);
        }
    }
    assert!(refused.len() > 15, "{refused:?}");
}

/// Every example of the scenarios' README: whole files are checked as such, others where they belong.
#[test]
fn the_examples_of_the_readme_are_good_scenarios() {
    let readme = read(&root().join("scenarios/README.md"));
    let examples: Vec<&str> = readme
        .split("```toml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().expect("an example ends"))
        .collect();
    assert!(examples.len() >= 5, "{} examples", examples.len());
    for example in examples {
        let whole = if example.contains("format = 1") {
            example.to_owned()
        } else if example.contains("[[topic]]") {
            format!("format = 1\ntitle = \"t\"\n{example}")
        } else {
            let (top, tables) = example.split_at(example.find("[[").unwrap_or(example.len()));
            format!("format = 1\ntitle = \"t\"\n{top}[[topic]]\nname = \"orders\"\n{tables}")
        };
        if let Err(wrong) = scenario::load("scenarios/README.md", &whole).and_then(|scenario| scenario.plans()) {
            panic!("{wrong}\n{whole}");
        }
        assert_eq!(errors(&whole), Vec::<String>::new(), "{whole}");
    }
}
