//! `-o order=sync`: the kernel collects writes, and a file that gets a name which a crash must not
//! find empty has its data first. Data that are still in the kernel are lost when the daemon is
//! killed, so a kill shows which data the daemon has fetched.

use crate::support;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Barrier;

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, OFlags, RenameFlags, XattrFlags, linkat, renameat_with,
};
use rustix::io::Errno;
use support::{Scratch, has_unnamed_files, onejournal};

const LEN_BYTES: usize = 300_000;

fn content(number: usize) -> Vec<u8> {
    (0..LEN_BYTES + number).map(|place| (place * 31 + number * 7) as u8).collect()
}

/// Written, but neither synced nor closed: the kernel has the data.
fn written(path: &Path, number: usize) -> File {
    let mut file = File::create(path).unwrap();
    file.write_all(&content(number)).unwrap();
    file
}

fn synced(path: &Path, number: usize) {
    written(path, number).sync_all().unwrap();
}

/// Commits all operations so far, but none of the data that the kernel has.
fn commit(scratch: &Scratch) {
    synced(&scratch.path("other"), 0);
}

#[test]
fn a_file_that_replaces_another_one_has_its_data() {
    for options in ["order=sync", "order=sync,threads=1", "order=sync,data=ordered"] {
        let Some(mut scratch) = Scratch::mounted(&format!("commit=300,{options}")) else { return };
        synced(&scratch.path("renamed"), 1);
        synced(&scratch.path("exchanged"), 2);
        let open = [written(&scratch.path("new"), 3), written(&scratch.path("other one"), 4)];
        let unnamed = has_unnamed_files().then(|| {
            let flag = OFlags::TMPFILE.bits().cast_signed();
            let unnamed = OpenOptions::new().write(true).custom_flags(flag).open(scratch.dir());
            let mut unnamed = unnamed.unwrap();
            unnamed.write_all(&content(5)).unwrap();
            unnamed
        });

        fs::rename(scratch.path("new"), scratch.path("renamed")).unwrap();
        let (from, to) = (scratch.path("other one"), scratch.path("exchanged"));
        renameat_with(CWD, from, CWD, to, RenameFlags::EXCHANGE).unwrap();
        if let Some(unnamed) = &unnamed {
            linkat(unnamed, "", CWD, scratch.path("linked"), AtFlags::EMPTY_PATH).unwrap();
        }
        commit(&scratch);
        scratch.kill();
        let is_linked = unnamed.is_some();
        drop((open, unnamed));
        scratch.mount("");
        let found = |name: &str| fs::read(scratch.path(name)).unwrap();
        assert!(found("renamed") == content(3), "{options}");
        assert!(found("exchanged") == content(4), "{options}");
        assert!(found("other one") == content(2), "{options}");
        assert!(!is_linked || found("linked") == content(5), "{options}");
        scratch.close_and_check();
    }
}

/// Python: makes a file through a mapping of it, closes it, and does `then`.
fn stored_through_a_mapping(name: &str, then: &str) -> String {
    format!(
        "
fd = os.open('{name}', os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 100000)
view = mmap.mmap(fd, 100000)
os.close(fd)
view[:] = b'm' * 100000
{then}
"
    )
}

/// Data of a mapping are in the kernel, too, also after the file was closed.
#[test]
fn stores_through_a_mapping_are_fetched() {
    let Some(mut scratch) = Scratch::mounted("commit=300,order=sync") else { return };
    let Some(mut peer) = support::Peer::new(&scratch.dir()) else { return };
    synced(&scratch.path("old"), 1);
    peer.good(&stored_through_a_mapping("new", "os.rename('new', 'old')"));
    commit(&scratch);
    scratch.kill();
    drop(peer);
    scratch.mount("");
    assert!(fs::read(scratch.path("old")).unwrap() == vec![b'm'; 100_000]);
    scratch.close_and_check();
}

/// ext4 does the same when such a file is closed.
#[test]
fn a_file_that_was_emptied_has_its_data_when_it_is_closed() {
    let Some(mut scratch) = Scratch::mounted("commit=300,order=sync") else { return };
    synced(&scratch.path("f"), 1);
    drop(written(&scratch.path("f"), 2));
    commit(&scratch);
    scratch.kill();
    scratch.mount("");
    assert!(fs::read(scratch.path("f")).unwrap() == content(2));
    scratch.close_and_check();
}

