//! `report.json`: the report as it is, schema-versioned.

use crate::report::Report;

/// The report as indented JSON with a newline at the end.
///
/// # Errors
/// serde_json's; for reports read from a file or made here there is none.
pub fn render(report: &Report) -> Result<String, serde_json::Error> {
    serde_json::to_string_pretty(report).map(|text| text + "\n")
}

/// Reads what [`render`] wrote.
///
/// # Errors
/// serde_json's, with line and column.
pub fn parse(text: &str) -> Result<Report, serde_json::Error> {
    serde_json::from_str(text)
}
