//! Daemons that are killed, alone or with everything around them, in mount namespaces of their own
//! as containers have.
//!
//! What is guarded against hangs a machine: a process that drops the last mount of a volume, and is
//! itself the one that has to answer the kernel then, can be killed no more, and every `sync` waits
//! for it. So each test has a [`Watchdog`] in another mount namespace, which cuts the connection
//! after a while, whatever happens.

use crate::support;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use onejournal_testing::has_namespaces;
use rustix::fs::{FlockOperation, IFlags, ioctl_setflags};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use support::{
    Daemon, EmulatedDisk, LET_GO, ONEJOURNAL, Ran, Scratch, alone, onejournal, run, spawn, text,
};

/// A process that after `$2` seconds, for as many again, aborts every connection of the volume in
/// `$1`, unless it was killed before. It says by its exit code whether it had to.
const WATCHDOG: &str = r#"
    connections=/sys/fs/fuse/connections
    # systemd mounts it on most machines.
    mountpoint -q $connections || mount -t fusectl none $connections || exit 1
    echo watching
    exec >&-
    has_cut=0
    trap 'kill $!; exit $has_cut' TERM
    sleep "$2" &
    wait
    for second in $(seq "$2"); do
        for file in /sys/block/loop*/loop/backing_file; do
            case $(cat "$file" 2>/dev/null) in "$1"*)
                number=${file#/sys/block/loop}
                echo 1 >"/sys/fs/fuse/connections/$((7 << 20 | ${number%%/*}))/abort"
                has_cut=3;;
            esac
        done
        sleep 1 &
        wait
    done
    exit 3
"#;

/// Long enough for the slowest machine: only a test that fails comes to it.
const WATCHDOG_SECONDS: &str = "60";

struct Watchdog(Child);

impl Watchdog {
    /// Watches over the volume in `image`, which is not mounted yet.
    fn over(image: &Path) -> Watchdog {
        let mut command = Command::new("unshare");
        let script = format!("{LET_GO} {WATCHDOG}");
        command.args(["-m", "--propagation", "private", "sh", "-c", &script, "watchdog"]);
        command.args([text(image), WATCHDOG_SECONDS]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = spawn(&mut command).unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "watching\n");
        Watchdog(child)
    }

    /// It was not needed.
    #[track_caller]
    fn rest(mut self) {
        kill(&self.0, Signal::TERM);
        assert_eq!(
            self.0.wait().unwrap().code(),
            Some(0),
            "the watchdog had to cut the connection"
        );
    }
}

fn kill(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// A shell in a mount namespace of its own in which the volume is mounted.
struct Room {
    shell: Child,
    dir: PathBuf,
}

impl Room {
    /// Mounts the volume inside; `unshare` says how the room is made.
    #[track_caller]
    fn with_mount(scratch: &Scratch, unshare: &[&str]) -> Room {
        let script = format!(r#"{LET_GO} "$0" mount "$2" "$1" && echo mounted && read line"#);
        let mut command = Command::new("unshare");
        command.args(unshare).args(["sh", "-c", &script, ONEJOURNAL]);
        command.args([scratch.dir(), scratch.image()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = spawn(&mut command).unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "mounted\n");
        let dir = scratch.dir();
        Room { shell, dir }
    }

    /// A directory of the room as it is seen from here.
    fn dir(&self) -> PathBuf {
        // With a PID namespace `unshare` stays outside, and the shell is its child.
        let pid = self.shell.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let inner = children.split_whitespace().next().map_or(pid, |pid| pid.parse().unwrap());
        PathBuf::from(format!("/proc/{inner}/root{}", self.dir.display()))
    }

    /// Makes a file durable.
    fn acknowledge(&self, name: &str) {
        let mut file = File::create(self.dir().join(name)).unwrap();
        file.write_all(name.as_bytes()).unwrap();
        file.sync_all().unwrap();
    }

    /// The shell ends, and with it the room.
    fn leave(mut self) {
        drop(self.shell.stdin.take());
        self.shell.wait().unwrap();
    }
}

const PRIVATE: [&str; 3] = ["-m", "--propagation", "private"];
/// As a container: who kills the first process kills all.
const CONTAINER: [&str; 6] = ["-m", "--propagation", "private", "-p", "-f", "--kill-child"];

fn volume() -> Option<Scratch> {
    has_namespaces().then(Scratch::new).flatten()
}

/// Waits until the volume's lock is free. Then the volume can be mounted, has the acknowledged
/// files, and is sound.
#[track_caller]
fn expect_all(scratch: &mut Scratch, names: &[&str]) {
    let image = File::open(scratch.image()).unwrap();
    rustix::fs::flock(&image, FlockOperation::LockExclusive).unwrap();
    drop(image);
    scratch.mount("");
    for name in names {
        assert_eq!(fs::read_to_string(scratch.path(name)).unwrap(), *name);
    }
    scratch.umount();
    scratch.check();
}

#[test]
fn a_daemon_that_is_alone_may_be_killed() {
    let _alone = alone();
    let Some(mut scratch) = volume() else { return };
    let watchdog = Watchdog::over(&scratch.image());
    let mut names = Vec::new();
    for name in ["a", "b", "c"] {
        let room = Room::with_mount(&scratch, &PRIVATE);
        room.acknowledge(name);
        names.push(name);
        let daemon = Daemon::of(&room.dir());
        room.leave();
        daemon.signal(Signal::KILL);
        assert!(daemon.ended());
        expect_all(&mut scratch, &names);
    }
    watchdog.rest();
}

#[test]
fn a_daemon_that_is_alone_may_be_asked_to_end() {
    let _alone = alone();
    let Some(mut scratch) = volume() else { return };
    let watchdog = Watchdog::over(&scratch.image());
    let room = Room::with_mount(&scratch, &PRIVATE);
    room.acknowledge("f");
    let daemon = Daemon::of(&room.dir());
    room.leave();
    daemon.signal(Signal::TERM);
    assert!(daemon.ended());
    watchdog.rest();
    scratch.check();
    expect_all(&mut scratch, &["f"]);
}

#[test]
fn a_killed_daemon_lets_go_of_everything() {
    let _alone = alone();
    let Some(mut scratch) = volume() else { return };
    let watchdog = Watchdog::over(&scratch.image());
    let room = Room::with_mount(&scratch, &PRIVATE);
    room.acknowledge("f");
    let daemon = Daemon::of(&room.dir());
    daemon.signal(Signal::KILL);
    assert!(daemon.ended());
    room.leave();
    watchdog.rest();
    expect_all(&mut scratch, &["f"]);
}

#[test]
fn all_processes_may_be_killed_at_once_in_any_order() {
    let _alone = alone();
    let Some(mut scratch) = volume() else { return };
    let watchdog = Watchdog::over(&scratch.image());
    let mut names = Vec::new();
    for (round, name) in ["a", "b", "c", "d", "e", "f"].into_iter().enumerate() {
        let mut room = Room::with_mount(&scratch, &PRIVATE);
        room.acknowledge(name);
        names.push(name);
        let daemon = Daemon::of(&room.dir());
        let kill_daemon = || daemon.signal(Signal::KILL);
        let kill_shell = || kill(&room.shell, Signal::KILL);
        if round % 2 == 0 {
            kill_daemon();
            kill_shell();
        } else {
            kill_shell();
            kill_daemon();
        }
        assert!(daemon.ended());
        room.shell.wait().unwrap();
        expect_all(&mut scratch, &names);
    }
    watchdog.rest();
}

#[test]
fn a_container_may_be_killed() {
    let _alone = alone();
    let Some(mut scratch) = volume() else { return };
    let watchdog = Watchdog::over(&scratch.image());
    let mut names = Vec::new();
    for name in ["a", "b", "c"] {
        let mut room = Room::with_mount(&scratch, &CONTAINER);
        room.acknowledge(name);
        names.push(name);
        // Its first process gets the same from the kernel, and everything in it from that.
        kill(&room.shell, Signal::KILL);
        room.shell.wait().unwrap();
        expect_all(&mut scratch, &names);
    }
    watchdog.rest();
}

#[test]
fn a_daemon_may_be_killed_while_it_unmounts() {
    let _alone = alone();
    let Some(mut scratch) = volume() else { return };
    let watchdog = Watchdog::over(&scratch.image());
    let mut names = Vec::new();
    for name in ["a", "b", "c", "d"] {
        let room = Room::with_mount(&scratch, &PRIVATE);
        room.acknowledge(name);
        names.push(name);
        let daemon = Daemon::of(&room.dir());
        daemon.signal(Signal::TERM);
        daemon.signal(Signal::KILL);
        assert!(daemon.ended());
        room.leave();
        expect_all(&mut scratch, &names);
    }
    watchdog.rest();
}

/// Waits until a thread of the process is in the state D: it waits in the kernel, and no signal
/// ends that.
#[track_caller]
fn await_blocked_thread(daemon: &Daemon) {
    let begun = Instant::now();
    let is_blocked = || {
        let tasks = fs::read_dir(format!("/proc/{}/task", daemon.id.as_raw_nonzero())).unwrap();
        let mut stats =
            tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("stat")).ok());
        stats.any(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('D')))
    };
    while !is_blocked() {
        let has_time = begun.elapsed() < Duration::from_secs(20);
        assert!(has_time, "no thread waits for a page:\n{}", kernel_stacks(daemon));
        thread::sleep(Duration::from_millis(5));
    }
}

/// Where each thread of the process is in the kernel.
fn kernel_stacks(daemon: &Daemon) -> String {
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.id.as_raw_nonzero())).unwrap();
    let of_task = |task: fs::DirEntry| {
        let read = |name| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        format!("{}{}", read("comm"), read("stack"))
    };
    tasks.flatten().map(of_task).collect()
}

