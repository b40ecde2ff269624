//! A broker with one partition that never waits for a disk, and librdkafka reading it.
//!
//! Faster than Apache Kafka, so that what is compared is the path. It advertises whatever address it is told, so that
//! clients stay on paths that rewrite nothing.

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsResponse, BrokerId, FetchRequest, FetchResponse, MetadataResponse, RequestHeader,
    ResponseHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use kafka_protocol::records::{
    Compression, NO_PARTITION_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Record, RecordBatchEncoder,
    RecordEncodeOptions, TimestampType,
};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{Offset, TopicPartitionList};

pub(crate) const RECORDS: usize = 500_000;
const VALUE_BYTES: usize = 200;
const BATCH: usize = 500;
const TOPIC: &str = "bench";
/// Apis and their versions, none of them flexible but that of ApiVersions.
const VERSIONS: [(ApiKey, i16, i16); 4] = [
    // Never sent, but librdkafka tells the format of records that a broker knows by it.
    (ApiKey::Produce, 3, 8),
    (ApiKey::Fetch, 4, 11),
    (ApiKey::Metadata, 1, 8),
    (ApiKey::ApiVersions, 0, 0),
];

/// The log: all batches on end.
pub(crate) struct Log {
    bytes: Bytes,
    /// Where each batch begins, and the end.
    begins: Vec<usize>,
}

impl Log {
    pub(crate) fn new() -> Arc<Self> {
        let mut bytes = BytesMut::new();
        let mut begins = vec![0];
        for first in (0..RECORDS).step_by(BATCH) {
            let records: Vec<Record> = (0..BATCH).map(|at| record(first + at, at)).collect();
            let options = RecordEncodeOptions {
                version: 2,
                compression: Compression::None,
            };
            RecordBatchEncoder::encode(&mut bytes, &records, &options).unwrap();
            begins.push(bytes.len());
        }
        Arc::new(Log {
            bytes: bytes.freeze(),
            begins,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whole batches from the one that holds `offset`: one at least, and no more than `most` bytes.
    fn read(&self, offset: i64, most: i32) -> Bytes {
        let first = usize::try_from(offset).unwrap() / BATCH;
        let Some(begin) = self
            .begins
            .get(first)
            .copied()
            .filter(|begin| *begin < self.bytes.len())
        else {
            return Bytes::new();
        };
        let most = begin + usize::try_from(most).unwrap();
        let whole = self.begins.partition_point(|at| *at <= most) - 1;
        self.bytes.slice(begin..self.begins[whole.max(first + 1)])
    }
}

fn record(offset: usize, at: usize) -> Record {
    Record {
        transactional: false,
        control: false,
        delete_horizon: false,
        partition_leader_epoch: NO_PARTITION_LEADER_EPOCH,
        producer_id: NO_PRODUCER_ID,
        producer_epoch: NO_PRODUCER_EPOCH,
        timestamp_type: TimestampType::Creation,
        offset: i64::try_from(offset).unwrap(),
        // The encoder starts a new batch where offset and sequence drift apart; the first of a batch has none.
        sequence: i32::try_from(at).unwrap() - 1,
        timestamp: 1_700_000_000_000,
        key: None,
        value: Some(Bytes::from(vec![b'v'; VALUE_BYTES])),
        headers: Default::default(),
    }
}

/// A broker that waits to be told which address it has.
pub(crate) struct Broker {
    pub(crate) address: SocketAddr,
    advertised: Arc<OnceLock<SocketAddr>>,
}

impl Broker {
    pub(crate) fn start(log: Arc<Log>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let broker = Broker {
            address: listener.local_addr().unwrap(),
            advertised: Arc::default(),
        };
        let advertised = Arc::clone(&broker.advertised);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (log, advertised) = (Arc::clone(&log), Arc::clone(&advertised));
                std::thread::spawn(move || serve(client, &log, &advertised));
            }
        });
        broker
    }

    pub(crate) fn advertise(&self, address: SocketAddr) {
        self.advertised.set(address).unwrap();
    }
}

/// Ends with the client.
fn serve(client: TcpStream, log: &Log, advertised: &OnceLock<SocketAddr>) {
    client.set_nodelay(true).unwrap();
    let mut from = BufReader::new(client.try_clone().unwrap());
    let mut to = client;
    loop {
        let mut len = [0; 4];
        if from.read_exact(&mut len).is_err() {
            return;
        }
        let mut request = vec![0; u32::from_be_bytes(len) as usize];
        if from.read_exact(&mut request).is_err() {
            return;
        }
        let mut request = Bytes::from(request);
        let (key, version) = (request[1], i16::from_be_bytes([request[2], request[3]]));
        let (head, records) = match ApiKey::try_from(i16::from(key)) {
            Ok(ApiKey::ApiVersions) => (api_versions(&request, version), Bytes::new()),
            Ok(ApiKey::Metadata) => (metadata(&mut request, version, *advertised.wait()), Bytes::new()),
            Ok(ApiKey::Fetch) => fetch(&mut request, version, log),
            other => panic!("librdkafka sent {other:?}, which was not offered"),
        };
        let len = u32::try_from(head.len() + records.len()).unwrap().to_be_bytes();
        if to
            .write_all(&[&len[..], &head[..]].concat())
            .and_then(|()| to.write_all(&records))
            .is_err()
        {
            return;
        }
    }
}

