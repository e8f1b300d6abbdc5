//! Tests of real disks: files, and loop devices where the tests may make some.

use std::fs::{self, File};
use std::path::PathBuf;

use host::{LoopDevice, LoopOptions};
use onejournal_testing::{has_loop_devices, has_shm, has_uring};
use tempfile::{NamedTempFile, TempDir};

use super::*;

const SIZE_BYTES: u64 = 8 << 20;

/// A file of zeros, on a disk file system (not on tmpfs) where there is one.
fn backing() -> NamedTempFile {
    let file = tempfile::Builder::new().tempfile_in("/var/tmp").expect("temporary file");
    fs::write(file.path(), vec![0; SIZE_BYTES as usize]).expect("zeros");
    file
}

/// A loop device over `file`, detached when dropped. `None`, with a message, if loop devices
/// cannot be used.
fn attach(file: &File) -> Option<LoopDevice> {
    if !has_loop_devices() {
        return None;
    }
    let options = LoopOptions { autoclear: true, direct_io: true, ..LoopOptions::default() };
    Some(LoopDevice::attach(file, options).expect("attach"))
}

/// Flushes that the loop device at `path` has completed.
fn flush_count(path: &Path) -> u64 {
    let name = path.file_name().expect("a name").to_string_lossy().into_owned();
    let stat = fs::read_to_string(format!("/sys/block/{name}/stat")).expect("statistics");
    stat.split_whitespace().nth(15).expect("flushes").parse().expect("a number")
}

fn numbered(len_bytes: usize, seed: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..len_bytes).map(|_| rng.u8(..)).collect()
}

/// Many writes at a time all arrive, and an error of one is told.
fn write_spans_and_read_back(disk: &Disk) {
    let data = numbered(64 * 4096, 3);
    let offsets = (0..64_u64).map(|index| 4096 * (index * 29 % 64 * 2));
    let spans: Vec<(u64, &[u8])> = offsets.zip(data.chunks(4096)).collect();
    disk.write_spans(&spans, 8).expect("all of them");
    for (offset, data) in &spans {
        let mut found = vec![0; 4096];
        disk.read(*offset, &mut found).expect("read");
        assert!(found == *data, "at {offset}");
    }
    let mut bad = spans.clone();
    bad.push((SIZE_BYTES, &data[..4096]));
    disk.write_spans(&bad, 8).expect_err("outside of the disk");
}

/// Writes in every way, at aligned and unaligned addresses, and reads it all back.
fn write_and_read_back(disk: &Disk) {
    let mut expected = vec![0; SIZE_BYTES as usize];
    let mut put = |offset: usize, data: &[u8]| {
        expected[offset..offset + data.len()].copy_from_slice(data);
        offset as u64
    };
    let unaligned = numbered(1 + (3 << 20), 1);
    let aligned = AlignedBuf::from_slice(&numbered(8192, 2));
    disk.write_durable(put(0, &aligned), &aligned).expect("aligned");
    disk.write_durable(put(1 << 20, &unaligned[1..]), &unaligned[1..]).expect("large");
    disk.write(put(5 << 20, &unaligned[1..4097]), &unaligned[1..4097]).expect("plain");
    disk.flush().expect("flush");
    let end = SIZE_BYTES as usize - 4096;
    disk.write_durable(put(end, &aligned[..4096]), &aligned[..4096]).expect("at the end");
    let mut found = vec![0; SIZE_BYTES as usize + 1];
    disk.read(0, &mut found[1..]).expect("read");
    assert!(found[1..] == expected);
    write_spans_and_read_back(disk);
    let mut part = AlignedBuf::zeroed(4096);
    disk.read(4096, &mut part).expect("read");
    assert!(part[..] == expected[4096..8192]);
}

fn open_error(path: impl AsRef<Path>, access: Access) -> String {
    let error = Disk::open(path, access).err().expect("must be refused");
    assert_eq!(error.operation, Operation::Open);
    error.to_string()
}

#[test]
fn a_file_holds_what_was_written() {
    let file = backing();
    let disk = Disk::open(file.path(), Access::ReadWrite).expect("open");
    assert_eq!(disk.size_bytes(), SIZE_BYTES);
    assert!((512..=4096).contains(&disk.sector_bytes()));
    write_and_read_back(&disk);
}

#[test]
fn a_file_without_rwf_dsync_is_written_and_synced() {
    let file = backing();
    let disk = Disk::open(file.path(), Access::ReadWrite).expect("open");
    disk.dsync.store(false, Ordering::Relaxed);
    write_and_read_back(&disk);
}

