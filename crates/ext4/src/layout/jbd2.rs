//! The superblock of the kernel's journal (JBD2): the first 1024 bytes of the journal inode.
//!
//! Contains only what is needed to see that the kernel's journal is empty, to set our feature bit,
//! and to store claim and external journal. All fields are big endian.

use std::mem::offset_of;

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::claim::{Claim, ClaimField};

/// Size of the JBD2 superblock in bytes.
pub const JBD2_SUPERBLOCK_BYTES: usize = 1024;
/// `h_magic`.
pub const JBD2_MAGIC: u32 = 0xC03B_3998;
/// `h_blocktype` of a superblock that has feature words.
pub const JBD2_SUPERBLOCK_V2: u32 = 4;
/// Incompatible features the kernel knows: revoke, 64bit, async commit, checksums v2 and v3,
/// fast commit.
pub const JBD2_KNOWN_INCOMPAT: u32 = 0x3F;
/// Incompatible features under which the superblock has a checksum (v2 and v3).
pub const JBD2_CSUM: u32 = 0x18;
/// Our feature bit: an incompatible feature that the kernel and e2fsck do not know. While it is
/// set, the area holds a journal of ours that may not be empty. (The ext4 superblock has such a
/// bit, too.)
pub const JBD2_ONEJOURNAL: u32 = 0x4000_0000;

/// Start of [`ExternalJournalField`].
pub const JBD2_EXTERNAL_JOURNAL: [u8; 4] = *b"OJEX";

/// Names the external journal. Stored in bytes that the kernel calls padding, and that kernel and
/// e2fsck keep when they write the superblock. Zeros: the journal is in the journal inode.
#[derive(Debug, Clone, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ExternalJournalField {
    /// [`JBD2_EXTERNAL_JOURNAL`].
    pub magic: [u8; 4],
    /// What the journal is to the volume: the number of a [`Standing`].
    pub standing: U32,
    /// CRC32C of the whole field with this checksum zero: the superblock itself need not have a
    /// checksum.
    pub checksum: U32,
    /// UUID of the journal, as in its label.
    pub journal_uuid: [u8; 16],
    /// The journal's incarnation.
    pub incarnation: U64,
    /// The incarnation that the journal will begin or has begun. Equal to `incarnation` after it
    /// has begun.
    pub next_incarnation: U64,
}

/// What an external journal is to its volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// For one mount. The field means nothing on a volume without our feature bits, and is cleared
    /// when the volume is closed.
    OneMount,
    /// The volume's own journal. If the volume has our feature bits, its newest changes are there.
    OwnInUse,
    /// The volume's own journal. If the volume has our feature bits, its newest changes are in the
    /// journal inode nevertheless: it was mounted without its own journal.
    Own,
}

impl Standing {
    const ALL: [Standing; 3] = [Standing::OneMount, Standing::OwnInUse, Standing::Own];

    fn number(self) -> u32 {
        match self {
            Standing::OneMount => 0,
            Standing::OwnInUse => 1,
            Standing::Own => 2,
        }
    }

    fn of_number(number: u32) -> Option<Standing> {
        Standing::ALL.into_iter().find(|standing| standing.number() == number)
    }
}

/// An external journal, as the volume records it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExternalJournal {
    /// What it is to the volume.
    pub standing: Standing,
    /// UUID of the journal, as in its label.
    pub journal_uuid: [u8; 16],
    /// The journal's incarnation.
    pub incarnation: u64,
    /// The incarnation that the journal will begin or has begun. Equal to `incarnation` after it
    /// has begun.
    pub next_incarnation: u64,
}

/// The JBD2 superblock under the kernel's names.
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the kernel's journal format documentation describes every field
pub struct Jbd2SuperBlock {
    pub h_magic: U32,
    pub h_blocktype: U32,
    pub h_sequence: U32,
    pub s_blocksize: U32,
    pub s_maxlen: U32,
    pub s_first: U32,
    pub s_sequence: U32,
    pub s_start: U32,
    pub s_errno: U32,
    pub s_feature_compat: U32,
    pub s_feature_incompat: U32,
    pub s_feature_ro_compat: U32,
    pub s_uuid: [u8; 16],
    pub s_nr_users: U32,
    pub s_dynsuper: U32,
    pub s_max_transaction: U32,
    pub s_max_trans_data: U32,
    pub s_checksum_type: u8,
    pub s_padding2: [u8; 3],
    pub s_num_fc_blks: U32,
    pub s_head: U32,
    pub s_padding: [u8; 4],
    pub claim: ClaimField,
    pub external_journal: ExternalJournalField,
    pub s_checksum: U32,
    pub s_users: [u8; 768],
}