/// Through a descriptor, through a flag, and for one call.
#[test]
fn durable_writes_are_durable_when_they_return() {
    let Some(mut scratch) = Scratch::mounted("commit=300,order=sync") else { return };
    let Some(mut peer) = support::Peer::new(&scratch.dir()) else { return };
    peer.good(
        "
for name, flag in [('sync', os.O_SYNC), ('dsync', os.O_DSYNC), \
                   ('direct', os.O_DIRECT | os.O_DSYNC)]:
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | flag)
    page = mmap.mmap(-1, 8192); page[:] = b'p' * 8192
    os.write(fd, page); os.write(fd, page)
for name, flag in [('rwf_sync', os.RWF_SYNC), ('rwf_dsync', os.RWF_DSYNC)]:
    fd = os.open(name, os.O_WRONLY | os.O_CREAT)
    os.pwritev(fd, [b'p' * 5000, b'p' * 11384], 0, flag)
",
    );
    scratch.kill();
    drop(peer);
    scratch.mount("");
    for name in ["sync", "dsync", "direct", "rwf_sync", "rwf_dsync"] {
        assert!(fs::read(scratch.path(name)).unwrap() == [b'p'; 16384], "{name}");
    }
    scratch.close_and_check();
}

/// The kernel may send what it has collected at any time, because of another program's `sync` for
/// example. It sends the data of the file that was written first before the others.
#[test]
fn a_write_with_o_dsync_leaves_earlier_writes_to_its_file_in_the_kernel() {
    let options = "commit=300,order=sync,threads=1";
    let Some(mut scratch) = Scratch::mounted(options) else { return };
    for name in ["first", "f"] {
        let file = File::create(scratch.path(name)).unwrap();
        file.write_all_at(&[b'o'; 65536], 0).unwrap();
        file.sync_all().unwrap();
    }
    let open = |name: &str, flags: OFlags| {
        let flags = flags.bits().cast_signed();
        File::options().write(true).custom_flags(flags).open(scratch.path(name)).unwrap()
    };
    let none = OFlags::empty();
    let [first, file, durable] =
        [("first", none), ("f", none), ("f", OFlags::DSYNC)].map(|(name, flags)| open(name, flags));
    first.write_all_at(&[b'n'; 4096], 0).unwrap();
    file.write_all_at(&[b'n'; 4096], 0).unwrap();
    file.write_all_at(&[b'n'; 4096], 49152).unwrap();
    durable.write_all_at(&[b'd'; 4096], 16384).unwrap();
    scratch.kill();
    drop((first, file, durable));
    scratch.mount("");
    let found = fs::read(scratch.path("f")).unwrap();
    assert!(found[16384..20480] == [b'd'; 4096]);
    if fs::read(scratch.path("first")).unwrap() == [b'o'; 65536] {
        assert!(found[..16384] == [b'o'; 16384], "the write before it");
        assert!(found[20480..] == [b'o'; 45056], "the write after it");
    }
    scratch.close_and_check();
}

/// Each append finds the end that the other process has made, in the kernel's cache.
#[test]
fn two_processes_append_to_one_file() {
    let Some(mut scratch) = Scratch::mounted("order=sync") else { return };
    let Some(mut one) = support::Peer::new(&scratch.dir()) else { return };
    let Some(mut other) = support::Peer::new(&scratch.dir()) else { return };
    let open = "fd = os.open('log', os.O_WRONLY | os.O_CREAT | os.O_APPEND | FLAG)";
    one.good(&open.replace("FLAG", "0"));
    other.good(&open.replace("FLAG", "os.O_DIRECT"));
    let append = "
for number in range(300): os.write(fd, b'%s%05d' % (NAME, number) * 20)
";
    std::thread::scope(|scope| {
        scope.spawn(|| one.good(&append.replace("NAME", "b'one'")));
        scope.spawn(|| other.good(&append.replace("NAME", "b'two'")));
    });
    drop((one, other));
    scratch.remount("");
    let log = fs::read(scratch.path("log")).unwrap();
    assert_eq!(log.len(), 2 * 300 * 160);
    for name in ["one", "two"] {
        let found = log.chunks(160).filter(|record| record.starts_with(name.as_bytes()));
        let expected = (0..300).map(|number| format!("{name}{number:05}").repeat(20));
        assert!(found.eq(expected.map(String::into_bytes)), "{name}");
    }
    scratch.close_and_check();
}

