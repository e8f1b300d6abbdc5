//! Group descriptors: reading and checking them, and the places of metadata that they name.

use std::ops::Range;
use std::sync::Arc;

use journal::HomeBlock;

use super::checksum::Checksums;
use super::geometry::Geometry;
use super::source::Source;
use crate::layout::group::GroupDesc;
use crate::{Error, Result};

/// Checks a descriptor's checksum, and that everything that it points to is on the volume.
pub(crate) fn check_desc(
    geometry: &Geometry,
    checksums: &Checksums,
    group: u32,
    desc: &GroupDesc,
) -> Result<()> {
    let place = format!("the descriptor of group {group}");
    if checksums.groups_enabled() && desc.bg_checksum.get() != checksums.group_desc(group, desc) {
        return Err(Error::corrupt("checksum", place));
    }
    let inside = |start: u64, count: u64| {
        start != 0 && start.checked_add(count).is_some_and(|end| end <= geometry.block_count)
    };
    let table_count = u64::from(geometry.inode_table_block_count());
    if !inside(desc.block_bitmap(), 1)
        || !inside(desc.inode_bitmap(), 1)
        || !inside(desc.inode_table(), table_count)
    {
        return Err(Error::corrupt("location of a bitmap or inode table", place));
    }
    if desc.free_block_count() > geometry.blocks_in_group(group)
        || desc.free_inode_count() > geometry.inodes_per_group
        || desc.unused_inode_count() > geometry.inodes_per_group
    {
        return Err(Error::corrupt("counts", place));
    }
    Ok(())
}

/// A group's descriptor as `source` sees it.
pub(crate) fn read_desc(source: &impl Source, group: u32) -> Result<GroupDesc> {
    let facts = source.facts();
    let (block, offset) = facts.geometry.desc_place(group);
    let bytes = source.block(block)?;
    let desc = GroupDesc::from_disk(&bytes[offset..offset + facts.geometry.desc_bytes]);
    check_desc(&facts.geometry, &facts.checksums, group, &desc)?;
    Ok(desc)
}

/// Superblocks, descriptors, bitmaps and inode tables of the flex group that contains `group`.
/// (`mke2fs` and `resize2fs` put those of a group into its flex group. If `mke2fs` packed all of
/// them, all groups count as one flex group, see `RawVolume::find_packed_metadata`.)
pub(crate) fn fixed_ranges(source: &impl Source, group: u32) -> Result<Arc<[Range<u64>]>> {
    let facts = source.facts();
    let geometry = &facts.geometry;
    let flex = geometry.flex_groups(group);
    if let Some(ranges) = facts.places.fixed(flex.start) {
        return Ok(ranges);
    }
    let ranges = collect_fixed(geometry, flex.clone(), |group| read_desc(source, group))?;
    let ranges: Arc<[Range<u64>]> = ranges.into();
    facts.places.note_fixed(flex.start, ranges.clone());
    Ok(ranges)
}

/// The fixed metadata of some groups, sorted and merged.
pub(crate) fn collect_fixed(
    geometry: &Geometry,
    groups: Range<u32>,
    mut read_desc: impl FnMut(u32) -> Result<GroupDesc>,
) -> Result<Vec<Range<u64>>> {
    let mut ranges = Vec::new();
    for group in groups {
        let desc = read_desc(group)?;
        let first = geometry.first_block(group).0;
        ranges.push(first..first + u64::from(geometry.head_block_count(group)));
        ranges.push(desc.block_bitmap()..desc.block_bitmap() + 1);
        ranges.push(desc.inode_bitmap()..desc.inode_bitmap() + 1);
        let table = desc.inode_table();
        ranges.push(table..table + u64::from(geometry.inode_table_block_count()));
    }
    Ok(merge(ranges))
}

/// An error if one of these blocks belongs to the file system itself, or does not exist. Such
/// blocks are never in files, never allocated and never freed.
pub(crate) fn check_not_fixed(source: &impl Source, start: HomeBlock, count: u64) -> Result<()> {
    let facts = source.facts();
    let end = start.0.checked_add(count).filter(|end| *end <= facts.geometry.block_count);
    let Some(end) = end else {
        return Err(Error::corrupt("block number outside of the volume", start));
    };
    if count == 0 {
        return Ok(());
    }
    let overlaps = |ranges: &[Range<u64>]| {
        let next = ranges.partition_point(|range| range.end <= start.0);
        ranges.get(next).is_some_and(|range| range.start < end)
    };
    let mut is_fixed = overlaps(facts.places.reserved());
    let last = facts.geometry.group_of_block(HomeBlock(end - 1));
    let mut group = facts.geometry.group_of_block(start);
    while !is_fixed && group <= last {
        is_fixed = overlaps(&fixed_ranges(source, group)?);
        group = facts.geometry.flex_groups(group).end;
    }
    if is_fixed {
        return Err(Error::corrupt("pointer into the file system's own metadata", start));
    }
    Ok(())
}

/// Sorts ranges, and joins ranges that overlap or touch.
pub(crate) fn merge(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_merge() {
        assert_eq!(merge(vec![5..7, 0..2, 2..3, 6..9, 4..4]), [0..3, 5..9]);
    }
}