/// Version 0, with "unsupported version" for a client that asks with another, as brokers do.
fn api_versions(request: &[u8], version: i16) -> BytesMut {
    let offered = VERSIONS.map(|(key, least, most)| {
        ApiVersion::default()
            .with_api_key(key as i16)
            .with_min_version(least)
            .with_max_version(most)
    });
    let body = ApiVersionsResponse::default()
        .with_error_code(if version == 0 { 0 } else { 35 })
        .with_api_keys(offered.to_vec());
    let mut out = BytesMut::new();
    out.put_slice(&request[4..8]);
    body.encode(&mut out, 0).unwrap();
    out
}

fn correlated(request: &mut Bytes) -> (RequestHeader, BytesMut) {
    let header = RequestHeader::decode(request, 1).unwrap();
    let mut out = BytesMut::new();
    let own = ResponseHeader::default().with_correlation_id(header.correlation_id);
    own.encode(&mut out, 0).unwrap();
    (header, out)
}

fn metadata(request: &mut Bytes, version: i16, advertised: SocketAddr) -> BytesMut {
    let (_, mut out) = correlated(request);
    let host = StrBytes::from_string(advertised.ip().to_string());
    let broker = MetadataResponseBroker::default()
        .with_node_id(BrokerId(1))
        .with_host(host)
        .with_port(advertised.port().into());
    let partition = MetadataResponsePartition::default()
        .with_leader_id(BrokerId(1))
        .with_replica_nodes(vec![BrokerId(1)])
        .with_isr_nodes(vec![BrokerId(1)]);
    let topic = MetadataResponseTopic::default()
        .with_name(Some(topic_name()))
        .with_partitions(vec![partition]);
    let body = MetadataResponse::default()
        .with_brokers(vec![broker])
        .with_controller_id(BrokerId(1))
        .with_topics(vec![topic]);
    body.encode(&mut out, version).unwrap();
    out
}

/// The head of the answer, and the records that follow it without having been copied.
fn fetch(request: &mut Bytes, version: i16, log: &Log) -> (BytesMut, Bytes) {
    let (_, mut out) = correlated(request);
    let asked = FetchRequest::decode(request, version).unwrap();
    let mut responses = Vec::new();
    let mut records = Bytes::new();
    let end = i64::try_from(RECORDS).unwrap();
    for partition in asked.topics.iter().flat_map(|topic| &topic.partitions) {
        records = log.read(partition.fetch_offset, partition.partition_max_bytes);
        let data = PartitionData::default()
            .with_high_watermark(end)
            .with_last_stable_offset(end)
            .with_log_start_offset(0)
            .with_preferred_read_replica(BrokerId(-1))
            .with_records(Some(Bytes::new()));
        responses.push(
            FetchableTopicResponse::default()
                .with_topic(topic_name())
                .with_partitions(vec![data]),
        );
    }
    if records.is_empty() {
        // Nothing is left to read; a broker waits here, and a reader that is done closes.
        std::thread::park_timeout(Duration::from_millis(50));
    }
    FetchResponse::default()
        .with_responses(responses)
        .encode(&mut out, version)
        .unwrap();
    // The length of the records is what the answer ends with.
    if !records.is_empty() {
        out.truncate(out.len() - 4);
        out.put_u32(u32::try_from(records.len()).unwrap());
    }
    (out, records)
}

fn topic_name() -> TopicName {
    TopicName(StrBytes::from_static_str(TOPIC))
}

/// What a reader came to.
pub(crate) struct Reading {
    pub(crate) first: Duration,
    pub(crate) whole: Duration,
    /// Between the first record and the last.
    pub(crate) records_per_s: f64,
}

/// Reads the whole log with librdkafka.
///
/// A fast path fills the local queue, and librdkafka then pauses for `fetch.queue.backoff.ms`, a second by default, which
/// would make the fastest path the slowest.
pub(crate) fn read(bootstrap: SocketAddr) -> Reading {
    let started = Instant::now();
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap.to_string())
        .set("group.id", "bench")
        .set("enable.auto.commit", "false")
        .set("queued.min.messages", "1000000")
        .set("fetch.queue.backoff.ms", "1")
        .create()
        .unwrap();
    let mut partitions = TopicPartitionList::new();
    partitions.add_partition_offset(TOPIC, 0, Offset::Offset(0)).unwrap();
    consumer.assign(&partitions).unwrap();
    let mut first = None;
    for wanted in 0..RECORDS {
        let message = loop {
            match consumer.poll(Duration::from_secs(20)).expect("the reader starves") {
                Ok(message) => break message,
                // Such as a broker that is tried before it listens.
                Err(cause) => assert!(started.elapsed() < Duration::from_secs(60), "{cause}"),
            }
        };
        assert_eq!(rdkafka::Message::offset(&message), i64::try_from(wanted).unwrap());
        first.get_or_insert_with(|| started.elapsed());
    }
    let whole = started.elapsed();
    let first = first.unwrap_or_default();
    Reading {
        first,
        whole,
        records_per_s: (RECORDS - 1) as f64 / (whole - first).as_secs_f64(),
    }
}
