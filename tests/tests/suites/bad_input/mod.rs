//! The real binary against everything that is wrong around it: adapters, arguments, disks, signals, strings, ports.
//!
//! Each test has a bench of its own: a folder for output, manifests and temporary files. What a test started is known by
//! the `TMPDIR` that it inherited, so that a bench can say that nothing is left of it.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must say where")]

mod adapters;
mod arguments;
mod begin;
mod bench;
mod claims;
mod disks;
mod outputs;
mod resume;
mod settings;
mod signals;
mod stored;
mod strings;
