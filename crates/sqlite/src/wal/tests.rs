//! Several processes write one WAL, as SQLite would have them: two with the extension and one
//! without. The log must give the frames that the file holds, whatever each process remembers.

use std::sync::atomic::Ordering;

use onejournal_testing::{test_name, tier};
use tempfile::TempDir;

use crate::abi::opened::Opened;
use crate::counters::COUNTERS;
use crate::database::Database;
use crate::database::opening::file_at;
use crate::failure::Failure;
use crate::format::frames::{Frame, frames};
use crate::format::page;
use crate::format::record::Record;
use crate::format::wal::{self, FRAME_HEADER_BYTES, FrameHeader, Header};
use crate::frames::pending::Pending;
use crate::frames::read::Files;
use crate::frames::wal_index::Counted;
use crate::test_load::{directory, settings_in};
use crate::wal::file::begin_write;

const PAGE_BYTES: usize = 512;
const PAGE_COUNT: u32 = 6;
/// Processes; the last is without the extension.
const PLAIN: usize = 2;

/// A page with the header of its frame.
#[derive(Clone)]
struct Version {
    page: u32,
    bytes: Vec<u8>,
    checksum: wal::Checksum,
}

/// The files, what SQLite counts of them, and who has them open.
struct World {
    main: Opened,
    wal: Opened,
    databases: Vec<Database>,
    pending: Vec<Pending>,
    transaction_count: u64,
    random: fastrand::Rng,
    header: Header,
    /// The frames that SQLite counts.
    frames: Vec<Version>,
    /// The database file.
    home: Vec<Vec<u8>>,
    /// Frames that were logged, and looked at.
    logged: usize,
}

/// How a transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Committed,
    /// Its frames are in the file, without a sync.
    RolledBack,
    /// It was synced. Its process failed before SQLite counted it.
    NotCounted,
}

impl World {
    fn new(home: &TempDir, seed: u64) -> World {
        let path = home.path().join(format!("{seed}.db"));
        let (below, settings) = settings_in(home, &path, None);
        std::fs::write(&path, []).expect("file");
        std::fs::write(home.path().join(format!("{seed}.db-wal")), []).expect("file");
        let wal = Opened::wal(below, &path, true).expect("open").expect("it is there");
        let main = Opened::main(below, &path).expect("open");
        let file = file_at(&path, main.real()).expect("file");
        let new = || Database::new(path.clone(), file, settings.clone(), below);
        let databases: Vec<Database> = (0..PLAIN).map(|_| new()).collect();
        for database in &databases {
            assert!(database.open_log(main.real(), true).expect("log"));
        }
        let mut world = World {
            main,
            wal,
            databases,
            pending: (0..=PLAIN).map(|_| Pending::default()).collect(),
            transaction_count: 0,
            random: fastrand::Rng::with_seed(seed),
            header: Header::parse(&header([0; 8])).expect("a header"),
            frames: Vec::new(),
            home: vec![vec![0; PAGE_BYTES]; PAGE_COUNT as usize],
            logged: 0,
        };
        world.begin_generation(0);
        world
    }

    fn write(&mut self, process: usize, at: u64, bytes: &[u8]) {
        let files = Files { main: self.main.real(), wal: self.wal.real() };
        if process == PLAIN {
            return files.wal.write(at, bytes).expect("write");
        }
        let pending = &mut self.pending[process];
        begin_write(&self.databases[process], files, pending, at, bytes).expect("begin");
        files.wal.write(at, bytes).expect("write");
        if at > 0 {
            pending.wrote(at, bytes);
        }
    }

    /// The pages as SQLite sees them after `frames`.
    fn newest(&self, frames: &[Version], page: u32) -> Vec<u8> {
        let found = frames.iter().rev().find(|version| version.page == page);
        found.map_or_else(|| self.home[page as usize - 1].clone(), |found| found.bytes.clone())
    }

    /// Writes all pages to the database.
    fn checkpoint(&mut self, process: usize) {
        self.sync(process, 0);
        for page in 1..=PAGE_COUNT {
            let bytes = self.newest(&self.frames, page);
            let at = u64::from(page - 1) * PAGE_BYTES as u64;
            self.main.real().write(at, &bytes).expect("write");
            self.home[page as usize - 1] = bytes;
        }
    }

