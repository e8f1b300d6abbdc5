//! A mount with little memory: writes wait, nothing fails, and the daemon lives.

use crate::support;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use device::Disk;
use ext4::{InodeNo, NewNode, OpenOptions, Owner, RootVolume};
use host::Access;
use onejournal_testing::{ENABLE_URING, MemoryGroup, Need, has_disk, is_root, skip};
use rustix::fs::{FlockOperation, flock};
use rustix::mount::UnmountFlags;
use support::{ONEJOURNAL, Scratch, onejournal, run};

const USAGE: i32 = 16;

/// The least that a mount takes.
const LEAST: &str = "memory=48M";
const LEAST_BYTES: u64 = 48 << 20;

/// A group in which [`LEAST`] is the default.
const GROUP_MIB: u64 = 64;

const BLOCK_BYTES: usize = 4096;
/// 96 MiB, which is more than there is memory.
const BLOCK_COUNT: usize = 24 << 10;
/// Enough for the daemon to have been killed ten times over.
const WRITE_COUNT: u64 = 30_000;

/// Blocks written at random, by their numbers: what was written to each of them last.
struct RandomWrites {
    file: File,
    stamps: Vec<u64>,
}

impl RandomWrites {
    fn new(path: &Path) -> RandomWrites {
        let file = File::options().create(true).truncate(true).read(true).write(true).open(path);
        RandomWrites { file: file.unwrap(), stamps: vec![0; BLOCK_COUNT] }
    }

    /// The bytes of a write, of which none is like another.
    fn bytes(stamp: u64) -> [u8; BLOCK_BYTES] {
        let mut random = fastrand::Rng::with_seed(stamp);
        std::array::from_fn(|_| random.u8(..))
    }

    fn write(&mut self, stamps: std::ops::Range<u64>) {
        let mut random = fastrand::Rng::with_seed(stamps.start);
        for stamp in stamps {
            let block = random.usize(..BLOCK_COUNT);
            let written = self.file.write_all_at(&Self::bytes(stamp), (block * BLOCK_BYTES) as u64);
            written.unwrap_or_else(|error| panic!("write {stamp}: {error}"));
            self.stamps[block] = stamp;
        }
    }

    /// Compares what a new opening of the file reads.
    fn check(&self, path: &Path) {
        let file = File::open(path).unwrap();
        for (block, stamp) in self.stamps.iter().enumerate().filter(|(_, stamp)| **stamp > 0) {
            let mut found = [0; BLOCK_BYTES];
            file.read_exact_at(&mut found, (block * BLOCK_BYTES) as u64).unwrap();
            assert!(found == Self::bytes(*stamp), "block {block} is not that of write {stamp}");
        }
    }
}

/// A volume on a disk: what is written to a tmpfs would count for the group.
fn scratch() -> Option<Scratch> {
    if !has_disk() {
        return None;
    }
    Scratch::with_size("512M")
}

/// Mounts it with a daemon in the group.
fn mount_in(scratch: &mut Scratch, group: &MemoryGroup, options: &str) {
    let mut command = group.command(ONEJOURNAL);
    command.args(["mount", "-o", options]).args([scratch.image(), scratch.dir()]);
    run(&mut command).good();
    scratch.adopt();
}

/// Unmounts, also while a `sync` of another test waits for the volume: with little memory that may
/// take longer than `onejournal umount` waits.
fn unmount(scratch: &mut Scratch) {
    rustix::mount::unmount(scratch.dir(), UnmountFlags::DETACH).unwrap();
    scratch.expect_closed();
}

/// The most that the daemon has had in memory.
fn peak_bytes(scratch: &Scratch) -> u64 {
    let pid = scratch.daemon().id.as_raw_nonzero();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().trim().parse::<u64>().unwrap() << 10
}

