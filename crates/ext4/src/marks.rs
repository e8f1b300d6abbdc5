//! The marks of a mounted volume, which keep the kernel and e2fsprogs away from it.
//!
//! The outer mark is a feature of ours in the ext4 superblock, with `needs_recovery`: every tool
//! refuses such a volume before it writes anything. (With an unknown feature of the journal alone,
//! `e2fsck -p` would note an error in the superblock.) The inner mark is a feature of ours in the
//! superblock of the kernel's journal (JBD2), for whoever takes the outer one off by force.
//!
//! Beside the inner mark it is noted which journal is ours if it is on a medium of its own, and in which
//! life, so that no other one and no old copy is taken for it; this comes first and goes last.
//! When a volume that was not closed gets a new life, both lives are noted until the new one has
//! begun: whatever a crash leaves, the journal is in one of them.
//!
//! The inner mark and the claim ([`crate::claim`]), which says who has the volume open, are written and
//! removed as one.
//!
//! Order: outer, inner, each durable, then the first transaction is written; after everything is
//! home they come off in the opposite order. A volume with either mark is ours to recover; the
//! engine's header, which is durable before the outer mark is set, says what there is.
//!
//! Torn writes: the inner mark and its checksum lie in one sector. The superblock has two, and its
//! checksum is in the second; setting or removing the outer mark changes nothing else, so of a
//! torn write of it one of both readings has the right checksum ([`read_superblock`]).

use std::sync::Arc;

use device::{AlignedBuf, BlockDevice};
use journal::{BlockBytes, HomeBlock, JournalError};
use zerocopy::{FromBytes, IntoBytes};

use crate::checksum::Checksums;
use crate::features::incompat;
use crate::layout::claim::Claim;
use crate::layout::jbd2::{Elsewhere, JBD2_SUPERBLOCK_BYTES, Jbd2SuperBlock};
use crate::layout::superblock::{STATE_ERROR, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, SuperBlock};
use crate::op::superblock_of;
use crate::raw::{read_block, write_block};
use crate::{Error, Result};

/// Puts the marks on a volume and takes them off.
pub(crate) struct Marks {
    device: Arc<dyn BlockDevice>,
    checksums: Checksums,
    /// The block that holds the JBD2 superblock.
    jbd2_block: HomeBlock,
}

/// The bits of the outer mark.
const OUTER: u32 = incompat::RECOVER | incompat::ONEJOURNAL;

/// A superblock, and whether its checksum was right as it is or with the outer mark turned.
pub(crate) struct FoundSuperBlock {
    pub(crate) superblock: SuperBlock,
    pub(crate) is_sound: bool,
}

/// Reads the superblock. Of a torn write of the outer mark it gives the reading that has the
/// right checksum. One that has it in neither is given too: if the volume bears our mark, the
/// journal may hold the right one, and until then everything in it is only believed if it fits.
pub(crate) fn read_superblock(device: &dyn BlockDevice) -> Result<FoundSuperBlock> {
    if device.size_bytes() < 4096 {
        return Err(Error::Incompatible("not an ext4 volume: too small".into()));
    }
    let superblock = superblock_of(&*read_block(device, HomeBlock(0))?);
    let is_ok = |superblock: &SuperBlock| Checksums::new(superblock).superblock_ok(superblock);
    if is_ok(&superblock) {
        return Ok(FoundSuperBlock { superblock, is_sound: true });
    }
    let mut turned = superblock.clone();
    turned.s_feature_incompat.set(superblock.s_feature_incompat.get() ^ OUTER);
    if is_ok(&turned) {
        return Ok(FoundSuperBlock { superblock: turned, is_sound: true });
    }
    Ok(FoundSuperBlock { superblock, is_sound: false })
}

/// The JBD2 superblock in the first block of the journal inode.
pub(crate) fn jbd2_of(block: &BlockBytes) -> Jbd2SuperBlock {
    let (jbd2, _) = Jbd2SuperBlock::read_from_prefix(&block[..]).expect("a block is large enough");
    jbd2
}

impl Marks {
    /// The marks of the volume on `device`.
    pub(crate) fn new(
        device: Arc<dyn BlockDevice>,
        checksums: Checksums,
        jbd2_block: HomeBlock,
    ) -> Marks {
        Marks { device, checksums, jbd2_block }
    }