#[test]
fn memory_is_never_called_durable() {
    if !has_shm() {
        return;
    }
    let file = tempfile::Builder::new().tempfile_in("/dev/shm").expect("temporary file");
    file.as_file().set_len(SIZE_BYTES).expect("size");
    let disk = Disk::open(file.path(), Access::ReadWrite).expect("open");
    assert_eq!(disk.durability(), Durability::Process);
    write_and_read_back(&disk);
    drop(disk);
    let Some(device) = attach(file.as_file()) else { return };
    let disk = Disk::open(device.path(), Access::ReadWrite).expect("open");
    assert_eq!(disk.durability(), Durability::Process);
}

#[test]
fn a_writer_is_alone_and_readers_share() {
    let file = backing();
    let reader = Disk::open(file.path(), Access::ReadOnly).expect("first reader");
    let second = Disk::open(file.path(), Access::ReadOnly).expect("second reader");
    assert!(open_error(file.path(), Access::ReadWrite).contains("in use"));
    drop((reader, second));
    let writer = Disk::open(file.path(), Access::ReadWrite).expect("writer");
    assert!(open_error(file.path(), Access::ReadWrite).contains("in use"));
    assert!(open_error(file.path(), Access::ReadOnly).contains("in use"));
    drop(writer);
    Disk::open(file.path(), Access::ReadWrite).expect("free again");
}

/// Between the two no other user can have it.
#[test]
fn a_disk_that_is_taken_over_stays_claimed() {
    let file = backing();
    let mut ways = vec![(file.path().to_owned(), None)];
    ways.extend(attach(file.as_file()).map(|device| (device.path().to_owned(), Some(device))));
    for (path, _device) in ways {
        let disk = Disk::open(&path, Access::ReadWrite).expect("open");
        disk.write_durable(4096, &[7; 4096]).expect("written");
        let held = disk.held().expect("held");
        drop(disk);
        assert!(open_error(&path, Access::ReadWrite).contains("in use"));
        assert!(open_error(file.path(), Access::ReadWrite).contains("in use"));
        let disk = Disk::take_over(&path, held).expect("taken over");
        assert_eq!(disk.access(), Access::ReadWrite);
        let mut found = [0; 4096];
        disk.read(4096, &mut found).expect("read");
        assert_eq!(found, [7; 4096]);
        disk.write_durable(0, &found).expect("written");
        assert!(open_error(file.path(), Access::ReadWrite).contains("in use"));
        file.as_file().set_len(4096).expect("cut");
        disk.write(0, &found).expect_err("it is too short");
        file.as_file().set_len(SIZE_BYTES).expect("long again");
        drop(disk);
        Disk::open(&path, Access::ReadWrite).expect("free again");
    }
}

#[test]
fn a_path_without_a_disk_is_refused_with_the_reason() {
    let dir = TempDir::new().expect("directory");
    let missing: PathBuf = dir.path().join("missing");
    let small = NamedTempFile::new().expect("temporary file");
    small.as_file().set_len(511).expect("size");
    for access in [Access::ReadOnly, Access::ReadWrite] {
        assert!(open_error(dir.path(), access).contains("is a directory"));
        assert!(open_error("/dev/null", access).contains("is a character device"));
        assert!(open_error(&missing, access).contains("No such file"));
        assert!(open_error(small.path(), access).contains("smaller than one sector"));
    }
}

#[test]
fn a_file_that_the_user_may_not_open_is_refused() {
    let open = || open_error("/etc/shadow", Access::ReadWrite);
    // Root may open everything. The user of a thread is its own.
    let open_as_user = move || {
        let nobody = rustix::process::Uid::from_raw(65_534);
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("root may change it");
        open()
    };
    let error = match rustix::process::geteuid().is_root() {
        true => std::thread::spawn(open_as_user).join().expect("it ends"),
        false => open(),
    };
    assert!(error.contains("Permission denied"), "{error}");
}

#[test]
fn the_size_is_made_of_whole_sectors() {
    let file = backing();
    file.as_file().set_len(SIZE_BYTES - 1).expect("size");
    let disk = Disk::open(file.path(), Access::ReadOnly).expect("open");
    assert_eq!(disk.size_bytes(), SIZE_BYTES - disk.sector_bytes() as u64);
}

#[test]
fn spans_outside_and_writes_to_a_reader_are_refused() {
    let file = backing();
    let disk = Disk::open(file.path(), Access::ReadOnly).expect("open");
    disk.read(SIZE_BYTES, &mut [0; 4096]).expect_err("outside");
    let error = disk.write_durable(0, &[0; 4096]).expect_err("opened for reading");
    assert_eq!(error.source.kind(), io::ErrorKind::PermissionDenied);
}

