//! The pace of a checkpoint: how many writers bring blocks home at a time.
//!
//! Commits and home writes share a disk, and a disk takes requests in the order in which they
//! arrive. Each home write that is in flight when a commit writes its record makes that commit
//! longer. So one writer goes on while commits come and home writes keep their schedule: a part of
//! the region is home before the same part of its allowance is used. The allowance is half of the
//! ring's room, and leaves at least [`BURST_BYTES`] of it: for the flush at the end, and for bursts
//! of commits. A checkpoint that falls behind gets more writers step by step.
//!
//! All writers go on if no commit can be made longer (none came for a while, or the journal is on
//! another disk), and if a thread waits for the checkpoint: for a free region, for memory, or until
//! everything is home. So a commit never waits for a slow pace.

use std::time::{Duration, Instant};

use super::home_device::WRITER_COUNT_MAX;
use crate::ring::Room;

/// Blocks that are written between two looks at the pace, for each writer.
const BLOCKS_PER_WRITER: usize = 32;

/// Commits that come in a burst may use so much before they wait. So a small ring is brought home
/// by all writers.
const BURST_BYTES: u64 = 16 << 20;

/// Commits come if one was made so recently.
const RECENT: Duration = Duration::from_millis(100);

/// Parts are counted in thousandths.
const WHOLE: u64 = 1000;

/// The number of writers while commits come. So many thousandths of the allowance are used, and of
/// the blocks are home.
fn writer_count_beside(used: u64, home: u64) -> usize {
    match used.saturating_sub(home) {
        0 => 1,
        1..=125 => 2,
        126..=250 => 4,
        _ => WRITER_COUNT_MAX,
    }
}

/// The pace of one checkpoint.
pub(super) struct Pace {
    block_count: usize,
    /// The room at the beginning.
    room: Room,
    /// What commits may use of it until all blocks are home.
    allowance: Room,
    /// The room at the latest look. A commit takes some of it.
    left: Room,
    last_commit: Instant,
}

/// What a checkpoint sees before it writes more blocks.
pub(super) struct Look {
    /// For commits.
    pub room: Room,
    /// Blocks of the checkpoint that are home.
    pub home_count: usize,
    /// The journal is on another disk, or a thread waits for the checkpoint.
    pub is_alone: bool,
}

impl Pace {
    /// A checkpoint of so many blocks begins, with so much room for commits.
    pub(super) fn new(block_count: usize, room: Room, now: Instant) -> Pace {
        let allowance = Room {
            bytes: (room.bytes / 2).min(room.bytes.saturating_sub(BURST_BYTES)),
            block_count: room.block_count / 2,
        };
        Pace { block_count, room, allowance, left: room, last_commit: now }
    }

    /// The number of writers until the next look.
    pub(super) fn writer_count(&mut self, look: &Look, now: Instant) -> usize {
        if look.room != self.left {
            (self.left, self.last_commit) = (look.room, now);
        }
        if look.is_alone || now - self.last_commit > RECENT {
            return WRITER_COUNT_MAX;
        }
        let used = self.used(&look.room);
        let home = look.home_count as u64 * WHOLE / self.block_count.max(1) as u64;
        writer_count_beside(used, home)
    }

    /// The part of the allowance that is used when `left` is left of the room.
    fn used(&self, left: &Room) -> u64 {
        let part = |used: u64, all: u64| {
            used.saturating_mul(WHOLE).checked_div(all).unwrap_or(WHOLE).min(WHOLE)
        };
        let Room { bytes, block_count } = self.room;
        let bytes = part(bytes.saturating_sub(left.bytes), self.allowance.bytes);
        let blocks = block_count.saturating_sub(left.block_count);
        bytes.max(part(blocks as u64, self.allowance.block_count as u64))
    }

    /// The number of blocks that these writers write until the next look.
    pub(super) fn block_count(writer_count: usize) -> usize {
        writer_count * BLOCKS_PER_WRITER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const ROOM: Room = Room { bytes: 64 * MIB, block_count: 100 };

    #[test]
    fn all_writers_go_on_when_commits_stop_coming() {
        let start = Instant::now();
        let mut pace = Pace::new(1000, ROOM, start);
        let at = |ms| start + Duration::from_millis(ms);
        let look = |mib| {
            let room = Room { bytes: mib * MIB, ..ROOM };
            Look { room, home_count: 500, is_alone: false }
        };
        assert_eq!(pace.writer_count(&look(64), at(100)), 1);
        assert_eq!(pace.writer_count(&look(60), at(150)), 1, "a commit came");
        assert_eq!(pace.writer_count(&look(60), at(250)), 1);
        assert_eq!(pace.writer_count(&look(60), at(251)), 8, "none came for a while");
        assert_eq!(pace.writer_count(&look(56), at(252)), 1, "they come again");
        let alone = Look { is_alone: true, ..look(52) };
        assert_eq!(pace.writer_count(&alone, at(253)), 8);
    }

    #[test]
    fn the_room_that_is_short_first_sets_the_schedule() {
        let pace = Pace::new(1000, ROOM, Instant::now());
        for (mib, block_count, used) in
            [(64, 100, 0), (48, 100, 500), (64, 75, 500), (32, 100, 1000), (0, 100, 1000)]
        {
            let left = Room { bytes: mib * MIB, block_count };
            assert_eq!(pace.used(&left), used, "{left:?}");
        }
    }

    #[test]
    fn the_schedule_leaves_room_for_a_burst() {
        for (mib, allowed_mib) in [(100, 50), (32, 16), (24, 8), (16, 0), (4, 0)] {
            let room = Room { bytes: mib * MIB, ..ROOM };
            let pace = Pace::new(1000, room, Instant::now());
            assert_eq!(pace.allowance, Room { bytes: allowed_mib * MIB, block_count: 50 });
            if allowed_mib == 0 {
                assert_eq!(pace.used(&room), 1000, "it is behind at once");
            }
        }
    }

    #[test]
    fn a_checkpoint_has_the_more_writers_the_later_it_is() {
        assert_eq!(WRITER_COUNT_MAX, 8);
        for (used, home, writer_count) in [
            (0, 0, 1),
            (1, 0, 2),
            (125, 0, 2),
            (126, 0, 4),
            (250, 0, 4),
            (251, 0, 8),
            (600, 600, 1),
            (600, 500, 2),
            (600, 400, 4),
            (600, 300, 8),
            (1000, 1000, 1),
            (1000, 999, 2),
            (1000, 0, 8),
        ] {
            assert_eq!(writer_count_beside(used, home), writer_count, "{used} used, {home} home");
        }
    }
}
