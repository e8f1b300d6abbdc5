//! The events of a simulated medium.

use std::sync::Arc;

use super::piece::Piece;

/// An operation on a simulated medium. The threads of NVRAM are numbered in the order of their
/// first store or fence. A block device has one thread, number 0.
#[derive(Debug, Clone)]
pub enum Event {
    /// A write or store, durable after the next flush of its thread.
    Write {
        /// Byte offset.
        offset: u64,
        /// Its bytes; on a block device, whole sectors.
        data: Arc<[u8]>,
        /// The thread that wrote.
        thread: usize,
    },
    /// A write to a block device that was durable when it returned.
    DurableWrite {
        /// Byte offset.
        offset: u64,
        /// Whole sectors.
        data: Arc<[u8]>,
    },
    /// A flush or fence.
    Flush {
        /// The thread whose writes are durable now.
        thread: usize,
    },
    /// A write, durable or not, that failed after writing some of its units to the cache.
    FailedWrite {
        /// Byte offset.
        offset: u64,
        /// Its bytes; on a block device, whole sectors.
        data: Arc<[u8]>,
        /// The thread that wrote.
        thread: usize,
        /// Chooses the units that were written.
        seed: u64,
    },
    /// A flush of a block device that failed: some unflushed sectors became durable, and the others
    /// never will.
    FailedFlush {
        /// Chooses the sectors that became durable.
        seed: u64,
    },
    /// A bit of the medium that changed by itself.
    BitFlip {
        /// Byte offset.
        offset: u64,
        /// 0 to 7.
        bit: u8,
    },
    /// A mark of the workload. It changes nothing on the medium.
    Mark(u64),
}

impl Event {
    /// The label, if it is a mark.
    pub(crate) fn mark(&self) -> Option<u64> {
        if let Event::Mark(label) = self { Some(*label) } else { None }
    }

    /// All bytes that it writes.
    pub(crate) fn piece(&self) -> Option<Piece> {
        match self {
            Event::Write { offset, data, .. }
            | Event::DurableWrite { offset, data }
            | Event::FailedWrite { offset, data, .. } => Some(Piece::new(*offset, data.clone())),
            Event::Flush { .. }
            | Event::FailedFlush { .. }
            | Event::BitFlip { .. }
            | Event::Mark(_) => None,
        }
    }
}
