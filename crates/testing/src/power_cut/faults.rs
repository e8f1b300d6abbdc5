//! Operations that will fail.

use std::collections::BTreeSet;

use device::{LINE_BYTES, Operation, line_count};

/// An operation that will fail with EIO.
///
/// A failed write has written any subset of its sectors or words. After a failed flush of a device,
/// any subset of the unflushed sectors is durable, and no later flush makes the others durable. A
/// failed fence has made nothing more durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The kind of operation. `Write` includes durable writes and stores, `Flush` includes fences.
    /// A durable write to NVRAM is both.
    pub operation: Operation,
    /// The number of such operations that succeed before.
    pub skip_count: u64,
    /// Whether all later ones fail as well.
    pub forever: bool,
}

impl Fault {
    /// One such operation fails, after `skip_count` that succeed.
    pub fn once(operation: Operation, skip_count: u64) -> Fault {
        Fault { operation, skip_count, forever: false }
    }
}

/// Why operations of a medium fail.
pub(crate) struct Faults {
    /// The faults that have not happened yet.
    due: Vec<Fault>,
    /// Writes that end after this offset find no space.
    pub(crate) capacity_bytes: u64,
    /// Lines that cannot be loaded.
    poisoned: BTreeSet<u64>,
}

impl Default for Faults {
    fn default() -> Self {
        Faults { due: Vec::new(), capacity_bytes: u64::MAX, poisoned: BTreeSet::new() }
    }
}

impl Faults {
    /// Adds a fault. Each fault counts operations for itself.
    pub(crate) fn add(&mut self, fault: Fault) {
        self.due.push(fault);
    }

    /// Makes loads of the line of `offset` fail.
    pub(crate) fn poison(&mut self, offset: u64) {
        self.poisoned.insert(offset / LINE_BYTES as u64);
    }

    /// Whether a load meets a line that is poisoned.
    pub(crate) fn is_poisoned(&self, offset: u64, len_bytes: usize) -> bool {
        let first = offset / LINE_BYTES as u64;
        self.poisoned.range(first..first + line_count(offset, len_bytes)).next().is_some()
    }

    /// Counts an operation. Returns whether it has to fail.
    pub(crate) fn strike(&mut self, operation: Operation) -> bool {
        let mut struck = false;
        self.due.retain_mut(|fault| {
            if fault.operation != operation {
                return true;
            }
            let strikes = fault.skip_count == 0;
            fault.skip_count = fault.skip_count.saturating_sub(1);
            struck |= strikes;
            !strikes || fault.forever
        });
        struck
    }
}
