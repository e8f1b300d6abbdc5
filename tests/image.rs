//! A volume in an image file on the kernel's ext4: what reaches the disk below that.

use crate::support;

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use onejournal_testing::can_mount_ext4;
use support::{Loop, Scratch, TempMount, onejournal, system, text};

/// Neither journal is committed before the test is over, except by a sync.
const HOST: &str = "noatime,commit=900";
const OPTIONS: &str = "commit=300";

const SYNCS: u64 = 200;

/// Bytes that were written to a block device.
fn written_bytes(device: &Path) -> u64 {
    let name = device.file_name().unwrap().to_str().unwrap();
    let counters = fs::read_to_string(format!("/sys/block/{name}/stat")).unwrap();
    counters.split_whitespace().nth(6).unwrap().parse::<u64>().unwrap() * 512
}

/// The time stamps of the image change with each write. A sync that waited for them would have the
/// file system below commit three blocks each time. A `sync` of another program commits them, too,
/// and such commits are few.
#[test]
fn a_sync_does_not_commit_the_journal_below_the_image() {
    let Some(mut scratch) = Scratch::empty() else { return };
    if !can_mount_ext4() {
        return;
    }
    let disk = scratch.root().join("disk");
    let tables = "lazy_itable_init=0,lazy_journal_init=0";
    let mke2fs = ["-q", "-F", "-t", "ext4", "-b", "4096", "-E", tables, text(&disk), "256M"];
    system("mke2fs", mke2fs).good();
    let device = Loop::attach(&disk);
    let mount = TempMount::new(&["-o", HOST, text(&device.path)], &scratch.root().join("host"));
    let image = mount.dir.join("image");
    onejournal(["mkfs", "--size", "64M", text(&image)]).good();
    // Without holes: to fill one, the file system below commits its tables.
    fs::write(&image, fs::read(&image).unwrap()).unwrap();
    system("sync", ["-f", text(&image)]).good();
    scratch.mount_target(&image, OPTIONS);
    let mut file = File::create(scratch.path("f")).unwrap();
    let (in_image, below) = (scratch.counter("device_bytes_written"), written_bytes(&device.path));
    for step in 0..SYNCS {
        file.write_all(format!("line {step}\n").as_bytes()).unwrap();
        file.sync_all().unwrap();
    }
    let in_image = scratch.counter("device_bytes_written") - in_image;
    let below = written_bytes(&device.path) - below;
    assert!(in_image >= SYNCS * 512, "{in_image} bytes to the image");
    let more = below.checked_sub(in_image).expect("all that goes to the image goes below");
    assert!(more < SYNCS * 4096, "{in_image} bytes to the image, {below} below it");
    drop(file);
    scratch.umount();
}
