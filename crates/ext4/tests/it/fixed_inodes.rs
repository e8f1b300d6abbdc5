//! Damaged root and journal inodes, with the kernel as the judge: OneJournal must refuse what the
//! kernel's ext4 does not mount. Without root and loop devices, the test is skipped.
//!
//! Each field of inodes 2 (root) and 8 (journal), and of the superblock in the journal's first
//! block, is changed in four ways: zero, the largest value, the lowest bit inverted, the highest
//! bit inverted. This is done without checksums, so that each value is believed, and with
//! checksums, so that none is. The gate tries a fifth of the cases.

use crate::common;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use common::{Image, Mounted, options};
use device::MemoryDevice;
use onejournal_ext4::{Error, InodeNo, OpenOptions, RootVolume};
use onejournal_testing::{can_mount_ext4, test_name, tier};

/// Offset and size of a field.
type Field = (usize, usize);

/// Fields of an inode, including the extent header and the first extent in `i_block`, and the place
/// of the first attribute in the inode.
const INODE_FIELDS: [Field; 33] = [
    (0x00, 2), // i_mode
    (0x02, 2),
    (0x04, 4), // i_size_lo
    (0x08, 4),
    (0x0C, 4),
    (0x10, 4),
    (0x14, 4), // i_dtime
    (0x18, 2),
    (0x1A, 2), // i_links_count
    (0x1C, 4), // i_blocks_lo
    (0x20, 4), // i_flags
    (0x24, 4),
    (0x28, 2), // eh_magic
    (0x2A, 2), // eh_entries
    (0x2C, 2), // eh_max
    (0x2E, 2), // eh_depth
    (0x30, 4),
    (0x34, 4), // ee_block
    (0x38, 2), // ee_len
    (0x3A, 2), // ee_start_hi
    (0x3C, 4), // ee_start_lo
    (0x40, 4),
    (0x64, 4),
    (0x68, 4), // i_file_acl_lo
    (0x6C, 4), // i_size_high
    (0x74, 2), // i_blocks_high
    (0x76, 2), // i_file_acl_high
    (0x7C, 2), // i_checksum_lo
    (0x80, 2), // i_extra_isize
    (0x82, 2), // i_checksum_hi
    (0x9C, 4),
    (0xA0, 4), // magic number of attributes in the inode
    (0xFC, 4),
];

/// Fields of the superblock of the kernel's journal.
const JBD2_FIELDS: [Field; 12] = [
    (0x00, 4), // h_magic
    (0x04, 4), // h_blocktype
    (0x0C, 4), // s_blocksize
    (0x10, 4), // s_maxlen
    (0x14, 4), // s_first
    (0x18, 4), // s_sequence
    (0x1C, 4), // s_start
    (0x20, 4), // s_errno
    (0x28, 4), // s_feature_incompat
    (0x2C, 4), // s_feature_ro_compat
    (0x40, 4), // s_nr_users
    (0x50, 1), // s_checksum_type
];

