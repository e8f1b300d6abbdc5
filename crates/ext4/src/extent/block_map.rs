//! The block map: how ext2 and ext3 map the blocks of a file. e2fsck still makes such directories
//! (`lost+found`).
//!
//! ```text
//! i_block: 12 data blocks | map block of 1024 pointers | 2 levels of map blocks | 3 levels
//! ```
//! A pointer of 0 is a hole: of one block, or of everything that the map block would map. Map
//! blocks have no checksum, so a damaged or crafted one can hold any number. Reads check each
//! pointer against the volume's own metadata. The walk over a whole map visits each map block once,
//! and stops if the map names more blocks than the volume has. So it ends on every input.
//!
//! A block map is read and shortened here. It never grows: `to_extents` replaces it before that.

use std::collections::HashSet;

use journal::{BLOCK_BYTES, BlockRef, HomeBlock};

use super::mapping::{Mapping, Target};
use super::run::Run;
use crate::facts::{self, Source};
use crate::inode::Inode;
use crate::layout::extent::WRITTEN_COUNT_MAX;
use crate::{Error, InodeNo, Result};

/// Pointers in `i_block`.
pub(super) const ROOT_COUNT: usize = 15;
/// Pointers in `i_block` that name data blocks.
const DIRECT_COUNT: usize = 12;
/// Pointers in a map block.
pub(super) const POINTER_COUNT: usize = BLOCK_BYTES / 4;

/// The logical blocks that one pointer of `i_block` maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Branch {
    /// Which pointer.
    pub(crate) index: usize,
    /// First logical block.
    pub(crate) start: u64,
    /// Levels of map blocks; 0: the pointer names a data block.
    pub(crate) depth: u32,
}

impl Branch {
    /// The branch of one pointer of `i_block`.
    pub(crate) fn at(index: usize) -> Branch {
        assert!(index < ROOT_COUNT, "an inode has 15 pointers");
        let depth = index.saturating_sub(DIRECT_COUNT - 1);
        let before: u64 =
            (1..depth).map(|depth| span(u32::try_from(depth).expect("at most 3"))).sum();
        let start = index.min(DIRECT_COUNT) as u64 + before;
        Branch { index, start, depth: u32::try_from(depth).expect("at most 3") }
    }

    /// The branch that holds a logical block; `None` after the last one.
    fn of(logical: u64) -> Option<Branch> {
        (0..ROOT_COUNT).map(Branch::at).find(|branch| logical < branch.start + span(branch.depth))
    }
}

/// The number of logical blocks that a pointer maps with this many levels of map blocks below it.
pub(super) fn span(depth: u32) -> u64 {
    (POINTER_COUNT as u64).pow(depth)
}

/// A pointer of a map block or of `i_block`.
pub(crate) fn pointer(bytes: &[u8], index: usize) -> u64 {
    let word = bytes[index * 4..index * 4 + 4].try_into().expect("4 bytes");
    u64::from(u32::from_le_bytes(word))
}

/// The mapping of the blocks from `logical` on, as far as one map block shows it. See
/// `tree::map`.
pub(crate) fn map(
    source: &impl Source,
    inode: &Inode,
    logical: u32,
    max_count: u32,
) -> Result<Mapping> {
    let hole = |count: u64| {
        let count = u32::try_from(count).unwrap_or(u32::MAX).min(max_count.max(1));
        Ok(Mapping { logical, count, target: Target::Hole })
    };
    let Some(branch) = Branch::of(logical.into()) else { return hole(u64::MAX) };
    if branch.depth == 0 {
        let pointers = &inode.i_block()[..DIRECT_COUNT * 4];
        return map_in(source, pointers, branch.index, logical, max_count);
    }
    let mut rest = u64::from(logical) - branch.start;
    let mut at = pointer(inode.i_block(), branch.index);
    for depth in (0..branch.depth).rev() {
        if at == 0 {
            return hole(span(depth + 1) - rest);
        }
        let node = read_map_block(source, HomeBlock(at))?;
        // Below 1024: the rest is below the span of the level above.
        let index = (rest / span(depth)) as usize;
        rest %= span(depth);
        if depth == 0 {
            return map_in(source, &node[..], index, logical, max_count);
        }
        at = pointer(&node[..], index);
    }
    unreachable!("the last level returns")
}

/// The run, or the hole, that begins at `index` in an array of pointers to data.
fn map_in(
    source: &impl Source,
    pointers: &[u8],
    index: usize,
    logical: u32,
    max_count: u32,
) -> Result<Mapping> {
    let count = run_count(pointers, index, max_count.max(1));
    let target = match pointer(pointers, index) {
        0 => Target::Hole,
        block => {
            facts::check_not_fixed(source, HomeBlock(block), count.into())?;
            Target::Written(HomeBlock(block))
        }
    };
    Ok(Mapping { logical, count, target })
}

