//! Which features of ext4 a volume may use; everything else is refused by name.

use crate::layout::superblock::SuperBlock;
use crate::{Error, Result};

/// Message for a feature that cannot be changed in place.
pub(crate) const MAKE_ANEW: &str = "that cannot be changed in place: mount it with the kernel \
     (mount TARGET DIR), copy the files away, make it anew (mkfs.ext4 -b 4096 -I 256 TARGET) and \
     copy them back";

/// `s_feature_compat`: features that are safe to ignore. Some of them matter here.
pub(crate) mod compat {
    pub(crate) const HAS_JOURNAL: u32 = 0x4;
    pub(crate) const EXT_ATTR: u32 = 0x8;
    pub(crate) const DIR_INDEX: u32 = 0x20;
    pub(crate) const SPARSE_SUPER2: u32 = 0x200;
    pub(crate) const ORPHAN_FILE: u32 = 0x1000;
}

/// `s_feature_incompat`.
pub(crate) mod incompat {
    pub(crate) const FILETYPE: u32 = 0x2;
    pub(crate) const RECOVER: u32 = 0x4;
    pub(crate) const EXTENTS: u32 = 0x40;
    pub(crate) const SIXTY_FOUR_BIT: u32 = 0x80;
    pub(crate) const FLEX_BG: u32 = 0x200;
    pub(crate) const CSUM_SEED: u32 = 0x2000;
    /// Our feature bit. The kernel and e2fsprogs do not know it, so they leave the volume alone.
    pub(crate) const ONEJOURNAL: u32 = 0x4000_0000;
    pub(super) const KNOWN: u32 =
        FILETYPE | RECOVER | EXTENTS | SIXTY_FOUR_BIT | FLEX_BG | CSUM_SEED | ONEJOURNAL;
}

/// `s_feature_ro_compat`.
pub(crate) mod ro_compat {
    pub(crate) const SPARSE_SUPER: u32 = 0x1;
    pub(crate) const LARGE_FILE: u32 = 0x2;
    pub(crate) const HUGE_FILE: u32 = 0x8;
    pub(crate) const GDT_CSUM: u32 = 0x10;
    pub(crate) const DIR_NLINK: u32 = 0x20;
    pub(crate) const EXTRA_ISIZE: u32 = 0x40;
    pub(crate) const METADATA_CSUM: u32 = 0x400;
    pub(crate) const ORPHAN_PRESENT: u32 = 0x10000;
    pub(super) const KNOWN: u32 = SPARSE_SUPER
        | LARGE_FILE
        | HUGE_FILE
        | GDT_CSUM
        | DIR_NLINK
        | EXTRA_ISIZE
        | METADATA_CSUM
        | ORPHAN_PRESENT;
}

/// Names of the incompatible features that exist, as `mke2fs -O` spells them.
const INCOMPAT_NAMES: &[(u32, &str)] = &[
    (0x1, "compression"),
    (0x8, "journal_dev"),
    (0x10, "meta_bg"),
    (0x100, "mmp"),
    (0x400, "ea_inode"),
    (0x1000, "dirdata"),
    (0x4000, "large_dir"),
    (0x8000, "inline_data"),
    (0x10000, "encrypt"),
    (0x20000, "casefold"),
];

/// Names of the read-only compatible features that exist.
const RO_COMPAT_NAMES: &[(u32, &str)] = &[
    (0x4, "btree_dir"),
    (0x80, "snapshot"),
    (0x100, "quota"),
    (0x200, "bigalloc"),
    (0x800, "replica"),
    (0x1000, "readonly"),
    (0x2000, "project"),
    (0x4000, "shared_blocks"),
    (0x8000, "verity"),
];

/// Compatible features that require work from a writer, and that this driver does not support.
const COMPAT_REFUSED: &[(u32, &str)] = &[(0x1, "dir_prealloc"), (0x2, "imagic_inodes")];

/// Features that tune2fs can remove from a volume.
const CLEARED_BY_TUNE2FS: &[&str] = &["quota", "project", "mmp"];

