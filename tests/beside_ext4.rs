//! The same program on a volume of ours and on the kernel's ext4, made with the same options: what
//! it is told must be the same, line by line.

use crate::support;

use support::beside::{Ours, told, told_by_both};
use support::{system, text};

/// Root, and an ordinary user, use a database while the volume is full for the one and for both.
const FULL: &str = r#"
def space(tag):
    s = os.statvfs('.')
    tell(tag, 'available', s.f_bavail > 0, 'free', s.f_bfree > 0)
def make_database(name):
    c = sqlite3.connect(name)
    c.execute('pragma journal_mode=wal')
    c.execute('create table t(x)')
    c.execute('insert into t values (1)')
    c.commit()
    c.close()
def use_database(name):
    c = sqlite3.connect(name, timeout=1)
    c.execute('insert into t values (1)')
    c.commit()
    c.close()
def extend(name):
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        assert os.write(fd, b'x' * 40000) == 40000
        os.fsync(fd)
    finally:
        os.close(fd)
def try_all(tag, extra=''):
    space(tag)
    users = (0, ()), (1000, ()), (1500, ()), (1600, ()), (1000, (1600,)), (1000, (7,))
    for uid, groups in users:
        as_user(uid, lambda: tell(tag, uid, groups, outcome(extend, 'f-%s-%d-%d' % (tag, uid, len(groups) and groups[0]))), groups)
    as_user(0, lambda: tell(tag, 'database of root', outcome(use_database, 'root.db')))
    as_user(1000, lambda: tell(tag, 'database of a user', outcome(use_database, 'user.db')))
os.chmod('.', 0o777)
make_database('root.db')
as_user(1000, lambda: make_database('user.db'))
fd = os.open('allocated', os.O_RDWR | os.O_CREAT)
os.posix_fallocate(fd, 0, 1 << 20)
try_all('empty')
as_user(1000, lambda: fill('ordinary'))
libc.syncfs(fd)
try_all('ordinary')
fill('root')
libc.syncfs(fd)
try_all('root')
for at in 3, 40, 80, 111, 150, 190, 222, 250:
    tell('scattered', at, outcome(lambda: (os.pwrite(fd, b'y' * 4096, at * 4096), os.fsync(fd))))
def allocate(fd, mode, at):
    if libc.fallocate(fd, mode, at * 4096, 4096) != 0:
        raise OSError(ctypes.get_errno(), '')
for at in range(1, 200, 9):
    tell('punch', at, outcome(allocate, fd, 3, at))
other = os.open('ordinary', os.O_RDWR)
for at in range(1, 900, 2):
    tell('zero', at, outcome(allocate, other, 0x11, at))
for at in range(2001, 2900, 2):
    tell('punch', at, outcome(allocate, other, 3, at))
for at in range(1, 900, 4):
    tell('rewritten', at, outcome(os.pwrite, other, b'z' * 4096, at * 4096))
tell('synced', outcome(os.fsync, other))
"#;

#[test]
fn a_full_volume_is_full_for_the_same_users_and_the_same_calls() {
    for options in ["order=history", "order=history,data=ordered"] {
        let Some(told) = told_by_both(FULL, "64M", &["-m", "5"], options) else { return };
        for line in [
            "ordinary 0 () ok",
            "ordinary 1000 () ENOSPC",
            "ordinary database of root ok",
            "root 0 () ENOSPC",
            "scattered 250 ok",
        ] {
            assert!(told.lines().any(|told| told == line), "no {line:?} in {told}");
        }
    }
}

/// The user and the group that the superblock names may use the reserved blocks, and members of the
/// group.
#[test]
fn reserved_blocks_may_be_those_of_another_user_and_group() {
    let Some(mut ours) = Ours::new("64M", &["-m", "5"], "order=history") else { return };
    ours.scratch.umount();
    for argument in [["-u", "1500"], ["-g", "1600"]] {
        system("tune2fs", [argument[0], argument[1], text(&ours.scratch.image())]).good();
    }
    ours.scratch.mount("order=history");
    let told = told(FULL, &ours.scratch.dir());
    for line in [
        "ordinary 1000 () ENOSPC",
        "ordinary 1500 () ok",
        "ordinary 1600 () ok",
        "ordinary 1000 (1600,) ok",
        "ordinary 1000 (7,) ENOSPC",
    ] {
        assert!(told.lines().any(|told| told == line), "no {line:?} in {told}");
    }
    ours.close();
}

