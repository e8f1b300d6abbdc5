//! What a device or an image holds, for a command that is about to overwrite it.
//!
//! The look reads and changes nothing. An area that `onejournal probe` has overwritten counts as
//! empty, because nothing of it is of use.

use device::{AlignedBuf, BlockDevice};
use ext4::uuid_text;
use journal::Label;
use probe::is_mark;

/// The head that is looked at: the first superblock of btrfs is at 64 KiB.
const HEAD_BYTES: u64 = 68 << 10;
/// The tail: GPT has its second table there, RAID and ZFS have labels.
const TAIL_BYTES: u64 = 1 << 20;
/// A multiple of every sector size.
const UNIT_BYTES: u64 = 4096;

/// The magic number of ext2, ext3 and ext4, and the UUID of the volume.
const EXT_MAGIC: (usize, [u8; 2]) = (1024 + 0x38, [0x53, 0xef]);
const EXT_UUID_AT: usize = 1024 + 0x68;

/// What else is recognised: its name, and the bytes that it has at an offset.
const SIGNATURES: [(&str, usize, &[u8]); 10] = [
    ("an XFS file system", 0, b"XFSB"),
    ("a btrfs file system", 0x1_0040, b"_BHRfS_M"),
    ("a LUKS volume", 0, b"LUKS\xba\xbe"),
    ("an LVM physical volume", 0, b"LABELONE"),
    ("an LVM physical volume", 512, b"LABELONE"),
    ("an LVM physical volume", 1024, b"LABELONE"),
    ("an LVM physical volume", 1536, b"LABELONE"),
    ("a member of a RAID array", 4096, &[0xfc, 0x4e, 0x2b, 0xa9]),
    ("swap space", 4086, b"SWAPSPACE2"),
    ("a partition table", 512, b"EFI PART"),
];

/// What is in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Occupant {
    /// A OneJournal journal, which is not on the volume it belongs to.
    Journal { volume_uuid: [u8; 16] },
    /// An ext2, ext3 or ext4 file system; so also a OneJournal volume.
    Ext { uuid: [u8; 16] },
    /// Something with a signature.
    Known(&'static str),
    /// Bytes that are not zero.
    Unknown,
}

impl Occupant {
    /// What the beginning of `disk` shows; nothing if it is empty.
    pub fn of_head(disk: &dyn BlockDevice) -> device::Result<Option<Occupant>> {
        let size_bytes = disk.size_bytes() / UNIT_BYTES * UNIT_BYTES;
        Ok(Occupant::in_head(&read(disk, 0, size_bytes.min(HEAD_BYTES))?))
    }

    /// What the beginning or the end of `disk` shows.
    pub fn of(disk: &dyn BlockDevice) -> device::Result<Option<Occupant>> {
        let size_bytes = disk.size_bytes() / UNIT_BYTES * UNIT_BYTES;
        let head = read(disk, 0, size_bytes.min(HEAD_BYTES))?;
        let found = Occupant::in_head(&head);
        if found.is_some() || is_mark(&head) {
            return Ok(found);
        }
        let tail = read(disk, size_bytes.saturating_sub(TAIL_BYTES), size_bytes.min(TAIL_BYTES))?;
        Ok(tail.iter().any(|byte| *byte != 0).then_some(Occupant::Unknown))
    }

    fn in_head(head: &[u8]) -> Option<Occupant> {
        let has = |at: usize, bytes: &[u8]| head.get(at..at + bytes.len()) == Some(bytes);
        if let Some(label) = Label::peek(head) {
            return Some(Occupant::Journal { volume_uuid: label.volume_uuid });
        }
        let (at, magic) = EXT_MAGIC;
        if has(at, &magic)
            && let Some(uuid) = head[EXT_UUID_AT..].first_chunk()
        {
            return Some(Occupant::Ext { uuid: *uuid });
        }
        if let Some((name, ..)) = SIGNATURES.iter().find(|(_, at, bytes)| has(*at, bytes)) {
            return Some(Occupant::Known(name));
        }
        let is_empty = is_mark(head) || head.iter().all(|byte| *byte == 0);
        (!is_empty).then_some(Occupant::Unknown)
    }

    /// Why nothing is overwritten, and the command that does it all the same. The text begins
    /// after the path and stands for the path as `TARGET`.
    pub fn refusal(&self, command: &str) -> String {
        let what = match self {
            Occupant::Journal { volume_uuid } => {
                return format!(
                    "is the journal of volume {}; to overwrite it, with all changes that this \
                     volume may still need: {command} TARGET",
                    uuid_text(volume_uuid)
                );
            }
            Occupant::Ext { uuid } => format!(": it has the ext4 volume {}", uuid_text(uuid)),
            Occupant::Known(name) => format!(": it has {name}"),
            Occupant::Unknown => String::new(),
        };
        format!("is not empty{what}; to overwrite what it holds: {command} TARGET")
    }
}

