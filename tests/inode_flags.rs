//! Immutable and append-only files, case by case beside the kernel's ext4; who may set these flags;
//! and what was written before they were set.

use crate::support;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use onejournal_testing::{Need, has_namespaces, has_program, skip};
use rustix::fs::OFlags;
use rustix::io::Errno;
use serde_json::Value;
use support::{
    ONEJOURNAL, Peer, Scratch, TempMount, has_unnamed_files, onejournal, run, spawn, system, text,
};

/// For a peer: files and directories with flags, and descriptors from before.
const PREPARE: &str = "
import subprocess
def chattr(flags, *names): subprocess.run(['chattr', flags, *names], check=True)
for name in ['imm', 'app', 'plain']:
    with open(name, 'wb') as file: file.write(b'x' * 5000)
for name in ['immdir', 'appdir']:
    os.mkdir(name); open(name + '/f', 'w').close()
IMM, APP = os.open('imm', os.O_RDWR), os.open('app', os.O_RDWR)
IMMR, APPR = os.open('imm', os.O_RDONLY), os.open('app', os.O_RDONLY)
APPEND = os.open('app', os.O_WRONLY | os.O_APPEND)
chattr('+i', 'imm', 'immdir'); chattr('+a', 'app', 'appdir')
PUNCH, KEEP = 3, 1
libc = ctypes.CDLL(None, use_errno=True)
def fallocate(fd, mode, offset, length):
    if libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)):
        raise OSError(ctypes.get_errno(), 'fallocate')
";

/// Each is tried on its own; `None` for success or the errno.
const CASES: &[&str] = &[
    "os.close(os.open('imm', os.O_RDONLY))",
    "os.close(os.open('imm', os.O_WRONLY))",
    "os.close(os.open('imm', os.O_RDWR))",
    "os.close(os.open('imm', os.O_WRONLY | os.O_APPEND))",
    "os.close(os.open('imm', os.O_WRONLY | os.O_TRUNC))",
    "os.close(os.open('imm', os.O_RDWR | os.O_CREAT))",
    "os.close(os.open('app', os.O_RDONLY))",
    "os.close(os.open('app', os.O_WRONLY))",
    "os.close(os.open('app', os.O_RDWR))",
    "os.close(os.open('app', os.O_WRONLY | os.O_APPEND))",
    "os.close(os.open('app', os.O_RDWR | os.O_APPEND))",
    "os.close(os.open('app', os.O_WRONLY | os.O_APPEND | os.O_TRUNC))",
    "os.close(os.open('app', os.O_RDONLY | os.O_TRUNC))",
    "if not os.access('imm', os.W_OK): raise PermissionError(1, 'access')",
    "if not os.access('app', os.W_OK): raise PermissionError(1, 'access')",
    "if not os.access('imm', os.R_OK): raise PermissionError(1, 'access')",
    "if not os.access('immdir', os.W_OK): raise PermissionError(1, 'access')",
    "os.pwrite(IMM, b'y', 0)",
    "os.pwrite(IMM, b'y', 5000)",
    "os.write(APPEND, b'y')",
    "os.pwrite(APPEND, b'y', 0)",
    "os.ftruncate(IMM, 10)",
    "os.truncate('imm', 10)",
    "os.truncate('app', 10)",
    "fallocate(IMM, 0, 0, 10000)",
    "fallocate(IMM, PUNCH, 0, 4096)",
    "fallocate(APP, PUNCH, 0, 4096)",
    "fallocate(APP, KEEP, 0, 20000)",
    "os.chmod('imm', 0o600)",
    "os.chmod('app', 0o600)",
    "os.chown('imm', 1, 1)",
    "os.chown('app', 1, 1)",
    "os.utime('imm')",
    "os.utime('imm', (1, 1))",
    "os.utime('app')",
    "os.utime('app', (1, 1))",
    "os.setxattr('imm', 'user.a', b'1')",
    "os.setxattr('app', 'user.a', b'1')",
    "os.link('imm', 'imm2')",
    "os.link('app', 'app2')",
    "os.rename('imm', 'imm2')",
    "os.rename('app', 'app2')",
    "os.unlink('imm')",
    "os.unlink('app')",
    "os.rename('plain', 'imm')",
    "os.close(os.open('immdir/new', os.O_CREAT | os.O_WRONLY))",
    "os.mkdir('immdir/d')",
    "os.unlink('immdir/f')",
    "os.rename('immdir/f', 'out')",
    "os.rename('plain', 'immdir/in')",
    "open('immdir/f', 'w').write('x')",
    "os.close(os.open('appdir/new', os.O_CREAT | os.O_WRONLY))",
    "os.mkdir('appdir/d')",
    "os.unlink('appdir/f')",
    "os.rename('appdir/f', 'out')",
    "os.rmdir('immdir')",
    "os.rmdir('appdir')",
];

