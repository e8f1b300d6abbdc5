//! The inodes that a mount needs: that of the root directory, and those of files that belong to the
//! file system itself. They are checked before anything is written, as strictly as the kernel's
//! ext4 checks them: a volume that it refuses because of them is refused here, too.

use journal::HomeBlock;
use zerocopy::FromBytes;

use super::raw::{RawVolume, read_block};
use crate::extent::NodeView;
use crate::facts::{INODES_PER_BLOCK, compat};
use crate::inode::{Inode, flags};
use crate::layout::inode::{INODE_BYTES, RawInode};
use crate::layout::superblock::SuperBlock;
use crate::xattr::XattrSet;
use crate::{Error, FileKind, InodeNo, Result};

impl RawVolume {
    /// Refuses a volume whose root is not a directory, or cannot be read.
    pub(crate) fn check_root(&self, superblock: &SuperBlock) -> Result<()> {
        let what = "root directory";
        let inode = self.read_fixed_inode(InodeNo::ROOT, what)?;
        let has_htree = inode.has_flag(flags::INDEX);
        let wrong = if inode.kind() != FileKind::Directory {
            "i_mode: not a directory"
        } else if inode.size() == 0 {
            "i_size: no bytes"
        } else if inode.sectors() == 0 {
            "i_blocks: no blocks"
        } else if has_htree && superblock.s_feature_compat.get() & compat::DIR_INDEX == 0 {
            "i_flags: an index, which the volume's features do not have"
        } else if let Err(fault) = self.check_mapping(&inode) {
            fault
        } else {
            return Ok(());
        };
        Err(Error::corrupt(format!("{what}: {wrong}"), inode.ino))
    }

    /// The inode of a file that belongs to the file system itself.
    pub(crate) fn read_inode(&self, ino: InodeNo, what: &str) -> Result<Inode> {
        let inode = self.read_fixed_inode(ino, what)?;
        if inode.kind() != FileKind::Regular {
            return Err(Error::corrupt(format!("{what}: i_mode: not a regular file"), ino));
        }
        Ok(inode)
    }

    fn read_fixed_inode(&self, ino: InodeNo, what: &str) -> Result<Inode> {
        let (group, index) = self.geometry.group_of_inode(ino)?;
        let table = self.read_desc(group)?.inode_table();
        let block = HomeBlock(table + u64::from(index / INODES_PER_BLOCK));
        let bytes = read_block(&*self.device, block)?;
        let offset = (index % INODES_PER_BLOCK) as usize * INODE_BYTES;
        let (raw, _) = RawInode::read_from_prefix(&bytes[offset..]).expect("it is in one block");
        let inode = Inode { ino, raw };
        let corrupt = |wrong: &str| Err(Error::corrupt(format!("{what}: {wrong}"), ino));
        if !self.checksums.inode_ok(ino, &inode.raw) {
            return corrupt("i_checksum");
        }
        if let Err(wrong) = inode.check() {
            return corrupt(wrong);
        }
        if inode.link_count() == 0 {
            return corrupt("i_links_count: not in use");
        }
        if inode.has_flag(flags::EA_INODE) {
            return corrupt("i_flags: holds an attribute's value");
        }
        if XattrSet::from_inode_area(inode.xattr_area()).is_err() {
            return corrupt("attributes in the inode");
        }
        self.check_attribute_block(&inode, what)?;
        Ok(inode)
    }

    fn check_attribute_block(&self, inode: &Inode, what: &str) -> Result<()> {
        let block = inode.file_acl().0;
        if block == 0 {
            return Ok(());
        }
        if !self.geometry.holds(block, 1) {
            return Err(Error::corrupt(format!("{what}: i_file_acl"), inode.ino));
        }
        let run = block..block + 1;
        self.check_not_fixed(std::slice::from_ref(&run), what, inode.ino)
    }

    /// The part of the block map that is in the inode.
    fn check_mapping(&self, inode: &Inode) -> std::result::Result<(), &'static str> {
        let holds = |start, count| self.geometry.holds(start, count);
        if inode.has_flag(flags::EXTENTS) {
            let view = NodeView::of_root(inode.i_block(), holds)?;
            let is_leaf = view.head().depth == 0;
            let last = if is_leaf { view.runs().pop() } else { None };
            return match last {
                // The kernel has no logical block 2^32 - 1.
                Some(run) if run.end() > u64::from(u32::MAX) => Err("extent order"),
                _ => Ok(()),
            };
        }
        let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("4 bytes"));
        let mut numbers = inode.i_block().chunks_exact(4).map(number);
        match numbers.all(|number| number == 0 || holds(u64::from(number), 1)) {
            true => Ok(()),
            false => Err("i_block: a block outside of the volume"),
        }
    }
}
