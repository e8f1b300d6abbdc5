//! What POSIX and Linux promise about files, through the mount: permissions, names, times, locks,
//! mapped memory, and the rest that a program may rely on.

use crate::support;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{
    FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink,
};
use std::path::Path;
use std::sync::mpsc::RecvTimeoutError;

use onejournal_testing::{has_program, tier};
use rustix::fs::{CWD, FallocateFlags, FileType, Mode, RawDir, RenameFlags};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use support::{OTHER_USER, Peer, Scratch, spawn, system, text};

#[track_caller]
fn fails<T: std::fmt::Debug>(errno: Errno, result: io::Result<T>) {
    let found = result.map_err(|error| error.raw_os_error());
    assert_eq!(found.expect_err("it should fail"), Some(errno.raw_os_error()), "wanted {errno}");
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn mode_of(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn others_may_do_what_the_mode_says() {
    let Some(scratch) = Scratch::mounted("") else { return };
    let Some(mut nobody) = Peer::as_user(&scratch.dir(), OTHER_USER, OTHER_USER) else { return };
    fs::write(scratch.path("secret"), "s").unwrap();
    set_mode(&scratch.path("secret"), 0o600);
    nobody.fails(Errno::ACCESS, "open('secret')");
    nobody.fails(Errno::ACCESS, "open('new', 'w')");
    nobody.fails(Errno::ACCESS, "os.unlink('secret')");
    nobody.fails(Errno::PERM, "os.chmod('secret', 0o777)");
    nobody.fails(Errno::PERM, "os.chown('secret', 65534, 65534)");
    nobody.fails(Errno::PERM, "os.utime('secret', (1, 1))");
    set_mode(&scratch.path("secret"), 0o644);
    nobody.good("open('secret').read()");
    nobody.fails(Errno::ACCESS, "open('secret', 'a')");
    nobody.fails(Errno::ACCESS, "os.truncate('secret', 0)");
    fs::create_dir(scratch.path("dark")).unwrap();
    fs::write(scratch.path("dark/f"), "f").unwrap();
    set_mode(&scratch.path("dark"), 0o711);
    nobody.fails(Errno::ACCESS, "os.listdir('dark')");
    assert_eq!(nobody.good("r = open('dark/f').read()"), "f");
    set_mode(&scratch.path("dark"), 0o744);
    assert_eq!(nobody.good("r = os.listdir('dark')")[0], "f");
    nobody.fails(Errno::ACCESS, "open('dark/f')");
    drop(nobody);
    scratch.close_and_check();
}

#[test]
fn an_owner_may_give_away_little() {
    let Some(scratch) = Scratch::mounted("") else { return };
    let Some(mut owner) = Peer::as_user(&scratch.dir(), 1000, 1000) else { return };
    fs::create_dir(scratch.path("d")).unwrap();
    chown(scratch.path("d"), Some(1000), Some(1000)).unwrap();
    owner.good("os.chdir('d'); os.umask(0o027); open('f', 'w').write('x')");
    assert_eq!(mode_of(&scratch.path("d/f")), 0o640);
    owner.fails(Errno::PERM, "os.chown('f', 1001, -1)");
    owner.fails(Errno::PERM, "os.chown('f', -1, 1001)");
    // set-group-ID of a group one is not in is dropped without a word.
    chown(scratch.path("d/f"), Some(1000), Some(1001)).unwrap();
    owner.good("os.chmod('f', 0o2755)");
    assert_eq!(mode_of(&scratch.path("d/f")), 0o755);
    owner.fails(Errno::PERM, "os.mknod('dev', 0o600 | stat.S_IFCHR, os.makedev(1, 3))");
    owner.good("os.mkfifo('fifo')");
    drop(owner);
    scratch.close_and_check();
}

#[test]
fn sticky_directories_protect_their_files() {
    let Some(scratch) = Scratch::mounted("") else { return };
    let Some(mut one) = Peer::as_user(&scratch.dir(), 1001, 1001) else { return };
    let Some(mut two) = Peer::as_user(&scratch.dir(), 1002, 1002) else { return };
    fs::create_dir(scratch.path("tmp")).unwrap();
    set_mode(&scratch.path("tmp"), 0o1777);
    one.good("open('tmp/one', 'w').close()");
    two.fails(Errno::PERM, "os.unlink('tmp/one')");
    two.fails(Errno::PERM, "os.rename('tmp/one', 'tmp/two')");
    two.good("open('tmp/two', 'w').close()");
    two.fails(Errno::PERM, "os.rename('tmp/two', 'tmp/one')");
    one.good("os.rename('tmp/one', 'tmp/three'); os.unlink('tmp/three')");
    drop((one, two));
    scratch.close_and_check();
}

#[test]
fn directories_hand_down_their_group() {
    let Some(scratch) = Scratch::mounted("") else { return };
    let dir = scratch.path("shared");
    fs::create_dir(&dir).unwrap();
    chown(&dir, None, Some(4000)).unwrap();
    set_mode(&dir, 0o2775);
    fs::write(dir.join("f"), "").unwrap();
    fs::create_dir(dir.join("d")).unwrap();
    let metadata = |name| fs::metadata(dir.join(name)).unwrap();
    assert_eq!((metadata("f").gid(), metadata("f").mode() & 0o2000), (4000, 0));
    assert_eq!((metadata("d").gid(), metadata("d").mode() & 0o2000), (4000, 0o2000));
    scratch.close_and_check();
}

/// Without the right of the group to execute, the bit stays for members of the group only.
#[test]
fn set_group_id_is_lost_when_a_stranger_to_the_group_changes_the_file() {
    let Some(scratch) = Scratch::mounted("") else { return };
    let Some(mut stranger) = Peer::as_user(&scratch.dir(), OTHER_USER, OTHER_USER) else { return };
    let Some(mut member) = Peer::as_user(&scratch.dir(), OTHER_USER, 4000) else { return };
    let path = scratch.path("f");
    let changes = [
        "f = os.open('f', os.O_WRONLY); os.write(f, b'x'); os.close(f)",
        "f = os.open('f', os.O_WRONLY); os.posix_fallocate(f, 0, 9000); os.close(f)",
        "f = os.open('f', os.O_WRONLY); ctypes.CDLL(None).fallocate64(f, 3, \
         ctypes.c_int64(0), ctypes.c_int64(4096)); os.close(f)",
        "f = os.open('f', os.O_WRONLY); ctypes.CDLL(None).fallocate64(f, 16, \
         ctypes.c_int64(0), ctypes.c_int64(4096)); os.close(f)",
        "os.truncate('f', 3)",
    ];
    fs::write(&path, [7; 10_000]).unwrap();
    chown(&path, Some(0), Some(4000)).unwrap();
    for mode in [0o2666, 0o2766, 0o2676, 0o6666, 0o6777, 0o2777] {
        for change in changes {
            for (who, is_member) in [(&mut stranger, false), (&mut member, true)] {
                set_mode(&path, mode);
                // A file that was looked into before is looked into again.
                fs::OpenOptions::new().write(true).open(&path).unwrap().write_all(b"r").unwrap();
                set_mode(&path, mode);
                who.good(change);
                let stays = is_member && mode & 0o10 == 0;
                let expected = if stays { mode & !0o4000 } else { mode & !0o6000 };
                assert_eq!(mode_of(&path), expected, "{mode:o}, {is_member}: {change}");
            }
        }
    }
    set_mode(&path, 0o2666);
    fs::write(&path, "by root").unwrap();
    assert_eq!(mode_of(&path), 0o2666);
    drop((stranger, member));
    scratch.close_and_check();
}

/// C libraries of 32 bits without large-file support refuse a listing with a larger position.
#[test]
fn positions_in_a_directory_fit_32_bit_programs() {
    let Some(scratch) = Scratch::mounted("") else { return };
    let dir = scratch.path("many");
    fs::create_dir(&dir).unwrap();
    for n in 0..2000 {
        File::create(dir.join(format!("entry-{n}"))).unwrap();
    }
    let file = File::open(&dir).unwrap();
    // Two or three entries at a time.
    let mut buffer = [MaybeUninit::uninit(); 100];
    let mut seen = Vec::new();
    let mut entries = RawDir::new(&file, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry.unwrap();
        let position = entry.next_entry_cookie();
        assert!(position < 1 << 31, "{position:#x}");
        seen.push((entry.file_name().to_owned(), position));
    }
    assert_eq!(seen.iter().map(|(name, _)| name).collect::<BTreeSet<_>>().len(), 2002);
    assert_eq!(seen.len(), 2002);
    for (at, (_, position)) in seen.iter().enumerate().step_by(97) {
        rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(*position)).unwrap();
        let mut buffer = [MaybeUninit::uninit(); 1000];
        let mut entries = RawDir::new(&file, &mut buffer);
        let next = entries.next().map(|entry| entry.unwrap().file_name().to_owned());
        assert_eq!(next.as_ref(), seen.get(at + 1).map(|(name, _)| name));
    }
    drop(file);
    scratch.close_and_check();
}

#[test]
fn set_user_id_is_lost_when_the_file_changes_hands() {
    let Some(scratch) = Scratch::mounted("") else { return };
    let Some(mut nobody) = Peer::as_user(&scratch.dir(), OTHER_USER, OTHER_USER) else { return };
    let path = scratch.path("f");
    fs::write(&path, "content").unwrap();
    let reset = || {
        chown(&path, Some(0), Some(0)).unwrap();
        set_mode(&path, 0o6777);
    };
    reset();
    chown(&path, Some(1), None).unwrap();
    assert_eq!(mode_of(&path), 0o777);
    for statement in [
        "f = open('f', 'r+b', 0); f.write(b'x')",
        "os.truncate('f', 3)",
        "os.truncate('f', 300)",
        "f = open('f', 'r+b', 0); os.posix_fallocate(f.fileno(), 0, 10000)",
        "open('f', 'wb')",
    ] {
        reset();
        nobody.good(statement);
        assert_eq!(mode_of(&path), 0o777, "{statement}");
    }
    drop(nobody);
    scratch.close_and_check();
}

#[test]
fn rename_keeps_to_its_matrix() {
    let Some(scratch) = Scratch::mounted("") else { return };
    let path = |name: &str| scratch.path(name);
    let rename = |from: &str, to: &str| fs::rename(path(from), path(to));
    let flagged = |from: &str, to: &str, flags| {
        rustix::fs::renameat_with(CWD, path(from), CWD, path(to), flags).map_err(io::Error::from)
    };
    for dir in ["empty", "full", "d"] {
        fs::create_dir(path(dir)).unwrap();
    }
    fs::write(path("full/f"), "in full").unwrap();
    fs::write(path("f"), "f").unwrap();
    fs::write(path("g"), "g").unwrap();
    fails(Errno::NOTEMPTY, rename("d", "full"));
    fails(Errno::ISDIR, rename("f", "empty"));
    fails(Errno::NOTDIR, rename("empty", "f"));
    fails(Errno::NOENT, rename("none", "f"));
    fails(Errno::INVAL, rename("d", "d/below"));
    fails(Errno::NOTDIR, rename("g", "f/below"));
    rename("d", "empty").unwrap();
    assert!(!path("d").exists() && path("empty").is_dir());
    fails(Errno::EXIST, flagged("f", "g", RenameFlags::NOREPLACE));
    flagged("f", "h", RenameFlags::NOREPLACE).unwrap();
    fails(Errno::NOENT, flagged("h", "none", RenameFlags::EXCHANGE));
    flagged("h", "full", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(path("full")).unwrap(), b"f");
    assert_eq!(fs::read(path("h/f")).unwrap(), b"in full");
    fails(Errno::INVAL, flagged("h", "h/f", RenameFlags::EXCHANGE));
    fs::hard_link(path("g"), path("g2")).unwrap();
    rename("g", "g2").unwrap(); // of one file: nothing happens
    assert!(path("g").exists() && path("g2").exists());
    // A directory moves into another one: `..` and the link counts follow.
    fs::create_dir_all(path("h/sub/subsub")).unwrap();
    rename("h/sub", "empty/sub").unwrap();
    let nlink = |name| fs::metadata(path(name)).unwrap().nlink();
    assert_eq!((nlink("h"), nlink("empty"), nlink("empty/sub")), (2, 3, 3));
    let ino = |name| fs::metadata(path(name)).unwrap().ino();
    assert_eq!(ino("empty/sub/.."), ino("empty"));
    scratch.close_and_check();
}

#[test]
fn names_and_paths_have_their_limits() {
    let Some(mut scratch) = Scratch::mounted("") else { return };
    let longest = "ä".repeat(127) + "x"; // 255 bytes
    fs::write(scratch.path(&longest), "long").unwrap();
    fails(Errno::NAMETOOLONG, fs::write(scratch.path(&(longest.clone() + "y")), ""));
    fails(Errno::NAMETOOLONG, fs::metadata(scratch.path(&"n".repeat(256))));
    let odd = OsString::from_vec(b"\xff\x01 \n*".to_vec());
    fs::write(scratch.dir().join(&odd), "odd").unwrap();
    fails(Errno::NOTDIR, fs::metadata(scratch.path(&longest).join("below")));
    fails(Errno::EXIST, fs::create_dir(scratch.path(&longest)));
    fails(Errno::NOTDIR, fs::remove_dir(scratch.path(&longest)));
    fs::create_dir(scratch.path("d")).unwrap();
    fails(Errno::ISDIR, fs::remove_file(scratch.path("d")));
    fails(Errno::ISDIR, OpenOptions::new().write(true).open(scratch.path("d")));
    fs::write(scratch.path("d/f"), "").unwrap();
    fails(Errno::NOTEMPTY, fs::remove_dir(scratch.path("d")));
    fails(Errno::INVAL, fs::remove_dir(scratch.path("d/.")));
    symlink("two", scratch.path("one")).unwrap();
    symlink("one", scratch.path("two")).unwrap();
    fails(Errno::LOOP, fs::read(scratch.path("one")));
    let no_follow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let open = OpenOptions::new().read(true).custom_flags(no_follow).open(scratch.path("one"));
    fails(Errno::LOOP, open);
    scratch.remount("");
    assert_eq!(fs::read(scratch.path(&longest)).unwrap(), b"long");
    assert_eq!(fs::read(scratch.dir().join(&odd)).unwrap(), b"odd");
    scratch.close_and_check();
}

#[test]
fn symbolic_links_of_every_length() {
    let Some(mut scratch) = Scratch::mounted("") else { return };
    let lengths = [1, 59, 60, 61, 100, 4094, 4095];
    for len in lengths {
        let target = "t".repeat(len);
        symlink(&target, scratch.path(&format!("link{len}"))).unwrap();
    }
    fails(Errno::NAMETOOLONG, symlink("t".repeat(4096), scratch.path("too-long")));
    scratch.remount("");
    for len in lengths {
        let path = scratch.path(&format!("link{len}"));
        assert_eq!(fs::read_link(&path).unwrap(), Path::new(&"t".repeat(len)));
        assert_eq!(fs::symlink_metadata(&path).unwrap().len(), len as u64);
    }
    scratch.close_and_check();
}

#[test]
fn hard_links_are_counted_up_to_the_limit() {
    let Some(scratch) = Scratch::mounted("") else { return };
    const LIMIT: u64 = 65_000;
    fs::create_dir(scratch.path("links")).unwrap();
    fs::write(scratch.path("f"), "shared").unwrap();
    for index in 1..LIMIT {
        fs::hard_link(scratch.path("f"), scratch.path(&format!("links/{index}"))).unwrap();
    }
    assert_eq!(fs::metadata(scratch.path("f")).unwrap().nlink(), LIMIT);
    fails(Errno::MLINK, fs::hard_link(scratch.path("f"), scratch.path("one-more")));
    fs::remove_file(scratch.path("f")).unwrap();
    assert_eq!(fs::metadata(scratch.path("links/7")).unwrap().nlink(), LIMIT - 1);
    assert_eq!(fs::read(scratch.path("links/64999")).unwrap(), b"shared");
    fails(Errno::PERM, fs::hard_link(scratch.path("links"), scratch.path("dir-link")));
    scratch.close_and_check();
}

#[test]
fn an_unlinked_file_lives_on_while_it_is_open() {
    let Some(mut scratch) = Scratch::mounted("commit=300") else { return };
    let open = || {
        let path = scratch.path("f");
        OpenOptions::new().create_new(true).read(true).write(true).open(path).unwrap()
    };
    let free = || rustix::fs::statvfs(scratch.dir()).unwrap().f_bfree;
    let before = free();
    let file = open();
    file.write_all_at(&[1; 1 << 20], 0).unwrap();
    fs::remove_file(scratch.path("f")).unwrap();
    let second = open(); // the name is free at once
    file.write_all_at(b"later", 5 << 20).unwrap();
    file.sync_all().unwrap();
    let mut back = [0; 5];
    file.read_exact_at(&mut back, 5 << 20).unwrap();
    assert_eq!(&back, b"later");
    assert_eq!((file.metadata().unwrap().nlink(), second.metadata().unwrap().len()), (0, 0));
    drop((file, second));
    fs::remove_file(scratch.path("f")).unwrap();
    // The file is open when the daemon dies, so the next mount must free it.
    let lost = open();
    lost.write_all_at(&[1; 1 << 20], 0).unwrap();
    fs::remove_file(scratch.path("f")).unwrap();
    lost.sync_all().unwrap();
    scratch.kill();
    drop(lost);
    scratch.mount("");
    assert!(rustix::fs::statvfs(scratch.dir()).unwrap().f_bfree + 8 >= before, "space is lost");
    scratch.close_and_check();
}

#[test]
fn two_processes_append() {
    for options in ["", "data=ordered"] {
        let Some(scratch) = Scratch::mounted(options) else { return };
        let Some(mut peer) = Peer::new(&scratch.dir()) else { return };
        const COUNT: usize = 500;
        let mut file =
            OpenOptions::new().append(true).create(true).open(scratch.path("log")).unwrap();
        let statement = "f = open('log', 'ab', 0)\nfor i in range(500): f.write(b'p%06d\\n' % i)";
        std::thread::scope(|scope| {
            scope.spawn(|| peer.good(statement));
            for index in 0..COUNT {
                file.write_all(format!("r{index:06}\n").as_bytes()).unwrap();
            }
        });
        let log = fs::read_to_string(scratch.path("log")).unwrap();
        for who in ["p", "r"] {
            let lines: Vec<_> = log.lines().filter(|line| line.starts_with(who)).collect();
            let expected: Vec<_> = (0..COUNT).map(|index| format!("{who}{index:06}")).collect();
            assert_eq!(lines, expected, "each whole, once, in its order");
        }
        assert_eq!(log.len(), 2 * COUNT * 8);
        drop((file, peer));
        scratch.close_and_check();
    }
}

#[test]
fn truncating_gives_zeros_back() {
    for options in ["", "data=ordered"] {
        let Some(mut scratch) = Scratch::mounted(options) else { return };
        let path = scratch.path("f");
        fs::write(&path, [9; 10_000]).unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(4100).unwrap();
        file.set_len(20_000).unwrap();
        let mut expected = vec![9; 4100];
        expected.resize(20_000, 0);
        assert!(fs::read(&path).unwrap() == expected);
        scratch_remount_with(&mut scratch, file, options);
        assert!(fs::read(&path).unwrap() == expected);
        File::options().write(true).truncate(true).open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        fails(Errno::FBIG, file.set_len(1 << 60));
        drop(file);
        scratch.close_and_check();
    }
}

fn scratch_remount_with(scratch: &mut Scratch, file: File, options: &str) {
    drop(file);
    scratch.remount(options);
}

#[test]
fn mapped_memory_reaches_the_file() {
    for options in ["commit=300", "commit=300,data=ordered", "commit=300,order=sync"] {
        let Some(mut scratch) = Scratch::mounted(options) else { return };
        let Some(mut peer) = Peer::new(&scratch.dir()) else { return };
        fs::write(scratch.path("f"), vec![1; 100_000]).unwrap();
        peer.good("f = open('f', 'r+b'); m = mmap.mmap(f.fileno(), 100000)");
        assert_eq!(peer.good("r = m[99999]"), 1);
        // Writes are seen through the mapping, and the other way round.
        let file = OpenOptions::new().read(true).write(true).open(scratch.path("f")).unwrap();
        file.write_all_at(b"written", 5000).unwrap();
        assert_eq!(peer.good("r = m[5000:5007].decode()"), "written");
        peer.good("m[50000:50006] = b'mapped'");
        let mut back = [0; 6];
        file.read_exact_at(&mut back, 50_000).unwrap();
        assert_eq!(&back, b"mapped");
        // msync is durable.
        peer.good("m.flush()");
        scratch.kill();
        drop((file, peer));
        scratch.mount(options);
        let content = fs::read(scratch.path("f")).unwrap();
        assert_eq!(
            (&content[50_000..50_006], &content[5000..5007]),
            (&b"mapped"[..], &b"written"[..])
        );
        assert_eq!(content.len(), 100_000);
        scratch.close_and_check();
    }
}

#[test]
fn sparse_files_know_their_holes() {
    for options in ["order=history", "order=sync", "data=ordered"] {
        let Some(mut scratch) = Scratch::mounted(options) else { return };
        let path = scratch.path("f");
        let file = File::create_new(&path).unwrap();
        file.write_all_at(b"start", 0).unwrap();
        file.write_all_at(b"middle", 1 << 30).unwrap();
        file.set_len(3 << 30).unwrap();
        scratch_remount_with(&mut scratch, file, options);
        let mut file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        assert!(file.metadata().unwrap().blocks() < 100);
        let seek = |from| rustix::fs::seek(&file, from).map_err(io::Error::from);
        use rustix::fs::SeekFrom::{Data, Hole};
        assert_eq!(seek(Hole(0)).unwrap(), 4096);
        assert_eq!(seek(Data(4096)).unwrap(), 1 << 30);
        assert_eq!(seek(Hole(1 << 30)).unwrap(), (1 << 30) + 4096);
        fails(Errno::NXIO, seek(Data((1 << 30) + 4096)));
        fails(Errno::NXIO, seek(Hole(3 << 30)));
        file.seek(SeekFrom::Start((1 << 30) - 3)).unwrap();
        let mut back = [1; 12];
        file.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"\0\0\0middle\0\0\0");
        drop(file);
        scratch.close_and_check();
    }
}

