//! An external journal: on a medium of its own, outside of the volume.
//!
//! ```text
//! medium:  | label | space of the journal: header slots and regions | unused |
//! bytes:     4096    up to the end that the label names, or all of the rest
//! ```
//!
//! The label says which volume the journal belongs to. The volume's superblock names the journal's
//! UUID: while the volume is not closed, and always if the journal is the volume's own. OneJournal
//! never writes to a medium that holds anything else, unless its user asks for that
//! ([`Label::erase`]).

use device::AlignedBuf;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, IntoBytes};

use super::media::Medium;
use super::space::Space;
use crate::error::{JournalError, Result};
use crate::format::{FORMAT_VERSION, LABEL_BYTES, LABEL_MAGIC, RawLabel};

/// Media are used in whole blocks of this size.
const BLOCK_BYTES: u64 = 4096;

/// A medium counts as empty if it begins with this many zeros. File systems, partition tables and
/// swap areas identify themselves within them.
const LOOKED_AT_BYTES: u64 = 128 << 10;

/// Identifies a journal on a medium of its own, and its volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label {
    /// UUID of the journal: random, chosen when it was made.
    pub journal_uuid: [u8; 16],
    /// UUID of the volume.
    pub volume_uuid: [u8; 16],
    /// 4 KiB blocks of the medium for label and space. 0: all of the medium.
    pub block_count: u32,
}

impl Label {
    /// The label in the first 4 KiB of a medium, if there is a valid one. For a caller that looks
    /// for journals on many media.
    pub fn peek(first_block: &[u8]) -> Option<Label> {
        Label::parse(first_block).ok().flatten()
    }

    /// The label on `medium`; `None` if the medium is empty, or if the power was cut while the
    /// label was written. An error if it holds anything else.
    pub fn read(medium: &Medium) -> Result<Option<Label>> {
        let len_bytes = medium.len_bytes().min(LOOKED_AT_BYTES) / 4096 * 4096;
        if len_bytes < LABEL_BYTES {
            return Err(JournalError::TooSmall(format!("it has {} bytes", medium.len_bytes())));
        }
        let mut buf = AlignedBuf::zeroed(usize::try_from(len_bytes).expect("128 KiB at most"));
        medium.read(0, &mut buf)?;
        if buf.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        Label::parse(&buf)
    }

    fn parse(bytes: &[u8]) -> Result<Option<Label>> {
        let Ok((raw, _)) = RawLabel::read_from_prefix(bytes) else { return Ok(None) };
        if raw.magic.get() != LABEL_MAGIC {
            let text = "it is not empty, and what it holds is not a journal of OneJournal";
            return Err(JournalError::Incompatible(text.into()));
        }
        let unsummed = RawLabel { checksum: U32::new(0), ..raw };
        if raw.checksum.get() != crc32c::crc32c(unsummed.as_bytes()) {
            // The header of the journal follows the label, so without one the label was never
            // whole.
            if bytes[size_of::<RawLabel>()..].iter().all(|byte| *byte == 0) {
                return Ok(None);
            }
            return Err(JournalError::Damaged("its label has a wrong checksum".into()));
        }
        if raw.version.get() != FORMAT_VERSION {
            let text = format!("its format version is {}", raw.version.get());
            return Err(JournalError::Incompatible(text));
        }
        Ok(Some(Label {
            journal_uuid: raw.journal_uuid,
            volume_uuid: raw.volume_uuid,
            block_count: raw.block_count.get(),
        }))
    }

    /// Number of bytes of `medium` for label and space. Fewer than the label says if the medium has
    /// become shorter: recovery then finds that records may be missing.
    fn end(&self, medium: &Medium) -> u64 {
        let all = medium.len_bytes() / BLOCK_BYTES * BLOCK_BYTES;
        match self.block_count {
            0 => all,
            count => all.min(u64::from(count) * BLOCK_BYTES),
        }
    }

    /// The journal's space on `medium`, which has this label.
    pub fn space(&self, medium: &Medium) -> Result<Space> {
        let end = self.end(medium);
        if end <= LABEL_BYTES {
            return Err(JournalError::TooSmall(format!("it has {end} bytes")));
        }
        Space::on(medium.clone(), std::iter::once(LABEL_BYTES..end).collect())
    }

    /// Makes the empty `medium` a journal with this label, durably. The zeros are written before
    /// the label, so a medium with a label is complete. Refuses a medium that is not empty.
    ///
    /// NVRAM may keep any words of what was being stored when the power was cut. So the magic
    /// number is durable first: what a cut leaves is known to be a label.
    pub fn write(&self, medium: &Medium) -> Result<()> {
        if Label::read(medium)?.is_some() {
            return Err(JournalError::Incompatible("it has a label already".into()));
        }
        self.space(medium)?;
        let end = self.end(medium);
        if end < u64::from(self.block_count) * BLOCK_BYTES {
            return Err(JournalError::TooSmall(format!("it has {} bytes", medium.len_bytes())));
        }
        medium.write_zeros(LABEL_BYTES, end)?;
        let mut raw = RawLabel {
            magic: U32::new(LABEL_MAGIC),
            version: U32::new(FORMAT_VERSION),
            checksum: U32::new(0),
            block_count: U32::new(self.block_count),
            journal_uuid: self.journal_uuid,
            volume_uuid: self.volume_uuid,
        };
        raw.checksum = U32::new(crc32c::crc32c(raw.as_bytes()));
        let mut block = AlignedBuf::zeroed(LABEL_BYTES as usize);
        if let Medium::Nvram(_) = medium {
            const MAGIC_BYTES: usize = size_of::<U32>();
            block[..MAGIC_BYTES].copy_from_slice(raw.magic.as_bytes());
            medium.write_durable(0, &block)?;
        }
        block[..size_of::<RawLabel>()].copy_from_slice(raw.as_bytes());
        medium.write_durable(0, &block)
    }

