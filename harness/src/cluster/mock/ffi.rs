//! The two calls of librdkafka's mock cluster that rdkafka's safe wrapper does not have.
#![expect(
    unsafe_code,
    reason = "rdkafka wraps neither the initial rebalance delay nor api keys above 57 (68, 71, 72 must be hidden)"
)]

use rdkafka::ClientContext;
use rdkafka::bindings::{
    rd_kafka_handle_mock_cluster, rd_kafka_mock_cluster_t, rd_kafka_mock_group_initial_rebalance_delay_ms,
    rd_kafka_mock_set_apiversion,
};
use rdkafka::client::Client;

/// `group.initial.rebalance.delay.ms` of the whole mock cluster. False when the client has none.
pub(super) fn set_initial_rebalance_delay_ms<C: ClientContext>(client: &Client<C>, delay_ms: i32) -> bool {
    let Some(cluster) = handle(client) else {
        return false;
    };
    // SAFETY: the handle is the client's own cluster, which lives as long as the client borrowed here; the call only
    // stores a number under the cluster's lock.
    unsafe { rd_kafka_mock_group_initial_rebalance_delay_ms(cluster, delay_ms) };
    true
}

/// Limits an api to these versions; `None` hides it and refuses its requests. False when the mock cluster refuses.
pub(super) fn set_api_versions<C: ClientContext>(client: &Client<C>, key: i16, versions: Option<(i16, i16)>) -> bool {
    let Some(cluster) = handle(client) else {
        return false;
    };
    let (min, max) = versions.unwrap_or((-1, -1));
    // SAFETY: as above; the call hands an operation to the cluster's thread and waits for its answer. A maximum above
    // what is implemented would be the caller's bug, and answers requests wrongly rather than touching memory.
    let code = unsafe { rd_kafka_mock_set_apiversion(cluster, key, min, max) };
    code as i32 == 0
}

fn handle<C: ClientContext>(client: &Client<C>) -> Option<*mut rd_kafka_mock_cluster_t> {
    // SAFETY: `native_ptr` is a live client for as long as `client` is borrowed; the call only reads a field of it.
    let cluster = unsafe { rd_kafka_handle_mock_cluster(client.native_ptr()) };
    (!cluster.is_null()).then_some(cluster)
}
