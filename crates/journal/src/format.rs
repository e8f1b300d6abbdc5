//! Bytes of the journal on its medium; `docs/format/journal.md` is the prose.
//!
//! ```text
//! space:   | header slot 0 | header slot 1 | region 0 | region 1 | ... | region n-1 |
//! bytes:     4096            4096            region_bytes each
//!
//! region:  | record | record | ... | unused |
//! record:  | descriptor | tags | revokes | checks | payload | commit record | zeros to the step |
//! ```
//!
//! All numbers are little endian. A record is one transaction. Its commit record holds a CRC32C of
//! everything before it in the record, started from the volume's UUID and the journal's
//! incarnation, so that no byte of another volume or of an earlier incarnation can pass for it.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Size of a header slot in bytes.
pub const HEADER_SLOT_BYTES: u64 = 4096;
/// Where the regions begin in the space, in bytes.
pub const REGIONS_OFFSET: u64 = 2 * HEADER_SLOT_BYTES;
/// The largest window of a region, in versions of blocks.
pub const WINDOW_BLOCKS_MAX: u32 = 4096;
/// Size of the label of a journal on a medium of its own, in bytes; its space follows.
pub const LABEL_BYTES: u64 = 4096;
/// Version of everything on this page.
pub const FORMAT_VERSION: u32 = 6;
/// `OJHD`
pub const HEADER_MAGIC: u32 = u32::from_le_bytes(*b"OJHD");
/// `OJLB`
pub const LABEL_MAGIC: u32 = u32::from_le_bytes(*b"OJLB");
/// `OJTX`
pub const DESCRIPTOR_MAGIC: u32 = u32::from_le_bytes(*b"OJTX");
/// `OJCM`
pub const COMMIT_MAGIC: u32 = u32::from_le_bytes(*b"OJCM");
/// Header flag: everything is home, the regions hold nothing.
pub const HEADER_CLEAN: u32 = 1;

/// The label of a journal on a medium of its own, at its start; zeros follow.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawLabel {
    /// [`LABEL_MAGIC`].
    pub magic: U32,
    /// [`FORMAT_VERSION`].
    pub version: U32,
    /// CRC32C of the label with this field zero.
    pub checksum: U32,
    /// 4 KiB blocks of the medium that label and space occupy; 0: all of the medium.
    pub block_count: U32,
    /// UUID of the journal, random.
    pub journal_uuid: [u8; 16],
    /// UUID of the volume.
    pub volume_uuid: [u8; 16],
}

/// A header slot: the journal's shape and where recovery starts. The valid slot with the higher
/// `sequence` counts.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawHeader {
    /// [`HEADER_MAGIC`].
    pub magic: U32,
    /// [`FORMAT_VERSION`].
    pub version: U32,
    /// CRC32C of the header with this field zero.
    pub checksum: U32,
    /// [`HEADER_CLEAN`] or 0.
    pub flags: U32,
    /// UUID of the volume.
    pub uuid: [u8; 16],
    /// Random number of this incarnation of the journal: from one opening to the next.
    pub incarnation: U64,
    /// Counts header writes, over all incarnations.
    pub sequence: U64,
    /// Size of a region in bytes.
    pub region_bytes: U64,
    /// Number of regions.
    pub region_count: U32,
    /// The region recovery starts in.
    pub tail_region: U32,
    /// The transaction recovery starts with, first in `tail_region`.
    pub tail_tid: U64,
    /// No record of this incarnation ends after this offset of the space, in the regions from
    /// `tail_region` on around the ring.
    pub reach_offset: U64,
    /// Records of this incarnation begin at multiples of this many bytes.
    pub step_bytes: U32,
    /// CRC32C of the place of the space on its medium.
    pub layout_checksum: U32,
    /// Size of the space in bytes.
    pub space_bytes: U64,
    /// Transactions up to this one need no check of their data in place.
    pub settled_tid: U64,
    /// How many blocks of their region records may copy from: the last ones.
    pub window_blocks: U32,
}

/// The start of a record.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawDescriptor {
    /// [`DESCRIPTOR_MAGIC`].
    pub magic: U32,
    /// Number of tags after the descriptor.
    pub tag_count: U32,
    /// The journal's incarnation.
    pub incarnation: U64,
    /// The transaction.
    pub tid: U64,
    /// When it was committed: nanoseconds since 1970, for people only.
    pub time_ns: U64,
    /// Number of revokes after the tags.
    pub revoke_count: U32,
    /// Bytes of the payload in the record.
    pub payload_bytes: U32,
    /// Bytes of the record without the padding, commit record included.
    pub used_bytes: U32,
    /// Bytes of the payload before it was compressed (LZ4, block format). 0: it is not compressed.
    pub unpacked_bytes: U32,
    /// Number of checks after the revokes.
    pub check_count: U32,
}

