//! The claim, which says who has the volume open. It is stored in padding of the superblock of the
//! kernel's journal (JBD2), before [`super::jbd2::ExternalJournalField`] and in the same 512 bytes.
//! Big endian.

use std::mem::offset_of;

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Start of [`ClaimField`].
pub const JBD2_CLAIM: [u8; 4] = *b"OJCL";
/// Length of a host name; a longer one is cut.
pub const HOST_NAME_BYTES: usize = 40;
/// Most seconds from one heartbeat to the next. Who opens a volume waits for two of them.
pub const HEARTBEAT_MAX_S: u32 = 300;

/// A claim as it is stored. Zeros: there is no claim.
#[derive(Debug, Clone, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ClaimField {
    /// [`JBD2_CLAIM`].
    pub magic: [u8; 4],
    /// CRC32C of the following fields: the superblock itself need not have a checksum.
    pub checksum: U32,
    /// The machine; zeros: unknown.
    pub machine_id: [u8; 16],
    /// Its boot; zeros: unknown.
    pub boot_id: [u8; 16],
    /// Number of the process in its namespace, for messages.
    pub process: U32,
    /// Seconds from one heartbeat to the next; 0: no heartbeats.
    pub heartbeat_s: U32,
    /// The name of the process's sign of life, in that boot.
    pub living: U64,
    /// When it was claimed, in seconds since 1970; for messages.
    pub claimed_s: U64,
    /// Counts heartbeats.
    pub sequence: U64,
    /// Host name, UTF-8, filled up with zeros; for messages.
    pub host_name: [u8; HOST_NAME_BYTES],
}

const _: () = assert!(size_of::<ClaimField>() == 112);

/// The user that has a volume open, or had it open and did not close it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The machine; zeros: unknown.
    pub machine_id: [u8; 16],
    /// Its boot; zeros: unknown.
    pub boot_id: [u8; 16],
    /// Number of the process in its namespace.
    pub process: u32,
    /// Seconds from one heartbeat to the next; 0: no heartbeats.
    pub heartbeat_s: u32,
    /// The name of the process's sign of life, in that boot.
    pub living: u64,
    /// When it was claimed, in seconds since 1970.
    pub claimed_s: u64,
    /// Counts heartbeats.
    pub sequence: u64,
    /// Host name.
    pub host_name: String,
}

impl ClaimField {
    /// The stored form of `claim`, or of none.
    pub fn new(claim: Option<&Claim>) -> ClaimField {
        let Some(claim) = claim else { return ClaimField::new_zeroed() };
        assert!(claim.heartbeat_s <= HEARTBEAT_MAX_S, "no other machine would read such a claim");
        let mut field = ClaimField {
            magic: JBD2_CLAIM,
            checksum: U32::new(0),
            machine_id: claim.machine_id,
            boot_id: claim.boot_id,
            process: U32::new(claim.process),
            heartbeat_s: U32::new(claim.heartbeat_s),
            living: U64::new(claim.living),
            claimed_s: U64::new(claim.claimed_s),
            sequence: U64::new(claim.sequence),
            host_name: [0; HOST_NAME_BYTES],
        };
        let mut len = claim.host_name.len().min(HOST_NAME_BYTES);
        while !claim.host_name.is_char_boundary(len) {
            len -= 1;
        }
        let name = &claim.host_name[..len];
        field.host_name[..name.len()].copy_from_slice(name.as_bytes());
        field.checksum.set(field.sum());
        field
    }

    /// The claim. `Err`: the bytes are neither a claim nor zeros.
    #[allow(clippy::result_unit_err)] // there is nothing more to tell
    pub fn claim(&self) -> Result<Option<Claim>, ()> {
        if *self == ClaimField::new(None) {
            return Ok(None);
        }
        if self.magic != JBD2_CLAIM || self.checksum.get() != self.sum() {
            return Err(());
        }
        if self.heartbeat_s.get() > HEARTBEAT_MAX_S {
            return Err(());
        }
        let name = self.host_name.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(Some(Claim {
            machine_id: self.machine_id,
            boot_id: self.boot_id,
            process: self.process.get(),
            heartbeat_s: self.heartbeat_s.get(),
            living: self.living.get(),
            claimed_s: self.claimed_s.get(),
            sequence: self.sequence.get(),
            host_name: String::from_utf8_lossy(name).into_owned(),
        }))
    }

