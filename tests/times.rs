//! Times of files. Programs such as `make` compare them: a file that changes later has no earlier
//! time, whether the volume or the kernel gave it, also on another file system. And a file keeps
//! the time that programs have seen.

use crate::support;

use support::{Peer, Scratch, is_linux_since, text};

/// For a peer: `r` has the changes after which a time was earlier than that of the change before,
/// of `COUNT` changes.
const CHANGE: &str = "
import random
random.seed(COUNT)
number = 0
def new(dir='.'):
    global number
    number += 1
    return '%s/f%d' % (dir, number)
def made(path): os.close(os.open(path, os.O_CREAT | os.O_WRONLY)); return path
def mtime(path): return os.lstat(path).st_mtime_ns
def ctime(path): return os.lstat(path).st_ctime_ns
os.mkdir('d')
files = [open(new(), 'wb', buffering=0) for _ in range(40)]
names = {file: file.name for file in files}
def any_file():
    file = random.choice(files)
    return file, names[file]

def make(): return mtime(made(new()))
def make_in_directory(): made(new('d')); return mtime('d')
def make_directory(): path = new(); os.mkdir(path); return mtime(path)
def make_link(): path = new(); os.symlink('to', path); return mtime(path)
def make_pipe(): path = new(); os.mkfifo(path); return mtime(path)
def write(): file, path = any_file(); file.write(b'w' * 100); return mtime(path)
def write_synced(): file, path = any_file(); file.write(b's'); os.fsync(file); return mtime(path)
def truncate():
    file, path = any_file()
    os.ftruncate(file.fileno(), number)
    return mtime(path)
def empty():
    path = any_file()[1]
    os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))
    return ctime(path)
def allocate():
    file, path = any_file()
    os.posix_fallocate(file.fileno(), 0, number)
    return ctime(path)
def change_mode(): path = any_file()[1]; os.chmod(path, 0o600 + number % 2); return ctime(path)
def set_time(): path = any_file()[1]; os.utime(path); return mtime(path)
def set_time_of_directory(): os.utime('d'); return mtime('d')
def rename():
    file, path = any_file()
    names[file] = new()
    os.rename(path, names[file])
    return ctime(names[file])
def link(): path = any_file()[1]; os.link(path, new()); return ctime(path)
def set_attribute():
    path = any_file()[1]
    os.setxattr(path, 'user.a', b'%d' % number)
    return ctime(path)
# On another file system: twice in a step of the clock, with a look in between.
def elsewhere():
    path = made('ELSEWHERE/f')
    with open(path, 'ab', buffering=0) as file:
        file.write(b'1'); mtime(path); file.write(b'2')
    return mtime(path)
def make_elsewhere(): return mtime(made(new('ELSEWHERE')))

kinds = [make, make_in_directory, make_directory, make_link, make_pipe, write, write_synced,
    truncate, empty, allocate, change_mode, set_time, set_time_of_directory, rename, link,
    set_attribute, elsewhere, make_elsewhere]
before, r = ('nothing', 0), []
for _ in range(COUNT):
    kind = random.choice(kinds)
    now = (kind.__name__, kind())
    if now[1] < before[1]:
        r.append('%s after %s: %d ns' % (now[0], before[0], before[1] - now[1]))
    before = now
";

/// The times of all files, as text.
const COLLECT: &str = "
r = ''
for dir, _, found in sorted(os.walk('.')):
    for name in ['.'] + sorted(found):
        path = os.path.join(dir, name)
        r += '%s %d %d\\n' % (path, mtime(path), ctime(path))
";

fn changes_have_times_in_their_order(order: &str) {
    let Some(mut scratch) = Scratch::mounted(&format!("order={order}")) else { return };
    let Some(mut peer) = Peer::new(&scratch.dir()) else { return };
    let elsewhere = support::tmpfs_dir();
    let change = CHANGE.replace("COUNT", "1500").replace("ELSEWHERE", text(elsewhere.path()));
    let earlier = peer.good(&change);
    let earlier: Vec<String> = serde_json::from_value(earlier).expect("lines");
    // There the kernel gives no new times to a file that an allocation does not lengthen.
    let is_known =
        |line: &String| order == "sync" && !is_linux_since(6, 1) && line.starts_with("allocate ");
    let unknown: Vec<&String> = earlier.iter().filter(|line| !is_known(line)).collect();
    assert!(unknown.is_empty(), "order={order}: {unknown:?}");
    peer.good("for file in files: file.close()");
    let seen = peer.good(COLLECT);
    drop(peer);
    scratch.remount("");
    let mut peer = Peer::new(&scratch.dir()).expect("there was one before");
    peer.good("mtime = lambda path: os.lstat(path).st_mtime_ns");
    peer.good("ctime = lambda path: os.lstat(path).st_ctime_ns");
    let found = peer.good(COLLECT);
    let lines = |times: &serde_json::Value| -> Vec<String> {
        times.as_str().expect("text").lines().map(Into::into).collect()
    };
    let (seen, found) = (lines(&seen), lines(&found));
    let changed: Vec<_> = seen.iter().zip(&found).filter(|(seen, found)| seen != found).collect();
    assert!(changed.is_empty() && seen.len() == found.len(), "order={order}: {changed:?}");
    drop(peer);
    scratch.close_and_check();
}

#[test]
fn regression_a_later_change_has_no_earlier_time_with_order_sync() {
    changes_have_times_in_their_order("sync");
}

#[test]
fn regression_a_later_change_has_no_earlier_time_with_order_history() {
    changes_have_times_in_their_order("history");
}