/// The name of a way to damage a field, and what it does to its bytes, which are in the order of
/// the medium.
type FieldDamage = (&'static str, fn(&mut [u8]));

const DAMAGES: [FieldDamage; 4] = [
    ("zero", |field| field.fill(0)),
    ("maximum", |field| field.fill(0xFF)),
    ("first bit", |field| field[0] ^= 1),
    ("last bit", |field| *field.last_mut().unwrap() ^= 0x80),
];

struct Places {
    root: usize,
    journal: usize,
    jbd2: usize,
}

fn places(bytes: &[u8]) -> Places {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let table = word(4096 + 8) * 4096;
    let (root, journal) = (table + 256, table + 7 * 256);
    Places { root, journal, jbd2: word(journal + 0x3C) * 4096 }
}

/// Changes an image.
type Damage = Box<dyn Fn(&mut [u8]) + Sync>;

/// What is damaged, and how.
type Case = (String, Damage);

fn each_field(bytes: &[u8], what: &str, start: usize, fields: &[Field], cases: &mut Vec<Case>) {
    for (offset, size) in fields {
        let field = start + offset..start + offset + size;
        for (name, damage) in DAMAGES {
            let mut damaged = bytes[field.clone()].to_vec();
            damage(&mut damaged);
            if damaged != bytes[field.clone()] {
                let at = field.clone();
                let damage: Damage = Box::new(move |bytes| damage(&mut bytes[at.clone()]));
                cases.push((format!("{what}, {offset:#x}: {name}"), damage));
            }
        }
    }
}

/// Whole inodes: cleared (`debugfs clri`), all ones, one in the place of the other; and extents
/// that are on metadata.
fn whole_inodes(bytes: &[u8], at: &Places, cases: &mut Vec<Case>) {
    let mut add = |what: &str, damage: Damage| cases.push((what.to_string(), damage));
    let put = |at: usize, new: Vec<u8>| -> Damage {
        Box::new(move |bytes| bytes[at..at + new.len()].copy_from_slice(&new))
    };
    let table = u32::try_from(at.root / 4096).expect("a block number");
    for (name, start) in [("root", at.root), ("journal", at.journal)] {
        add(&format!("{name} cleared"), put(start, vec![0; 256]));
        add(&format!("{name} all ones"), put(start, vec![0xFF; 256]));
        for block in [1, 2, table, u32::MAX] {
            let begins = put(start + 0x3C, block.to_le_bytes().to_vec());
            add(&format!("{name} begins at block {block}"), begins);
        }
        // Not mapped by extents: what was an extent tree is now a list of block numbers.
        let flags = bytes[start + 0x22] & !0x08;
        add(&format!("{name} without extents"), put(start + 0x22, vec![flags]));
        for kind in [0x10, 0x20, 0x40, 0x60, 0x80, 0xA0, 0xC0] {
            add(&format!("{name}: type {kind:#x}"), put(start + 1, vec![kind | 1]));
        }
        for flag in [0x800u32, 0x1000, 0x10_0000, 0x20_0000, 0x1000_0000, 0x4000_0000] {
            let field: [u8; 4] = bytes[start + 0x20..start + 0x24].try_into().unwrap();
            let flags = u32::from_le_bytes(field) | flag;
            let set = put(start + 0x20, flags.to_le_bytes().to_vec());
            add(&format!("{name}: flag {flag:#x}"), set);
        }
        for block in [1, 2, table, 3000, 0x7FFF_FFFF] {
            let attributes = put(start + 0x68, block.to_le_bytes().to_vec());
            add(&format!("{name}: attribute block {block}"), attributes);
        }
        let garbage = [&0xEA02_0000u32.to_le_bytes()[..], &[0xA5; 0x5C]].concat();
        add(&format!("{name}: garbage for attributes"), put(start + 0xA0, garbage));
    }
    let inode = |start: usize| bytes[start..start + 256].to_vec();
    add("the journal in the root's place", put(at.root, inode(at.journal)));
    add("the root in the journal's place", put(at.journal, inode(at.root)));
    for maxlen in [0u32, 1, 512, 1023, 1025, 4096] {
        let length = put(at.jbd2 + 0x10, maxlen.to_be_bytes().to_vec());
        add(&format!("a journal of {maxlen} blocks by its superblock"), length);
    }
    for size in [0u32, 4095, 4096, 1023 * 4096, 1024 * 4096 - 1, 1025 * 4096, 8 << 20] {
        let length = put(at.journal + 4, size.to_le_bytes().to_vec());
        add(&format!("a journal of {size} bytes by its inode"), length);
    }
}

/// A sound image and what is done to it.
fn cases(features: &str) -> (Vec<u8>, Vec<Case>) {
    let arguments = ["-O", features, "-J", "size=4", "-N", "256"];
    let bytes = Image::new(&arguments, "16M").bytes();
    let at = places(&bytes);
    let nothing: Damage = Box::new(|_| ());
    let mut cases = vec![("nothing".to_string(), nothing)];
    each_field(&bytes, "root", at.root, &INODE_FIELDS, &mut cases);
    each_field(&bytes, "journal", at.journal, &INODE_FIELDS, &mut cases);
    each_field(&bytes, "jbd2", at.jbd2, &JBD2_FIELDS, &mut cases);
    whole_inodes(&bytes, &at, &mut cases);
    (bytes, cases)
}

/// Does the kernel mount it, read-only?
fn kernel_mounts(image: &Path) -> bool {
    let mounted = Mounted::new(image, "ro");
    mounted.map(Mounted::unmount).is_ok()
}

/// Opens the image to write or to read only, looks at its root, and closes it. An opened volume
/// must close without an error. A refused image must be unchanged.
fn open_as(bytes: &[u8], read_only: bool) -> Result<(), String> {
    let device = Arc::new(MemoryDevice::from_bytes(bytes.to_vec(), 512));
    let opened = RootVolume::open(device.clone(), OpenOptions { read_only, ..options() });
    let volume = match opened {
        Ok(volume) => volume,
        Err(error) if device.to_bytes() != bytes => {
            return Err(format!("refused, but written to: {error}"));
        }
        // There is nothing to run when features are unknown, and `cli` has the command for damage.
        Err(error @ (Error::Incompatible(_) | Error::Corrupt { .. })) => {
            return Err(format!("{error} (run: nothing, or fsck)"));
        }
        Err(error) => return Err(error.to_string()),
    };
    let look = || {
        volume.get_attr(InodeNo::ROOT)?;
        volume.read_dir(InodeNo::ROOT, 0, &mut |_| true)
    };
    let _ = look(); // It may fail: a mount does not check the directory's blocks.
    volume.close().map_err(|error| format!("opened, but not closed: {error}"))
}

/// What is wrong with our verdict on one image; and whether the kernel refuses it.
fn judge(what: &str, bytes: &[u8], directory: &Path) -> (Option<String>, bool) {
    let path = directory.join("image");
    onejournal_testing::write_sparse(&path, bytes).expect("room");
    let theirs = kernel_mounts(&path);
    let (ours, reading) = (open_as(bytes, false), open_as(bytes, true));
    let wrong = match &ours {
        _ if ours != reading => format!("to write {ours:?}, to read {reading:?}"),
        Ok(()) if !theirs => "opened".into(),
        Err(why) if what == "nothing" => format!("refused: {why}"),
        Err(why) if !why.contains("run: ") => format!("no command in: {why}"),
        _ => return (None, !theirs),
    };
    (Some(format!("{what}: {wrong}")), !theirs)
}

#[test]
fn images_that_the_kernel_refuses_are_refused() {
    if !can_mount_ext4() {
        return;
    }
    let seed = tier::seed_of(test_name!());
    let taken = |cases: Vec<Case>| {
        let cases = cases.into_iter().enumerate();
        cases.filter(|(at, _)| *at == 0 || tier::takes(seed, *at)).map(|(_, case)| case)
    };
    let (plain, all) = cases("^metadata_csum");
    let mut all: Vec<Case> = taken(all).collect();
    let plain_count = all.len();
    // Each changed byte is noticed by its checksum: some of them are enough.
    let (summed, more) = cases("metadata_csum");
    all.extend(taken(more.into_iter().step_by(9).collect()));
    let next = AtomicUsize::new(0);
    let (refused, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        let directory = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir(directory.path().join("mounted")).expect("a directory");
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some((what, damage)) = all.get(index) else { return };
            let mut bytes = if index < plain_count { plain.clone() } else { summed.clone() };
            damage(&mut bytes);
            let (found, is_refused) = judge(what, &bytes, directory.path());
            wrong.lock().unwrap().extend(found);
            refused.fetch_add(usize::from(is_refused), Ordering::Relaxed);
        }
    };
    // A mount mostly waits.
    std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(work))));
    let (refused, wrong) = (refused.into_inner(), wrong.into_inner().unwrap());
    println!("{} images, {refused} refused by the kernel", all.len());
    assert!(refused > tier::count(100), "the kernel refuses {refused} images: is it asked?");
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
