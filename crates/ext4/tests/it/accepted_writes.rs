//! A write that was accepted before its data are home, as the FUSE adapter answers it. No thread
//! may see, sync or free data that are not there yet.

use crate::common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::Scope;
use std::time::Duration;

use common::{Image, make, open_in};
use device::{BlockDevice, MemoryDevice, Operation};
use onejournal_ext4::{Allocate, DataMode, Error, InodeNo, Result, RootVolume, SetAttr};
use onejournal_testing::{Fault, Layer, Layered, SimDevice, Survival};

const LEN: usize = 256 << 10;

fn simulated(size: &str) -> (Image, Arc<SimDevice>) {
    let image = Image::new(&[], size);
    let device = image.sim_device();
    (image, device)
}

fn read(volume: &RootVolume, ino: InodeNo, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xEE; len];
    let count = volume.read(ino, 0, &mut bytes).unwrap();
    bytes.truncate(count);
    bytes
}

/// Every byte of the file, if they are all the same.
fn only_byte(volume: &RootVolume, ino: InodeNo) -> Option<u8> {
    let bytes = read(volume, ino, 2 * LEN);
    bytes.iter().all(|byte| *byte == bytes[0]).then(|| bytes[0])
}

/// The name's file as the next opening finds it after a power cut now.
fn byte_after_crash(device: &SimDevice) -> Option<u8> {
    let crashed = Arc::new(SimDevice::from_image(device.crash(Survival::Nothing), 512));
    let volume = open_in(crashed, DataMode::Ordered);
    only_byte(&volume, volume.lookup(InodeNo::ROOT, b"file").unwrap().ino)
}

/// Starts `work`, which must not be done while the caller goes on.
fn must_wait<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Receiver<T> {
    let (sender, receiver) = channel();
    scope.spawn(move || sender.send(work()));
    let (relay, result) = channel();
    match receiver.recv_timeout(Duration::from_millis(50)) {
        Err(RecvTimeoutError::Timeout) => {}
        _ => panic!("it did not wait for the data of an accepted write"),
    }
    scope.spawn(move || receiver.recv().map(|value| relay.send(value)));
    result
}

/// Writes `LEN` nines to the file; once that is accepted, `work` has to wait. Gives its result.
fn while_accepted<T: Send>(volume: &RootVolume, ino: InodeNo, work: impl Fn() -> T + Sync) -> T {
    std::thread::scope(|scope| {
        let mut waiting = None;
        let work = &work;
        let mut accepted = |_| waiting = Some(must_wait(scope, work));
        assert_eq!(volume.write_accepting(ino, 0, &[9; LEN], false, &mut accepted).unwrap(), LEN);
        waiting.expect("it was accepted").recv().unwrap()
    })
}

/// Runs `check` on a file whose blocks are new, and on one that was written and synced before.
fn on_new_and_old_blocks(check: impl Fn(&RootVolume, InodeNo, &SimDevice)) {
    for is_old in [false, true] {
        let (image, device) = simulated("64M");
        let volume = open_in(device.clone(), DataMode::Ordered);
        let ino = make(&volume, "file");
        if is_old {
            volume.write(ino, 0, &[1; LEN]).unwrap();
        }
        volume.sync().unwrap();
        check(&volume, ino, &device);
        volume.close().unwrap();
        let mut bytes = vec![0; usize::try_from(device.size_bytes()).unwrap()];
        device.read(0, &mut bytes).unwrap();
        image.assert_clean(&MemoryDevice::from_bytes(bytes, 512));
    }
}

#[test]
fn readers_see_it() {
    on_new_and_old_blocks(|volume, ino, _| {
        assert_eq!(while_accepted(volume, ino, || only_byte(volume, ino)), Some(9));
    });
}

#[test]
fn every_kind_of_sync_makes_it_durable() {
    on_new_and_old_blocks(|volume, ino, device| {
        let fsync = |data_only| {
            volume.fsync(ino, data_only).unwrap();
            byte_after_crash(device)
        };
        assert_eq!(while_accepted(volume, ino, || fsync(true)), Some(9));
        volume.write(ino, 0, &[2; LEN]).unwrap();
        assert_eq!(while_accepted(volume, ino, || fsync(false)), Some(9));
        volume.write(ino, 0, &[3; LEN]).unwrap();
        let sync = || {
            volume.sync().unwrap();
            byte_after_crash(device)
        };
        assert_eq!(while_accepted(volume, ino, sync), Some(9));
    });
}

