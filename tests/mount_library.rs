//! A volume that is really mounted: every operation through the kernel, and `e2fsck` at the end.
//!
//! Without root, /dev/fuse and e2fsprogs, the tests are skipped.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{
    DirEntryExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink,
};
use std::process::Command;

use crate::support::is_linux_since;
use crate::support::mounted::{Mounted, run};
use rustix::fs::{CWD, FallocateFlags, RenameFlags, XattrFlags};

/// A value of `user.onejournal.stat`.
fn counter(mounted: &Mounted, name: &str) -> u64 {
    let mut value = vec![0; 65_536];
    let len = rustix::fs::getxattr(mounted.dir(), "user.onejournal.stat", &mut value).unwrap();
    let stat: serde_json::Value = serde_json::from_slice(&value[..len]).unwrap();
    stat[name].as_u64().unwrap_or_else(|| panic!("no counter {name} in {stat}"))
}

#[test]
fn files_keep_what_was_written_across_mounts() {
    let Some(mut mounted) = Mounted::new() else { return };
    let content: Vec<u8> = (0..3_000_000u32).map(|index| (index % 251) as u8).collect();
    fs::write(mounted.path("large"), &content).unwrap();
    fs::create_dir_all(mounted.path("a/b/c")).unwrap();
    fs::write(mounted.path("a/b/c/small"), b"small").unwrap();
    symlink("a/b", mounted.path("link")).unwrap();
    fs::hard_link(mounted.path("large"), mounted.path("a/hard")).unwrap();
    mounted.remount();
    assert!(fs::read(mounted.path("large")).unwrap() == content);
    assert_eq!(fs::read(mounted.path("link/c/small")).unwrap(), b"small");
    assert_eq!(fs::metadata(mounted.path("a/hard")).unwrap().nlink(), 2);
    mounted.close_and_check();
}

#[test]
fn names_are_made_moved_and_removed() {
    let Some(mounted) = Mounted::new() else { return };
    let path = |name: &str| mounted.path(name);
    // The kernel remembers that a name is not there; making it must win over that.
    assert!(!path("one").exists());
    fs::write(path("one"), b"1").unwrap();
    assert!(path("one").exists());
    fs::write(path("two"), b"2").unwrap();
    let rename = |from, to, flags| rustix::fs::renameat_with(CWD, path(from), CWD, path(to), flags);
    assert_eq!(rename("one", "two", RenameFlags::NOREPLACE), Err(rustix::io::Errno::EXIST));
    rename("one", "two", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(path("one")).unwrap(), b"2");
    rename("one", "two", RenameFlags::empty()).unwrap();
    assert_eq!(fs::read(path("two")).unwrap(), b"2");
    assert!(!path("one").exists());
    fs::create_dir(path("dir")).unwrap();
    fs::write(path("dir/file"), b"").unwrap();
    assert!(fs::remove_dir(path("dir")).is_err());
    fs::remove_file(path("dir/file")).unwrap();
    fs::remove_dir(path("dir")).unwrap();
    assert!(run(Command::new("mkfifo").arg(path("fifo"))).unwrap().status.success());
    assert!(fs::metadata(path("fifo")).unwrap().file_type().is_fifo());
    let made = run(Command::new("mknod").arg(path("null")).args(["c", "1", "3"]));
    assert!(made.unwrap().status.success());
    assert_eq!(fs::metadata(path("null")).unwrap().rdev(), 0x103);
    mounted.close_and_check();
}

#[test]
fn a_large_directory_is_listed_completely_and_once() {
    let Some(mounted) = Mounted::new() else { return };
    let count = 3000;
    fs::create_dir(mounted.path("many")).unwrap();
    for index in 0..count {
        File::create(mounted.path(&format!("many/file-{index}"))).unwrap();
    }
    let list = || {
        let mut names: Vec<_> = fs::read_dir(mounted.path("many"))
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                assert_eq!(entry.ino(), entry.metadata().unwrap().ino());
                entry.file_name()
            })
            .collect();
        names.sort();
        names
    };
    let names = list();
    assert_eq!(names.len(), count);
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    assert_eq!(list(), names);
    fs::remove_dir_all(mounted.path("many")).unwrap();
    mounted.close_and_check();
}