/// Pages that the kernel writes back name no user: they are the owner's of the file.
const WRITTEN_BACK: &str = r#"
os.chmod('.', 0o777)
cached = sys.argv[2] == 'cached'
as_user(1000, lambda: fill('ordinary') if not cached else None)
if cached:
    fd = os.open('ordinary', os.O_WRONLY | os.O_CREAT)
    os.chown('ordinary', 1000, 1000)
    s = os.statvfs('.')
    as_user(1000, lambda: os.posix_fallocate(fd, 0, s.f_bavail * 4096 - (200 << 10)))
def store(name):
    fd = os.open(name, os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 1 << 20)
    memory = mmap.mmap(fd, 1 << 20)
    for at in range(0, 1 << 20, 4096):
        memory[at] = 1
    memory.flush()
def write(name):
    fd = os.open(name, os.O_RDWR | os.O_CREAT)
    os.write(fd, b'x' * (1 << 20))
    os.fsync(fd)
for f in store, write:
    for uid in 1000, 0:
        as_user(uid, lambda: tell(f.__name__, uid, outcome(f, '%s-%d' % (f.__name__, uid))))
"#;

#[test]
fn pages_that_are_written_back_use_the_space_of_the_files_owner() {
    for (options, how) in [("order=history", "direct"), ("order=sync", "cached")] {
        let Some(ours) = Ours::new("64M", &["-m", "10"], options) else { return };
        let program = WRITTEN_BACK.replace("sys.argv[2]", &format!("'{how}'"));
        let told = told(&program, &ours.scratch.dir());
        let wanted = "store 1000 ENOSPC\nstore 0 ok\nwrite 1000 ENOSPC\nwrite 0 ok\n";
        // A short write is told as such, and the rest finds no space.
        assert_eq!(told, wanted, "{options}");
        ours.close();
    }
}

/// Who changes the owner or the group of something takes its set-user-ID and set-group-ID, but not
/// a directory's.
const CHOWN: &str = r#"
os.chmod('.', 0o777)
def make_file(name): os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
def make_device(kind): return lambda name: os.mknod(name, kind | 0o600, os.makedev(1, 3))
kinds = dict(file=make_file, dir=os.mkdir, fifo=os.mkfifo, socket=make_device(stat.S_IFSOCK),
             char=make_device(stat.S_IFCHR), block=make_device(stat.S_IFBLK),
             link=lambda name: os.symlink('target', name))
changes = dict(uid=(1001, -1), gid=(-1, 1002), both=(1001, 1002), same=(1000, 1000))
for kind, make in kinds.items():
    for mode in 0o6777, 0o6666, 0o4755, 0o2755, 0o2644, 0o1777:
        for change, (uid, gid) in changes.items():
            for who in 0, 1000:
                name = '%s-%o-%s-%d' % (kind, mode, change, who)
                make(name)
                os.lchown(name, 1000, 1000)
                if kind != 'link':
                    os.chmod(name, mode)
                def work():
                    told = outcome(os.lchown, name, uid, gid)
                    found = os.lstat(name)
                    tell(name, told, oct(found.st_mode), found.st_uid, found.st_gid)
                as_user(who, work, (1000, 1002))
"#;

#[test]
fn changing_the_owner_takes_the_same_bits_from_the_same_kinds() {
    let Some(told) = told_by_both(CHOWN, "64M", &[], "") else { return };
    for line in ["fifo-6777-uid-0 ok 0o10777 1001 1000", "dir-6777-uid-0 ok 0o46777 1001 1000"] {
        assert!(told.lines().any(|told| told == line), "no {line:?} in {told}");
    }
}
