//! Opening and closing a volume.
//!
//! Opening:
//! 1. read and check the superblock, find the journal, check the claim;
//! 2. if one of our feature bits is set, recover and begin again;
//! 3. open the engine and set the feature bits;
//! 4. after a crash, count the free space again; then clean up orphans.
//!
//! Nothing is written to a volume that is refused.
//!
//! A read-only volume with orphans is opened to write first, too.
//!
//! Closing: frees files that were deleted but still open, brings everything home, and clears the
//! feature bits. Handing over leaves these files, and tells which inodes are pinned.
//!
//! Opening reads a few blocks, however large the volume is. It reads all descriptors, once, in two
//! cases: after a crash, and if one flex group has all metadata (`packed_meta_blocks`).

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use device::{BlockDevice, MemoryDevice};
use journal::{Journal, MemoryLimits, Options, Space};
use zerocopy::IntoBytes;

use super::claim::{self, Claimant};
use super::feature_bits::FeatureBits;
use super::found::{FoundVolume, find};
use super::heartbeat::Heartbeat;
use super::options::{JournalChoice, OpenOptions};
use super::place::{self, JournalPlace, Noted};
use super::raw::RawVolume;
use super::recover::recover;
use crate::facts::{Facts, Places, merge, read_desc, ro_compat};
use crate::faults::{self, Fault};
use crate::layout::claim::Claim;
use crate::layout::jbd2::ExternalJournal;
use crate::layout::superblock::{STATE_ERROR, SuperBlock};
use crate::memory::{
    AllocHints, FileStats, InCoreInodes, Mounted, Orphans, PendingFrees, Pin, Totals,
};
use crate::{Error, Result};

/// Size in bytes of the journal in memory that a read-only volume gets. It is never written.
const READ_ONLY_JOURNAL_BYTES: usize = 8 << 20;

/// An open volume, and what marks it as open on its device.
pub(crate) struct Opened {
    pub(crate) mounted: Mounted,
    /// `None` on a read-only volume.
    pub(crate) feature_bits: Option<FeatureBits>,
    /// The heartbeat of its claim, if it has one.
    heartbeat: Option<Heartbeat>,
    /// Holds the sign of life of this process, by which others see that the owner of the claim
    /// lives.
    claimant: Option<Claimant>,
    /// What a volume that was opened read-only is opened with to write. (A volume that became
    /// read-only after an error has none.)
    read_only: Option<Box<ReadOnly>>,
}

struct ReadOnly {
    device: Arc<dyn BlockDevice>,
    options: OpenOptions,
}

/// See [`crate::Volume::open`].
pub(crate) fn open(device: Arc<dyn BlockDevice>, options: OpenOptions) -> Result<Opened> {
    let mut found = find(&device)?;
    let crashed = found.area.has_our_bits;
    if let Some(claimant) = &options.claimant {
        claim::check(&found, claimant)?;
        if crashed || !options.read_only {
            claim::take(&found.feature_bits(), claimant)?;
        }
    }
    if crashed {
        place::check_before_recovery(&found, &options)?;
        recover(&found, &options)?;
        found = find(&device)?;
    }
    if !found.is_sound {
        return Err(Error::corrupt("checksum", "the superblock"));
    }
    found.raw.check_root(&found.superblock)?;
    if options.read_only {
        if crashed || found.has_orphans() {
            let writable = OpenOptions { read_only: false, ..options.clone() };
            open_writable(found, writable, crashed)?.hand_over()?;
            found = find(&device)?;
        }
        return open_read_only(found, &options);
    }
    open_writable(found, options, crashed)
}

/// See [`crate::Volume::reopen_writable`].
pub(crate) fn reopen_writable(opened: &Opened, journal: JournalChoice) -> Result<Opened> {
    let Some(ReadOnly { device, options }) = opened.read_only.as_deref() else {
        return Err(Error::ReadOnly);
    };
    let options = OpenOptions { read_only: false, journal, ..options.clone() };
    let found = find(device)?;
    if found.superblock.as_bytes() != opened.mounted.facts.superblock.as_bytes() {
        let why = "another user has changed it since it was mounted";
        return Err(Error::NeedsCheck(why.into()));
    }
    if let Some(claimant) = &options.claimant {
        claim::check(&found, claimant)?;
        claim::take(&found.feature_bits(), claimant)?;
    }
    open_writable(found, options, false)
}

impl Opened {
    /// See [`crate::Volume::take_place_of`].
    pub(crate) fn take_place_of(&mut self, read_only: Opened) {
        self.mounted.in_core = read_only.mounted.in_core;
    }

    /// See [`crate::Volume::close`].
    pub(crate) fn close(mut self) -> Result<()> {
        self.mounted.in_core = InCoreInodes::default();
        self.end()
    }

