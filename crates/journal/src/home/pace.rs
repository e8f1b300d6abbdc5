//! The pace of a checkpoint: how many writers bring blocks home at a time.
//!
//! Commits and home writes share a disk, and a disk takes requests in the order in which they
//! arrive. Each home write that is in flight when a commit writes its record makes that commit
//! longer. So one writer goes on while commits come and home writes keep their schedule. The
//! schedule is the ring's: a part of the region is home before half that part of the ring's room is
//! used, so that half of the room is left for the flush at the end and for bursts. A checkpoint
//! that falls behind gets more writers step by step.
//!
//! All writers go on if no commit can be made longer (none came for a while, or the journal is on
//! another disk), and if a thread waits for the checkpoint: for a free region, for memory, or until
//! everything is home. So a commit never waits for a slow pace.

use std::time::{Duration, Instant};

use super::home_device::WRITER_COUNT_MAX;
use crate::ring::Room;

/// Blocks that are written between two looks at the pace, for each writer.
const BLOCKS_PER_WRITER: usize = 32;

/// Commits come if one was made so recently.
const RECENT: Duration = Duration::from_millis(100);

/// Parts are counted in thousandths.
const WHOLE: u64 = 1000;

/// What the pace depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    /// A thread waits for the checkpoint, or no commit competes with it.
    Alone,
    /// Commits come. So many thousandths of the room are used, and of the blocks are home.
    Beside { used: u64, home: u64 },
}

impl Need {
    fn writer_count(self) -> usize {
        let Need::Beside { used, home } = self else { return WRITER_COUNT_MAX };
        let wanted = used * 2;
        match wanted.saturating_sub(home) {
            0 => 1,
            1..=125 => 2,
            126..=250 => 4,
            _ => WRITER_COUNT_MAX,
        }
    }
}

/// The pace of one checkpoint.
pub(super) struct Pace {
    block_count: usize,
    /// At the beginning.
    room: Room,
    /// At the latest look. A commit takes some of it.
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
        Pace { block_count, room, left: room, last_commit: now }
    }

    /// The number of writers until the next look.
    pub(super) fn writer_count(&mut self, look: &Look, now: Instant) -> usize {
        if look.room != self.left {
            (self.left, self.last_commit) = (look.room, now);
        }
        if look.is_alone || now - self.last_commit > RECENT {
            return Need::Alone.writer_count();
        }
        let used = self.room.used(&look.room, WHOLE);
        let home = look.home_count as u64 * WHOLE / self.block_count.max(1) as u64;
        Need::Beside { used, home }.writer_count()
    }

    /// The number of blocks that these writers write until the next look.
    pub(super) fn block_count(writer_count: usize) -> usize {
        writer_count * BLOCKS_PER_WRITER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room = Room { bytes: 1000, block_count: 100 };

    #[test]
    fn all_writers_go_on_when_commits_stop_coming() {
        let start = Instant::now();
        let mut pace = Pace::new(1000, ROOM, start);
        let at = |ms| start + Duration::from_millis(ms);
        let look = |bytes| {
            let room = Room { bytes, ..ROOM };
            Look { room, home_count: 500, is_alone: false }
        };
        assert_eq!(pace.writer_count(&look(1000), at(100)), 1);
        assert_eq!(pace.writer_count(&look(900), at(150)), 1, "a commit came");
        assert_eq!(pace.writer_count(&look(900), at(250)), 1);
        assert_eq!(pace.writer_count(&look(900), at(251)), 8, "none came for a while");
        assert_eq!(pace.writer_count(&look(800), at(252)), 1, "they come again");
        let alone = Look { is_alone: true, ..look(700) };
        assert_eq!(pace.writer_count(&alone, at(253)), 8);
    }

    #[test]
    fn the_room_that_is_short_first_sets_the_schedule() {
        for (bytes, block_count, used) in
            [(1000, 100, 0), (250, 100, 750), (1000, 25, 750), (0, 100, 1000), (1000, 0, 1000)]
        {
            assert_eq!(ROOM.used(&Room { bytes, block_count }, WHOLE), used);
        }
        let none = Room { bytes: 0, block_count: 0 };
        assert_eq!(none.used(&none, WHOLE), 1000, "without room, a checkpoint is behind");
    }

    #[test]
    fn the_writers_of_each_need() {
        let beside = |used, home| Need::Beside { used, home }.writer_count();
        assert_eq!(Need::Alone.writer_count(), 8);
        for (used, home, writer_count) in [
            (0, 0, 1),
            (1, 0, 2),
            (62, 0, 2),
            (63, 0, 4),
            (125, 0, 4),
            (126, 0, 8),
            (300, 600, 1),
            (300, 500, 2),
            (300, 400, 4),
            (300, 300, 8),
            (500, 1000, 1),
            (500, 999, 2),
            (1000, 0, 8),
            (1000, 999, 8),
        ] {
            assert_eq!(beside(used, home), writer_count, "{used} used, {home} home");
        }
    }
}
