//! The journal area: the blocks of the ext4 journal inode. The first block holds the superblock of
//! the kernel's journal and is kept. The engine uses the others while the kernel's journal is
//! empty.

use std::ops::Range;

use device::BlockDevice;
use journal::{BLOCK_BYTES, HomeBlock, JournalError};

use super::feature_bits::jbd2_of;
use super::raw::{RawVolume, read_block};
use crate::error::WrongJournal;
use crate::facts::incompat;
use crate::layout::claim::Claim;
use crate::layout::jbd2::{
    ExternalJournal, JBD2_KNOWN_INCOMPAT, JBD2_MAGIC, JBD2_ONEJOURNAL, JBD2_SUPERBLOCK_V2,
    Jbd2SuperBlock,
};
use crate::layout::superblock::SuperBlock;
use crate::{Error, InodeNo, Result};

/// The place of the journal, and what the JBD2 superblock says.
pub(super) struct JournalArea {
    /// The block with the JBD2 superblock.
    pub(crate) jbd2_block: HomeBlock,
    /// The other blocks, as runs of block numbers.
    pub(crate) runs: Vec<Range<u64>>,
    /// Whether one of our feature bits is set.
    pub(super) has_our_bits: bool,
    /// Who has the volume open, or had it open; `Err`: the claim cannot be read.
    pub(crate) claim: std::result::Result<Option<Claim>, ()>,
    /// The external journal, if one is recorded. `Err`: the record is damaged, on a volume that was
    /// closed.
    external_journal: std::result::Result<Option<ExternalJournal>, ()>,
}

impl JournalArea {
    /// Finds the journal of the volume and checks that the kernel's is empty or ours.
    pub(crate) fn find(raw: &RawVolume, superblock: &SuperBlock) -> Result<JournalArea> {
        if superblock.s_journal_dev.get() != 0 || superblock.s_journal_inum.get() == 0 {
            let why = "the kernel's journal of the volume is on another device; to put it into the \
                       volume: tune2fs -f -O ^has_journal TARGET && tune2fs -j TARGET";
            return Err(Error::Incompatible(why.into()));
        }
        let inode = raw.read_inode(InodeNo(superblock.s_journal_inum.get()), "journal inode")?;
        let mut runs = raw.file_blocks(&inode, "journal inode")?;
        let jbd2_block = HomeBlock(runs[0].start); // file_blocks gives at least one block
        runs[0].start += 1;
        runs.retain(|run| !run.is_empty());
        let jbd2 = jbd2_of(&*read_block(&*raw.device, jbd2_block)?);
        check_jbd2(&jbd2)?;
        check_length(&jbd2, inode.size() / BLOCK_BYTES as u64)?;
        let has = |bit| superblock.s_feature_incompat.get() & bit != 0;
        let has_our_bits = jbd2.has_our_feature_bit() || has(incompat::ONEJOURNAL);
        if jbd2.s_start.get() != 0 || !has_our_bits && has(incompat::RECOVER) {
            let why = "the kernel's journal is not empty; run: e2fsck -p TARGET";
            return Err(Error::NeedsCheck(why.into()));
        }
        let external_journal = match jbd2.external_journal() {
            Err(()) if has_our_bits => {
                let place = "the superblock of the kernel's journal";
                return Err(Error::corrupt("note of where our journal is", place));
            }
            // Bytes of another program, in a volume that has nothing of ours.
            Err(()) if !jbd2.has_external_journal_magic() => Ok(None),
            noted => noted,
        };
        Ok(JournalArea {
            jbd2_block,
            runs,
            has_our_bits,
            claim: jbd2.claim.claim(),
            external_journal,
        })
    }

    /// The external journal with the newest changes of a volume that was not closed.
    pub(super) fn journal_in_use(&self) -> Option<ExternalJournal> {
        let noted = self.external_journal.ok().flatten().filter(|_| self.has_our_bits);
        noted.filter(ExternalJournal::is_in_use)
    }

    /// The external journal that belongs to the volume also when it is closed.
    pub(super) fn own_journal(&self) -> Result<Option<ExternalJournal>> {
        let noted = self.external_journal.map_err(|()| WrongJournal::RecordDamaged)?;
        Ok(noted.filter(ExternalJournal::is_own))
    }

    /// The engine's space on `device`.
    pub(crate) fn space(
        &self,
        device: std::sync::Arc<dyn BlockDevice>,
    ) -> std::result::Result<journal::Space, JournalError> {
        let bytes = |block: u64| block * BLOCK_BYTES as u64;
        let extents = self.runs.iter().map(|run| bytes(run.start)..bytes(run.end)).collect();
        journal::Space::new(device, extents)
    }

    /// Every block of the journal, including the one with its superblock.
    pub(super) fn all_runs(&self) -> Vec<Range<u64>> {
        let mut all = self.runs.clone();
        all.push(self.jbd2_block.0..self.jbd2_block.0 + 1);
        all
    }
}

/// Blocks for records in the smallest journal that the kernel takes.
const JBD2_MIN_BLOCKS: u64 = 1024;

/// The kernel refuses a journal that claims to be longer than its file, or that has too few blocks.
fn check_length(jbd2: &Jbd2SuperBlock, file_blocks: u64) -> Result<()> {
    let (length, first) = (u64::from(jbd2.s_maxlen.get()), u64::from(jbd2.s_first.get()));
    let wrong = if length > file_blocks {
        "length (s_maxlen)"
    } else if first == 0 || first + JBD2_MIN_BLOCKS > length + 1 {
        "length or first block (s_maxlen, s_first)"
    } else {
        return Ok(());
    };
    Err(Error::corrupt(wrong, "the superblock of the kernel's journal"))
}

fn check_jbd2(jbd2: &Jbd2SuperBlock) -> Result<()> {
    let corrupt = |what: &str| Err(Error::corrupt(what, "the superblock of the kernel's journal"));
    if jbd2.h_magic.get() != JBD2_MAGIC {
        return corrupt("magic number");
    }
    if jbd2.h_blocktype.get() != JBD2_SUPERBLOCK_V2 {
        return Err(Error::Incompatible(
            "the kernel's journal has an unknown version; to make it anew: \
             tune2fs -O ^has_journal TARGET && tune2fs -j TARGET"
                .into(),
        ));
    }
    let unknown = jbd2.s_feature_incompat.get() & !(JBD2_KNOWN_INCOMPAT | JBD2_ONEJOURNAL)
        | jbd2.s_feature_ro_compat.get();
    if unknown != 0 {
        let why = format!(
            "the kernel's journal has unknown features ({unknown:#x}); to make it anew: tune2fs -O \
             ^has_journal TARGET && tune2fs -j TARGET"
        );
        return Err(Error::Incompatible(why));
    }
    if jbd2.has_checksum() && jbd2.s_checksum.get() != jbd2.checksum() {
        return corrupt("checksum");
    }
    if jbd2.s_blocksize.get() != BLOCK_BYTES as u32 {
        return corrupt("block size");
    }
    if jbd2.s_errno.get() != 0 {
        let why = "the kernel's journal records an error; run: e2fsck -f TARGET";
        return Err(Error::NeedsCheck(why.into()));
    }
    Ok(())
}
