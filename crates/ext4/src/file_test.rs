//! File data against a model in memory, on an image that `mke2fs` made and `e2fsck` judges.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use device::MemoryDevice;

use crate::extent_tree;
use crate::inode::read_inode;
use crate::{Allocate, DataMode, Error, InodeNo, OpenOptions, Result, SeekTo, Timestamp, Volume};

const BLOCK: u64 = 4096;
const MODES: [DataMode; 2] = [DataMode::Journal, DataMode::Ordered];

/// Groups of 1 MiB, so that a file lies in many; nothing has a checksum.
const SMALL_GROUPS: [&str; 6] =
    ["-g", "256", "-O", "^metadata_csum,^64bit,^flex_bg,^resize_inode", "-N", "1024"];

/// A volume in memory with empty files `f0`, `f1`, … in its root.
struct Bench {
    directory: tempfile::TempDir,
    device: Arc<MemoryDevice>,
    mode: DataMode,
    files: Vec<InodeNo>,
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("e2fsprogs are installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}\n{errors}", output.status);
    text
}

impl Bench {
    fn new(mode: DataMode, size_mib: u64, file_count: usize) -> Bench {
        Bench::with_options(mode, size_mib, file_count, &[])
    }

    fn with_options(mode: DataMode, size_mib: u64, file_count: usize, mke2fs: &[&str]) -> Bench {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (image, root) = (directory.path().join("image"), directory.path().join("root"));
        std::fs::create_dir(&root).expect("a directory");
        for at in 0..file_count {
            std::fs::write(root.join(format!("f{at}")), b"").expect("an empty file");
        }
        run(Command::new("mke2fs")
            .args(["-q", "-t", "ext4", "-b", "4096", "-I", "256", "-d"])
            .arg(&root)
            .args(mke2fs)
            .arg(&image)
            .arg(format!("{size_mib}M")));
        let files = (0..file_count).map(|at| ino_of(&image, at)).collect();
        let bytes = std::fs::read(&image).expect("the image");
        let device = Arc::new(MemoryDevice::from_bytes(bytes, 512));
        Bench { directory, device, mode, files }
    }

    fn open(&self) -> Volume {
        let seconds = AtomicI64::new(4_000_000_000);
        let clock =
            move || Timestamp { seconds: seconds.fetch_add(1, Ordering::Relaxed), nanoseconds: 7 };
        let options = OpenOptions {
            data_mode: self.mode,
            commit_interval: None,
            background: false,
            clock: Arc::new(clock),
            random_seed: 1,
            ..OpenOptions::default()
        };
        Volume::open(self.device.clone(), options).expect("a volume")
    }

    fn save(&self) -> std::path::PathBuf {
        let image = self.directory.path().join("image");
        std::fs::write(&image, self.device.to_bytes()).expect("room in the temporary directory");
        image
    }

    fn fsck(&self) {
        run(Command::new("e2fsck").arg("-fn").arg(self.save()));
    }

    /// What `debugfs` finds in the file.
    fn dump(&self, at: usize) -> Vec<u8> {
        let out = self.directory.path().join("dump");
        let request = format!("dump /f{at} {}", out.display());
        run(Command::new("debugfs").args(["-R", &request]).arg(self.save()));
        std::fs::read(out).expect("what debugfs wrote")
    }
}

fn ino_of(image: &std::path::Path, at: usize) -> InodeNo {
    let text = run(Command::new("debugfs").args(["-R", &format!("stat /f{at}")]).arg(image));
    let number = text.split_whitespace().nth(1).expect("Inode: N");
    InodeNo(number.parse().expect("a number"))
}

/// A file as it should be: its bytes, and for each allocated block whether it was written.
#[derive(Default, Clone)]
struct Model {
    bytes: Vec<u8>,
    blocks: BTreeMap<u64, bool>,
}

impl Model {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn touched(offset: u64, len: u64) -> std::ops::Range<u64> {
        offset / BLOCK..(offset + len).div_ceil(BLOCK)
    }