#[test]
fn fallocate_in_its_modes() {
    for options in ["", "data=ordered"] {
        let Some(mut scratch) = Scratch::mounted(options) else { return };
        let path = scratch.path("f");
        let file = File::create_new(&path).unwrap();
        let allocate = |flags, offset, len| {
            rustix::fs::fallocate(&file, flags, offset, len).map_err(io::Error::from)
        };
        let keep = FallocateFlags::KEEP_SIZE;
        allocate(FallocateFlags::empty(), 0, 50_000).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 50_000);
        allocate(keep, 0, 1 << 20).unwrap();
        let metadata = file.metadata().unwrap();
        assert_eq!((metadata.len(), metadata.blocks()), (50_000, 2048));
        file.write_all_at(&[5; 50_000], 0).unwrap();
        allocate(FallocateFlags::PUNCH_HOLE | keep, 1000, 10_000).unwrap();
        allocate(FallocateFlags::ZERO_RANGE, 20_001, 5000).unwrap();
        allocate(FallocateFlags::ZERO_RANGE | keep, 49_000, 5000).unwrap();
        fails(Errno::OPNOTSUPP, allocate(FallocateFlags::PUNCH_HOLE, 0, 1));
        fails(Errno::INVAL, allocate(FallocateFlags::empty(), 0, 0));
        let mut expected = vec![5; 50_000];
        expected[1000..11_000].fill(0);
        expected[20_001..25_001].fill(0);
        expected[49_000..].fill(0);
        assert!(fs::read(&path).unwrap() == expected);
        scratch_remount_with(&mut scratch, file, options);
        assert!(fs::read(&path).unwrap() == expected);
        scratch.close_and_check();
    }
}