#[test]
fn an_unlinked_file_lives_as_long_as_it_is_open() {
    let Some(mounted) = Mounted::new() else { return };
    let mut file =
        OpenOptions::new().create_new(true).read(true).write(true).open(mounted.path("f")).unwrap();
    fs::remove_file(mounted.path("f")).unwrap();
    file.write_all(&[9; 100_000]).unwrap();
    file.rewind().unwrap();
    let mut content = Vec::new();
    file.read_to_end(&mut content).unwrap();
    assert!(content == [9; 100_000]);
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    drop(file);
    mounted.close_and_check();
}

#[test]
fn every_kind_of_sync_is_answered_by_a_commit() {
    let Some(mounted) = Mounted::new() else { return };
    let synced = |change: &dyn Fn()| {
        let before = counter(&mounted, "fsyncs");
        change();
        counter(&mounted, "fsyncs") - before
    };
    let file = File::create(mounted.path("f")).unwrap();
    file.write_all_at(b"x", 0).unwrap();
    assert_eq!(synced(&|| file.write_all_at(b"y", 1).unwrap()), 0);
    assert_eq!(synced(&|| file.sync_all().unwrap()), 1);
    assert_eq!(synced(&|| file.sync_data().unwrap()), 1);
    let dir = File::open(mounted.dir()).unwrap();
    assert_eq!(synced(&|| dir.sync_all().unwrap()), 1);
    for flag in [rustix::fs::OFlags::SYNC, rustix::fs::OFlags::DSYNC] {
        let flag = flag.bits().cast_signed();
        let file = OpenOptions::new().write(true).custom_flags(flag).open(mounted.path("f"));
        assert_eq!(synced(&|| file.as_ref().unwrap().write_all_at(b"z", 2).unwrap()), 1);
    }
    let commits = counter(&mounted, "commits");
    file.write_all_at(b"w", 3).unwrap();
    file.sync_data().unwrap();
    assert_eq!(counter(&mounted, "commits"), commits + 1);
    file.sync_data().unwrap();
    assert_eq!(counter(&mounted, "commits"), commits + 1, "nothing new, nothing to commit");
    drop((file, dir));
    mounted.close_and_check();
}

#[test]
fn files_are_truncated_allocated_and_punched() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path("f");
    let mut file = OpenOptions::new().create_new(true).read(true).write(true).open(&path).unwrap();
    file.write_all(&[7; 40_960]).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 4096, 8192).unwrap();
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0)), Ok(4096));
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(4096)), Ok(12_288));
    let mut block = [1; 4096];
    file.read_exact_at(&mut block, 4096).unwrap();
    assert!(block == [0; 4096]);
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 100_000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 100_000);
    rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 200_000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 100_000);
    file.set_len(5).unwrap();
    file.set_len(10_000).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut content = Vec::new();
    file.read_to_end(&mut content).unwrap();
    assert_eq!(&content[..5], &[7; 5]);
    assert!(content.len() == 10_000 && content[5..].iter().all(|&byte| byte == 0));
    drop(file);
    // The page cache must agree with what is written through another descriptor.
    OpenOptions::new().append(true).open(&path).unwrap().write_all(b"end").unwrap();
    assert!(fs::read(&path).unwrap().ends_with(b"\0end"));
    File::options().write(true).truncate(true).open(&path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"");
    mounted.close_and_check();
}

#[test]
fn attributes_are_set_and_shown() {
    let Some(mut mounted) = Mounted::new() else { return };
    let path = mounted.path("f");
    fs::write(&path, b"x").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4750)).unwrap();
    std::os::unix::fs::chown(&path, Some(1234), Some(100_000)).unwrap();
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!((metadata.uid(), metadata.gid()), (1234, 100_000));
    assert_eq!(metadata.mode() & 0o7777, 0o750, "a new owner takes set-user-ID off");
    let mut touch = Command::new("touch");
    touch.args(["-d", "1960-01-02 03:04:05.123456789 UTC"]).arg(&path);
    assert!(run(&mut touch).unwrap().status.success());
    mounted.remount();
    let metadata = fs::metadata(mounted.path("f")).unwrap();
    assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (-315_521_755, 123_456_789));
    assert_eq!(metadata.created().is_ok(), is_linux_since(6, 6), "statx tells the birth time");
    mounted.close_and_check();
}

