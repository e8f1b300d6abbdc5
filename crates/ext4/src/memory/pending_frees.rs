//! Pending frees: blocks that were freed by transactions that are not committed yet.
//!
//! The bitmaps show these blocks as free, but the allocator passes them over. Data written in place
//! into them would destroy content that a crash brings back.
//!
//! Lock: one mutex, taken last, inside a handle.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use device::sync::Mutex;
use journal::Tid;

#[derive(Default)]
struct Waiting {
    /// End and transaction of each freed range, by its start. They do not overlap: a block must
    /// be allocated before it can be freed again.
    ranges: BTreeMap<u64, (u64, Tid)>,
    /// Starts in the order in which the ranges were freed, and so by transaction.
    order: VecDeque<(Tid, u64)>,
}

/// The freed ranges of a volume.
#[derive(Default)]
pub(crate) struct PendingFrees {
    state: Mutex<Waiting>,
}

impl PendingFrees {
    /// Adds `range`, which `tid` freed.
    pub(crate) fn add(&self, range: Range<u64>, tid: Tid) {
        let mut state = self.state.lock();
        state.ranges.insert(range.start, (range.end, tid));
        state.order.push_back((tid, range.start));
    }

    /// The newest transaction whose freed blocks still wait for its commit.
    pub(crate) fn newest(&self, committed: Tid) -> Option<Tid> {
        let mut state = self.state.lock();
        state.expire(committed);
        state.order.back().map(|(tid, _)| *tid)
    }

    /// Calls `each` with every part of `window` that must not be allocated yet.
    pub(crate) fn each_in(
        &self,
        window: Range<u64>,
        committed: Tid,
        mut each: impl FnMut(Range<u64>),
    ) {
        let mut state = self.state.lock();
        state.expire(committed);
        let before = state.ranges.range(..window.start).next_back();
        let inside = state.ranges.range(window.clone());
        for (start, (end, _)) in before.into_iter().chain(inside) {
            let part = (*start).max(window.start)..(*end).min(window.end);
            if !part.is_empty() {
                each(part);
            }
        }
    }
}

impl Waiting {
    fn expire(&mut self, committed: Tid) {
        while let Some((tid, start)) = self.order.front().copied()
            && tid <= committed
        {
            self.order.pop_front();
            self.ranges.remove(&start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(pending_frees: &PendingFrees, window: Range<u64>, committed: u64) -> Vec<Range<u64>> {
        let mut parts = Vec::new();
        pending_frees.each_in(window, Tid(committed), |part| parts.push(part));
        parts
    }

    #[test]
    fn ranges_wait_for_their_transaction() {
        let pending_frees = PendingFrees::default();
        pending_frees.add(10..20, Tid(5));
        pending_frees.add(30..40, Tid(6));
        assert_eq!(parts(&pending_frees, 15..35, 4), [15..20, 30..35]);
        assert_eq!(pending_frees.newest(Tid(4)), Some(Tid(6)));
        assert_eq!(parts(&pending_frees, 0..100, 5).first(), Some(&(30..40)));
        assert_eq!(pending_frees.newest(Tid(6)), None);
        assert!(parts(&pending_frees, 0..100, 6).is_empty());
    }
}