/// The file had grown by what fitted, but the kernel, told of an error, went on with the old size:
/// two sizes for one file, until its attributes were read again.
#[test]
fn regression_a_failed_fallocate_leaves_the_size() {
    for options in ["", "data=ordered"] {
        let Some(mut scratch) = Scratch::mounted(options) else { return };
        let path = scratch.path("f");
        fs::write(&path, "short").unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let too_much = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 1 << 30);
        fails(Errno::NOSPC, too_much.map_err(io::Error::from));
        assert_eq!(file.metadata().unwrap().len(), 5);
        scratch_remount_with(&mut scratch, file, options);
        assert_eq!(fs::read(&path).unwrap(), b"short");
        File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
        fs::write(&path, vec![1; 8 << 20]).unwrap(); // there is space again
        scratch.close_and_check();
    }
}

#[test]
fn access_control_lists_are_kept_and_obeyed() {
    let Some(mut scratch) = Scratch::mounted("") else { return };
    if !has_program("setfacl") {
        return;
    }
    let path = scratch.path("f");
    fs::write(&path, "guarded").unwrap();
    set_mode(&path, 0o600);
    system("setfacl", ["-m", "u:1003:rw,m::rw", text(&path)]).good();
    fs::create_dir(scratch.path("d")).unwrap();
    system("setfacl", ["-m", "d:u:1003:rx,u:1003:rwx", text(&scratch.path("d"))]).good();
    scratch.remount("");
    let Some(mut friend) = Peer::as_user(&scratch.dir(), 1003, 1003) else { return };
    let Some(mut nobody) = Peer::as_user(&scratch.dir(), OTHER_USER, OTHER_USER) else { return };
    assert_eq!(friend.good("r = open('f', 'r+').read()"), "guarded");
    nobody.fails(Errno::ACCESS, "open('f')");
    friend.good("open('d/new', 'w').close(); os.mkdir('d/sub')");
    let shown = system("getfacl", ["-nc", text(&scratch.path("d/sub"))]).good();
    assert!(shown.contains("default:user:1003:r-x"), "{shown}");
    let shown = system("getfacl", ["-nc", text(&path)]).good();
    assert!(shown.contains("user:1003:rw-") && shown.contains("mask::rw-"), "{shown}");
    // chmod changes the mask.
    set_mode(&path, 0o640);
    friend.fails(Errno::ACCESS, "open('f', 'r+')");
    system("setfacl", ["-b", text(&path)]).good();
    friend.fails(Errno::ACCESS, "open('f')");
    nobody.fails(Errno::PERM, "os.setxattr('f', 'trusted.x', b'')");
    nobody.fails(Errno::ACCESS, "os.setxattr('f', 'user.x', b'')");
    drop((friend, nobody));
    scratch.close_and_check();
}

