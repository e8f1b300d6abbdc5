//! Arbitrary values in the words that a client or an earlier process may write, as a property.
//!
//! Whatever the words hold, the daemon's calls return after a bounded number of reads, with an
//! error or with a value that is inside the lane and its chunks.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::sync::Arc;

use device::SharedWords;
use proptest::prelude::*;
use proptest::sample::Index;

use super::lane::at;
use super::report::{ClientWords, READS_MAX, Report};
use super::{Abort, CHUNK_COUNT_MAX, Client, LaneWords, ORDINAL_MAX};
use crate::{LogError, Result};

const CHUNK_BYTES: u64 = 64 << 10;

/// A value for a word: any number, and often one near a bound.
fn value() -> impl Strategy<Value = u64> {
    let near = |bound: u64| (0..9u64).prop_map(move |by| bound.wrapping_add(by).wrapping_sub(4));
    let entry = |(ordinal, chunk): (u64, u64)| ordinal << 16 | (chunk & 0xffff);
    prop_oneof![
        any::<u64>(),
        near(0),
        near(u64::MAX),
        near(u64::MAX / 2),
        near(ORDINAL_MAX),
        (0..24 * CHUNK_BYTES),
        (0..6 * CHUNK_BYTES / 4).prop_map(|quarter| quarter * 4),
        // Entries of the table: small spans, and chunks on both sides of the most that there are.
        (0..3000u64, any::<u64>()).prop_map(entry),
        (0..3000u64, CHUNK_COUNT_MAX as u64 - 4..CHUNK_COUNT_MAX as u64 + 4).prop_map(entry),
    ]
}

/// A word: any, and often one that the daemon reads from a client's copy.
fn index() -> impl Strategy<Value = usize> {
    let read = [at::APPENDED, at::RECORD_COUNT, at::PAYLOAD_BYTES, at::LAST_USN];
    prop_oneof![0..LaneWords::COUNT, proptest::sample::select(read.to_vec())]
}

/// A client that writes its words between two reads of the daemon, and may cut them short.
#[derive(Debug)]
struct HostileClient {
    words: RefCell<Vec<u64>>,
    /// Before which read a word changes.
    writes: Vec<(usize, usize, u64)>,
    /// Whether every read finds another value.
    is_restless: bool,
    cut_before: Option<usize>,
    read_count: Cell<usize>,
}

fn hostile_client() -> impl Strategy<Value = HostileClient> {
    let first = proptest::collection::vec((index(), value()), 0..8);
    let writes = proptest::collection::vec((0..60usize, index(), value()), 0..40);
    let cut = proptest::option::weighted(0.2, 0..60usize);
    (first, writes, proptest::bool::weighted(0.1), cut).prop_map(
        |(first, writes, is_restless, cut_before)| {
            let mut words = vec![0; LaneWords::COUNT];
            first.into_iter().for_each(|(index, value)| words[index] = value);
            let words = RefCell::new(words);
            HostileClient { words, writes, is_restless, cut_before, read_count: Cell::new(0) }
        },
    )
}

impl ClientWords for HostileClient {
    fn word(&self, index: usize) -> Result<u64> {
        let read = self.read_count.get();
        self.read_count.set(read + 1);
        if self.cut_before.is_some_and(|cut| read >= cut) {
            return Err(LogError::Incompatible("the words are cut".into()));
        }
        let mut words = self.words.borrow_mut();
        for (before, index, value) in &self.writes {
            if *before == read {
                words[*index] = *value;
            }
        }
        Ok(words[index].wrapping_add(if self.is_restless { read as u64 * 4 } else { 0 }))
    }
}

fn lane() -> (LaneWords, Arc<SharedWords>) {
    let words = Arc::new(SharedWords::anonymous(LaneWords::COUNT).expect("words"));
    (LaneWords::new(words.clone()), words)
}

fn all_words(words: &SharedWords) -> Vec<u64> {
    let load = |index| words.word(index).load(std::sync::atomic::Ordering::SeqCst);
    (0..LaneWords::COUNT).map(load).collect()
}

