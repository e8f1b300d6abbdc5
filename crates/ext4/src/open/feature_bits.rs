//! The feature bits of a mounted volume, which keep the kernel and e2fsprogs away from it.
//!
//! | bit | where | for |
//! |---|---|---|
//! | outer | `s_feature_incompat` of the ext4 superblock, with `needs_recovery` | every tool refuses the volume before it writes anything |
//! | inner | `s_feature_incompat` of the superblock of the kernel's journal (JBD2) | users who clear the outer bit by force |
//!
//! The inner bit alone is not enough: `e2fsck -p` would record an error in the superblock.
//!
//! If our journal is external, a field beside the inner bit names its UUID and incarnation, so that
//! no other journal and no old copy is used in its place. The field is written first and cleared
//! last. If the journal is the volume's own, the field is not cleared: it remains as the record of
//! the volume's journal, and says that the journal is not in use. When a volume that was not closed
//! gets a new incarnation, the field holds both incarnations until the new one has begun. So the
//! journal is in one of them after any crash.
//!
//! The claim ([`super::claim`]) says who has the volume open. It is written and cleared in the same
//! write as the inner bit.
//!
//! Order: the outer bit and then the inner bit become durable, and only then the first transaction
//! is written. When everything is home, the bits are cleared in the opposite order. A volume with
//! either bit is recovered by OneJournal. The journal's header, which is durable before the outer
//! bit is set, says what is in the journal.
//!
//! Torn writes: the inner bit and its checksum are in one sector of 512 bytes. The ext4 superblock
//! has two sectors, and its checksum is in the second. Outside of our journal, it is written for
//! one change at a time ([`ONE_CHANGE`]), and each change is in the first sector. So after a torn
//! write, one of two versions has the right checksum ([`read_superblock`]).

use std::sync::Arc;

use device::{AlignedBuf, BlockDevice};
use journal::{BlockBytes, HomeBlock, JournalError};
use zerocopy::{FromBytes, IntoBytes};

use super::raw::{read_block, write_block};
use crate::Result;
use crate::error::NoVolume;
use crate::facts::{Checksums, incompat};
use crate::layout::claim::Claim;
use crate::layout::jbd2::{ExternalJournal, JBD2_SUPERBLOCK_BYTES, Jbd2SuperBlock};
use crate::layout::superblock::{
    MKFS_UNDER_WAY, STATE_ERROR, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, SuperBlock,
};

/// Sets and clears our feature bits on a volume.
pub(crate) struct FeatureBits {
    device: Arc<dyn BlockDevice>,
    /// The block that holds the JBD2 superblock.
    jbd2_block: HomeBlock,
}

/// The bits that form the outer feature bit.
pub(super) const OUTER: u32 = incompat::RECOVER | incompat::ONEJOURNAL;

/// The changes that are made to a superblock in place, in both directions, one at a time.
const ONE_CHANGE: [fn(&mut SuperBlock); 3] = [
    |superblock| {
        let features = superblock.s_feature_incompat.get();
        superblock.s_feature_incompat.set(features ^ OUTER);
    },
    |superblock| superblock.s_state.set(superblock.s_state.get() ^ STATE_ERROR),
    |superblock| {
        let is_under_way = superblock.s_last_mounted == MKFS_UNDER_WAY;
        superblock.s_last_mounted = if is_under_way { [0; 64] } else { MKFS_UNDER_WAY };
    },
];

/// A superblock, and whether its checksum was right as it is, or only with one change reversed.
pub(super) struct FoundSuperBlock {
    pub(crate) superblock: SuperBlock,
    pub(super) is_sound: bool,
    /// Whether it was right only with one change reversed. The superblock on the device is then
    /// torn.
    pub(super) is_torn: bool,
}

impl FoundSuperBlock {
    /// Whether it has our feature bit.
    pub(super) fn has_our_bits(&self) -> bool {
        self.superblock.s_feature_incompat.get() & incompat::ONEJOURNAL != 0
    }
}

