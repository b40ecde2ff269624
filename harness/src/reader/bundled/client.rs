//! The rdkafka client below every bundled reader: its settings, its errors sorted, its log passed on.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use brokerfall_report::exception::Exception;
use brokerfall_report::protocol::{Isolation, Start};
use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::util::Timeout;

use crate::reader::SEED_VARIABLE;
use crate::reader::sdk::{Sdk, exceptions};

/// How long one poll may wait: the reading loop turns at least this often.
pub(super) const POLL: Duration = Duration::from_millis(100);

/// How long one question to a broker may take. The reading loop asks it, so it stands still for that long at most.
pub(super) const ASK: Duration = Duration::from_secs(1);

/// Two `assign` calls lie this far apart, milliseconds. librdkafka 2.12 stops the fetchers of the one before in its own
/// time; a second call that comes in between stops them again, and its assert `rktp->rktp_started` ends the process (seen
/// once in 1,050 runs with both cores busy, when three partitions without an offset each asked for a place).
pub(super) const ASSIGNS_APART_MS: f64 = 200.0;

/// A consumer of the bundled readers.
pub(super) type Client = BaseConsumer<Context>;

/// What a group reader does when the client calls back. By-hand readers are never rebalanced.
pub(super) trait Events: Send + Sync {
    /// Partitions are about to go.
    fn revoking(&self, _consumer: &Client, _partitions: &TopicPartitionList) {}
    /// Partitions have come.
    fn assigned(&self, _partitions: &TopicPartitionList) {}
}

/// The client's context: passes the log on, keeps the sentence that belongs to an error, hands rebalances to the reader.
pub(super) struct Context {
    sdk: Sdk,
    events: Arc<dyn Events>,
    reason: Mutex<Option<String>>,
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, fac: &str, log_message: &str) {
        self.sdk.log(level, fac, log_message);
    }

    // rdkafka calls this right before `poll` returns the same error, on the same thread: the error keeps only the code.
    fn error(&self, _error: KafkaError, reason: &str) {
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.to_owned());
    }
}

impl ConsumerContext for Context {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        if let Rebalance::Revoke(partitions) = rebalance {
            self.events.revoking(consumer, partitions);
        }
    }

    fn post_rebalance(&self, _consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        if let Rebalance::Assign(partitions) = rebalance {
            self.events.assigned(partitions);
        }
    }

    fn main_queue_min_poll_interval(&self) -> Timeout {
        Timeout::After(POLL)
    }
}

impl Context {
    /// The error as data, with the sentence that librdkafka had for it.
    pub(super) fn exception(&self, error: &KafkaError) -> Box<Exception> {
        let reason = self.reason.lock().unwrap_or_else(PoisonError::into_inner).take();
        exceptions::kafka(error, reason.as_deref())
    }
}

/// Makes a consumer. `reset` is the client's own `auto.offset.reset`: `error` leaves the decision to the reader.
pub(super) fn connect(
    start: &Start,
    reset: &str,
    sdk: &Sdk,
    events: Arc<dyn Events>,
) -> Result<Client, Box<Exception>> {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", &start.bootstrap)
        .set("client.id", &start.client_id)
        // The high-level consumer wants a group even where partitions are assigned by hand; that group is never joined
        // and nothing is committed to it.
        .set("group.id", start.group.as_deref().unwrap_or(&start.client_id))
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("auto.offset.reset", reset)
        .set(
            "isolation.level",
            match start.isolation {
                Isolation::ReadUncommitted => "read_uncommitted",
                Isolation::ReadCommitted => "read_committed",
            },
        )
        .set("broker.address.family", "v4")
        .set("allow.auto.create.topics", "false")
        // Back within a second of a heal (librdkafka adds -25 % to +50 % of jitter), and never more than some connects a
        // second. The default ceiling of 10 s is most of a recovery window.
        .set("reconnect.backoff.ms", "50")
        .set("reconnect.backoff.max.ms", "1000")
        .set("retry.backoff.ms", "100")
        .set("retry.backoff.max.ms", "1000")
        // A half-open connection is given up after 5 s; the default is 60 s.
        .set("socket.timeout.ms", "5000")
        .set("socket.connection.setup.timeout.ms", "5000")
        .set("topic.metadata.refresh.interval.ms", "5000")
        // An answer that named an error is believed for that long; the default is three times the interval above.
        .set("metadata.max.age.ms", "5000")
        .set("topic.metadata.propagation.max.ms", "1000")
        .set("fetch.wait.max.ms", "100")
        .set("fetch.error.backoff.ms", "100")
        // The default stalls fetching for a whole second when the local queue was full once.
        .set("fetch.queue.backoff.ms", "10")
        .set_log_level(RDKafkaLogLevel::Info);
    // A session shorter than the client's own heartbeat interval (3 s) would end between two heartbeats.
    let heartbeat_ms = start
        .heartbeat_ms
        .or_else(|| start.session_ms.map(|session_ms| (session_ms / 3).clamp(1, 3_000)));
    let timeouts = [
        ("session.timeout.ms", start.session_ms),
        ("heartbeat.interval.ms", heartbeat_ms),
        ("max.poll.interval.ms", start.max_poll_ms),
    ];
    for (name, ms) in timeouts {
        if let Some(ms) = ms {
            config.set(name, ms.to_string());
        }
    }
    if let Some(instance) = &start.group_instance_id {
        config.set("group.instance.id", instance);
    }
    for (name, value) in &start.options {
        match value {
            serde_json::Value::String(text) => config.set(name, text),
            other => config.set(name, other.to_string()),
        };
    }
    let context = Context {
        sdk: sdk.clone(),
        events,
        reason: Mutex::default(),
    };
    config
        .create_with_context(context)
        .map_err(|error| exceptions::kafka(&error, None))
}

