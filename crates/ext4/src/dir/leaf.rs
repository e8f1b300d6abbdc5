//! What linear and indexed directories share: reading and checking blocks of entries, and the hash
//! function.

use journal::{BlockRef, HomeBlock};

use super::block::{self, RawEntry};
use super::hash::{HashVersion, NameHasher};
use super::seal::Sealer;
use crate::error::{Error, Result};
use crate::extent::{self, Target};
use crate::facts::{Facts, Source, compat};
use crate::inode::{Inode, flags};
use crate::op::Op;
use crate::types::{FileKind, InodeNo};

/// Bytes of a block, as sizes count them.
const BLOCK: u64 = journal::BLOCK_BYTES as u64;

/// `s_flags`: characters above 127 are positive in name hashes.
const FLAG_UNSIGNED_HASH: u32 = 0x2;

/// An entry that was found, and where it is. Valid until the directory changes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FoundEntry {
    pub ino: InodeNo,
    pub(crate) home: HomeBlock,
    pub(crate) offset: usize,
}

impl FoundEntry {
    pub(crate) fn new(home: HomeBlock, entry: &RawEntry) -> FoundEntry {
        FoundEntry { ino: InodeNo(entry.ino), home, offset: entry.offset }
    }
}

/// `EXT4_FT_*` of a kind.
pub(crate) fn file_type(kind: FileKind) -> u8 {
    match kind {
        FileKind::Regular => 1,
        FileKind::Directory => 2,
        FileKind::CharDevice => 3,
        FileKind::BlockDevice => 4,
        FileKind::Fifo => 5,
        FileKind::Socket => 6,
        FileKind::Symlink => 7,
    }
}

/// The kind that an entry's `EXT4_FT_*` stands for, if it is known.
pub(crate) fn kind_of(file_type: u8) -> Option<FileKind> {
    Some(match file_type {
        1 => FileKind::Regular,
        2 => FileKind::Directory,
        3 => FileKind::CharDevice,
        4 => FileKind::BlockDevice,
        5 => FileKind::Fifo,
        6 => FileKind::Socket,
        7 => FileKind::Symlink,
        _ => return None,
    })
}

/// Whether new directories get an index when they grow.
pub(crate) fn volume_has_index(facts: &Facts) -> bool {
    facts.superblock.s_feature_compat.get() & compat::DIR_INDEX != 0
}

/// Whether the directory is indexed.
pub(crate) fn is_indexed(dir: &Inode) -> bool {
    dir.has_flag(flags::INDEX)
}

/// The hash function of an index with this version.
pub(crate) fn hasher(facts: &Facts, version: HashVersion) -> NameHasher {
    let superblock = &facts.superblock;
    let unsigned = superblock.s_flags.get() & FLAG_UNSIGNED_HASH != 0;
    NameHasher { version, unsigned, seed: superblock.s_hash_seed.map(|word| word.get()) }
}

/// The hash function of new indexes.
pub(crate) fn default_hasher(facts: &Facts) -> Result<NameHasher> {
    let version = HashVersion::from_disk(facts.superblock.s_def_hash_version)?;
    Ok(hasher(facts, version))
}

/// Number of blocks of a directory, from its size.
pub(crate) fn block_count(dir: &Inode) -> Result<u32> {
    let size = dir.size();
    match u32::try_from(size / BLOCK) {
        Ok(count @ 1..) if size.is_multiple_of(BLOCK) => Ok(count),
        _ => Err(Error::corrupt("directory size", dir.ino)),
    }
}

/// A block of a directory, without any check.
pub(crate) fn read_block(
    source: &impl Source,
    dir: &Inode,
    logical: u32,
) -> Result<(HomeBlock, BlockRef)> {
    if logical >= block_count(dir)? {
        return Err(Error::corrupt(format!("directory block {logical} past the end"), dir.ino));
    }
    match extent::map(source, dir, logical, 1)?.target {
        Target::Written(home) => Ok((home, source.block(home)?)),
        _ => Err(Error::corrupt(format!("hole at directory block {logical}"), dir.ino)),
    }
}

/// A block of entries, with its checksum verified.
pub(crate) fn read_leaf(
    source: &impl Source,
    dir: &Inode,
    logical: u32,
) -> Result<(HomeBlock, BlockRef)> {
    let (home, block) = read_block(source, dir, logical)?;
    Sealer::new(source, dir).check_leaf(&block, dir.ino)?;
    Ok((home, block))
}

/// Inserts into this block if there is room.
pub(super) fn insert_into(
    op: &mut Op<'_>,
    dir: &Inode,
    home: HomeBlock,
    block: &BlockRef,
    name: &[u8],
    ino: InodeNo,
    file_type: u8,
) -> Result<bool> {
    let sealer = Sealer::new(op, dir);
    if !block::has_room(block, sealer.has_tail(), name)? {
        return Ok(false);
    }
    let block = op.write_block(home)?;
    let inserted = block::insert(block, sealer.has_tail(), name, ino.0, file_type)?;
    assert!(inserted, "room that was just seen");
    sealer.seal_leaf(block);
    Ok(true)
}

/// Whether a block of entries holds only `.` and `..`.
pub(super) fn leaf_is_empty(source: &impl Source, dir: &Inode, block: &BlockRef) -> Result<bool> {
    for entry in block::used_entries(block, Sealer::new(source, dir).has_tail()) {
        if !matches!(entry?.name, b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Checks that the first two entries of block 0 are `.` and `..`. Returns the second one.
pub(super) fn check_dots(dir: &Inode, block: &BlockRef) -> Result<RawEntry<'static>> {
    let mut entries = block::entries(block, false);
    let (dot, dot_dot) = (entries.next().transpose()?, entries.next().transpose()?);
    match (dot, dot_dot) {
        (Some(dot), Some(dot_dot))
            if dot.name == b"."
                && dot.ino == dir.ino.0
                && dot.len == 12
                && dot_dot.name == b".." =>
        {
            Ok(RawEntry { name: b"..", ..dot_dot })
        }
        _ => Err(Error::corrupt("`.` and `..`", dir.ino)),
    }
}
