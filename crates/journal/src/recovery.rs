//! Recovery: scan, revoke, replay; then one flush and a header that says *clean*.
//!
//! Nothing is changed before the scan is complete and its end is judged. Replay writes only what
//! the newest record of each block says, so it can be cut at any point and run again: the header
//! still names the same history until everything is durable at home.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use device::{AlignedBuf, BlockDevice};

use crate::header::Header;
use crate::options::Broken;
use crate::record::{Record, Tag};
use crate::scan::{End, Scan, scan_with};
use crate::{BLOCK_BYTES, BlockRef, HomeBlock, JournalError, Result, Space, Tid};

/// How to recover.
#[derive(Debug, Clone, Default)]
pub struct RecoverOptions {
    /// Give up the history behind a damaged transaction (`fsck --discard-damaged`).
    pub discard_damaged: bool,
    /// Look only: write nothing.
    pub dry_run: bool,
    /// A fault to build in, so that a check can be seen to fail.
    #[cfg(feature = "canary")]
    pub broken: Broken,
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
    let scan = scan_with(space, uuid, broken(options))?;
    judge_end(&scan, options)?;
    let revokes = collect_revokes(&scan.records);
    let (newest, revoked_blocks) = newest_changes(&scan.records, &revokes);
    check_homes(&newest, home)?;
    if !options.dry_run && !scan.header.clean {
        replay(home, space, &scan.records, &newest)?;
        clean_header(&scan).write_both(space)?;
    }
    Ok(Recovery {
        transaction_count: scan.records.len(),
        last_tid: scan.records.last().map(|record| record.tid),
        replayed_blocks: newest.len(),
        revoked_blocks,
        discarded_damaged: matches!(scan.end, End::Damaged { .. }),
    })
}

#[cfg(feature = "canary")]
fn broken(options: &RecoverOptions) -> Broken {
    options.broken
}

#[cfg(not(feature = "canary"))]
fn broken(_options: &RecoverOptions) -> Broken {
    Broken::Nothing
}

fn judge_end(scan: &Scan, options: &RecoverOptions) -> Result<()> {
    match &scan.end {
        End::Tail => Ok(()),
        End::Damaged { .. } if options.discard_damaged => Ok(()),
        End::Damaged { missing, found, .. } => Err(JournalError::Damaged(format!(
            "transaction {missing} is unreadable, but transaction {found} behind it is whole; \
             nothing was changed. `onejournal fsck --discard-damaged` gives up everything from \
             transaction {missing} on"
        ))),
        End::Unknown { tid, what } => Err(JournalError::Incompatible(format!(
            "transaction {tid}: {what}; nothing was changed. Use the version that wrote it"
        ))),
    }
}

/// Revoke pass: the last transaction that revoked each block.
fn collect_revokes(records: &[Record]) -> HashMap<HomeBlock, Tid> {
    let each = |record: &Record| {
        let tid = record.tid;
        record.revokes.clone().into_iter().map(move |block| (block, tid))
    };
    records.iter().flat_map(each).collect()
}

/// Where the newest change of a block is: index of the record, and its tag.
type Newest = BTreeMap<HomeBlock, (usize, Tag)>;

fn newest_changes(records: &[Record], revokes: &HashMap<HomeBlock, Tid>) -> (Newest, usize) {
    let mut newest = Newest::new();
    let mut revoked_count = 0;
    for (index, record) in records.iter().enumerate() {
        for tag in &record.tags {
            if revokes.get(&tag.home).is_some_and(|revoked| *revoked > record.tid) {
                revoked_count += 1;
            } else {
                newest.insert(tag.home, (index, *tag));
            }
        }
    }
    (newest, revoked_count)
}

fn check_homes(newest: &Newest, home: &Arc<dyn BlockDevice>) -> Result<()> {
    let block_count = home.size_bytes() / BLOCK_BYTES as u64;
    match newest.last_key_value() {
        Some((block, _)) if block.0 >= block_count => Err(JournalError::Damaged(format!(
            "it holds {block}, but the volume has {block_count} blocks; is the volume truncated?"
        ))),
        _ => Ok(()),
    }
}

/// Replay pass: reads the payloads in journal order, writes the blocks in home order.
fn replay(
    home: &Arc<dyn BlockDevice>,
    space: &Space,
    records: &[Record],
    newest: &Newest,
) -> Result<()> {
    let mut wanted: Vec<Vec<Tag>> = vec![Vec::new(); records.len()];
    for (index, tag) in newest.values() {
        wanted[*index].push(*tag);
    }
    let mut blocks: BTreeMap<HomeBlock, BlockRef> = BTreeMap::new();
    for (record, tags) in records.iter().zip(&wanted).filter(|(_, tags)| !tags.is_empty()) {
        let mut bytes = AlignedBuf::zeroed(record.record_bytes);
        space.read(record.offset, &mut bytes)?;
        for tag in tags {
            let payload = &bytes[tag.payload_offset..tag.payload_offset + BLOCK_BYTES];
            let block: BlockRef = Arc::new(payload.try_into().expect("the slice is one block"));
            blocks.insert(tag.home, block);
        }
    }
    let blocks: Vec<(HomeBlock, BlockRef)> = blocks.into_iter().collect();
    crate::checkpoint::write_home(home.as_ref(), &blocks)?;
    Ok(home.flush()?)
}

/// The header after recovery: nothing in the regions, and a life that none of it belongs to.
fn clean_header(scan: &Scan) -> Header {
    Header {
        clean: true,
        life: scan.header.life.wrapping_add(1),
        sequence: scan.header.sequence + 1,
        tail_region: 0,
        tail_tid: scan.records.last().map_or(scan.header.tail_tid, |record| record.tid.next()),
        ..scan.header
    }
}
