//! The kernel's cache agrees with the volume: after direct writes of every kind, and after
//! ioctls that change an inode.

use crate::support;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use onejournal_testing::{has_program, has_uring};
use support::{Peer, Scratch, python, run, system, text};

/// Direct writes of a file by one process while others read it through the page cache: a read after
/// a write has returned must find what was written. `HOW` writes; it is one of the functions below.
const WRITER: &str = r#"
import ctypes, mmap, os, struct, sys
path, how, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
LEN = 640 << 10
libc = ctypes.CDLL(None, use_errno=True)
fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644)
memory = mmap.mmap(-1, LEN)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))

def call(number, *arguments):
    result = libc.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result

def sync(offset, length):
    assert os.pwrite(fd, memoryview(memory)[:length], offset) == length

SETUP, GETEVENTS, SUBMIT = {'x86_64': (206, 208, 209), 'aarch64': (0, 4, 2)}[os.uname().machine]
context = ctypes.c_ulong(0)
if how == 'libaio':
    call(SETUP, 8, ctypes.byref(context))

def libaio(offset, length):
    # aio_data, aio_key, aio_rw_flags, aio_lio_opcode, aio_reqprio, aio_fildes, aio_buf, aio_nbytes, aio_offset
    fields = struct.pack('<QIIHhIQQq', 0, 0, 0, 1, 0, fd, address, length, offset)
    block = ctypes.create_string_buffer(fields, 64)
    pointer = ctypes.c_void_p(ctypes.addressof(block))
    assert call(SUBMIT, context, 1, ctypes.byref(pointer)) == 1
    event = ctypes.create_string_buffer(32)
    assert call(GETEVENTS, context, 1, 1, event, None) == 1
    assert struct.unpack_from('<q', event, 16)[0] == length

if how == 'io_uring':
    parameters = ctypes.create_string_buffer(120)
    ring = call(425, 8, parameters)
    words = struct.unpack('<30I', parameters.raw)
    sq, cq = words[10:20], words[20:30]
    entries = mmap.mmap(ring, words[0] * 64, offset=0x10000000)
    queues = mmap.mmap(ring, max(sq[6] + words[0] * 4, cq[5] + words[1] * 16), offset=0)

def word(offset):
    return struct.unpack_from('<I', queues, offset)[0]

def io_uring(offset, length):
    tail = word(sq[1])
    index = tail & word(sq[2])
    # IORING_OP_WRITE: opcode, flags, ioprio, fd, off, addr, len
    entries[index * 64:index * 64 + 64] = bytes(64)
    struct.pack_into('<BBHiQQI', entries, index * 64, 23, 0, 0, fd, offset, address, length)
    struct.pack_into('<I', queues, sq[6] + 4 * index, index)
    struct.pack_into('<I', queues, sq[1], tail + 1)
    assert call(426, ring, 1, 1, 1, None, 0) == 1
    head = word(cq[0])
    assert head != word(cq[1]), 'no completion'
    result = struct.unpack_from('<i', queues, cq[5] + 16 * (head & word(cq[2])) + 8)[0]
    struct.pack_into('<I', queues, cq[0], head + 1)
    assert result == length, result

write = {'sync': sync, 'libaio': libaio, 'io_uring': io_uring}[how]

def fill(tag):
    memory[:] = bytes([tag]) * LEN

fill(1)
sync(0, LEN)
readers = []
for is_mapped in [False, True]:
    child = os.fork()
    if child == 0:
        other = os.open(path, os.O_RDONLY)
        view = mmap.mmap(other, LEN, prot=mmap.PROT_READ)
        while True:
            os.posix_fadvise(other, 0, 0, 0)
            for offset in range(0, LEN, 65536):
                view[offset] if is_mapped else os.pread(other, 65536, offset)
    readers.append(child)
stale = {'read': 0, 'mapped': 0}
try:
    other = os.open(path, os.O_RDONLY)
    view = mmap.mmap(other, LEN, prot=mmap.PROT_READ)
    for number in range(rounds):
        tag = 2 + number % 250
        fill(tag)
        # All of the file, a part that begins and ends within a page, and the end.
        offset, length = [(0, LEN), (4095, 70002), (LEN - 5000, 5000)][number % 3]
        write(offset, length)
        stale['read'] += os.pread(other, length, offset) != bytes([tag]) * length
        stale['mapped'] += view[offset:offset + length] != bytes([tag]) * length
finally:
    for child in readers:
        os.kill(child, 9)
        os.waitpid(child, 0)
