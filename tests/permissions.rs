//! The permissions of other users: the same calls by the same users, on a volume of ours and on the
//! kernel's ext4, with the same answers.

use crate::support;

use std::process::Command;

use onejournal_testing::{Need, has_program, skip};
use support::beside::{Ours, told, told_by_both};
use support::{Scratch, is_linux_since, run};

/// Each user tries each call on files and in directories of each mode, and tells what became of
/// them.
const MODES: &str = r#"
OWNER, GROUP = 1000, 1002
USERS = (0, ()), (OWNER, ()), (GROUP, ()), (1003, ()), (1003, (7, GROUP)), (OWNER, (GROUP, 7))
def opened(flags):
    return lambda name: os.close(os.open(name, flags))
def allowed(mode):
    def ask(name):
        if not os.access(name, mode):
            raise PermissionError(errno.EACCES, '')
    return ask
def renamed(name):
    os.rename(name, name + '.new')
    os.rename(name + '.new', name)
def linked(name):
    os.link(name, name + '.new')
    os.unlink(name + '.new')
CALLS = {
    'read': opened(os.O_RDONLY), 'write': opened(os.O_WRONLY), 'both': opened(os.O_RDWR),
    'append': opened(os.O_WRONLY | os.O_APPEND), 'unread cut': opened(os.O_RDONLY | os.O_TRUNC),
    'may read': allowed(os.R_OK), 'may write': allowed(os.W_OK), 'may run': allowed(os.X_OK),
    'noatime': opened(os.O_RDONLY | os.O_NOATIME), 'path': opened(os.O_PATH), 'stat': os.stat,
    'truncate': lambda name: os.truncate(name, 3),
    'list attributes': os.listxattr, 'get': lambda name: os.getxattr(name, 'user.a'),
    'set': lambda name: os.setxattr(name, 'user.a', b'2'),
    'trusted': lambda name: os.setxattr(name, 'trusted.a', b'1'),
    'security': lambda name: os.setxattr(name, 'security.a', b'1'),
    'get trusted': lambda name: os.getxattr(name, 'trusted.r'),
    'get security': lambda name: os.getxattr(name, 'security.r'),
    'remove': lambda name: os.removexattr(name, 'user.a'),
    'now': os.utime, 'times': lambda name: os.utime(name, (1, 1)),
    'group': lambda name: os.chown(name, -1, 1003),
    'own group': lambda name: os.chown(name, -1, GROUP),
    'rename': renamed, 'link': linked, 'mode': lambda name: os.chmod(name, 0o6755),
    'owner': lambda name: os.chown(name, 1003, -1), 'unlink': os.unlink,
}
def state(name):
    try:
        found = os.stat(name)
        return oct(found.st_mode), found.st_uid, found.st_gid, found.st_size
    except OSError as error:
        return errno.errorcode[error.errno]
os.chmod('.', 0o777)
MODES = [0o000, 0o600, 0o460, 0o406, 0o046, 0o640, 0o604, 0o070, 0o007, 0o711, 0o6777]
# Before, ext4 leaves set-group-ID to a file without group execute; the volume clears it.
if is_linux_since(6, 1):
    MODES.append(0o2666)
for mode in MODES:
    for uid, groups in USERS:
        name = '%o-%d-%d' % (mode, uid, len(groups))
        with open(name, 'w') as file:
            file.write('#!/bin/sh\n')
        for attribute in 'user.a', 'trusted.r', 'security.r':
            os.setxattr(name, attribute, b'1')
        os.chown(name, OWNER, GROUP)
        os.chmod(name, mode)
        def try_all():
            for call in CALLS:
                tell(name, call, outcome(CALLS[call], name), state(name))
        as_user(uid, try_all, groups)
def node(mode, device=0):
    return lambda dir: os.mknod(dir + '/node', mode | 0o600, device)
