//! Tests of mapped memory: on tmpfs, on the disk, and on the NVRAM that the environment names.

use std::fs::{self, File};
use std::path::PathBuf;

use fastrand::Rng;
use onejournal_testing::{Need, has_disk, has_shm, skip};
use tempfile::TempDir;

use super::*;
use Durability::{Power, Process, Reboot};

const LEN_BYTES: u64 = 256 << 10;

/// The media that a virtual machine has for the tests (`scripts/nvram-vm`). Each constant is the
/// name of an environment variable. A DAX device, or a directory on a DAX file system, of an
/// NVDIMM.
const NVRAM_VARIABLE: &str = "ONEJOURNAL_TEST_NVRAM";
/// A directory on a DAX file system of reserved memory.
const RESERVED_VARIABLE: &str = "ONEJOURNAL_TEST_RESERVED";
/// A directory on hugetlbfs with pages of 2 MiB.
const HUGE_VARIABLE: &str = "ONEJOURNAL_TEST_HUGE";
/// A block device, or a file on a file system without DAX.
const REFUSED_VARIABLE: &str = "ONEJOURNAL_TEST_REFUSED";

/// The path in `variable`; `None`, with a message, if it is not set.
fn medium_of(variable: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable).map(PathBuf::from);
    if path.is_none() {
        skip(Need::Nvram, format!("{variable} names no medium"));
    }
    path
}

/// A directory on tmpfs; `None`, with a message, if there is none.
fn memory_directory() -> Option<TempDir> {
    has_shm().then(|| tempfile::tempdir_in("/dev/shm").expect("directory"))
}

fn file_of(directory: &Path, len_bytes: u64) -> PathBuf {
    let path = directory.join("nvram");
    File::create(&path).and_then(|file| file.set_len(len_bytes)).expect("a file");
    path
}

fn refusal(opened: Result<MappedNvram>) -> String {
    let error = opened.err().expect("must be refused");
    assert_eq!(error.operation, Operation::Open);
    error.to_string()
}

/// Stores at any alignment in every way, and loads it all back.
fn store_and_load_back(nvram: &MappedNvram) {
    let len_bytes = usize::try_from(nvram.len_bytes().min(LEN_BYTES)).expect("fits");
    let mut expected = vec![0; len_bytes];
    nvram.write_durable(0, &[&expected]).expect("zeros");
    let mut rng = Rng::with_seed(9);
    for round in 0..2000 {
        let start = rng.usize(..len_bytes);
        let data: Vec<u8> =
            (0..rng.usize(..3000.min(len_bytes - start))).map(|_| rng.u8(..)).collect();
        expected[start..start + data.len()].copy_from_slice(&data);
        let (head, tail) = data.split_at(rng.usize(..=data.len()));
        if round % 3 == 0 {
            nvram.store(start as u64, head).expect("store");
            nvram.store((start + head.len()) as u64, tail).expect("store");
            nvram.persist().expect("persist");
        } else {
            nvram.write_durable(start as u64, &[head, &[], tail]).expect("durable write");
        }
    }
    let mut found = vec![0; len_bytes];
    nvram.read(0, &mut found).expect("read");
    assert!(found == expected);
    let mut part = [0; 77];
    nvram.read(1001, &mut part).expect("read");
    assert!(part[..] == expected[1001..1078]);
}

fn check_ends(nvram: &MappedNvram) {
    let len_bytes = nvram.len_bytes();
    nvram.write_durable(len_bytes - 9, &[&[1; 4], &[2; 5]]).expect("up to the end");
    let error = nvram.write_durable(len_bytes - 8, &[&[1; 4], &[2; 5]]).expect_err("one more");
    assert!(error.to_string().contains("outside of the device"), "{error}");
    nvram.store(len_bytes, &[1]).expect_err("behind the end");
    nvram.read(u64::MAX, &mut [0; 2]).expect_err("behind all numbers");
    nvram.store(len_bytes, &[]).expect("nothing, at the end");
    let mut found = [0; 9];
    nvram.read(len_bytes - 9, &mut found).expect("read");
    assert_eq!(found, [1, 1, 1, 1, 2, 2, 2, 2, 2]);
}

