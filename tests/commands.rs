//! The commands as a new user types them, and what they say when they cannot do it.

use crate::support;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use onejournal_testing::{ENABLE_URING, has_fuse_over_uring, has_namespaces};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process};
use support::{
    Daemon, LET_GO, Loop, ONEJOURNAL, Scratch, TempMount, check_clean, onejournal, run, spawn,
    system, text,
};

const OPERATIONAL: i32 = 8;
const USAGE: i32 = 16;

/// The line of the mount table that is about `dir`.
fn mount_line(dir: &Path) -> Option<String> {
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    table.lines().find(|line| line.split(' ').nth(1) == Some(text(dir))).map(String::from)
}

#[test]
fn a_new_user_gets_along() {
    let Some(scratch) = Scratch::empty() else { return };
    let (image, dir) = (scratch.image(), scratch.dir());
    onejournal(["mkfs", "--size", "64M", "-L", "label", text(&image)]).good();
    onejournal(["dump", text(&image)]).refused(OPERATIONAL, "never been mounted");
    onejournal(["mount", text(&image), text(&dir)]).good();
    let daemon = Daemon::of(&dir);
    fs::write(dir.join("hello"), "world").unwrap();
    File::open(dir.join("hello")).unwrap().sync_all().unwrap();
    let line = mount_line(&dir).unwrap();
    assert!(line.contains("fuseblk") && line.starts_with("/dev/loop"), "{line}");
    let shown = onejournal(["stat", text(&dir)]).good();
    assert!(shown.contains("durability") && shown.contains("power"), "{shown}");
    onejournal(["umount", text(&dir)]).good();
    assert!(!daemon.is_alive() && mount_line(&dir).is_none());
    check_clean(&image);
    let dumped = onejournal(["dump", text(&image)]).good();
    assert!(dumped.contains("state       clean"), "{dumped}");
    onejournal(["fsck", text(&image)]).good();
    onejournal(["mount", "-o", "ro", text(&image), text(&dir)]).good();
    assert_eq!(fs::read(dir.join("hello")).unwrap(), b"world");
    onejournal(["umount", text(&dir)]).good();
}

#[test]
fn paths_that_do_not_do_are_named() {
    let Some(scratch) = Scratch::new() else { return };
    let (image, dir) = (scratch.image(), scratch.dir());
    let none = scratch.root().join("none");
    let mount = |target: &Path, dir: &Path| onejournal(["mount", text(target), text(dir)]);
    mount(&none, &dir).refused(OPERATIONAL, "none: does not exist");
    mount(&image, &none).refused(OPERATIONAL, "none: does not exist");
    mount(&image, &image).refused(OPERATIONAL, "is not a directory");
    mount(&dir, &dir).refused(OPERATIONAL, "is a directory");
    mount(Path::new("/dev/null"), &dir).refused(OPERATIONAL, "neither a file nor a block device");
    for command in ["fsck", "dump"] {
        onejournal([command, text(&none)]).refused(OPERATIONAL, "none: does not exist");
    }
    onejournal(["umount", text(&dir)])
        .refused(OPERATIONAL, "no OneJournal volume is mounted on it");
    onejournal(["umount", text(&none)]).refused(OPERATIONAL, "No such file");
    onejournal(["stat", text(&dir)]).refused(OPERATIONAL, "not on a mounted OneJournal volume");
    scratch.check();
}