IN_DIRECTORY = {
    'list': os.listdir, 'stat': lambda dir: os.stat(dir + '/mine'),
    'read': lambda dir: opened(os.O_RDONLY)(dir + '/mine'),
    'create': lambda dir: opened(os.O_CREAT | os.O_WRONLY)(dir + '/new'),
    'unnamed': lambda dir: os.close(os.open(dir, os.O_TMPFILE | os.O_RDWR, 0o600)),
    'mkdir': lambda dir: os.mkdir(dir + '/newdir'), 'fifo': node(stat.S_IFIFO),
    'device': node(stat.S_IFCHR, os.makedev(1, 3)),
    'symlink': lambda dir: os.symlink('x', dir + '/link'),
    'replace': lambda dir: os.rename(dir + '/new', dir + '/other'),
    'move mine': lambda dir: os.rename(dir + '/mine', dir + '/moved'),
    'move other': lambda dir: os.rename(dir + '/other', dir + '/mine'),
    'move out': lambda dir: os.rename(dir + '/sub', 'out-' + dir),
    'unlink mine': lambda dir: os.unlink(dir + '/mine'),
    'unlink moved': lambda dir: os.unlink(dir + '/moved'),
    'rmdir': lambda dir: os.rmdir(dir + '/sub'),
    'set': lambda dir: os.setxattr(dir, 'user.a', b'1'), 'enter': os.chdir,
}
if not is_linux_since(6, 1):
    del IN_DIRECTORY['unnamed']
for mode in 0o000, 0o700, 0o311, 0o044, 0o730, 0o703, 0o1777, 0o3777, 0o1773, 0o2770:
    for uid, groups in USERS:
        for owner in OWNER, 0:
            dir = 'd%o-%d-%d-%d' % (mode, uid, len(groups), owner)
            os.mkdir(dir)
            os.mkdir(dir + '/sub')
            for name, of in (dir, owner), (dir + '/mine', OWNER), (dir + '/other', 1003), \
                    (dir + '/sub', OWNER):
                if name[-4:] in ('mine', 'ther'):
                    os.close(os.open(name, os.O_CREAT, 0o644))
                os.chown(name, of, GROUP)
            os.chmod(dir, mode)
            def try_all():
                for call in IN_DIRECTORY:
                    tell(dir, call, outcome(IN_DIRECTORY[call], dir))
            as_user(uid, try_all, groups)
            found = sorted((name, os.stat(dir + '/' + name, follow_symlinks=False))
                           for name in os.listdir(dir))
            tell(dir, [(name, oct(s.st_mode), s.st_uid, s.st_gid) for name, s in found])
"#;

/// The lines that `told` must have, among all that both were told.
#[track_caller]
fn has_lines(told: &str, lines: &[&str]) {
    for line in lines {
        assert!(told.lines().any(|told| told.starts_with(line)), "no {line:?} in {told}");
    }
}

#[test]
fn modes_allow_the_same_users_the_same_calls() {
    let Some(told) = told_by_both(MODES, "64M", &[], "") else { return };
    let lines = [
        "600-1003-0 read EACCES",
        "640-1003-2 read ok",
        "46-1000-0 read EACCES",
        "600-1000-0 trusted EPERM",
        "604-1003-0 mode EPERM",
        "d1777-1003-0-0 move mine EPERM",
        "d1777-1000-0-0 unlink moved ok",
        "d730-1003-2-1000 create ok",
        "d700-1003-0-1000 list EACCES",
    ];
    has_lines(&told, &lines);
}

/// Access lists: which are taken, how they are kept, whom they allow what, what new files inherit.
const LISTS: &str = r#"
ANY = 0xffffffff
ME, USER, OUR, GROUP, MASK, OTHERS = 1, 2, 4, 8, 16, 32
def encoded(*entries):
    return struct.pack('<I', 2) + b''.join(struct.pack('<HHI', *entry) for entry in entries)