/// What the kernel decides alone where it does not ask about opening: it does not know the flags.
const NOT_REFUSED_BY_OPEN: &[&str] = &[
    "os.close(os.open('imm', os.O_WRONLY))",
    "os.close(os.open('imm', os.O_RDWR))",
    "os.close(os.open('imm', os.O_WRONLY | os.O_APPEND))",
    "os.close(os.open('imm', os.O_RDWR | os.O_CREAT))",
    "os.close(os.open('app', os.O_WRONLY))",
    "os.close(os.open('app', os.O_RDWR))",
];
/// And on every mount.
const NEVER_REFUSED: &[&str] = &[
    "if not os.access('imm', os.W_OK): raise PermissionError(1, 'access')",
    "if not os.access('immdir', os.W_OK): raise PermissionError(1, 'access')",
];

/// How each case ends in `dir`, as root or (of files that are everybody's) as another user.
fn results(dir: &Path) -> Option<Vec<(&'static str, Value)>> {
    let mut peer = Peer::new(dir)?;
    peer.good(PREPARE);
    let attempt = |case: &&'static str| {
        let program = format!(
            "
try:
    {case}
    r = None
except OSError as error: r = error.errno
"
        );
        (*case, peer.good(&program))
    };
    let found = CASES.iter().map(attempt).collect();
    peer.good("chattr('-i', 'imm', 'immdir'); chattr('-a', 'app', 'appdir')");
    Some(found)
}

#[test]
fn flags_forbid_what_they_forbid_on_the_kernels_ext4() {
    let Some(reference) = Scratch::empty() else { return };
    if !has_program("chattr") {
        return;
    }
    let image = reference.image();
    system("mke2fs", ["-q", "-t", "ext4", "-F", text(&image), "64M"]).good();
    let mount = TempMount::new(&["-o", "loop", text(&image)], &reference.root().join("ext4"));
    let Some(expected) = results(&mount.dir) else { return };
    drop(mount);
    for (options, also) in [("order=history", NOT_REFUSED_BY_OPEN), ("atomic_writes", &[])] {
        let Some(scratch) = Scratch::mounted(options) else { return };
        let found = results(&scratch.dir()).expect("there is Python");
        let differing = expected.iter().zip(&found).filter(|(wanted, found)| wanted != found);
        let differing: BTreeSet<&str> = differing.map(|(wanted, _)| wanted.0).collect();
        let known: BTreeSet<&str> = NEVER_REFUSED.iter().chain(also).copied().collect();
        assert_eq!(differing, known, "options {options:?}: {expected:?}, {found:?}");
        scratch.close_and_check();
    }
}

/// `chattr +d`, which any kernel hands to the volume.
const SET_FLAG: &str = "
import fcntl, os, struct, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
flags, = struct.unpack('l', fcntl.ioctl(fd, 0x80086601, bytes(8)))
fcntl.ioctl(fd, 0x40086602, struct.pack('l', flags | 0x40))
";

/// Runs a program as user 1000, with these capabilities; its exit code.
fn as_user(capabilities: &str, program: &[&str]) -> Option<i32> {
    let set = |kind: &str| match capabilities {
        "" => format!("--{kind}-caps=-all"),
        some => format!("--{kind}-caps=-all,{some}"),
    };
    let mut command = Command::new("setpriv");
    command.args(["--reuid=1000", "--regid=1000", "--clear-groups"]);
    command.args([set("inh"), set("ambient")]).args(program);
    run(&mut command).code
}

