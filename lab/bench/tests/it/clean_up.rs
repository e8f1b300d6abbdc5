//! Experiments leave nothing behind when they end or after SIGINT. After SIGKILL the next run
//! removes what is left. Needs root, and `onejournal` with the SQLite extension beside this program
//! (`cargo build` in the product's workspace).

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use onejournal_testing::{ENABLE_URING, can_mount_fuse, has_loop_devices};
use rustix::process::{Pid, Signal, kill_process};

const PROGRAM: &str = env!("CARGO_BIN_EXE_onejournal-bench");
const URING_NOTE: &str = "/run/onejournal-bench.enable_uring";
const PATIENCE: Duration = Duration::from_secs(300);

/// `false`, with a message, where experiments cannot run.
fn can_run() -> bool {
    can_mount_fuse() && has_loop_devices()
}

/// A run of the smallest experiment in a scratch folder of this test.
fn experiment(base: &Path, rounds: u32) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["fast14-cases", "--quick", "--device", "zero", "--rounds", &rounds.to_string()]);
    command.arg("--scratch").arg(base).arg("--out").arg(base.join("out")).stderr(Stdio::piped());
    command
}

#[track_caller]
fn finish(command: &mut Command) -> String {
    let output: Output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    text
}

/// Mounts below `base`, and loop devices over files below it.
fn left_below(base: &Path) -> Vec<String> {
    let base = base.to_str().unwrap();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut left: Vec<String> =
        mounts.lines().filter(|line| line.contains(base)).map(str::to_owned).collect();
    for entry in fs::read_dir("/sys/block").unwrap().flatten() {
        let file = fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
        if file.contains(base) {
            left.push(format!("{:?}: {file}", entry.file_name()));
        }
    }
    left
}

/// Asserts that nothing of this run is mounted, attached, in the scratch folder or in memory.
#[track_caller]
fn assert_clean(base: &Path, pid: u32) {
    assert_eq!(left_below(base), Vec::<String>::new());
    let folders: Vec<_> = fs::read_dir(base.join("onejournal-bench")).unwrap().collect();
    assert!(folders.is_empty(), "{folders:?}");
    assert!(!Path::new(&format!("/dev/shm/onejournal-bench-{pid}")).exists());
}

/// Starts a long run, and waits until its systems are mounted.
fn start(base: &Path) -> Child {
    let child = experiment(base, 1000).spawn().unwrap();
    let deadline = Instant::now() + PATIENCE;
    let is_up =
        || left_below(base).iter().any(|line| line.contains("fuse") && line.contains("/dev/loop"));
    while !is_up() {
        assert!(Instant::now() < deadline, "nothing is mounted");
        std::thread::sleep(Duration::from_millis(50));
    }
    child
}

fn signal(child: &mut Child, signal: Signal) -> String {
    kill_process(Pid::from_child(child), signal).unwrap();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut text).unwrap();
    child.wait().unwrap();
    text
}

#[test]
fn nothing_is_left_whatever_ends_an_experiment() {
    if !can_run() {
        return;
    }
    let base = tempfile::tempdir_in("/var/tmp").unwrap();
    // Who sets it and looks at it holds this lock; other runs keep the setting while they last.
    let setting = fs::File::open(ENABLE_URING).ok();
    if let Some(setting) = &setting {
        rustix::fs::flock(setting, rustix::fs::FlockOperation::LockExclusive).unwrap();
    }
    let is_alone = !Path::new(URING_NOTE).exists();
    let before = fs::read_to_string(ENABLE_URING).unwrap_or_default();
    let mut interrupted = start(base.path());
    let pid = interrupted.id();
    let text = signal(&mut interrupted, Signal::INT);
    assert!(text.contains("interrupted"), "{text}");
    assert_clean(base.path(), pid);

    let mut killed = start(base.path());
    let pid = killed.id();
    signal(&mut killed, Signal::KILL);
    assert_ne!(left_below(base.path()), Vec::<String>::new(), "this test would see nothing");

    let text = finish(&mut experiment(base.path(), 1));
    assert!(text.contains("clearing what a killed run left"), "{text}");
    assert_clean(base.path(), pid);
    if is_alone && !Path::new(URING_NOTE).exists() {
        assert_eq!(fs::read_to_string(ENABLE_URING).unwrap_or_default(), before);
    }
    for name in ["fast14-cases.json", "README.md", "report.html", "plots/fast14-cases-1.svg"] {
        assert!(base.path().join("out").join(name).exists(), "{name}");
    }
}
