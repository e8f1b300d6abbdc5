//! The faults of the engine that a test can switch on. The crash enumeration must find each of
//! them. Only unit tests of this crate can switch them on. A mistake that a medium can make as
//! well, such as a sync that does nothing, is a lie of the simulated media (`sim::media::Lie`).

/// A mistake of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A drain says that the log files hold the stream before they were synced.
    DrainedBeforeSync,
    /// A chunk is freed while it holds records that were not drained.
    ChunkGivenBackEarly,
    /// A chunk keeps what it held in its earlier use.
    ChunkNotZeroed,
    /// A chunk counts from the beginning of its span, even if the log files hold the first part of
    /// it.
    ChunkCountsFromItsBegin,
    /// No record carries the flag which says that it follows unsynced records.
    NeverFollowsUnsynced,
    /// Every record carries that flag.
    AlwaysFollowsUnsynced,
    /// The clock is a year ahead of that of other processes.
    ClockAhead,
    /// The clock shows less than that of other processes.
    ClockBehind,
    /// A lease ends although its client lives.
    LivingLeaseEnded,
    /// The daemon does not take over what a client appended just before it ended.
    LastWordsNotTaken,
    /// The chunks of a client that has ended are freed before they are drained.
    DeadClientsChunksFreed,
    /// A piece of the group log is not thrown away when its chunk was freed meanwhile.
    PieceOfFreedChunk,
    /// A file of shared memory that was removed is made again, while processes use the old one.
    MissingFileMadeAgain,
    /// Shared words are read without acquiring what was written before them.
    WordsReadRelaxed,
    /// Shared words are written without releasing what was written before them.
    WordsWrittenRelaxed,
    /// Claims have neither acquire nor release ordering.
    ClaimsRelaxed,
    /// A waiter and the one who wakes it may miss each other.
    WaitersUnfenced,
    /// A reader of chunks looks at `drained` before it has read.
    ReadsUnfenced,
    /// An allocated chunk is written before it is known to be drained.
    WritesUnfenced,
}

fault::switches!(Fault);
