//! The end of a block of the orphan file. Before it are inode numbers of 4 bytes; 0 means empty.

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `ob_magic`.
pub const ORPHAN_MAGIC: u32 = 0x0B10_CA04;
/// Inode numbers in a block of the orphan file.
pub const ORPHANS_PER_BLOCK: usize = (4096 - size_of::<OrphanTail>()) / 4;

/// The last 8 bytes of a block of the orphan file.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
#[allow(missing_docs)]
pub struct OrphanTail {
    pub ob_magic: U32,
    pub ob_checksum: U32,
}

const _: () = assert!(size_of::<OrphanTail>() == 8);
const _: () = assert!(ORPHANS_PER_BLOCK == 1022);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let tail = OrphanTail { ob_magic: ORPHAN_MAGIC.into(), ob_checksum: 0x0403_0201.into() };
        assert_eq!(tail.as_bytes(), [0x04, 0xCA, 0x10, 0x0B, 1, 2, 3, 4]);
    }
}