/// The kernel has the data, the volume has the blocks: each request for blocks finds the data
/// there.
#[test]
fn requests_for_blocks_see_what_was_written() {
    for options in ["order=sync", "order=sync,data=ordered", "order=sync,threads=1"] {
        let Some(mut scratch) = Scratch::mounted(options) else { return };
        let file = File::options().read(true).write(true).create_new(true).open(scratch.path("f"));
        let file = file.unwrap();
        file.write_all_at(&[1; 200_000], 0).unwrap();
        file.write_all_at(&[2; 5000], 1 << 20).unwrap();
        let seek = |from| rustix::fs::seek(&file, from);
        use rustix::fs::SeekFrom::{Data, Hole};
        assert_eq!(seek(Hole(0)), Ok(200_704), "{options}");
        assert_eq!(seek(Data(200_704)), Ok(1 << 20), "{options}");
        let allocate = |flags, offset, len| rustix::fs::fallocate(&file, flags, offset, len);
        let keep = FallocateFlags::KEEP_SIZE;
        file.write_all_at(&[3; 100_000], 300_000).unwrap();
        allocate(FallocateFlags::PUNCH_HOLE | keep, 310_000, 10_000).unwrap();
        allocate(FallocateFlags::ZERO_RANGE | keep, 330_000, 10_000).unwrap();
        allocate(FallocateFlags::empty(), 0, 1 << 21).unwrap();
        let copy = File::create(scratch.path("copy")).unwrap();
        file.write_all_at(&[4; 3000], 350_000).unwrap();
        let len = usize::try_from(file.metadata().unwrap().len()).unwrap();
        let (mut from, mut to) = (0, 0);
        while to < len as u64 {
            let done =
                rustix::fs::copy_file_range(&file, Some(&mut from), &copy, Some(&mut to), len);
            assert!(done.unwrap() > 0, "{options}");
        }
        file.write_all_at(&[5; 3000], 360_000).unwrap();
        file.set_len(380_000).unwrap();
        drop((file, copy));
        scratch.remount(options);
        let mut expected = vec![0; 1 << 21];
        expected[..200_000].fill(1);
        expected[1 << 20..(1 << 20) + 5000].fill(2);
        expected[300_000..400_000].fill(3);
        expected[310_000..320_000].fill(0);
        expected[330_000..340_000].fill(0);
        expected[350_000..353_000].fill(4);
        assert!(fs::read(scratch.path("copy")).unwrap() == expected, "{options}");
        expected[360_000..363_000].fill(5);
        expected.truncate(380_000);
        assert!(fs::read(scratch.path("f")).unwrap() == expected, "{options}");
        scratch.close_and_check();
    }
}

/// The data arrive after the capability was set. ext4 takes capabilities off at `write`, and so
/// does the kernel here.
#[test]
fn regression_a_capability_that_was_set_after_the_write_stays() {
    let Some(scratch) = Scratch::mounted("order=sync") else { return };
    let capability = [&[1, 0, 0, 2, 0, 4][..], &[0; 14]].concat(); // cap_net_bind_service+ep
    let file = written(&scratch.path("program"), 1);
    let name = "security.capability";
    rustix::fs::fsetxattr(&file, name, &capability, XattrFlags::empty()).unwrap();
    drop(file);
    let path = scratch.path("program");
    let found = || {
        let mut value = [0; 64];
        rustix::fs::getxattr(&path, name, &mut value[..]).map(|len| value[..len].to_vec())
    };
    assert_eq!(found(), Ok(capability.clone()));
    let mut file = File::options().append(true).open(&path).unwrap();
    file.write_all(b"more").unwrap();
    assert_eq!(found(), Err(Errno::NODATA));
    rustix::fs::fsetxattr(&file, name, &capability, XattrFlags::empty()).unwrap();
    file.sync_all().unwrap();
    drop(file);
    assert_eq!(found(), Ok(capability));
    scratch.close_and_check();
}

#[test]
fn a_mode_that_changes_finds_the_data() {
    let Some(mut scratch) = Scratch::mounted("commit=300,order=sync") else { return };
    let modes = ["journal", "ordered", "delta", "wasteless", "selective", "writeback", "auto"];
    let mut open = Vec::new();
    for (number, mode) in modes.into_iter().enumerate() {
        let path = scratch.path(mode);
        let mut file = written(&path, number);
        onejournal(["set-mode", mode, support::text(&path)]).good();
        file.write_all(&content(number)).unwrap();
        file.sync_all().unwrap();
        open.push(file);
    }
    scratch.kill();
    drop(open);
    scratch.mount("");
    for (number, mode) in modes.into_iter().enumerate() {
        assert!(fs::read(scratch.path(mode)).unwrap() == content(number).repeat(2), "{mode}");
    }
    scratch.close_and_check();
}