#[test]
fn a_disk_that_has_shrunk_gives_an_error() {
    let file = backing();
    let disk = Disk::open(file.path(), Access::ReadOnly).expect("open");
    file.as_file().set_len(4096).expect("size");
    let error = disk.read(0, &mut [0; 8192]).expect_err("half of it is gone");
    assert_eq!(error.source.kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn a_block_device_holds_what_was_written() {
    let file = backing();
    let Some(device) = attach(file.as_file()) else { return };
    let mut disk = Disk::open(device.path(), Access::ReadWrite).expect("open");
    assert_eq!(disk.size_bytes(), SIZE_BYTES);
    assert_eq!(disk.durability(), Durability::Power);
    write_and_read_back(&disk);
    disk.write(0, &vec![0; SIZE_BYTES as usize]).expect("zeros");
    disk.rings = None;
    write_and_read_back(&disk);
}

#[test]
fn a_durable_write_to_a_block_device_costs_one_flush() {
    let file = backing();
    let Some(device) = attach(file.as_file()) else { return };
    let mut disk = Disk::open(device.path(), Access::ReadWrite).expect("open");
    let flushes = |disk: &Disk, len_bytes: usize, durable: bool| {
        let before = flush_count(device.path());
        let data = AlignedBuf::zeroed(len_bytes);
        match durable {
            true => disk.write_durable(0, &data).expect("durable write"),
            false => disk.write(0, &data).expect("write"),
        }
        flush_count(device.path()) - before
    };
    // Without io_uring, the other way is tested twice.
    assert_eq!(disk.rings.is_some(), has_uring());
    for _ in 0..2 {
        for len_bytes in [512, 4096, 16 << 10, 64 << 10, 1 << 20, 3 << 20] {
            assert_eq!(flushes(&disk, len_bytes, true), 1, "{len_bytes} bytes");
        }
        assert_eq!(flushes(&disk, 4096, false), 0);
        disk.rings = None;
    }
    let before = flush_count(device.path());
    disk.flush().expect("flush");
    assert_eq!(flush_count(device.path()) - before, 1);
}

#[test]
fn a_write_without_a_flush_is_offered_only_where_one_request_does() {
    let file = backing();
    let data = AlignedBuf::from_slice(&numbered(4096, 5));
    let disk = Disk::open(file.path(), Access::ReadWrite).expect("open");
    assert!(disk.write_fua(0, &data).is_none(), "a file");
    drop(disk);
    let Some(device) = attach(file.as_file()) else { return };
    let mut disk = Disk::open(device.path(), Access::ReadWrite).expect("open");
    disk.geometry.needs_no_flush = false;
    assert!(disk.write_fua(0, &data).is_none(), "a device without FUA");
    disk.geometry.needs_no_flush = true;
    let large = vec![0; usize::try_from(disk.geometry.request_bytes_max).expect("small") + 4096];
    assert!(disk.write_fua(0, &large).is_none(), "more than one request");
    if !has_uring() {
        return;
    }
    disk.write_fua(8192, &data).expect("one request").expect("write");
    disk.write_fua(SIZE_BYTES, &data).expect("tried").expect_err("outside of the disk");
    let mut found = AlignedBuf::zeroed(4096);
    disk.read(8192, &mut found).expect("read");
    assert!(found[..] == data[..]);
    disk.rings = None;
    assert!(disk.write_fua(0, &data).is_none(), "no io_uring");
}

#[test]
fn threads_write_durably_at_the_same_time() {
    let file = backing();
    let Some(device) = attach(file.as_file()) else { return };
    let disk = Disk::open(device.path(), Access::ReadWrite).expect("open");
    let area_bytes = 1 << 20;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let disk = &disk;
            scope.spawn(move || {
                for n in 0..40 {
                    let offset = thread * area_bytes + n * 8192;
                    disk.write_durable(offset, &numbered(8192, offset)).expect("write");
                }
            });
        }
    });
    for offset in (0..4).flat_map(|thread| (0..40).map(move |n| thread * area_bytes + n * 8192)) {
        let mut found = AlignedBuf::zeroed(8192);
        disk.read(offset, &mut found).expect("read");
        assert!(found[..] == numbered(8192, offset), "at {offset}");
    }
}