/// Log start and log end of a partition.
///
/// Not `fetch_watermarks`: librdkafka 2.12 loses there what the broker said of the partition, and where that was an error
/// it returns unknown ends and success.
pub(super) fn watermarks(client: &Client, topic: &str, partition: u32) -> KafkaResult<(u64, u64)> {
    let partition = i32::try_from(partition).unwrap_or(i32::MAX);
    let end = |which: Offset| {
        let mut asked = TopicPartitionList::new();
        asked.add_partition_offset(topic, partition, which)?;
        let answered = client.offsets_for_times(asked, ASK)?;
        let Some(found) = answered.find_partition(topic, partition) else {
            return Err(KafkaError::OffsetFetch(RDKafkaErrorCode::UnknownPartition));
        };
        found.error()?;
        match found.offset() {
            Offset::Offset(offset) => Ok(offset.max(0).unsigned_abs()),
            _ => Err(KafkaError::OffsetFetch(RDKafkaErrorCode::NoOffset)),
        }
    };
    Ok((end(Offset::Beginning)?, end(Offset::End)?))
}

/// What a reader does about an error of its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remedy {
    /// The client recovers by itself.
    Wait,
    /// The position is not in the log: find a new one.
    Relocate,
    /// The client is beyond use: build a new one.
    Rebuild,
    /// Trying again cannot help: end, and say why.
    End,
}

/// Sorts an error.
pub(super) fn remedy(error: &KafkaError) -> Remedy {
    use RDKafkaErrorCode as Code;
    match error {
        // Another member goes by the same name: joining anew would fence that one in turn, and so on for ever.
        KafkaError::MessageConsumptionFatal(RDKafkaErrorCode::FencedInstanceId) => return Remedy::End,
        KafkaError::MessageConsumptionFatal(_) => return Remedy::Rebuild,
        _ => {}
    }
    match error.rdkafka_error_code() {
        Some(Code::AutoOffsetReset | Code::OffsetOutOfRange | Code::LogTruncation) => Remedy::Relocate,
        // UNKNOWN_SERVER_ERROR to OffsetFetch: librdkafka reports it and asks for the committed offsets no more.
        Some(Code::Fatal | Code::Unknown) => Remedy::Rebuild,
        Some(
            Code::TopicAuthorizationFailed
            | Code::GroupAuthorizationFailed
            | Code::ClusterAuthorizationFailed
            | Code::SaslAuthenticationFailed
            | Code::Authentication
            | Code::UnsupportedSASLMechanism
            | Code::InvalidGroupId
            | Code::InconsistentGroupProtocol,
        ) => Remedy::End,
        _ => Remedy::Wait,
    }
}

/// Grows from 100 ms to 5 s and spreads itself, so that many readers do not come back in one instant.
pub(super) struct Backoff {
    attempt: u32,
    seed: u64,
}

impl Backoff {
    /// With the seed that the harness gave this process, so that a run with the same seed draws the same pauses.
    pub(super) fn new() -> Self {
        let given = std::env::var(SEED_VARIABLE).ok().and_then(|seed| seed.parse().ok());
        Self::seeded(given.unwrap_or_else(|| u64::from(std::process::id())))
    }

    fn seeded(seed: u64) -> Self {
        Self {
            attempt: 0,
            // Spread over all bits, of which one must stand.
            seed: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        }
    }

    /// The next pause.
    pub(super) fn next(&mut self) -> Duration {
        let ceiling = (100_u64 << self.attempt.min(6)).min(5_000);
        self.attempt += 1;
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        Duration::from_millis(ceiling / 2 + self.seed % (ceiling / 2 + 1))
    }

    pub(super) fn reset(&mut self) {
        self.attempt = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_to_five_seconds_and_stays_between_half_and_whole() {
        let mut drawn = Vec::new();
        for seed in [0, 1, 1, u64::MAX] {
            let mut backoff = Backoff::seeded(seed);
            let pauses = [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000].map(|ceiling| {
                let pause = u64::try_from(backoff.next().as_millis()).unwrap();
                assert!((ceiling / 2..=ceiling).contains(&pause), "{pause} of {ceiling}");
                pause
            });
            drawn.push(pauses);
        }
        assert_eq!(drawn[1], drawn[2], "the same for the same seed");
        assert_ne!(drawn[0], drawn[1]);
    }

    #[test]
    fn authorization_ends_a_reader_and_a_lost_broker_does_not() {
        let of = |code| remedy(&KafkaError::MessageConsumption(code));
        assert_eq!(of(RDKafkaErrorCode::TopicAuthorizationFailed), Remedy::End);
        assert_eq!(of(RDKafkaErrorCode::Unknown), Remedy::Rebuild);
        assert_eq!(of(RDKafkaErrorCode::AllBrokersDown), Remedy::Wait);
        assert_eq!(of(RDKafkaErrorCode::AutoOffsetReset), Remedy::Relocate);
        let fatal = |code| remedy(&KafkaError::MessageConsumptionFatal(code));
        assert_eq!(fatal(RDKafkaErrorCode::FencedInstanceId), Remedy::End);
        assert_eq!(fatal(RDKafkaErrorCode::IllegalGeneration), Remedy::Rebuild);
    }
}
