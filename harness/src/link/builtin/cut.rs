//! Cuts as connections see them: all cuts in force on a broker composed into one [`Control`].

use std::time::Duration;

use crate::link::{Cut, CutMode, Direction};

/// What is in force on the connections of one broker.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Control {
    /// Rises with every change; a connection tells which one it has seen.
    pub(super) version: u64,
    /// Connections of an earlier epoch are reset.
    pub(super) epoch: u64,
    /// New connections are reset too.
    pub(super) resets: bool,
    /// Connects are refused.
    pub(super) refuses: bool,
    /// Connections may have to be cut in the middle of a response.
    pub(super) severs: bool,
    /// The version with which the latest hold came in force: each is recorded for itself.
    pub(super) hold: u64,
    /// What the reader sends.
    pub(super) up: Way,
    /// What the broker answers.
    pub(super) down: Way,
}

/// What is in force in one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Way {
    /// Nothing is read or written.
    pub(super) held: bool,
    /// At most this many bytes a second.
    pub(super) bytes_per_s: Option<u64>,
    /// Each chunk waits this long, more or less.
    pub(super) delay: Duration,
    /// How much more or less.
    pub(super) jitter: Duration,
}

impl Control {
    /// Composes cuts: holds and resets add up, the smallest throttle counts, delays and jitters sum up.
    pub(super) fn compose<'a>(version: u64, epoch: u64, hold: u64, cuts: impl Iterator<Item = &'a Cut>) -> Self {
        let mut control = Control {
            version,
            epoch,
            hold,
            ..Control::default()
        };
        for cut in cuts {
            match cut.mode {
                CutMode::Reset => control.resets = true,
                CutMode::Refuse => control.refuses = true,
                CutMode::MidResponse { .. } => control.severs = true,
                CutMode::Hold | CutMode::Throttle { .. } | CutMode::Delay { .. } => {
                    if cut.direction != Direction::ToReader {
                        control.up.add(cut.mode);
                    }
                    if cut.direction != Direction::ToBroker {
                        control.down.add(cut.mode);
                    }
                }
            }
        }
        control
    }

    /// Whether a connection of `epoch` has to end.
    pub(super) fn kills(&self, epoch: u64) -> bool {
        self.epoch > epoch || self.resets || self.refuses
    }

    /// Whether anything is held.
    pub(super) fn holds(&self) -> bool {
        self.up.held || self.down.held
    }
}

impl Way {
    /// Whether bytes pass later than they could.
    pub(super) fn slows(&self) -> bool {
        self.bytes_per_s.is_some() || self.delay > Duration::ZERO
    }

    fn add(&mut self, mode: CutMode) {
        match mode {
            CutMode::Hold => self.held = true,
            CutMode::Throttle { bytes_per_s } => {
                let slowest = self.bytes_per_s.map_or(bytes_per_s, |now| now.min(bytes_per_s));
                self.bytes_per_s = Some(slowest.max(1));
            }
            CutMode::Delay { by, jitter } => {
                self.delay += by;
                self.jitter += jitter;
            }
            CutMode::Reset | CutMode::Refuse | CutMode::MidResponse { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{Connects, CutHeal};

    fn cut(mode: CutMode, direction: Direction) -> Cut {
        Cut {
            nodes: vec![1],
            mode,
            direction,
            heals: CutHeal::Keep,
            connects: Connects::Accepted,
        }
    }

    #[test]
    fn overlapping_cuts_compose_per_direction() {
        let (by, jitter) = (Duration::from_millis(30), Duration::from_millis(10));
        let cuts = [
            cut(CutMode::Hold, Direction::ToBroker),
            cut(CutMode::Throttle { bytes_per_s: 500 }, Direction::Both),
            cut(CutMode::Throttle { bytes_per_s: 100 }, Direction::ToReader),
            cut(CutMode::Delay { by, jitter }, Direction::Both),
            cut(CutMode::Delay { by, jitter }, Direction::ToReader),
        ];
        let control = Control::compose(1, 0, 1, cuts.iter());
        let up = Way {
            held: true,
            bytes_per_s: Some(500),
            delay: by,
            jitter,
        };
        let down = Way {
            held: false,
            bytes_per_s: Some(100),
            delay: by * 2,
            jitter: jitter * 2,
        };
        assert_eq!((control.up, control.down), (up, down));
        assert!(control.holds() && !control.kills(0));
    }

    #[test]
    fn reset_and_refuse_end_connections_of_any_epoch() {
        for mode in [CutMode::Reset, CutMode::Refuse] {
            let control = Control::compose(1, 4, 0, [cut(mode, Direction::Both)].iter());
            assert!(control.kills(4), "{mode:?}");
        }
        let healed = Control::compose(2, 4, 0, [].iter());
        assert!(healed.kills(3) && !healed.kills(4));
    }
}
