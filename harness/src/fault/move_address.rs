//! move-address: a broker is reached at another address from now on, and refuses at the old one. It is the same broker, with
//! its data; readers must come after it.

use std::net::SocketAddr;

use async_trait::async_trait;
use brokerfall_report::history::ConnectionChange;
use serde::{Deserialize, Serialize};

use super::{BrokerChoice, Fault, FaultError, Heal, Injected, list, reaction};
use crate::cluster::NodeId;
use crate::run::rig::Rig;

/// `move-address = { broker = "leader", form = "advertised" }`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct MoveAddress {
    /// Which broker.
    pub broker: BrokerChoice,
    /// How readers can find it; default that brokers tell its new address.
    #[serde(default)]
    pub form: Form,
}

/// How readers can find a broker that has moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// Metadata and FindCoordinator answers name its new address; needs another broker that can be asked.
    #[default]
    Advertised,
    /// Its name stays and stands for another address.
    Name,
}

#[async_trait]
impl Fault for MoveAddress {
    fn kind(&self) -> &'static str {
        "move-address"
    }

    fn text(&self) -> String {
        match self.form {
            Form::Advertised => format!("move {} to another address, which brokers tell", self.broker.text()),
            Form::Name => format!("move {} to another address under the same name", self.broker.text()),
        }
    }

    fn emulated(&self, _rig: &Rig) -> bool {
        // The link writes the new address into the brokers' answers; what a name stands for no broker says anyway.
        self.form == Form::Advertised
    }

    fn closes_path(&self) -> bool {
        true
    }

    async fn inject(&self, rig: &Rig, _name: &str) -> Result<Injected, FaultError> {
        let nodes = self.broker.nodes(rig).await?;
        let before = rig.mark();
        let mut moved = Vec::new();
        for &node in &nodes {
            let from = rig.link.address(node);
            let to = rig.link.move_address(node, self.form == Form::Advertised).await?;
            if self.form == Form::Name {
                rig.point_name(node, to)?;
            }
            moved.extend(from.map(|from| Moved { node, from, to }));
        }
        // Whoever connects from here on has come to the new address.
        let since = rig.mark();
        let mut proofs = Vec::new();
        for one in &moved {
            proofs.push(one.prove(rig, self.form).await?);
        }
        let (struck, followed) = (nodes.clone(), moved.clone());
        Ok(Injected {
            proof: proofs.join("; "),
            delivered: Box::new(move |facts| {
                let of = |mark, change| -> u64 {
                    let counts = struck
                        .iter()
                        .map(|node| facts.connections_since(mark, Some(*node), change));
                    counts.sum()
                };
                let reset = of(before, ConnectionChange::ResetByLink);
                let opened = of(since, ConnectionChange::Opened);
                (reset + opened > 0).then(|| {
                    format!(
                        "{reset} connection(s) of the reader to the old address of broker {} were reset, {opened} came to the \
                         new one",
                        list(&struck)
                    )
                })
            }),
            felt: Box::new(move |facts, mark| {
                let came = followed.iter().find_map(|one| {
                    let came = facts.connections_since(since, Some(one.node), ConnectionChange::Opened);
                    (came > 0).then(|| format!("it connected to broker {} at {}", one.node, one.to))
                });
                came.or_else(|| reaction()(facts, mark))
            }),
            strikes_later: false,
            heal: Box::new(There { moved, form: self.form }),
        })
    }
}

/// A broker that has moved.
#[derive(Debug, Clone, Copy)]
struct Moved {
    node: NodeId,
    from: SocketAddr,
    to: SocketAddr,
}

impl Moved {
    /// The old address refuses, the new one accepts, and readers can learn of it.
    async fn prove(self, rig: &Rig, form: Form) -> Result<String, FaultError> {
        let Moved { node, from, to } = self;
        rig.prove_refused_at(from).await?;
        rig.prove_accepts(node).await?;
        let told = rig.told_address(node).await?;
        let how = match form {
            Form::Advertised if told == to.to_string() => format!("Metadata tells {told}"),
            Form::Advertised => {
                return Err(FaultError::NotProven {
                    what: format!("that Metadata tells {to} for broker {node}"),
                    seen: format!("it tells {told}"),
                });
            }
            Form::Name => format!("Metadata tells {told} as before, and that name stands for {}", to.ip()),
        };
        Ok(format!("broker {node}: {from} refuses, {to} accepts, {how}"))
    }
}

/// Brokers at their new addresses, where they stay.
struct There {
    moved: Vec<Moved>,
    form: Form,
}

#[async_trait]
impl Heal for There {
    async fn heal(self: Box<Self>, rig: &Rig) -> Result<String, FaultError> {
        let mut proofs = Vec::new();
        for one in &self.moved {
            proofs.push(one.prove(rig, self.form).await?);
        }
        Ok(format!("nothing is taken back: {}", proofs.join("; ")))
    }
}
