//! What is tested from outside, but for the bundled readers alone (`readers/`) and what needs real services (`process/`,
//! `container/`, `toxiproxy/`). One binary,
//! so that it is linked once and the tests of all suites share the threads: `cargo test --test suites mutants::` runs
//! one suite.

mod bad_input;
mod bad_scenarios;
mod catalogue;
mod cluster_faults;
mod ground_truth;
mod host;
mod language;
mod mutants;
mod package;
mod provision;
mod python_readers;
mod python_sdk;
mod scenario_round_trip;
mod schema;
#[path = "../truth/mod.rs"]
#[expect(
    clippy::unwrap_used,
    reason = "helpers of tests: a panic fails the test, and nothing here is a product"
)]
mod truth;
