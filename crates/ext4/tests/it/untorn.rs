//! An aligned write of up to `Volume::untorn_bytes` is one transaction: in every data mode that
//! promises it, over everything that a file can hold, with the smallest journals, in a transaction
//! that is nearly full, and on a volume that is.

use crate::common;

use std::sync::Arc;

use common::{Image, handles, make, options};
use device::BlockDevice;
use onejournal_ext4::{Allocate, DataMode, InodeNo, OpenOptions, RootVolume, SetAttr};
use onejournal_testing::{SimDevice, Survival, test_name, tier};

const BLOCK: usize = 4096;

/// What a page is written over.
#[derive(Debug, Clone, Copy)]
enum Ground {
    Written,
    /// Written and synced: from 64 KiB on, `auto` writes to other blocks.
    Synced,
    Hole,
    /// Every second block is a hole.
    Holes,
    /// Preallocated.
    Unwritten,
    /// Every second block is preallocated.
    Unwrittens,
    /// The end of the file.
    End,
    /// The file ends before the page, in the middle of a block.
    AfterEnd,
}

const GROUNDS: [Ground; 8] = [
    Ground::Written,
    Ground::Synced,
    Ground::Hole,
    Ground::Holes,
    Ground::Unwritten,
    Ground::Unwrittens,
    Ground::End,
    Ground::AfterEnd,
];

fn modes() -> impl Iterator<Item = DataMode> {
    DataMode::ALL.into_iter().filter(|mode| mode.is_atomic())
}

fn open(device: Arc<dyn BlockDevice>, data_mode: DataMode, region_count: usize) -> RootVolume {
    RootVolume::open(device, OpenOptions { data_mode, region_count, ..options() })
        .expect("a volume")
}

/// Makes a file of ones whose second page of this size is `ground`.
fn prepare(volume: &RootVolume, name: &str, ground: Ground, page_bytes: usize) -> InodeNo {
    let ino = make(volume, name);
    let write = |from: usize, to: usize| {
        let data = vec![1; to - from];
        assert_eq!(volume.write(ino, from as u64, &data).unwrap(), data.len());
    };
    let (start, end) = (page_bytes, 2 * page_bytes);
    let every_second = || (start..end).step_by(2 * BLOCK);
    match ground {
        Ground::Written | Ground::Synced => write(0, end),
        Ground::Hole => {
            write(0, start);
            write(end, end + BLOCK);
        }
        Ground::Holes => {
            every_second().for_each(|at| write(at, at + BLOCK));
            write(end, end + BLOCK);
        }
        Ground::Unwritten | Ground::Unwrittens => {
            let len_bytes = end as u64;
            volume.fallocate(ino, Allocate::Extend, 0, len_bytes).unwrap();
        }
        Ground::End => write(0, start),
        Ground::AfterEnd => write(0, start - 100),
    }
    match ground {
        Ground::Synced => volume.fsync(ino, true).unwrap(),
        Ground::Unwrittens => every_second().for_each(|at| write(at, at + BLOCK)),
        _ => {}
    }
    ino
}

/// The second page of a file.
fn second_page(volume: &RootVolume, ino: InodeNo, page_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0; page_bytes];
    volume.read(ino, page_bytes as u64, &mut bytes).unwrap();
    bytes
}

/// The sizes of pages, up to `most`.
fn sizes(most: u64) -> impl Iterator<Item = usize> {
    let most = usize::try_from(most).unwrap();
    std::iter::successors(Some(BLOCK), |bytes| Some(2 * bytes)).take_while(move |b| *b <= most)
}

#[test]
fn a_page_is_one_operation_on_any_ground() {
    for (journal, region_count, untorn_kib) in [("4", 4, 64), ("4", 16, 32), ("16", 4, 512)] {
        for mode in modes() {
            let image = Image::new(&["-J", &format!("size={journal}")], "64M");
            let device = image.device();
            let volume = open(device.clone(), mode, region_count);
            assert_eq!(volume.untorn_bytes(), untorn_kib << 10, "{journal} MiB, {region_count}");
            for page_bytes in sizes(volume.untorn_bytes()) {
                for ground in GROUNDS {
                    let ino = prepare(&volume, "file", ground, page_bytes);
                    let page = vec![2; page_bytes];
                    let at = page_bytes as u64;
                    let write = || assert_eq!(volume.write(ino, at, &page).unwrap(), page_bytes);
                    let case = format!("{journal} MiB, {mode:?}, {page_bytes} over {ground:?}");
                    assert_eq!(handles(&volume, write), 1, "{case}");
                    assert!(second_page(&volume, ino, page_bytes) == page, "{case}");
                    volume.unlink(InodeNo::ROOT, b"file").unwrap();
                    volume.forget(ino, 1);
                }
            }
            volume.close().unwrap();
            image.assert_clean(&device);
        }
    }
}

