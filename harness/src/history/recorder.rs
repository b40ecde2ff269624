//! The recorder: the one place that appends to a history, and the one clock of a run.

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use brokerfall_report::history::{Entry, Event};
use tokio::sync::{oneshot, watch};

use super::facts::Facts;

/// How often a waiter looks again when nothing is recorded: conditions may depend on time alone.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A history whose harness is killed lacks at most this much of its end, microseconds.
const FLUSH_EVERY_US: u64 = 200_000;

/// Appends events, stamps them, and keeps the facts of the run up to date. Clones share one history.
///
/// ```
/// # use brokerfall::history::recorder::Recorder;
/// use brokerfall_report::history::{Event, Stage};
/// let recorder = Recorder::new(None)?; // in memory; a run gives its `history.jsonl`
/// assert_eq!(recorder.record(Event::Stage(Stage::Starting)), 0);
/// assert_eq!(recorder.with(|facts| facts.stage()), Some(Stage::Starting));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Recorder {
    shared: Arc<Shared>,
}

struct Shared {
    origin: Instant,
    inner: Mutex<Inner>,
    changed: watch::Sender<u64>,
}

/// Looks at the facts; true when it has found what it looks for.
type Lookout = Box<dyn FnMut(&Facts) -> bool + Send>;

struct Inner {
    next: u64,
    facts: Facts,
    lookouts: Vec<Lookout>,
    file: Option<std::io::BufWriter<std::fs::File>>,
    flushed_us: u64,
    write_error: Option<Arc<std::io::Error>>,
    closed: bool,
}

impl Recorder {
    /// A recorder that appends to `path`; without a path the history lives in its facts only.
    ///
    /// # Errors
    /// The operating system's, when the file cannot be created.
    #[expect(clippy::disallowed_methods, reason = "the recorder owns the clock")]
    pub fn new(path: Option<&Path>) -> std::io::Result<Self> {
        let file = match path {
            Some(path) => Some(std::io::BufWriter::with_capacity(1 << 18, std::fs::File::create(path)?)),
            None => None,
        };
        let inner = Inner {
            next: 0,
            facts: Facts::default(),
            lookouts: Vec::new(),
            file,
            flushed_us: 0,
            write_error: None,
            closed: false,
        };
        Ok(Self {
            shared: Arc::new(Shared {
                origin: Instant::now(),
                inner: Mutex::new(inner),
                changed: watch::Sender::new(0),
            }),
        })
    }

    /// Microseconds since the run was opened.
    pub fn now_us(&self) -> u64 {
        u64::try_from(self.shared.origin.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Appends an event and returns its number. After `closed` nothing is appended: what was still on its way then, such as
    /// the answer to a write, belongs to no run.
    pub fn record(&self, event: Event) -> u64 {
        let mut guard = self.lock();
        let inner = &mut *guard;
        if inner.closed {
            return inner.next;
        }
        inner.closed = matches!(event, Event::Closed);
        // Stamped under the lock, so that numbers and times rise together.
        let entry = Entry {
            n: inner.next,
            at_us: self.now_us(),
            event,
        };
        inner.next += 1;
        if inner.write_error.is_none()
            && let Some(file) = inner.file.as_mut()
        {
            // The plan at once, because a history without it cannot be judged; stages, for whoever follows the file.
            let now = matches!(entry.event, Event::Opened(_) | Event::Stage(_));
            let due = now || entry.at_us.saturating_sub(inner.flushed_us) >= FLUSH_EVERY_US;
            let written = serde_json::to_writer(&mut *file, &entry)
                .map_err(std::io::Error::from)
                .and_then(|()| file.write_all(b"\n"))
                .and_then(|()| if due { file.flush() } else { Ok(()) });
            if due {
                inner.flushed_us = entry.at_us;
            }
            if let Err(cause) = written {
                inner.write_error = Some(Arc::new(cause));
            }
        }
        inner.facts.observe(&entry);
        let facts = &inner.facts;
        inner.lookouts.retain_mut(|lookout| !lookout(facts));
        drop(guard);
        self.shared.changed.send_replace(entry.n + 1);
        entry.n
    }

    /// Looks at the facts as they are now.
    pub fn with<T>(&self, look: impl FnOnce(&Facts) -> T) -> T {
        look(&self.lock().facts)
    }

    /// Looks at the facts after every single event, from now on, until `look` finds what it looks for. Unlike
    /// [`Recorder::wait_until`] it misses no moment between two events, however fast they come.
    pub fn lookout<T: Send + 'static>(
        &self,
        look: impl Fn(&Facts) -> Option<T> + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (found, receiver) = oneshot::channel();
        let mut found = Some(found);
        let mut lookout = move |facts: &Facts| match look(facts) {
            Some(what) => {
                // A receiver that is gone wants to know no more.
                let _ = found.take().map(|found| found.send(what));
                true
            }
            None => false,
        };
        let mut inner = self.lock();
        if !lookout(&inner.facts) {
            inner.lookouts.push(Box::new(lookout));
        }
        receiver
    }

    /// Number of the next event: a mark to count from.
    pub fn mark(&self) -> u64 {
        self.lock().next
    }

    /// Waits until `look` finds what it looks for, at most `within`; `None` when the time has passed.
    pub async fn wait_until<T>(&self, within: Duration, mut look: impl FnMut(&Facts) -> Option<T>) -> Option<T> {
        let mut changed = self.shared.changed.subscribe();
        let deadline = tokio::time::Instant::now() + within;
        loop {
            if let Some(found) = self.with(&mut look) {
                return Some(found);
            }
            if tokio::time::Instant::now() >= deadline {
                return None;
            }
            let next_look = deadline.min(tokio::time::Instant::now() + LOOK_AGAIN);
            // Either way the loop looks again; OK to drop the result, because the sender lives in `self`.
            let _ = tokio::time::timeout_at(next_look, changed.changed()).await;
        }
    }

    /// Resolves when the file can no longer be written; never while it can.
    pub async fn lost(&self) {
        let mut changed = self.shared.changed.subscribe();
        while self.lock().write_error.is_none() {
            // OK to drop the result, because the sender lives in `self`.
            let _ = changed.changed().await;
        }
    }

    /// Flushes the file. Returns the first error that any write met: a full disk must not pass for a short history.
    ///
    /// # Errors
    /// The operating system's.
    pub fn flush(&self) -> std::io::Result<()> {
        let mut inner = self.lock();
        // Every flush from then on says so: the history stays short.
        if let Some(cause) = &inner.write_error {
            return Err(std::io::Error::new(cause.kind(), cause.clone()));
        }
        match inner.file.as_mut() {
            Some(file) => file.flush(),
            None => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        crate::lock(&self.shared.inner)
    }
}

#[cfg(test)]
mod tests {
    use brokerfall_report::history::Stage;

    use super::*;

    #[test]
    fn nothing_comes_after_closed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.jsonl");
        let recorder = Recorder::new(Some(&path)).unwrap();
        recorder.record(Event::Stage(Stage::Closing));
        recorder.record(Event::Closed);
        let mark = recorder.mark();
        // An answer to a write that was on its way when the run was cut.
        recorder.record(Event::Quiet);
        recorder.flush().unwrap();
        assert_eq!(recorder.mark(), mark);
        let history = std::fs::read_to_string(&path).unwrap();
        assert!(
            history.lines().count() == 2 && history.ends_with("\"closed\"}\n"),
            "{history}"
        );
    }
}
