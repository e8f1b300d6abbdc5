//! The faults of the driver that a test can switch on. Each must be found by a crash check.

/// A fault of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A volume records its new journal before that is complete.
    RecordBeforeJournal,
}

fault::switches!(Fault, cfg!(feature = "canary"));
