//! Records which blocks are being written in place, and by which write.
//!
//! Writes of different blocks go to the device in parallel. Writes of one block follow each other
//! in the order in which they were announced. When a write is announced, it learns which earlier
//! writes have blocks in common with it. It begins after they have ended. A write waits for earlier
//! writes only, and a write that has begun does not wait here, so there is no deadlock.
//!
//! Lock: one mutex. It is taken while `running` is held, so that writes are announced in the order
//! in which versions left the running transaction. It is not held during I/O.

use std::collections::BTreeMap;
use std::ops::Range;

use device::sync::{Condvar, Mutex};

use crate::observer::BlockOwner;

/// A sync waits for the writes of other threads up to this many blocks, so that they share its
/// flush.
const SMALL_BLOCK_COUNT: u64 = 64;

/// Where the data of a write come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// From the caller, which waits for the write.
    Caller,
    /// From buffered data of this owner.
    BufferedOf(BlockOwner),
    /// From buffered data of any owner.
    Buffered,
}

/// All in-place writes that were announced and have not ended.
#[derive(Default)]
pub(crate) struct UnderWay {
    writes: Mutex<Writes>,
    ended: Condvar,
}

#[derive(Default)]
struct Writes {
    next_ticket: u64,
    by_ticket: BTreeMap<u64, Announced>,
}

struct Announced {
    source: Source,
    /// Ascending runs that do not touch.
    runs: Vec<Range<u64>>,
    block_count: u64,
}

/// A write that was announced; it ends when this is dropped.
pub(crate) struct InPlaceWrite<'a> {
    all: &'a UnderWay,
    ticket: u64,
    /// Earlier writes of some of its blocks.
    earlier: Vec<u64>,
}

impl UnderWay {
    /// Announces a write of these blocks, given as ascending runs that do not touch.
    pub(crate) fn announce(&self, source: Source, runs: Vec<Range<u64>>) -> InPlaceWrite<'_> {
        let are_apart = |pair: &[Range<u64>]| pair[0].end < pair[1].start;
        assert!(runs.windows(2).all(are_apart), "runs ascend, apart from each other");
        assert!(runs.iter().all(|run| run.start <= run.end), "no run is reversed");
        let mut writes = self.writes.lock();
        let ticket = writes.next_ticket;
        writes.next_ticket += 1;
        let overlapping = writes.by_ticket.iter().filter(|(_, other)| overlap(&other.runs, &runs));
        let earlier = overlapping.map(|(ticket, _)| *ticket).collect();
        let block_count = runs.iter().map(|run| run.end - run.start).sum();
        writes.by_ticket.insert(ticket, Announced { source, runs, block_count });
        InPlaceWrite { all: self, ticket, earlier }
    }

    /// Returns when the writes that were announced before have ended. With `owner`, waits only for
    /// two kinds of writes: writes that may hold buffered data of this owner, and writes so small
    /// that waiting for them costs less than the flush that they would ask for.
    pub(crate) fn wait_for_others(&self, owner: Option<BlockOwner>) {
        let mut writes = self.writes.lock();
        let is_awaited = |write: &Announced| match (owner, write.source) {
            (None, _) | (_, Source::Buffered) => true,
            (Some(_), Source::Caller) => false,
            (Some(owner), Source::BufferedOf(other)) => {
                owner == other || write.block_count <= SMALL_BLOCK_COUNT
            }
        };
        let awaited = writes.by_ticket.iter().filter(|(_, write)| is_awaited(write));
        let awaited: Vec<u64> = awaited.map(|(ticket, _)| *ticket).collect();
        while awaited.iter().any(|ticket| writes.by_ticket.contains_key(ticket)) {
            writes = self.ended.wait(writes);
        }
    }
}

impl InPlaceWrite<'_> {
    /// Returns when no earlier write of any of its blocks is under way.
    pub(crate) fn wait_for_earlier(&self) {
        if self.earlier.is_empty() {
            return;
        }
        let mut writes = self.all.writes.lock();
        while self.earlier.iter().any(|ticket| writes.by_ticket.contains_key(ticket)) {
            writes = self.all.ended.wait(writes);
        }
    }
}

impl Drop for InPlaceWrite<'_> {
    fn drop(&mut self) {
        let ended = self.all.writes.lock().by_ticket.remove(&self.ticket);
        assert!(ended.is_some() || std::thread::panicking(), "a write ends once");
        self.all.ended.notify_all();
    }
}

/// Whether two runs have a block in common.
pub(crate) fn have_common(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Whether two lists of ascending runs have a block in common.
fn overlap(mut some: &[Range<u64>], mut others: &[Range<u64>]) -> bool {
    while let ([run, ..], [other, ..]) = (some, others) {
        if have_common(run, other) {
            return true;
        }
        if run.end <= other.start {
            some = &some[1..];
        } else {
            others = &others[1..];
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::home::runs_of;
    use crate::types::HomeBlock;

    fn runs(blocks: &[u64]) -> Vec<Range<u64>> {
        let blocks: Vec<HomeBlock> = blocks.iter().copied().map(HomeBlock).collect();
        runs_of(blocks.iter())
    }

    #[test]
    fn blocks_that_follow_each_other_are_a_run() {
        assert_eq!(runs(&[]), []);
        assert_eq!(runs(&[1, 2, 3, 7, 9, 10]), [1..4, 7..8, 9..11]);
    }

    #[test]
    fn lists_of_runs_overlap_when_they_share_a_block() {
        let of = |bits: u32| runs(&(0..6).filter(|n| bits >> n & 1 == 1).collect::<Vec<_>>());
        for some in 0..64 {
            for others in 0..64 {
                assert_eq!(overlap(&of(some), &of(others)), some & others != 0);
            }
        }
    }

    #[test]
    fn a_write_waits_for_the_earlier_ones_of_its_blocks() {
        let all = UnderWay::default();
        let first = all.announce(Source::Caller, runs(&[1, 2, 3]));
        let apart = all.announce(Source::Buffered, runs(&[4, 5, 6, 7, 8]));
        let both = all.announce(Source::Caller, runs(&[0, 3, 4]));
        let after = all.announce(Source::Caller, runs(&[0]));
        let earlier = [&first, &apart, &both, &after].map(|write| write.earlier.len());
        assert_eq!(earlier, [0, 0, 2, 1]);
        drop((first, apart));
        both.wait_for_earlier();
    }
}