    fn begin_generation(&mut self, process: usize) {
        self.checkpoint(process);
        self.frames.clear();
        let bytes = header(self.random.u64(..).to_le_bytes());
        self.header = Header::parse(&bytes).expect("a header");
        self.write(process, 0, &bytes);
        self.sync(process, 0);
    }

    /// Runs one transaction.
    fn transact(&mut self, process: usize, end: End) {
        self.transaction_count += 1;
        let last = self.frames.last().map_or([0; 2], |last| last.checksum);
        let salts = self.header.salts;
        let counted = Counted { salts, frames: self.frames.len() as u32, checksum: last };
        // With locking_mode=EXCLUSIVE there may be no index.
        let counted = (self.random.u8(..8) > 0).then_some(counted);
        self.pending[process].belongs_to(self.transaction_count, || counted);
        let mut all = self.frames.clone();
        let first = all.len();
        let count = self.random.usize(1..5);
        for index in first..first + count {
            let page = self.random.u32(1..=PAGE_COUNT);
            let mut bytes = self.newest(&all, page);
            for _ in 0..self.random.usize(0..4) {
                // Few places and values, so that bytes come back to what they were.
                bytes[self.random.usize(..8) * 64] = self.random.u8(..2);
            }
            all.push(Version { page, bytes, checksum: [0; 2] });
            self.write_frame(
                process,
                &mut all,
                index,
                end != End::RolledBack && index + 1 == first + count,
            );
        }
        if self.random.u8(..3) == 0 {
            // A page is written again where it is, and the checksums from there on after it.
            let again = self.random.usize(first..all.len());
            all[again].bytes[self.random.usize(..PAGE_BYTES)] ^= 1;
            let at = self.header.frame_at(again as u32 + 1) + FRAME_HEADER_BYTES as u64;
            self.write(process, at, &all[again].bytes.clone());
            for index in again..all.len() {
                let is_commit = end != End::RolledBack && index + 1 == all.len();
                let frame = self.frame(&mut all, index, is_commit);
                let at = self.header.frame_at(index as u32 + 1);
                self.write(process, at, &frame[..FRAME_HEADER_BYTES]);
            }
        }
        if end == End::RolledBack {
            return;
        }
        let counted = std::mem::replace(&mut self.frames, all);
        self.sync(process, count);
        if end == End::NotCounted {
            self.frames = counted;
        }
    }

    /// Writes frame `index` as SQLite does, in two.
    fn write_frame(&mut self, process: usize, all: &mut [Version], index: usize, is_commit: bool) {
        let frame = self.frame(all, index, is_commit);
        let at = self.header.frame_at(index as u32 + 1);
        let (head, page) = frame.split_at(FRAME_HEADER_BYTES);
        self.write(process, at, head);
        self.write(process, at + FRAME_HEADER_BYTES as u64, page);
    }

    fn frame(&self, all: &mut [Version], index: usize, is_commit: bool) -> Vec<u8> {
        let before = match index {
            0 => self.header.checksum,
            index => all[index - 1].checksum,
        };
        let version = &mut all[index];
        let commit_pages = if is_commit { PAGE_COUNT } else { 0 };
        let mut frame = [version.page.to_be_bytes(), commit_pages.to_be_bytes()].concat();
        frame.extend_from_slice(&self.header.salts);
        frame.extend_from_slice(&[0; 8]);
        frame.extend_from_slice(&version.bytes);
        version.checksum = self.header.frame_checksum(before, &frame);
        frame[16..20].copy_from_slice(&version.checksum[0].to_be_bytes());
        frame[20..24].copy_from_slice(&version.checksum[1].to_be_bytes());
        assert_eq!(FrameHeader::parse(&frame).checksum, version.checksum);
        frame
    }

