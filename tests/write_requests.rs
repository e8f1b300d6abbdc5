//! Which `write`s reach the volume as one request, and so are atomic: what
//! docs/reference/atomicity.md says. The kernel decides that, so it is counted on the kernel that
//! is running, and records are written while the daemon is killed.

use crate::support;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use onejournal_testing::tier::{self, Tier, tier};
use onejournal_testing::{Need, skip, test_name};
use support::{Peer, Scratch};

/// For a peer: memory that is resident, and an empty file, or one of which all pages are cached.
const SETUP: &str = "
memory = mmap.mmap(-1, 4 << 20); memory[:] = b'x' * (4 << 20); view = memoryview(memory)
def fresh(flags=0):
    if os.path.exists('f'): os.unlink('f')
    return os.open('f', os.O_RDWR | os.O_CREAT | flags)
def cached():
    fd = fresh(); os.ftruncate(fd, 4 << 20); os.pread(fd, 4 << 20, 0)
    return fd
";

/// What to prepare, and a write that must be one request.
const ONE_REQUEST: &[(&str, &str)] = &[
    // At the start of a page.
    ("fd = fresh()", "os.pwrite(fd, view[:1], 0)"),
    ("fd = fresh()", "os.pwrite(fd, view[7:10007], 4096)"),
    ("fd = fresh()", "os.pwrite(fd, view[:1 << 20], 8192)"),
    ("fd = fresh()", "os.pwritev(fd, [view[i * 5000:i * 5000 + 999] for i in range(500)], 0)"),
    ("fd = fresh(os.O_APPEND)", "os.write(fd, view[:100000])"),
    ("fd = fresh(os.O_APPEND); os.write(fd, view[:8192])", "os.write(fd, view[:100000])"),
    // Within a page.
    ("fd = fresh()", "os.pwrite(fd, view[:100], 3996)"),
    ("fd = fresh(os.O_APPEND); os.write(fd, view[:100])", "os.write(fd, view[:3996])"),
    // From a page that is cached as a whole.
    ("fd = cached()", "os.pwrite(fd, view[:2], 4095)"),
    ("fd = cached()", "os.pwrite(fd, view[:(1 << 20) - 4096], 1)"),
    ("fd = fresh(); os.pwrite(fd, view[:4096], 0)", "os.pwrite(fd, view[:5000], 4095)"),
    (
        "fd = fresh(os.O_APPEND); os.write(fd, view[:4200]); os.pread(fd, 200, 4096)",
        "os.write(fd, view[:5000])",
    ),
    // Direct, from and to any place.
    ("fd = fresh(os.O_DIRECT)", "os.pwrite(fd, view[:2], 4095)"),
    ("fd = fresh(os.O_DIRECT)", "os.pwrite(fd, view[3:10003], 100)"),
    ("fd = fresh(os.O_DIRECT)", "os.pwrite(fd, view[:1 << 20], 1)"),
    ("fd = fresh(os.O_DIRECT)", "os.pwrite(fd, view[1:(1 << 20) - 4095], 4095)"),
    (
        "fd = fresh(os.O_DIRECT | os.O_APPEND); os.write(fd, view[:100])",
        "os.write(fd, view[5:9999])",
    ),
    (
        "fd = fresh(os.O_DIRECT)",
        "os.pwritev(fd, [view[i * 8192:i * 8192 + 99] for i in range(256)], 7)",
    ),
];

/// The same for writes that are longer than a request.
const SEVERAL_REQUESTS: &[(&str, &str)] = &[
    ("fd = fresh()", "os.pwrite(fd, view[:(1 << 20) + 1], 0)"),
    ("fd = cached()", "os.pwrite(fd, view[:1 << 20], 1)"),
    ("fd = fresh(os.O_DIRECT)", "os.pwrite(fd, view[1:(1 << 20) + 1], 0)"),
    (
        "fd = fresh(os.O_DIRECT)",
        "os.pwritev(fd, [view[i * 8192:i * 8192 + 99] for i in range(257)], 0)",
    ),
];

/// The requests of a write, after it was prepared.
#[track_caller]
fn request_count(scratch: &Scratch, peer: &mut Peer, prepare: &str, write: &str) -> u64 {
    peer.good(prepare);
    let before = scratch.counter("app_writes");
    peer.good(write);
    let requests = scratch.counter("app_writes") - before;
    peer.good("os.close(fd)");
    requests
}