#[test]
fn memory_of_our_own_holds_what_was_stored() {
    for stream_from_bytes in [0, 512, usize::MAX] {
        let nvram = MappedNvram::in_memory(LEN_BYTES as usize).expect("memory");
        let nvram = nvram.with_stream_from_bytes(stream_from_bytes);
        store_and_load_back(&nvram);
        check_ends(&nvram);
        assert_eq!(nvram.durability(), Process);
    }
}

#[test]
fn a_tmpfs_file_holds_what_was_stored_after_it_was_closed() {
    let Some(directory) = memory_directory() else { return };
    let path = directory.path().join("new");
    let nvram = MappedNvram::create(&path, LEN_BYTES, Some(Process)).expect("create");
    assert_eq!((nvram.len_bytes(), nvram.durability()), (LEN_BYTES, Process));
    store_and_load_back(&nvram);
    check_ends(&nvram);
    let mut stored = vec![0; LEN_BYTES as usize];
    nvram.read(0, &mut stored).expect("read");
    drop(nvram);
    assert!(fs::read(&path).expect("the file") == stored);
    let again = MappedNvram::open(&path, Access::ReadWrite, Some(Process)).expect("open");
    let mut found = vec![0; LEN_BYTES as usize];
    again.read(0, &mut found).expect("read");
    assert!(found == stored);
}

#[test]
fn ordinary_memory_is_refused_unless_called_by_its_name() {
    let Some(directory) = memory_directory() else { return };
    let path = file_of(directory.path(), LEN_BYTES);
    let open = |asked| MappedNvram::open(&path, Access::ReadWrite, asked);
    let message = refusal(open(None));
    assert!(message.contains("durability=process"), "{message}");
    for asked in [Power, Reboot] {
        let message = refusal(open(Some(asked)));
        assert!(message.contains("cannot give durability="), "{message}");
        assert!(message.contains("say durability=process"), "{message}");
    }
    open(Some(Process)).expect("called by its name");
}

#[test]
fn a_file_that_cannot_be_used_is_not_left_behind() {
    let Some(directory) = memory_directory() else { return };
    let path = directory.path().join("new");
    refusal(MappedNvram::create(&path, LEN_BYTES, None));
    assert!(!path.exists());
    refusal(MappedNvram::create(&path, 0, Some(Process)));
    assert!(!path.exists());
    let kept = file_of(directory.path(), 10);
    refusal(MappedNvram::create(&kept, LEN_BYTES, Some(Process)));
    assert_eq!(fs::metadata(&kept).expect("still there").len(), 10);
}

#[test]
fn a_sparse_file_gets_its_memory_when_it_is_opened() {
    use std::os::unix::fs::MetadataExt;
    let Some(directory) = memory_directory() else { return };
    let path = file_of(directory.path(), LEN_BYTES);
    assert_eq!(fs::metadata(&path).expect("metadata").blocks(), 0);
    let nvram = MappedNvram::open(&path, Access::ReadWrite, Some(Process)).expect("open");
    assert_eq!(fs::metadata(&path).expect("metadata").blocks() * 512, nvram.len_bytes());
}

#[test]
fn more_memory_than_there_is_is_an_error_and_no_signal() {
    let Some(directory) = memory_directory() else { return };
    let statvfs = rustix::fs::statvfs(directory.path()).expect("statvfs");
    let path = file_of(directory.path(), (statvfs.f_blocks + 1) * statvfs.f_frsize);
    let message = refusal(MappedNvram::open(&path, Access::ReadWrite, Some(Process)));
    assert!(message.contains("has no memory for its"), "{message}");
}