    /// See [`crate::Volume::hand_over`].
    pub(crate) fn hand_over(self) -> Result<Vec<Pin>> {
        let pins = match faults::is(Fault::PinsLost) {
            true => Vec::new(),
            false => self.mounted.in_core.all_pins(),
        };
        self.end().map(|()| pins)
    }

    /// Brings everything home, and clears the feature bits. Files without a name stay if they are
    /// pinned.
    fn end(self) -> Result<()> {
        if let Some(feature_bits) = &self.feature_bits {
            self.mounted.clean_up_orphans()?;
            write_last_superblock(&self.mounted)?;
            self.mounted.journal.close()?;
            drop(self.heartbeat);
            return feature_bits.remove();
        }
        Ok(self.mounted.journal.close()?)
    }

    /// See [`crate::Volume::journal_size_bytes`].
    pub(crate) fn journal_size_bytes(&self) -> u64 {
        self.feature_bits.as_ref().map_or(0, |_| self.mounted.journal.header().space_bytes)
    }

    /// Starts the heartbeat if the claim has one.
    fn start_heartbeat(&mut self, feature_bits: FeatureBits, claim: Option<Claim>) -> Result<()> {
        if let Some(claim) = claim.filter(|claim| claim.heartbeat_s > 0) {
            self.heartbeat =
                Some(Heartbeat::start(feature_bits, claim, self.mounted.journal.aborter())?);
        }
        Ok(())
    }
}

fn write_last_superblock(volume: &Mounted) -> Result<()> {
    let mut op = volume.as_root().op(1)?;
    let has_orphans = !volume.orphans.all(&op)?.is_empty();
    op.change_superblock(|superblock| {
        let features = superblock.s_feature_ro_compat.get();
        if !has_orphans {
            superblock.s_feature_ro_compat.set(features & !ro_compat::ORPHAN_PRESENT);
        }
    })?;
    op.finish(&[])?;
    Ok(())
}

/// The first operation of a mount, after the feature bits are set.
fn start(volume: &Mounted, crashed: bool) -> Result<()> {
    if crashed {
        count_free_space(volume)?;
    }
    let mut op = volume.as_root().op(1)?;
    let now = op.now();
    op.change_superblock(|superblock| {
        let count = superblock.s_mnt_count.get();
        superblock.s_mnt_count.set(count.saturating_add(1));
        superblock.s_mtime.set((now.seconds & 0xFFFF_FFFF) as u32);
        superblock.s_mtime_hi = (now.seconds >> 32 & 0xFF) as u8;
    })?;
    op.finish(&[])?;
    volume.load_declared_bytes()?;
    volume.clean_up_orphans()
}

/// After a crash the superblock's totals are out of date: they are counted from the descriptors.
fn count_free_space(volume: &Mounted) -> Result<()> {
    let (mut blocks, mut inodes) = (0, 0);
    for group in 0..volume.facts.geometry.group_count {
        let desc = read_desc(volume, group)?;
        blocks += i64::from(desc.free_block_count());
        inodes += i64::from(desc.free_inode_count());
    }
    let totals = &volume.totals;
    let (old_blocks, old_inodes) = (totals.free_block_count(), totals.free_inode_count());
    // Both are below 2^48.
    totals.add(blocks - old_blocks as i64, inodes - old_inodes as i64);
    Ok(())
}

fn open_read_only(found: FoundVolume, options: &OpenOptions) -> Result<Opened> {
    // Nothing is ever written into it: the engine serves only as a cache.
    let memory = Arc::new(MemoryDevice::new(READ_ONLY_JOURNAL_BYTES, 4096));
    let space = Space::new(memory, std::iter::once(0..READ_ONLY_JOURNAL_BYTES as u64).collect())?;
    let engine_options = Options {
        region_count: 2,
        commit_interval: None,
        background: false,
        incarnation: options.random_seed,
        memory: MemoryLimits { journal_bytes: u64::MAX, ..options.memory },
        ..Options::default()
    };
    let device = found.raw.device.clone();
    let mut opened = build(found, options, space, engine_options, false)?;
    opened.read_only = Some(Box::new(ReadOnly { device, options: options.clone() }));
    Ok(opened)
}