#[test]
fn command_lines_that_make_no_sense_are_usage_errors() {
    let Some(scratch) = Scratch::new() else { return };
    let (image, dir) = (scratch.image(), scratch.dir());
    let mount = |options: &str| onejournal(["mount", "-o", options, text(&image), text(&dir)]);
    mount("frobnicate").refused(USAGE, "frobnicate");
    mount("data=fast").refused(USAGE, "ordered, writeback");
    mount("commit=0").refused(USAGE, "300 seconds");
    onejournal(["mount", text(&image)]).refused(USAGE, "DIR");
    onejournal(["conjure"]).refused(USAGE, "conjure");
    onejournal(["fsck", "-n", "-y", text(&image)]).refused(USAGE, "cannot be used with");
    let new = scratch.root().join("new");
    onejournal(["mkfs", "--size", "1M", text(&new)]).refused(USAGE, "at least 8M");
    onejournal(["mkfs", "--size", "lots", text(&new)]).refused(USAGE, "lots");
    assert!(!new.exists());
    onejournal(["--help"]).good();
    onejournal(["--version"]).good();
}

#[test]
fn mkfs_overwrites_nothing_unasked() {
    let Some(scratch) = Scratch::new() else { return };
    let image = scratch.image();
    let before = fs::read(&image).unwrap();
    onejournal(["mkfs", text(&image)]).refused(OPERATIONAL, "mkfs --force ");
    onejournal(["mkfs", "--size", "32M", text(&image)]).refused(OPERATIONAL, "--force");
    assert!(fs::read(&image).unwrap() == before);
    onejournal(["mkfs", "--force", text(&image)]).good();
    check_clean(&image);
    let missing = scratch.root().join("missing");
    onejournal(["mkfs", text(&missing)]).refused(OPERATIONAL, "--size");
    onejournal(["mkfs", text(&scratch.dir())]).refused(OPERATIONAL, "neither a file nor");
    onejournal(["mkfs", "--size", "8M", text(&missing)]).good();
    check_clean(&missing);
    onejournal(["mkfs", "--force", "--size", "16M", "--journal-size", "4M", text(&missing)]).good();
    check_clean(&missing);
    assert_eq!(fs::metadata(&missing).unwrap().len(), 16 << 20);
}

#[test]
fn a_target_is_mounted_once() {
    let Some(mut scratch) = Scratch::mounted("") else { return };
    let (image, other) = (scratch.image(), scratch.root().join("other"));
    fs::create_dir(&other).unwrap();
    let refuse_all = || {
        onejournal(["mount", text(&image), text(&other)]).refused(OPERATIONAL, "in use");
        onejournal(["fsck", text(&image)]).refused(OPERATIONAL, "in use");
        onejournal(["mkfs", "--force", text(&image)]).refused(OPERATIONAL, "in use");
        onejournal(["dump", text(&image)]).refused(OPERATIONAL, "in use");
    };
    refuse_all();
    fs::write(scratch.path("f"), "still mine").unwrap();
    scratch.remount("");
    assert_eq!(fs::read(scratch.path("f")).unwrap(), b"still mine");
    refuse_all();
    scratch.close_and_check();
}

#[test]
fn a_block_device_is_mounted_once() {
    let Some(mut scratch) = Scratch::new() else { return };
    let device = Loop::attach(&scratch.image());
    let other = scratch.root().join("other");
    fs::create_dir(&other).unwrap();
    scratch.mount_target(&device.path, "");
    fs::write(scratch.path("f"), "on a block device").unwrap();
    let mount = || onejournal(["mount", text(&device.path), text(&other)]);
    mount().refused(OPERATIONAL, "in use");
    onejournal(["fsck", text(&device.path)]).refused(OPERATIONAL, "in use");
    scratch.umount();
    check_clean(&device.path);
    let kernel = TempMount::new(&["-t", "ext4", text(&device.path)], &scratch.root().join("k"));
    assert_eq!(fs::read(kernel.dir.join("f")).unwrap(), b"on a block device");
    mount().refused(OPERATIONAL, "in use");
    onejournal(["fsck", text(&device.path)]).refused(OPERATIONAL, "in use");
    drop(kernel);
    scratch.mount_target(&device.path, "");
    scratch.umount();
}