#[test]
fn extended_attributes_of_many_sizes() {
    let Some(mut scratch) = Scratch::mounted("") else { return };
    let path = scratch.path("f");
    fs::write(&path, "").unwrap();
    let set = |name: &str, value: &[u8]| {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&path, name, value, flags).map_err(io::Error::from)
    };
    let sizes = [0, 1, 30, 100, 1000, 2000];
    for size in sizes {
        set(&format!("user.of{size}"), &vec![7; size]).unwrap();
    }
    set("trusted.t", b"root's").unwrap();
    set("security.s", b"s").unwrap();
    fails(Errno::NOSPC, set("user.large", &[1; 5000]));
    fails(Errno::RANGE, set(&format!("user.{}", "n".repeat(251)), b""));
    scratch.remount("");
    let mut value = vec![0; 65_536];
    for size in sizes {
        let len = rustix::fs::getxattr(&path, format!("user.of{size}"), &mut value).unwrap();
        assert!(value[..len] == vec![7; size]);
    }
    let len = rustix::fs::listxattr(&path, &mut value).unwrap();
    assert_eq!(value[..len].iter().filter(|byte| **byte == 0).count(), sizes.len() + 2);
    scratch.close_and_check();
}

#[test]
fn immutable_and_append_only_files() {
    let Some(mut scratch) = Scratch::mounted("order=history") else { return };
    let path = scratch.path("f");
    fs::write(&path, "x").unwrap();
    system("chattr", ["+i", text(&path)]).good();
    scratch.remount("order=history");
    fails(Errno::PERM, OpenOptions::new().append(true).open(&path).and_then(|mut f| f.write(b"y")));
    fails(Errno::PERM, fs::remove_file(&path));
    fails(Errno::PERM, fs::rename(&path, scratch.path("g")));
    fails(Errno::PERM, fs::hard_link(&path, scratch.path("g")));
    fails(Errno::PERM, fs::set_permissions(&path, fs::Permissions::from_mode(0o777)));
    let listed = system("lsattr", [text(&path)]).good();
    assert!(listed.split(' ').next().unwrap().contains('i'), "{listed}");
    system("chattr", ["-i", text(&path)]).good();
    system("chattr", ["+a", text(&path)]).good();
    OpenOptions::new().append(true).open(&path).unwrap().write_all(b"appended").unwrap();
    let overwritten = OpenOptions::new().write(true).open(&path).and_then(|f| f.write_at(b"z", 0));
    fails(Errno::PERM, overwritten);
    fails(Errno::PERM, File::options().write(true).truncate(true).open(&path));
    fails(Errno::PERM, fs::remove_file(&path));
    assert_eq!(fs::read(&path).unwrap(), b"xappended");
    system("chattr", ["-a", text(&path)]).good();
    fs::remove_file(&path).unwrap();
    scratch.close_and_check();
}

