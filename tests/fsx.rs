//! Random operations through the mount: on one file against a model, and on a tree by four threads.
//!
//! The gate does a fifth of the steps. Each failure names its seed.

use crate::support;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use fastrand::Rng;
use onejournal_testing::{test_name, tier};
use rustix::fs::{CWD, FallocateFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;
use support::{Peer, Scratch, onejournal, system};

/// Largest size of the file.
const SIZE_LIMIT: usize = 400_000;

/// The file, what it should hold, and how that came to be.
struct Checked {
    scratch: Scratch,
    options: &'static str,
    file: Option<File>,
    peer: Option<Peer>,
    model: Vec<u8>,
    rng: Rng,
    /// The last operations, for the message of a failure.
    history: Vec<String>,
}

impl Checked {
    fn new(options: &'static str, seed: u64) -> Option<Checked> {
        let scratch = Scratch::mounted(options)?;
        File::create_new(scratch.path("f")).unwrap();
        let rng = Rng::with_seed(seed);
        let mut checked = Checked {
            scratch,
            options,
            file: None,
            peer: None,
            model: Vec::new(),
            rng,
            history: vec![format!("seed {seed}, options {options:?}")],
        };
        checked.open();
        checked.peer.is_some().then_some(checked)
    }

    fn open(&mut self) {
        let path = self.scratch.path("f");
        self.file = Some(OpenOptions::new().read(true).write(true).open(path).unwrap());
        self.peer = Peer::new(&self.scratch.dir());
    }

    fn close(&mut self) {
        self.file = None;
        self.peer = None;
    }

    fn file(&self) -> &File {
        self.file.as_ref().expect("is open")
    }

    /// A range that may reach beyond the end of the file.
    fn range(&mut self) -> (usize, usize) {
        let aligned = self.rng.u8(..4) == 0;
        let start = self.rng.usize(..SIZE_LIMIT - 1);
        let limit = if self.rng.bool() { 5000 } else { 150_000 };
        let len = self.rng.usize(1..limit).min(SIZE_LIMIT - start);
        if aligned && len > 4096 { (start & !4095, len & !4095) } else { (start, len) }
    }

    fn grow_model(&mut self, end: usize) {
        self.model.resize(self.model.len().max(end), 0);
    }

    fn step(&mut self) {
        let (start, len) = self.range();
        let end = start + len;
        let byte = self.rng.u8(1..);
        let choice = self.rng.u32(..100);
        self.history.push(format!("{choice} at {start} {len} bytes {byte}"));
        match choice {
            0..30 => {
                let data: Vec<u8> = (0..len).map(|index| byte.wrapping_add(index as u8)).collect();
                self.file().write_all_at(&data, start as u64).unwrap();
                self.grow_model(end);
                self.model[start..end].copy_from_slice(&data);
            }
            30..50 => self.read(start, len),
            50..58 => {
                self.file().set_len(start as u64).unwrap();
                self.model.resize(start, 0);
            }
            58..66 => {
                self.allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, start, len)
            }
            66..74 => {
                let keep = self.rng.bool();
                let flags = if keep { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
                self.allocate(FallocateFlags::ZERO_RANGE | flags, start, len);
            }
            74..78 => self.allocate(FallocateFlags::empty(), start, len),
            78..84 => self.map_write(start, len, byte),
            84..90 => self.map_read(start, len),
            90..94 => self.file().sync_all().unwrap(),
            94..96 => self.file().sync_data().unwrap(),
            96..98 => self.check_whole(),
            98 => self.remount(),
            _ => self.crash(),
        }
    }

    fn allocate(&mut self, flags: FallocateFlags, start: usize, len: usize) {
        rustix::fs::fallocate(self.file(), flags, start as u64, len as u64).unwrap();
        if !flags.contains(FallocateFlags::KEEP_SIZE) {
            self.grow_model(start + len);
        }
        if flags.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE) {
            let end = (start + len).min(self.model.len());
            self.model[start.min(end)..end].fill(0);
        }
    }

    fn read(&mut self, start: usize, len: usize) {
        let end = (start + len).min(self.model.len());
        let mut data = vec![0xEE; len];
        let mut count = 0;
        while count < len {
            match self.file().read_at(&mut data[count..], (start + count) as u64).unwrap() {
                0 => break,
                more => count += more,
            }
        }
        self.compare(start, &data[..count], end.saturating_sub(start));
    }

    fn compare(&self, start: usize, data: &[u8], expected_len: usize) {
        assert_eq!(data.len(), expected_len, "size; {:#?}", self.recent());
        let expected = self.model.get(start..start + expected_len).unwrap_or_default();
        let differing = data.iter().zip(expected).position(|(a, b)| a != b);
        assert_eq!(differing.map(|index| start + index), None, "{:#?}", self.recent());
    }

    fn recent(&self) -> Vec<&String> {
        let tail = self.history.len().saturating_sub(20).max(1);
        self.history[..1].iter().chain(&self.history[tail..]).collect()
    }

    /// The part of a range that is within the file.
    fn clip(&self, start: usize, len: usize) -> Option<(usize, usize)> {
        (start < self.model.len()).then(|| (start, (start + len).min(self.model.len())))
    }

    fn map_write(&mut self, start: usize, len: usize, byte: u8) {
        let Some((start, end)) = self.clip(start, len) else { return };
        let peer = self.peer.as_mut().expect("is there while it is open");
        peer.good(&format!(
            "f = open('f', 'r+b'); m = mmap.mmap(f.fileno(), 0); \
             m[{start}:{end}] = bytes([{byte}]) * ({end} - {start}); m.close(); f.close()"
        ));
        self.model[start..end].fill(byte);
    }

    fn map_read(&mut self, start: usize, len: usize) {
        let Some((start, end)) = self.clip(start, len.min(20_000)) else { return };
        let peer = self.peer.as_mut().expect("is there while it is open");
        let hex = peer.good(&format!(
            "f = open('f', 'r+b'); m = mmap.mmap(f.fileno(), 0); \
             r = m[{start}:{end}].hex(); m.close(); f.close()"
        ));
        let hex = hex.as_str().unwrap();
        let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        let data: Vec<u8> = (0..hex.len()).step_by(2).map(digits).collect();
        self.compare(start, &data, end - start);
    }

    fn check_whole(&mut self) {
        let size = self.file().metadata().unwrap().len();
        assert_eq!(size, self.model.len() as u64, "{:#?}", self.recent());
        self.read(0, SIZE_LIMIT + 10_000);
    }

    fn remount(&mut self) {
        self.close();
        self.scratch.remount(self.options);
        self.open();
        self.check_whole();
    }

    /// Nothing was done since the sync: what the crash leaves is exactly the model.
    fn crash(&mut self) {
        self.file().sync_all().unwrap();
        self.scratch.kill();
        self.close();
        self.scratch.mount(self.options);
        self.open();
        self.check_whole();
    }
}