/// Reads the superblock. After a torn write of one change, returns the version with the right
/// checksum. If neither version has it, the superblock is returned as it is: if the volume has our
/// feature bit, the journal may hold the right one. Until recovery, everything in such a superblock
/// is used only if it is consistent.
pub(super) fn read_superblock(device: &dyn BlockDevice) -> Result<FoundSuperBlock> {
    if device.size_bytes() < 4096 {
        return Err(NoVolume::TooSmall.into());
    }
    let superblock = SuperBlock::of_block(&*read_block(device, HomeBlock(0))?);
    let is_ok = |superblock: &SuperBlock| Checksums::new(superblock).superblock_ok(superblock);
    if is_ok(&superblock) {
        return Ok(FoundSuperBlock { superblock, is_sound: true, is_torn: false });
    }
    for change in ONE_CHANGE {
        let mut turned = superblock.clone();
        change(&mut turned);
        if is_ok(&turned) {
            return Ok(FoundSuperBlock { superblock: turned, is_sound: true, is_torn: true });
        }
    }
    Ok(FoundSuperBlock { superblock, is_sound: false, is_torn: false })
}

/// Writes the superblock with one change of [`ONE_CHANGE`], durably. A torn superblock is first
/// written in its readable version, so that a power cut never leaves two changes half done.
pub(crate) fn change_superblock(
    device: &dyn BlockDevice,
    change: impl FnOnce(&mut SuperBlock),
) -> Result<()> {
    let found = read_superblock(device)?;
    let mut superblock = found.superblock;
    if found.is_torn {
        write_superblock(device, &superblock)?;
    }
    change(&mut superblock);
    Checksums::new(&superblock).seal_superblock(&mut superblock);
    write_superblock(device, &superblock)
}

fn write_superblock(device: &dyn BlockDevice, superblock: &SuperBlock) -> Result<()> {
    let mut block = read_block(device, HomeBlock(0))?;
    block[SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + SUPERBLOCK_BYTES]
        .copy_from_slice(superblock.as_bytes());
    write_block(device, HomeBlock(0), &block)
}

/// Marks the volume as having errors in the superblock, durably. Our feature bits stay as they are.
pub(super) fn note_errors(device: &dyn BlockDevice) -> Result<()> {
    change_superblock(device, |superblock| {
        superblock.s_state.set(superblock.s_state.get() | STATE_ERROR);
    })
}

/// The JBD2 superblock in the first block of the journal inode.
pub(super) fn jbd2_of(block: &BlockBytes) -> Jbd2SuperBlock {
    let (jbd2, _) = Jbd2SuperBlock::read_from_prefix(&block[..]).expect("a block is large enough");
    jbd2
}

impl FeatureBits {
    /// The feature bits of the volume on `device`.
    pub(crate) fn new(device: Arc<dyn BlockDevice>, jbd2_block: HomeBlock) -> FeatureBits {
        FeatureBits { device, jbd2_block }
    }

    /// The block that holds the superblock of the kernel's journal.
    #[cfg(test)]
    pub(crate) fn jbd2_block(&self) -> HomeBlock {
        self.jbd2_block
    }

    /// Sets both feature bits durably, and the claim together with the inner one. The engine is
    /// open and has not committed anything. `external_journal`: the external journal, if there is
    /// one.
    pub(crate) fn set(
        &self,
        external_journal: Option<ExternalJournal>,
        claim: Option<&Claim>,
    ) -> Result<()> {
        self.write_external_journal(external_journal)?;
        self.set_outer(true)?;
        self.set_inner(true, claim)
    }

    /// Clears both feature bits durably. The engine is closed and everything is home. The record of
    /// the volume's own journal remains.
    pub(crate) fn remove(&self) -> Result<()> {
        self.clear_bits()?;
        match jbd2_of(&*read_block(&*self.device, self.jbd2_block)?).external_journal() {
            Ok(noted) => self.write_external_journal(noted.and_then(ExternalJournal::unused)),
            // Damaged since it was written. The next opening says what to do.
            Err(()) => Ok(()),
        }
    }