const _: () = assert!(size_of::<Jbd2SuperBlock>() == JBD2_SUPERBLOCK_BYTES);
const _: () = assert!(offset_of!(Jbd2SuperBlock, s_checksum) == 0xFC);
const _: () = assert!(offset_of!(Jbd2SuperBlock, claim) == 0x60);
const _: () = assert!(offset_of!(Jbd2SuperBlock, external_journal) == 0xD0);
const _: () = assert!(size_of::<ExternalJournalField>() == 44);

impl ExternalJournalField {
    fn new(external_journal: Option<ExternalJournal>) -> ExternalJournalField {
        let Some(external_journal) = external_journal else {
            return ExternalJournalField::new_zeroed();
        };
        let mut field = ExternalJournalField {
            magic: JBD2_EXTERNAL_JOURNAL,
            standing: U32::new(external_journal.standing.number()),
            checksum: U32::new(0),
            journal_uuid: external_journal.journal_uuid,
            incarnation: U64::new(external_journal.incarnation),
            next_incarnation: U64::new(external_journal.next_incarnation),
        };
        field.checksum.set(crc32c::crc32c(field.as_bytes()));
        field
    }
}

impl ExternalJournal {
    /// Whether the journal belongs to the volume also when that is closed.
    pub fn is_own(&self) -> bool {
        self.standing != Standing::OneMount
    }

    /// Whether it is the journal in use, on a volume with our feature bits.
    pub fn is_in_use(&self) -> bool {
        self.standing != Standing::Own
    }

    /// What remains of it when it is not in use.
    pub fn unused(self) -> Option<ExternalJournal> {
        self.is_own().then_some(ExternalJournal { standing: Standing::Own, ..self })
    }
}

impl Jbd2SuperBlock {
    /// Whether our feature bit is set.
    pub fn has_our_feature_bit(&self) -> bool {
        self.s_feature_incompat.get() & JBD2_ONEJOURNAL != 0
    }

    /// Sets or clears our feature bit, and updates the checksum. Both are in the first 512 bytes,
    /// so a torn write cannot change only one of them.
    pub fn set_our_feature_bit(&mut self, is_set: bool) {
        let others = self.s_feature_incompat.get() & !JBD2_ONEJOURNAL;
        self.s_feature_incompat.set(if is_set { others | JBD2_ONEJOURNAL } else { others });
        self.seal();
    }

    /// Whether the field of the external journal begins as ours.
    pub fn has_external_journal_magic(&self) -> bool {
        self.external_journal.magic == JBD2_EXTERNAL_JOURNAL
    }

    /// The external journal, if there is one. `Err`: the field is neither valid nor zeros.
    #[allow(clippy::result_unit_err)] // there is nothing more to tell
    pub fn external_journal(&self) -> Result<Option<ExternalJournal>, ()> {
        let standing = Standing::of_number(self.external_journal.standing.get()).ok_or(())?;
        let external_journal = ExternalJournal {
            standing,
            journal_uuid: self.external_journal.journal_uuid,
            incarnation: self.external_journal.incarnation.get(),
            next_incarnation: self.external_journal.next_incarnation.get(),
        };
        match &self.external_journal {
            found if *found == ExternalJournalField::new(None) => Ok(None),
            found if *found == ExternalJournalField::new(Some(external_journal)) => {
                Ok(Some(external_journal))
            }
            _ => Err(()),
        }
    }

    /// Records the external journal, or that there is none, and updates the checksum. Changes only
    /// the first 512 bytes.
    pub fn set_external_journal(&mut self, external_journal: Option<ExternalJournal>) {
        self.external_journal = ExternalJournalField::new(external_journal);
        self.seal();
    }

    /// Records who has the volume open, and updates the checksum. Changes only the first 512 bytes.
    pub fn set_claim(&mut self, claim: Option<&Claim>) {
        self.claim = ClaimField::new(claim);
        self.seal();
    }

    fn seal(&mut self) {
        if self.has_checksum() {
            self.s_checksum.set(self.checksum());
        }
    }

    /// Whether this superblock has a checksum.
    pub fn has_checksum(&self) -> bool {
        self.s_feature_incompat.get() & JBD2_CSUM != 0
    }

