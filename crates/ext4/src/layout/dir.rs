//! Directory blocks: entries one after the other, and the checksum tail, which has the form of an
//! entry.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Head of an entry (`ext4_dir_entry_2`); the name follows, padded to four bytes.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct DirEntryHeader {
    /// Inode number; 0 marks free space.
    pub inode: U32,
    /// Bytes from here to the next entry, a multiple of four.
    pub rec_len: U16,
    /// Bytes of the name.
    pub name_len: u8,
    /// Type of the inode (`EXT4_FT_*`), 0 when the volume does not store it.
    pub file_type: u8,
}

/// The last twelve bytes of a directory block on volumes with checksums (`ext4_dir_entry_tail`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct DirTail {
    /// An inode number of 0: free space for a reader that does not know tails.
    pub det_reserved_zero1: U32,
    /// 12.
    pub det_rec_len: U16,
    /// 0.
    pub det_reserved_zero2: u8,
    /// [`DIR_TAIL_FILE_TYPE`].
    pub det_reserved_ft: u8,
    /// CRC32C over inode number, generation and the block before the tail.
    pub det_checksum: U32,
}

/// Bytes of an entry's head.
pub(crate) const DIR_ENTRY_HEADER_BYTES: usize = size_of::<DirEntryHeader>();
/// Bytes of the tail.
pub(crate) const DIR_TAIL_BYTES: usize = size_of::<DirTail>();
/// The file type that marks a tail.
pub(crate) const DIR_TAIL_FILE_TYPE: u8 = 0xde;

const _: () = assert!(DIR_ENTRY_HEADER_BYTES == 8 && DIR_TAIL_BYTES == 12);

impl DirTail {
    /// A tail without its checksum.
    pub(crate) fn new() -> DirTail {
        DirTail {
            det_reserved_zero1: U32::ZERO,
            det_rec_len: U16::new(12),
            det_reserved_zero2: 0,
            det_reserved_ft: DIR_TAIL_FILE_TYPE,
            det_checksum: U32::ZERO,
        }
    }

    /// Whether it is a valid tail.
    pub(crate) fn is_valid(&self) -> bool {
        let fresh = DirTail { det_checksum: self.det_checksum, ..DirTail::new() };
        fresh.as_bytes() == self.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_entry() {
        // The head of `lost+found` in the root directory of a volume made by mke2fs.
        let bytes = [0x0b, 0, 0, 0, 0xdc, 0x0f, 0x0a, 0x02];
        let header = DirEntryHeader::read_from_bytes(&bytes).unwrap();
        assert_eq!((header.inode.get(), header.rec_len.get()), (11, 4060));
        assert_eq!((header.name_len, header.file_type), (10, 2));
    }

    #[test]
    fn golden_tail() {
        let bytes = [0, 0, 0, 0, 12, 0, 0, 0xde, 0xa1, 0x0d, 0x73, 0x7a];
        let tail = DirTail::read_from_bytes(&bytes).unwrap();
        assert!(tail.is_valid());
        assert_eq!(tail.det_checksum.get(), 0x7a73_0da1);
        let broken = DirTail { det_reserved_ft: 0, ..tail };
        assert!(!broken.is_valid());
    }
}
