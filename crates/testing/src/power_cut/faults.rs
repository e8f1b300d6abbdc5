//! Operations that are going to fail.

use device::Operation;

/// An operation that is going to fail with EIO.
///
/// A failed write has written any subset of its sectors. After a failed flush any subset of
/// the unflushed sectors is durable, and no later flush makes the others so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Which operation; `Write` means durable writes too.
    pub operation: Operation,
    /// How many of them succeed first.
    pub skip_count: u64,
    /// Whether all later ones fail too.
    pub forever: bool,
}

/// The faults that are still to come.
#[derive(Default)]
pub(crate) struct Faults(Vec<Fault>);

impl Faults {
    /// Faults add up; each counts for itself.
    pub(crate) fn add(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    /// None any more.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Counts an operation against the faults; whether one of them strikes.
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