/// However few blocks a region holds, pages of 32 KiB are whole.
#[test]
fn the_smallest_regions_hold_a_page_of_32_kib() {
    for region_count in 2..=16 {
        let volume =
            open(Image::new(&["-J", "size=4"], "64M").device(), DataMode::Auto, region_count);
        let untorn_bytes = volume.untorn_bytes();
        assert!(untorn_bytes >= 32 << 10, "{region_count} regions: {untorn_bytes}");
    }
    // As docs/reference/atomicity.md says.
    for (journal, untorn_kib) in [("4", 64), ("8", 256), ("16", 512), ("64", 1024)] {
        let image = Image::new(&["-J", &format!("size={journal}")], "256M");
        let volume = open(image.device(), DataMode::Auto, 4);
        assert_eq!(volume.untorn_bytes(), untorn_kib << 10, "{journal} MiB");
    }
}

/// Each block that a page needs is in a block group of its own.
#[test]
fn a_page_whose_blocks_are_scattered_over_all_groups_is_one_operation() {
    let small_groups = [
        "-g",
        "256",
        "-O",
        "^metadata_csum,^64bit,^flex_bg,^resize_inode",
        "-N",
        "1024",
        "-m",
        "0",
        "-J",
        "size=16",
    ];
    for mode in modes() {
        let image = Image::new(&small_groups, "160M");
        let device = image.device();
        let volume = open(device.clone(), mode, 4);
        let page_bytes = usize::try_from(volume.untorn_bytes()).unwrap();
        let (filler, file) = (make(&volume, "filler"), make(&volume, "file"));
        let mut filled = 0;
        let piece = vec![1; 1 << 20];
        while let Ok(written) = volume.write(filler, filled, &piece) {
            filled += written as u64;
        }
        for at in (0..filled).step_by(256 * BLOCK) {
            volume.fallocate(filler, Allocate::PunchHole, at, BLOCK as u64).unwrap();
        }
        volume.sync().unwrap();
        let page = vec![2; page_bytes];
        let write = || assert_eq!(volume.write(file, 0, &page).unwrap(), page_bytes);
        assert_eq!(handles(&volume, write), 1, "{mode:?}");
        volume.close().unwrap();
        image.assert_clean(&device);
    }
}

/// An overwrite needs no free space, and is never short.
#[test]
fn a_page_on_a_full_volume_is_written_whole() {
    for mode in modes() {
        let image = Image::new(&["-J", "size=4", "-m", "0"], "32M");
        let device = image.device();
        let volume = open(device.clone(), mode, 4);
        let page_bytes = usize::try_from(volume.untorn_bytes()).unwrap();
        let ino = prepare(&volume, "file", Ground::Synced, page_bytes);
        let (filler, mut filled) = (make(&volume, "filler"), 0);
        for piece in [vec![1; 1 << 18], vec![1; BLOCK]] {
            while let Ok(written) = volume.write(filler, filled, &piece) {
                filled += written as u64;
            }
        }
        for byte in 2..20 {
            let page = vec![byte; page_bytes];
            let write = || {
                assert_eq!(volume.write(ino, page_bytes as u64, &page).unwrap(), page_bytes);
            };
            assert_eq!(handles(&volume, write), 1, "{mode:?}");
            volume.fsync(ino, true).unwrap();
            assert!(second_page(&volume, ino, page_bytes) == page, "{mode:?}");
        }
        volume.close().unwrap();
        image.assert_clean(&device);
    }
}

/// What was written when the power was cut.
struct Crash {
    mode: DataMode,
    ground: Ground,
    /// The write, which begins where the second page of this size does.
    page_bytes: usize,
    written_bytes: usize,
    /// No aligned part of this size may be torn.
    whole_bytes: usize,
}