/// The kernel waits for a page that is being read, and the daemon that has it dropped waits for the
/// kernel.
#[test]
fn a_daemon_may_be_killed_while_it_has_pages_dropped() {
    let _alone = alone();
    let Some(mut scratch) = Scratch::empty() else { return };
    let watchdog_root = scratch.root().join("slow");
    let watchdog = Watchdog::over(&watchdog_root);
    let disk = EmulatedDisk::new(watchdog_root);
    for (round, options) in ["", "", "threads=2", "atomic_writes"].into_iter().enumerate() {
        let name = format!("f{round}");
        // A commit of the timer would wait for the disk, and the change of the flags for it.
        let options = &format!("{options},commit=300");
        scratch.mount_target(&disk.path(), options);
        fs::write(scratch.path(&name), [7; 1 << 20]).unwrap();
        scratch.umount();
        scratch.mount_target(&disk.path(), options);
        let [mut read, set] = [(); 2].map(|()| File::open(scratch.path(&name)).unwrap());
        disk.hold();
        let reads = disk.counter("reads");
        let reader = thread::spawn(move || read.read_exact(&mut [0; 65536]).is_ok());
        while disk.counter("reads") == reads {
            thread::yield_now();
        }
        let setter = thread::spawn(move || ioctl_setflags(&set, IFlags::IMMUTABLE).is_ok());
        await_blocked_thread(scratch.daemon());
        scratch.daemon().signal(Signal::KILL);
        disk.release();
        scratch.kill();
        for client in [reader, setter] {
            assert!(!client.join().unwrap(), "it was killed before the read ended");
        }
    }
    watchdog.rest();
    scratch.mount_target(&disk.path(), "");
    for round in 0..4 {
        assert!(fs::read(scratch.path(&format!("f{round}"))).unwrap() == [7; 1 << 20]);
    }
    scratch.umount();
    support::check_clean(&disk.path());
}

