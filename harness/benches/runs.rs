//! x
fn main() {
    let _ = criterion::Criterion::default();
}