    /// CRC32C of the superblock, with its checksum field taken as zero.
    pub fn checksum(&self) -> u32 {
        let mut copy = self.clone();
        copy.s_checksum.set(0);
        // The kernel starts at ~0 and does not invert the end.
        !crc32c::crc32c(copy.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use onejournal_testing::{FormatPage, fields};

    use super::*;

    fn golden() -> [u8; JBD2_SUPERBLOCK_BYTES] {
        let mut bytes = [0u8; JBD2_SUPERBLOCK_BYTES];
        bytes[..4].copy_from_slice(&[0xC0, 0x3B, 0x39, 0x98]);
        bytes[0x07] = 4;
        bytes[0x0E] = 0x10;
        bytes[0x12] = 0x40;
        bytes[0x17] = 1;
        bytes[0x2B] = 0x12;
        bytes[0x50] = 4;
        bytes
    }

    #[test]
    fn golden_bytes() {
        let superblock = Jbd2SuperBlock::read_from_bytes(&golden()).unwrap();
        assert_eq!(superblock.h_magic.get(), JBD2_MAGIC);
        assert_eq!(superblock.h_blocktype.get(), JBD2_SUPERBLOCK_V2);
        assert_eq!(superblock.s_blocksize.get(), 4096);
        assert_eq!(superblock.s_maxlen.get(), 0x4000);
        assert_eq!(superblock.s_first.get(), 1);
        assert_eq!(superblock.s_feature_incompat.get(), 0x12);
        assert_eq!(superblock.s_checksum_type, 4);
        assert_eq!(superblock.as_bytes(), golden());
    }

    #[test]
    fn the_feature_bit_changes_one_sector_and_is_cleared_again() {
        let mut superblock = Jbd2SuperBlock::read_from_bytes(&golden()).unwrap();
        superblock.set_our_feature_bit(false); // gives it its checksum
        let before = superblock.clone();
        superblock.set_our_feature_bit(true);
        assert!(superblock.has_our_feature_bit() && !before.has_our_feature_bit());
        assert_ne!(superblock.s_checksum, before.s_checksum);
        assert_eq!(superblock.as_bytes()[512..], before.as_bytes()[512..]);
        superblock.set_our_feature_bit(false);
        assert_eq!(superblock.as_bytes(), before.as_bytes());
    }

    #[test]
    fn a_journal_elsewhere_is_noted_in_one_sector_and_forgotten_again() {
        for (number, standing) in
            [(0, Standing::OneMount), (1, Standing::OwnInUse), (2, Standing::Own)]
        {
            assert_eq!((standing.number(), Standing::of_number(number)), (number, Some(standing)));
            noted_and_forgotten(standing);
        }
        assert_eq!(Standing::of_number(3), None);
    }

    fn noted_and_forgotten(standing: Standing) {
        let mut superblock = Jbd2SuperBlock::read_from_bytes(&golden()).unwrap();
        superblock.set_our_feature_bit(false);
        let before = superblock.clone();
        assert_eq!(before.external_journal(), Ok(None));
        let external_journal = ExternalJournal {
            standing,
            journal_uuid: [9; 16],
            incarnation: 0x0102,
            next_incarnation: 3 << 56,
        };
        superblock.set_external_journal(Some(external_journal));
        assert_eq!(superblock.external_journal(), Ok(Some(external_journal)));
        let mut golden = [*b"OJEX", standing.number().to_be_bytes(), [0; 4]].concat();
        golden.extend([9; 16]);
        golden.extend(b"\0\0\0\0\0\0\x01\x02\x03\0\0\0\0\0\0\0");
        let checksum = crc32c::crc32c(&golden).to_be_bytes();
        golden[8..12].copy_from_slice(&checksum);
        assert_eq!(superblock.as_bytes()[0xD0..0xFC], golden);
        assert_eq!(superblock.s_checksum.get(), superblock.checksum());
        for at in 0xD0..0xFC {
            let mut bytes = superblock.as_bytes().to_vec();
            bytes[at] ^= 0x10;
            let bad = Jbd2SuperBlock::read_from_bytes(&bytes).unwrap();
            assert_eq!(bad.external_journal(), Err(()), "byte {at:#x}");
        }
        superblock.set_external_journal(None);
        assert_eq!(superblock.as_bytes(), before.as_bytes());
    }

    #[test]
    fn the_note_is_that_of_the_page() {
        let fields = fields!(
            ExternalJournalField: magic, standing, checksum, journal_uuid, incarnation,
            next_incarnation,
        );
        let page = FormatPage::new(include_str!("../../../../docs/format/journal.md"));
        page.assert_rows_from(offset_of!(Jbd2SuperBlock, external_journal), &fields);
    }
}
