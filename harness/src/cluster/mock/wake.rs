//! Wakes the mock cluster's thread while it has an operation to carry out.
//!
//! librdkafka 2.12 can lose a wake-up: its thread serves the queue of operations first and then reads every wake-up byte
//! away, that of an operation which came in between included. That operation waits until the thread's poll ends, a whole
//! second later: 6 of 75 runs lost one, on a machine with both cores busy. Anything else that becomes ready ends the poll
//! too, and so does a connection to one of its brokers.

use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// An operation takes microseconds; one that takes this long waits for a wake-up.
const LATE: Duration = Duration::from_millis(5);

/// The waking thread; it lives as long as the process.
pub(super) struct Waker {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    waits: Mutex<bool>,
    changed: Condvar,
}

impl Waker {
    /// Starts the thread for the cluster with these brokers.
    pub(super) fn start(brokers: Vec<SocketAddr>) -> Waker {
        let shared = Arc::<Shared>::default();
        let seen = Arc::clone(&shared);
        std::thread::spawn(move || seen.watch(&brokers));
        Waker { shared }
    }

    /// Has an operation carried out that hands something to the cluster's thread and waits for it.
    pub(super) fn hand_over<T>(&self, operation: impl FnOnce() -> T) -> T {
        self.shared.set(true);
        let result = operation();
        self.shared.set(false);
        result
    }
}

impl Shared {
    fn set(&self, waits: bool) {
        *self.lock() = waits;
        self.changed.notify_one();
    }

    fn watch(&self, brokers: &[SocketAddr]) {
        loop {
            let idle = self.changed.wait_while(self.lock(), |waits| !*waits);
            let waits = idle.unwrap_or_else(PoisonError::into_inner);
            let late = self.changed.wait_timeout_while(waits, LATE, |waits| *waits);
            let (waits, late) = late.unwrap_or_else(PoisonError::into_inner);
            drop(waits);
            if late.timed_out() {
                for broker in brokers {
                    // OK to drop the result: a broker that is down refuses, and the next one is asked.
                    let _ = TcpStream::connect_timeout(broker, LATE);
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