#[test]
fn a_write_by_another_user_takes_set_user_id_off_at_once() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path("f");
    fs::write(&path, b"x").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
    // Asks for nothing but the mode, which the kernel may then answer from its cache.
    let mode = || {
        let flags = rustix::fs::AtFlags::empty();
        let mask = rustix::fs::StatxFlags::MODE;
        rustix::fs::statx(CWD, &path, flags, mask).unwrap().stx_mode & 0o7777
    };
    OpenOptions::new().append(true).open(&path).unwrap().write_all(b"root").unwrap();
    assert_eq!(mode(), 0o6777);
    let mut setpriv = Command::new("setpriv");
    setpriv
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", "echo y >> f"])
        .current_dir(mounted.dir());
    assert!(run(&mut setpriv).unwrap().status.success());
    assert_eq!(mode(), 0o777);
    mounted.close_and_check();
}

#[test]
fn extended_attributes_are_kept_and_ours_are_not_listed() {
    let Some(mut mounted) = Mounted::new() else { return };
    let path = mounted.path("f");
    fs::write(&path, b"x").unwrap();
    rustix::fs::setxattr(&path, "user.small", b"value", XattrFlags::CREATE).unwrap();
    rustix::fs::setxattr(&path, "user.large", &[5; 3000], XattrFlags::empty()).unwrap();
    let again = rustix::fs::setxattr(&path, "user.small", b"", XattrFlags::CREATE);
    assert_eq!(again, Err(rustix::io::Errno::EXIST));
    for name in ["stat", "file", "pid", "mode"].map(|name| format!("user.onejournal.{name}")) {
        let own = rustix::fs::setxattr(&path, &name, b"", XattrFlags::empty());
        assert_eq!(own, Err(rustix::io::Errno::PERM), "{name}");
        let own = rustix::fs::removexattr(&path, &name);
        assert_eq!(own, Err(rustix::io::Errno::PERM), "{name}");
    }
    mounted.remount();
    let path = mounted.path("f");
    let mut value = vec![0; 4096];
    let len = rustix::fs::getxattr(&path, "user.large", &mut value).unwrap();
    assert!(value[..len] == [5; 3000]);
    rustix::fs::removexattr(&path, "user.large").unwrap();
    let len = rustix::fs::listxattr(&path, &mut value).unwrap();
    assert_eq!(&value[..len], b"user.small\0");
    let len = rustix::fs::getxattr(&path, "user.onejournal.pid", &mut value).unwrap();
    assert_eq!(value[..len], *std::process::id().to_string().as_bytes());
    mounted.close_and_check();
}

#[test]
fn inode_flags_are_changed_by_chattr() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path("f");
    fs::write(&path, b"x").unwrap();
    let chattr = |change| run(Command::new("chattr").arg(change).arg(&path)).unwrap().status;
    assert!(chattr("+id").success());
    let listed = run(Command::new("lsattr").arg(&path)).unwrap().stdout;
    let flags = String::from_utf8(listed).unwrap().split(' ').next().unwrap().to_owned();
    assert!(flags.contains('i') && flags.contains('d'), "lsattr shows {flags}");
    assert!(fs::write(&path, b"y").is_err());
    assert!(fs::remove_file(&path).is_err());
    assert!(chattr("-i").success());
    fs::write(&path, b"y").unwrap();
    mounted.close_and_check();
}

#[test]
fn space_is_counted() {
    let Some(mounted) = Mounted::new() else { return };
    let free = || rustix::fs::statvfs(mounted.dir()).unwrap().f_bfree;
    let before = free();
    fs::write(mounted.path("f"), vec![1; 4 << 20]).unwrap();
    assert!(before - free() >= 1024);
    mounted.close_and_check();
}

#[test]
fn a_mount_in_use_is_not_taken_away() {
    let Some(mounted) = Mounted::new() else { return };
    let file = File::create(mounted.path("f")).unwrap();
    assert!(matches!(mounted.handle().unmount(), Err(mount::MountError::MountBusy(_))));
    drop(file);
    mounted.close_and_check();
}
