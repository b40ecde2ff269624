//! Record batches: how records of given ids are made, and how ids are read back.

use std::time::Duration;

use brokerfall_report::history::TopicInfo;
use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::indexmap::IndexMap;
use kafka_protocol::protocol::StrBytes;
use kafka_protocol::records::{
    Compression, NO_PARTITION_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, Record, RecordBatchDecoder,
    RecordBatchEncoder, RecordEncodeOptions, TimestampType,
};

/// Header that carries the record id as decimal text, on tombstones too.
pub const ID_HEADER: &str = "bf-id";

/// Stands for a record that the oracle did not write: ids start at 1.
pub const FOREIGN: u64 = 0;

/// Position of the last offset delta in a batch of format 2, after base offset (8), length (4), leader epoch (4), magic
/// (1), checksum (4) and attributes (2).
const LAST_OFFSET_DELTA: usize = 23;

/// Length of base offset and batch length, which the batch length does not count.
const PREFIX: usize = 12;

/// How records are made, beside what the topic's generator says.
#[derive(Debug, Clone, Default)]
pub(crate) struct Make {
    /// Bytes of a value in place of the generator's: fillers are records like any other, only longer.
    pub(crate) value_bytes: Option<u64>,
    /// Their values are null.
    pub(crate) null_values: bool,
    /// How old they are; absent means that they are written now.
    pub(crate) aged: Option<Aged>,
    /// The transaction that they belong to.
    pub(crate) of: Option<OfTransaction>,
}

/// How old records are: the first so old, the last written now, and those between as old as their turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Aged {
    /// How many there are.
    pub(super) records: u64,
    /// How old the first is.
    pub(super) first: Duration,
}

impl Aged {
    /// How old the n-th is, milliseconds.
    fn of(&self, n: u64) -> i64 {
        let younger = self.records.saturating_sub(n.saturating_add(1)) as f64;
        let share = younger / self.records.saturating_sub(1).max(1) as f64;
        (self.first.as_secs_f64() * 1_000.0 * share.min(1.0)) as i64
    }
}

/// The producer that writes records of a transaction, and how many it has written to the partition before them.
#[derive(Debug, Clone)]
pub(crate) struct OfTransaction {
    /// Transactional id.
    pub(super) id: String,
    /// Producer id.
    pub(super) producer: i64,
    /// Its epoch.
    pub(super) epoch: i16,
}

/// One batch of the records `first..first + count`; `written` of the same producer stand before it.
pub(super) fn batch(
    topic: &TopicInfo,
    partition: u32,
    first: u64,
    count: u64,
    written: u64,
    make: &Make,
) -> Result<Bytes, String> {
    let mut generator = topic.generator.clone();
    generator.value_bytes = make.value_bytes.unwrap_or(generator.value_bytes);
    let timestamp = wall_clock_ms();
    let of = make.of.as_ref();
    // The encoder starts a new batch where offset and sequence drift apart, and takes the base sequence from the first
    // record: NO_SEQUENCE outside of a transaction.
    let base_sequence = of.map_or(NO_SEQUENCE, |_| i32::try_from(written).unwrap_or(i32::MAX));
    let records: Vec<Record> = (first..first + count)
        .zip(0i32..)
        .map(|(id, at)| {
            let mut headers = IndexMap::new();
            headers.insert(StrBytes::from_static_str(ID_HEADER), Some(Bytes::from(id.to_string())));
            Record {
                transactional: of.is_some(),
                control: false,
                delete_horizon: false,
                partition_leader_epoch: NO_PARTITION_LEADER_EPOCH,
                producer_id: of.map_or(NO_PRODUCER_ID, |of| of.producer),
                producer_epoch: of.map_or(NO_PRODUCER_EPOCH, |of| of.epoch),
                timestamp_type: TimestampType::Creation,
                offset: i64::from(at),
                sequence: base_sequence.saturating_add(at),
                timestamp: timestamp - make.aged.map_or(0, |aged| aged.of(written + id - first)),
                key: Some(Bytes::from(generator.key(partition, id))),
                value: generator.value(id).filter(|_| !make.null_values).map(Bytes::from),
                headers,
            }
        })
        .collect();
    let options = RecordEncodeOptions {
        version: 2,
        compression: Compression::None,
    };
    let mut encoded = BytesMut::new();
    RecordBatchEncoder::encode(&mut encoded, &records, &options).map_err(|cause| format!("{cause:#}"))?;
    Ok(encoded.freeze())
}

/// The end of a transaction, as it stands in the log: a control record, which no reader is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marker {
    /// Its offset.
    pub offset: u64,
    /// Whose transaction it ends.
    pub producer: i64,
    /// It commits; else it aborts.
    pub commits: bool,
}

/// The type of a control record that commits: in its key, after a version of two bytes.
const COMMIT: [u8; 2] = [0, 1];

/// Ids and offsets in what a Fetch answered, the markers between them, and the offset after its last whole batch.
pub(super) struct Read {
    pub(super) records: Vec<(u64, u64)>,
    pub(super) markers: Vec<Marker>,
    pub(super) next: Option<u64>,
}

