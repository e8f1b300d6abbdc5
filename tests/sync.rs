//! Syncs of a whole volume: what the kernel still holds reaches the volume, and is durable. What is
//! not is lost when the daemon is killed. sync(1) itself is tried in virtual machines
//! (`scripts/kernel-matrix`): here it would wait for the disks of other tests.

use crate::support;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use onejournal_testing::{Need, skip};
use rustix::fs::{major, minor};
use support::{ONEJOURNAL, Scratch, onejournal, spawn, text};

const CONTENT: &[u8] = &[7; 1 << 20];

/// A file that the kernel holds: written, neither synced nor closed.
fn held(scratch: &Scratch) -> File {
    let mut file = File::create(scratch.path("held")).unwrap();
    file.write_all(CONTENT).unwrap();
    file
}

/// After `sync` the file is there, also if the daemon dies.
fn is_durable_after(options: &str, sync: impl FnOnce(&Scratch)) {
    let Some(mut scratch) = Scratch::mounted(options) else { return };
    let file = held(&scratch);
    sync(&scratch);
    scratch.kill();
    drop(file);
    scratch.mount("");
    assert!(fs::read(scratch.path("held")).unwrap() == CONTENT, "{options}");
    scratch.close_and_check();
}

const ORDERS: [&str; 3] =
    ["commit=300", "commit=300,order=sync", "commit=300,order=sync,threads=1"];

#[test]
fn onejournal_sync_makes_all_durable() {
    for options in ORDERS {
        is_durable_after(options, |scratch| {
            onejournal(["sync", text(&scratch.dir())]).good();
        });
    }
}

/// What the daemon starts when a sync of the whole volume arrives.
#[test]
fn the_kernel_writes_back_what_it_holds() {
    if !are_syncs_told() {
        skip(Need::Kernel, "Linux 6.18 is the first that tells a volume of syncs");
        return;
    }
    for options in ORDERS {
        is_durable_after(options, |scratch| {
            let device = fs::metadata(scratch.dir()).unwrap().dev();
            let device = format!("{}:{}", major(device), minor(device));
            let mut command = Command::new(ONEJOURNAL);
            let mut writer =
                spawn(command.args(["write-pages", &device]).stdin(Stdio::piped())).unwrap();
            writer.stdin.take().unwrap().write_all(b"\n").unwrap();
            assert!(writer.wait().unwrap().success());
        });
    }
}

/// Whether the kernel tells a volume of syncs of all its files.
fn are_syncs_told() -> bool {
    let version = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next(), parts.next()) >= (Some(6), Some(18))
}

#[test]
fn a_mount_knows_whether_it_hears_of_syncs() {
    let Some(scratch) = Scratch::mounted("") else { return };
    assert_eq!(scratch.counter("syncfs") > 0, are_syncs_told(), "asked for once, at the mount");
    scratch.close_and_check();
}

#[test]
fn a_directory_elsewhere_is_no_volume() {
    let elsewhere = onejournal(["sync", "/proc"]);
    elsewhere.refused(8, "is not on a mounted OneJournal volume");
}
