//! The events of a simulated block device.

use std::sync::Arc;

/// An operation on a simulated device.
#[derive(Debug, Clone)]
pub enum Event {
    /// A write, durable after the next flush.
    Write {
        /// Byte offset.
        offset: u64,
        /// Whole sectors.
        data: Arc<[u8]>,
    },
    /// A write that was durable when it returned.
    DurableWrite {
        /// Byte offset.
        offset: u64,
        /// Whole sectors.
        data: Arc<[u8]>,
    },
    /// A flush.
    Flush,
    /// A write, durable or not, that failed after writing some of its sectors to the cache.
    FailedWrite {
        /// Byte offset.
        offset: u64,
        /// Whole sectors.
        data: Arc<[u8]>,
        /// Chooses the sectors that were written.
        seed: u64,
    },
    /// A flush that failed: some unflushed sectors became durable, and the others never will.
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
    /// A mark of the workload. It changes nothing on the device.
    Mark(u64),
}
