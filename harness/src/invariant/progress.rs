//! Lag, standstill and ends at the time when the verdict is fixed: what the progress invariants share.

use brokerfall_report::verdict::{Behind, FailureKind};

use crate::history::facts::{Ended, Facts, HowEnded, Life, Reads, Usage};
use crate::history::limits::REQUESTS_PER_S;

/// CPU of a reader that stands still and yet works, in cores.
const HOT_CORES: f64 = 0.5;

/// A time in which the path was open, records waited, and the position of one partition stood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Standstill {
    /// `topic-partition`.
    pub(super) partition: String,
    /// From, microseconds.
    pub(super) from_us: u64,
    /// To, microseconds.
    pub(super) to_us: u64,
    /// Records waiting at its end.
    pub(super) lag: u64,
}

impl Standstill {
    /// How long.
    pub(super) fn len_us(&self) -> u64 {
        self.to_us.saturating_sub(self.from_us)
    }
}

/// Lag of one partition when the verdict was fixed.
pub(super) fn lag_of(facts: &Facts, topic: &str, partition: u32) -> u64 {
    let end = facts.end();
    let position = facts
        .partition(topic, partition)
        .and_then(|p| p.reads.position_before(end.n));
    let log_end = facts
        .log(topic, partition)
        .map_or(0, |log| facts.visible_at(log, end.us));
    facts.lag_at(topic, partition, position, log_end)
}

/// How far behind the patient was when its verdict was fixed.
pub(super) fn behind(facts: &Facts) -> Behind {
    let end = facts.end();
    let records = facts
        .planned_partitions()
        .iter()
        .fold(0u64, |sum, (topic, p)| sum.saturating_add(lag_of(facts, topic, *p)));
    Behind {
        records,
        seconds: end.us.saturating_sub(last_progress_us(facts)) as f64 / 1e6,
    }
}

/// When the patient last moved before its verdict was fixed; its birth where it never did.
pub(super) fn last_progress_us(facts: &Facts) -> u64 {
    let end = facts.end();
    let born = facts.lives().first().map_or(0, |life| life.born.us);
    facts
        .partitions()
        .filter_map(|(_, _, of)| moved_us(&of.reads, end.n))
        .max()
        .unwrap_or(born)
        .max(born)
}

/// When the position in a partition last rose, or a key of it was dropped, before event `n`.
fn moved_us(reads: &Reads, n: u64) -> Option<u64> {
    let rises = reads.marks.iter().enumerate().filter_map(|(i, mark)| {
        let before = i
            .checked_sub(1)
            .and_then(|i| reads.marks.get(i))
            .and_then(|mark| mark.position);
        (mark.position > before).then_some(mark.until)
    });
    rises
        .chain(reads.touched.iter().copied())
        .filter(|at| at.n < n)
        .map(|at| at.us)
        .max()
}

/// Whether a fault was still in force when the verdict was fixed.
pub(super) fn fault_in_force(facts: &Facts) -> bool {
    let end = facts.end();
    facts
        .faults()
        .all
        .iter()
        .any(|fault| fault.injecting.n < end.n && fault.healed.is_none_or(|healed| healed.n > end.n))
}

/// The ends of the patients, once all of them have ended by themselves before the verdict was fixed.
pub(crate) fn ends(facts: &Facts) -> Option<Vec<Ended<'_>>> {
    let end = facts.end();
    let patients = facts.patients();
    let ends: Option<Vec<_>> = patients
        .iter()
        .map(|&life| facts.life_ended(life, end.us).filter(|ended| ended.event < end.n))
        .collect();
    ends.filter(|ends| !ends.is_empty())
}

