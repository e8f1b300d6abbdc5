//! The data mode of a file that is looked up while another thread sets it, blocks that change
//! owners, and the size that `selective` compares.

use std::sync::Arc;

use device::BlockDevice;
use device::sync::Mutex;
use journal::format::FORM_EXTENT;
use onejournal_testing::{Layer, Layered};

use super::model::{read_all, set_size};
use crate::bench::Bench;
use crate::data_mode::DATA_MODE_XATTR;
use crate::extent::{self, Target};
use crate::inode::read_inode;
use crate::{DataMode, InodeNo, RootVolume, XattrFlags};

type Hook = Box<dyn FnOnce() + Send>;

/// Runs something before a block is read.
#[derive(Default)]
struct BeforeRead(Mutex<Option<(u64, Hook)>>);

impl Layer for BeforeRead {
    fn read(&self, device: &dyn BlockDevice, offset: u64, buf: &mut [u8]) -> device::Result<()> {
        let hook = self.0.lock().take_if(|(at, _)| *at == offset);
        if let Some((_, hook)) = hook {
            hook();
        }
        device.read(offset, buf)
    }
}

fn set_mode(volume: &RootVolume, ino: InodeNo, mode: DataMode) {
    volume.set_data_mode(ino, Some(mode)).expect("the attribute can be set");
}

/// The mode is stored in the inode, which is read first; other attributes are in a block. If a
/// thread set the mode while that block was read, the old mode stayed in effect until the file's
/// in-core inode was dropped.
#[test]
fn regression_a_mode_that_is_set_while_the_old_one_is_looked_up() {
    type LookUp = fn(&RootVolume, InodeNo) -> DataMode;
    let looks: [LookUp; 3] = [
        |volume, ino| volume.data_mode_of(ino).expect("a mode"),
        |volume, ino| {
            volume.fsync(ino, false).expect("an fsync");
            DataMode::Ordered
        },
        |volume, ino| {
            volume.write(ino, 0, b"data").expect("a write");
            DataMode::Ordered
        },
    ];
    for look_up in looks {
        let bench = Bench::new(DataMode::Auto, 64, 1);
        let (volume, ino) = (bench.open(), bench.files[0]);
        set_mode(&volume, ino, DataMode::Ordered);
        volume.set_xattr(ino, b"user.long", &[7; 1000], XattrFlags::Any).expect("an attribute");
        let block = read_inode(&**volume, ino).expect("an inode").file_acl();
        assert!(block.0 != 0, "an attribute of 1000 bytes does not fit into an inode");
        volume.close().expect("a clean close");

        let device = Arc::new(Layered::new(bench.device.clone(), BeforeRead::default()));
        let volume = Arc::new(bench.open_on(device.clone()));
        let other = Arc::downgrade(&volume);
        let hook = move || {
            let volume = other.upgrade().expect("the test holds it");
            // `set_data_mode` takes these locks.
            let in_core = volume.in_core(ino);
            let locks = (in_core.content.try_write(), in_core.xattr.try_write());
            if let (Some(_), Some(_)) = locks {
                drop(locks);
                set_mode(&volume, ino, DataMode::Delta);
            }
        };
        *device.layer.0.lock() = Some((block.0 * 4096, Box::new(hook)));
        assert_eq!(look_up(&volume, ino), DataMode::Ordered);
        assert!(device.layer.0.lock().is_none(), "the attributes were not read");
        let value = volume.get_xattr(ino, DATA_MODE_XATTR.as_bytes()).expect("the attribute");
        if value == b"ordered" {
            set_mode(&volume, ino, DataMode::Delta);
        }
        assert_eq!(volume.data_mode_of(ino).expect("a mode"), DataMode::Delta);
    }
}

/// A thread read a free block late, and then a checkpoint wrote it once more, also late. The data
/// of its next owner were logged as a change of the bytes that had been read.
#[test]
fn regression_a_new_block_is_not_logged_as_a_change_of_what_it_held() {
    let bench = Bench::new(DataMode::Delta, 64, 1);
    let (volume, ino) = (bench.open(), bench.files[0]);
    let home_of = |volume: &RootVolume| {
        let inode = read_inode(&***volume, ino).expect("an inode");
        match extent::map(&***volume, &inode, 0, 1).expect("a mapping").target {
            Target::Written(home) => home,
            other => panic!("it was written, and is {other:?}"),
        }
    };
    volume.write(ino, 0, &[1; 4096]).expect("a write");
    let home = home_of(&volume);
    volume.journal().checkpoint().expect("a checkpoint");
    set_size(&volume, ino, 0).expect("a truncate");
    volume.sync().expect("a sync");
    volume.journal().read(home).expect("a late read");
    bench.device.write(home.offset_bytes(), &[3; 4096]).expect("a late checkpoint");
    let mut data = [1; 4096];
    data[0] = 2;
    volume.write(ino, 0, &data).expect("a write");
    assert_eq!(home_of(&volume), home, "the block is allocated again");
    volume.sync().expect("a sync");
    drop(volume); // a crash
    let volume = bench.open();
    assert!(read_all(&volume, ino, 4096) == data, "made out of what was never there");
}

/// The size of the write counts, not that of its part of each block: `docs/explanation/papers.md`.
#[test]
fn selective_writes_a_large_write_in_place_with_its_part_of_a_block() {
    let bench = Bench::new(DataMode::Selective, 64, 1);
    let (volume, ino) = (bench.open(), bench.files[0]);
    volume.write(ino, 0, &[1; 16 << 12]).expect("a write");
    volume.sync().expect("a sync");
    volume.journal().checkpoint().expect("a checkpoint");
    // Bytes, and then the bytes written in place and the blocks logged.
    for (len_bytes, in_place_bytes, logged_blocks) in [(6144, 8192, 0), (2048, 0, 1)] {
        let before = volume.journal().stats();
        volume.write(ino, 0, &[2; 6144][..len_bytes]).expect("a write");
        volume.sync().expect("a sync");
        let after = volume.journal().stats();
        assert_eq!(after.in_place_bytes - before.in_place_bytes, in_place_bytes, "{len_bytes}");
        let form = usize::from(FORM_EXTENT - 1);
        let logged = after.blocks_by_form[form] - before.blocks_by_form[form];
        assert_eq!(logged, logged_blocks, "{len_bytes}");
    }
}
