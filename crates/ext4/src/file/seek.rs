//! Finding data and holes. Allocated blocks that were never written are a hole.

use super::content::{BLOCK, FILE_BYTES_MAX, block_of, regular_file};
use crate::extent::{self, Target};
use crate::memory::Mounted;
use crate::{Error, InodeNo, Result, SeekTo};

impl Mounted {
    /// [`Volume::seek`](crate::Volume::seek).
    pub(crate) fn seek(&self, ino: InodeNo, offset: u64, to: SeekTo) -> Result<u64> {
        let in_core = self.in_core(ino);
        let _content = in_core.content.read();
        let inode = regular_file(self, ino)?;
        let size = inode.size().min(FILE_BYTES_MAX);
        if offset >= size {
            return Err(Error::NoSuchOffset);
        }
        let mut at = offset;
        while at < size {
            let mapping = extent::map(self, &inode, block_of(at), u32::MAX)?;
            let is_data = matches!(mapping.target, Target::Written(_));
            if is_data == (to == SeekTo::Data) {
                return Ok(at);
            }
            at = (u64::from(mapping.logical) + u64::from(mapping.count)) * BLOCK;
        }
        match to {
            SeekTo::Data => Err(Error::NoSuchOffset),
            SeekTo::Hole => Ok(size),
        }
    }
}