#[test]
fn the_writes_that_are_called_atomic_are_one_request() {
    let Some(scratch) = Scratch::mounted("order=history") else { return };
    let Some(mut peer) = Peer::new(&scratch.dir()) else { return };
    peer.good(SETUP);
    let mut count =
        |(prepare, write): &(&str, &str)| request_count(&scratch, &mut peer, prepare, write);
    for case in ONE_REQUEST {
        assert_eq!(count(case), 1, "{case:?}");
    }
    for case in SEVERAL_REQUESTS {
        assert_eq!(count(case), 2, "{case:?}");
    }
    drop(peer);
    scratch.close_and_check();
}

/// What `atomic_write_bytes` says: of any size up to it, from memory at any address, over whatever
/// the kernel has of the file.
#[test]
fn aligned_pages_up_to_atomic_write_bytes_are_one_request() {
    for transport in ["off", "auto"] {
        let Some(mut scratch) = Scratch::with_size("256M") else { return };
        scratch.mount(&format!("order=history,io_uring={transport}"));
        aligned_pages_are_one_request(&scratch);
        scratch.close_and_check();
    }
}

fn aligned_pages_are_one_request(scratch: &Scratch) {
    let Some(mut peer) = Peer::new(&scratch.dir()) else { return };
    peer.good(SETUP);
    let most = scratch.counter("atomic_write_bytes");
    assert_eq!(most, 512 << 10);
    let sizes = std::iter::successors(Some(4096), |bytes| Some(2 * bytes));
    for bytes in sizes.take_while(|bytes| *bytes <= most) {
        for prepare in ["fd = fresh()", "fd = cached()", "fd = fresh(os.O_DIRECT)"] {
            for address in [0, 1, 16, 4095] {
                let write = format!("os.pwrite(fd, view[{address}:{}], {bytes})", address + bytes);
                let requests = request_count(scratch, &mut peer, prepare, &write);
                assert_eq!(requests, 1, "{prepare}, {write}");
            }
        }
        // Memory that is not resident, at the beginning of a page.
        let prepare = "fd = fresh(); new = memoryview(mmap.mmap(-1, 1 << 20))";
        let write = format!("os.pwrite(fd, new[:{bytes}], {bytes})");
        assert_eq!(request_count(scratch, &mut peer, prepare, &write), 1, "{write}");
    }
    // Larger ones are cut at 1 MiB from their start, if their memory begins at the beginning of a
    // page.
    for prepare in ["fd = fresh()", "fd = fresh(os.O_DIRECT)"] {
        let write = "os.pwrite(fd, view[:3 << 20], 16384)";
        assert_eq!(request_count(scratch, &mut peer, prepare, write), 3, "{prepare}");
    }
}

const WRITER_COUNT: usize = 3;
const SLOT_COUNT: usize = 30;

/// How records are written: with their number at both ends.
struct How {
    name: &'static str,
    flags: rustix::fs::OFlags,
    /// Where the first record begins, and how far apart they are.
    start: u64,
    stride: usize,
    len_bytes: usize,
    /// A second write begins here.
    split_at: Option<usize>,
}

/// Aligned pages, one after the other.
fn page(name: &'static str, flags: rustix::fs::OFlags, bytes: usize) -> How {
    How { name, flags, start: bytes as u64, stride: bytes, len_bytes: bytes, split_at: None }
}

