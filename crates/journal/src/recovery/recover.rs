//! Recovery: scan, revoke, replay; then one flush and a header that says *clean*.
//!
//! Nothing is written before the scan is complete and the end of history is known. Replay makes the
//! newest version of each block, no matter how much of it is home already. The header names the
//! same history until everything is durable at home. So recovery can be cut at any point and run
//! again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use device::{AlignedBuf, BlockDevice};

use super::region_bytes::RegionBytes;
use super::scan::{End, Scan, scan_regions};
use crate::error::{JournalError, Result};
use crate::faults::{self, Fault};
use crate::home::{WRITER_COUNT_MAX, write_blocks};
use crate::medium::Space;
use crate::memory::MemoryLimits;
use crate::record::codec::CodecError;
use crate::record::codec::window::Window;
use crate::record::{DataCheck, Record, Tag, form};
use crate::ring::{Header, incarnation_after_recovery};
use crate::types::{BLOCK_BYTES, BlockRef, HomeBlock, Tid};

/// How to recover.
#[derive(Debug, Clone, Default)]
pub struct RecoverOptions {
    /// Give up the history after a damaged transaction (`fsck --discard-damaged`).
    pub discard_damaged: bool,
    /// Only report: write nothing.
    pub dry_run: bool,
    /// The limits that the next opening of the journal will have.
    pub memory: MemoryLimits,
}

/// What recovery found and did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recovery {
    /// Transactions found.
    pub transaction_count: usize,
    /// The last of them.
    pub last_tid: Option<Tid>,
    /// Blocks brought home (or that would be, in a dry run).
    pub replayed_blocks: usize,
    /// Logged blocks that were not brought home because of a revoke.
    pub revoked_blocks: usize,
    /// History was cut at a damaged transaction, as asked for.
    pub discarded_damaged: bool,
}

/// Brings the committed history of the journal home. On success the journal is clean.
pub fn recover(
    home: &Arc<dyn BlockDevice>,
    space: &Space,
    uuid: &[u8; 16],
    options: &RecoverOptions,
) -> Result<Recovery> {
    let (mut scan, regions) = scan_regions(space, uuid, &options.memory)?;
    judge_end(&scan, options)?;
    let checks = drop_unflushed(&mut scan, home, options)?;
    let follow = |pair: &[Record]| pair[0].tid.next() == pair[1].tid;
    assert!(scan.records.windows(2).all(follow), "history has no gap");
    let revokes = collect_revokes(&scan.records);
    let (chains, revoked_blocks) = chains_of(&scan.records, &revokes);
    check_homes(&chains, home)?;
    check_bases(&chains, &scan.records)?;
    check_copies(&regions, &scan.records)?;
    check_apart(&chains, &checks)?;
    if !options.dry_run && !scan.header.clean {
        let batch_blocks = options.memory.recovery_batch_blocks();
        replay(home, &regions, &scan.records, &chains, batch_blocks)?;
        let clean = clean_header(&scan);
        assert!(clean.sequence > scan.header.sequence, "a header replaces an older one");
        assert!(clean.tail_tid >= scan.header.tail_tid, "numbers of transactions count up");
        clean.write_both(space)?;
    }
    Ok(Recovery {
        transaction_count: scan.records.len(),
        last_tid: scan.records.last().map(|record| record.tid),
        replayed_blocks: chains.len(),
        revoked_blocks,
        discarded_damaged: matches!(scan.end, End::Damaged { .. }),
    })
}

fn judge_end(scan: &Scan, options: &RecoverOptions) -> Result<()> {
    match &scan.end {
        End::Tail => Ok(()),
        End::Damaged { .. } if options.discard_damaged => Ok(()),
        End::Damaged { missing, found, .. } => Err(JournalError::Damaged(format!(
            "transaction {missing} is unreadable, but the later transaction {found} is whole; \
             nothing was changed"
        ))),
        End::Unknown { tid, what } => Err(JournalError::Incompatible(format!(
            "transaction {tid}: {what}; nothing was changed. Use the version that wrote it"
        ))),
    }
}

/// Takes the newest record out of history if its data in place do not have the checksums that it
/// says. Then its flush had not ended, and it was not acknowledged. A record before a damaged one
/// needs no comparison: the record after the damage was written after its flush.
///
/// Data that cannot be read may have been acknowledged. They are refused, or given up with the
/// record if the caller gives up what is damaged. Returns the checks that were compared.
fn drop_unflushed(
    scan: &mut Scan,
    home: &Arc<dyn BlockDevice>,
    options: &RecoverOptions,
) -> Result<Vec<DataCheck>> {
    let Some(newest) = scan.records.last() else { return Ok(Vec::new()) };
    let is_flushed = scan.end != End::Tail || newest.tid <= scan.header.settled_tid;
    if is_flushed || faults::is(Fault::ChecksIgnored) {
        return Ok(Vec::new());
    }
    for check in &newest.checks {
        let is_home = match is_home(check, home) {
            Err(JournalError::Io(_)) if options.discard_damaged => false,
            Err(JournalError::Io(error)) => {
                return Err(JournalError::Damaged(format!(
                    "data of its newest transaction, {}, cannot be read: {error}; nothing was \
                     changed",
                    newest.tid
                )));
            }
            compared => compared?,
        };
        if !is_home {
            scan.end_offset = newest.offset;
            scan.records.pop();
            return Ok(Vec::new());
        }
    }
    Ok(newest.checks.clone())
}