/// After it "every write is durable" (docs/reference/mount-options.md).
#[test]
fn a_remount_to_read_only_makes_everything_durable() {
    let Some(mut scratch) = Scratch::mounted("commit=300,order=sync") else { return };
    let Some(mut peer) = support::Peer::new(&scratch.dir()) else { return };
    drop(written(&scratch.path("f"), 1));
    peer.good(&stored_through_a_mapping("mapped", "view.close()"));
    onejournal([
        "mount",
        "-o",
        "remount,ro",
        support::text(&scratch.image()),
        support::text(&scratch.dir()),
    ])
    .good();
    scratch.kill();
    drop(peer);
    scratch.mount("");
    assert!(fs::read(scratch.path("f")).unwrap() == content(1));
    assert!(fs::read(scratch.path("mapped")).unwrap() == vec![b'm'; 100_000]);
    scratch.close_and_check();
}

/// Each holds a thread until another one has answered the kernel's writes. There are more of them
/// than threads may block at a time.
#[test]
fn many_files_are_replaced_side_by_side() {
    const WRITER_COUNT: usize = 150;
    for options in ["order=sync,threads=1", "order=sync,threads=2", "order=sync"] {
        let Some(mut scratch) = Scratch::with_size("512M") else { return };
        scratch.mount(options);
        let together = Barrier::new(WRITER_COUNT);
        std::thread::scope(|scope| {
            for writer in 0..WRITER_COUNT {
                let (dir, together) = (scratch.path(&format!("d{writer}")), &together);
                scope.spawn(move || {
                    fs::create_dir(&dir).unwrap();
                    synced(&dir.join("f"), 0);
                    for round in 1..6 {
                        let open = written(&dir.join("new"), round);
                        together.wait();
                        fs::rename(dir.join("new"), dir.join("f")).unwrap();
                        drop(open);
                    }
                });
            }
        });
        for writer in 0..WRITER_COUNT {
            let found = fs::read(scratch.path(&format!("d{writer}/f"))).unwrap();
            assert!(found == content(5), "{options} {writer}");
        }
        scratch.close_and_check();
    }
}

