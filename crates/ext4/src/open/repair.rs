//! Repairs a volume that is not mounted. After a power cut at any point, the next mount or fsck can
//! repair the volume.
//!
//! e2fsck writes in place, in no order that survives a power cut. A superblock that is torn between
//! its two sectors of 512 bytes is lost if it has no copy (below 128 MiB). So e2fsck works on a
//! view of the volume, [`apply_repair`] takes the result, and the changes reach the volume through
//! our journal:
//!
//! | what e2fsck changed | how it is applied | what a cut leaves |
//! |---|---|---|
//! | as many blocks as one transaction takes | one transaction | the volume as it was, or repaired |
//! | more | several, block 0 in the last | also a part of the repair, marked as having errors |
//! | also where the journal is, or what is in it | in place, but block 0 by a transaction | the same |
//!
//! A volume that is marked as having errors is not mounted, and e2fsck checks all of it again.

use std::collections::BTreeSet;
use std::sync::Arc;

use device::BlockDevice;
use journal::{Form, HomeBlock, Journal, Options};
use zerocopy::IntoBytes;

use super::claim;
use super::feature_bits::{self, OUTER};
use super::found::{FoundVolume, find};
use super::options::{OpenOptions, system_seed};
use super::raw::{read_block, write_block_cached};
use super::recover::recover;
use crate::facts::incompat;
use crate::layout::claim::Claim;
use crate::layout::jbd2::ExternalJournal;
use crate::layout::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, SuperBlock};
use crate::{Error, Result};

/// Number of regions of the journal for a repair. Few regions allow a large transaction.
const REGION_COUNT: u32 = 2;

/// Repairs a superblock that was torn while a feature bit was changed. Changes nothing else.
pub fn mend_superblock(device: &Arc<dyn BlockDevice>) -> Result<()> {
    feature_bits::change_superblock(&**device, |_| ())
}

/// Whether e2fsck can check a volume that [`crate::Survey`] finds damaged. It cannot if the volume
/// has our feature bits, because the journal may hold its newest state, or if the superblock is not
/// reliable.
pub fn can_be_repaired(device: &Arc<dyn BlockDevice>) -> Result<bool> {
    let found = feature_bits::read_superblock(&**device)?;
    Ok(found.is_sound && !found.has_our_bits())
}

/// Brings home what the journal holds, and clears the feature bits. This is for a volume that
/// cannot be opened because it is damaged or marked as having errors: e2fsck repairs such a volume,
/// but does not touch one with our feature bits.
pub fn recover_only(device: &Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<()> {
    let found = find(device)?;
    if let Some(claimant) = &options.claimant {
        claim::check(&found, claimant)?;
    }
    if !found.area.has_our_bits {
        return Ok(());
    }
    recover(&found, options)?;
    found.feature_bits().remove()
}

/// Gives the volume on `device` the content of `repaired`, which differs only in the blocks
/// `changed`. The volume was closed or recovered.
///
/// Refuses, without writing anything, if the repaired volume could not be opened. While the volume
/// has our feature bits, its claim is `claim`.
pub fn apply_repair(
    device: &Arc<dyn BlockDevice>,
    repaired: &Arc<dyn BlockDevice>,
    changed: &BTreeSet<u64>,
    claim: Option<&Claim>,
) -> Result<()> {
    if changed.is_empty() {
        return Ok(());
    }
    let after = find(repaired).map_err(|error| {
        Error::NotRepaired(format!(
            "nothing was changed: what e2fsck would leave cannot be mounted ({error}). To let it \
             repair the volume in place, run: e2fsck -fy TARGET"
        ))
    })?;
    if after.area.has_our_bits || feature_bits::read_superblock(&**device)?.has_our_bits() {
        return Err(Error::NotRepaired("the volume was not recovered before its repair".into()));
    }
    let keeps_journal = match find(device) {
        Ok(before) => same_journal(&before, &after, changed),
        Err(Error::Corrupt { .. }) => false,
        Err(error) => return Err(error),
    };
    if keeps_journal {
        return Repair { device, repaired, claim, must_note_errors: false }.commit(changed);
    }
    if !can_be_repaired(device)? {
        return Err(Error::NotRepaired(
            "the superblock is damaged; to restore it from a copy, run: e2fsck -fy TARGET".into(),
        ));
    }
    feature_bits::note_errors(&**device)?;
    for block in changed.iter().filter(|block| **block != 0) {
        let bytes = read_block(&**repaired, HomeBlock(*block))?;
        write_block_cached(&**device, HomeBlock(*block), &bytes)?;
    }
    device.flush().map_err(journal::JournalError::from)?;
    Repair { device, repaired, claim, must_note_errors: true }.commit(&BTreeSet::from([0]))
}

/// Whether the journal is where it was, and its content is unchanged.
fn same_journal(before: &FoundVolume, after: &FoundVolume, changed: &BTreeSet<u64>) -> bool {
    let (old, new) = (&before.area, &after.area);
    let is_inside = |block: &u64| old.all_runs().iter().any(|run| run.contains(block));
    old.jbd2_block == new.jbd2_block
        && old.runs == new.runs
        && before.superblock.s_uuid == after.superblock.s_uuid
        && !changed.iter().any(is_inside)
}

struct Repair<'a> {
    device: &'a Arc<dyn BlockDevice>,
    repaired: &'a Arc<dyn BlockDevice>,
    claim: Option<&'a Claim>,
    /// Whether the volume is marked as having errors first. Block 0, which clears that, is written
    /// last.
    must_note_errors: bool,
}

