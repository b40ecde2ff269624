//! What the link reads from the bodies of requests.

use super::frame::{Cursor, RequestHeader};
use super::tap::Trouble;

/// Keys of the apis that the link looks into.
pub(super) mod api {
    pub(in super::super) const PRODUCE: i16 = 0;
    pub(in super::super) const FETCH: i16 = 1;
    pub(in super::super) const LIST_OFFSETS: i16 = 2;
    pub(in super::super) const METADATA: i16 = 3;
    pub(in super::super) const OFFSET_COMMIT: i16 = 8;
    pub(in super::super) const OFFSET_FETCH: i16 = 9;
    pub(in super::super) const FIND_COORDINATOR: i16 = 10;
    pub(in super::super) const JOIN_GROUP: i16 = 11;
    pub(in super::super) const HEARTBEAT: i16 = 12;
    pub(in super::super) const LEAVE_GROUP: i16 = 13;
    pub(in super::super) const SYNC_GROUP: i16 = 14;
    pub(in super::super) const SASL_HANDSHAKE: i16 = 17;
    pub(in super::super) const API_VERSIONS: i16 = 18;
    pub(in super::super) const OFFSET_FOR_LEADER_EPOCH: i16 = 23;
    pub(in super::super) const SASL_AUTHENTICATE: i16 = 36;
    pub(in super::super) const DESCRIBE_CLUSTER: i16 = 60;
    pub(in super::super) const CONSUMER_GROUP_HEARTBEAT: i16 = 68;
}

/// A topic as a request names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TopicRef {
    Name(String),
    /// Fetch from 13 and OffsetCommit from 10 on.
    Id([u8; 16]),
}

/// A partition and an offset that a request names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PartitionOffset {
    pub(super) topic: TopicRef,
    pub(super) partition: i32,
    pub(super) offset: i64,
}

/// What a Metadata request asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct MetadataAsked {
    /// Every topic that there is.
    pub(super) all: bool,
    /// Topics asked for by name.
    pub(super) names: Vec<String>,
    /// Topics that the cluster is not asked for, and what is answered for them instead.
    pub(super) withheld: Vec<Trouble>,
}

/// What the answer to a request is to be read with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum Body {
    /// Nothing of it is needed.
    #[default]
    Other,
    /// A Produce that asks for no answer.
    ProduceUnanswered,
    /// Offsets asked for.
    Fetch(Vec<PartitionOffset>),
    /// A question up to version 3, whose answer does not name the group.
    Coordinator {
        group: String,
    },
    Metadata(MetadataAsked),
    Join {
        group: String,
        /// The protocol that the member offers first.
        assignor: Option<String>,
    },
    Sync {
        group: String,
        generation: i32,
        member: String,
        /// How many assignments it carries; only the leader's carries any.
        assignments: usize,
    },
    Heartbeat {
        group: String,
        generation: i32,
    },
    Leave {
        group: String,
    },
    /// The heartbeat of KIP-848, which also joins (epoch 0) and leaves (below 0).
    Member {
        group: String,
        epoch: i32,
    },
    /// After it the login is spoken without headers, for as long as it takes (KIP-43).
    BareLogin,
    Commit {
        group: String,
        offsets: Vec<PartitionOffset>,
    },
}

/// Reads the body of a request; `None` when it cannot be read.
pub(super) fn body(header: &RequestHeader<'_>) -> Option<Body> {
    let version = header.version;
    let mut cursor = header.body.clone();
    let cursor = &mut cursor;
    Some(match header.api {
        api::PRODUCE => {
            if version >= 3 {
                cursor.string()?;
            }
            if cursor.i16()? == 0 {
                Body::ProduceUnanswered
            } else {
                Body::Other
            }
        }
        api::FETCH => Body::Fetch(fetch(cursor, version)?),
        api::FIND_COORDINATOR if version <= 3 => Body::Coordinator { group: text(cursor)? },
        api::JOIN_GROUP => join(cursor, version)?,
        api::METADATA => Body::Metadata(metadata(cursor, version)?),
        api::SYNC_GROUP => {
            let (group, generation, member) = (text(cursor)?, cursor.i32()?, text(cursor)?);
            for since in [3, 5, 5] {
                if version >= since {
                    cursor.string()?;
                }
            }
            Body::Sync {
                group,
                generation,
                member,
                assignments: cursor.array()?,
            }
        }
        api::HEARTBEAT => Body::Heartbeat {
            group: text(cursor)?,
            generation: cursor.i32()?,
        },
        api::LEAVE_GROUP => Body::Leave { group: text(cursor)? },
        api::CONSUMER_GROUP_HEARTBEAT => {
            let group = text(cursor)?;
            cursor.string()?; // member id
            Body::Member {
                group,
                epoch: cursor.i32()?,
            }
        }
        api::SASL_HANDSHAKE if version == 0 => Body::BareLogin,
        api::OFFSET_COMMIT => commit(cursor, version)?,
        _ => Body::Other,
    })
}

