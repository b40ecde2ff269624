//! One direction of a connection: bytes read, cut into frames, and queued until they may be written.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::cure::{SyncGate, SyncTurn};
use super::cut::Way;
use super::exchange::Mark;
use super::frame::Frames;

/// Bytes queued at which no more is read.
const QUEUED: usize = 256 << 10;
/// Most frames that are written with one system call.
const TOGETHER: usize = 16;
/// Share of a second that a throttled lane may save up.
const BURST: u64 = 20;

/// One direction.
pub(super) struct Lane {
    pub(super) frames: Frames,
    queue: VecDeque<Chunk>,
    queued: usize,
    /// The source sent FIN.
    pub(super) ended: bool,
    /// FIN went on.
    pub(super) fin_sent: bool,
    /// What is queued ends in the middle of a response, and so will the connection.
    pub(super) severed: bool,
    bucket: Bucket,
    dice: Dice,
}

struct Chunk {
    bytes: Bytes,
    due: Option<Instant>,
    mark: Mark,
}

/// What a lane waits for.
#[derive(Debug, Default)]
pub(super) struct Wait {
    /// That its destination takes bytes.
    pub(super) writable: bool,
    /// That this instant comes.
    pub(super) until: Option<Instant>,
    /// That another member's SyncGroup goes up.
    pub(super) sync: bool,
    /// It waits after some bytes were written.
    pub(super) wrote: bool,
}

/// What a read came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read {
    Bytes,
    Nothing,
    Fin,
}

impl Lane {
    /// A lane that draws its jitter from `seed`.
    pub(super) fn new(seed: u64) -> Self {
        Lane {
            frames: Frames::default(),
            queue: VecDeque::new(),
            queued: 0,
            ended: false,
            fin_sent: false,
            severed: false,
            bucket: Bucket::default(),
            dice: Dice(seed),
        }
    }

    /// Whether it would take more bytes from its source.
    pub(super) fn is_hungry(&self) -> bool {
        !self.ended && !self.severed && self.queued < QUEUED
    }

    /// Whether bytes wait to be written.
    pub(super) fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether FIN is what goes on next.
    pub(super) fn is_at_fin(&self) -> bool {
        self.ended && !self.fin_sent && !self.has_queued()
    }

    /// Reads what is there, without waiting.
    pub(super) fn read(&mut self, from: &TcpStream) -> io::Result<Read> {
        match from.try_read_buf(self.frames.room()) {
            Ok(0) => {
                self.ended = true;
                Ok(Read::Fin)
            }
            Ok(len) => {
                self.frames.came(len);
                Ok(Read::Bytes)
            }
            Err(cause) if cause.kind() == ErrorKind::WouldBlock => Ok(Read::Nothing),
            Err(cause) => Err(cause),
        }
    }

    /// Queues bytes to be written.
    pub(super) fn push(&mut self, bytes: Bytes, way: &Way, mark: Mark) {
        if !bytes.is_empty() {
            self.queued += bytes.len();
            // A chunk that is due before the one ahead of it waits for that one: the queue keeps the order of bytes.
            let due = (way.delay > Duration::ZERO).then(|| Instant::now() + self.dice.around(way.delay, way.jitter));
            self.queue.push_back(Chunk { bytes, due, mark });
        }
    }

    /// Writes what may be written now, and says what the rest waits for.
    pub(super) fn write(&mut self, to: &TcpStream, way: &Way, sync: &SyncGate) -> io::Result<Wait> {
        let mut wait = Wait::default();
        while let Some(head) = self.queue.front_mut() {
            if let Mark::Leader(leader) = &head.mark {
                match sync.turn(leader) {
                    SyncTurn::At(instant) => {
                        head.due = head.due.max(Some(instant));
                        head.mark = Mark::None;
                    }
                    SyncTurn::NotYet(latest) => {
                        wait.until = Some(latest);
                        wait.sync = true;
                        return Ok(wait);
                    }
                }
            }
            // The clock is asked only where time matters.
            if let Some(due) = head.due
                && Instant::now() < due
            {
                wait.until = Some(due);
                return Ok(wait);
            }
            let allowed = self.bucket.allows(way.bytes_per_s, head.bytes.len());
            if allowed == 0 {
                wait.until = self.bucket.next(way.bytes_per_s, head.bytes.len());
                return Ok(wait);
            }
            let written = if way.bytes_per_s.is_none() {
                self.write_together(to)
            } else {
                to.try_write(&head.bytes[..allowed])
            };
            match written {
                Ok(written) => {
                    wait.wrote = true;
                    self.bucket.take(written);
                    self.wrote(written, sync);
                }
                Err(cause) if cause.kind() == ErrorKind::WouldBlock => {
                    wait.writable = true;
                    return Ok(wait);
                }
                Err(cause) => return Err(cause),
            }
        }
        Ok(wait)
    }

