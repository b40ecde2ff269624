//! Load: what the oracle writes while steps run.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use super::records::Make;
use super::{Oracle, OracleError, PartitionKey};

/// Writers tick no faster than this; above it a tick writes several records.
const FASTEST_TICK: Duration = Duration::from_millis(10);

/// A background load. Dropping it stops it too, without waiting.
#[derive(Debug)]
#[must_use = "a load that is dropped stops"]
pub struct Load {
    stop: watch::Sender<bool>,
    writers: Vec<JoinHandle<Result<LoadTotals, OracleError>>>,
}

/// What a load wrote.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoadTotals {
    /// Records acknowledged.
    pub acked: u64,
    /// Records that are certainly not in the log.
    pub failed: u64,
    /// Records that may be in the log.
    pub maybe: u64,
}

impl Load {
    /// One writer per partition, each with its share of the rate, so that a broker that answers nothing holds up its own
    /// partitions only. A rate that is not above 0 writes nothing.
    pub(super) fn start(oracle: &Oracle, per_second: f64) -> Self {
        let (stop, stopped) = watch::channel(false);
        let keys = oracle.keys();
        let share = per_second / keys.len().max(1) as f64;
        let period = Duration::try_from_secs_f64(1.0 / share).unwrap_or(Duration::MAX);
        let writers = if per_second > 0.0 && period < Duration::MAX {
            keys.into_iter()
                .enumerate()
                .map(|(at, key)| {
                    // The writers take turns.
                    let offset = Duration::try_from_secs_f64(at as f64 / per_second).unwrap_or_default();
                    tokio::spawn(writer(oracle.clone(), key, share, period, offset, stopped.clone()))
                })
                .collect()
        } else {
            Vec::new()
        };
        Self { stop, writers }
    }

    /// Stops writing and waits until every record's fate is recorded: at once, unless a broker is stopped (SIGSTOP), which
    /// answers when it goes on; two minutes at most.
    ///
    /// # Errors
    /// [`OracleError::Task`] when a writer panicked.
    pub async fn stop(self) -> Result<LoadTotals, OracleError> {
        self.stop.send_replace(true);
        let mut totals = LoadTotals::default();
        for writer in self.writers {
            let wrote = writer.await.map_err(|source| OracleError::Task { source })??;
            totals.acked += wrote.acked;
            totals.failed += wrote.failed;
            totals.maybe += wrote.maybe;
        }
        Ok(totals)
    }
}

async fn writer(
    oracle: Oracle,
    key: PartitionKey,
    per_second: f64,
    period: Duration,
    offset: Duration,
    mut stopped: watch::Receiver<bool>,
) -> Result<LoadTotals, OracleError> {
    let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + offset, period.max(FASTEST_TICK));
    // The rate is an upper limit: what a stopped broker held up is not made up for in a burst.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let per_tick = per_second * ticks.period().as_secs_f64();
    let mut totals = LoadTotals::default();
    let mut due = 0.0;
    loop {
        tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => return Ok(totals),
            _ = ticks.tick() => {}
        }
        due += per_tick;
        // Half a record early rather than a tick late: per_tick is 1 for slow rates, give or take rounding.
        let count = (due + 0.5).floor();
        due -= count;
        if count < 1.0 {
            continue;
        }
        // No patience: a record that fails now is recorded as failed now, and the next tick brings another.
        let written = oracle
            .shared
            .write(key.clone(), count as u64, Make::default(), Duration::ZERO)
            .await?;
        totals.acked += written.ids.count();
        totals.failed += written.failed.count();
        totals.maybe += written.maybe.count();
    }
}
