//! How long the leader of a group commit waits for more streams.
//!
//! A group commit wakes all streams that waited for it. Without a wait, the first of them to commit
//! again would lead the next commit for itself alone, and all others would wait for a second device
//! write.
//!
//! The leader waits until as many streams wait as were in the last entry or arrived meanwhile. It
//! waits for at most half of the time that a device write has lately taken. A stream that commits
//! alone never waits, because none is expected.
//!
//! Only speed depends on these words, so they need not agree with each other.

use std::time::{Duration, Instant};

use crate::engine::service::Service;

/// The longest wait, on whatever device.
const GATHER_MAX: Duration = Duration::from_millis(10);

impl Service {
    /// Waits, for a bounded time, until all streams that are expected wait for a group commit. The
    /// caller is the leader.
    pub(crate) fn gather(&self) {
        let control = &self.control;
        let expected = control.expected_count();
        let missing = expected.saturating_sub(control.waiting_count());
        if expected < 2 || missing == 0 {
            return;
        }
        let write_ns = control.group_write_ns();
        control.wait_arrivals(missing, Duration::from_nanos(write_ns / 2).min(GATHER_MAX));
    }

    /// Notes that the leader took `taken_count` of the waiting streams.
    pub(crate) fn took(&self, taken_count: usize) {
        self.control.count_taken(taken_count as u64);
    }

    /// Remembers how many streams an entry had and how long its write took, for the next leader.
    /// The write began at `begin`.
    pub(crate) fn gathered(&self, member_count: usize, begin: Instant) {
        let control = &self.control;
        let written_ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let known_ns = control.group_write_ns();
        // One slow write is not taken for all.
        let smoothed_ns = match known_ns {
            0 => written_ns,
            known_ns => (3 * known_ns + written_ns.min(2 * known_ns)) / 4,
        };
        control.set_group_write_ns(smoothed_ns);
        let expected = member_count as u64 + control.waiting_count();
        control.expect(expected);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::engine::lane::Lane;
    use crate::test_directory::{TestDirectory, make_lane};

    /// Appends a record. Returns the new end of the lane.
    fn append(service: &Service, lane: &Arc<Lane>) -> u64 {
        let appended =
            service.with_writer(lane, |writer, allocator| writer.append(allocator, b"record"));
        appended.expect("append");
        lane.words.appended()
    }

    #[test]
    fn leader_expects_as_many_streams_as_the_last_commit_had() {
        let test_dir = TestDirectory::new();
        let (_, service) = test_dir.join();
        let control = &service.control;
        let expected = || control.expected_count();
        let count = || control.group_count();
        let members = || control.group_members();
        let [first, second] = ["first", "second"].map(|name| make_lane(&service, name));

        // The second waits already when the first leads.
        let end = append(&service, &second);
        second.words.spoil_wanted(end);
        control.set_pending(second.identity().stream.index());
        assert_eq!(control.waiting_count(), 1);
        let end_of_first = append(&service, &first);
        service.commit_to(&first, end_of_first).expect("commit");
        assert_eq!(second.words.synced(), end);
        assert_eq!((control.waiting_count(), expected(), count(), members()), (0, 2, 1, 2));

        // The second is waited for in vain, and then no more.
        for round in 1..3 {
            let end_of_first = append(&service, &first);
            service.commit_to(&first, end_of_first).expect("commit");
            let numbers = (control.waiting_count(), expected(), count(), members());
            assert_eq!(numbers, (0, 1, 1 + round, 2 + round));
        }
    }
}