/// The kernel holds no lock on a file that it mounts with `-o loop`. Such a file was said to need
/// e2fsck, and one that was mounted read-only was mounted a second time.
#[test]
fn regression_an_image_that_the_kernel_has_mounted_is_in_use() {
    let Some(mut scratch) = Scratch::new() else { return };
    let image = scratch.image();
    for options in ["loop,ro", "loop"] {
        let kernel = TempMount::new(&["-o", options, text(&image)], &scratch.root().join("k"));
        onejournal(["mount", text(&image), text(&scratch.dir())]).refused(OPERATIONAL, "in use");
        onejournal(["fsck", text(&image)]).refused(OPERATIONAL, "in use");
        onejournal(["mkfs", "--force", text(&image)]).refused(OPERATIONAL, "in use");
        if options == "loop" {
            fs::write(kernel.dir.join("f"), "the kernel's").unwrap();
        }
    }
    scratch.mount("");
    assert_eq!(fs::read(scratch.path("f")).unwrap(), b"the kernel's");
    scratch.close_and_check();
}

#[test]
fn volumes_that_are_not_ours_to_mount_are_named() {
    let Some(scratch) = Scratch::empty() else { return };
    let (image, dir) = (scratch.image(), scratch.dir());
    let mount = || onejournal(["mount", text(&image), text(&dir)]);
    fs::write(&image, "short").unwrap();
    mount().refused(OPERATIONAL, "image");
    fs::write(&image, vec![0x5a; 1 << 20]).unwrap();
    mount().refused(OPERATIONAL, "not an ext4 volume");
    let make = |arguments: &[&str]| {
        fs::remove_file(&image).unwrap();
        File::create(&image).unwrap().set_len(64 << 20).unwrap();
        let arguments = ["-q", "-F", "-t", "ext4"].iter().chain(arguments).copied();
        system("mke2fs", arguments.chain([text(&image)])).good();
        let before = fs::read(&image).unwrap();
        let ran = mount();
        assert!(fs::read(&image).unwrap() == before, "{ran:?}");
        ran
    };
    make(&["-b", "1024"]).refused(OPERATIONAL, "1024");
    make(&["-b", "4096", "-O", "inline_data"]).refused(OPERATIONAL, "inline_data");
    make(&["-b", "4096", "-O", "encrypt"]).refused(OPERATIONAL, "encrypt");
    make(&["-b", "4096", "-I", "128"]).refused(OPERATIONAL, "inode");
    make(&["-b", "4096", "-O", "^has_journal"]).refused(OPERATIONAL, "journal");
}

#[test]
fn a_kernel_journal_that_is_not_clean_is_left_to_e2fsck() {
    let Some(mut scratch) = Scratch::new() else { return };
    let copy = scratch.root().join("copy");
    {
        let device = Loop::attach(&scratch.image());
        let kernel = TempMount::new(&["-t", "ext4", text(&device.path)], &scratch.root().join("k"));
        fs::write(kernel.dir.join("f"), "the kernel's").unwrap();
        File::open(kernel.dir.join("f")).unwrap().sync_all().unwrap();
        fs::copy(scratch.image(), &copy).unwrap();
    }
    let ran = onejournal(["mount", text(&copy), text(&scratch.dir())]);
    ran.refused(OPERATIONAL, "e2fsck");
    system("e2fsck", ["-fp", text(&copy)]);
    scratch.mount_target(&copy, "");
    assert_eq!(fs::read(scratch.path("f")).unwrap(), b"the kernel's");
    scratch.umount();
    check_clean(&copy);
}

#[test]
fn a_medium_that_forgets_is_asked_for_by_name() {
    let Some(mut scratch) = Scratch::empty() else { return };
    let ram = TempMount::new(&["-t", "tmpfs", "none"], &scratch.root().join("ram"));
    let image = ram.dir.join("image");
    onejournal(["mkfs", "--size", "32M", text(&image)]).good();
    let ran = onejournal(["mount", text(&image), text(&scratch.dir())]);
    ran.refused(OPERATIONAL, "durability=process");
    check_clean(&image);
    scratch.mount_target(&image, "durability=process");
    assert_eq!(scratch.stat()["durability"], "process");
    scratch.umount();
}