#[test]
fn a_capability_allows_by_ioctl_what_it_is_for() {
    if !has_program("setpriv") || !has_program("chattr") {
        return;
    }
    let Some(scratch) = Scratch::mounted("") else { return };
    let path = scratch.path("f");
    fs::write(&path, "x").unwrap();
    let file = text(&path);
    let failed = Some(1);
    // Another user's file: attributes are the owner's to change.
    assert_eq!(as_user("", &["chattr", "+d", file]), failed);
    assert_eq!(as_user("+linux_immutable", &["chattr", "+d", file]), failed);
    assert_eq!(as_user("+fowner", &["chattr", "+d", file]), Some(0));
    // One's own file: its owner needs the capability for these two flags only.
    std::os::unix::fs::chown(&path, Some(1000), Some(1000)).unwrap();
    assert_eq!(as_user("", &["chattr", "+A", file]), Some(0));
    for flag in ["i", "a"] {
        let (set, clear) = (format!("+{flag}"), format!("-{flag}"));
        assert_eq!(as_user("+fowner", &["chattr", &set, file]), failed);
        assert_eq!(as_user("+linux_immutable", &["chattr", &set, file]), Some(0));
        assert_eq!(as_user("+fowner", &["chattr", &clear, file]), failed);
        assert_eq!(as_user("+linux_immutable", &["chattr", &clear, file]), Some(0));
    }
    scratch.close_and_check();
}

/// Root of a user namespace has all capabilities there, and none on the volume.
#[test]
fn capabilities_of_another_user_namespace_allow_nothing() {
    if !has_program("setpriv") || !has_namespaces() {
        return;
    }
    let Some(scratch) = Scratch::mounted("") else { return };
    let path = scratch.path("f");
    fs::write(&path, "x").unwrap();
    let python = support::python();
    let program = format!("import os; assert os.getuid() == 0\n{SET_FLAG}");
    let unshare = ["unshare", "--user", "--map-root-user"];
    if as_user("", &[&unshare[..], &["true"]].concat()) != Some(0) {
        return skip(Need::UserNamespaces, "needs namespaces of users");
    }
    let in_namespace = |owner: u32| {
        std::os::unix::fs::chown(&path, Some(owner), None).unwrap();
        let python = [text(Path::new(&python)), "-I", "-c", &program, text(&path)];
        as_user("", &[&unshare[..], &python[..]].concat())
    };
    assert_eq!(in_namespace(1000), Some(0), "the owner's own");
    assert_eq!(in_namespace(0), Some(1), "the owner is another one");
    scratch.close_and_check();
}

/// They were refused when they were written back, and lost.
#[test]
fn regression_what_was_written_before_a_file_became_immutable_is_there() {
    if !has_program("chattr") {
        return;
    }
    for options in ["", "order=sync", "threads=2", "atomic_writes"] {
        let Some(mut scratch) = Scratch::mounted(options) else { return };
        let Some(mut peer) = Peer::new(&scratch.dir()) else { return };
        peer.good(PREPARE);
        peer.good(
            "
import fcntl, struct
chattr('-i', 'imm')
view = mmap.mmap(IMM, 5000)
view[100:105] = b'first'
os.pwrite(IMM, b'second', 4200)
# chattr(1) closes a descriptor of the file before, and that writes pages back.
flags = struct.unpack('l', fcntl.ioctl(IMMR, 0x80086601, bytes(8)))[0]
fcntl.ioctl(IMMR, 0x40086602, struct.pack('l', flags | 0x10))
view.flush()
os.fsync(IMM)
view.close(); os.close(IMM); IMM = -1
",
        );
        let mut expected = vec![b'x'; 5000];
        expected[100..105].copy_from_slice(b"first");
        expected[4200..4206].copy_from_slice(b"second");
        assert_eq!(fs::read(scratch.path("imm")).unwrap(), expected, "{options:?}");
        drop(peer);
        scratch.remount("");
        assert_eq!(fs::read(scratch.path("imm")).unwrap(), expected, "{options:?}");
        scratch.close_and_check();
    }
}

