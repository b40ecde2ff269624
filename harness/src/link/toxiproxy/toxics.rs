//! Cuts as Toxiproxy has them: all cuts in force on a broker composed into one state of its proxy.
//!
//! ```text
//! hold, heals keep    bandwidth 0 KB/s: what came is kept and goes on when the toxic is removed
//! hold, heals reset   timeout 0: what comes is dropped, and Toxiproxy closes the connections when the toxic is removed
//! throttle            bandwidth        delay   latency
//! reset               reset_peer on new connections; live ones are closed by disabling the proxy for a moment
//! refuse, dead broker the proxy is disabled
//! ```
//!
//! A proxy has at most one toxic of each kind and stream, since the client crate cannot name them: overlapping cuts add up
//! here. Deliberately not here: doing it (`super`), and what Toxiproxy cannot do (`scenario/needs.rs`).

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::link::{Cut, CutHeal, CutMode, Direction};

/// Bytes in what Toxiproxy calls a kilobyte.
pub(crate) const KILOBYTE: u64 = 1_000;

/// A direction of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    /// What the reader sends.
    Upstream,
    /// What the broker answers.
    Downstream,
}

/// What a toxic does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// At most so many bytes a second.
    Bandwidth,
    /// Bytes come later.
    Latency,
    /// New connections are reset once something is sent on them.
    ResetPeer,
    /// Bytes are dropped; removing it closes the connections.
    Timeout,
}

/// A toxic of a proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toxic {
    /// What it does.
    pub kind: Kind,
    /// To which direction.
    pub stream: Stream,
    /// Its settings as Toxiproxy names them, in milliseconds and kilobytes (of 1,000 bytes) a second.
    pub attributes: BTreeMap<String, u32>,
}

/// The state of a proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// It listens.
    pub enabled: bool,
    /// Its toxics, upstream first, each direction by kind.
    pub toxics: Vec<Toxic>,
}

impl Stream {
    /// As Toxiproxy names it.
    pub fn name(self) -> &'static str {
        match self {
            Stream::Upstream => "upstream",
            Stream::Downstream => "downstream",
        }
    }

    /// The streams that a cut of this direction works on.
    pub(super) fn of(direction: Direction) -> &'static [Stream] {
        match direction {
            Direction::Both => &[Stream::Upstream, Stream::Downstream],
            Direction::ToBroker => &[Stream::Upstream],
            Direction::ToReader => &[Stream::Downstream],
        }
    }
}

impl Kind {
    /// As Toxiproxy names it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Bandwidth => "bandwidth",
            Kind::Latency => "latency",
            Kind::ResetPeer => "reset_peer",
            Kind::Timeout => "timeout",
        }
    }
}

impl Toxic {
    /// A toxic with these settings.
    pub fn new(kind: Kind, stream: Stream, attributes: &[(&str, u32)]) -> Self {
        Toxic {
            kind,
            stream,
            attributes: attributes.iter().map(|&(key, value)| (key.to_owned(), value)).collect(),
        }
    }

    /// The name that the client crate gives it.
    pub fn name(&self) -> String {
        format!("{}_{}", self.kind.name(), self.stream.name())
    }

    /// One of its settings; 0 where it has none of that name.
    pub(super) fn attribute(&self, key: &str) -> u32 {
        self.attributes.get(key).copied().unwrap_or_default()
    }
}

/// `bandwidth_upstream (rate 0)`.
impl fmt::Display for Toxic {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings: Vec<String> = self
            .attributes
            .iter()
            .map(|(key, value)| format!("{key} {value}"))
            .collect();
        write!(out, "{} ({})", self.name(), settings.join(", "))
    }
}

/// `enabled, without a toxic`.
impl fmt::Display for State {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(if self.enabled { "enabled" } else { "disabled" })?;
        match self.toxics.as_slice() {
            [] => out.write_str(", without a toxic"),
            toxics => {
                let toxics: Vec<String> = toxics.iter().map(Toxic::to_string).collect();
                write!(out, ", with {}", toxics.join(" and "))
            }
        }
    }
}

impl State {
    /// What a proxy is to be while these cuts are in force; `is_dead` while its broker is not to be reached.
    pub(super) fn compose<'a>(is_dead: bool, cuts: impl Iterator<Item = &'a Cut> + Clone) -> Self {
        let refuses = cuts.clone().any(|cut| cut.mode == CutMode::Refuse);
        let streams = [Stream::Upstream, Stream::Downstream];
        let toxics = streams
            .into_iter()
            .flat_map(|stream| of_stream(stream, cuts.clone()))
            .collect();
        State {
            enabled: !is_dead && !refuses,
            toxics,
        }
    }

    /// The toxic of this kind and stream, where it has one.
    pub(super) fn toxic(&self, like: &Toxic) -> Option<&Toxic> {
        self.toxics
            .iter()
            .find(|toxic| (toxic.kind, toxic.stream) == (like.kind, like.stream))
    }
}

