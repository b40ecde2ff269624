//! Child processes: one spawning thread, process groups, the watchdog.
//!
//! ```text
//! Spawner (one OS thread) --spawn--> Child (own process group, environment by allow-list, marked)
//!        |                             |
//!        +--`track PID`--> watchdog ---+-- on EOF (the harness is gone, however): SIGKILL of all that is left
//! ```
//!
//! Everything that the spawner starts carries the variable [`MARK`], so that a grandchild which left its process group
//! (`setsid`) is still found. The mock cluster's child and helpers of provisioning start themselves and are only tracked. `PR_SET_PDEATHSIG` is deliberately not used: it fires when the spawning *thread* ends and
//! misses grandchildren. Reading `/proc` is Linux only; elsewhere groups are killed but not inspected.

mod group;
mod hosts;
pub mod proc;
mod spawn;
pub mod watchdog;

pub use group::Group;
pub use hosts::Hosts;
pub use spawn::{Child, SpawnError, Spawner, Spec, output};

/// Environment variable that marks a child and everything below it. Its value is unique to the child.
pub const MARK: &str = "BROKERFALL_RUN";
