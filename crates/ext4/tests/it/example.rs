//! The example program works, and the image is an ordinary ext4 afterwards.

#[path = "../../examples/unmounted.rs"]
#[allow(dead_code)]
mod unmounted;

use crate::common;

use std::sync::Arc;

use common::Image;
use device::Disk;
use host::Access;
use onejournal_ext4::{OpenOptions, RootVolume};

#[test]
fn the_example_appends_and_leaves_a_plain_ext4() {
    let image = Image::new(&[], "64M");
    for line in ["one", "two"] {
        let device = Arc::new(Disk::open(image.path(), Access::ReadWrite).expect("the image"));
        let volume = RootVolume::open(device, OpenOptions::default()).expect("the volume");
        unmounted::append_and_show(&volume, b"notes.txt", line).expect("it works");
        volume.close().expect("closed");
    }
    let (code, text) = image.e2fsck("-fn");
    assert_eq!(code, 0, "{text}");
    assert_eq!(image.debugfs("cat /notes.txt"), "one\ntwo\n");
}
