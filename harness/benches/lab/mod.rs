//! What the benches of the link share: traffic, peers, a broker for librdkafka, and how figures are told.

pub(crate) mod kafka;
pub(crate) mod peer;
pub(crate) mod table;
pub(crate) mod wire;