    fn whole(offset: u64, end: u64) -> std::ops::Range<u64> {
        let start = offset.div_ceil(BLOCK);
        start..(end / BLOCK).max(start)
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        let end = offset as usize + data.len();
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[offset as usize..end].copy_from_slice(data);
        let blocks = Model::touched(offset, data.len() as u64);
        self.blocks.extend(blocks.map(|block| (block, true)));
    }

    fn resize(&mut self, size: u64) {
        if size <= self.size() {
            self.blocks.split_off(&size.div_ceil(BLOCK));
        }
        self.bytes.resize(size as usize, 0);
    }

    fn zero(&mut self, offset: u64, end: u64) {
        let end = end.min(self.size()) as usize;
        if (offset as usize) < end {
            self.bytes[offset as usize..end].fill(0);
        }
    }

    fn fallocate(&mut self, how: Allocate, offset: u64, len: u64) {
        let mut end = offset + len;
        if how == Allocate::PunchHole {
            end = end.min(self.size().next_multiple_of(BLOCK));
            self.zero(offset, end);
            let whole = Model::whole(offset, end);
            self.blocks.retain(|block, _| !whole.contains(block));
            return;
        }
        if let Allocate::ZeroRange { .. } = how {
            self.zero(offset, end);
            self.blocks.extend(Model::whole(offset, end).map(|block| (block, false)));
        }
        for block in Model::touched(offset, len) {
            self.blocks.entry(block).or_insert(false);
        }
        let grows = matches!(how, Allocate::Extend | Allocate::ZeroRange { keep_size: false });
        if grows && end > self.size() {
            self.bytes.resize(end as usize, 0);
        }
    }

    fn seek(&self, offset: u64, to: SeekTo) -> Option<u64> {
        if offset >= self.size() {
            return None;
        }
        let mut at = offset;
        while at < self.size() {
            let is_data = self.blocks.get(&(at / BLOCK)).copied().unwrap_or(false);
            if is_data == (to == SeekTo::Data) {
                return Some(at);
            }
            at = (at / BLOCK + 1) * BLOCK;
        }
        (to == SeekTo::Hole).then_some(self.size())
    }
}

fn set_size(volume: &Volume, ino: InodeNo, size: u64) -> Result<()> {
    volume.set_size(ino, size, |_, _| Ok(()))
}

fn read_all(volume: &Volume, ino: InodeNo, size: usize) -> Vec<u8> {
    let mut bytes = vec![0xEE; size + 10];
    let len = volume.read(ino, 0, &mut bytes).expect("a read");
    bytes.truncate(len);
    bytes
}

fn check(volume: &Volume, ino: InodeNo, model: &Model, what: &str) {
    let inode = read_inode(volume, ino).expect("an inode");
    assert_eq!(inode.size(), model.size(), "size, {what}");
    assert!(inode.sectors() >= 8 * model.blocks.len() as u64, "sectors, {what}");
    let bytes = read_all(volume, ino, model.bytes.len());
    if bytes != model.bytes {
        let at = bytes.iter().zip(&model.bytes).position(|(a, b)| a != b);
        panic!("content differs at {at:?}, {what}");
    }
}

/// One random operation on the volume and the model.
fn step(random: &mut fastrand::Rng, volume: &Volume, ino: InodeNo, model: &mut Model, space: u64) {
    let offset = random.u64(0..space);
    let limit = if random.u8(0..4) == 0 { 300_000 } else { 20_000 };
    let len = random.u64(1..limit).min(2 * space - offset);
    let aligned = random.bool();
    let (offset, len) =
        if aligned { (offset / BLOCK * BLOCK, len.next_multiple_of(BLOCK)) } else { (offset, len) };
    match random.u8(0..12) {
        0..5 => {
            let mut data = vec![0; len as usize];
            random.fill(&mut data);
            assert_eq!(volume.write(ino, offset, &data).expect("a write"), data.len());
            model.write(offset, &data);
        }
        5 => {
            set_size(volume, ino, offset).expect("a truncate");
            model.resize(offset);
        }
        6..9 => {
            let hows = [
                Allocate::Extend,
                Allocate::KeepSize,
                Allocate::PunchHole,
                Allocate::PunchHole,
                Allocate::ZeroRange { keep_size: true },
                Allocate::ZeroRange { keep_size: false },
            ];
            let how = hows[random.usize(0..hows.len())];
            volume.fallocate(ino, how, offset, len).expect("a fallocate");
            model.fallocate(how, offset, len);
        }
        9 => volume.fsync(ino, random.bool()).expect("an fsync"),
        10 => {
            let to = if random.bool() { SeekTo::Data } else { SeekTo::Hole };
            let found = match volume.seek(ino, offset, to) {
                Err(Error::NoSuchOffset) => None,
                found => Some(found.expect("a seek")),
            };
            assert_eq!(found, model.seek(offset, to), "seek {to:?} from {offset}");
        }
        _ => {
            let mut bytes = vec![0xEE; len as usize];
            let got = volume.read(ino, offset, &mut bytes).expect("a read");
            let end = (offset + len).min(model.size());
            let expected = &model.bytes[offset.min(end) as usize..end as usize];
            assert!(bytes[..got] == *expected, "read of {len} at {offset}");
        }
    }
}

