//! What tests ask of the machine, outside any history: turns on it, processes, random moments.

use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Clusters of Kafka that the tests of one program start at a time: what two cores serve without starving anybody.
const TURNS: u32 = 2;

static FREE: Mutex<u32> = Mutex::new(TURNS);
static GIVEN_BACK: Condvar = Condvar::new();

/// The right to start brokers, until it is dropped.
#[must_use = "it is given back when it is dropped"]
#[derive(Debug)]
pub struct Turn(u32);

impl Turn {
    /// For a cluster at a time. Blocks until it is this test's turn, however many threads the tests have.
    pub fn one() -> Turn {
        Self::take(1)
    }

    /// For a test that itself runs several at a time.
    pub fn all() -> Turn {
        Self::take(TURNS)
    }

    fn take(count: u32) -> Turn {
        let free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = GIVEN_BACK
            .wait_while(free, |free| *free < count)
            .unwrap_or_else(PoisonError::into_inner);
        *free -= count;
        Turn(count)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *FREE.lock().unwrap_or_else(PoisonError::into_inner) += self.0;
        GIVEN_BACK.notify_all();
    }
}

/// Waits for at most `within`; returns whether it came true.
#[expect(
    clippy::disallowed_methods,
    reason = "what is looked at lies outside any history: processes, folders and containers of the machine"
)]
pub fn within(within: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + within;
    while !holds() {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// Another moment at every call, evenly spread up to `longest`.
pub fn moment(longest: Duration) -> Duration {
    // Seeded by the operating system for each of them.
    let random = RandomState::new().hash_one(longest) >> 11;
    longest.mul_f64(random as f64 / (1u64 << 53) as f64)
}

/// The command lines of a run's children that live: those that have its `TMPDIR`, which the harness gives all of them but the
/// watchdog. Started by a test with a folder of the run's own.
///
/// # Panics
/// When `/proc` cannot be read.
pub fn children(scratch: &Path) -> Vec<String> {
    let variable = format!("TMPDIR={}", scratch.display());
    let listing = std::fs::read_dir("/proc").expect("/proc is mounted");
    let folders = listing.flatten().map(|entry| entry.path());
    let of_run = folders.filter(|folder| {
        // OK to fail: it is no process, or it has ended.
        let environment = std::fs::read(folder.join("environ")).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|one| one == variable.as_bytes())
    });
    let lines = of_run.map(|folder| {
        let line = std::fs::read(folder.join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).replace('\0', " ").trim().to_owned()
    });
    lines.filter(|line| !line.is_empty()).collect()
}
