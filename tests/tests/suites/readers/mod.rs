//! Bundled and mutant readers as child processes, driven through the adapter protocol on mock clusters.

mod bundled;
mod driver;
mod mutants;
mod stored;
