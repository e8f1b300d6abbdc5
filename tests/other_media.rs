//! A volume that was not closed, on another medium than it was mounted on: other sectors, another
//! file system, another kind of journal.

use crate::support;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use onejournal_testing::{Need, skip};
use support::{Loop, Scratch, can_mount, onejournal, scratch_dir, text, tmpfs_dir};

/// An operational error, as e2fsck and mount have it.
const OPERATIONAL: i32 = 8;
const OPTIONS: &str = "commit=300";
/// For a volume, or a journal, on tmpfs.
const MEMORY: &str = "commit=300,durability=process";

const NAMES: [&str; 5] = ["f0", "f1", "f2", "f3", "f4"];

/// Five small files, each synced by itself; then the daemon is killed.
#[track_caller]
fn write_and_kill(scratch: &mut Scratch, target: &Path, options: &str) {
    scratch.mount_target(target, options);
    for name in NAMES {
        fs::write(scratch.path(name), name).unwrap();
        File::open(scratch.path(name)).unwrap().sync_all().unwrap();
    }
    scratch.kill();
}

/// All five are there on a mount, which recovers if nothing else has; they are removed.
#[track_caller]
fn find_and_remove(scratch: &mut Scratch, target: &Path, options: &str) {
    scratch.mount_target(target, options);
    for name in NAMES {
        assert_eq!(fs::read_to_string(scratch.path(name)).unwrap(), name);
        fs::remove_file(scratch.path(name)).unwrap();
    }
    scratch.umount();
    support::check_clean(target);
}

fn fsck(target: &Path, more: &[&str]) -> support::Ran {
    let mut arguments = vec!["fsck"];
    arguments.extend_from_slice(more);
    arguments.push(text(target));
    onejournal(arguments)
}

#[test]
fn mkfs_asks_for_force_only_where_a_device_has_a_signature() {
    if !can_mount() {
        return;
    }
    let dir = scratch_dir();
    let image = dir.path().join("image");
    let mut random = vec![0; 16 << 20];
    fastrand::Rng::with_seed(3).fill(&mut random);
    fs::write(&image, &random).unwrap();
    // The bytes of a file are some program's.
    onejournal(["mkfs", text(&image)]).refused(OPERATIONAL, "mkfs --force ");
    // As a new mapping of dm-crypt has them.
    let device = Loop::attach(&image);
    onejournal(["mkfs", text(&device.path)]).good();
    support::check_clean(&device.path);
    drop(device);
    // A signature that only wipefs knows: ReiserFS.
    random[0x1_0034..0x1_003d].copy_from_slice(b"ReIsEr2Fs");
    fs::write(&image, &random).unwrap();
    let device = Loop::attach(&image);
    onejournal(["mkfs", text(&device.path)]).refused(OPERATIONAL, "mkfs --force ");
    assert!(fs::read(&image).unwrap() == random, "it was written to");
}

#[test]
fn synced_files_are_there_at_the_other_sector_size() {
    let Some(mut scratch) = Scratch::new() else { return };
    let image = scratch.image();
    for (written, recovered) in [(512, 4096), (4096, 512)] {
        for by_fsck in [true, false] {
            let device = Loop::with_sectors(&image, written);
            write_and_kill(&mut scratch, &device.path, OPTIONS);
            drop(device);
            let device = Loop::with_sectors(&image, recovered);
            if by_fsck {
                let dumped = onejournal(["dump", text(&device.path)]).good();
                assert!(dumped.contains(&format!("step        {written} bytes")), "{dumped}");
                assert_eq!(fsck(&device.path, &[]).code, Some(1), "{written} to {recovered}");
            }
            find_and_remove(&mut scratch, &device.path, OPTIONS);
        }
    }
}

#[test]
fn synced_files_are_there_on_tmpfs_and_back() {
    let Some(mut scratch) = Scratch::new() else { return };
    let (image, dir) = (scratch.image(), tmpfs_dir());
    let copy = dir.path().join("copy");
    for by_fsck in [true, false] {
        for (from, to, options) in
            [(&image, &copy, [OPTIONS, MEMORY]), (&copy, &image, [MEMORY, OPTIONS])]
        {
            write_and_kill(&mut scratch, from, options[0]);
            fs::copy(from, to).unwrap();
            if by_fsck {
                fsck(to, &[]).ended(1);
            }
            find_and_remove(&mut scratch, to, options[1]);
        }
    }
}

