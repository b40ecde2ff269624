//! Durations as people write them: `"200ms"`, `"5s"`, `"2m"`.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer};

/// Parses a whole number with a unit: `ms`, `s` or `m`.
///
/// # Errors
/// A sentence that says what was found and wanted.
pub fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number
        .parse()
        .map_err(|_| format!("`{text}` is no duration (wanted a whole number and a unit, such as \"5s\")"))?;
    match unit {
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        "m" => number
            .checked_mul(60)
            .map(Duration::from_secs)
            .ok_or_else(|| format!("`{text}` is longer than a clock can count")),
        _ => Err(format!(
            "`{text}` has no known unit (wanted `ms`, `s` or `m`, such as \"5s\")"
        )),
    }
}

/// The shortest form that [`parse`] reads back.
pub fn format(duration: Duration) -> String {
    let ms = duration.as_millis();
    if ms.is_multiple_of(60_000) && ms > 0 {
        format!("{}m", ms / 60_000)
    } else if ms.is_multiple_of(1000) {
        format!("{}s", ms / 1000)
    } else {
        format!("{ms}ms")
    }
}

/// For `#[serde(with = …)]` on `Option<Duration>`.
pub mod option {
    use super::{Deserialize, Deserializer, Duration, Serializer};

    /// Reads a duration.
    ///
    /// # Errors
    /// When the text is no duration.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        let text = String::deserialize(deserializer)?;
        super::parse(&text).map(Some).map_err(serde::de::Error::custom)
    }

    /// Writes a duration.
    ///
    /// # Errors
    /// The serializer's.
    pub fn serialize<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => serializer.serialize_str(&super::format(*duration)),
            None => serializer.serialize_none(),
        }
    }
}