#[test]
fn a_second_user_is_refused_and_readers_share() {
    let Some(directory) = memory_directory() else { return };
    let path = file_of(directory.path(), LEN_BYTES);
    let open = |access| MappedNvram::open(&path, access, Some(Process));
    let first = open(Access::ReadWrite).expect("open");
    for access in [Access::ReadWrite, Access::ReadOnly] {
        assert!(refusal(open(access)).contains("in use"));
    }
    drop(first);
    let readers = [open(Access::ReadOnly), open(Access::ReadOnly)].map(|r| r.expect("reader"));
    assert!(refusal(open(Access::ReadWrite)).contains("in use"));
    let error = readers[0].store(0, &[1]).expect_err("read only");
    assert!(error.to_string().contains("opened for reading only"), "{error}");
    readers[0].write_durable(0, &[&[1]]).expect_err("read only");
    readers[1].read(0, &mut [0; 10]).expect("read");
}

#[test]
fn a_file_on_a_disk_is_refused_with_what_to_do() {
    if !has_disk() {
        return;
    }
    let directory = tempfile::tempdir_in("/var/tmp").expect("directory");
    let path = file_of(directory.path(), LEN_BYTES);
    for asked in [None, Some(Process), Some(Power)] {
        let message = refusal(MappedNvram::open(&path, Access::ReadWrite, asked));
        assert!(message.contains("-o dax") && message.contains("tmpfs"), "{message}");
    }
}

#[test]
fn a_path_without_memory_is_refused_with_the_reason() {
    let message = |path: &str| refusal(MappedNvram::open(path, Access::ReadOnly, Some(Process)));
    assert!(message("/").contains("is a directory"));
    assert!(message("/dev/null").contains("not a DAX device"));
    assert!(message("/dev/shm/there/is/none").contains("No such file"));
    let Some(directory) = memory_directory() else { return };
    let path = file_of(directory.path(), 0);
    let empty = refusal(MappedNvram::open(&path, Access::ReadOnly, Some(Process)));
    assert!(empty.contains("it has 0 bytes"), "{empty}");
}

#[test]
fn nvram_holds_what_was_stored() {
    let Some(path) = medium_of(NVRAM_VARIABLE) else { return };
    let nvram = if path.is_dir() {
        MappedNvram::create(path.join("nvram-test"), LEN_BYTES, None)
    } else {
        MappedNvram::open(&path, Access::ReadWrite, None)
    };
    let nvram = nvram.expect("NVRAM that assures power");
    assert_eq!(nvram.durability(), Power);
    store_and_load_back(&nvram);
    check_ends(&nvram);
}

#[test]
fn reserved_memory_is_what_the_user_says() {
    let Some(directory) = medium_of(RESERVED_VARIABLE) else { return };
    let path = file_of(&directory, LEN_BYTES);
    let open = |asked| MappedNvram::open(&path, Access::ReadWrite, asked);
    let message = refusal(open(None));
    assert!(
        message.contains("durability=power if it is an NVDIMM or a battery keeps it"),
        "{message}"
    );
    for asked in [Process, Reboot, Power] {
        let nvram = open(Some(asked)).expect("as the user says");
        assert_eq!(nvram.durability(), asked);
        store_and_load_back(&nvram);
    }
}

#[test]
fn huge_pages_are_memory_and_hold_what_was_stored() {
    let Some(directory) = medium_of(HUGE_VARIABLE) else { return };
    let path = directory.join("nvram");
    refusal(MappedNvram::create(&path, 4 << 20, None));
    refusal(MappedNvram::create(&path, LEN_BYTES, Some(Process)));
    let nvram = MappedNvram::create(&path, 4 << 20, Some(Process)).expect("create");
    store_and_load_back(&nvram);
    check_ends(&nvram);
    drop(nvram);
    let again = MappedNvram::open(&path, Access::ReadWrite, Some(Process)).expect("open");
    let mut found = [0; 5];
    again.read(again.len_bytes() - 5, &mut found).expect("read");
    assert_eq!(found, [2; 5]);
}

