//! What the tests of Brokerfall are made of: mutant readers here, suites under `tests/`.

pub mod mutants;
