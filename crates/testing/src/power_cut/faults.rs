//! Operations that will fail.

use device::Operation;

/// An operation that will fail with EIO.
///
/// A failed write has written any subset of its sectors. After a failed flush, any subset of the
/// unflushed sectors is durable, and no later flush makes the others durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The kind of operation. `Write` includes durable writes.
    pub operation: Operation,
    /// The number of such operations that succeed before.
    pub skip_count: u64,
    /// Whether all later ones fail as well.
    pub forever: bool,
}

/// The faults that have not happened yet.
#[derive(Default)]
pub(crate) struct Faults(Vec<Fault>);

impl Faults {
    /// Adds a fault. Each fault counts operations for itself.
    pub(crate) fn add(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    /// Removes all faults.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Counts an operation. Returns whether it has to fail.
    pub(crate) fn strike(&mut self, operation: Operation) -> bool {
        let mut struck = false;
        self.0.retain_mut(|fault| {
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