/// One logged change of a home block, and how it is written.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawTag {
    /// The home block.
    pub home: U64,
    /// Bytes of this change in the payload; the changes follow each other in tag order.
    pub stored_bytes: U16,
    /// Record form: one of the `FORM_` constants.
    pub form: u8,
    /// Zero.
    pub reserved: u8,
}

/// Record form: the whole home block, as it is.
pub const FORM_BLOCK: u8 = 1;
/// Record form: the runs of the block that are not zero ([`crate::codec::runs`]). All other bytes
/// are zero.
pub const FORM_SPARSE: u8 = 2;
/// Record form: runs that were written, applied to the previous version ([`crate::codec::extent`]).
pub const FORM_EXTENT: u8 = 3;
/// Record form: runs that differ from the previous version ([`crate::codec::runs`]).
pub const FORM_DELTA: u8 = 4;
/// Record form: difference to the previous version ([`crate::codec::xor_lzo`]).
pub const FORM_XOR_LZO: u8 = 5;
/// Record form: literal bytes and copies of blocks that the region holds, over zeros
/// ([`crate::codec::copy`]).
pub const FORM_COPY: u8 = 6;
/// Record form: the same over the previous version ([`crate::codec::copy`]).
pub const FORM_PATCH: u8 = 7;

/// The checksum of data that the transaction wrote in place.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawCheck {
    /// The first home block.
    pub home: U64,
    /// Number of blocks.
    pub block_count: U32,
    /// CRC32C of the blocks.
    pub checksum: U32,
}

/// The end of a record.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawCommit {
    /// [`COMMIT_MAGIC`].
    pub magic: U32,
    /// CRC32C of the record up to this commit record.
    pub checksum: U32,
    /// The transaction, as in the descriptor.
    pub tid: U64,
}

const _: () = assert!(size_of::<RawLabel>() == 48);
const _: () = assert!(size_of::<RawHeader>() == 108);
// It fits into the smallest sector, so that a slot is written whole or not at all.
const _: () = assert!(size_of::<RawHeader>() <= 512);
const _: () = assert!(size_of::<RawDescriptor>() == 52);
const _: () = assert!(size_of::<RawTag>() == 12);
const _: () = assert!(size_of::<RawCheck>() == 16);
const _: () = assert!(size_of::<RawCommit>() == 16);