/// Holds count before throttles, the smallest throttle counts, delays and jitters add up.
fn of_stream<'a>(stream: Stream, cuts: impl Iterator<Item = &'a Cut>) -> Vec<Toxic> {
    let (mut rate, mut latency, mut resets, mut drops) = (None::<u32>, None::<(u32, u32)>, false, false);
    for cut in cuts.filter(|cut| Stream::of(cut.direction).contains(&stream)) {
        match cut.mode {
            CutMode::Hold if cut.heals == CutHeal::Reset => drops = true,
            CutMode::Hold => rate = Some(0),
            CutMode::Throttle { bytes_per_s } => {
                let new = whole(bytes_per_s / KILOBYTE).max(1);
                rate = Some(rate.map_or(new, |now| now.min(new)));
            }
            CutMode::Delay { by, jitter } => {
                let (before, spread) = latency.unwrap_or_default();
                latency = Some((before.saturating_add(millis(by)), spread.saturating_add(millis(jitter))));
            }
            CutMode::Reset => resets = true,
            CutMode::Refuse | CutMode::MidResponse { .. } => {}
        }
    }
    let mut toxics = Vec::new();
    toxics.extend(rate.map(|rate| Toxic::new(Kind::Bandwidth, stream, &[("rate", rate)])));
    toxics
        .extend(latency.map(|(ms, jitter)| Toxic::new(Kind::Latency, stream, &[("latency", ms), ("jitter", jitter)])));
    if resets {
        toxics.push(Toxic::new(Kind::ResetPeer, stream, &[("timeout", 0)]));
    }
    if drops {
        toxics.push(Toxic::new(Kind::Timeout, stream, &[("timeout", 0)]));
    }
    toxics
}

fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

fn whole(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Connects;

    fn cut(mode: CutMode, direction: Direction, heals: CutHeal) -> Cut {
        Cut {
            nodes: vec![1],
            mode,
            direction,
            heals,
            connects: Connects::Accepted,
        }
    }

    fn composed(cuts: &[Cut]) -> String {
        State::compose(false, cuts.iter()).to_string()
    }

    #[test]
    fn each_cut_is_the_toxics_that_do_what_it_says() {
        use CutHeal::{Keep, Reset};
        use Direction::{Both, ToBroker, ToReader};
        let delay = CutMode::Delay {
            by: Duration::from_millis(1_500),
            jitter: Duration::from_millis(500),
        };
        let said = [
            (
                CutMode::Hold,
                Both,
                Keep,
                "enabled, with bandwidth_upstream (rate 0) and bandwidth_downstream (rate 0)",
            ),
            (
                CutMode::Hold,
                ToReader,
                Reset,
                "enabled, with timeout_downstream (timeout 0)",
            ),
            (
                CutMode::Throttle { bytes_per_s: 1_000 },
                ToBroker,
                Keep,
                "enabled, with bandwidth_upstream (rate 1)",
            ),
            (
                delay,
                ToReader,
                Keep,
                "enabled, with latency_downstream (jitter 500, latency 1500)",
            ),
            (
                CutMode::Reset,
                Both,
                Keep,
                "enabled, with reset_peer_upstream (timeout 0) and reset_peer_downstream (timeout 0)",
            ),
            (CutMode::Refuse, Both, Keep, "disabled, without a toxic"),
        ];
        for (mode, direction, heals, wanted) in said {
            assert_eq!(composed(&[cut(mode, direction, heals)]), wanted, "{mode:?}");
        }
        assert_eq!(composed(&[]), "enabled, without a toxic");
        assert!(!State::compose(true, [].iter()).enabled);
    }

    #[test]
    fn overlapping_cuts_add_up_to_one_toxic_of_each_kind() {
        use Direction::{Both, ToBroker, ToReader};
        let throttle = |bytes_per_s| CutMode::Throttle { bytes_per_s };
        let by = Duration::from_millis(30);
        let delay = CutMode::Delay { by, jitter: by };
        let mut cuts = vec![
            cut(throttle(50_000), Both, CutHeal::Keep),
            cut(throttle(9_000), ToReader, CutHeal::Keep),
            cut(delay, Both, CutHeal::Keep),
            cut(delay, ToReader, CutHeal::Keep),
        ];
        assert_eq!(
            composed(&cuts),
            "enabled, with bandwidth_upstream (rate 50) and latency_upstream (jitter 30, latency 30) and \
             bandwidth_downstream (rate 9) and latency_downstream (jitter 60, latency 60)"
        );
        cuts.push(cut(CutMode::Hold, ToBroker, CutHeal::Keep));
        let state = State::compose(false, cuts.iter());
        assert_eq!(state.toxics[0].attribute("rate"), 0, "{state}");
    }
}
