//! What the benches of the link share: traffic, peers, a broker for librdkafka, and how figures are told.
#![allow(dead_code, reason = "every bench uses its own part of it")]

pub(crate) mod kafka;
pub(crate) mod peer;
pub(crate) mod table;
pub(crate) mod wire;
