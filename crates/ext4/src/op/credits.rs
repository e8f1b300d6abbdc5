//! The number of blocks that each part of an operation may change. Their sum is the credits of an
//! [`super::Op`].
//!
//! Asking for more credits than are used costs little: a nearly full transaction is committed
//! earlier.

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