fn record(number: u64, len_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![number as u8; len_bytes];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[len_bytes - 8..].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Writes records until the daemon is killed, and counts them.
fn write_records(file: &File, writer: usize, how: &How, record_count: &AtomicUsize) {
    for number in 1.. {
        let bytes = record(number, how.len_bytes);
        for slot in (writer..SLOT_COUNT).step_by(WRITER_COUNT) {
            let at = how.start + (slot * how.stride) as u64;
            let (first, rest) = bytes.split_at(how.split_at.unwrap_or(how.len_bytes));
            let done = file.write_all_at(first, at).and_then(|()| match rest.is_empty() {
                true => Ok(()),
                false => file.write_all_at(rest, at + first.len() as u64),
            });
            if done.is_err() {
                return;
            }
            record_count.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Waits until the counter has reached that.
fn wait_for(counter: &AtomicUsize, count: usize) {
    let begin = Instant::now();
    while counter.load(Ordering::SeqCst) < count {
        assert!(begin.elapsed() < Duration::from_secs(120), "the writers do not go on");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Lets several threads write while another one syncs; kills the daemon; counts torn records, and
/// says how many there are that were written at all.
fn torn_and_written(scratch: &mut Scratch, how: &How, pause: Duration) -> (usize, usize) {
    scratch.mount("commit=300,order=history");
    let open = |name: &str, flags: rustix::fs::OFlags| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        options.custom_flags(flags.bits().cast_signed()).open(scratch.path(name)).unwrap()
    };
    let file = open(how.name, how.flags);
    let other = open("other", rustix::fs::OFlags::empty());
    // The name is durable, however soon the daemon is killed.
    file.sync_all().unwrap();
    let stop = AtomicBool::new(false);
    let (record_count, sync_count) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for writer in 0..WRITER_COUNT {
            let (file, record_count) = (&file, &record_count);
            scope.spawn(move || write_records(file, writer, how, record_count));
        }
        scope.spawn(|| {
            for number in 0_u64.. {
                let bytes = number.to_le_bytes();
                let synced = other.write_all_at(&bytes, 0).and_then(|()| other.sync_all());
                if synced.is_err() || stop.load(Ordering::Relaxed) {
                    return;
                }
                sync_count.fetch_add(1, Ordering::SeqCst);
            }
        });
        // A sync that began after so many records: those of at least a third of the slots are
        // durable.
        wait_for(&record_count, SLOT_COUNT);
        wait_for(&sync_count, sync_count.load(Ordering::SeqCst) + 2);
        std::thread::sleep(pause);
        scratch.daemon().signal(rustix::process::Signal::KILL);
        assert!(scratch.daemon().ended());
        stop.store(true, Ordering::Relaxed);
    });
    drop((file, other));
    scratch.kill();
    scratch.mount("");
    let mut bytes = std::fs::read(scratch.path(how.name)).unwrap();
    bytes.resize(bytes.len() + how.stride * SLOT_COUNT, 0);
    let start = usize::try_from(how.start).unwrap();
    let found = (0..SLOT_COUNT).map(|slot| &bytes[start + slot * how.stride..][..how.len_bytes]);
    let (mut torn, mut written) = (0, 0);
    for found in found {
        let number = u64::from_le_bytes(found[..8].try_into().unwrap());
        let is_new = found.iter().all(|byte| *byte == 0);
        torn += usize::from(!is_new && found != record(number, how.len_bytes));
        written += usize::from(!is_new);
    }
    std::fs::remove_file(scratch.path(how.name)).unwrap();
    scratch.umount();
    scratch.check();
    (torn, written)
}

#[test]
fn records_of_several_writers_survive_a_killed_daemon_whole() {
    let Some(mut scratch) = Scratch::new() else { return };
    let direct = rustix::fs::OFlags::DIRECT;
    let buffered = rustix::fs::OFlags::empty();
    let hows = [
        How {
            name: "direct",
            flags: direct,
            start: 4095,
            stride: 5000,
            len_bytes: 5000,
            split_at: None,
        },
        How {
            name: "pages",
            flags: buffered,
            start: 4096,
            stride: 8192,
            len_bytes: 5000,
            split_at: None,
        },
        How {
            name: "parts",
            flags: buffered,
            start: 0,
            stride: 512,
            len_bytes: 512,
            split_at: None,
        },
        page("pages of PostgreSQL", buffered, 8 << 10),
        page("pages of InnoDB", direct, 16 << 10),
        page("the largest pages", buffered, 64 << 10),
    ];
    let mut random = fastrand::Rng::with_seed(tier::seed_of(test_name!()));
    let mut written_count = 0;
    // Each kind of record once, at least.
    for round in 0..tier::count(12).max(hows.len()) {
        let how = &hows[round % hows.len()];
        let pause = Duration::from_millis(random.u64(10..150));
        let (torn, written) = torn_and_written(&mut scratch, how, pause);
        assert_eq!(torn, 0, "round {round}, {}", how.name);
        written_count += written;
    }
    assert!(written_count > SLOT_COUNT, "only {written_count} records were found");
}

#[test]
fn canary_records_in_two_writes_are_found_torn() {
    if tier() == Tier::Gate {
        return skip(Need::Tier, "whether a kill tears a record is luck");
    }
    let Some(mut scratch) = Scratch::new() else { return };
    let flags = rustix::fs::OFlags::DIRECT;
    let split_at = Some(1);
    let how = How { name: "split", flags, start: 4095, stride: 5000, len_bytes: 5000, split_at };
    let mut random = fastrand::Rng::with_seed(tier::seed_of(test_name!()));
    let is_torn = |_| {
        let pause = Duration::from_millis(random.u64(10..150));
        torn_and_written(&mut scratch, &how, pause).0 > 0
    };
    assert!((0..200).any(is_torn), "the test sees no torn record");
}
