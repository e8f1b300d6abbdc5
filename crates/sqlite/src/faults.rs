//! The mistakes that the extension can make on purpose, so that crash checks can be seen to find them.

/// A mistake of the extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A commit is not logged.
    SkipsAppend,
    /// Recovery applies the deltas of a page in the wrong order, and does not compare the result.
    AppliesBackwards,
    /// A generation begins without saying which ones the disk may still show.
    ForgetsStale,
    /// What is remembered of a generation is not held against its frames.
    TrustsVersions,
    /// The chain of checksums of what was kept of a transaction is not followed.
    TrustsPending,
    /// A transaction of pages is acknowledged before its record is durable.
    SkipsRecordSync,
    /// A period begins without the database being durable.
    SkipsPeriodSync,
    /// Others write to the database while the log holds transactions for it.
    SkipsRelease,
    /// What a process that died wrote in part stays so.
    SkipsReplay,
    /// A journal behind a refused batch counts before it is durable.
    CountsJournalEarly,
    /// The log says that the database holds transactions durably that it was not synced with.
    SkipsHomeSync,
    /// The log says so of all transactions, and not of those before the sync.
    HomeCoversLater,
    /// A sync that failed is taken for one that did not.
    IgnoresSyncError,
}

fault::switches!(Fault, cfg!(feature = "canary"));