/// Whether all of these ends are honest.
pub(super) fn all_honest(ends: &[Ended<'_>]) -> bool {
    ends.iter().all(|ended| ended.how == HowEnded::Honest)
}

/// What the patients' ends are, for a sentence.
pub(super) fn ends_text(ends: &[Ended<'_>]) -> String {
    let texts: Vec<String> = ends
        .iter()
        .map(|ended| {
            let claims = if ended.claimed_after.is_some() {
                " and went on to claim that it is healthy"
            } else {
                ""
            };
            format!("{} {}{claims}", ended.member, ended.text)
        })
        .collect();
    texts.join("; ")
}

/// Kind of failure that these ends are.
pub(super) fn ends_kind(ends: &[Ended<'_>]) -> FailureKind {
    if ends.iter().any(|ended| ended.how == HowEnded::Silent) {
        FailureKind::Silent
    } else {
        FailureKind::Terminal
    }
}

/// Kind of failure of patients that have not all ended and did not do their work on these partitions since `since_us`.
pub(super) fn alive_kind(facts: &Facts, partitions: &[(&str, u32)], since_us: u64) -> FailureKind {
    let end = facts.end();
    let moved = |(topic, partition): &(&str, u32)| {
        let of = facts.partition(topic, *partition);
        of.and_then(|of| moved_us(&of.reads, end.n))
            .is_some_and(|us| us > since_us)
    };
    if is_hot(facts, since_us, end.us) {
        FailureKind::Hot
    } else if partitions.iter().any(moved) {
        FailureKind::Slow
    } else {
        FailureKind::Stuck
    }
}

/// Whether the patients used CPU or asked the brokers far beyond what standing still needs.
pub(super) fn is_hot(facts: &Facts, from_us: u64, to_us: u64) -> bool {
    let span_s = to_us.saturating_sub(from_us) as f64 / 1e6;
    if span_s < 1.0 {
        return false;
    }
    let cpu = facts.patients().into_iter().any(|life| {
        facts
            .lives()
            .get(life)
            .is_some_and(|life| cores(&life.usage, from_us, to_us).is_some_and(|(cores, _)| cores > HOT_CORES))
    });
    let requests = facts
        .wire()
        .windows
        .iter()
        .filter(|window| window.at.us > from_us && window.at.us <= to_us)
        .fold(0u64, |sum, window| {
            sum.saturating_add(window.total()).saturating_add(window.connects)
        });
    cpu || requests as f64 / span_s > REQUESTS_PER_S
}

/// Mean CPU use in cores between the first and the last sample inside a time, and the length between them in seconds.
pub(super) fn cores(samples: &[Usage], from_us: u64, to_us: u64) -> Option<(f64, f64)> {
    let (first, last, span_s) = covered(samples, from_us, to_us)?;
    let used_s = last.cpu_ms.checked_sub(first.cpu_ms)? as f64 / 1e3;
    Some((used_s / span_s, span_s))
}

/// The cores that a group waited for, over what [`cores`] covers: above 1 where several of its threads did. `None` where the
/// kernel does not count it.
pub(super) fn cores_waited_for(samples: &[Usage], from_us: u64, to_us: u64) -> Option<f64> {
    let (first, last, span_s) = covered(samples, from_us, to_us)?;
    Some(last.waited_ms?.checked_sub(first.waited_ms?)? as f64 / 1e3 / span_s)
}

/// The first and the last sample inside a time, and the length between them in seconds.
fn covered(samples: &[Usage], from_us: u64, to_us: u64) -> Option<(&Usage, &Usage, f64)> {
    let mut inside = samples
        .iter()
        .filter(|sample| sample.at.us >= from_us && sample.at.us <= to_us);
    let first = inside.next()?;
    let last = inside.next_back()?;
    let span_s = last.at.us.checked_sub(first.at.us).filter(|us| *us > 0)? as f64 / 1e6;
    Some((first, last, span_s))
}

/// Every standstill of the planned partitions before the verdict was fixed.
pub(super) fn standstills(facts: &Facts) -> Vec<Standstill> {
    let calm = facts.faults().calm(facts.end().us);
    let honest = |ended: &Ended<'_>| ended.how == HowEnded::Honest;
    let watched = spans(&calm, &alive(facts, |life| Some(life.born.us), honest));
    let mut all = Vec::new();
    for (topic, partition) in facts.planned_partitions() {
        for (from, to, lag) in still(facts, topic, partition) {
            all.extend(
                spans(&watched, &[(from, to)])
                    .into_iter()
                    .map(|(from_us, to_us)| Standstill {
                        partition: format!("{topic}-{partition}"),
                        from_us,
                        to_us,
                        lag,
                    }),
            );
        }
    }
    all
}

/// What two lists of times have in common; empty times are left out.
pub(super) fn spans(one: &[(u64, u64)], other: &[(u64, u64)]) -> Vec<(u64, u64)> {
    one.iter()
        .flat_map(|&(a, b)| other.iter().map(move |&(c, d)| (a.max(c), b.min(d))))
        .filter(|(from, to)| from < to)
        .collect()
}

/// When at least one reader was there that had neither been asked to stop nor come to an end that `frees` it. `from` says
/// when a life begins to count.
pub(super) fn alive(
    facts: &Facts,
    from: impl Fn(&Life) -> Option<u64>,
    frees: impl Fn(&Ended<'_>) -> bool,
) -> Vec<(u64, u64)> {
    let end = facts.end();
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for (index, life) in facts
        .lives()
        .iter()
        .enumerate()
        .filter(|(index, _)| !facts.is_cure(*index))
    {
        let asked = life.asked_to_stop.map(|at| at.us);
        let over = life.over.map(|at| at.us);
        let killed = life.exit.as_ref().filter(|exit| exit.asked).map(|exit| exit.at.us);
        let ended = facts.life_ended(index, end.us).filter(&frees).map(|ended| ended.at_us);
        let to = [asked, over, killed, ended, Some(end.us)].into_iter().flatten().min();
        if let (Some(from), Some(to)) = (from(life), to) {
            spans.push((from, to));
        }
    }
    spans.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (from, to) in spans {
        match merged.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => merged.push((from, to)),
        }
    }
    merged
}

/// Times in which records of one partition waited and its position did not rise, with the records waiting at the end.
fn still(facts: &Facts, topic: &str, partition: u32) -> Vec<(u64, u64, u64)> {
    let Some(of) = facts.partition(topic, partition) else {
        return Vec::new();
    };
    let end = facts.end();
    #[derive(Clone, Copy)]
    enum Change {
        End(u64),
        Position(Option<u64>),
        /// From here on it rises steadily, until it says where it is.
        Rising,
        Touched,
    }
    let mut changes: Vec<(u64, Change)> = Vec::new();
    let moves = of.log.bounds.iter().map(|bounds| bounds.at.us);
    let transactions = of.log.transactions().iter();
    let moves = moves.chain(
        transactions
            .flat_map(|one| [Some(one.begun.us), one.ended.map(|ended| ended.us)])
            .flatten(),
    );
    changes.extend(moves.map(|us| (us, Change::End(facts.visible_at(&of.log, us)))));
    for mark in &of.reads.marks {
        if mark.until > mark.at {
            changes.push((mark.at.us, Change::Rising));
        }
        changes.push((mark.until.us, Change::Position(mark.position)));
    }
    changes.extend(of.reads.touched.iter().map(|at| (at.us, Change::Touched)));
    changes.retain(|(us, _)| *us <= end.us);
    changes.sort_by_key(|(us, _)| *us);
    let (mut log_end, mut position, mut rising) = (0, None, false);
    let mut since: Option<(u64, u64)> = None;
    let mut still = Vec::new();
    for (us, change) in changes {
        let moved = match change {
            Change::End(to) => {
                log_end = to;
                false
            }
            Change::Position(to) => {
                let rose = to > position;
                (position, rising) = (to, false);
                rose
            }
            Change::Rising => {
                rising = true;
                true
            }
            Change::Touched => true,
        };
        let lag = facts.lag_at(topic, partition, position, log_end);
        if let Some((from, waiting)) = since.filter(|_| moved || lag == 0) {
            still.push((from, us, waiting));
            since = None;
        }
        since = match since {
            Some((from, _)) => Some((from, lag)),
            None => (lag > 0 && !rising).then_some((us, lag)),
        };
    }
    still.extend(since.map(|(from, lag)| (from, end.us, lag)));
    still
}
