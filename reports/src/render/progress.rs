//! The live line of one run.

use std::time::Duration;

use super::escape::{cap, terminal};
use crate::history::Stage;
use crate::words;

/// Where a run stands, for its live line.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProgressState {
    /// Scenario id.
    pub scenario: String,
    /// Reader, name and version.
    pub reader: String,
    /// Stage; absent before the run has one.
    pub stage: Option<Stage>,
    /// Records delivered so far.
    pub position: u64,
    /// Records behind the log end, where known.
    pub lag: Option<u64>,
    /// Kinds or names of the faults in force.
    pub active_faults: Vec<String>,
    /// Since the run was opened.
    pub elapsed: Duration,
}

/// The state as one line without colours, such as
/// `broker-kill/live  ktables 1.1.2  steps  5200 records, 12 behind  [kill-broker]  3.4 s`.
pub fn status_line(state: &ProgressState) -> String {
    let behind = state.lag.map_or(String::new(), |lag| format!(", {lag} behind"));
    let mut parts = vec![
        terminal(&cap(&state.scenario, 60)),
        terminal(&cap(&state.reader, 40)),
        state.stage.map_or("opening", words::stage).to_owned(),
        format!("{} records{behind}", state.position),
    ];
    if !state.active_faults.is_empty() {
        parts.push(format!("[{}]", terminal(&cap(&state.active_faults.join(", "), 60))));
    }
    parts.push(format!("{:.1} s", state.elapsed.as_secs_f64()));
    parts.join("  ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_under_a_fault_shows_stage_position_lag_and_fault() {
        let state = ProgressState {
            scenario: "broker-kill/live".into(),
            reader: "ktables 1.1.2".into(),
            stage: Some(Stage::Steps),
            position: 5200,
            lag: Some(12),
            active_faults: vec!["kill-broker".into()],
            elapsed: Duration::from_millis(3_400),
        };
        assert_eq!(
            status_line(&state),
            "broker-kill/live  ktables 1.1.2  steps  5200 records, 12 behind  [kill-broker]  3.4 s"
        );
    }

    #[test]
    fn a_run_that_has_just_opened_shows_no_lag_and_hostile_names_do_not_act() {
        let state = ProgressState {
            scenario: "a\x1b[2Jb\r".into(),
            ..ProgressState::default()
        };
        assert_eq!(status_line(&state), "a\\x1b[2Jb\\r    opening  0 records  0.0 s");
    }
}
