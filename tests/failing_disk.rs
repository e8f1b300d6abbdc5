//! The table of faults in `docs/reference/syncs.md`: what each call answers on a disk that fails,
//! and what is there after the next mount.

use crate::support;

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;

use rustix::io::Errno;
use rustix::process::Signal;
use support::{EmulatedDisk, Scratch, onejournal, system, text, wait_until};

/// The orders of writes, with options that leave commits to the test.
const ORDERS: [&str; 2] = ["order=history,commit=300", "order=sync,commit=300"];

/// A volume on an emulated disk. Its files hold their names, are durable, and were read since the
/// mount, except `cold`.
fn volume(options: &str) -> Option<(Scratch, EmulatedDisk)> {
    let mut scratch = Scratch::empty()?;
    let disk = EmulatedDisk::new(scratch.root().join("disk"));
    scratch.mount_target(&disk.path(), options);
    for name in ["old", "warm", "cold"] {
        scratch.write_synced(name);
    }
    scratch.umount();
    scratch.mount_target(&disk.path(), options);
    for name in ["old", "warm"] {
        assert_eq!(fs::read_to_string(scratch.path(name)).unwrap(), name);
    }
    Some((scratch, disk))
}

fn open(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

#[track_caller]
fn fails<T>(result: io::Result<T>, errno: Errno) {
    let error = result.err().expect("it must fail");
    assert_eq!(error.raw_os_error(), Some(errno.raw_os_error()), "{error}");
}

/// Every sync, of the file and of the volume.
fn syncs(scratch: &Scratch, file: &File) -> [io::Result<()>; 4] {
    let command = onejournal(["sync", text(&scratch.dir())]);
    let by_command = if command.code == Some(0) { Ok(()) } else { Err(Errno::IO.into()) };
    let volume = rustix::fs::syncfs(file).map_err(Into::into);
    [file.sync_all(), file.sync_data(), volume, by_command]
}

/// Writes `content` to the file, which works, then lets the disk fail as `command` says. Checks all
/// answers, and returns what the next mount finds in the file.
fn after_a_failed_sync(options: &str, command: &str) -> Option<String> {
    let (mut scratch, disk) = volume(options)?;
    let path = scratch.path("old");
    let file = open(&path);
    file.write_all_at(b"new", 0).unwrap();
    disk.command(command);
    fails(file.sync_all(), Errno::IO);
    for is_repaired in [false, true] {
        if is_repaired {
            disk.command("fail nothing");
        }
        let [of_file, of_data, of_volume, by_command] = syncs(&scratch, &file);
        [of_file, of_data, by_command].into_iter().for_each(|answer| fails(answer, Errno::IO));
        if support::are_syncs_told() {
            fails(of_volume, Errno::IO);
        }
        fails(File::create(scratch.path("made")), Errno::IO);
        fails(fs::rename(scratch.path("warm"), scratch.path("moved")), Errno::IO);
        fails(fs::remove_file(scratch.path("warm")), Errno::IO);
        assert_eq!(fs::read_to_string(&path).unwrap(), "new", "it is readable");
        assert_eq!(fs::read_to_string(scratch.path("warm")).unwrap(), "warm");
        assert_eq!(fs::read_dir(scratch.dir()).unwrap().count(), 4, "lost+found as well");
        let stat = scratch.stat();
        let why = stat["last_error"].as_str().unwrap_or_default();
        assert!(stat["read_only"] == true && why.contains("Input/output error"), "{stat}");
    }
    if options.contains("history") {
        fails(file.write_all_at(b"!!!", 0), Errno::IO);
    } else {
        // The kernel takes it, and the next sync reports it.
        let _ = file.write_all_at(b"!!!", 0);
        fails(file.sync_all(), Errno::IO);
    }
    drop(file);
    assert_eq!(fs::read_to_string(scratch.path("cold")).unwrap(), "cold");
    onejournal(["umount", text(&scratch.dir())]).refused(8, "unmounted, but not closed");
    scratch.expect_closed();
    scratch.mount_target(&disk.path(), options);
    let found = fs::read_to_string(scratch.path("old")).unwrap();
    for name in ["warm", "cold"] {
        assert_eq!(fs::read_to_string(scratch.path(name)).unwrap(), name);
    }
    scratch.umount();
    support::check_clean(&disk.path());
    Some(found)
}

/// One of the two is not there after the remount, and the other one is: no program may rely on
/// either.
#[test]
fn a_change_whose_sync_failed_is_readable_and_old_or_new_after_the_remount() {
    for options in ORDERS {
        let Some(found) = after_a_failed_sync(options, "fail writes") else { return };
        assert_eq!(found, "old", "{options}: nothing reached the disk");
        let Some(found) = after_a_failed_sync(options, "fail flushes") else { return };
        assert_eq!(found, "new", "{options}: the disk has the record");
    }
}

#[test]
fn a_failed_read_fails_its_call_and_nothing_else() {
    let Some((mut scratch, disk)) = volume(ORDERS[0]) else { return };
    disk.command("fail reads");
    fails(fs::read(scratch.path("cold")), Errno::IO);
    // The rest of the block has to be read first.
    fails(open(&scratch.path("cold")).write_all_at(b"x", 0), Errno::IO);
    assert_eq!(fs::read_to_string(scratch.path("warm")).unwrap(), "warm");
    let whole = vec![b'n'; 4096];
    let file = open(&scratch.path("old"));
    file.write_all_at(&whole, 0).unwrap();
    syncs(&scratch, &file).into_iter().for_each(Result::unwrap);
    let stat = scratch.stat();
    assert!(stat["read_only"] == false && stat["last_error"].is_string(), "{stat}");
    disk.command("fail nothing");
    assert_eq!(fs::read_to_string(scratch.path("cold")).unwrap(), "cold");
    drop(file);
    scratch.umount();
    scratch.mount_target(&disk.path(), ORDERS[0]);
    assert_eq!(fs::read(scratch.path("old")).unwrap(), whole);
    scratch.umount();
    support::check_clean(&disk.path());
}

/// As on ext4: the kernel drops what it could not write, after one sync has reported it.
#[test]
fn in_order_sync_a_failed_read_at_the_write_back_is_reported_once_and_loses_the_data() {
    let Some((mut scratch, disk)) = volume(ORDERS[1]) else { return };
    let file = open(&scratch.path("old"));
    file.write_all_at(b"new", 0).unwrap();
    disk.command("fail reads");
    fails(file.sync_all(), Errno::IO);
    file.sync_all().unwrap();
    disk.command("fail nothing");
    drop(file);
    scratch.umount();
    scratch.mount_target(&disk.path(), ORDERS[1]);
    assert_eq!(fs::read_to_string(scratch.path("old")).unwrap(), "old");
    scratch.umount();
    support::check_clean(&disk.path());
}

#[test]
fn on_a_disk_that_does_not_answer_only_calls_that_need_it_wait() {
    for options in ORDERS {
        let Some((mut scratch, disk)) = volume(options) else { return };
        let (file, other) = (open(&scratch.path("old")), open(&scratch.path("warm")));
        // Older kernels close no descriptor of a file while it is synced.
        let readers = ["old", "warm"].map(|name| open(&scratch.path(name)));
        // Whole blocks: nothing has to be read.
        let (first, second) = (vec![1; 4096], vec![2; 4096]);
        file.write_all_at(&first, 0).unwrap();
        let writes = disk.counter("writes");
        disk.hold();
        let sync = thread::spawn(move || file.sync_all());
        wait_until("the sync writes nothing", || disk.counter("writes") > writes);
        other.write_all_at(&second, 0).unwrap();
        for (reader, wanted) in readers.iter().zip([&first, &second]) {
            let mut found = vec![0; 4096];
            reader.read_exact_at(&mut found, 0).unwrap();
            assert_eq!(found, *wanted);
        }
        assert!(!sync.is_finished(), "{options}: it was acknowledged without the disk");
        disk.release();
        sync.join().unwrap().unwrap();
        other.sync_all().unwrap();
        drop((other, readers));
        scratch.umount();
        support::check_clean(&disk.path());
    }
}

/// The byte of the inode of the file `name` with its number of links, on the volume's disk.
fn links_byte(target: &Path, name: &str) -> u64 {
    let said = system("debugfs", ["-R", &format!("imap {name}"), text(target)]).good();
    let word = |name: &str| {
        let rest = said.split_once(name).unwrap_or_else(|| panic!("{said}")).1;
        let digits = rest.trim_start_matches([' ', '(']);
        digits.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap().to_owned()
    };
    let block: u64 = word("at block").parse().unwrap();
    let offset = u64::from_str_radix(word("offset").trim_start_matches("0x"), 16).unwrap();
    block * 4096 + offset + 0x1A
}

#[test]
fn damaged_metadata_fail_the_calls_that_need_them_and_nothing_else() {
    let Some((mut scratch, disk)) = volume(ORDERS[0]) else { return };
    scratch.umount();
    let at = links_byte(&disk.path(), "cold");
    let target = open(&disk.path());
    let mut byte = [0];
    target.read_exact_at(&mut byte, at).unwrap();
    assert_eq!(byte, [1], "one link");
    target.write_all_at(&[7], at).unwrap();
    target.sync_all().unwrap();
    drop(target);
    scratch.mount_target(&disk.path(), ORDERS[0]);
    for _ in 0..2 {
        fails(fs::read(scratch.path("cold")), Errno::UCLEAN);
        fails(fs::metadata(scratch.path("cold")), Errno::UCLEAN);
    }
    let mut file = open(&scratch.path("old"));
    file.write_all(b"new").unwrap();
    syncs(&scratch, &file).into_iter().for_each(Result::unwrap);
    let stat = scratch.stat();
    assert!(stat["read_only"] == false && stat["last_error"].is_string(), "{stat}");
    drop(file);
    scratch.umount();
    scratch.mount_target(&disk.path(), ORDERS[0]);
    let mut content = String::new();
    File::open(scratch.path("old")).unwrap().read_to_string(&mut content).unwrap();
    assert_eq!(content, "new");
    scratch.umount();
    let repaired = onejournal(["fsck", "-y", text(&disk.path())]);
    assert!(matches!(repaired.code, Some(0 | 1)), "{repaired:?}");
}

/// It fails as calls do that a dead daemon has not answered.
#[track_caller]
fn is_dead<T>(result: io::Result<T>) {
    let errno = result.err().and_then(|error| Errno::from_io_error(&error));
    let dead = [Errno::NOTCONN, Errno::CONNABORTED, Errno::CANCELED];
    assert!(errno.is_some_and(|errno| dead.contains(&errno)), "{errno:?}");
}

#[test]
fn a_killed_daemon_acknowledges_nothing() {
    for options in ORDERS {
        let Some(mut scratch) = Scratch::mounted(options) else { return };
        scratch.write_synced("old");
        let file = open(&scratch.path("old"));
        scratch.daemon().signal(Signal::KILL);
        assert!(scratch.daemon().ended());
        let written = file.write_all_at(b"new", 0);
        assert_eq!(written.is_ok(), options.contains("order=sync"), "{written:?}");
        is_dead(file.sync_all());
        is_dead(file.sync_data());
        is_dead(File::create(scratch.path("made")));
        drop(file);
        scratch.kill();
        scratch.mount(options);
        assert_eq!(fs::read_to_string(scratch.path("old")).unwrap(), "old");
        scratch.close_and_check();
    }
}