proptest! {
    #![proptest_config(onejournal_testing::proptest_config!(2000))]

    /// The lane's own words change as the client reports, inside the chunks that the daemon
    /// allocated, or not at all.
    #[test]
    fn a_report_moves_the_end_inside_the_streams_own_chunks_or_not_at_all(
        client in hostile_client(),
        // How much was appended before, and the chunks from there on.
        known in (0..3 * CHUNK_BYTES / 4).prop_map(|quarter| quarter * 4),
        chunks in proptest::collection::vec((0..CHUNK_COUNT_MAX, any::<bool>()), 0..5),
        usn_limit in value(),
    ) {
        let (lane, words) = lane();
        lane.mark_ready(0, known, 0);
        lane.set_usn_range(0, usn_limit);
        let mut owned = HashSet::new();
        for (ordinal, (chunk, is_owned)) in (known / CHUNK_BYTES..).zip(&chunks) {
            lane.set_chunk(ordinal, *chunk);
            // A chunk that the table names may be another stream's.
            if *is_owned { owned.insert(*chunk) } else { owned.remove(chunk) };
        }
        for _ in 0..6 {
            let (before, end) = (all_words(&words), lane.appended());
            let first_read = client.read_count.get();
            let report = Report::read(&client);
            let read_count = client.read_count.get() - first_read;
            prop_assert!(read_count <= READS_MAX + 1 + 3, "{read_count} reads");
            let Ok(report) = report else {
                prop_assert!(client.cut_before.is_some());
                return Ok(());
            };
            let owns = |chunk: usize| {
                assert!(chunk < CHUNK_COUNT_MAX, "asked for the owner of chunk {chunk}");
                owned.contains(&chunk)
            };
            let taken = lane.take_over_report(end, report, CHUNK_BYTES, owns);
            let after = all_words(&words);
            let has_moved = lane.appended() != end;
            for index in 0..LaneWords::COUNT {
                let is_reported =
                    [at::APPENDED, at::RECORD_COUNT, at::PAYLOAD_BYTES, at::LAST_USN]
                        .contains(&index);
                prop_assert!(
                    before[index] == after[index] || is_reported && has_moved,
                    "word {index}"
                );
            }
            match taken {
                Err(e) => {
                    prop_assert!(!has_moved && e.reported == report.appended && e.known == end)
                }
                Ok(()) => prop_assert_eq!(lane.appended(), report.appended),
            }
            if has_moved {
                let appended = lane.appended();
                prop_assert!(appended > end && appended.is_multiple_of(4));
                let last = lane.chunk((appended - 1) / CHUNK_BYTES);
                prop_assert!(
                    last.is_some_and(|chunk| owned.contains(&chunk)),
                    "ends outside its chunks"
                );
                prop_assert!(lane.last_usn() <= usn_limit);
            }
        }
    }

    /// The lane's words themselves, as a process may leave them that has or had the directory open.
    #[test]
    fn words_left_by_another_process_give_bounded_values(
        writes in proptest::collection::vec((0..LaneWords::COUNT, value()), 1..60),
        placed in proptest::collection::vec((any::<Index>(), 0..3000u64), 0..8),
        ordinals in proptest::collection::vec(value(), 8),
        (pool_bytes, usn_limit) in (value(), value()),
    ) {
        let (lane, words) = lane();
        let store = |index: usize, value| {
            words.word(index).store(value, std::sync::atomic::Ordering::SeqCst)
        };
        writes.iter().for_each(|(index, value)| store(*index, *value));
        // Entries where they belong, of chunks that may be none.
        for (chunk, ordinal) in &placed {
            let slot = at::CHUNKS + (*ordinal as usize % CHUNK_COUNT_MAX);
            store(slot, ordinal << 16 | chunk.index(1 << 16) as u64);
        }
        let chunks = lane.chunks();
        prop_assert!(chunks.is_sorted() && chunks.len() <= CHUNK_COUNT_MAX);
        for &(ordinal, chunk) in &chunks {
            prop_assert!(chunk < CHUNK_COUNT_MAX && ordinal < ORDINAL_MAX - 1);
            prop_assert_eq!(lane.chunk(ordinal), Some(chunk));
        }
        for ordinal in ordinals.iter().copied().chain(placed.iter().map(|(_, ordinal)| *ordinal)) {
            let found = lane.chunk(ordinal);
            prop_assert!(
                found.is_none_or(|chunk| chunks.contains(&(ordinal, chunk))),
                "span {ordinal}: {found:?}"
            );
            // Whatever it says, it ends.
            lane.has_entry(ordinal);
        }
        if lane.is_plausible(pool_bytes, usn_limit) {
            prop_assert!(lane.drained() <= lane.appended() && lane.appended() < u64::MAX / 2);
            prop_assert!(lane.appended() - lane.drained() <= pool_bytes);
            prop_assert!(lane.synced() <= lane.appended() && lane.last_usn() < usn_limit.max(1));
        }
        let copy = lane.copy_for_client();
        prop_assert_eq!(copy.len(), LaneWords::COUNT * 8);
        prop_assert!(
            copy[at::CHUNKS * 8..].iter().all(|byte| *byte == 0),
            "a client sees no chunk of another"
        );
        let (me, held) = (Client::new(3, 5), lane.lessee());
        prop_assert!(held.slot().is_none_or(|slot| slot < 1 << 16));
        prop_assert_eq!(lane.claim_lessee(me, |_| true), Some(held));
        let drainer = lane.claim_drainer(me, |_| true).expect("the holder is dead");
        drainer.mark_drained(lane.appended());
        lane.appender().publish_appended(lane.appended().wrapping_add(4), 1, u64::MAX, u64::MAX);
        lane.raise_head(ordinals[0]);
        let _ = (lane.totals(), lane.remote(), lane.is_token(0), lane.header());
        drainer.mark_removed();
        prop_assert_eq!(lane.aborted(), Some(Abort::Removed));
        prop_assert!(lane.chunks().is_empty());
        prop_assert_eq!((lane.synced(), lane.drained()), (lane.appended(), lane.appended()));
    }
}