fn exercise(options: &'static str, seed: u64) {
    let Some(mut checked) = Checked::new(options, seed) else { return };
    for _ in 0..tier::count(1500) {
        checked.step();
    }
    checked.remount();
    checked.close();
    checked.scratch.close_and_check();
}

#[test]
fn a_file_holds_what_its_model_holds() {
    exercise("commit=1", tier::seed_of(test_name!()));
}

#[test]
fn a_file_holds_what_its_model_holds_with_ordered_data() {
    exercise("commit=1,data=ordered", tier::seed_of(test_name!()));
}

#[test]
fn a_file_holds_what_its_model_holds_with_order_sync() {
    exercise("commit=1,order=sync", tier::seed_of(test_name!()));
}

#[test]
fn a_file_holds_what_its_model_holds_with_ordered_data_and_order_sync() {
    exercise("commit=1,data=ordered,order=sync", tier::seed_of(test_name!()));
}

/// Errors that random operations run into; any other one is a failure.
const EXPECTED: [Errno; 12] = [
    Errno::NOENT,
    Errno::EXIST,
    Errno::NOTEMPTY,
    Errno::ISDIR,
    Errno::NOTDIR,
    Errno::INVAL,
    Errno::PERM,
    Errno::LOOP,
    Errno::NODATA,
    Errno::NAMETOOLONG,
    Errno::OPNOTSUPP,
    Errno::NOSPC,
];

fn random_path(dir: &Path, rng: &mut Rng) -> PathBuf {
    let mut path = dir.to_owned();
    for _ in 0..rng.usize(..3) {
        path.push(format!("d{}", rng.u8(..4)));
    }
    if rng.bool() {
        path.push(format!("d{}", rng.u8(..4)));
    } else {
        // Some long ones, so that directories split.
        path.push(format!("{}{}", "f".repeat(rng.usize(1..4) * 60), rng.u8(..40)));
    }
    path
}