#[test]
fn random_writes_without_a_sync_end_well_in_a_small_group() {
    for options in ["rw", LEAST, "order=sync", "data=ordered"] {
        let Some(mut scratch) = scratch() else { return };
        let Some(group) = MemoryGroup::with_limit(GROUP_MIB) else { return };
        mount_in(&mut scratch, &group, options);
        assert_eq!(scratch.counter("memory_bytes_max"), LEAST_BYTES, "{options}");
        let mut writes = RandomWrites::new(&scratch.path("f"));
        writes.write(1..WRITE_COUNT);
        assert!(scratch.daemon().is_alive(), "{options}");
        writes.check(&scratch.path("f"));
        drop(writes.file);
        unmount(&mut scratch);
        scratch.check();
        mount_in(&mut scratch, &group, options);
        writes.file = File::open(scratch.path("f")).unwrap();
        writes.check(&scratch.path("f"));
        drop(writes.file);
        unmount(&mut scratch);
    }
}

#[test]
fn a_crash_in_a_small_group_is_recovered_in_it() {
    let Some(mut scratch) = scratch() else { return };
    let Some(group) = MemoryGroup::with_limit(GROUP_MIB) else { return };
    mount_in(&mut scratch, &group, "rw");
    let mut writes = RandomWrites::new(&scratch.path("f"));
    writes.write(1..WRITE_COUNT / 2);
    writes.file.sync_all().unwrap();
    drop(writes.file);
    scratch.kill();
    mount_in(&mut scratch, &group, "rw");
    writes.file = File::open(scratch.path("f")).unwrap();
    writes.check(&scratch.path("f"));
    drop(writes.file);
    unmount(&mut scratch);
    scratch.check();
}

#[test]
fn the_daemon_takes_no_more_than_its_option_says() {
    let Some(mut scratch) = scratch() else { return };
    scratch.mount(LEAST);
    let mut writes = RandomWrites::new(&scratch.path("f"));
    writes.write(1..WRITE_COUNT);
    let large = vec![7; 1 << 20];
    (0..100).for_each(|n| writes.file.write_all_at(&large, (200 + n) << 20).unwrap());
    writes.check(&scratch.path("f"));
    drop(writes.file);
    let text = onejournal(["stat", scratch.dir().to_str().unwrap()]).good();
    assert!(text.contains(" in use, 50.3 MB at most"), "{text}");
    let stat = scratch.stat();
    // After that: an answer may take a page more than all before it.
    let peak_bytes = peak_bytes(&scratch);
    assert!(peak_bytes <= LEAST_BYTES, "{} KiB", peak_bytes >> 10);
    assert!(stat["memory_bytes"].as_u64() <= Some(peak_bytes), "{stat}");
    unmount(&mut scratch);
    scratch.check();
}

/// The least memory, in MiB, with which two threads for each processor serve requests that come
/// through io_uring.
fn least_of_rings_mib() -> u64 {
    16 + 23 * (2 * mount::online_cpu_count() as u64 + 2)
}

/// Mounts in a group, and returns the way to the kernel that the machine's setting asks for.
fn mount_by_setting(scratch: &mut Scratch, group: &MemoryGroup, options: &str) -> &'static str {
    let Ok(setting) = File::open(ENABLE_URING) else {
        mount_in(scratch, group, options);
        return "dev_fuse";
    };
    // A test that changes it holds this lock.
    flock(&setting, FlockOperation::LockShared).unwrap();
    mount_in(scratch, group, options);
    let is_on = fs::read_to_string(ENABLE_URING).unwrap().starts_with('Y');
    if is_on { "io_uring" } else { "dev_fuse" }
}

/// The runner has it run through io_uring, too (`scripts/gate/tables.py`).
#[test]
fn the_daemon_keeps_to_its_limit_by_either_way_to_the_kernel() {
    let Some(mut scratch) = scratch() else { return };
    let limit_mib = least_of_rings_mib();
    let Some(group) = MemoryGroup::with_limit(limit_mib + limit_mib / 3) else { return };
    let options = format!("threads=1,memory={limit_mib}M");
    let transport = mount_by_setting(&mut scratch, &group, &options);
    assert_eq!(scratch.stat()["transport"], transport);
    assert_eq!(scratch.counter("memory_bytes_max"), limit_mib << 20);
    let mut writes = RandomWrites::new(&scratch.path("f"));
    writes.write(1..WRITE_COUNT);
    let large = vec![7; 1 << 20];
    (0..100).for_each(|n| writes.file.write_all_at(&large, (200 + n) << 20).unwrap());
    writes.check(&scratch.path("f"));
    drop(writes.file);
    let peak_bytes = peak_bytes(&scratch);
    assert!(peak_bytes <= limit_mib << 20, "{transport}: {} KiB", peak_bytes >> 10);
    unmount(&mut scratch);
    scratch.check();
}

