//! The table of `docs/reference/limits.md` that says what a FUSE file system cannot offer: each row
//! is run, and what a program is told is what the row says. On the kernel's ext4 the same call
//! works, or the row says so.

use crate::support;

use std::collections::BTreeMap;
use std::path::Path;

use support::beside::{Ours, told};

const PROGRAM: &str = r#"
import fcntl
def row(name, f):
    try:
        r = f()
        tell(name, '|', 'works' if r is None else r)
    except OSError as error:
        name_of = errno.errorcode[error.errno]
        tell(name, '|', '`%s`' % ('EOPNOTSUPP' if name_of == 'ENOTSUP' else name_of))
def call(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), '')
    return result
buffer = ctypes.create_string_buffer(4096)
fd = os.open('f', os.O_RDWR | os.O_CREAT)
os.write(fd, b'x' * 65536)
os.fsync(fd)
other = os.open('g', os.O_RDWR | os.O_CREAT)
top = os.open('.', os.O_RDONLY)

def allocate(mode):
    call(libc.fallocate(fd, mode, 4096, 4096))
row('`FALLOC_FL_COLLAPSE_RANGE`', lambda: allocate(0x08))
row('`FALLOC_FL_INSERT_RANGE`', lambda: allocate(0x20))

def freeze():
    fcntl.ioctl(top, 0xc0045877, 0)
    fcntl.ioctl(top, 0xc0045878, 0)
row('`FIFREEZE` (`fsfreeze`)', freeze)

def attributes():
    fcntl.ioctl(other, 0x40086602, struct.pack('q', 0x40 | 0x80000))
    call(libc.statx(other, b'', 0x1000, 0x7ff, buffer))
    found, = struct.unpack_from('Q', buffer.raw, 8)
    return None if found & 0x40 else 'no bit is set'
row('`statx` attribute bits', attributes)

def written(flag):
    vector = (ctypes.c_void_p * 2)(ctypes.cast(buffer, ctypes.c_void_p), 4096)
    call(libc.pwritev2(direct, vector, 1, ctypes.c_long(0), flag))
direct = os.open('f', os.O_RDWR | os.O_DIRECT)
row('`RWF_NOWAIT`', lambda: os.preadv(fd, [bytearray(10)], 0, os.RWF_NOWAIT) and None)
row('`RWF_ATOMIC`', lambda: written(0x40))
row('`RWF_DONTCACHE`', lambda: written(0x80))

def asked_for(bit):
    call(libc.statx(direct, b'', 0x1000, bit, buffer))
    found, = struct.unpack_from('I', buffer.raw, 0)
    return None if found & bit else 'not set'
row('`STATX_WRITE_ATOMIC`', lambda: asked_for(0x10000))
row('`STATX_DIOALIGN`', lambda: asked_for(0x2000))
row('`f_fsid` of `statfs`', lambda: str(os.statvfs('.').f_fsid))

def swap():
    swap = os.open('swap', os.O_RDWR | os.O_CREAT, 0o600)
    page = bytearray(4096)
    page[1024:1036] = struct.pack('III', 1, 255, 0)
    page[4086:] = b'SWAPSPACE2'
    os.write(swap, bytes(page) + bytes(255 * 4096))
    os.fsync(swap)
    call(libc.swapon(b'swap', 0))
    call(libc.swapoff(b'swap'))
row('swap files (`swapon`)', swap)
row('reflink (`FICLONE`)', lambda: fcntl.ioctl(other, 0x40049409, fd) and None)
verity = struct.pack('IIIIQIIQ', 1, 1, 4096, 0, 0, 0, 0, 0) + bytes(88)
row('fs-verity (`FS_IOC_ENABLE_VERITY`)',
    lambda: fcntl.ioctl(os.open('f', os.O_RDONLY), 0x40806685, verity) and None)

