//! The adapter's clock on the run's clock.

/// Maps one adapter's `mono_ms` to microseconds since the run was opened.
///
/// A line is received some unknown time after it was stamped. The smallest difference seen is the best guess of the
/// offset between the clocks, so it is kept per incarnation; a time mapped with it is never later than the receipt.
#[derive(Debug, Default)]
pub(super) struct Clock {
    inc: u32,
    offset_us: Option<f64>,
}

impl Clock {
    /// When a line happened that was received at `received_us`.
    pub(super) fn map(&mut self, inc: u32, mono_ms: f64, received_us: u64) -> u64 {
        if inc != self.inc {
            self.inc = inc;
            self.offset_us = None;
        }
        let mono_us = mono_ms * 1_000.0;
        #[expect(clippy::cast_precision_loss, reason = "a run of 285 years would lose a microsecond")]
        let found = received_us as f64 - mono_us;
        let offset = self.offset_us.map_or(found, |known| known.min(found));
        self.offset_us = Some(offset);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float cast saturates: before the run is 0"
        )]
        let at_us = (mono_us + offset).round() as u64;
        at_us.min(received_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_receipt_does_not_move_an_event() {
        let mut clock = Clock::default();
        // The first line took 4 ms, the second 1 ms, the third 50 ms to arrive.
        assert_eq!(clock.map(1, 1_000.0, 14_000), 14_000);
        assert_eq!(clock.map(1, 1_100.0, 111_000), 111_000);
        assert_eq!(clock.map(1, 1_200.0, 260_000), 211_000);
    }

    #[test]
    fn each_incarnation_has_its_own_offset() {
        let mut clock = Clock::default();
        assert_eq!(clock.map(1, 0.0, 500), 500);
        assert_eq!(clock.map(1, 10.0, 20_000), 10_500);
        assert_eq!(clock.map(2, 20.0, 30_000), 30_000);
    }

    #[test]
    fn event_from_before_the_run_is_at_its_start() {
        let mut clock = Clock::default();
        clock.map(1, 1_000.0, 100);
        assert_eq!(clock.map(1, 1.0, 2_000), 0);
    }
}
