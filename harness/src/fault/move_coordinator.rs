//! move-coordinator: the reader's group gets another coordinator; no broker dies.

use async_trait::async_trait;
use brokerfall_report::history::{GroupChange, Place};
use serde::{Deserialize, Serialize};

use super::{Fault, FaultError, Heal, Injected, another, reaction};
use crate::cluster::NodeId;
use crate::run::rig::Rig;

/// `move-coordinator = { to = 2 }`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct MoveCoordinator {
    /// The broker that coordinates then; default the next one that lives.
    #[serde(default)]
    pub to: Option<NodeId>,
}

#[async_trait]
impl Fault for MoveCoordinator {
    fn kind(&self) -> &'static str {
        "move-coordinator"
    }

    fn text(&self) -> String {
        match self.to {
            Some(node) => format!("move the group's coordinator to broker {node}"),
            None => "move the group's coordinator to the next broker".to_owned(),
        }
    }

    fn closes_path(&self) -> bool {
        false
    }

    async fn inject(&self, rig: &Rig, _name: &str) -> Result<Injected, FaultError> {
        let group = rig.group.clone().ok_or_else(|| FaultError::NotProven {
            what: "that the group's coordinator moved".to_owned(),
            seen: "the reader is in no group".to_owned(),
        })?;
        let from = rig.cluster.coordinator(&group).await?;
        let to = another(rig, "the group's coordinator", from, self.to)?;
        let mark = rig.mark();
        let proof = rig.cluster.move_coordinator(&group, to).await?;
        let moved = Moved {
            group: group.clone(),
            from,
        };
        Ok(Injected {
            proof: format!("{proof}, which was broker {from}"),
            delivered: Box::new(move |facts| {
                let away = facts.turned_away_since(mark, "NOT_COORDINATOR", None);
                if away > 0 {
                    return Some(format!("{away} answer(s): NOT_COORDINATOR"));
                }
                let told = facts.told_since(mark, &Place::Group(group.clone()), from)?;
                Some(format!(
                    "FindCoordinator told {} that broker {} coordinates its group",
                    told.client, told.node
                ))
            }),
            // The old coordinator turns every request of the group away: a member that is answered well is at the new one.
            felt: Box::new(move |facts, since| {
                let well = |change: &GroupChange| !matches!(change, GroupChange::Gone { .. });
                let answered = facts
                    .wire()
                    .standings
                    .iter()
                    .find(|it| it.at.n > since.n && well(&it.change));
                let committed = || facts.commits().iter().find(|it| it.on_wire && it.at.n > since.n);
                let client = answered.map(|it| &it.client).or_else(|| Some(&committed()?.member));
                match client {
                    Some(client) => Some(format!("the new coordinator answered {client}")),
                    None => reaction()(facts, since),
                }
            }),
            strikes_later: true,
            heal: Box::new(moved),
        })
    }
}

/// A group whose coordinator was moved.
struct Moved {
    group: String,
    from: NodeId,
}

#[async_trait]
impl Heal for Moved {
    async fn heal(self: Box<Self>, rig: &Rig) -> Result<String, FaultError> {
        let Moved { group, from } = *self;
        if rig.cluster.live().contains(&from) {
            return Ok(rig.cluster.move_coordinator(&group, from).await?);
        }
        let coordinator = rig.cluster.coordinator(&group).await?;
        Ok(format!(
            "broker {from} is down, so broker {coordinator} goes on coordinating group {group}"
        ))
    }
}