fn random_operations(mode: DataMode, seed: u64) {
    let bench = Bench::new(mode, 64, 2);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut models = [Model::default(), Model::default()];
    let space = [200_000, 3_000_000][(seed % 2) as usize];
    let mut volume = bench.open();
    for round in 0..4 {
        let what = format!("{mode:?}, seed {seed}, round {round}");
        for _ in 0..60 {
            let at = random.usize(0..2);
            step(&mut random, &volume, bench.files[at], &mut models[at], space);
        }
        for (ino, model) in bench.files.iter().zip(&models) {
            check(&volume, *ino, model, &what);
        }
        if round % 2 == 0 {
            volume.close().expect("a clean close");
            bench.fsck();
            for (at, model) in models.iter().enumerate() {
                assert!(bench.dump(at) == model.bytes, "debugfs disagrees, {what}");
            }
        } else {
            volume.sync().expect("a sync");
            drop(volume); // a crash
        }
        volume = bench.open();
        for (ino, model) in bench.files.iter().zip(&models) {
            check(&volume, *ino, model, &format!("opened again, {what}"));
        }
    }
    volume.close().expect("a clean close");
    bench.fsck();
}

#[test]
fn random_operations_match_the_model_journaled() {
    (0..6).for_each(|seed| random_operations(DataMode::Journal, seed));
}

#[test]
fn random_operations_match_the_model_ordered() {
    (0..6).for_each(|seed| random_operations(DataMode::Ordered, seed));
}

#[test]
fn large_writes_cross_many_operations() {
    for mode in MODES {
        let bench = Bench::new(mode, 128, 1);
        let (volume, ino) = (bench.open(), bench.files[0]);
        let mut model = Model::default();
        let mut data = vec![0; 20 << 20];
        fastrand::Rng::with_seed(5).fill(&mut data);
        assert_eq!(volume.write(ino, 1000, &data).expect("a write"), data.len());
        model.write(1000, &data);
        check(&volume, ino, &model, "fresh");
        assert_eq!(volume.write(ino, 3, &data).expect("a write"), data.len());
        model.write(3, &data);
        check(&volume, ino, &model, "overwritten");
        let inode = read_inode(&volume, ino).expect("an inode");
        assert_eq!(extent_tree::depth(&inode), 0, "one file alone lies in few extents");
        volume.close().expect("a clean close");
        bench.fsck();
        assert!(bench.dump(0) == model.bytes);
    }
}