LISTS = dict(
    minimal=encoded((ME, 6, ANY), (OUR, 4, ANY), (OTHERS, 4, ANY)),
    named=encoded((ME, 6, ANY), (USER, 4, 1003), (OUR, 0, ANY), (MASK, 7, ANY), (OTHERS, 0, ANY)),
    masked=encoded((ME, 6, ANY), (USER, 6, 1003), (OUR, 6, ANY), (MASK, 4, ANY), (OTHERS, 0, ANY)),
    barred=encoded((ME, 6, ANY), (USER, 0, 1003), (OUR, 6, ANY), (MASK, 6, ANY), (OTHERS, 6, ANY)),
    groups=encoded((ME, 6, ANY), (OUR, 0, ANY), (GROUP, 2, 7), (GROUP, 4, 1002), (MASK, 6, ANY),
                   (OTHERS, 0, ANY)),
    empty=b'', version=struct.pack('<I', 3), bare=encoded(), unmasked=encoded(
        (ME, 6, ANY), (USER, 4, 1003), (OUR, 0, ANY), (OTHERS, 0, ANY)),
    twice=encoded((ME, 6, ANY), (ME, 6, ANY), (OUR, 0, ANY), (OTHERS, 0, ANY)),
    unsorted=encoded((OTHERS, 0, ANY), (OUR, 0, ANY), (ME, 6, ANY)),
    unknown=encoded((ME, 6, ANY), (OUR, 0, ANY), (64, 0, ANY), (OTHERS, 0, ANY)),
    bits=encoded((ME, 255, ANY), (OUR, 0, ANY), (OTHERS, 0, ANY)),
    cut=encoded((ME, 6, ANY), (OUR, 0, ANY), (OTHERS, 0, ANY))[:-3],
    many=encoded((ME, 6, ANY), *((USER, 4, uid) for uid in range(2000, 2100)), (OUR, 0, ANY),
                 (MASK, 7, ANY), (OTHERS, 0, ANY)),
)
ACCESS, DEFAULT = 'system.posix_acl_access', 'system.posix_acl_default'
USERS = (0, ()), (1000, ()), (1003, ()), (1004, ()), (1005, (7,)), (1005, (7, 1002)), (1003, (7,))
def shown(name):
    def get(attribute):
        try:
            return os.getxattr(name, attribute).hex()
        except OSError as error:
            return errno.errorcode[error.errno]
    found = os.stat(name)
    return oct(found.st_mode), found.st_uid, found.st_gid, get(ACCESS), get(DEFAULT)
def opened(name, flags):
    os.close(os.open(name, flags))
os.chmod('.', 0o777)
for kind in LISTS:
    name = 'f-' + kind
    opened(name, os.O_CREAT)
    os.chown(name, 1000, 1004)
    os.chmod(name, 0o666)
    as_user(1003, lambda: tell(name, 'by another', outcome(os.setxattr, name, ACCESS, LISTS[kind])))
    for attribute in ACCESS, DEFAULT:
        tell(name, attribute, outcome(os.setxattr, name, attribute, LISTS[kind]), shown(name))
    def try_all(tag):
        for uid, groups in USERS:
            def work():
                for flags in os.O_RDONLY, os.O_WRONLY, os.O_RDWR:
                    tell(tag, name, uid, groups, flags, outcome(opened, name, flags))
            as_user(uid, work, groups)
    try_all('set')
    as_user(1000, lambda: tell(name, 'chmod', outcome(os.chmod, name, 0o2640), shown(name)))
    try_all('changed')
    as_user(1003, lambda: tell(name, 'removed by another', outcome(os.removexattr, name, ACCESS)))
    as_user(1000, lambda: tell(name, 'removed', outcome(os.removexattr, name, ACCESS), shown(name)))
    try_all('removed')
    dir = 'd-' + kind
    os.mkdir(dir)
    os.chmod(dir, 0o2777)
    tell(dir, outcome(os.setxattr, dir, DEFAULT, LISTS[kind]), shown(dir))
    for umask in 0, 0o027, 0o777:
        def make():
            os.umask(umask)
            inside = '%s/%o' % (dir, umask)
            opened(inside + 'f', os.O_CREAT)
            os.mkdir(inside + 'd', 0o2750)
            os.mknod(inside + 'p', stat.S_IFIFO | 0o640)
            os.symlink('x', inside + 'l')
            for kind in 'fdp':
                tell(inside + kind, shown(inside + kind))
        as_user(1003, make)
"#;

#[test]
fn access_lists_are_taken_and_obeyed_the_same() {
    let Some(told) = told_by_both(LISTS, "64M", &[], "") else { return };
    let lines = [
        "f-named by another EPERM",
        "set f-named 1003 () 0 ok",
        "set f-named 1003 () 1 EACCES",
        "set f-barred 1003 (7,) 0 EACCES",
        "set f-groups 1005 (7, 1002) 2 EACCES",
        "f-unmasked system.posix_acl_access EINVAL",
    ];
    has_lines(&told, &lines);
}

