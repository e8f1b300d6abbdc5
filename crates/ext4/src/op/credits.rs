//! Blocks that the parts of an operation may change, to add up what [`super::Op`] is asked for.
//!
//! Asking for more than is used costs nothing but an earlier commit of a nearly full transaction.

/// One `alloc_blocks`: bitmap and descriptor.
pub(crate) const ALLOC_BLOCKS: usize = 2;

/// One `free_blocks`, for each group that it touches: bitmap and descriptor.
pub(crate) const FREE_BLOCKS: usize = 2;

/// One `alloc_inode`: both bitmaps, descriptor, the new inode's table block.
pub(crate) const ALLOC_INODE: usize = 4;

/// One `free_inode`: bitmap, descriptor, table block.
pub(crate) const FREE_INODE: usize = 3;

/// One `put_inode`: its table block.
pub(crate) const PUT_INODE: usize = 1;

/// One `orphan_add` or `orphan_remove`: superblock, block of the orphan file, neighbour.
pub(crate) const ORPHAN: usize = 3;