/// Directories, and files in each of them. An entry of a few hundred bytes for each file would take
/// more memory than there is.
const DIR_COUNT: usize = 200;
const FILES_PER_DIR: usize = 1000;

/// Makes the files without a mount.
fn make_files(image: &Path) {
    let device = Arc::new(Disk::open(image, Access::ReadWrite).unwrap());
    let volume = RootVolume::open(device, OpenOptions::default()).unwrap();
    let make = |parent: InodeNo, name: String, node| {
        let made = volume.make(parent, name.as_bytes(), node, 0o755, 0, Owner::default());
        let ino = made.unwrap().ino;
        volume.forget(ino, 1);
        ino
    };
    for dir in 0..DIR_COUNT {
        let parent = make(InodeNo::ROOT, format!("d{dir}"), NewNode::Directory);
        for file in 0..FILES_PER_DIR {
            make(parent, format!("f{file}"), NewNode::Regular);
        }
    }
    volume.close().unwrap();
}

/// Lists the directory and asks for the attributes of each file, as `find -size` does.
fn look_at_files(dir: &Path) -> usize {
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    files.filter(|entry| entry.metadata().unwrap().is_file()).count()
}

#[test]
fn the_files_that_the_kernel_knows_are_within_the_limit() {
    if !has_disk() {
        return;
    }
    let Some(mut scratch) = Scratch::with_size("5G") else { return };
    make_files(&scratch.image());
    scratch.mount(LEAST);
    let dirs = (0..DIR_COUNT).map(|dir| scratch.path(&format!("d{dir}")));
    let file_count: usize = dirs.map(|dir| look_at_files(&dir)).sum();
    assert_eq!(file_count, DIR_COUNT * FILES_PER_DIR);
    let peak_bytes = peak_bytes(&scratch);
    assert!(peak_bytes <= LEAST_BYTES, "{} KiB", peak_bytes >> 10);
    unmount(&mut scratch);
    scratch.check();
}

#[test]
fn too_little_memory_is_refused() {
    let Some(scratch) = Scratch::new() else { return };
    let (image, dir) = (scratch.image(), scratch.dir());
    let mount = |option: &str| {
        onejournal(["mount", "-o", option, image.to_str().unwrap(), dir.to_str().unwrap()])
    };
    mount("memory=47M").refused(USAGE, "memory=47M is too little: a mount needs 48M at least");
    mount("memory=64M,io_uring=on").refused(USAGE, "leave it out, or raise memory=");
}

#[test]
fn the_oom_killer_takes_others_first() {
    if !is_root() {
        return;
    }
    let may = "echo -900 >/proc/self/oom_score_adj";
    if run(std::process::Command::new("sh").args(["-c", may])).code != Some(0) {
        skip(Need::Resources, "needs to protect processes from the OOM killer");
        return;
    }
    for (callers, daemons) in [(0, -900), (500, -900), (-17, -17)] {
        let Some(mut scratch) = Scratch::new() else { return };
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "echo \"$0\" >/proc/self/oom_score_adj && exec \"$@\""]);
        command.arg(callers.to_string()).args([ONEJOURNAL, "mount"]);
        run(command.args([scratch.image(), scratch.dir()])).good();
        scratch.adopt();
        let pid = scratch.daemon().id.as_raw_nonzero();
        let found = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
        assert_eq!(found.trim(), daemons.to_string(), "the caller has {callers}");
        scratch.close_and_check();
    }
}
