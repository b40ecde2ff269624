//! fence-member: another member joins the reader's group by the same `group.instance.id`, as where two instances of an
//! application are deployed with one configuration.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{Fault, FaultError, Heal, Injected, PROOF, reaction};
use crate::history::facts::Facts;
use crate::reader::host::ReaderProcess;
use crate::run::rig::Rig;

/// `fence-member = { member = 1 }`; makes the reader's members static ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct FenceMember {
    /// Which member of the reader loses its name, from 1; default the first.
    #[serde(default = "first")]
    pub member: u32,
}

fn first() -> u32 {
    1
}

/// What a coordinator answers to the member that was there before: the second to one whose requests do not tell its name.
const TOLD: [&str; 2] = ["FENCED_INSTANCE_ID", "UNKNOWN_MEMBER_ID"];

#[async_trait]
impl Fault for FenceMember {
    fn kind(&self) -> &'static str {
        "fence-member"
    }

    fn text(&self) -> String {
        format!("another member joins as the static member r{}", self.member)
    }

    /// Whatever the fenced member reads on, another one owns.
    fn closes_path(&self) -> bool {
        true
    }

    async fn inject(&self, rig: &Rig, _name: &str) -> Result<Injected, FaultError> {
        let not_proven = |seen: &str| FaultError::NotProven {
            what: "that another member has the reader's name".to_owned(),
            seen: seen.to_owned(),
        };
        let group = rig
            .group
            .clone()
            .ok_or_else(|| not_proven("the reader is in no group"))?;
        let instance = rig
            .instance_of(&format!("r{}", self.member))
            .ok_or_else(|| not_proven("the reader is no static member"))?;
        let mark = rig.mark();
        let intruder = rig.join_neutral(Some(&instance)).await?;
        let client = intruder.member().to_owned();
        // The coordinator's own word: whoever has the name now is the other one.
        let member_id = rig
            .recorder
            .wait_until(PROOF, |facts| holder(facts, &instance, &client))
            .await
            .ok_or_else(|| not_proven("its coordinator did not tell that it has"))?;
        Ok(Injected {
            proof: format!(
                "the coordinator of group {group} told that {client} is its member {instance:?} ({member_id})"
            ),
            delivered: Box::new(move |facts| {
                let told = |code: &&&str| facts.refused_since(mark, code, None) > 0;
                let code = TOLD.iter().find(told)?;
                Some(format!("{} answer(s): {code}", facts.refused_since(mark, code, None)))
            }),
            felt: reaction(),
            strikes_later: true,
            heal: Box::new(Fenced {
                group,
                instance,
                member_id,
                intruder,
            }),
        })
    }
}

/// The member id of a client that has a name in the group, as the coordinator told last.
fn holder(facts: &Facts, instance: &str, client: &str) -> Option<String> {
    let members = &facts.described().last()?.members;
    members
        .iter()
        .find(|member| member.instance.as_deref() == Some(instance) && member.client == client)
        .map(|member| member.member_id.clone())
}

/// A name that another member took.
struct Fenced {
    group: String,
    instance: String,
    member_id: String,
    intruder: Arc<ReaderProcess>,
}

#[async_trait]
impl Heal for Fenced {
    async fn heal(self: Box<Self>, rig: &Rig) -> Result<String, FaultError> {
        let Fenced {
            group,
            instance,
            member_id,
            intruder,
        } = *self;
        intruder.shut_down(PROOF).await;
        // A static member does not leave when it closes: it would keep the partitions until its session is over.
        let proof = rig.cluster.expel(&group, &instance, &member_id).await?;
        let client = intruder.member();
        let is_gone = |facts: &Facts| holder(facts, &instance, client).is_none().then_some(());
        rig.recorder
            .wait_until(PROOF, is_gone)
            .await
            .ok_or_else(|| FaultError::NotProven {
                what: format!("that {client} is no member of group {group} any more"),
                seen: "its coordinator goes on naming it".to_owned(),
            })?;
        Ok(proof)
    }
}