/// No transaction waits for data in `writeback` mode: only the file's own sync used to.
#[test]
fn regression_a_sync_of_the_volume_waits_for_it_in_writeback_mode() {
    let (_image, device) = simulated("64M");
    let volume = open_in(device.clone(), DataMode::Writeback);
    let ino = make(&volume, "file");
    volume.write(ino, 0, &[1; LEN]).unwrap();
    volume.sync().unwrap();
    let sync = || {
        volume.sync().unwrap();
        byte_after_crash(&device)
    };
    assert_eq!(while_accepted(&volume, ino, sync), Some(9));
    volume.close().unwrap();
}

#[test]
fn later_writes_win() {
    on_new_and_old_blocks(|volume, ino, device| {
        for (byte, piece) in [(4, 4096), (5, LEN)] {
            let overwrite = || volume.write(ino, 0, &vec![byte; piece]).unwrap();
            assert_eq!(while_accepted(volume, ino, overwrite), piece);
            assert_eq!(read(volume, ino, 4096), [byte; 4096]);
            volume.fsync(ino, true).unwrap();
            volume.write(ino, 4096, &vec![byte; LEN - 4096]).unwrap();
            volume.fsync(ino, true).unwrap();
            assert_eq!(byte_after_crash(device), Some(byte));
        }
    });
}

/// On a full volume, so that another file gets the very blocks.
#[test]
fn its_blocks_are_not_freed_under_it() {
    type Free = fn(&RootVolume, InodeNo) -> Result<()>;
    let frees: [Free; 3] = [
        |volume, ino| {
            let change = SetAttr { size_bytes: Some(0), ..SetAttr::default() };
            volume.set_attr(ino, &change).map(|_| ())
        },
        |volume, ino| volume.fallocate(ino, Allocate::PunchHole, 0, LEN as u64),
        |volume, ino| {
            volume.unlink(InodeNo::ROOT, b"file")?;
            volume.forget(ino, 1);
            Ok(())
        },
    ];
    for free in frees {
        let (_image, device) = simulated("16M");
        let volume = open_in(device.clone(), DataMode::Ordered);
        let (ino, other, filler) =
            (make(&volume, "file"), make(&volume, "other"), make(&volume, "filler"));
        volume.write(ino, 0, &[1; LEN]).unwrap();
        let mut filled = 0;
        while let Ok(count) = volume.write(filler, filled, &[2; LEN]) {
            filled += count as u64;
        }
        volume.sync().unwrap();
        let reuse = || {
            free(&volume, ino).unwrap();
            volume.sync().unwrap();
            let count = volume.write(other, 0, &[7; LEN]).unwrap();
            volume.fsync(other, false).unwrap();
            count
        };
        assert_eq!(while_accepted(&volume, ino, reuse), LEN);
        assert_eq!(read(&volume, other, LEN), [7; LEN]);
    }
}

#[test]
fn when_the_device_fails_then_no_sync_succeeds_any_more() {
    on_failure(|volume, ino| volume.fsync(ino, true));
    on_failure(|volume, ino| volume.fsync(ino, false));
    on_failure(|volume, _| volume.sync());
}

fn on_failure(sync: impl Fn(&RootVolume, InodeNo) -> Result<()>) {
    for is_old in [false, true] {
        let (_image, device) = simulated("64M");
        let volume = open_in(device.clone(), DataMode::Ordered);
        let ino = make(&volume, "file");
        if is_old {
            volume.write(ino, 0, &[1; LEN]).unwrap();
        }
        volume.sync().unwrap();
        let mut accepted_count = 0;
        let mut accepted = |_| {
            accepted_count += 1;
            device.inject(Fault::once(Operation::Write, 0));
        };
        volume.write_accepting(ino, 0, &[9; LEN], false, &mut accepted).unwrap_err();
        assert_eq!(accepted_count, 1);
        sync(&volume, ino).unwrap_err();
        sync(&volume, ino).unwrap_err();
        volume.write(ino, 0, b"more").unwrap_err();
        drop(volume);
        let crashed = Arc::new(SimDevice::from_image(device.crash(Survival::Nothing), 512));
        let volume = open_in(crashed, DataMode::Ordered);
        let expected = if is_old { LEN } else { 0 };
        assert_eq!(read(&volume, ino, 2 * LEN), vec![1; expected]);
    }
}

