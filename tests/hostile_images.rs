//! The commands on images made for an attack: mutants of volumes that were closed, and of volumes
//! whose journal holds changes, with right checksums. Any error is an answer. A panic, a command
//! that does not end, and one that takes memory without a bound are not.
//!
//! `sim::fuzz` makes the mutants of volumes, and runs many more of them through the library.

use crate::support;

use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use journal::format::{HEADER_SLOT_BYTES, LABEL_BYTES, RawHeader, RawLabel};
use onejournal_testing::{has_program, read_sparse, test_name, tier, write_sparse};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use sim::fuzz::volume_open::mutant;
use support::{HeldDevice, ONEJOURNAL, Scratch, python, spawn, text};

/// Longest that one command may take. It takes a fraction of a second.
const LIMIT: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };
/// Most address space of a command and of the programs that it starts: 4 GiB.
const ADDRESS_SPACE: &str = "--as=4294967296";
/// The exit code of a Rust program that panics.
const PANICKED: i32 = 101;

/// Uses what is mounted: each name, content and attribute, a bounded number of them; then changes.
/// Opens regular files only.
const USER: &str = r#"
import os, stat, sys
root = os.fsencode(sys.argv[1])
def attempt(call, *arguments, **named):
    try:
        return call(*arguments, **named)
    except (OSError, ValueError, OverflowError):
        return None
def names_of(directory):
    names = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                names.append(entry.name)
                if len(names) == 60:
                    break
    except OSError:
        pass
    return names
def use_file(path, size):
    fd = attempt(os.open, path, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW)
    if fd is None:
        return
    for offset in 0, size // 2, size - 4096:
        attempt(os.pread, fd, 65536, offset)
    for offset in 0, 100000:
        attempt(os.pwrite, fd, b'w' * 5000, offset)
    attempt(os.lseek, fd, 0, os.SEEK_HOLE)
    attempt(os.fsync, fd)
    attempt(os.ftruncate, fd, 6000)
    attempt(os.close, fd)
def use(path):
    found = attempt(os.lstat, path)
    if found is None:
        return
    for name in (attempt(os.listxattr, path, follow_symlinks=False) or [])[:20]:
        attempt(os.getxattr, path, name, follow_symlinks=False)
    if stat.S_ISDIR(found.st_mode):
        directories.append(path)
    elif stat.S_ISLNK(found.st_mode):
        attempt(os.readlink, path)
    elif stat.S_ISREG(found.st_mode):
        use_file(path, found.st_size)
        attempt(os.setxattr, path, 'user.new', b'n' * 200)
    paths.append(path)
directories, paths = [root], []
while directories and len(paths) < 150:
    directory = directories.pop(0)
    for name in names_of(directory):
        use(directory + b'/' + name)
    attempt(os.mkdir, directory + b'/made')
    attempt(os.rmdir, directory + b'/made')
for number, path in enumerate(paths):
    change = number % 4
    if change == 0:
        attempt(os.rename, path, path + b'.renamed')
    elif change == 1:
        attempt(os.link, path, path + b'.linked', follow_symlinks=False)
    elif change == 2:
        attempt(os.unlink, path)
attempt(os.statvfs, root)
fd = attempt(os.open, root, os.O_RDONLY | os.O_DIRECTORY)
if fd is not None:
    attempt(os.fsync, fd)
"#;

/// The commands on one image after the other.
struct Attack {
    scratch: Scratch,
    /// The journal, if it is not in the image.
    journal: Option<PathBuf>,
    /// The seed of the mutant, for messages.
    seed: u64,
}

impl Attack {
    /// `None`, and a word about it, where that is not possible.
    fn new(scratch: Option<Scratch>) -> Option<Attack> {
        let has_programs = || has_program("prlimit") && has_program("python3");
        scratch.filter(|_| has_programs()).map(|scratch| Attack { scratch, journal: None, seed: 0 })
    }