fn read(disk: &dyn BlockDevice, offset: u64, len_bytes: u64) -> device::Result<AlignedBuf> {
    let mut bytes = AlignedBuf::zeroed(usize::try_from(len_bytes).expect("1 MiB at most"));
    disk.read(offset, &mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use device::MemoryDevice;
    use probe::mark;

    use super::*;

    const DISK_BYTES: usize = 4 << 20;

    /// What a disk shows that has these bytes at this offset, and what its head alone shows.
    fn found(offset: u64, bytes: &[u8]) -> [Option<Occupant>; 2] {
        let disk = MemoryDevice::new(DISK_BYTES, 512);
        let start = offset / UNIT_BYTES * UNIT_BYTES;
        let mut data = vec![0; 2 * UNIT_BYTES as usize];
        let at = usize::try_from(offset - start).unwrap();
        data[at..at + bytes.len()].copy_from_slice(bytes);
        let len = data.len().min(DISK_BYTES - usize::try_from(start).unwrap());
        disk.write(start, &data[..len]).unwrap();
        [Occupant::of(&disk).unwrap(), Occupant::of_head(&disk).unwrap()]
    }

    #[test]
    fn every_signature_is_named() {
        for (name, offset, bytes) in SIGNATURES {
            let known = Some(Occupant::Known(name));
            assert_eq!(found(offset as u64, bytes), [known.clone(), known], "{name} at {offset}");
        }
        let mut superblock = [0; 1024];
        superblock[0x38..0x3a].copy_from_slice(&EXT_MAGIC.1);
        superblock[0x68..0x78].fill(5);
        let ext = Some(Occupant::Ext { uuid: [5; 16] });
        assert_eq!(found(1024, &superblock), [ext.clone(), ext]);
    }

    #[test]
    fn the_head_and_the_tail_must_be_empty() {
        let (unknown, end) = (Some(Occupant::Unknown), DISK_BYTES as u64);
        assert_eq!(found(0, &[]), [None, None]);
        assert_eq!(found(0, &[1]), [unknown.clone(), unknown.clone()]);
        assert_eq!(found(HEAD_BYTES - 1, &[1]), [unknown.clone(), unknown.clone()]);
        assert_eq!(found(end - TAIL_BYTES, &[1]), [unknown.clone(), None]);
        assert_eq!(found(end - 1, &[1]), [unknown, None]);
        // `Occupant` reads no byte between the head and the tail.
        assert_eq!(found(2 << 20, &[1]), [None, None]);
    }

    #[test]
    fn an_area_that_a_probe_wrote_counts_as_empty_until_something_is_made_there() {
        let disk = MemoryDevice::new(DISK_BYTES, 512);
        disk.write(0, &[7; 256 << 10]).unwrap();
        assert_eq!(Occupant::of(&disk).unwrap(), Some(Occupant::Unknown));
        disk.write(0, &mark()).unwrap();
        assert_eq!([Occupant::of(&disk).unwrap(), Occupant::of_head(&disk).unwrap()], [None, None]);
        // As a file system does that leaves the first 1024 bytes alone.
        let mut first = mark();
        first[2000] = 1;
        disk.write(0, &first).unwrap();
        assert_eq!(Occupant::of(&disk).unwrap(), Some(Occupant::Unknown));
        disk.write(0, &mark()).unwrap();
        let mut block = [7; 4096];
        block[0x40..0x48].copy_from_slice(b"_BHRfS_M");
        disk.write(64 << 10, &block).unwrap();
        assert_eq!(Occupant::of(&disk).unwrap(), Some(Occupant::Known("a btrfs file system")));
    }

    #[test]
    fn a_small_disk_is_looked_at_as_far_as_it_goes() {
        let disk = MemoryDevice::new(8192, 512);
        assert_eq!(Occupant::of(&disk).unwrap(), None);
        disk.write(4096, &[1; 4096]).unwrap();
        assert_eq!(Occupant::of(&disk).unwrap(), Some(Occupant::Unknown));
    }

    #[test]
    fn a_refusal_names_what_is_lost() {
        let refusal = |occupant: Occupant| occupant.refusal("onejournal mkfs --force");
        let journal = refusal(Occupant::Journal { volume_uuid: [0x11; 16] });
        for words in ["is the journal of volume 11111111-1111", "all changes", "--force TARGET"] {
            assert!(journal.contains(words), "{journal}");
        }
        assert_eq!(
            refusal(Occupant::Known("swap space")),
            "is not empty: it has swap space; to overwrite what it holds: onejournal mkfs --force \
             TARGET"
        );
        assert_eq!(
            refusal(Occupant::Unknown),
            "is not empty; to overwrite what it holds: onejournal mkfs --force TARGET"
        );
        assert!(refusal(Occupant::Ext { uuid: [2; 16] }).contains("the ext4 volume 02020202-"));
    }
}