/// The blocks belong to the file already, and what a deleted file left in them could be read.
#[test]
fn regression_a_failed_write_does_not_expose_old_bytes_of_new_blocks() {
    for (mode, is_old) in [
        (DataMode::Ordered, false),
        (DataMode::Writeback, false),
        (DataMode::Auto, false),
        (DataMode::Ordered, true),
    ] {
        let image = Image::on_garbage(&[], 64);
        let device = image.sim_device();
        let volume = open_in(device.clone(), mode);
        let (ino, other) = (make(&volume, "file"), make(&volume, "other"));
        volume.write(other, 0, &[1; LEN]).unwrap();
        if is_old {
            volume.write(ino, 0, &[1; LEN]).unwrap();
        }
        volume.sync().unwrap();
        let mut accepted = |_| {
            if mode == DataMode::Writeback {
                // No commit waits for its data.
                volume.journal().sync(volume.journal().running_tid()).unwrap();
            }
            device.inject(Fault::once(Operation::Write, 0));
        };
        volume.write_accepting(ino, 0, &[9; LEN], false, &mut accepted).unwrap_err();
        let mut bytes = [0; 4096];
        let found = volume.read(ino, 0, &mut bytes);
        if is_old {
            // One's own data, old or new.
            assert!(found.is_ok() && bytes.iter().all(|byte| [1, 9].contains(byte)));
        } else {
            assert!(matches!(found, Err(Error::Journal(_))), "{mode:?}: {:?}", bytes[0]);
        }
        assert_eq!(only_byte(&volume, other), Some(1), "other files can be read");
        // The last pin goes. The in-core inode still knows that its content is lost.
        volume.forget(ino, 1);
        (0..100).for_each(|nth| drop(volume.get_xattr(InodeNo(20 + nth), b"user.a")));
        assert_eq!(volume.read(ino, 0, &mut bytes).is_ok(), is_old);
    }
}

#[test]
fn it_is_accepted_once_as_a_whole_or_not_at_all() {
    let accepted = |mode, offset, data: &[u8]| {
        let (_image, device) = simulated("64M");
        let volume = open_in(device.clone(), mode);
        let ino = make(&volume, "file");
        let mut counts = Vec::new();
        let written =
            volume.write_accepting(ino, offset, data, true, &mut |count| counts.push(count));
        (written, counts)
    };
    let all = |mode, offset, len: usize| {
        let (written, counts) = accepted(mode, offset, &vec![5; len]);
        assert_eq!(written.unwrap(), len);
        counts
    };
    assert_eq!(all(DataMode::Ordered, 0, LEN), [LEN]);
    assert_eq!(all(DataMode::Ordered, 100, 20 << 20), [20 << 20], "in several operations");
    assert!(all(DataMode::Ordered, 0, 8192).is_empty(), "buffered");
    assert!(all(DataMode::Journal, 0, LEN).is_empty(), "journaled");
    let (written, counts) = accepted(DataMode::Ordered, 0, &vec![5; 100 << 20]);
    assert!(written.unwrap() < 100 << 20);
    assert!(counts.is_empty(), "a volume that fills up on the way");
    let (written, counts) = accepted(DataMode::Ordered, u64::MAX, &[5; LEN]);
    assert!(matches!(written, Err(Error::FileTooBig)) && counts.is_empty());
}

/// Runs something before the next durable write.
struct BeforeDurableWrite {
    is_armed: AtomicBool,
    hook: Box<dyn Fn() + Send + Sync>,
}

impl Layer for BeforeDurableWrite {
    fn write_durable(
        &self,
        device: &dyn BlockDevice,
        offset: u64,
        data: &[u8],
    ) -> device::Result<()> {
        if self.is_armed.swap(false, Ordering::SeqCst) {
            (self.hook)();
        }
        device.write_durable(offset, data)
    }
}

/// An overwrite that comes while the commit of the file's growth is past its flush: `fdatasync`
/// waits for that commit, which has not made the overwrite durable.
#[test]
fn regression_fdatasync_covers_an_overwrite_behind_the_flush_of_a_commit() {
    for len in [4096, LEN] {
        let image = Image::new(&[], "64M");
        let (in_commit, commit_began) = channel();
        let (go_on, may_go_on) = channel::<()>();
        let may_go_on = std::sync::Mutex::new(may_go_on);
        let hook = Box::new(move || {
            in_commit.send(()).unwrap();
            may_go_on.lock().unwrap().recv().unwrap();
        });
        let layer = BeforeDurableWrite { is_armed: AtomicBool::new(false), hook };
        let device = Arc::new(Layered::new(image.sim_device(), layer));
        let volume = open_in(device.clone(), DataMode::Ordered);
        let ino = make(&volume, "file");
        volume.write(ino, 0, &vec![1; len]).unwrap();
        device.layer.is_armed.store(true, Ordering::SeqCst);
        std::thread::scope(|scope| {
            let commit = scope.spawn(|| volume.sync());
            commit_began.recv().unwrap();
            volume.write(ino, 0, &vec![9; len]).unwrap();
            let fdatasync = scope.spawn(|| {
                volume.fsync(ino, true).unwrap();
                byte_after_crash(&device.device)
            });
            // It shall find the commit under way; coming later it would have an easy task.
            std::thread::sleep(Duration::from_millis(100));
            go_on.send(()).unwrap();
            assert_eq!(fdatasync.join().unwrap(), Some(9), "{len} bytes");
            commit.join().unwrap().unwrap();
        });
    }
}