/// Fills the running transaction up to each of several levels that `is_taken` takes, writes, and
/// cuts the power. Returns in how many of these crashes a part was torn, and in how many the write
/// was there.
fn torn_and_written(crash: &Crash, is_taken: impl Fn(usize) -> bool) -> (usize, usize) {
    let device = Image::new(&["-J", "size=4"], "32M").sim_device();
    let volume = open(device.clone(), crash.mode, 4);
    let most = volume.journal().max_credit_count();
    let filler = make(&volume, "filler");
    volume.set_data_mode(filler, Some(DataMode::Journal)).unwrap();
    volume.write(filler, 0, &vec![7; most * BLOCK]).unwrap();
    let (mut torn, mut written) = (0, 0);
    let levels = (most - 118..most - 2).step_by(3).enumerate();
    for (nth, filled) in levels.filter(|(nth, _)| is_taken(*nth)) {
        let name = format!("file{nth}");
        let ino = prepare(&volume, &name, crash.ground, crash.page_bytes);
        volume.journal().checkpoint().unwrap();
        let noise = fastrand::Rng::with_seed(nth as u64).u8(..);
        volume.write(filler, 0, &vec![noise; filled * BLOCK]).unwrap();
        let mut before = vec![0; crash.written_bytes];
        volume.read(ino, crash.page_bytes as u64, &mut before).unwrap();
        let data = vec![2; crash.written_bytes];
        let count = volume.write(ino, crash.page_bytes as u64, &data).unwrap();
        assert_eq!(count, data.len());
        let image = device.crash(Survival::Nothing);
        let crashed = open(Arc::new(SimDevice::from_image(image, 512)), crash.mode, 4);
        let found = crashed.lookup(InodeNo::ROOT, name.as_bytes()).unwrap();
        let mut after = vec![0; crash.written_bytes];
        crashed.read(found.ino, crash.page_bytes as u64, &mut after).unwrap();
        let parts = |bytes: &[u8]| -> Vec<Vec<u8>> {
            bytes.chunks(crash.whole_bytes).map(<[u8]>::to_vec).collect()
        };
        let is_torn = parts(&after)
            .iter()
            .zip(parts(&before))
            .any(|(after, before)| *after != before && after.iter().any(|byte| *byte != 2));
        torn += usize::from(is_torn);
        written += usize::from(after == data);
        // The next file needs the space.
        let cut = SetAttr { size_bytes: Some(0), ..SetAttr::default() };
        volume.set_attr(ino, &cut).unwrap();
    }
    (torn, written)
}

#[test]
fn a_page_in_a_nearly_full_transaction_is_never_torn() {
    let seed = tier::seed_of(test_name!());
    for mode in modes() {
        for page_bytes in sizes(64 << 10) {
            for ground in [Ground::Synced, Ground::Holes, Ground::Unwrittens] {
                let (written_bytes, whole_bytes) = (page_bytes, page_bytes);
                let crash = Crash { mode, ground, page_bytes, written_bytes, whole_bytes };
                let is_taken = |nth| tier::takes(seed ^ page_bytes as u64, nth);
                let (torn, _) = torn_and_written(&crash, is_taken);
                assert_eq!(torn, 0, "{mode:?}, {page_bytes} bytes over {ground:?}");
            }
        }
    }
}

/// A database that writes several pages by one call.
#[test]
fn a_write_that_no_transaction_holds_is_cut_between_pages() {
    let seed = tier::seed_of(test_name!());
    for mode in modes() {
        for (page_bytes, written_bytes) in [(64 << 10, 1 << 20), (16 << 10, (1 << 20) - 4096)] {
            for ground in [Ground::Holes, Ground::Synced] {
                let whole_bytes = page_bytes;
                let crash = Crash { mode, ground, page_bytes, written_bytes, whole_bytes };
                let is_taken = |nth| tier::takes(seed ^ page_bytes as u64, nth);
                let (torn, _) = torn_and_written(&crash, is_taken);
                assert_eq!(torn, 0, "{mode:?}, pages of {page_bytes} bytes over {ground:?}");
            }
        }
    }
}

#[test]
fn other_modes_promise_nothing() {
    let image = Image::new(&[], "64M");
    for mode in DataMode::ALL {
        let volume = open(image.device(), mode, 4);
        let ino = make(&volume, "file");
        let expected = if mode.is_atomic() { volume.untorn_bytes() } else { 0 };
        assert_eq!(volume.atomic_write_bytes(), expected, "{mode:?}");
        for own in DataMode::ALL {
            volume.set_data_mode(ino, Some(own)).unwrap();
            let expected = if own.is_atomic() { volume.untorn_bytes() } else { 0 };
            assert_eq!(volume.atomic_write_bytes_of(ino).unwrap(), expected, "{mode:?} {own:?}");
        }
        // A write that the caller has split is not atomic.
        volume.set_data_mode(ino, Some(DataMode::Delta)).unwrap();
        for (unsplit_bytes, expected) in [(0, 0), (4096, 4096), (70_000, 64 << 10)] {
            volume.set_unsplit_write_bytes(unsplit_bytes);
            assert_eq!(volume.atomic_write_bytes_of(ino).unwrap(), expected);
        }
    }
    let read_only = OpenOptions { read_only: true, ..options() };
    assert_eq!(RootVolume::open(image.device(), read_only).unwrap().untorn_bytes(), 0);
}

#[test]
fn canary_pages_in_several_operations_are_found_torn() {
    use onejournal_ext4::Fault;
    for mode in modes() {
        for ground in [Ground::Synced, Ground::Holes] {
            let (page_bytes, written_bytes, whole_bytes) = (16 << 10, 16 << 10, 16 << 10);
            let crash = Crash { mode, ground, page_bytes, written_bytes, whole_bytes };
            let (torn, _) =
                fault::with(Fault::WriteInBlocks, || torn_and_written(&crash, |_| true));
            assert!(torn > 0, "{mode:?} over {ground:?}: the test sees no torn page");
        }
    }
}