impl Repair<'_> {
    /// Brings these blocks home by transactions, with block 0 in the last one.
    fn commit(&self, changed: &BTreeSet<u64>) -> Result<()> {
        let found = find(self.device)?;
        let options = Options {
            region_count: REGION_COUNT,
            commit_interval: None,
            background: false,
            incarnation: system_seed(),
            ..Options::default()
        };
        let (device, uuid) = (self.device.clone(), found.superblock.s_uuid);
        let journal = Journal::open(device, found.area.space(self.device.clone())?, uuid, options)?;
        let room = journal.max_credit_count();
        // Backwards: block 0 is the last.
        let blocks: Vec<u64> = changed.iter().rev().copied().collect();
        if blocks.len() > room && !self.must_note_errors {
            feature_bits::note_errors(&**self.device)?;
        }
        let feature_bits = found.feature_bits();
        let own = found.area.own_journal()?.and_then(ExternalJournal::unused);
        feature_bits.set(own, self.claim)?;
        for part in blocks.chunks(room) {
            self.commit_part(&journal, part)?;
        }
        journal.close()?;
        feature_bits.remove()
    }

    fn commit_part(&self, journal: &Journal, blocks: &[u64]) -> Result<()> {
        let mut handle = journal.begin(blocks.len())?;
        for block in blocks {
            let mut bytes = read_block(&**self.repaired, HomeBlock(*block))?;
            if *block == 0 {
                set_outer_bit(&mut bytes)?;
            }
            handle.put(HomeBlock(*block), Arc::from(bytes), Form::Delta)?;
        }
        let tid = handle.stop();
        Ok(journal.sync(tid)?)
    }
}

/// Sets the outer bit in the repaired superblock, because it goes home while the volume has its
/// feature bits.
fn set_outer_bit(block: &mut journal::BlockBytes) -> Result<()> {
    let mut superblock = SuperBlock::of_block(block);
    let features = superblock.s_feature_incompat.get();
    if features & incompat::ONEJOURNAL != 0 {
        return Err(Error::corrupt("s_feature_incompat", "the repaired superblock"));
    }
    superblock.s_feature_incompat.set(features | OUTER);
    crate::facts::Checksums::new(&superblock).seal_superblock(&mut superblock);
    block[SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + SUPERBLOCK_BYTES]
        .copy_from_slice(superblock.as_bytes());
    Ok(())
}