/// Before a program: a process of root gives capabilities up, by their numbers.
const LOSE_CAPABILITIES: &str = r#"
def lose_capabilities(*numbers):
    header = ctypes.create_string_buffer(struct.pack('<Ii', 0x20080522, 0), 8)
    data = ctypes.create_string_buffer(24)
    assert libc.capget(header, data) == 0
    sets = list(struct.unpack('<6I', data.raw))
    for number in numbers:
        sets[3 * (number // 32)] &= ~(1 << number % 32)
    assert libc.capset(header, struct.pack('<6I', *sets)) == 0
"#;

/// Which changes of a file by whom take its set-user-ID, its set-group-ID and its capabilities.
const PRIVILEGES: &str = r#"
CAPABILITY = struct.pack('<5I', 0x02000001, 1 << 10, 0, 0, 0)
CALLERS = ('0', 0, (), ()), ('1000', 1000, (1002,), ()), ('1003', 1003, (), ()), \
    ('0 without FSETID', 0, (), (4,))
def with_file(flags, work):
    def call(name):
        fd = os.open(name, flags)
        try:
            work(fd)
        finally:
            os.close(fd)
    return call
def allocate(mode):
    def work(fd):
        if libc.fallocate(fd, mode, 0, 4096) != 0:
            raise OSError(ctypes.get_errno(), '')
    return work
def store(fd):
    with mmap.mmap(fd, 4096) as memory:
        memory[5] = 7
        memory.flush()
def copy(fd):
    source = os.open('source', os.O_RDONLY)
    os.copy_file_range(source, fd, 100)
    os.close(source)
CALLS = {
    'write': with_file(os.O_WRONLY, lambda fd: os.write(fd, b'x')),
    'nothing': with_file(os.O_WRONLY, lambda fd: os.write(fd, b'')),
    'append': with_file(os.O_WRONLY | os.O_APPEND, lambda fd: os.write(fd, b'x')),
    'store': with_file(os.O_RDWR, store), 'copy': with_file(os.O_WRONLY, copy),
    'cut': lambda name: os.truncate(name, 100), 'lengthen': lambda name: os.truncate(name, 9000),
    'opened and cut': with_file(os.O_WRONLY | os.O_TRUNC, lambda fd: None),
    'allocate': with_file(os.O_WRONLY, allocate(0)), 'punch': with_file(os.O_WRONLY, allocate(3)),
    'zero': with_file(os.O_WRONLY, allocate(0x10)),
    'now': os.utime, 'times': lambda name: os.utime(name, (5, 5)),
    'attribute': lambda name: os.setxattr(name, 'user.b', b'1'),
    'same owner': lambda name: os.chown(name, 1000, 1002),
    'group': lambda name: os.chown(name, -1, 1000), 'owner': lambda name: os.chown(name, 1003, -1),
    'mode': lambda name: os.chmod(name, 0o6767),
    'capability': lambda name: os.removexattr(name, 'security.capability'),
    'link': lambda name: os.link(name, name + '.l'),
    'read': with_file(os.O_RDONLY, lambda fd: None),
}
# Before, ext4's fallocate takes no privileges; the volume's does.
if not is_linux_since(5, 18):
    del CALLS['allocate'], CALLS['punch'], CALLS['zero']
os.chmod('.', 0o777)
with open('source', 'w') as file:
    file.write('s' * 100)
for mode in 0o6777, 0o6767, 0o4766, 0o2676:
    for who, uid, groups, lost in CALLERS:
        for call in CALLS:
            name = '%o-%s-%s' % (mode, who, call)
            with open(name, 'wb') as file:
                file.write(b'x' * 5000)
            os.chown(name, 1000, 1002)
            os.chmod(name, mode)
            os.setxattr(name, 'security.capability', CAPABILITY)
            def work():
                lose_capabilities(*lost)
                told = outcome(CALLS[call], name)
                # What is still in the kernel's memory is written.
                fd = os.open(name, os.O_RDONLY)
                os.fsync(fd)
                tell(name, told)
            as_user(uid, work, groups)
            found = os.stat(name)
            tell(name, oct(found.st_mode), found.st_uid, found.st_gid, os.listxattr(name))
"#;

#[test]
fn privileges_of_a_file_are_taken_by_the_same_changes() {
    for options in ["", "order=sync"] {
        let program = LOSE_CAPABILITIES.to_owned() + PRIVILEGES;
        let Some(told) = told_by_both(&program, "64M", &[], options) else { return };
        let lines = [
            "6777-1003-write 0o100777 1000 1002 []",
            "6777-0-write 0o106777 1000 1002 []",
            "6777-1000-mode 0o106767 1000 1002 ['security.capability']",
            "6777-1003-owner EPERM",
        ];
        has_lines(&told, &lines);
        if is_linux_since(5, 18) {
            has_lines(&told, &["6777-0 without FSETID-allocate 0o100777 1000 1002 []"]);
        }
    }
}

/// The kernel sends no request then (`docs/reference/limits.md`, "Users and permissions").
const CHOWN: &str = r#"
with open('f', 'w'):
    pass
os.chmod('f', 0o6755)
os.chown('f', -1, -1)
tell(oct(os.stat('f').st_mode))
os.chown('f', -1, 0)
tell(oct(os.stat('f').st_mode))
"#;

#[test]
fn chown_of_neither_owner_nor_group_takes_no_bits() {
    let Some(ours) = Ours::new("64M", &[], "") else { return };
    assert_eq!(told(CHOWN, &ours.scratch.dir()), "0o106755\n0o100755\n");
    ours.close();
}

/// The administrator's part: the volume's label and attributes that are trusted.
const ADMINISTRATION: &str = r#"
import fcntl
# Before, ext4 does not know the call; the volume does.
has_label = is_linux_since(5, 17)
os.chmod('.', 0o777)
open('f', 'w').close()
os.chmod('f', 0o666)
for name in 'trusted.t', 'user.u', 'security.s':
    os.setxattr('f', name, b'1')
for who, uid, lost in ('root', 0, ()), ('user', 1000, ()), ('root without ADMIN', 0, (21,)):
    def work():
        lose_capabilities(*lost)
        fd = os.open('.', os.O_RDONLY)
        label = who[-5:].encode().ljust(256, b'\0')
        if has_label:
            tell(who, 'label', outcome(fcntl.ioctl, fd, 0x41009432, label))
        tell(who, 'list', sorted(os.listxattr('f')))
        for name in 'trusted.t', 'security.s':
            tell(who, 'get', name, outcome(os.getxattr, 'f', name))
            tell(who, 'set', name, outcome(os.setxattr, 'f', name, b'2'))
    as_user(uid, work)
"#;

#[test]
fn root_without_capabilities_is_no_administrator() {
    let program = LOSE_CAPABILITIES.to_owned() + ADMINISTRATION;
    let Some(told) = told_by_both(&program, "64M", &[], "") else { return };
    let lines = [
        "root list ['security.s', 'trusted.t', 'user.u']",
        "root without ADMIN list ['security.s', 'user.u']",
    ];
    has_lines(&told, &lines);
    if is_linux_since(5, 17) {
        has_lines(&told, &["root label ok", "root without ADMIN label EPERM"]);
    }
}

/// `mount -o remount,rw` asks the daemon so.
#[test]
fn a_volume_is_made_writable_by_an_administrator_only() {
    let Some(mut scratch) = Scratch::new() else { return };
    if !has_program("setpriv") || !has_program("getfattr") {
        return;
    }
    scratch.mount("ro");
    let ask = |privileges: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(privileges).args(["getfattr", "--only-values"]);
        command.args(["-n", "user.onejournal.make_writable", "."]);
        run(command.current_dir(scratch.dir()))
    };
    for privileges in [
        &["--bounding-set=-sys_admin", "--inh-caps=-all"][..],
        &["--reuid=1000", "--regid=1000", "--clear-groups"],
    ] {
        ask(privileges).refused(1, "Operation not permitted");
        assert_eq!(scratch.stat()["read_only"], true, "{privileges:?}");
    }
    assert_eq!(ask(&["--inh-caps=-all"]).good(), "writable");
    scratch.close_and_check();
}

/// Root of a namespace of users, and holders of a file's handle.
const OUTSIDERS: &str = r#"
def in_namespace(work):
    def inside():
        uid, gid = os.getuid(), os.getgid()
        libc.prctl(4, 1, 0, 0, 0)  # its files in /proc are its own
        if libc.unshare(0x10000000) != 0:
            return tell('no namespace')
        maps = ('uid_map', '0 %d 1' % uid), ('gid_map', '0 %d 1' % gid)
        for file, text in ('setgroups', 'deny'), *maps:
            with open('/proc/self/' + file, 'w') as opened:
                opened.write(text)
        tell('namespace of', uid, 'as', os.getuid())
        work()
    return inside
def handle_of(name):
    handle = ctypes.create_string_buffer(struct.pack('<I', 128), 136)
    mount = ctypes.c_int()
    if libc.name_to_handle_at(-100, name.encode(), handle, ctypes.byref(mount), 0) != 0:
        raise OSError(ctypes.get_errno(), '')
    return handle.raw[:8 + struct.unpack_from('<I', handle.raw)[0]]
def open_handle(handle, flags=os.O_RDONLY):
    fd = libc.open_by_handle_at(top, handle, flags)
    if fd < 0:
        raise OSError(ctypes.get_errno(), '')
    os.close(fd)
def opened(name, flags):
    os.close(os.open(name, flags))
os.chmod('.', 0o1777)
top = os.open('.', os.O_RDONLY | os.O_DIRECTORY)
for name, uid in ('root', 0), ('own', 1000), ('other', 1003):
    with open(name, 'w') as file:
        file.write(name)
    os.setxattr(name, 'user.a', b'1')
    os.chmod(name, 0o600)
    os.chown(name, uid, uid)
os.mkdir('closed', 0o700)
with open('closed/inside', 'w') as file:
    file.write('inside')
os.chmod('closed/inside', 0o666)
handles = dict((name, handle_of(name)) for name in ('root', 'own', 'closed', 'closed/inside'))
CALLS = {
    'read': lambda name: opened(name, os.O_RDONLY), 'write': lambda name: opened(name, os.O_WRONLY),
    'mode': lambda name: os.chmod(name, 0o4666), 'owner': lambda name: os.chown(name, 0, 0),
    'times': lambda name: os.utime(name, (1, 1)), 'get': lambda name: os.getxattr(name, 'user.a'),
    'trusted': lambda name: os.setxattr(name, 'trusted.a', b'1'),
    'security': lambda name: os.setxattr(name, 'security.a', b'1'),
    'capability': lambda name: os.setxattr(
        name, 'security.capability', struct.pack('<5I', 0x02000001, 1 << 10, 0, 0, 0)),
    'unlink': os.unlink,
}
def try_all():
    for name in 'root', 'other', 'closed/inside', 'own':
        for call in CALLS:
            tell('inside', name, call, outcome(CALLS[call], name))
    tell('inside', 'device', outcome(os.mknod, 'device', stat.S_IFCHR | 0o666, os.makedev(1, 3)))
    tell('inside', 'enter', outcome(os.chdir, 'closed'))
    for name in handles:
        tell('inside', 'handle', name, outcome(open_handle, handles[name]))
def try_handles(uid):
    for name in handles:
        for flags in os.O_RDONLY, os.O_RDWR, os.O_PATH:
            tell('handle', uid, name, flags, outcome(open_handle, handles[name], flags))
        forged = handles[name][:-1] + bytes([handles[name][-1] ^ 0x55])
        tell('forged', uid, name, outcome(open_handle, forged))
        tell('short', uid, name, outcome(open_handle, struct.pack('<I', 4) + handles[name][4:12]))
for uid in 0, 1000, 1003:
    as_user(uid, lambda: try_handles(uid))
as_user(1000, in_namespace(try_all))
for name in sorted(os.listdir('.')):
    found = os.stat(name)
    tell(name, oct(found.st_mode), found.st_uid, found.st_gid, os.listxattr(name))
os.unlink('root')
tell('deleted', outcome(open_handle, handles['root']))
opened('root', os.O_CREAT)
tell('made again', outcome(open_handle, handles['root']))
"#;

#[test]
fn handles_and_namespaces_of_users_open_nothing_more() {
    let Some(told) = told_by_both(OUTSIDERS, "64M", &[], "") else { return };
    let lines = [
        "handle 0 closed/inside 0 ok",
        "handle 1000 closed/inside 0 EPERM",
        "handle 1000 own 0 EPERM",
        "forged 0 own ESTALE",
        "deleted ESTALE",
        "made again ESTALE",
    ];
    has_lines(&told, &lines);
    if told.lines().any(|line| line == "no namespace") {
        return skip(Need::UserNamespaces, "needs namespaces of users");
    }
    let lines = [
        "namespace of 1000 as 0",
        "inside root read EACCES",
        "inside root owner EPERM",
        "inside other mode EPERM",
        "inside own trusted EPERM",
        "inside device EPERM",
        "inside handle closed/inside EPERM",
    ];
    has_lines(&told, &lines);
}
