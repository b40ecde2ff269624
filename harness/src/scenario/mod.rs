//! Scenarios: TOML files, checked and expanded into plans. No I/O below [`plan`]; no clock anywhere.

pub mod duration;
pub mod plan;