    /// All commands on the image, which they may change. Whether it could be mounted.
    fn begin(&self) -> bool {
        let bytes = || {
            let files = [Some(self.scratch.image()), self.journal.clone()];
            files.into_iter().flatten().map(|path| fs::read(path).unwrap()).collect::<Vec<_>>()
        };
        let before = bytes();
        self.run(&["dump"]);
        self.run(&["fsck", "-n"]);
        assert!(bytes() == before, "seed {}: a command that only reads has written", self.seed);
        // Repaired before it is used, or used before it is repaired.
        if self.seed.is_multiple_of(2) {
            self.run(&["fsck", "-y"]);
            self.mount()
        } else {
            let is_mounted = self.mount();
            self.run(&["fsck", "-y"]);
            is_mounted
        }
    }

    /// `onejournal` with these words before the image, under the limits; standard error goes to a
    /// file.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("prlimit");
        command.args([ADDRESS_SPACE, ONEJOURNAL]).args(words).arg(self.scratch.image());
        command.stdin(Stdio::null()).stderr(File::create(self.said()).unwrap());
        command
    }

    fn said(&self) -> PathBuf {
        self.scratch.root().join("said")
    }

    /// Runs a command to its end.
    fn run(&self, words: &[&str]) {
        let journal = self.journal.iter().flat_map(|path| ["--journal", text(path)]);
        let words = &words.iter().copied().chain(journal).collect::<Vec<_>>()[..];
        let mut command = self.command(words);
        command.stdout(Stdio::null());
        let status = self.end_of(spawn(&mut command).unwrap(), words);
        self.check(status, words);
    }

    /// How the process ended. If it does not end, it is killed, and the test fails.
    #[track_caller]
    fn end_of(&self, mut child: Child, words: &[&str]) -> ExitStatus {
        let descriptor = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
        let has_ended = is_ready(&descriptor);
        if !has_ended {
            child.kill().unwrap();
        }
        let status = child.wait().unwrap();
        assert!(has_ended, "seed {}: {words:?} does not end", self.seed);
        status
    }

    /// It ended by itself, with a code that it chose.
    #[track_caller]
    fn check(&self, status: ExitStatus, words: &[&str]) {
        let said = fs::read(self.said()).unwrap();
        let said = String::from_utf8_lossy(&said);
        let is_chosen = status.code().is_some_and(|code| code != PANICKED);
        let has_panicked = said.contains("panicked at");
        assert!(is_chosen && !has_panicked, "seed {}: {words:?}: {status}: {said}", self.seed);
    }

    /// Mounts the image, and uses and unmounts it if that succeeds. Whether it did.
    fn mount(&self) -> bool {
        let journal = self.journal.as_deref().map(journal_option).unwrap_or_default();
        let words = ["mount", "-f", "-o", &format!("nosuid,nodev{journal}")];
        let mut command = self.command(&words);
        let mut child = spawn(command.arg(self.scratch.dir()).stdout(Stdio::piped())).unwrap();
        let mut served = Served { scratch: &self.scratch, child: None };
        let stdout = child.stdout.take().expect("it was asked for");
        let has_answered = is_ready(&stdout);
        let child = served.child.insert(child);
        assert!(has_answered, "seed {}: the mount says nothing", self.seed);
        let (mut reader, mut line) = (BufReader::new(stdout), String::new());
        reader.read_line(&mut line).unwrap();
        let device = HeldDevice::below(&self.scratch.dir());
        let is_mounted = line.starts_with("mounted");
        if is_mounted {
            let mut user = Command::new(python());
            user.args(["-I", "-c", USER, text(&self.scratch.dir())]).stdin(Stdio::null());
            let status = self.end_of(spawn(&mut user).unwrap(), &["the user of the mount"]);
            assert!(status.success(), "seed {}: the user of the mount: {status}", self.seed);
            kill_process(Pid::from_child(child), Signal::INT).unwrap();
        }
        let child = served.child.take().expect("it was not taken");
        self.check(self.end_of(child, &words), &words);
        drop(served);
        device.iter().for_each(HeldDevice::wait_until_closed);
        is_mounted
    }
}

