//! Faults that a test can switch on, to see that the crash checks find them.

/// A fault of the extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A commit is not logged.
    SkipsAppend,
    /// Recovery applies the deltas of a page in the wrong order, and does not compare the result.
    AppliesBackwards,
    /// A generation begins without a list of the generations that the disk may still show.
    ForgetsStale = 3,
    /// Remembered versions are not compared with the frames of the generation.
    TrustsVersions = 4,
    /// The chain of checksums of a transaction's kept frames is not followed.
    TrustsPending,
    /// A transaction of pages is acknowledged before its record is durable.
    SkipsRecordSync,
    /// A period begins without the database being durable.
    SkipsPeriodSync,
    /// Other programs write to the database while the log holds transactions for it.
    SkipsRelease = 8,
    /// A transaction that a dead process wrote only in part is not completed.
    SkipsReplay = 9,
    /// A journal that follows a refused batch becomes valid before it is durable.
    CountsJournalEarly = 10,
    /// *home* is appended without a sync of the database.
    SkipsHomeSync = 11,
    /// *home* covers all transactions, not only those before the sync.
    HomeCoversLater = 12,
    /// A failed sync is treated as a success.
    IgnoresSyncError = 13,
    /// The pages of a transaction on a volume are not one atomic change.
    SplitsTransaction = 14,
    /// The change of a transaction on a volume is not durable when it is acknowledged.
    SkipsChangeSync = 15,
    /// A stream is named by the path of the database and the log, and not by the database file.
    NamesByPath = 16,
    /// It is not looked at which open file a stream's transactions are of.
    TrustsStamps = 17,
    /// A commit fails if the log does.
    FailsWithLog = 18,
    /// A WAL begins again while a checkpoint of another connection runs.
    RestartsDuringCheckpoint = 19,
    /// A checkpoint copies although the WAL began again since the checkpoint began.
    CopiesAfterRestart = 20,
    /// The log takes no record: no mistake of the extension, but what it has to bear.
    LogTakesNothing = 21,
    /// The log takes records, and makes none durable.
    LogSyncsNothing = 22,
    /// The log takes no record, and the WAL begins again nevertheless.
    RestartsWithoutLog = 23,
}

fault::switches!(Fault);
