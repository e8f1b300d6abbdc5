//! `onejournal restart`: another program goes on with a mount, and programs notice nothing.

use crate::support;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Scope;
use std::time::Duration;

use onejournal_testing::has_namespaces;
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, linkat};
use rustix::process::Signal;
use support::{
    ONEJOURNAL, OTHER_USER, Ran, Scratch, has_unnamed_files, onejournal, python, run, spawn, text,
};

/// Through io_uring nothing is handed over.
const OFF: &str = "io_uring=off";

/// Restarts the daemon: the same process, and another program that runs in it.
#[track_caller]
fn restart(scratch: &Scratch) {
    let before = onejournal_pid(scratch);
    restart_command(scratch).good();
    assert_eq!(onejournal_pid(scratch), before, "the process stays");
}

fn restart_command(scratch: &Scratch) -> Ran {
    onejournal(["restart", text(&scratch.dir())])
}

fn onejournal_pid(scratch: &Scratch) -> i32 {
    let mut value = [0; 16];
    let name = "user.onejournal.pid";
    let len = rustix::fs::getxattr(scratch.dir(), name, &mut value).unwrap();
    std::str::from_utf8(&value[..len]).unwrap().parse().unwrap()
}

/// Programs at work: each thread has a file of its own.
struct Load {
    is_over: AtomicBool,
    round_count: AtomicU64,
}

const THREAD_COUNT: usize = 4;
const RECORD_BYTES: usize = 3000;

impl Load {
    fn new() -> Load {
        Load { is_over: AtomicBool::new(false), round_count: AtomicU64::new(0) }
    }

    /// Appends, syncs, reads, makes, renames and deletes, until it is over.
    fn start<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, scratch: &Scratch) {
        for thread in 0..THREAD_COUNT {
            let dir = scratch.path(&format!("thread{thread}"));
            fs::create_dir(&dir).unwrap();
            scope.spawn(move || {
                let mut log =
                    File::options().create_new(true).append(true).open(dir.join("log")).unwrap();
                let mut count = 0;
                while !self.is_over.load(Ordering::Relaxed) {
                    work(&dir, &mut log, count);
                    count += 1;
                    self.round_count.fetch_add(1, Ordering::Relaxed);
                }
                let bytes = fs::read(dir.join("log")).unwrap();
                assert!(bytes.chunks(RECORD_BYTES).eq((0..count).map(record)), "thread {thread}");
            });
        }
    }

    /// Returns when each thread may have worked on for a while.
    fn wait_for_more(&self) {
        let seen = self.round_count.load(Ordering::Relaxed);
        while self.round_count.load(Ordering::Relaxed) < seen + 3 * THREAD_COUNT as u64 {
            std::thread::yield_now();
        }
    }
}

fn record(number: u64) -> Vec<u8> {
    number.to_le_bytes().into_iter().cycle().take(RECORD_BYTES).collect()
}

fn work(dir: &Path, log: &mut File, number: u64) {
    log.write_all(&record(number)).unwrap();
    log.sync_data().unwrap();
    let (new, old) = (dir.join("new"), dir.join("old"));
    fs::write(&new, number.to_string()).unwrap();
    fs::rename(&new, &old).unwrap();
    let open = File::open(&old).unwrap();
    if number.is_multiple_of(2) {
        fs::remove_file(&old).unwrap();
    }
    assert_eq!(std::io::read_to_string(&open).unwrap(), number.to_string());
    assert!(fs::read_dir(dir).unwrap().count() >= 1);
}

fn restarts_under_load(options: &str, restart_count: usize) {
    let Some(scratch) = Scratch::mounted(options) else { return };
    let load = Load::new();
    std::thread::scope(|scope| {
        load.start(scope, &scratch);
        for _ in 0..restart_count {
            load.wait_for_more();
            restart(&scratch);
        }
        load.is_over.store(true, Ordering::Relaxed);
    });
    scratch.close_and_check();
}

#[test]
fn programs_at_work_get_no_error() {
    restarts_under_load(OFF, 12);
}

#[test]
fn programs_at_work_get_no_error_if_the_kernel_collects_writes() {
    restarts_under_load("order=sync", 6);
}

