//! The faults of the file system that a test can switch on. Each must be found by a crash check.

/// A fault of the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Each block of a write is an operation of its own.
    WriteInBlocks,
    /// A volume records its new journal before that is complete.
    RecordBeforeJournal,
    /// A volume that is handed over does not tell what is pinned.
    PinsLost,
}

fault::switches!(Fault);

/// All of `data`; with [`Fault::WriteInBlocks`] its first block.
pub(crate) fn first_operation(data: &[u8]) -> &[u8] {
    if is(Fault::WriteInBlocks) { &data[..data.len().min(journal::BLOCK_BYTES)] } else { data }
}