def idmap():
    (ready, is_ready), (end, is_end) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        libc.unshare(0x10000000)
        os.write(is_ready, b'x')
        os.read(end, 1)
        os._exit(0)
    os.read(ready, 1)
    for kind in 'uid', 'gid':
        open('/proc/%d/%s_map' % (pid, kind), 'w').write('0 1000 1000')
    namespace = os.open('/proc/%d/ns/user' % pid, os.O_RDONLY)
    try:
        tree = call(libc.syscall(428, -100, os.getcwd().encode(), 1 | 0x80000))
        try:
            request = struct.pack('QQQQ', 0x100000, 0, 0, namespace)
            call(libc.syscall(442, tree, b'', 0x1000, request, 32))
        finally:
            os.close(tree)
    finally:
        os.write(is_end, b'x')
        os.waitpid(pid, 0)
row('idmapped mounts (`mount_setattr`)', idmap)

def watch():
    group = call(libc.fanotify_init(0x200, 0))
    try:
        call(libc.fanotify_mark(group, 0x101, ctypes.c_ulong(0x100), -100, b'.'))
    finally:
        os.close(group)
row('fanotify by file id (`FAN_REPORT_FID`)', watch)
row('`FIEMAP` (`filefrag`)',
    lambda: fcntl.ioctl(fd, 0xc020660b, struct.pack('QQIIII', 0, 1 << 40, 0, 0, 0, 0)) and None)
first = lambda: struct.unpack('i', fcntl.ioctl(fd, 1, struct.pack('i', 0)))[0]
row('`FIBMAP`', lambda: 'block 0, as in a hole' if first() == 0 else None)
row('`FS_IOC_GETFSUUID`', lambda: fcntl.ioctl(fd, 0x80111500, bytes(17)) and None)
"#;

/// The rows of the table: what is asked for, and what a program is told.
fn rows(page: &str) -> BTreeMap<String, String> {
    let section = page.split("## What FUSE cannot offer").nth(1).expect("the section");
    let section = section.split("\n## ").next().unwrap_or(section);
    let rows = section.lines().filter_map(|line| {
        let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
        Some((cells.next()?.to_owned(), cells.next()?.to_owned()))
    });
    rows.skip(2).collect()
}

fn parse(told: &str) -> BTreeMap<String, String> {
    let cells = told.lines().filter_map(|line| line.split_once('|'));
    cells.map(|(name, told)| (name.trim().to_owned(), told.trim().to_owned())).collect()
}

#[test]
fn programs_are_told_what_the_table_says() {
    let Some(ours) = Ours::new("64M", &[], "") else { return };
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/limits.md");
    let rows = rows(&std::fs::read_to_string(page).unwrap());
    let told = parse(&told(PROGRAM, &ours.scratch.dir()));
    assert_eq!(told.len(), 18, "{told:?}");
    assert_eq!(told, rows, "left: what was told, right: docs/reference/limits.md");
    ours.close();
}

/// The label can be read and set while the volume is mounted, and e2label agrees.
#[test]
fn the_label_is_read_and_set() {
    let Some(mut ours) = Ours::new("64M", &["-L", "first"], "") else { return };
    let program = r#"
import fcntl
fd = os.open('.', os.O_RDONLY)
label = lambda: fcntl.ioctl(fd, 0x81009431, bytes(256)).rstrip(b'\0').decode()
def set_label(name):
    fcntl.ioctl(fd, 0x41009432, name + bytes(256 - len(name)))
tell(label())
tell(outcome(set_label, b'sixteen letters!'), label())
tell(outcome(set_label, b'seventeen letters'), label())
as_user(1000, lambda: tell(outcome(set_label, b'other'), label()))
tell(outcome(set_label, b'second'), label())
"#;
    let told = told(program, &ours.scratch.dir());
    let wanted =
        "first\nok sixteen letters!\nEINVAL sixteen letters!\nEPERM sixteen letters!\nok second\n";
    assert_eq!(told, wanted);
    // The label is durable.
    ours.scratch.kill();
    ours.scratch.mount("");
    ours.scratch.umount();
    let label = support::system("e2label", [ours.scratch.image()]).good();
    assert_eq!(label, "second\n");
    ours.scratch.mount("");
    ours.close();
}