    /// Writes the head and what follows it and waits for nothing: small frames cost a system call each otherwise.
    fn write_together(&self, to: &TcpStream) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); TOGETHER];
        let mut count = 0;
        for (slice, chunk) in slices.iter_mut().zip(&self.queue) {
            // The head was looked at: that it is due has come.
            if count > 0 && (chunk.due.is_some() || matches!(chunk.mark, Mark::Leader(_))) {
                break;
            }
            *slice = IoSlice::new(&chunk.bytes);
            count += 1;
        }
        to.try_write_vectored(&slices[..count])
    }

    /// Forgets what was written.
    fn wrote(&mut self, mut written: usize, sync: &SyncGate) {
        self.queued -= written;
        while let Some(head) = self.queue.front_mut() {
            let part = written.min(head.bytes.len());
            head.bytes.advance(part);
            written -= part;
            if !head.bytes.is_empty() {
                return;
            }
            if let Mark::Follower {
                group,
                generation,
                member,
            } = &head.mark
            {
                sync.follower_went_up(group, *generation, member);
            }
            self.queue.pop_front();
        }
    }
}

/// A token bucket, filled from the moment in which a throttle is first met.
#[derive(Default)]
struct Bucket {
    tokens: f64,
    filled: Option<Instant>,
}

impl Bucket {
    /// How many of `wanted` bytes may be written now.
    fn allows(&mut self, bytes_per_s: Option<u64>, wanted: usize) -> usize {
        let Some(rate) = bytes_per_s else {
            *self = Bucket::default();
            return wanted;
        };
        let now = Instant::now();
        let since = self.filled.replace(now).unwrap_or(now);
        let most = (rate / BURST).max(1);
        let (rate, most) = (rate as f64, most as f64);
        self.tokens = (self.tokens + rate * (now - since).as_secs_f64()).min(most);
        let whole = self.tokens as usize;
        // Not every byte as it comes in: a lane of 1 MB/s would then write single bytes for ever and let nobody else run.
        if whole < wanted.min(share(rate) as usize) {
            return 0;
        }
        whole.min(wanted)
    }

    /// When so many bytes may be written, or a share of them.
    fn next(&self, bytes_per_s: Option<u64>, wanted: usize) -> Option<Instant> {
        let rate = bytes_per_s? as f64;
        let wanted = (share(rate).min(wanted as f64) - self.tokens) / rate;
        Some(Instant::now() + Duration::from_secs_f64(wanted.max(0.001)))
    }

    fn take(&mut self, bytes: usize) {
        if self.filled.is_some() {
            let bytes = bytes as f64;
            self.tokens -= bytes;
        }
    }
}

/// What is written at least at a time where there is as much, bytes: half a burst, one where the lane is that slow.
fn share(rate: f64) -> f64 {
    (rate / BURST as f64 / 2.0).max(1.0)
}

/// Draws that a seed decides (SplitMix64).
struct Dice(u64);

impl Dice {
    /// Evenly from `by` less `jitter` to `by` more `jitter`, never below zero.
    fn around(&mut self, by: Duration, jitter: Duration) -> Duration {
        if jitter.is_zero() {
            return by;
        }
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        // 53 bits are what a float holds: from 0 up to and without 1.
        let share = (bits >> 11) as f64 / (1u64 << 53) as f64;
        (by + jitter.mul_f64(2.0 * share)).saturating_sub(jitter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttle_waits_for_a_share_of_its_burst_however_fast_it_is() {
        let mut bucket = Bucket::default();
        // Nanoseconds later a lane this fast has many bytes already, and still far from a share.
        let rate = 1_000_000_000_000;
        let (most, share) = ((rate / BURST) as usize, (rate / BURST / 2) as usize);
        assert_eq!(bucket.allows(Some(rate), most), 0, "it starts empty");
        assert_eq!(bucket.allows(Some(rate), most), 0);
        assert!(bucket.next(Some(rate), most).is_some());
        bucket.tokens = share as f64;
        assert!(bucket.allows(Some(rate), most) >= share);
        bucket.take(share);
        bucket.tokens = 10.0;
        assert_eq!(
            bucket.allows(Some(rate), 10),
            10,
            "what is less than a share needs none"
        );
    }

    #[test]
    fn jitter_stays_in_its_range_spreads_over_it_and_is_the_same_for_the_same_seed() {
        let (by, jitter) = (Duration::from_millis(50), Duration::from_millis(20));
        let draws = |seed| {
            let mut dice = Dice(seed);
            (0..1_000).map(|_| dice.around(by, jitter)).collect::<Vec<_>>()
        };
        let drawn = draws(7);
        assert!(drawn.iter().all(|drawn| *drawn >= by - jitter && *drawn <= by + jitter));
        // Each tenth of the range holds 100 of 1,000 on average; five deviations are 47.
        for tenth in 0..10 {
            let from = by - jitter + jitter / 5 * tenth;
            let within = drawn
                .iter()
                .filter(|drawn| **drawn >= from && **drawn < from + jitter / 5)
                .count();
            assert!((53..=147).contains(&within), "{within} in tenth {tenth}");
        }
        assert_eq!(drawn, draws(7));
        assert_ne!(drawn, draws(8));
        assert_eq!(Dice(7).around(by, Duration::ZERO), by);
        assert!(Dice(7).around(Duration::ZERO, jitter) <= jitter);
    }
}
