//! A program that runs on a volume of ours and on the kernel's ext4, made with the same options,
//! and must be told the same by both.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use super::{Scratch, TempMount, check_clean, python, run, system, text};
use onejournal_testing::has_program;

/// What every program begins with: `d` is the directory, `tell` prints a line of the table,
/// `as_user` runs a function in a process of another user, `is_linux_since(6, 1)` looks at the
/// kernel's version.
const PRELUDE: &str = r#"
import ctypes, errno, mmap, os, sqlite3, stat, struct, sys
d = sys.argv[1]
assert os.path.ismount(d)
os.umask(0)
os.chdir(d)
libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
def is_linux_since(*version):
    return tuple(map(int, os.uname().release.split('.')[:2])) >= version
def tell(*words):
    print(*words, flush=True)
def outcome(f, *arguments):
    try:
        f(*arguments)
        return 'ok'
    except OSError as error:
        return errno.errorcode[error.errno]
    except sqlite3.Error as error:
        return str(error)
def name_it(fd, name):
    path = '/proc/self/fd/%d' % fd
    if libc.linkat(-100, path.encode(), -100, name.encode(), 0x400) != 0:
        raise OSError(ctypes.get_errno(), '')
def as_user(uid, f, groups=()):
    pid = os.fork()
    if pid == 0:
        try:
            if uid:
                os.setgroups(groups); os.setgid(uid); os.setuid(uid)
            f()
        finally:
            sys.stdout.flush()
            os._exit(0)
    os.waitpid(pid, 0)
def fill(name):
    fd = os.open(name, os.O_WRONLY | os.O_CREAT)
    try:
        for length in 1 << 20, 4096:
            while True:
                try:
                    if os.write(fd, b'x' * length) < length:
                        break
                except OSError as error:
                    assert error.errno == errno.ENOSPC
                    break
    finally:
        os.close(fd)
"#;

/// A mounted volume of ours.
pub struct Ours {
    pub scratch: Scratch,
}

impl Ours {
    /// An image that mke2fs makes with these options.
    pub fn new(size: &str, mke2fs: &[&str], options: &str) -> Option<Ours> {
        if !has_program("python3") {
            return None;
        }
        let mut scratch = Scratch::empty()?;
        make(&scratch.image(), size, mke2fs);
        scratch.mount(options);
        Some(Ours { scratch })
    }

    pub fn close(self) {
        self.scratch.close_and_check();
    }
}

fn make(image: &Path, size: &str, mke2fs: &[&str]) {
    let mut arguments = vec!["-q", "-F", "-t", "ext4", "-b", "4096"];
    arguments.extend_from_slice(mke2fs);
    arguments.extend_from_slice(&[text(image), size]);
    system("mke2fs", arguments).good();
}

/// What the program prints on the file system that is mounted there.
#[track_caller]
pub fn told(program: &str, dir: &Path) -> String {
    let program = PRELUDE.to_owned() + program;
    let arguments = [OsStr::new("-I"), OsStr::new("-c"), OsStr::new(&program), dir.as_os_str()];
    run(Command::new(python()).args(arguments)).good()
}

/// Runs the program on both. The answers are equal; they are returned.
#[track_caller]
pub fn told_by_both(program: &str, size: &str, mke2fs: &[&str], options: &str) -> Option<String> {
    let ours = Ours::new(size, mke2fs, options)?;
    let image = ours.scratch.root().join("ext4");
    make(&image, size, mke2fs);
    let theirs = {
        let mount = TempMount::new(&["-o", "loop", text(&image)], &ours.scratch.root().join("k"));
        told(program, &mount.dir)
    };
    check_clean(&image);
    let told = told(program, &ours.scratch.dir());
    assert_eq!(told, theirs, "left: OneJournal, right: the kernel's ext4");
    ours.close();
    Some(told)
}