/// The kernel writes whole pages back, with what was there before.
#[test]
fn append_only_files_with_order_sync() {
    let Some(mut scratch) = Scratch::mounted("order=sync") else { return };
    let path = scratch.path("f");
    fs::write(&path, "x").unwrap();
    system("sync", ["-f", text(&path)]).good();
    system("chattr", ["+a", text(&path)]).good();
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    for piece in [&b"appended"[..], &[7; 10_000]] {
        file.write_all(piece).unwrap();
        file.sync_all().unwrap();
    }
    drop(file);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let _ = file.write_at(b"z", 0);
    fails(Errno::PERM, file.sync_all());
    drop(file);
    scratch.remount("order=sync");
    assert_eq!(fs::read(&path).unwrap(), [&b"xappended"[..], &[7; 10_000]].concat());
    system("chattr", ["-a", text(&path)]).good();
    fs::remove_file(&path).unwrap();
    scratch.close_and_check();
}

#[test]
fn special_files_keep_their_kind() {
    let Some(mut scratch) = Scratch::mounted("") else { return };
    let make = |name: &str, kind, device| {
        let mode = Mode::from_raw_mode(0o640);
        rustix::fs::mknodat(CWD, scratch.path(name), kind, mode, device).unwrap();
    };
    make("fifo", FileType::Fifo, 0);
    make("socket", FileType::Socket, 0);
    make("char", FileType::CharacterDevice, rustix::fs::makedev(1, 3));
    make("block", FileType::BlockDevice, rustix::fs::makedev(300, 70_000));
    let listener = std::os::unix::net::UnixListener::bind(scratch.path("listening")).unwrap();
    std::os::unix::net::UnixStream::connect(scratch.path("listening")).unwrap();
    drop(listener);
    fs::write(scratch.path("char"), "to nowhere").unwrap(); // it is /dev/null
    scratch.remount("");
    let metadata = |name| fs::symlink_metadata(scratch.path(name)).unwrap();
    assert!(metadata("fifo").file_type().is_fifo());
    assert!(metadata("socket").file_type().is_socket());
    assert!(metadata("char").file_type().is_char_device());
    assert!(metadata("block").file_type().is_block_device());
    assert_eq!(metadata("char").rdev(), rustix::fs::makedev(1, 3));
    assert_eq!(metadata("block").rdev(), rustix::fs::makedev(300, 70_000));
    scratch.close_and_check();
}

