//! The parts of a plan as the history holds them.

use brokerfall_report::history::{Expect, FaultInfo, TopicInfo};

use super::plan::{Action, Plan, Step};

impl Plan {
    /// What the plan asks.
    pub fn expect(&self) -> Expect {
        Expect {
            outcome: self.outcome(),
            named: self.expect.named.clone(),
            duplicates: self.expect.duplicates,
            not_judged: self.not_judged(),
        }
    }

    /// Its topics.
    pub fn topic_infos(&self) -> Vec<TopicInfo> {
        self.topics
            .iter()
            .map(|topic| TopicInfo {
                name: topic.name.clone(),
                partitions: topic.partitions,
                role: topic.role.clone(),
                compacted: topic.cleanup.compacts(),
                generator: topic.generator.clone(),
            })
            .collect()
    }

    /// Its faults by the names of their steps.
    pub fn fault_infos(&self) -> Vec<FaultInfo> {
        self.steps
            .iter()
            .filter_map(|step| match &step.action {
                Action::Do { fault, grade } => Some(FaultInfo {
                    name: step.name.clone(),
                    kind: fault.fault().kind().to_owned(),
                    grade: *grade,
                }),
                _ => None,
            })
            .collect()
    }

    /// Its steps as sentences.
    pub fn sentences(&self) -> Vec<String> {
        self.steps.iter().map(Step::sentence).collect()
    }
}