/// Fills files of 1 MiB, each synced, until that fails; how many were acknowledged, and the error.
fn fill(dir: &Path) -> (u8, std::io::Error) {
    for index in 0..100 {
        let written = File::create(dir.join(format!("f{index}"))).and_then(|mut file| {
            file.write_all(&vec![index; 1 << 20]).and_then(|()| file.sync_all())
        });
        if let Err(error) = written {
            return (index, error);
        }
    }
    panic!("100 MiB do not fit");
}

#[test]
fn a_full_disk_below_loses_nothing_that_was_acknowledged() {
    for options in ["durability=process", "durability=process,data=ordered"] {
        let Some(mut scratch) = Scratch::empty() else { return };
        let arguments = ["-t", "tmpfs", "-o", "size=24M", "none"];
        let ram = TempMount::new(&arguments, &scratch.root().join("ram"));
        let image = ram.dir.join("image");
        onejournal(["mkfs", "--size", "128M", "--journal-size", "8M", text(&image)]).good();
        scratch.mount_target(&image, options);
        let (acknowledged, failed) = fill(&scratch.dir());
        assert_eq!(failed.raw_os_error(), Some(5), "{failed}");
        assert!(acknowledged > 2, "it failed before it was full");
        let late = fs::write(scratch.path("late"), "late").unwrap_err();
        assert!(matches!(late.raw_os_error(), Some(5 | 30)), "{late}");
        assert!(fs::read(scratch.path("f0")).unwrap() == vec![0; 1 << 20], "reading goes on");
        let stat = scratch.stat();
        assert!(stat["last_error"].is_string() && scratch.daemon().is_alive(), "{stat}");
        onejournal(["umount", text(&scratch.dir())])
            .refused(OPERATIONAL, "unmounted, but not closed");
        assert!(mount_line(&scratch.dir()).is_none());
        scratch.expect_ended();
        system("mount", ["-o", "remount,size=200M", text(&ram.dir)]).good();
        let ran = onejournal(["fsck", text(&image)]);
        ran.ended(1);
        check_clean(&image);
        scratch.mount_target(&image, options);
        for index in 0..acknowledged {
            let content = fs::read(scratch.path(&format!("f{index}"))).unwrap();
            assert!(content == vec![index; 1 << 20], "{options}: f{index}");
        }
        scratch.umount();
    }
}

#[test]
fn a_plain_umount_leaves_a_clean_volume() {
    // In a namespace of its own, of which no other process makes a copy: such a copy keeps the
    // volume open.
    let script = format!(
        r#"set -e; {LET_GO}
        for round in 1 2 3; do
            "$2" mount -o commit=300 "$3" "$1"
            head -c 1000000 "$2" >"$1/f$round"
            umount "$1"
            e2fsck -fn "$3" >&2 # at once: umount(8) has waited
        done"#
    );
    let Some(mut scratch) = Scratch::new().filter(|_| has_namespaces()) else { return };
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-c", &script, "sh"]);
    command.arg(scratch.dir()).arg(ONEJOURNAL).arg(scratch.image());
    run(&mut command).good();
    scratch.mount("");
    let program = fs::read(ONEJOURNAL).unwrap();
    for round in 1..=3 {
        let content = fs::read(scratch.path(&format!("f{round}"))).unwrap();
        assert!(content == program[..1_000_000], "f{round}");
    }
    system("umount", [text(&scratch.dir())]).good();
    scratch.expect_closed();
    scratch.check();
}

#[test]
fn sync_reaches_the_volume() {
    let Some(mut scratch) = Scratch::mounted("commit=300") else { return };
    fs::write(scratch.path("f"), "synced").unwrap();
    let commits = scratch.counter("commits");
    system("sync", ["-f", text(&scratch.dir())]).good();
    assert_eq!(scratch.counter("commits"), commits + 1);
    scratch.kill();
    scratch.mount("");
    assert_eq!(fs::read(scratch.path("f")).unwrap(), b"synced");
    scratch.close_and_check();
}

