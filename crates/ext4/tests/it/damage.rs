//! Damaged and crafted volumes: errors, never a panic, an endless loop or a read out of bounds.

use crate::common;

use std::sync::Arc;

use common::{Image, options};
use device::MemoryDevice;
use onejournal_ext4::{InodeNo, NewNode, OpenOptions, Owner, RootVolume};
use onejournal_testing::{test_name, tier};

/// Opens and uses a volume; errors are fine.
fn exercise(device: Arc<MemoryDevice>, read_only: bool) -> onejournal_ext4::Result<()> {
    let volume = RootVolume::open(device, OpenOptions { read_only, ..options() })?;
    let _ = volume.stat_fs();
    let _ = volume.lookup(InodeNo::ROOT, b"lost+found");
    let _ = volume.read_dir(InodeNo::ROOT, 0, &mut |_| true);
    for name in [&b"d"[..], b"e"] {
        let _ = volume.make(InodeNo::ROOT, name, NewNode::Directory, 0o755, 0, Owner::default());
    }
    if let Ok(file) = volume.make(InodeNo::ROOT, b"f", NewNode::Regular, 0o644, 0, Owner::default())
    {
        let _ = volume.write(file.ino, 0, &[1; 100_000]);
        let _ = volume.unlink(InodeNo::ROOT, b"f");
        volume.forget(file.ino, 1);
    }
    volume.close()
}

/// Byte ranges that decide where everything is stored: superblock, descriptors, the first inodes,
/// the kernel's journal superblock, bitmaps.
fn targets(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let table = word(4096 + 8) * 4096;
    let journal = word(table + 7 * 256 + 0x28 + 12 + 8) * 4096;
    vec![
        1024..1024 + 0x150,
        1024 + 0x150..2048,
        4096..4096 + 256,
        table + 256..table + 512,
        table + 7 * 256..table + 8 * 256,
        table + 10 * 256..table + 12 * 256,
        journal..journal + 0x60,
        word(4096) * 4096..word(4096) * 4096 + 64,
        word(4096 + 4) * 4096..word(4096 + 4) * 4096 + 64,
    ]
}

#[test]
fn single_bytes_and_words_changed() {
    // Without checksums every change is believed.
    for features in ["^metadata_csum", "^metadata_csum,orphan_file,^64bit"] {
        let image = Image::new(&["-O", features, "-g", "2048", "-N", "512"], "32M");
        let bytes = image.bytes();
        let targets = targets(&bytes);
        let mut random = fastrand::Rng::with_seed(tier::seed_of(test_name!()));
        for case in 0..tier::count(150) {
            let target = &targets[case % targets.len()];
            let mut damaged = bytes.clone();
            let at = random.usize(target.clone()) & !3;
            match random.u8(0..4) {
                0 => damaged[at] ^= 1 << random.u8(0..8),
                1 => damaged[at..at + 4].fill(0xFF),
                2 => damaged[at..at + 4].fill(0),
                _ => damaged[at..at + 4].copy_from_slice(&random.u32(..).to_le_bytes()),
            }
            let device = Arc::new(MemoryDevice::from_bytes(damaged, 512));
            let _ = exercise(device, case % 5 == 0);
        }
    }
}

#[test]
fn the_undamaged_volume_works() {
    let image = Image::new(&["-O", "^metadata_csum", "-g", "2048", "-N", "512"], "32M");
    let device = image.device();
    exercise(device.clone(), false).unwrap();
    image.assert_clean(&device);
}

/// The journal inode decides where the records are looked for. One that was changed must not make
/// them vanish.
#[test]
fn a_dirty_volume_whose_journal_inode_was_changed_is_refused() {
    let image = Image::new(&["-O", "^metadata_csum"], "32M");
    let device = image.device();
    let volume = common::open(&device).unwrap();
    for name in [&b"a"[..], b"b", b"c"] {
        volume.make(InodeNo::ROOT, name, NewNode::Directory, 0o755, 0, Owner::default()).unwrap();
        volume.sync().unwrap();
    }
    drop(volume);
    let bytes = device.to_bytes();
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let table = word(&bytes, 4096 + 8) as usize * 4096;
    let root = table + 7 * 256 + 0x28; // of the extent tree
    let last = root + 12 * usize::from(bytes[root + 2]);
    let start = word(&bytes, last + 8);
    let block_count = u16::from_le_bytes(bytes[last + 4..last + 6].try_into().unwrap());
    let kept = block_count / 2;
    // The second half of the last extent is elsewhere.
    let mut moved = bytes.clone();
    moved[root + 2] += 1;
    moved[last + 4..last + 6].copy_from_slice(&kept.to_le_bytes());
    let logical = word(&bytes, last) + u32::from(kept);
    moved[last + 12..last + 16].copy_from_slice(&logical.to_le_bytes());
    moved[last + 16..last + 18].copy_from_slice(&(block_count - kept).to_le_bytes());
    moved[last + 18..last + 20].fill(0);
    let elsewhere = start + u32::from(block_count);
    moved[last + 20..last + 24].copy_from_slice(&elsewhere.to_le_bytes());
    // All of it is gone from there on.
    let mut short = bytes.clone();
    short[last + 4..last + 6].copy_from_slice(&kept.to_le_bytes());
    let size = (word(&bytes, last) + u32::from(kept)) * 4096;
    short[table + 7 * 256 + 4..table + 7 * 256 + 8].copy_from_slice(&size.to_le_bytes());
    for (changed, why) in [(moved, "is not where it was written"), (short, "length (s_maxlen)")] {
        let error = common::refused(&Arc::new(MemoryDevice::from_bytes(changed, 512)));
        assert!(error.to_string().contains(why), "{error}");
    }
    let device = Arc::new(MemoryDevice::from_bytes(bytes, 512));
    let volume = common::open(&device).unwrap();
    for name in [&b"a"[..], b"b", b"c"] {
        volume.lookup(InodeNo::ROOT, name).unwrap();
    }
    volume.close().unwrap();
    image.assert_clean(&device);
}