    /// Clears both feature bits durably, and then the record of the external journal.
    pub(super) fn remove_with_journal(&self) -> Result<()> {
        self.clear_bits()?;
        self.write_external_journal(None)
    }

    fn clear_bits(&self) -> Result<()> {
        self.set_inner(false, None)?;
        self.set_outer(false)
    }

    /// Records the external journal durably.
    pub(super) fn write_external_journal(
        &self,
        external_journal: Option<ExternalJournal>,
    ) -> Result<()> {
        let jbd2 = jbd2_of(&*read_block(&*self.device, self.jbd2_block)?);
        if jbd2.external_journal() == Ok(external_journal) {
            return Ok(());
        }
        self.change_inner(|jbd2| jbd2.set_external_journal(external_journal))
    }

    fn set_inner(&self, is_set: bool, claim: Option<&Claim>) -> Result<()> {
        self.change_inner(|jbd2| {
            jbd2.set_our_feature_bit(is_set);
            jbd2.set_claim(claim);
        })
    }

    /// The claim on the volume. Inner `Err`: it cannot be read.
    pub(crate) fn claim(&self) -> Result<std::result::Result<Option<Claim>, ()>> {
        Ok(jbd2_of(&*read_block(&*self.device, self.jbd2_block)?).claim.claim())
    }

    /// Writes the claim alone, durably.
    pub(super) fn write_claim(&self, claim: &Claim) -> Result<()> {
        self.change_inner(|jbd2| jbd2.set_claim(Some(claim)))
    }

    /// Writes the claim alone; a power cut may undo it.
    pub(super) fn write_beat(&self, claim: &Claim) -> Result<()> {
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

    fn set_outer(&self, is_set: bool) -> Result<()> {
        change_superblock(&*self.device, |superblock| {
            let others = superblock.s_feature_incompat.get() & !OUTER;
            superblock.s_feature_incompat.set(if is_set { others | OUTER } else { others });
        })
    }
}

#[cfg(test)]
mod tests {
    use device::MemoryDevice;
    use onejournal_testing::{SimDevice, Survival};

    use super::*;
    use crate::facts::ro_compat;

    /// The first block of a volume whose superblock has a checksum and this change.
    fn block(change: impl FnOnce(&mut SuperBlock)) -> Vec<u8> {
        let mut superblock = SuperBlock::read_from_bytes(&[0; SUPERBLOCK_BYTES]).expect("its size");
        superblock.s_feature_ro_compat.set(ro_compat::METADATA_CSUM);
        change(&mut superblock);
        Checksums::new(&superblock).seal_superblock(&mut superblock);
        let mut block = vec![0; 4096];
        block[SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + SUPERBLOCK_BYTES]
            .copy_from_slice(superblock.as_bytes());
        block
    }

    /// After one change is cut, the next one is cut, too. Without the write in between, two changes
    /// would be half done.
    #[test]
    fn a_torn_superblock_whose_next_change_is_cut_can_be_read() {
        let (first_sector, second_sector) = (1024..1536, 1536..2048);
        let pairs =
            ONE_CHANGE.iter().flat_map(|torn| ONE_CHANGE.iter().map(move |next| (torn, next)));
        for (torn, next) in pairs {
            for sector in [&first_sector, &second_sector] {
                let mut found = block(|_| ());
                found[sector.clone()].copy_from_slice(&block(torn)[sector.clone()]);
                let device = SimDevice::from_bytes(&found, 512);
                assert!(read_superblock(&device).expect("read").is_torn);
                device.start_trace();
                change_superblock(&device, next).expect("changed");
                let trace = device.take_trace();
                for cut in trace.cuts() {
                    for survival in
                        Survival::EXTREMES.into_iter().chain((0..20).map(Survival::Random))
                    {
                        let left = trace.crash(cut, survival).to_bytes();
                        let left =
                            read_superblock(&MemoryDevice::from_bytes(left, 512)).expect("read");
                        assert!(left.is_sound, "cut {cut}, {survival:?}, {sector:?}");
                    }
                }
            }
        }
    }
}
