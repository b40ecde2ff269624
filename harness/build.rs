//! Rebuilds the crate when a scenario is added: the embedding macro notices changed files, but not new ones.

#[expect(clippy::print_stdout, reason = "this is how a build script speaks to cargo")]
fn main() {
    println!("cargo:rerun-if-changed=scenarios");
    println!("cargo:rerun-if-changed=explain");
}