    /// Syncs the WAL, whose last `new` frames are a transaction: either the file was synced or the
    /// log got what gives these pages.
    fn sync(&mut self, process: usize, new: usize) {
        if process == PLAIN {
            return;
        }
        let files = Files { main: self.main.real(), wal: self.wal.real() };
        let real_sync_count = || COUNTERS.real_syncs.load(Ordering::Relaxed);
        let real_syncs = real_sync_count();
        let database = &self.databases[process];
        let appended = database.with_stream(|stream| Ok(stream.appended())).expect("stream");
        database.sync_wal(files, &mut self.pending[process]).expect("sync");
        self.pending[process].clear();
        let from = appended.expect("it is open");
        let records = database.with_stream(|stream| {
            let records = stream.read_from(from)?.map(|record| Ok(record?.payload));
            records.collect::<Result<Vec<_>, Failure>>()
        });
        let mut is_logged = false;
        for record in records.expect("read").expect("it is open") {
            if let Record::Frames(head, bytes) = Record::parse(&record).expect("a record") {
                self.check(head.first, &frames(&head, &bytes).expect("frames"), new);
                is_logged = true;
            }
        }
        assert!(is_logged || new == 0 || real_sync_count() > real_syncs, "lost");
    }

    fn check(&mut self, first: u32, logged: &[Frame<'_>], new: usize) {
        let (before, those) = self.frames.split_at(self.frames.len() - new);
        assert_eq!((first as usize, logged.len()), (before.len() + 1, those.len()));
        for (index, (frame, version)) in logged.iter().zip(those).enumerate() {
            assert_eq!(frame.page, version.page);
            assert_eq!(frame.checksum, version.checksum);
            assert!(frame.holds(&version.bytes));
            let mut page = self.newest(&self.frames[..before.len() + index], frame.page);
            page::apply(frame.form, frame.bytes, &mut page).expect("it applies");
            assert!(page == version.bytes, "frame {} gives another page", first as usize + index);
        }
        self.logged += logged.len();
    }
}

fn header(salts: [u8; 8]) -> Vec<u8> {
    let words = [0x377f_0682, 3_007_000, PAGE_BYTES as u32, 0];
    let mut bytes: Vec<u8> = words.iter().flat_map(|word: &u32| word.to_be_bytes()).collect();
    bytes.extend_from_slice(&salts);
    let sum = wal::checksum(false, [0; 2], &bytes);
    bytes.extend(sum.iter().flat_map(|word| word.to_be_bytes()));
    bytes
}

/// Runs one seed. Returns how many frames were logged.
fn run(home: &TempDir, seed: u64) -> usize {
    let mut world = World::new(home, seed);
    let has_plain = seed.is_multiple_of(2);
    for _ in 0..60 {
        let process = world.random.usize(..if has_plain { PLAIN + 1 } else { PLAIN });
        match world.random.u8(..16) {
            0 if world.frames.len() > 10 => world.begin_generation(process),
            1 => world.checkpoint(process),
            2..4 => world.transact(process, End::RolledBack),
            4..6 if process != PLAIN => world.transact(process, End::NotCounted),
            _ => world.transact(process, End::Committed),
        }
    }
    world.logged
}

#[test]
fn the_log_gives_the_frames_of_the_file_whichever_process_wrote() {
    let (seeds, mut logged) = (tier::seeds(test_name!(), 400), 0);
    for first_seed in seeds.clone().step_by(20) {
        // One log for each twenty: those of all would need half a gibibyte of memory.
        let home = directory();
        let _first = World::new(&home, u64::MAX);
        let some = first_seed..seeds.end.min(first_seed + 20);
        logged += some.map(|seed| run(&home, seed)).sum::<usize>();
    }
    println!("{logged} frames were logged");
    assert!(logged > tier::count(20_000), "{logged} frames were logged");
}

/// The seeds are fixed, and begin with one that finds a fault today.
#[test]
fn caches_that_trust_themselves_are_found() {
    use crate::faults::Fault;
    let home = directory();
    let _first = World::new(&home, u64::MAX);
    for fault in [Fault::TrustsVersions, Fault::TrustsPending] {
        let is_found = |seed| std::panic::catch_unwind(|| run(&home, seed)).is_err();
        let found = fault::with(fault, || (18..1000).find(|seed| is_found(*seed)));
        assert!(found.is_some(), "{fault:?} was not found");
        println!("{fault:?}: seed {found:?}");
    }
}
