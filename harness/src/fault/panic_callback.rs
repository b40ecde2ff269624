//! panic-callback: the user's own callback misbehaves inside the reader.

use std::time::Duration;

use brokerfall_report::protocol::Times;
use serde::{Deserialize, Serialize};

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