    /// Makes `medium` empty, durably, whatever it holds. The label becomes zeros first. So after a
    /// power cut the medium is empty, or does not count as a journal.
    pub fn erase(medium: &Medium) -> Result<()> {
        let end = medium.len_bytes().min(LOOKED_AT_BYTES) / BLOCK_BYTES * BLOCK_BYTES;
        medium.write_zeros(0, end.min(LABEL_BYTES))?;
        medium.write_zeros(end.min(LABEL_BYTES), end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{check_size, write_empty_header};
    use crate::recovery::scan;
    use device::{BlockDevice, MappedNvram, MemoryDevice, Nvram};
    use std::sync::Arc;

    const LABEL: Label = Label { journal_uuid: [1; 16], volume_uuid: [2; 16], block_count: 0 };

    #[test]
    fn an_empty_medium_of_either_kind_becomes_a_journal_once() {
        let nvram = MappedNvram::in_memory(1 << 20).unwrap();
        let device = MemoryDevice::new(1 << 20, 4096);
        for medium in [Medium::Nvram(Arc::new(nvram)), Medium::Block(Arc::new(device))] {
            assert_eq!(Label::read(&medium).unwrap(), None);
            LABEL.write(&medium).unwrap();
            assert_eq!(Label::read(&medium).unwrap(), Some(LABEL));
            assert!(matches!(LABEL.write(&medium), Err(JournalError::Incompatible(_))));
            assert_eq!(LABEL.space(&medium).unwrap().len_bytes(), (1 << 20) - LABEL_BYTES);
        }
    }

    #[test]
    fn a_label_names_a_part_of_a_large_medium() {
        let device = Arc::new(MemoryDevice::new(1 << 20, 512));
        device.write(200 << 10, &[7; 512]).unwrap();
        let medium = Medium::Block(device.clone());
        let label = Label { block_count: 40, ..LABEL };
        label.write(&medium).unwrap();
        assert_eq!(Label::read(&medium).unwrap(), Some(label));
        assert_eq!(Label::peek(&device.to_bytes()[..4096]), Some(label));
        assert_eq!(label.space(&medium).unwrap().len_bytes(), 39 * 4096);
        assert_eq!(device.to_bytes()[200 << 10], 7, "the rest is left alone");
        let shorter = Medium::Block(Arc::new(MemoryDevice::new(64 << 10, 512)));
        assert_eq!(label.space(&shorter).unwrap().len_bytes(), 15 * 4096);
        assert!(matches!(label.write(&shorter), Err(JournalError::TooSmall(_))));
        assert_eq!(Label::read(&shorter).unwrap(), None);
    }

    #[test]
    fn an_erased_medium_is_empty() {
        let device = Arc::new(MemoryDevice::new(2 << 20, 512));
        device.write(0, &[7; 2 << 20]).unwrap();
        let medium = Medium::Block(device.clone());
        Label::erase(&medium).unwrap();
        assert_eq!(Label::read(&medium).unwrap(), None);
        LABEL.write(&medium).unwrap();
        let space = LABEL.space(&medium).unwrap();
        check_size(&space).unwrap();
        write_empty_header(&space, LABEL.volume_uuid, 9).unwrap();
        let scan = scan(&space, &LABEL.volume_uuid).unwrap();
        assert!(scan.records.is_empty() && scan.header.clean && scan.header.incarnation == 9);
        Label::erase(&medium).unwrap();
        assert_eq!(Label::read(&medium).unwrap(), None);
        let small = Medium::Nvram(Arc::new(MappedNvram::in_memory(5000).unwrap()));
        Label::erase(&small).unwrap();
    }

    #[test]
    fn a_medium_with_other_content_is_refused_and_not_written() {
        let device = Arc::new(MemoryDevice::new(1 << 20, 512));
        device.write(64 << 10, &[7; 512]).unwrap();
        let before = device.to_bytes();
        let medium = Medium::Block(device.clone());
        assert!(matches!(Label::read(&medium), Err(JournalError::Incompatible(_))));
        assert!(LABEL.write(&medium).is_err());
        assert!(device.to_bytes() == before);
    }

    #[test]
    fn a_changed_byte_of_the_label_is_noticed() {
        let nvram = Arc::new(MappedNvram::in_memory(1 << 20).unwrap());
        let medium = Medium::Nvram(nvram.clone());
        LABEL.write(&medium).unwrap();
        nvram.store(LABEL_BYTES + 100, &[1]).unwrap();
        for at in 0..size_of::<RawLabel>() as u64 {
            let mut byte = [0];
            nvram.read(at, &mut byte).unwrap();
            nvram.store(at, &[byte[0] ^ 4]).unwrap();
            Label::read(&medium).expect_err("a changed byte");
            nvram.store(at, &byte).unwrap();
        }
        assert_eq!(Label::read(&medium).unwrap(), Some(LABEL));
    }

    #[test]
    fn a_medium_that_is_too_small_is_refused() {
        for len_bytes in [100, 4096, 8000] {
            let medium = Medium::Nvram(Arc::new(MappedNvram::in_memory(len_bytes).unwrap()));
            assert!(matches!(LABEL.write(&medium), Err(JournalError::TooSmall(_))), "{len_bytes}");
        }
    }
}
