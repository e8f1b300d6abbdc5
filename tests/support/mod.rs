//! Scratch volumes that go away with the test, the command, and a second process.

#![allow(dead_code, unused_imports)] // each suite uses a part of it

pub mod beside;
mod claimed;
mod emulated_disk;
mod held;
mod logd;
pub mod mounted;
mod namespace;
mod peer;
pub mod probing;
mod scratch;

use std::ffi::OsStr;
use std::fs::File;
use std::io::PipeWriter;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

use onejournal_testing::{Need, can_mount_fuse, has_loop_devices, has_program, skip};
pub use onejournal_testing::{are_syncs_told, is_linux_since};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FlockOperation, flock};

pub use claimed::ClaimedMount;
pub use emulated_disk::EmulatedDisk;
pub use held::{HeldDevice, wait_until};
pub use logd::Logd;
pub use namespace::{LET_GO, Waiting, alone};
pub use peer::{Peer, python};
pub use scratch::{Daemon, Loop, Partition, Scratch, TempMount, scratch_dir, tmpfs_dir};

/// A user and a group without any rights.
pub const OTHER_USER: u32 = 65_534;
/// The command under test.
pub const ONEJOURNAL: &str = env!("CARGO_BIN_EXE_onejournal");

/// Whether the command can mount volumes here as root; says why not.
#[track_caller]
pub fn can_mount() -> bool {
    can_mount_fuse() && has_loop_devices() && has_program("mke2fs") && has_program("e2fsck")
}

/// Whether the kernel has made these nodes of partitions; says so if not.
#[track_caller]
pub fn has_nodes<const N: usize>(partitions: [&Path; N]) -> bool {
    let missing = partitions.into_iter().find(|node| !node.exists());
    if let Some(node) = missing {
        skip(Need::Partitions, format!("needs the node {}", node.display()));
    }
    missing.is_none()
}

/// What a program said and how it ended.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// It ended well; its standard output.
    #[track_caller]
    pub fn good(self) -> String {
        self.ended(0);
        self.out
    }

    /// It ended with `code`.
    #[track_caller]
    pub fn ended(&self, code: i32) {
        assert_eq!(self.code, Some(code), "{self:?}");
    }

    /// It ended with `code` and said `word`, on one line that names the program.
    #[track_caller]
    pub fn refused(&self, code: i32, word: &str) {
        self.ended(code);
        assert!(self.err.contains(word), "no {word:?} in {:?}", self.err);
        assert!(!self.err.contains("panicked"), "{}", self.err);
    }
}

/// Starts a command; every one has to be started here. Between fork and exec a child has all open
/// files of the process, and a mount on which one of them is open is busy. So one at a time: when a
/// thread has closed its files and then starts an umount, no such child is about.
pub fn spawn(command: &mut Command) -> std::io::Result<Child> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    onejournal_testing::spawn_without_files(command)
}

/// The writing end of a pipe that has no reader. A child that another test starts may have a copy
/// of the reader until its exec: this waits for the last copy.
pub fn unread_pipe() -> PipeWriter {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    poll(&mut [PollFd::new(&writer, PollFlags::empty())], None).unwrap();
    writer
}

/// A lock that keeps `umount` apart from `onejournal ls` and `onejournal top`, until it is dropped.
/// They ask each volume of the machine, also those of other tests, and a volume that is being asked
/// is busy.
fn turn(command: &Command) -> Option<File> {
    let lock = match (Path::new(command.get_program()).file_name()?, command.get_args().next()) {
        (program, _) if program == "umount" => FlockOperation::LockShared,
        (_, Some(argument)) if argument == "ls" || argument == "top" => {
            FlockOperation::LockExclusive
        }
        _ => return None,
    };
    let file = File::create(turns()).unwrap();
    flock(&file, lock).unwrap();
    Some(file)
}

/// The file of the lock of [`turn`], which two runs on one machine share.
pub fn turns() -> PathBuf {
    let user = rustix::process::getuid().as_raw();
    format!("/var/tmp/onejournal-test-ls-{user}.lock").into()
}

/// Runs a command to its end.
#[track_caller]
pub fn run(command: &mut Command) -> Ran {
    let _turn = turn(command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = spawn(command).and_then(Child::wait_with_output);
    let Output { status, stdout, stderr } =
        output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ran { code: status.code(), out: text(stdout), err: text(stderr) }
}

/// Runs a program of the system, also where `/sbin` is not on the path.
#[track_caller]
pub fn system<S: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = S>) -> Ran {
    let sbin = Path::new("/usr/sbin").join(program);
    let program = if sbin.exists() { sbin } else { PathBuf::from(program) };
    run(Command::new(program).args(arguments))
}

/// Runs `onejournal`.
#[track_caller]
pub fn onejournal<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ran {
    run(Command::new(ONEJOURNAL).args(arguments))
}

/// `e2fsck -fn` has nothing to say against it.
#[track_caller]
pub fn check_clean(target: &Path) {
    let ran = system("e2fsck", [OsStr::new("-fn"), target.as_os_str()]);
    assert_eq!(ran.code, Some(0), "e2fsck: {}{}", ran.out, ran.err);
}

/// Whether the kernel lets a program make a file without a name on a volume (`O_TMPFILE`).
pub fn has_unnamed_files() -> bool {
    is_linux_since(6, 1)
}

/// A path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