#[test]
fn a_file_without_synchronous_mappings_is_refused() {
    let Some(path) = medium_of(REFUSED_VARIABLE) else { return };
    for asked in [None, Some(Power), Some(Reboot), Some(Process)] {
        let message = refusal(MappedNvram::open(&path, Access::ReadWrite, asked));
        assert!(message.contains("-o dax"), "{message}");
    }
}

/// An access after the end would kill the process.
#[test]
fn regression_a_file_that_was_cut_is_stored_to_no_more() {
    let Some(directory) = memory_directory() else { return };
    let path = file_of(directory.path(), LEN_BYTES);
    let nvram = MappedNvram::open(&path, Access::ReadWrite, Some(Process)).expect("open");
    nvram.write_durable(0, &[&[1; 100]]).expect("whole");
    let file = File::options().write(true).open(&path).expect("open");
    file.set_len(LEN_BYTES / 2).expect("cut");
    for offset in [0, LEN_BYTES - 100] {
        let stored = nvram.store(offset, &[2; 100]);
        assert!(stored.expect_err("it was cut").is_shrunk());
        nvram.write_durable(offset, &[&[2; 100]]).expect_err("it was cut");
    }
    nvram.persist().expect_err("it was cut");
    let mut found = [0; 100];
    nvram.read(LEN_BYTES - 100, &mut found).expect_err("it is lost");
    nvram.read(0, &mut found).expect("it is left");
    assert_eq!(found, [1; 100]);
}

fn cut(path: &Path, len_bytes: u64) {
    File::options().write(true).open(path).and_then(|file| file.set_len(len_bytes)).expect("cut");
}

/// After any access has noticed the cut, no access stores anything.
#[test]
fn regression_a_file_that_was_cut_and_grown_is_stored_to_no_more() {
    let Some(directory) = memory_directory() else { return };
    let noticed_by: [fn(&MappedNvram) -> Result<()>; 3] = [
        |nvram| nvram.store(0, &[2; 100]),
        |nvram| nvram.read(LEN_BYTES - 100, &mut [0; 100]),
        MappedNvram::persist,
    ];
    for notice in noticed_by {
        let path = file_of(directory.path(), LEN_BYTES);
        let nvram = MappedNvram::open(&path, Access::ReadWrite, Some(Process)).expect("open");
        nvram.write_durable(0, &[&[1; 100]]).expect("whole");
        cut(&path, LEN_BYTES / 2);
        notice(&nvram).expect_err("it was cut");
        cut(&path, LEN_BYTES);
        for offset in [0, LEN_BYTES / 2, LEN_BYTES - 100] {
            let stored = nvram.write_durable(offset, &[&[2; 100]]);
            assert!(stored.expect_err("it was cut").is_shrunk());
        }
        nvram.read(LEN_BYTES - 100, &mut [0; 100]).expect_err("it was lost");
        let mut found = [0; 100];
        nvram.read(0, &mut found).expect("it is left");
        assert_eq!(found, [1; 100]);
    }
}

/// No load can show this cut: the page is still there.
#[test]
fn a_cut_inside_the_last_page_is_noticed_there() {
    let Some(directory) = memory_directory() else { return };
    for len_bytes in [LEN_BYTES, LEN_BYTES - 1000] {
        let path = file_of(directory.path(), len_bytes);
        let nvram = MappedNvram::open(&path, Access::ReadWrite, Some(Process)).expect("open");
        nvram.write_durable(len_bytes - 200, &[&[1; 200]]).expect("whole");
        cut(&path, len_bytes - 10);
        let page_start = LEN_BYTES - rustix::param::page_size() as u64;
        nvram.write_durable(page_start, &[&[2]]).expect_err("it was cut");
        nvram.read(len_bytes - 100, &mut [0; 100]).expect_err("it is lost");
        nvram.read(len_bytes - 100, &mut [0; 90]).expect("it is left");
        nvram.write_durable(0, &[&[2]]).expect_err("it was noticed");
        fs::remove_file(&path).expect("remove");
    }
}
