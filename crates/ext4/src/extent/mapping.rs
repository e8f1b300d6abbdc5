//! What the logical blocks of a file are mapped to.

use journal::HomeBlock;

/// What a range of logical blocks is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// Nothing: reads as zeros.
    Hole,
    /// Data, from this block on.
    Written(HomeBlock),
    /// Allocated from this block on, but reads as zeros.
    Unwritten(HomeBlock),
}

/// `count` logical blocks from `logical` on with the same kind of mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub logical: u32,
    pub count: u32,
    pub target: Target,
}