/// The number of pointers from `index` on, at most `max_count`, that are all 0, or that name
/// adjacent blocks.
pub(crate) fn run_count(pointers: &[u8], index: usize, max_count: u32) -> u32 {
    let first = pointer(pointers, index);
    let wanted = |count: u32| if first == 0 { 0 } else { first + u64::from(count) };
    let left_count = pointers.len() / 4 - index;
    let mut count = 1;
    while count < max_count
        && (count as usize) < left_count
        && pointer(pointers, index + count as usize) == wanted(count)
    {
        count += 1;
    }
    count
}

/// Reads a map block. An error if the pointer to it cannot be a pointer to a file's block.
pub(super) fn read_map_block(source: &impl Source, block: HomeBlock) -> Result<BlockRef> {
    facts::check_not_fixed(source, block, 1)?;
    source.block(block)
}

/// A whole block map.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// The data, sorted by logical block; no run is longer than an extent can be.
    pub(crate) runs: Vec<Run>,
    /// The map blocks.
    pub(super) map_blocks: Vec<HomeBlock>,
}

/// Bounds of a walk.
pub(crate) struct Limits {
    /// Blocks of the volume.
    pub(crate) block_count: u64,
    /// The number of runs that the caller can take.
    pub(crate) run_count: usize,
}

/// Reads a whole block map. `read` returns map blocks and checks their numbers. `None`: the map has
/// more runs than the caller can take.
pub(crate) fn walk(
    inode: &Inode,
    limits: Limits,
    read: &mut dyn FnMut(HomeBlock) -> Result<BlockRef>,
) -> Result<Option<Contents>> {
    let mut walk = Walk {
        ino: inode.ino,
        limits,
        read,
        seen: HashSet::new(),
        data_count: 0,
        contents: Contents::default(),
    };
    for index in 0..ROOT_COUNT {
        let branch = Branch::at(index);
        let at = pointer(inode.i_block(), index);
        walk.below(at, branch.depth, branch.start)?;
        if walk.has_too_many_runs() {
            return Ok(None);
        }
    }
    Ok(Some(walk.contents))
}

struct Walk<'a> {
    ino: InodeNo,
    limits: Limits,
    read: &'a mut dyn FnMut(HomeBlock) -> Result<BlockRef>,
    seen: HashSet<HomeBlock>,
    data_count: u64,
    contents: Contents,
}

impl Walk<'_> {
    fn has_too_many_runs(&self) -> bool {
        self.contents.runs.len() > self.limits.run_count
    }

    /// Walks what a pointer maps. The depth decreases at each step down, so this ends.
    fn below(&mut self, at: u64, depth: u32, start: u64) -> Result<()> {
        if at == 0 || self.has_too_many_runs() {
            return Ok(());
        }
        if depth == 0 {
            return self.add_data(at, start);
        }
        let block = HomeBlock(at);
        if !self.seen.insert(block) {
            return Err(Error::corrupt(format!("map block {at}, which is used twice"), self.ino));
        }
        let bytes = (self.read)(block)?;
        self.contents.map_blocks.push(block);
        for index in 0..POINTER_COUNT {
            let below = start + index as u64 * span(depth - 1);
            self.below(pointer(&bytes[..], index), depth - 1, below)?;
        }
        Ok(())
    }

    fn add_data(&mut self, physical: u64, logical: u64) -> Result<()> {
        self.data_count += 1;
        if self.data_count > self.limits.block_count {
            return Err(Error::corrupt("block map with more blocks than the volume", self.ino));
        }
        let logical = u32::try_from(logical).expect("a block map ends below 2^31 blocks");
        match self.contents.runs.last_mut() {
            Some(last)
                if last.end() == u64::from(logical)
                    && last.physical + u64::from(last.count) == physical
                    && last.count < WRITTEN_COUNT_MAX =>
            {
                last.count += 1;
            }
            _ => self.contents.runs.push(Run { logical, count: 1, physical, unwritten: false }),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_follow_each_other() {
        let mut next = 0;
        for index in 0..ROOT_COUNT {
            let branch = Branch::at(index);
            assert_eq!(branch.start, next);
            assert_eq!(Branch::of(next), Some(branch));
            next += span(branch.depth);
            assert_eq!(Branch::of(next - 1), Some(branch));
        }
        assert_eq!(next, 12 + 1024 + (1 << 20) + (1 << 30));
        assert_eq!(Branch::of(next), None);
    }

    #[test]
    fn runs_of_pointers_are_counted() {
        let bytes: Vec<u8> =
            [7u32, 8, 9, 0, 0, 11, 10].iter().flat_map(|pointer| pointer.to_le_bytes()).collect();
        assert_eq!(run_count(&bytes, 0, 100), 3);
        assert_eq!(run_count(&bytes, 0, 2), 2);
        assert_eq!(run_count(&bytes, 3, 100), 2);
        assert_eq!(run_count(&bytes, 5, 100), 1);
        assert_eq!(run_count(&bytes, 6, 100), 1);
    }
}
