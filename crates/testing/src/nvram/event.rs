//! The events of a simulated NVRAM.

use std::sync::Arc;

/// An operation on a simulated NVRAM. Threads are numbered in the order of their first store or
/// fence.
#[derive(Debug, Clone)]
pub enum NvramEvent {
    /// A store, durable after the next fence of its thread.
    Store {
        /// Byte offset.
        offset: u64,
        /// Its bytes.
        data: Arc<[u8]>,
        /// The thread that stored.
        thread: usize,
    },
    /// A fence.
    Fence {
        /// The thread whose stores are durable now.
        thread: usize,
    },
    /// A store that failed after storing some of its words.
    FailedStore {
        /// Byte offset.
        offset: u64,
        /// Its bytes.
        data: Arc<[u8]>,
        /// The thread that stored.
        thread: usize,
        /// Chooses the words that were stored.
        seed: u64,
    },
    /// A bit of the memory that changed by itself.
    BitFlip {
        /// Byte offset.
        offset: u64,
        /// 0 to 7.
        bit: u8,
    },
    /// A mark of the workload. It changes nothing in memory.
    Mark(u64),
}