#[test]
fn times_move_when_they_should() {
    let Some(mut scratch) = Scratch::mounted("order=history") else { return };
    let path = scratch.path("f");
    fs::write(&path, "x").unwrap();
    let Some(mut peer) = Peer::new(&scratch.dir()) else { return };
    let year_2200 = 7_258_118_400_i64;
    for (seconds, nanoseconds) in [(year_2200, 999_999_999), (-1, 1), (0, 0), (2_147_483_648, 5)] {
        let ns = i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
        peer.good(&format!("os.utime('f', ns=({ns}, {ns}))"));
        scratch_remount(&mut scratch, &mut peer);
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (seconds, nanoseconds));
        assert_eq!((metadata.atime(), metadata.atime_nsec()), (seconds, nanoseconds));
    }
    peer.good("os.utime('f', (1, 1))");
    let times = |path: &Path| {
        let metadata = fs::metadata(path).unwrap();
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        ((metadata.mtime(), metadata.mtime_nsec()), changed)
    };
    // On older kernels times are in steps of the kernel's clock.
    let step = |last: (i64, i64)| {
        let has_moved = || {
            let now = clock_gettime(ClockId::RealtimeCoarse);
            (now.tv_sec, now.tv_nsec) > last
        };
        if !support::is_linux_since(6, 13) {
            support::wait_until("the kernel's clock stands still", has_moved);
        }
    };
    let (root, old) = (scratch.dir(), times(&path));
    step(old.1);
    OpenOptions::new().append(true).open(&path).unwrap().write_all(b"y").unwrap();
    let written = times(&path);
    assert!(written.0 > old.0 && written.1 > old.1);
    step(written.1);
    set_mode(&path, 0o600);
    let changed = times(&path);
    assert!(changed.0 == written.0 && changed.1 > written.1);
    let before = times(&root);
    step(before.0);
    fs::rename(&path, scratch.path("g")).unwrap();
    assert!(times(&root).0 > before.0);
    let birth = fs::metadata(scratch.path("g")).unwrap().created();
    assert_eq!(birth.is_ok(), support::is_linux_since(6, 6));
    drop(peer);
    scratch.close_and_check();
}

