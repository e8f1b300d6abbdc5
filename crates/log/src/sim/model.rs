//! The model: which records were appended, acknowledged, truncated and removed, and when.

use std::collections::{BTreeMap, BTreeSet};

use super::appended::{Appended, payload};
use super::found::FoundStream;

/// When an operation ran, by the machine's clock. A crash after `begin` may leave its effects. A
/// crash after `end` came when it had already returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) begin: u64,
    pub(super) end: u64,
}

/// Before the present boot.
pub(super) const BEFORE: Span = Span { begin: 0, end: 0 };

/// One stream, from its creation to its removal.
#[derive(Debug, Clone)]
pub(super) struct StreamModel {
    pub(super) name: String,
    pub(super) made: Span,
    pub(super) removed: Option<Span>,
    pub(super) records: Vec<Appended>,
    /// Records of a writer that died before it published them, and when that was found out. A power
    /// cut before that moment may leave these records.
    pub(super) void: Vec<(Appended, u64)>,
    /// Where an append begins whose writer died during it.
    pub(super) doubt: Option<u64>,
    /// LSNs after acknowledged records, and when the acknowledgement had returned.
    pub(super) acknowledged: Vec<(u64, u64)>,
    /// LSNs before which no record was needed, and when each was set.
    pub(super) heads: Vec<(u64, u64)>,
}

impl StreamModel {
    pub(super) fn new(name: &str, made: Span) -> StreamModel {
        StreamModel {
            name: name.to_owned(),
            made,
            removed: None,
            records: Vec::new(),
            void: Vec::new(),
            doubt: None,
            acknowledged: Vec::new(),
            heads: vec![(0, 0)],
        }
    }

    pub(super) fn end(&self) -> u64 {
        self.records.last().map_or(self.heads[0].0, |record| record.end)
    }

    /// The record at `lsn` with these bytes, if a crash at `moment` may leave it.
    pub(super) fn record(&self, lsn: u64, bytes: &[u8], moment: u64) -> Option<&Appended> {
        let index = self.records.partition_point(|record| record.lsn < lsn);
        let void = self.void.iter().filter(|(_, found)| *found >= moment).map(|(record, _)| record);
        let mut candidates = self.records[index..].iter().take(1).chain(void);
        candidates.find(|record| {
            record.lsn == lsn
                && record.len_bytes == bytes.len()
                && (record.begun < moment || record.begun == 0)
                && payload(record.number, record.len_bytes) == bytes
        })
    }

    /// A new writer was told that the stream ends at `end`. This decides whether an append in doubt
    /// was published. The error says what is wrong.
    pub(super) fn resolve_doubt(&mut self, end: u64, now: u64) -> Result<(), String> {
        let doubt = self.doubt.take();
        if end == self.end() {
            return Ok(());
        }
        if doubt != Some(end) {
            let known = self.end();
            return Err(format!("stream {} ends at {end}, not {known} or {doubt:?}", self.name));
        }
        let first = self.records.partition_point(|record| record.lsn < end);
        self.void.extend(self.records.drain(first..).map(|record| (record, now)));
        Ok(())
    }

    /// LSN up to which records must exist after a crash at `moment`.
    pub(super) fn least_end(&self, moment: u64) -> u64 {
        let returned = self.acknowledged.iter().filter(|(_, at)| *at < moment);
        returned.map(|(end, _)| *end).max().unwrap_or(0)
    }

    /// The newest head that may be found after a crash at `moment`.
    pub(super) fn newest_head(&self, moment: u64) -> u64 {
        let begun = self.heads.iter().filter(|(_, at)| *at < moment || *at == 0);
        begun.map(|(head, _)| *head).max().expect("the first head")
    }

    pub(super) fn is_there(&self, moment: u64) -> Presence {
        let removed = self.removed.map(|span| (span.begin < moment, span.end < moment));
        match (self.made.begin < moment || self.made == BEFORE, self.made.end < moment, removed) {
            (false, ..) | (_, _, Some((_, true))) => Presence::No,
            (true, false, _) | (_, _, Some((true, false))) => match self.made == BEFORE {
                true if removed.is_none_or(|(begun, _)| !begun) => Presence::Yes,
                _ => Presence::Perhaps,
            },
            (true, true, _) => Presence::Yes,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    No,
    Perhaps,
    Yes,
}

/// All streams that ever existed.
#[derive(Debug, Clone, Default)]
pub(super) struct Model {
    pub(super) streams: Vec<StreamModel>,
    pub(super) next_number: u64,
    /// Names of streams whose creation failed. It may have left a stream, which a later attempt
    /// uses.
    pub(super) half_made: BTreeSet<String>,
}

impl Model {
    /// The stream that has the name now.
    pub(super) fn live(&mut self, name: &str) -> Option<&mut StreamModel> {
        self.streams.iter_mut().rev().find(|s| s.name == name && s.removed.is_none())
    }

    /// Finds a place with damage that must be reported. It is before a record that was appended
    /// when all earlier ones were durable.
    pub(super) fn proof_of_damage(
        &self,
        name: &str,
        found: &FoundStream,
        rng: &mut fastrand::Rng,
    ) -> Option<u64> {
        let stream = self.streams.iter().rev().find(|stream| stream.name == name)?;
        let is_found = |record: &&Appended| {
            record.lsn >= found.head && record.end <= found.end() && found.has(record)
        };
        let records: Vec<&Appended> = stream.records.iter().filter(is_found).collect();
        let last = records.iter().rposition(|record| record.follows_durable)?;
        rng.choice(&records[..last]).map(|record| record.lsn)
    }

    /// The streams that a crash at `moment` may leave under each name.
    pub(super) fn by_name(&self, moment: u64) -> BTreeMap<&str, Vec<(&StreamModel, Presence)>> {
        let mut names: BTreeMap<&str, Vec<_>> = BTreeMap::new();
        for stream in &self.streams {
            names.entry(&stream.name).or_default().push((stream, stream.is_there(moment)));
        }
        names
    }
}
