//! What container storage needs: files without a name, whiteouts, and the upper directory of an
//! overlay on them. Each program also runs on the kernel's ext4 and must be told the same there.

use crate::support;

use support::beside::{Ours, told, told_by_both};
use support::has_unnamed_files;

const UNNAMED: &str = r#"
os.chmod('.', 0o777)
os.mkdir('dir'); os.chmod('dir', 0o2777); os.chown('dir', 0, 77)
def work():
    fd = os.open('dir', os.O_TMPFILE | os.O_RDWR, 0o640)
    os.write(fd, b'content')
    s = os.fstat(fd)
    tell('unnamed', s.st_nlink, oct(s.st_mode), s.st_uid, s.st_gid, s.st_size, os.listdir('dir'))
    tell('read', os.pread(fd, 100, 0))
    name_it(fd, 'dir/named')
    tell('named', os.fstat(fd).st_nlink, open('dir/named').read(), os.listdir('dir'))
    tell('taken', outcome(name_it, fd, 'dir/named'))
    os.unlink('dir/named')
    tell('again', outcome(name_it, fd, 'dir/again'), os.fstat(fd).st_nlink)
    once = os.open('dir', os.O_TMPFILE | os.O_RDWR | os.O_EXCL, 0o600)
    tell('exclusive', outcome(name_it, once, 'dir/once'))
    unlinked = os.open('dir/unlinked', os.O_RDWR | os.O_CREAT, 0o600)
    os.unlink('dir/unlinked')
    tell('unlinked', outcome(name_it, unlinked, 'dir/back'))
    tell('read only', outcome(os.open, 'dir', os.O_TMPFILE | os.O_RDONLY, 0o600))
    tell('no directory', outcome(os.open, 'dir/again', os.O_TMPFILE | os.O_RDWR, 0o600))
as_user(1000, work)
os.mkdir('closed', 0o755)
as_user(1000, lambda: tell('closed', outcome(os.open, 'closed', os.O_TMPFILE | os.O_RDWR, 0o600)))
for n in range(50):
    fd = os.open('dir', os.O_TMPFILE | os.O_RDWR, 0o640)
    os.write(fd, b'x' * 100000)
    os.close(fd)
tell(sorted(os.listdir('dir')))
"#;

#[test]
fn files_without_a_name() {
    if !has_unnamed_files() {
        return;
    }
    for options in ["", "atomic_writes", "order=sync"] {
        let Some(told) = told_by_both(UNNAMED, "64M", &[], options) else { return };
        assert!(told.contains("again ENOENT"), "{told}");
        assert!(told.contains("exclusive ENOENT"), "{told}");
    }
}

/// After a crash such a file is gone, and one that was named and synced is there.
#[test]
fn files_without_a_name_are_freed_after_a_crash() {
    let Some(mut ours) = Ours::new("64M", &[], "").filter(|_| has_unnamed_files()) else { return };
    let program = r#"
fds = [os.open('.', os.O_TMPFILE | os.O_RDWR, 0o600) for n in range(20)]
for fd in fds:
    os.write(fd, b'x' * 50000)
name_it(fds[3], 'named')
os.fsync(fds[3])
tell(os.statvfs('.').f_ffree)
sys.stdout.flush()
pid = int(os.getxattr('.', 'user.onejournal.pid'))
os.kill(pid, 9)
"#;
    let during: u64 = told(program, &ours.scratch.dir()).trim().parse().unwrap();
    ours.scratch.kill();
    ours.scratch.mount("");
    let program = "tell(os.statvfs('.').f_ffree, len(open('named').read()))";
    let after = told(program, &ours.scratch.dir());
    assert_eq!(after, format!("{} 50000\n", during + 19));
    ours.close();
}

const WHITEOUTS: &str = r#"
libc.renameat2.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
def rename(a, b, flags):
    if libc.renameat2(-100, a.encode(), -100, b.encode(), flags) != 0:
        raise OSError(ctypes.get_errno(), '')
def look(*names):
    for name in names:
        try:
            s = os.lstat(name)
            tell(' ', name, oct(s.st_mode), s.st_rdev, s.st_nlink, s.st_uid)
        except OSError as error:
            tell(' ', name, errno.errorcode[error.errno])
os.mkdir('a'); os.mkdir('b'); os.mkdir('a/dir')
for name in 'one', 'two', 'three':
    open('a/' + name, 'w').write(name)
