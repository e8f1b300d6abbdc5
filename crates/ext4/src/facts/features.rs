//! Which features of ext4 a volume may use; everything else is refused by name.

use crate::layout::superblock::SuperBlock;
use crate::{Error, Result};

/// Message for a feature that cannot be changed in place.
pub(crate) const MAKE_ANEW: &str = "that cannot be changed in place: mount it with the kernel (mount TARGET DIR), copy \
     the files away, make it anew (mkfs.ext4 -b 4096 -I 256 TARGET) and copy them back";

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

fn names(bits: u32, known: &[(u32, &str)], word: &str) -> String {
    let one = |bit: u32| match known.iter().find(|(value, _)| *value == bit) {
        Some((_, name)) => (*name).to_owned(),
        None => format!("{word} feature {bit:#x}"),
    };
    let bits = (0..32).map(|shift| 1u32 << shift).filter(|bit| bits & bit != 0);
    bits.map(one).collect::<Vec<_>>().join(", ")
}

/// Refuses a volume with unknown features.
pub(crate) fn check(superblock: &SuperBlock) -> Result<()> {
    let compat = superblock.s_feature_compat.get();
    let incompat = superblock.s_feature_incompat.get();
    let ro_compat = superblock.s_feature_ro_compat.get();
    let refused = COMPAT_REFUSED.iter().filter(|(bit, _)| compat & bit != 0);
    let mut unknown: Vec<String> = refused.map(|(_, name)| (*name).to_owned()).collect();
    let bits = incompat & !incompat::KNOWN;
    if bits != 0 {
        unknown.push(names(bits, INCOMPAT_NAMES, "incompatible"));
    }
    let bits = ro_compat & !ro_compat::KNOWN;
    if bits != 0 {
        unknown.push(names(bits, RO_COMPAT_NAMES, "read-only compatible"));
    }
    if !unknown.is_empty() {
        let list = unknown.join(", ");
        let can_be_cleared = unknown.iter().all(|name| CLEARED_BY_TUNE2FS.contains(&name.as_str()));
        let what_to_do = match can_be_cleared {
            true => format!("turn them off: tune2fs -O ^{} TARGET", unknown.join(",^")),
            false => MAKE_ANEW.to_owned(),
        };
        return Err(Error::Incompatible(format!(
            "it uses ext4 features that are not supported: {list}; {what_to_do}"
        )));
    }
    check_needed(compat, incompat, ro_compat)
}

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

enum Word {
    Compat,
    Incompat,
    RoCompat,
}

fn check_needed(compat: u32, incompat: u32, ro_compat: u32) -> Result<()> {
    let is_missing = |(word, bit, _): &&(Word, u32, &str)| {
        let bits = match word {
            Word::Compat => compat,
            Word::Incompat => incompat,
            Word::RoCompat => ro_compat,
        };
        bits & bit == 0
    };
    match NEEDED.iter().find(is_missing) {
        Some((_, _, name)) => {
            let what_to_do = match *name {
                // tune2fs cannot set it.
                "ext_attr" => MAKE_ANEW.to_owned(),
                name => format!("turn it on: tune2fs -O {name} TARGET && e2fsck -f TARGET"),
            };
            let why = format!("it lacks the ext4 feature {name}, which is needed; {what_to_do}");
            Err(Error::Incompatible(why))
        }
        None => Ok(()),
    }
}
