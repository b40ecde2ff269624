//! The pulse: tells a blocked reader from one that is paused, late to start, or gone.

/// Silence or loop age above this is a blocked reader.
const LIMIT_US: u64 = 2_000_000;

/// Signs of life of one reader. Time in which its process did not run does not count.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    /// Last sign of life, or the moment from which one was due; none before `hello`.
    last_us: Option<u64>,
    /// Loop ages count only between `started` and `stopped`.
    reading: bool,
    /// The process did not run until then; older loop ages are not the reader's doing.
    resumed_us: u64,
    blocked: bool,
}

/// A change to be recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// It is blocked since then, microseconds since the run was opened.
    Blocked(u64),
    /// It shows signs of life again.
    Unblocked,
}

impl Pulse {
    /// Heartbeats are due from now on.
    pub(super) fn hello(&mut self, now_us: u64) {
        self.last_us = Some(now_us);
    }

    /// The reader reads from now on, or (false) has ended.
    pub(super) fn reading(&mut self, reading: bool) {
        self.reading = reading;
    }

    /// A heartbeat was received.
    pub(super) fn beat(&mut self, now_us: u64, loop_age_ms: Option<f64>) -> Option<Change> {
        self.last_us = Some(now_us);
        let age_us = match loop_age_ms {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a float cast saturates, and a negative age is none"
            )]
            Some(age) if self.reading => (age * 1_000.0) as u64,
            _ => 0,
        };
        let since = now_us.saturating_sub(age_us).max(self.resumed_us.min(now_us));
        let stuck = now_us - since > LIMIT_US;
        match (stuck, self.blocked) {
            (true, false) => {
                self.blocked = true;
                Some(Change::Blocked(since))
            }
            (false, true) => {
                self.blocked = false;
                Some(Change::Unblocked)
            }
            _ => None,
        }
    }

    /// Looks at the silence. `runs` is asked only when it is too long: false when the process is stopped.
    pub(super) fn look(&mut self, now_us: u64, runs: impl FnOnce() -> bool) -> Option<Change> {
        let last = self.last_us?;
        if self.blocked || now_us.saturating_sub(last) <= LIMIT_US {
            return None;
        }
        if !runs() {
            self.resumed(now_us);
            return None;
        }
        self.blocked = true;
        Some(Change::Blocked(last))
    }

    /// The process did not run until now.
    pub(super) fn resumed(&mut self, now_us: u64) {
        self.resumed_us = now_us;
        if let Some(last) = self.last_us.as_mut() {
            *last = now_us;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;

    fn greeted() -> Pulse {
        let mut pulse = Pulse::default();
        pulse.hello(0);
        pulse
    }

    #[test]
    fn nothing_is_due_before_hello() {
        assert_eq!(Pulse::default().look(100 * S, || true), None);
    }

    #[test]
    fn silence_is_told_once_and_ends_with_a_heartbeat() {
        let mut pulse = greeted();
        pulse.beat(S, None);
        assert_eq!(pulse.look(3 * S, || true), None);
        assert_eq!(pulse.look(3 * S + 1, || true), Some(Change::Blocked(S)));
        assert_eq!(pulse.look(9 * S, || true), None);
        assert_eq!(pulse.beat(10 * S, None), Some(Change::Unblocked));
        assert_eq!(pulse.beat(11 * S, None), None);
    }

    #[test]
    fn stopped_process_is_not_blocked_and_starts_afresh() {
        let mut pulse = greeted();
        assert_eq!(pulse.look(5 * S, || false), None);
        assert_eq!(pulse.look(7 * S, || true), None);
        assert_eq!(pulse.look(7 * S + 1, || true), Some(Change::Blocked(5 * S)));
    }

    #[test]
    fn old_loop_is_blocked_although_heartbeats_come() {
        let mut pulse = greeted();
        pulse.reading(true);
        assert_eq!(pulse.beat(10 * S, Some(2_000.0)), None);
        assert_eq!(pulse.beat(11 * S, Some(3_000.0)), Some(Change::Blocked(8 * S)));
        assert_eq!(pulse.beat(12 * S, Some(4_000.0)), None);
        assert_eq!(pulse.beat(13 * S, Some(5.0)), Some(Change::Unblocked));
    }

    #[test]
    fn loop_age_counts_only_while_reading() {
        let mut pulse = greeted();
        assert_eq!(pulse.beat(10 * S, Some(9_000.0)), None);
        pulse.reading(true);
        assert_eq!(pulse.beat(10 * S, Some(9_000.0)), Some(Change::Blocked(S)));
    }

    #[test]
    fn loop_age_from_a_pause_is_not_the_readers_doing() {
        let mut pulse = greeted();
        pulse.reading(true);
        pulse.resumed(20 * S);
        assert_eq!(pulse.beat(20 * S + 250_000, Some(15_000.0)), None);
        assert_eq!(pulse.look(22 * S, || true), None);
        assert_eq!(pulse.beat(23 * S, Some(17_750.0)), Some(Change::Blocked(20 * S)));
    }

    #[test]
    fn senseless_loop_age_is_no_age() {
        let mut pulse = greeted();
        pulse.reading(true);
        assert_eq!(pulse.beat(S, Some(-5.0)), None);
        assert_eq!(pulse.beat(S, Some(1e300)), None);
        assert_eq!(pulse.beat(10 * S, Some(1e300)), Some(Change::Blocked(0)));
    }
}
