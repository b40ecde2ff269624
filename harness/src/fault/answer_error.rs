//! answer-error: a broker's answer is changed on its way so that it carries an error code.

use brokerfall_report::protocol::Times;
use serde::{Deserialize, Serialize};

/// `answer-error = { api = "Fetch", code = "TOPIC_AUTHORIZATION_FAILED" }`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct AnswerError {
    /// Api name, such as `Fetch`.
    pub api: String,
    /// The error's name in Kafka's protocol.
    pub code: String,
    /// Only this topic.
    #[serde(default)]
    pub topic: Option<String>,
    /// Only this partition.
    #[serde(default)]
    pub partition: Option<u32>,
    /// How many answers: a number or `"always"` (until healed); default 1.
    #[serde(default = "once")]
    pub times: Times,
}

fn once() -> Times {
    Times::Count(1)
}