/// Many at a time: the ioctls that wait leave a thread for the requests that they wait for.
#[test]
fn files_become_immutable_side_by_side() {
    if !has_program("chattr") {
        return;
    }
    for options in ["threads=1", "threads=2", "atomic_writes", "order=sync"] {
        let Some(mut scratch) = Scratch::mounted(options) else { return };
        let Some(mut peer) = Peer::new(&scratch.dir()) else { return };
        peer.good(PREPARE);
        // With one thread, and before Linux 6.16, data may come when the file is immutable already.
        let may_miss = options == "threads=1" || !support::is_linux_since(6, 16);
        peer.good(if may_miss { "ALLOWED = {errno.EPERM, errno.EIO}" } else { "ALLOWED = set()" });
        peer.good(
            "
import threading
failed = []
threading.excepthook = lambda args: failed.append(args.exc_value)
def work(name):
    fd = os.open(name, os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 1 << 20)
    view = mmap.mmap(fd, 1 << 20)
    for i in range(20):
        for at in range(0, 1 << 20, 4096): view[at] = i
        flags = struct.unpack('l', fcntl.ioctl(fd, 0x80086601, bytes(8)))[0]
        while True:
            try:
                fcntl.ioctl(fd, 0x40086602, struct.pack('l', flags | 0x10))
                break
            except OSError as error:
                if error.errno != errno.EBUSY: raise
        os.pread(fd, 1 << 20, 0)
        fcntl.ioctl(fd, 0x40086602, struct.pack('l', flags))
    os.close(fd)
threads = [threading.Thread(target=work, args=('t%d' % n,)) for n in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert {getattr(error, 'errno', error) for error in failed} <= ALLOWED, failed
",
        );
        drop(peer);
        scratch.remount("");
        let found = fs::read(scratch.path("t3")).unwrap();
        let is_whole = found.iter().step_by(4096).all(|byte| *byte == 19);
        assert!(is_whole || may_miss, "{options:?}");
        scratch.close_and_check();
    }
}

/// What names no mode is refused, whatever it is set on.
#[test]
fn the_data_mode_of_any_inode_is_a_mode() {
    let Some(scratch) = Scratch::mounted("") else { return };
    fs::write(scratch.path("file"), "x").unwrap();
    fs::create_dir(scratch.path("directory")).unwrap();
    for name in ["file", "directory", "."] {
        let path = scratch.path(name);
        for value in ["", "fast", "ordered ", "ORDERED", "0", "7", "ordered\0"] {
            let flags = rustix::fs::XattrFlags::empty();
            let set = rustix::fs::setxattr(&path, "user.onejournal.data", value.as_bytes(), flags);
            assert_eq!(set, Err(Errno::INVAL), "{name}, {value:?}");
        }
        let mode = onejournal(["get-mode", text(&path)]).good();
        assert!(mode.starts_with("auto\t"), "{name}: {mode}");
    }
    scratch.close_and_check();
}

/// Changes of files with `chattr +S`, and of names in a directory with `+D`, are there when the
/// daemon is killed after them.
#[test]
fn changes_under_chattr_s_and_d_are_durable_when_they_return() {
    if !has_program("chattr") {
        return;
    }
    for options in ["", "threads=1", "data=ordered", "atomic_writes", "order=sync"] {
        let Some(mut scratch) = Scratch::mounted(&format!("commit=300,{options}")) else { return };
        let Some(mut peer) = Peer::new(&scratch.dir()) else { return };
        peer.good(
            "
import subprocess
def chattr(flags, name):
    if subprocess.run(['chattr', flags, name], stderr=subprocess.DEVNULL).returncode:
        raise OSError(errno.EOPNOTSUPP, 'chattr')
for name in 'd', 'e', 'queue': os.mkdir(name)
open('f', 'w').close()
chattr('+D', 'd')
",
        );
        // With order=sync the server does not see the write.
        let sees_writes = options != "order=sync";
        for name in ["f", "queue"] {
            let told = peer.run(&format!("chattr('+S', '{name}')"));
            let refused = Some(Errno::OPNOTSUPP.raw_os_error());
            assert_eq!(told.err(), if sees_writes { None } else { refused }, "{options:?} {name}");
        }
        onejournal(["sync", text(&scratch.dir())]).good();
        peer.good(
            "
fd = os.open('f', os.O_WRONLY)
os.write(fd, b'x' * 300000)
os.pwrite(fd, b'y' * 10, 5000)
os.ftruncate(fd, 200000)
os.setxattr('f', 'user.a', b'1'); os.chmod('f', 0o600)
fd = os.open('queue/mail', os.O_WRONLY | os.O_CREAT)
os.write(fd, b'mail')
os.mkdir('d/made'); os.close(os.open('d/file', os.O_CREAT | os.O_WRONLY))
os.rename('d/file', 'd/renamed')
os.close(os.open('e/lost', os.O_CREAT | os.O_WRONLY))
",
        );
        scratch.kill();
        drop(peer);
        scratch.mount("");
        if sees_writes {
            let mut expected = vec![b'x'; 200_000];
            expected[5000..5010].fill(b'y');
            assert!(fs::read(scratch.path("f")).unwrap() == expected, "{options:?}");
            let permissions = fs::metadata(scratch.path("f")).unwrap().mode() & 0o777;
            let has_it = rustix::fs::getxattr(scratch.path("f"), "user.a", &mut [0; 1]).is_ok();
            assert_eq!((permissions, has_it), (0o600, true), "{options:?}");
            assert_eq!(fs::read(scratch.path("queue/mail")).unwrap(), b"mail", "{options:?}");
        }
        let names = |dir: &str| -> BTreeSet<String> {
            let entries = fs::read_dir(scratch.path(dir)).unwrap();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        };
        assert_eq!(
            names("d"),
            BTreeSet::from(["made", "renamed"].map(String::from)),
            "{options:?}"
        );
        scratch.close_and_check();
    }
}

/// Complaints of `onejournal mount -f -o OPTIONS` about `chattr +S`, while `work` uses the volume.
fn complaints(scratch: &mut Scratch, options: &str, work: impl FnOnce(&Path)) -> Vec<String> {
    let mut command = Command::new(ONEJOURNAL);
    command.args(["mount", "-f", "-o", options]).args([scratch.image(), scratch.dir()]);
    let mut child = spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped())).unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut String::new()).unwrap();
    scratch.adopt();
    work(&scratch.dir());
    scratch.umount();
    let mut told = String::new();
    child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert!(child.wait().unwrap().success(), "{told}");
    told.lines().filter(|line| line.contains("chattr +S")).map(String::from).collect()
}