#[test]
fn a_busy_mount_stays() {
    let Some(scratch) = Scratch::mounted("") else { return };
    let file = File::create(scratch.path("f")).unwrap();
    onejournal(["umount", text(&scratch.dir())]).refused(OPERATIONAL, "in use by a program");
    file.write_all_at(b"x", 0).unwrap();
    drop(file);
    scratch.close_and_check();
}

/// As `onejournal ls` of another user does.
#[test]
fn a_mount_that_a_program_looks_at_for_a_moment_is_unmounted() {
    let Some(mut scratch) = Scratch::mounted("") else { return };
    let looked_at = File::open(scratch.dir()).unwrap();
    let mut umount = std::process::Command::new(support::ONEJOURNAL);
    let mut umount = support::spawn(umount.arg("umount").arg(scratch.dir())).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(umount.try_wait().unwrap().is_none(), "it waits");
    drop(looked_at);
    assert!(umount.wait().unwrap().success());
    scratch.expect_closed();
    scratch.check();
}

#[test]
fn signals_unmount() {
    let Some(mut scratch) = Scratch::mounted("commit=300") else { return };
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        fs::write(scratch.path("f"), format!("{signal:?}")).unwrap();
        scratch.daemon().signal(signal);
        scratch.expect_ended();
        assert!(mount_line(&scratch.dir()).is_none());
        scratch.check();
        scratch.mount("commit=300");
        assert_eq!(fs::read_to_string(scratch.path("f")).unwrap(), format!("{signal:?}"));
    }
    scratch.close_and_check();
}

/// The daemon's parent was killed during a long recovery. The daemon waited for itself to answer
/// the end of its mount.
#[test]
fn regression_a_daemon_without_its_parent_takes_its_mount_back() {
    let Some(scratch) = Scratch::new() else { return };
    for options in ["io_uring=off", "io_uring=off,atomic_writes"] {
        let (nobody, output) = std::io::pipe().unwrap();
        drop(nobody);
        let mut daemon = Command::new(ONEJOURNAL)
            .args(["mount", "--announce", "-o", options, "--"])
            .args([scratch.image(), scratch.dir()])
            .stdout(output)
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let begin = std::time::Instant::now();
        let status = loop {
            if let Some(status) = daemon.try_wait().unwrap() {
                break status;
            }
            assert!(begin.elapsed().as_secs() < 120, "{options}: it hangs");
            std::thread::sleep(std::time::Duration::from_millis(10));
        };
        assert_eq!(status.code(), Some(OPERATIONAL), "{options}");
        assert!(mount_line(&scratch.dir()).is_none(), "{options}");
        scratch.check();
    }
}

#[test]
fn a_signal_while_in_use_ends_it_with_the_last_user() {
    let Some(mut scratch) = Scratch::mounted("") else { return };
    let file = File::create(scratch.path("f")).unwrap();
    wait_for_mount_table(|| {
        scratch.daemon().signal(Signal::TERM);
        true
    });
    wait_for_mount_table(|| mount_line(&scratch.dir()).is_none());
    file.write_all_at(b"written after it was detached", 0).unwrap();
    file.sync_all().unwrap();
    assert!(scratch.daemon().is_alive());
    drop(file);
    scratch.expect_ended();
    scratch.check();
    scratch.mount("");
    assert_eq!(fs::read(scratch.path("f")).unwrap(), b"written after it was detached");
    scratch.close_and_check();
}

/// Returns when `holds`; looks again whenever the mount table changes.
fn wait_for_mount_table(mut holds: impl FnMut() -> bool) {
    let table = File::open("/proc/self/mounts").unwrap();
    while !holds() {
        let limit = rustix::event::Timespec { tv_sec: 120, tv_nsec: 0 };
        let changed = poll(&mut [PollFd::new(&table, PollFlags::PRI)], Some(&limit)).unwrap();
        assert!(changed == 1 || holds(), "nothing happened to the mount table");
    }
}