/// Features that every `mke2fs -t ext4` sets. Some could be missing, but then they would have to be
/// set when the first file needs them.
const NEEDED: &[(Word, u32, &str)] = &[
    (Word::Compat, compat::HAS_JOURNAL, "has_journal"),
    (Word::Compat, compat::EXT_ATTR, "ext_attr"),
    (Word::Incompat, incompat::FILETYPE, "filetype"),
    (Word::Incompat, incompat::EXTENTS, "extent"),
    (Word::RoCompat, ro_compat::LARGE_FILE, "large_file"),
    (Word::RoCompat, ro_compat::HUGE_FILE, "huge_file"),
    (Word::RoCompat, ro_compat::DIR_NLINK, "dir_nlink"),
    (Word::RoCompat, ro_compat::EXTRA_ISIZE, "extra_isize"),
];

/// The only one of them that tune2fs cannot set.
const NOT_SET_BY_TUNE2FS: &str = "ext_attr";

enum Word {
    Compat,
    Incompat,
    RoCompat,
}

/// Refuses a volume with features that are not supported, or without features that are needed.
/// Names all of them, and one command that changes them.
pub(crate) fn check(superblock: &SuperBlock) -> Result<()> {
    let (refused, missing) = (refused(superblock), missing(superblock));
    let list = |what: &str, names: &[String]| {
        (!names.is_empty()).then(|| format!("{what}: {}", names.join(", ")))
    };
    let faults: Vec<String> = [
        list("it uses ext4 features that are not supported", &refused),
        list("it lacks ext4 features that are needed", &missing),
    ]
    .into_iter()
    .flatten()
    .collect();
    if faults.is_empty() {
        return Ok(());
    }
    let what_to_do = what_to_do(&refused, &missing);
    Err(Error::Incompatible(format!("{}; {what_to_do}", faults.join("; "))))
}

fn refused(superblock: &SuperBlock) -> Vec<String> {
    let compat = superblock.s_feature_compat.get();
    let known = COMPAT_REFUSED.iter().fold(0, |known, (bit, _)| known | bit);
    let incompat = superblock.s_feature_incompat.get() & !incompat::KNOWN;
    let ro_compat = superblock.s_feature_ro_compat.get() & !ro_compat::KNOWN;
    [
        names(compat & known, COMPAT_REFUSED, "compatible"),
        names(incompat, INCOMPAT_NAMES, "incompatible"),
        names(ro_compat, RO_COMPAT_NAMES, "read-only compatible"),
    ]
    .concat()
}

fn names(bits: u32, known: &[(u32, &str)], word: &str) -> Vec<String> {
    let one = |bit: u32| match known.iter().find(|(value, _)| *value == bit) {
        Some((_, name)) => (*name).to_owned(),
        None => format!("{word} feature {bit:#x}"),
    };
    let bits = (0..32).map(|shift| 1u32 << shift).filter(|bit| bits & bit != 0);
    bits.map(one).collect()
}

fn missing(superblock: &SuperBlock) -> Vec<String> {
    let is_missing = |(word, bit, _): &&(Word, u32, &str)| {
        let bits = match word {
            Word::Compat => superblock.s_feature_compat.get(),
            Word::Incompat => superblock.s_feature_incompat.get(),
            Word::RoCompat => superblock.s_feature_ro_compat.get(),
        };
        bits & bit == 0
    };
    NEEDED.iter().filter(is_missing).map(|(_, _, name)| (*name).to_owned()).collect()
}

fn what_to_do(refused: &[String], missing: &[String]) -> String {
    let can_be_changed = refused.iter().all(|name| CLEARED_BY_TUNE2FS.contains(&name.as_str()))
        && missing.iter().all(|name| name != NOT_SET_BY_TUNE2FS);
    if !can_be_changed {
        return MAKE_ANEW.to_owned();
    }
    let cleared = refused.iter().map(|name| format!("^{name}"));
    let changes: Vec<String> = cleared.chain(missing.iter().cloned()).collect();
    let check = if missing.is_empty() { "" } else { " && e2fsck -f TARGET" };
    format!("change that: tune2fs -O {} TARGET{check}", changes.join(","))
}
