//! The faults of this crate that a test can switch on.

/// A mistake of the crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Descriptors get the numbers 0 to 2 in a process that closed them.
    UsesStandardNumbers,
}

fault::switches!(Fault);