/// An unmodified SQLite: no transaction fails, and none is lost.
#[test]
fn transactions_of_sqlite_go_on() {
    const SCRIPT: &str = r#"
import os, select, sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("PRAGMA journal_mode=" + sys.argv[2])
database.execute("PRAGMA synchronous=FULL")
database.execute("CREATE TABLE t(i INTEGER PRIMARY KEY, v BLOB)")
print("ready", flush=True)
count = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    database.execute("INSERT INTO t VALUES (?, ?)", (count, os.urandom(100)))
    count += 1
print(count, database.execute("SELECT count(*) FROM t").fetchone()[0],
      database.execute("PRAGMA integrity_check").fetchone()[0])
"#;
    let Some(scratch) = Scratch::mounted(OFF) else { return };
    for mode in ["WAL", "DELETE"] {
        let database = scratch.path(mode);
        let mut command = Command::new(python());
        command.args(["-c", SCRIPT, text(&database), mode]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = spawn(&mut command).unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        for _ in 0..6 {
            restart(&scratch);
        }
        drop(child.stdin.take());
        let mut line = String::new();
        said.read_to_string(&mut line).unwrap();
        assert!(child.wait().unwrap().success(), "{line}");
        let words: Vec<&str> = line.split_whitespace().collect();
        assert!(words[0] == words[1] && words[2] == "ok", "{line}");
    }
    scratch.close_and_check();
}

/// What the kernel knows of files, and what it told the daemon, holds on.
#[test]
fn open_files_live_on() {
    let Some(scratch) = Scratch::mounted(OFF) else { return };
    let free_block_count = || rustix::fs::statvfs(scratch.dir()).unwrap().f_bfree;
    let data = vec![7u8; 1 << 20];
    let open = |name: &str| {
        let mut file = File::options();
        file.create_new(true).read(true).write(true).open(scratch.path(name)).unwrap()
    };
    let mut names = vec!["locked".to_owned()];
    let locked = open("locked");
    flock(&locked, FlockOperation::NonBlockingLockExclusive).unwrap();
    for n in 0..500 {
        names.push(format!("name{n}"));
        File::create(scratch.path(&format!("name{n}"))).unwrap();
    }
    let (mut deleted, later) = (open("deleted"), open("later"));
    // The directory does not grow any more.
    let free_before = free_block_count();
    deleted.write_all(&data).unwrap();
    fs::remove_file(scratch.path("deleted")).unwrap();
    later.write_all_at(&data, 0).unwrap();
    let mut listing = fs::read_dir(scratch.dir()).unwrap();
    let first = listing.next().unwrap().unwrap();
    restart(&scratch);

    let again = File::open(scratch.path("locked")).unwrap();
    assert!(flock(&again, FlockOperation::NonBlockingLockExclusive).is_err(), "the lock holds");
    rustix::fs::fadvise(&deleted, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    deleted.seek(SeekFrom::Start(0)).unwrap();
    let mut found = Vec::new();
    deleted.read_to_end(&mut found).unwrap();
    assert!(found == data && deleted.metadata().unwrap().nlink() == 0);
    deleted.write_all(b"more").unwrap();
    deleted.sync_all().unwrap();
    // It was looked up before the restart, and is deleted after it.
    fs::remove_file(scratch.path("later")).unwrap();
    restart(&scratch);
    let mut byte = [0];
    later.read_exact_at(&mut byte, 5000).unwrap();
    assert_eq!(byte, [7]);
    let mut listed: Vec<String> = std::iter::once(Ok(first))
        .chain(listing)
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "later" && name != "lost+found")
        .collect();
    listed.sort();
    names.sort();
    assert_eq!(listed, names);

    drop((deleted, later));
    support::wait_until("the space of deleted files is free", || free_block_count() >= free_before);
    drop((locked, again));
    scratch.close_and_check();
}

#[test]
fn a_file_without_a_name_gets_one_after_a_restart() {
    if !has_unnamed_files() {
        return;
    }
    let Some(scratch) = Scratch::mounted(OFF) else { return };
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let unnamed = rustix::fs::open(scratch.dir(), flags, Mode::RUSR).unwrap();
    let mut unnamed = File::from(unnamed);
    unnamed.write_all(b"content").unwrap();
    restart(&scratch);
    let link = host::link_to(&unnamed);
    let follow = rustix::fs::AtFlags::SYMLINK_FOLLOW;
    linkat(CWD, &link, CWD, scratch.path("named"), follow).unwrap();
    assert_eq!(fs::read(scratch.path("named")).unwrap(), b"content");
    drop(unnamed);
    scratch.close_and_check();
}

/// A deleted file that is open when the daemon is killed after a restart is freed by the next
/// mount.
#[test]
fn a_daemon_may_be_killed_after_a_restart() {
    let Some(mut scratch) = Scratch::mounted(OFF) else { return };
    let deleted = File::create(scratch.path("deleted")).unwrap();
    deleted.write_all_at(&[7; 100_000], 0).unwrap();
    fs::remove_file(scratch.path("deleted")).unwrap();
    scratch.write_synced("before");
    restart(&scratch);
    scratch.write_synced("after");
    scratch.kill();
    drop(deleted);
    scratch.mount(OFF);
    for name in ["before", "after"] {
        assert_eq!(fs::read_to_string(scratch.path(name)).unwrap(), name);
    }
    scratch.close_and_check();
}

/// Wherever it is then: each time a little later.
#[test]
fn a_daemon_may_be_killed_while_it_restarts() {
    let Some(mut scratch) = Scratch::mounted(OFF) else { return };
    for moment in 0..20 {
        let name = format!("file{moment}");
        scratch.write_synced(&name);
        let mut restart = Command::new(ONEJOURNAL);
        let mut restart = spawn(restart.arg("restart").arg(scratch.dir())).unwrap();
        std::thread::sleep(Duration::from_millis(3 * moment));
        scratch.kill();
        restart.wait().unwrap();
        scratch.mount(OFF);
        for earlier in 0..=moment {
            let name = format!("file{earlier}");
            assert_eq!(fs::read_to_string(scratch.path(&name)).unwrap(), name);
        }
    }
    scratch.close_and_check();
}

#[test]
fn a_mount_that_is_restarted_ends_by_a_signal() {
    let Some(mut scratch) = Scratch::mounted(OFF) else { return };
    scratch.write_synced("file");
    restart(&scratch);
    scratch.daemon().signal(Signal::TERM);
    scratch.expect_closed();
    scratch.check();
}

/// The daemon's directory is another one by then.
#[test]
fn the_options_hold_on() {
    let Some(mut scratch) = Scratch::new() else { return };
    let journal = scratch.root().join("journal");
    File::create(&journal).unwrap().set_len(16 << 20).unwrap();
    let mut command = Command::new(ONEJOURNAL);
    command.current_dir(scratch.root()).args(["mount", "-o"]);
    command.arg("io_uring=off,journal=journal,data=journal,noatime");
    run(command.args(["image", "mnt"])).good();
    scratch.adopt();
    let shown = |scratch: &Scratch| {
        let stat = scratch.stat();
        ["mode", "journal_target", "durability", "target"].map(|name| stat[name].to_string())
    };
    let before = shown(&scratch);
    scratch.write_synced("file");
    restart(&scratch);
    assert_eq!(shown(&scratch), before);
    scratch.write_synced("more");
    scratch.close_and_check();
}

#[test]
fn a_volume_that_became_writable_stays_so() {
    let Some(mut scratch) = Scratch::new() else { return };
    scratch.mount("ro,io_uring=off");
    restart(&scratch);
    let refused = fs::write(scratch.path("file"), "").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    onejournal(["mount", "-o", "remount,rw", text(&scratch.image()), text(&scratch.dir())]).good();
    scratch.write_synced("file");
    restart(&scratch);
    scratch.write_synced("more");
    scratch.close_and_check();
}

/// A copy of the command that can be exchanged.
fn copy_of_command(scratch: &Scratch) -> PathBuf {
    let copy = scratch.root().join("onejournal-copy");
    fs::copy(ONEJOURNAL, &copy).unwrap();
    copy
}

/// Puts `content` in the place of the program, as an upgrade does.
fn replace(program: &Path, content: &[u8]) {
    let new = program.with_extension("new");
    fs::write(&new, content).unwrap();
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(&new, program).unwrap();
}

#[test]
fn the_program_that_is_installed_now_goes_on() {
    let Some(mut scratch) = Scratch::new() else { return };
    let program = copy_of_command(&scratch);
    let content = fs::read(&program).unwrap();
    run(Command::new(&program).args(["mount", "-o", OFF]).arg(scratch.image()).arg(scratch.dir()))
        .good();
    scratch.adopt();
    let runs = |scratch: &Scratch| {
        let exe = format!("/proc/{}/exe", onejournal_pid(scratch));
        fs::metadata(exe).unwrap().ino()
    };
    let before = runs(&scratch);
    replace(&program, &content);
    restart(&scratch);
    assert_eq!(runs(&scratch), fs::metadata(&program).unwrap().ino());
    assert_ne!(runs(&scratch), before);

    std::os::unix::fs::chown(&program, Some(OTHER_USER), None).unwrap();
    restart_command(&scratch).refused(8, "belongs to user 65534");
    replace(&program, b"#!/bin/sh\nexit 1\n");
    restart_command(&scratch).refused(8, "is of another version, which cannot go on");
    fs::remove_file(&program).unwrap();
    restart_command(&scratch).refused(8, "No such file or directory");
    scratch.write_synced("file");
    replace(&program, &content);
    restart(&scratch);
    scratch.write_synced("more");
    scratch.close_and_check();
}

/// In a mount namespace without the volumes of other tests.
#[test]
fn all_volumes_are_restarted() {
    const SCRIPT: &str = r#"
        mount --make-rprivate / &&
        { umount -l -a -t fuseblk.onejournal,fuse.onejournal || true; } &&
        mkdir "$1/other" && cp "$1/image" "$1/copy" && tune2fs -U random "$1/copy" >/dev/null &&
        "$0" mount -o io_uring=off "$1/image" "$1/mnt" &&
        "$0" mount -o io_uring=off "$1/copy" "$1/other" &&
        echo one >"$1/mnt/file" && echo two >"$1/other/file" &&
        "$0" restart --all && cat "$1/mnt/file" "$1/other/file" &&
        pgrep -c -f -- "--resume .*$1/" &&
        "$0" umount "$1/mnt" && "$0" umount "$1/other" && e2fsck -fn "$1/image" >/dev/null
    "#;
    if !has_namespaces() {
        return;
    }
    let Some(scratch) = Scratch::new() else { return };
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", SCRIPT, ONEJOURNAL]).arg(scratch.root());
    assert_eq!(run(&mut command).good(), "one\ntwo\n2\n");
}

#[test]
fn a_program_on_the_volume_itself_does_not_go_on() {
    let Some(mut scratch) = Scratch::new() else { return };
    let program = copy_of_command(&scratch);
    run(Command::new(&program).args(["mount", "-o", OFF]).arg(scratch.image()).arg(scratch.dir()))
        .good();
    scratch.adopt();
    let moved = scratch.path("program");
    fs::copy(&program, &moved).unwrap();
    fs::remove_file(&program).unwrap();
    std::os::unix::fs::symlink(&moved, &program).unwrap();
    restart_command(&scratch).refused(8, "is on this volume");
    scratch.close_and_check();
}

#[test]
fn a_mount_with_atomic_writes_is_refused_and_goes_on() {
    let Some(mut scratch) = Scratch::mounted("atomic_writes") else { return };
    restart_command(&scratch).refused(8, "atomic_writes");
    scratch.write_synced("file");
    scratch.remount(OFF);
    let mut peer = Command::new("setpriv");
    let user = OTHER_USER.to_string();
    peer.args(["--reuid", &user, "--regid", &user, "--clear-groups", "getfattr", "-n"]);
    let ran = run(peer.arg("user.onejournal.restart").arg(scratch.dir()));
    assert!(ran.err.contains("Operation not permitted"), "{ran:?}");
    onejournal(["restart", text(scratch.root())]).refused(8, "no OneJournal volume is mounted");
    scratch.umount();
    restart_command(&scratch).refused(8, "no OneJournal volume is mounted");
    scratch.check();
}