/// A process that is killed is gone only when its disk has answered; until then it has the volume
/// locked.
#[test]
fn a_mount_waits_for_a_daemon_that_was_killed() {
    wait_for_a_killed_daemon(|_, disk, dir| onejournal(["mount", text(disk), text(dir)]));
}

#[test]
fn regression_the_fsck_helper_waits_for_a_daemon_that_was_killed() {
    wait_for_a_killed_daemon(|root, disk, dir| {
        let helper = root.join("fsck.onejournal");
        symlink(ONEJOURNAL, &helper).unwrap();
        let checked = run(Command::new(helper).arg("-y").arg(disk));
        checked.ended(1);
        onejournal(["mount", text(disk), text(dir)])
    });
}

/// The kernel gives the number of a volume away as soon as it is unmounted.
#[test]
fn regression_a_guard_aborts_nothing_before_it_is_confirmed() {
    let _alone = alone();
    let Some(scratch) = Scratch::mounted("") else { return };
    let number = fs::metadata(scratch.dir()).unwrap().dev();
    let number = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    let mut command = Command::new(ONEJOURNAL);
    command.args(["guard", &number]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut guard = spawn(&mut command).unwrap();
    let mut line = String::new();
    BufReader::new(guard.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "watching\n");
    // As when the process that started it ends.
    kill(&guard, Signal::USR1);
    drop(guard.stdin.take());
    assert!(guard.wait().unwrap().success());
    scratch.write_synced("f");
    scratch.close_and_check();
}

fn wait_for_a_killed_daemon(mount: impl FnOnce(&Path, &Path, &Path) -> Ran) {
    let _alone = alone();
    let Some(mut scratch) = Scratch::empty() else { return };
    let disk = EmulatedDisk::new(scratch.root().join("slow"));
    scratch.mount_target(&disk.path(), "");
    fs::write(scratch.path("f"), [7; 1 << 20]).unwrap();
    scratch.umount();
    scratch.mount_target(&disk.path(), "");
    // Not this process: a child that it starts would close the file, and wait for the killed
    // daemon. It is started before the disk is held: a child that waits for the disk could not be
    // stopped and continued.
    let mut command = Command::new("sh");
    command.args(["-c", "read go && exec cat \"$0\""]).arg(scratch.path("f"));
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut reader = spawn(&mut command).unwrap();
    disk.hold();
    let reads = disk.counter("reads");
    reader.stdin.take().unwrap().write_all(b"go\n").unwrap();
    while disk.counter("reads") == reads {
        thread::yield_now();
    }
    scratch.daemon().signal(Signal::KILL);
    let command_line = format!("/proc/{}/cmdline", scratch.daemon().id.as_raw_nonzero());
    while !fs::read(&command_line).unwrap().is_empty() {
        thread::yield_now();
    }
    unmount(scratch.dir(), UnmountFlags::DETACH).unwrap();
    assert!(scratch.daemon().is_alive(), "it still waits for its disk");
    thread::scope(|scope| {
        // The mount is waiting by now. If it is not, less is tested, and nothing fails.
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(500));
            disk.release();
        });
        mount(scratch.root(), &disk.path(), &scratch.dir()).good();
    });
    assert!(!reader.wait().unwrap().success(), "it was killed before the read ended");
    scratch.expect_ended();
    scratch.adopt();
    assert!(fs::read(scratch.path("f")).unwrap() == [7; 1 << 20]);
    scratch.umount();
    support::check_clean(&disk.path());
}

/// The end of the mount waits for the volume to be closed, and so does the process that unmounts:
/// not the daemon.
#[test]
fn a_daemon_may_be_killed_while_it_closes_what_it_unmounts() {
    let _alone = alone();
    let Some(mut scratch) = Scratch::empty() else { return };
    let root = scratch.root().join("slow");
    let watchdog = Watchdog::over(&root);
    let disk = EmulatedDisk::new(root);
    scratch.mount_target(&disk.path(), "");
    fs::write(scratch.path("f"), "f").unwrap();
    File::open(scratch.path("f")).unwrap().sync_all().unwrap();
    disk.hold();
    scratch.daemon().signal(Signal::TERM);
    let name = format!("/proc/{}/comm", scratch.daemon().id.as_raw_nonzero());
    while fs::read_to_string(&name).unwrap().trim() != mount::CLOSING_NAME {
        thread::yield_now();
    }
    scratch.daemon().signal(Signal::KILL);
    disk.release();
    scratch.expect_ended();
    watchdog.rest();
    scratch.mount_target(&disk.path(), "");
    assert_eq!(fs::read_to_string(scratch.path("f")).unwrap(), "f");
    scratch.umount();
    support::check_clean(&disk.path());
}
