//! Limits of a run where neither scenario nor manifest says another: one place for the plan and the judges.

/// Recovery window, milliseconds: healthy libraries took up to 39 s (kafkajs 2.2.4 after a broker kill, measured 9 of 9).
pub const WITHIN_MS: f64 = 60_000.0;
/// Grace of a reader's own close, milliseconds: above the 30 s that the Java client takes by default.
pub const STOP_GRACE_MS: f64 = 35_000.0;
/// CPU over an outage, cores: known-good clients used at most 0.03 (aiokafka, kafkajs, Java classic), known-bad ones 0.2
/// and more.
pub const CPU_CORES: f64 = 0.10;
/// Requests and connects over an outage, per second.
pub const REQUESTS_PER_S: f64 = 200.0;
/// Error events over an outage, per second.
pub const ERRORS_PER_S: f64 = 100.0;
