//! Bundled and mutant readers as child processes, driven through the adapter protocol on mock clusters.
//!
//! A binary apart from `suites`, because its mock clusters live in this process and their brokers go down: see
//! `driver::broker_down` for what must not happen meanwhile.

mod bundled;
mod driver;
mod mutants;
mod stored;