fn open_writable(found: FoundVolume, options: OpenOptions, crashed: bool) -> Result<Opened> {
    if found.superblock.s_state.get() & STATE_ERROR != 0 {
        return Err(Error::MarkedAsDamaged);
    }
    let place = place::to_use(&found, &options)?;
    let incarnation = incarnation(&found.superblock, options.random_seed);
    let external_journal = note_next_incarnation(&found, &place, incarnation)?;
    let usual_codec = || place.space.medium().usual_codec();
    let engine_options = Options {
        region_count: u32::try_from(options.region_count).unwrap_or(u32::MAX),
        delta_codec: options.delta_codec.unwrap_or_else(usual_codec),
        checkpoint: options.checkpoint,
        memory: options.memory,
        commit_interval: options.commit_interval,
        background: options.background,
        incarnation,
        ..Options::default()
    };
    let feature_bits = found.feature_bits();
    let mut opened = build(found, &options, place.space, engine_options, true)?;
    let claim = options.claimant.as_ref().map(|claimant| claimant.claim.clone());
    feature_bits.set(external_journal, claim.as_ref())?;
    let beating = claim.filter(|_| options.background);
    let started = opened.start_heartbeat(feature_bits, beating);
    match started.and_then(|()| start(&opened.mounted, crashed)) {
        Ok(()) => Ok(opened),
        Err(error) => {
            abandon(opened);
            Err(error)
        }
    }
}

/// Returns the field for the external journal after `incarnation` has begun. If the volume was not
/// closed and its journal goes on, it writes both incarnations now, because from here on a crash
/// leaves the journal in either of them.
fn note_next_incarnation(
    found: &FoundVolume,
    place: &JournalPlace,
    incarnation: u64,
) -> Result<Option<ExternalJournal>> {
    let (journal_uuid, standing, was) = match place.noted {
        Noted::Inside { own } => return Ok(own),
        Noted::Elsewhere { journal_uuid, standing, incarnation } => {
            (journal_uuid, standing, incarnation)
        }
    };
    let next =
        ExternalJournal { standing, journal_uuid, incarnation, next_incarnation: incarnation };
    if let Some(was) = was
        && found.area.journal_in_use().is_some()
    {
        found
            .feature_bits()
            .write_external_journal(Some(ExternalJournal { incarnation: was, ..next }))?;
    }
    Ok(Some(next))
}

/// Undoes a failed opening. If possible, the volume must not be left in a state that only
/// OneJournal can open.
fn abandon(opened: Opened) {
    let Opened { mounted, feature_bits: Some(feature_bits), heartbeat, claimant, .. } = opened
    else {
        return;
    };
    let closed = mounted.journal.close().map_err(Error::from);
    drop(heartbeat);
    if let Err(error) = closed.and_then(|()| feature_bits.remove()) {
        tracing::warn!("the volume keeps its feature bits: {error}");
    }
    drop(claimant);
}

fn build(
    found: FoundVolume,
    options: &OpenOptions,
    space: Space,
    mut engine_options: Options,
    writable: bool,
) -> Result<Opened> {
    let feature_bits = found.feature_bits();
    let FoundVolume { raw, superblock, area, orphan_file, .. } = found;
    let RawVolume { device, geometry, checksums, .. } = raw;
    let mut reserved = area.all_runs();
    let orphan_file = orphan_file.map(|(file, runs)| {
        reserved.extend(runs);
        file
    });
    let file_stats = Arc::<FileStats>::default();
    engine_options.observer = Some(file_stats.clone());
    let journal = Journal::open(device.clone(), space, superblock.s_uuid, engine_options)?;
    let totals = Totals::new(
        superblock.free_block_count(geometry.wide).min(geometry.block_count),
        u64::from(superblock.s_free_inodes_count.get()),
    );
    let mounted = Mounted {
        alloc_hints: AllocHints::new(geometry.group_count),
        random: AtomicU64::new(options.random_seed),
        renamed_dir_tid: AtomicU64::new(0),
        answered: device::sync::RwLock::default(),
        orphans: Orphans::new(orphan_file),
        in_core: InCoreInodes::with(&options.pins),
        file_stats,
        unsplit_write_bytes: AtomicU64::new(u64::MAX),
        declared_bytes: AtomicU64::new(0),
        pending_frees: PendingFrees::default(),
        journal,
        settings: options.settings(),
        totals,
        facts: Facts {
            places: Places::new(geometry.group_count, merge(reserved)),
            superblock: Box::new(superblock),
            geometry,
            checksums,
        },
    };
    let claimant = options.claimant.clone();
    Ok(Opened {
        mounted,
        feature_bits: writable.then_some(feature_bits),
        heartbeat: None,
        claimant,
        read_only: None,
    })
}

/// A number for the engine's new incarnation. It differs from mount to mount even if the seed does
/// not.
fn incarnation(superblock: &SuperBlock, seed: u64) -> u64 {
    let words = [
        u64::from(superblock.s_mnt_count.get()),
        u64::from(superblock.s_mtime.get()),
        u64::from(superblock.s_wtime.get()),
    ];
    let mix =
        |state: u64, word: u64| (state ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    words.iter().fold(seed, |state, word| mix(state, *word))
}
