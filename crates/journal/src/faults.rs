//! The faults of the engine that a test can switch on. Each must be found by a crash check.

/// A fault of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Recovery accepts records without comparing their checksum.
    ChecksumIgnored,
    /// Changed blocks are written home before their transaction commits.
    HomeBeforeCommit,
    /// Revokes are not written.
    RevokesDropped,
    /// Recovery takes the newest record without comparing its data in place.
    ChecksIgnored,
    /// Checked data are overwritten in place while their record may be the newest.
    CheckedDataOverwritten,
    /// A commit writes runs of blocks home that are not fresh.
    HeldRunsInPlace,
    /// Commits are acknowledged without waiting for the medium.
    CommitNotDurable,
    /// A sync that was left with the commit in flight is told before that commit is durable.
    LeftToldAtOnce,
    /// A block is not brought home with its region if a later region holds any record of it.
    DeltaWithoutBase,
    /// DJFS' codec logs a difference although the region does not hold the whole block.
    XorWithoutBase,
    /// Records copy what another region holds.
    CopyAcrossRegions,
    /// Records copy the bytes beside their source.
    CopyBesideSource,
    /// Records copy bytes that their region does not hold, because the engine remembers them.
    CopyOfUnknown,
    /// Records copy bytes of a version that the region does not hold, because it holds an older one
    /// of the same block.
    CopyOfAnotherBase,
    /// The header does not say how far records reach.
    ReachNotWritten,
    /// Regions are freed by a header in one slot only.
    TailInOneSlot,
    /// Regions are freed without flushing what was written home.
    CheckpointNotFlushed,
    /// A transaction commits although a sync is still writing data of it in place.
    WriteOutNotAwaited,
    /// A sync does not wait for data of its own that another thread writes in place.
    TakenByOthersNotAwaited,
    /// In-place writes of one block do not wait for each other.
    InPlaceOvertaken,
}

fault::switches!(Fault);
