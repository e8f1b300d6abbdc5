//! The kernel's ext4 and OneJournal use one volume in turns. Needs root (mounts); without it, the
//! tests say so and pass.

use crate::common;

use common::{Image, Mounted, open, run, text};
use onejournal_ext4::{InodeNo, NewNode, Owner};
use onejournal_testing::can_mount_ext4;

#[test]
fn the_kernel_and_we_take_turns() {
    if !can_mount_ext4() {
        return;
    }
    for features in ["metadata_csum", "metadata_csum_seed,orphan_file", "^metadata_csum,uninit_bg"]
    {
        let image = Image::new(&["-O", features], "64M");
        for round in 0..3 {
            let device = image.device();
            let volume = open(&device).unwrap();
            let name = format!("ours{round}");
            let made = volume
                .make(InodeNo::ROOT, name.as_bytes(), NewNode::Regular, 0o644, 0, Owner::default())
                .unwrap();
            volume.write(made.ino, 0, name.as_bytes()).unwrap();
            if round > 0 {
                let theirs = format!("theirs{}", round - 1);
                let attr = volume.lookup(InodeNo::ROOT, theirs.as_bytes()).unwrap();
                let mut back = vec![0; 100_000];
                assert_eq!(volume.read(attr.ino, 0, &mut back).unwrap(), 70_000);
                assert!(back[..70_000].iter().all(|byte| *byte == 5));
            }
            volume.close().unwrap();
            image.assert_clean(&device);

            let mounted =
                Mounted::new(&image.path(), "rw").expect("the kernel mounts a clean volume");
            assert_eq!(std::fs::read(mounted.path(&name)).unwrap(), name.as_bytes());
            std::fs::write(mounted.path(&format!("theirs{round}")), vec![5; 70_000]).unwrap();
            drop(mounted);
            assert_eq!(image.e2fsck("-fn").0, 0);
        }
    }
}

#[test]
fn the_kernel_refuses_a_volume_in_use() {
    if !can_mount_ext4() {
        return;
    }
    let image = Image::new(&[], "64M");
    let device = image.device();
    let volume = open(&device).unwrap();
    image.save(&device);
    let before = image.bytes();
    assert!(Mounted::new(&image.path(), "rw").is_err());
    assert!(before == image.bytes());
    volume.close().unwrap();
}

#[test]
fn a_volume_in_use_by_the_kernel_is_refused() {
    if !can_mount_ext4() {
        return;
    }
    let image = Image::new(&[], "64M");
    let mounted = Mounted::new(&image.path(), "rw").expect("the kernel mounts a new volume");
    std::fs::write(mounted.path("x"), b"x").unwrap();
    assert!(run("sync", &["-f", text(&mounted.path("x"))]).status.success());
    let in_use = image.device();
    drop(mounted);
    let error = common::refused(&in_use).to_string();
    assert!(error.contains("e2fsck -p"), "{error}");
    open(&image.device()).unwrap();
}