/// Remounts although a peer works in the directory.
fn scratch_remount(scratch: &mut Scratch, peer: &mut Peer) {
    peer.good("os.chdir('/')");
    scratch.remount("order=history");
    peer.good(&format!("os.chdir({:?})", text(&scratch.dir())));
}

fn within_a_minute(reached: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !reached() {
        assert!(start.elapsed().as_secs() < 60, "not reached");
        std::thread::yield_now();
    }
}

#[test]
fn space_is_shown_and_given_back() {
    let Some(scratch) = Scratch::mounted("order=history") else { return };
    let space = || rustix::fs::statvfs(scratch.dir()).unwrap();
    let before = space();
    assert_eq!((before.f_bsize, before.f_namemax), (4096, 255));
    let mut file = File::create(scratch.path("f")).unwrap();
    let block = vec![1; 1 << 20];
    let full = loop {
        if let Err(error) = file.write_all(&block) {
            break error;
        }
    };
    assert_eq!(full.raw_os_error(), Some(28));
    // What is kept for extent trees stays: 2 %.
    assert!(space().f_bfree < 256 + space().f_blocks / 50 + 16 && space().f_bavail == 0);
    file.sync_all().unwrap();
    drop(file);
    fs::remove_file(scratch.path("f")).unwrap();
    File::open(scratch.dir()).unwrap().sync_all().unwrap();
    // The kernel reports the last close asynchronously, a little later.
    within_a_minute(|| (space().f_bfree, space().f_ffree) == (before.f_bfree, before.f_ffree));
    fs::write(scratch.path("again"), &block).unwrap();
    scratch.close_and_check();
}

/// A program that deletes a file and writes another finds the space of the first.
#[test]
fn space_of_a_deleted_file_is_there_for_the_next() {
    let Some(scratch) = Scratch::mounted("") else { return };
    let free_bytes = rustix::fs::statvfs(scratch.dir()).unwrap().f_bavail * 4096;
    let content = vec![7; usize::try_from(free_bytes / 100 * 99).unwrap()];
    for round in 0..10 {
        fs::write(scratch.path("f"), &content).unwrap_or_else(|e| panic!("round {round}: {e}"));
        fs::remove_file(scratch.path("f")).unwrap();
    }
    scratch.close_and_check();
}

#[test]
fn a_directory_is_read_while_it_changes() {
    let Some(mut scratch) = Scratch::with_size("256M") else { return };
    scratch.mount("");
    let count = tier::count(20_000);
    let dir = scratch.path("many");
    fs::create_dir(&dir).unwrap();
    let name = |index: usize| format!("stays-{index}");
    let made: usize = std::thread::scope(|scope| {
        let changing = scope.spawn(|| {
            for index in 0..count {
                File::create(dir.join(name(index))).unwrap();
                File::create(dir.join(format!("goes-{index}"))).unwrap();
                if index % 2 == 1 {
                    fs::remove_file(dir.join(format!("goes-{}", index - 1))).unwrap();
                }
            }
            count
        });
        let mut seen = 0;
        while !changing.is_finished() {
            let before = fs::metadata(dir.join(name(seen))).map_or(seen, |_| seen + 1);
            let names: Vec<_> =
                fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect();
            let unique: BTreeSet<_> = names.iter().collect();
            assert_eq!(unique.len(), names.len(), "a name came twice");
            // What was there before the reading began must be found.
            for index in 0..before {
                assert!(unique.contains(&OsString::from(name(index))), "{index} is missing");
            }
            seen = (0..).take_while(|index| unique.contains(&OsString::from(name(*index)))).count();
        }
        changing.join().unwrap()
    });
    let names: BTreeSet<_> = fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), made + count / 2);
    for name in names {
        fs::remove_file(dir.join(name)).unwrap();
    }
    fs::remove_dir(&dir).unwrap();
    scratch.close_and_check();
}