open('b/old', 'w').write('old')
for a, b, flags in [('a/one', 'b/one', 4), ('a/two', 'b/old', 4), ('a/three', 'b/old', 5), ('a/three', 'b/new', 5),
                    ('a/dir', 'b/dir', 4), ('b/new', 'b/newer', 6), ('b/none', 'b/x', 4), ('b/new', 'b/in', 4)]:
    tell(a, b, flags, outcome(rename, a, b, flags))
    look(a, b, 'a', 'b')
os.rename('b/in', 'a/one')
look('a/one')
tell(sorted(os.listdir('a')), sorted(os.listdir('b')))
tell([entry.name for entry in os.scandir('a') if entry.is_file()])
"#;

#[test]
fn renames_leave_whiteouts() {
    let Some(told) = told_by_both(WHITEOUTS, "64M", &[], "") else { return };
    assert!(told.contains("a/one b/one 4 ok\n  a/one 0o20000 0 1 0\n"), "{told}");
}

const OVERLAY: &str = r#"
import subprocess
os.chmod('.', 0o755)
for name in 'low', 'up', 'work', 'merged', 'low/dir', 'low/gone', 'low/dir/below':
    os.mkdir(name)
for name in 'file', 'removed', 'dir/kept', 'dir/removed', 'gone/f', 'renamed', 'linked', 'dir/below/deep':
    open('low/' + name, 'w').write('low ' + name)
def mount():
    at = lambda name: os.path.join(os.getcwd(), name)
    options = 'lowerdir=%s,upperdir=%s,workdir=%s,OPTIONS' % (at('low'), at('up'), at('work'))
    done = subprocess.run(['mount', '-t', 'overlay', 'overlay', '-o', options, at('merged')])
    assert done.returncode == 0
def unmount(*how):
    assert subprocess.run(['umount', *how, os.path.join(os.getcwd(), 'merged')]).returncode == 0
def tree(top):
    for path, dirs, files in sorted(os.walk(top)):
        dirs.sort()
        for name in sorted(dirs + files):
            full = os.path.join(path, name)
            s = os.lstat(full)
            content = open(full).read() if stat.S_ISREG(s.st_mode) else ''
            names = [n for n in sorted(os.listxattr(full, follow_symlinks=False))
                     if n in ('trusted.overlay.opaque', 'trusted.overlay.redirect', 'user.mine')]
            values = [(n, os.getxattr(full, n, follow_symlinks=False)) for n in names]
            tell(' ', full, oct(s.st_mode), s.st_rdev, s.st_nlink if not dirs else '', content, values)
mount()
try:
    os.chdir('merged')
    open('file', 'a').write(' and more')
    os.unlink('removed'); os.unlink('dir/removed')
    os.unlink('gone/f'); os.rmdir('gone'); os.mkdir('gone'); open('gone/new', 'w').write('new')
    os.rename('renamed', 'dir/moved')
    tell('rename of a directory', outcome(os.rename, 'dir/below', 'below'))
    os.link('linked', 'another'); open('another', 'a').write(' twice')
    os.symlink('file', 'symbolic'); os.mkfifo('fifo'); os.chmod('dir/kept', 0o604)
    os.setxattr('dir/kept', 'user.mine', b'value')
    def make_unnamed():
        fd = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o644)
        os.write(fd, b'unnamed')
        name_it(fd, 'was unnamed')
        os.close(fd)
    tell('a file without a name', outcome(make_unnamed))
    for n in range(200):
        open('many%d' % n, 'w').write('x')
    for n in range(200):
        os.unlink('many%d' % n)
    os.chdir('..')
    tree('merged')
    unmount(); mount()
    tell('again')
    tree('merged')
except BaseException:
    os.chdir(d)
    unmount('-l')
    raise
unmount()
tree('up')
"#;

#[test]
fn an_overlay_has_its_upper_directory_on_the_volume() {
    for options in ["redirect_dir=off,metacopy=off", "redirect_dir=on,metacopy=off"] {
        let program = OVERLAY.replace("OPTIONS", options);
        let Some(told) = told_by_both(&program, "64M", &[], "") else { return };
        assert!(told.contains("up/removed 0o20000 0"), "no whiteout: {told}");
        assert!(told.contains("('trusted.overlay.opaque', b'y')"), "{told}");
    }
}
