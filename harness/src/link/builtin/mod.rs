//! The builtin link: a Kafka-aware proxy on tokio.