/// Replay must not change blocks that were compared, or a recovery that is cut and run again would
/// end differently. The engine writes no record with checks of blocks that recovery replays.
fn check_apart(chains: &Chains, checks: &[DataCheck]) -> Result<()> {
    let replayed = |check: &DataCheck| {
        let blocks = check.blocks();
        chains.range(HomeBlock(blocks.start)..HomeBlock(blocks.end)).next()
    };
    match checks.iter().find_map(replayed) {
        None => Ok(()),
        Some((block, _)) => Err(JournalError::Damaged(format!(
            "the newest transaction has a check of {block}, which the journal also holds; nothing \
             was changed"
        ))),
    }
}

/// Whether the blocks have the checksum.
fn is_home(check: &DataCheck, home: &Arc<dyn BlockDevice>) -> Result<bool> {
    let block_count = home.size_bytes() / BLOCK_BYTES as u64;
    if check.blocks().end > block_count {
        return Err(JournalError::Damaged(format!(
            "it has a check of {}, but the volume has {block_count} blocks; is the volume \
             truncated?",
            check.home
        )));
    }
    let mut data = AlignedBuf::zeroed(check.block_count as usize * BLOCK_BYTES);
    home.read(check.home.offset_bytes(), &mut data)?;
    Ok(crc32c::crc32c(&data) == check.checksum)
}

/// Revoke pass: the last transaction that revoked each block.
fn collect_revokes(records: &[Record]) -> HashMap<HomeBlock, Tid> {
    let each = |record: &Record| {
        let tid = record.tid;
        record.revokes.clone().into_iter().map(move |block| (block, tid))
    };
    records.iter().flat_map(each).collect()
}

/// For each block, the changes that make its newest version: records (by index) and tags, in
/// journal order. This chain begins with the last record that holds all of the block. If there is
/// none, it has all records of the block, and is applied to the home block.
type Chains = BTreeMap<HomeBlock, Vec<(usize, Tag)>>;

fn chains_of(records: &[Record], revokes: &HashMap<HomeBlock, Tid>) -> (Chains, usize) {
    let mut chains = Chains::new();
    let mut revoked_count = 0;
    for (index, record) in records.iter().enumerate() {
        for tag in &record.tags {
            if revokes.get(&tag.home).is_some_and(|revoked| *revoked > record.tid) {
                revoked_count += 1;
                continue;
            }
            let chain = chains.entry(tag.home).or_default();
            if tag.is_whole() {
                chain.clear();
            }
            chain.push((index, *tag));
        }
    }
    (chains, revoked_count)
}

fn check_homes(chains: &Chains, home: &Arc<dyn BlockDevice>) -> Result<()> {
    let block_count = home.size_bytes() / BLOCK_BYTES as u64;
    match chains.last_key_value() {
        Some((block, _)) if block.0 >= block_count => Err(JournalError::Damaged(format!(
            "it holds {block}, but the volume has {block_count} blocks; is the volume truncated?"
        ))),
        _ => Ok(()),
    }
}

/// A change that needs exactly its base gives garbage over anything else. So a chain with such a
/// change must begin with a whole record: the engine never writes one that applies to the block at
/// home.
fn check_bases(chains: &Chains, records: &[Record]) -> Result<()> {
    for (block, chain) in chains.iter().filter(|(_, chain)| !chain[0].1.is_whole()) {
        if let Some((index, _)) = chain.iter().find(|(_, tag)| form::needs_exact_base(tag.form)) {
            return Err(JournalError::Damaged(format!(
                "transaction {} has a difference of {block} to a version that is not in the \
                 journal; nothing was changed",
                records[*index].tid
            )));
        }
    }
    Ok(())
}

/// Makes each block that copies what its region holds, and compares the checksum, before anything
/// is written.
fn check_copies(regions: &RegionBytes<'_>, records: &[Record]) -> Result<()> {
    let copying = copying_until(regions, records, |_| true);
    let checked = walk(regions, records, &copying, &BTreeSet::new(), |_, _, _, _| Ok(()));
    checked.map_err(|error| match error {
        JournalError::Damaged(text) => {
            JournalError::Damaged(format!("{text}; nothing was changed"))
        }
        error => error,
    })
}