    fn sum(&self) -> u32 {
        crc32c::crc32c(&self.as_bytes()[offset_of!(Self, machine_id)..])
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use onejournal_testing::{FormatPage, fields};

    use super::*;
    use crate::layout::jbd2::Jbd2SuperBlock;

    fn claim() -> Claim {
        Claim {
            machine_id: [0xA1; 16],
            boot_id: [0xB2; 16],
            process: 0x0102,
            heartbeat_s: 5,
            living: 0x4000_0000_0000_0007,
            claimed_s: 0x6543_2100,
            sequence: 9,
            host_name: "pi".into(),
        }
    }

    #[test]
    fn golden_bytes() {
        let field = ClaimField::new(Some(&claim()));
        let mut golden = [[0xA1; 16], [0xB2; 16]].concat();
        golden.extend(b"\0\0\x01\x02\0\0\0\x05\x40\0\0\0\0\0\0\x07");
        golden.extend(b"\0\0\0\0\x65\x43\x21\0\0\0\0\0\0\0\0\x09pi");
        golden.resize(104, 0);
        assert_eq!(field.as_bytes()[8..], golden);
        assert_eq!(field.as_bytes()[..4], *b"OJCL");
        assert_eq!(field.as_bytes()[4..8], crc32c::crc32c(&golden).to_be_bytes());
        assert_eq!(field.claim(), Ok(Some(claim())));
        assert_eq!(ClaimField::new(None).claim(), Ok(None));
    }

    #[test]
    fn every_changed_byte_shows() {
        for at in 0..size_of::<ClaimField>() {
            let mut bytes = ClaimField::new(Some(&claim())).as_bytes().to_vec();
            bytes[at] ^= 0x10;
            assert_eq!(
                ClaimField::read_from_bytes(&bytes).unwrap().claim(),
                Err(()),
                "byte {at:#x}"
            );
            let mut bytes = [0; size_of::<ClaimField>()];
            bytes[at] = 1;
            assert_eq!(
                ClaimField::read_from_bytes(&bytes).unwrap().claim(),
                Err(()),
                "byte {at:#x}"
            );
        }
    }

    #[test]
    fn a_heartbeat_has_a_longest_interval() {
        for (heartbeat_s, is_claim) in [(HEARTBEAT_MAX_S, true), (HEARTBEAT_MAX_S + 1, false)] {
            let mut field = ClaimField::new(Some(&claim()));
            field.heartbeat_s.set(heartbeat_s);
            field.checksum.set(field.sum());
            assert_eq!(field.claim().is_ok(), is_claim, "{heartbeat_s}");
        }
    }

    #[test]
    fn a_long_host_name_is_cut_between_characters() {
        let host_name = "ä".repeat(19) + "xyä";
        let field = ClaimField::new(Some(&Claim { host_name: host_name.clone(), ..claim() }));
        assert_eq!(field.claim().unwrap().unwrap().host_name, host_name[..40]);
        let host_name = "ä".repeat(19) + "xää";
        let field = ClaimField::new(Some(&Claim { host_name: host_name.clone(), ..claim() }));
        assert_eq!(field.claim().unwrap().unwrap().host_name, host_name[..39]);
    }

    #[test]
    fn the_claim_is_that_of_the_page() {
        let fields = fields!(
            ClaimField: magic, checksum, machine_id, boot_id, process, heartbeat_s, living,
            claimed_s, sequence, host_name,
        );
        let page = FormatPage::new(include_str!("../../../../docs/format/journal.md"));
        page.assert_rows_from(offset_of!(Jbd2SuperBlock, claim), &fields);
    }
}