# Beyond the end: what is cached of the last page, and the size.
end = LEN
for length in [1, 4095, 100000]:
    os.pread(other, 8192, end - 4096)
    write(end, length)
    assert os.fstat(other).st_size == end + length
    found = os.pread(other, length + 1, end)
    stale['read'] += found != bytes([tag]) * length
    end += length
print(stale['read'], stale['mapped'])
"#;

/// Stale reads and stale mapped bytes.
fn stale_counts(path: &Path, how: &str, round_count: u32) -> String {
    let mut command = std::process::Command::new(python());
    command.args(["-I", "-c", WRITER, text(path), how, &round_count.to_string()]);
    run(&mut command).good().trim().into()
}

/// The kernel drops no pages when an asynchronous direct write ends.
#[test]
fn regression_pages_read_during_a_direct_write_do_not_stay() {
    if !has_program("python3") {
        return;
    }
    let has_uring = has_uring();
    let is_possible = |how: &&str| has_uring || *how != "io_uring";
    for options in ["", "data=ordered", "atomic_writes", "threads=1"] {
        let Some(scratch) = Scratch::mounted(options) else { return };
        for how in ["libaio", "io_uring", "sync"].into_iter().filter(is_possible) {
            let found = stale_counts(&scratch.path(how), how, 150);
            assert_eq!(found, "0 0", "{how}, options {options:?}");
        }
        scratch.close_and_check();
    }
}

/// The kernel keeps the attributes of an inode, and an ioctl changes them.
#[test]
fn regression_stat_shows_what_an_ioctl_changed() {
    for options in ["order=history", "atomic_writes"] {
        let Some(scratch) = Scratch::mounted(options) else { return };
        for name in ["file", "directory"] {
            let path = scratch.path(name);
            match name {
                "file" => fs::write(&path, "x").unwrap(),
                _ => fs::create_dir(&path).unwrap(),
            }
            let ctime = || {
                let metadata = fs::metadata(&path).unwrap();
                (metadata.ctime(), metadata.ctime_nsec())
            };
            let mut before = ctime();
            let mut check = |what: &str| {
                let after = ctime();
                assert!(after > before, "{name}, {what}: {before:?}, {after:?}");
                before = after;
            };
            for flag in ["+d", "-d", "+i", "-i", "+A"] {
                system("chattr", [flag, text(&path)]).good();
                check(flag);
            }
            support::onejournal(["set-mode", "delta", text(&path)]).good();
            check("set-mode");
        }
        scratch.close_and_check();
    }
}

#[test]
fn a_file_opened_with_o_noatime_keeps_its_access_time() {
    let Some(mut scratch) = Scratch::mounted("") else { return };
    let Some(mut peer) = Peer::new(&scratch.dir()) else { return };
    fs::write(scratch.path("f"), vec![7; 100_000]).unwrap();
    for statement in [
        "f = os.open('f', os.O_RDONLY | os.O_NOATIME); assert len(os.read(f, 200000)) == 100000",
        "f = os.open('f', os.O_RDONLY | os.O_NOATIME); \
         m = mmap.mmap(f, 0, prot=mmap.PROT_READ); m[50000]",
        "f = os.open('f', os.O_RDONLY | os.O_NOATIME | os.O_DIRECT); \
         assert len(os.read(f, 4096)) == 4096",
    ] {
        drop(peer);
        scratch.remount(""); // nothing is cached
        peer = Peer::new(&scratch.dir()).expect("it was there before");
        let before = fs::metadata(scratch.path("f")).unwrap();
        peer.good(statement);
        drop(peer);
        scratch.remount(""); // the kernel keeps attributes
        peer = Peer::new(&scratch.dir()).expect("it was there before");
        let after = fs::metadata(scratch.path("f")).unwrap();
        let time = |metadata: &fs::Metadata| (metadata.atime(), metadata.atime_nsec());
        assert_eq!(time(&before), time(&after), "{statement}");
    }
    drop(peer);
    scratch.remount("");
    let mut peer = Peer::new(&scratch.dir()).expect("it was there before");
    peer.good("f = os.open('f', os.O_RDONLY); os.read(f, 200000)");
    drop(peer);
    scratch.remount(""); // the kernel keeps attributes
    let metadata = fs::metadata(scratch.path("f")).unwrap();
    assert!(metadata.atime() >= metadata.mtime(), "a read without it sets the time");
    assert_ne!(metadata.atime_nsec(), metadata.mtime_nsec());
    scratch.close_and_check();
}