/// A mount that is taken off with the value; what serves it is killed.
struct Served<'a> {
    scratch: &'a Scratch,
    child: Option<Child>,
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        // It is mounted if the daemon did not unmount it.
        let _ = unmount(self.scratch.dir(), UnmountFlags::DETACH);
    }
}

/// Whether the descriptor has something to say within the limit.
fn is_ready(descriptor: impl AsFd) -> bool {
    poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&LIMIT)) == Ok(1)
}

/// The mount option for a journal in that file.
fn journal_option(path: &Path) -> String {
    format!(",journal={},durability=process", text(path))
}

#[test]
fn commands_end_with_an_answer_whatever_the_image_says() {
    let Some(mut attack) = Attack::new(Scratch::empty()) else { return };
    let image = attack.scratch.image();
    let (mut count, mut mounted_count) = (0, 0);
    for seed in tier::seeds(test_name!(), 334) {
        attack.seed = seed;
        let mutant = mutant(&mut fastrand::Rng::with_seed(seed));
        mutant.write_to(&File::create_new(&image).unwrap()).unwrap();
        count += 1;
        mounted_count += usize::from(attack.begin());
        // The next image is another file.
        fs::remove_file(&image).unwrap();
    }
    println!("{mounted_count} of {count} images could be mounted");
    assert!(count < 10 || mounted_count * 4 > count, "most are refused, and nothing is tried");
}

/// Changes numbers of the label and the headers of a journal on another medium, behind right
/// checksums.
fn forge(journal: &mut [u8], random: &mut fastrand::Rng) {
    const CHECKSUM: std::ops::Range<usize> = 8..12;
    let (label_bytes, slot_bytes) = (LABEL_BYTES as usize, HEADER_SLOT_BYTES as usize);
    let header_bytes = size_of::<RawHeader>();
    let heads = [
        (0, size_of::<RawLabel>()),
        (label_bytes, header_bytes),
        (label_bytes + slot_bytes, header_bytes),
    ];
    for _ in 0..random.usize(1..5) {
        let (start, len_bytes) = heads[random.usize(..heads.len())];
        let head = &mut journal[start..start + len_bytes];
        let at = random.usize(..len_bytes);
        let end = len_bytes.min(at + [1, 4, 8][random.usize(..3)]);
        let any = random.u8(..);
        head[at..end].fill([0, 1, 0x7f, 0xff, any][random.usize(..5)]);
        head[CHECKSUM].fill(0);
        let checksum = crc32c::crc32c(head);
        head[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
    }
}

#[test]
fn commands_end_with_an_answer_whatever_a_label_says() {
    let Some(mut attack) = Attack::new(Scratch::with_size("16M")) else { return };
    let (image, journal) = (attack.scratch.image(), attack.scratch.root().join("journal"));
    attack.scratch.mount(&format!("journal_size=4M{}", journal_option(&journal)));
    (0..20).for_each(|number| attack.scratch.write_synced(&format!("file {number}")));
    attack.scratch.kill();
    let (volume, genuine) = (read_sparse(&image).unwrap(), fs::read(&journal).unwrap());
    attack.journal = Some(journal.clone());
    for seed in tier::seeds(test_name!(), 100) {
        attack.seed = seed;
        let mut forged = genuine.clone();
        forge(&mut forged, &mut fastrand::Rng::with_seed(seed));
        // The next ones are other files.
        for path in [&image, &journal] {
            fs::remove_file(path).unwrap();
        }
        write_sparse(&image, &volume).unwrap();
        fs::write(&journal, &forged).unwrap();
        fs::set_permissions(&journal, Permissions::from_mode(0o600)).unwrap();
        attack.begin();
    }
}
