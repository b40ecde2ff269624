//! The embedded cluster: librdkafka's mock cluster in a child process.