#[test]
fn it_can_stay_in_the_foreground() {
    let Some(scratch) = Scratch::new() else { return };
    let mut command = Command::new(ONEJOURNAL);
    command.args(["mount", "-f"]).arg(scratch.image()).arg(scratch.dir());
    let mut child = spawn(command.stdin(Stdio::null())).unwrap();
    wait_for_mount_table(|| mount_line(&scratch.dir()).is_some());
    fs::write(scratch.path("f"), "x").unwrap();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(mount_line(&scratch.dir()).is_none());
    scratch.check();
}

#[test]
fn a_read_only_mount_changes_no_byte() {
    let Some(mut scratch) = Scratch::mounted("") else { return };
    fs::write(scratch.path("f"), "x").unwrap();
    scratch.umount();
    let before = fs::read(scratch.image()).unwrap();
    scratch.mount("ro");
    assert_eq!(fs::read(scratch.path("f")).unwrap(), b"x");
    let refused = [
        fs::write(scratch.path("f"), "y"),
        fs::write(scratch.path("new"), "y"),
        fs::remove_file(scratch.path("f")),
        fs::create_dir(scratch.path("d")),
        fs::rename(scratch.path("f"), scratch.path("g")),
        fs::set_permissions(scratch.path("f"), fs::Permissions::from_mode(0o600)),
    ];
    for result in refused {
        assert_eq!(result.unwrap_err().raw_os_error(), Some(30));
    }
    assert_eq!(scratch.stat()["read_only"], true);
    system("sync", ["-f", text(&scratch.dir())]).good();
    scratch.umount();
    assert!(fs::read(scratch.image()).unwrap() == before);
}

#[test]
fn a_read_only_mount_recovers_first() {
    let Some(mut scratch) = Scratch::mounted("commit=300") else { return };
    fs::write(scratch.path("f"), "acknowledged").unwrap();
    File::open(scratch.path("f")).unwrap().sync_all().unwrap();
    scratch.kill();
    scratch.mount("ro");
    assert_eq!(fs::read(scratch.path("f")).unwrap(), b"acknowledged");
    scratch.close_and_check();
}

