//! A table's content as it was reported.

use std::collections::BTreeMap;

use super::Moment;

/// A snapshot, complete once its command is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// When it was asked for.
    pub asked: Moment,
    /// Index of the life that answered.
    pub life: usize,
    /// When it was complete; absent before.
    pub done: Option<Moment>,
    /// Key to record id; `None` for a value that holds no id.
    pub entries: BTreeMap<String, Option<u64>>,
}

/// The partition of a key that the oracle wrote (`p2-k3`).
pub fn partition_of(key: &str) -> Option<u32> {
    let (partition, key) = key.strip_prefix('p')?.split_once("-k")?;
    let plain = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    (plain(partition) && plain(key)).then(|| partition.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::partition_of;

    #[test]
    fn only_keys_of_the_oracle_have_a_partition() {
        assert_eq!(partition_of("p12-k3"), Some(12));
        for other in ["", "p", "p-k1", "p1-k", "p1", "x1-k2", "p+1-k2", "p99999999999-k1"] {
            assert_eq!(partition_of(other), None, "{other}");
        }
    }
}
