//! Reads the volume before its journal is open, directly from the device.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use device::sync::Mutex;
use device::{AlignedBuf, BlockDevice};
use journal::{BLOCK_BYTES, BlockBytes, HomeBlock, JournalError};

use crate::extent::block_map;
use crate::extent::{Limits, NodeView, Run, WHOLE_FILE, Window};
use crate::facts::{Checksums, Geometry, check_desc, collect_fixed};
use crate::inode::{Inode, flags};
use crate::layout::group::GroupDesc;
use crate::{Error, InodeNo, Result};

/// The most extents that a file of the file system itself may have: far more than any has.
const EXTENT_LIMIT: usize = 16384;

/// A volume without its journal.
pub(super) struct RawVolume {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) geometry: Geometry,
    pub(crate) checksums: Checksums,
    /// The block of descriptors that was read last, because the next request is mostly for a
    /// neighbour.
    descs: Mutex<Option<(HomeBlock, Box<BlockBytes>)>>,
    /// Fixed metadata of each flex group that was asked for, by the flex group's first group.
    fixed: Mutex<HashMap<u32, Arc<[Range<u64>]>>>,
}

/// Reads one block from the device.
pub(crate) fn read_block(device: &dyn BlockDevice, block: HomeBlock) -> Result<Box<BlockBytes>> {
    let mut buf = AlignedBuf::zeroed(BLOCK_BYTES);
    device.read(block.offset_bytes(), &mut buf).map_err(JournalError::from)?;
    Ok(Box::new(buf[..].try_into().expect("one block was read")))
}

/// Writes one block to the device and makes it durable.
pub(crate) fn write_block(
    device: &dyn BlockDevice,
    block: HomeBlock,
    bytes: &BlockBytes,
) -> Result<()> {
    write_block_cached(device, block, bytes)?;
    Ok(device.flush().map_err(JournalError::from)?)
}

/// Writes one block to the device; durable after the next flush.
pub(super) fn write_block_cached(
    device: &dyn BlockDevice,
    block: HomeBlock,
    bytes: &BlockBytes,
) -> Result<()> {
    let buf = AlignedBuf::from_slice(bytes);
    Ok(device.write(block.offset_bytes(), &buf).map_err(JournalError::from)?)
}

impl RawVolume {
    pub(crate) fn new(
        device: Arc<dyn BlockDevice>,
        geometry: Geometry,
        checksums: Checksums,
    ) -> RawVolume {
        let (descs, fixed) = (Mutex::default(), Mutex::default());
        RawVolume { device, geometry, checksums, descs, fixed }
    }

    /// With `packed_meta_blocks`, mke2fs puts the bitmaps and inode tables of all groups at the
    /// front of the volume, although flex groups are smaller. Then all groups count as one flex
    /// group here.
    pub(super) fn find_packed_metadata(&mut self) -> Result<()> {
        let second = self.geometry.groups_per_flex;
        if second >= self.geometry.group_count {
            return Ok(());
        }
        let bitmap = HomeBlock(self.read_desc(second)?.block_bitmap());
        if self.geometry.group_of_block(bitmap) < second {
            self.geometry.groups_per_flex = self.geometry.group_count;
        }
        Ok(())
    }

    /// A group's descriptor.
    pub(crate) fn read_desc(&self, group: u32) -> Result<GroupDesc> {
        let (block, offset) = self.geometry.desc_place(group);
        let mut last = self.descs.lock();
        let bytes = match last.take() {
            Some((number, bytes)) if number == block => bytes,
            _ => read_block(&*self.device, block)?,
        };
        let desc = GroupDesc::from_disk(&bytes[offset..offset + self.geometry.desc_bytes]);
        *last = Some((block, bytes));
        check_desc(&self.geometry, &self.checksums, group, &desc)?;
        Ok(desc)
    }

    /// Fixed metadata of the flex group that contains `group`. If all metadata are at the front of
    /// the volume (`packed_meta_blocks`), that is one flex group of all groups, so it is read once.
    fn fixed_ranges(&self, group: u32) -> Result<Arc<[Range<u64>]>> {
        let flex = self.geometry.flex_groups(group);
        if let Some(known) = self.fixed.lock().get(&flex.start) {
            return Ok(known.clone());
        }
        let ranges = collect_fixed(&self.geometry, flex.clone(), |group| self.read_desc(group))?;
        let ranges: Arc<[Range<u64>]> = ranges.into();
        self.fixed.lock().insert(flex.start, ranges.clone());
        Ok(ranges)
    }