#[test]
fn the_way_to_the_kernel_can_be_chosen() {
    let Some(mut scratch) = Scratch::mounted("io_uring=off") else { return };
    assert_eq!(scratch.stat()["transport"], "dev_fuse");
    scratch.umount();
    if !has_fuse_over_uring() {
        let (image, dir) = (scratch.image(), scratch.dir());
        onejournal(["mount", "-o", "io_uring=on", text(&image), text(&dir)])
            .refused(OPERATIONAL, "6.14");
        return;
    }
    let setting = File::open(ENABLE_URING).unwrap();
    // It is the machine's: who sets it and looks at it holds this lock.
    rustix::fs::flock(&setting, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let read = || fs::read_to_string(ENABLE_URING).unwrap();
    let before = read();
    scratch.mount("io_uring=on");
    let found = (scratch.stat()["transport"].clone(), read());
    fs::write(ENABLE_URING, before).unwrap();
    assert_eq!(found, ("io_uring".into(), "Y\n".into()));
    scratch.close_and_check();
}

#[test]
fn a_mount_whose_daemon_died_is_explained() {
    let Some(mut scratch) = Scratch::mounted("") else { return };
    let (image, dir) = (scratch.image(), scratch.dir());
    fs::metadata(&dir).unwrap(); // from now on the kernel has these, daemon or not
    scratch.daemon().signal(Signal::KILL);
    assert!(scratch.daemon().ended());
    onejournal(["stat", text(&dir)]).refused(OPERATIONAL, "mount its volume again");
    let other = scratch.root().join("other");
    onejournal(["mkfs", "--size", "64M", text(&other)]).good();
    onejournal(["mount", text(&other), text(&dir)]).refused(OPERATIONAL, "onejournal umount DIR");
    // Recovery, and a check that finds nothing, need not wait until the dead mount is taken off.
    let recovered = onejournal(["fsck", text(&image)]);
    recovered.ended(1);
    assert!(recovered.out.contains("is mounted"), "{recovered:?}");
    scratch.expect_ended();
    // The mount of its own volume is taken off.
    scratch.mount("");
    assert_eq!(mounts_on(&dir), 1);
    scratch.umount();
    assert_eq!(mounts_on(&dir), 0);
    scratch.check();
}

/// How many mounts there are on a directory, one over the other.
fn mounts_on(dir: &Path) -> usize {
    host::own_mounts().unwrap().iter().filter(|entry| entry.dir == dir).count()
}

#[test]
fn fsck_tells_by_its_exit_code() {
    let Some(mut scratch) = Scratch::mounted("commit=300") else { return };
    fs::write(scratch.path("f"), "x").unwrap();
    File::open(scratch.path("f")).unwrap().sync_all().unwrap();
    scratch.kill();
    let image = scratch.image();
    let before = fs::read(&image).unwrap();
    let looked = onejournal(["fsck", "-n", text(&image)]);
    looked.ended(4);
    assert!(looked.out.contains("recovery would bring home"), "{looked:?}");
    assert!(fs::read(&image).unwrap() == before);
    let dumped = onejournal(["dump", text(&image)]).good();
    assert!(dumped.contains("not closed") && dumped.contains("transaction "), "{dumped}");
    assert!(fs::read(&image).unwrap() == before);
    let recovered = onejournal(["fsck", text(&image)]);
    recovered.ended(1);
    onejournal(["fsck", text(&image)]).good();
    onejournal(["fsck", "-n", text(&image)]).good();
    onejournal(["fsck", "-y", text(&image)]).good();
}

/// A block that packing does not make smaller.
fn noise(seed: u8) -> [u8; 4096] {
    let mut rng = fastrand::Rng::with_seed(seed.into());
    std::array::from_fn(|_| rng.u8(..))
}

#[test]
fn a_damaged_transaction_is_the_operators_decision() {
    let Some(mut scratch) = Scratch::mounted("commit=300,data=journal") else { return };
    for (name, byte) in [("a", 0xA1), ("b", 0xB2), ("c", 0xC3)] {
        let mut file = File::create(scratch.path(name)).unwrap();
        file.write_all(&noise(byte)).unwrap();
        file.sync_all().unwrap();
    }
    scratch.kill();
    let image = scratch.image();
    let bytes = fs::read(&image).unwrap();
    let logged = bytes.windows(4096).position(|window| window == noise(0xB2));
    let file = OpenOptions::new().write(true).open(&image).unwrap();
    file.write_all_at(&[0], logged.expect("only the journal has it") as u64 + 9).unwrap();
    let damaged = fs::read(&image).unwrap();
    onejournal(["fsck", text(&image)]).refused(4, "image");
    onejournal(["fsck", "-n", text(&image)]).refused(4, "image");
    let ran = onejournal(["mount", text(&image), text(&scratch.dir())]);
    ran.refused(OPERATIONAL, "--discard-damaged");
    let dumped = onejournal(["dump", text(&image)]).good();
    assert!(dumped.contains("DAMAGED"), "{dumped}");
    assert!(fs::read(&image).unwrap() == damaged, "a refusal changes nothing");
    let given_up = onejournal(["fsck", "--discard-damaged", text(&image)]);
    given_up.ended(1);
    assert!(given_up.out.contains("given up"), "{given_up:?}");
    scratch.mount("");
    assert!(fs::read(scratch.path("a")).unwrap() == noise(0xA1));
    assert!(!scratch.path("c").exists());
    scratch.close_and_check();
}