/// Reads every whole batch; a broker may cut the last one short.
pub(super) fn read(mut fetched: Bytes) -> Result<Read, String> {
    let (mut records, mut markers) = (Vec::new(), Vec::new());
    let mut next = None;
    while fetched.len() > LAST_OFFSET_DELTA + 4 {
        let base = (&fetched[..8]).get_i64();
        let length = (&fetched[8..PREFIX]).get_i32();
        let length = PREFIX + usize::try_from(length).map_err(|_| format!("a batch of {length} bytes"))?;
        if fetched.len() < length {
            break;
        }
        let delta = (&fetched[LAST_OFFSET_DELTA..]).get_i32();
        let after = base.saturating_add(i64::from(delta)).saturating_add(1);
        next = Some(u64::try_from(after).map_err(|_| format!("a batch that ends before offset {after}"))?);
        let mut batch = fetched.split_to(length);
        let set = RecordBatchDecoder::decode(&mut batch).map_err(|cause| format!("{cause:#}"))?;
        for record in &set.records {
            let offset = u64::try_from(record.offset).map_err(|_| format!("a record at offset {}", record.offset))?;
            if !record.control {
                records.push((id_of(record), offset));
                continue;
            }
            let kind = record.key.as_deref().and_then(|key| key.get(2..4));
            markers.push(Marker {
                offset,
                producer: record.producer_id,
                commits: kind == Some(&COMMIT[..]),
            });
        }
    }
    Ok(Read { records, markers, next })
}

/// The record's id, from its header or else from the start of its value.
fn id_of(record: &Record) -> u64 {
    let header = record.headers.get(&StrBytes::from_static_str(ID_HEADER));
    let value = record
        .value
        .as_deref()
        .and_then(|value| value.split(|byte| *byte == b'|').next());
    header
        .and_then(Option::as_deref)
        .or(value)
        .and_then(|id| std::str::from_utf8(id).ok())
        .and_then(|id| id.parse().ok())
        .unwrap_or(FOREIGN)
}

#[expect(
    clippy::disallowed_methods,
    reason = "record timestamps are wall time, as every producer's; nothing is judged by them"
)]
fn wall_clock_ms() -> i64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use brokerfall_report::history::Generator;

    use super::*;

    fn topic() -> TopicInfo {
        TopicInfo {
            name: "orders".to_owned(),
            partitions: 1,
            role: None,
            compacted: false,
            generator: Generator {
                keys: 3,
                value_bytes: 20,
                tombstone_every: Some(2),
            },
        }
    }

    #[test]
    fn batch_with_tombstones_reads_back_with_every_id() {
        let encoded = batch(&topic(), 0, 7, 4, 0, &Make::default()).unwrap();
        let read = read(encoded).unwrap();
        assert_eq!(read.records, [(7, 0), (8, 1), (9, 2), (10, 3)]);
        assert_eq!(read.next, Some(4));
    }

    #[test]
    fn batches_of_a_transaction_follow_on_each_other_as_their_producer_counts() {
        let make = Make {
            of: Some(OfTransaction {
                id: "t".to_owned(),
                producer: 7,
                epoch: 2,
            }),
            ..Make::default()
        };
        let mut encoded = batch(&topic(), 0, 7, 2, 500, &make).unwrap();
        let set = RecordBatchDecoder::decode(&mut encoded).unwrap();
        let told: Vec<_> = set
            .records
            .iter()
            .map(|one| (one.producer_id, one.producer_epoch, one.sequence))
            .collect();
        assert_eq!(told, [(7, 2, 500), (7, 2, 501)]);
        assert!(set.records.iter().all(|one| one.transactional && !one.control));
    }

    #[test]
    fn the_first_record_is_as_old_as_was_asked_and_the_last_is_new() {
        let aged = Aged {
            records: 5,
            first: Duration::from_secs(8),
        };
        assert_eq!([0, 1, 2, 3, 4].map(|n| aged.of(n)), [8_000, 6_000, 4_000, 2_000, 0]);
        let make = Make {
            aged: Some(aged),
            ..Make::default()
        };
        let mut encoded = batch(&topic(), 0, 3, 2, 2, &make).unwrap();
        let set = RecordBatchDecoder::decode(&mut encoded).unwrap();
        let written: Vec<i64> = set.records.iter().map(|one| one.timestamp).collect();
        assert_eq!(written[1] - written[0], 2_000);
    }

    #[test]
    fn batch_cut_short_is_left_for_the_next_fetch() {
        let mut two = BytesMut::from(&batch(&topic(), 0, 1, 2, 0, &Make::default()).unwrap()[..]);
        two.extend_from_slice(&batch(&topic(), 0, 3, 2, 0, &Make::default()).unwrap()[..40]);
        let read = read(two.freeze()).unwrap();
        assert_eq!(read.records, [(1, 0), (2, 1)]);
    }

    #[test]
    fn batch_with_a_flipped_bit_is_an_error() {
        let mut broken = BytesMut::from(&batch(&topic(), 0, 1, 1, 0, &Make::default()).unwrap()[..]);
        let last = broken.len() - 1;
        broken[last] ^= 1;
        assert!(read(broken.freeze()).is_err());
    }

    #[test]
    fn record_of_somebody_else_has_the_foreign_id() {
        let mut record = Record {
            transactional: false,
            control: false,
            delete_horizon: false,
            partition_leader_epoch: 0,
            producer_id: -1,
            producer_epoch: -1,
            timestamp_type: TimestampType::Creation,
            offset: 0,
            sequence: -1,
            timestamp: 0,
            key: None,
            value: Some(Bytes::from_static(b"hello")),
            headers: IndexMap::new(),
        };
        assert_eq!(id_of(&record), FOREIGN);
        record.value = Some(Bytes::from_static(b"12|xx"));
        assert_eq!(id_of(&record), 12);
    }
}
