//! panic-callback: the user's own callback misbehaves inside the reader.

use std::time::Duration;

use async_trait::async_trait;
use brokerfall_report::protocol::{self, ArmCallback, Command, Raise, Times};
use serde::{Deserialize, Serialize};

use super::{Fault, FaultError, Heal, Injected, PROOF, reaction};
use crate::reader::host::HostError;
use crate::run::rig::Rig;
use crate::scenario::duration;

/// `panic-callback = { callback = "on-set", on = { nth = 5 }, raise = "exception" }`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PanicCallback {
    /// `on-set` and `on-delete` need a table; `on-record` serves every kind that hands out records.
    pub callback: Callback,
    /// Which call; default the next.
    #[serde(default = "next")]
    pub on: On,
    /// How it fails.
    pub raise: How,
    /// Type to raise, in the adapter's language; default its plain error type.
    #[serde(rename = "type", default)]
    pub type_name: Option<String>,
    /// For `delay`: how long.
    #[serde(rename = "for", default, with = "crate::scenario::duration::option")]
    pub length: Option<Duration>,
    /// How often: a number or `"always"`; default 1.
    #[serde(default = "once")]
    pub times: Times,
}

fn next() -> On {
    On::Nth(1)
}

fn once() -> Times {
    Times::Count(1)
}

/// Which callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Callback {
    /// A table applied a value.
    OnSet,
    /// A table applied a deletion.
    OnDelete,
    /// A record was handed to the user.
    OnRecord,
}

/// Which call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum On {
    /// The first call with this key.
    Key(String),
    /// The first call with this offset.
    Offset(u64),
    /// The nth call from now on, from 1.
    Nth(u64),
}

/// How it fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// An ordinary exception, returned error or panic.
    Exception,
    /// One that ordinary handlers do not catch.
    BaseException,
    /// It never returns.
    Hang,
    /// It returns late.
    Delay,
}

impl PanicCallback {
    fn command(&self) -> ArmCallback {
        ArmCallback {
            callback: match self.callback {
                Callback::OnSet => protocol::Callback::OnSet,
                Callback::OnDelete => protocol::Callback::OnDelete,
                Callback::OnRecord => protocol::Callback::OnRecord,
            },
            on: match &self.on {
                On::Key(key) => protocol::On::Key(key.clone()),
                On::Offset(offset) => protocol::On::Offset(*offset),
                On::Nth(nth) => protocol::On::Nth(*nth),
            },
            raise: Raise {
                how: match self.raise {
                    How::Exception => protocol::How::Exception,
                    How::BaseException => protocol::How::BaseException,
                    How::Hang => protocol::How::Hang,
                    How::Delay => protocol::How::Delay,
                },
                type_name: self.type_name.clone(),
                ms: self
                    .length
                    .map(|length| u64::try_from(length.as_millis()).unwrap_or(u64::MAX)),
            },
            times: self.times,
        }
    }

    fn callback_text(&self) -> &'static str {
        match self.callback {
            Callback::OnSet => "on-set",
            Callback::OnDelete => "on-delete",
            Callback::OnRecord => "on-record",
        }
    }
}

#[async_trait]
impl Fault for PanicCallback {
    fn kind(&self) -> &'static str {
        "panic-callback"
    }

    fn text(&self) -> String {
        let raises = |plain: &str| format!("raises {}", self.type_name.as_deref().unwrap_or(plain));
        let does = match self.raise {
            How::Exception => raises("an ordinary exception"),
            How::BaseException => raises("an exception that ordinary handlers do not catch"),
            How::Hang => "never returns".to_owned(),
            How::Delay => format!("returns {} late", self.length.map(duration::format).unwrap_or_default()),
        };
        let on = match &self.on {
            On::Key(key) => format!("the call with key {key}"),
            On::Offset(offset) => format!("the call with offset {offset}"),
            On::Nth(1) => "the next call".to_owned(),
            On::Nth(n) => format!("call {n} from now"),
        };
        let times = match self.times {
            Times::Always => " and on every one after it".to_owned(),
            Times::Count(1) => String::new(),
            Times::Count(n) => format!(" and on those after it, {n} times in all"),
        };
        format!("{} {does} on {on}{times}", self.callback_text())
    }

    fn closes_path(&self) -> bool {
        false
    }

    async fn inject(&self, rig: &Rig, _name: &str) -> Result<Injected, FaultError> {
        let mark = rig.mark();
        for reader in rig.readers() {
            let done = reader.ask(Command::ArmCallback(self.command()), PROOF).await?;
            if !done.ok {
                return Err(FaultError::NotProven {
                    what: format!("that {} is armed", self.callback_text()),
                    seen: done
                        .error
                        .map_or_else(|| "the adapter said no".into(), |error| error.label()),
                });
            }
        }
        let callback = self.callback_text();
        Ok(Injected {
            proof: format!("the adapter armed {callback}"),
            delivered: Box::new(move |facts| {
                let entered = facts.callbacks_entered_since(mark);
                (entered > 0).then(|| format!("{callback} was entered {entered} time(s)"))
            }),
            felt: reaction(),
            strikes_later: true,
            heal: Box::new(Armed {
                command: self.command(),
                callback: self.callback_text(),
            }),
        })
    }
}

/// A callback that was armed in every process that ran then.
struct Armed {
    command: ArmCallback,
    callback: &'static str,
}

#[async_trait]
impl Heal for Armed {
    async fn heal(self: Box<Self>, rig: &Rig) -> Result<String, FaultError> {
        // Taken back, so that a callback that always raises does not meet the sentinel or a cure as well. A call that
        // hangs hangs on.
        for reader in rig.readers() {
            let disarm = ArmCallback {
                times: Times::Count(0),
                ..self.command.clone()
            };
            let done = match reader.ask(Command::ArmCallback(disarm), PROOF).await {
                // A process that is gone took its fault with it.
                Err(HostError::Exited { .. }) => continue,
                answer => answer?,
            };
            if !done.ok {
                return Err(FaultError::NotProven {
                    what: format!("that {} is disarmed", self.callback),
                    seen: done
                        .error
                        .map_or_else(|| "the adapter said no".into(), |error| error.label()),
                });
            }
        }
        Ok(format!("{} is disarmed", self.callback))
    }
}
