//! No call changes a volume through a read-only mount of it, or through descriptors that are open
//! for reading only: also none of the ioctls and attributes that only a volume has.

use crate::support;

use std::process::Command;

use onejournal_testing::{has_namespaces, has_program};
use support::{LET_GO, Scratch, alone, onejournal, python, run, text};

/// What every user tries, on the file `f` and the directory that are open for reading.
const CALLS: &str = r#"
import ctypes, errno, fcntl, os, struct, sys
uid = int(sys.argv[2])
os.chdir(sys.argv[1])
if uid:
    os.setgroups([]); os.setgid(uid); os.setuid(uid)
libc = ctypes.CDLL(None, use_errno=True)
fd, top = os.open('f', os.O_RDONLY), os.open('.', os.O_RDONLY)
change = struct.pack('<II16sIIQI', 1, 3, b'attack', 0, 1, 0, 5) + b'ATTAC'
def ioctl(of, number, argument=b''):
    return lambda: fcntl.ioctl(of, number, argument)
def attribute(of, name, value):
    return lambda: os.setxattr(of, name, value)
def fallocated():
    if libc.fallocate(fd, 0, ctypes.c_long(0), ctypes.c_long(1 << 20)) != 0:
        raise OSError(ctypes.get_errno(), '')
CALLS = {
    'write': lambda: os.write(fd, b'x'), 'cut': lambda: os.ftruncate(fd, 1),
    'cut by path': lambda: os.truncate('f', 1), 'allocate': fallocated,
    'mode': lambda: os.fchmod(fd, 0o777), 'owner': lambda: os.fchown(fd, 1000, 1000),
    'times': lambda: os.utime(fd, (1, 1)), 'unlink': lambda: os.unlink('f'),
    'former mode ioctl': ioctl(fd, 0x40044fe1, struct.pack('I', 1)),
    'former mode ioctl of a directory': ioctl(top, 0x40044fe1, struct.pack('I', 1)),
    'data mode': attribute(fd, 'user.onejournal.data', b'ordered'),
    'declare': attribute(fd, 'user.onejournal.atomic', b'4096'),
    'declare all': attribute(top, 'user.onejournal.atomic', b'4096'),
    'forget': lambda: os.removexattr(top, 'user.onejournal.atomic_volume'),
    'ranges': attribute(fd, 'user.onejournal.ranges', change),
    'flags': ioctl(fd, 0x40086602, struct.pack('l', 0x80040)),
    'flags of XFS': ioctl(fd, 0x401c5820, struct.pack('I', 0x80).ljust(28, b'\0')),
    'start': ioctl(fd, 0xf501), 'commit': ioctl(fd, 0xf502),
    'writable': lambda: os.getxattr(top, 'user.onejournal.make_writable'),
    'attribute': attribute(fd, 'user.a', b'2'), 'trusted': attribute(fd, 'trusted.a', b'2'),
}
if uid:
    CALLS['label'] = ioctl(top, 0x41009432, b'attack'.ljust(256, b'\0'))
for name, call in CALLS.items():
    try:
        call()
        print(name, 'ok')
    except OSError as error:
        print(name, errno.errorcode[error.errno])
# It answers, and has nothing to abort. The sync of a volume changes nothing.
fcntl.ioctl(fd, 0xf505)
fcntl.ioctl(fd, 0x4fe3)
"#;

/// What can be seen of the file: content, attributes, flags and data mode.
fn state(scratch: &Scratch) -> String {
    let file = scratch.path("f");
    let program = "\
import os, sys
f = sys.argv[1]
found = os.stat(f)
print(open(f).read(), oct(found.st_mode), found.st_uid, found.st_size, found.st_mtime)
print([(name, os.getxattr(f, name)) for name in sorted(os.listxattr(f))])
print(os.listdir(os.path.dirname(f)), os.listxattr(os.path.dirname(f)))";
    let seen = run(Command::new(python()).args(["-I", "-c", program, text(&file)])).good();
    let flags = support::system("lsattr", ["-v", text(&file)]).good();
    seen + &flags + &onejournal(["get-mode", text(&file), text(&scratch.dir())]).good()
}

#[test]
fn regression_nothing_changes_through_a_read_only_mount_or_descriptor() {
    let can_run = has_namespaces() && has_program("python3") && has_program("lsattr");
    let Some(scratch) = Scratch::mounted("atomic_writes").filter(|_| can_run) else { return };
    std::fs::write(scratch.path("f"), "content").unwrap();
    let before = state(&scratch);
    let mounted = scratch.root().join("read-only");
    std::fs::create_dir(&mounted).unwrap();
    let _alone = alone();
    // Root and another user through a read-only mount; a user who may not write, through the
    // mount that others write to.
    for (way, uid) in [("ro", "0"), ("ro", "1000"), ("rw", "1000")] {
        let script = format!(
            r#"{LET_GO} mount --bind "$1" "$2" && mount -o "remount,bind,$3" "$2" &&
            exec "$4" -I -c "$5" "$2" "$6""#
        );
        let mut command = Command::new("unshare");
        command.args(["-m", "--propagation", "private", "sh", "-c", &script, "sh"]);
        command.args([text(&scratch.dir()), text(&mounted), way]);
        command.arg(python()).args([CALLS, uid]);
        let told = run(&mut command).good();
        let succeeded: Vec<&str> = told.lines().filter(|line| line.ends_with(" ok")).collect();
        // Root may look whether the volume is writable.
        let expected: &[&str] = if uid == "0" { &["writable ok"] } else { &[] };
        assert_eq!(succeeded, expected, "{way} {uid}: {told}");
        assert_eq!(told.lines().count(), if uid == "0" { 22 } else { 23 }, "{told}");
        assert_eq!(state(&scratch), before, "{way} {uid}");
    }
    scratch.close_and_check();
}