fn random_operation(dir: &Path, rng: &mut Rng) -> io::Result<()> {
    let (path, other) = (random_path(dir, rng), random_path(dir, rng));
    let open = || OpenOptions::new().write(true).read(true).open(&path);
    let rename =
        |flags| rustix::fs::renameat_with(CWD, &path, CWD, &other, flags).map_err(Into::into);
    match rng.u32(..100) {
        0..15 => fs::write(&path, vec![rng.u8(..); rng.usize(..50_000)]),
        15..30 => fs::create_dir(&path),
        30..40 => fs::remove_file(&path),
        40..46 => fs::remove_dir(&path),
        46..58 => rename(RenameFlags::empty()),
        58..63 => rename(RenameFlags::EXCHANGE),
        63..66 => rename(RenameFlags::NOREPLACE),
        66..71 => fs::hard_link(&path, &other),
        71..75 => symlink("x".repeat(rng.usize(1..200)), &path),
        75..79 => open()?.set_len(rng.u64(..200_000)),
        79..83 => open()?.write_all_at(&[7; 5000], rng.u64(..1_000_000)),
        83..86 => open()?.sync_all(),
        86..90 => fs::read_dir(&path)?.try_for_each(|entry| entry.map(drop)),
        90..93 => fs::read(&path).map(drop),
        93..96 => {
            let (name, value) = (format!("user.{}", rng.u8(..5)), vec![1; rng.usize(..600)]);
            Ok(rustix::fs::setxattr(&path, name, &value, XattrFlags::empty())?)
        }
        96..98 => {
            let file = open()?; // unlinked while it is open
            fs::remove_file(&path)?;
            file.write_all_at(b"gone", 70_000)
        }
        _ => fs::metadata(&path).map(drop),
    }
}

/// The errors of a mount whose daemon was killed.
const DEAD: [Errno; 3] = [Errno::NOTCONN, Errno::CONNABORTED, Errno::CANCELED];

/// Whether the error is that of a mount whose daemon was killed. A request that the daemon was just
/// taking when it died fails with what stopped the copying: EIO through `/dev/fuse`, EINTR through
/// a ring. Before it is killed neither must be seen.
fn is_dead(errno: Errno, killed: &AtomicBool) -> bool {
    let while_taken = errno == Errno::IO || errno == Errno::INTR;
    DEAD.contains(&errno) || while_taken && killed.load(Ordering::SeqCst)
}

/// Returns after the last step, or when the daemon is gone: how often there was no space.
fn stress(dir: &Path, seed: u64, step_count: u64, killed: &AtomicBool) -> u64 {
    let mut rng = Rng::with_seed(seed);
    let mut full_count = 0;
    for step in 0..step_count {
        let Err(error) = random_operation(dir, &mut rng) else { continue };
        let errno = error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error);
        if is_dead(errno, killed) {
            break;
        }
        assert!(EXPECTED.contains(&errno), "seed {seed} step {step}: {error}");
        full_count += u64::from(errno == Errno::NOSPC);
    }
    full_count
}

/// The daemon is not killed.
static NEVER: AtomicBool = AtomicBool::new(false);

/// Everything below can be looked at and read.
fn walk(dir: &Path) -> usize {
    let mut count = 0;
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let metadata = fs::symlink_metadata(&path).unwrap();
        count += 1;
        if metadata.is_dir() {
            count += walk(&path);
        } else if metadata.is_file() {
            assert_eq!(fs::read(&path).unwrap().len() as u64, metadata.len());
        }
    }
    count
}

#[test]
fn a_tree_stays_sound_under_four_threads() {
    let mut rng = Rng::with_seed(tier::seed_of(test_name!()));
    let step_count = tier::count(2500) as u64;
    for options in ["commit=1", "commit=1,data=ordered"] {
        let Some(mut scratch) = Scratch::with_size("256M") else { return };
        scratch.mount(options);
        let dir = scratch.dir();
        let mut run = || {
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    let (dir, seed) = (&dir, rng.u64(..));
                    scope.spawn(move || stress(dir, seed, step_count, &NEVER));
                }
            });
        };
        run();
        scratch.remount(options);
        let before = walk(&dir);
        // Again, with a crash: what was synced is there, what e2fsck sees is sound.
        run();
        system("sync", ["-f", dir.to_str().unwrap()]).good();
        let synced = walk(&dir);
        assert!(before > 0 && synced > 0);
        scratch.kill();
        onejournal(["fsck", scratch.image().to_str().unwrap()]).ended(1);
        scratch.check();
        scratch.mount(options);
        assert_eq!(walk(&dir), synced);
        scratch.close_and_check();
    }
}