/// The kernel looks for the file by its name, has it with its directory, or has it made in a
/// directory whose flag it inherits.
#[test]
fn a_file_with_chattr_s_is_told_once_under_order_sync() {
    let Some(mut scratch) = Scratch::mounted("order=history").filter(|_| has_program("chattr"))
    else {
        return;
    };
    fs::create_dir(scratch.path("queue")).unwrap();
    system("chattr", ["+S", text(&scratch.path("queue"))]).good();
    for name in ["queue/a", "queue/b"] {
        fs::write(scratch.path(name), "x").unwrap();
    }
    scratch.umount();
    let write = |path: &Path| fs::write(path, "y").unwrap();
    let looked_for = |dir: &Path| write(&dir.join("queue/a"));
    let listed = |dir: &Path| {
        let found: Vec<_> = fs::read_dir(dir.join("queue")).unwrap().collect();
        found.into_iter().for_each(|entry| write(&entry.unwrap().path()));
    };
    let made = |dir: &Path| write(&dir.join("queue/new"));
    let unnamed = |dir: &Path| {
        if !has_unnamed_files() {
            return made(dir);
        }
        let flag = OFlags::TMPFILE.bits().cast_signed();
        File::options().write(true).custom_flags(flag).open(dir.join("queue")).unwrap();
    };
    let all = |dir: &Path| {
        looked_for(dir);
        listed(dir);
        made(dir);
        unnamed(dir);
    };
    type Way<'a> = (&'a str, &'a dyn Fn(&Path));
    let ways: [Way<'_>; 5] = [
        ("looked for", &looked_for),
        ("made", &made),
        ("listed", &listed),
        ("unnamed", &unnamed),
        ("all", &all),
    ];
    for (way, work) in ways {
        let told = complaints(&mut scratch, "order=sync", work);
        let [line] = told.as_slice() else { panic!("{way}: {told:?}") };
        let promised = "its writes are not durable when they return, as chattr +S asks for";
        assert!(line.contains(promised) && line.contains("order=history"), "{way}: {line}");
    }
    assert_eq!(complaints(&mut scratch, "order=history", all), [""; 0]);
    scratch.check();
}

/// As below the volume of a database, which must not begin anew in the empty directory.
#[test]
fn a_volume_is_mounted_on_an_immutable_directory() {
    let Some(mut scratch) = Scratch::new().filter(|_| has_program("chattr")) else { return };
    let below = scratch.root().join("below.img");
    system("mke2fs", ["-q", "-t", "ext4", "-F", text(&below), "16M"]).good();
    let below = TempMount::new(&["-o", "loop", text(&below)], &scratch.dir());
    let dir = below.dir.join("data");
    fs::create_dir(&dir).unwrap();
    system("chattr", ["+i", text(&dir)]).good();
    let refused = fs::write(dir.join("f"), "lost").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(Errno::PERM.raw_os_error()));
    onejournal(["mount", text(&scratch.image()), text(&dir)]).good();
    fs::write(dir.join("f"), "kept").unwrap();
    onejournal(["umount", text(&dir)]).good();
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0, "it is the directory below again");
    drop(below);
    scratch.mount("");
    assert_eq!(fs::read(scratch.path("f")).unwrap(), b"kept");
    scratch.close_and_check();
}