#[test]
fn alternating_holes_make_a_deep_tree_and_it_goes_again() {
    for mode in MODES {
        let bench = Bench::new(mode, 128, 1);
        let (volume, ino) = (bench.open(), bench.files[0]);
        let mut model = Model::default();
        let count = 3000;
        for at in 0..count {
            let data = [(at % 251) as u8 + 1; 100];
            volume.write(ino, 2 * at * BLOCK, &data).expect("a write");
            model.write(2 * at * BLOCK, &data);
        }
        let depth =
            |volume: &Volume| extent_tree::depth(&read_inode(volume, ino).expect("an inode"));
        assert!(depth(&volume) >= 2);
        check(&volume, ino, &model, "deep");
        volume.close().expect("a clean close");
        bench.fsck();
        let volume = bench.open();
        check(&volume, ino, &model, "deep, opened again");
        // Fill the holes: extents join, but leaves stay.
        volume.fallocate(ino, Allocate::Extend, 0, 2 * count * BLOCK).expect("a fallocate");
        model.fallocate(Allocate::Extend, 0, 2 * count * BLOCK);
        check(&volume, ino, &model, "filled");
        volume.fallocate(ino, Allocate::PunchHole, 0, count * BLOCK).expect("a punch");
        model.fallocate(Allocate::PunchHole, 0, count * BLOCK);
        check(&volume, ino, &model, "half of it punched");
        set_size(&volume, ino, 10).expect("a truncate");
        model.resize(10);
        check(&volume, ino, &model, "cut");
        let inode = read_inode(&volume, ino).expect("an inode");
        assert_eq!((depth(&volume), inode.sectors()), (0, 0));
        volume.close().expect("a clean close");
        bench.fsck();
    }
}

#[test]
fn a_full_volume_stays_sound() {
    for mode in MODES {
        let bench = Bench::new(mode, 24, 2);
        let volume = bench.open();
        let data = vec![0x5A; 1 << 20];
        let mut size = 0;
        // Every other block only, so that the tree needs blocks as well.
        let error = loop {
            match volume.write(bench.files[1], size * 2, &data[..4096]) {
                Ok(len) => size += len as u64,
                Err(error) => break error,
            }
            if size == 8 << 20 {
                break Error::NoSpace;
            }
        };
        assert!(matches!(error, Error::NoSpace));
        let mut size = 0;
        loop {
            match volume.write(bench.files[0], size, &data) {
                Ok(len) => size += len as u64,
                Err(Error::NoSpace) => break,
                Err(error) => panic!("{error}"),
            }
        }
        let result = volume.fallocate(bench.files[0], Allocate::Extend, 0, 1 << 30);
        assert!(matches!(result, Err(Error::NoSpace)));
        let bytes = read_all(&volume, bench.files[0], size as usize);
        assert!(bytes.iter().all(|byte| *byte == 0x5A));
        // What was freed can be used at once.
        set_size(&volume, bench.files[1], 0).expect("a truncate");
        assert_eq!(volume.write(bench.files[1], 0, &data).expect("room again"), data.len());
        volume.close().expect("a clean close");
        bench.fsck();
    }
}

#[test]
fn small_groups_and_no_checksums() {
    for mode in MODES {
        let bench = Bench::with_options(mode, 64, 1, &SMALL_GROUPS);
        let (volume, ino) = (bench.open(), bench.files[0]);
        let mut model = Model::default();
        let data = vec![7; 24 << 20];
        volume.write(ino, 0, &data).expect("a write");
        model.write(0, &data);
        volume.fallocate(ino, Allocate::PunchHole, 4096, 20 << 20).expect("a punch");
        model.fallocate(Allocate::PunchHole, 4096, 20 << 20);
        check(&volume, ino, &model, "punched over many groups");
        volume.close().expect("a clean close");
        bench.fsck();
    }
}