fn metadata(cursor: &mut Cursor<'_>, version: i16) -> Option<MetadataAsked> {
    let topics = cursor.array_or_null()?;
    let mut names = Vec::new();
    for _ in 0..topics.unwrap_or_default() {
        skip(cursor, &[(version >= 10, 16)])?; // topic id
        // Absent where the topic is asked for by its id.
        names.extend(cursor.string()?.map(str::to_owned));
        cursor.tags()?;
    }
    // Version 0 has no null array, and asks for all with an empty one.
    let all = topics.is_none() || (version == 0 && topics == Some(0));
    Some(MetadataAsked {
        all,
        names,
        withheld: Vec::new(),
    })
}

fn text(cursor: &mut Cursor<'_>) -> Option<String> {
    cursor.string().map(|text| text.unwrap_or_default().to_owned())
}

fn join(cursor: &mut Cursor<'_>, version: i16) -> Option<Body> {
    let group = text(cursor)?;
    skip(cursor, &[(true, 4), (version >= 1, 4)])?; // session and rebalance timeout
    cursor.string()?; // member id
    if version >= 5 {
        cursor.string()?; // group instance id
    }
    cursor.string()?; // protocol type
    let assignor = match cursor.array()? {
        0 => None,
        _ => cursor.string()?.map(str::to_owned),
    };
    Some(Body::Join { group, assignor })
}

fn topic(cursor: &mut Cursor<'_>, by_id: bool) -> Option<TopicRef> {
    if by_id {
        cursor.uuid().map(TopicRef::Id)
    } else {
        text(cursor).map(TopicRef::Name)
    }
}

fn fetch(cursor: &mut Cursor<'_>, version: i16) -> Option<Vec<PartitionOffset>> {
    let skipped = [
        (version <= 14, 4), // replica id
        (true, 8),          // max wait, min bytes
        (version >= 3, 4),  // max bytes
        (version >= 4, 1),  // isolation
        (version >= 7, 8),  // session id and epoch
    ];
    skip(cursor, &skipped)?;
    let mut offsets = Vec::new();
    for _ in 0..cursor.array()? {
        let topic = topic(cursor, version >= 13)?;
        for _ in 0..cursor.array()? {
            let partition = cursor.i32()?;
            skip(cursor, &[(version >= 9, 4)])?; // current leader epoch
            let offset = cursor.i64()?;
            // Last fetched epoch, log start offset, partition max bytes.
            skip(cursor, &[(version >= 12, 4), (version >= 5, 8), (true, 4)])?;
            cursor.tags()?;
            offsets.push(PartitionOffset {
                topic: topic.clone(),
                partition,
                offset,
            });
        }
        cursor.tags()?;
    }
    Some(offsets)
}

fn commit(cursor: &mut Cursor<'_>, version: i16) -> Option<Body> {
    let group = text(cursor)?;
    if version >= 1 {
        cursor.i32()?;
        cursor.string()?;
    }
    if version >= 7 {
        cursor.string()?;
    }
    skip(cursor, &[((2..=4).contains(&version), 8)])?; // retention time
    let mut offsets = Vec::new();
    for _ in 0..cursor.array()? {
        let topic = topic(cursor, version >= 10)?;
        for _ in 0..cursor.array()? {
            let (partition, offset) = (cursor.i32()?, cursor.i64()?);
            skip(cursor, &[(version == 1, 8), (version >= 6, 4)])?; // commit timestamp, leader epoch
            cursor.string()?;
            cursor.tags()?;
            offsets.push(PartitionOffset {
                topic: topic.clone(),
                partition,
                offset,
            });
        }
        cursor.tags()?;
    }
    Some(Body::Commit { group, offsets })
}

fn skip(cursor: &mut Cursor<'_>, fields: &[(bool, usize)]) -> Option<()> {
    for (present, bytes) in fields {
        if *present {
            cursor.take(*bytes)?;
        }
    }
    Some(())
}
