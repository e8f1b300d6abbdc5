//! The faults of the engine that a test can switch on. The crash enumeration must find each of
//! them. Only unit tests of this crate can switch them on.

/// A mistake of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A drain says that the log files hold the stream before they were synced.
    DrainedBeforeSync,
    /// A chunk is freed while it holds records that were not drained.
    ChunkGivenBackEarly,
    /// A chunk keeps what it held in its earlier use.
    ChunkNotZeroed,
    /// A chunk counts from the beginning of its span, whatever the log files hold of it.
    ChunkCountsFromItsBegin,
    /// Who waits for a group commit is told before the entry is written.
    ToldBeforeWritten,
    /// No record carries the flag that it follows unsynced ones.
    NeverFollowsUnsynced,
    /// Every record does.
    AlwaysFollowsUnsynced,
    /// The limit of USNs is not kept.
    UsnLimitNotKept,
    /// Files are removed before the head is durable.
    HeadNotDurable,
    /// A batch on NVRAM is published without its fence.
    BatchNotPersisted,
    /// A lease ends though its client lives.
    LivingLeaseEnded,
    /// What a client appended last is not looked at when it is gone.
    LastWordsNotTaken,
    /// The chunks of a client that is gone are freed before they are drained.
    DeadClientsChunksFreed,
    /// A stream that is found is believed to be there after a power cut.
    FoundStreamNotKept,
    /// So is a log file.
    FoundFileNotSettled,
    /// Shared words are read without acquiring what was written before them.
    WordsReadRelaxed,
    /// Shared words are written without releasing what was written before them.
    WordsWrittenRelaxed,
    /// Claims neither acquire nor release.
    ClaimsRelaxed,
    /// A waiter and the one who wakes it may miss each other.
    WaitersUnfenced,
    /// A reader of chunks looks at `drained` before it has read.
    ReadsUnfenced,
    /// An allocated chunk is written before it is known to be drained.
    WritesUnfenced,
}

fault::switches!(Fault, cfg!(test));