#[test]
fn a_block_device_is_claimed_against_the_kernel_until_released() {
    let file = backing();
    let Some(device) = attach(file.as_file()) else { return };
    let claim = || {
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::EXCL;
        rustix::fs::open(device.path(), flags, rustix::fs::Mode::empty())
    };
    let other = claim().expect("nobody else has it");
    assert!(open_error(device.path(), Access::ReadWrite).contains("in use"));
    drop(other);
    let disk = Disk::open(device.path(), Access::ReadWrite).expect("open");
    assert_eq!(claim().err(), Some(Errno::BUSY));
    disk.release_exclusive();
    let other = claim().expect("released");
    disk.write_durable(0, &[1; 4096]).expect("still open");
    drop(other);
    assert!(open_error(device.path(), Access::ReadWrite).contains("in use"), "still locked");
}

/// Writing would make the file long again, and hide that it has lost data.
#[test]
fn regression_a_file_that_was_cut_is_written_no_more() {
    type Act = fn(&Disk) -> Result<()>;
    let sector = || AlignedBuf::zeroed(4096);
    let acts: [(&str, Act); 4] = [
        ("write", |disk| disk.write(SIZE_BYTES - 4096, &AlignedBuf::zeroed(4096))),
        ("durable write", |disk| disk.write_durable(0, &AlignedBuf::zeroed(4096))),
        ("flush", |disk| disk.flush()),
        ("read", |disk| disk.read(SIZE_BYTES - 4096, &mut AlignedBuf::zeroed(4096))),
    ];
    for (name, act) in acts {
        let file = backing();
        let disk = Disk::open(file.path(), Access::ReadWrite).expect("open");
        act(&disk).expect(name);
        file.as_file().set_len(SIZE_BYTES / 2).expect("cut");
        assert!(act(&disk).expect_err(name).is_shrunk(), "{name}");
        let len_bytes = file.as_file().metadata().expect("metadata").len();
        assert_eq!(len_bytes, SIZE_BYTES / 2, "{name} has made it long again");
        // It is never believed again; what is left can be read.
        file.as_file().set_len(SIZE_BYTES).expect("long again");
        disk.write_durable(0, &sector()).expect_err("a write");
        disk.flush().expect_err("a flush");
        disk.read(SIZE_BYTES / 2, &mut sector()).expect_err("what is lost");
        disk.read(SIZE_BYTES / 2 - 4096, &mut sector()).expect("what is left");
    }
}

/// The kernel reads zeros after the end of the file, and writing makes it long again.
#[test]
fn regression_a_loop_device_whose_file_was_cut_is_written_no_more() {
    let file = backing();
    let Some(device) = attach(file.as_file()) else { return };
    let disk = Disk::open(device.path(), Access::ReadWrite).expect("open");
    let mut sector = AlignedBuf::zeroed(4096);
    disk.write_durable(SIZE_BYTES / 2 - 4096, &AlignedBuf::from_slice(&[7; 4096])).expect("whole");
    file.as_file().set_len(SIZE_BYTES / 2).expect("cut");
    let lost = disk.read(SIZE_BYTES - 4096, &mut sector);
    assert!(lost.expect_err("it is lost").is_shrunk());
    disk.write(SIZE_BYTES - 4096, &sector).expect_err("a write");
    disk.write_durable(0, &sector).expect_err("a durable write");
    if let Some(written) = disk.write_fua(0, &sector) {
        written.expect_err("a durable write");
    }
    disk.flush().expect_err("a flush");
    disk.read(SIZE_BYTES / 2 - 4096, &mut sector).expect("it is left");
    assert!(sector.iter().all(|byte| *byte == 7));
    assert_eq!(file.as_file().metadata().expect("metadata").len(), SIZE_BYTES / 2);
    drop(disk);
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let error = open_error(device.path(), access);
        assert!(error.contains("was made shorter"), "{error}");
    }
}

#[test]
fn an_error_for_want_of_room_says_which_storage_is_full() {
    let full = || io::Error::from(Errno::NOSPC);
    let file = backing();
    let image = Disk::open(file.path(), Access::ReadWrite).expect("open");
    let error = image.explained(full());
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    let text = error.to_string();
    assert!(text.starts_with("No space left on device"), "{text}");
    assert!(
        text.contains("the file system that holds the image is full, not the volume"),
        "{text}"
    );
    assert_eq!(image.explained(io::Error::other("broken")).to_string(), "broken");
    drop(image);
    let shared = Disk::share(file.path(), file.reopen().expect("open").into()).expect("share");
    let text = shared.explained(full()).to_string();
    assert!(text.contains("holds the file is full") && !text.contains("volume"), "{text}");
    drop(shared);
    let Some(device) = attach(file.as_file()) else { return };
    let disk = Disk::open(device.path(), Access::ReadWrite).expect("open");
    let text = disk.explained(full()).to_string();
    assert!(text.contains("the storage below the block device is full"), "{text}");
}
