//! The example program works, and the image is an ordinary ext4 afterwards.

#![allow(missing_docs)]

#[path = "../examples/unmounted.rs"]
#[allow(dead_code)]
mod unmounted;

use std::process::Command;
use std::sync::Arc;

use device::{Access, Disk};
use onejournal_ext4::{OpenOptions, Volume};

/// A program of e2fsprogs, wherever the distribution keeps it.
fn e2fsprogs(program: &str) -> Command {
    let mut command = Command::new(program);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}

#[test]
fn the_example_appends_and_leaves_a_plain_ext4() {
    let directory = tempfile::tempdir().expect("a directory");
    let image = directory.path().join("image");
    std::fs::File::create(&image).expect("a file").set_len(64 << 20).expect("sparse");
    let made = e2fsprogs("mke2fs").args(["-q", "-t", "ext4", "-b", "4096"]).arg(&image).status();
    assert!(made.expect("mke2fs").success());
    for line in ["one", "two"] {
        let device = Arc::new(Disk::open(&image, Access::ReadWrite).expect("the image"));
        let volume = Volume::open(device, OpenOptions::default()).expect("the volume");
        unmounted::append_and_show(&volume, b"notes.txt", line).expect("it works");
        volume.close().expect("closed");
    }
    let checked = e2fsprogs("e2fsck").arg("-fn").arg(&image).output().expect("e2fsck");
    assert!(checked.status.success(), "{checked:?}");
    let shown = e2fsprogs("debugfs").args(["-R", "cat /notes.txt"]).arg(&image).output();
    assert_eq!(shown.expect("debugfs").stdout, b"one\ntwo\n");
}