#[test]
fn locks_hold_between_processes() {
    let Some(scratch) = Scratch::mounted("") else { return };
    let Some(mut one) = Peer::new(&scratch.dir()) else { return };
    let Some(mut two) = Peer::new(&scratch.dir()) else { return };
    fs::write(scratch.path("f"), "0123456789").unwrap();
    for peer in [&mut one, &mut two] {
        peer.good("f = open('f', 'r+b')");
    }
    one.good("fcntl.lockf(f, fcntl.LOCK_EX, 5, 0)");
    two.fails(Errno::AGAIN, "fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 3)");
    two.fails(Errno::AGAIN, "fcntl.lockf(f, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 0)");
    two.good("fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 5)");
    one.good("fcntl.lockf(f, fcntl.LOCK_UN, 5, 0)");
    two.good("fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 3)");
    one.good("fcntl.flock(f, fcntl.LOCK_EX)");
    two.fails(Errno::AGAIN, "fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)");
    drop(one); // a lock ends with its process
    two.good("fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)");
    drop(two);
    scratch.close_and_check();
}

#[test]
fn ranges_are_copied() {
    let Some(scratch) = Scratch::mounted("") else { return };
    let Some(mut peer) = Peer::new(&scratch.dir()) else { return };
    let content: Vec<u8> = (0..200_000_u32).map(|index| (index % 253) as u8).collect();
    fs::write(scratch.path("from"), &content).unwrap();
    fs::write(scratch.path("to"), "").unwrap();
    peer.good(
        "a, b = open('from', 'rb'), open('to', 'wb'); left = 150000\n\
         while left: left -= os.copy_file_range(a.fileno(), b.fileno(), left)\n\
         b.close(); a.close()",
    );
    assert!(fs::read(scratch.path("to")).unwrap() == content[..150_000]);
    fs::copy(scratch.path("from"), scratch.path("copy")).unwrap();
    assert!(fs::read(scratch.path("copy")).unwrap() == content);
    drop(peer);
    scratch.close_and_check();
}

#[test]
fn programs_run_from_it() {
    let Some(mut scratch) = Scratch::mounted("") else { return };
    fs::copy("/bin/true", scratch.path("true")).unwrap();
    set_mode(&scratch.path("true"), 0o755);
    system(text(&scratch.path("true")), [""; 0]).good();
    scratch.remount("noexec");
    let refused = spawn(&mut std::process::Command::new(scratch.path("true")));
    fails(Errno::ACCESS, refused);
    scratch.close_and_check();
}

#[test]
fn past_the_page_cache() {
    for options in ["", "data=ordered"] {
        let Some(scratch) = Scratch::mounted(options) else { return };
        let path = scratch.path("f");
        let content: Vec<u8> = (0..3 << 20).map(|index: u32| (index % 249) as u8).collect();
        fs::write(scratch.root().join("content"), &content).unwrap();
        let from = format!("if={}", text(&scratch.root().join("content")));
        let to = format!("of={}", text(&path));
        system("dd", [&from, &to, "bs=256K", "oflag=direct", "status=none"]).good();
        assert!(fs::read(&path).unwrap() == content);
        OpenOptions::new().write(true).open(&path).unwrap().write_all_at(b"cached", 77).unwrap();
        let (from, to) = (format!("if={}", text(&path)), scratch.root().join("back"));
        let to = format!("of={}", text(&to));
        system("dd", [&from, &to, "bs=512K", "iflag=direct", "status=none"]).good();
        let mut expected = content;
        expected[77..83].copy_from_slice(b"cached");
        assert!(fs::read(scratch.root().join("back")).unwrap() == expected);
        scratch.close_and_check();
    }
}

/// Starting a program closes files in the middle of exec, where the kernel locks the process's
/// entry in /proc. The thread that answered the requests of such a close looked into that entry to
/// learn on which CPU its client ran: each waited for the other, until the daemon was killed.
#[test]
fn regression_programs_can_be_started_while_files_are_written() {
    let Some(mut scratch) = Scratch::mounted("order=sync") else { return };
    let path = scratch.path("f");
    let (sender, receiver) = std::sync::mpsc::channel();
    let starting = std::thread::spawn(move || {
        for round in 0..500 {
            let file = File::create(&path)?;
            // A few requests more or less, or a thread that looks at each 32nd one would look at
            // the same kind for ever. The old time makes sure that the write changes it.
            for _ in 0..=round % 3 {
                file.set_modified(std::time::UNIX_EPOCH)?;
            }
            file.write_all_at(b"dirty", round)?;
            spawn(&mut std::process::Command::new("true"))?.wait()?; // closes its copy of `file`
            let _ = sender.send(round);
        }
        io::Result::Ok(())
    });
    let mut done = None;
    loop {
        match receiver.recv_timeout(std::time::Duration::from_secs(120)) {
            Ok(round) => done = Some(round),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                scratch.kill(); // sets the thread free
                panic!("stuck after round {done:?}: {:?}", starting.join().unwrap());
            }
        }
    }
    starting.join().unwrap().unwrap();
    assert_eq!(done, Some(499));
    scratch.close_and_check();
}