    /// The block that holds the superblock of the kernel's journal.
    #[cfg(test)]
    pub(crate) fn jbd2_block(&self) -> HomeBlock {
        self.jbd2_block
    }

    /// Sets both marks, durably, and with the inner one the claim. The engine is open and has not
    /// committed anything. `elsewhere`: its journal if that is on a medium of its own.
    pub(crate) fn set(&self, elsewhere: Option<Elsewhere>, claim: Option<&Claim>) -> Result<()> {
        self.note_elsewhere(elsewhere)?;
        self.set_outer(true)?;
        self.set_inner(true, claim)
    }

    /// Takes both marks off, durably. The engine is closed, everything is home.
    pub(crate) fn remove(&self) -> Result<()> {
        self.set_inner(false, None)?;
        self.set_outer(false)?;
        self.note_elsewhere(None)
    }

    /// Notes which journal is ours, durably.
    pub(crate) fn note_elsewhere(&self, elsewhere: Option<Elsewhere>) -> Result<()> {
        let jbd2 = jbd2_of(&*read_block(&*self.device, self.jbd2_block)?);
        if jbd2.journal_elsewhere() == Ok(elsewhere) {
            return Ok(());
        }
        self.change_inner(|jbd2| jbd2.set_journal_elsewhere(elsewhere))
    }

    fn set_inner(&self, marked: bool, claim: Option<&Claim>) -> Result<()> {
        self.change_inner(|jbd2| {
            jbd2.set_marked(marked);
            jbd2.set_claim(claim);
        })
    }

    /// The claim on the volume; `Err` inside: it cannot be read.
    pub(crate) fn claim(&self) -> Result<std::result::Result<Option<Claim>, ()>> {
        Ok(jbd2_of(&*read_block(&*self.device, self.jbd2_block)?).claim.claim())
    }

    /// Writes the claim alone, durably.
    pub(crate) fn write_claim(&self, claim: &Claim) -> Result<()> {
        self.change_inner(|jbd2| jbd2.set_claim(Some(claim)))
    }

    /// Writes the claim alone; a power cut may undo it.
    pub(crate) fn write_beat(&self, claim: &Claim) -> Result<()> {
        let block =
            AlignedBuf::from_slice(&self.changed_inner(|jbd2| jbd2.set_claim(Some(claim)))?[..]);
        let written = self.device.write(self.jbd2_block.offset_bytes(), &block);
        Ok(written.map_err(JournalError::from)?)
    }

    fn change_inner(&self, change: impl FnOnce(&mut Jbd2SuperBlock)) -> Result<()> {
        let block = self.changed_inner(change)?;
        write_block(&*self.device, self.jbd2_block, &block)
    }

    fn changed_inner(&self, change: impl FnOnce(&mut Jbd2SuperBlock)) -> Result<Box<BlockBytes>> {
        let mut block = read_block(&*self.device, self.jbd2_block)?;
        let mut jbd2 = jbd2_of(&block);
        change(&mut jbd2);
        block[..JBD2_SUPERBLOCK_BYTES].copy_from_slice(jbd2.as_bytes());
        Ok(block)
    }

    /// Marks the volume as having errors, durably; the marks stay.
    pub(crate) fn note_errors(&self) -> Result<()> {
        self.change_superblock(|superblock| {
            superblock.s_state.set(superblock.s_state.get() | STATE_ERROR);
        })
    }

    fn set_outer(&self, marked: bool) -> Result<()> {
        self.change_superblock(|superblock| {
            let others = superblock.s_feature_incompat.get() & !OUTER;
            superblock.s_feature_incompat.set(if marked { others | OUTER } else { others });
        })
    }

    fn change_superblock(&self, change: impl FnOnce(&mut SuperBlock)) -> Result<()> {
        let mut block = read_block(&*self.device, HomeBlock(0))?;
        let mut superblock = read_superblock(&*self.device)?.superblock;
        change(&mut superblock);
        self.checksums.seal_superblock(&mut superblock);
        block[SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + SUPERBLOCK_BYTES]
            .copy_from_slice(superblock.as_bytes());
        write_block(&*self.device, HomeBlock(0), &block)
    }
}
