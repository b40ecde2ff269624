//! Rebuilds the crate when a scenario is added: the embedding macro notices changed files, but not new ones.

fn main() {
    println!("cargo:rerun-if-changed=scenarios");
}