    /// The blocks of a file of the file system itself, in order. It has no holes, and none of its
    /// blocks is fixed metadata.
    pub(super) fn file_blocks(&self, inode: &Inode, what: &str) -> Result<Vec<Range<u64>>> {
        let mut walk = Walk { raw: self, inode, runs: Vec::new(), next: 0 };
        let walked = if inode.has_flag(flags::EXTENTS) { walk.root() } else { walk.block_map() };
        let (runs, next) = (walk.runs, walk.next);
        walked.map_err(|why| match why {
            Stop::Fault(fault) => Error::corrupt(format!("{what}: {fault}"), inode.ino),
            Stop::Error(error) => error,
        })?;
        let block_count = inode.size() / BLOCK_BYTES as u64;
        if next < block_count || block_count == 0 {
            return Err(Error::corrupt(format!("{what}: fewer blocks than its size"), inode.ino));
        }
        self.check_not_fixed(&runs, what, inode.ino)?;
        Ok(runs)
    }

    /// Refuses blocks of a file that are fixed metadata.
    pub(crate) fn check_not_fixed(
        &self,
        runs: &[Range<u64>],
        what: &str,
        ino: InodeNo,
    ) -> Result<()> {
        for run in runs {
            let mut group = self.geometry.group_of_block(HomeBlock(run.start));
            let last = self.geometry.group_of_block(HomeBlock(run.end - 1));
            while group <= last {
                let fixed = self.fixed_ranges(group)?;
                group = self.geometry.flex_groups(group).end;
                if fixed.iter().any(|range| range.start < run.end && run.start < range.end) {
                    return Err(Error::corrupt(format!("{what}: overlaps metadata"), ino));
                }
            }
        }
        Ok(())
    }
}

enum Stop {
    Fault(&'static str),
    Error(Error),
}

impl From<&'static str> for Stop {
    fn from(fault: &'static str) -> Stop {
        Stop::Fault(fault)
    }
}

/// A walk over all extents of a file, from left to right.
struct Walk<'a> {
    raw: &'a RawVolume,
    inode: &'a Inode,
    runs: Vec<Range<u64>>,
    next: u64,
}

impl Walk<'_> {
    fn holds(&self) -> impl Fn(u64, u64) -> bool {
        |start, count| self.raw.geometry.holds(start, count)
    }

    fn root(&mut self) -> std::result::Result<(), Stop> {
        let inode = self.inode;
        let view = NodeView::of_root(inode.i_block(), self.holds())?;
        self.node(&view, &WHOLE_FILE)
    }

    /// The depth decreases by one at each step down (`of_block` checks that), so this ends.
    fn node(&mut self, view: &NodeView<'_>, window: &Window) -> std::result::Result<(), Stop> {
        let depth = view.head().depth;
        if depth == 0 {
            return self.leaf(view);
        }
        for (at, child) in view.children().iter().enumerate() {
            let window = view.child_window(at, window);
            let bytes = read_block(&*self.raw.device, child.block).map_err(Stop::Error)?;
            let checksums = &self.raw.checksums;
            let seed = checksums.inode_seed(self.inode.ino, self.inode.generation());
            let seed = checksums.enabled().then_some(seed);
            let below = NodeView::of_block(&bytes, depth - 1, &window, seed, self.holds())?;
            self.node(&below, &window)?;
        }
        Ok(())
    }

    fn block_map(&mut self) -> std::result::Result<(), Stop> {
        let raw = self.raw;
        let holds = |start, count| raw.geometry.holds(start, count);
        let limits = Limits { block_count: raw.geometry.block_count, run_count: EXTENT_LIMIT };
        let contents = block_map::walk(self.inode, limits, &mut |block| {
            if !holds(block.0, 1) {
                return Err(Error::corrupt("block map", self.inode.ino));
            }
            Ok(read_block(&*raw.device, block)?.into())
        });
        let contents = contents.map_err(Stop::Error)?.ok_or("too many pieces")?;
        if !contents.runs.iter().all(|run| holds(run.physical, run.count.into())) {
            return Err("block number".into());
        }
        self.runs_of_file(&contents.runs)
    }

    fn leaf(&mut self, view: &NodeView<'_>) -> std::result::Result<(), Stop> {
        self.runs_of_file(&view.runs())
    }

    fn runs_of_file(&mut self, runs: &[Run]) -> std::result::Result<(), Stop> {
        for run in runs {
            if u64::from(run.logical) != self.next || run.unwritten {
                return Err("holes or unwritten blocks".into());
            }
            if self.runs.len() >= EXTENT_LIMIT {
                return Err("too many extents".into());
            }
            self.next = run.end();
            self.runs.push(run.physical..run.physical + u64::from(run.count));
        }
        Ok(())
    }
}
