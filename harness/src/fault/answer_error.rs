//! answer-error: a broker's answer is changed on its way so that it carries an error code.

use async_trait::async_trait;
use brokerfall_report::protocol::Times;
use serde::{Deserialize, Serialize};

use super::{Fault, FaultError, Heal, Injected, place, reaction};
use crate::link::{AnswerRule, RuleId, codes};
use crate::run::rig::Rig;

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

#[async_trait]
impl Fault for AnswerError {
    fn kind(&self) -> &'static str {
        "answer-error"
    }

    fn text(&self) -> String {
        let place =
            place(self.topic.as_deref(), self.partition).map_or_else(String::new, |place| format!(" for {place}"));
        let (api, code) = (&self.api, &self.code);
        match self.times {
            Times::Always => format!("every {api} answer{place} carries {code}"),
            Times::Count(1) => format!("the next {api} answer{place} carries {code}"),
            Times::Count(n) => format!("the next {n} {api} answers{place} carry {code}"),
        }
    }

    fn closes_path(&self) -> bool {
        self.times == Times::Always
    }

    async fn inject(&self, rig: &Rig, name: &str) -> Result<Injected, FaultError> {
        let code = codes::code(&self.code).ok_or_else(|| FaultError::NotProven {
            what: format!("the error code {}", self.code),
            seen: "Kafka's protocol has no error of that name".into(),
        })?;
        let rule = rig.link.arm(AnswerRule {
            fault: name.to_owned(),
            api: self.api.clone(),
            code,
            topic: self.topic.clone(),
            partition: self.partition,
            client: None,
            times: match self.times {
                Times::Always => None,
                Times::Count(times) => Some(times),
            },
        });
        let fault = name.to_owned();
        let wanted = match self.times {
            Times::Always => 1,
            Times::Count(times) => times,
        };
        let what = format!("{} answered with {}", self.api, self.code);
        Ok(Injected {
            proof: format!("the link is armed: {}", self.text()),
            delivered: Box::new(move |facts| {
                let answers = facts.injected_answers(&fault);
                (answers >= wanted).then(|| format!("{answers} response(s): {what}"))
            }),
            felt: reaction(),
            strikes_later: true,
            heal: Box::new(Armed {
                rule,
                api: self.api.clone(),
            }),
        })
    }
}

/// A rule that stands armed on the link.
struct Armed {
    rule: RuleId,
    api: String,
}

#[async_trait]
impl Heal for Armed {
    async fn heal(self: Box<Self>, rig: &Rig) -> Result<String, FaultError> {
        let counts = rig.link.disarm(self.rule);
        if counts.undecodable > 0 {
            return Err(FaultError::NotProven {
                what: format!("that the rule struck every {} response it should have", self.api),
                seen: format!("{} response(s) could not be decoded", counts.undecodable),
            });
        }
        Ok(format!(
            "the rule is disarmed ({} matched, {} changed)",
            counts.matched, counts.triggered
        ))
    }
}