#[test]
fn a_journal_from_nvram_is_read_from_a_disk_and_back() {
    let Some(mut scratch) = Scratch::new() else { return };
    let (image, dir) = (scratch.image(), tmpfs_dir());
    let memory = dir.path().join("journal");
    let file = scratch.root().join("journal");
    let with = |path: &PathBuf, more: &str| format!("journal={},{more}", path.display());
    let in_memory = with(&memory, MEMORY);
    let on_disk = with(&file, OPTIONS);
    // Made on NVRAM; from then on it is copied.
    write_and_kill(&mut scratch, &image, &format!("{in_memory},journal_size=8M"));
    fs::copy(&memory, &file).unwrap();
    find_and_remove(&mut scratch, &image, &on_disk);
    write_and_kill(&mut scratch, &image, &on_disk);
    fs::copy(&file, &memory).unwrap();
    fsck(&image, &["--journal", text(&memory)]).ended(1);
    find_and_remove(&mut scratch, &image, &in_memory);
    // And on a device with large sectors.
    write_and_kill(&mut scratch, &image, &in_memory);
    fs::copy(&memory, &file).unwrap();
    let device = Loop::with_sectors(&file, 4096);
    find_and_remove(&mut scratch, &image, &with(&device.path, OPTIONS));
}

#[test]
fn a_journal_that_was_copied_in_part_is_refused() {
    let Some(mut scratch) = Scratch::new() else { return };
    let image = scratch.image();
    let (whole, part) = (scratch.root().join("journal"), scratch.root().join("part"));
    let with = |path: &PathBuf| format!("journal={},{OPTIONS}", path.display());
    write_and_kill(&mut scratch, &image, &format!("{},journal_size=8M", with(&whole)));
    fs::copy(&whole, &part).unwrap();
    File::options().write(true).open(&part).unwrap().set_len(4 << 20).unwrap();
    let before = fs::read(&image).unwrap();
    fsck(&image, &["--journal", text(&part)]).refused(4, "made shorter");
    let options = with(&part);
    onejournal(["mount", "-o", &options, text(&image), text(&scratch.dir())])
        .refused(8, "made shorter");
    assert!(fs::read(&image).unwrap() == before, "the volume was written to");
    // A longer one is as good.
    File::options().write(true).open(&whole).unwrap().set_len(9 << 20).unwrap();
    find_and_remove(&mut scratch, &image, &with(&whole));
}

/// An incarnation that is over leaves nothing to recover: the volume goes on with the sectors that
/// it finds.
#[test]
fn a_closed_volume_takes_the_sectors_of_its_medium() {
    let Some(mut scratch) = Scratch::new() else { return };
    let image = scratch.image();
    for sector_bytes in [512, 4096, 512] {
        let device = Loop::with_sectors(&image, sector_bytes);
        scratch.mount_target(&device.path, OPTIONS);
        scratch.umount();
        let dumped = onejournal(["dump", text(&device.path)]).good();
        assert!(dumped.contains(&format!("step        {sector_bytes} bytes")), "{dumped}");
    }
    scratch.check();
}

#[test]
fn sectors_that_are_larger_than_blocks_are_refused() {
    let Some(mut scratch) = Scratch::new() else { return };
    let image = scratch.image();
    write_and_kill(&mut scratch, &image, OPTIONS);
    let arguments = ["--find", "--show", "--sector-size", "16384", text(&image)];
    let attached = support::system("losetup", arguments);
    if attached.code != Some(0) {
        return skip(Need::Kernel, format!("needs sectors of 16 KiB: {}", attached.err.trim()));
    }
    let device = Loop { path: attached.out.trim().into() };
    let why = "has sectors of 16384 bytes, and 4096 at most can be used";
    fsck(&device.path, &[]).refused(8, why);
    onejournal(["mount", text(&device.path), text(&scratch.dir())]).refused(8, why);
    drop(device);
    find_and_remove(&mut scratch, &image, OPTIONS);
}