/// Calls `visit` for each change of the `wanted` records (by index), in journal order, with the
/// payload and with what the region holds before the change. `copying`: how far each region is read
/// for that.
fn walk(
    regions: &RegionBytes<'_>,
    records: &[Record],
    copying: &HashMap<u64, usize>,
    wanted: &BTreeSet<usize>,
    mut visit: impl FnMut(usize, &Tag, &[u8], &Window) -> std::result::Result<(), CodecError>,
) -> Result<()> {
    let (mut window, mut window_of) = (Window::new(regions.window_blocks()), None);
    for (index, record) in records.iter().enumerate() {
        let region = regions.region_start(record.offset);
        let is_copied = copying.get(&region).is_some_and(|last| index <= *last);
        if !is_copied && !wanted.contains(&index) {
            continue;
        }
        if window_of.replace(region) != Some(region) {
            window.clear();
        }
        let broken = |error: CodecError| {
            JournalError::Damaged(format!("transaction {}: {error}", record.tid))
        };
        regions.with_record(record, |bytes| {
            let payload = record.payload(bytes).map_err(broken)?;
            for tag in &record.tags {
                if wanted.contains(&index) {
                    visit(index, tag, &payload, &window).map_err(broken)?;
                }
                if is_copied {
                    tag.note(&payload, &mut window).map_err(broken)?;
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// The last of some records (by index) that copies, for each region.
fn copying_until(
    regions: &RegionBytes<'_>,
    records: &[Record],
    is_one: impl Fn(usize) -> bool,
) -> HashMap<u64, usize> {
    let copies = |record: &Record| record.tags.iter().any(|tag| form::copies(tag.form));
    let copying =
        records.iter().enumerate().filter(|(index, record)| is_one(*index) && copies(record));
    copying.map(|(index, record)| (regions.region_start(record.offset), index)).collect()
}

/// Replay pass: makes the newest versions, a batch of blocks at a time, and writes them in home
/// order. The batches bound the memory, whatever the journal says.
///
/// A chain that begins with a delta is applied to the block at home. A checkpoint, or an earlier
/// recovery that was cut, may have left there any mixture of the block's versions since the oldest
/// region began. ([`crate::record::codec`] says why that is enough.)
fn replay(
    home: &Arc<dyn BlockDevice>,
    regions: &RegionBytes<'_>,
    records: &[Record],
    chains: &Chains,
    batch_blocks: usize,
) -> Result<()> {
    let chains: Vec<_> = chains.iter().collect();
    for batch in chains.chunks(batch_blocks) {
        let mut blocks = read_bases(home, batch)?;
        assert!(blocks.len() == batch.len(), "each chain has a base");
        apply_chains(regions, records, batch, &mut blocks)?;
        let blocks: Vec<(HomeBlock, BlockRef)> =
            batch.iter().map(|(home, _)| **home).zip(blocks).collect();
        write_blocks(home.as_ref(), &blocks, WRITER_COUNT_MAX)?;
    }
    Ok(home.flush()?)
}

type Batch<'a> = [(&'a HomeBlock, &'a Vec<(usize, Tag)>)];

/// The home blocks of the chains that begin with a delta; zeros for the others.
fn read_bases(home: &Arc<dyn BlockDevice>, batch: &Batch<'_>) -> Result<Vec<BlockRef>> {
    let mut buf = AlignedBuf::zeroed(BLOCK_BYTES);
    let mut blocks = Vec::with_capacity(batch.len());
    for (block, chain) in batch {
        let mut bytes = [0; BLOCK_BYTES];
        if !chain[0].1.is_whole() {
            home.read(block.offset_bytes(), &mut buf)?;
            bytes.copy_from_slice(&buf);
        }
        blocks.push(Arc::new(bytes));
    }
    Ok(blocks)
}

/// Takes each record that the batch needs once, in journal order, and applies its changes.
fn apply_chains(
    regions: &RegionBytes<'_>,
    records: &[Record],
    batch: &Batch<'_>,
    blocks: &mut [BlockRef],
) -> Result<()> {
    let mut slots: HashMap<(usize, HomeBlock), usize> = HashMap::new();
    for (slot, (block, chain)) in batch.iter().enumerate() {
        assert!(!chain.is_empty(), "{block} is replayed without a change");
        let is_later = |pair: &[(usize, Tag)]| pair[0].0 <= pair[1].0;
        assert!(chain.windows(2).all(is_later), "{block} is replayed in journal order");
        slots.extend(chain.iter().map(|(index, _)| ((*index, **block), slot)));
    }
    let wanted: BTreeSet<usize> = slots.keys().map(|(index, _)| *index).collect();
    let copying = copying_until(regions, records, |index| wanted.contains(&index));
    // They were whole when they were scanned.
    walk(regions, records, &copying, &wanted, |index, tag, payload, window| {
        match slots.get(&(index, tag.home)) {
            Some(slot) => tag.apply(payload, Arc::make_mut(&mut blocks[*slot]), window),
            None => Ok(()),
        }
    })
}

/// The header after recovery: the regions hold nothing, and no record belongs to its incarnation.
fn clean_header(scan: &Scan) -> Header {
    Header {
        clean: true,
        incarnation: incarnation_after_recovery(scan.header.incarnation),
        sequence: scan.header.sequence + 1,
        tail_region: 0,
        tail_tid: scan.records.last().map_or(scan.header.tail_tid, |record| record.tid.next()),
        ..scan.header
    }
}
