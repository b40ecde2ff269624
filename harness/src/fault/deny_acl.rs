//! deny-acl: somebody takes the reader's right to read away, by an ACL on the brokers, and the heal gives it back.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{Fault, FaultError, Heal, Injected, reaction};
use crate::cluster::Resource;
use crate::run::rig::Rig;

/// `deny-acl = { topic = "orders" }` or `deny-acl = { on = "group" }`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct DenyAcl {
    /// On what READ is denied; default a topic.
    #[serde(default)]
    pub on: Denied,
    /// Which topic; default the first.
    #[serde(default)]
    pub topic: Option<String>,
}

/// On what READ is denied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Denied {
    /// A topic: its records cannot be fetched, and no offsets of it be committed.
    #[default]
    Topic,
    /// The reader's group: nobody can join, stay or commit.
    Group,
}

#[async_trait]
impl Fault for DenyAcl {
    fn kind(&self) -> &'static str {
        "deny-acl"
    }

    fn text(&self) -> String {
        match (self.on, &self.topic) {
            (Denied::Group, _) => "an ACL denies READ on the reader's group".to_owned(),
            (Denied::Topic, Some(topic)) => format!("an ACL denies READ on {topic}"),
            (Denied::Topic, None) => "an ACL denies READ on the first topic".to_owned(),
        }
    }

    fn closes_path(&self) -> bool {
        true
    }

    async fn inject(&self, rig: &Rig, _name: &str) -> Result<Injected, FaultError> {
        let resource = match self.on {
            Denied::Topic => Resource::Topic(rig.topic_or_first(self.topic.as_deref())),
            Denied::Group => Resource::Group(rig.group.clone().ok_or_else(|| FaultError::NotProven {
                what: "that READ on the reader's group was denied".to_owned(),
                seen: "the reader is in no group".to_owned(),
            })?),
        };
        let mark = rig.mark();
        let proof = rig.cluster.deny_read(&resource).await?;
        let denied = resource.clone();
        Ok(Injected {
            proof,
            delivered: Box::new(move |facts| {
                let (answers, code) = match &denied {
                    Resource::Topic(topic) => {
                        let code = "TOPIC_AUTHORIZATION_FAILED";
                        (facts.refused_since(mark, code, Some(topic)), code)
                    }
                    Resource::Group(_) => {
                        let code = "GROUP_AUTHORIZATION_FAILED";
                        (facts.refused_since(mark, code, None), code)
                    }
                };
                (answers > 0).then(|| format!("{answers} answer(s) of brokers about {denied}: {code}"))
            }),
            felt: reaction(),
            strikes_later: true,
            heal: Box::new(Taken { resource }),
        })
    }
}

/// A right that was taken away.
struct Taken {
    resource: Resource,
}

#[async_trait]
impl Heal for Taken {
    async fn heal(self: Box<Self>, rig: &Rig) -> Result<String, FaultError> {
        Ok(rig.cluster.allow_read(&self.resource).await?)
    }
}