/// Threads with a file each, commits and checkpoints in the background: nothing waits for ever, and
/// everyone reads what he wrote.
#[test]
fn writers_side_by_side() {
    for mode in MODES {
        let bench = Bench::new(mode, 128, 4);
        let options =
            OpenOptions { data_mode: mode, background: true, random_seed: 1, ..Default::default() };
        let volume = Volume::open(bench.device.clone(), options).expect("a volume");
        let models: Vec<Model> = std::thread::scope(|scope| {
            let threads: Vec<_> = bench
                .files
                .iter()
                .map(|ino| {
                    let (volume, ino) = (&volume, *ino);
                    scope.spawn(move || {
                        let mut random = fastrand::Rng::with_seed(ino.0.into());
                        let mut model = Model::default();
                        (0..150)
                            .for_each(|_| step(&mut random, volume, ino, &mut model, 2_000_000));
                        check(volume, ino, &model, "by its writer");
                        model
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        volume.close().expect("a clean close");
        bench.fsck();
        for (at, model) in models.iter().enumerate() {
            assert!(bench.dump(at) == model.bytes, "debugfs disagrees, {mode:?}, file {at}");
        }
    }
}

/// The first of several operations of a truncate is durable, the others never happened.
#[test]
fn an_interrupted_truncate_is_finished_at_the_next_opening() {
    let bench = Bench::with_options(DataMode::Ordered, 96, 1, &SMALL_GROUPS);
    let (volume, ino) = (bench.open(), bench.files[0]);
    let data = vec![7; 70 << 20];
    volume.write(ino, 0, &data).expect("a write");
    let rest = volume
        .with_op(crate::free_budget::FREE_CREDIT_COUNT, |op| {
            let mut inode = op.inode(ino)?;
            let rest = crate::truncate::resize(op, &mut inode, 5000)?;
            op.put_inode(&inode)?;
            Ok(rest)
        })
        .expect("a part of a truncate");
    assert!(rest.is_some(), "70 groups are too many for one operation");
    volume.sync().expect("a sync");
    drop(volume); // a crash
    let volume = bench.open();
    let inode = read_inode(&volume, ino).expect("an inode");
    assert_eq!((inode.size(), inode.sectors()), (5000, 16));
    assert!(read_all(&volume, ino, 5000).iter().all(|byte| *byte == 7));
    volume.close().expect("a clean close");
    bench.fsck();
}

#[test]
fn overwriting_in_place_needs_no_commit_for_fdatasync() {
    for mode in MODES {
        let bench = Bench::new(mode, 64, 1);
        let (volume, ino) = (bench.open(), bench.files[0]);
        let data = vec![1; 200_000];
        volume.write(ino, 0, &data).expect("a write");
        volume.fsync(ino, false).expect("an fsync");
        let committed = volume.committed();
        volume.fsync(ino, false).expect("an fsync of nothing");
        assert_eq!(volume.committed(), committed);
        volume.write(ino, 10, &[2; 150_000]).expect("a write");
        volume.fsync(ino, true).expect("an fdatasync");
        assert_eq!(volume.committed() == committed, mode == DataMode::Ordered);
        drop(volume); // a crash
        let volume = bench.open();
        let bytes = read_all(&volume, ino, data.len());
        assert!(bytes[10..150_010].iter().all(|byte| *byte == 2), "{mode:?}");
        assert_eq!((bytes[9], bytes[150_010], bytes.len()), (1, 1, data.len()));
        volume.close().expect("a clean close");
        bench.fsck();
    }
}

#[test]
fn access_times_follow_changes_only() {
    let bench = Bench::new(DataMode::Journal, 64, 1);
    let (volume, ino) = (bench.open(), bench.files[0]);
    let attr = || read_inode(&volume, ino).expect("an inode").attr();
    let read = || volume.read(ino, 0, &mut [0; 4]).expect("a read");
    volume.write(ino, 0, b"text").expect("a write");
    assert!(attr().atime < attr().mtime);
    read();
    let atime = attr().atime;
    assert!(atime > attr().mtime && attr().ctime == attr().mtime);
    read();
    assert_eq!(attr().atime, atime);
    volume.write(ino, 0, b"TEXT").expect("a write");
    read();
    assert!(attr().atime > atime);
}

#[test]
fn writes_of_others_clear_privileges() {
    let bench = Bench::new(DataMode::Journal, 64, 1);
    let (volume, ino) = (bench.open(), bench.files[0]);
    let cases = [(0o6755, 0o755), (0o6644, 0o2644), (0o1777, 0o1777)];
    for (before, after) in cases {
        let set = crate::SetAttr { mode: Some(before), ..Default::default() };
        volume.set_attr(ino, &set).expect("a chmod");
        volume.write(ino, 0, b"x").expect("a write");
        assert_eq!(volume.get_attr(ino).expect("attributes").mode & 0o7777, before);
        volume.write_killing_privileges(ino, 0, b"x").expect("a write");
        assert_eq!(volume.get_attr(ino).expect("attributes").mode & 0o7777, after);
    }
}

/// An extent that names the file system's own blocks.
#[test]
fn metadata_cannot_be_read_as_data() {
    let bench = Bench::with_options(DataMode::Journal, 24, 1, &["-O", "^metadata_csum"]);
    let (volume, ino) = (bench.open(), bench.files[0]);
    volume.write(ino, 0, b"x").expect("a write");
    let (table, place) = crate::groups::inode_place(&volume, ino).expect("an inode's place");
    volume.close().expect("a clean close");
    let mut bytes = bench.device.to_bytes();
    let start_lo = table.0 as usize * 4096 + place + 40 + 12 + 8;
    bytes[start_lo..start_lo + 4].copy_from_slice(&(table.0 as u32).to_le_bytes());
    let device = Arc::new(MemoryDevice::from_bytes(bytes, 512));
    let volume = Volume::open(device, OpenOptions::default()).expect("a volume");
    let is_corrupt = |result: Result<usize>| matches!(result, Err(Error::Corrupt { .. }));
    assert!(is_corrupt(volume.read(ino, 0, &mut [0])));
    assert!(is_corrupt(volume.write(ino, 0, b"x")));
}

#[test]
fn limits_and_refusals() {
    let bench = Bench::new(DataMode::Journal, 64, 1);
    let (volume, ino) = (bench.open(), bench.files[0]);
    let max = crate::file::FILE_BYTES_MAX;
    assert!(matches!(volume.write(ino, max, b"x"), Err(Error::FileTooBig)));
    assert!(matches!(volume.write(InodeNo::ROOT, 0, b"x"), Err(Error::IsDirectory)));
    assert!(matches!(set_size(&volume, ino, max + 1), Err(Error::FileTooBig)));
    assert!(matches!(
        volume.fallocate(ino, Allocate::KeepSize, u64::MAX, 2),
        Err(Error::FileTooBig)
    ));
    assert_eq!(volume.write(ino, max - 1, b"xy").expect("one byte fits"), 1);
    let mut byte = [0; 2];
    assert_eq!(volume.read(ino, max - 1, &mut byte).expect("a read"), 1);
    assert_eq!(byte[0], b'x');
    assert_eq!(volume.seek(ino, 0, SeekTo::Data).expect("data"), max - 4096);
    set_size(&volume, ino, 0).expect("a truncate");
    volume.close().expect("a clean close");
    bench.fsck();
}

#[test]
fn stale_bytes_never_appear() {
    for mode in MODES {
        let bench = Bench::new(mode, 64, 1);
        let (volume, ino) = (bench.open(), bench.files[0]);
        volume.write(ino, 0, &[9; 8000]).expect("a write");
        set_size(&volume, ino, 100).expect("a truncate");
        set_size(&volume, ino, 9000).expect("a truncate");
        let bytes = read_all(&volume, ino, 9000);
        assert!(bytes[..100].iter().all(|b| *b == 9) && bytes[100..].iter().all(|b| *b == 0));
        volume.close().expect("a clean close");
        bench.fsck();
    }
}

#[test]
fn damaged_extent_blocks_are_errors() {
    let bench = Bench::new(DataMode::Journal, 64, 1);
    let (volume, ino) = (bench.open(), bench.files[0]);
    (0..40u64).for_each(|at| {
        volume.write(ino, 2 * at * BLOCK, b"data").expect("a write");
    });
    let inode = read_inode(&volume, ino).expect("an inode");
    assert_eq!(extent_tree::depth(&inode), 1);
    // The root's first index entry: its block is at byte 16.
    let node = u32::from_le_bytes(inode.i_block()[16..20].try_into().expect("4 bytes"));
    volume.close().expect("a clean close");
    let sound = bench.device.to_bytes();
    let mut random = fastrand::Rng::with_seed(3);
    for round in 0..60 {
        let mut bytes = sound.clone();
        // Within the slots in use, so that the checksum is what finds it, or the header.
        let at = node as usize * 4096 + random.usize(0..12 + 40 * 12);
        bytes[at] ^= random.u8(1..=255);
        let device = Arc::new(MemoryDevice::from_bytes(bytes, 512));
        let options =
            OpenOptions { background: false, commit_interval: None, ..Default::default() };
        let volume = Volume::open(device, options).expect("a volume");
        let mut out = vec![0; 40 * 8192];
        let is_corrupt = |result: Result<usize>| matches!(result, Err(Error::Corrupt { .. }));
        assert!(is_corrupt(volume.read(ino, 0, &mut out)), "round {round}");
        assert!(is_corrupt(volume.write(ino, 4096, b"x")), "round {round}");
        assert!(matches!(set_size(&volume, ino, 0), Err(Error::Corrupt { .. })), "round {round}");
    }
}

/// Without checksums nothing tells a damaged extent tree from a sound one but its own sense: every
/// operation ends, with whatever result, and none panics.
#[test]
fn crafted_extent_trees_do_no_harm() {
    let options = ["-O", "^metadata_csum"];
    let bench = Bench::with_options(DataMode::Ordered, 24, 1, &options);
    let (volume, ino) = (bench.open(), bench.files[0]);
    (0..400u64).for_each(|at| {
        volume.write(ino, 2 * at * BLOCK, b"data").expect("a write");
    });
    volume.fallocate(ino, Allocate::KeepSize, 1 << 23, 1 << 20).expect("a fallocate");
    let inode = read_inode(&volume, ino).expect("an inode");
    let (table, place) = crate::groups::inode_place(&volume, ino).expect("an inode's place");
    let root = table.0 as usize * 4096 + place + 40;
    let node = u32::from_le_bytes(inode.i_block()[16..20].try_into().expect("4 bytes"));
    volume.close().expect("a clean close");
    let sound = bench.device.to_bytes();
    let mut corrupt_count = 0;
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut bytes = sound.clone();
        for _ in 0..random.usize(1..4) {
            let in_root = random.bool();
            let within = if random.bool() { 16 } else { 60 };
            let at = random.usize(0..within) + if in_root { root } else { node as usize * 4096 };
            bytes[at] =
                if random.bool() { random.u8(..) } else { bytes[at] ^ 1 << random.u8(0..8) };
        }
        corrupt_count += usize::from(survive(&mut random, bytes, ino));
    }
    assert!(corrupt_count > 100, "only {corrupt_count} of 300 were found out");
}

/// Runs operations on a crafted image. Whether one of them said that it is corrupt.
fn survive(random: &mut fastrand::Rng, bytes: Vec<u8>, ino: InodeNo) -> bool {
    let device = Arc::new(MemoryDevice::from_bytes(bytes, 512));
    let options = OpenOptions {
        background: false,
        commit_interval: None,
        data_mode: MODES[random.usize(0..2)],
        ..Default::default()
    };
    let volume = Volume::open(device, options).expect("a volume");
    let mut found = false;
    for _ in 0..12 {
        let (offset, len) = (random.u64(0..4 << 20), random.u64(1..1 << 20));
        let result = match random.u8(0..6) {
            0 => volume.read(ino, offset, &mut vec![0; len as usize]).map(|_| ()),
            1 => volume.write(ino, offset, &vec![1; len as usize]).map(|_| ()),
            2 => volume.fallocate(ino, Allocate::PunchHole, offset, len),
            3 => volume.fallocate(ino, Allocate::ZeroRange { keep_size: true }, offset, len),
            4 => volume.seek(ino, offset, SeekTo::Hole).map(|_| ()),
            _ => set_size(&volume, ino, offset),
        };
        found |= matches!(result, Err(Error::Corrupt { .. }));
    }
    found
}

#[test]
fn freeing_an_inode_gives_everything_back() {
    let bench = Bench::new(DataMode::Journal, 64, 1);
    let (volume, ino) = (bench.open(), bench.files[0]);
    (0..1000u64).for_each(|at| {
        volume.write(ino, 3 * at * BLOCK, b"data").expect("a write");
    });
    volume.free_inode_blocks(ino).expect("freed");
    let inode = read_inode(&volume, ino).expect("an inode");
    assert_eq!(inode.sectors(), 0);
    volume.close().expect("a clean close");
    bench.fsck();
}
