//! The Rust side of adapter protocol v1: what a Rust adapter needs to speak it.