/// Hardly anything fits: every operation finds out in its middle, again and again.
#[test]
fn a_tree_stays_sound_when_the_volume_is_full() {
    let seed = tier::seed_of(test_name!());
    let mut rng = Rng::with_seed(seed);
    for options in ["commit=1", "commit=1,data=ordered"] {
        let Some(mut scratch) = Scratch::with_size("16M") else { return };
        scratch.mount(options);
        for round in 0..tier::count(8) {
            let ballast = fs::File::create(scratch.path("ballast")).unwrap();
            let free = rustix::fs::statvfs(scratch.dir()).unwrap().f_bfree;
            let keep = rng.u64(..40); // blocks
            let len = free.saturating_sub(keep).max(1) * 4096;
            let filled = rustix::fs::fallocate(&ballast, FallocateFlags::empty(), 0, len);
            assert!(matches!(filled, Ok(()) | Err(Errno::NOSPC)), "{filled:?}");
            drop(ballast);
            let (dir, seeds) = (scratch.dir(), [rng.u64(..), rng.u64(..)]);
            let full_count: u64 = std::thread::scope(|scope| {
                let threads = seeds.map(|seed| {
                    let dir = &dir;
                    scope.spawn(move || stress(dir, seed, 400, &NEVER))
                });
                threads.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            println!("{options:?} round {round}: {full_count} operations found it full");
            assert!(full_count > 10, "seed {seed} round {round}: it was hardly ever full");
            walk(&dir);
            if round % 2 == 0 {
                scratch.kill();
                onejournal(["fsck", scratch.image().to_str().unwrap()]);
                scratch.check();
                scratch.mount(options);
            } else {
                scratch.remount(options);
            }
        }
        scratch.close_and_check();
    }
}

/// The daemon is killed while four threads work, again and again on the same volume.
#[test]
fn a_tree_is_sound_after_every_crash() {
    let seed = tier::seed_of(test_name!());
    let Some(mut scratch) = Scratch::with_size("256M") else { return };
    let mut rng = Rng::with_seed(seed);
    for round in 0..tier::count(12) {
        let options = ["commit=1", "commit=1,data=ordered"][round % 2];
        scratch.mount(options);
        walk(&scratch.dir());
        let dir = scratch.dir();
        let killed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let (dir, seed, killed) = (&dir, rng.u64(..), &killed);
                scope.spawn(move || stress(dir, seed, u64::MAX, killed));
            }
            // Not to wait for anything: the moment is somewhere within their operations.
            std::thread::sleep(std::time::Duration::from_micros(rng.u64(..300_000)));
            killed.store(true, Ordering::SeqCst);
            scratch.daemon().signal(rustix::process::Signal::KILL);
        });
        scratch.kill();
        let recovered = onejournal(["fsck", scratch.image().to_str().unwrap()]);
        assert_eq!(recovered.code, Some(1), "seed {seed} round {round}: {recovered:?}");
        scratch.check();
    }
}

/// Makes files, each with a content of its own, and syncs them; how many were acknowledged.
fn make_synced_files(dir: &Path, who: usize, killed: &AtomicBool) -> usize {
    for index in 0.. {
        let path = dir.join(format!("{who}-{index}"));
        let made = File::create(path)
            .and_then(|file| file.write_all_at(&content(who, index), 0).and(file.sync_all()));
        if let Err(error) = made {
            let errno = error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error);
            // On a fast machine it may be full before it is dead.
            assert!(is_dead(errno, killed) || errno == Errno::NOSPC, "{error}");
            return index;
        }
    }
    unreachable!("the mount dies before the numbers end");
}

fn content(who: usize, index: usize) -> Vec<u8> {
    let len = 1 + (who * 7919 + index * 104_729) % 20_000;
    vec![(who * 50 + index % 50) as u8; len]
}

/// Commits are shared by threads; and to sync a new file is enough, its directory need not be.
#[test]
fn files_acknowledged_to_any_of_four_threads_survive_a_kill() {
    let seed = tier::seed_of(test_name!());
    let mut rng = Rng::with_seed(seed);
    for round in 0..tier::count(8) {
        let options = ["commit=300", "commit=300,data=ordered"][round % 2];
        let Some(mut scratch) = Scratch::mounted(options) else { return };
        let dir = scratch.dir();
        let killed = AtomicBool::new(false);
        let counts = std::thread::scope(|scope| {
            let threads = [0, 1, 2, 3].map(|who| {
                let (dir, killed) = (&dir, &killed);
                scope.spawn(move || make_synced_files(dir, who, killed))
            });
            // Not to wait for anything: the moment is somewhere within a commit.
            std::thread::sleep(std::time::Duration::from_micros(rng.u64(1000..150_000)));
            killed.store(true, Ordering::SeqCst);
            scratch.daemon().signal(rustix::process::Signal::KILL);
            threads.map(|thread| thread.join().unwrap())
        });
        scratch.kill();
        scratch.mount(options);
        for (who, count) in counts.into_iter().enumerate() {
            for index in 0..count {
                let found = fs::read(scratch.path(&format!("{who}-{index}")));
                let sound = found.is_ok_and(|found| found == content(who, index));
                assert!(sound, "seed {seed} round {round}: {who}-{index} of {counts:?}");
            }
        }
        scratch.close_and_check();
    }
}
