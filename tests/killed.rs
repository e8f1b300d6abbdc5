//! Daemons that are killed, alone or with everything around them, in mount namespaces of their own as containers have.
//!
//! What is guarded against hangs a machine: a process that drops the last mount of a volume, and is itself the one that
//! has to answer the kernel then, can be killed no more, and every `sync` waits for it. So each test has a [`Watchdog`]
//! in another mount namespace, which cuts the connection after a while, whatever happens.

mod support;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::FlockOperation;
use rustix::process::{Pid, Signal, kill_process};
use support::{Daemon, LET_GO, ONEJOURNAL, Scratch, alone, has, spawn, text};

/// A process that after `$2` seconds, for as many again, aborts every connection of the volume in `$1`, unless it was
/// killed before. It says by its exit code whether it had to.
const WATCHDOG: &str = r#"
    mount -t fusectl none /sys/fs/fuse/connections && echo watching || exit 1
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
    has("unshare").then(Scratch::new).flatten()
}

/// Waits until nobody has the volume locked; then everything of it is free, and what was acknowledged is there.
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
