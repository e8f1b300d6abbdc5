//! Faults that a test can switch on, to see that the crash checks find them.

use std::sync::atomic::{AtomicU8, Ordering};

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Broken {
    /// None.
    Nothing = 0,
    /// A commit is not logged.
    SkipsAppend = 1,
    /// Recovery applies the deltas of a page in the wrong order, and does not compare the result.
    AppliesBackwards = 2,
    /// A generation begins without saying which ones the disk may still show.
    ForgetsStale = 3,
    /// What is remembered of a generation is not compared with its frames.
    TrustsVersions = 4,
    /// The chain of checksums of what was kept of a transaction is not followed.
    TrustsPending = 5,
    /// A transaction of pages is acknowledged before its record is durable.
    SkipsRecordSync = 6,
    /// A period begins without the database being durable.
    SkipsPeriodSync = 7,
    /// Others write to the database while the log holds transactions for it.
    SkipsRelease = 8,
    /// A transaction that a dead process wrote in part is not completed.
    SkipsReplay = 9,
    /// A journal that follows a refused batch counts before it is durable.
    CountsJournalEarly = 10,
    /// *home* is appended without a sync of the database.
    SkipsHomeSync = 11,
    /// *home* covers all transactions, not only those before the sync.
    HomeCoversLater = 12,
    /// A failed sync is treated as a success.
    IgnoresSyncError = 13,
}

static BROKEN: AtomicU8 = AtomicU8::new(0);

/// Switches a fault on.
pub fn break_it(broken: Broken) {
    BROKEN.store(broken as u8, Ordering::SeqCst);
}

/// Whether a fault is on.
pub(crate) fn is(broken: Broken) -> bool {
    BROKEN.load(Ordering::SeqCst) == broken as u8
}
