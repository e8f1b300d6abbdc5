//! The streams that are found after a crash.

use std::collections::BTreeMap;

use super::appended::{Appended, payload};
use crate::Usn;
use crate::format::record::record_bytes;

/// One stream as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundStream {
    pub(super) head: u64,
    pub(super) records: Vec<FoundRecord>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundRecord {
    pub(super) lsn: u64,
    pub(super) usn: Usn,
    pub(super) payload: Vec<u8>,
}

impl FoundStream {
    pub(super) fn has(&self, record: &Appended) -> bool {
        let found = self.records.binary_search_by_key(&record.lsn, |record| record.lsn);
        found.is_ok_and(|at| self.records[at].payload == payload(record.number, record.len_bytes))
    }

    pub(super) fn count(&self) -> usize {
        self.records.len()
    }

    pub(super) fn end(&self) -> u64 {
        let last = self.records.last();
        last.map_or(self.head, |record| record.lsn + record_bytes(record.payload.len()) as u64)
    }
}

/// All streams as they were found.
pub(super) type FoundStreams = BTreeMap<String, FoundStream>;

impl FoundStream {
    /// An error unless this is `before` with one record more.
    pub(super) fn follows(&self, before: &FoundStream) -> Result<(), String> {
        let is_longer = self.records.len() == before.records.len() + 1
            && self.records.starts_with(&before.records)
            && self.records.windows(2).all(|pair| pair[0].usn < pair[1].usn);
        if is_longer { Ok(()) } else { Err("the record that was appended is not there".into()) }
    }
}