/// The start value of a record's checksum, from the volume and the incarnation.
pub fn record_seed(uuid: &[u8; 16], incarnation: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(uuid), &incarnation.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_changelog_has_this_version() {
        let changelog = include_str!("../../../CHANGELOG.md");
        assert!(changelog.contains(&format!("\n- Journal: version {FORMAT_VERSION};")));
    }

    #[test]
    fn golden_bytes_of_a_descriptor_and_a_tag() {
        let descriptor = RawDescriptor {
            magic: U32::new(DESCRIPTOR_MAGIC),
            tag_count: U32::new(2),
            incarnation: U64::new(0x0807_0605_0403_0201),
            tid: U64::new(9),
            time_ns: U64::new(10),
            revoke_count: U32::new(11),
            payload_bytes: U32::new(12),
            used_bytes: U32::new(13),
            unpacked_bytes: U32::new(14),
            check_count: U32::new(15),
        };
        let mut golden = b"OJTX\x02\0\0\0\x01\x02\x03\x04\x05\x06\x07\x08".to_vec();
        golden.extend(b"\x09\0\0\0\0\0\0\0\x0a\0\0\0\0\0\0\0");
        golden.extend(b"\x0b\0\0\0\x0c\0\0\0\x0d\0\0\0\x0e\0\0\0\x0f\0\0\0");
        assert_eq!(descriptor.as_bytes(), golden);

        let check = RawCheck {
            home: U64::new(0x1_0000_0000),
            block_count: U32::new(2),
            checksum: U32::new(0xa1b2_c3d4),
        };
        assert_eq!(check.as_bytes(), b"\0\0\0\0\x01\0\0\0\x02\0\0\0\xd4\xc3\xb2\xa1");

        let tag = RawTag {
            home: U64::new(0x1_0000_0000),
            stored_bytes: U16::new(4096),
            form: FORM_BLOCK,
            reserved: 0,
        };
        assert_eq!(tag.as_bytes(), b"\0\0\0\0\x01\0\0\0\0\x10\x01\0");
    }

    #[test]
    fn golden_bytes_of_a_commit_record_and_a_header() {
        let commit = RawCommit {
            magic: U32::new(COMMIT_MAGIC),
            checksum: U32::new(0xa1b2_c3d4),
            tid: U64::new(7),
        };
        assert_eq!(commit.as_bytes(), b"OJCM\xd4\xc3\xb2\xa1\x07\0\0\0\0\0\0\0");
        let header = RawHeader {
            magic: U32::new(HEADER_MAGIC),
            version: U32::new(3),
            checksum: U32::new(0),
            flags: U32::new(HEADER_CLEAN),
            uuid: [0xee; 16],
            incarnation: U64::new(1),
            sequence: U64::new(2),
            region_bytes: U64::new(3),
            region_count: U32::new(4),
            tail_region: U32::new(5),
            tail_tid: U64::new(6),
            reach_offset: U64::new(7),
            step_bytes: U32::new(8),
            layout_checksum: U32::new(9),
            space_bytes: U64::new(10),
            settled_tid: U64::new(11),
            window_blocks: U32::new(12),
        };
        let mut golden = b"OJHD\x03\0\0\0\0\0\0\0\x01\0\0\0".to_vec();
        golden.extend([0xee; 16]);
        golden.extend(b"\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0");
        golden.extend(b"\x04\0\0\0\x05\0\0\0\x06\0\0\0\0\0\0\0");
        golden.extend(b"\x07\0\0\0\0\0\0\0\x08\0\0\0\x09\0\0\0\x0a\0\0\0\0\0\0\0");
        golden.extend(b"\x0b\0\0\0\0\0\0\0");
        golden.extend(b"\x0c\0\0\0");
        assert_eq!(header.as_bytes(), golden);
    }

    #[test]
    fn golden_bytes_of_a_label() {
        let label = RawLabel {
            magic: U32::new(LABEL_MAGIC),
            version: U32::new(3),
            checksum: U32::new(0xa1b2_c3d4),
            block_count: U32::new(0x0506_0708),
            journal_uuid: [0xaa; 16],
            volume_uuid: [0xbb; 16],
        };
        let mut golden = b"OJLB\x03\0\0\0\xd4\xc3\xb2\xa1\x08\x07\x06\x05".to_vec();
        golden.extend([[0xaa; 16], [0xbb; 16]].concat());
        assert_eq!(label.as_bytes(), golden);
    }

    /// CRC32C bit by bit, by its definition. The library has an implementation for each kind of
    /// processor, and a journal may be recovered on another processor than the one that wrote it.
    fn checksum_by_definition(bytes: &[u8]) -> u32 {
        let step = |sum: u32| if sum & 1 == 1 { sum >> 1 ^ 0x82f6_3b78 } else { sum >> 1 };
        let byte = |sum: u32, byte: &u8| (0..8).fold(sum ^ u32::from(*byte), |sum, _| step(sum));
        !bytes.iter().fold(!0, byte)
    }

    #[test]
    fn the_checksum_is_the_one_of_the_page_on_this_processor() {
        let bytes: Vec<u8> =
            (0..20_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        assert_eq!(checksum_by_definition(b"123456789"), 0xe306_9283);
        for (start, end) in (0..40).flat_map(|start| (0..600).map(move |len| (start, start + len)))
        {
            assert_eq!(
                crc32c::crc32c(&bytes[start..end]),
                checksum_by_definition(&bytes[start..end])
            );
        }
        // Long enough for what implementations do with several streams at a time.
        for (start, end) in [(0, 3071), (1, 3073), (5, 8192), (3, 12_345), (0, 20_000)] {
            let expected = checksum_by_definition(&bytes[start..end]);
            for middle in [start, start + 1, start + 63, (start + end) / 2, end] {
                let first = crc32c::crc32c(&bytes[start..middle]);
                assert_eq!(crc32c::crc32c_append(first, &bytes[middle..end]), expected);
            }
        }
    }

    #[test]
    fn the_checksum_starts_elsewhere_for_another_volume_or_incarnation() {
        let seed = record_seed(&[1; 16], 7);
        assert_ne!(seed, record_seed(&[2; 16], 7));
        assert_ne!(seed, record_seed(&[1; 16], 8));
    }
}
