//! Reading an inode from the inode table.

use journal::HomeBlock;
use zerocopy::FromBytes;

use super::bytes::Inode;
use crate::facts::{INODES_PER_BLOCK, Source, read_desc};
use crate::layout::inode::{INODE_BYTES, RawInode};
use crate::{Error, InodeNo, Result};

/// Reads an inode as `source` sees it. `NotFound` if the number was never used or is free. An
/// orphan with link count 0 is found.
pub(crate) fn read_inode(source: &impl Source, ino: InodeNo) -> Result<Inode> {
    let (block, offset) = inode_place(source, ino)?;
    let bytes = source.block(block)?;
    let (raw, _) = RawInode::read_from_prefix(&bytes[offset..]).expect("an inode is in one block");
    let inode = Inode { ino, raw };
    if inode.raw.i_mode.get() == 0 {
        return Err(Error::NotFound);
    }
    if !source.facts().checksums.inode_ok(ino, &inode.raw) {
        return Err(bad_inode(source, ino));
    }
    inode.check().map_err(|wrong| Error::corrupt(wrong, ino))?;
    Ok(inode)
}

/// The block that holds an inode, and the inode's byte offset in it.
pub(crate) fn inode_place(source: &impl Source, ino: InodeNo) -> Result<(HomeBlock, usize)> {
    let facts = source.facts();
    let (group, index) = facts.geometry.group_of_inode(ino)?;
    let table = match facts.places.inode_table(group) {
        Some(table) => table,
        None => {
            let table = HomeBlock(read_desc(source, group)?.inode_table());
            facts.places.note_inode_table(group, table);
            table
        }
    };
    let block = HomeBlock(table.0 + u64::from(index / INODES_PER_BLOCK));
    Ok((block, (index % INODES_PER_BLOCK) as usize * INODE_BYTES))
}

/// The error for an inode with a wrong checksum: it was never written, or it is damaged.
fn bad_inode(source: &impl Source, ino: InodeNo) -> Error {
    let is_unused = || -> Result<bool> {
        let geometry = &source.facts().geometry;
        let (group, index) = geometry.group_of_inode(ino)?;
        let unused_count = read_desc(source, group)?.unused_inode_count();
        Ok(index >= geometry.inodes_per_group - unused_count)
    };
    match is_unused() {
        Ok(true) => Error::NotFound,
        Ok(false) => Error::corrupt("inode checksum", ino),
        Err(error) => error,
    }
}