/// The kernel accepted the data without asking for blocks.
#[test]
fn a_full_volume_is_reported_before_a_file_is_replaced() {
    let Some(scratch) = Scratch::mounted("order=sync") else { return };
    synced(&scratch.path("old"), 1);
    let mut filler = File::create(scratch.path("filler")).unwrap();
    let piece = vec![7; 1 << 20];
    let failed = loop {
        match filler.write_all(&piece).and_then(|()| filler.sync_all()) {
            Ok(()) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(Errno::from_io_error(&failed), Some(Errno::NOSPC));
    // The last blocks, one by one.
    let mut number = 0;
    loop {
        number += 1;
        let mut file = File::create(scratch.path(&format!("small{number}"))).unwrap();
        if file.write_all(&[7; 4096]).and_then(|()| file.sync_all()).is_err() {
            break;
        }
    }
    let open = written(&scratch.path("new"), 2);
    let renamed = rustix::fs::rename(scratch.path("new"), scratch.path("old"));
    assert_eq!(renamed, Err(Errno::NOSPC));
    assert_eq!(open.sync_all().err().and_then(|e| Errno::from_io_error(&e)), Some(Errno::NOSPC));
    assert!(fs::read(scratch.path("old")).unwrap() == content(1));
    drop((open, filler));
    fs::remove_file(scratch.path("new")).unwrap();
    scratch.close_and_check();
}

/// close(2) reports what write(2) could not know.
#[test]
fn a_full_volume_is_reported_when_the_file_is_closed() {
    let Some(scratch) = Scratch::mounted("order=sync") else { return };
    let Some(mut peer) = support::Peer::new(&scratch.dir()) else { return };
    peer.good("fd = os.open('f', os.O_WRONLY | os.O_CREAT); size = os.statvfs('.').f_bfree * 4096");
    let told = peer.run(
        "
for _ in range(size // 100000 + 2): os.write(fd, b'x' * 100000)
os.close(fd)
",
    );
    assert_eq!(told.err(), Some(Errno::NOSPC.raw_os_error()));
    drop(peer);
    fs::remove_file(scratch.path("f")).unwrap();
    scratch.close_and_check();
}

/// A program that only writes.
#[test]
fn a_full_volume_ends_a_program_that_writes_for_ever() {
    for options in ["order=sync", "order=sync,threads=1", "order=sync,data=ordered"] {
        let Some(scratch) = Scratch::mounted(options) else { return };
        let Some(mut peer) = support::Peer::new(&scratch.dir()) else { return };
        peer.good(
            "
fd = os.open('f', os.O_WRONLY | os.O_CREAT)
def write(count):
    for _ in range(count):
        os.stat('f')
        os.write(fd, b'x' * 100000)
",
        );
        assert_eq!(peer.run("while True: write(1)").err(), Some(Errno::NOSPC.raw_os_error()));
        // Still full, also for a program that goes on.
        assert_eq!(peer.run("write(1)").err(), Some(Errno::NOSPC.raw_os_error()), "{options}");
        peer.good("r = len(os.pread(os.open('f', os.O_RDONLY), 1 << 20, 0))");
        peer.good("os.ftruncate(fd, 0); os.lseek(fd, 0, os.SEEK_SET)");
        peer.good("write(50)");
        let _ = peer.run("os.fsync(fd)"); // tells of the first failure
        peer.good("os.fsync(fd)");
        drop(peer);
        scratch.close_and_check();
    }
}

/// Percent of the memory that may be dirty, for a mount.
fn most_that_is_collected(dir: &Path) -> String {
    let device = fs::metadata(dir).unwrap().dev();
    let name = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let of = |suffix: &str| fs::read_to_string(format!("/sys/class/bdi/{name}{suffix}/max_ratio"));
    of("-fuseblk").or_else(|_| of("")).unwrap().trim().to_owned()
}

#[test]
fn the_kernel_collects_as_much_as_for_a_disk_with_this_order_only() {
    let Some(mut scratch) = Scratch::new() else { return };
    for (options, percent) in [("order=sync", "100"), ("order=history", "1")] {
        scratch.mount(options);
        assert_eq!(most_that_is_collected(&scratch.dir()), percent, "{options}");
        scratch.umount();
    }
}

#[test]
fn the_order_is_shown_and_the_old_name_is_explained() {
    let Some(mut scratch) = Scratch::new() else { return };
    for (options, order) in [
        ("order=sync", "sync"),
        ("order=history", "history"),
        // The others need it, or have no use for another one.
        ("atomic_writes", "history"),
        ("ro", "history"),
    ] {
        scratch.mount(options);
        assert_eq!(scratch.stat()["order"], order, "{options}");
        scratch.umount();
    }
    let (image, dir) = (scratch.image(), scratch.dir());
    let words = |options: &str| {
        let words = ["mount", "-o", options, support::text(&image), support::text(&dir)];
        onejournal(words)
    };
    words("writeback_cache").refused(16, "order=sync");
    words("atomic_writes,order=sync").refused(16, "order=sync");
}

/// The kernel sends no request before it writes back, so `write` cannot fail.
#[test]
fn a_write_beyond_the_largest_file_is_reported_by_syncs_and_by_the_next_write() {
    let Some(mut scratch) = Scratch::mounted("order=sync") else { return };
    let Some(mut peer) = support::Peer::new(&scratch.dir()) else { return };
    peer.good(
        "
LARGEST = ((1 << 32) - 1) * 4096
def opened(name, flags=0): return os.open(name, os.O_RDWR | os.O_CREAT | flags)
far, end, direct = opened('far'), opened('end'), opened('direct', os.O_DIRECT)
os.write(far, b'data')
os.pwrite(far, b'x', 17 << 40)
os.pwrite(end, b'xyz', LARGEST - 1)
",
    );
    for fails in [
        "os.fsync(far)",
        // Appends would go there, too. The kernel learns of it a moment later.
        "while True: os.write(far, b'more')",
        "os.write(opened('far', os.O_APPEND), b'more')",
        // It begins below the largest size.
        "os.fsync(end)",
        "os.pwritev(opened('sync'), [b'x'], 17 << 40, os.RWF_SYNC)",
        "os.pwrite(direct, mmap.mmap(-1, 4096), 17 << 40)",
        "os.ftruncate(far, 17 << 40)",
    ] {
        peer.fails(Errno::FBIG, fails);
    }
    peer.good("os.ftruncate(far, 4); os.pwrite(far, b'more', 4); os.fsync(far)");
    peer.fails(Errno::IO, "fd = opened('closed'); os.pwrite(fd, b'x', 17 << 40); os.close(fd)");
    // The kernel keeps the size of a file that it knows.
    peer.good("assert os.stat('closed').st_size == (17 << 40) + 1");
    drop(peer);
    scratch.remount("");
    let len = |name: &str| fs::metadata(scratch.path(name)).unwrap().len();
    assert_eq!(["far", "end", "closed"].map(len), [8, (u64::from(u32::MAX)) * 4096, 0]);
    scratch.close_and_check();
}
